// SPDX-License-Identifier: MIT
/*
 * Every CUDA call, every call of the resource manager, of the gdrdrv node and every system call of
 * the library fails in turn (model/fault.h), by call number, in all that a program does with a
 * buffer: whole lives of a handle (life.h), and ranges, caches, memory of the library's own and copy
 * engines in a context that goes on; in a process that has used the library before and in one that
 * has not. After each failure: a documented errno; no descriptor, mapping, context, pin, map, slot
 * or object of CUDA's or RM's more than before, unless a call of the library has returned the
 * failure of its end; and the same succeeds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <time.h>

#include "attack/life.h"
#include "barcopy_queue.h"
#include "cache/cache.h"
#include "common/expect.h"
#include "common/resources.h"
#include "common/rm.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "core/handle.h"
#include "model/fault.h"
#include "unit/cache_table.h"

static struct life lives[LIVES];
static gdr_t g;
static CUdeviceptr memory; /* 2 MiB of cudaMalloc */
static uint8_t bytes[16384];

/*
 * Where it is done: by which backend, or with host memory alone; and whether at a first use too, of
 * which there is a process for each fault.
 */
enum { DMABUF = 1, NODE = 2, INTEGRATED = 4, COLD = 8, COLD_RM = 16, RM_ALONE = 32 };
enum { DEVICE = DMABUF | NODE | RM_ALONE };

struct deed {
	const char *name;
	unsigned int where;
	int (*run)(const struct deed *deed); /* in the context g; NULL: lives[life] */
	int life;
	uint32_t keeps; /* caches: what ranges share, which ends with the context */
	uint32_t flags; /* of a range */
	bool engine; /* the copy engine copies */
	bool unmaps; /* before the unpin */
	bool trims; /* a trim, not an invalidation, unpins */
};

/* ---- what is done: 0, or the errno of the first failure; what was made is given back  */

static int first(int a, int b)
{
	return a ? a : b;
}

static char undocumented[256]; /* the first call with such an errno */
static int first_errno; /* of a deed; 0: a life's, or none failed */
static bool at_an_end; /* it is of a call that ends something */

/* No assertion: it would allocate, and an allocation may be what is to fail. */
static int called(const char *call, int rc)
{
	if (rc && !first_errno)
		at_an_end = is_end(call);
	first_errno = first_errno ? first_errno : rc;
	if (rc && !*undocumented && !errno_documented(call, rc))
		snprintf(undocumented, sizeof(undocumented), "%s: errno %d (%s)", call, rc,
			 barcopy_last_error());
	return rc;
}

#define CALL(name, ...) called(#name, name(__VA_ARGS__))

static int plain_pin(const struct deed *deed)
{
	gdr_mh_t h;
	void *va;
	int rc = CALL(gdr_pin_buffer_v2, g, memory + 70000, 100000, 0, &h);

	if (rc)
		return rc;
	rc = CALL(gdr_map, g, h, &va, 65536);
	if (!rc && deed->unmaps)
		rc = CALL(gdr_unmap, g, h, va, 65536);
	return first(rc, CALL(gdr_unpin_buffer, g, h));
}

static int use_range(const struct deed *deed)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = 1,
				     .engine_write_min = 1 };
	size_t size = deed->engine ? sizeof(bytes) : 100;
	gdr_mh_t h;
	void *cpu;
	int rc = CALL(barcopy_map_range, g, memory + 70000, 100000, deed->flags, &cpu, &h);

	if (rc)
		return rc;
	if (deed->engine) {
		rc = CALL(barcopy_set_copy_options, h, &o);
		rc = first(rc, CALL(gdr_copy_to_mapping, h, cpu, bytes, size));
	}
	rc = first(rc, CALL(gdr_copy_from_mapping, h, bytes, cpu, size));
	return first(rc, CALL(barcopy_unmap_range, g, h));
}

static int cached(const struct deed *deed)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o) };
	barcopy_region_t a, b;
	barcopy_cache_t cache;
	int rc = CALL(barcopy_cache_create, g, &o, &cache);

	(void)deed;
	if (rc)
		return rc;
	rc = CALL(barcopy_cache_get, cache, memory + 5, 100, &a);
	if (!rc) {
		rc = CALL(barcopy_cache_get, cache, memory + 60000, 100000,
			  &b); /* joined with the first */
		if (!rc) {
			rc = CALL(gdr_copy_from_mapping, b.handle, bytes, b.cpu_ptr, 100);
			rc = first(rc, CALL(barcopy_cache_put, cache, &b));
		}
		rc = first(rc, CALL(barcopy_cache_put, cache, &a));
	}
	return first(rc, CALL(barcopy_cache_destroy, cache));
}

