# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The full tier of the dma-buf source, sourced by run.sh after full.sh:
#
#	full_dmabuf_matrix	every kernel x IOMMU off, pass-through, translating x both generations of
#				the exporter, the driver with this source alone and with both
#	full_dmabuf_static	sparse
#	full_dmabuf_debug	under the checking kernel
#	full_dmabuf_planted	faults put into the driver on purpose: each must be caught
#	full_dmabuf_arm64	the other architecture

# The older exporter first: with IOVAs it cannot leave what the host looks for at the end.
DMABUF_SETUPS=535:dmabuf,580:dmabuf,580:both

full_dmabuf_matrix() {
	local kernel iommu
	for kernel in $FULL_KERNELS; do
		kernel_prepare "$kernel" || { fail "$kernel: its packages cannot be fetched"; continue; }
		if ! RIG_VARIANT=dmabuf rig_build 580 535 || ! dmabuf_build 580; then
			fail "$kernel: build"
			continue
		fi
		dmabuf_symbols "$kernel"
		for iommu in off pass-through translating; do
			RIG_LIMIT=900 dmabuf_boot "$iommu" "$kernel" rig.setups=$DMABUF_SETUPS \
				rig.rounds=200 rig.random=5 rig.fuzz=20000 rig.seed=$seed
		done
	done
}

# As full_static of full.sh, which knows the p2p source alone.
full_dmabuf_static() {
	kernel_prepare 6.1 || { fail "static checks: the packages of 6.1 cannot be fetched"; return; }
	if RIG_VARIANT=dmabuf rig_build 580 535 &&
	   DMABUF_MAKE="C=2 CF=-Wsparse-error" dmabuf_build_one "$W" 580 both 580-sparse; then
		pass "both sources: W=1 and sparse"
	else
		fail "both sources: W=1 and sparse"
	fi
	rm -f "$W/mod/gdrdrv-580-sparse.ko"
}

full_dmabuf_debug() {
	local iommu RIG_GCOV=1
	kernel_prepare debug || { fail "debug kernel: build"; return; }
	if ! RIG_VARIANT=dmabuf rig_build 580 535 || ! dmabuf_build 580; then
		fail "debug: build"
		return
	fi
	for iommu in ${IOMMUS:-off translating}; do
		[ "$iommu" != off ] || gcov_list "$W/gdrdrv-dmabuf" "$W/gdrdrv-580-both"
		RIG_MEM=1024M RIG_LIMIT=1800 dmabuf_boot "$iommu" debug ${RIG_ARGS:-} rig.setups=$DMABUF_SETUPS \
			rig.rounds=20 rig.random=3 rig.fuzz=5000 rig.seed=$seed rig.debug=1
		[ "$iommu" != off ] || coverage "line coverage with the dma-buf source" 90
	done
}

full_dmabuf_arm64() {
	kernel_prepare 6.1-arm64 || { fail "6.1 arm64: its packages cannot be fetched"; return; }
	if ! RIG_VARIANT=dmabuf rig_build 580 535 || ! dmabuf_build 580; then
		fail "6.1 arm64: build"
		return
	fi
	RIG_LIMIT=600 dmabuf_boot off "6.1 arm64" rig.setups=$DMABUF_SETUPS \
		rig.rounds=100 rig.random=3 rig.fuzz=5000 rig.seed=$seed
}

# dmabuf_planted_run PATCH KERNEL IOMMU ARGS: as planted_run of full.sh.
dmabuf_planted_run() {
	local name=$1 kernel=$2 iommu=$3 args=$4 keep_ok=$ok keep_bad=$bad keep_skipped=$skipped
	kernel_prepare "$kernel" || return 1
	local RIG_VARIANT=planted RIG_PLANT=
	rig_build 580 && RIG_PLANT=${name#none} dmabuf_build || return 1
	RIG_NO_HOSTCHECK=1 RIG_MEM=1024M RIG_LIMIT=900 dmabuf_boot "$iommu" "planted $name" \
		rig.setups=580:dmabuf "$args" rig.rounds=20 rig.random=1 rig.fuzz=1000 \
		rig.seed=$seed loglevel=4 >"$W/planted.log" 2>&1
	caught=$((bad > keep_bad))
	ok=$keep_ok bad=$keep_bad skipped=$keep_skipped
	grep -hE 'KASAN|BUG:|WARNING:|possible circular|unreferenced' "$W/console" |
		sed 's/^/# console: /' >>"$W/planted.log"
	return 0
}

# dmabuf_planted_one PATCH KERNEL IOMMU EVIDENCE ARGS: as planted_one of full.sh.
dmabuf_planted_one() {
	local caught='' evidence=''
	if ! dmabuf_planted_run "$1" "$2" "$3" "$5"; then
		fail "planted $1: build"
		return
	fi
	evidence=$(planted_evidence "$4")
	if [ "$caught" = 1 ] && [ -n "$evidence" ]; then
		pass "planted $1, IOMMU $3, is caught: $evidence"
	else
		cat "$W/planted.log"
		fail "planted $1, IOMMU $3: no '$4'"
	fi
}

full_dmabuf_planted() {
	local caught name evidence iommu only=rig.only=dmabuf,hostile,data
	for iommu in off translating; do
		if dmabuf_planted_run none 6.1 $iommu $only && [ "$caught" = 0 ] && planted_ran $only; then
			pass "nothing planted, IOMMU $iommu: nothing is caught"
		else
			cat "$W/planted.log"
			fail "nothing planted, IOMMU $iommu: something is caught, or did not run"
		fi
	done
	while read -r -u 3 name iommu evidence; do
		dmabuf_planted_one "dmabuf-$name" 6.1 "$iommu" "$evidence" $only
	done 3<<-'E'
		no-range-check off not ok .*/hostile-
		first-entry-only off not ok .*/hostile-
		physical off not ok .*/hostile-bridge-offset
		any-driver off not ok .*/hostile-functions
		any-function off not ok .*/hostile-functions
		any-exporter off not ok .*/hostile-exporter
		any-bar off not ok .*/hostile-
		writable off not ok .*/dmabuf-read-only-fd
		no-sum off not ok .*/hostile-
		lost-notice off not ok .*/dmabuf-move
		leak off WARNING:
		no-range-check translating not ok .*/hostile-
	E
	# Alone: other tests would write to the CPU's memory at the IOVA, and the machine would hang.
	dmabuf_planted_one dmabuf-physical 6.1 translating 'not ok .*/dmabuf-iovas' rig.only=dmabuf-iovas
	# Reported at the first move, it comes true in the race: the guest then ends itself.
	local hung="sysctl.kernel.hung_task_timeout_secs=20 sysctl.kernel.hung_task_panic=1"
	[ -n "${DMABUF_NO_DEBUG:-}" ] ||
		dmabuf_planted_one dmabuf-lock-order debug off 'possible circular locking dependency' \
			"rig.only=dmabuf-move rig.debug=1 $hung"
}

full_dmabuf() {
	full_dmabuf_matrix
	full_dmabuf_static
	full_dmabuf_arm64
	full_dmabuf_debug
	full_dmabuf_planted
}
