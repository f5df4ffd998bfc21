#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The wheels with the library inside (`make wheel`): the promises of the tag, an installation into
# an empty environment without a network, and an old glibc, on this architecture and emulated on the
# other.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
. gdrdrv/rig/kernels.sh

sim=$(realpath "${2:?directory of the stand-ins}")
out=$(realpath "$out")
here=$(uname -m)
arches=$here
for a in x86_64 aarch64; do
	[ "$a" = "$here" ] || ! command -v "$a-linux-gnu-gcc" >/dev/null || arches+=" $a"
done
case $arches in
*\ *) ;;
*) skip "the wheel of another architecture" "no cross compiler here" ;;
esac

make -s O="$out" WHEEL_ARCH="$arches" wheel >"$tmp/names" 2>"$tmp/log" || cat "$tmp/log"
[ "$(wc -l <"$tmp/names")" = "$(wc -w <<<"$arches")" ]
ok "make wheel: $arches"

# Reads the library with readelf, while wheel.sh uses objdump. The allowed libraries are those of
# the manylinux policy that this one needs.
for arch in $arches; do
	whl=$(grep "_$arch.whl" "$tmp/names")
	site=$tmp/site-$arch
	python3 -m zipfile -e "$whl" "$site"
	grep -q '^Classifier: Typing :: Typed$' "$site"/barcopy-*.dist-info/METADATA &&
		grep -qx 'Keywords: GPU,CUDA,GDRCopy,BAR1,low latency' "$site"/barcopy-*.dist-info/METADATA &&
		grep -qx 'License-File: LICENSE' "$site"/barcopy-*.dist-info/METADATA
	ok "$arch: metadata"
	lib=$site/barcopy/libgdrapi.so.2
	highest=$(readelf -VW "$lib" | sed -n 's/.*Name: GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
	tag=$(sed -n "s/^Tag: py3-none-manylinux_2_\([0-9]*\)_$arch$/\1/p" "$site"/barcopy-*.dist-info/WHEEL)
	echo "# $arch: symbols of glibc up to 2.$highest, tag 2.$tag"
	[ -n "$tag" ] && [ "$tag" -ge 17 ] && [ "${highest:-99}" -le "$tag" ]
	ok "$arch: the tag is no older than the symbols"
	[ "$tag" = 17 ] && grep -qx "Tag: py3-none-manylinux2014_$arch" "$site"/barcopy-*.dist-info/WHEEL
	ok "$arch: manylinux2014"
	grep -qx 'Root-Is-Purelib: false' "$site"/barcopy-*.dist-info/WHEEL &&
		[[ ${whl##*/} == barcopy-*-py3-none-*"$(sed -n 's/^Tag: py3-none-//p' "$site"/barcopy-*.dist-info/WHEEL |
			paste -sd.)".whl ]]
	ok "$arch: the name is the tags"
	! readelf -dW "$lib" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
		grep -vE '^(libc\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux-(x86-64\.so\.2|aarch64\.so\.1))$' &&
		! readelf -dW "$lib" | grep -E 'RPATH|RUNPATH'
	ok "$arch: no other library, no path"
	readelf -hW "$lib" | grep -q "Machine:.*$([ "$arch" = aarch64 ] && echo AArch64 || echo X86-64)"
	ok "$arch: a library of that machine"
	diff <(cd "$site" && find . -type f | sed 's|^\./||' | LC_ALL=C sort) <({
		(cd python && find barcopy -type f ! -name '*.pyc')
		echo barcopy/libgdrapi.so.2
		echo barcopy/_fast.abi3.so
		cd "$site" && for f in LICENSE METADATA RECORD WHEEL; do echo barcopy-*.dist-info/$f; done
	} | LC_ALL=C sort)
	ok "$arch: files"
done

# Opens, allocates and copies, on the stand-ins; and it is the library of the wheel.
cat >"$tmp/use.py" <<'PY'
import ctypes
import sys
import barcopy
assert barcopy.library_version() == (2, 6)
with open("/proc/self/maps") as maps:
    libraries = {line.split()[-1] for line in maps if "libgdrapi" in line}
assert libraries == {barcopy.__file__.replace("__init__.py", "libgdrapi.so.2")}, libraries
if sys.argv[1:] == ["sim"]:
    from barcopy import _fast, mapping
    assert mapping._fast is _fast.copy
    with barcopy.open() as gdr, gdr.alloc(4096) as mem:
        mem.write(b"hello")
        assert mem.read(5) == b"hello" and mem.backend == "rm"
    # Memory of cuMemAlloc: libcuda's own ioctls show its objects.
    cuda = ctypes.CDLL("libcuda.so.1")
    context, ptr = ctypes.c_void_p(), ctypes.c_ulong()
    assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not cuda.cuCtxSetCurrent(context) and not cuda.cuMemAlloc_v2(ctypes.byref(ptr), ctypes.c_size_t(65536))
    with barcopy.open() as gdr, gdr.map(ptr.value, 65536) as mem:
        mem.write(b"hello")
        assert mem.read(5) == b"hello" and mem.backend == "rm"
PY
whl=$(grep "_$here.whl" "$tmp/names")
if python3 -m venv "$tmp/venv" >/dev/null 2>&1 && "$tmp/venv/bin/python" -m pip --version >/dev/null 2>&1; then
	"$tmp/venv/bin/python" -m pip install -q --no-index --disable-pip-version-check "$whl" &&
		(cd / && LD_LIBRARY_PATH=$sim LD_PRELOAD=$sim/libnvidia_node.so "$tmp/venv/bin/python" "$tmp/use.py" sim) &&
		[ "$("$tmp/venv/bin/python" -c 'import importlib.metadata as m; print(m.version("barcopy"))')" = \
			"$(sed -n 's/^VERSION := //p' Makefile)" ]
	ok "pip installs it into an empty environment without a network, and it works on the stand-ins"
	"$tmp/venv/bin/python" -m pip uninstall -q -y barcopy &&
		! find "$tmp/venv" -path '*barcopy*' ! -name '*.pyc' | grep .
	ok "pip removes it"
else
	skip "pip installs it into an empty environment" "no venv and pip here"
fi

# Python of Debian 11 (glibc 2.31, before libdl and libpthread moved into libc), unpacked, for each
# architecture; the other one by user-mode emulation.
old_python() { # DEBIAN_ARCH: prints the root
	# shellcheck disable=SC2034 # unpack reads it
	local K_ARCH=$1 K_DIR=$CACHE/python-$1-bullseye
	if [ ! -e "$K_DIR/ready" ]; then
		rm -rf "$K_DIR"
		with_new_lists unpack bullseye libc6 python3.9-minimal libpython3.9-minimal libpython3.9-stdlib \
			libexpat1 zlib1g libffi7 libgcc-s1 >&2 || return 1
		touch "$K_DIR/ready"
	fi
	echo "$K_DIR/root"
}
for arch in $arches; do
	name="$arch: on Debian 11's Python and glibc"
	case $arch in
	x86_64) deb=amd64 triplet=x86_64-linux-gnu loader=lib/x86_64-linux-gnu/ld-2.31.so ;;
	*) deb=arm64 triplet=aarch64-linux-gnu loader=lib/aarch64-linux-gnu/ld-2.31.so ;;
	esac
	emulator=()
	if [ "$arch" != "$here" ]; then
		if ! command -v "qemu-$arch-static" >/dev/null; then
			skip "$name" "no qemu-$arch-static here"
			continue
		fi
		emulator=("qemu-$arch-static")
	fi
	if ! command -v apt-get >/dev/null || ! root=$(old_python $deb 2>"$tmp/log"); then
		skip "$name" "Debian 11's packages cannot be fetched: $(tail -n 1 "$tmp/log")"
		continue
	fi
	(cd / && PYTHONHOME=$root/usr PYTHONPATH=$tmp/site-$arch PYTHONDONTWRITEBYTECODE=1 timeout 120 "${emulator[@]}" \
		"$root/$loader" --library-path "$root/lib/$triplet:$root/usr/lib/$triplet" \
		"$root/usr/bin/python3.9" "$tmp/use.py")
	ok "$name"
done
finish
