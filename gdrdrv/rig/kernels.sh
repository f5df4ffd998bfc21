# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Kernels and their headers, from Debian's archive into the folder $CACHE. Nothing is installed.
# Sourced; uses $RIG, the folder of this file.
#
# kernel_prepare NAME: fetches the kernel that kernel_fetch() has by this name, unless the cache has
# it. Sets
#	K_DIR		its folder in the cache
#	K_IMAGE		the image to boot
#	K_HEADERS	the folder of its headers, for make's KDIR=
#	K_REL		its release, as uname -r prints it
#	K_ROOT		the root in which modules for it are built; empty: here
#	K_MAKE		further arguments of make for a module
#	K_ARCH, K_CPU	its architecture, and the CPU that QEMU emulates for arm64
# 1: it cannot be fetched.

CACHE=${BARCOPY_CACHE:-${XDG_CACHE_HOME:-~/.cache}/barcopy} # ~ needs no $HOME

say() {
	echo "# $*"
}

# shellcheck source=tests/common/debian.bash
. "${BASH_SOURCE[0]%/*}/../../tests/common/debian.bash"

# apt_private SUITE ARGUMENT...: runs apt-get, or $APT_TOOL, for this suite and the architecture
# K_ARCH, from the machine's mirror and through its proxies. The lists are fetched once, into
# $CACHE/apt; apt's own state is not touched.
apt_private() {
	local suite=$1 dir="$CACHE/apt/$1-${K_ARCH:-amd64}" uri options key=/usr/share/keyrings/debian-archive-keyring.gpg
	shift
	if [ ! -e "$dir/ready" ]; then
		mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
		uri=$(mirror)
		{
			case $suite in
			*-security) echo "deb [signed-by=$key] $(mirror security) $suite main" ;;
			*) echo "deb [signed-by=$key] $uri $suite main" ;;
			esac
			# the base suite, for what a security or backports suite depends on
			case $suite in
			*-security | *-backports) echo "deb [signed-by=$key] $uri ${suite%-*} main" ;;
			esac
		} >"$dir/sources.list"
	fi
	options=(-o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=-
		-o Dir::State="$dir/state" -o Dir::State::status=/dev/null
		-o Dir::Cache="$dir/cache" -o APT::Architecture="${K_ARCH:-amd64}" -o APT::Sandbox::User=root
		-o APT::Default-Release="$suite")
	if [ ! -e "$dir/ready" ]; then
		# Error-Mode=any: else a missing index is a warning, and the lists stay empty.
		apt-get "${options[@]}" -o APT::Update::Error-Mode=any -qq update >&2 || return 1
		touch "$dir/ready"
	fi
	"${APT_TOOL:-apt-get}" "${options[@]}" "$@"
}

# depends_on SUITE METAPACKAGE: prints the package of one version, linux-image-... or
# linux-headers-..., on which the metapackage depends.
depends_on() {
	APT_TOOL=apt-cache apt_private "$1" depends "$2" |
		awk '$1 == "Depends:" && $2 ~ /^linux-(image|headers)-[0-9]/ { print $2; exit }'
}

