#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Which GPU driver a build of gdrdrv is for, and the build.
#   gpu-driver.sh show KERNEL        says what would be taken, or what to do
#   gpu-driver.sh build KERNEL KDIR  builds
#
# For the running kernel it is the running GPU driver, which find-nvidia.sh insists on. For another
# kernel it is the GPU driver that is installed there: that one will run with the module.
# NVIDIA_SRC= and FLAVOR= in the environment overrule, as in gdrdrv/Makefile.
set -u
cd "$(dirname "$0")" || exit 1

kernel=$2
running=
[ "$kernel" = "$(uname -r)" ] && running=$(cat /sys/module/nvidia/version 2>/dev/null)
installed=$(modinfo -k "$kernel" -F version nvidia 2>/dev/null | head -n 1)
release=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)

say() {
	echo "gdrdrv: $*" >&2
}

# sources VERSION: the directories with that version's nv-p2p.h
sources() {
	ls -d /usr/src/nvidia*-"$1"/nvidia /usr/src/nvidia*-"$1"/kernel-open/nvidia \
		/var/lib/dkms/nvidia*/"$1"/source/nvidia 2>/dev/null |
		while read -r d; do [ -r "$d/nv-p2p.h" ] && echo "$d"; done
}

advise_install() {
	say "install the GPU driver's kernel module source (the package nvidia-dkms-*,"
	say "nvidia-open-kernel-dkms or kmod-nvidia-*-dkms of your distribution), or name the"
	say "directory that has nv-p2p.h: NVIDIA_SRC=/path; then run"
	say "    dkms install gdrdrv/$release -k $kernel"
}

if [ -z "${NVIDIA_SRC:-}" ]; then
	if [ -n "$running" ] && [ -n "$installed" ] && [ "$running" != "$installed" ] &&
	   [ -z "$(sources "$running")" ]; then
		say "GPU driver $running is running, but $installed is installed and the source of"
		say "$running is gone: a module built now would fit neither. Reboot, or stop what uses"
		say "the GPU and reload its driver (modprobe -r gdrdrv nvidia_uvm nvidia_drm"
		say "nvidia_modeset nvidia; modprobe nvidia); then run"
		say "    dkms install gdrdrv/$release -k $kernel"
		exit 1
	fi
	if [ -z "$running" ] && [ -n "$installed" ]; then
		NVIDIA_SRC=$(sources "$installed" | head -n 1)
		if [ -z "$NVIDIA_SRC" ]; then
			say "GPU driver $installed is installed for kernel $kernel, its source is not:"
			advise_install
			exit 1
		fi
		export NVIDIA_SRC
		say "kernel $kernel has GPU driver $installed"
		# Another driver may be running on the running kernel; this build is not for it.
		export NVIDIA_MISMATCH_OK=1
	fi
fi
if [ -z "${FLAVOR:-}" ]; then
	case $(modinfo -k "$kernel" -F license nvidia 2>/dev/null) in
	NVIDIA) FLAVOR=proprietary ;;
	?*) FLAVOR=open ;;
	esac
	export FLAVOR
fi

case $1 in
show)
	if ! /bin/sh ./find-nvidia.sh >/dev/null; then
		advise_install
		exit 1
	fi
	;;
build)
	set -- KDIR="$3"
	if grep -q '^CONFIG_CC_IS_CLANG=y' "${1#KDIR=}/.config" 2>/dev/null; then
		set -- "$@" CC=clang LLVM=1
	fi
	if [ -n "$running" ] || [ -n "${NVIDIA_SRC:-}" ] || [ -z "$installed" ]; then
		exec make "$@"
	fi
	exit 1
	;;
*)
	echo "usage: gpu-driver.sh show|build KERNEL [KDIR]" >&2
	exit 2
	;;
esac
