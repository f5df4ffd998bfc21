# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Builds modules and guest for a prepared kernel (kernels.sh), boots them, evaluates the run.
#
# rig_build GEN...	builds both modules for these generations of nv-p2p.h
# rig_boot NAME ARGS...	boots with these kernel arguments, once per group of rig.setups= and
#			rig.library= (rig_groups), and adds to the totals
# rig_library		builds libgdrapi, tools and clients, and sets RIG_EXTRA and RIG_COMMANDS
#
# Environment: RIG_FLAVOR (open, proprietary), RIG_PLANT (a patch of planted/ for the driver),
# RIG_OTHER (another libgdrapi.so.2, which rig_library compares with this one instead of all else),
# RIG_EXTRA (files for the initramfs, with their system libraries: "file" or "file:path in the
# guest"), RIG_COMMANDS (a file of commands for the guest), RIG_KO_CFLAGS (extra flags of the
# driver's build), RIG_GCOV=1, RIG_BAR (default 64M), RIG_MEM, RIG_LIMIT (s), RIG_QEMU (more
# arguments of qemu), RIG_ACCEL (kvm, tcg; otherwise a trial decides, rig_accel).

ok=0 bad=0 skipped=0

pass() {
	ok=$((ok + 1))
	echo "ok $((ok + bad + skipped)) - $*"
}

fail() {
	bad=$((bad + 1))
	echo "not ok $((ok + bad + skipped)) - $*"
}

skip() {
	skipped=$((skipped + 1))
	echo "ok $((ok + bad + skipped)) - not run # SKIP $*"
}