# with_new_lists COMMAND...: a command that fetches. If it fails, runs it again with new lists: the
# archive may have removed the packages that the old ones name.
with_new_lists() {
	"$@" && return
	rm -f "$CACHE"/apt/*/ready
	"$@"
}

# unpack SUITE PACKAGE...: downloads the packages and unpacks them below $K_DIR/root. They must have
# the checksums of the file K_SUMS, if it is set.
unpack() {
	local suite=$1 deb
	shift
	rm -rf "${K_DIR:?}/deb"
	mkdir -p "$K_DIR/deb" "$K_DIR/root"
	(cd "$K_DIR/deb" && apt_private "$suite" -qq download "$@" >&2) || return 1
	[ -z "${K_SUMS:-}" ] || (cd "$K_DIR/deb" && sha256sum --quiet -c "$K_SUMS" >&2) || return 1
	for deb in "$K_DIR"/deb/*.deb; do
		dpkg-deb -x "$deb" "$K_DIR/root" || return 1
	done
	rm -rf "${K_DIR:?}/deb"
}

# extract_vmlinux IMAGE OUT: writes the ELF kernel that the image holds compressed; emulated, it
# boots twice as fast. A compression's first bytes may occur elsewhere in the image, so each place
# where they stand is tried.
extract_vmlinux() {
	local image=$1 out=$2 magic tool at
	while read -r magic tool; do
		for at in $(LC_ALL=C grep -aobP "$magic" "$image" | cut -d: -f1); do
			tail -c +$((at + 1)) "$image" | $tool >"$out" 2>/dev/null
			[ "$(head -c 4 "$out" | tail -c 3)" = ELF ] && return 0
		done
	done <<-'E'
		\xfd7zXZ\x00 xz -dc
		\x28\xb5\x2f\xfd zstd -dc
		\x1f\x8b\x08 gzip -dc
		\x02\x21\x4c\x18 lz4 -dc
	E
	return 1
}

# fetch_stock SUITE IMAGE HEADERS: the version for which these two metapackages stand now
fetch_stock() {
	local image headers
	image=$(depends_on "$1" "$2")
	headers=$(depends_on "$1" "$3")
	[ -n "$image" ] && [ -n "$headers" ] || return 1
	fetch_packages "$1" "$image" "$headers"
}

# fetch_pinned NAME SUITE IMAGE HEADERS: these packages of one version, which has a fault that later
# ones lack. Their checksums are in configs/NAME.sha256.
fetch_pinned() {
	local K_SUMS=$RIG/configs/$1.sha256
	fetch_packages "$2" "$3" "$4"
}

# fetch_packages SUITE IMAGE HEADERS: unpacks both, and the two packages that the headers need:
# those common to all flavours, and kbuild, the build's tools. Writes what kernel_prepare() reads.
fetch_packages() {
	local suite=$1 image=$2 headers=$3 common kbuild tree
	common=$(APT_TOOL=apt-cache apt_private "$suite" depends "$headers" | awk '/Depends:.*-common/ { print $2; exit }')
	kbuild=$(APT_TOOL=apt-cache apt_private "$suite" depends "$headers" | awk '/Depends:.*kbuild/ { print $2; exit }')
	say "fetching $image, $headers, $common, $kbuild" >&2
	if [ "$K_ARCH" = arm64 ]; then
		unpack "$suite" "$image" "$headers" "$common" || return 1
	else
		unpack "$suite" "$image" "$headers" "$common" "$kbuild" || return 1
	fi
	tree=$K_DIR/root/usr/src/$headers
	if [ "$K_ARCH" = arm64 ]; then # build tools for this machine
		(K_ARCH=amd64 && unpack "$suite" "$kbuild") || return 1
	fi
	# Packaged trees name each other by absolute paths.
	sed -i "s# /usr/src/# $K_DIR/root/usr/src/#g; s#=/usr/src/#=$K_DIR/root/usr/src/#g" "$tree/Makefile"
	for link in "$tree"/* "$K_DIR/root/usr/src/$common"/*; do
		if [ -L "$link" ] && [ ! -e "$link" ]; then
			ln -sfn "$K_DIR/root/usr/lib/$kbuild/$(basename "$link")" "$link"
		fi
	done
	if [ "$K_ARCH" = arm64 ]; then
		cp "$K_DIR"/root/boot/vmlinuz-* "$K_DIR/vmlinux"
	else
		extract_vmlinux "$K_DIR"/root/boot/vmlinuz-* "$K_DIR/vmlinux" || return 1
	fi
	rm -rf "${K_DIR:?}/root/lib/modules"/*/kernel
	echo "$tree" >"$K_DIR/headers"
	echo "${headers#linux-headers-}" >"$K_DIR/release"
}

