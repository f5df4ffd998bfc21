#!/bin/sh
# SPDX-License-Identifier: MIT
# Python wheels with the library inside, into O/wheel; prints their names.
#   WHEEL_ARCH="x86_64 aarch64"   which; another one than this machine's is cross-built by
#                                 ARCH-linux-gnu-gcc; unset: both, as far as there is a compiler
# The tag is manylinux_2_N, where 2.N is the highest version of a glibc symbol that the library and
# the extension (python/fast.c) need, at least 2.17.
set -eu
cd "$(dirname "$0")/.."
. tests/common/progress.sh

python=${PYTHON:-python3}
here=$(uname -m)
out=$O/wheel
mkdir -p "$out"
# Each wheel is built by a make of its own, without the options and variables of this one.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL V CC AR CFLAGS CPPFLAGS LDFLAGS SANITIZE CROSS_COMPILE

# Earlier versions of glibc need libdl and libpthread, which this glibc has in libc. The stub
# libraries are named because -ldl would find an empty archive.
older="-Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--as-needed"

for arch in ${WHEEL_ARCH:-x86_64 aarch64}; do
	cross=
	if [ "$arch" != "$here" ]; then
		cross=$arch-linux-gnu-
		if ! command -v "${cross}gcc" >/dev/null; then
			echo "wheel: none for $arch: no ${cross}gcc here" >&2
			[ -z "${WHEEL_ARCH:-}" ] || exit 77 # asked for by name
			continue
		fi
	fi
	build=$O/wheel-$arch
	mkdir -p "$build"
	progress "wheel for $arch" "$build/log" make V=1 O="$build" ${cross:+CROSS_COMPILE=$cross} \
		CFLAGS="-O2 -ffile-prefix-map=$PWD=." \
		CPPFLAGS="-include packaging/wheel/glibc.h" LDFLAGS="$older" \
		"$build/$LIB_REAL" || { tail -n 20 "$build/log" >&2; exit 1; }
	lib=$build/$LIB_REAL
	"${cross}strip" -o "$build/stripped.so" "$lib"
	"${cross}gcc" -std=c11 -O2 -Wall -Wextra -fvisibility=hidden -ffile-prefix-map="$PWD=." -shared -fPIC -s \
		-o "$build/fast.so" python/fast.c

	minor=$("${cross}objdump" -T "$build/stripped.so" "$build/fast.so" | sed -n 's/.*GLIBC_2\.\([0-9]*\).*/\1/p' |
		sort -n | tail -n 1)
	[ "${minor:?no symbol of glibc}" -ge 17 ] || minor=17
	tag=manylinux_2_${minor}_$arch
	[ "$minor" != 17 ] || tag=$tag.manylinux2014_$arch
	rm -f "$out"/barcopy-*"_$arch.whl"
	echo "$out/$("$python" python/backend.py wheel "$out" "$build/stripped.so" "$build/fast.so" "$tag")"
done
