#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The library file: its symbols (the list that a release keeps is the Debian package's), its
# dependencies, names and links, and that it survives dlclose().
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

lib=$out/libgdrapi.so.2.6
test -f "$lib"
ok "libgdrapi.so.2.6 is there"

LC_ALL=C nm -D --defined-only "$lib" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' |
	LC_ALL=C sort >"$tmp/exported"
sed -n 's/^ \([a-z0-9_]*\)@.*/\1/p' packaging/debian/libgdrapi2.symbols | diff - "$tmp/exported"
ok "exported symbols are the kept ones: make refresh-abi adds new ones"

# Every function that the header declares, from the preprocessed header; v1 info is behind a macro.
{
	gcc -E -P -x c include/barcopy_queue.h | tr '\n' ' ' | grep -oE '\b(gdr|barcopy)_[a-z0-9_]+ *\(' | tr -d ' ('
	echo gdr_get_info
} | LC_ALL=C sort -u >"$tmp/declared"
diff "$tmp/declared" "$tmp/exported"
ok "exported symbols are the headers' functions"

nm -D --defined-only --with-symbol-versions "$lib" >"$tmp/versions"
! grep -q ' gdr_.*@' "$tmp/versions"
ok "the kept interface's symbols have no version"
sed -n 's/^ \(barcopy_[a-z0-9_]*@BARCOPY_[A-Z0-9_]*\) .*/\1/p' packaging/debian/libgdrapi2.symbols >"$tmp/listed"
awk '$3 ~ /^barcopy_/ { sub("@@", "@", $3); print $3 }' "$tmp/versions" | LC_ALL=C sort | diff "$tmp/listed" -
ok "barcopy's own have the list's nodes (layout.py counts them)"
! gcc -E -P -x c -Iinclude include/gdrapi.h | grep -i barcopy
ok "gdrapi.h is the kept interface alone"

objdump -p "$lib" >"$tmp/dynamic"
grep -qE 'SONAME +libgdrapi\.so\.2$' "$tmp/dynamic"
ok "soname is libgdrapi.so.2"
! awk '$1 == "NEEDED" { print $2 }' "$tmp/dynamic" |
	grep -vE '^(libc\.so\.6|ld-linux.*\.so\..*|libdl\.so\.2|libpthread\.so\.0)$'
ok "needs the C library only"
readelf -d "$lib" | grep -q NODELETE
ok "-z nodelete"
readelf -d "$lib" | grep -qE 'BIND_NOW|\bNOW\b' && readelf -lW "$lib" | grep -q GNU_RELRO
ok "full relro"
lazy=
for f in "$out"/gdrcopy_* "$out"/installed/gdrcopy_*; do
	readelf -d "$f" | grep -qE 'BIND_NOW|\bNOW\b' && readelf -lW "$f" | grep -q GNU_RELRO || lazy+=" $f"
done
[ -z "$lazy" ] && [ -e "$out/installed/gdrcopy_doctor" ]
ok "... of the tools as well$lazy"
soft=
for f in "$lib" "$out"/installed/gdrcopy_*; do
	nm -D --undefined-only "$f" >"$tmp/undefined"
	grep -q ' __stack_chk_fail@' "$tmp/undefined" && grep -q '_chk@GLIBC' "$tmp/undefined" || soft+=" $f"
done
[ -z "$soft" ]
ok "the stack is protected, and calls of the C library are fortified$soft"
! readelf -d "$lib" | grep -qE 'TEXTREL|RPATH|RUNPATH'
ok "no text relocations, no run path"
! readelf -lW "$lib" | grep GNU_STACK | grep -q E
ok "no executable stack"
! readelf -lW "$out"/installed/gdrcopy_* | grep GNU_STACK | grep -q "RWE"
ok "... in the tools, of which pplat includes PTX"
# All of it is in the static block, of which dlopen has 1.6 KiB for all libraries of a process.
test "$(($(readelf -lW "$lib" | awk '$1 == "TLS" { print $6 }')))" -le 64
ok "64 bytes of thread-local storage at most"
# Tables that start empty take no space in the file.
test "$(($(readelf -lW "$lib" | awk '$1 == "LOAD" && /RW/ { print $5 }')))" -le 32768
ok "the file holds at most 32 KiB of data"
! nm -D --undefined-only "$lib" | awk '{ print $NF }' |
	grep -vE '@GLIBC_[0-9.]+$|^_ITM_|^__gmon_start__$|^__cxa_finalize|^__tls_get_addr'
ok "every undefined symbol is the C library's"
! nm -D --undefined-only "$lib" | grep -E ' (cu[A-Z]|vk[A-Z]|nvml|abort|__assert_fail|exit)'
ok "no CUDA, no Vulkan, no abort, no exit"
! nm "$out/libgdrapi.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[A-TV-Z]/ { print $3 }' |
	grep -vE '^(gdr_|barcopy_|gdri_)'
ok "every global symbol of the archive begins with gdr_, barcopy_ or gdri_"

test "$(readlink "$out/libgdrapi.so.2")" = libgdrapi.so.2.6 &&
	test "$(readlink -f "$out/libgdrapi.so")" = "$(readlink -f "$lib")"
ok "links"

cat >"$tmp/reopen.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	(void)argc;
	for (int i = 0; i < 3; i++) {
		void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		void *(*open)(void);
		int (*v1)(void *, unsigned long, void *);

		if (!lib)
			return puts(dlerror()), 1;
		open = (void *(*)(void))dlsym(lib, "gdr_open");
		v1 = (int (*)(void *, unsigned long, void *))dlsym(lib, "gdr_get_info");
		if (!open || !v1 || v1(0, 0, &lib) != 22)
			return 2;
		open();
		if (dlclose(lib))
			return 3;
		open(); /* nodelete: the code is still there */
	}
	return 0;
}
END
gcc -o "$tmp/reopen" "$tmp/reopen.c" -ldl && LD_LIBRARY_PATH=$2 "$tmp/reopen" "$(readlink -f "$lib")"
ok "closed and opened again, with calls between"
finish
