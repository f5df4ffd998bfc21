#!/bin/sh
# SPDX-License-Identifier: MIT
# The library's binary interface against the stored one.
#   abi.sh check BUILD_DIR            0: the same; 1: changed, with the report; 77: cannot tell here
#   abi.sh refresh BUILD_DIR VERSION  stores the present one; refuses if it is not only additions
# The dump is of x86-64; it knows public types only by what include/ declares.
set -eu
cd "$(dirname "$0")/../.."

stored=${ABI_STORED:-tests/packages/libgdrapi.abi}
symbols=packaging/debian/libgdrapi2.symbols
lib=$2/libgdrapi.so.2.6

if ! command -v abidw >/dev/null; then
	echo "no abidw here (package abigail-tools)"
	exit 77
fi
machine=$(LC_ALL=C readelf -h "$lib" | sed -n 's/.*Machine: *//p')
case $machine in
*X86-64*) ;;
*) echo "the stored dump is of x86-64, this library is of $machine"; exit 77 ;;
esac
if ! LC_ALL=C readelf -S "$lib" | grep -q '\.debug_info'; then
	echo "the library was built without -g"
	exit 77
fi

now=$(mktemp)
trap 'rm -f "$now"' EXIT
abidw --headers-dir include --drop-private-types --exported-interfaces-only --no-comp-dir-path --no-corpus-path --no-show-locs --out-file "$now" "$lib"

# Exit status of abidiff: 1 and 2 its own errors, 4 a change, 8 one that breaks programs.
compare() {
	rc=0
	abidiff --no-show-locs --headers-dir1 include --headers-dir2 include "$stored" "$now" || rc=$?
}

case $1 in
check)
	compare
	if [ $((rc & 8)) != 0 ]; then
		echo "a published symbol or type has changed: programs built before would break"
	elif [ "$rc" != 0 ]; then
		echo "if these are additions: make refresh-abi, and a CHANGELOG line"
	fi
	[ "$rc" = 0 ]
	;;
refresh)
	if [ -e "$stored" ]; then
		compare
		if [ $((rc & ~4)) != 0 ]; then
			echo "refused: not only additions. To publish a break on purpose remove $stored first." >&2
			exit 1
		fi
	fi
	cp "$now" "$stored"
	[ -e "$symbols" ] || printf 'libgdrapi.so.2 libgdrapi2 #MINVER#\n* Build-Depends-Package: libgdrapi-dev\n' >"$symbols"
	# A symbol keeps the version that it came with.
	{
		grep -v '^ ' "$symbols"
		nm -D --defined-only --with-symbol-versions "$lib" |
			awk '{ sub("@@", "@", $3); print $3 ($2 == "A" ? "@" $3 : index($3, "@") ? "" : "@Base") }' |
			LC_ALL=C sort |
			while read -r name; do
			grep "^ $name " "$symbols" || echo " $name $3"
		done
	} >"$now"
	cat "$now" >"$symbols"
	;;
*)
	echo "usage: abi.sh check|refresh BUILD_DIR [VERSION]" >&2
	exit 2
	;;
esac
