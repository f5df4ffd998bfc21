#!/bin/sh
# SPDX-License-Identifier: MIT
# The packages that a command of this tree needs. As root on Debian or Ubuntu it installs what is missing,
# in one call of apt-get; otherwise it prints the line to run.
#   deps.sh demo|check|ci|full
# Exit 1 if something is missing that the command cannot do without: for ci and full that is nothing, since
# each test that lacks a program is a skip that names it.
#
# PACKAGE=PROOF: a command, a header of the C compiler, python:MODULE, or a file.
set -u
demo="gcc=cc make=make libc6-dev=stdio.h"
check="$demo g++=g++ check=check.h"
python="python3=python3 python3-numpy=python:numpy"
ci="clang=clang git=git python3-venv=python:ensurepip pkgconf=pkg-config cmake=cmake mandoc=mandoc
	shellcheck=shellcheck gcc-aarch64-linux-gnu=aarch64-linux-gnu-gcc
	libc6-dev-arm64-cross=/usr/aarch64-linux-gnu/include/stdio.h qemu-user-static=qemu-aarch64-static
	qemu-system-x86=qemu-system-x86_64 qemu-system-arm=qemu-system-aarch64 gcc-12=gcc-12 cpio=cpio lz4=lz4
	xz-utils=xz zstd=zstd dwarves=pahole kmod=modinfo busybox-static=busybox mypy=mypy"
full="valgrind=valgrind sparse=sparse patch=patch perl=perl flex=flex bison=bison bc=bc libelf-dev=gelf.h file=file
	mmdebstrap=mmdebstrap debootstrap=debootstrap build-essential=/usr/share/build-essential debhelper=dh
	dh-dkms=dh_dkms dh-python=dh_python3 lintian=lintian rpm=rpmbuild dnf=dnf udev=udevadm fakeroot=fakeroot"

has() {
	case $1 in
	/*) for f in $1; do [ -e "$f" ] && return; done; return 1 ;;
	*.h) echo "#include <$1>" | cc -E - >/dev/null 2>&1 ;;
	python:*) python3 -c "import ${1#*:}" 2>/dev/null || /usr/bin/python3 -c "import ${1#*:}" 2>/dev/null ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

missing() {
	for pair; do
		has "${pair#*=}" || printf '%s ' "${pair%%=*}"
	done
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

# What clang's own package only recommends: its run-time library, with the sanitizers and libFuzzer, of the same version.
# A bare root has no package lists, and they name the version.
clang_runtime() {
	lists='apt-cache depends clang'
	if [ -z "$($lists 2>/dev/null)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt update >/dev/null 2>&1
	fi
	$lists 2>/dev/null | sed -n 's#.*Depends: clang-\([0-9]*\)$#libclang-rt-\1-dev=/usr/lib/llvm-\1/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a#p' |
		head -n 1
}

# shellcheck disable=SC2086 # lists of words
case ${1:-} in
demo) must=$demo may= ;;
check) must=$check may=$python ;;
ci) must="" may="$check $python $ci $(clang_runtime)" ;;
full) must="" may="$check $python $ci $full $(clang_runtime)" ;;
*) echo "usage: deps.sh demo|check|ci|full" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
need=$(missing $must $may)
[ -n "$need" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "deps: installing $need"
	log=$(mktemp)
	# Package lists that are old name files which are gone: once more with new ones, then one by one.
	# shellcheck disable=SC2086
	apt install -y --no-install-recommends $need >"$log" 2>&1 ||
		{ apt update && apt install -y --no-install-recommends $need; } >>"$log" 2>&1 ||
		for package in $need; do apt install -y --no-install-recommends "$package" >>"$log" 2>&1; done
	# shellcheck disable=SC2086
	[ -z "$(missing $must $may)" ] || grep -hE '^(E|W|Err):|No space left' "$log" | tail -n 5 >&2
	rm -f "$log"
fi
# shellcheck disable=SC2086
need=$(missing $must) may=$(missing $may)
[ -z "$need$may" ] || echo "deps: missing: $need$may; run: sudo apt-get install --no-install-recommends $need$may" >&2
[ -z "$need" ]
