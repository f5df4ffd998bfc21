#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds every variant, runs every test, ends with one line `N passed, N failed, N skipped`.
#   tests/run.sh BUILD_DIR          everything (make check)
#   tests/run.sh BUILD_DIR quick    the unit and GPU tests of that one build, already made
#   tests/run.sh BUILD_DIR arm64    the tests for arm64 under user-mode emulation, the long ones too
# A test program counts by what it prints: Check's summary, or a last line of the form above.
# Exit 77 is a skip; its last line says why. Logs lie in BUILD_DIR/logs.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
out=$1
mode=${2:-all}
case $out in /*) ;; *) out=$root/$out ;; esac
logs=$out/logs
mkdir -p "$logs"
passed=0 failed=0 skipped=0
jobs=$(nproc 2>/dev/null || echo 1)

# count LOG RC NAME: adds what the program's log says; prints one line.
count() {
	local log=$1 rc=$2 name=$3 line p=0 f=0 s=0
	if [ "$rc" = 77 ]; then
		s=1
		echo "SKIP $name: $(tail -n 1 "$log")"
	else
		line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
		if [ -n "$line" ]; then
			read -r p f s <<<"$(sed -E 's/^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 \4/' <<<"$line")"
			s=${s:-0}
		else
			while read -r line; do
				local c e
				c=$(sed -E 's/.*Checks: ([0-9]+), .*/\1/' <<<"$line")
				e=$(sed -E 's/.*Failures: ([0-9]+), Errors: ([0-9]+).*/\1+\2/' <<<"$line")
				f=$((f + e))
				p=$((p + c - (e)))
			done < <(grep -aE '^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+' "$log")
		fi
		[ "$rc" != 0 ] && [ "$f" = 0 ] && f=1
		[ "$rc" = 0 ] && [ $((p + f + s)) = 0 ] && f=1 # it ran no test
		if [ "$f" = 0 ]; then
			echo "ok   $name: $p passed${s:+$([ "$s" != 0 ] && echo ", $s skipped")}"
			grep -aE '^(ok.*# SKIP|SKIP)' "$log" | sed 's/^/       /'
		else
			echo "FAIL $name: $p passed, $f failed (exit $rc)"
			grep -aE '^not ok|:[FE]:|ERROR|WARNING: ThreadSanitizer|SUMMARY|runtime error' "$log" |
				head -n 20 | sed 's/^/       /'
			[ "$p" = 0 ] && tail -n 15 "$log" | sed 's/^/       /'
		fi
	fi
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# run NAME SECONDS COMMAND...: runs one test program.
run() {
	local name=$1 limit=$2 log rc
	shift 2
	log=$logs/${name//[^A-Za-z0-9._-]/_}.log
	timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null
	rc=$?
	[ "$rc" = 124 ] && echo "timed out after $limit s" >>"$log"
	count "$log" "$rc" "$name"
}

# step NAME COMMAND...: a build or check that is one test by itself.
step() {
	local name=$1 log
	shift
	log=$logs/${name//[^A-Za-z0-9._-]/_}.log
	if "$@" >"$log" 2>&1 </dev/null; then
		echo "ok   $name"
		passed=$((passed + 1))
	else
		echo "FAIL $name (see $log)"
		tail -n 15 "$log" | sed 's/^/       /'
		failed=$((failed + 1))
		return 1
	fi
}

# programs VARIANT DIR LIMIT [PREFIX...]: the unit and GPU tests of one build, on the stand-ins;
# with GDRCOPY_TEST_RM set, also on that of NVIDIA's nodes.
programs() {
	local variant=$1 dir=$2 limit=$3 t
	shift 3
	[ -z "${GDRCOPY_TEST_RM:-}" ] ||
		set -- env LD_PRELOAD="$dir/sim/libnvidia_node.so" \
			ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" "$@"
	for t in "$dir"/tests/test_* "$dir"/tests/gpu_test_*; do
		[ -f "$t" ] && [ -x "$t" ] || continue
		run "$variant/$(basename "$t")" "$limit" \
			env LD_LIBRARY_PATH="$dir/sim" GDRSIM_DIR="$dir/sim" "$@" "$t"
	done
}

# The tests cross-built for arm64, as many at once as there are CPUs: emulation is slow.
arm64() {
	local dir=$out/arm64 t name why running=() log rc=0
	. tests/arm64/setup.sh
	arm64_setup || rc=$?
	if [ $rc != 0 ]; then
		if [ $rc = 1 ] && [ "${CI:-}" = true ]; then
			step "arm64 set-up ($arm64_why; CI=true: no skipping)" false
		else
			echo "SKIP arm64: $arm64_why"
			skipped=$((skipped + 1))
		fi
		return
	fi
	step build-arm64 build O="$dir" "${arm64_make[@]}" || return
	[ "$mode" = arm64 ] || export GDRCOPY_TEST_QUICK=1
	for t in "$dir"/tests/test_*; do
		[ -f "$t" ] && [ -x "$t" ] || continue
		name=$(basename "$t")
		why=$(sed -n "s/^$name\t//p" tests/arm64/not-run)
		case $mode:$why in
		*: | arm64:*'not by `make check`') ;;
		*)
			echo "SKIP arm64/$name: $why"
			skipped=$((skipped + 1))
			continue
			;;
		esac
		running+=("$name")
	done
	export GDRSIM_ARENA_GIB=16 GDRCOPY_TEST_EMULATOR="${arm64_emulator[*]}"
	printf '%s\n' "${running[@]}" | LD_LIBRARY_PATH=$dir/sim GDRSIM_DIR=$dir/sim xargs -P "$jobs" -I NAME \
		sh -c 'timeout -k 5 600 "$@" >"$0.log" 2>&1 </dev/null; echo $? >"$0.rc"' \
		"$logs/arm64_NAME" "${arm64_emulator[@]}" "$dir/tests/NAME"
	unset GDRSIM_ARENA_GIB GDRCOPY_TEST_EMULATOR GDRCOPY_TEST_QUICK
	for name in "${running[@]}"; do
		log=$logs/arm64_$name.log
		count "$log" "$(cat "$logs/arm64_$name.rc")" "arm64/$name"
		grep -a '^not emulated: ' "$log" | sed 's/^/       /'
	done
}

