#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# make install, uninstall and O=: the place of each file, nothing left, nothing in the source tree;
# and a build with a compiler and nothing else.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

copy_source
# In a tree whose path has a space, beside a file that the first half names.
src="$tmp/a b/src"
mkdir "$tmp/a b" && mv "$tmp/src" "$src" && touch "$tmp/a"

tree() { (cd "$1" && find . ! -type d | LC_ALL=C sort); }

before=$(tree "$src")
# No Check, no CUDA, no pkg-config: only the compiler, make and the shell's tools.
mkdir -p "$tmp/bin"
for t in gcc cc ld as ar ranlib nm make sh bash mkdir rm ln find sed awk grep cat cp uname dirname \
	basename tr printf sort install test env true false expr cut head tail cksum mv; do
	p=$(type -P "$t") && ln -s "$p" "$tmp/bin/$t"
done
PATH=$tmp/bin make -C "$src" --no-print-directory O="$tmp/o" all >"$tmp/log" 2>&1 || tail -n 20 "$tmp/log"
test -f "$tmp/o/libgdrapi.so.2.6"
ok "make O=dir with a compiler and nothing else"
test "$before" = "$(tree "$src")"
ok "make O=dir leaves the source tree as it was"

make -C "$src" --no-print-directory -n O="$tmp/fresh" install >/dev/null
ok "make install where nothing was built"

dest=$tmp/dest
into() { # into TARGET... [VARIABLE=...]: by make, from the copy, below $dest
	make -C "$src" --no-print-directory O="$tmp/o" DESTDIR="$dest" prefix=/opt/x "$@" >"$tmp/log" 2>&1 ||
		{ tail -n 20 "$tmp/log"; return 1; }
}
into -n V=1 install && ! grep -E '(^| )(gcc|cc|ld|ar) ' "$tmp/log"
ok "make install links nothing"
into install libdir=/opt/x/lib64
ok "make install DESTDIR= prefix= libdir="
! grep -vE '^  INSTALL  '"$dest"'/[^ ]*$|^  MAN  ' "$tmp/log" && [ "$(sort -u "$tmp/log" | wc -l)" = "$(wc -l <"$tmp/log")" ]
ok "make install prints a line a directory"
! readelf -d "$dest"/opt/x/bin/gdrcopy_* | grep -E '(RUNPATH|RPATH).*\$ORIGIN(:|\])' &&
	readelf -d "$dest/opt/x/bin/gdrcopy_doctor" | grep -q 'RUNPATH.*\[$ORIGIN/../lib:'
ok "an installed tool looks for the library in lib, never beside itself"
tools=$(make -C "$src" --no-print-directory -pn O="$tmp/o" 2>/dev/null |
	sed -nE 's/^TOOLS :?= *//p' | tr ' ' '\n' | sed '/^$/d; s|.*/||')
{
	for f in barcopy.h barcopy_queue.cuh barcopy_queue.h gdrapi.h gdrconfig.h; do echo "./opt/x/include/$f"; done
	for f in libgdrapi.a libgdrapi.so libgdrapi.so.2 libgdrapi.so.2.6 pkgconfig/libgdrapi.pc \
		cmake/barcopy/barcopy-config.cmake cmake/barcopy/barcopy-config-version.cmake; do
		echo "./opt/x/lib64/$f"
	done
	# The tools, and those names of GDRCopy's that programs and checks call.
	for t in $tools apiperf copybw copylat pplat sanity; do
		echo "./opt/x/bin/$t"
		echo "./opt/x/share/man/man1/$t.1"
	done
	for t in gdrcopy $tools; do echo "./opt/x/share/bash-completion/completions/$t"; done
	(cd "$src" && for f in packaging/man/*.[147]; do
		echo "./opt/x/share/man/man${f##*.}/${f##*/}"
	done)
	# Every call is a page, or a name of one.
	sed -n 's|^ \([a-z0-9_]*\)@.*|./opt/x/share/man/man3/\1.3|p' "$src/packaging/debian/libgdrapi2.symbols"
} | LC_ALL=C sort -u >"$tmp/expected"
tree "$dest" >"$tmp/installed"
grep -v '^./opt/x/share/doc/barcopy/' "$tmp/installed" | diff "$tmp/expected" -
ok "every file in its place, and no other"
test -z "$(cd "$src" && for f in LICENSE docs/install.md examples/README.md examples/gpu.h examples/share.c; do
	cmp "$f" "$dest/opt/x/share/doc/barcopy/$f" 2>&1; done)"
