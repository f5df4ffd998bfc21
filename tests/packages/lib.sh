# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# What the tests of the packages share: one line for each test, a closing line with the counts.
passed=0 failed=0 skipped=0 log=${log:-$(mktemp)}

# t NAME COMMAND...: passes if the command does; what a failing one printed is shown. 77: a skip.
t() {
	local name=$1 rc=0
	shift
	"$@" >"$log" 2>&1 </dev/null || rc=$?
	case $rc in
	0) echo "ok - $name" && passed=$((passed + 1)) ;;
	77) skip "$name" "$(tail -n 1 "$log")" ;;
	*)
		echo "not ok - $name"
		tail -n "${lines:-25}" "$log" | sed 's/^/#   /'
		failed=$((failed + 1))
		;;
	esac
	return 0
}

# silent COMMAND...: fails if the command fails or writes to its standard output
silent() {
	local text rc=0
	text=$("$@") || rc=$?
	[ -z "$text" ] || { echo "$text"; [ $rc != 0 ] || rc=1; }
	return $rc
}

skip() {
	echo "ok - $1 # SKIP $2"
	skipped=$((skipped + 1))
}

have() { command -v "$1" >/dev/null 2>&1; }

finish() {
	rm -f "$log"
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
}
