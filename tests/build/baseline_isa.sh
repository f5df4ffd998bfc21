#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The instructions of the copies on x86-64: no VEX or EVEX one outside the functions gdri_avx*, and those that
# touch the mapping are the ones that moves.c and words.c name. The checks find those of objects that have others.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

objects=$(make -s --no-print-directory O="$out" print-copy-baseline) || exit 1
# shellcheck disable=SC2086 # a list of words
case $(objdump -f $objects) in
*elf64-x86-64*) ;;
*) echo "skipped: no objdump, or the objects are not for x86-64" >&2 && exit 77 ;;
esac

# Instructions with a VEX, EVEX or REX2 prefix outside the functions gdri_avx*. In 64-bit mode the bytes c4, c5,
# 62 and d5 begin nothing else; only segment and address-size prefixes may stand before them.
newer() { # newer OBJECT...
	objdump -d -w "$@" | awk -F '\t' '
		/^[^\t]*>:$/ { where = $0; seen++ }
		where !~ /<gdri_avx/ && NF >= 3 && $2 ~ /^((26|2e|36|3e|64|65|67) )*(c4|c5|62|d5) / { print "# " where " " $3 }
		END { if (!seen) print "# no function" }'
}
# shellcheck disable=SC2086
wrong=$(newer $objects)
printf '%s' "${wrong:+$wrong$'\n'}"
[ -z "$wrong" ]
ok "no VEX or EVEX instruction"
newer "$out/perf/impls/impls.o" | grep -q '<'
ok "those of AVX2 are found"

instructions() { # instructions OBJECT FUNCTION
	objdump -d --no-show-raw-insn "$1" | awk -v name="<$2>:" '$2 == name { on = 1; next } /^$/ { on = 0 } on' |
		cut -f 2-
}

# The implementations in an object but ref, whose words are no vectors.
functions() { # functions OBJECT DIRECTION
	nm "$1" | grep -oE " gdri_[a-z0-9]+_$2\$" | grep -v ' gdri_ref_'
}

# A plain vector load of a write-combined mapping is a bus read of its own, for each of a line's vectors; a
# non-temporal store of cached memory is not ordered as a plain one.
moves() { # moves OBJECT: prints what is wrong
	local function
	for function in $(functions "$1" '(from|lines)'); do
		instructions "$1" "$function" | grep -E '^v?mov[^,]*\([^,]*\),%[xyz]mm|,[^,]*\),%[xyz]mm' | grep -v '(%rsp' |
			awk -v f="$function" '!/^v?movntdqa / { print f ": " $0 } END { if (!NR) print f ": no vector load" }'
	done
	for function in $(functions "$1" to); do
		instructions "$1" "$function" | grep -E '^v?mov[a-z0-9]* *%[xyz]mm[0-9]*,.*\(' |
			awk -v f="$function" '!/^v?movdqa(64)? / { print f ": " $0 } END { if (!NR) print f ": no vector store" }'
	done
}
posts() { # posts OBJECT: likewise
	local function instruction
	while IFS=: read -r function instruction; do
		instructions "$1" "gdri_$function" | tr -s ' ' | grep -qxF "$instruction" || echo "$function: no $instruction"
	done <<-'END'
		post32:movdiri %eax,(%rdi)
		post64:movdiri %rax,(%rdi)
		post_line:movdir64b (%rsi),%rdi
	END
}
for object in $objects; do
	case $object in
	*/moves.*) kind=moves ;;
	*/words.*) kind=posts ;;
	*) continue ;;
	esac
	wrong=$($kind "$object")
	printf '%s' "${wrong:+$wrong$'\n'}"
	[ -z "$wrong" ]
	ok "$kind of ${object#"$out"/}"
done

while read -r kind source file expression; do
	rm -rf "$tmp/copy"
	cp -r src/copy "$tmp/copy"
	sed -i -E "$expression" "$tmp/copy/$file"
	! cmp -s "src/copy/$file" "$tmp/copy/$file" &&
		${CC:-gcc} -std=gnu11 -O2 -Iinclude -Isrc -c -o "$tmp/$source.o" "$tmp/copy/$source.c" && [ -n "$($kind "$tmp/$source.o")" ]
	ok "found: $expression"
done <<'END'
moves moves moves.c s/"movntdqa/"movdqa/
moves moves moves.c 0,/"vmovntdqa/s//"vmovdqa64/
moves moves moves.c /_avx2_/,/#include/s/"vmovntdqa/"vmovdqa/
moves moves moves.c 0,/"movdqa/s//"movntdq/
moves moves moves.c /_sse2_/,/#include/s/"movdqa/"movntdq/
moves moves moves.c s/"vmovdqa64/"vmovntdq/
moves moves moves.c $a#define LOOP(name) gdri_new_##name\n#define LOOP_TARGET\n#define LOOP_VEC 16\n#define LOOP_STORE "movntdq %1, %0"\n#include "loop.h"
posts words word.h s/0xf8, 0x3e/0xf8, 0x37/
posts words words.c s/64, "0x48, "/64, ""/
END
finish