# Builds the module of the sources in $1 with make arguments $2..., in K_ROOT if it is set.
kbuild() {
	local dir=$1
	shift
	if [ -n "$K_ROOT" ]; then
		local name=$(basename "$dir")-$$ inside
		inside=$K_ROOT/build/$name # another run may build there too
		rm -rf "$inside"
		mkdir -p "$K_ROOT/build"
		cp -rL "$dir" "$inside"
		unshare -m sh -c 'mount -t proc proc "$1/proc" && shift && exec chroot "$@"' - "$K_ROOT" \
			"$K_ROOT" make -s -j2 -C "$K_HEADERS" M="/build/$name" "$@" modules || return 1
		cp "$inside"/*.ko "$inside"/Module.symvers "$dir/"
		[ ! -e "$inside/gdrdrv_conftest.h" ] || cp "$inside"/*.o "$dir/"
		rm -rf "$inside"
	else
		make -s -j2 -C "$K_HEADERS" M="$dir" "${K_MAKE[@]}" "$@" modules
	fi
}

# Builds the provider of one generation into $1, with W=1; a warning is an error, here and below. The
# open flavour exports its functions for GPL modules alone from 535.161 on (nv-p2p.c of the tags).
build_provider() {
	local out=$1 gen=$2 p2p=$1/p2p-$2 prov=$1/provider-$2 log=$1/build-provider-$2.log export=EXPORT_SYMBOL
	[ "$RIG_FLAVOR" != open ] || [ "$gen" -lt 535 ] || export=EXPORT_SYMBOL_GPL
	[ ! -e "$out/mod/provider-$gen.ko" ] || return 0
	mkdir -p "$p2p" "$prov"
	sed 's#\.\./nv-p2p-test#nv-p2p-test#' "$RIG/include/$gen/nv-p2p.h" >"$p2p/nv-p2p.h"
	cp "$RIG/include/nv-p2p-test.h" "$p2p/"
	cp "$RIG"/provider/*.[ch] "$RIG/provider/Kbuild" "$p2p"/*.h "$prov/"
	kbuild "$prov" P2P_DIR='$(src)' P2P_EXPORT=$export W=1 >"$log" 2>&1 || { cat "$log"; return 1; }
	! grep -i warning: "$log" || return 1
	cp "$prov/provider.ko" "$out/mod/provider-$gen.ko"
}

# build_driver OUT GEN NAME MAKE_ARGUMENTS...: builds OUT/mod/gdrdrv-NAME.ko with the header and the
# symbols of generation GEN
build_driver() {
	local out=$1 gen=$2 name=$3 drv=$1/gdrdrv-$3 log=$1/build-$3.log
	shift 3
	mkdir -p "$drv"
	cp "$SRC"/gdrdrv/*.[ch] "$SRC/gdrdrv/Kbuild" "$SRC"/gdrdrv/*.sh "$drv/"
	build_provider "$out" "$gen" || return 1
	cp "$out/p2p-$gen"/*.h "$drv/"
	cp "$out/provider-$gen/Module.symvers" "$drv/provider.symvers"
	if [ -n "$RIG_PLANT" ]; then
		patch -s -d "$drv" -p2 <"$KERNEL_TESTS/planted/$RIG_PLANT.patch" || return 1
	fi
	kbuild "$drv" GDRDRV_P2P_DIR='$(src)' KBUILD_EXTRA_SYMBOLS='$(M)/provider.symvers' GDRDRV_CFLAGS="$RIG_KO_CFLAGS" ${RIG_GCOV:+GDRDRV_GCOV=1} W=1 "$@" >"$log" 2>&1 ||
		{ cat "$log"; return 1; }
	! grep -iE 'warning:|error:' "$log" || return 1
	cp "$drv/gdrdrv.ko" "$out/mod/gdrdrv-$name.ko"
}

# build_header OUT GEN NAME: builds OUT/mod/header-NAME.ko as a user does who has only the nv-p2p.h of
# generation GEN: by gdrdrv/Makefile and without the provider's Module.symvers
build_header() {
	local out=$1 gen=$2 name=$3 log=$1/build-header-$3.log
	[ -z "$K_ROOT" ] || return 0
	make -s -C "$SRC/gdrdrv" O="$out/header-$name" KDIR="$K_HEADERS" NVIDIA_SRC="$out/p2p-$gen" FLAVOR="$RIG_FLAVOR" \
		"${K_MAKE[@]}" W=1 >"$log" 2>&1 || { cat "$log"; return 1; }
	! grep -iE 'warning:|error:' "$log" || return 1
	cp "$out/header-$name/gdrdrv.ko" "$out/mod/header-$name.ko"
}

# GPL-only symbols that a module uses.
gpl_symbols() {
	local symvers=$K_ROOT$K_HEADERS/Module.symvers
	nm -u "$1" | awk '{ print $2 }' | sort -u >"$W/undefined"
	awk 'NR == FNR { want[$1] = 1; next } ($2 in want) && $4 ~ /GPL/ { print $2 }' "$W/undefined" "$symvers"
}

# Concurrent runs build once, here and below.
guest_build() {
	GUEST=$BUILD/guest-init-$K_ARCH
	(flock 9 && guest_build_one) 9>"$BUILD/guest.lock"
}

guest_build_one() {
	local cc=${CC:-gcc}
	[ "$K_ARCH" = amd64 ] || cc=aarch64-linux-gnu-gcc
	[ -e "$GUEST" ] && [ -z "$(find "$RIG/guest" "$KERNEL_TESTS" "$RIG/provider" \
		"$SRC/gdrdrv/gdrdrv_uapi.h" -newer "$GUEST" -type f)" ] && return 0
	$cc -static -O1 -g -Wall -Wextra -Wshadow -Wmissing-prototypes -Werror -pthread \
		-I "$SRC/gdrdrv" -I "$RIG/provider" -I "$RIG/guest" "$RIG"/guest/*.c "$KERNEL_TESTS"/*.c -o "$GUEST"
}

# The system's libraries that a program needs, for the initramfs; not those of the project.
libraries_of() {
	[ "$K_ARCH" = amd64 ] || { cross_libraries_of "$1"; return; }
	ldd "$1" 2>/dev/null |
		awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' |
		grep -v -e libgdrapi -e libcuda
}

# The same without running programs of the other architecture.
cross_libraries_of() {
	local dir=/usr/aarch64-linux-gnu/lib name
	echo "$dir/ld-linux-aarch64.so.1"
	for name in $(aarch64-linux-gnu-readelf -d "$1" "$dir/libc.so.6" 2>/dev/null |
			sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
		[ ! -e "$dir/$name" ] || echo "$dir/$name"
	done
}

# A static busybox for the guest.
busybox_of() {
	local K_DIR=$CACHE/arm64/busybox
	[ "$K_ARCH" = arm64 ] || { command -v busybox; return; }
	if [ ! -e "$K_DIR/ready" ]; then
		rm -rf "$K_DIR"
		unpack bookworm-security busybox-static >&2 || return 1
		touch "$K_DIR/ready"
	fi
	echo "$K_DIR/root/bin/busybox"
}

# The clients of tests/contract that run in the guest: all of them.
CLIENTS="ucx nccl nvshmem libfabric aws_ofi_nccl mscclpp trtllm nixl doca dpdk bpftime"

# libcuda_build DIRECTORY COMPILER...: the libcuda.so.1 whose memory is the provider's
libcuda_build() {
	local out=$1
	shift
	"$@" -shared -fPIC -O1 -g -std=gnu11 -Wall -Wextra -Wshadow -Wmissing-prototypes -Werror -fvisibility=hidden \
		-pthread -Wl,-soname,libcuda.so.1 -I "$SRC/src" -I "$RIG/provider" "$RIG/guest/libcuda/cuda.c" \
		-o "$out/libcuda.so.1"
}

# The library with its tools as the user builds them, clients of tests/contract, and libcuda.so.1.
rig_library() {
	local out=$BUILD/library-$K_ARCH log=$BUILD/library.log name cross=
	[ "$K_ARCH" = amd64 ] || cross=aarch64-linux-gnu-
	RIG_EXTRA=$KERNEL_TESTS/doctor.sh RIG_COMMANDS=$KERNEL_TESTS/commands
	mkdir -p "$out"
	{
		make --no-print-directory -j2 -C "$SRC" O="$out" SANITIZE= CROSS_COMPILE=$cross lib tools &&
			libcuda_build "$out" ${cross}gcc || return 1
		for name in $CLIENTS; do
			${cross}gcc -O1 -g -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -I "$SRC/include" \
				-I "$SRC/src" "$SRC/tests/contract/$name.c" "$SRC/tests/contract/gpu.c" \
				-o "$out/contract_$name" -L "$out" -lgdrapi -ldl -pthread || return 1
			RIG_EXTRA="$RIG_EXTRA $out/contract_$name"
		done
	} >"$log" 2>&1 || return 1
	for name in libcuda.so.1 libgdrapi.so libgdrapi.so.2; do
		RIG_EXTRA="$RIG_EXTRA $out/$name:/usr/lib/$name"
	done
	for name in "$out"/gdrcopy_*; do
		[ -x "$name" ] && RIG_EXTRA="$RIG_EXTRA $name"
	done
	[ -z "${RIG_OTHER:-}" ] || rig_other "$out" ${cross}gcc >>"$log" 2>&1
}

# rig_other DIRECTORY COMPILER: in the place of all commands, the two libraries side by side. The lines that differ on
# purpose are those of tests/contract/differential.sh.
rig_other() {
	local of=$SRC/tests/contract
	"$2" -O1 -g -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -I "$SRC/include" -I "$SRC/src" "$of/differential.c" "$of/gpu.c" \
		-o "$1/contract_differential" -ldl || return 1
	RIG_EXTRA="$RIG_EXTRA $1/contract_differential $RIG_OTHER:/other/libgdrapi.so.2" RIG_COMMANDS=$BUILD/commands
	cat >"$RIG_COMMANDS" <<-'END'
		export GDRCOPY_BACKEND=gdrdrv; for s in 1 2 3 4 5 6 7 8; do for l in usr/lib other; do contract_differential /$l/libgdrapi.so.2 $s 300 2>/tmp/e | grep -v -e '^unmap 61440' -e '^pin_v2: ' >/tmp/${l%/lib}; done; diff /tmp/usr /tmp/other || exit 1; done; [ $(wc -l </tmp/usr) -gt 300 ] && echo "8 random programs: the same lines, $(wc -l </tmp/usr) in the last"
	END
}

make_initrd() {
	local root=$W/initrd-root item from to lib strip=strip
	[ "$K_ARCH" = amd64 ] || strip=aarch64-linux-gnu-strip
	rm -rf "$root"
	mkdir -p "$root"/{proc,sys,dev,tmp,mod,bin,lib,usr/lib}
	ln -s lib "$root/lib64"
	cp "$GUEST" "$root/init"
	cp "$W"/mod/*.ko "$root/mod/"
	$strip -g "$root"/mod/*.ko
	[ -e "$W/gcov.list" ] && cp "$W/gcov.list" "$root/gcov.list"
	if [ -n "$RIG_COMMANDS" ]; then
		cp "$RIG_COMMANDS" "$root/rig.commands"
		cp "$(busybox_of)" "$root/bin/busybox" || return 1
		for item in $(busybox --list); do
			[ "$item" = busybox ] || ln -sf busybox "$root/bin/$item"
		done
	fi
	for item in $RIG_EXTRA; do
		from=${item%%:*} to=/usr/bin/$(basename "${item%%:*}")
		[ "$item" = "$from" ] || to=${item#*:}
		mkdir -p "$root$(dirname "$to")"
		cp -L "$from" "$root$to"
		$strip "$root$to" 2>/dev/null
		for lib in $(libraries_of "$from"); do
			to=$lib
			[ "$K_ARCH" = amd64 ] || to=/lib/$(basename "$lib")
			mkdir -p "$root$(dirname "$to")"
			[ -e "$root$to" ] || cp -L "$lib" "$root$to"
		done
	done
	(cd "$root" && find . | cpio -o -H newc --quiet | lz4 -q -l -9 -c) >"$W/initrd"
}

rig_build() {
	local gen key suffix=
	[ "$RIG_FLAVOR" = open ] || suffix=-prop
	W=$BUILD/$(basename "$K_DIR")${RIG_VARIANT:+-$RIG_VARIANT} # two kernels may have one release
	key=$(cat "$SRC"/gdrdrv/* "$RIG"/provider/* "$RIG"/include/*/*.h "$RIG"/include/*.h "$RIG"/*.sh \
		${RIG_PLANT:+"$KERNEL_TESTS/planted/$RIG_PLANT.patch"} 2>/dev/null | sha256sum)
	key="$key $RIG_KO_CFLAGS $RIG_GCOV $RIG_PLANT"
	guest_build || return 1
	if [ "$key" != "$(cat "$W/key" 2>/dev/null)" ]; then
		rm -rf "$W"
		mkdir -p "$W/mod"
		echo "$key" >"$W/key"
	fi
	for gen; do
		[ -e "$W/built-$gen" ] && continue
		build_driver "$W" "$gen" "$gen$suffix" GDRDRV_FLAVOR="$RIG_FLAVOR" || return 1
		[ -n "$RIG_PLANT$RIG_GCOV" ] || build_header "$W" "$gen" "$gen$suffix" || return 1
		touch "$W/built-$gen"
	done
}

# Checks that the BAR's file has the numbers that the guest wrote in each set-up.
host_check() {
	local off len first n=0
	while read -r _ off len first; do
		cmp -n "$len" -i "$off:0" "$W/bar" <(seq "$first" $((first + len / 8))) || return 1
		n=$((n + 1))
	done < <(grep '^HOSTCHECK' "$W/console.one")
	[ "$n" -gt 0 ] && [ "$n" -eq "$(grep -c '^ok .*/host-pattern ' "$W/console.one")" ]
}

