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

at() { # the path of a word of SOURCES
	case $1 in /*) echo "$tmp$1" ;; *) echo "$src/$1" ;; esac
}

tree() { # tree RUNNING TAINT LICENSE SOURCES: a machine's files; SOURCES as in the table below
	local dir
	rm -rf "$tmp/root" "$tmp/elsewhere"
	mkdir -p "$tmp/root/sys/module" "$tmp/root/var/lib/dkms" "$src"
	echo "$3" | sed '/^$/d' >"$tmp/license"
	if [ -n "$1" ]; then
		mkdir "$tmp/root/sys/module/nvidia"
		echo "$1" >"$tmp/root/sys/module/nvidia/version"
		echo "${2:-OE}" >"$tmp/root/sys/module/nvidia/taint"
	fi
	for dir in $4; do
		case $dir in
		*Module.symvers@*) # with that version of the function
			mkdir -p "$(dirname "$(at "${dir%@*}")")"
			printf '%s\tnvidia_p2p_get_pages\t/x/nvidia\tEXPORT_SYMBOL\t\n' "${dir#*@}" >"$(at "${dir%@*}")" ;;
		*=*) # as the GPU driver's source has it
			mkdir -p "$(dirname "$tmp/elsewhere/${dir%%=*}")"
			printf '%s\n' "${dir#*=}" | tr ',~' '\n ' >>"$tmp/elsewhere/${dir%%=*}" ;;
		*) source_at "$(at "$dir")" ;;
		esac
	done
}

# A desktop's nv-p2p.h, recognised by its get call.
source_at() { # source_at DIRECTORY
	mkdir -p "$1"
	echo "int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space);" >"$1/nv-p2p.h"
}

# judge NAME WANT [VARIABLE=VALUE...]: the script takes WANT, "DIRECTORY FLAVOR SYMVERS", and names the choice on
# stderr; "!TEXT": it takes nothing, and says TEXT.
judge() {
	local name=$1 want=$2 rc
	shift 2
	env GDRDRV_ROOT="$tmp/root" PATH="$tmp/bin:$PATH" "$@" /bin/sh "$find" 6.1-test >"$tmp/out" 2>"$tmp/err"
	rc=$?
	case $want in
	!*) [ $rc != 0 ] && [ ! -s "$tmp/out" ] && grep -qF -- "${want#!}" "$tmp/err" ;;
	*) [ $rc = 0 ] && [ "$(cat "$tmp/out")" = "$want" ] && grep -q "nv-p2p.h from ${want%% *}, for the" "$tmp/err" ;;
	esac
	rc=$?
	(exit $rc)
	ok "$name"
	[ $rc = 0 ] || sed 's/^/#   /' "$tmp/out" "$tmp/err"
}

src=$tmp/root/usr/src

# RUNNING TAINT LICENSE: of the running and of the installed module; "-": none. SOURCES: directories of nv-p2p.h and
# files Module.symvers below /usr/src, or below the case's top if they begin with "/"; FILE=LINE: one elsewhere whose
# version this file has ("," ends a line, "~" is a blank). Without both: the machine of the line before.
while IFS='|' read -r name running sources want vars; do
	if [ -n "$running" ]; then
		read -r version taint license <<<"$running"
		tree "${version#-}" "${taint#-}" "${license:-}" "$sources"
	fi
	case $want in !*) ;; /*) want=$tmp$want ;; *) want=$src/$want ;; esac
	want=${want//SRC/$src}
	# shellcheck disable=SC2086 # several words
	judge "$name" "${want//TMP/$tmp}" ${vars//TMP/$tmp}
done <<'END'
nothing installed|-||!no nv-p2p.h of any GPU driver
none running, one installed: that one|-|nvidia-570.86.10/nvidia|nvidia-570.86.10/nvidia open EXPORT_SYMBOL
none running, two installed: EXPORT_SYMBOL|-|nvidia-570.86.10/nvidia nvidia-580.95.05/nvidia|!several GPU drivers are installed
... but the one that is named|||nvidia-580.95.05/nvidia open EXPORT_SYMBOL|NVIDIA_SRC=TMP/root/usr/src/nvidia-580.95.05
the running one of two, the older|570.86.10|nvidia-570.86.10/nvidia nvidia-580.95.05/nvidia|nvidia-570.86.10/nvidia open EXPORT_SYMBOL
the running one of two, the newer|580.95.05|nvidia-570.86.10/nvidia nvidia-580.95.05/nvidia|nvidia-580.95.05/nvidia open EXPORT_SYMBOL
a version that only begins alike is another|580.95|nvidia-580.95.05/nvidia|!no nv-p2p.h of 580.95 GPU driver
a distribution's directory name|535.183.01|nvidia-current-535.183.01/nvidia|nvidia-current-535.183.01/nvidia open EXPORT_SYMBOL
below kernel-modules, the kernel's flavour behind the version|570.86.10|kernel-modules/nvidia-570.86.10-default/nvidia kernel-modules/nvidia-580.95.05-default/nvidia|kernel-modules/nvidia-570.86.10-default/nvidia open EXPORT_SYMBOL
the open flavour's directory|580.95.05|nvidia-580.95.05/kernel-open/nvidia|nvidia-580.95.05/kernel-open/nvidia open EXPORT_SYMBOL
DKMS's own tree|580.95.05|/root/var/lib/dkms/nvidia/580.95.05/source/nvidia|/root/var/lib/dkms/nvidia/580.95.05/source/nvidia open EXPORT_SYMBOL
a proprietary module is running, an open one installed|580.95.05 POE Dual MIT/GPL|nvidia-580.95.05/nvidia|nvidia-580.95.05/nvidia proprietary EXPORT_SYMBOL
an open module is running, a proprietary one installed|580.95.05 OE NVIDIA|nvidia-580.95.05/nvidia|nvidia-580.95.05/nvidia open EXPORT_SYMBOL
FLAVOR= overrules|||nvidia-580.95.05/nvidia proprietary EXPORT_SYMBOL|FLAVOR=proprietary
FLAVOR= of neither kind|||!neither open nor proprietary|FLAVOR=closed
none running: the licence of the installed module|- - NVIDIA|nvidia-580.95.05/nvidia|nvidia-580.95.05/nvidia proprietary EXPORT_SYMBOL
both flavours there, the proprietary one running|580.95.05 POE|nvidia-580.95.05/nvidia nvidia-open-580.95.05/nvidia|nvidia-580.95.05/nvidia proprietary EXPORT_SYMBOL
both flavours there, the open one running|580.95.05 OE|nvidia-580.95.05/nvidia nvidia-open-580.95.05/nvidia|nvidia-open-580.95.05/nvidia open EXPORT_SYMBOL
Module.symvers above|580.95.05|nvidia-580.95.05/nvidia nvidia-580.95.05/Module.symvers@0x12345678|nvidia-580.95.05/nvidia open SRC/nvidia-580.95.05/nvidia/../Module.symvers
Module.symvers beside it|580.95.05|nvidia-580.95.05/nvidia nvidia-580.95.05/nvidia/Module.symvers@0x1 nvidia-580.95.05/Module.symvers@0x2|nvidia-580.95.05/nvidia open SRC/nvidia-580.95.05/nvidia/Module.symvers
... without versions: the one above|580.95.05|nvidia-580.95.05/nvidia nvidia-580.95.05/nvidia/Module.symvers@0x00000000 nvidia-580.95.05/Module.symvers@0x2|nvidia-580.95.05/nvidia open SRC/nvidia-580.95.05/nvidia/../Module.symvers
... and none has versions|580.95.05|nvidia-580.95.05/nvidia nvidia-580.95.05/nvidia/Module.symvers@0x00000000|nvidia-580.95.05/nvidia open EXPORT_SYMBOL
named, of another version than the running one|580.95.05|/elsewhere/nvidia dkms.conf=PACKAGE_NAME="nvidia",PACKAGE_VERSION="570.86.10"|!is of GPU driver 570.86.10, but 580.95.05|NVIDIA_SRC=TMP/elsewhere
... unless that is meant|||/elsewhere/nvidia open EXPORT_SYMBOL|NVIDIA_SRC=TMP/elsewhere NVIDIA_MISMATCH_OK=1
named, of the running version|580.95.05|/elsewhere/nvidia dkms.conf=PACKAGE_NAME="nvidia",PACKAGE_VERSION="580.95.05"|/elsewhere/nvidia open EXPORT_SYMBOL|NVIDIA_SRC=TMP/elsewhere/nvidia
named, a checkout, whose dkms.conf is a template|580.95.05|/elsewhere/kernel-open/nvidia kernel-open/dkms.conf=PACKAGE_VERSION="__VERSION_STRING" kernel-open/Kbuild=ccflags-y~+=~-DNV_VERSION_STRING=\"570.86.10\"|!is of GPU driver 570.86.10, but 580.95.05|NVIDIA_SRC=TMP/elsewhere
... of the running version|580.95.05|/elsewhere/kernel-open/nvidia kernel-open/dkms.conf=PACKAGE_VERSION="__VERSION_STRING" kernel-open/Kbuild=ccflags-y~+=~-DNV_VERSION_STRING=\"580.95.05\"|/elsewhere/kernel-open/nvidia open EXPORT_SYMBOL|NVIDIA_SRC=TMP/elsewhere
... that exports for GPL modules alone|-|/elsewhere/kernel-open/nvidia kernel-open/nvidia/nv-p2p.c=NV_EXPORT_SYMBOL(nvidia_p2p_get_pages); kernel-open/common/inc/nv-linux.h=#define~NV_EXPORT_SYMBOL(symbol)~EXPORT_SYMBOL_GPL(symbol)|/elsewhere/kernel-open/nvidia open EXPORT_SYMBOL_GPL|NVIDIA_SRC=TMP/elsewhere
a .run file's tree: its proprietary flavour|- - NVIDIA|/elsewhere/kernel-open/nvidia /elsewhere/kernel/nvidia kernel/nvidia/nv-p2p.c=NV_EXPORT_SYMBOL(nvidia_p2p_get_pages); kernel/common/inc/nv-linux.h=#define~NV_EXPORT_SYMBOL(symbol)~EXPORT_SYMBOL(symbol)|/elsewhere/kernel/nvidia proprietary EXPORT_SYMBOL|NVIDIA_SRC=TMP/elsewhere
... its open one|||/elsewhere/kernel-open/nvidia open EXPORT_SYMBOL|NVIDIA_SRC=TMP/elsewhere FLAVOR=open
named, without nv-p2p.h|||!no nv-p2p.h in TMP/bin|NVIDIA_SRC=TMP/bin
named, of a version that nothing tells|580.95.05|/elsewhere/nvidia|/elsewhere/nvidia open EXPORT_SYMBOL|NVIDIA_SRC=TMP/elsewhere
END
grep -q "nothing tells its version" "$tmp/err"
ok "... and says so"

tree '' '' '' nvidia-580.95.05/nvidia
mkdir -p "$tmp/root/var/lib/dkms/nvidia/580.95.05"
ln -s "$src/nvidia-580.95.05" "$tmp/root/var/lib/dkms/nvidia/580.95.05/source"
judge "one installed, seen twice through a link: not two" "$src/nvidia-580.95.05/nvidia open EXPORT_SYMBOL"

# dkms 3.1.3 and newer keep Module.symvers of each build
kept() { # NAME KERNEL
	mkdir -p "$tmp/root/var/lib/dkms/$1/580.95.05/$2/x86_64/module"
	printf '0x1\tnvidia_p2p_get_pages\tnvidia\tEXPORT_SYMBOL\t\n' >"$tmp/root/var/lib/dkms/$1/580.95.05/$2/x86_64/module/Module.symvers"
}
kept nvidia 6.1-other
judge "dkms has kept another kernel's Module.symvers" "$src/nvidia-580.95.05/nvidia open EXPORT_SYMBOL"
kept nvidia-gone 6.1-test
ln -s "$src/nvidia-gone" "$tmp/root/var/lib/dkms/nvidia-gone/580.95.05/source"
judge "... and this kernel's, of a source that has been removed" "$src/nvidia-580.95.05/nvidia open EXPORT_SYMBOL"
tree 580.95.05 OE '' 'nvidia-580.95.05/nvidia nvidia-open-580.95.05/nvidia'
for name in nvidia nvidia-open; do
	kept $name 6.1-test
	ln -s "$src/$name-580.95.05" "$tmp/root/var/lib/dkms/$name/580.95.05/source"
done
judge "dkms has kept this kernel's, of both flavours" \
	"$src/nvidia-open-580.95.05/nvidia open $tmp/root/var/lib/dkms/nvidia-open/580.95.05/6.1-test/x86_64/module/Module.symvers"
judge "... the other flavour's" \
	"$src/nvidia-580.95.05/nvidia proprietary $tmp/root/var/lib/dkms/nvidia/580.95.05/6.1-test/x86_64/module/Module.symvers" \
	FLAVOR=proprietary

# A Jetson's: without an address-space token. There the library needs no driver.
tree '' '' '' ''
l4t=$src/linux-headers-5.15.148-tegra-ubuntu22.04_aarch64/nvidia/include/linux
mkdir -p "$l4t"
echo "int nvidia_p2p_get_pages(u64 vaddr, u64 size);" >"$l4t/nv-p2p.h"
judge "a Jetson's, not named" "!no nv-p2p.h of any GPU driver"
judge "a Jetson's, named" "!of Tegra's GPU driver: no gdrdrv is needed there" NVIDIA_SRC="${l4t%/include/linux}"

source_at "$tmp/with space/nvidia"
judge "in a directory that the kernel's build cannot use" "!whose path has no space" NVIDIA_SRC="$tmp/with space"

tree '' '' '' 'nvidia-580.95.05/nvidia nvidia-open-580.95.05/nvidia'
for flavor in open proprietary; do
	[ "$(FLAVOR=$flavor GDRDRV_ROOT=$tmp/root /bin/sh "$find" sources 580.95.05 | head -n 1)" = \
		"$src/nvidia$([ $flavor = open ] && echo -open)-580.95.05/nvidia" ]
	ok "of two sources of one version that of the flavour comes first: $flavor"
done

# waits NAME yes|no [VARIABLE=VALUE...]: whether DKMS builds nothing, for lack of a GPU driver's source
sed "s|/usr/src/gdrdrv-@VERSION@|${find%/*}|" packaging/dkms/dkms.conf.in >"$tmp/dkms.conf"
waits() {
	[ "$(env GDRDRV_ROOT="$tmp/root" "${@:3}" bash -c '. "$0"; echo "${BUILD_EXCLUSIVE_KERNEL:+yes}"' "$tmp/dkms.conf" |
		sed 's/^$/no/')" = "$2" ]
	ok "$1"
}

tree '' '' '' ''
waits "DKMS waits where nothing is installed" yes
tree '' '' '' kernel-modules/nvidia-580.95.05-default/nvidia
waits "... and builds where this script finds something" no
tree '' '' '' /elsewhere/kernel-open/nvidia
waits "... also below a directory that is named" no NVIDIA_SRC="$tmp/elsewhere"
waits "... and there alone" yes NVIDIA_SRC="$tmp/bin"
finish
