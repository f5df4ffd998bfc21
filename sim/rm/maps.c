/* SPDX-License-Identifier: MIT */
/*
 * Maps for the CPU: made and ended by the resource manager, then mapped through a node's
 * descriptor.
 *
 * src/nvidia/src/kernel/rmapi/mapping_cpu.c (serverMap_Prologue(), memMap_IMPL(),
 * serverUnmap_Prologue()); src/nvidia/src/libraries/resserv/src/rs_server.c (serverMap());
 * src/nvidia/arch/nvalloc/unix/src/escape.c, osapi.c (rm_create_mmap_context());
 * kernel-open/nvidia/nv-usermap.c, nv-mmap.c.
 *
 * A read-only map: the driver makes the GPU's page tables of BAR1 read-only and leaves the CPU's
 * writable (RmCreateMmapContextLocked() has NV_PROTECT_READ_WRITE for device memory), so that a
 * store by the CPU is lost. Here it faults, whatever the mmap asked for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/node.h"
#include "rm/rm.h"

#define BAR1_PAGE 0x10000ull

static bool is_free(int i)
{
	return !rm->maps[i].object;
}

/* reusemappingdbMap(): a live map below `end` of the same range and kind, which this one shares. */
static int shared(const struct rm_map *map, int end)
{
	const struct rm_object *o = &rm->objects[map->object], *other;

	for (int i = 1; i < end && rm_flag("GDRSIM_BAR1_REUSE", false); i++) {
		const struct rm_map *m = &rm->maps[i];

		other = &rm->objects[m->object];
		if (m != map && m->object && other->memory == o->memory &&
		    other->offset + m->offset == o->offset + map->offset &&
		    m->length == map->length && !((m->flags ^ map->flags) & NV_MAP_ACCESS) &&
		    rm->objects[m->device].gpu == rm->objects[map->device].gpu)
			return i;
	}
	return 0;
}

/* The address that names a map: in BAR1, or coherent (kbusMapCoherentCpuMapping_GH100()). */
static uint64_t place(const struct rm_map *map, const struct rm_gpu *gpu)
{
	bool in_bar1 = rm_flag("GDRSIM_RM_BAR1", !rm_flag("GDRSIM_COHERENT", false));
	const struct rm_object *o = &rm->objects[map->object];
	uint64_t base = rm_bar1_base(gpu) << !in_bar1;
	uint64_t at = rm->next_linear;
	int other = shared(map, rm->n_maps.top);

	if (gpu->sim.bar1_static)
		return base +
		       (rm->memories[o->memory].at + o->offset + map->offset) % gpu->sim.bar1_bytes;
	if (other)
		return rm->maps[other].linear & ~(uint64_t)(RM_PAGE - 1);
	rm->next_linear += map->length;
	for (int i = 1; i < rm->n_maps.top; i++)
		if (rm->maps[i].object && rm->maps[i].linear == base + at % gpu->sim.bar1_bytes) {
			at += RM_PAGE;
			i = 0;
		}
	return base + at % gpu->sim.bar1_bytes;
}

static uint64_t bar1_of(const struct rm_map *m)
{
	uint64_t first = m->offset & ~(BAR1_PAGE - 1);

	return ((m->offset + m->length + BAR1_PAGE - 1) & ~(BAR1_PAGE - 1)) - first;
}

/* Counts maps in the context of this GPU's device. */
static uint64_t bar1_used(int gpu, bool driver)
{
	uint64_t used = 0;
	struct rm_gpu machine;

	rm_gpu(gpu, &machine);
	if (machine.sim.bar1_static)
		return 0;
	for (int i = 1; i < rm->n_maps.top; i++) {
		const struct rm_object *o = &rm->objects[rm->maps[i].device];

		if (rm->maps[i].object && o->gpu == gpu &&
		    (driver || !rm->clients[o->client].driver) && !shared(&rm->maps[i], i))
			used += bar1_of(&rm->maps[i]);
	}
	return used;
}

unsigned long long gdrsim_rm_bar1_used(int gpu)
{
	uint64_t used;

	gdrsim_rm_sweep();
	rm_lock();
	used = bar1_used(gpu, false);
	rm_unlock();
	return used;
}

