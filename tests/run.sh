#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds every variant, runs every test, ends with one line `N passed, N failed, N skipped`.
#   tests/run.sh BUILD_DIR          make check
#   tests/run.sh BUILD_DIR full     make check-full: what repeats, and what takes long, as well
#   tests/run.sh BUILD_DIR quick    the unit and GPU tests of that one build, already made
#   tests/run.sh BUILD_DIR deps     only sees to what `make check` needs of the system
#   tests/run.sh BUILD_DIR list [full]    the parts, and the tests, by name
# TESTS='PATTERN...' takes only those whose name has a match of one of these (asan/, test_cache, kernel).
#
# A part is a build variant with all its programs, or one script. What it needs of the system stands
# in scripts/packages, and scripts/deps.sh sees to it before the first test: without root, or with
# nothing but what is here, a part that lacks something is skipped and says so; where it was to be
# installed and could not be, or with CI=true, it fails.
#
# Parts run beside each other. A test counts by what it prints: tests/common/verdict.bash. Logs lie in
# BUILD_DIR/logs, and there in `times` what each took.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
out=$1
mode=${2:-check}
case $out in /*) ;; *) out=$root/$out ;; esac
logs=$out/logs
mkdir -p "$logs" || exit 1
jobs=$(nproc 2>/dev/null || echo 1)
. tests/common/verdict.bash
. tests/common/jobs.bash

unset MAKEFLAGS MAKELEVEL MFLAGS LD_LIBRARY_PATH
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1 second_deadlock_stack=1}

# ---- parts ---------------------------------------------------------------------------------------

# What is a long pole comes first: the emulated machines, which are fetched and wait for their guests.
variants=(gcc asan arm64 tsan)
scripts=(tests/build/*.sh tests/tools/test_*.sh tests/contract/run.sh tests/packages/static.sh)
kernels=(kernel/6.1 kernel/arm64 kernel/6.12)
others=(build-clang) # its warnings; its programs do what gcc's do
if [ "$mode" = full ] || [ "$mode${3:-}" = listfull ]; then
	kernels=(kernel-full)
	variants=(gcc asan arm64-long tsan clang valgrind)
	scripts+=(tests/packages/run.sh tests/docs/browser.sh)
	others=(coverage fresh/bookworm fresh/trixie)
fi

# Tests that take seconds where others take tenths: they start first.
long=(build/test_install test_cache_model tools/test_tools build/python test_log test_copy_diff
	tools/test_sanity test_doctor_probe)

# variant NAME: sets dir, make_with (words for make), with (words before a program), limit (s). Every
# limit is against hangs alone: a machine may have five times as much work as CPUs.
variant() {
	dir=$out/$1 make_with=() with=() limit=600
	case $1 in
	gcc) dir=$out make_with=(CC=gcc) ;;
	clang) make_with=(CC=clang) ;;
	asan) make_with=(CC=gcc "SANITIZE=address,undefined") with=(env GDRCOPY_TEST_QUICK=1) ;;
	tsan) make_with=(CC=gcc SANITIZE=thread) with=(env GDRCOPY_TEST_QUICK=1 setarch -R) ;;
	valgrind)
		dir=$out limit=1200
		with=(env GDRCOPY_TEST_QUICK=1 CK_FORK=no valgrind -q --error-exitcode=99 --leak-check=full
			--errors-for-leak-kinds=definite --suppressions=tests/valgrind.supp)
		;;
	arm64 | arm64-long)
		dir=$out/arm64 limit=1200
		. tests/arm64/setup.sh
		with=(env GDRSIM_ARENA_GIB=16 GDRCOPY_TEST_EMULATOR="${arm64_emulator[*]}")
		[ "$1" = arm64-long ] || with+=(GDRCOPY_TEST_QUICK=1)
		with+=("${arm64_emulator[@]}")
		;;
	esac
}

# The build that a variant's programs come from.
build_of() {
	case $1 in
	valgrind) echo build-gcc ;;
	arm64-long) echo build-arm64 ;;
	*) echo "build-$1" ;;
	esac
}

# The part that a test belongs to: what it needs of the system is the part's.
part_of() {
	case $1 in
	build-*) echo "${1#build-}" ;;
	gcc/* | clang/* | asan/* | tsan/* | valgrind/* | arm64/* | arm64-long/*) echo "${1%%/*}" ;;
	*) echo "$1" ;;
	esac
}

# ---- the jobs ------------------------------------------------------------------------------------

build() {
	timeout -k 5 3600 make --no-print-directory -j"$jobs" V=1 "$@" build-tests
}

# Every program tests/test_* and tests/gpu_test_* of the variant's directory, on the stand-ins.
programs_of() {
	local t
	for t in "$dir"/tests/test_* "$dir"/tests/gpu_test_*; do
		[ -f "$t" ] && [ -x "$t" ] && echo "$t"
	done
}

program() {
	local t=$dir/tests/${1##*/}
	[ -x "$t" ] || { echo "it was not built"; return 1; }
	# In one of the variants with a driver that lets a dma-buf be mapped: one test needs it.
	[ "$1" != asan/gpu_test_alloc ] || with+=(GDRSIM_DMABUF_MMAP=1 GDRSIM_DRIVER_VERSION=13030)
	limited "$limit" env LD_LIBRARY_PATH="$dir/sim" GDRSIM_DIR="$dir/sim" "${with[@]}" "$t"
}

