#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# make install, uninstall and O=: what goes where, nothing left, nothing in the source tree; and a
# build on a machine that has a compiler and nothing else.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

copy_source
src=$tmp/src

tree() { (cd "$1" && find . ! -type d | LC_ALL=C sort); }

before=$(tree "$src")
# No Check, no libnuma, no CUDA, no pkg-config: only the compiler, make and the shell's tools.
mkdir -p "$tmp/bin"
for t in gcc cc ld as ar ranlib nm make sh bash mkdir rm ln find sed awk grep cat cp uname dirname \
	basename tr printf sort install test env true false expr cut head tail; do
	p=$(type -P "$t") && ln -s "$p" "$tmp/bin/$t"
done
PATH=$tmp/bin make -C "$src" --no-print-directory O="$tmp/o" all >"$tmp/log" 2>&1 || tail -n 20 "$tmp/log"
test -f "$tmp/o/libgdrapi.so.2.6"
ok "make O=dir with a compiler and nothing else"
test "$before" = "$(tree "$src")"
ok "make O=dir leaves the source tree as it was"

dest=$tmp/dest
make -C "$src" --no-print-directory O="$tmp/o" DESTDIR="$dest" prefix=/opt/x libdir=/opt/x/lib64 \
	install >"$tmp/log" 2>&1 || tail -n 20 "$tmp/log"
ok "make install DESTDIR= prefix= libdir="
tools=$(make -C "$src" --no-print-directory -pn O="$tmp/o" 2>/dev/null |
	sed -nE 's/^PERF_TOOLS :?= *//p' | tr ' ' '\n' | sed '/^$/d; s|.*/||')
{
	echo ./opt/x/include/barcopy.h
	echo ./opt/x/include/gdrapi.h
	for f in libgdrapi.a libgdrapi.so libgdrapi.so.2 libgdrapi.so.2.6; do
		echo "./opt/x/lib64/$f"
	done
	for t in $tools; do echo "./opt/x/bin/$t"; done
} | LC_ALL=C sort >"$tmp/expected"
tree "$dest" >"$tmp/installed"
# What packaging adds (a pkg-config file, man pages) is not this test's business.
grep -vE '/(pkgconfig|share|cmake)/' "$tmp/installed" | diff "$tmp/expected" -
ok "every file is where it should be, and no other"
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

make -C "$src" --no-print-directory O="$tmp/o" DESTDIR="$dest" prefix=/opt/x libdir=/opt/x/lib64 \
	uninstall >"$tmp/log" 2>&1 || tail -n 20 "$tmp/log"
test -z "$(tree "$dest")"
ok "make uninstall leaves nothing"

test "$before" = "$(tree "$src")"
ok "the source tree is still as it was"
finish
