#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds and installs the packages: `make check-packages`. Needs root.
#   run.sh BUILD_DIR
# Builds every package twice (same bits) and checks the contents. In a Debian root it installs,
# upgrades, compiles clients, builds the DKMS module with kernel headers and a stand-in of the GPU
# driver's source, replaces other packages, and removes everything. The root is made with mmdebstrap
# from this machine's mirror configuration and cached as BUILD_DIR/packages/root.tar.
# GDRCOPY_PACKAGES= a directory with NVIDIA's libgdrapi, gdrdrv-dkms and gdrcopy of one version, as
# somebody built them: also the switch from these.
# shellcheck source=tests/packages/lib.sh
TMPDIR=/var/tmp . "$(dirname "$0")/lib.sh" # for a root of some GB
mkdir -p "$out/packages"
here=tests/packages
started=$SECONDS
root=$tmp/root
trap 'rm -rf --one-file-system "$tmp"' EXIT
arch=$(dpkg --print-architecture 2>/dev/null || echo none)

# ---- without packages ----

"${MK[@]}" -j2 all sim >"$log" 2>&1 || { cat "$log"; exit 1; }
"$here/static.sh" "$out" >"$tmp/static"
grep -v '^[0-9]* passed' "$tmp/static"
read -r p f s < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$tmp/static")
passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))

# ---- the files of the packages ----

# Every file of every package, "PACKAGE PATH", without directories.
files_deb() {
	local p
	for p in libgdrapi2 libgdrapi-dev barcopy-tools python3-barcopy barcopy-dkms; do
		dpkg-deb --fsys-tarfile "$out/deb/$p"_*.deb | tar -t | sed "s|^\.|$p |"
	done | grep -v '/$' | sed "s|$(dpkg-architecture -qDEB_HOST_MULTIARCH)|TRIPLET|"
}
files_rpm() {
	local p
	for p in libgdrapi2 libgdrapi-devel barcopy-tools python3-barcopy barcopy-dkms; do
		rpm -qp --qf "[%{FILEMODES:perms} $p %{FILENAMES}\n]" "$out/rpm/$p-$version"-*.rpm
	done | sed '/^d/d; s/^[^ ]* //'
}
# The file "contents" lists the files by Debian's names; "-": only Debian's packages have it, "+":
# only RPM's. Files that are made from sources are not listed: each source must have its file.
follow='/usr/src/gdrdrv-[^/]*/[a-z0-9_]*\.[ch]$|/man/man[13]/|/bin/gdrcopy_|/completions/gdrcopy_|/docs/|/examples/'
follow+='|/barcopy/[a-z_]*\.py$|\.build-id|/doc/[^/]*/(changelog(\.Debian)?\.gz|copyright)$'
contents() { # deb|rpm
	local f
	"files_$1" >"$tmp/all"
	case $1 in
	deb) sed '/^+/d; s/^-//' ;;
	rpm) sed -E '/^-/d; s/^\+//; s/^libgdrapi-dev /libgdrapi-devel /; s#/lib/TRIPLET/#/lib64/#
		s/dist-packages/site-packages/; s/(\.[47])\.gz$/\1/' ;;
	esac <"$here/contents" | sort | diff -u - <(grep -vE "$follow" "$tmp/all" | sort)
	has() { grep -qE "^[^ ]* $1$" "$tmp/all" || echo "no package has $1"; }
	for f in docs/*.md examples/*.{c,h,cpp,cu,py,md}; do has "/usr/share/doc/(barcopy-tools|libgdrapi-dev(el)?)/$f"; done
	for f in gdrdrv/*.[ch]; do has "/usr/src/gdrdrv-$version/${f##*/}"; done
	for f in python/barcopy/*.py*; do has "/usr/lib/python3/.*-packages/barcopy/${f##*/}"; done
	for f in "$out"/gdrcopy_*; do
		[ -f "$f" ] && [ -x "$f" ] || continue
		has "/usr/bin/${f##*/}"
		has "/usr/share/man/man1/${f##*/}\.1(\.gz)?"
		has "/usr/share/bash-completion/completions/${f##*/}"
	done
	for f in $(nm -D --defined-only "$out/libgdrapi.so.$level" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }'); do
		has "/usr/share/man/man3/$f\.3(\.gz)?"
	done
}

