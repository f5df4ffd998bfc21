#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 15 seeds of the model (test_model.c) from a fresh one on, under ASan: less than a CPU minute.
# MODEL_SEED= begins at that one.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
build=$out/asan

make -s O="$build" WERROR=-Werror SANITIZE=address,undefined CFLAGS='-O1 -g1' "$build/tests/test_model" sim \
	>"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log"; false; }
ok "the model is built with ASan"
seed=${MODEL_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
for ((end = seed + 15; seed < end && !failed; seed++)); do
	LD_LIBRARY_PATH=$build/sim GDRSIM_DIR=$build/sim GDRCOPY_TEST_SEED=$seed "$build/tests/test_model" \
		>"$tmp/log" 2>&1 || { cat "$tmp/log"; false; }
	ok "seed $seed"
done
finish
