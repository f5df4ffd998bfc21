#!/bin/sh
# SPDX-License-Identifier: MIT
# Fails if one of the given x86-64 objects holds an instruction that not every x86-64 CPU has, outside the
# functions gdri_avx*: one encoded with a VEX, EVEX or REX2 prefix. In 64-bit mode the bytes c4, c5, 62 and d5 begin nothing
# else, so it is the encoding that is looked at, not a list of names. Only segment and address-size
# prefixes may stand before them.
#
#   check_baseline_isa.sh OBJECT...        OBJDUMP=... for another objdump
# Exits 0; 1 if there is one; 77 (skipped) where it cannot be told.
set -u

OBJDUMP=${OBJDUMP:-objdump}
if [ $# -eq 0 ]; then
	echo "usage: $0 OBJECT..." >&2
	exit 2
fi
command -v "$OBJDUMP" >/dev/null || {
	echo "skipped: no $OBJDUMP" >&2
	exit 77
}

status=0
for object; do
	case $("$OBJDUMP" -f "$object") in
	*elf64-x86-64*) ;;
	*"file format"*)
		echo "skipped: $object is not for x86-64" >&2
		exit 77
		;;
	*) exit 1 ;;
	esac
	listing=$("$OBJDUMP" -d -w "$object") || exit 1
	# address:<tab>bytes<tab>instruction
	found=$(printf '%s\n' "$listing" | awk -F '\t' '
		/^[^\t]*>:$/ { where = $0 }
		where !~ /<gdri_avx/ && NF >= 3 && $2 ~ /^((26|2e|36|3e|64|65|67) )*(c4|c5|62|d5) / {
			print "  " where " " $3
		}')
	if [ -n "$found" ]; then
		echo "$object: not for every x86-64 CPU:" >&2
		printf '%s\n' "$found" >&2
		status=1
	fi
done
exit $status
