#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Five minutes on a real GPU: gdrdrv with SOURCE=dmabuf, which ran only in emulation so far. Builds
# the driver from this machine's kernel headers, loads it, runs the library's tests and tools on it,
# and unloads it. If the GPU driver's nv-p2p.h is found, does the same with both sources, compared.
#
# usage: driver_dmabuf.sh [BUILD DIRECTORY]	as root; the library is built there ("build")
#
# Needs: an NVIDIA GPU with the open kernel modules loaded, kernel headers, a compiler, and that no
# gdrdrv is loaded. Changes nothing on disk but the build directory; the GPU can be in use. Exit 0:
# all passed; 1: failures; 77: cannot run here. Please send the output in any case.
set -u

src=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "${1:-$src/build}" && cd "${1:-$src/build}" && pwd) || exit 1
work=$(mktemp -d) || exit 1
bad=0 loaded=

finish() {
	[ -z "$loaded" ] || rmmod gdrdrv
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

say() {
	echo "# $*"
}

check() { # TEXT COMMAND...
	what=$1
	shift
	if "$@" >"$work/log" 2>&1; then
		echo "ok - $what"
	else
		echo "not ok - $what"
		tail -n 25 "$work/log" | sed 's/^/#   /'
		bad=1
	fi
}

cannot() {
	echo "# cannot run here: $*"
	exit 77
}

[ "$(id -u)" = 0 ] || cannot "not root"
[ -d /sys/module/nvidia ] || cannot "the GPU driver is not loaded"
case $(modinfo -F license nvidia 2>/dev/null) in
NVIDIA) cannot "the GPU driver is of the proprietary flavour, which exports no dma-buf" ;;
esac
[ ! -d /sys/module/gdrdrv ] || cannot "a gdrdrv is loaded: rmmod gdrdrv"
[ -d "/lib/modules/$(uname -r)/build" ] || cannot "no headers of kernel $(uname -r)"

say "kernel $(uname -r) $(uname -m), GPU driver $(cat /sys/module/nvidia/version)"
for dev in /sys/bus/pci/drivers/nvidia/0*; do
	[ -e "$dev/vendor" ] || continue
	say "GPU $(basename "$dev"): device $(cat "$dev/device"), IOMMU $(cat "$dev/iommu_group/type" 2>/dev/null || echo none)"
	sed -n '1,5p' "$dev/resource" | grep -v '^0x0* ' | sed 's/^/#   BAR /'
done

make -s -C "$src" O="$out" lib tools >"$work/log" 2>&1 || { cat "$work/log"; cannot "the library does not build"; }

stat_of() {
	sed -n "s/^$1 //p" /proc/driver/gdrdrv/stats
}

with() { # BACKEND COMMAND...
	GDRCOPY_BACKEND=$1
	export GDRCOPY_BACKEND
	shift
	LD_LIBRARY_PATH=$out "$@"
}

load() { # MODULE
	insmod "$1" && loaded=yes
}

unload() {
	rmmod gdrdrv && loaded=
}

# The library on the loaded driver, through the dma-buf source, and what the driver counted.
over() { # NAME BACKEND
	before=$(stat_of pins_dmabuf)
	check "$1: gdrcopy_sanity" with "$2" "$out/gdrcopy_sanity" -v
	cp "$work/log" "$out/driver_dmabuf-sanity.log"
	check "$1: gdrcopy_copybw, data verified" with "$2" "$out/gdrcopy_copybw" -s 16M
	sed -n 's/^/#   /p' "$work/log" | tail -n 12
	check "$1: gdrcopy_copylat" with "$2" "$out/gdrcopy_copylat"
	check "$1: the pins went by dma-buf" [ "$(stat_of pins_dmabuf)" -gt "${before:-0}" ]
	# Not a failure of a mapping, but of what it is for: it would be uncached.
	check "$1: every mapping is write-combining" [ "$(stat_of memtype_failures)" = 0 ]
	check "$1: nothing is left pinned" [ "$(cat /proc/driver/gdrdrv/nv_get_pages_refcount)" = 0 ]
}

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
dmesg >"$work/dmesg-before"

check "build from kernel headers alone" make -s -C "$src/gdrdrv" O="$work/dmabuf" SOURCE=dmabuf
[ -e "$work/dmabuf/gdrdrv.ko" ] || exit 1
check "it depends on no module" [ -z "$(modinfo -F depends "$work/dmabuf/gdrdrv.ko")" ]
check "it loads" load "$work/dmabuf/gdrdrv.ko"
[ -n "$loaded" ] || { dmesg | tail -5; exit 1; }
chmod 0666 /dev/gdrdrv
over "dma-buf alone" gdrdrv
check "it unloads" unload

if make -s -C "$src/gdrdrv" O="$work/both" SOURCE=both >"$work/log" 2>&1; then
	check "both sources: it loads" load "$work/both/gdrdrv.ko"
	if [ -n "$loaded" ]; then
		over "both sources, dma-buf" gdrdrv-dmabuf
		check "both sources, p2p: gdrcopy_sanity" with gdrdrv "$out/gdrcopy_sanity"
		say "pins, unpins and maps by p2p, then by dma-buf:"
		with gdrdrv "$out/gdrcopy_apiperf" 2>&1 | sed 's/^/#   /'
		with gdrdrv-dmabuf "$out/gdrcopy_apiperf" 2>&1 | sed 's/^/#   /'
		check "both sources: it unloads" unload
	fi
else
	say "no driver with both sources (that needs nv-p2p.h): not compared with p2p"
fi

dmesg >"$work/dmesg-after"
check "the kernel's log has no warning" sh -c \
	"! diff '$work/dmesg-before' '$work/dmesg-after' | grep -E '^>.*(WARNING|BUG|Oops|gdrdrv.*(error|fail)|NVRM.*Xid)'"
exit $bad
