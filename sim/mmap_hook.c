/* SPDX-License-Identifier: MIT */
/*
 * Lets the programs in this process mmap the dma-bufs of dmabuf.c, and tell them from other files
 * by fstatfs(), as those of the kernel are since Linux 5.3 (drivers/dma-buf/dma-buf.c,
 * dma_buf_fs_init_context()): the import slots of both in every loaded object lead to functions
 * that know them and pass everything else on. Done when this library is loaded, and by each export
 * anew, to reach objects that were loaded later. Not reached: an object that calls the kernel
 * itself, or that contains its own mmap (a program linked with clang's static sanitizer run time);
 * there mmap of a pipe fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/vfs.h>

#include "cuda/import_slots.h"
#include "sim.h"

typedef void *(*mmap_fn)(void *, size_t, int, int, int, off_t);

typedef int (*fstatfs_fn)(int, struct statfs *);

static mmap_fn next_mmap; /* set before the first slot is */
static fstatfs_fn next_fstatfs;

static void *hooked_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *at;

	if (!(flags & MAP_ANONYMOUS) && sim_dmabuf_map(addr, len, prot, flags, fd, off, &at))
		return at;
	return next_mmap(addr, len, prot, flags, fd, off);
}

/* struct statfs64 is the same on 64-bit machines. */
static int hooked_fstatfs(int fd, struct statfs *buf)
{
	if (!sim_is_dmabuf(fd))
		return next_fstatfs(fd, buf);
	memset(buf, 0, sizeof(*buf));
	buf->f_type = 0x444d4142; /* DMA_BUF_MAGIC (linux/magic.h) */
	return 0;
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

static void patch(const struct link_map *map, const char *symbol, uintptr_t hook)
{
	struct gdri_import_slots slots;

	if (!gdri_import_slots_in(map, symbol, &slots))
		return;
	for (size_t i = 0; i < slots.count; i++) {
		uintptr_t held = atomic_load(slots.at[i]);

		if (held != hook)
			gdri_import_slot_write(&slots, i, &held, hook, false);
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
			patch(map, "mmap", (uintptr_t)hooked_mmap);
			patch(map, "mmap64", (uintptr_t)hooked_mmap);
			patch(map, "fstatfs", (uintptr_t)hooked_fstatfs);
			patch(map, "fstatfs64", (uintptr_t)hooked_fstatfs);
		}
	return 1;
}

__attribute__((constructor)) void sim_hook_mmap(void)
{
	void *symbol = dlsym(RTLD_DEFAULT, "mmap"), *statfs = dlsym(RTLD_DEFAULT, "fstatfs");
	struct link_map *maps[2]; /* the first, and this library's own */
	Dl_info info;

	if (!symbol || !statfs || !dladdr1((void *)patch, &info, (void **)&maps[1], RTLD_DL_LINKMAP) ||
	    dlinfo(dlopen(NULL, RTLD_LAZY), RTLD_DI_LINKMAP, &maps[0]))
		return;
	if (!next_mmap)
		memcpy(&next_mmap, &symbol, sizeof(symbol));
	if (!next_fstatfs)
		memcpy(&next_fstatfs, &statfs, sizeof(statfs));
	dl_iterate_phdr(patch_all, maps);
}
