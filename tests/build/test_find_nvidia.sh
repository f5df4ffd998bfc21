#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gdrdrv/find-nvidia.sh: among the nv-p2p.h of several GPU drivers it takes the running one's, and
# none rather than a wrong one. Each case is a file tree of its own.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
find=$PWD/gdrdrv/find-nvidia.sh
tmp=$(realpath "$tmp")
unset NVIDIA_SRC FLAVOR NVIDIA_MISMATCH_OK

# modinfo of the case's machine: the file `license`, or nothing if no module is installed.
mkdir "$tmp/bin"
printf '#!/bin/sh\n[ -s "%s/license" ] && cat "%s/license"\n' "$tmp" "$tmp" >"$tmp/bin/modinfo"
chmod +x "$tmp/bin/modinfo"

# new [RUNNING_VERSION [TAINT [INSTALLED_LICENSE]]]
new() {
	rm -rf "$tmp/root" "$tmp/elsewhere"
	mkdir -p "$tmp/root/sys/module" "$tmp/root/usr/src" "$tmp/root/var/lib/dkms"
	: >"$tmp/license"
	[ -n "${1:-}" ] || return 0
	mkdir "$tmp/root/sys/module/nvidia"
	echo "$1" >"$tmp/root/sys/module/nvidia/version"
	echo "${2:-OE}" >"$tmp/root/sys/module/nvidia/taint"
	echo "${3:-}" >"$tmp/license"
}

# source_at DIRECTORY [VERSION]: makes a desktop's nv-p2p.h, recognised by its get call, and the
# VERSION as a package of the GPU driver writes it
source_at() {
	mkdir -p "$1"
	echo "int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space);" >"$1/nv-p2p.h"
	[ -z "${2:-}" ] || printf 'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="%s"\n' "$2" >"$1/../dkms.conf"
}

finds() {
	GDRDRV_ROOT=$tmp/root PATH="$tmp/bin:$PATH" "$@" /bin/sh "$find" >"$tmp/out" 2>"$tmp/err"
}

verdict() { # verdict NAME: the command before it decides
	local rc=$?
	(exit $rc)
	ok "$1"
	[ $rc = 0 ] || sed 's/^/#   /' "$tmp/out" "$tmp/err"
}

# takes NAME "DIRECTORY FLAVOR SYMVERS" [VARIABLE=VALUE...]: also names the choice on stderr
takes() {
	name=$1 want=$2
	shift 2
	finds env "$@" && [ "$(cat "$tmp/out")" = "$want" ] &&
		grep -q "nv-p2p.h from ${want%% *}, for the" "$tmp/err"
	verdict "$name"
}

# refuses NAME TEXT [VARIABLE=VALUE...]: nothing on stdout, the reason on stderr
refuses() {
	name=$1 text=$2
	shift 2
	! finds env "$@" && [ ! -s "$tmp/out" ] && grep -qF -- "$text" "$tmp/err"
	verdict "$name"
}

src=$tmp/root/usr/src

new
refuses "nothing installed" "no nv-p2p.h of any GPU driver"

new
source_at "$src/nvidia-570.86.10/nvidia"
takes "none running, one installed: that one" "$src/nvidia-570.86.10/nvidia open none"
source_at "$src/nvidia-580.95.05/nvidia"
refuses "none running, two installed: none" "several GPU drivers are installed"
takes "... but the one that is named" "$src/nvidia-580.95.05/nvidia open none" \
	NVIDIA_SRC="$src/nvidia-580.95.05"

new 570.86.10
source_at "$src/nvidia-570.86.10/nvidia"
source_at "$src/nvidia-580.95.05/nvidia"
takes "the running one of two, the older" "$src/nvidia-570.86.10/nvidia open none"
echo 580.95.05 >"$tmp/root/sys/module/nvidia/version"
takes "the running one of two, the newer" "$src/nvidia-580.95.05/nvidia open none"
echo 580.95 >"$tmp/root/sys/module/nvidia/version"
refuses "a version that only begins alike is another" "no nv-p2p.h of 580.95 GPU driver"

new 535.183.01
source_at "$src/nvidia-current-535.183.01/nvidia"
takes "a distribution's directory name" "$src/nvidia-current-535.183.01/nvidia open none"

new 570.86.10
source_at "$src/kernel-modules/nvidia-570.86.10-default/nvidia"
source_at "$src/kernel-modules/nvidia-580.95.05-default/nvidia"
takes "below kernel-modules, the kernel's flavour behind the version" \
	"$src/kernel-modules/nvidia-570.86.10-default/nvidia open none"

new 580.95.05
source_at "$src/nvidia-580.95.05/kernel-open/nvidia"
takes "the open flavour's directory" "$src/nvidia-580.95.05/kernel-open/nvidia open none"

new 580.95.05
source_at "$tmp/root/var/lib/dkms/nvidia/580.95.05/source/nvidia"
takes "DKMS's own tree" "$tmp/root/var/lib/dkms/nvidia/580.95.05/source/nvidia open none"

new
source_at "$src/nvidia-580.95.05/nvidia"
mkdir -p "$tmp/root/var/lib/dkms/nvidia/580.95.05"
ln -s "$src/nvidia-580.95.05" "$tmp/root/var/lib/dkms/nvidia/580.95.05/source"
takes "one installed, seen twice through a link: not two" "$src/nvidia-580.95.05/nvidia open none"

