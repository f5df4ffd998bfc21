#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Which build and installation directories are valid, and when make builds a file again. It builds
# single files, in a copy of the source.
# shellcheck source=tests/common/build.bash
set -- "${1:-build}"
. "$(dirname "$0")/../common/build.bash"

copy_source
src=$tmp/src
in_src() { make -C "$src" --no-print-directory "$@" >"$tmp/log" 2>&1; }
sources() { (cd "$src" && find . -type f | LC_ALL=C sort | xargs cksum); }
sources >"$tmp/before"

# ---- invalid directories ----

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

# clean removes a whole directory: it must hold a build and nothing else.
taken=
for o in . "$src" src .. "$tmp/" tests/build; do
	! in_src O="$o" clean && grep -q 'not removed' "$tmp/log" || taken+=" $o"
	[ -e "$src/Makefile" ] || copy_source
done
[ -z "$taken" ] && sources | cmp -s - "$tmp/before"
ok "make clean removes no source: O= the tree, a part of it, a directory around it"

# ---- files of others ----

listing() { ls -lR --time-style=full-iso "$@"; }

# Beside this tree and in it are files that the parts of its path name.
spaced="$tmp/x y/src"
mkdir "$tmp/x y" && cp -R "$src" "$spaced" && mkdir -p "$spaced/y/src/build/results"
touch "$tmp/x" "$tmp/x.o" "$spaced/y/src/build/results/x.result"
kept=("$tmp/x" "$tmp/x.o" "$spaced/y")
listing "${kept[@]}" >"$tmp/kept"
in_spaced() { timeout 60 make -C "$@" --no-print-directory >"$tmp/log" 2>&1; }
works=
for target in 'check TESTS=none' clean '-n check-ci' '-n check-full' '-n check-fresh' '-n check-kernel' '-n native.build' '-n driver' '-n wheel'; do
	# shellcheck disable=SC2086 # words for make
	! in_spaced "$spaced" $target && grep -qE ' works in no directory whose path has a space' "$tmp/log" || works+=" $target"
done
! in_spaced "$spaced/gdrdrv" clean && grep -q 'whose paths have no space' "$tmp/log" || works+=" gdrdrv/clean"
[ -z "$works" ] && listing "${kept[@]}" | cmp - "$tmp/kept"
ok "in a tree whose path has a space the targets that remove files fail, and remove nothing${works:+:$works}"
in_spaced "$spaced" LIB_SRCS=src/base/struct_size.c LIB_LDFLAGS= CFLAGS=-O0 DESTDIR="$tmp/dest" prefix=/p lib_install &&
	test -e "$tmp/dest/p/lib/libgdrapi.so.2.6" && listing "${kept[@]}" | cmp - "$tmp/kept"
ok "... and the library is built and installed"

# A directory of the user's, taken for builds.
mkdir -p "$tmp/home/results/x" && touch "$tmp"/home/{results/x/notes.log,main.c,Makefile,x.o}
listing "$tmp/home" | grep -v ^total >"$tmp/kept"
! BARCOPY_CACHE=$tmp/none in_src MAKE=true O="$tmp/home" check
! make -C "$src/gdrdrv" O="$tmp/home" KDIR="$src" NVIDIA_SRC="$src/gdrdrv/rig/include/580" FLAVOR=open link >"$tmp/log" 2>&1 && grep -q 'has a main.c that is no link' "$tmp/log" &&
	make -C "$src/gdrdrv" O="$tmp/home" clean >"$tmp/log" 2>&1 && rm -r "$tmp/home/kernel" &&
	listing "$tmp/home" | grep -v ^total | diff "$tmp/kept" -
ok "make check, make driver and the driver's make clean remove no file of others"

# Packages' builds export theirs to the tests, and with some of them, as -flto, -Werror and some tests fail.
printf '#!/bin/sh\nenv | grep -E "^(C|CPP|LD)FLAGS=" >>%s\n' "$tmp/given" >"$tmp/fake-make" && chmod +x "$tmp/fake-make"
! BARCOPY_CACHE=$tmp/none CFLAGS=-flto CPPFLAGS=-DX LDFLAGS=-s in_src MAKE="$tmp/fake-make" O="$tmp/checked" check
[ -e "$tmp/given" ] && [ ! -s "$tmp/given" ]
ok "make check takes no flags from the environment"

# ---- what make builds again ----

