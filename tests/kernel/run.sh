#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The driver in an emulated machine.
#
# usage: run.sh quick|library|gdrcopy SOURCE|dmabuf|full|PART
#	quick	stock 6.1 and 6.12, three ways of pinning; on 6.1 also libgdrapi, tools and clients; 6.1 on
#		arm64. quick_6.1, quick_6.12, quick_arm64: one of them; at the same time, if you like
#	library	only those: libgdrapi, tools and clients through the gdrdrv backend on 6.1
#	gdrcopy	GDRCopy's own library and tools on this driver: run.sh gdrcopy SOURCE, its source tree
#	dmabuf	the driver's dma-buf source, with an emulated IOMMU off, passing through, translating
#	full	see full.sh and full_dmabuf.sh; their parts (full_matrix, ...) can be run alone
#
# Prints TAP-like lines; the last is "N passed, N failed, N skipped". Exit 0 or 1; 77 when it lacks a
# package (a failure with CI=true; scripts/deps.sh installs them). A kernel that cannot be fetched is a
# failure. O= is the build directory, BARCOPY_CACHE= where kernels are kept.
set -u -o pipefail
# Inside `make check O=... CC=...` these would reach the kernel's build, where they mean other things.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES

KERNEL_TESTS=$(cd "$(dirname "$0")" && pwd)
SRC=$(cd "$KERNEL_TESTS/../.." && pwd)
RIG=$SRC/rig
BUILD=$(mkdir -p "${O:-$SRC/build}/kernel" && cd "${O:-$SRC/build}/kernel" && pwd) || exit 1
: "${RIG_EXTRA:=}" "${RIG_COMMANDS:=}" "${RIG_KO_CFLAGS:=}" "${RIG_GCOV:=}" "${RIG_NO_HOSTCHECK:=}" "${RIG_VARIANT:=}" "${RIG_PLANT:=}" "${RIG_QEMU:=}"

. "$RIG/kernels.sh"
. "$RIG/rig.sh"
. "$RIG/dmabuf.sh"
. "$RIG/gdrcopy.sh"
. "$KERNEL_TESTS/full.sh"
. "$KERNEL_TESTS/full_dmabuf.sh"
. "$KERNEL_TESTS/full_arm64.sh"

finish() {
	echo "$ok passed, $bad failed, $skipped skipped"
	[ "$bad" -eq 0 ] || exit 1
	exit 0
}

# What is not there to be run: a skip, and no excuse with CI=true.
unavailable() {
	if [ "${CI:-}" = true ]; then
		fail "$* (CI=true: no skipping)"
	else
		skip "$*"
	fi
}

cannot() {
	echo "# the driver's tests cannot run: $*"
	if [ "${CI:-}" = true ]; then
		fail "set-up: $* (CI=true: no skipping)"
		finish
	fi
	skip "$*"
	[ "$bad" -eq 0 ] || finish # what has failed before is no skip
	echo "$ok passed, $bad failed, $skipped skipped"
	exit 77
}

# need PART: the programs that it is made with exist.
need() {
	local lacks='' program
	for program in gcc-12 cpio lz4 xz zstd pahole modinfo busybox qemu-system-x86_64; do
		command -v "$program" >/dev/null || lacks+=" $program"
	done
	[ -z "$lacks" ] || cannot "missing:$lacks"
}

# Debian's own names, and its archive: elsewhere there are no such kernels.
kernel_or_stop() {
	kernel_prepare "$1" && return
	command -v apt-get >/dev/null || cannot "kernel $1 comes from Debian's archive, and there is no apt-get"
	fail "kernel $1: its packages cannot be fetched"
	finish
}

# What builds and boots may be replaced, to test the rest: tests/build/test_kernel_tiers.sh.
[ -z "${RIG_STUBS:-}" ] || . "$RIG_STUBS"

seed=${RIG_SEED:-$(($(date +%s) % 1000000))}
say "seed $seed (RIG_SEED= repeats it)"

quick() {
	quick_6.1
	quick_6.12
	quick_arm64
}

quick_6.1() { quick_amd64 6.1; }
quick_6.12() { quick_amd64 6.12; }

quick_amd64() {
	local kernel=$1
	need "kernel/$kernel"
	kernel_or_stop "$kernel"
	rig_build 580 || { fail "$kernel: build"; return; }
	pass "$kernel ($K_REL): build"
	RIG_EXTRA= RIG_COMMANDS=
	if [ "$kernel" = 6.1 ]; then
		rig_library && pass "libgdrapi, tools and clients for the guest: build" ||
			{ tail -20 "$BUILD/library.log"; fail "libgdrapi for the guest: build"; }
	fi
	# per guest: 200 window rounds, 6 s random, 21,000 fuzz calls
	rig_boot "$kernel" rig.setups=580:persistent,580:callback,580:fallback rig.rounds=100 \
		rig.random=2 rig.fuzz=7000 rig.seed=$seed ${RIG_ARGS:-}
	quick_dmabuf "$kernel"
	RIG_EXTRA= RIG_COMMANDS=
}

# Short: where addresses are IOVAs, with the library over it; and where both sources are built in.
quick_dmabuf() {
	local kernel=$1 iommu=off setup=580:both
	if [ "$kernel" = 6.1 ]; then
		iommu=translating setup="580:dmabuf rig.library=dmabuf"
	fi
	dmabuf_build 580 || { fail "$kernel: build with dma-buf"; return; }
	dmabuf_symbols "$kernel"
	dmabuf_boot "$iommu" "$kernel" rig.setups=$setup rig.rounds=20 rig.random=1 \
		rig.fuzz=2000 rig.seed=$seed ${RIG_ARGS:-}
}

# The library and its users alone, in every way of pinning.
library() {
	need kernel/6.1
	kernel_or_stop 6.1
	if ! rig_build 580 || ! dmabuf_build 580 || ! rig_library; then
		cat "$BUILD/library.log"
		fail "library: build"
		return
	fi
	RIG_NO_HOSTCHECK=1 rig_boot "6.1 library" rig.library=persistent,callback,dmabuf,both rig.seed=$seed
}

# The dma-buf source alone; DMABUF_KERNELS=, IOMMUS= and RIG_ARGS= make it smaller, or larger.
dmabuf() {
	local kernel iommu
	for kernel in ${DMABUF_KERNELS:-6.1 6.12}; do
		need "kernel/$kernel"
		kernel_or_stop "$kernel"
		if ! rig_build 580 535 || ! dmabuf_build 580; then
			fail "$kernel: build"
			continue
		fi
		dmabuf_symbols "$kernel"
		for iommu in ${IOMMUS:-off pass-through translating}; do
			dmabuf_boot "$iommu" "$kernel" rig.setups=$DMABUF_SETUPS \
				rig.rounds=50 rig.random=2 rig.fuzz=3000 rig.seed=$seed ${RIG_ARGS:-}
		done
	done
}

case ${1:-} in
library) library ;;
gdrcopy) gdrcopy "${2:-}" ;;
quick) quick ;;
full) full ;;
dmabuf) dmabuf ;;
full_*) need kernel-full; "$1" ;;
quick_6.1 | quick_6.12 | quick_arm64) "$1" ;;
*) echo "usage: run.sh quick|library|gdrcopy SOURCE|dmabuf|full|full_PART" >&2; exit 2 ;;
esac
finish