ok "documents and examples"
docs=$dest/opt/x/share/doc/barcopy
grep -q '\](docs/results/' "$src/README.md" && ! grep -rnE '\]\([^)]*(results/|internals/|gdrdrv/|CONTRIBUTING)|href="results' "$docs" &&
	test ! -e "$docs/CONTRIBUTING.md" && test ! -e "$docs/docs/results" && grep -q '](docs/install.md)' "$docs/README.md"
ok "pages for developers are not installed, and the links to them are text"
# PREFIX= on the command line is a habit from other Makefiles; in the environment it means something
# else.
where() { env "$1" make -C "$src" --no-print-directory -n O="$tmp/o" "${@:2}" lib_install | grep -c ' /opt/y/lib'; }
test "$(where X= PREFIX=/opt/y)" -gt 0 && test "$(where X= PREFIX=/opt/z prefix=/opt/y)" -gt 0 &&
	test "$(where PREFIX=/opt/y)" = 0
ok "PREFIX= on the command line is prefix="
# The variables of recipes for GDRCopy: of rpmfusion's package, of DKMS lines and driver containers. The kernel's
# build is a stand-in that prints its compiler.
into exes_install DESTBIN="$dest/opt/libexec/gdrcopy" && test -x "$dest/opt/libexec/gdrcopy/copybw" &&
	into uninstall DESTBIN="$dest/opt/libexec/gdrcopy" && ! find "$dest/opt/libexec" ! -type d | grep .
ok "DESTBIN= is the whole path of the tools' directory"
into install libdir=/opt/x/lib64
kdir=$tmp/kdir
mkdir -p "$kdir/include/config" "$tmp/plain"
printf 'modules:\n\t@echo "CC=[$(CC)] LLVM=[$(LLVM)] P2P=[$(GDRDRV_P2P_DIR)]"\n' >"$kdir/Makefile"
echo "int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space);" >"$tmp/plain/nv-p2p.h"
cp -R "$src/Makefile" "$src/gdrdrv" "$src/packaging" "$src/src" "$src/tools" "$src/perf" "$tmp/plain"
driver() { # driver VARIABLE=VALUE...: the line of the kernel's build, or make's error
	make -C "$tmp/plain" --no-print-directory O="$tmp/od" driver FLAVOR=open "$@" 2>&1
}
driver KDIR="$kdir" NVIDIA_SRC_DIR="$tmp/plain" | grep -qF "CC=[cc] LLVM=[] P2P=[$tmp/plain]"
ok "NVIDIA_SRC_DIR= is NVIDIA_SRC="
driver KVER=6.6.6-none NVIDIA_SRC="$tmp/plain" | grep -qF 'no kernel headers in /lib/modules/6.6.6-none/build'
ok "KVER= names that kernel, not the running one"
echo CONFIG_CC_IS_CLANG=y >"$kdir/include/config/auto.conf"
driver KDIR="$kdir" NVIDIA_SRC="$tmp/plain" | grep -qF 'CC=[clang] LLVM=[1]' &&
	driver KDIR="$kdir" NVIDIA_SRC="$tmp/plain" CC=clang-19 | grep -qF 'CC=[clang-19] LLVM=[]'
ok "a kernel that clang built has clang's module"
for v in KDIR="$kdir" KVER=6.6.6-none NVIDIA_SRC="$tmp/plain" NVIDIA_SRC_DIR="$tmp/plain"; do
	make -C "$src" -n O="$tmp/o" all "$v" 2>&1 | grep -q 'make driver works in no' || echo "${v%%=*}"
