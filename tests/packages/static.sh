#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests the packages without building them: versions that agree, a page for every symbol, option,
# variable and parameter, the binary interface, the completion, the scripts.
#   static.sh BUILD_DIR      (library and tools are built there)
# shellcheck source=tests/packages/lib.sh
. "$(dirname "$0")/lib.sh"
lib=$out/libgdrapi.so.$level

# ---- versions ----

# same WHAT GOT WANTED
same() {
	[ "$2" = "$3" ] || { echo "$1 says '$2', the Makefile '$3'"; return 1; }
}

# The files that state the version, as packaging/version.sh writes them; with another version and date each changes.
versions_follow() {
	local f new=$tmp/version
	mkdir "$new" && git ls-files -z | tar -c --null -T - | tar -x -C "$new" && packaging/version.sh "$new" || return
	git ls-files | while read -r f; do cmp "$f" "$new/$f"; done
	sed -i 's/^VERSION := .*/VERSION := 9.8.7/' "$new/Makefile" && sed -i '0,/^## \[[0-9]/s/^## \[[0-9].*/## [9.8.7] - 2031-02-03/' "$new/CHANGELOG.md" &&
		packaging/version.sh "$new"
	f=$(git ls-files | while read -r f; do cmp -s "$f" "$new/$f" || echo "$f"; done | LC_ALL=C sort | paste -sd' ')
	same "what follows" "$f" "CHANGELOG.md CITATION.cff Makefile docs/driver.md packaging/container/gdrdrv-daemonset.yaml \
packaging/debian/changelog packaging/man/gdrapi.7 packaging/man/gdrdrv.4 packaging/rpm/barcopy.spec python/barcopy/__init__.py \
python/pyproject.toml"
	[ "$(head -n 1 "$new/packaging/debian/changelog")" = 'barcopy (9.8.7-1) unstable; urgency=medium' ] || head -n 1 "$new/packaging/debian/changelog"
	grep -q '^ -- .*>  Mon, 03 Feb 2031 12:00:00 +0000$' "$new/packaging/debian/changelog" || echo "no date in debian/changelog"
	grep -Lx '\.Dd February 3, 2031' "$new"/packaging/man/*.[47]
	grep -q '^\* Mon Feb 03 2031 .* - 9.8.7-1$' "$new/packaging/rpm/barcopy.spec" || echo "no date in barcopy.spec"
}
t "version and date stand in the Makefile and the CHANGELOG, and in the others by make refresh-version" silent versions_follow

versions_agree() {
	same gdrapi.h "$(sed -n 's/^#define GDR_API_M[AI][JN]OR_VERSION //p' include/gdrapi.h | paste -sd.)" "$level"
	same "its METADATA" "$(python3 python/backend.py metadata | sed -n 's/^Version: //p')" "$version"
	grep 'Provides:' packaging/debian/control | grep -v '(= ${source:Version})' # must have the version
	same gdrdrv_uapi.h "$(sed -n 's/^#define GDRDRV_VERSION_M[AI][JN]OR //p' gdrdrv/gdrdrv_uapi.h | paste -sd.)" "$level"
	same MODULE_VERSION "$(sed -n 's/^MODULE_VERSION("\(.*\)").*/\1/p' gdrdrv/main.c)" "$level"
}
t "version strings agree with the Makefile's $version" silent versions_agree

installs() {
	"${MK[@]}" install install-driver \
		prefix=/usr libdir=/usr/lib/test DESTDIR="$tmp/root" || return
	same dkms.conf "$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$tmp/root/usr/src/gdrdrv-$version/dkms.conf")" "$version" || return
	same libgdrapi.pc "$(sed -n 's/^Version: //p' "$tmp/root/usr/lib/test/pkgconfig/libgdrapi.pc")" "$version" || return
	if grep -rn '@[A-Z]*@' "$tmp/root/usr/lib" "$tmp/root/usr/src" --include='*.pc' --include='*.cmake' --include=dkms.conf; then
		return 1
	fi
}
t "make install fills in every file" installs

