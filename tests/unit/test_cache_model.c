// SPDX-License-Identifier: MIT
/*
 * The registration cache against a model: a plain list of regions with the same rules, a million
 * random calls, and after each the same result and the same statistics. Memory is counted in units:
 * GPU pages of one host allocation, or whole VMM chunks.
 */
#include <pthread.h>

#include "mem_sim.h"

enum { UNITS = 48, HELD = 8, MAX_LENGTH = 5, LOOKS = 4 };

struct model_region {
	struct model_region *next;
	int first, last; /* units [first, last) */
	unsigned int refs;
	bool live, used; /* used: found again since eviction last looked at it */
	unsigned int generation[UNITS]; /* of the memory when it was pinned */
};

struct held {
	struct model_region *model;
	barcopy_region_t real;
};

struct world {
	/* what is tested */
	gdr_t g;
	barcopy_cache_t cache;
	CUdeviceptr base;
	size_t unit;
	bool host, tags;

	/* the model */
	struct model_region
		*regions; /* those that live, in the order of the next eviction, among the rest */
	struct model_region *look; /* the next one that a miss looks at; NULL: the first */
	unsigned int generation[UNITS]; /* one more with each reallocation */
	unsigned int bar; /* units; 0: no end */
	unsigned int max_units, max_regions;
	bool over;
	uint64_t hits, misses, evictions, invalidations;

	struct held held[HELD];
	unsigned int held_count;
	uint64_t random;
	unsigned int rounds;
};

static unsigned int below(struct world *w, unsigned int n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (unsigned int)(w->random >> 20) % n;
}

/* ---- the model ---------------------------------------------------------------------------- */

static unsigned int model_count(const struct world *w, bool all)
{
	unsigned int n = 0;

	for (struct model_region *r = w->regions; r; r = r->next)
		n += all || r->live;
	return n;
}

/* Units of BAR: of what can be found, or of all. */
static unsigned int model_units(const struct world *w, bool all)
{
	unsigned int n = 0;

	for (struct model_region *r = w->regions; r; r = r->next)
		n += all || r->live ? (unsigned int)(r->last - r->first) : 0;
	return w->host ? 0 : n;
}

static void model_unlink(struct world *w, struct model_region *r)
{
	struct model_region **link = &w->regions;

	while (*link != r)
		link = &(*link)->next;
	*link = r->next;
}

static void model_append(struct world *w, struct model_region *r)
{
	struct model_region **link = &w->regions;

	while (*link)
		link = &(*link)->next;
	*link = r;
	r->next = NULL;
}

/* The first one that lives, from this one on. */
static struct model_region *living(struct model_region *r)
{
	while (r && !r->live)
		r = r->next;
	return r;
}

static void model_free(struct world *w, struct model_region *r)
{
	if (w->look == r)
		w->look = living(r->next);
	model_unlink(w, r);
	free(r);
}

static void model_kill(struct world *w, struct model_region *r)
{
	if (w->look == r)
		w->look = living(r->next);
	r->live = false;
	if (!r->refs)
		model_free(w, r);
}

static bool model_evict(struct world *w, unsigned int units)
{
	unsigned int freed = 0, looks = 2 * model_count(w, false);
	bool any = false;

	while (looks-- && (!any || freed < units)) {
		struct model_region *r = living(w->regions);

		if (!r)
			break;
		if (!r->used && !r->refs) {
			freed += w->host ? 0 : (unsigned int)(r->last - r->first);
			model_free(w, r);
			w->evictions++;
			any = true;
		} else {
			r->used = false;
			model_unlink(w, r);
			model_append(w, r);
		}
	}
	return any;
}

static void model_trim(struct world *w, unsigned int units, unsigned int regions)
{
	while ((w->over = (w->max_units && model_units(w, false) + units > w->max_units) ||
			  (w->max_regions && model_count(w, false) + regions > w->max_regions)))
		if (!model_evict(w, 0))
			break;
}

static bool model_valid(const struct world *w, const struct model_region *r, int first, int last)
{
	for (int u = first; w->tags && u < last; u++)
		if (r->generation[u] != w->generation[u])
			return false;
	return true;
}

static bool overlaps(const struct model_region *r, int first, int last)
{
	return r->live && r->first < last && r->last > first;
}

/* Each miss looks at some regions; the next one at the next ones. */
static void model_sweep(struct world *w)
{
	unsigned int count = model_count(w, false);

	for (unsigned int i = 0; i < LOOKS && i < count; i++) {
		struct model_region *r = w->look ? w->look : living(w->regions);

		w->look = living(r->next);
		if (!r->refs && !model_valid(w, r, r->first, r->last)) {
			model_free(w, r);
			w->invalidations++;
		}
	}
}

