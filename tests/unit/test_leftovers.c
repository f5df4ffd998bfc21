// SPDX-License-Identifier: MIT
/*
 * What a failed call leaves behind: every CUDA call and every system call of the library failing in turn
 * on the way of a range, a cache, memory of our own and a copy engine, in a context that goes on.
 * Afterwards no descriptor, mapping, context, pin, map, slot or object of CUDA's is there that was not
 * before, and the same succeeds. (Plain pins, and whole contexts: tests/attack/attack_faults.c.)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/expect.h"
#include "common/resources.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "barcopy.h"
#include "cache/cache.h"
#include "core/handle.h"

static gdr_t g;
static CUdeviceptr memory; /* 2 MiB of cudaMalloc */
static uint8_t bytes[16384];

static void start(void)
{
	standin_start();
	memory = standin_alloc(2 << 20);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
}

/* ---- what is done: 0, or the errno of the first failure; all is given back that there was ------------ */

static int first(int a, int b)
{
	return a ? a : b;
}

static int plain_pin(void)
{
	gdr_mh_t h;
	void *va;
	int rc2, rc = gdr_pin_buffer_v2(g, memory + 70000, 100000, 0, &h);

	if (rc)
		return rc;
	rc = gdr_map(g, h, &va, 65536);
	rc2 = gdr_unpin_buffer(g, h);
	return first(rc, rc2);
}

static int use_range(uint32_t flags)
{
	gdr_mh_t h;
	void *cpu;
	int rc = barcopy_map_range(g, memory + 70000, 100000, flags, &cpu, &h);

	if (rc)
		return rc;
	rc = gdr_copy_from_mapping(h, bytes, cpu, 100);
	return first(rc, barcopy_unmap_range(g, h));
}

static int range(void)
{
	return use_range(0);
}

static int read_only_range(void)
{
	return use_range(BARCOPY_MAP_RANGE_READ_ONLY);
}

static int use_cache(barcopy_cache_t cache)
{
	barcopy_region_t a, b;
	int rc = barcopy_cache_get(cache, memory + 5, 100, &a), rc2;

	if (rc)
		return rc;
	rc = barcopy_cache_get(cache, memory + 60000, 100000, &b); /* joined with the first */
	if (!rc) {
		rc = gdr_copy_from_mapping(b.handle, bytes, b.cpu_ptr, 100);
		rc2 = barcopy_cache_put(cache, &b);
		rc = first(rc, rc2);
	}
	rc2 = barcopy_cache_put(cache, &a);
	return first(rc, rc2);
}

static int cached(void)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o), .whole_max = 4096 };
	barcopy_cache_t cache;
	int rc = barcopy_cache_create(g, &o, &cache);

	if (rc)
		return rc;
	rc = use_cache(cache);
	return first(rc, barcopy_cache_destroy(cache));
}

static int own_memory(void)
{
	barcopy_mem_t mem;
	int rc = barcopy_mem_alloc(g, 0, 5000, 0, &mem);

	return first(rc, rc ? 0 : barcopy_mem_free(g, &mem));
}

static int shared_memory(void)
{
	barcopy_mem_t mem, again;
	int fd, rc2, rc = barcopy_mem_alloc(g, 0, 5000, BARCOPY_MEM_SHAREABLE, &mem);

	if (rc)
		return rc;
	rc = barcopy_mem_export(g, &mem, &fd);
	if (!rc) {
		rc = barcopy_mem_import(g, 0, fd, mem.size, 0, &again);
		if (!rc)
			rc = barcopy_mem_free(g, &again);
		close(fd);
	}
	rc2 = barcopy_mem_free(g, &mem);
	return first(rc, rc2);
}

static int copy_engine(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = 1,
				     .engine_write_min = 1 };
	gdr_mh_t h;
	void *cpu;
	int rc2, rc = barcopy_map_range(g, memory + 70000, 100000, 0, &cpu, &h);

	if (rc)
		return rc;
	rc = barcopy_set_copy_options(h, &o);
	if (!rc)
		rc = gdr_copy_to_mapping(h, cpu, bytes, sizeof(bytes));
	if (!rc)
		rc = gdr_copy_from_mapping(h, bytes, cpu, sizeof(bytes));
	rc2 = barcopy_unmap_range(g, h);
	return first(rc, rc2);
}

