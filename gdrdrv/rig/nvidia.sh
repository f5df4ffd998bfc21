#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The driver beside NVIDIA's own nvidia.ko, without a GPU, in an emulated machine.
#
# usage: nvidia.sh TREE KERNEL	TREE: a checkout or unpacked source of open-gpu-kernel-modules, which is
#				copied and not changed; KERNEL: of kernels.sh, such as 6.1, 6.12, debug
#
# Builds nv-kernel.o once for a release (8 minutes of CPU, unless TREE has it), nvidia.ko once for a
# kernel (a minute), and gdrdrv by its Makefile three times: from TREE, which has no Module.symvers;
# with the Module.symvers that the build of nvidia.ko made; with another release's header. Compares the
# versions (CRCs) of the functions, computed for both flavours, with those of nvidia.ko. Then boots with a PCI
# function that nvidia.ko takes for a GPU (nvidia/fakegpu.c), and runs nvidia/guest.sh.
#
# Prints TAP-like lines as run.sh does. O= is the build directory, BARCOPY_CACHE= the cache of kernels.
set -u -o pipefail
export LC_ALL=C
unset MAKEFLAGS MFLAGS MAKEOVERRIDES

RIG=$(cd "$(dirname "$0")" && pwd)
SRC=$(cd "$RIG/../.." && pwd)
KERNEL_TESTS=$SRC/gdrdrv/tests
BUILD=$(mkdir -p "${O:-$SRC/build}/kernel" && cd "${O:-$SRC/build}/kernel" && pwd) || exit 1
RIG_EXTRA='' RIG_COMMANDS=/dev/null RIG_KO_CFLAGS='' RIG_GCOV='' RIG_NO_HOSTCHECK=1 RIG_PLANT='' RIG_FLAVOR=open
RIG_QEMU='' RIG_MEM=1536M limit=${RIG_LIMIT:-3000}

. "$RIG/kernels.sh"
. "$RIG/rig.sh"

finish() {
	echo "$ok passed, $bad failed, $skipped skipped"
	exit $((bad > 0))
}
stop() {
	fail "$*"
	finish
}