o=$tmp/o
built=$o/src/base/struct_size.o
# builds|keeps WORDS FOR make...: make builds the object again, or keeps it
builds() { rm -f "$tmp/was" && { [ ! -e "$built" ] || ln "$built" "$tmp/was"; } && in_src O="$o" "$@" "$built" && ! [ "$built" -ef "$tmp/was" ]; }
keeps() { rm -f "$tmp/was" && ln "$built" "$tmp/was" && in_src O="$o" "$@" "$built" && [ "$built" -ef "$tmp/was" ]; }
builds CFLAGS=-O0 && keeps CFLAGS=-O0 && keeps CFLAGS=-O0 V=1 DESTDIR=/x prefix=/y && CFLAGS=-O0 keeps
ok "a second make does nothing, also with variables that change no file"
rm -rf "$o"
in_src O="$o" CFLAGS=-O0 "$o/tests/common/again.o" "$o/src/copy/words.o" "$built" && keeps CFLAGS=-O0
ok "nor after an object with flags of its own"
builds CFLAGS=-O1 && builds CFLAGS=-O0 CPPFLAGS=-DX && builds CFLAGS=-O0 LDFLAGS=-s &&
	builds CFLAGS=-O0 SANITIZE=undefined && builds CFLAGS=-O0 CC='gcc -pipe' && builds CFLAGS=-O0
ok "other flags, or another compiler: built again, both ways"
sed -i.was 's/^VERSION := .*/VERSION := 9.9.9/' "$src/Makefile" && builds CFLAGS=-O0 && mv "$src/Makefile.was" "$src/Makefile" &&
	builds CFLAGS=-O0 && builds CFLAGS=-O0 LIB_SRCS=src/base/struct_size.c && builds CFLAGS=-O0
ok "another version, or other sources: built again"
# flags WORDS FOR make...: of one compilation
flags() { rm -rf "$tmp/f" && in_src -n V=1 O="$tmp/f" "$@" "$tmp/f/src/base/struct_size.o" && grep -- ' -c ' "$tmp/log" >"$tmp/flags"; }
flags && grep -q 'stack-protector-strong .*-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2' "$tmp/flags" && flags CFLAGS=-O0 &&
	! grep -q FORTIFY "$tmp/flags" && flags CFLAGS=-g && ! grep -q FORTIFY "$tmp/flags" && flags SANITIZE=address &&
	! grep -qE -- '-D_FORTIFY|protector' "$tmp/flags" && flags CPPFLAGS=-D_FORTIFY_SOURCE=3 && [ "$(grep -o FORTIFY "$tmp/flags" | wc -l)" = 1 ] &&
	flags CFLAGS='-O2 -fno-stack-protector' && ! grep -q protector-strong "$tmp/flags"
ok "a build is hardened; not with -O0, a sanitizer or options of its own"
in_src -n V=1 O="$o" CFLAGS=-O1 install && ! grep -qE -- "-o $built\.part " "$tmp/log"
ok "make install alone takes the existing build, whatever the flags"
touch "$src/src/base/struct_size.h" && builds CFLAGS=-O0
ok "a header that changed"
touch "$src/src/base/struct_size.h" && o=$tmp/./o && built=$o/src/base/struct_size.o && builds CFLAGS=-O0 && keeps CFLAGS=-O0
ok "the same in a build whose directory had another name before: make check's is absolute"

# An interrupted linker or archiver leaves no file that looks finished.
printf '#!/bin/sh\necho half >"$2"\nexit 1\n' >"$tmp/half-ar" && chmod +x "$tmp/half-ar"
! in_src O="$o" LIB_SRCS=src/base/struct_size.c AR="$tmp/half-ar" "$o/libgdrapi.a" && test ! -e "$o/libgdrapi.a"
ok "a partial archive is removed"

# The compiler and make are killed (out of memory) when the assembler has just begun.
mkdir "$tmp/bin" && printf '#!/bin/sh\nfor a; do\n\t[ "$last" != -o ] || : >"$a"\n\t[ "$last" != -MF ] || echo half >"$a"\n\tlast=$a\ndone
case " $* " in *" -c "*) kill -KILL 0 ;; esac\nPATH=%s exec %s "$@"\n' "$PATH" "$(command -v gcc)" >"$tmp/bin/gcc" && chmod +x "$tmp/bin/gcc"
rm -rf "$o"
{ ! PATH=$tmp/bin:$PATH setsid -w make -C "$src" O="$o" CC=gcc CFLAGS=-O0 "$built" >"$tmp/log"; } 2>/dev/null &&
	in_src O="$o" CC=gcc CFLAGS=-O0 "$built" && test -s "$built" && keeps CC=gcc CFLAGS=-O0
ok "a killed compilation starts again"

in_src O="$o" CPPFLAGS='-D_GNU_SOURCE -D_FILE_OFFSET_BITS=64' "$built"
ok "a packager's own -D_GNU_SOURCE"

sources | cmp -s - "$tmp/before"
ok "the source tree is as it was"
in_src O="$o" clean && test ! -e "$o" && in_src O="$tmp/never" clean
ok "make clean removes a build, and succeeds without one"
finish