/* An invalidation, or a trim, unpins. If that fails, the cache's end returns the error. */
static int unpinned(const struct deed *deed)
{
	barcopy_region_t r;
	barcopy_cache_t cache;
	int rc = CALL(barcopy_cache_create, g, NULL, &cache);

	if (rc)
		return rc;
	rc = CALL(barcopy_cache_get, cache, memory + 5, 100, &r);
	if (!rc) {
		if (!deed->trims)
			rc = CALL(barcopy_cache_invalidate, cache, memory, 1);
		rc = first(rc, CALL(barcopy_cache_put, cache, &r));
		if (deed->trims)
			rc = first(rc, CALL(barcopy_cache_trim, cache, 0));
	}
	return first(rc, CALL(barcopy_cache_destroy, cache));
}

/* The end of the last one unmaps. */
static int shared_range(const struct deed *deed)
{
	gdr_mh_t a, b;
	void *cpu;
	int rc = CALL(barcopy_map_range, g, memory + 70000, 100000, 0, &cpu, &a);

	(void)deed;
	if (rc)
		return rc;
	rc = CALL(barcopy_map_range, g, memory + 80000, 100, 0, &cpu, &b);
	rc = first(rc, CALL(barcopy_unmap_range, g, a));
	if (rc)
		return rc;
	rc = CALL(gdr_copy_from_mapping, b, bytes, cpu, 100);
	return first(rc, CALL(barcopy_unmap_range, g, b));
}

static int own_memory(const struct deed *deed)
{
	barcopy_mem_t mem;
	int rc = CALL(barcopy_mem_alloc, g, 0, 5000, 0, &mem);

	(void)deed;
	return rc ? rc : CALL(barcopy_mem_free, g, &mem);
}

static int shared_memory(const struct deed *deed)
{
	barcopy_mem_t mem, again;
	int fd, rc = CALL(barcopy_mem_alloc, g, 0, 5000, BARCOPY_MEM_SHAREABLE, &mem);

	(void)deed;
	if (rc)
		return rc;
	rc = CALL(barcopy_mem_export, g, &mem, &fd);
	if (!rc) {
		rc = CALL(barcopy_mem_import, g, 0, fd, mem.size, 0, &again);
		if (!rc)
			rc = CALL(barcopy_mem_free, g, &again);
		close(fd);
	}
	return first(rc, CALL(barcopy_mem_free, g, &mem));
}

/* Without a kernel: created, asked, stopped, destroyed. */
static int queue(const struct deed *deed)
{
	barcopy_queue_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	uint32_t word = 7;
	barcopy_queue_t q;
	int rc = CALL(barcopy_queue_create, g, 0, &o, &q);

	(void)deed;
	if (rc)
		return rc;
	rc = CALL(barcopy_queue_send, q, &word, sizeof(word), 0, 0);
	rc = first(rc, CALL(barcopy_queue_stop, q, 0));
	return first(rc, CALL(barcopy_queue_destroy, q));
}

/* The same of a port. */
static int port(const struct deed *deed)
{
	barcopy_port_options_t o = { .struct_size = sizeof(o), .lines = 16 };
	barcopy_port_t p;
	int rc = CALL(barcopy_port_create, g, 0, &o, &p);

	(void)deed;
	if (rc)
		return rc;
	rc = CALL(barcopy_port_stop, p, 0);
	return first(rc, CALL(barcopy_port_destroy, p));
}

/* A context that ends with everything in it. */
static int closed(const struct deed *deed)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
	gdr_t other = gdr_open();
	barcopy_region_t region;
	barcopy_cache_t cache;
	barcopy_mem_t mem;
	gdr_mh_t h;
	void *at;
	int rc;

	(void)deed;
	if (!other)
		return called("gdr_open", errno);
	rc = CALL(gdr_pin_buffer_v2, other, memory + 70000, 100000, 0, &h);
	rc = rc ? rc : CALL(gdr_map, other, h, &at, 65536);
	rc = rc ? rc : CALL(barcopy_map_range, other, memory + 300000, 100, 0, &at, &h);
	rc = rc ? rc : CALL(barcopy_set_copy_options, h, &o);
	rc = rc ? rc : CALL(barcopy_cache_create, other, NULL, &cache);
	rc = rc ? rc : CALL(barcopy_cache_get, cache, memory + 5, 100, &region);
	rc = rc ? rc : CALL(barcopy_cache_put, cache, &region);
	rc = rc ? rc : CALL(barcopy_mem_alloc, other, 0, 5000, 0, &mem);
	rc = rc ? rc : CALL(barcopy_mem_alloc, other, 0, 5000, BARCOPY_MEM_SHAREABLE, &mem);
	return first(rc, CALL(gdr_close, other));
}

