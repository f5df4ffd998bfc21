#!/bin/bash
# SPDX-License-Identifier: MIT
# The tiers of tests/kernel/run.sh come to their end, each boot in turn and none with another's
# settings: with builds and boots that only say what they were asked for. Takes no argument.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

check() {
	if [ "$2" = 0 ]; then
		passed=$((passed + 1))
		echo "ok - $1"
	else
		failed=$((failed + 1))
		echo "not ok - $1"
	fi
}

cat >"$tmp/stubs" <<'STUBS'
need() { :; }
arm64_cross() { :; }
kernel_scripts() { K_SCRIPTS=$BUILD; }
kernel_prepare() {
	K_REL=$1 K_ROOT= K_HEADERS=/nowhere K_ARCH=amd64 W=$BUILD/$1
	mkdir -p "$W/mod"
	: >"$W/console"
}
rig_build() {
	W=$BUILD/$K_REL${RIG_VARIANT:+-$RIG_VARIANT}
	mkdir -p "$W/mod"
	: >"$W/console"
	echo "build $K_REL $* gcov=$RIG_GCOV plant=$RIG_PLANT" >>"$BUILD/asked"
}
build_pair() { :; }
dmabuf_build() { :; }
dmabuf_build_one() { :; }
dmabuf_symbols() { :; }
gpl_symbols() { :; }
stripped_size() { echo 1; }
full_static_one() { :; }
rig_library() { RIG_EXTRA=library RIG_COMMANDS=commands; }
coverage() { pass "$1"; }
rig_boot() {
	echo "boot $1: extra=$RIG_EXTRA gcov=$RIG_GCOV variant=$RIG_VARIANT limit=${RIG_LIMIT:-} qemu=${RIG_QEMU:+yes}" >>"$BUILD/asked"
	: >"$W/console"
	pass "$1"
}
STUBS

# tier NAME: its closing line, and what it asked for
tier() {
	rm -rf "$tmp/out"
	O=$tmp/out RIG_STUBS=$tmp/stubs RIG_SEED=1 BARCOPY_CACHE=$tmp/cache \
		bash "$root/tests/kernel/run.sh" "$1" >"$tmp/log" 2>&1
	tail -n 1 "$tmp/log" | grep -qE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
	check "$1 comes to its end" $?
	! grep -E 'unbound variable|command not found|syntax error' "$tmp/log"
	check "$1 knows all that it uses" $?
}

# asked PATTERN: something that was
asked() {
	grep -qE "$1" "$tmp/out/kernel/asked"
	check "asked for: $1" $?
}

tier quick
for boot in '6\.1' '6\.1, IOMMU translating' '6\.12' '6\.12, IOMMU off' '6\.1-arm64'; do
	asked "^boot $boot:"
done
asked '^boot 6\.1: extra=library '
asked '^boot 6\.12: extra= '

tier full
for kernel in 5.10 6.1 6.12 7; do
	for boot in 580 470..570 library proprietary; do
		asked "^boot ${kernel//./\\.} ${boot//./\\.}:"
	done
	for iommu in off pass-through translating; do
		asked "^boot ${kernel//./\\.}, IOMMU $iommu: .* qemu=yes"
	done
done
for kernel in 6.1-arm64 6.12-arm64-16k 6.1-arm64-64k '6.1 arm64, IOMMU off'; do
	asked "^boot ${kernel//./\\.}:"
done
asked '^boot debug: extra= gcov=1 variant= limit=7200 qemu=$'
asked '^boot debug-6.12: extra= gcov= variant= limit=7200 qemu=$'
asked '^boot debug, IOMMU off: extra= gcov=1 '
asked '^boot measure 6\.12: extra= gcov= variant= limit=3600 qemu=$'
for patch in "$root"/tests/kernel/planted/*.patch; do
	name=$(basename "$patch" .patch)
	asked "plant=$name\$|^boot planted $name.*: extra= gcov= variant=planted "
done
! grep -E '^(boot|build) .*(measure|planted).* gcov=1' "$tmp/out/kernel/asked"
check "only the checking kernel's runs count lines" $?

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
