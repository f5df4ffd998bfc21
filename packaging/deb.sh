#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the Debian packages of the last commit into O/deb.
#   DEB_ARCH=arm64      cross-builds the packages that depend on the architecture
#   DEB_VERSION=2.6.0-0 another version than the changelog's (for the upgrade test)
#   DEB_OUT=dir         another place than O/deb
set -eu
cd "$(dirname "$0")/.."
. tests/common/progress.sh
umask 022 # the source package has the files' modes
root=$(pwd)

tarball=$(packaging/dist.sh)
case $tarball in /*) ;; *) tarball=$root/$tarball ;; esac
SOURCE_DATE_EPOCH=$(cat "$(dirname "$tarball")/epoch")
export SOURCE_DATE_EPOCH

out=${DEB_OUT:-$O/deb}
mkdir -p "$out"
out=$(cd "$out" && pwd)
build=$(dpkg --print-architecture)
arch=${DEB_ARCH:-$build}

# Not in O: make would take the unpacked files for results of this build.
work=$(mktemp -d "${TMPDIR:-/var/tmp}/barcopy-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
# The package's build is a make of its own: it takes neither options nor variables of this one.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL V CC AR CFLAGS CPPFLAGS LDFLAGS SANITIZE CROSS_COMPILE
unset O TAR_OPTIONS XZ_OPT XZ_DEFAULTS
cp "$tarball" "$work/barcopy_$VERSION.orig.tar.xz"
tar -xf "$tarball" -C "$work"
cd "$work/barcopy-$VERSION"
cp -R packaging/debian debian
if [ -n "${DEB_VERSION:-}" ]; then
	sed -i "1s/(.*)/($DEB_VERSION)/" debian/changelog
fi

kind=
[ "$arch" = "$build" ] || kind="-B -a$arch -Pcross,nocheck"
# -d for another architecture: the cross compiler has its own libc.
[ "$arch" = "$build" ] || kind="$kind -d"
# The packages are not signed here; the publisher signs them.
# shellcheck disable=SC2086
progress deb "$out/build-$arch.log" dpkg-buildpackage -us -uc -jauto $kind || {
	tail -n 30 "$out/build-$arch.log" >&2
	echo "deb: failed; the whole log: $out/build-$arch.log" >&2
	exit 1
}
cd "$work"
find . -maxdepth 1 -type f -exec mv {} "$out/" \;
find "$out" -maxdepth 1 \( -name "*_$arch.deb" -o -name '*_all.deb' \) | sort