build() {
	make --no-print-directory -j"$jobs" V=1 "$@" build-tests
}

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
	exit
}

unset MAKEFLAGS MAKELEVEL MFLAGS LD_LIBRARY_PATH
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1 second_deadlock_stack=1}

case $mode in
quick)
	programs "$(basename "$out")" "$out" 120
	finish
	;;
arm64)
	arm64
	finish
	;;
esac

if step build-gcc build O="$out" CC=gcc; then
	programs gcc "$out" 120
	for t in tests/build/*.sh tests/tools/test_*.sh tests/contract/run.sh \
		tests/packages/static.sh; do
		[ -f "$t" ] || continue
		t=${t#tests/}
		run "${t%.sh}" 300 bash "tests/$t" "$out" "$out/sim"
	done
fi
if command -v clang >/dev/null; then
	step build-clang build O="$out/clang" CC=clang && programs clang "$out/clang" 120
else
	echo "SKIP clang: not installed"
	skipped=$((skipped + 1))
fi
step build-asan build O="$out/asan" CC=gcc SANITIZE=address,undefined &&
	GDRCOPY_TEST_QUICK=1 programs asan "$out/asan" 300
step build-tsan build O="$out/tsan" CC=gcc SANITIZE=thread &&
	GDRCOPY_TEST_QUICK=1 programs tsan "$out/tsan" 300 setarch -R
if command -v valgrind >/dev/null; then
	GDRCOPY_TEST_QUICK=1 CK_FORK=no programs valgrind "$out" 600 \
		valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
		--suppressions=tests/valgrind.supp
else
	echo "SKIP valgrind: not installed"
	skipped=$((skipped + 1))
fi
arm64
if grep -q '^check-kernel:' tests/kernel/kernel.mk 2>/dev/null; then
	run kernel 1200 make --no-print-directory O="$out" check-kernel
fi
finish
