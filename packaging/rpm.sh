#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the RPM packages of the last commit into O/rpm.
#   RPM_OUT=dir   another place than O/rpm
#   RPM_WORK=dir  another place for the build than /var/tmp/barcopy-rpm-USER_NUMBER
# On Debian it does not check build requirements, sets the library directory itself, and builds no
# debugging packages.
set -eu
cd "$(dirname "$0")/.."
. tests/common/progress.sh

if ! command -v rpmbuild >/dev/null; then
	echo "rpm: no rpmbuild here (package rpm or rpm-build)" >&2
	exit 77
fi
tarball=$(packaging/dist.sh)
SOURCE_DATE_EPOCH=$(cat "$(dirname "$tarball")/epoch")
export SOURCE_DATE_EPOCH

out=${RPM_OUT:-$O/rpm}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# The source package's header has the build's paths, and the binary packages have that header's
# checksum. So every build uses the same directory, which only this user can write. It is its own lock: who waits
# for it looks again at what has the name then, since the builder before removes it, and another user may make one.
work=${RPM_WORK:-/var/tmp/barcopy-rpm-$(id -u)}
while :; do
	(umask 077 && mkdir -p "$work") 2>/dev/null || :
	if [ ! -d "$work" ] || [ -L "$work" ] || [ ! -O "$work" ] || [ ! -r "$work" ] ||
	   [ "$(find "$work/." -maxdepth 0 -perm /022)" ]; then
		echo "rpm: $work is not this user's alone: these packages have other bits than those built there" >&2
		work=$(mktemp -d "$work.XXXXXX")
	fi
	{ command exec 9<"$work/."; } 2>/dev/null || continue # removed just now
	flock -n 9 || { echo "rpm: waits for the build that uses $work" >&2 && flock 9; }
	# shellcheck disable=SC3013 # dash has it
	[ ! "$work" -ef /proc/self/fd/9 ] || [ -L "$work" ] || [ ! -O "$work" ] || break
done
trap 'rm -rf "$work"/[A-Z]*; rmdir "$work"' EXIT
rm -rf "$work"/[A-Z]*
# The package's build is a make of its own: it takes neither options nor variables of this one.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL V CC AR CFLAGS CPPFLAGS LDFLAGS SANITIZE CROSS_COMPILE
unset O TAR_OPTIONS XZ_OPT XZ_DEFAULTS
# The source package has the modes of these two files.
mkdir "$work/SOURCES" "$work/SPECS"
install -m 644 "$tarball" "$work/SOURCES/"
install -m 644 packaging/rpm/barcopy.spec "$work/SPECS/"

set -- --define "_topdir $work" --define "_buildhost localhost" \
	--define 'use_source_date_epoch_as_buildtime 1' \
	--define 'clamp_mtime_to_source_date_epoch 1'
if [ -e /etc/debian_version ]; then
	set -- "$@" --nodeps --define '_libdir /usr/lib64' --define 'debug_package %{nil}' \
		--define "optflags -O2 -g" \
		--define 'build_ldflags -Wl,-z,relro -Wl,-z,now'
fi
progress rpm "$out/build.log" rpmbuild -ba "$@" "$work/SPECS/barcopy.spec" || {
	tail -n 30 "$out/build.log" >&2
	echo "rpm: failed; the whole log: $out/build.log" >&2
	exit 1
}
find "$out" -name '*.rpm' -delete
find "$work/RPMS" "$work/SRPMS" -name '*.rpm' -exec mv {} "$out/" \;
ls "$out"/*.rpm