/* Its memory is kept for the next one. */
static bool keeps_memory(const struct deed *deed)
{
	return deed->run == queue || deed->run == port;
}

static const struct deed deeds[] = {
	{ "cudaMalloc by dma-buf", DMABUF | COLD, .life = 0 },
	{ "VMM by dma-buf", DMABUF, .life = 1 },
	{ "cudaMalloc by rm", RM_ALONE, .life = 2 },
	{ "VMM by rm", DMABUF | COLD | COLD_RM, .life = 3 },
	{ "host memory", DMABUF | COLD, .life = 4 },
	{ "cudaMalloc by gdrdrv", NODE | COLD, .life = 5 },
	{ "pin", DEVICE | COLD, plain_pin },
	{ "unmap", DEVICE, plain_pin, .unmaps = true },
	{ "range", DEVICE | COLD, use_range, .keeps = 1 },
	{ "read-only range", DEVICE | COLD, use_range, .keeps = 1,
	  .flags = BARCOPY_MAP_RANGE_READ_ONLY },
	{ "shared range", DEVICE, shared_range, .keeps = 1 },
	{ "cache", DEVICE | COLD, cached },
	{ "invalidated", DEVICE, unpinned },
	{ "trimmed", DEVICE, unpinned, .trims = true },
	{ "memory", DEVICE | INTEGRATED | COLD, own_memory },
	{ "shared memory", DEVICE | COLD, shared_memory },
	{ "queue", DEVICE | INTEGRATED | COLD, queue },
	{ "port", DEVICE | INTEGRATED | COLD, port },
	{ "copy engine", DEVICE | COLD, use_range, .keeps = 1, .engine = true },
	{ "close", DEVICE, closed },
};

static unsigned int place;

/* A life sets GDRCOPY_BACKEND. */
static unsigned int this_place(void)
{
	const char *backend = getenv("GDRCOPY_BACKEND");

	if (!place)
		place = getenv("GDRSIM_INTEGRATED")		? INTEGRATED
			: standin_gdrdrv()			? NODE
			: backend && !strcmp(backend, "rm") ? RM_ALONE
								: DMABUF;
	return place;
}

static void start(void)
{
	(void)this_place();
	lives_make(lives);
	memory = standin_alloc(2 << 20);
}

static void set_backend(void)
{
	setenv("GDRCOPY_BACKEND", place == INTEGRATED ? "host"
				  : place == NODE     ? "gdrdrv"
				  : place == RM_ALONE ? "rm"
						      : "dmabuf", 1);
}

/* The context of those that need one; another one's life is alone. */
static void prepare(const struct deed *deed)
{
	if (!deed->run || g)
		return;
	set_backend();
	g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
}

/* NULL, or what is wrong with how it failed. */
static const char *run(const struct deed *deed, bool *worked)
{
	first_errno = 0;
	if (!deed->run)
		return life_run(&lives[deed->life], worked);
	*undocumented = '\0';
	first_errno = 0;
	*worked = !deed->run(deed);
	return *undocumented ? undocumented : NULL;
}

/* ---- what there is ------------------------------------------------------- */

/* Objects of CUDA's that come by the one and go by the other. */
static const struct pair {
	const char *made[3], *ended[2];
} pairs[] = {
	{ { "cuMemCreate", "cuMemRetainAllocationHandle", "cuMemImportFromShareableHandle" },
	  { "cuMemRelease" } },
	{ { "cuMemAddressReserve" }, { "cuMemAddressFree" } },
	{ { "cuMemMap" }, { "cuMemUnmap" } },
	{ { "cuMemAlloc" }, { "cuMemFree", "cuMemFreeAsync" } },
	{ { "cuMemHostAlloc" }, { "cuMemFreeHost" } },
	{ { "cuStreamCreate" }, { "cuStreamDestroy" } },
};

