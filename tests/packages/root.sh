# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Installs, upgrades and removes the packages in a minimal root of this machine's Debian release,
# with real apt, dpkg and dkms and a stand-in for the GPU driver's package. run.sh sources it and
# sets the variables below.
: "${here:?}" "${out:?}" "${tmp:?}" "${root:?}" "${version:?}" "${level:?}" "${arch:?}"

suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
# what the root has besides: what the packages depend on, and what the tests call
wanted=dkms,linux-headers-$arch,gcc,libc6-dev,make,cmake,pkgconf,kmod,bash-completion,python3,systemd

# Unpacks $root from a tarball that is kept for a week, and made by the machine's sources and
# proxies of apt.
make_root() {
	local tar=$out/packages/root.tar new=$out/packages/root.new.tar key
	key="$suite $arch $wanted"
	if [ ! -e "$tar" ] || [ "$(cat "$tar.key" 2>/dev/null)" != "$key" ] ||
	   [ -n "$(find "$tar" -mtime +7)" ]; then
		local sources=()
		for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
			[ -s "$f" ] && sources+=("$f")
		done
		# this machine's settings to reach the mirrors
		local hooks=()
		for f in /etc/apt/apt.conf.d/*proxy* /etc/apt/apt.conf.d/99*; do
			[ -s "$f" ] && hooks+=("--aptopt=$f")
		done
		mmdebstrap --quiet --variant=minbase --include="$wanted" "${hooks[@]}" \
			"$suite" "$new" "${sources[@]}" || return
		mv "$new" "$tar"
		echo "$key" >"$tar.key"
	fi
	mkdir "$root"
	tar -xf "$tar" -C "$root" --exclude=./dev
	mkdir -p "$root/dev" "$root/debs" "$root/older" "$root/client"
	rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap
}

# Runs a command in the root, with /proc and /dev for the command alone. The root has no /sys; tests
# put files there.
in_root() {
	unshare --mount --pid --fork --kill-child sh -c '
		mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" || exit 99
		exec chroot "$0" /usr/bin/env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"' "$root" "$@"
}
sh_root() { in_root bash -c "$1"; }
# The same with the output, which is shown, in $tmp/text.
said() {
	local rc=0
	sh_root "$1" >"$tmp/text" 2>&1 || rc=$?
	cat "$tmp/text"
	return $rc
}

# The names of all files in the root, without those that dpkg, apt and logs make.
files_root() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./debs -o \
		-path ./older -o -path ./client -o -path ./var/lib/dpkg -o -path ./var/log -o \
		-path ./var/cache -o -path ./var/lib/apt -o -path ./run \) -prune -o -print | sort)
}

t "a Debian root ($suite, minimal)" make_root
if [ ! -e "$root/etc/debian_version" ]; then
	skip "installing in a Debian root" "it could not be made"
	return 0
fi
cp "$out"/deb/*_"$arch".deb "$out"/deb/*_all.deb "$root/debs/"
rm -f "$root"/debs/*dbgsym*
cp "$tmp"/older/*_"$arch".deb "$tmp"/older/*_all.deb "$root/older/"
rm -f "$root"/older/*dbgsym*
cp "$here/CMakeLists.txt" "$root/client/"
mkdir "$root/client/sim"
cp -P "$out"/sim/lib*.so* "$root/client/sim/"
K=$(basename "$(find "$root/lib/modules" -mindepth 1 -maxdepth 1 | sort | tail -n 1)")
in_root depmod "$K" # now, so that the one after an installation makes no new file
files_root >"$tmp/before"

# ---- install, upgrade ----

install_older() {
	in_root apt-get -q install -y --no-install-recommends /older/libgdrapi2_"$version"-0_"$arch".deb \
		/older/libgdrapi-dev_"$version"-0_"$arch".deb /older/barcopy-tools_"$version"-0_"$arch".deb \
		/older/barcopy-dkms_"$version"-0_all.deb
}
t "install the older version" install_older

# Without a GPU driver the packages can be installed. The module is not built, and a text says what is missing.
no_driver_text() {
	said "/usr/src/gdrdrv-$version/gpu-driver.sh show $K" && return 1
	grep -q 'no nv-p2p.h' "$tmp/text" && grep -q "dkms install gdrdrv/$version -k $K" "$tmp/text"
}
t "without a GPU driver: installed, not built, and told what to do" no_driver_text

upgrade() {
	sh_root 'apt-get -q install -y --no-install-recommends /debs/*.deb' || return
	sh_root "dpkg-query -W -f '\${Package} \${Version} \${Status}\n' libgdrapi2 libgdrapi-dev barcopy-tools barcopy-dkms" |
		grep -v " $version-1 install ok installed$" && return 1
	[ "$(sh_root 'dkms status gdrdrv' | grep -c .)" -le 1 ]
}
t "upgrade to this version" upgrade

run_time_names() {
	sh_root "ldconfig -p | grep -q 'libgdrapi.so.2 ' && test -e /usr/lib/*-linux-gnu/libgdrapi.so" &&
		sh_root 'gdrcopy_copybw --version && ! ldd /usr/bin/gdrcopy_copybw | grep "not found"'
}
t "the library is found by all its names, the tools run" run_time_names

# ---- developers ----

# Examples of the installed documents, built with the installed header and library, run on the stand-ins.
on_sim='LD_LIBRARY_PATH=/client/sim LD_PRELOAD=/client/sim/libnvidia_node.so'
works_on_sim() { # PROGRAM
	sh_root "$on_sim $1" | grep 'hold "hello, GPU"$'
}
by_pkg_config() {
	sh_root 'cd /client && cp /usr/share/doc/libgdrapi-dev/examples/alloc.c . &&
		gcc -Wall -Werror -o by_pc alloc.c $(pkg-config --cflags --libs libgdrapi) &&
		gcc -o by_pc_static alloc.c -Wl,-Bstatic $(pkg-config --static --cflags --libs libgdrapi | sed "s/-pthread//; s/-ldl//") -Wl,-Bdynamic -pthread -ldl &&
		! ldd by_pc_static | grep libgdrapi' && works_on_sim /client/by_pc && works_on_sim /client/by_pc_static
}
t "a client by pkg-config, shared and static, on the stand-ins" by_pkg_config
by_cmake() {
	sh_root 'cd /client && cmake -S . -B by_cmake >/dev/null && cmake --build by_cmake &&
		! ldd by_cmake/client_static | grep libgdrapi' &&
		works_on_sim /client/by_cmake/client && works_on_sim /client/by_cmake/client_static
}
t "a client by CMake, shared and static, on the stand-ins" by_cmake
tool_on_sim() { sh_root 'gdrcopy_copybw --sim /client/sim -s 64K -w 10 -r 10'; }
t "an installed tool on the stand-ins" tool_on_sim

python_module() {
	sh_root "cd / && $on_sim python3 -c '
import barcopy
with barcopy.open() as gdr, gdr.alloc(4096) as mem:
    mem.write(b\"hello\")
    import importlib.metadata
    assert importlib.metadata.version(\"barcopy\") == \"$version\"
    assert bytes(mem.view()[:5]) == b\"hello\" and barcopy.__file__.startswith(\"/usr/lib/python3\")'"
}
t "the Python module on the stand-ins" python_module

# ---- the module ----

# Makes a package that stands in for the GPU driver's: sources with nv-p2p.h, and a module `nvidia` for the root's
# kernel, which exports the functions that gdrdrv calls.
standin_driver() { # VERSION
	local d=$tmp/nvidia-$1 h
	rm -rf "$d" && mkdir -p "$d/DEBIAN" "$d/usr/src/nvidia-$1/nvidia" "$d/lib/modules/$K/updates" \
		"$root/tmp/nv" || return
	h=$(find gdrdrv/rig/include/[0-9]* -name nv-p2p.h | sort | tail -n 1)
	cp "$h" "$d/usr/src/nvidia-$1/nvidia/" && cp gdrdrv/rig/include/*.h "$d/usr/src/nvidia-$1/" || return
	printf 'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="%s"\n' "$1" >"$d/usr/src/nvidia-$1/dkms.conf"
	{
		echo '#include <linux/module.h>'
		grep -rhoE '\bnvidia_p2p_[a-z_]*\(' gdrdrv/*.c | sort -u |
			sed 's/(//; s/.*/int &(void);\nint &(void)\n{\n\treturn -19;\n}\nEXPORT_SYMBOL(&);/'
		echo "MODULE_LICENSE(\"Dual MIT/GPL\");"
		echo "MODULE_VERSION(\"$1\");"
	} >"$root/tmp/nv/nvidia.c"
	echo 'obj-m := nvidia.o' >"$root/tmp/nv/Makefile"
	sh_root "make -C /lib/modules/$K/build M=/tmp/nv modules" || return
	cp "$root/tmp/nv/nvidia.ko" "$d/lib/modules/$K/updates/"
	cp "$root/tmp/nv/Module.symvers" "$d/usr/src/nvidia-$1/nvidia/"
	rm -rf "$root/tmp/nv"
	printf 'Package: nvidia-standin\nVersion: %s\nArchitecture: all\nMaintainer: test\nDescription: stand-in\n' \
		"$1" >"$d/DEBIAN/control"
	printf '#!/bin/sh\ndepmod %s\n' "$K" >"$d/DEBIAN/postinst"
	chmod 755 "$d/DEBIAN/postinst"
	dpkg-deb -b "$d" "$root/tmp/nvidia-$1.deb"
}
module_of() { sh_root "modinfo -k $K -F $1 gdrdrv"; }