# DKMS 3.1.8 and later warn of CLEAN at each command, unless it does nothing; without CLEAN, earlier
# versions run the kernel's "make clean". They warn of REMAKE_INITRD and MODULES_CONF as well.
dkms_directives() {
	local conf=$tmp/root/usr/src/gdrdrv-$version/dkms.conf
	same "dkms.conf's CLEAN" "$(bash -c '. "$1" && echo "$CLEAN"' - "$conf")" true || return
	! grep -nE '(REMAKE_INITRD|MODULES_CONF[A-Z_]*)(\[.*)?=' "$conf"
}
t "dkms.conf: no directive that DKMS has given up" dkms_directives
dkms_cleans() {
	mkdir -p "$tmp/dkms/bin" && cp "$tmp/root/usr/src/gdrdrv-$version"/* "$tmp/dkms/" && touch "$tmp/dkms/main.o" &&
		printf '#!/bin/sh\n[ "$1" = clean ] && exec %s "$@"\necho "$@" >>made\ntest ! -e main.o\n' \
			"$(command -v make)" >"$tmp/dkms/bin/make" && chmod +x "$tmp/dkms/bin/make" || return
	env -u O "PATH=$tmp/dkms/bin:$PATH" FLAVOR=open NVIDIA_SRC=/none sh "$tmp/dkms/gpu-driver.sh" build none /kdir &&
		[ "$(cat "$tmp/dkms/made")" = "KDIR=/kdir" ]
}
t "what DKMS calls builds from the source alone" dkms_cleans

# Each file's SPDX line is what its stanza, the last one that matches it, says.
licences() {
	git ls-files | python3 -c '
import fnmatch, re, sys
names = {"Expat": "MIT", "Expat or GPL-2": "MIT OR GPL-2.0-only"}
stanzas = re.findall(r"^Files: (.*)\n(?:.*\n)*?License: (.*)", open("packaging/debian/copyright").read(), re.M)
for file in sys.stdin.read().split():
    head = open(file, errors="replace").read(300)
    spdx = re.search(r"^\W*SPDX-License-Identifier: (MIT(?: OR GPL-2.0-only)?)\b", head, re.M)
    says = [name for globs, name in stanzas if any(fnmatch.fnmatch(file, g) for g in globs.split())][-1]
    if spdx and spdx[1] != names[says]:
        print(file, spdx[1], says)'
}
t "Debian: the copyright file names each file's licence" silent licences

# Files that documents link to are not compressed: a link has the file's name.
uncompressed() {
	local e
	for e in $(sed -nE 's/.*\]\(([^):]*\.[a-z]+)(#[^)]*)?\).*/\1/p; s/.*href="([^":]*\.[a-z]+)(#[^"]*)?".*/\1/p' README.md docs/*.md docs/results/*.md docs/page/index.html.in |
		sed 's/.*\.//' | sort -u); do
		[ "$e" = h ] || grep -q -- "dh_compress.* -X\.$e\b" packaging/debian/rules || echo "links to .$e, which dh_compress takes"
	done
}
t "Debian: what the documents link to is not compressed" silent uncompressed

# dpkg may handle the trigger of /usr/src before the package of the GPU driver builds its module. The trigger of the
# initramfs comes later.
t "Debian: barcopy-dkms has the trigger of the initramfs, too" \
	grep -qx 'interest-noawait update-initramfs' packaging/debian/barcopy-dkms.triggers

# The tarball of the last commit: the same bits twice, also in a directory whose set-group-ID bit new ones get; its
# checksum, one directory in it.
dist() {
	local tar
	git rev-parse -q --verify HEAD >/dev/null 2>&1 || { echo "no history here"; return 77; }
	tar=$(O=$tmp/dist VERSION=$version packaging/dist.sh 2>/dev/null) &&
		(cd "$tmp/dist/dist" && sha256sum -c "barcopy-$version.tar.xz.sha256") &&
		mkdir "$tmp/dist2" && chmod g+s "$tmp/dist2" && [ "$(O=$tmp/dist2 VERSION=$version packaging/dist.sh 2>/dev/null)" ] &&
		cmp "$tar" "$tmp/dist2/dist/${tar##*/}" && cmp "${tar%.tar.xz}.spdx" "$tmp/dist2/dist/barcopy-$version.spdx" &&
		grep -q "^PackageChecksum: SHA256: $(sha256sum <"$tar" | cut -d' ' -f1)$" "${tar%.tar.xz}.spdx" || return
	[ "$(tar -tf "$tar" | cut -d/ -f1 | sort -u)" = "barcopy-$version" ] || return
	tar -tf "$tar" | grep -qx "barcopy-$version/packaging/rpm/barcopy.spec" &&
		! tar -tf "$tar" | grep -E '\.(o|ko|pyc)$|checkpatch'
}
t "make dist: the same bits, with a checksum and a bill of materials" dist