struct left {
	struct resources resources;
	struct gdrsim_rm_counts rm;
	long objects[COUNT(pairs)];
	uint64_t pins, maps;
	uint32_t handles, entries, caches;
};

/* Slots of a table that are taken. */
static uint32_t taken(struct gdri_slots *table)
{
	uint32_t n = table->count;

	for (uint32_t next = table->first_free; next; n--)
		next = gdri_slot_at(table, next - 1)->next_free;
	return n;
}

static void look(struct left *l)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	memset(l, 0, sizeof(*l));
	rm_sim.counts(&l->rm);
	resources_look(&l->resources);
	for (size_t i = 0; i < COUNT(pairs); i++) {
		for (size_t j = 0; j < 3 && pairs[i].made[j]; j++)
			l->objects[i] += (long)cuda_hooks.calls(pairs[i].made[j]);
		for (size_t j = 0; j < 2 && pairs[i].ended[j]; j++)
			l->objects[i] -= (long)cuda_hooks.calls(pairs[i].ended[j]);
	}
	if (g)
		OK(barcopy_get_stats(g, &s));
	l->pins = s.pins - s.unpins;
	l->maps = s.maps - s.unmaps;
	l->handles = taken(&gdri_handles);
	l->entries = taken(&gdri_entries);
	l->caches = taken(&gdri_caches) + taken(&gdri_ranges);
}

/* NULL, or what differs. */
static const char *differ(const struct left *a, const struct left *b)
{
	static char text[256];

	if (resources_differ(&a->resources, &b->resources))
		return resources_differ(&a->resources, &b->resources);
	for (size_t i = 0; i < COUNT(pairs); i++)
		if (a->objects[i] != b->objects[i]) {
			snprintf(text, sizeof(text), "%ld more of %s than of %s",
				 b->objects[i] - a->objects[i], pairs[i].made[0],
				 pairs[i].ended[0]);
			return text;
		}
	snprintf(text, sizeof(text),
		 "pins %+d, maps %+d; slots of handles %+d, entries %+d, caches %+d; "
		 "RM's memories %+d, maps %+d, mappings %+d, dma-bufs %+d",
		 (int)(b->pins - a->pins), (int)(b->maps - a->maps), (int)(b->handles - a->handles),
		 (int)(b->entries - a->entries), (int)(b->caches - a->caches),
		 (int)(b->rm.memories - a->rm.memories), (int)(b->rm.maps - a->rm.maps),
		 (int)(b->rm.vmas - a->rm.vmas), (int)(b->rm.dmabufs - a->rm.dmabufs));
	return strpbrk(text, "123456789") ? text : NULL;
}

/* A name with or without its version. */
static bool is_call(const char *call, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(call, name, n) && (!call[n] || call[n] == '_');
}

static bool is_one_of(const char *call, const char *const *names)
{
	while (*names && !is_call(call, *names))
		names++;
	return *names;
}

/* The failing call is counted, and has neither made nor ended anything. */
static void uncount(const char *call, struct left *after)
{
	for (size_t i = 0; i < COUNT(pairs); i++) {
		for (size_t j = 0; j < 3 && pairs[i].made[j]; j++)
			after->objects[i] -= is_call(call, pairs[i].made[j]);
		for (size_t j = 0; j < 2 && pairs[i].ended[j]; j++)
			after->objects[i] += is_call(call, pairs[i].ended[j]);
	}
	/* Not of a release: what one that fails leaves the last close releases. */
	after->resources.retained -= is_call(call, "cuDevicePrimaryCtxRetain");
}

/* A count that has grown by at most that is as before. */
static int let(long after, long before, long most)
{
	return (int)(after > before && after <= before + most ? before : after);
}

/*
 * What a failing call leaves by its own nature is as before: what it was to undo has not been
 * undone, and the memory below it stays. The call that it failed in has returned the failure.
 */
static void forgive(const struct deed *deed, const char *call, const struct left *before,
		    struct left *after)
{
	/* An ioctl that failed as a system call may have been any of RM's, or the node's unpin. */
	static const char *const of_driver[] = { "RM_FREE", "RM_UNMAP_MEMORY", "UNPIN_BUFFER",
						 "ioctl",   "munmap",	       "close", NULL };
	/* Nothing is freed without its context. */
	bool ends = false, driver = is_one_of(call, of_driver);
	struct resources *now = &after->resources;
	const struct resources *then = &before->resources;

