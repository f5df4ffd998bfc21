#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Chooses the GPU driver to build gdrdrv for, and builds it.
#   gpu-driver.sh show KERNEL        prints which nv-p2p.h it would use, or what to do
#   gpu-driver.sh build KERNEL KDIR  builds (called by DKMS)
#   gpu-driver.sh refresh            lets DKMS build what is missing, older than the GPU driver's
#                                    module or of another flavour, for each kernel that has a GPU driver
#   gpu-driver.sh refresh changed    the same, silently without what no source fits, and without what
#                                    has failed for that GPU driver since its module came and the machine
#                                    started
#   gpu-driver.sh load               if a GPU driver runs: loads gdrdrv, or replaces the loaded one
#   gpu-driver.sh unload             unloads gdrdrv, or prints why it stays (exit code 1)
#
# For the running kernel it chooses the running GPU driver, for another kernel the one installed
# there. From the environment: NVIDIA_SRC= and FLAVOR= as in gdrdrv/Makefile; GDRDRV_FOR_INSTALLED=1
# builds for the installed GPU driver although another runs. Package scripts set it: an upgraded GPU
# driver runs after a restart.
set -u
cd "$(dirname "$0")" || exit 1

release=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)

say() {
	echo "gdrdrv: $*" >&2
}

# Debian's packages of the GPU driver call the module's file nvidia-current, nvidia-current-open or the like; their
# modprobe.d has "install nvidia modprobe -i nvidia-current ...".
renamed=$(modprobe -c 2>/dev/null | sed -n 's|^install nvidia [^ ]*modprobe -i \([^ ]*\).*|\1|p' | head -n 1)

# module_info KERNEL FIELD: of the GPU driver's module; nothing if it does not exist. Debian has no such line while the
# alternative "glx" is Mesa's: then the module's alias tells it, the major number of /dev/nvidia0.
module_info() {
	for name in $renamed nvidia char-major-195-0; do
		modinfo -k "$1" -F "$2" "$name" 2>/dev/null && break
	done | head -n 1
}

# sources VERSION: the directory with that version's nv-p2p.h
sources() {
	/bin/sh ./find-nvidia.sh sources "$1" | head -n 1
}

advise_install() {
	say "install the source of the GPU driver's kernel module (package nvidia-dkms-*,"
	say "nvidia-kernel-dkms, nvidia-open-kernel-dkms or kmod-nvidia-*dkms, whichever your"
	say "distribution has), or name the directory that holds nv-p2p.h with NVIDIA_SRC=;"
	say "then run"
	say "    dkms install gdrdrv/$release -k $kernel"
}

# Sets NVIDIA_SRC, FLAVOR and NVIDIA_MISMATCH_OK for find-nvidia.sh if its own choice would differ.
choose() {
	running=
	[ "$kernel" = "$(uname -r)" ] && running=$(cat /sys/module/nvidia/version 2>/dev/null)
	installed=$(module_info "$kernel" version)

	if [ -z "${FLAVOR:-}" ]; then
		case $(module_info "$kernel" license) in
		NVIDIA) export FLAVOR=proprietary ;;
		?*) export FLAVOR=open ;;
		esac
	fi
	[ -z "${NVIDIA_SRC:-}" ] || return 0

	if [ -n "$running" ] && [ -n "$installed" ] && [ "$running" != "$installed" ]; then
		if [ -n "${DPKG_MAINTSCRIPT_PACKAGE:-}${GDRDRV_FOR_INSTALLED:-}" ]; then
			say "GPU driver $running is running; building for $installed, which is installed"
			say "and will run after the restart: until then gdrdrv is not reloaded"
			running=
		elif [ -z "$(sources "$running")" ]; then
			say "GPU driver $running is running, $installed is installed, and the source of"
			say "$running is gone: refusing to build for a driver that is not running. Reboot, or"
			say "stop what uses the GPU and reload its driver:"
			say "    modprobe -r gdrdrv nvidia_uvm nvidia_drm nvidia_modeset nvidia"
			say "    modprobe nvidia"
			say "then run"
			say "    dkms install gdrdrv/$release -k $kernel"
			say "To build now for $installed all the same: GDRDRV_FOR_INSTALLED=1"
			return 1
		fi
	fi
	if [ -z "$running" ] && [ -n "$installed" ]; then
		NVIDIA_SRC=$(sources "$installed")
		if [ -z "$NVIDIA_SRC" ]; then
			say "kernel $kernel has GPU driver $installed, whose source is not installed:"
			advise_install
			return 1
		fi
		# The running GPU driver does not matter to this build.
		export NVIDIA_SRC NVIDIA_MISMATCH_OK=1
		say "kernel $kernel has GPU driver $installed"
	fi
}

