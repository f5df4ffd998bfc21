#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A minute of CPU time of the model's random calls from a fresh seed on, which it prints; MODEL_SEED= begins at that one.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
sim=${2:?directory of the stand-ins}

seed=${MODEL_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "seed $seed"
TIMEFORMAT='%U %S'
used=0
rc=0
while [ "$rc" = 0 ] && [ "$used" -lt 60000 ]; do
	{ time LD_LIBRARY_PATH=$sim GDRSIM_DIR=$sim GDRCOPY_TEST_SEED=$seed MODEL_STEPS=2000 \
		"$out/tests/test_model" >"$tmp/log" 2>&1; } 2>"$tmp/time"
	rc=$?
	used=$((used + $(awk '{ print int(1000 * ($1 + $2)) + 1 }' "$tmp/time")))
	[ "$rc" = 0 ] && seed=$((seed + 1))
done
[ "$rc" = 0 ] || cat "$tmp/log"
[ "$rc" = 0 ]
ok "a minute of random calls, until seed $seed"
finish
