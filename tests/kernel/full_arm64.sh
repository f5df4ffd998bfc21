# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# arm64, sourced by run.sh: kernels with pages of 4, 16 and 64 KiB.
#
#	full_arm64	the matrix
#	quick_arm64	4 KiB, callback, few rounds: part of the quick tier

# arm64_one KERNEL GENERATIONS SET-UPS ARGS...
arm64_one() {
	local kernel=$1 gens=$2 setups=$3
	shift 3
	kernel_prepare "$kernel" || { fail "$kernel: its packages cannot be fetched"; return; }
	# shellcheck disable=SC2086
	rig_build $gens || { fail "$kernel: build"; return; }
	pass "$kernel ($K_REL): build"
	RIG_LIMIT=900 rig_boot "$kernel" rig.setups="$setups" rig.seed="$seed" "$@"
}

# As a user cross-builds: `make driver` against the distribution's headers.
arm64_cross() {
	local out=$BUILD/cross log=$BUILD/cross.log
	kernel_prepare 6.1-arm64 || { fail "cross build: no headers"; return; }
	rm -rf "$out"
	if make -C "$SRC" driver ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- KDIR="$K_HEADERS" \
		NVIDIA_SRC=rig/include/580 FLAVOR=open O="$out" >"$log" 2>&1 &&
	   LC_ALL=C file "$out/gdrdrv/gdrdrv.ko" | grep -q 'ARM aarch64'; then
		pass "cross build of the driver"
	else
		tail -20 "$log"
		fail "cross build of the driver"
	fi
}

ARM64_SETUPS=580:persistent,580:callback,580:fallback,570:persistent,470:callback

# libgdrapi, tools and clients, cross-built, on the driver in the guest.
arm64_library() {
	kernel_prepare 6.1-arm64 || { fail "6.1-arm64: its packages cannot be fetched"; return; }
	if rig_build 580 470 && rig_library; then
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
	RIG_NO_HOSTCHECK=1 arm64_one 6.1-arm64 580 580:callback rig.rounds=50 rig.random=1 rig.fuzz=2000
}

full_arm64() {
	local kernel
	arm64_cross
	arm64_library
	for kernel in ${ARM64_KERNELS:-6.1-arm64 6.12-arm64-16k 6.1-arm64-64k}; do
		arm64_one "$kernel" "580 570 470" "$ARM64_SETUPS" rig.rounds=200 rig.random=5 rig.fuzz=10000
	done
}
