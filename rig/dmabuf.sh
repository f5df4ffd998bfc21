# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The driver's dma-buf source in the guest: builds, and machines with an IOMMU and a second PCI function. Sourced
# by run.sh, after rig.sh.
#
# dmabuf_build GEN...	adds to the modules of rig_build: gdrdrv-dmabuf.ko, built without a header of the GPU
#			driver, and gdrdrv-GEN-both.ko
# dmabuf_boot IOMMU NAME ARGS...	like rig_boot; IOMMU: off, pass-through or translating

# A driver with SOURCE=$3 for generation $2, as mod/gdrdrv-$4.ko.
dmabuf_build_one() {
	local out=$1 gen=$2 source=$3 name=$4 drv=$1/gdrdrv-$4 log=$1/build-$4.log
	mkdir -p "$drv"
	cp "$SRC"/gdrdrv/*.[ch] "$SRC/gdrdrv/Kbuild" "$SRC"/gdrdrv/*.sh "$drv/"
	[ "$source" = dmabuf ] || cp "$out/p2p-$gen"/*.h "$out/provider-$gen/Module.symvers" "$drv/"
	rm -f "$drv/gdrdrv_conftest.h"
	if [ -n "$RIG_PLANT" ]; then
		patch -s -d "$drv" -p2 <"$KERNEL_TESTS/planted/$RIG_PLANT.patch" || return 1
	fi
	[ ! -e "$drv/Module.symvers" ] || mv "$drv/Module.symvers" "$drv/provider.symvers"
	kbuild "$drv" GDRDRV_SOURCE="$source" GDRDRV_FLAVOR=open \
		$([ "$source" = dmabuf ] || echo 'GDRDRV_P2P_DIR=$(src)' 'KBUILD_EXTRA_SYMBOLS=$(M)/provider.symvers') \
		GDRDRV_CFLAGS="$RIG_KO_CFLAGS" ${RIG_GCOV:+GDRDRV_GCOV=1} W=1 ${DMABUF_MAKE:-} >"$log" 2>&1 ||
		{ cat "$log"; return 1; }
	if grep -E -i 'warning:|error:' "$log"; then
		return 1
	fi
	cp "$drv/gdrdrv.ko" "$out/mod/gdrdrv-$name.ko"
}

dmabuf_build() {
	local gen
	local key
	key="$(cat "$W/key") $* $RIG_PLANT"
	[ "$key" = "$(cat "$W/dmabuf-key" 2>/dev/null)" ] && return 0
	dmabuf_build_one "$W" none dmabuf dmabuf || return 1
	for gen; do
		dmabuf_build_one "$W" "$gen" both "$gen-both" || return 1
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
