#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The scheduler's scenarios: seeds 21 to 60 of each, which seeds.sh leaves; and five CPU minutes from a fresh seed,
# which it prints; EXPLORE_SEED= repeats it.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
sim=${2:?directory of the stand-ins}

explore() {
	LD_LIBRARY_PATH=$sim LD_PRELOAD=$sim/libnvidia_node.so GDRSIM_NODE=absent "$out/tests/explore" "$@"
}

for s in $(explore); do
	explore "$s" 21 40
	ok "$s: seeds 21 to 60"
done
seed=${EXPLORE_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "seed $seed"
explore all "$seed" 1000000 300
ok "five CPU minutes from seed $seed"
finish
