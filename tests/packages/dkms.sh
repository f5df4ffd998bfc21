# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The part of run.sh that installs barcopy-dkms on Debian 12 and 13, whose dkms differ, with and
# without kernel headers and the GPU driver's source, and installs a kernel's headers anew, as an
# upgrade does: no installation may fail, or leave a package half configured. The modules that DKMS
# has made are loaded by that Debian's own kernel in an emulated machine, of each layout of the GPU
# driver's source. Sourced; uses its variables.
: "${out:?}" "${tmp:?}" "${version:?}"
# shellcheck source=tests/common/debian.bash
. tests/common/debian.bash

# in_dkms COMMAND: in the root $dkms
in_dkms() {
	unshare --mount --pid --fork --kill-child sh -c '
		mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" || exit 99
		exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
			DEBIAN_FRONTEND=noninteractive sh -c "$1"' "$dkms" "$1"
}

dkms_root() { # SUITE
	local main
	main=$(mirror)
	[ -n "$main" ] || { echo "apt knows no mirror of Debian"; return 77; }
	rm -rf "${dkms:?}"
	unshare --mount --propagation private --pid --fork --kill-child debootstrap --variant=minbase \
		--include=ca-certificates "$1" "$dkms" "$main" || return
	configure "$dkms" "$1" "$main" && mkdir "$dkms/debs" &&
		cp "$out"/deb/barcopy-dkms_"$version"-1_all.deb "$dkms/debs/" && in_dkms 'apt-get -q update'
}

# whole COMMAND: apt's exit status is 0, and no package is half installed or configured
whole() {
	in_dkms "$1" && in_dkms '! dpkg --audit | grep .; dpkg-query -W -f "\${db:Status-Abbrev} \${Package}\n" |
		grep -v "^[ir][ic] " && exit 1 || exit 0'
}

# loads MODULE [VARIABLE=VALUE...]: loads the module of the package's DKMS build in an emulated machine, with
# the rig's provider in place of nvidia.ko. With variables: has DKMS build it by hand before that. MODULE: which one
# it depends on; "nvidia" shows that the versions of symbols were computed, "provider" that they came from a file.
loads() {
	local ko needs=$1
	shift
	if [ $# -gt 0 ]; then
		in_dkms "dkms remove gdrdrv/$version --all >/dev/null 2>&1; dkms add gdrdrv/$version >/dev/null 2>&1
			$* dkms install gdrdrv/$version -k $dkms_kernel ||
			{ cat /var/lib/dkms/gdrdrv/$version/build/make.log; exit 1; }" || return
	fi
	ko=$(find "$dkms/lib/modules/$dkms_kernel/updates" -name 'gdrdrv.ko*' | head -n 1)
	case $ko in
	*.xz) xz -dc "$ko" ;;
	*) cat "$ko" ;;
	esac >"$tmp/dkms.ko" || return
	[ "$(modinfo -F depends "$tmp/dkms.ko")" = "$needs" ] || { echo "depends on $(modinfo -F depends "$tmp/dkms.ko")"; return 1; }
	O=$out gdrdrv/tests/run.sh modules "$dkms"/root/image/boot/vmlinuz-* "$dkms/root/provider/provider.ko" "$tmp/dkms.ko"
}

# The kernel's image, and the rig's provider built with its headers.
bootable() {
	[ "$(uname -m)" = x86_64 ] || { echo "needs x86-64"; return 77; }
	mkdir -p "$dkms/root/image" "$dkms/root/provider" && cp gdrdrv/rig/provider/* gdrdrv/rig/include/nv-p2p-test.h "$dkms/root/provider/" &&
		sed 's|\.\./nv-p2p-test|nv-p2p-test|' gdrdrv/rig/include/580/nv-p2p.h >"$dkms/root/provider/nv-p2p.h" &&
		in_dkms "cd /root/image && apt-get -q download linux-image-$dkms_kernel && dpkg-deb -x linux-image-*.deb . && rm -rf usr lib *.deb &&
			make -s -C /lib/modules/$dkms_kernel/build M=/root/provider P2P_DIR='\$(src)' P2P_EXPORT=EXPORT_SYMBOL_GPL modules"
}

# source_of DIRECTORY: nv-p2p.h of the GPU driver 580.1.1, and what tells its version
source_of() {
	mkdir -p "$1/nvidia" && cp gdrdrv/rig/include/580/nv-p2p.h "$1/nvidia/" && cp gdrdrv/rig/include/*.h "$1/" &&
		echo 'ccflags-y += -DNV_VERSION_STRING=\"580.1.1\"' >"$1/Kbuild"
}

# The GPU driver's module comes from DKMS too: here the provider, as nvidia/580.1.1.
driver_by_dkms() {
	local src=$dkms/usr/src/nvidia-580.1.1
	cp gdrdrv/rig/provider/* "$src/" && echo 'ccflags-y += -DNV_VERSION_STRING=\"580.1.1\"' >>"$src/Kbuild" &&
		cat >"$src/dkms.conf" <<-'E' && in_dkms "dkms add nvidia/580.1.1; dkms install nvidia/580.1.1 -k $dkms_kernel"
			PACKAGE_NAME="nvidia"
			PACKAGE_VERSION="580.1.1"
			BUILT_MODULE_NAME[0]="provider"
			DEST_MODULE_LOCATION[0]="/updates/dkms"
			MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/nvidia/580.1.1/build P2P_DIR=$dkms_tree/nvidia/580.1.1/build/nvidia P2P_EXPORT=EXPORT_SYMBOL_GPL modules"
			CLEAN="true"
		E
}

# no_versions COMMAND: the command, while the kernel's headers lack the program that computes versions
no_versions() {
	local rc=0 genksyms
	genksyms=$(readlink -f "$dkms"/usr/lib/linux-kbuild-*/scripts/genksyms/genksyms)
	mv "$genksyms" "$dkms/root/genksyms" || return
	in_dkms "$1" >"$tmp/text" 2>&1 || rc=$?
	mv "$dkms/root/genksyms" "$genksyms"
	cat "$tmp/text"
	grep -q 'lack the program that computes them' "$tmp/text" || return 99
	return $rc
}
refused_by_hand() {
	! no_versions "dkms remove gdrdrv/$version --all; dkms add gdrdrv/$version; dkms install gdrdrv/$version -k $dkms_kernel" &&
		! find "$dkms/lib/modules" -name 'gdrdrv.ko*' | grep .
}
left_for_later() {
	no_versions 'apt-get -q purge -y barcopy-dkms && apt-get -q install -y /debs/barcopy-dkms_*.deb; rc=$?
		/usr/src/gdrdrv-*/gpu-driver.sh show '"$dkms_kernel"'; exit $rc' && whole true
}