	/* Addresses that are still mapped are not given back. */
	for (size_t i = 0; i < COUNT(pairs); i++) {
		bool own = is_call(call, "cuCtxPushCurrent") ||
			   (is_call(call, "cuMemUnmap") &&
			    is_call("cuMemAddressFree", pairs[i].ended[0]));

		for (size_t j = 0; j < 2 && pairs[i].ended[j]; j++)
			own |= is_call(call, pairs[i].ended[j]);
		if (own)
			after->objects[i] = let(after->objects[i], before->objects[i], 1);
		ends |= own;
	}
	if (keeps_memory(deed)) { /* which may be of another kind now, as may its host pages */
		memcpy(after->objects, before->objects, sizeof(after->objects));
		after->rm = before->rm;
		now->fds = then->fds;
		now->maps = then->maps;
		now->mapped = then->mapped;
	}
	if (ends || driver) {
		after->rm.memories = (unsigned int)let(after->rm.memories, before->rm.memories, 3);
		after->rm.maps = (unsigned int)let(after->rm.maps, before->rm.maps, 3);
		after->rm.vmas = (unsigned int)let(after->rm.vmas, before->rm.vmas, 3);
		after->rm.dmabufs = (unsigned int)let(after->rm.dmabufs, before->rm.dmabufs, 1);
		/* A descriptor in the stand-in, two if the memory is shared. */
		now->fds = let(now->fds, then->fds, 2);
		now->maps = let(now->maps, then->maps, 3);
	}
	if (is_call(call, "munmap") && now->mapped > then->mapped)
		now->mapped = then->mapped;
}

/* The thread's context and capture mode, where the call that failed was to put them back. */
static void put_back(const char *call, const struct left *before)
{
	CUstreamCaptureMode mode = (CUstreamCaptureMode)before->resources.capture_mode;

	if (is_call(call, "cuCtxPopCurrent"))
		CU(cuda.cuCtxPopCurrent_v2(&(CUcontext){ NULL }));
	if (is_call(call, "cuThreadExchangeStreamCaptureMode"))
		CU(cuda.cuThreadExchangeStreamCaptureMode(&mode));
}

/*
 * What a first use makes for good is as before: the page of the process tag, a primary context, the
 * ranges' cache, client and GPU of rm. Memory of rm's trial that cannot be given back is left, with
 * a descriptor of it in the stand-in.
 */
static void forgive_first(const char *call, const struct left *before, struct left *after)
{
	static const char *const frees[] = { "RM_FREE",	  "ioctl",	"munmap",
					     "cuMemFree", "cuMemUnmap", "cuCtxPushCurrent",
					     NULL };

	after->resources.mapped = before->resources.mapped;
	after->resources.retained = before->resources.retained;
	after->caches = before->caches;
	after->resources.fds -= (int)(after->rm.ctl_files + after->rm.device_files) -
				(int)(before->rm.ctl_files + before->rm.device_files);
	if (is_one_of(call, frees)) {
		after->resources.fds = before->resources.fds;
		after->resources.maps = before->resources.maps;
		memcpy(after->objects, before->objects, sizeof(after->objects));
	}
}

/* ---- one failure after the other ----------------------------------------- */

