#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Mutation test of the copies: makes one mutation at a time in a copy of the sources; a test must
# fail.
#
#   dev/mutants.sh fences BUILD_DIR SIM_DIR    removes each fence in turn: its instruction in
#                                              fence.h, each call of it, and the rule that cached
#                                              mappings need none
#   dev/mutants.sh all BUILD_DIR SIM_DIR       also makes the mutations of dev/mutants.txt, in a
#                                              copy of the tree, and prints the survivors
#
# Another architecture needs CC, CHECK_FLAGS, CHECK_LIBS, EMULATOR and its build directory.
set -u
subset=${1:?fences or all}
shift
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../tests/common/build.bash"
sim=${2:?directory of the stand-ins}

sources=(copy copyv words)
cc=${CC:-gcc}
case $($cc -dumpmachine) in
x86_64*) machine=x86 ;;
aarch64*) machine=arm64 ;;
*) skip "fences" "none are known for this processor" && finish ;;
esac
flags=(-std=gnu11 -O2 -g -fno-strict-aliasing -pthread -D_GNU_SOURCE= -Iinclude -Itools -Iperf -Idev -Itests)
read -ra more <<<"${CHECK_FLAGS:-}"
read -ra libs <<<"${CHECK_LIBS:-$(pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)}"
read -ra emulator <<<"${EMULATOR:-}"
flags+=("${more[@]}")
helpers=("$out/tests/common/unit.o" "$out/tests/common/again.o") # the test's runner
for f in tests/unit/$machine/*.c; do
	case $f in */test_*) ;; *) helpers+=("$out/${f%.c}.o") ;; esac
done

# build DIR FILE...: builds the test with these files of DIR/copy in place of the library's.
build() {
	local dir=$1 f
	local objects=()
	shift
	for f; do
		$cc "${flags[@]}" -I"$dir" -Isrc -c -o "$tmp/$f.o" "$dir/copy/$f.c" || return
		objects+=("$tmp/$f.o")
	done
	$cc "${flags[@]}" -o "$tmp/test" "$out/tests/unit/$machine/test_copy_fences.o" "${helpers[@]}" \
		"${objects[@]}" "$out/dev/impls/"*.o "$out/libgdrapi.a" "${libs[@]}" -ldl
}

# taken_out NAME FILE...: the test of the sources in $tmp/src must fail by an assertion.
taken_out() {
	local name=$1
	shift
	build "$tmp/src" "$@" || { false; ok "$name: it builds"; return; }
	timeout 120 "${emulator[@]}" "$tmp/test" >"$tmp/log" 2>&1
	[ $? = 1 ] && grep -q ':F:' "$tmp/log"
	ok "without $name the test fails"
}

fresh() {
	rm -rf "$tmp/src"
	mkdir -p "$tmp/src"
	cp -r src/copy "$tmp/src/copy"
}

# The unchanged sources must pass, so that a later failure is the mutation's.
fresh
build "$tmp/src" "${sources[@]}" && timeout 300 "${emulator[@]}" "$tmp/test" >"$tmp/log" 2>&1
ok "with all its fences the copies pass"

# The instructions of this machine: the first of each use in fence.h, or the second.
while IFS=: read -r number text; do
	use=$(grep -o 'gdri_fence_[a-z_]*' <<<"$text" | head -n 1)
	# Skip a fence that no copy uses.
	grep -q "$use(" src/copy/*.c || continue
	fresh
	if [ $machine = x86 ]; then expression='s/"[^"]*"/""/'; else expression='s/"[^"]*"/""/2'; fi
	sed -i "${number}$expression" "$tmp/src/copy/fence.h"
	taken_out "the instruction of $use" "${sources[@]}"
done < <(grep -n '^GDRI_FENCE(' src/copy/fence.h)

if [ $machine = x86 ]; then
	fresh
	sed -i 's/^#define gdri_fence_wanted(type).*gdri_fence_weak.*/#define gdri_fence_wanted(type) 1/' \
		"$tmp/src/copy/fence.h"
	taken_out "the rule that cached mappings need none" "${sources[@]}"
fi

# The calls.
for f in "${sources[@]}"; do
	while IFS=: read -r number text; do
		use=$(grep -oE 'gdri_fence_[a-z_]+' <<<"$text")
		fresh
		sed -i -E "${number}s/gdri_fence_[a-z_]+\(/(void)(/" "$tmp/src/copy/$f.c"
		taken_out "$use at $f.c:$number" "$f"
	done < <(grep -nE '^[^*]*\bgdri_fence_(before|after|between|full|read_done)[a-z_]*\(' "src/copy/$f.c")
done

# The list: NAME, FILE, SED, PROGRAM..., separated by tabs. A program that fails catches one.
survivors=()
mutate() { # mutate NAME FILE SED PROGRAMS
	cp "$2" "$tmp/tree/$2" && sed -i -E "$3" "$tmp/tree/$2"
	cmp -s "$2" "$tmp/tree/$2" && { false; ok "$1: the expression finds its place"; return; }
	local program seen=
	for program in $4; do
		make -s -C "$tmp/tree" "build/tests/$program" >"$tmp/log" 2>&1 || { seen=built && break; }
		LD_LIBRARY_PATH=$sim GDRSIM_DIR=$sim timeout 120 "$tmp/tree/build/tests/$program" \
			>"$tmp/log" 2>&1 || { seen=$program && break; }
	done
	[ -n "$seen" ] || survivors+=("$1")
	[ -n "$seen" ] && [ "$seen" != built ]
	ok "$1 is seen by ${seen:-none of $4}"
	cp -p "$2" "$tmp/tree/$2" && touch "$tmp/tree/$2"
}

if [ "$subset" = all ]; then
	sim=$(cd "$sim" && pwd)
	copy_source && mv "$tmp/src" "$tmp/tree" && cp -a "$out" "$tmp/tree/build"
	while IFS=$'\t' read -r name file expression programs; do
		[[ $name = \#* || -z $name ]] || mutate "$name" "$file" "$expression" "$programs"
	done <dev/mutants.txt
	echo "survivors: ${survivors[*]:-none}"
fi
finish