module_comes() {
	standin_driver 580.1.1 && said 'dpkg -i /tmp/nvidia-580.1.1.deb' || return
	grep -q 'kernel .* has GPU driver 580.1.1' "$tmp/text" || { echo "did not say which GPU driver"; return 1; }
	grep -q 'nv-p2p.h from /usr/src/nvidia-580.1.1/nvidia' "$tmp/text" || { echo "did not say which nv-p2p.h"; return 1; }
	sh_root "dkms status gdrdrv/$version -k $K" | grep -q installed || return
	[ "$(module_of version)" = "$level" ] && [ -n "$(module_of vermagic | grep "^$K ")" ] &&
		module_of depends | grep -q nvidia
}
module_by_hand() {
	sh_root "dkms remove gdrdrv/$version -k $K; dkms install gdrdrv/$version -k $K ||
		{ cat /var/lib/dkms/gdrdrv/$version/build/make.log; exit 1; }" && module_of filename
}
loads_in_order() {
	# modprobe -n shows what would be loaded; the GPU driver comes first.
	sh_root "modprobe -S $K -n -v gdrdrv" | sed 's/.*\///' | paste -sd' ' | grep -q '^nvidia.ko.*gdrdrv.ko'
}
driver_upgrade() {
	local before after
	# the time of the change too: a file made anew may get the former's inode number
	before=$(stat -c '%i %z' "$root/$(module_of filename)")
	standin_driver 580.2.2 && said 'dpkg -i /tmp/nvidia-580.2.2.deb' || return
	after=$(stat -c '%i %z' "$root/$(module_of filename)")
	grep -q 'nv-p2p.h from /usr/src/nvidia-580.2.2/nvidia' "$tmp/text" && [ "$before" != "$after" ]
}
# The package's new version cannot be unpacked: dpkg keeps this one, whose prerm has removed the module.
failed_upgrade() {
	local d=$tmp/cut
	mkdir -p "$d" && (cd "$d" && ar x "$root/older/barcopy-dkms_$version-0_all.deb" && truncate -s -4K data.tar.* &&
		ar rc "$root/tmp/cut.deb" debian-binary control.tar.* data.tar.*) || return
	! said 'dpkg -i /tmp/cut.deb' && module_of filename && sh_root "dkms status gdrdrv/$version -k $K" | grep installed
}
# As said(), while that version of the GPU driver seems to run on kernel $K: /sys and uname, which the root's scripts
# read, say so.
said_with() { # VERSION COMMAND
	local rc=0
	mkdir -p "$root/sys/module/nvidia"
	echo "$1" >"$root/sys/module/nvidia/version"
	# shellcheck disable=SC2016
	printf '#!/bin/sh\n[ "$1" = -r ] && echo %s && exit\nexec /bin/uname "$@"\n' "$K" >"$root/usr/local/bin/uname"
	chmod +x "$root/usr/local/bin/uname"
	said "$2" || rc=$?
	rm -rf "$root/sys/module" "$root/usr/local/bin/uname"
	return $rc
}
mismatch() {
	said_with 570.9.9 "/usr/src/gdrdrv-$version/gpu-driver.sh build $K /lib/modules/$K/build" && return 1
	grep -q '570.9.9 is running, 580.2.2 is installed' "$tmp/text" && grep -q 'modprobe -r gdrdrv nvidia_uvm' "$tmp/text" &&
		grep -q "dkms install gdrdrv/$version -k $K" "$tmp/text"
}
mismatch_in_dkms() {
	said_with 570.9.9 "dkms remove gdrdrv/$version -k $K; dkms install gdrdrv/$version -k $K" && return 1
	grep -q '570.9.9 is running' "$tmp/text"
}
# A package upgrade must not fail because a restart is pending: it builds for the next GPU driver.
mismatch_in_dpkg() {
	said_with 570.9.9 'dpkg -i /debs/barcopy-dkms_*.deb' &&
		grep -q 'will run after the restart' "$tmp/text" && module_of filename
}
# An upgrade must not fail either if no source fits the running GPU driver: the module is built later.
nothing_fits() {
	said_with 570.9.9 "mv /lib/modules/$K/updates/nvidia.ko /tmp && depmod $K && dpkg -i /debs/barcopy-dkms_*.deb; rc=\$?
		mv /tmp/nvidia.ko /lib/modules/$K/updates/ && depmod $K && exit \$rc" &&
		grep -q 'no nv-p2p.h of 570.9.9' "$tmp/text"
}
matching() {
	said_with 580.2.2 "/usr/src/gdrdrv-$version/gpu-driver.sh show $K" &&
		grep -q 'running driver 580.2.2' "$tmp/text"
}
t "the GPU driver's package comes: the module is built for it, and the text names it" module_comes
t "dkms install by hand, kernel $K" module_by_hand
t "modprobe loads the GPU driver first" loads_in_order
t "the GPU driver's upgrade builds the module anew" driver_upgrade
t "an upgrade of the package that fails leaves the module" failed_upgrade
t "the running GPU driver's nv-p2p.h is taken" matching
t "another GPU driver runs: refused, with what to do" mismatch
t "another GPU driver runs: DKMS shows the refusal" mismatch_in_dkms
t "no GPU driver's source fits: a package upgrade leaves the module for later" nothing_fits
t "another GPU driver runs: a package upgrade builds for the next start" mismatch_in_dpkg