done >"$tmp/log"
test ! -s "$tmp/log" && ! make -C "$src" -n O="$tmp/o" all 2>&1 | grep 'make driver'
ok "make all builds the driver where the command line has KDIR=, KVER= or NVIDIA_SRC=$(paste -sd' ' "$tmp/log")"
# Links work in the installed documents.
missing=$(cd "$dest/opt/x/share/doc/barcopy" && grep -rohE '\]\([^)#:]*[.](md|svg|c|html|json)[)#]' README.md docs/*.md |
	sed -E 's/^\]\(//; s/[)#]$//' | sort -u | while read -r f; do
		[ -e "$f" ] || [ -e "docs/$f" ] || case $f in *include/*) ;; *) echo "$f" ;; esac; done)
echo "$missing" | sed '/^$/d; s/^/# no such document: /'
test -z "$missing"
ok "links among the documents"
test "$(readlink "$dest/opt/x/lib64/libgdrapi.so.2")" = libgdrapi.so.2.6 &&
	test "$(readlink "$dest/opt/x/lib64/libgdrapi.so")" = libgdrapi.so.2
ok "links are relative"
test "$(stat -c %a "$dest/opt/x/lib64/libgdrapi.so.2.6")" = 755 &&
	test "$(stat -c %a "$dest/opt/x/include/gdrapi.h")" = 644
ok "modes"

cat >"$tmp/user.c" <<'END'
#include <gdrapi.h>
#include <stdio.h>
int main(void)
{
	int major, minor;

	gdr_runtime_get_version(&major, &minor);
	return !(major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION);
}
END
gcc -I"$dest/opt/x/include" -o "$tmp/user" "$tmp/user.c" -L"$dest/opt/x/lib64" -lgdrapi &&
	LD_LIBRARY_PATH=$dest/opt/x/lib64 "$tmp/user"
ok "a program built against what is installed"
gcc -static-pie -fPIE -I"$dest/opt/x/include" -o "$tmp/user_static" "$tmp/user.c" \
	"$dest/opt/x/lib64/libgdrapi.a" -ldl 2>/dev/null ||
	gcc -I"$dest/opt/x/include" -o "$tmp/user_static" "$tmp/user.c" \
		"$dest/opt/x/lib64/libgdrapi.a" -ldl
"$tmp/user_static"
ok "a program with the archive"

# A program for GDRCopy that asks for the architecture.
printf '#include <gdrconfig.h>\n#include <gdrapi.h>\n#if !defined(GDRAPI_X86) && !defined(GDRAPI_ARM64)\n#error\n#endif\n' |
	gcc -I"$dest/opt/x/include" -Wall -Werror -fsyntax-only -x c -
ok "gdrconfig.h"

into install-python && find "$dest" -name METADATA | grep -q . && into uninstall-python && ! find "$dest" -name '*.py' | grep -v /examples/ &&
	into install-python && into uninstall libdir=/opt/x/lib64 && test -z "$(tree "$dest")"
ok "make uninstall leaves nothing, nor does uninstall-python"
into install-python PYTHON_INSTALLER=dpkg && into uninstall && find "$dest" -name METADATA | grep -q . && rm -r "$dest/opt/x/lib/python3"
ok "make uninstall leaves the module of a package"
unclear=
for target in docs refresh-figures install-python wheel; do
	# The last -C counts: a wheel is not built in a path with a space.
	from=$src && [ "$target" = wheel ] && from=$PWD
	! into -C "$from" PYTHON=no-python "$target" && grep -q "make $target: no no-python here" "$tmp/log" || unclear+=" $target"
done
[ -z "$unclear" ] && test -z "$(tree "$dest")" && test "$before" = "$(tree "$src")"
ok "without python3 a target that needs it says so, and changes nothing$unclear"
before_driver=$(tree "$dest")
into install-driver && mkdir -p "$dest/lib/modules/6.1/updates" "$dest/lib/modules/6.1/kernel" &&
	: >"$dest/lib/modules/6.1/updates/gdrdrv.ko" && : >"$dest/lib/modules/6.1/kernel/other.ko" &&
	[ "$(tree "$dest" | grep -c gdrdrv)" -gt 10 ] && into uninstall-driver &&
	[ "$(tree "$dest")" = "$(printf '%s\n' "$before_driver" ./lib/modules/6.1/kernel/other.ko | sed '/^$/d' | LC_ALL=C sort)" ]
ok "make uninstall-driver removes the driver and leaves other files"
rm -rf "$dest/lib"
! find "$dest" -name barcopy | grep .
ok "nor a directory of its name"

# Directories that others use too.
shared=(docdir=/opt/x/share/doc examplesdir=/opt/x/share/doc cmakedir=/opt/x/lib/cmake)
printf '%s\n' ./opt/x/bin/sanity ./opt/x/lib/cmake/other.cmake ./opt/x/share/doc/docs/other.md \
	./opt/x/share/doc/other/README ./opt/x/share/man/man3/other.3 >"$tmp/others"
rm -rf "$dest" && into install "${shared[@]}" && rm "$dest/opt/x/bin/sanity" &&
	(cd "$dest" && while read -r f; do mkdir -p "${f%/*}" && echo other >"$f"; done) <"$tmp/others" &&
	grep -q '^# barcopy' "$dest/opt/x/share/doc/README.md" && into uninstall "${shared[@]}" && tree "$dest" | diff "$tmp/others" -
ok "make uninstall leaves the files of others"
rm -rf "$dest"

# Installed by prefix= into a stage, or by DESTDIR=, which is moved then: pkg-config names where it is now.
# A row: DESTDIR|prefix|libdir|prefix= of the file|libdir= of the file
if command -v pkg-config >/dev/null; then
	while IFS='|' read -r to prefix libdir prefix_is libdir_is; do
		rm -rf "$dest" "$tmp/moved"
		make -C "$src" -s O="$tmp/o" DESTDIR="$to" prefix="$prefix" libdir="$libdir" install >"$tmp/log" 2>&1 || cat "$tmp/log"
		mv "$dest" "$tmp/moved"
		pc=$(find "$tmp/moved" -name libgdrapi.pc) cmake=$(find "$tmp/moved" -name barcopy-config.cmake)
		[ "$(head -n 2 "$pc")" = "prefix=$prefix_is"$'\n'"libdir=$libdir_is" ] && ! grep -nF "$dest" "$pc" "$cmake" || cat "$pc"
		# Absolute directories belong below a root, which only DESTDIR= makes.
		root=
		[ "$prefix_is" != "$prefix" ] || root=$tmp/moved
		if PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=${pc%/*} pkg-config --cflags --libs libgdrapi >"$tmp/flags"; then
			# shellcheck disable=SC2046 # several words
			gcc -nostdinc -isystem /usr/include -isystem "$(gcc -print-file-name=include)" \
				-isystem "/usr/include/$(gcc -print-multiarch)" -o "$tmp/user" "$tmp/user.c" $(cat "$tmp/flags")
		fi
		ok "libgdrapi.pc of DESTDIR=${to#"$tmp"} prefix=${prefix#"$tmp"} libdir=${libdir#"$tmp"}, moved"
		[ -n "$root" ] || ! command -v cmake >/dev/null || {
			printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(moved C)' 'find_package(barcopy REQUIRED)' \
				"add_executable(user $tmp/user.c)" 'target_link_libraries(user barcopy::gdrapi)' >"$tmp/CMakeLists.txt"
			cmake -S "$tmp" -B "$tmp/cmake" -Dbarcopy_DIR="${cmake%/*}" >"$tmp/log" 2>&1 &&
				make -C "$tmp/cmake" VERBOSE=1 >"$tmp/log" 2>&1 && grep -q "$tmp/moved/.*/include" "$tmp/log" ||
				{ cat "$tmp/log"; false; }
			ok "CMake's file of prefix=${prefix#"$tmp"} libdir=${libdir#"$tmp"}, moved"
			rm -rf "$tmp/cmake"
		}
	done <<-END
		|$dest/usr|$dest/usr/lib|\${pcfiledir}/../..|\${prefix}/lib
		|$dest/usr|$dest/usr/lib/x/y|\${pcfiledir}/../../../..|\${prefix}/lib/x/y
		$dest/usr|/|/lib|\${pcfiledir}/../..|\${prefix}/lib
		$dest|/opt/x/|/opt/x/lib64|\${pcfiledir}/../..|\${prefix}/lib64
		$dest|/usr|/usr/lib/x|/usr|\${prefix}/lib/x
		$dest|/opt/x|/usr/lib/x|/opt/x|/usr/lib/x
	END
