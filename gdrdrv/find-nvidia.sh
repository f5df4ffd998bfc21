#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Finds the nv-p2p.h of the GPU driver to build for, and names it and the reason on stderr.
#   find-nvidia.sh [KERNEL]		prints "DIRECTORY FLAVOR SYMVERS" on success and nothing otherwise
#   find-nvidia.sh sources [VERSION]	lists the directories with nv-p2p.h, of that or any version, the
#					first of them of the flavour FLAVOR=
#
# SYMVERS is the first Module.symvers with the version (CRC) of nvidia_p2p_get_pages: that of the
# directory or of one of the two above it, else what dkms 3.1.3 and newer keep of their build of
# that directory for KERNEL. Without one it is EXPORT_SYMBOL or EXPORT_SYMBOL_GPL, as that source
# exports the function: then the versions are computed from nv-p2p.h (p2psym.c).
#
# The running driver decides, also about the flavour. If none runs, the only installed driver
# decides; if several are installed, the script fails. NVIDIA_SRC= and FLAVOR= in the environment
# override this. A header of another version than the running driver's is refused;
# NVIDIA_MISMATCH_OK=1 allows it, for a build for another machine.
# Tests: GDRDRV_ROOT= is the prefix of all paths that are read; modinfo is found in PATH.
set -u
root=${GDRDRV_ROOT:-}

say() {
	echo "gdrdrv: $*" >&2
}

# named DIRECTORY: the directory of nv-p2p.h below it, in each layout of the GPU driver's source. A .run file's tree
# has both flavours.
named() {
	first=kernel-open
	[ "${flavor:-}" != proprietary ] || first=kernel
	for d in "$1" "$1/nvidia" "$1/$first/nvidia" "$1/kernel-open/nvidia" "$1/kernel/nvidia" "$1/include/linux"; do
		[ -r "$d/nv-p2p.h" ] && echo "$d" && return
	done
	return 1
}

# installed VERSION|*: the directories with nv-p2p.h that packages have installed
installed() {
	for d in "$root"/usr/src/nvidia*-$1/nvidia \
		 "$root"/usr/src/nvidia*-$1/kernel-open/nvidia \
		 "$root"/usr/src/kernel-modules/nvidia*-$1-*/nvidia \
		 "$root"/usr/src/kernel-modules/nvidia*-$1-*/kernel-open/nvidia \
		 "$root"/var/lib/dkms/nvidia*/$1/source/nvidia \
		 "$root"/var/lib/dkms/nvidia*/$1/source/kernel-open/nvidia; do
		[ -r "$d/nv-p2p.h" ] && echo "$d"
	done
}

if [ "${1:-}" = sources ]; then
	[ -z "${NVIDIA_SRC:-}" ] || named "$NVIDIA_SRC"
	# Those of the flavour first, if it is known.
	case ${FLAVOR:-} in
	open) installed "${2:-*}" | grep open ;;
	proprietary) installed "${2:-*}" | grep -v open ;;
	esac
	installed "${2:-*}"
	exit 0
fi

running=$(cat "$root/sys/module/nvidia/version" 2>/dev/null)

# version_of DIRECTORY: by dkms.conf, which is a template without it in NVIDIA's repository and .run files, or else by
# Kbuild, which has it everywhere.
version_of() {
	sed -n -e 's/^PACKAGE_VERSION="\{0,1\}\([0-9][0-9.]*\).*/\1/p' -e 's/^.* -DNV_VERSION_STRING=\\"\([0-9.]*\)\\".*/\1/p' \
		"$1/../dkms.conf" "$1/dkms.conf" "$1/../Kbuild" "$1/Kbuild" 2>/dev/null | head -n 1
}

# kept_by_dkms DIRECTORY KERNEL: the Module.symvers that dkms has kept of builds of that source
kept_by_dkms() {
	for d in "$root"/var/lib/dkms/nvidia*/*/source; do
		of=$(cd "$d" 2>/dev/null && pwd -P) || continue # removed: the link leads nowhere
		case $1/ in "$of"/*) ls "${d%/source}/$2"/*/module/Module.symvers 2>/dev/null ;; esac
	done
}

