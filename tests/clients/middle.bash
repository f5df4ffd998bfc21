# SPDX-License-Identifier: MIT
# Medians of runs with and without the library, for the scripts here, which source it.
# shellcheck shell=bash disable=SC2154,SC2034

# The median and the spread of the lines of a file.
middle() { LC_ALL=C sort -n "$1" | awk '{ v[NR] = $1 } END { printf "%8.2f (%.2f-%.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

# The median of the second file divided by that of the first.
gain() {
	paste <(LC_ALL=C sort -n "$1") <(LC_ALL=C sort -n "$2") |
		awk '{ a[NR] = $1; b[NR] = $2 } END { m = int((NR + 1) / 2); printf "%.2f", b[m] / a[m] }'
}

# Whether the library pinned memory, by the summary of GDRCOPY_STATS=1 in a file.
used() { grep -q '^  pins [1-9]' "$1"; }

# table TITLE COMMAND SIZES...: runs `COMMAND 1 SIZE` (with) and `COMMAND 0 SIZE` (without) in turn,
# $rounds times. COMMAND prints one number and writes standard error to $work/stats. Sets failed=1
# if a run gives no number, or if no size used the library; a row says if its size did not, as
# clients have thresholds.
table() {
	local title=$1 command=$2 size i used_at='' note
	shift 2
	echo "$title"
	printf '%10s  %-24s %-24s %s\n' bytes 'with, us' 'without, us' ratio
	for size in "$@"; do
		: >"$work/with"
		: >"$work/without"
		for ((i = 0; i < rounds; i++)); do
			"$command" 1 "$size" >>"$work/with"
			if used "$work/stats"; then used_at=$size note=''; else note=' (not used)'; fi
			"$command" 0 "$size" >>"$work/without"
		done
		if [ "$(grep -c . "$work/with")" != "$rounds" ] || [ "$(grep -c . "$work/without")" != "$rounds" ]; then
			echo "a run failed at $size bytes"
			tail -n 5 "$work/stats" "$work/out"
			failed=1
			continue
		fi
		printf '%10s  %-24s %-24s %s\n' "$size" "$(middle "$work/with")" "$(middle "$work/without")" \
			"$(gain "$work/with" "$work/without")$note"
	done
	[ -n "$used_at" ] || { echo "the library was not used"; failed=1; }
}