# ---- removal ----

purge() {
	sh_root 'dpkg -P nvidia-standin 2>/dev/null; apt-get -q purge -y libgdrapi2 libgdrapi-dev barcopy-tools python3-barcopy barcopy-dkms' || return
	rm -rf "$root"/tmp/*
	files_root >"$tmp/after"
	diff "$tmp/before" "$tmp/after"
}
t "removal leaves nothing behind" purge

# ---- RPM scriptlets ----

# rpm in the root, which has Debian's dkms, shell and kernel and no files of an RPM distribution. The environment is
# empty: dkms asks make for the compiler's name, and would read make's line "Entering directory" as that name.
rpm_root() {
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child sh -c '
		root=$0
		mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit 99
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C rpm --root "$root" --dbpath /var/lib/barcopy-rpm "$@"
	' "$root" "$@"
}
rpm_built() {
	sh_root "dkms status gdrdrv/$version -k $K" | grep -q installed && [ "$(module_of version)" = "$level" ] && return
	cat "$root/var/lib/dkms/gdrdrv/$version/build/make.log"
	return 1
}
rpm_comes() {
	standin_driver 580.3.3 && sh_root 'dpkg -i /tmp/nvidia-580.3.3.deb' || return
	rpm_root --initdb && rpm_root -iv --nodeps --ignoreos "$out/rpm/libgdrapi2-$version"-*.x86_64.rpm \
		"$out/rpm/barcopy-dkms-$version"-*.rpm && rpm_built
}
# For the scriptlets the same version again is like an upgrade: built again, not removed.
rpm_again() {
	rpm_root -Uv --force --nodeps --ignoreos "$out/rpm/barcopy-dkms-$version"-*.rpm && rpm_built
}
rpm_goes() {
	rpm_root -ev --nodeps barcopy-dkms libgdrapi2 || return
	! sh_root 'dkms status gdrdrv' | grep . || return
	sh_root 'dpkg -P nvidia-standin' && rm -rf "${root:?}"/tmp/* "$root/var/lib/barcopy-rpm" && in_root ldconfig || return
	# Directories that other packages of an RPM distribution own, and this root lacks, stay.
	files_root | while read -r f; do [ -d "$root/$f" ] && [ ! -L "$root/$f" ] || echo "$f"; done >"$tmp/after"
	! grep -vxFf "$tmp/before" "$tmp/after"
}
if [ -e "$(find "$out/rpm" -name "barcopy-dkms-$version-*.rpm" 2>/dev/null | head -n 1)" ] && [ "$arch" = amd64 ]; then
	t "RPM scriptlets: the module is built for the GPU driver" rpm_comes
	t "RPM scriptlets: an upgrade builds it anew" rpm_again
	t "RPM scriptlets: removal leaves nothing behind" rpm_goes
else
	skip "RPM scriptlets" "needs rpmbuild and x86-64"
fi

# ---- in place of others ----

# Makes a package of somebody else in the root's /repo: one that has a file of ours, or a program's that depends on it.
other_package() { # NAME VERSION DEPENDS FILE
	# A file of its own, or dpkg sees a package disappear whose directories another one has.
	local d=$tmp/other file=${4:-usr/share/$1/other}
	rm -rf "$d" && mkdir -p "$d/DEBIAN" "$d/$(dirname "$file")"
	echo other >"$d/$file"
	printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: test\nDescription: other\n%s' \
		"$1" "$2" "${3:+Depends: $3
}" >"$d/DEBIAN/control"
	mkdir -p "$root/repo"
	dpkg-deb -b "$d" "$root/repo/$1_$2_all.deb" >/dev/null
}
# shellcheck source=tests/packages/switch.sh
. "$here/switch.sh"

takes_place() {
	local p
	other_package libgdrapi 2.6-1 "" usr/include/gdrapi.h &&
		other_package gdrdrv-dkms 2.6-1 "" usr/lib/modules-load.d/gdrdrv.conf &&
		other_package gdrcopy-tests 2.6-1 "" usr/bin/gdrcopy_copybw &&
		other_package gdrcopy 2.6-1 "libgdrapi (= 2.6-1), gdrdrv-dkms (= 2.6-1), gdrcopy-tests (= 2.6-1)" "" &&
		other_package program 1 "libgdrapi (>= 2.6-1), gdrdrv-dkms (>= 2.4), gdrcopy-tests (>= 2.2)" "" &&
		other_package cluster 1 "gdrcopy (>= 2.4)" "" || return
	sh_root 'dpkg -i /repo/*.deb' || return
	# by the commands of docs/porting.md, "Switching"
	sh_root 'apt-mark manual gdrdrv-dkms && cd /debs && apt-get -q install -y --no-install-recommends \
		./libgdrapi2_*.deb ./libgdrapi-dev_*.deb ./barcopy-tools_*.deb' || return
	sh_root 'apt-get -s autoremove' | grep '^Remv gdrdrv-dkms' && return 1
	sh_root "dpkg-query -W -f '\${Status}' gdrdrv-dkms" | grep -q 'ok installed' || { echo "their module went"; return 1; }
	sh_root 'cd /debs && apt-get -q install -y --no-install-recommends ./barcopy-dkms_*.deb' || return
	sh_root 'apt-get -q check' || return
	for p in program cluster; do
		sh_root "dpkg-query -W -f '\${Status}' $p" | grep -q 'ok installed' || { echo "$p was removed"; return 1; }
	done
	sh_root "dpkg-query -W -f '\${Status}' libgdrapi" 2>/dev/null | grep -q 'ok installed' && { echo "the other one stayed"; return 1; }
	return 0
}
never_upgraded() {
	other_package libgdrapi 2.7-1 "" usr/include/gdrapi.h
	other_package gdrdrv-dkms 2.7-1 "" usr/lib/modules-load.d/gdrdrv.conf
	other_package gdrcopy-tests 2.7-1 "" usr/bin/gdrcopy_copybw
	(cd "$root" && dpkg-scanpackages -m repo >repo/Packages 2>/dev/null) || return
	mkdir -p "$root/etc/apt/kept" && mv "$root"/etc/apt/sources.list* "$root/etc/apt/kept/" 2>/dev/null
	mv "$root/repo/Packages" "$root/"
	echo 'deb [trusted=yes] file:/ ./' >"$root/etc/apt/sources.list"
	said 'apt-get -q update && apt-cache policy libgdrapi && apt-get -q -s dist-upgrade' || return
	grep -q 'Candidate: 2.7-1' "$tmp/text" && ! grep -q '^Inst' "$tmp/text" && ! grep -q '^Remv' "$tmp/text"
}
t "takes the place of others' packages; a program that depends on them stays" takes_place
t "is never upgraded to a newer package of others" never_upgraded

# ---- images ----

# The commands of the Dockerfiles, in this root, which has the packages that they install.
commands_of() { # DOCKERFILE
	sed -n -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' -e 's/^RUN //p' "$1" | grep -vE '^(apt-get|if command)'
}
image() {
	[ -z "$(sed -n 's/.*apt-get install -y --no-install-recommends //p' packaging/container/Dockerfile* |
		sed 's/[&;\\].*//' | tr ' ' '\n' | grep -vxE 'gcc|make|libc6-dev|kmod|libelf1|')" ] ||
		{ echo "a package that this root lacks"; return 1; }
	mkdir -p "$root/src" && git archive HEAD | tar -x -C "$root/src" || return
	commands_of packaging/container/Dockerfile >"$tmp/commands" && [ "$(wc -l <"$tmp/commands")" = 2 ] || return
	sh_root "$(sed -n 1p "$tmp/commands")" && sh_root "$(sed -n 2p "$tmp/commands")" && cp -a "$root/out/." "$root/" &&
		sh_root 'gdrcopy_doctor --version && python3 -c "import ctypes; ctypes.CDLL(\"libgdrapi.so.2\")" &&
			LD_LIBRARY_PATH=/client/sim copybw -s 64K -w 10 -r 10 -a cuMemHostAlloc' || return
	# A library that the image has is replaced where it lies.
	mkdir -p "$root/opt/nv" && cp -P "$root"/usr/lib/*/libgdrapi.so.2* "$root/opt/nv/" && rm -f "$root"/usr/lib/*/libgdrapi* &&
		sh_root "echo /opt/nv >/etc/ld.so.conf.d/nv.conf && ldconfig && $(sed -n 1p "$tmp/commands")" &&
		[ "$(cat "$root/libdir")" = /opt/nv ]
	local rc=$?
	rm -rf "$root/opt/nv" "$root/etc/ld.so.conf.d/nv.conf"
	return $rc
}
driver_image() {
	mkdir -p "$root/opt" && cp -R gdrdrv "$root/opt/gdrdrv" && cp packaging/container/gdrdrv-load "$root/usr/local/bin/" &&
		sh_root "cd /tmp && KERNEL=$K LOAD=no NVIDIA_SRC=/opt/gdrdrv/rig/include/580 gdrdrv-load && modinfo /tmp/gdrdrv.ko | grep -q '^vermagic: *$K '" &&
		! sh_root 'KERNEL=none LOAD=no gdrdrv-load' 2>"$tmp/text" && grep -q "mount the node's /lib/modules" "$tmp/text"
}
# A part of a Debian node's headers is in /usr/lib. The container finds it at /host/usr/lib, or says that it is missing.
driver_image_debian() {
	mkdir -p "$root/host/usr/lib" && mv "$root"/usr/lib/linux-kbuild-* "$root/host/usr/lib/" || return
	! sh_root "KERNEL=$K LOAD=no NVIDIA_SRC=/opt/gdrdrv/rig/include/580 NODE_LIB=/none gdrdrv-load" 2>"$tmp/text" &&
		grep -q "mount the node's /usr/lib at /host/usr/lib" "$tmp/text" &&
		sh_root "cd /tmp && rm -f gdrdrv.ko && KERNEL=$K LOAD=no NVIDIA_SRC=/opt/gdrdrv/rig/include/580 gdrdrv-load && test -s gdrdrv.ko"
	local rc=$?
	rm -f "$root"/usr/lib/linux-kbuild-* && mv "$root"/host/usr/lib/linux-kbuild-* "$root/usr/lib/" && return $rc
}
t "the application image's commands" image
t "the driver's container builds the module" driver_image
t "the driver's container finds a part of a Debian node's headers in /usr/lib" driver_image_debian