# export_of DIRECTORY: how the source there exports nvidia_p2p_get_pages. From late 535 on it does
# so by NV_EXPORT_SYMBOL, which is EXPORT_SYMBOL_GPL in the open flavour's nv-linux.h.
export_of() {
	if grep -qs '^EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages)' "$1/nv-p2p.c" ||
	   { grep -qs '^NV_EXPORT_SYMBOL(nvidia_p2p_get_pages)' "$1/nv-p2p.c" &&
	     grep -qs 'define NV_EXPORT_SYMBOL(.*EXPORT_SYMBOL_GPL' "$1/../common/inc/nv-linux.h"; }; then
		echo EXPORT_SYMBOL_GPL
	else
		echo EXPORT_SYMBOL
	fi
}

# The loaded module's taint comes first: an installed module may be for the next boot only.
flavor=${FLAVOR:-}
if [ -z "$flavor" ]; then
	flavor=open
	case $(cat "$root/sys/module/nvidia/taint" 2>/dev/null || modinfo -F license nvidia 2>/dev/null) in
	P* | NVIDIA) flavor=proprietary ;;
	esac
fi
case $flavor in
open | proprietary) ;;
*) say "FLAVOR=$flavor: neither open nor proprietary"; exit 1 ;;
esac

dir=${NVIDIA_SRC:-}
if [ -n "$dir" ]; then
	if ! dir=$(named "$dir"); then
		say "no nv-p2p.h in $NVIDIA_SRC"
		exit 1
	fi
	have=$(version_of "$dir")
	[ -n "$have" ] || say "nothing tells its version${running:+; $running is running}"
	if [ -n "$running" ] && [ -n "$have" ] && [ "$have" != "$running" ] &&
	   [ -z "${NVIDIA_MISMATCH_OK:-}" ]; then
		say "$dir is of GPU driver $have, but $running is running"
		exit 1
	fi
else
	n=0
	while read -r e; do
		[ -n "$e" ] || continue
		e=$(cd "$e" && pwd -P)
		[ "$e" != "$dir" ] || continue
		n=$((n + 1))
		# Of two flavours of one version the running one: their Module.symvers differ.
		case $flavor-${dir:+${e#"$root"}} in
		open-*open* | *-) dir=$e ;;
		proprietary-*open*) ;;
		proprietary-*) dir=$e ;;
		esac
	done <<-E
		$(installed "${running:-*}")
	E
	if [ -z "$dir" ]; then
		say "no nv-p2p.h of ${running:-any} GPU driver below /usr/src"
		exit 1
	fi
	if [ -z "$running" ] && [ "$n" -gt 1 ]; then
		say "several GPU drivers are installed and none is running; choose one with NVIDIA_SRC="
		exit 1
	fi
fi

# Tegra's nvidia_p2p_get_pages() has no argument for an address-space token. (A header that only
# includes another one passes.)
if grep -q '\bnvidia_p2p_get_pages\b' "$dir/nv-p2p.h" && ! grep -q '\bva_space\b' "$dir/nv-p2p.h"; then
	say "$dir/nv-p2p.h is of Tegra's GPU driver: no gdrdrv is needed there, see docs/platforms.md"
	exit 1
fi

dir=$(cd "$dir" && pwd -P)
case $dir in
*[[:space:]]*)
	say "nv-p2p.h is in $dir: the kernel's build needs a directory whose path has no space"
	exit 1
	;;
esac
symvers=
for f in "$dir/Module.symvers" "$dir/../Module.symvers" "$dir/../../Module.symvers" $(kept_by_dkms "$dir" "${1:-none}"); do
	awk '$2 == "nvidia_p2p_get_pages" && $1 !~ /^0x0*$/ { n++ } END { exit !n }' "$f" 2>/dev/null && symvers=$f && break
done
if [ -z "$symvers" ]; then
	symvers=$(export_of "$dir")
	say "no Module.symvers with it: the versions of nvidia_p2p_* are computed from nv-p2p.h"
fi
say "nv-p2p.h from $dir, for the $flavor flavour${running:+, running driver $running}"
echo "$dir $flavor $symvers"
