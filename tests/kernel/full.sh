# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The full tier, sourced by run.sh:
#
#	matrix		every kernel x way of pinning x nv-p2p generation, both flavours on each kernel
#	marked		6.12.95, where userfaultfd protects a mapping without pages
#	static		W=1, sparse, checkpatch --strict
#	debug		6.1 and 6.12 with KASAN, lockdep, kmemleak, failslab; on 6.1 line coverage
#	planted		faults put into the driver on purpose: each must be caught, the races in every boot
#	measure		faults, entries and times for 64 KiB, 64 MiB and 1 GiB; of a revocation; handles

FULL_KERNELS=${FULL_KERNELS:-5.10 6.1 6.12 7}
ALL_SETUPS=470:callback,515:persistent,515:callback,515:fallback,535:persistent,535:fallback
ALL_SETUPS=$ALL_SETUPS,570:persistent,570:callback,570:fallback

full_matrix() {
	local kernel fuzz
	for kernel in $FULL_KERNELS; do
		kernel_prepare "$kernel" || { fail "$kernel: its packages cannot be fetched"; continue; }
		# Long: the two stock kernels of the quick tier.
		fuzz=20000 rounds=200 random=5
		case $kernel in 6.1 | 6.12) fuzz=100000 rounds=1000 random=30 ;; esac
		if ! RIG_FLAVOR=open rig_build 580 470 515 535 570; then
			fail "$kernel: build"
			continue
		fi
		pass "$kernel ($K_REL): build for all generations, W=1"
		say "$kernel: gdrdrv.ko $(stripped_size "$W/mod/gdrdrv-580.ko") bytes stripped"
		RIG_LIMIT=3600 rig_boot "$kernel 580" rig.setups=580:persistent,580:callback,580:fallback \
			rig.rounds=$rounds rig.random=$random rig.fuzz=$fuzz rig.seed=$seed
		RIG_LIMIT=1800 rig_boot "$kernel 470..570" rig.setups=$ALL_SETUPS \
			rig.rounds=50 rig.random=1 rig.fuzz=5000 rig.seed=$seed
		full_library "$kernel"
		full_proprietary "$kernel"
	done
}

# A kernel without the fix of 2026 to userfaultfd.
full_marked() {
	if ! kernel_prepare 6.12.95; then
		unavailable "6.12.95: the archive has it no more, or is out of reach"
		return
	fi
	rig_build 580 || { fail "6.12.95: build"; return; }
	rig_boot 6.12.95 rig.setups=580:persistent,580:callback,580:fallback rig.rounds=200 \
		rig.random=5 rig.fuzz=20000 rig.seed=$seed
	if grep -q 'userfaultfd protects mappings without pages' "$W/console"; then
		pass "6.12.95: userfaultfd protects a mapping without pages"
	else
		fail "6.12.95: userfaultfd refuses a mapping without pages: another kernel is needed"
	fi
}

# libgdrapi, tools and clients on this kernel; the modules are built.
full_library() {
	rig_library || { tail -20 "$BUILD/library.log"; fail "$1 library: build"; return; }
	RIG_NO_HOSTCHECK=1 RIG_LIMIT=900 rig_boot "$1 library" rig.seed=$seed
	RIG_EXTRA= RIG_COMMANDS=
}

stripped_size() {
	strip -g -o "$W/stripped.ko" "$1" && stat -c %s "$W/stripped.ko"
}

# The other flavour: no GPL-only symbol, and every test that does not need one.
full_proprietary() {
	local kernel=$1 gpl
	if ! RIG_VARIANT=prop RIG_FLAVOR=proprietary rig_build 470 515 535 570 580; then
		fail "$kernel proprietary: build"
		return
	fi
	for gpl in 470 515 535 570 580; do
		gpl_symbols "$W/mod/gdrdrv-$gpl-prop.ko" >"$W/gpl"
		if [ -s "$W/gpl" ]; then
			fail "$kernel proprietary $gpl: GPL-only symbols: $(tr '\n' ' ' <"$W/gpl")"
		else
			pass "$kernel proprietary $gpl: no GPL-only symbol"
		fi
	done
	say "$kernel: gdrdrv.ko $(stripped_size "$W/mod/gdrdrv-580-prop.ko") bytes stripped, proprietary flavour"
	RIG_LIMIT=1800 rig_boot "$kernel proprietary" rig.setups=580:persistent,580:callback,470:callback,515:persistent \
		rig.rounds=50 rig.random=1 rig.fuzz=5000 rig.prop=1 rig.seed=$seed
}

