#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The objects of the copies hold no VEX or EVEX instruction outside the functions gdri_avx*; the
# check finds those of an object that has them.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
check=tests/unit/check_baseline_isa.sh

objects=$(make -s --no-print-directory O="$out" print-copy-baseline) || exit 1
# shellcheck disable=SC2086 # a list of words
"$check" $objects
rc=$?
[ $rc != 77 ] || exit 77
[ $rc = 0 ]
ok "no VEX or EVEX instruction"
! "$check" "$out/dev/impls/impls.o" >/dev/null 2>&1
ok "those of AVX2 are found"
finish
