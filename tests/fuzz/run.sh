#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Coverage-guided fuzzing with libFuzzer: for FUZZ_SECONDS in all (300), the targets NAME.c of this directory, or
# those that FUZZ_TARGETS names, each from its corpus NAME.corpus: an input a line, in hexadecimal digits. What it
# finds new is kept in BUILD_DIR/fuzz/found/NAME. FUZZ_MERGE=1 puts into the corpus the fewest inputs that reach edges
# which it does not (200 KiB at most, in all).
# `BUILD_DIR/fuzz/NAME FILE` in the environment that is printed repeats an input.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
sim=$(realpath "${2:?directory of the stand-ins}")
here=tests/fuzz build=$out/fuzz
targets=${FUZZ_TARGETS:-calls receive port policy doctor}

echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return n && !d; }' >"$tmp/none.c"
if ! clang -fsanitize=fuzzer,address -o "$tmp/none" "$tmp/none.c" 2>"$tmp/log"; then
	skip "fuzzing" "no clang with libFuzzer here (packages clang, libclang-rt-NN-dev)"
	finish
fi
flags=(-O1 -g -std=gnu11 -fno-strict-aliasing -pthread '-fsanitize=fuzzer-no-link,address,undefined'
	-fno-sanitize-recover=all)
make -s -j2 O="$build" CC=clang SANITIZE=fuzzer-no-link,address,undefined CFLAGS='-O1 -g' "$build/libgdrapi.a" \
	"$build/tests/common/standin.o" >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log"; false; }
ok "the library is built by clang"
[ "$failed" = 0 ] || finish

# link NAME FILE...: the target with further sources and objects
link() {
	local name=$1
	shift
	rm -f "$build/$name"
	clang "${flags[@]}" -fsanitize=fuzzer -Wall -Wextra -Werror -D_GNU_SOURCE= -DGDRI_RM=1 -DBARCOPY_VERSION='"fuzz"' -I. -Iinclude \
		-Isrc -Itools -Wno-missing-field-initializers -o "$build/$name" "$here/$name.c" "$@" "$build/libgdrapi.a" -ldl -lm
}

# unpack NAME: the corpus in a directory of files, as libFuzzer reads it; pack NAME: that directory as the corpus
unpack() {
	local line n=0
	rm -rf "$build/corpus/$1"
	mkdir -p "$build/corpus/$1"
	while read -r line; do
		# shellcheck disable=SC2001,SC2059 # \xNN for each two digits; the format is the bytes
		printf "$(sed 's/../\\x&/g' <<<"$line")" >"$build/corpus/$1/$n"
		n=$((n + 1))
	done <"$here/$1.corpus"
}
pack() {
	local file
	for file in "$build/corpus/$1"/*; do
		od -An -v -tx1 "$file" | tr -d ' \n'
		echo
	done | LC_ALL=C sort -u >"$here/$1.corpus"
}

on=(env "LD_LIBRARY_PATH=$sim" "LD_PRELOAD=$sim/libnvidia_node.so" GDRSIM_NODE=absent GDRSIM_DRIVER_VERSION=13030
	UBSAN_OPTIONS=print_stacktrace=1 "FUZZ_DIR=$tmp")
echo "${on[*]}"
count=$(wc -w <<<"$targets")
for name in $targets; do
	case $name in
	doctor) link doctor -Wl,--wrap=tool_calloc,--wrap=vasprintf tools/doctor/*.c tools/common/*.c ;;
	policy) link policy ;;
	*) link "$name" "$build/tests/common/standin.o" ;;
	esac
	ok "$name: it is built"
	mkdir -p "$build/found/$name"
	unpack "$name"
	"${on[@]}" "$build/$name" -max_total_time=$((${FUZZ_SECONDS:-300} / count)) -timeout=20 \
		-rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 -verbosity=1 -artifact_prefix="$build/found/$name-" \
		"$build/found/$name" "$build/corpus/$name" >"$build/$name.log" 2>&1 || { tail -n 60 "$build/$name.log"; false; }
	ok "$name: no input fails"
	echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log") inputs, $(grep -o 'cov: [0-9]*' "$build/$name.log" | tail -n 1)"
	[ -z "${FUZZ_MERGE:-}" ] || {
		"${on[@]}" "$build/$name" -set_cover_merge=1 -use_counters=0 "$build/corpus/$name" "$build/found/$name" \
			>>"$build/$name.log" 2>&1
		pack "$name"
	}
done
[ "$(cat "$here"/*.corpus | wc -c)" -le 204800 ]
ok "the corpus has at most 200 KiB"
finish