# ---- Debian packages ----

deb() { "${MK[@]}" deb; } # with variables of the environment
deb_rebuild() (umask 077 && deb)
sums() { (cd "$1" && sha256sum -- *.deb *.dsc *.tar.*); }

if ! have dpkg-buildpackage || ! have dh || ! have dh_dkms || ! have dh_python3; then
	skip "Debian packages" "needs dpkg-dev, debhelper, dh-dkms and dh-python"
	arch=none
else
	t "make deb" deb
	DEB_OUT=$tmp/again t "make deb again, with another umask" deb_rebuild
	same_bits() { diff <(sums "$out/deb") <(sums "$tmp/again"); }
	t "two builds of the Debian packages have the same bits" same_bits
	DEB_OUT=$tmp/older DEB_VERSION=$version-0 t "an older version of the packages" deb
fi

elf_deb() {
	local d=$tmp/elf f
	mkdir -p "$d"
	for f in libgdrapi2 barcopy-tools; do dpkg-deb -x "$out/deb/$f"_*.deb "$d"; done
	for f in "$d"/usr/bin/gdrcopy_* "$d"/usr/lib/*/libgdrapi.so.$level; do
		if readelf -d "$f" | grep -E 'RPATH|RUNPATH'; then echo "$f has a run path"; fi
		readelf -d "$f" | grep -q BIND_NOW || echo "$f is not bound at start"
		readelf -d "$f" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
			grep -vE '^(libc|libm|libgdrapi|ld-linux.*)\.so' && echo "is needed by $f"
		if strings -a "$f" | grep -F "$tmp"; then echo "$f names the build's path"; fi
	done
	readelf -d "$d"/usr/lib/*/libgdrapi.so.$level | grep -q 'SONAME.*\[libgdrapi.so.2\]' || echo "another soname"
}
# The suppressed tags concern an upload to Debian.
run_lintian() {
	have lintian || { echo "no lintian here"; return 77; }
	[ "$(id -u)" = 0 ] && set -- --allow-root
	lintian "$@" --fail-on error,warning,info --display-info \
		--suppress-tags initial-upload-closes-no-bugs,debian-watch-file-is-missing \
		"$out/deb"/*_"$arch".changes
}
# A second build in the same directory finds what the first one found (Debian's policy, 4.9).
rules_leave_source() {
	local d=$tmp/rules
	mkdir -p "$d/bin" && cp -R packaging/debian "$d/debian" || return
	printf '#!/bin/sh\necho "$@" >%s/installdeb\n' "$d" >"$d/bin/dh_installdeb" && chmod +x "$d/bin/dh_installdeb" &&
		(cd "$d" && PATH=$d/bin:$PATH make -s -f debian/rules override_dh_installdeb) &&
		grep -q "VERSION=$version" "$d/installdeb" && diff -r packaging/debian "$d/debian"
}
if [ "$arch" != none ]; then
	t "debian/rules changes no file of the source" rules_leave_source
	t "files of the Debian packages" silent contents deb
	t "ELF files of the Debian packages: soname, needed libraries, no path" silent elf_deb
	t "lintian" run_lintian
fi

# udev's reading of the rules, for a device of this machine in place of a GPU
udev_rules() {
	local d rules=$tmp/udev
	have udevadm || { echo "no udevadm here"; return 77; }
	[ "$(id -u)" = 0 ] || { echo "needs root"; return 77; }
	d=$(find /sys/bus/pci/devices/ -mindepth 1 2>/dev/null | sort | tail -n 1)
	[ -n "$d" ] || { echo "no PCI device here"; return 77; }
	mkdir -p "$rules"
	grep -q 'ATTR{class}=="0x03\[02\]\*"' packaging/udev/70-gdrdrv.rules || return
	sed "s/0x10de/$(cat "$d/vendor")/; s/0x03\[02\]\*/$(cut -c1-5 "$d/class")*/" \
		packaging/udev/70-gdrdrv.rules >"$rules/70-gdrdrv.rules"
	unshare --mount sh -c 'mount --bind "$0" /etc/udev/rules.d && udevadm test -a add "$1" 2>&1' \
		"$rules" "$(realpath "$d")" >"$tmp/text" || { cat "$tmp/text"; return 1; }
	grep 70-gdrdrv "$tmp/text"
	grep -q "70-gdrdrv.rules:.*RUN 'kmod load gdrdrv'" "$tmp/text" && ! grep -i 'gdrdrv.*invalid' "$tmp/text"
}
t "udev loads the driver where there is a GPU" udev_rules