/* Failed calls that the text names otherwise, or that have another errno than their result's. */
static const struct {
	const char *call, *text;
	int err; /* 0: whatever libcuda makes of it */
} blames[] = {
	{ "cuPointerGetAttributes", "CUDA does not know this address", EINVAL },
	{ "cuPointerGetAttributes", "the copy engine copies device memory only", ENOTSUP },
	{ "cuPointerGetAttribute", "the memory has been freed since it was pinned", EINVAL },
	{ "cuPointerGetAttribute", "CUDA does not report where", ENOTSUP },
	{ "cuMemHostGetFlags", "CUDA does not report where", ENOTSUP },
	{ "cuCtxPushCurrent", "CUDA does not report where", ENOTSUP },
	{ "EXPORT_TO_DMABUF_FD", "cuMemGetHandleForAddressRange: ", 0 },
	{ "MMAP", "mmap of ", 0 },
	{ "MMAP", "no address space for ", ENOMEM },
	{ "OPEN_CTL", "/dev/nvidiactl", 0 },
	{ "OPEN_DEVICE", "/dev/nvidia", 0 },
	{ "syscall", "does not cover the whole range", ENOTSUP },
	{ "fcntl", "is not an open file descriptor", EINVAL },
	{ "malloc", "no memory for ", ENOMEM },
	{ "calloc", "no memory for ", ENOMEM },
	{ "cuMemcpyHtoDAsync", "the copy engine could not reach", EIO },
	{ "cuMemcpyDtoHAsync", "the copy engine could not reach", EIO },
	{ "cuStreamSynchronize", "the copy engine could not reach", EIO },
	{ "cuCtxPushCurrent", "the copy engine could not reach", EIO },
	{ "realloc", "no memory for ", ENOMEM },
	{ "aligned_alloc", "no memory for ", ENOMEM },
	{ "mmap", "no address space for ", ENOMEM },
	{ "mmap", "no memory for ", ENOMEM },
	{ "open", "/dev/", EMFILE },
	{ "open", "/etc/barcopy/policy", EMFILE },
	{ "open", "/proc/driver/nvidia/version", EMFILE },
	{ "realloc", "Cannot allocate memory", ENOMEM },
	{ "realloc", "no memory to keep a descriptor", ENOMEM },
	{ "syscall", "the mapping cannot be read", EINVAL },
	{ "munmap", "the range is still mapped", 0 }, /* of the unmap before: ENOMEM */
	{ "munmap", "dmabuf: munmap: ", EIO },
	{ "cuMemRelease", "cuMemRelease: ", EIO },
	{ "cuDriverGetVersion", "no backend can map", ENODEV },
	{ "cuMemGetAddressRange", "CUDA does not report where", ENOTSUP },
	{ "REGISTER_FD", "REGISTER_FD: ", EIO },
	{ "CARD_INFO", "CARD_INFO: ", EIO },
	{ "munmap", "an earlier map of this range is still there", EIO },
	{ "dlsym", " has no cu", ENODEV },
	{ "dlsym", "this CUDA driver has no cu", ENOTSUP },
	{ "dlopen", "no CUDA driver: ", ENODEV },
	{ "pthread_atfork", "no memory for the fork guard", ENOMEM },
	{ "madvise", "no memory for the fork guard", ENOMEM },
	{ "RM_CONTROL", "GPU_GET_", 0 },
	{ "RM_CONTROL", "GET_EXPORT_OBJECT_INFO", 0 },
	{ "RM_CONTROL", "IMPORT_FD", 0 },
	{ "ioctl", "RM_", ENOMEM },
	{ "ioctl", "REQ_MAPPING_TYPE", ENOMEM },
	{ "ioctl", "REGISTER_FD", ENOMEM },
	{ "ioctl", "CARD_INFO", ENOMEM },
	{ "ioctl", "IMPORT_FD", ENOMEM },
	{ "ioctl", "GPU_GET_", ENOMEM },
	{ "ioctl", "PIN_BUFFER", ENOMEM },
	{ "ioctl", "GET_", ENOMEM },
};

/* Does the text of what failed name the call, and is the errno its result's? first_errno 0: any. */
static bool is_blamed(enum fault what, const char *call, int result)
{
	const char *text = barcopy_last_error(), *end = strpbrk(call, ".0123456789");
	size_t length = end ? (size_t)(end - call) : strlen(call);
	bool tried = strstr(text, "the trial on GPU 0 failed: "); /* its failures have one errno */
	char name[64];

	if (length > 2 && !strncasecmp(call + length - 2, "_v", 2)) /* cuMemAlloc_v2 */
		length -= 2;
	snprintf(name, sizeof(name), "%.*s", (int)length, call);
	for (size_t i = 0; i < COUNT(blames); i++)
		if (!strcmp(blames[i].call, name) && strstr(text, blames[i].text) &&
		    (!first_errno || !blames[i].err || first_errno == blames[i].err ||
		     (tried && first_errno == ENOTSUP)))
			return true;
	/* What fails at an end is for no caller to mend. */
	if ((what == FAULT_CUDA || what == FAULT_RM) && first_errno && at_an_end)
		return strstr(text, name) && first_errno == EIO;
	if (!strcmp(name, "ioctl") && place == RM_ALONE && at_an_end)
		return strstr(text, "RM_") && first_errno == EIO;
	/* Of memory that is still there. */
	if (what == FAULT_CUDA && first_errno == ENOTSUP &&
	    strstr(text, "CUDA exports no dma-buf of this"))
		return strstr(text, name);
	for (int i = 0; fault_results[what][i].result; i++)
		if (fault_results[what][i].result == result && strstr(text, name) &&
		    (!first_errno || first_errno == fault_results[what][i].err ||
		     (tried && first_errno == ENOTSUP)))
			return true;
	return false;
}