# fetch_backports SUITE: the kernel of the suite's backports. Its build tools need the C library of
# that suite, so modules are built in a root of the suite, $K_DIR/build-root.
fetch_backports() {
	local suite=$1 uri headers image binary
	uri=$(mirror)
	headers=$(depends_on "$suite-backports" linux-headers-amd64)
	say "fetching $headers into a root of its own" >&2
	rm -rf "${K_DIR:?}/build-root"
	mmdebstrap --quiet --variant=apt --include=make,gcc,libc6-dev,kmod \
		--aptopt='APT::Install-Recommends "false"' \
		--customize-hook="chroot \"\$1\" apt-get install -qq -y -t $suite-backports $headers >&2" \
		"$suite" "$K_DIR/build-root" "deb $uri $suite main" \
		"deb $uri $suite-backports main" >&2 || return 1
	image=$(depends_on "$suite-backports" linux-image-amd64)
	# The image proper is a package of its own in newer kernels.
	binary=$(APT_TOOL=apt-cache apt_private "$suite-backports" depends "$image" |
		awk '$2 ~ /^linux-binary-/ { print $2; exit }')
	unpack "$suite-backports" "${binary:-$image}" || return 1
	extract_vmlinux "$(find "$K_DIR/root" -name 'vmlinuz*' -type f | head -1)" "$K_DIR/vmlinux" || return 1
	rm -rf "${K_DIR:?}/root"
	echo "/usr/src/$headers" >"$K_DIR/headers"
	echo "${headers#linux-headers-}" >"$K_DIR/release"
	echo "$K_DIR/build-root" >"$K_DIR/build-in"
}

# unpack_source VERSION [PART...]: unpacks Debian's source of the kernel, or only these parts, to
# $K_DIR/linux-source-VERSION
unpack_source() {
	local name=linux-source-$1 part parts=()
	shift
	for part; do
		parts+=("$name/$part")
	done
	K_ARCH=amd64 unpack bookworm-security "$name" || return 1 # for all architectures
	tar -C "$K_DIR" -xf "$K_DIR/root/usr/src/$name.tar.xz" "${parts[@]}" || return 1
	rm -rf "${K_DIR:?}/root"
}

