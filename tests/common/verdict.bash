# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What a finished test says: reads its log, counts, keeps what failed and why something was skipped,
# and tells it all at the end. Sourced by tests/run.sh, which sets $logs; knows nothing of how tests
# are run.
#
#   verdict LOG RC NAME     counts one test program by what it printed: Check's summary, or a last
#                           line `N passed, N failed, N skipped`. RC 77 is a skip; the last line says why
#   passed_alone NAME       a build or check that is one test by itself
#   failed_alone NAME LOG WHY, skipped_alone NAME WHY
#   summary                 failures with their logs' last lines, skips by reason, the closing line

passed=0 failed=0 skipped=0
failures=() # NAME LOG what is said of it, with $US between them: LOG may be empty
US=$'\x1f'
reasons=()  # WHY<tab>NAME, one for each skipped test
line=       # what the last verdict has to say, in one line

passed_alone() {
	passed=$((passed + 1))
	line="ok   $1"
}

failed_alone() {
	failed=$((failed + 1))
	failures+=("$1$US$2$US$3")
	line="FAIL $1: $3"
}

skipped_alone() {
	skipped=$((skipped + 1))
	reasons+=("$2"$'\t'"$1")
	line="SKIP $1: $2"
}

# The reasons that a log gives, one a line: TAP's directive; what a guest of tests/kernel says; what
# a Check program prints of a test that returned before it began (tests/common/again.h, or SKIP).
reasons_of() {
	sed -nE -e 's/^ok\b[^#]*# SKIP[: ]*(.*)$/\1/p' -e 's/^# .*: # skipped: (.*)$/\1/p' \
		-e 's/^not emulated: [^:]*: (.*)$/not under user-mode emulation: \1/p' \
		-e 's/^SKIP [^:]*: (.*)$/\1/p' "$1"
}

verdict() {
	local log=$1 rc=$2 name=$3 counts p=0 f=0 s=0 n why=() text
	if [ "$rc" = 77 ]; then
		text=$(reasons_of "$log" | tail -n 1)
		[ -n "$text" ] || text=$(tail -n 1 "$log" 2>/dev/null)
		skipped_alone "$name" "${text:-it does not say why}"
		return
	fi
	counts=$(grep -aE '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
	if [ -n "$counts" ]; then
		read -r p f s <<<"$(sed -E 's/^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 \4/' <<<"$counts")"
		s=${s:-0}
	else
		while read -r n text; do
			f=$((f + text))
			p=$((p + n - (text)))
		done < <(sed -nE 's/^[0-9]+%: Checks: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+).*/\1 \2+\3/p' "$log")
		# Check counts what returned at once as passed.
		n=$(grep -acE '^(not emulated|SKIP [^:]*): ' "$log")
		p=$((p - n)) s=$n
	fi
	[ "$rc" = 0 ] || [ "$f" != 0 ] || f=1
	[ "$rc" != 0 ] || [ $((p + f + s)) != 0 ] || f=1 # it ran no test
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	if [ "$f" = 0 ]; then
		line="ok   $name: $p passed"
	else
		text="$p passed, $f failed (exit $rc)"
		failures+=("$name$US$log$US$text")
		line="FAIL $name: $text"
	fi
	[ "$s" = 0 ] || line+=", $s skipped"
	mapfile -t why < <(reasons_of "$log")
	for ((n = 0; n < s; n++)); do
		reasons+=("${why[n]:-it does not say why}"$'\t'"$name")
	done
}

summary() {
	local name log text
	if [ ${#failures[@]} -gt 0 ]; then
		echo
		echo "failed:"
		while IFS=$US read -r name log text; do
			echo "  $name: $text${log:+; $log}"
			[ -s "$log" ] || continue
			grep -aE '^not ok|:[FE]:|ERROR|WARNING: ThreadSanitizer|SUMMARY|runtime error' "$log" |
				head -n 20 | sed 's/^/       /'
			echo "       its last lines:"
			tail -n 15 "$log" | sed 's/^/       /'
		done < <(printf '%s\n' "${failures[@]}")
	fi
	if [ ${#reasons[@]} -gt 0 ]; then
		echo
		echo "skipped:"
		printf '%s\n' "${reasons[@]}" | LC_ALL=C sort | awk -F'\t' '
			function flush() {
				if (n)
					printf "  %4d  %s (%s%s)\n", n, why, names, more ? " and " more " more" : ""
			}
			$1 != why { flush(); why = $1; names = last = ""; n = kinds = more = 0 }
			{ n++ }
			$2 != last { last = $2; if (++kinds <= 4) names = names (names ? ", " : "") $2; else more++ }
			END { flush() }'
	fi
	echo
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
}