# rig_groups LIST: divides the set-ups of a comma-separated list into boots, one line each. A module
# that has pinned by callback stays loaded, so such a set-up is the last of its boot.
rig_groups() {
	local item group=
	for item in ${1//,/ }; do
		group=${group:+$group,}$item
		case $item in
		*callback | *fallback | 470:*) echo "$group"; group= ;;
		esac
	done
	[ -z "$group" ] || echo "$group"
}

# rig_qemu APPEND: qemu with the accelerator $accel, as RIG_ACCEL or rig_accel has it
rig_qemu() {
	local qemu console cpu=max options=
	case $K_ARCH in
	arm64) qemu=(qemu-system-aarch64 -M "virt,gic-version=3") console=ttyAMA0 cpu=$K_CPU ;;
	*) qemu=(qemu-system-x86_64 -M q35,hpet=off,usb=off,vmport=off,smbus=off,sata=off) console=ttyS0 ;;
	esac
	if [ "$accel" = kvm ]; then
		cpu=host
	else
		options=,thread=multi,tb-size=256
	fi
	timeout --foreground "$limit" "${qemu[@]}" -cpu "$cpu" -nodefaults -no-user-config -no-reboot \
		-accel "$accel$options" -smp 2 -m "${RIG_MEM:-512M}" -display none -vga none \
		-net none -serial stdio -monitor none \
		-object memory-backend-file,id=bar,share=on,mem-path="$W/bar",size="${RIG_BAR:-64M}" \
		-device ivshmem-plain,memdev=bar $RIG_QEMU -kernel "$K_IMAGE" -initrd "$W/initrd" -append \
		"console=$console quiet loglevel=1 panic=-1 nokaslr mitigations=off random.trust_cpu=on tsc=reliable no_timer_check cryptomgr.notests log_buf_len=2M oops=panic $*" \
		</dev/null 2>&1 | tr -d '\r'
}