# Each library that is linked or loaded has an entry in it.
materials() {
	local bill=$tmp/dist/dist/barcopy-$version.spdx name
	[ -e "$bill" ] || { echo "no history here"; return 77; }
	for name in $(git grep -hoE '"lib[a-z-]+\.so\.[0-9]+"' HEAD -- src tools perf | tr -d '"' | sort -u); do
		[ "$name" = libgdrapi.so.2 ] || grep -qw "${name%.so*}" "$bill" || echo "$name is not in the bill of materials"
	done
}
t "the bill of materials names what the library and the tools load" silent materials

# Its directory has one name for each user, so that builds have the same bits: another user cannot end the builds.
rpm_place() {
	local d=$tmp/rpm-place
	have setpriv && [ "$(id -u)" = 0 ] || { echo "needs root and setpriv"; return 77; }
	[ -e "$tmp/dist/dist/barcopy-$version.tar.xz" ] || { echo "no history here"; return 77; }
	mkdir -p "$d/bin" && chmod 755 "$tmp" && mkdir -m 1777 "$d/public" &&
		printf '#!/bin/sh\necho "$3" >>%s\n. %s\n' "$d/places" "$d/then" >"$d/bin/rpmbuild" && chmod +x "$d/bin/rpmbuild" &&
		: >"$d/then" || return
	build() { O=$tmp/dist3 VERSION=$version RPM_WORK=$d/public/work RPM_OUT=$d/out PATH=$d/bin:$PATH packaging/rpm.sh; }
	build
	setpriv --reuid 65534 --regid 65534 --clear-groups mkdir -m 777 "$d/public/work" && build
	rm -rf "$d/public/work" && ln -s "$d/out" "$d/public/work" && build
	# One build waits for another, and gets the lock when another user has made the directory anew.
	rm "$d/public/work"
	cat >"$d/then" <<-END
		[ ! -e $d/public/other ] || return 0
		for i in \$(seq 50); do grep -q -- '-> FLOCK' /proc/locks && break; sleep 0.1; done
		mv $d/public/work $d/public/other && setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'mkdir -m 777 $d/public/work; : >$d/public/work/x'
	END
	build &
	until [ -d "$d/public/work" ]; do sleep 0.1; done
	build
	wait
	ls -A "$d/public" && cat "$d/places"
	sed -i "s#.* $d/public/work##" "$d/places"
	head -n 1 "$d/places" | grep -qx '' && [ "$(sort -u "$d/places" | grep -cxE '\.[A-Za-z0-9]{6}')" = 3 ] &&
		[ "$(grep -cx '' "$d/places")" = 2 ]
}
t "make rpm: what another user has put in the place of its directory" rpm_place

# The address: nowhere while PROJECT_URL is empty, then in every place; a release needs it and a
# tag.
address() {
	local where=https://example.org/barcopy tree=$tmp/published/barcopy-$version
	[ -e "$tmp/dist/dist/barcopy-$version.tar.xz" ] || { echo "no history here"; return 77; }
	mkdir -p "$tmp/unpublished" "$tmp/published"
	tar -xf "$tmp/dist/dist/barcopy-$version.tar.xz" -C "$tmp/unpublished" &&
		! grep -rnE '^(Homepage|Vcs-[A-Za-z]*|URL): ' "$tmp/unpublished" --include=control --include='*.spec' || return
	O=$tmp/dist4 VERSION=$version PROJECT_URL=$where packaging/dist.sh >/dev/null 2>&1 &&
		tar -xf "$tmp/dist4/dist/barcopy-$version.tar.xz" -C "$tmp/published" || return
	[ "$(grep -rlF "$where" "$tree" | wc -l)" -ge 6 ] || { grep -rlF "$where" "$tree"; return 1; }
	[ "$(grep -c "^URL: *$where$" "$tree/packaging/rpm/barcopy.spec")" = 1 ] || return
	python3 -c 'import sys, tomllib; print(tomllib.load(open(sys.argv[1], "rb"))["project"]["urls"]["Homepage"])' \
		"$tree/python/pyproject.toml" | grep -qx "$where" || return
	! O=$tmp/dist5 VERSION=$version RELEASE=1 packaging/dist.sh 2>"$tmp/text" && grep -q PROJECT_URL "$tmp/text" &&
		! O=$tmp/dist5 VERSION=$version PROJECT_URL=barcopy packaging/dist.sh 2>"$tmp/text" && grep -q "not an address" "$tmp/text"
}
t "make dist: an address where PROJECT_URL gives one, and no release without" address

