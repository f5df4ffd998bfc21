# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# GDRCopy's library and tools, built from unchanged source, in the guest. Sourced by run.sh.
#
# gdrcopy SOURCE	SOURCE: GDRCopy's source tree

gdrcopy_build() {
	local out=$BUILD/gdrcopy name
	rm -rf "$out"
	mkdir -p "$out"
	cp -r "$1/." "$out/source"
	{
		make -C "$out/source/src" &&
			libcuda_build "$out" gcc -DFOR_GDRCOPY && ln -s libcuda.so.1 "$out/libcuda.so" &&
			make -C "$out/source/tests" CUDA=/none CUDA_INC="-I$RIG/guest/libcuda/include -I$SRC/src" \
				LDFLAGS="-L$out -L../src" gdrcopy_sanity gdrcopy_copybw gdrcopy_copylat \
				gdrcopy_apiperf || return 1
	} >"$out/log" 2>&1
	RIG_COMMANDS=$KERNEL_TESTS/commands-gdrcopy
	RIG_EXTRA="$out/libcuda.so.1:/usr/lib/libcuda.so.1 $out/source/src/libgdrapi.so.2:/usr/lib/libgdrapi.so.2"
	for name in sanity copybw copylat apiperf; do
		RIG_EXTRA="$RIG_EXTRA $out/source/tests/gdrcopy_$name"
	done
}

gdrcopy() {
	local source
	source=$(realpath "${1:?the source tree of GDRCopy}") || return
	need $NEEDS_AMD64
	kernel_or_stop 6.1
	if ! rig_build 580 || ! gdrcopy_build "$source"; then
		tail -20 "$BUILD/gdrcopy/log"
		fail "GDRCopy for the guest: build"
		return
	fi
	pass "GDRCopy $(sed -n 's/^#define GDR_API_M[AI][JN]OR_VERSION *//p' "$source/include/gdrapi.h" | paste -sd.) for the guest: build"
	RIG_NO_HOSTCHECK=1 RIG_LIMIT=1200 rig_boot "6.1 GDRCopy" rig.library=persistent,callback rig.seed="$seed"
}
