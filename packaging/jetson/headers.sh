#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Collects what a build of gdrdrv for a Jetson needs from L4T's files, and prints the command of that
# build. docs/jetson.md says where L4T's files come from.
#
#   headers.sh ROOT OUT [RELEASE]
#	ROOT	/ on a Jetson; elsewhere a copy of its file system, or a directory with its usr/src
#	OUT	gets nv-p2p.h and the p2p interface's lines of Module.symvers
#	RELEASE	of the kernel, where ROOT has headers of several
#
# Runs nothing that belongs to ROOT. Never tried on a Jetson: the layouts are those that NVIDIA's
# own GPUDirect RDMA example for Jetson (2019 to 2024) looks for.
set -eu

say() {
	echo "headers.sh: $*" >&2
}

[ $# -ge 2 ] || {
	say "usage: headers.sh ROOT OUT [RELEASE]"
	exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
root=${1%/} out=$2 release=${3:-}

# ---- the kernel's headers: a tree that has been configured and has its symbols' versions ----------

kdir='' n=0
if [ -z "$root" ] && [ -e "/lib/modules/$(uname -r)/build/Module.symvers" ]; then
	kdir=/lib/modules/$(uname -r)/build n=1
else
	for f in $(find -L "$root/usr/src" -maxdepth 7 -path '*/include/config/kernel.release' 2>/dev/null | sort); do
		tree=${f%/include/config/kernel.release}
		[ -e "$tree/Module.symvers" ] || continue
		[ -z "$release" ] || [ "$(cat "$f")" = "$release" ] || continue
		kdir=$tree n=$((n + 1))
	done
fi
if [ "$n" != 1 ]; then
	say "$n configured kernel trees with Module.symvers${release:+ of $release} below $root/usr/src;"
	say "one is needed (RELEASE chooses)"
	exit 1
fi

# Their host tools must be for this machine: L4T has a package of headers for each.
machine() { # of an ELF file, as two bytes in hexadecimal; nothing for none
	od -An -tx1 -j18 -N2 "$1" 2>/dev/null | tr -d ' \n'
}
tool=$kdir/scripts/basic/fixdep
if [ -e "$tool" ] && [ "$(machine "$tool")" != "$(machine /proc/self/exe)" ]; then
	say "$kdir has build tools for another machine than this one: take L4T's kernel headers"
	say "for this machine (for a PC their name ends in linux_x86_64), or build on the Jetson"
	exit 1
fi

# ---- Tegra's p2p interface ---------------------------------------------------------------------

header=''
for f in $(find -L "$root/usr/src" "$kdir/" -maxdepth 7 -name nv-p2p.h 2>/dev/null | sort -u); do
	[ "$(/bin/sh "$here/../../gdrdrv/p2p-kind.sh" "${f%/*}")" = tegra ] || continue
	if [ -n "$header" ] && ! cmp -s "$header" "$f"; then
		say "two different nv-p2p.h of Tegra: $header and $f; leave one"
		exit 1
	fi
	header=$f
done
if [ -z "$header" ]; then
	say "no nv-p2p.h of Tegra below $root/usr/src: it is in the sources of L4T's kernel modules"
	say "(nvidia-oot, or the kernel itself before JetPack 6)"
	exit 1
fi
symvers=''
for f in $(find -L "$root/usr/src" -maxdepth 7 -name Module.symvers 2>/dev/null | sort) "$kdir/Module.symvers"; do
	if grep -q '[[:space:]]nvidia_p2p_get_pages[[:space:]]' "$f"; then
		symvers=$f
		break
	fi
done

mkdir -p "$out"
out=$(cd "$out" && pwd)
# The kernel's own header once named a lock's header of the GPU driver, of which it uses nothing.
sed '/#include <nvgpu\//d' "$header" >"$out/nv-p2p.h"
rm -f "$out/Module.symvers"
if [ -n "$symvers" ]; then
	grep '[[:space:]]nvidia_p2p_' "$symvers" >"$out/Module.symvers"
else
	say "no Module.symvers has nvidia_p2p_get_pages: the build will warn, and a kernel with"
	say "CONFIG_MODVERSIONS will say 'no symbol version' at load"
fi
say "nv-p2p.h from $header${symvers:+, symbols from $symvers}"
say "kernel $(cat "$kdir/include/config/kernel.release" 2>/dev/null || uname -r)"
cross=
[ "$(uname -m)" = aarch64 ] || cross=' ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-'
echo "make driver$cross KDIR=$kdir NVIDIA_SRC=$out"