/* Pins: makes room for the limits, then in the BAR. */
static bool model_open(struct world *w, int first, int last)
{
	unsigned int units = w->host ? 0 : (unsigned int)(last - first);

	model_trim(w, units, 1);
	while (w->bar && model_units(w, true) + units > w->bar)
		if (!model_evict(w, units))
			return false;
	return true;
}

static struct model_region *model_get(struct world *w, int first, int last)
{
	int low = first, high = last;
	struct model_region *r, *next;

	for (r = w->regions; r; r = next) {
		next = r->next;
		/* Looked at, it was used, even if that was in vain. */
		r->used |= r->live && r->first <= first && r->last > first;
		if (!r->live || r->first > first || r->last < last)
			continue;
		if (model_valid(w, r, first, last)) {
			w->hits++;
			r->refs++;
			return r;
		}
		w->invalidations++;
		model_kill(w, r);
	}
	w->misses++;
	model_sweep(w);
	for (r = w->regions; r; r = next) {
		next = r->next;
		if (!overlaps(r, first, last))
			continue;
		if (model_valid(w, r, r->first, r->last)) {
			low = r->first < low ? r->first : low;
			high = r->last > high ? r->last : high;
		} else {
			w->invalidations++;
			model_kill(w, r);
		}
	}
	if (w->max_units && !w->host && (unsigned int)(high - low) > w->max_units) {
		low = first;
		high = last;
	}
	if (!model_open(w, low, high)) {
		if (low == first && high == last)
			return NULL;
		low = first;
		high = last;
		if (!model_open(w, low, high))
			return NULL;
	}
	for (r = w->regions; r; r = next) {
		next = r->next;
		if (overlaps(r, low, high))
			model_kill(w, r);
	}
	r = calloc(1, sizeof(*r));
	*r = (struct model_region){ .first = low, .last = high, .refs = 1, .live = true };
	memcpy(r->generation, w->generation, sizeof(r->generation));
	model_append(w, r);
	model_trim(w, 0, 0);
	return r;
}

static void model_put(struct world *w, struct model_region *r)
{
	if (!--r->refs && !r->live)
		model_free(w, r);
	if (w->over)
		model_trim(w, 0, 0);
}

static void model_invalidate(struct world *w, int first, int last)
{
	struct model_region *r, *next;

	for (r = w->regions; r; r = next) {
		next = r->next;
		if (overlaps(r, first, last)) {
			w->invalidations++;
			model_kill(w, r);
		}
	}
}

/* ---- the comparison ----------------------------------------------------------------------- */

static void check(const struct world *w, int op)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	uint64_t used = 0;

	for (struct model_region *r = w->regions; r; r = r->next)
		used += r->refs != 0;
	OK(barcopy_cache_get_stats(w->cache, &s));
	ck_assert_msg(s.hits == w->hits && s.misses == w->misses && s.evictions == w->evictions &&
			      s.invalidations == w->invalidations &&
			      s.regions == model_count(w, true) && s.regions_in_use == used &&
			      s.bytes_pinned == (uint64_t)model_units(w, false) * w->unit,
		      "operation %d, round %u: hits %lu %lu, misses %lu %lu, evictions %lu %lu, "
		      "invalidations %lu %lu, regions %lu %u, in use %lu %lu, bytes %lu %lu",
		      op, w->rounds, s.hits, w->hits, s.misses, w->misses, s.evictions,
		      w->evictions, s.invalidations, w->invalidations, s.regions,
		      model_count(w, true), s.regions_in_use, used, s.bytes_pinned,
		      (uint64_t)model_units(w, false) * w->unit);
}

static void do_get(struct world *w)
{
	struct held *h = &w->held[w->held_count];
	int first = (int)below(w, UNITS), last = first + 1 + (int)below(w, MAX_LENGTH);
	uint64_t low, high;
	int rc;

	if (last > UNITS)
		last = UNITS;
	/* some bytes of the first unit and of the last one */
	low = w->base + (size_t)first * w->unit + below(w, 4000);
	high = w->base + (size_t)last * w->unit - below(w, 4000);
	h->model = model_get(w, first, last);
	rc = barcopy_cache_get(w->cache, low, high - low, &h->real);
	ck_assert_msg(rc == (h->model ? 0 : ENOMEM), "errno %d: %s", rc, barcopy_last_error());
	if (rc)
		return;
	w->held_count++;
	ck_assert_uint_eq(h->real.device_ptr, low);
	if (w->host)
		ck_assert_uint_eq((uintptr_t)h->real.cpu_ptr, low);
	else if (!below(w, 8)) {
		uint64_t at = (high - low - 8) / 8 * below(w, 8);

		ck_assert(same_memory(h->real.handle, (char *)h->real.cpu_ptr + at, low + at));
	}
}

static void do_put(struct world *w)
{
	unsigned int i = below(w, w->held_count);

	model_put(w, w->held[i].model);
	OK(barcopy_cache_put(w->cache, &w->held[i].real));
	w->held[i] = w->held[--w->held_count];
}

