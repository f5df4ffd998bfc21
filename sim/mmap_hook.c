/* SPDX-License-Identifier: MIT */
/*
 * Lets the programs in this process mmap the dma-bufs of dmabuf.c: the import slots of mmap in
 * every loaded object lead to a function that knows them and passes everything else on. Each export
 * patches anew, to reach objects that were loaded later. Not reached: an object that calls the
 * kernel itself, or that contains its own mmap (a program linked with clang's static sanitizer run
 * time); there mmap of a pipe fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "cuda/import_slots.h"
#include "sim.h"

typedef void *(*mmap_fn)(void *, size_t, int, int, int, off_t);

static mmap_fn next_mmap; /* set before the first slot is */

static void *hooked_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *at;

	if (!(flags & MAP_ANONYMOUS) && sim_dmabuf_map(addr, len, prot, flags, fd, off, &at))
		return at;
	return next_mmap(addr, len, prot, flags, fd, off);
}

/*
 * Objects that keep their own mmap: the C library, the loader and the sanitizers' run time. The
 * name is the loader's memory, under a lock that TSan does not know, so this reads it
 * uninstrumented and without intercepted calls.
 */
static __attribute__((no_sanitize("thread"))) bool left_alone(const char *path)
{
	static const char *const names[] = { "libc.so", "ld-linux", "linux-vdso", "libasan",
					     "libtsan", "libubsan", "liblsan" };
	const volatile char *name = path;

	for (const volatile char *c = path; *c; c++)
		if (*c == '/')
			name = c + 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t n = 0;

		while (names[i][n] && name[n] == names[i][n])
			n++;
		if (!names[i][n])
			return true;
	}
	return false;
}

static void patch(const struct link_map *map, const char *symbol)
{
	struct gdri_import_slots slots;

	if (!gdri_import_slots_in(map, symbol, &slots))
		return;
	for (size_t i = 0; i < slots.count; i++) {
		uintptr_t held = atomic_load(slots.at[i]);

		if (held != (uintptr_t)hooked_mmap)
			gdri_import_slot_write(&slots, i, &held, (uintptr_t)hooked_mmap, false);
	}
}

/* Called once, under the loader's lock. */
static int patch_all(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct link_map *const *from = arg;

	(void)info;
	(void)size;
	for (const struct link_map *map = from[0]; map; map = map->l_next)
		if (map != from[1] && !left_alone(map->l_name)) {
			patch(map, "mmap");
			patch(map, "mmap64");
		}
	return 1;
}

void sim_hook_mmap(void)
{
	void *symbol = dlsym(RTLD_DEFAULT, "mmap");
	struct link_map *maps[2]; /* the first, and this library's own */
	Dl_info info;

	if (!symbol || !dladdr1((void *)patch, &info, (void **)&maps[1], RTLD_DL_LINKMAP) ||
	    dlinfo(dlopen(NULL, RTLD_LAZY), RTLD_DI_LINKMAP, &maps[0]))
		return;
	if (!next_mmap)
		memcpy(&next_mmap, &symbol, sizeof(symbol));
	dl_iterate_phdr(patch_all, maps);
}
