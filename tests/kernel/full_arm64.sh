# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# arm64, sourced by run.sh: both providers, the desktop's and Tegra's, on kernels with pages of 4, 16
# and 64 KiB.
#
#	full_arm64	the matrix
#	quick_arm64	Tegra's alone, 4 KiB, few rounds: part of the quick tier

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

# As a user cross-builds: `make driver` against the distribution's headers, for the desktop's GPU driver
# and, by packaging/jetson, for a tree laid out as L4T's.
arm64_cross() {
	local l4t=$BUILD/l4t out=$BUILD/cross log=$BUILD/cross.log command
	kernel_prepare 6.1-arm64 || { fail "cross build: no headers"; return; }
	rm -rf "$l4t" "$out"
	mkdir -p "$l4t/usr/src/nvidia/nvidia-oot/include/linux"
	cp "$KERNEL_TESTS/include/tegra/nv-p2p.h" "$l4t/usr/src/nvidia/nvidia-oot/include/linux/"
	printf '0x00000000\tnvidia_p2p_%s\t/nvidia-p2p\tEXPORT_SYMBOL\t\n' get_pages put_pages \
		free_page_table >"$l4t/usr/src/nvidia/nvidia-oot/Module.symvers"
	ln -s "$K_HEADERS" "$l4t/usr/src/linux-headers-tegra"
	command=$("$SRC/packaging/jetson/headers.sh" "$l4t" "$out/p2p" 2>"$log")
	arm64_cross_one "L4T's layout" "$out/tegra" "${command:-false}"
	command="make driver ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- KDIR=$K_HEADERS"
	arm64_cross_one desktop "$out/desktop" "$command NVIDIA_SRC=tests/kernel/include/580 FLAVOR=open"
}

# arm64_cross_one NAME OUT COMMAND
arm64_cross_one() {
	local name=$1 out=$2 command=$3
	# shellcheck disable=SC2086
	if (cd "$SRC" && $command O="$out") >>"$log" 2>&1 &&
	   LC_ALL=C file "$out/gdrdrv/gdrdrv.ko" | grep -q 'ARM aarch64' &&
	   { [ "$name" = desktop ] || ! grep -q 'undefined!' "$log"; }; then
		pass "cross build of the driver, $name"
	else
		tail -20 "$log"
		fail "cross build of the driver, $name"
	fi
}

ARM64_SETUPS=tegra:always,580:persistent,580:callback,580:fallback,470:callback

# libgdrapi, tools and clients, cross-built, on the driver in the guest.
arm64_library() {
	kernel_prepare 6.1-arm64 || { fail "6.1-arm64: its packages cannot be fetched"; return; }
	if rig_build 580 470 tegra && rig_library; then
		pass "6.1-arm64: libgdrapi, tools and clients: build"
		RIG_NO_HOSTCHECK=1 RIG_LIMIT=900 rig_boot "6.1-arm64 library" rig.seed="$seed"
	else
		tail -20 "$BUILD/library.log"
		fail "6.1-arm64: libgdrapi, tools and clients: build"
	fi
	RIG_EXTRA= RIG_COMMANDS=
}

# Without its tools the rest of the quick tier runs all the same.
quick_arm64() {
	local why
	if ! why=$(need kernel/arm64); then
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
	arm64_cross
	arm64_library
	for kernel in ${ARM64_KERNELS:-6.1-arm64 6.12-arm64-16k 6.1-arm64-64k}; do
		arm64_one "$kernel" "580 470 tegra" "$ARM64_SETUPS" rig.rounds=200 rig.random=5 rig.fuzz=10000
	done
	RIG_GENS=tegra planted_arm64
}

# What the Tegra set-up is worth: its faults must be caught.
planted_arm64() {
	local args="rig.setups=tegra:always rig.rounds=20"
	planted_none 6.1-arm64 "$args"
	planted_one tegra-type 6.1-arm64 'not ok .*/tegra-' "$args"
	planted_one tegra-lost-table 6.1-arm64 'not ok .*/tegra-' "$args"
	planted_one tegra-double-free 6.1-arm64 'provider: ERROR' "$args"
}
