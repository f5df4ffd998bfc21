# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# arm64, sourced by run.sh: both providers, the desktop's and Tegra's, on kernels with pages of 4, 16
# and 64 KiB.
#
#	full_arm64	the matrix
#	quick_arm64	Tegra's alone, 4 KiB, few rounds: part of the quick tier

need_arm64() {
	need_tools qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu "$@"
	[ -e /usr/aarch64-linux-gnu/lib/libc.a ] || apt-get install -qq -y libc6-dev-arm64-cross >/dev/null
}

# arm64_one KERNEL GENERATIONS SET-UPS ARGS...
arm64_one() {
	local kernel=$1 gens=$2 setups=$3
	shift 3
	kernel_prepare "$kernel" || { fail "$kernel: its packages cannot be fetched"; return; }
	# shellcheck disable=SC2086
	rig_build $gens || { fail "$kernel: build"; return; }
	pass "$kernel ($K_REL): build, desktop and Tegra"
	RIG_LIMIT=900 rig_boot "$kernel" rig.setups="$setups" rig.seed="$seed" "$@"
}

# As a user cross-builds: `make driver`, for either GPU driver, against the distribution's headers.
arm64_cross() {
	local kind out log
	kernel_prepare 6.1-arm64 || { fail "cross build: no headers"; return; }
	for kind in tegra 580; do
		out=$BUILD/cross-$kind log=$BUILD/cross-$kind.log
		rm -rf "$out"
		if make -C "$SRC" O="$out" driver ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- \
			KDIR="$K_HEADERS" NVIDIA_SRC="$KERNEL_TESTS/include/$kind" FLAVOR=open >"$log" 2>&1 &&
		   LC_ALL=C file "$out/gdrdrv/gdrdrv.ko" | grep -q 'ARM aarch64'; then
			pass "cross build of the driver, $kind"
		else
			tail -20 "$log"
			fail "cross build of the driver, $kind"
		fi
	done
}

ARM64_SETUPS=tegra:always,580:persistent,580:callback,580:fallback,470:callback

# Without its tools the rest of the quick tier runs all the same.
quick_arm64() {
	local why
	if ! why=$(need_arm64); then
		why=$(grep -m1 'cannot run' <<<"$why")
		if [ "${CI:-}" = true ]; then
			fail "arm64: ${why#*: } (CI=true: no skipping)"
		else
			skip "arm64: ${why#*: }"
		fi
		return
	fi
	RIG_NO_HOSTCHECK=1 arm64_one 6.1-arm64 tegra tegra:always rig.rounds=100
}

full_arm64() {
	local kernel
	need_arm64 file:file
	arm64_cross
	for kernel in ${ARM64_KERNELS:-6.1-arm64 6.12-arm64-16k 6.1-arm64-64k}; do
		[ "$kernel" != 6.1-arm64-64k ] || need_tools flex:flex bison:bison bc:bc
		arm64_one "$kernel" "580 470 tegra" "$ARM64_SETUPS" rig.rounds=200 rig.random=5 rig.fuzz=10000
	done
	RIG_GENS=tegra planted_arm64
}

# What the Tegra set-up is worth: its faults must be caught.
planted_arm64() {
	local args="rig.setups=tegra:always rig.rounds=20"
	planted_none 6.1-arm64 "$args"
	planted_one tegra-type 6.1-arm64 "$args"
	planted_one tegra-lost-table 6.1-arm64 "$args"
	planted_one tegra-double-free 6.1-arm64 "$args"
}
