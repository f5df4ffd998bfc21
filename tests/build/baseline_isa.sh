#!/bin/sh
# SPDX-License-Identifier: MIT
# The objects of the copies hold no VEX or EVEX instruction outside the functions gdri_avx*; and the check
# finds one where there is one.
#   baseline_isa.sh BUILD_DIR
set -u
out=$1
cd "$(dirname "$0")/../.." || exit 1
check=tests/unit/check_baseline_isa.sh

objects=$(make -s --no-print-directory O="$out" print-copy-baseline) || exit 1
# shellcheck disable=SC2086 # a list of words
"$check" $objects
case $? in
77) exit 77 ;;
0) passed=1 failed=0 ;;
*) passed=0 failed=1 ;;
esac
if "$check" "$out/dev/impls/impls.o" >/dev/null 2>&1; then
	echo "not ok: AVX2 is not noticed"
	failed=$((failed + 1))
else
	passed=$((passed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