# Settings of the user, of git and of the programs, do not change the bits.
dist_of_anybody() {
	local set
	[ -e "$tmp/dist/dist/barcopy-$version.tar.xz" ] || { echo "no history here"; return 77; }
	echo '*.md export-ignore' >"$tmp/attributes"
	for set in tar.umask=user core.autocrlf=true core.eol=crlf core.attributesFile="$tmp/attributes"; do
		(umask 077 && TAR_OPTIONS=--format=posix XZ_OPT=-0 XZ_DEFAULTS=--check=none GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=${set%=*} GIT_CONFIG_VALUE_0=${set#*=} \
			O=$tmp/dist3 VERSION=$version packaging/dist.sh) >/dev/null 2>&1 &&
			cmp "$tmp/dist/dist/barcopy-$version.tar.xz" "$tmp/dist3/dist/barcopy-$version.tar.xz" ||
			{ echo "$set: other bits"; return 1; }
	done
}
t "make dist: the same bits with another user's settings" dist_of_anybody

# A checkout whose owner is another user, which git refuses to read, or with attributes of its own.
dist_of_clone() {
	local c=$tmp/clone
	[ -e "$tmp/dist/dist/barcopy-$version.tar.xz" ] || { echo "no history here"; return 77; }
	git clone -q . "$c" && cp packaging/dist.sh "$c/packaging/" && echo 'docs export-ignore' >"$c/.git/info/attributes" &&
		cp "$c/.git/info/attributes" "$c/.gitattributes" && (cd "$c" && O=o VERSION=$version packaging/dist.sh) &&
		cmp "$tmp/dist/dist/barcopy-$version.tar.xz" "$c/o/dist/barcopy-$version.tar.xz" || return
	[ "$(id -u)" = 0 ] || return 0
	chown -R 65534:65534 "$c" && echo SECRET >"$c/.env" && rm -r "$c/o" &&
		! (cd "$c" && HOME=/nonexistent O=o VERSION=$version packaging/dist.sh) 2>"$tmp/text" && cat "$tmp/text" &&
		grep -q 'nothing was packed' "$tmp/text" && [ ! -e "$c/o/dist/barcopy-$version.tar.xz" ]
}
t "make dist: a checkout of another user, or with attributes" dist_of_clone

# From the unpacked tarball: the same files, without their modes and without results of a build.
dist_of_tarball() (
	local from=$tmp/dist/dist/barcopy-$version.tar.xz a b
	[ -e "$from" ] || { echo "no history here"; return 77; }
	mkdir -p "$tmp/unpacked" && tar -xf "$from" -C "$tmp/unpacked" &&
		cp packaging/dist.sh "$tmp/unpacked/barcopy-$version/packaging/" && # that of this tree, committed or not
		cd "$tmp/unpacked/barcopy-$version" || return
	mkdir -p build/x python/__pycache__ && touch build/x/y python/__pycache__/z && chmod -R a-w . && chmod u+w . || return
	b=$(O=$tmp/there VERSION=$version packaging/dist.sh) && a=$(O=$PWD/here VERSION=$version packaging/dist.sh) || return
	tar -tvf "$from" | awk '{ print $1, $6 }' | sort >"$tmp/listed"
	tar -tvf "$a" | awk '{ print $1, $6 }' | sort | diff "$tmp/listed" - && cmp "$a" "$b"
)
t "make dist from a tarball: its files, and no build's" dist_of_tarball

# ---- manual pages ----

man=$tmp/root/usr/share/man
nm -D --defined-only "$lib" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort >"$tmp/symbols"

pages_of_symbols() {
	local s
	while read -r s; do
		if [ ! -e "$man/man3/$s.3" ]; then
			echo "$s is exported and has no page"
		elif ! grep -q "^\.Nm $s\b" "$man/man3/$s.3"; then
			echo "the page of $s does not name it"
		elif [ "$s" != gdr_get_info ] && ! grep -q "^\.Fn $s\b" "$man/man3/$s.3"; then
			echo "the page of $s has no synopsis of it"
		fi
	done <"$tmp/symbols"
	for s in "$man"/man3/*.3; do
		s=${s##*/}
		grep -qx "${s%.3}" "$tmp/symbols" || echo "$s: no such symbol"
	done
}
t "every exported symbol has a page, every page a symbol ($(wc -l <"$tmp/symbols") symbols)" silent pages_of_symbols

