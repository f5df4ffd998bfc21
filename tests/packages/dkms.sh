# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# The part of run.sh that installs barcopy-dkms on Debian 12 and 13, whose dkms differ, with and
# without kernel headers and the GPU driver's source, and installs a kernel's headers anew, as an
# upgrade does: no installation may fail, or leave a package half configured. Sourced; uses its
# variables.
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
	mkdir -p "$dkms/usr/src/nvidia-580.1.1/nvidia"
	cp "$(find gdrdrv/rig/include/[0-9]* -name nv-p2p.h | sort | tail -n 1)" "$dkms/usr/src/nvidia-580.1.1/nvidia/"
	cp gdrdrv/rig/include/*.h "$dkms/usr/src/nvidia-580.1.1/"
	t "dkms, $dkms_suite: with headers and source" whole \
		'apt-get -q purge -y barcopy-dkms && apt-get -q install -y /debs/barcopy-dkms_*.deb'
	t "dkms, $dkms_suite: a kernel upgrade with source" whole \
		'apt-get -q install -y --reinstall $(dpkg -l | awk "/^ii +linux-headers-[0-9]/ { print \$2 }")'
	rm -rf --one-file-system "${dkms:?}"
done