else
	skip "libgdrapi.pc, moved" "no pkg-config"
fi

# Installed tools find the library in each usual directory below the prefix.
for libdir in lib lib64 "lib/$(gcc -print-multiarch)"; do
	case $libdir in lib/) skip "tools find the library in lib/TRIPLET" "no multiarch here" && continue ;; esac
	rm -rf "$dest" && into install libdir="/opt/x/$libdir" &&
		"$dest/opt/x/bin/copybw" --version >/dev/null &&
		ldd "$dest/opt/x/bin/gdrcopy_copybw" | grep -q "=> $dest/opt/x/.*libgdrapi"
	ok "tools find the library in $libdir"
done

# Recipes for GDRCopy: distributions' and Dockerfiles call these one by one.
rm -rf "$dest"
make -C "$src" -s O="$tmp/o" config | grep -qxE 'GDRAPI_ARCH=(X86|ARM64)' &&
	into lib exes && into lib_install && test -e "$dest/opt/x/lib/libgdrapi.so" &&
	test -e "$dest/opt/x/include/gdrapi.h" && test ! -e "$dest/opt/x/bin" &&
	into exes_install && test -x "$dest/opt/x/bin/sanity"
ok "the targets of recipes for GDRCopy: config lib exes lib_install exes_install"
make -C "$src" -pn O="$tmp/o" 2>/dev/null | grep -qE '^drv_install: driver' &&
	make -C "$src" -pn O="$tmp/o" 2>/dev/null | grep -qE '^drv: driver'
