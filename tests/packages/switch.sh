# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# From NVIDIA's packages to this project's and back, in run.sh's root. Sourced by root.sh; uses its
# variables. NVIDIA's packages lie in GDRCOPY_PACKAGES=. Their gdrcopy-tests needs the CUDA toolkit; a
# package with its name, version, files and dependency stands for it.
: "${out:?}" "${tmp:?}" "${root:?}" "${version:?}" "${arch:?}"

take_theirs() {
	local p d f
	mkdir -p "$tmp/nvidia" "$root/theirs"
	for p in libgdrapi gdrdrv-dkms gdrcopy; do
		set -- "$GDRCOPY_PACKAGES/${p}"_*.deb
		if [ $# != 1 ] || [ ! -e "$1" ]; then
			echo "$GDRCOPY_PACKAGES has not one package of $p"
			return 1
		fi
		cp "$1" "$tmp/nvidia/$p.deb" || return
	done
	theirs=$(dpkg-deb -f "$tmp/nvidia/libgdrapi.deb" Version) && theirs=${theirs%-*}
	echo "$theirs" >"$tmp/nvidia/version"

	# The result of debhelper before 13.10 (Ubuntu 20.04 and 22.04): on removal the init script
	# stays executable.
	d=$tmp/nvidia/old
	dpkg-deb -R "$tmp/nvidia/gdrdrv-dkms.deb" "$d" || return
	sed -i '/^if \[ "$1" = "remove" \] && \[ -x/,/^fi/d' "$d/DEBIAN/postrm"
	sed -i '/^if \[ "$1" = "install" \] && \[ -n/,/^fi/d' "$d/DEBIAN/preinst"
	! grep -q 'chmod -x' "$d/DEBIAN/postrm" || return

	d=$tmp/nvidia/tests
	mkdir -p "$d/DEBIAN" "$d/usr/bin"
	for f in apiperf copybw copylat sanity gdrcopy_apiperf gdrcopy_copybw gdrcopy_copylat gdrcopy_sanity \
		gdrcopy_pplat; do
		echo '#!/bin/true' >"$d/usr/bin/$f"
	done
	{
		printf 'Package: gdrcopy-tests\nVersion: %s-1\nArchitecture: %s\nMaintainer: test\nDescription: stand-in\n' \
			"$theirs" "$arch"
		echo "Depends: libgdrapi (>= $theirs-1)"
	} >"$d/DEBIAN/control"
	dpkg-deb -b "$tmp/nvidia/old" "$root/theirs" &&
		dpkg-deb -b "$d" "$root/theirs" &&
		cp "$tmp/nvidia/libgdrapi.deb" "$tmp/nvidia/gdrcopy.deb" "$root/theirs/"
}

# The next boot's scripts for gdrdrv, by systemd and by sysvinit. The module is loaded; the kernel
# has made its node, number 510:0, and an administrator's rule has set group 44 and mode 0660.
# Prints the scripts that ran, and the node afterwards. LISTED=yes|no: whether /proc/devices has the
# name (drivers differ in it).
boot() { # LISTED
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child sh -c '
		root=$0
		mount -t proc proc "$root/proc" && mount -t tmpfs none "$root/dev" || exit 99
		mknod -m 666 "$root/dev/null" c 1 3
		mknod -m 660 "$root/dev/gdrdrv" c 510 0 && chgrp 44 "$root/dev/gdrdrv"
		mkdir -p "$root/run/boot"
		{ cat /proc/devices; [ "$1" != yes ] || echo "510 gdrdrv"; } >"$root/run/boot/devices"
		# lsmod is a name of kmod; the kernel of this machine may have no modules at all.
		printf "#!/bin/sh\nprintf \"nvidia 1 1 gdrdrv\\\\ngdrdrv 1 0\\\\n\"\n" >"$root/run/boot/kmod"
		chmod 755 "$root/run/boot/kmod"
		mount --bind "$root/run/boot/devices" "$root/proc/devices" &&
			mount --bind "$root/run/boot/kmod" "$root/usr/bin/kmod" || exit 99
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C sh -c "
			mkdir -p /run/boot/g
			/usr/lib/systemd/system-generators/systemd-sysv-generator /run/boot/g /run/boot/g /run/boot/g
			for unit in /run/boot/g/multi-user.target.wants/gdrdrv.service; do
				[ -e \"\$unit\" ] || continue
				echo ran: systemd \$(sed -n s/^ExecStart=//p \"\$unit\")
				\$(sed -n s/^ExecStart=//p \"\$unit\") >/dev/null 2>&1
			done
			for script in /etc/rc2.d/S*gdrdrv; do
				[ -x \"\$script\" ] || continue
				echo ran: sysvinit \"\$script\"
				\"\$script\" start >/dev/null 2>&1
			done
			stat -c \"node: %t:%T %a %g\" /dev/gdrdrv 2>&1
			rm -rf /run/boot/g"' "$root" "$1"
	rm -rf "$root/run/boot"
}
untouched="node: 1fe:0 660 44"

install_theirs() {
	# No service is started in a root that has not booted.
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d"
	# Their postinst fails where there are kernel headers and no GPU driver.
	mv "$root/lib/modules/$K/build" "$root/lib/modules/$K/build.away" || return
	sh_root 'apt-get -q install -y --no-install-recommends /theirs/*.deb' || return
	sh_root "dpkg-query -W -f '\${Package} \${Status}\n' libgdrapi gdrdrv-dkms gdrcopy-tests gdrcopy" |
		grep -v 'ok installed$' && return 1
	boot yes >"$tmp/boot"
	cat "$tmp/boot"
	# Their script makes a node of its own: this is what a switch has to end.
	grep -q '^ran: systemd' "$tmp/boot" && grep -q '^ran: sysvinit' "$tmp/boot" &&
		grep -qx 'node: 1fe:0 666 0' "$tmp/boot"
}
# Without a replacement the script still runs; if the name is not listed, the node is gone.
leftovers() {
	sh_root 'apt-get -q remove -y gdrdrv-dkms gdrcopy' || return
	boot no >"$tmp/boot"
	cat "$tmp/boot"
	grep -q '^ran: systemd' "$tmp/boot" && grep -q 'stat: cannot stat' "$tmp/boot" || return
	sh_root 'apt-get -q install -y --no-install-recommends /theirs/*.deb'
}
to_ours() {
	sh_root 'apt-get -q install -y --no-install-recommends /debs/libgdrapi2_*.deb /debs/barcopy-tools_*.deb /debs/barcopy-dkms_*.deb' || return
	sh_root 'apt-get -q check' || return
	sh_root "dpkg-query -W -f '\${Package} \${db:Status-Status}\n' gdrdrv-dkms gdrcopy libgdrapi gdrcopy-tests" 2>/dev/null |
		grep ' installed$' && return 1
	sh_root 'dkms status gdrdrv' | grep -v "gdrdrv/$version" | grep . && return 1
	return 0
}
boots_ours() {
	local listed
	for listed in yes no; do
		boot "$listed" >"$tmp/boot"
		echo "name listed: $listed" && cat "$tmp/boot"
		[ "$(cat "$tmp/boot")" = "$untouched" ] || return
	done
}
# A package that asks for theirs of this very version is content with ours.
satisfied() {
	local v
	v=$(cat "$tmp/nvidia/version")
	other_package asks 1 "libgdrapi (>= $v-1), gdrdrv-dkms (>= $v-1), gdrcopy-tests (>= $v-1), gdrcopy (>= $v-1)" "" &&
		sh_root 'dpkg -i /repo/asks_1_all.deb && apt-get -q check && dpkg -P asks'
}
back() {
	sh_root 'apt-get -q install -y --no-install-recommends /theirs/*.deb' || return
	sh_root "dpkg-query -W -f '\${Package} \${db:Status-Status}\n' libgdrapi2 barcopy-tools barcopy-dkms" 2>/dev/null |
		grep ' installed$' && return 1
	boot yes >"$tmp/boot"
	cat "$tmp/boot"
	grep -q '^ran: systemd' "$tmp/boot" && grep -q '^ran: sysvinit' "$tmp/boot" || return
	sh_root 'dpkg -P gdrcopy gdrcopy-tests gdrdrv-dkms libgdrapi barcopy-tools barcopy-dkms libgdrapi2' || return
	rm -rf "$root/theirs" "$root/repo" "$root/usr/sbin/policy-rc.d"
	mv "$root/lib/modules/$K/build.away" "$root/lib/modules/$K/build"
}

if [ -z "${GDRCOPY_PACKAGES:-}" ]; then
	skip "from NVIDIA's packages to ours and back" "GDRCOPY_PACKAGES= names no directory"
else
	t "NVIDIA's packages: one of each" take_theirs
	t "NVIDIA's packages: installed, and their script makes the node at boot" install_theirs
	t "NVIDIA's driver removed, not purged: its script runs on" leftovers
	t "the switch to ours" to_ours
	t "boot after the switch: nothing of theirs runs, the node stays as it is" boots_ours
	t "ours satisfies who asks for theirs of this version" satisfied
	t "back to theirs, which work again" back
fi