errnos() {
	local e
	for e in $(sed -n 's/.*\[\(E[A-Z]*\)\].*/\1/p; s/.*Bq Er \(E[A-Z]*\).*/\1/p' "$man"/man3/*.3 | sort -u); do
		grep -qw "$e" include/gdrapi.h include/barcopy.h include/barcopy_queue.h || echo "$e: not an error of the header"
	done
}
t "the pages name errors of the headers only" silent errnos

parameters() {
	local p
	for p in $(sed -n 's/.*module_param_named(\([a-z_0-9]*\),.*/\1/p' gdrdrv/*.c); do
		grep -q "^\.It Cm $p" packaging/man/gdrdrv.4 || echo "gdrdrv(4) lacks parameter $p"
	done
}
t "gdrdrv(4) has every parameter" silent parameters

variables() {
	local v
	for v in $(grep -rhoE '(gdri_env|gdri_env_true|secure_getenv)\("GDRCOPY_[A-Z_]*"' src | sed 's/.*"\(.*\)"/\1/' | sort -u); do
		grep -q "^\.It Ev $v" packaging/man/gdrapi.7 || echo "gdrapi(7) lacks $v"
	done
}
t "gdrapi(7) has every environment variable" silent variables

# The foot of a page names the project: without a name groff puts its own ("BSD").
feet() { ! grep -L '^\.Os barcopy$' "$man"/man[1347]/* | grep .; }
t "the foot of every page names the project" feet

# A reference to a page of the project must find it; those to the system's pages are not looked up.
lint() {
	local ref
	have mandoc || { echo "no mandoc here"; return 77; }
	mandoc -Tlint -Wstyle "$man"/man[1347]/*.[1347] 2>/dev/null | grep -vE 'referenced manual not found|outdated mandoc.db lacks'
	for ref in $(grep -hE '^\.Xr gdr' "$man"/man[1347]/*.[1347] | awk '{ print $2 "." $3 }' | sort -u); do
		[ -e "$man/man${ref##*.}/$ref" ] || echo "no page for the reference $ref"
	done
}
t "mandoc -Tlint has nothing to say" silent lint

# ---- binary interface ----

t "the binary interface is the last release's, with additions at most" tests/packages/abi.sh check "$out"

# Tests the test: it must fail on a symbol that the library lacks, and on one more parameter.
abi_detects() {
	local rc=0
	printf '%s\n' '#include <stdint.h>' 'int gdr_flushed(void) { return 0; }' 'int gdr_close(void *g, int how) { return g && how; }' |
		gcc -g -x c - -shared -fPIC -Wl,-soname,libgdrapi.so.2 -o "$tmp/old.so" || return
	tests/packages/abi.sh check "$out" "$tmp/old.so" >"$tmp/report" || rc=$?
	[ $rc = 77 ] && { cat "$tmp/report"; return 77; }
	[ $rc = 1 ] && grep -q 'gdr_flushed' "$tmp/report" && grep -q 'gdr_close' "$tmp/report"
}
t "a symbol that went and a parameter that came are noticed" abi_detects
t "the library is compatible with itself" tests/packages/abi.sh check "$out" "$lib"

# ---- completion ----

completion() {
	PATH="$PWD/$out:$out:$PATH" bash --norc -c '. packaging/bash-completion/gdrcopy; complete -p gdrcopy_copybw' |
		grep -qx 'complete -F _longopt gdrcopy_copybw'
}
t "bash completion of the tools" completion

# ---- scripts and files ----

scripts() {
	local f
	have shellcheck || { echo "no shellcheck here"; return 77; }
	for f in packaging/*.sh packaging/container/gdrdrv-load packaging/dkms/*.sh packaging/debian/barcopy-dkms.p* tests/packages/*.sh \
		tests/deps.sh tests/check-fresh.sh tests/job tests/report tests/common/*.bash; do
		shellcheck -x -S warning "$f"
	done
}
t "shellcheck of the scripts" silent scripts

# ---- the packages' scripts and the kernel's modules ----

# The scripts as they are installed, of the packages' three formats and of the container
package_scripts() {
	local d=$1 n
	mkdir -p "$d/usr/src/gdrdrv-$version"
	cp packaging/dkms/* gdrdrv/find-nvidia.sh "$d/usr/src/gdrdrv-$version/" && touch "$d/usr/src/gdrdrv-$version/dkms.conf" &&
		cp packaging/container/gdrdrv-load "$d/container" || return
	for n in postinst prerm; do
		sed "s/#VERSION#/$version/" "packaging/debian/barcopy-dkms.$n" >"$d/deb-$n"
	done
	for n in posttrans preun; do
		sed -n "/^%$n dkms/,/^%[a-z]/{/^%[a-z]/d; s/%{_prefix}/\/usr/; s/%{version}/$version/g; p}" \
			packaging/rpm/barcopy.spec >"$d/rpm-$n"
	done
	sed -i -E "s#(^|[ \t=(]\"?)/(sys|proc|usr/src|lib/modules|run)/#\1$d/\2/#g" \
		"$d"/deb-* "$d"/rpm-* "$d/container" "$d/usr/src/gdrdrv-$version/gpu-driver.sh"
}
# A machine where gdrdrv is absent, or loaded and free, busy (an open descriptor) or kept (it has
# pinned by callback). It answers like the kernel and records the calls. "other": another GPU driver
# runs than is installed. "renamed": the GPU driver's file has the name that Debian gives it; "unnamed":
# and no file of modprobe.d tells that.
# "two": another kernel is installed, which has a GPU driver and no gdrdrv; "open", "proprietary": which has a
# proprietary GPU driver and a gdrdrv for that flavour; "sourceless": for whose GPU driver there is no source;
# "broken": which comes after a kernel that gdrdrv cannot be built for.
# "again": the machine is as the row before has left it. "chosen": and the GPU driver's other flavour was chosen, whose
# module is not newer.
machine() { # STATE
	local d=$1 state=$2 name of_old='"-k old "*" gdrdrv") exit 1 ;;'
	case $state in again | chosen)
		: >"$d/calls"
		[ "$state" = again ] || sed -i '1a case "$*" in *"license nvidia") echo NVIDIA && exit ;; esac' "$d/bin/modinfo"
		return
		;;
	esac
	rm -rf "${d:?}"/{sys,proc,calls,bin,lib,run,usr/src/nvidia-580.1}
	mkdir -p "$d/bin" "$d/sys/module/gdrdrv" "$d/sys/module/nvidia" "$d/proc/driver/gdrdrv" "$d/kernels/none/build"
	touch "$d/calls" "$d/kernels/none/build/Makefile"
	[ "$state" != absent ] || rmdir "$d/sys/module/gdrdrv"
	case $state in two | open | proprietary | sourceless | broken) mkdir -p "$d/lib/modules/old/build" ;; esac
	mkdir -p "$d/usr/src/nvidia-580.1/nvidia"
	[ "$state" = sourceless ] || touch "$d/usr/src/nvidia-580.1/nvidia/nv-p2p.h"
	[ "$state" != broken ] || mkdir -p "$d/lib/modules/broken/build"
	echo 580.1 >"$d/sys/module/nvidia/version"
	printf 'Version: 2.6\nKept until the reboot: %s\n' "$([ "$state" = kept ] && echo yes || echo no)" \
		>"$d/proc/driver/gdrdrv/params"
	cat >"$d/bin/kmod" <<-S
		#!/bin/sh
		[ "\$1" != -c ] || { [ $state != renamed ] || echo 'install nvidia modprobe -i nvidia-current \$CMDLINE_OPTS'; exit 0; }
		echo "\${0##*/} \$*" | sed 's# /[^ ]*/# #' >>$d/calls
		case "\${0##*/} \$*" in
		modprobe*-r* | rmmod*)
			case $state in free | other | renamed | unnamed | two) rm -rf '$d/sys/module/gdrdrv' ;; *) exit 1 ;; esac
			case \$* in -*r*) rm -rf '$d/sys/module/nvidia' ;; esac # nothing else uses it
			;;
		*) mkdir -p $d/sys/module/gdrdrv ;;
		esac
	S
	case $state in
	open) of_old='*"license nvidia") echo NVIDIA ;; *"license gdrdrv") echo "Dual MIT/GPL" ;;' ;;
	proprietary) of_old='*"license nvidia") echo NVIDIA ;; *"license gdrdrv") echo MIT ;;' ;;
	broken) of_old='*" gdrdrv") exit 1 ;;' ;;
	esac
	printf '#!/bin/sh\ncase "$*" in %s *" %s" | *" gdrdrv") echo %s ;; *) exit 1 ;; esac\n' "$of_old" \
		"$(case $state in renamed) echo nvidia-current ;; unnamed) echo char-major-195-0 ;; *) echo nvidia ;; esac)" \
		"$([ "$state" = other ] && echo 570.1 || echo 580.1)" >"$d/bin/modinfo"
	printf '#!/bin/sh\n[ "$1" = -C ] || exit 0\ntouch "${3#O=}/gdrdrv.ko"\n' >"$d/bin/make"
	printf '#!/bin/sh\nkill -TERM $PPID\n' >"$d/bin/sleep" # the container is stopped
	printf '#!/bin/sh\n[ "$1" != install ] || echo "${DPKG_MAINTSCRIPT_PACKAGE}dkms $*" >>%s\n' "$d/calls" >"$d/bin/dkms"
	echo 'case "$*" in "install "*" broken "*) exit 1 ;; esac' >>"$d/bin/dkms"
	chmod +x "$d"/bin/*
	for name in modprobe rmmod insmod; do ln -sf kmod "$d/bin/$name"; done
	printf '#!/bin/sh\n' >"$d/bin/depmod" && chmod +x "$d/bin/depmod"
}
scripts_and_kernel() {
	local d=$tmp/scripts script args state want said triggered
	package_scripts "$d" || return
	while IFS='|' read -r script args state want said; do
		machine "$d" "$state"
		# DKMS may have the initramfs made: not as a part of the trigger, which would come again.
		triggered=
		[ "${args%% *}" != triggered ] || triggered="triggered: "
		# shellcheck disable=SC2086
		PATH=$d/bin:$PATH DPKG_MAINTSCRIPT_PACKAGE=$triggered GDRDRV_ROOT=$d KERNEL=none MODULES=$d/kernels NODE_LIB=/none GDRDRV=/none \
			sh "$d/$script" $args >"$d/said" 2>&1 ||
			echo "$script $args, $state: exit code $?"
		[ "$(paste -sd';' "$d/calls")" = "$want" ] || echo "$script $args, $state: asked: $(paste -sd';' "$d/calls")"
		[ -d "$d/sys/module/nvidia" ] || echo "$script $args, $state: the GPU driver was unloaded"
		grep -q "${said:-}" "$d/said" || [ -z "$said" ] || echo "$script $args, $state: said: $(cat "$d/said")"
	done <<-'TABLE'
		deb-postinst|configure|free|rmmod gdrdrv;modprobe -q gdrdrv|
		deb-postinst|configure|absent|modprobe -q -b gdrdrv|
		deb-postinst|configure|renamed|rmmod gdrdrv;modprobe -q gdrdrv|
		deb-postinst|configure|unnamed|rmmod gdrdrv;modprobe -q gdrdrv|
		deb-postinst|configure|two|rmmod gdrdrv;modprobe -q gdrdrv|
		deb-postinst|configure 2|two|dkms install gdrdrv/ -k old --force;rmmod gdrdrv;modprobe -q gdrdrv|
		deb-postinst|configure|other|rmmod gdrdrv|
		deb-postinst|configure|busy|rmmod gdrdrv|in use.* until the next restart
		deb-postinst|configure|kept||free callbacks.* until the next restart
		deb-postinst|abort-remove|free|rmmod gdrdrv;modprobe -q gdrdrv|
		deb-postinst|abort-upgrade 2|free||
		deb-postinst|abort-upgrade 2|two|dkms install gdrdrv/ -k old --force|
		deb-postinst|triggered update-initramfs|two|dkms install gdrdrv/ -k old --force|
		deb-postinst|triggered update-initramfs|open|dkms install gdrdrv/ -k old --force|
		deb-postinst|triggered update-initramfs|proprietary||
		deb-postinst|triggered update-initramfs|broken|dkms install gdrdrv/ -k broken --force;dkms install gdrdrv/ -k old --force|
		deb-postinst|triggered update-initramfs|again|dkms install gdrdrv/ -k old --force|
		deb-postinst|triggered update-initramfs|chosen|dkms install gdrdrv/ -k broken --force;dkms install gdrdrv/ -k old --force|
		deb-postinst|triggered /usr/src|again|dkms install gdrdrv/ -k broken --force;dkms install gdrdrv/ -k old --force|
		deb-postinst|triggered update-initramfs|sourceless||
		deb-postinst|triggered /usr/src|sourceless|dkms install gdrdrv/ -k old --force|
		deb-prerm|remove|free|rmmod gdrdrv|
		deb-prerm|remove|busy|rmmod gdrdrv|in use
		deb-prerm|remove|kept||free callbacks.* until the next restart
		deb-prerm|upgrade 2|free||
		rpm-posttrans|1|free|rmmod gdrdrv;modprobe -q gdrdrv|
		rpm-posttrans|1|busy|rmmod gdrdrv|in use
		rpm-posttrans|1|kept||free callbacks.* until the next restart
		rpm-preun|0|free|rmmod gdrdrv|
		rpm-preun|0|kept||free callbacks.* until the next restart
		rpm-preun|1|free||
		container||free|rmmod gdrdrv;insmod gdrdrv.ko;rmmod gdrdrv|
		container||busy|rmmod gdrdrv;rmmod gdrdrv|in use
		container||kept||free callbacks.* until the node restarts
	TABLE
}
t "the packages' scripts unload gdrdrv where it is free, and never once it has pinned by callback" silent scripts_and_kernel

# Image tests run `dpkg -l | grep gdrcopy`.
say_gdrcopy() {
	! grep -h '^Description: ' packaging/debian/control | grep -vE 'gdrcopy.*- ' &&
		! grep '^Summary: ' packaging/rpm/barcopy.spec | grep -v GDRCopy
}
t "each package's summary names GDRCopy" say_gdrcopy

# ---- SECURITY.md ----

# Each test that its table names has the case; each ioctl and control of rm is in its list.
security_page() {
	local part n
	while read -r part; do
		[ -e "${part%% *}" ] || echo "there is no ${part%% *}"
		grep -oE '"[^"]+"' <<<"$part" | while read -r n; do
			grep -qF -- "$(tr -d '"' <<<"$n")" "${part%% *}" || echo "${part%% *} has no case $n"
		done
	done < <(sed -n '/^| claim/,/^$/s/^| [^|]* | \(`.*\) |$/\1/p' SECURITY.md | tr ',' '\n' | grep '`' | tr -d '`' | sed 's/^ *//')
	for n in $(grep -oE '\bRM_IOC\((0x)?[0-9a-f]+|RM_(CONTROL_[A-Z0-9_]+|EXPORT_NUMBER)[[:space:]]+(0x)?[0-9a-f]+' src/abi/rm.h | sed 's/.*[( \t]//'); do
		grep -qw -- "$n" SECURITY.md || echo "rm's call $n is not in SECURITY.md"
	done
}
t "SECURITY.md: each test that it names is there, and each call of rm is named" silent security_page