ok "drv and drv_install"

make -C "$src" -s O="$tmp/o" help >"$tmp/short"
[ "$(sed -n 's/^  make *\([a-z-]*\) .*/make \1/p' "$tmp/short" | grep -vc help-all)" = 5 ] && grep -q '^  make  ' "$tmp/short"
ok "make help shows make itself and the five targets that a user needs"
make -C "$src" -s O="$tmp/o" help-all >"$tmp/help"
make -C "$src" -pn O="$tmp/o" 2>/dev/null | sed -n 's/^\.PHONY: //p' | tr ' ' '\n' |
	grep -vxE 'all|help|test|tests|install-boot|print-[a-z-]*|FORCE' | sort -u >"$tmp/targets"
sed -n 's/^  make //p' "$tmp/help" | sed 's/  .*//; /^ *$/d' | tr ' ' '\n' | sort -u >"$tmp/shown"
test "$(wc -l <"$tmp/shown")" -le 25 && test -z "$(comm -23 "$tmp/shown" "$tmp/targets")"
ok "make help-all shows targets, and at most 25"
unnamed=$(while read -r t; do
	grep -qE "(^|[^a-z_-])$t([^a-z_-]|$)" "$tmp/help" "$src/CONTRIBUTING.md" "$src"/docs/*.md "$src"/docs/internals/*.md || echo "$t"
done <"$tmp/targets")
echo "$unnamed" | sed '/^$/d; s/^/# named by no page: /'
test -z "$unnamed"
ok "help or a page names every target"
awk 'length > 100 { print; bad = 1 } END { exit bad }' "$tmp/help"
ok "make help-all fits"

test "$before" = "$(tree "$src")" && test -f "$tmp/a"
ok "the source tree is still as it was, and the file beside it"
finish
