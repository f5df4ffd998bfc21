#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The driver in an emulated machine.
#
# usage: run.sh quick|matrix [PATTERN...]|row KERNEL/NAME|modules IMAGE PROVIDER GDRDRV|results|stamp|stamped
#	quick	stock 6.1 and 6.12 with three kinds of pins; on 6.1 also libgdrapi, tools, clients;
#		6.1 on arm64. quick_6.1, quick_6.12, quick_arm64: one of them
#	matrix	the full tier: the rows of the file matrix, or those whose KERNEL/NAME has a
#		PATTERN. Rows that have passed on the current sources are skipped (RERUN=1: none)
#	row	one row: "row 6.1/library" is libgdrapi with its tools and clients
#	modules	boots the kernel IMAGE (x86-64) with these two modules, which somebody else has built
#		with the nv-p2p.h of 580, and runs the basic tests
#	results	a page of all results
#	stamp	a hash of the driver, its rig, its tests and the kernel; $O/kernel/passed has
#		that of the last quick boot of 6.1 that passed
#	stamped	exit code 0: the two are equal; 1: they differ; 2: a boot needs a download too
#
# Prints TAP-like lines; the last is "N passed, N failed, N skipped". Exit code 0 or 1; 77 if a
# package is missing (1 with CI=true). A kernel that cannot be fetched is a failure in the quick
# tier and a skip in the matrix. All processes end with this one, even if it is killed. O= is the
# build directory, BARCOPY_CACHE= the cache of kernels.
set -u -o pipefail
export LC_ALL=C # messages of compilers and of the console are searched
# make's variables O= and CC= have other meanings in the kernel's build.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES

# A child in its own process group does the work. When this process ends, for any reason, a pipe
# closes, and a process outside both groups kills the child's group.
if [ -z "${RIG_CHILD:-}" ]; then
	set -m
	RIG_CHILD=1 "$0" "$@" &
	child=$!
	set +m
	exec 8> >(exec setsid sh -c 'cat >/dev/null; kill -s KILL -- "-$0" 2>/dev/null' $child)
	trap 'exit 143' TERM INT HUP
	wait $child
	exit
fi

KERNEL_TESTS=$(cd "$(dirname "$0")" && pwd)
SRC=$(cd "$KERNEL_TESTS/../.." && pwd)
RIG=$SRC/gdrdrv/rig
BUILD=$(mkdir -p "${O:-$SRC/build}/kernel" && cd "${O:-$SRC/build}/kernel" && pwd) || exit 1
: "${RIG_EXTRA:=}" "${RIG_COMMANDS:=}" "${RIG_KO_CFLAGS:=}" "${RIG_GCOV:=}" "${RIG_NO_HOSTCHECK:=}" "${RIG_VARIANT:=}" "${RIG_PLANT:=}" "${RIG_QEMU:=}" "${RIG_FLAVOR:=open}"

. "$RIG/kernels.sh"
. "$RIG/rig.sh"
. "$KERNEL_TESTS/matrix.sh"

finish() {
	echo "$ok passed, $bad failed, $skipped skipped"
	[ "$bad" -eq 0 ] || exit 1
	exit 0
}

# A skip, or with CI=true a failure.
unavailable() {
	if [ "${CI:-}" = true ]; then
		fail "$* (CI=true: no skipping)"
	else
		skip "$*"
	fi
}

cannot() {
	echo "# the driver's tests cannot run: $*"
	if [ "${CI:-}" = true ]; then
		fail "set-up: $* (CI=true: no skipping)"
		finish
	fi
	skip "$*"
	[ "$bad" -eq 0 ] || finish # earlier failures stay failures
	echo "$ok passed, $bad failed, $skipped skipped"
	exit 77
}

# lacking COMMAND:PACKAGE...: the packages of the commands that are missing
lacking() {
	local one
	for one; do
		command -v "${one%:*}" >/dev/null || printf ' %s' "${one#*:}"
	done
}

NEEDS="gcc-12:gcc-12 cpio:cpio lz4:lz4 xz:xz-utils zstd:zstd pahole:dwarves modinfo:kmod busybox:busybox-static"
NEEDS_AMD64="$NEEDS qemu-system-x86_64:qemu-system-x86"
NEEDS_ARM64="$NEEDS qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu"
NEEDS_FULL="$NEEDS_AMD64 $NEEDS_ARM64 sparse:sparse patch:patch perl:perl flex:flex bison:bison bc:bc file:file
	mmdebstrap:mmdebstrap python3:python3"

# need COMMAND:PACKAGE...
need() {
	local lacks
	lacks=$(lacking "$@")
	[ -z "$lacks" ] || cannot "packages are missing:$lacks"
}

# Kernels come from Debian's archive only.
kernel_or_stop() {
	kernel_prepare "$1" && return
	command -v apt-get >/dev/null || cannot "kernel $1 comes from Debian's archive, which needs apt-get"
	fail "kernel $1: its packages cannot be fetched"
	finish
}

seed=${RIG_SEED:-$(($(date +%s) % 1000000))}

quick() {
	quick_6.1
	quick_6.12
	quick_arm64
}

