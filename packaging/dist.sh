#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes O/dist/barcopy-VERSION.tar.xz of the last commit, the same bits each time, and its
# checksum and its bill of materials (SPDX 2.3: the source has no other project's). An unpacked tarball has no history:
# there it packs the tree. Where git refuses a checkout (another user's), it fails: untracked files may be secrets.
#   PROJECT_URL=https://...   filled into the tree (publish.sh)
#   RELEASE=1                 for publication: needs PROJECT_URL and the tag vVERSION on the commit
set -eu
cd "$(dirname "$0")/.."
. tests/common/progress.sh

for tool in xz python3; do
	command -v $tool >/dev/null || { echo "dist: no $tool here (package xz-utils, python3)" >&2; exit 77; }
done
# Programs read options in these, which would change the bits.
unset TAR_OPTIONS XZ_OPT XZ_DEFAULTS
dir=$O/dist
name=barcopy-$VERSION
mkdir -p "$dir"
if [ -n "${RELEASE:-}" ]; then
	[ -n "${PROJECT_URL:-}" ] || { echo "dist: a release has an address: set PROJECT_URL=" >&2; exit 1; }
	[ "$(git tag --points-at HEAD "v$VERSION" 2>/dev/null)" ] ||
		{ echo "dist: a release is tagged: this commit has no tag v$VERSION" >&2; exit 1; }
fi
tree=$(mktemp -d "$dir/tree.XXXXXX")
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/$name"
if [ -e .git ]; then
	commit=$(git rev-parse --verify HEAD) && [ "$(git rev-parse --show-toplevel)" = "$(pwd -P)" ] ||
		{ echo "dist: git does not read this checkout: nothing was packed" >&2; exit 1; }
	[ -z "$(git status --porcelain --untracked-files=no)" ] ||
		echo "dist: uncommitted changes are not in the tarball" >&2
	epoch=$(git log -1 --format=%ct)
	# In a repository of its own with these objects: the attributes and settings of this one, of the user and of
	# the system would change the files.
	git init -q --bare --template= "$tree/git"
	(cd "$(git rev-parse --git-path objects)" && pwd) >"$tree/git/objects/info/alternates"
	env -i PATH="$PATH" HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_ATTR_NOSYSTEM=1 \
		git --git-dir="$tree/git" archive "$commit"
else
	echo "dist: no history here: all files of this directory are packed" >&2
	epoch=$(stat -c %Y LICENSE)
	# Results of builds are left out.
	tar --exclude="./$(realpath -m --relative-to=. "$O")" --exclude=./build --exclude=./.git --exclude=./debian \
		--exclude=__pycache__ -c .
fi >"$tree/$name.tar"
tar -xf "$tree/$name.tar" -C "$tree/$name"
[ -z "${PROJECT_URL:-}" ] || packaging/publish.sh "$tree/$name" "$PROJECT_URL"
rm -f "$tree/$name/docs/index.html" # of a tarball
python3 -B "$tree/$name/docs/page/make.py" >"$tree/page"
mv "$tree/page" "$tree/$name/docs/index.html"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --mode=u+rw,go=rX,a-s \
	--format=gnu -cf "$tree/$name.tar" -C "$tree" "$name"
progress dist "$tree/log" xz -T1 -6 -f "$tree/$name.tar"
mv -f "$tree/$name.tar.xz" "$dir/" # whole: make may run this twice at the same time
(cd "$dir" && sha256sum "$name.tar.xz" >"$name.tar.xz.sha256")
sum=$(cut -d' ' -f1 "$dir/$name.tar.xz.sha256")
# component SPDX-ID NAME VERSION LICENSE FIELD...
component() {
	printf '\nPackageName: %s\nSPDXID: SPDXRef-%s\nPackageVersion: %s\nPackageLicenseDeclared: %s\n' "$2" "$1" "$3" "$4"
	printf 'PackageLicenseConcluded: %s\nPackageDownloadLocation: %s\nPackageCopyrightText: %s\n' "$4" "${5:-NOASSERTION}" "${6:-NOASSERTION}"
	echo "FilesAnalyzed: false"
}
{
	printf 'SPDXVersion: SPDX-2.3\nDataLicense: CC0-1.0\nSPDXID: SPDXRef-DOCUMENT\nDocumentName: %s\n' "$name"
	printf 'DocumentNamespace: urn:sha256:%s\nCreator: Organization: barcopy\nCreated: %s\n' "$sum" \
		"$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)"
	component barcopy barcopy "$VERSION" "MIT AND (MIT OR GPL-2.0-only)" "${PROJECT_URL:-}" "<text>$(grep ^Copyright LICENSE)</text>"
	printf 'PackageFileName: %s\nPackageChecksum: SHA256: %s\n' "$name.tar.xz" "$sum"
	component libc "C library" NOASSERTION NOASSERTION
	component libcuda "NVIDIA driver: libcuda and, for BAR1, libnvidia-ml, by dlopen" NOASSERTION NOASSERTION
	printf '\nRelationship: SPDXRef-DOCUMENT DESCRIBES SPDXRef-barcopy\n'
	printf 'Relationship: SPDXRef-barcopy DYNAMIC_LINK SPDXRef-libc\n'
	printf 'Relationship: SPDXRef-libcuda OPTIONAL_DEPENDENCY_OF SPDXRef-barcopy\n'
} >"$dir/$name.spdx"
echo "$epoch" >"$dir/epoch"
echo "$dir/$name.tar.xz"
