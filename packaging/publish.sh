#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes the project's address into a source tree. Without it, no file has an address.
#   publish.sh DIRECTORY URL
set -eu
cd "$1"
url=${2%/}
case $url in
*[!A-Za-z0-9:/._~-]*) url= ;;
https://?*) ;;
*) url= ;;
esac
[ "$url" ] || { echo "publish: PROJECT_URL=$2 is not an address like https://example.org/barcopy" >&2; exit 1; }

# fill FILE EXPRESSION: edits the file; fails if the expression changes nothing.
fill() {
	cp -p "$1" "$1.before"
	sed -i "$2" "$1"
	! cmp -s "$1" "$1.before" || { echo "publish: nothing to fill in $1" >&2; exit 1; }
	touch -r "$1.before" "$1"
	rm "$1.before"
}
fill SECURITY.md "s|the security reports of the repository's issue tracker|the security reports of [the issue tracker]($url/security)|"
fill MAINTAINERS.md "s|^Repository, issue tracker and downloads: .*|Repository: $url, issue tracker: [$url/issues]($url/issues).|"
fill CITATION.cff "\$a repository-code: $url"
fill packaging/debian/control "s|^Rules-Requires-Root:|Homepage: $url\nVcs-Browser: $url\n&|"
fill packaging/rpm/barcopy.spec "s|^License: *MIT$|&\nURL:            $url|"
fill python/pyproject.toml "\$s|\$|\n\n[project.urls]\nHomepage = \"$url\"|"
