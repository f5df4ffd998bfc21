# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The driver's dma-buf source in the guest: builds, and machines with an IOMMU and a second PCI
# function. Sourced by run.sh, after rig.sh.
#
# dmabuf_build GEN...	adds to rig_build: gdrdrv-dmabuf.ko, built without nv-p2p.h, and
#			gdrdrv-GEN-both.ko
# dmabuf_boot IOMMU NAME ARGS...	like rig_boot; IOMMU: off, pass-through or translating

dmabuf_build() {
	local gen key
	key="$(cat "$W/key") $* $RIG_PLANT"
	[ "$key" = "$(cat "$W/dmabuf-key" 2>/dev/null)" ] && return 0
	build_driver "$W" none dmabuf GDRDRV_SOURCE=dmabuf GDRDRV_FLAVOR=open || return 1
	for gen; do
		build_driver "$W" "$gen" "$gen-both" GDRDRV_SOURCE=both GDRDRV_FLAVOR=open || return 1
	done
	echo "$key" >"$W/dmabuf-key"
}

# The module that is built without a header of the GPU driver uses none of its symbols.
dmabuf_symbols() {
	local ko=$W/mod/gdrdrv-dmabuf.ko what
	what=$(nm -u "$ko" | grep -i nvidia; modinfo -F depends "$ko")
	if [ -z "$what" ]; then
		pass "$1: SOURCE=dmabuf: no symbol of the GPU driver, depends on no module"
	else
		fail "$1: SOURCE=dmabuf needs $what"
	fi
}

dmabuf_boot() {
	local iommu=$1 name=$2 args=
	shift 2
	RIG_QEMU="-object memory-backend-ram,id=bar2,share=on,size=4M -device ivshmem-plain,memdev=bar2"
	case $iommu in
	translating) args="intel_iommu=on iommu.passthrough=0 rig.iommu=1" ;;
	pass-through) args="intel_iommu=on iommu=pt" ;;
	esac
	[ "$iommu" = off ] || RIG_QEMU="-device intel-iommu $RIG_QEMU"
	rig_boot "$name, IOMMU $iommu" $args "$@"
	RIG_QEMU=
}
