#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Five CPU minutes of the scheduler's scenarios from a fresh seed, which it prints; EXPLORE_SEED= repeats it.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
sim=${2:?directory of the stand-ins}

seed=${EXPLORE_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "seed $seed"
LD_LIBRARY_PATH=$sim LD_PRELOAD=$sim/libnvidia_node.so GDRSIM_NODE=absent "$out/tests/explore" all "$seed" 1000000 300
ok "five CPU minutes from seed $seed"
finish