limited() {
	local rc=0
	timeout -k 5 "$@" || rc=$?
	[ $rc != 124 ] || echo "timed out after $1 s"
	return $rc
}

run_job() {
	local rc
	case $1 in
	build-arm64)
		. tests/arm64/setup.sh
		arm64_setup || {
			rc=$?
			echo "${arm64_why:?}"
			[ $rc != 2 ] || return 77
			return 1
		}
		build O="$out/arm64" "${arm64_make[@]:?}"
		;;
	build-*)
		variant "${1#build-}"
		build O="$dir" "${make_with[@]}"
		;;
	kernel/*) O=$out limited 3600 tests/kernel/run.sh "quick_${1#kernel/}" ;;
	kernel-full) O=$out tests/kernel/run.sh full ;;
	fresh/*) limited 14400 scripts/check-fresh.sh --dir "$out/fresh" "${1#fresh/}" ;;
	coverage) limited 3600 tests/coverage.sh "$out/coverage" ;;
	packages/run) limited 3600 bash tests/packages/run.sh "$out" ;;
	build/* | tools/* | contract/* | packages/* | docs/*) limited 1200 bash "tests/$1.sh" "$out" "$out/sim" ;;
	*)
		[ "$mode" = quick ] || variant "${1%%/*}"
		program "$1"
		;;
	esac
}

ended() {
	local name=$1 rc=$2 log need ret=0
	log=$(log_of "$name")
	case $name:$rc in
	*:needs)
		need=${needs[$name]}
		if [ -n "${unavailable[$need]:-}" ]; then
			skipped_alone "$name" "${unavailable[$need]}"
		else
			failed_alone "$name" "" "not run: $need failed"
		fi
		ret=1
		;;
	build-*:77)
		unavailable[$name]=$(tail -n 1 "$log")
		skipped_alone "$name" "${unavailable[$name]}"
		ret=1
		;;
	build-*:0)
		passed_alone "$name"
		add_built "${name#build-}"
		;;
	build-*:* | coverage:*)
		ret=$rc
		if [ "$rc" = 0 ]; then
			passed_alone "$name"
		else
			failed_alone "$name" "$log" "exit $rc"
		fi
		;;
	*)
		verdict "$log" "$rc" "$name"
		ret=$rc
		;;
	esac
	progress "$done_count" "$line"
	return "$ret"
}
declare -A unavailable=()

# ---- which ---------------------------------------------------------------------------------------

selected() {
	local pattern
	[ -n "${TESTS:-}" ] || return 0
	for pattern in $TESTS; do
		# shellcheck disable=SC2053
		[[ $1 != *$pattern* ]] || return 0
	done
	return 1
}

# Programs that were built and that nothing foretold, e.g. of a source that is gone: they run too.
add_built() {
	local v t
	for v in "${variants[@]}"; do
		[ "$(build_of "$v")" = "build-$1" ] || continue
		variant "$v"
		while read -r t; do
			case $v:${t##*/} in arm64*:gpu_test_*) continue ;; esac
			add_program "$v/${t##*/}" "build-$1"
		done < <(programs_of)
	done
}

