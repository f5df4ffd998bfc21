#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Cross-builds test programs for arm64 and runs them under user-mode emulation, on the stand-ins.
#   run.sh RESULTS BUILD_DIR PROGRAM...       each is a test of tests/job: arm64/PROGRAM
# Compiler and emulator are the system's; Check for arm64 comes from Debian's archive and is
# unpacked beside the kernels' cache: nothing of another architecture is installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
results=$1 out=$2
shift 2
. gdrdrv/rig/kernels.sh

root=/usr/aarch64-linux-gnu
# No SVE: with it, qemu 7.2 restores a signal frame's vector registers from the SVE part only.
emulator=(qemu-aarch64-static -cpu cortex-a72 -L "$root")
# With qemu 7.2, a child that was forked while another thread of the emulator allocates can wait for
# ever for a lock of GLib's slice allocator (QEMU issue 285). malloc() handles forks.
export G_SLICE=always-malloc

check_library() {
	local suite
	[ ! -e "$K_DIR/ready" ] || return 0
	suite=$(. /etc/os-release && echo "${ID:-}:${VERSION_CODENAME:-}")
	case $suite in debian:?*) ;; *) echo "Check for arm64 comes from Debian's archive"; return 77 ;; esac
	rm -rf "$K_DIR"
	with_new_lists unpack "${suite#debian:}" check libsubunit-dev || return 1
	touch "$K_DIR/ready"
}

build() {
	export K_DIR=$CACHE/arm64/check K_ARCH=arm64
	check_library || return
	local libs="-L$K_DIR/root/usr/lib/aarch64-linux-gnu -Wl,-Bstatic -lcheck -lsubunit -Wl,-Bdynamic -lrt -lm"
	make -k V=1 O="$out" CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar WERROR=-Werror \
		CPPFLAGS="-idirafter $K_DIR/root/usr/include" CHECK_LIBS="$libs" sim lib "${@/#/$out/tests/}"
}

if [ "${1:-}" = --build ]; then
	shift
	build "$@"
	exit
fi
tests/job -l 3600 -n "aarch64-linux-gnu-gcc qemu-aarch64-static" "$results" arm64/build \
	"$0" "$results" "$out" --build "$@"
for program; do
	[ -x "$out/tests/$program" ] || continue # what arm64/build says
	tests/job -l 1200 "$results" "arm64/$program" env LD_LIBRARY_PATH="$out/sim" GDRSIM_DIR="$out/sim" \
		GDRSIM_ARENA_GIB=16 GDRCOPY_TEST_EMULATOR="${emulator[*]}" GDRCOPY_TEST_QUICK=1 \
		"${emulator[@]}" "$out/tests/$program"
done
