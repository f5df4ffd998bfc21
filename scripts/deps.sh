#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what `make demo` or `make check` still needs: deps.sh demo|check|all.
# As root through the distribution's packages, saying what; otherwise it prints the line to run and
# goes on, so that whoever has enough already is not stopped. Debian 12 and 13; Ubuntu untested.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }
header() { echo "#include <$1>" | "${CC:-cc}" -E - >/dev/null 2>&1; }

need=
# want PACKAGE: the package is missing
want() { need="$need $1"; }

have gcc || have clang || want gcc
have make || want make
header stdio.h || want libc6-dev
case "${1:-all}" in
demo)
	# Optional: without it the tools do not choose the GPU's NUMA node.
	ldconfig -p 2>/dev/null | grep -q 'libnuma\.so\.1' || want libnuma1
	;;
check | all)
	ldconfig -p 2>/dev/null | grep -q 'libnuma\.so\.1' || want libnuma1
	header check.h || want check
	have g++ || want g++
	have clang || want clang
	have valgrind || want valgrind
	have python3 || want python3
	have file || want file
	have mandoc || want mandoc
	have abidiff || want abigail-tools
	have strace || want strace
	;;
*)
	echo "usage: deps.sh demo|check|all" >&2
	exit 2
	;;
esac

[ -n "$need" ] || exit 0
line="apt-get install -y --no-install-recommends$need"
if ! have apt-get; then
	echo "deps: missing:$need; install them with your distribution's package manager" >&2
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "deps: missing:$need; run: sudo $line" >&2
	exit 0
fi
echo "deps: installing$need"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
if ! { $line || { apt-get update && $line; }; } >"$log" 2>&1 </dev/null; then
	tail -n 5 "$log" >&2
	echo "deps: could not install$need" >&2
	exit 1
fi