static const struct deed {
	const char *name;
	int (*run)(void);
	bool by_bar; /* what is not the CPU's own memory */
	uint32_t keeps; /* caches: what ranges share, which ends with the context */
} deeds[] = {
	{ "pin", plain_pin, true, 0 },
	{ "range", range, true, 1 },
	{ "read-only range", read_only_range, true, 1 },
	{ "cache", cached, true, 0 },
	{ "memory", own_memory, false, 0 },
	{ "shared memory", shared_memory, true, 0 },
	{ "copy engine", copy_engine, true, 1 },
};

static bool documented(int err)
{
	static const int all[] = { 0,	   EINVAL, EACCES, ENODEV, ENOTSUP, EOVERFLOW,
				   ENOMEM, EIO,	   EMFILE, ENFILE, EAGAIN };

	for (size_t i = 0; i < COUNT(all); i++)
		if (all[i] == err)
			return true;
	return false;
}

/* ---- what is there ----------------------------------------------------------------------------------- */

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
	long objects[COUNT(pairs)];
	uint64_t pins, maps;
	uint32_t handles, entries, caches;
};

/* Its slots that are taken. */
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
	resources_look(&l->resources);
	for (size_t i = 0; i < COUNT(pairs); i++) {
		for (size_t j = 0; j < 3 && pairs[i].made[j]; j++)
			l->objects[i] += (long)cuda_hooks.calls(pairs[i].made[j]);
		for (size_t j = 0; j < 2 && pairs[i].ended[j]; j++)
			l->objects[i] -= (long)cuda_hooks.calls(pairs[i].ended[j]);
	}
	OK(barcopy_get_stats(g, &s));
	l->pins = s.pins - s.unpins;
	l->maps = s.maps - s.unmaps;
	l->handles = taken(&gdri_handles);
	l->entries = taken(&gdri_entries);
	l->caches = taken(&gdri_caches);
}

/* A name with or without its version. */
static bool is_call(const char *call, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(call, name, n) && (!call[n] || call[n] == '_');
}

/* A call that failed has made nothing; one that ends something and failed has not ended it. */
static bool ends_something(const char *call)
{
	for (size_t i = 0; i < COUNT(pairs); i++)
		for (size_t j = 0; j < 2 && pairs[i].ended[j]; j++)
			if (is_call(call, pairs[i].ended[j]))
				return true;
	return is_call(call, "cuCtxPopCurrent") || is_call(call, "cuDevicePrimaryCtxRelease") ||
	       is_call(call, "cuThreadExchangeStreamCaptureMode") ||
	       is_call(call, "cuCtxPushCurrent") || !strcmp(call, "munmap");
}

static void forgive_made(const char *call, struct left *l)
{
	for (size_t i = 0; i < COUNT(pairs); i++)
		for (size_t j = 0; j < 3 && pairs[i].made[j]; j++)
			l->objects[i] -= is_call(call, pairs[i].made[j]);
	l->resources.retained -= is_call(call, "cuDevicePrimaryCtxRetain");
}

static void nothing_left(const struct left *a, const struct left *b, const char *what)
{
	const char *differ = resources_differ(&a->resources, &b->resources);

	ck_assert_msg(!differ, "%s: %s", what, differ);
	for (size_t i = 0; i < COUNT(pairs); i++)
		ck_assert_msg(a->objects[i] == b->objects[i], "%s: %ld more of %s than of %s", what,
			      b->objects[i] - a->objects[i], pairs[i].made[0], pairs[i].ended[0]);
	ck_assert_msg(a->pins == b->pins && a->maps == b->maps, "%s: pins %+d, maps %+d", what,
		      (int)(b->pins - a->pins), (int)(b->maps - a->maps));
	ck_assert_msg(a->handles == b->handles && a->entries == b->entries &&
			      a->caches == b->caches,
		      "%s: slots of handles %+d, entries %+d, caches %+d", what,
		      (int)(b->handles - a->handles), (int)(b->entries - a->entries),
		      (int)(b->caches - a->caches));
}

/* ---- one failure after the other --------------------------------------------------------------------- */