add_program() {
	local why
	selected "$1" && [ -z "${state[$1]:-}" ] || return 0
	case $1 in
	arm64*)
		why=$(sed -n "s/^${1##*/}\t//p" tests/arm64/not-run)
		case $1:$why in
		*: | arm64-long/*:long:*) ;;
		*)
			[ -n "${left_out[$1]:-}" ] || skipped_alone "$1" "$why"
			left_out[$1]=yes
			return
			;;
		esac
		;;
	esac
	add "$1" "$2"
}
declare -A left_out=()

# What there is to run, by name, in the order in which it should start: NAME<tab>NEEDS.
plan() {
	local v t name need foretold machine
	printf '%s\t\n' "${kernels[@]}"
	for t in "${scripts[@]}"; do
		name=${t#tests/} need=build-gcc
		! grep -q 'Takes no argument' "$t" || need=
		printf '%s\t%s\n' "${name%.sh}" "$need"
	done
	for v in "${variants[@]}"; do
		machine=()
		case $v in arm64*) machine=(GDRI_COPY_MACHINE=aarch64) ;; esac
		variant "$v"
		foretold=$(make -s --no-print-directory O="$dir" "${machine[@]}" print-tests) || return
		for name in $foretold; do
			# Those for a machine with a GPU ask for what is not emulated.
			case $v:$name in arm64*:gpu_test_*) continue ;; esac
			printf '%s/%s\t%s\n' "$v" "$name" "$(build_of "$v")"
		done
	done
	printf '%s\t\n' "${others[@]}"
}

# Fills the list of jobs: those that are selected, their builds, what is long first.
add_all() {
	local name need pass pattern early
	plan >"$logs/plan" || exit 1
	for pass in poles builds long rest; do
		while IFS=$'\t' read -r name need; do
			[ -n "$name" ] && selected "$name" || continue
			early=
			for pattern in "${long[@]}"; do
				[[ $name != *"$pattern" ]] || early=yes
			done
			case $pass:$name:$early in
			poles:kernel/6.1: | poles:kernel-full: | rest:*) add_program "$name" "$need" ;;
			builds:*) [ -z "$need" ] || add "$need" ;;
			long:*:yes) add_program "$name" "$need" ;;
			esac
		done <"$logs/plan"
	done
	[ ${#order[@]} -gt 0 ] || { echo "no test matches TESTS='${TESTS:-}'"; exit 1; }
}

# ---- what they need ------------------------------------------------------------------------------

# Jobs of parts that lack a package leave the list, each with its verdict.
ask_packages() {
	local name part installed=0 lacks package uses pattern kept=() verb=skipped_alone
	local -A parts=() why=()
	for name in "${order[@]}"; do
		parts[$(part_of "$name")]=yes
	done
	scripts/deps.sh install "${!parts[@]}" || installed=$?
	[ $installed != 0 ] || return 0
	[ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || verb=failed
	[ "${CI:-}" != true ] || verb=failed
	lacks=$(scripts/deps.sh missing "${!parts[@]}")
	while IFS=$'\t' read -r package uses; do
		[ -n "$package" ] || continue
		[ "$package" != - ] || package="apt's package lists"
		for part in "${!parts[@]}"; do
			set -f
			for pattern in $uses; do
				# shellcheck disable=SC2053
				[[ $part != $pattern ]] || why[$part]+="${why[$part]:+, }$package"
			done
			set +f
		done
	done <<<"$lacks"
	for name in "${order[@]}"; do
		part=$(part_of "$name")
		if [ -z "${why[$part]:-}" ]; then
			kept+=("$name")
			continue
		fi
		unset "state[$name]"
		if [ $verb = failed ]; then
			failed_alone "$name" "" "not run: missing ${why[$part]}"
		else
			skipped_alone "$name" "missing: ${why[$part]}"
		fi
		echo "$line"
	done
	order=("${kept[@]}")
}

# ---- run -----------------------------------------------------------------------------------------

# Writes no file: the disk may be what has failed.
finish() {
	local rc=0 text free stat
	text=$(summary) || rc=1
	free=$(df -Pk "$out" | awk 'NR == 2 { print int($4 / 1024) }')
	[ "$free" -ge 64 ] || text="The file system of $out is full ($free MiB left): failures may be its."$'\n'$text
	# User and system time of the children that have ended, in hundredths of a second.
	read -r -a stat </proc/$$/stat
	sed '$d' <<<"$text"
	printf 'time: %s, CPU: %d s user, %d s system\n' "$(clock)" $((stat[15] / 100)) $((stat[16] / 100))
	tail -n 1 <<<"$text"
	exit $rc
}

stopped() {
	jobs_stop
	failed_alone "stopped" "" "$done_count of ${#order[@]} had run"
	finish
}

# Read as a whole before it runs: who edits this file does not change a run.
main() {
	local t
	trap 'trap - INT TERM; stopped' INT TERM
	case $mode in
	quick)
		dir=$out with=() limit=600
		while read -r t; do
			add "$(basename "$out")/${t##*/}"
		done < <(programs_of)
		;;
	list)
		plan | cut -f1 | grep .
		return
		;;
	check | full)
		add_all
		ask_packages
		;;
	deps)
		add_all
		ask_packages
		[ $((failed + skipped)) = ${#left_out[@]} ]
		return
		;;
	*)
		echo "usage: tests/run.sh BUILD_DIR [full|quick|deps|list [full]]" >&2
		return 2
		;;
	esac
	# One more than CPUs: some wait for a mirror, for a guest, or for nothing at all on purpose.
	jobs_run $((jobs + 1))
	finish
}

main
exit
