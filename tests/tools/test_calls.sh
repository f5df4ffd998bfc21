#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What gdrcopy_sanity says with -v, and its calls of the library, recorded by calls.c, are those of calls.txt; and a
# test fails when a call gives a wrong result, for the reason that stands there. Usage: test_calls.sh BUILD_DIR SIM_DIR
# [refresh]: that writes calls.txt.
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
tool=$build/gdrcopy_sanity
golden=$here/calls.txt
most=40 # lines of a process; of more, these and a checksum of all

if ! ${CC:-cc} -shared -fPIC -O1 -fno-optimize-sibling-calls -I"$root/include" -I"$root/tools" -I"$root/src" \
	-o "$tmp/calls.so" "$here/calls.c" -ldl 2>"$err"; then
	skip 'calls of gdrcopy_sanity' 'no C compiler for the preloaded library'
	finish
fi
: >"$tmp/faults"
ulimit -S -c hard # a child of a test leaves no core file all the same
run CALLS="$tmp/calls" FAULTS="$tmp/faults" LD_PRELOAD="$tmp/calls.so" "$tool" --sim "$sim" --timeout 5 -v
expect 'the tests pass where no fault is planted' 0 '^Total: 47, .*Failed: 0, '

# Without what differs from run to run.
plain() {
	sed -E -e "s,$sim,SIM,g;s/0x[0-9a-f]{9,}/ADDRESS/g;s/([a-z]+\.c):[0-9]+/\1/;s/ \([0-9.]+ s\)//" \
		-e '/descriptors/s/[0-9]+/N/g;/^[a-z]+ +kernel_pins|^Total/d'
}
plain <"$out" >"$tmp/now"
# Threads take turns in any order: their calls are only counted.
n=1
while read -r name _; do
	n=$((n + 1))
	for f in "$tmp/calls.$n" "$tmp/calls.$n".*; do
		[ -e "$f" ] || continue
		echo "[$name${f#"$tmp/calls.$n"}]"
		case $name in
		threads_*) cut -d ' ' -f 1 "$f" | LC_ALL=C sort | uniq -c ;;
		*) head -n "$most" "$f" ;;
		esac
		case $name-$(wc -l <"$f") in
		threads_* | *-[0-9] | *-[1-3][0-9] | *-40) ;;
		*) echo "... $(cksum <"$f")" ;;
		esac
	done
	sed -n "s/^$n /$name /p" "$tmp/faults" >>"$tmp/named"
	case $name in
	threads_*) ;;
	*) # of those that differ in numbers alone the first: a compiler may unroll a loop
		sed -nE "s/^$n ([^ ]+ [^ ]+) [0-9]+ (.+)/\1: \2/p" "$tmp/faults" | plain |
			awk '{ key = $0; gsub(/0x[0-9a-f]+|[0-9]+/, "", key) } !seen[key]++' | LC_ALL=C sort ;;
	esac
done <<<"$("$tool" -l | sed '/^$/,$d')" >>"$tmp/now"
stored 'the calls are those of calls.txt' "$golden" "$tmp/now" "${3-}"

# What no test need see: how often at most (a compiler may unroll a loop), test, function, faults, why.
cat >"$tmp/unseen" <<'ROWS'
2 basic gdr_get_info_v2 mapped,mapped_size,type,wc_mapping the size before the map and va behind it are used; mapping_type has the rest
1 basic gdr_get_info_v2 va of the information before the map the size alone is used
2 basic barcopy_get_handle_attribute fails,value buffer_make() does without the answer; attributes compares it
1 map_sizes gdr_get_info_v2 mapped,type,va,wc_mapping it is asked for the size alone
1 map_sizes gdr_copy_from_mapping bytes the copy asks what is mapped; nobody looks at the data
2 mapping_type gdr_get_info_v2 mapped,wc_mapping of three answers one is compared, the others have the type
3 mapping_type gdr_get_info_v2 mapped_size,va it is asked for the type
4 two_types gdr_get_info_v2 mapped,mapped_size,type,va,wc_mapping it is asked for the type's name, a note
1 versions gdr_driver_get_version value a driver may be newer
1 handles gdr_copy_to_mapping bytes the call is refused
1 host_cached gdr_copy_to_mapping bytes the call is refused
1 host_cached gdr_get_info_v2 mapped,mapped_size,va,wc_mapping it is asked for the type
1 host_cached barcopy_get_handle_attribute value another backend may serve such memory
1 map_after_free gdr_map fails a driver may refuse it: a note
1 fork_open barcopy_open fails a child may get no context
1 fork_open gdr_driver_get_version value the child asks whether there is an answer
1 fork_open gdr_pin_buffer_v2 succeeds the stand-in takes a child for its parent
ROWS
sed -nE 's/^(([^ ]+ ){2}[^ ]+) 0( .*)?$/\1/p' "$tmp/named" | LC_ALL=C sort | uniq -c >"$tmp/alive"
awk 'NR == FNR { n = split($4, fault, ","); for (i = 1; i <= n; i++) most[$2, $3, fault[i]] = $1; next }
	{ if ($1 > most[$2, $3, $4]) print "not seen: " $0; delete most[$2, $3, $4] }
	END { for (key in most) { gsub(SUBSEP, " ", key); print "a row that is not needed: " key } }' \
	"$tmp/unseen" "$tmp/alive" >"$out"
check 'each wrong result fails its test' [ ! -s "$out" ]
check 'faults are planted' [ "$(wc -l <"$tmp/faults")" -ge 250 ]
finish