dkms_headers="apt-get -q install -y --reinstall linux-headers-\$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')"
for dkms_suite in bookworm trixie; do
	dkms=$out/packages/dkms-$dkms_suite
	t "dkms, $dkms_suite: a root" dkms_root "$dkms_suite"
	[ -x "$dkms/usr/bin/apt-get" ] || continue
	t "dkms, $dkms_suite: without headers and source" whole \
		'apt-get -q install -y --no-install-recommends /debs/barcopy-dkms_*.deb'
	t "dkms, $dkms_suite: then a kernel's headers" whole "$dkms_headers gcc make"
	t "dkms, $dkms_suite: with headers, without source" whole \
		'apt-get -q purge -y barcopy-dkms && apt-get -q install -y /debs/barcopy-dkms_*.deb'
	t "dkms, $dkms_suite: a kernel upgrade" whole \
		'apt-get -q install -y --reinstall $(dpkg -l | awk "/^ii +linux-headers-[0-9]/ { print \$2 }")'
	dkms_kernel=$(basename "$(find "$dkms/lib/modules" -mindepth 1 -maxdepth 1 | sort | tail -n 1)")
	source_of "$dkms/usr/src/nvidia-580.1.1"
	t "dkms, $dkms_suite: with headers and source" whole \
		'apt-get -q purge -y barcopy-dkms && apt-get -q install -y /debs/barcopy-dkms_*.deb'
	t "dkms, $dkms_suite: a kernel upgrade with source" whole \
		'apt-get -q install -y --reinstall $(dpkg -l | awk "/^ii +linux-headers-[0-9]/ { print \$2 }")'
	t "dkms, $dkms_suite: the kernel's image and a provider" bootable
	if [ -e "$dkms/root/provider/provider.ko" ]; then
		t "dkms, $dkms_suite: the package's module loads, built from the header alone" loads nvidia
		t "dkms, $dkms_suite: the GPU driver's module by DKMS" driver_by_dkms
		kept=nvidia
		[ -z "$(find "$dkms/var/lib/dkms/nvidia/580.1.1/$dkms_kernel" -name Module.symvers)" ] || kept=provider
		t "dkms, $dkms_suite: ... with what DKMS keeps of that build ($kept)" loads $kept FLAVOR=open
		in_dkms 'dkms remove nvidia/580.1.1 --all' >/dev/null 2>&1
		rm "$dkms"/usr/src/nvidia-580.1.1/{*.c,dkms.conf}
		cp "$dkms/root/provider/Module.symvers" "$dkms/usr/src/nvidia-580.1.1/nvidia/"
		t "dkms, $dkms_suite: ... with a Module.symvers beside the header" loads provider FLAVOR=open
		rm "$dkms/usr/src/nvidia-580.1.1/nvidia/Module.symvers"
		source_of "$dkms/root/checkout/kernel-open"
		echo 'PACKAGE_VERSION="__VERSION_STRING"' >"$dkms/root/checkout/kernel-open/dkms.conf"
		t "dkms, $dkms_suite: ... from a checkout of NVIDIA's repository" loads nvidia NVIDIA_SRC=/root/checkout
		source_of "$dkms/root/run/kernel"
		source_of "$dkms/root/run/kernel-open"
		t "dkms, $dkms_suite: ... from the tree of a .run file" loads nvidia NVIDIA_SRC=/root/run
		t "dkms, $dkms_suite: no program for versions of symbols: refused by hand" refused_by_hand
		t "dkms, $dkms_suite: ... and left for later by the package" left_for_later
	fi
	rm -rf --one-file-system "${dkms:?}"
done
