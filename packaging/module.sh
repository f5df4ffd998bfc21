#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the module for given kernels and one GPU driver, and makes the Debian package
# barcopy-module, which replaces barcopy-dkms.
#   KDIR="dir..." NVIDIA_SRC=dir [FLAVOR=open|proprietary] [SIGN="program..."] packaging/module.sh
# SIGN is run with the path of each gdrdrv.ko, to sign it.
set -eu
cd "$(dirname "$0")/.."

: "${KDIR:?is not set: set it to the kernels build directories, /lib/modules/VERSION/build ...}"
NVIDIA_SRC=$(realpath "${NVIDIA_SRC:?names the directory with nv-p2p.h}")
work=$(mktemp -d "${TMPDIR:-/var/tmp}/barcopy-module.XXXXXX")
trap 'rm -rf "$work"' EXIT
out=$O/deb
mkdir -p "$out"
epoch=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y LICENSE)
pkg=$work/pkg
unset MAKEFLAGS MFLAGS MAKEOVERRIDES

make -s install-boot prefix=/usr DESTDIR="$work/all"
mkdir -p "$pkg/DEBIAN" "$pkg/usr/share/doc/barcopy-module" "$pkg/usr/share/man/man4"
for d in modprobe.d udev dracut; do
	mkdir -p "$pkg/usr/lib"
	cp -R "$work/all/usr/lib/$d" "$pkg/usr/lib/"
done
mkdir -p "$pkg/usr/lib/systemd/system"
ln -s /dev/null "$pkg/usr/lib/systemd/system/gdrdrv.service"
gzip -9n <packaging/man/gdrdrv.4 >"$pkg/usr/share/man/man4/gdrdrv.4.gz"
cp packaging/debian/copyright "$pkg/usr/share/doc/barcopy-module/"

kernels=
for k in $KDIR; do
	rm -rf "$work/build"
	make -s -C gdrdrv O="$work/build" KDIR="$k" NVIDIA_SRC="$NVIDIA_SRC" FLAVOR="${FLAVOR:-}"
	ko=$work/build/gdrdrv.ko
	strip -g "$ko"
	# shellcheck disable=SC2086
	[ -z "${SIGN:-}" ] || $SIGN "$ko"
	name=$(modinfo -F vermagic "$ko" | cut -d' ' -f1)
	mkdir -p "$pkg/lib/modules/$name/updates"
	install -m 644 "$ko" "$pkg/lib/modules/$name/updates/"
	kernels="$kernels $name"
done

version=$(sed -n '1s/.*(\(.*\)).*/\1/p' packaging/debian/changelog)
cat >"$pkg/DEBIAN/control" <<C
Package: barcopy-module
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $(sed -n 's/^Maintainer: //p' packaging/debian/control)
Section: kernel
Priority: optional
Depends: kmod
Provides: gdrdrv-dkms (= $version)
Conflicts: barcopy-dkms, gdrdrv-dkms
Replaces: barcopy-dkms, gdrdrv-dkms
Description: gdrcopy-compatible CPU access to GPU memory - kernel module
 The gdrdrv module, built for one GPU driver and these kernels:
$(for k in $kernels; do echo "  $k"; done)
 .
 It has been tested in emulation only. An installed gdrdrv 2.x of NVIDIA serves
 libgdrapi as well: keep it until you have tried this one.
C
cat >"$pkg/DEBIAN/postinst" <<C
#!/bin/sh
set -e
$(cat packaging/debian/leftovers.sh)
for k in$kernels; do
	[ ! -d "/lib/modules/\$k" ] || depmod "\$k"
done
[ ! -d /sys/module/nvidia ] || modprobe -q gdrdrv || echo "barcopy-module: gdrdrv was not loaded; see dmesg" >&2
C
cat >"$pkg/DEBIAN/prerm" <<C
#!/bin/sh
set -e
$(sed -n '/^say()/,/^}/p; /^unload()/,/^}/p' packaging/dkms/gpu-driver.sh)
unload || true
C
cat >"$pkg/DEBIAN/postrm" <<C
#!/bin/sh
set -e
for k in$kernels; do
	[ ! -d "/lib/modules/\$k" ] || depmod "\$k"
done
C
chmod 755 "$pkg"/DEBIAN/p*
find "$pkg" -newermt "@$epoch" -exec touch -hd "@$epoch" {} +
SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group -b "$pkg" "$out"