cross() {
	local f needed
	have aarch64-linux-gnu-gcc || { echo "no aarch64-linux-gnu-gcc here"; return 77; }
	DEB_ARCH=arm64 DEB_OUT=$tmp/arm64 deb || return
	mkdir -p "$tmp/arm64/x"
	for f in libgdrapi2 libgdrapi-dev barcopy-tools; do
		dpkg-deb -x "$tmp/arm64/$f"_*_arm64.deb "$tmp/arm64/x" || return
	done
	# The C library that the symbols need, not the cross compiler's.
	needed=$(readelf -VW "$tmp"/arm64/x/usr/bin/gdrcopy_* "$tmp"/arm64/x/usr/lib/aarch64-linux-gnu/libgdrapi.so.2.6 |
		grep -oE 'GLIBC_[0-9.]+' | sort -uV | sed -n '$s/GLIBC_//p')
	for f in libgdrapi2 barcopy-tools; do
		dpkg-deb -f "$tmp/arm64/$f"_*_arm64.deb Depends | grep -q "libc6 (>= $needed)" ||
			{ echo "$f does not need libc6 $needed: $(dpkg-deb -f "$tmp/arm64/$f"_*_arm64.deb Depends)"; return 1; }
	done
	for f in "$tmp"/arm64/x/usr/bin/gdrcopy_* "$tmp"/arm64/x/usr/lib/aarch64-linux-gnu/libgdrapi.so.2.6; do
		readelf -h "$f" | grep -q 'Machine:.*AArch64' || { echo "$f is not for arm64"; return 1; }
	done
}
if [ "$arch" = arm64 ] || [ "$arch" = none ]; then
	skip "arm64 packages, cross-built" "this is ${arch/none/no Debian}"
else
	t "arm64 packages, cross-built" cross
fi

# ---- RPM packages ----