/* Whether the nth call was there to fail. result: CUDA's; 0: a call of the system. */
static bool one_fault(const struct deed *deed, unsigned long n, int result)
{
	struct left before, after;
	char call[64] = "", what[160];
	const char *failed;
	int rc;

	look(&before);
	wrap_reset();
	if (result)
		cuda_hooks.fail_nth(n, result);
	else
		wrap_fail_nth(n);
	rc = deed->run();
	failed = result ? cuda_hooks.failed() : wrap_failed();
	if (failed)
		snprintf(call, sizeof(call), "%s", failed);
	cuda_hooks.fail_nth(0, 0);
	wrap_fail_nth(0);
	if (!failed) {
		ck_assert_msg(!rc, "%s: errno %d without a fault", deed->name, rc);
		return false;
	}
	snprintf(what, sizeof(what), "%s, call %lu (%s) gave %d", deed->name, n, call, result);
	ck_assert_msg(documented(rc), "%s: errno %d (%s)", what, rc, barcopy_last_error());
	if (!ends_something(call)) {
		look(&after);
		forgive_made(call, &after);
		nothing_left(&before, &after, what);
	}
	if (is_call(call, "cuCtxPopCurrent"))
		CU(cuda.cuCtxPopCurrent_v2(&(CUcontext){ NULL }));
	look(&before);
	rc = deed->run();
	ck_assert_msg(!rc, "%s, and then: errno %d (%s)", what, rc, barcopy_last_error());
	look(&after);
	nothing_left(&before, &after, what);
	return true;
}

static void sweep(bool host)
{
	static const int results[] = { 0, 999, 2, 801, 201 };
	unsigned long faults = 0;

	start();
	for (size_t d = 0; d < COUNT(deeds); d++) {
		if (host && deeds[d].by_bar)
			continue;
		OK(deeds[d].run()); /* what a first use makes is made */
		for (size_t i = 0; i < COUNT(results); i++)
			for (unsigned long n = 1; one_fault(&deeds[d], n, results[i]); n++)
				faults++;
	}
	ck_assert_uint_gt(faults, 3);
	printf("%lu faults\n", faults);
	OK(gdr_close(g));
}

static void by_dmabuf(void)
{
	sweep(false);
}

static void integrated(void)
{
	sweep(true);
}

/* ---- no memory at a first use: tables that are made then ---------------------------------------------- */

static const char *const allocators[] = { "malloc", "calloc", "realloc", "aligned_alloc" };

struct first_use {
	const struct deed *deed;
	const char *allocator;
	unsigned long n;
};

enum { FAILED = 0, WRONG = 1, END = 2 };

static int first_use(void *arg)
{
	const struct first_use *f = arg;
	struct left before, after;
	uint32_t caches;
	char what[160];
	int rc;

	start();
	look(&before);
	wrap_reset();
	wrap_fail(f->allocator, f->n, ENOMEM);
	rc = f->deed->run();
	if (!wrap_failed())
		return rc ? WRONG : END;
	wrap_reset();
	look(&after);
	snprintf(what, sizeof(what), "%s, %s number %lu", f->deed->name, f->allocator, f->n);
	/* What a first use makes and keeps may be there already. */
	after.resources.retained = before.resources.retained;
	caches = before.caches;
	before.caches = after.caches;
	nothing_left(&before, &after, what);
	ck_assert_msg(documented(rc), "%s: errno %d", what, rc);
	OK(f->deed->run());
	ck_assert_msg(taken(&gdri_caches) == caches + f->deed->keeps, "%s: %u caches, not %u", what,
		      taken(&gdri_caches), caches + f->deed->keeps);
	OK(gdr_close(g));
	return FAILED;
}

static void no_memory(void)
{
	unsigned long faults = 0;

	for (size_t d = 0; d < COUNT(deeds); d++)
		for (size_t a = 0; a < COUNT(allocators); a++) {
			struct first_use f = { &deeds[d], allocators[a], 1 };
			int status;

			while ((status = unit_in_child(first_use, &f)) == FAILED)
				f.n++, faults++;
			ck_assert_msg(status == END, "%s, %s number %lu: status %d", f.deed->name,
				      f.allocator, f.n, status);
		}
	ck_assert_uint_gt(faults, 3);
	printf("%lu times no memory at a first use\n", faults);
}

#define DMABUF "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "each call fails, device memory", by_dmabuf, DMABUF },
	{ "each call fails, an integrated GPU", integrated,
	  "GDRSIM_INTEGRATED=1 GDRCOPY_BACKEND=host" },
	{ "no memory at a first use", no_memory, DMABUF },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "what failed calls leave behind", tests, COUNT(tests));
}
