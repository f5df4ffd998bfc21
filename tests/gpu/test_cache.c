/* SPDX-License-Identifier: MIT */
/*
 * The registration cache on real memory or the stand-in's, with threads: an old mapping never serves
 * memory that was freed and reallocated, and the limits hold. tests/model has one thread.
 */
#include <pthread.h>

#include "gpu_test.h"

static barcopy_cache_t new_cache(barcopy_cache_validity_t validity, uint64_t max_bytes)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o),
				      .validity = validity,
				      .max_bytes = max_bytes };
	barcopy_cache_t cache = NULL;

	if (barcopy_cache_create(test_g, &o, &cache))
		printf("# barcopy_cache_create: %s\n", barcopy_last_error());
	return cache;
}

/* A word both ways through the cache. */
static bool word_arrives(barcopy_cache_t cache, CUdeviceptr at, unsigned int seed)
{
	barcopy_region_t r;
	bool good;

	if (barcopy_cache_get(cache, at, 8, &r)) {
		printf("# barcopy_cache_get: %s\n", barcopy_last_error());
		return false;
	}
	good = both_ways(r.handle, r.cpu_ptr, at, 8, seed);
	return !barcopy_cache_put(cache, &r) && good;
}

/* New memory at one address, again and again. */
static void churn(barcopy_cache_t cache, bool notify, unsigned int rounds, CUdeviceptr at,
		  unsigned int *wrong)
{
	size_t size = 2 << 20;

	for (unsigned int i = 0; i < rounds; i++) {
		*wrong += vmm_map(at, size, EXPORTABLE) != 0;
		for (unsigned int k = 0; k < 3; k++)
			*wrong += !word_arrives(cache, at + k * 65536, i * 3 + k);
		if (notify)
			*wrong += barcopy_cache_invalidate(cache, at, size) != 0;
		*wrong += cu.MemUnmap(at, size) != 0;
	}
}

struct thread {
	pthread_t id;
	barcopy_cache_t cache;
	bool notify;
	CUdeviceptr at;
	unsigned int wrong;
};

static void *run_thread(void *arg)
{
	struct thread *t = arg;

	t->wrong = cu.CtxSetCurrent(test_gpu.ctx) != 0;
	churn(t->cache, t->notify, 50, t->at, &t->wrong);
	return NULL;
}

struct rules {
	barcopy_cache_validity_t validity;
	uint64_t max_bytes;
};

static void reallocated(void)
{
	const struct rules *rules = test_arg;
	const barcopy_cache_validity_t validity = rules->validity;
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	barcopy_cache_t cache = new_cache(validity, rules->max_bytes);
	struct thread t[4];
	CUdeviceptr base;

	CHECK(cache, "no cache");
	CU(cu.MemAddressReserve(&base, 8 << 20, 0, 0, 0));
	for (unsigned int i = 0; i < 4; i++) {
		t[i] = (struct thread){ .cache = cache,
					.notify = validity == BARCOPY_CACHE_NOTIFIED,
					.at = base + (i * 2 << 20) };
		CHECK(!pthread_create(&t[i].id, NULL, run_thread, &t[i]), "no thread");
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(t[i].id, NULL);
	for (unsigned int i = 0; i < 4; i++)
		CHECK(!t[i].wrong, "thread %u: %u wrong", i, t[i].wrong);
	OK(barcopy_cache_get_stats(cache, &s));
	CHECK(s.misses >= 4 * 50, "%llu misses: memory that is new was found",
	      (unsigned long long)s.misses);
	/* By tag, the last region of each thread may still exist. */
	CHECK(rules->max_bytes ||
		      s.invalidations >= 4 * (validity == BARCOPY_CACHE_NOTIFIED ? 50 : 49),
	      "%llu invalidations", (unsigned long long)s.invalidations);
	CU(cu.MemAddressFree(base, 8 << 20));
	OK(barcopy_cache_destroy(cache));
}

static const struct gpu_test tests[] = {
	{ "freed and reallocated with threads, tag check", reallocated,
	  &(struct rules){ BARCOPY_CACHE_CHECK_TAG, 0 } },
	{ "freed and reallocated with threads, notified", reallocated,
	  &(struct rules){ BARCOPY_CACHE_NOTIFIED, 0 } },
	{ "freed and reallocated with threads, two regions at most", reallocated,
	  &(struct rules){ BARCOPY_CACHE_CHECK_TAG, 4 << 20 } },
};

GPU_TEST_MAIN(tests)