rpm_build() { "${MK[@]}" rpm; }
rpm_rebuild() (umask 077 && rpm_build)
rpm_same() {
	diff <(cd "$out/rpm" && sha256sum -- *.rpm) <(cd "$tmp/rpm" && sha256sum -- *.rpm)
}
rpm_relations() {
	q() { rpm -qp --"$1" "$out/rpm/$2-$version"-*.rpm; }
	q provides libgdrapi2 | grep -q "^libgdrapi = $level$" || echo "libgdrapi2: Provides"
	q provides libgdrapi2 | grep -q '^libgdrapi.so.2()(64bit)' || echo "libgdrapi2: soname"
	q conflicts libgdrapi2 | grep -qx gdrcopy || echo "libgdrapi2: Conflicts"
	q requires libgdrapi-devel | grep -q "^libgdrapi2.* = $version-" || echo "libgdrapi-devel: Requires"
	q requires barcopy-tools | grep -q "^libgdrapi2.* = $version-" || echo "barcopy-tools: Requires"
	q provides barcopy-dkms | grep -q "^gdrcopy-kmod = $level$" || echo "barcopy-dkms: Provides"
	q conflicts barcopy-dkms | grep -qx gdrcopy-kmod || echo "barcopy-dkms: Conflicts"
}
rpm_scripts() {
	local p
	rpm -qp --scripts --filetriggers "$out/rpm/barcopy-dkms-$version"-*.rpm >"$tmp/scripts"
	for p in 'postinstall scriptlet' 'preuninstall scriptlet' 'posttrans scriptlet' \
		"dkms add -m gdrdrv -v $version" "dkms remove -m gdrdrv -v $version" \
		'transfiletriggerin.*/usr/src/nvidia' 'gpu-driver.sh refresh'; do
		grep -q "$p" "$tmp/scripts" || echo "barcopy-dkms: no $p"
	done
	grep -nE 'mknod|%\{' "$tmp/scripts"
	# Each scriptlet is a shell program without errors.
	rpm -qp --qf '%{POSTIN}\n%{PREUN}\n%{POSTTRANS}\n' "$out/rpm/barcopy-dkms-$version"-*.rpm | sh -n || echo "a scriptlet is no shell program"
	for p in libgdrapi-devel barcopy-tools; do
		if rpm -qp --scripts "$out/rpm/$p-$version"-*.rpm | grep .; then echo "$p has scripts"; fi
	done
}
# find-debuginfo finds the sources by the path of the build.
rpm_debugsource() {
	rpmspec -P --define '_debugsource_packages 1' packaging/rpm/barcopy.spec | grep -q -- '-fmacro-prefix-map=\$PWD=' ||
		echo "the path of the build is not in the debugging information"
}
# In a root without distribution: the payload and the removal, without scripts (they need one).
rpm_install() {
	local db="$tmp/rpmroot"
	mkdir -p "$db"
	local opts=(--root "$db" --dbpath /var/lib/rpm)
	rpm "${opts[@]}" --initdb || return
	opts+=(--nodeps --noscripts --notriggers)
	rpm "${opts[@]}" --ignoreos -i "$out/rpm"/{libgdrapi2,libgdrapi-devel,barcopy-tools}-"$version"-*.x86_64.rpm \
		"$out/rpm/barcopy-dkms-$version"-*.rpm || return
	[ -e "$db/usr/lib64/libgdrapi.so.$level" ] || { echo "no library"; return 1; }
	LD_LIBRARY_PATH=$db/usr/lib64 "$db/usr/bin/gdrcopy_copybw" --version || return
	rpm "${opts[@]}" -e libgdrapi2 libgdrapi-devel barcopy-tools barcopy-dkms || return
	if find "$db" -path "$db/var" -prune -o ! -type d -print | grep .; then return 1; fi
}
if have rpmbuild; then
	t "make rpm" rpm_build
	RPM_OUT=$tmp/rpm t "make rpm again, with another umask" rpm_rebuild
	t "two builds of the RPM packages have the same bits" rpm_same
	t "files of the RPM packages" silent contents rpm
	t "RPM packages: provides, requires, conflicts" silent rpm_relations
	t "RPM packages: scriptlets" silent rpm_scripts
	t "RPM packages: sources for a debugger" silent rpm_debugsource
	if [ "$(id -u)" = 0 ] && [ "$(uname -m)" = x86_64 ]; then
		t "RPM packages: installed in an empty root and removed" rpm_install
	else
		skip "RPM packages: installed in an empty root and removed" "needs root and x86-64"
	fi
	if have dnf && [ "$(id -u)" = 0 ] && [ "$(uname -m)" = x86_64 ]; then
		# shellcheck source=tests/packages/dnf.sh
		. "$here/dnf.sh"
	else
		skip "the switch by dnf" "needs dnf, root and x86-64"
	fi
	skip "RPM scriptlets run on an RPM distribution" "this machine has only Debian's mirrors"
else
	skip "RPM packages" "needs rpmbuild (package rpm)"
fi

# ---- in a Debian root ----

if [ "$arch" = none ] || [ "$(id -u)" != 0 ] || ! have mmdebstrap; then
	skip "installing in a Debian root" "needs root, mmdebstrap and the Debian packages"
else
	# shellcheck source=tests/packages/root.sh
	. "$here/root.sh"
	if have debootstrap; then
		# shellcheck source=tests/packages/dkms.sh
		. "$here/dkms.sh"
	else
		skip "barcopy-dkms on Debian 12 and 13" "needs debootstrap"
	fi
fi

echo "packages: $((SECONDS - started)) s"
finish