enum { SECOND = 1000 }; /* at which the clock stands in a first use */

/* Returns false if there was no nth call. */
static bool one_fault(const struct deed *deed, enum fault what, unsigned long n, int result,
		      bool first_use)
{
	struct left before, after, again;
	const char *failed, *call, *wrong;
	char about[160];
	bool worked;

	look(&before);
	fault_arm(what, n, result);
	wrong = run(deed, &worked);
	failed = fault_disarm();
	call = failed ? failed : "";
	cache_table_check();
	snprintf(about, sizeof(about), "%s, %s call %lu (%s) gave %d", deed->name, fault_names[what],
		 n, failed ? call : "none", result);
	ck_assert_msg(!wrong, "%s: %s", about, wrong);
	ck_assert_msg(failed || worked, "%s: failed without a fault", about);
	ck_assert_msg(worked || is_blamed(what, call, result), "%s: errno %d, \"%s\"", about,
		      first_errno, barcopy_last_error());
	put_back(call, &before);
	look(&after);
	again = after;
	uncount(call, &again);
	if (keeps_memory(deed)) { /* it may be of another kind now */
		memcpy(again.objects, before.objects, sizeof(again.objects));
		again.rm = before.rm;
		again.resources.fds = before.resources.fds;
		again.resources.maps = before.resources.maps;
		if (what == FAULT_CUDA) /* and so may host pages be */
			again.resources.mapped = before.resources.mapped;
	}
	/* A first use makes things for good. */
	wrong = worked && !first_use ? differ(&before, &again) : NULL;
	ck_assert_msg(!wrong, "%s, and no call has returned it: %s", about, wrong);
	if (first_use)
		forgive_first(call, &before, &again);
	forgive(deed, call, &before, &again);
	wrong = differ(&before, &again);
	ck_assert_msg(!wrong, "%s: %s", about, wrong);
	if (!failed)
		return false;
	if (first_use)
		wrap_clock(SECOND + 2); /* a trial that failed is made again */
	wrong = run(deed, &worked);
	ck_assert_msg(!wrong, "%s, and then: %s", about, wrong);
	/* A symbol that dlsym() did not find at load time stays missing. */
	ck_assert_msg(worked || (first_use && !strcmp(call, "dlsym")),
		      "%s, and then without a fault: %s", about, barcopy_last_error());
	look(&again);
	if (first_use) {
		if (deed->run && worked)
			ck_assert_msg(again.caches == before.caches + deed->keeps,
				      "%s: %u caches, not %u", about, again.caches - before.caches,
				      deed->keeps);
		forgive_first("", &after, &again);
	}
	if (keeps_memory(deed))
		forgive(deed, "", &after, &again);
	wrong = differ(&after, &again);
	ck_assert_msg(!wrong, "%s, and then: %s", about, wrong);
	return true;
}

/* Quick: every third call, from one of the first three on. */
static unsigned long offset(unsigned long hurry)
{
	static unsigned long long random;

	if (!random) {
		const char *seed = getenv("GDRCOPY_TEST_SEED");

		random = seed ? strtoull(seed, NULL, 0) : (unsigned long long)time(NULL);
		printf("GDRCOPY_TEST_SEED=%llu\n", random);
	}
	return unit_random(&random) % hurry;
}

/* Each call with each result (quick: every third call of all results but the first); how many. */
static unsigned long sweep_results(const struct deed *deed, enum fault what)
{
	unsigned long calls = 0, others = 0, hurry = unit_quick() ? 3 : 1;

	while (one_fault(deed, what, calls + 1, fault_results[what][0].result, false))
		calls++;
	for (unsigned long i = 1; fault_results[what][i].result; i++)
		for (unsigned long n = 1 + offset(hurry);
		     one_fault(deed, what, n, fault_results[what][i].result, false); n += hurry)
			others++;
	return calls + others;
}

/* In a process that has used the library before. */
static void sweep_used(void)
{
	enum fault what = *(const enum fault *)unit_arg;
	unsigned long faults = 0;

	start();
	for (const struct deed *deed = deeds; deed < deeds + COUNT(deeds); deed++) {
		const char *wrong;
		bool worked;

		if (!(deed->where & this_place()))
			continue;
		prepare(deed);
		wrong = run(deed, &worked); /* makes what a first use makes for good */
		ck_assert_msg(!wrong && worked, "%s: %s", deed->name, wrong ? wrong : "failed");
		faults += sweep_results(deed, what);
	}
	ck_assert_uint_gt(faults, 1);
	printf("%lu %s faults in a used process\n", faults, fault_names[what]);
	if (g)
		OK(gdr_close(g));
}