# Prints the path of scripts/ of the kernel's source 6.1, which has checkpatch.pl: from a source in
# the cache, else it is fetched.
kernel_scripts() {
	local K_DIR=$CACHE/kernels/scripts-6.1 dir
	mkdir -p "$CACHE"
	(
		flock 9
		for dir in "$CACHE"/kernels/*/linux-source-6.1/scripts; do
			[ -e "${dir%/linux-source-6.1/scripts}/ready" ] && echo "$dir" && exit
		done
		rm -rf "$K_DIR"
		mkdir -p "$K_DIR"
		say "fetching the kernel's source for its scripts" >&2
		unpack_source 6.1 scripts 9>&- && touch "$K_DIR/ready" && echo "$K_DIR/linux-source-6.1/scripts"
	) 9>"$CACHE/lock-scripts"
}

# build_kernel VERSION CONFIG: builds Debian's source with a configuration of configs/, for arm64 by
# a cross compiler. It fails if the kernel lacks a line of the configuration. About ten minutes on
# two CPUs.
build_kernel() {
	local src=$K_DIR/linux-source-$1 config=$2 line image=arch/x86/boot/bzImage make=(make -s O="$K_DIR/build")
	if [ "$K_ARCH" = arm64 ]; then
		make+=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-)
		image=arch/arm64/boot/Image
	fi
	unpack_source "$1" || return 1
	make+=(-C "$src")
	"${make[@]}" allnoconfig >&2 || return 1
	"$src/scripts/kconfig/merge_config.sh" -m -O "$K_DIR/build" "$K_DIR/build/.config" \
		"$config" >/dev/null 2>&1
	"${make[@]}" olddefconfig >&2 || return 1
	while read -r line; do
		case $line in
		CONFIG_*) grep -qx "$line" "$K_DIR/build/.config" ||
			{ say "the kernel of $config lacks $line" >&2; return 1; } ;;
		esac
	done <"$config"
	say "building a kernel of $(basename "$config"), some minutes" >&2
	nice "${make[@]}" -j"$(nproc)" "$(basename "$image")" modules >"$K_DIR/build.log" 2>&1 || return 1
	[ -e "$K_DIR/build/Module.symvers" ] ||
		cp "$K_DIR/build/vmlinux.symvers" "$K_DIR/build/Module.symvers"
	# x86: an LZ4 image, because the direct entry of a KASAN kernel dies silently.
	cp "$K_DIR/build/$image" "$K_DIR/vmlinux"
	echo "$K_DIR/build" >"$K_DIR/headers"
	cat "$K_DIR/build/include/config/kernel.release" >"$K_DIR/release"
}

# kernel_fetch NAME CONFIG: fills K_DIR unless it is complete.
kernel_fetch() {
	local name=$1 config=$2
	[ ! -e "$K_DIR/ready" ] || return 0
	rm -rf "$K_DIR"
	mkdir -p "$K_DIR"
	case $name in
	5.10) fetch_stock bullseye-security linux-image-amd64 linux-headers-amd64 ;;
	6.1) fetch_stock bookworm-security linux-image-amd64 linux-headers-amd64 ;;
	6.1-arm64) fetch_stock bookworm-security linux-image-arm64 linux-headers-arm64 ;;
	6.12-arm64-16k) fetch_stock bookworm-security linux-image-6.12-arm64-16k linux-headers-6.12-arm64-16k ;;
	6.1-arm64-64k) build_kernel 6.1 "$config" ;;
	6.12) fetch_stock bookworm-security linux-image-6.12-amd64 linux-headers-6.12-amd64 ;;
	6.12.95) fetch_pinned "$name" bookworm-backports linux-image-6.12.95+deb12-amd64 \
		linux-headers-6.12.95+deb12-amd64 ;;
	7) fetch_backports trixie ;;
	debug) build_kernel 6.1 "$config" ;;
	debug-6.12) build_kernel 6.12 "$config" ;;
	*) return 1 ;;
	esac || return 1
	touch "$K_DIR/ready"
}

# kernel_dir NAME: sets K_DIR, K_ARCH, K_CPU, and config, the configuration of a kernel that is
# built.
kernel_dir() {
	local name=$1
	config=$RIG/configs/debug.config
	K_DIR=$CACHE/kernels/$name
	K_ARCH=amd64
	case $name in *-arm64 | *-arm64-*) K_ARCH=arm64 ;; esac
	# A CPU without 16 KiB pages hangs in a kernel that wants them.
	K_CPU=cortex-a72
	case $name in *-16k) K_CPU=max,pauth-impdef=on ;; esac
	case $name in debug | debug-*) # one directory per configuration
		K_DIR=$CACHE/kernels/$name-$(sha256sum <"$config" | cut -c1-12) ;;
	esac
	if [ "$name" = 6.1-arm64-64k ]; then # one directory per configuration
		config=$RIG/configs/arm64-64k.config
		K_DIR=$CACHE/kernels/arm64-64k-$(sha256sum <"$config" | cut -c1-12)
	fi
}

kernel_prepare() {
	local name=$1 config
	kernel_dir "$name"
	# Two runs at the same time fetch once.
	if [ ! -e "$K_DIR/ready" ]; then
		mkdir -p "$CACHE"
		(flock 9 && with_new_lists kernel_fetch "$name" "$config" 9>&-) 9>"$CACHE/lock-$name" || return 1
	fi
	K_IMAGE=$K_DIR/vmlinux
	K_HEADERS=$(cat "$K_DIR/headers")
	K_REL=$(cat "$K_DIR/release")
	K_ROOT=$(cat "$K_DIR/build-in" 2>/dev/null)
	K_MAKE=()
	# The headers of 5.10 and of arm64 name compilers that this distribution lacks.
	[ "$name" = 5.10 ] && K_MAKE=(CC=gcc)
	[ "$K_ARCH" = arm64 ] && K_MAKE=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC=aarch64-linux-gnu-gcc)
	return 0
}
