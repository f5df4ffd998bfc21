#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes the Makefile's version, and the date of the CHANGELOG's last release, into the other files that state them.
#   version.sh [TREE]
set -eu
cd "${1:-.}"
version=$(sed -n 's/^VERSION := //p' Makefile)
date=$(sed -n 's/^## \[[0-9.]*\] - //p' CHANGELOG.md | head -n 1)
on() { LC_ALL=C date -u -d "$date 12:00" "+$1"; }

# fill EXPRESSION FILE: fails where the file has nothing of the form.
fill() {
	[ "$(sed -nE "$1;t found;b;:found;p" "$2")" ] || { echo "version: nothing to fill in $2" >&2; exit 1; }
	sed -i -E "$1" "$2"
}
fill "s/^version: .*/version: $version/" CITATION.cff
fill "s/^date-released: .*/date-released: $date/" CITATION.cff
fill "s/^version = \".*\"/version = \"$version\"/" python/pyproject.toml
fill "s/^__version__ = \".*\"/__version__ = \"$version\"/" python/barcopy/__init__.py
fill "s/(image: barcopy-driver:).*/\1$version/" packaging/container/gdrdrv-daemonset.yaml
fill "s|(dkms install gdrdrv/)[0-9.]*[0-9]|\1$version|" docs/driver.md
fill "s/^(Version: *).*/\1$version/" packaging/rpm/barcopy.spec
fill "s/^(%global level ).*/\1${version%.*}/" packaging/rpm/barcopy.spec
# The newest entry of each changelog is this release's.
fill "0,/^\*/s/^\* .* (The barcopy.* - ).*(-[0-9]+)\$/* $(on '%a %b %d %Y') \1$version\2/" packaging/rpm/barcopy.spec
fill "1s/\(.*(-[0-9]+)\)/($version\1)/" packaging/debian/changelog
fill "0,/^ --/s/^( -- .*>  ).*/\1$(on '%a, %d %b %Y %T +0000')/" packaging/debian/changelog
for page in gdrapi.7 gdrdrv.4; do
	fill "s/^\.Dd .*/.Dd $(on '%B %-d, %Y')/" "packaging/man/$page"
done