# The flavour: the running module's taint, not the licence of what is installed for the next boot.
new 580.95.05 POE "Dual MIT/GPL"
source_at "$src/nvidia-580.95.05/nvidia"
takes "a proprietary module is running, an open one installed" \
	"$src/nvidia-580.95.05/nvidia proprietary none"
new 580.95.05 OE NVIDIA
source_at "$src/nvidia-580.95.05/nvidia"
takes "an open module is running, a proprietary one installed" \
	"$src/nvidia-580.95.05/nvidia open none"
takes "FLAVOR= overrules" "$src/nvidia-580.95.05/nvidia proprietary none" FLAVOR=proprietary
refuses "FLAVOR= of neither kind" "neither open nor proprietary" FLAVOR=closed
new
echo NVIDIA >"$tmp/license"
source_at "$src/nvidia-580.95.05/nvidia"
takes "none running: the licence of the installed module" \
	"$src/nvidia-580.95.05/nvidia proprietary none"

# Both flavours of the running version are installed: their Module.symvers may differ.
for case in "POE proprietary nvidia-580.95.05/nvidia" "OE open nvidia-open-580.95.05/nvidia"; do
	# shellcheck disable=SC2086 # three words
	set -- $case
	new 580.95.05 "$1"
	source_at "$src/nvidia-580.95.05/nvidia"
	source_at "$src/nvidia-open-580.95.05/nvidia"
	takes "both flavours there, the $2 one running" "$src/$3 $2 none"
done

new 580.95.05
source_at "$src/nvidia-580.95.05/nvidia"
: >"$src/nvidia-580.95.05/Module.symvers"
takes "Module.symvers above" \
	"$src/nvidia-580.95.05/nvidia open $src/nvidia-580.95.05/nvidia/../Module.symvers"
: >"$src/nvidia-580.95.05/nvidia/Module.symvers"
takes "Module.symvers beside it" \
	"$src/nvidia-580.95.05/nvidia open $src/nvidia-580.95.05/nvidia/Module.symvers"

# NVIDIA_SRC= against the running driver.
new 580.95.05
source_at "$tmp/elsewhere/nvidia" 570.86.10
refuses "named, of another version than the running one" "is of GPU driver 570.86.10, but 580.95.05" \
	NVIDIA_SRC="$tmp/elsewhere"
takes "... unless that is meant" "$tmp/elsewhere/nvidia open none" \
	NVIDIA_SRC="$tmp/elsewhere" NVIDIA_MISMATCH_OK=1
source_at "$tmp/elsewhere/nvidia" 580.95.05
takes "named, of the running version" "$tmp/elsewhere/nvidia open none" \
	NVIDIA_SRC="$tmp/elsewhere/nvidia"
rm "$tmp/elsewhere/dkms.conf"
echo 'NVIDIA_VERSION = 570.86.10' >"$tmp/elsewhere/version.mk"
refuses "named, the version in version.mk" "is of GPU driver 570.86.10, but 580.95.05" \
	NVIDIA_SRC="$tmp/elsewhere"
rm "$tmp/elsewhere/version.mk"
takes "named, of a version that nothing tells" "$tmp/elsewhere/nvidia open none" \
	NVIDIA_SRC="$tmp/elsewhere"
grep -q "nothing tells its version" "$tmp/err"
verdict "... and says so"
refuses "named, without nv-p2p.h" "no nv-p2p.h in $tmp/bin" NVIDIA_SRC="$tmp/bin"

# A Jetson's: without an address-space token. There the library needs no driver.
new
l4t=$src/linux-headers-5.15.148-tegra-ubuntu22.04_aarch64/nvidia/include/linux
mkdir -p "$l4t"
echo "int nvidia_p2p_get_pages(u64 vaddr, u64 size);" >"$l4t/nv-p2p.h"
refuses "a Jetson's, not named" "no nv-p2p.h of any GPU driver"
refuses "a Jetson's, named" "of Tegra's GPU driver: no gdrdrv is needed there" \
	NVIDIA_SRC="${l4t%/include/linux}"

# waits NAME yes|no [VARIABLE=VALUE...]: whether DKMS builds nothing, for lack of a GPU driver's
# source
waits() {
	name=$1 want=$2
	shift 2
	sed "s|/usr/src/gdrdrv-@VERSION@|${find%/*}|" "${find%/*}/../packaging/dkms/dkms.conf.in" >"$tmp/dkms.conf"
	finds_nothing=$(env GDRDRV_ROOT="$tmp/root" "$@" bash -c '. "$0"; echo "${BUILD_EXCLUSIVE_KERNEL:+yes}"' \
		"$tmp/dkms.conf" 2>"$tmp/err")
	echo "${finds_nothing:=no}" >"$tmp/out"
	[ "$finds_nothing" = "$want" ]
	verdict "$name"
}

new
waits "DKMS waits where nothing is installed" yes
source_at "$src/kernel-modules/nvidia-580.95.05-default/nvidia"
waits "... and builds where this script finds something" no
new
source_at "$tmp/elsewhere/kernel-open/nvidia"
waits "... also below a directory that is named" no NVIDIA_SRC="$tmp/elsewhere"
waits "... and there alone" yes NVIDIA_SRC="$tmp/bin"

finish