# Prints kvm or tcg. A /dev/kvm that opens may boot nothing, so for each architecture a guest without
# tests has ten seconds to reach its end by KVM; the answer holds until the host's next boot.
rig_accel() {
	local file=$BUILD/accel-$K_ARCH host accel=kvm limit=10 machine=x86_64
	[ "$K_ARCH" = amd64 ] || machine=aarch64
	host="$(cat /proc/sys/kernel/random/boot_id) $(id -u)"
	if [ -n "${RIG_ACCEL:-}" ]; then
		echo "$RIG_ACCEL"
	elif [ -e "$file" ] && [ "$(head -1 "$file")" = "$host" ]; then
		tail -1 "$file"
	else
		[ -w /dev/kvm ] && [ "$(uname -m)" = "$machine" ] &&
			[ -n "$(rig_qemu "" 2>/dev/null | grep '^EXIT')" ] || accel=tcg
		printf '%s\n' "$host" "$accel" | tee "$file" | tail -1
	fi
}

# rig_boot_group NAME ARGS...: boots once and adds to the totals; fails if the boot does
rig_boot_group() {
	local name=$1 limit=${RIG_LIMIT:-900} last accel
	shift
	accel=$(rig_accel)
	rm -f "$W/bar"
	rig_qemu "$*" >"$W/console.one"
	# Seen once: QEMU without KVM ran the int3 of an instruction that Linux was patching, before there was an init.
	if [ "$accel" = tcg ] && grep -q 'Oops: int3' "$W/console.one" && grep -q 'PID: 1 Comm: swapper/0 Not tainted' "$W/console.one"; then
		say "$name: Linux ended by int3 before its init; booted once more"
		rm -f "$W/bar"
		rig_qemu "$*" >"$W/console.one"
	fi
	cat "$W/console.one" >>"$W/console"
	last=$(grep '^EXIT' "$W/console.one" | tail -1)
	grep -E '^(not ok|#)' "$W/console.one" | sed "s/^/# $name: /"
	guest_ok=0 guest_bad=0 guest_skipped=0
	read -r guest_ok guest_bad guest_skipped < <(sed -n 's/^TOTAL \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped/\1 \2 \3/p' "$W/console.one" | tail -1)
	[ -n "$last" ] || tail -40 "$W/console.one" | sed "s/^/# $name: /"
	ok=$((ok + ${guest_ok:-0})) bad=$((bad + ${guest_bad:-0})) skipped=$((skipped + ${guest_skipped:-0}))
	if [ "$last" != "EXIT 0" ]; then
		fail "$name: boot (${last:-no EXIT line})"
		return 1
	fi
	if [ -z "$RIG_NO_HOSTCHECK" ] && [ "${1%%=*}" = rig.setups ] && ! host_check; then
		fail "$name: bytes in the BAR, seen from outside"
		return 1
	fi
	rm -f "$W/bar"
}

rig_boot() {
	local name=$1 start arg group groups=() library= setups= rest=() failed= was_ok was_bad was_skipped
	shift
	make_initrd || { fail "$name: initramfs"; return 1; }
	[ -z "$RIG_COMMANDS" ] || library=persistent,callback
	for arg in $*; do
		case $arg in
		rig.library=*) library=${arg#*=} ;;
		rig.setups=*) setups=${arg#*=} ;;
		*) rest+=("$arg") ;;
		esac
	done
	while read -r group; do groups+=("rig.library=$group"); done < <(rig_groups "$library")
	while read -r group; do groups+=("rig.setups=$group"); done < <(rig_groups "$setups")
	: >"$W/console"
	start=$(date +%s%N) was_ok=$ok was_bad=$bad was_skipped=$skipped
	for group in "${groups[@]}"; do
		rig_boot_group "$name" "$group" "${rest[@]}" || failed=yes
	done
	say "$name: $((ok - was_ok)) passed, $((bad - was_bad)) failed, $((skipped - was_skipped)) skipped in ${#groups[@]} boots, $((($(date +%s%N) - start) / 1000000)) ms"
	[ -z "$failed" ] || return 1
	pass "$name: boot ($(rig_accel))"
}