struct cold {
	const struct deed *deed;
	enum fault what;
	unsigned long n;
};

enum { FAILED = 0, END = 2 };

static int cold_child(void *arg)
{
	const struct cold *c = arg;

	wrap_clock(SECOND);
	start();
	prepare(c->deed);
	return one_fault(c->deed, c->what, c->n, fault_results[c->what][0].result, true) ? FAILED
										 : END;
}

/* Of the deeds on a GPU: each row has every fourth, as all together take longer than a test may. */
enum { FIRST_USES = 4 };

/* A process for each fault: nothing has been loaded or made yet. */
static void sweep_cold(void)
{
	enum fault what = *(const enum fault *)unit_arg;
	unsigned int cold = what == FAULT_RM ? COLD_RM : COLD, n = 0;
	unsigned int rows = what == FAULT_RM || this_place() == NODE ? 1 : FIRST_USES;
	unsigned long faults = 0;

	for (const struct deed *deed = deeds; deed < deeds + COUNT(deeds); deed++) {
		struct cold c = { deed, what, 1 + (unit_quick() ? offset(3) : 0) };
		int status;

		if (!(deed->where & this_place()) || !(deed->where & cold) ||
		    n++ % rows != (unsigned int)unit_row)
			continue;
		while ((status = unit_in_child(cold_child, &c)) == FAILED) {
			c.n += unit_quick() ? 3 : 1;
			faults++;
		}
		ck_assert_msg(status == END, "%s, %s call %lu: status %d", deed->name,
			      fault_names[what], c.n, status);
	}
	ck_assert_uint_gt(faults, 1);
	printf("%lu %s faults at a first use\n", faults, fault_names[what]);
}

static const enum fault whats[] = { FAULT_CUDA, FAULT_RM, FAULT_SYSTEM, FAULT_NODE };
#define CUDA_CALLS   &whats[0]
#define RM_CALLS     &whats[1]
#define SYSTEM_CALLS &whats[2]
#define NODE_CALLS   &whats[3]
#define ON_NODE	     "LD_PRELOAD=$SIM/libgdrdrv_node.so"

static const struct unit_test tests[] = {
	{ "CUDA calls, used process", sweep_used, "", CUDA_CALLS },
	{ "RM calls, used process", sweep_used, "", RM_CALLS },
	{ "system calls, used process", sweep_used, "", SYSTEM_CALLS },
	{ "CUDA calls, rm", sweep_used, "GDRCOPY_BACKEND=rm", CUDA_CALLS },
	{ "RM calls, rm", sweep_used, "GDRCOPY_BACKEND=rm", RM_CALLS },
	{ "system calls, rm", sweep_used, "GDRCOPY_BACKEND=rm", SYSTEM_CALLS },
	{ "CUDA calls, gdrdrv", sweep_used, ON_NODE, CUDA_CALLS },
	{ "system calls, gdrdrv", sweep_used, ON_NODE, SYSTEM_CALLS },
	{ "node's calls, gdrdrv", sweep_used, ON_NODE, NODE_CALLS },
	{ "system calls, gdrdrv with callbacks", sweep_used, ON_NODE " GDRSIM_NODE_PERSISTENT=0",
	  SYSTEM_CALLS },
	{ "system calls, gdrdrv, first use", sweep_cold, ON_NODE, SYSTEM_CALLS },
	{ "CUDA calls, an integrated GPU", sweep_used, "GDRSIM_INTEGRATED=1", CUDA_CALLS },
	{ "system calls, an integrated GPU", sweep_used, "GDRSIM_INTEGRATED=1", SYSTEM_CALLS },
	{ "CUDA calls, first use", sweep_cold, "", CUDA_CALLS, .rows = FIRST_USES },
	{ "RM calls, first use", sweep_cold, "", RM_CALLS },
	{ "RM calls, first use, driver 515", sweep_cold, "GDRSIM_RM_DRIVER=515.43.04", RM_CALLS },
	{ "RM calls, first use, driver 530", sweep_cold, "GDRSIM_RM_DRIVER=530.30.02", RM_CALLS },
	{ "system calls, first use", sweep_cold, "", SYSTEM_CALLS, .rows = FIRST_USES },
};

UNIT_MAIN("attack: faults", tests, rm_start(argv))