static void do_invalidate(struct world *w)
{
	int first = (int)below(w, UNITS), last = first + 1 + (int)below(w, MAX_LENGTH);

	if (last > UNITS)
		last = UNITS;
	model_invalidate(w, first, last);
	OK(barcopy_cache_invalidate(w->cache, w->base + (size_t)first * w->unit,
				    (size_t)(last - first) * w->unit));
}

/* Other memory at the address of a unit; nobody is told. */
static void do_reallocate(struct world *w)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
	};
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	unsigned int u = below(w, UNITS);
	CUdeviceptr at = w->base + u * w->unit;
	CUmemGenericAllocationHandle handle;

	CU(cuda.cuMemUnmap(at, w->unit));
	CU(cuda.cuMemCreate(&handle, w->unit, &prop, 0));
	CU(cuda.cuMemMap(at, w->unit, 0, handle, 0));
	CU(cuda.cuMemRelease(handle));
	CU(cuda.cuMemSetAccess(at, w->unit, &access, 1));
	w->generation[u]++;
}

static void run_world(struct world *w, barcopy_cache_validity_t validity, unsigned int count)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o),
				      .validity = validity,
				      .max_bytes =
					      w->max_units ? w->max_units * w->unit : UINT64_MAX,
				      .max_regions = w->max_regions,
				      .whole_max = 1 };

	w->tags = validity == BARCOPY_CACHE_CHECK_TAG;
	OK(barcopy_cache_create(w->g, &o, &w->cache));
	for (w->rounds = 0; w->rounds < count; w->rounds++) {
		unsigned int x = below(w, 100);

		/* few uses are long */
		if (w->held_count == HELD || (w->held_count && x < 45))
			do_put(w);
		else if (x < 96)
			do_get(w);
		else if (w->tags && x < 98)
			do_reallocate(w);
		else
			do_invalidate(w);
		check(w, (int)x);
	}
	while (w->held_count)
		do_put(w);
	check(w, -1);
	OK(barcopy_cache_invalidate(w->cache, 0, SIZE_MAX));
	model_invalidate(w, 0, UNITS);
	check(w, -2);
	ck_assert_ptr_null(w->regions);
	OK(barcopy_cache_destroy(w->cache));
}

/* ---- the tests ---------------------------------------------------------------------------- */

static unsigned int operations(unsigned int full)
{
	const char *text = getenv("GDRCOPY_TEST_QUICK");

	return text && *text && *text != '0' ? full / 200 : full;
}

static void *host_world(void *arg)
{
	struct world *w = arg;

	cuda.cuCtxSetCurrent(standin_primary(0));
	run_world(w, w->random % 2 ? BARCOPY_CACHE_NOTIFIED : BARCOPY_CACHE_CHECK_TAG,
		  operations(200000));
	return NULL;
}

/* Four threads, each with a cache and a model of its own, on one context. Host memory is never
 * allocated anew here, so that the validity makes no difference but in the path. */
START_TEST(test_by_count)
{
	struct world w[4];
	pthread_t thread[4];
	void *memory[4];
	gdr_t g;

	standin_start();
	g = open_any();
	for (unsigned int i = 0; i < 4; i++) {
		CU(cuda.cuMemHostAlloc(&memory[i], (UNITS + 1) * PAGE, 0));
		w[i] = (struct world){ .g = g,
				       .unit = PAGE,
				       .host = true,
				       .max_regions = 6 + i * 4,
				       .random = 0x9e3779b97f4a7c15 * (i + 1) + i % 2 };
		w[i].base = ((uintptr_t)memory[i] + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, host_world, &w[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		CU(cuda.cuMemFreeHost(memory[i]));
	}
	OK(gdr_close(g));
}
END_TEST

START_TEST(test_by_bytes_and_tags)
{
	struct world w = { .unit = CHUNK, .max_units = 20, .max_regions = 12, .random = 4711 };

	standin_start();
	w.g = open_any();
	w.base = vmm_new(0, UNITS);
	run_world(&w, BARCOPY_CACHE_CHECK_TAG, operations(120000));
	vmm_delete(w.base, UNITS);
	OK(gdr_close(w.g));
}
END_TEST

START_TEST(test_by_bar)
{
	struct world w = { .unit = CHUNK, .bar = 24, .random = 815 };

	setenv("GDRSIM_BAR1_MIB", "48", 1);
	standin_start();
	w.g = open_any();
	w.base = vmm_new(0, UNITS);
	run_world(&w, BARCOPY_CACHE_NOTIFIED, operations(80000));
	vmm_delete(w.base, UNITS);
	OK(gdr_close(w.g));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("barcopy_cache against a model");
	TCase *tc = tcase_create("model");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_by_count);
	tcase_add_test(tc, test_by_bytes_and_tags);
	tcase_add_test(tc, test_by_bar);
	suite_add_tcase(suite, tc);
	return unit_suite(suite, CK_FORK);
}