# Where the kernel wants versions of symbols, they come from a Module.symvers or are computed.
has_versions() { # SYMVERS
	case $1 in *Module.symvers) return ;; esac
	grep -qsx CONFIG_MODVERSIONS=y "$headers/include/config/auto.conf" || return 0
	program=genksyms # from 6.14 on one of two
	grep -qsx CONFIG_GENDWARFKSYMS=y "$headers/include/config/auto.conf" && program=gendwarfksyms
	[ -x "$headers/scripts/$program/$program" ] && return
	say "kernel $kernel refuses modules without versions of symbols (CONFIG_MODVERSIONS), and its"
	say "headers lack the program that computes them (scripts/$program): install them again, or"
	say "name a directory with the GPU driver's Module.symvers with NVIDIA_SRC=; then run"
	say "    dkms install gdrdrv/$release -k $kernel"
	return 1
}

show() {
	choose || return 1
	headers=/lib/modules/$kernel/build
	if found=$(/bin/sh ./find-nvidia.sh "$kernel"); then
		has_versions "$found"
		return
	fi
	advise_install
	return 1
}

build() {
	choose || return 1
	set -- KDIR="$1"
	if grep -qs '^CONFIG_CC_IS_CLANG=y' "${1#KDIR=}/.config"; then
		set -- "$@" CC=clang LLVM=1
	fi
	make clean >/dev/null && make "$@"
}

# same_flavor KERNEL: gdrdrv there is built for the flavour of the GPU driver there. That changes without a newer
# module where Debian has both flavours and the alternative "glx" or "nvidia" changes.
same_flavor() {
	case $(module_info "$1" license):$(modinfo -k "$1" -F license gdrdrv 2>/dev/null) in
	NVIDIA:*GPL* | [!N]*:MIT) return 1 ;;
	esac
}

refresh() { # [changed]
	rc=0
	for dir in /lib/modules/*; do
		kernel=${dir##*/}
		[ -d "$dir/build" ] || continue
		gpu=$(module_info "$kernel" filename)
		[ -n "$gpu" ] || continue
		# DKMS keeps one log of a failed build for all kernels. The time does not tell all: an alternative may choose an
		# older module, a package may bring one.
		failed=/run/barcopy-dkms/$release/$kernel
		driver="$gpu $(module_info "$kernel" version) $(module_info "$kernel" license)"
		ours=$(modinfo -k "$kernel" -F filename gdrdrv 2>/dev/null)
		[ -n "$ours" ] && [ -z "$(find "$gpu" -newer "$ours")" ] && same_flavor "$kernel" && continue
		if [ "${1:-}" = changed ]; then
			(show) >/dev/null 2>&1 || continue
			[ "$(cat "$failed" 2>/dev/null)" = "$driver" ] && [ -z "$(find "$gpu" -newer "$failed")" ] && continue
		fi
		say "building for kernel $kernel and GPU driver $(module_info "$kernel" version)"
		dkms remove "gdrdrv/$release" -k "$kernel" >/dev/null 2>&1
		if dkms install "gdrdrv/$release" -k "$kernel" --force >/dev/null; then
			rm -f "$failed"
		else
			rc=1
			mkdir -p "${failed%/*}" && printf '%s\n' "$driver" >"$failed"
		fi
	done
	return $rc
}

# A module that has pinned by free callbacks stays: the GPU driver may still call back into it. modprobe -r would
# also unload a GPU driver that nothing else uses.
unload() {
	if grep -qs '^Kept until the reboot: yes$' /proc/driver/gdrdrv/params; then
		say "gdrdrv has pinned memory by free callbacks and stays loaded until the next restart"
	elif [ -d /sys/module/gdrdrv ] && ! rmmod gdrdrv 2>/dev/null; then
		say "gdrdrv is in use and stays loaded until the next restart"
	else
		return 0
	fi
	return 1
}

load() {
	[ -d /sys/module/nvidia ] || return 0
	# By its name modprobe loads a blacklisted module too: only what was loaded is loaded so.
	blacklist=-b
	[ -d /sys/module/gdrdrv ] && blacklist=
	unload || return 0
	# Built for a GPU driver that the next restart brings: it would not load.
	[ "$(cat /sys/module/nvidia/version)" = "$(module_info "$(uname -r)" version)" ] || return 0
	# shellcheck disable=SC2086 # empty: no argument
	modprobe -q $blacklist gdrdrv || say "gdrdrv could not be loaded; see dmesg"
}

case ${1:-} in
load | unload) "$1" ;;
show) kernel=$2 && show ;;
build) kernel=$2 && build "$3" ;;
refresh) GDRDRV_FOR_INSTALLED=1 && export GDRDRV_FOR_INSTALLED && refresh "${2:-}" ;;
*)
	echo "usage: gpu-driver.sh show KERNEL | build KERNEL KDIR | refresh [changed] | load | unload" >&2
	exit 2
	;;
esac
