#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The driver in an emulated machine.
#
# usage: run.sh quick|library|dmabuf|full|PART
#	quick	stock 6.1 and 6.12, three ways of pinning; on 6.1 also libgdrapi, tools and clients; 6.1 on
#		arm64
#	library	only those: libgdrapi, tools and clients through the gdrdrv backend on 6.1
#	dmabuf	the driver's dma-buf source, with an emulated IOMMU off, passing through, translating
#	full	see full.sh and full_dmabuf.sh; their parts (full_matrix, ...) can be run alone
#
# Prints TAP-like lines; the last is "N passed, N failed, N skipped". Exit 0 or 1; 77 when it cannot
# run at all (a failure with CI=true). O= is the build directory, BARCOPY_CACHE= where kernels are kept.
set -u -o pipefail
# Inside `make check O=... CC=...` these would reach the kernel's build, where they mean other things.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES

KERNEL_TESTS=$(cd "$(dirname "$0")" && pwd)
SRC=$(cd "$KERNEL_TESTS/../.." && pwd)
BUILD=$(mkdir -p "${O:-$SRC/build}/kernel" && cd "${O:-$SRC/build}/kernel" && pwd) || exit 1
: "${RIG_EXTRA:=}" "${RIG_COMMANDS:=}" "${RIG_KO_CFLAGS:=}" "${RIG_GCOV:=}" "${RIG_NO_HOSTCHECK:=}" "${RIG_VARIANT:=}" "${RIG_PLANT:=}" "${RIG_QEMU:=}"

. "$KERNEL_TESTS/lib/kernels.sh"
. "$KERNEL_TESTS/lib/rig.sh"
. "$KERNEL_TESTS/lib/dmabuf.sh"
. "$KERNEL_TESTS/full.sh"
. "$KERNEL_TESTS/full_dmabuf.sh"
. "$KERNEL_TESTS/full_arm64.sh"
# What builds and boots may be replaced, to test the rest: tests/build/test_kernel_tiers.sh.
[ -z "${RIG_STUBS:-}" ] || . "$RIG_STUBS"

finish() {
	echo "$ok passed, $bad failed, $skipped skipped"
	[ "$bad" -eq 0 ] || exit 1
	exit 0
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

# What is needed, and the package it comes from. Installed when missing and possible.
need_tools() {
	local missing=() pair
	for pair in qemu-system-x86_64:qemu-system-x86 cpio:cpio lz4:lz4 xz:xz-utils gcc:gcc make:make \
		    pahole:dwarves dpkg-deb:dpkg busybox:busybox-static zstd:zstd flock:util-linux "$@"; do
		command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
	done
	[ "${#missing[@]}" -eq 0 ] && return 0
	command -v apt-get >/dev/null || cannot "missing: ${missing[*]} (and no apt-get)"
	[ "$(id -u)" -eq 0 ] || cannot "missing: ${missing[*]} (not root, so not installed)"
	say "installing ${missing[*]}"
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		"${missing[@]}" >/dev/null 2>&1 ||
		{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
			--no-install-recommends "${missing[@]}" >/dev/null 2>&1; } ||
		cannot "missing: ${missing[*]} (apt-get could not install them)"
}

seed=${RIG_SEED:-$(($(date +%s) % 1000000))}
say "seed $seed (RIG_SEED= repeats it)"

quick() {
	local kernel
	need_tools
	for kernel in 6.1 6.12; do
		kernel_prepare "$kernel" || cannot "kernel $kernel: its packages cannot be fetched"
		rig_build 580 || { fail "$kernel: build"; continue; }
		pass "$kernel ($K_REL): build"
		if [ "$kernel" = 6.1 ]; then
			rig_library && pass "libgdrapi, tools and clients for the guest: build" ||
				{ tail -20 "$BUILD/library.log"; fail "libgdrapi for the guest: build"; }
		else
			RIG_EXTRA= RIG_COMMANDS=
		fi
		# per guest: 200 window rounds, 6 s random, 21,000 fuzz calls
		rig_boot "$kernel" rig.setups=580:persistent,580:callback,580:fallback rig.rounds=100 \
			rig.random=2 rig.fuzz=7000 rig.seed=$seed ${RIG_ARGS:-}
		quick_dmabuf "$kernel"
	done
	RIG_EXTRA= RIG_COMMANDS= quick_arm64
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
	need_tools
	kernel_prepare 6.1 || cannot "kernel 6.1: its packages cannot be fetched"
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
	need_tools
	for kernel in ${DMABUF_KERNELS:-6.1 6.12}; do
		kernel_prepare "$kernel" || cannot "kernel $kernel: its packages cannot be fetched"
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
quick) quick ;;
full) full ;;
dmabuf) dmabuf ;;
full_*) need_tools; "$1" ;;
*) echo "usage: run.sh quick|library|dmabuf|full|full_PART" >&2; exit 2 ;;
esac
finish