[ $# = 2 ] && [ -r "$1/kernel-open/nvidia/nv-p2p.h" ] || { sed -n '/^# usage/,/^#$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tree=$(cd "$1" && pwd) kernel=$2
release=$(sed -n 's/^NVIDIA_VERSION *= *//p' "$tree/version.mk")
kernel_prepare "$kernel" && [ -z "$K_ROOT" ] || stop "kernel $kernel"
copy=$BUILD/nvidia/$release/tree
W=$BUILD/nvidia/$release/$kernel log=$BUILD/nvidia/$release/$kernel.log
object=$copy/src/nvidia/_out/Linux_x86_64/nv-kernel.o

# The part of nvidia.ko that does not depend on the kernel.
if [ ! -e "$object" ]; then
	rm -rf "$copy" && mkdir -p "$copy" && cp -r "$tree"/{src,kernel-open,version.mk,utils.mk,nv-compiler.sh} "$copy/" || exit 1
	[ -e "$object" ] || nice make -s -j2 -C "$copy/src/nvidia" >"$log" 2>&1 || { tail "$log"; stop "nv-kernel.o"; }
fi

# nvidia.ko of this kernel. The kernel's headers name the place of its source.
ko=$W/kernel-open/nvidia.ko
if [ ! -e "$ko" ]; then
	rm -rf "$W" && mkdir -p "$W" && cp -r "$copy/kernel-open" "$W/" && ln -s "$copy/src" "$copy/version.mk" "$W/" &&
		cp "$object" "$W/kernel-open/nvidia/nv-kernel.o_binary" || exit 1
	source=$(dirname "$(sed -n 's/^include \(.*\/Makefile\)$/\1/p' "$K_HEADERS/Makefile")")
	nice make -j2 -C "$W/kernel-open" modules SYSSRC="$source" SYSOUT="$K_HEADERS" CC=gcc IGNORE_CC_MISMATCH=1 \
		NV_EXCLUDE_KERNEL_MODULES="nvidia-drm nvidia-modeset nvidia-uvm nvidia-peermem" >"$log" 2>&1 ||
		{ grep -m 5 error: "$log"; stop "nvidia.ko $release for $kernel"; }
fi
pass "nvidia.ko $release for $kernel ($K_REL)"

# build NAME NVIDIA_SRC [FLAVOR]: W/mod/gdrdrv-NAME.ko
mkdir -p "$W/mod"
build() {
	rm -rf "$W/gdrdrv-$1"
	make -s -C "$SRC/gdrdrv" O="$W/gdrdrv-$1" KDIR="$K_HEADERS" NVIDIA_SRC="$2" FLAVOR="${3:-open}" W=1 >"$W/build.log" 2>&1 ||
		{ tail "$W/build.log"; fail "gdrdrv, $1"; return 1; }
	cp "$W/gdrdrv-$1/gdrdrv.ko" "$W/mod/gdrdrv-$1.ko"
}
versions() { # FILE
	awk '$2 ~ /^nvidia_p2p_(get_pages|put_pages|free_page_table)/ { print $1, $2, $4 }' "$1" | sort
}
build computed "$tree" && build symvers "$W/kernel-open/nvidia" && build other "$RIG/include/470" || finish
versions "$W/kernel-open/Module.symvers" >"$W/real"
if diff "$W/real" <(versions "$W/gdrdrv-computed/p2psym.symvers"); then
	pass "computed as nvidia.ko has them: $(wc -l <"$W/real") functions, $(awk 'NR == 1 { print $3 }' "$W/real")"
else
	fail "the computed versions"
fi
# The proprietary flavour exports to all modules: a directory with the header alone.
mkdir -p "$W/header" && cp "$tree/kernel-open/nvidia/nv-p2p.h" "$W/header/"
if build proprietary "$W/header" proprietary && diff <(cut -d' ' -f1,2 "$W/real") \
	<(versions "$W/gdrdrv-proprietary/p2psym.symvers" | sed 's/ EXPORT_SYMBOL$//'); then
	pass "the same for the proprietary flavour"
else
	fail "the computed versions for the proprietary flavour"
fi

# ---- in the machine ----

rm -rf "$W/fakegpu" && mkdir -p "$W/fakegpu" && cp "$RIG/nvidia/fakegpu.c" "$W/fakegpu/" &&
	echo 'obj-m := fakegpu.o' >"$W/fakegpu/Kbuild" && kbuild "$W/fakegpu" W=1 >"$W/build.log" 2>&1 &&
	cp "$W/fakegpu/fakegpu.ko" "$W/mod/" || { tail "$W/build.log"; stop "fakegpu"; }
cp "$ko" "$W/mod/"
# nvidia.ko's own dependency, from the image's package
if [ "$(modinfo -F depends "$ko")" = drm ] && [ ! -e "$W/mod/drm.ko" ]; then
	(K_DIR=$W/image && unpack bookworm-security "linux-image-$K_REL") && cp "$(find "$W/image" -name 'drm.ko*')" "$W/mod/" || stop "drm.ko"
	[ ! -e "$W/mod/drm.ko.xz" ] || xz -d "$W/mod/drm.ko.xz"
	rm -rf "$W/image"
fi
gcc -static -O1 -g -Wall -Wextra -Wshadow -Werror -pthread -I "$SRC/gdrdrv" "$RIG/nvidia/refused.c" -o "$W/refused" || stop "refused.c"
rig_library || { tail "$BUILD/library.log"; stop "the tools"; }
RIG_COMMANDS=$SRC/packaging/modprobe/barcopy.conf
RIG_EXTRA="$W/refused $KERNEL_TESTS/doctor.sh $BUILD/library-$K_ARCH/gdrcopy_doctor $(command -v kmod)"
RIG_EXTRA+=" $BUILD/library-$K_ARCH/libgdrapi.so.2:/usr/lib/libgdrapi.so.2"
GUEST=$RIG/nvidia/guest.sh
make_initrd || stop "initramfs"
: >"$W/console"
rig_boot_group "$kernel" 'memmap=256M$0x40000000' "rig.release=$release" ${RIG_ARGS:-} && pass "$kernel: boot ($(rig_accel))"
finish