# The stamp is that of the sources at the start, also if they are edited meanwhile.
quick_6.1() {
	local was
	was=$(stamp)
	quick_amd64 6.1
	[ "$bad" -ne 0 ] || echo "$was" >"$BUILD/passed"
}
quick_6.12() {
	quick_amd64 6.12
	quick_again 6.1:470 6.1:580 6.12:580
}

# quick_again KERNEL:GENERATION...: in one directory, with another nv-p2p.h of the same name, then another kernel
quick_again() {
	local dir=$BUILD/again one K_DIR K_HEADERS K_ROOT K_MAKE
	mkdir -p "$dir/p2p"
	cp "$SRC"/gdrdrv/{*.[ch],*.sh,Kbuild} "$RIG/include/nv-p2p-test.h" "$dir/"
	for one; do
		kernel_or_stop "${one%:*}"
		cp -p "$RIG/include/${one#*:}/nv-p2p.h" "$dir/p2p/"
		make -s -C "$K_HEADERS" M="$dir" GDRDRV_P2P_DIR="$dir/p2p" p2p.o >"$dir/log" 2>&1 &&
			sed -n 's/^#define HAVE_//p' "$dir/gdrdrv_conftest.h" | tr -d '1\n' >"$dir/have-$one" || cat "$dir/log"
	done
	if ! grep -q PERSISTENT "$dir/have-$1" && grep -q PERSISTENT "$dir/have-$2" &&
	   ! grep -q VM_FLAGS_INIT "$dir/have-$2" && grep -q VM_FLAGS_INIT "$dir/have-$3"; then
		pass "built again for another nv-p2p.h and another kernel"
	else
		tail -n 3 "$dir"/have-*
		fail "built again for another nv-p2p.h and another kernel"
	fi
}

quick_amd64() {
	local kernel=$1
	need $NEEDS_AMD64
	kernel_or_stop "$kernel"
	rig_build 580 || { fail "$kernel: build"; return; }
	pass "$kernel ($K_REL): build"
	RIG_EXTRA= RIG_COMMANDS=
	if [ "$kernel" = 6.1 ]; then
		rig_library && pass "libgdrapi, tools and clients for the guest: build" ||
			{ tail -20 "$BUILD/library.log"; fail "libgdrapi for the guest: build"; }
	fi
	# per guest: 200 window rounds, 6 s random, 21,000 fuzz calls, 36 s random walks
	rig_boot "$kernel" rig.setups=580:persistent,580:callback,580:fallback rig.rounds=100 \
		rig.random=2 rig.fuzz=7000 rig.sequences=12 rig.seed=$seed ${RIG_ARGS:-}
	RIG_EXTRA= RIG_COMMANDS=
}

# Missing tools for arm64 do not stop the rest of the quick tier.
quick_arm64() {
	local lacks
	lacks=$(lacking $NEEDS_ARM64)
	[ -z "$lacks" ] || { unavailable "arm64: packages are missing:$lacks"; return; }
	kernel_prepare 6.1-arm64 || { fail "6.1-arm64: its packages cannot be fetched"; return; }
	rig_build 580 || { fail "6.1-arm64: build"; return; }
	RIG_NO_HOSTCHECK=1 rig_boot 6.1-arm64 rig.setups=580:callback rig.seed="$seed" rig.rounds=50 \
		rig.random=1 rig.fuzz=2000
}

modules() {
	local K_DIR=$BUILD/modules K_ARCH=amd64 K_IMAGE
	need $NEEDS_AMD64
	W=$K_DIR K_IMAGE=$W/vmlinux
	rm -rf "$W" && mkdir -p "$W/mod"
	extract_vmlinux "$1" "$K_IMAGE" && cp "$2" "$W/mod/provider-580.ko" && cp "$3" "$W/mod/gdrdrv-580.ko" &&
		guest_build || { fail "modules $*"; return; }
	RIG_NO_HOSTCHECK=1 rig_boot "${1##*/}" rig.setups=580:persistent rig.only=node,data,map-wc,free-one
}

stamp() {
	{ sources; release_of 6.1; } | sha256sum | cut -c1-16
}

stamped() {
	[ "$(stamp)" != "$(cat "$BUILD/passed" 2>/dev/null)" ] || exit 0
	[ "$(release_of 6.1)" != none ] && [ -z "$(lacking $NEEDS_AMD64)" ] && exit 1
	exit 2
}

one_row() {
	local row
	row=$(matrix_rows | grep -F -- "$1|")
	[ -n "$row" ] || { echo "run.sh: no row $1: see gdrdrv/tests/matrix" >&2; exit 2; }
	mkdir -p "$ROWS"
	IFS='|' read -ra fields <<<"$row|"
	row_run "${fields[@]}"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
stamp | stamped | results) "$command"; exit ;;
esac
say "seed $seed (RIG_SEED= repeats it)"
case $command in
row) need $NEEDS_AMD64; one_row "${1:-}" ;;
modules) modules "$@" ;;
full | matrix) need $NEEDS_FULL; matrix "$@" ;;
quick | quick_6.1 | quick_6.12 | quick_arm64) "$command" ;;
*) sed -n 's/^# usage:/usage:/p' "$0" >&2; exit 2 ;;
esac
finish
