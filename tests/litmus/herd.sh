#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The orders that the fences of src/copy/fence.h give by a formal model; needs herd7 of herdtools7.
#   herd.sh         for x86, and for arm64 where its cross compiler is installed
# The instructions are those that a compiler makes of fence.h for write-combined memory. The models
# are herd7's aarch64.cat and, for x86, herd.cat beside this file, in which all memory is WC. Each
# order of a use, between a store (W) or load (R) before it and one behind, is a litmus test of two
# threads, the other of which has a full fence: the outcome that the order forbids must be
# impossible with the use's instruction, and possible without it.
# Not covered: accesses of several sizes, the gathering hint, the C11 atomics of handles.
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v herd7 >/dev/null || { echo "no herd7 here (herdtools7, which Debian lacks)" && exit 77; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

# A use, with @ and an architecture if the order needs no fence elsewhere; its orders; where they matter.
uses='
before_read	RR WR	a flag, then a copy; a store by another mapping, then a copy
after_read	RR RW	a copy, then the counter again; a copy, then "the slot is free"
between_reads	RR	an ORDERED piece
after_write	WW	a copy, then its flag; the body of a message, then its lap
before_word	WW	a copy, then "the line is free"
before_word@AArch64	RW	the line is read, then the same
push	WW	a post, then a later store
full	WW RR RW WR	barcopy_fence()
read_done	RR RW	a flush, then the doorbell
'

# instruction ARCH USE: what the compiler makes of it, without hints, and without domains, which
# the model does not tell apart (herd7 7.57 takes DSB OSHLD for another one).
instruction() {
	local cc=gcc
	[ "$1" = X86 ] || cc=aarch64-linux-gnu-gcc
	printf '#include "copy/fence.h"\nvoid f(void) { gdri_fence_%s(1 /* WC */); }\n' "$2" |
		$cc -O1 -S -Iinclude -Isrc -x c - -o - |
		sed -nE 's/^\s*((dmb|dsb|[lsm]fence).*)/\1/p' |
		tr 'a-z\t' 'A-Z ' | sed 's/ OSH$/ SY/; s/ OSH/ /'
}

# access ARCH W|R LOCATION REGISTER: locations x and y; a load's register is 0 or 1
access() {
	case $1$2 in
	X86W) echo "MOV [$3],\$1" ;;
	X86R) echo "MOV E$(tr 01 AB <<<"$4")X,[$3]" ;;
	AArch64W) echo "STR W9,[X$(tr xy 56 <<<"$3")]" ;;
	AArch64R) echo "LDR W$4,[X$(tr xy 56 <<<"$3")]" ;;
	esac
}

# possible ARCH ORDER INSTRUCTION: exit status 0 if the outcome that the order forbids can be
possible() {
	local arch=$1 full=MFENCE model=tests/litmus/herd.cat r=(0:EAX 0:EBX 1:EAX 1:EBX) end=()
	local a=${2:0:1} b=${2:1:1} c=W d=W
	[ "$arch" = X86 ] || { full='DMB SY' model=aarch64.cat r=(0:X0 0:X1 1:X0 1:X1); }
	# The other thread has the opposite accesses in the opposite order.
	[ "$b" = R ] || c=R
	[ "$a" = R ] || d=R
	# Each load sees the other thread's store, but the last one of an older value.
	case $2 in
	WW) end=("${r[2]}=1" "${r[3]}=0") ;;
	RR) end=("${r[0]}=1" "${r[1]}=0") ;;
	RW) end=("${r[0]}=1" "${r[2]}=1") ;;
	WR) end=("${r[1]}=0" "${r[3]}=0") ;;
	esac
	{
		echo "$arch $2"
		echo '{'
		[ "$arch" = X86 ] || echo '0:X9=1; 0:X5=x; 0:X6=y; 1:X9=1; 1:X5=x; 1:X6=y;'
		echo '}'
		echo ' P0 | P1 ;'
		echo " $(access "$arch" "$a" x 0) | $(access "$arch" "$c" y 0) ;"
		echo " $3 | $full ;"
		echo " $(access "$arch" "$b" y 1) | $(access "$arch" "$d" x 1) ;"
		echo "exists (${end[0]} /\\ ${end[1]})"
	} >"$tmp/test.litmus"
	herd7 -model "$model" "$tmp/test.litmus" >"$tmp/out" 2>&1 || { cat "$tmp/out"; return 2; }
	grep -q '^Observation .* \(Sometimes\|Always\)' "$tmp/out" && return 0
	grep -q '^Observation .* Never' "$tmp/out" && return 1
	cat "$tmp/test.litmus" "$tmp/out"
	return 2
}

check() { # STATUS ARCH ORDER INSTRUCTION TEXT
	local rc=0
	possible "$2" "$3" "$4" || rc=$?
	if [ $rc = "$1" ]; then
		passed=$((passed + 1))
	else
		echo "not ok - $2, $3: $5"
		failed=$((failed + 1))
	fi
}

architectures=(X86)
if command -v aarch64-linux-gnu-gcc >/dev/null; then
	architectures+=(AArch64)
fi
for arch in "${architectures[@]}"; do
	for order in WW RR RW WR; do
		check 0 "$arch" "$order" '' 'no fence is needed'
	done
	while IFS=$'\t' read -r use orders what; do
		case $use in
		'' | *@*) [ "${use#*@}" = "$arch" ] || continue ;;
		esac
		use=${use%@*}
		for order in $orders; do
			check 1 "$arch" "$order" "$(instruction "$arch" "$use")" "$use ($what)"
		done
	done <<<"$uses"
done
[ ${#architectures[@]} = 1 ] || check 0 AArch64 RW "$(instruction AArch64 after_write)" 'before_word needs its own'
echo "$passed passed, $failed failed"
[ $failed = 0 ]