/* The device in whose context the map is made. */
static enum nv_status context_of(const struct rm_client *c, const struct rm_object *memory,
				 nv_handle device, int *context)
{
	if (device == c->handle || !memory->parent)
		return NV_ERR_INVALID_OBJECT_PARENT; /* nothing of ours is below a client itself */
	*context = rm_object_find(rm_client_index(c), device);
	if (!*context)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (rm->objects[*context].class != NV01_DEVICE_0 &&
	    rm->objects[*context].class != NV20_SUBDEVICE_0)
		return NV_ERR_INVALID_OBJECT_PARENT;
	return NV_OK;
}

static enum nv_status find(int file, nv_handle client, nv_handle memory, struct rm_client **c,
			   int *object)
{
	enum nv_status status;

	*c = rm_client_find(client);
	if (!*c)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	status = rm_client_validate(*c, file);
	if (status != NV_OK)
		return status;
	if (memory == client)
		return NV_ERR_INVALID_OBJECT_PARENT;
	*object = rm_object_find(rm_client_index(*c), memory);
	return *object ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

/* memMap_IMPL() */
static enum nv_status check_range(const struct rm_object *o, const struct nv_map *m)
{
	uint64_t end;

	if (!o->memory)
		return NV_ERR_NOT_SUPPORTED;
	if (rm_flag("GDRSIM_RM_PROTECTED", false))
		return NV_ERR_NOT_SUPPORTED;
	if (m->offset >= o->length)
		return NV_ERR_INVALID_BASE;
	if (!m->length)
		return NV_ERR_INVALID_LIMIT;
	if (m->flags & NV_MAP_SKIP_SIZE_CHECK)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (__builtin_add_overflow(m->offset, m->length, &end) || end > o->length)
		return NV_ERR_INVALID_LIMIT;
	return NV_OK;
}

/* nv_add_mapping_context_to_file(): registered or not, a file takes one map, once. */
static enum nv_status add_context(int map, int fd, int gpu)
{
	int file = rm_file_of(fd);

	if (!file || rm->files[file].kind != RM_DEVICE || rm->files[file].gpu != gpu)
		return NV_ERR_INVALID_ARGUMENT;
	if (rm->files[file].map)
		return NV_ERR_STATE_IN_USE;
	rm->files[file].map = map;
	return NV_OK;
}

enum nv_status rm_map_memory(int file, struct nv_map *m)
{
	int object, context, at;
	enum nv_status status;
	struct rm_client *c;
	struct rm_gpu gpu;
	struct rm_map *map;

	m->flags = (m->flags & ~NV_MAP_CACHING); /* the caller's wish does not count */
	status = find(file, m->client, m->memory, &c, &object);
	if (status != NV_OK)
		return status;
	if (m->flags & (NV_MAP_PERSISTENT | NV_MAP_MEM_SPACE_USER | NV_MAP_OS_DESCRIPTOR))
		return NV_ERR_INVALID_FLAGS;
	status = context_of(c, &rm->objects[object], m->device, &context);
	if (status == NV_OK && (m->flags & NV_MAP_ACCESS) > NV_MAP_ACCESS_WRITE_ONLY)
		status = NV_ERR_INVALID_FLAGS;
	if (status == NV_OK)
		status = check_range(&rm->objects[object], m);
	if (status != NV_OK)
		return status;
	at = rm_slot(&rm->n_maps, RM_MAPS, is_free);
	if (!at)
		return NV_ERR_NO_MEMORY;
	map = &rm->maps[at];
	*map = (struct rm_map){ .object = object, .device = context, .pid = getpid() };
	map->offset = m->offset & ~(uint64_t)(RM_PAGE - 1);
	map->length =
		((m->offset + m->length + RM_PAGE - 1) & ~(uint64_t)(RM_PAGE - 1)) - map->offset;
	map->flags = m->flags;
	rm_gpu(rm->objects[context].gpu, &gpu);
	if (bar1_used(rm->objects[context].gpu, true) > gpu.sim.bar1_bytes) {
		map->object = 0;
		rm_slot_free(&rm->n_maps, at);
		return NV_ERR_NO_MEMORY;
	}
	map->linear = place(map, &gpu) + (m->offset - map->offset);
	m->linear = map->linear;
	m->flags = (m->flags & ~NV_MAP_MAPPING) | NV_MAP_MAPPING_REFLECTED | NV_MAP_CACHING_WC;
	/* rm_create_mmap_context(): a fork's child may not */
	status = c->pid == getpid() ? add_context(at, m->fd, rm->objects[context].gpu)
				    : NV_ERR_INVALID_CLIENT;
	if (status != NV_OK)
		rm_map_end(at);
	return status;
}

void rm_map_end(int map)
{
	rm_vma_lose(map);
	/* The file keeps its context: it never serves another map. */
	for (int i = 1; i < rm->n_files.top; i++)
		if (rm->files[i].kind == RM_DEVICE && rm->files[i].map == map)
			rm->files[i].map = -1;
	rm->maps[map].object = 0;
	rm_slot_free(&rm->n_maps, map);
}

enum nv_status rm_unmap_memory(int file, const struct nv_unmap *u)
{
	enum nv_status status;
	struct rm_client *c;
	int object, context;

	status = find(file, u->client, u->memory, &c, &object);
	if (status == NV_OK)
		status = context_of(c, &rm->objects[object], u->device, &context);
	if (status != NV_OK)
		return status;
	for (int i = 1; i < rm->n_maps.top; i++) {
		const struct rm_map *m = &rm->maps[i];

		if (m->object == object && m->linear == u->linear && m->pid == getpid()) {
			rm_map_end(i);
			return NV_OK;
		}
	}
	return NV_ERR_OBJECT_NOT_FOUND;
}

static void *fail(int err)
{
	errno = err;
	return MAP_FAILED;
}

/* The checks of mmap(2) itself, then those of nvidia_mmap_helper(). */
static int check_mmap(const struct rm_file *f, int fd, size_t len, int prot, int flags,
		      uint64_t off)
{
	bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;

	if (!len)
		return EINVAL;
	if (shared && (prot & PROT_WRITE) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
		return EACCES;
	if (f->kind != RM_DEVICE || !f->map)
		return EINVAL; /* no context; nor for one with an exported object */
	if (off)
		return EINVAL;
	if (f->map < 0) {
		rm_vma_stale(); /* the real one maps what is at that place of BAR1 by now */
		return ENXIO;
	}
	return len == rm->maps[f->map].length ? 0 : ENXIO;
}

static void *map_locked(int file, int fd, void *addr, size_t len, int prot, int flags, uint64_t off)
{
	const struct rm_file *f = &rm->files[file];
	const struct rm_object *o;
	const struct rm_map *map;
	bool read_only;
	int err, memory;
	uint64_t start;
	void *at;

	len = (len + RM_PAGE - 1) & ~(size_t)(RM_PAGE - 1);
	err = check_mmap(f, fd, len, prot, flags, off);
	if (err)
		return fail(err);
	map = &rm->maps[f->map];
	o = &rm->objects[map->object];
	read_only = (map->flags & NV_MAP_ACCESS) == NV_MAP_ACCESS_READ_ONLY;
	/* The real mprotect() succeeds, with read-only entries in BAR1; here it fails. */
	memory = rm_memory_open(o->memory, read_only ? O_RDONLY : O_RDWR);
	if (memory < 0)
		return fail(EIO);
	start = rm_flag("GDRSIM_RM_MAP_START", false) ? 0 : o->offset + map->offset;
	at = libc_calls()->mmap(addr, len, read_only ? prot & ~PROT_WRITE : prot, flags, memory,
				(off_t)start);
	err = errno;
	libc_calls()->close(memory);
	if (at == MAP_FAILED)
		return fail(err);
	err = rm_vma_add(file, fd, f->map, at, len);
	if (err) {
		libc_calls()->munmap(at, len);
		return fail(err);
	}
	/* kbusMapFbAperture_GM107(): maps the memory's offset, of the context's GPU. */
	if (rm->memories[o->memory].gpu != rm->objects[map->device].gpu)
		rm_vma_replace(at, len);
	return at;
}

void *rm_node_mmap(int file, int fd, void *addr, size_t len, int prot, int flags, uint64_t off)
{
	bool mine = !rm->files[file].driver;
	int err = mine ? rm_fault("MMAP", 0) : 0;
	void *at = MAP_FAILED;

	rm_lock();
	if (flags & MAP_FIXED)
		rm_vma_cut(addr, len);
	errno = err < 0 ? EIO : err;
	if (!err)
		at = map_locked(file, fd, addr, len, prot, flags, off);
	err = errno;
	rm_unlock();
	/* The kernel removes what was there before the driver fails (Linux 6.18). */
	if (at == MAP_FAILED && (flags & MAP_FIXED))
		libc_calls()->munmap(addr, len);
	errno = err;
	return at;
}
