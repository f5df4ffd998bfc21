#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The scheduler's scenarios: seeds 1 to 20 of each, and that a seed alone repeats its schedule. fresh.sh has others.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
sim=${2:?directory of the stand-ins}

explore() {
	LD_LIBRARY_PATH=$sim LD_PRELOAD=$sim/libnvidia_node.so GDRSIM_NODE=absent "$out/tests/explore" "$@"
}
switches() { # switches SCENARIO SEED
	EXPLORE_TURNS=1 explore "$1" "$2" 2>&1
}

scenarios=$(explore)
ok "the scenarios are listed"
explore unordered 2 2>&1 | grep -q 'data race'
ok "two writes that nothing orders are a data race"
fixed=yes
switches room 1 | grep -q 'addresses are random' && fixed=
for s in $scenarios; do
	EXPLORE_TURNS=1 explore "$s" 1 20 >"$tmp/run" 2>&1 || ! cat "$tmp/run"
	ok "$s: seeds 1 to 20"
	if [ "$fixed" ]; then
		[ "$(head -2 "$tmp/run")" = "$(switches "$s" 1; switches "$s" 2)" ]
		ok "$s: a seed repeats its schedule"
	else
		skip "$s: a seed repeats its schedule" "personality(ADDR_NO_RANDOMIZE) is refused"
	fi
done
finish
