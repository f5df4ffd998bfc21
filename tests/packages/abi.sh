#!/bin/sh
# SPDX-License-Identifier: MIT
# Compares the library's binary interface with that of the last release (the last tag v*).
#   abi.sh check BUILD_DIR [OLD]      exit code 0: equal or additions; 1: a break, with the report;
#                                     77: not possible here
#   abi.sh refresh BUILD_DIR VERSION  adds new symbols to the Debian symbols file, new types to the list of layout.py
# OLD: another library to compare with; the last release's is built in BUILD_DIR/release.
set -eu
cd "$(dirname "$0")/../.."
symbols=packaging/debian/libgdrapi2.symbols
lib=$2/libgdrapi.so.2.6

# The last release's library, built once for a tag.
release() {
	tag=$(git describe --tags --match 'v[0-9]*' --abbrev=0 HEAD 2>/dev/null) || { echo "no release is tagged yet"; exit 77; }
	tree=$1/release/$tag
	if [ ! -e "$tree/done" ]; then
		rm -rf "$tree" && mkdir -p "$tree/source"
		git archive "$tag" | tar -x -C "$tree/source"
		make -s -C "$tree/source" O="$PWD/$tree" CFLAGS='-O2 -g' lib >"$tree/log" 2>&1 || { tail "$tree/log"; exit 1; }
		: >"$tree/done"
	fi
	old=$tree/libgdrapi.so.2.6 old_headers=$tree/source/include
}

case $1 in
check)
	command -v abidiff >/dev/null || { echo "no abidiff here (package abigail-tools)"; exit 77; }
	LC_ALL=C readelf -S "$lib" | grep -q '\.debug_info' || { echo "the library was built without -g"; exit 77; }
	if [ -n "${3:-}" ]; then old=$3 old_headers=include; else release "$2"; fi
	# abidiff's suppression rules for a reviewed growth of a structure, until its release
	growth=tests/packages/abi-growth
	set -- "$2" --headers-dir1 "$old_headers" --headers-dir2 include "$old" "$lib"
	[ ! -e $growth ] || set -- "$@" --suppressions $growth
	report=$1/abi-report
	shift
	abidiff --no-show-locs --drop-private-types "$@" >"$report" || :
	grep -E '^Functions changes summary: 0 Removed, 0 Changed' "$report" || [ ! -s "$report" ] || {
		sed '/^  \[A\]/d' "$report"
		echo "a published symbol or type has changed: programs built before would break"
		exit 1
	}
	;;
refresh)
	# A symbol keeps the version that it came with.
	{
		grep -v '^ ' "$symbols"
		nm -D --defined-only --with-symbol-versions "$lib" |
			awk '{ sub("@@", "@", $3); print $3 ($2 == "A" ? "@" $3 : index($3, "@") ? "" : "@Base") }' |
			LC_ALL=C sort |
			while read -r name; do
			grep "^ $name " "$symbols" || echo " $name $3"
		done
	} >"$2/symbols.new"
	cat "$2/symbols.new" >"$symbols"
	rm "$2/symbols.new"
	tests/packages/layout.py refresh "$3"
	;;
*)
	echo "usage: abi.sh check BUILD_DIR [OLD] | refresh BUILD_DIR VERSION" >&2
	exit 2
	;;
esac
