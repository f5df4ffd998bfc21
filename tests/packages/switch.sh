# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# From NVIDIA's packages to this project's and back, in run.sh's root. Sourced by root.sh; uses its
# variables. NVIDIA's packages are built from GDRCOPY_SOURCE=, a git repository, by the steps of
# their packages/build-deb-packages.sh. Their gdrcopy-tests needs the CUDA toolkit; a package with
# its name, version, files and dependency stands for it.
: "${out:?}" "${tmp:?}" "${root:?}" "${version:?}" "${arch:?}"

# fill DIRECTORY: what their script puts in place of @...@
fill() {
	local subdir
	subdir=$(sed -n 's/^MODULE_SUBDIR ?= *//p' "$tmp/nvidia/source/src/gdrdrv/Makefile")
	find "$1" -type f -exec sed -i "s/@FULL_VERSION@/$theirs-1/g; s/@VERSION@/$theirs/g
		s|@MODULE_LOCATION@|$subdir|g" {} +
}
build_theirs() {
	local s=$tmp/nvidia/source d
	mkdir -p "$s"
	git -C "$GDRCOPY_SOURCE" archive HEAD | tar -x -C "$s" || return
	theirs=$(sed -n 's/^#define GDR_API_M[AI][JN]OR_VERSION *//p' "$s/include/gdrapi.h" | paste -sd.)
	echo "$theirs" >"$tmp/nvidia/version"

	d=$tmp/nvidia/libgdrapi-$theirs
	cp -R "$s" "$d" && cp -R "$s/packages/debian-lib" "$d/debian" && fill "$d" &&
		cp "$s/README.md" "$d/debian/README.Debian" && cp "$s/README.md" "$d/debian/README.source" &&
		(cd "$d" && dpkg-buildpackage -d -b -us -uc) || return

	# It takes a script from the installed dkms: that of the root.
	d=$tmp/nvidia/gdrdrv-dkms-$theirs
	mkdir "$d" && cp -R "$s/src/gdrdrv" "$d/gdrdrv-$theirs" && cp "$s/packages/dkms.conf" "$d/gdrdrv-$theirs/" &&
		cp -R "$s/scripts" "$d/gdrdrv-$theirs/" && cp -R "$s"/packages/dkms/* "$d/" && fill "$d" &&
		(cd "$d" && PREFIX=$root dpkg-buildpackage -d -b -us -uc) || return

	d=$tmp/nvidia/gdrcopy-$theirs
	mkdir "$d" && cp -R "$s/packages/debian-meta" "$d/debian" && cp "$s/README.md" "$d/debian/README.Debian" &&
		cp "$s/README.md" "$d/debian/README.source" && fill "$d" &&
		(cd "$d" && dpkg-buildpackage -d -b -us -uc) || return

	# The result of debhelper before 13.10 (Ubuntu 20.04 and 22.04): on removal the init script
	# stays executable.
	d=$tmp/nvidia/old
	dpkg-deb -R "$tmp/nvidia/gdrdrv-dkms_$theirs-1_$arch.deb" "$d" || return
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
		sed -n "s/, \${.*//; s/@FULL_VERSION@/$theirs-1/; /^Depends: /p" "$s/packages/debian-tests/control"
	} >"$d/DEBIAN/control"
	mkdir -p "$root/theirs" && dpkg-deb -b "$tmp/nvidia/old" "$root/theirs" &&
		dpkg-deb -b "$d" "$root/theirs" &&
		cp "$tmp/nvidia/libgdrapi_$theirs-1_$arch.deb" "$tmp/nvidia/gdrcopy_$theirs-1_$arch.deb" "$root/theirs/"
}

# The next boot's scripts for gdrdrv, by systemd and by sysvinit. The module is loaded; the kernel
# has made its node, number 510:0, and an administrator's rule has set group 44 and mode 0660.
# Prints the scripts that ran, and the node afterwards. LISTED=yes|no: whether /proc/devices has the
# name (the build for the proprietary flavour is a misc device).
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

if [ -z "${GDRCOPY_SOURCE:-}" ]; then
	skip "from NVIDIA's packages to ours and back" "GDRCOPY_SOURCE= names no source of GDRCopy"
elif ! git -C "$GDRCOPY_SOURCE" rev-parse -q --verify HEAD >/dev/null 2>&1; then
	skip "from NVIDIA's packages to ours and back" "GDRCOPY_SOURCE= is no git repository"
else
	t "NVIDIA's packages, from their source" build_theirs
	t "NVIDIA's packages: installed, and their script makes the node at boot" install_theirs
	t "NVIDIA's driver removed, not purged: its script runs on" leftovers
	t "the switch to ours" to_ours
	t "boot after the switch: nothing of theirs runs, the node stays as it is" boots_ours
	t "ours satisfies who asks for theirs of this version" satisfied
	t "back to theirs, which work again" back
fi
