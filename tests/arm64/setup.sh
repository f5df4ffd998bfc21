# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What a cross-build of the tests for arm64 and a run of them under user-mode emulation need.
# Sourced by tests/run.sh.
#
#   arm64_setup       0: ready; 1: it should be here and is not; 2: it cannot be had on this system;
#                     $arm64_why says why
#   arm64_make        words for make: compiler, Check library
#   arm64_emulator    words that start a program for arm64
#
# Compiler and emulator are the system's (scripts/packages); Check for arm64 is unpacked beside the
# kernels' cache, nothing of another architecture is installed.

. rig/kernels.sh

arm64_root=/usr/aarch64-linux-gnu
arm64_make=()
# A CPU without SVE: qemu 7.2 restores the vector registers of a signal's frame from its SVE part only.
arm64_emulator=(qemu-aarch64-static -cpu cortex-a72 -L "$arm64_root")
# With qemu 7.2 a child forked while another thread of the emulator allocates may wait for a lock of GLib's
# for ever: its slice allocator knows no forks (QEMU issue 285). malloc() does.
export G_SLICE=always-malloc

arm64_check_library() {
	local K_DIR=$CACHE/arm64/check K_ARCH=arm64 suite
	suite=$(. /etc/os-release && echo "${ID:-}:${VERSION_CODENAME:-}")
	if [ ! -e "$K_DIR/ready" ]; then
		arm64_why="where Check for arm64 comes from is known for Debian only"
		case $suite in debian:?*) ;; *) return 2 ;; esac
		arm64_why="Check's package for arm64 cannot be fetched"
		rm -rf "$K_DIR"
		with_new_lists unpack "${suite#debian:}" check libsubunit-dev || return 1
		touch "$K_DIR/ready"
	fi
	# One definition each: the main Makefile's own ask this machine's pkg-config.
	local libs="-L$K_DIR/root/usr/lib/aarch64-linux-gnu -Wl,-Bstatic -lcheck -lsubunit -Wl,-Bdynamic -lrt -lm"
	arm64_make=(CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar CPPFLAGS="-idirafter $K_DIR/root/usr/include"
		CHECK_LIBS="$libs" SIM_CHECK_LIBS="$libs")
}

arm64_setup() {
	arm64_why="Check for arm64 comes from Debian's archive, and there is no apt-get"
	command -v apt-get >/dev/null || return 2
	arm64_check_library
}
