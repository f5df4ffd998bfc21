# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# From NVIDIA's RPM packages to this project's and back, by dnf in a root of its own, with the commands of
# docs/porting.md. Sourced by run.sh; uses its variables. Packages with the names, versions and relations of
# NVIDIA's stand for them, with programs that depend on each; another one for the distribution.
: "${out:?}" "${tmp:?}" "${version:?}" "${level:?}"

dnf_root=$tmp/dnf/root
others="gdrcopy gdrcopy-devel gdrcopy-kmod"
programs="uses uses-isa builds"

dnf() {
	command dnf -y --installroot="$dnf_root" --setopt=reposdir=/none --setopt=pluginpath=/none --releasever=9 \
		--setopt=install_weak_deps=False --setopt=tsflags=noscripts --setopt=cachedir="$tmp/dnf/cache" \
		--setopt=persistdir="$tmp/dnf/persist" --nogpgcheck --forcearch=x86_64 "$@"
}
installed() { rpm --root "$dnf_root" -q "$@"; }
none_installed() {
	local p
	for p; do ! installed "$p" || return; done
}

dnf_theirs() {
	local top=$tmp/dnf/build needs
	needs=$(rpm -qp --requires "$out"/rpm/*-"$version"-*.rpm 2>/dev/null |
		grep -E '^(libc\.so|libm\.so|ld-linux|rtld|/)' | sort -u | paste -sd' ')
	mkdir -p "$top" "$dnf_root"
	cat >"$top/theirs.spec" <<-END
		Name: gdrcopy
		Version: 2.5.1
		Release: 1
		Summary: stand-in
		License: MIT
		Provides: libgdrapi.so.2()(64bit)
		%description
		%package devel
		Summary: stand-in
		Requires: gdrcopy = 2.5.1-1
		BuildArch: noarch
		%description devel
		%package kmod
		Summary: stand-in
		BuildArch: noarch
		%description kmod
		%package -n uses
		Summary: stand-in
		Requires: gdrcopy >= 2.4 libgdrapi.so.2()(64bit)
		%description -n uses
		%package -n uses-isa
		Summary: stand-in
		Requires: gdrcopy(x86-64) >= 2.4
		%description -n uses-isa
		%package -n builds
		Summary: stand-in
		Requires: gdrcopy-devel >= 2.4
		%description -n builds
		%package -n distribution
		Summary: stand-in
		Provides: dkms = 3.0 $needs
		%description -n distribution
		%install
		mkdir -p %{buildroot}/usr/bin %{buildroot}/usr/lib64 %{buildroot}/usr/include
		echo theirs | tee %{buildroot}/usr/bin/gdrcopy_copybw %{buildroot}/usr/lib64/libgdrapi.so.2 >%{buildroot}/usr/include/gdrapi.h
		%files
		/usr/bin/*
		/usr/lib64/*
		%files devel
		/usr/include/*
		%files kmod
		%files -n uses
		%files -n uses-isa
		%files -n builds
		%files -n distribution
	END
	rpmbuild -bb --define "_topdir $top" --define '__os_install_post %{nil}' "$top/theirs.spec" || return
	# shellcheck disable=SC2086 # lists of words
	dnf install "$top"/RPMS/*/*.rpm && installed $others $programs
}
dnf_switch() {
	sed -n '/^## Switching/,/^## /s/^\(dnf install .*\.rpm\).*/\1/p' docs/porting.md >"$tmp/dnf/commands"
	[ "$(wc -l <"$tmp/dnf/commands")" = 2 ] || return
	# shellcheck disable=SC1091 # made above
	(cd "$out/rpm" && . "$tmp/dnf/commands") || return
	# shellcheck disable=SC2086
	installed libgdrapi2 libgdrapi-devel barcopy-tools barcopy-dkms $programs && none_installed $others &&
		grep -q barcopy "$dnf_root/usr/include/barcopy.h" && ! grep -rx theirs "$dnf_root/usr"
}
dnf_back() {
	# shellcheck disable=SC2086
	dnf install --allowerasing "$tmp"/dnf/build/RPMS/*/gdrcopy-*.rpm && installed $others $programs &&
		none_installed libgdrapi2 libgdrapi-devel barcopy-tools barcopy-dkms &&
		grep -qx theirs "$dnf_root/usr/bin/gdrcopy_copybw" && [ ! -e "$dnf_root/usr/include/barcopy.h" ]
}
t "dnf: NVIDIA's packages and programs that depend on them" dnf_theirs
t "dnf: the switch of docs/porting.md keeps the programs" dnf_switch
t "dnf: back" dnf_back
