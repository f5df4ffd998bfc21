# shellcheck shell=bash disable=SC2034 # used by the script that sources this
# SPDX-License-Identifier: MIT
# What the tests of the packages share, sourced with BUILD_DIR.
# shellcheck source=tests/common/build.bash
. "$(dirname "${BASH_SOURCE[0]}")/../common/build.bash"
out=$(realpath "$out") log=$tmp/log
version=$(sed -n 's/^VERSION := //p' Makefile)
level=${version%.*}
MK=(make -s "O=$out")

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

have() { command -v "$1" >/dev/null 2>&1; }
