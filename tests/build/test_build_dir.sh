#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What the build directory and those of the installation may be.
# Takes no argument.
# shellcheck source=tests/common/build.bash
set -- "${1:-build}"
. "$(dirname "$0")/../common/build.bash"

copy_source
src=$tmp/src
in_src() { make -C "$src" --no-print-directory "$@" >"$tmp/log" 2>&1; }
sources() { (cd "$src" && find . -type f | LC_ALL=C sort | xargs cksum); }
sources >"$tmp/before"

# ---- directories that would not be what they seem ----

# A path with a space is two words to make: two targets, two files to remove.
for variable in O DESTDIR prefix libdir bindir includedir mandir docdir; do
	! in_src -n "$variable=$tmp/a b" all && grep -q "$variable=$tmp/a b: .*space" "$tmp/log"
	ok "$variable with a space is refused, by name"
done
touch "$tmp/a"
! in_src uninstall "DESTDIR=$tmp/a b" && test -e "$tmp/a"
ok "uninstall with a space in DESTDIR removes nothing"
! in_src -n O= lib && grep -q 'O=: ' "$tmp/log"
ok "O= without a directory is refused: not the root directory"

# The directory goes as a whole: it must be one that holds a build and nothing else.
taken=
for o in . "$src" src tests/build .. "$tmp/"; do
	! in_src O="$o" clean && grep -q 'holds more than a build' "$tmp/log" || taken+=" $o"
	[ -e "$src/Makefile" ] || copy_source
done
[ -z "$taken" ] && sources | cmp -s - "$tmp/before"
ok "make clean removes no source: O= the tree, a part of it, what it lies in"
mkdir -p "$src/build/x" "$tmp/elsewhere/x" && in_src clean && in_src O="$tmp/elsewhere" clean &&
	test ! -e "$src/build" && test ! -e "$tmp/elsewhere" && in_src clean && in_src O="$tmp/never" clean
ok "make clean removes a build, in the tree and elsewhere, and is content without one"

sources | cmp -s - "$tmp/before"
ok "the source tree is as it was"
finish
