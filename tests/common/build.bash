# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the tests of the build share: counting, TAP-like lines, the closing line. Sourced.
# Arguments of every test here: BUILD_DIR SIM_DIR.
set -u
export LC_ALL=C # Turkish has no i between a and z
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck disable=SC2034 # for those who source it
out=${1:?build directory}
passed=0 failed=0 skipped=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS

ok() { # ok NAME: the command before it decides
	local rc=$? name=$1
	if [ "$rc" = 0 ]; then
		passed=$((passed + 1))
		echo "ok - $name"
	else
		failed=$((failed + 1))
		echo "not ok - $name"
	fi
}

skip() { # skip NAME WHY
	skipped=$((skipped + 1))
	echo "ok - $1 # SKIP $2"
}

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
	exit
}

# Sets $python to a python3 with numpy; false: none is installed, and $python is python3.
python_with_numpy() {
	for python in /usr/bin/python3 python3; do
		"$python" -c 'import numpy' 2>/dev/null && return
	done
	return 1
}

# A copy of the source as it would be committed, in $tmp/src.
copy_source() {
	mkdir -p "$tmp/src"
	if git rev-parse --git-dir >/dev/null 2>&1; then
		git ls-files -z --cached --others --exclude-standard |
			while IFS= read -r -d '' f; do [ -e "$f" ] && printf '%s\0' "$f"; done |
			tar -c --null -T - | tar -x -C "$tmp/src"
	else
		tar -c --exclude=./build . | tar -x -C "$tmp/src"
	fi
}