# The check itself: it must see the GPL-only symbols of the open flavour.
full_gpl_check_sees() {
	kernel_prepare 6.1 && rig_build 580 || { fail "GPL-only check: build"; return; }
	if [ "$(gpl_symbols "$W/mod/gdrdrv-580.ko" | wc -l)" -gt 3 ]; then
		pass "the check for GPL-only symbols sees those of the open flavour"
	else
		fail "the check for GPL-only symbols is blind"
	fi
}

full_static() {
	local checkpatch flavor
	kernel_prepare 6.1 || { fail "static checks: the packages of 6.1 cannot be fetched"; return; }
	W=$BUILD/static
	rm -rf "$W" && mkdir -p "$W/mod"
	for flavor in open proprietary; do
		full_static_one 580 $flavor
	done
	checkpatch=$(kernel_scripts)/checkpatch.pl
	if [ ! -e "$checkpatch" ]; then
		fail "no checkpatch.pl: the kernel's source cannot be fetched"
		return
	fi
	# Left out: what only a patch has; KNOB(), which declares and so names its argument twice; the
	# line break before a long message, where clang-format puts it.
	run_checkpatch() {
		perl "$checkpatch" --strict --no-tree --no-summary --terse --max-line-length=100 \
			--ignore "FILE_PATH_CHANGES,MACRO_ARG_REUSE,OPEN_ENDED_LINE" -f "$@" >>"$W/checkpatch" 2>&1
	}
	if run_checkpatch $(ls "$SRC"/gdrdrv/*.[ch] "$RIG"/provider/*.[ch] | grep -v provider/compat.h); then
		pass "checkpatch --strict"
	else
		cat "$W/checkpatch"
		fail "checkpatch --strict"
	fi
}

# full_static_one GENERATION FLAVOR
full_static_one() {
	if build_pair "$W" "$1" "$2" C=2 CF=-Wsparse-error >"$W/log" 2>&1 &&
	   ! grep -E 'warning:|error:' "$W/build-$1-$2.log" >>"$W/log"; then
		pass "$1, $2: W=1 and sparse"
	else
		cat "$W/log"
		fail "$1, $2: W=1 and sparse"
	fi
}

full_debug() {
	full_debug_6.1
	full_debug_6.12
}

full_debug_6.1() {
	kernel_prepare debug || { fail "debug kernel: build"; return; }
	local RIG_GCOV=1 RIG_MEM=1024M RIG_LIMIT=7200
	if ! rig_build 580 515 470; then
		fail "debug: build"
		return
	fi
	pass "debug ($K_REL): build"
	gcov_list "$W"/gdrdrv-{580,515,470}-open
	rig_boot debug rig.setups=580:persistent,580:callback,580:fallback,515:persistent,470:callback \
		rig.rounds=200 rig.random=30 rig.fuzz=20000 rig.seed=$seed rig.debug=1
	coverage "line coverage" 90
}

# The kernels from 6.12 on walk mappings by other ways: they know huge entries of what has no pages.
full_debug_6.12() {
	kernel_prepare debug-6.12 || { fail "debug kernel, 6.12: build"; return; }
	local RIG_MEM=1024M RIG_LIMIT=7200
	if ! rig_build 580; then
		fail "debug, 6.12: build"
		return
	fi
	pass "debug ($K_REL): build"
	rig_boot debug-6.12 rig.setups=580:persistent,580:callback rig.rounds=50 rig.random=10 \
		rig.fuzz=5000 rig.seed=$seed rig.debug=1
}

# gcov_list BUILD...: where the guest finds the counters of each object that they have.
gcov_list() {
	local dir f
	for dir; do
		for f in "$SRC"/gdrdrv/*.c; do
			f=$dir/$(basename "$f" .c)
			[ ! -e "$f.o" ] || echo "/sys/kernel/debug/gcov$f.gcda"
		done
	done >"$W/gcov.list"
}

# coverage NAME PERCENT: the guest prints counters at the end of each set-up; the files add up what
# they cover.
coverage() {
	local name=$1 percent=$2 ret
	python3 "$RIG/coverage.py" "$W/gcov.list" "$W/console" "$SRC/gdrdrv" "$percent" \
		>"$W/coverage"
	ret=$?
	sed 's/^/# /' "$W/coverage"
	if [ $ret -eq 0 ]; then
		pass "$name: $(tail -1 "$W/coverage")"
	else
		fail "$name: $(tail -1 "$W/coverage")"
	fi
	rm -f "$W/gcov.list"
}

# planted_run PATCH KERNEL ARGS: boots with the fault in; sets caught and leaves the log.
planted_run() {
	local name=$1 kernel=$2 args=$3 keep_ok=$ok keep_bad=$bad keep_skipped=$skipped
	kernel_prepare "$kernel" || return 1
	RIG_VARIANT=planted RIG_PLANT=${name#none} rig_build ${RIG_GENS:-580} || return 1
	RIG_NO_HOSTCHECK=1 RIG_MEM=1024M RIG_LIMIT=1800 rig_boot "planted $name" "$args" \
		rig.seed=$seed loglevel=4 >"$W/planted.log" 2>&1
	caught=$((bad > keep_bad))
	ok=$keep_ok bad=$keep_bad skipped=$keep_skipped
	# A kernel that died of it has told the console only.
	grep -hE 'KASAN|BUG:|WARNING:|possible circular|unreferenced' "$W/console" |
		sed 's/^/# console: /' >>"$W/planted.log"
	return 0
}

# planted_one NAME KERNEL EVIDENCE ARGS [BOOTS]: caught in every one of them, and by what is meant to
# see it: a line that matches EVIDENCE. A machine that does not come up is none.
planted_one() {
	local name=$1 boots=${5:-1} n=0 caught evidence
	while [ $n -lt "$boots" ]; do
		if ! planted_run "$1" "$2" "$4"; then
			fail "planted $name: build"
			return
		fi
		evidence=$(planted_evidence "$3")
		if [ "$caught" != 1 ] || [ -z "$evidence" ]; then
			cat "$W/planted.log"
			fail "planted $name: no '$3' in boot $((n + 1)) of $boots"
			return
		fi
		n=$((n + 1))
	done
	pass "planted $name is caught in $n of $boots boots: $evidence"
}

# Every name in the rig.only= of $1 has a test that passed: a name that no test has, or whose test is
# skipped, would show nothing.
planted_ran() {
	local only name
	only=$(sed -n 's/.*rig\.only=\([^ ]*\).*/\1/p' <<<"$1")
	for name in ${only//,/ }; do
		if ! grep -aqE "^ok [0-9]+ - [^/ ]*/[^ ]*${name}[^ ]* # [0-9]" "$W/console"; then
			say "no test named $name passed"
			return 1
		fi
	done
}

# The same runs without a fault pass: what catches the others is the fault.
planted_none() {
	local boots=${3:-1} n=0 caught
	while [ $n -lt "$boots" ]; do
		if ! planted_run none "$1" "$2" || [ "$caught" != 0 ] || ! planted_ran "$2"; then
			cat "$W/planted.log"
			fail "nothing planted, $1: something is caught, or did not run, in boot $((n + 1)) of $boots"
			return
		fi
		n=$((n + 1))
	done
	pass "nothing planted, $1: nothing is caught in $n of $boots boots"
}

# The first line that matches $1.
planted_evidence() {
	grep -m1 -aE "$1" "$W/planted.log" | cut -c1-160
}

full_planted() {
	local fast="rig.rounds=100 rig.random=1 rig.fuzz=500"
	local slow="rig.rounds=10 rig.random=2 rig.fuzz=500 rig.debug=1"
	local race="rig.rounds=50 rig.random=1 rig.fuzz=500" boots=5
	planted_none debug "rig.setups=580:callback,580:persistent rig.only=free-mapped,info,proc,free-one,window $slow"
	planted_none 6.1 "rig.setups=580:callback,580:persistent rig.only=window,free-mapped,map-wc,child,reused,lent,unload-after $race" $boots
	planted_one use-after-free debug 'KASAN: .*use-after-free' "rig.setups=580:callback rig.only=free-mapped $slow"
	planted_one leak debug 'unreferenced object' "rig.setups=580:persistent rig.only=info $slow"
	planted_one sleep-under-lock debug 'sleeping function called from invalid context' \
		"rig.setups=580:persistent rig.only=proc $slow"
	planted_one lock-order debug 'possible circular locking dependency' \
		"rig.setups=580:callback rig.only=free-one $slow"
	planted_one entries-in-mmap 6.1 'not ok .*/window-mmap ' "rig.setups=580:callback rig.only=window-mmap $race" $boots
	planted_one unlocked-insert 6.1 'not ok .*/window-insert ' "rig.setups=580:callback rig.only=window-insert $race" $boots
	planted_one double-release debug 'KASAN: .*use-after-free' "rig.setups=580:callback rig.only=window-put $slow"
	planted_one lost-zap 6.1 't_revoke\.c:[0-9]+: read_pte' "rig.setups=580:callback rig.only=free-mapped $fast"
	planted_one missed-memory-type 6.1 't_map\.c:[0-9]+: pte_is_wc' "rig.setups=580:persistent rig.only=map-wc $fast"
	planted_one owner-by-number 6.1 't_owner\.c:[0-9]+: pin\(.* is 0, not' "rig.setups=580:callback rig.only=reused-number $fast"
	planted_one key-reuse 6.1 'took the pin of' "rig.setups=580:callback rig.only=window-put-reused $race" $boots
	planted_one late-callback 6.1 't_owner\.c:[0-9]+: read_number' "rig.setups=580:callback rig.only=lent-unpinned $fast"
	planted_one not-kept 6.1 't_owner\.c:[0-9]+: delete_module' "rig.setups=580:callback rig.only=unload-after $fast"
	planted_one tokens 6.1 't_basic\.c:[0-9]+: pin_tokens' "rig.setups=580:persistent rig.only=tokens $fast"
	planted_none 6.12 "rig.setups=580:callback rig.only=walk-mbind $fast"
	planted_one huge-entries 6.12 'RIP: .*queue_folios_pte_range' "rig.setups=580:callback rig.only=walk-mbind $fast"
	planted_none 6.12.95 "rig.setups=580:callback rig.only=walk-uffd-wp $fast"
	planted_one endless-fault 6.12.95 'not ok .*/walk-uffd-wp ' "rig.setups=580:callback rig.only=walk-uffd-wp $fast"
	planted_one foreign-put 6.1 't_owner\.c:[0-9]+: gpu_info\(prov\)\.foreign_puts' "rig.setups=580:callback rig.only=child $fast"
}

full_measure() {
	local kernel
	for kernel in 6.1 6.12; do
		kernel_prepare "$kernel" && rig_build 580 || { fail "measure: build"; continue; }
		RIG_BAR=4G RIG_MEM=1024M RIG_LIMIT=3600 rig_boot "measure $kernel" rig.setups=580:callback,580:persistent \
			rig.only=measure,handle-wrap,host-pattern rig.seed=$seed
	done
}

full() {
	need kernel-full
	full_matrix
	full_marked
	full_gpl_check_sees
	full_arm64
	full_static
	full_debug
	full_planted
	full_measure
	full_dmabuf
}