no_mknod() { ! grep -rnE '\b(mknod|chkconfig|/etc/init\.d)\b' packaging --exclude-dir=man; }
t "nothing runs mknod or an init script" no_mknod

cdi() {
	python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["cdiVersion"] and d["kind"] and d["devices"]' \
		packaging/container/barcopy-cdi.json
}
t "the CDI example is JSON of that form" cdi

pc_file() {
	have pkg-config || { echo "no pkg-config here"; return 77; }
	PKG_CONFIG_PATH=$tmp/root/usr/lib/test/pkgconfig pkg-config --validate libgdrapi &&
		[ "$(PKG_CONFIG_PATH=$tmp/root/usr/lib/test/pkgconfig pkg-config --modversion libgdrapi)" = "$version" ]
}
t "libgdrapi.pc is valid" pc_file

# CMake: an imported target exists below the directory that finds it.
cmake_project() { # SUBDIRECTORY's lines...
	local n=0 lines
	rm -rf "$tmp/project"
	mkdir -p "$tmp/project"
	{
		echo 'cmake_minimum_required(VERSION 3.16)'
		echo 'project(directories C)'
		for lines; do
			n=$((n + 1))
			mkdir "$tmp/project/$n"
			echo "$lines" >"$tmp/project/$n/CMakeLists.txt"
			echo "add_subdirectory($n)"
		done
	} >"$tmp/project/CMakeLists.txt"
	cmake -S "$tmp/project" -B "$tmp/project/out" -Dbarcopy_DIR="$tmp/root/usr/lib/test/cmake/barcopy"
}
cmake_directories() {
	local use='find_package(barcopy 2.6 REQUIRED)
		find_package(barcopy REQUIRED)
		file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/x.c "#include <gdrapi.h>\nint main(void) { return 0; }\n")
		foreach(which gdrapi gdrapi_static)
			add_executable(x_${n}_${which} ${CMAKE_CURRENT_BINARY_DIR}/x.c)
			target_link_libraries(x_${n}_${which} PRIVATE barcopy::${which})
		endforeach()'
	have cmake || { echo "no cmake here"; return 77; }
	cmake_project "set(n 1)
		$use" "set(n 2)
		$use"
}
t "CMake: two directories that both look for barcopy" cmake_directories
cmake_ranges() {
	local range
	have cmake || { echo "no cmake here"; return 77; }
	for range in 2.0 2.6 2.6.0 2.0...2.9 2.6...2.6 2.0...3 2.0...3.0 1.0...2.6; do
		cmake_project "find_package(barcopy $range REQUIRED)" || { echo "$range was refused"; return 1; }
	done
	for range in 1.0 2.7 3 '2.0...<2.6' 2.0...2.5 2.7...2.9 3...4 1...1.9; do
		! cmake_project "find_package(barcopy $range REQUIRED)" || { echo "$range was accepted"; return 1; }
	done
}
t "CMake: versions and ranges of versions" cmake_ranges

finish
