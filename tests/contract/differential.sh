#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# This library against another libgdrapi.so of level 2.x, such as NVIDIA's: the calls of gdrapi.h with the same arguments,
# fixed cases and random programs, on the gdrdrv that is there or, without one, on the stand-in's; errno, info and bytes.
#   differential.sh BUILD_DIR SIM_DIR LIBRARY [SEED...]      LIBRARY: the other one's file
# Exit 77 without LIBRARY. A difference that is meant has a row below.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
build=$(realpath "$out") sim=$(realpath "${2:?directory of the stand-ins}")
[ -n "${3:-}" ] || { echo "no other libgdrapi.so is named"; exit 77; }
other=$(realpath "$3") && [ -f "$other" ] || { echo "$3: no such library"; exit 1; }
seeds=("${@:4}")
[ ${#seeds[@]} != 0 ] || seeds=({1..20})
steps=400

# CASE|this library's line|the other's line: why
read -r -d '' known <<-'END'
	case: an unmap of other bytes|unmap 61440: 22|unmap 61440: 0: it ends what was mapped alone, not a part of it
	case: an unknown flag of a pin|pin_v2: 22|pin_v2: 0: an unknown flag is refused, so that later ones can be told apart
END

gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Werror -O2 -Iinclude -Isrc -o "$tmp/differential" \
	tests/contract/differential.c tests/contract/gpu.c -ldl
ok "it compiles"
if [ -e /dev/gdrdrv ]; then
	where=(LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}") on=/dev/gdrdrv modes=(CONTRACT_MEMORY=)
else
	where=(LD_LIBRARY_PATH="$sim" LD_PRELOAD="$sim/libgdrdrv_node.so" GDRSIM_RM=absent) on="the stand-in"
	modes=(CONTRACT_MEMORY= GDRSIM_NODE_PERSISTENT=0 GDRSIM_NODE_LEVEL=2.4 CONTRACT_MEMORY=vmm)
fi

# lines LIBRARY SEED: what the program prints, with $rc
lines() {
	env "${where[@]}" "$mode" GDRCOPY_BACKEND=gdrdrv timeout 120 "$tmp/differential" "$1" "$2" $steps 2>"$tmp/err"
	rc=$?
	[ $rc = 0 ] || sed 's/^/# /' "$tmp/err" >&2
}

# The differences that have no row; each row that was seen goes to $tmp/seen.
differences() {
	paste -d '|' "$tmp/ours" "$tmp/theirs" | awk -v known="$known" -v seen="$tmp/seen" '
		BEGIN {
			FS = "|"
			n = split(known, rows, "\n")
		}
		{ met = $1 == $2 }
		$1 ~ /^case: |^random/ { where = $1 }
		!met {
			for (i = 1; i <= n; i++)
				if (index(rows[i], where "|" $1 "|" $2 ": ") == 1) {
					met = 1
					print rows[i] >>seen
				}
		}
		!met { print "# " NR ", " where ": \"" $1 "\", not \"" $2 "\"" }'
}

turn=0
for seed in "${seeds[@]}"; do
	mode=${modes[turn++ % ${#modes[@]}]}
	lines "$build/libgdrapi.so.2" "$seed" >"$tmp/ours"
	first=$rc
	lines "$other" "$seed" >"$tmp/theirs"
	differences >"$tmp/differences"
	head -n 8 "$tmp/differences"
	count=$(wc -l <"$tmp/ours")
	[ "$first $rc" = "0 0" ] && [ ! -s "$tmp/differences" ] && [ "$count" -gt $steps ]
	ok "seed $seed on $on, $mode: $count lines are the same"
done
printf '%s\n' "$known" >"$tmp/rows"
[ "$(sort -u "$tmp/seen" 2>/dev/null)" = "$(sort -u "$tmp/rows")" ]
ok "each difference that is meant is there"
finish
