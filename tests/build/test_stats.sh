#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Statistics beyond one library call: the summary of a tool, a broken standard error, a module that
# is unloaded while a thread with a recorded error lives on.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

sim=$(realpath "${2:?directory of the stand-ins}")
export LD_LIBRARY_PATH=$sim LD_PRELOAD=$sim/libnvidia_node.so
tool() { "$out/gdrcopy_copybw" -a cuMemCreate -s 64K -w 10 -r 10; }

tool >/dev/null 2>"$tmp/err" && ! grep -q STATS "$tmp/err"
ok "no summary by default"
GDRCOPY_STATS=0 tool >/dev/null 2>"$tmp/err" && ! grep -q STATS "$tmp/err"
ok "none with GDRCOPY_STATS=0"
GDRCOPY_STATS=1 tool >"$tmp/text" 2>"$tmp/err" && ! grep -q STATS "$tmp/text" &&
	[ "$(grep -c '^GDRCOPY STATS: process [0-9]* (gdrcopy_copybw)$' "$tmp/err")" = 1 ]
ok "one summary, on standard error"
# At least 10 timed copies each way, of 64 KiB each, and an unpin for each pin
read -r to to_bytes from from_bytes < <(sed -n 's/^  copies .* the GPU: \([0-9]*\), bytes \([0-9]*\)$/\1 \2/p' "$tmp/err" |
	tr '\n' ' ')
[ "${to:-0}" -ge 10 ] && [ "${from:-0}" -ge 10 ] && [ $((to * 65536)) = "$to_bytes" ] &&
	[ $((from * 65536)) = "$from_bytes" ] && grep -q '^  pins \([1-9][0-9]*\), unpinned \1;' "$tmp/err"
ok "its counts are the tool's"
GDRCOPY_STATS=1 tool >/dev/null 2> >(exec true)
ok "standard error without a reader: the exit status is the program's"
GDRCOPY_STATS=1 tool >/dev/null 2>&-
ok "standard error is closed"

# Number 2 is another file than at the library's load: it gets no statistics.
cat >"$tmp/number2.c" <<'END'
#include "barcopy.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	if (!strcmp(argv[2], "other")) {
		close(2);
		if (open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0600) != 2)
			return 2;
	} else if (!strcmp(argv[2], "reuse")) { /* the inode of a removed file, where the file system reuses it */
		if (!barcopy_open(BARCOPY_OPEN_ANY) || unlink("err") || close(2) ||
		    open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0600) != 2)
			return 2;
	} else if (!strcmp(argv[2], "again")) { /* another descriptor of the same file */
		dup2(dup(2), 2);
	}
	return argc != 3 || !barcopy_open(BARCOPY_OPEN_ANY) || write(2, "data\n", 5) != 5;
}
END
gcc -Iinclude -o "$tmp/number2" "$tmp/number2.c" "$out/libgdrapi.so.2" -Wl,-rpath,"$(realpath "$out")" &&
	GDRCOPY_STATS=1 "$tmp/number2" "$tmp/data" other 2>"$tmp/err" && [ "$(cat "$tmp/data")" = data ] && [ ! -s "$tmp/err" ] &&
	GDRCOPY_STATS=1 "$tmp/number2" "$tmp/data" other 2>&- && [ "$(cat "$tmp/data")" = data ]
ok "a file that took the number of standard error gets no summary"
rm -f "$tmp/data" && (cd "$tmp" && GDRCOPY_STATS=1 ./number2 data reuse 2>err) && [ "$(cat "$tmp/data")" = data ]
ok "nor does one that took the inode too"
GDRCOPY_STATS=1 "$tmp/number2" - again 2>"$tmp/err" && grep -q '^GDRCOPY STATS' "$tmp/err"
ok "standard error by another descriptor gets it"

# The library's objects in a module: the summary comes at its unload, and a thread that ends
# afterwards does not touch them.
cat >"$tmp/module.c" <<'END'
#include "barcopy.h"
int use(void);
int use(void)
{
	static gdr_t g;
	static barcopy_mem_t mem;

	if (!g && (!(g = barcopy_open(BARCOPY_OPEN_ANY)) || barcopy_mem_alloc(g, 0, 4096, 0, &mem)))
		return 1;
	/* a count, and a text of a failure */
	return gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, "12345678", 8) ||
	       !gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, 0, 8) || !*barcopy_last_error();
}
END
cat >"$tmp/host.c" <<'END'
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
static int (*use)(void);
static pthread_barrier_t turn;
static void *thread(void *arg)
{
	if (use())
		return arg;
	pthread_barrier_wait(&turn); /* used */
	pthread_barrier_wait(&turn); /* unloaded */
	return NULL;
}
int main(int argc, char **argv)
{
	void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *wrong;
	pthread_t t;

	(void)argc;
	if (!lib)
		return puts(dlerror()), 1;
	use = (int (*)(void))dlsym(lib, "use");
	pthread_barrier_init(&turn, NULL, 2);
	if (use() || pthread_create(&t, NULL, thread, argv))
		return 2;
	pthread_barrier_wait(&turn);
	if (dlclose(lib))
		return 3;
	if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD))
		return 4; /* it was not unloaded: this shows nothing */
	fputs("unloaded\n", stderr);
	pthread_barrier_wait(&turn);
	pthread_join(t, &wrong);
	return wrong ? 5 : 0;
}
END
# shellcheck disable=SC2046
gcc -shared -fPIC -Iinclude -o "$tmp/module.so" "$tmp/module.c" \
	$(find src -name '*.c' | while read -r c; do ls "$out/${c%.c}.o" 2>/dev/null; done) -pthread -ldl &&
	gcc -o "$tmp/host" "$tmp/host.c" -pthread -ldl &&
	GDRCOPY_STATS=1 timeout 60 "$tmp/host" "$tmp/module.so" 2>"$tmp/err"
rc=$?
[ $rc = 0 ] || { echo "exit $rc"; cat "$tmp/err"; }
[ $rc = 0 ] && grep -q '^  copies to the GPU: 2, bytes 16$' "$tmp/err" && [ "$(tail -n 1 "$tmp/err")" = unloaded ] &&
	[ "$(grep -c STATS "$tmp/err")" = 1 ]
ok "unloaded with a module, before a thread that has failed ends"

# A linker takes only the referenced objects of the archive: the summary is among them.
printf '#include "barcopy.h"\nint main(void) { return !barcopy_open(BARCOPY_OPEN_ANY); }\n' >"$tmp/static.c" &&
	gcc -Iinclude -o "$tmp/static" "$tmp/static.c" "$out/libgdrapi.a" -pthread -ldl &&
	GDRCOPY_STATS=1 "$tmp/static" 2>&1 | grep -q '^GDRCOPY STATS: process [0-9]* (static)$'
ok "a summary in a program that is linked statically"

# perf/compare builds, and loads two copies of the library into one process.
cp "$out/libgdrapi.so.2.6" "$tmp/other.so" && make -s --no-print-directory O="$out" CC=gcc compare >/dev/null &&
	timeout 60 "$out/compare" "$tmp/other.so" "$out/libgdrapi.so.2.6" --sim "$sim" |
	head -n 3 | grep -q '^write 8 B  *[0-9]'
ok "two copies of the library in one process: compare"

finish
