/* SPDX-License-Identifier: MIT */
/*
 * barcopy_set_copy_options() on real memory or the stand-in's: the copy engine's bytes, their order
 * together with stores and loads of the mapping, threads without a context, a stream capture, memory that
 * was freed.
 */
#include <pthread.h>

#include "gpu_test.h"

#define SIZE ((size_t)8 << 20)

static barcopy_stats_t before; /* when the mapping was opened */

static barcopy_stats_t stats(void)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	if (barcopy_get_stats(test_g, &s))
		s.engine_copies = s.engine_fallbacks = ~0ULL;
	return s;
}

static uint64_t copies(void)
{
	return stats().engine_copies - before.engine_copies;
}

static uint64_t fallbacks(void)
{
	return stats().engine_fallbacks - before.engine_fallbacks;
}

static int open_with(struct mapped *m, size_t engine_min)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = engine_min,
				     .engine_write_min = engine_min };
	int rc = mapped_open(m, SIZE, 2);

	if (rc)
		return rc;
	before = stats();
	rc = barcopy_set_copy_options(m->h, &o);
	if (rc)
		test_fail(__FILE__, __LINE__, "set_copy_options", "errno %d: %s", rc,
			  barcopy_last_error());
	return rc;
}

/* At odd places and sizes. */
static bool same_bytes(struct mapped *m)
{
	static const size_t sizes[] = { 5, 4096, 65537, 300001, (5 << 20) + 3 };
	bool same = true;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t at = 4096 * i + 13;

		same &= both_ways(m->h, m->p + at, m->v.ptr + at, sizes[i], (unsigned int)i + 1);
	}
	return same;
}

static void engine_bytes(void)
{
	struct mapped m;

	if (open_with(&m, 1))
		return;
	CHECK(same_bytes(&m), "other bytes");
	CHECK(copies() == 10, "%llu copies", (unsigned long long)copies());
	CHECK(fallbacks() == 0, "%llu fallbacks", (unsigned long long)fallbacks());
	OK(barcopy_set_copy_options(m.h, NULL));
	CHECK(same_bytes(&m), "other bytes");
	CHECK(copies() == 10, "the copy engine after the defaults were restored");
	OK(mapped_close(&m));
}

/* A store through the pointer, a copy by the engine, a read of the mapping: each sees the last. */
static void order_with_the_mapping(void)
{
	int rounds = getenv("GDRCOPY_TEST_QUICK")  ? 200
		     : getenv("GDRCOPY_TEST_FULL") ? 1000000
						   : 5000;
	uint64_t block[1024], back;
	struct mapped m;

	if (open_with(&m, sizeof(block)))
		return;
	memset(block, 0, sizeof(block));
	OK(gdr_copy_to_mapping(m.h, m.p, block, sizeof(block)));
	for (uint64_t i = 1; i <= (uint64_t)rounds; i++) {
		/* No fence: the store stays in a line buffer. */
		*(volatile uint64_t *)(void *)(m.p + i % 1024 * 8) = i;
		OK(gdr_copy_from_mapping(m.h, block, m.p, sizeof(block)));
		CHECK(block[i % 1024] == i, "round %llu: the engine read %llu",
		      (unsigned long long)i, (unsigned long long)block[i % 1024]);
		/* That store must not overtake the bytes of the engine either. */
		*(volatile uint64_t *)(void *)(m.p + 512) = ~i;
		block[64] = i;
		OK(gdr_copy_to_mapping(m.h, m.p, block, sizeof(block)));
		OK(barcopy_get64(m.h, m.p + 512, &back));
		CHECK(back == i, "round %llu: the mapping has 0x%llx", (unsigned long long)i,
		      (unsigned long long)back);
	}
	CHECK(fallbacks() == 0, "%llu fallbacks", (unsigned long long)fallbacks());
	OK(mapped_close(&m));
}

static void *without_context(void *arg)
{
	struct mapped *m = arg;
	uint8_t *buf = malloc(SIZE);
	const char *bad = NULL;

	for (int i = 0; i < 20 && buf && !bad; i++)
		if (gdr_copy_from_mapping(m->h, buf, m->p + 1000, 1 << 20))
			bad = "a copy failed";
	free(buf);
	return (void *)(uintptr_t)bad;
}

static void several_threads(void)
{
	pthread_t thread[4];
	struct mapped m;
	void *bad;

	if (open_with(&m, 65536))
		return;
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, without_context, &m), "pthread_create");
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &bad);
		CHECK(!bad, "%s", (const char *)bad);
	}
	CHECK(copies() == 80, "%llu copies by the engine", (unsigned long long)copies());
	OK(mapped_close(&m));
}

/* Other memory is at the pin's address now: only the mapping has the bytes. */
static void freed_memory(void)
{
	static uint8_t a[1 << 20], b[1 << 20];
	uint64_t persistent = 0;
	struct mapped m;

	if (open_with(&m, 65536))
		return;
	OK(barcopy_get_handle_attribute(test_g, m.h, BARCOPY_HANDLE_ATTR_PERSISTENT, &persistent));
	pattern(a, sizeof(a), 9);
	OK(gdr_copy_to_mapping(m.h, m.p, a, sizeof(a)));
	if (!persistent) {
		OK(mapped_close(&m));
		SKIP("the mapping ends with its memory");
	}
	vmm_unmap(&m.v);
	CU(vmm_map(m.v.ptr, m.v.size, EXPORTABLE));
	m.v.mapped = true;
	OK(gdr_copy_from_mapping(m.h, b, m.p, sizeof(b)));
	CHECK(!memcmp(a, b, sizeof(b)), "other bytes than the mapping's");
	CHECK(copies() == 1 && fallbacks() == 1, "%llu copies, %llu fallbacks",
	      (unsigned long long)copies(), (unsigned long long)fallbacks());
	OK(mapped_close(&m));
}

/* Copies during a capture that forbids unsafe calls in every thread. */
static void during_capture(void)
{
	static uint8_t buf[1 << 20];
	CUgraph graph = NULL;
	struct mapped m;
	CUstream stream;

	if (!cu.StreamBeginCapture || !cu.StreamEndCapture || !cu.GraphDestroy)
		SKIP("no stream capture here");
	if (open_with(&m, 65536))
		return;
	CU(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(gdr_copy_from_mapping(m.h, buf, m.p, 1 << 20));
	OK(gdr_copy_to_mapping(m.h, m.p, buf, 1 << 20));
	CU(cu.StreamEndCapture(stream, &graph));
	CHECK(copies() == 2 && fallbacks() == 0, "%llu copies, %llu fallbacks",
	      (unsigned long long)copies(), (unsigned long long)fallbacks());
	CU(cu.GraphDestroy(graph));
	CU(cu.StreamDestroy(stream));
	OK(mapped_close(&m));
}

static const struct gpu_test tests[] = {
	{ "copy engine: the same bytes both ways, counted", engine_bytes },
	{ "copy engine: in order with the mapping", order_with_the_mapping },
	{ "copy engine: threads without a context", several_threads },
	{ "copy engine: freed memory is copied through the mapping", freed_memory },
	{ "copy engine: a stream capture is not broken", during_capture },
};

GPU_TEST_MAIN(tests)
