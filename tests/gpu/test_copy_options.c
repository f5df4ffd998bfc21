/* SPDX-License-Identifier: MIT */
/*
 * barcopy_set_copy_options() on real memory (or the stand-in's): the copy engine's bytes and their order
 * beside the mapping's, from threads without a context, during a stream capture, after the memory
 * has been freed.
 */
#include <dlfcn.h>
#include <errno.h>
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

/* Both ways at odd places, against CUDA's own copies. */
static void same_bytes(struct mapped *m)
{
	static const size_t sizes[] = { 5, 4096, 65537, 300001, (5 << 20) + 3 };
	uint8_t *a = malloc(SIZE), *b = malloc(SIZE);

	EXPECT(a && b, "no memory");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i], at = 4096 * i + 13;

		pattern(a, n, (unsigned int)i + 1);
		OK(gdr_copy_to_mapping(m->h, m->p + at, a, n));
		memset(b, 0, n);
		CU(cu.MemcpyDtoH(b, m->v.ptr + at, n));
		EXPECT(!memcmp(a, b, n), "to: %zu bytes: the GPU has others", n);
		pattern(a, n, (unsigned int)i + 100);
		CU(cu.MemcpyHtoD(m->v.ptr + at, a, n));
		CU(cu.CtxSynchronize());
		memset(b, 0xa5, n + 1);
		OK(gdr_copy_from_mapping(m->h, b, m->p + at, n));
		EXPECT(!memcmp(a, b, n) && b[n] == 0xa5, "from: %zu bytes", n);
	}
	free(a);
	free(b);
}

static void engine_bytes(void)
{
	struct mapped m;

	if (open_with(&m, 1))
		return;
	same_bytes(&m);
	EXPECT(copies() == 10, "%llu copies", (unsigned long long)copies());
	EXPECT(fallbacks() == 0, "%llu fallbacks", (unsigned long long)fallbacks());
	OK(barcopy_set_copy_options(m.h, NULL));
	same_bytes(&m);
	EXPECT(copies() == 10, "the copy engine after the defaults were restored");
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
		/* Left in a line buffer: no fence. */
		*(volatile uint64_t *)(void *)(m.p + i % 1024 * 8) = i;
		OK(gdr_copy_from_mapping(m.h, block, m.p, sizeof(block)));
		EXPECT(block[i % 1024] == i, "round %llu: the engine read %llu",
		       (unsigned long long)i, (unsigned long long)block[i % 1024]);
		/* The engine's bytes must not be overtaken by that store either. */
		*(volatile uint64_t *)(void *)(m.p + 512) = ~i;
		block[64] = i;
		OK(gdr_copy_to_mapping(m.h, m.p, block, sizeof(block)));
		OK(barcopy_get64(m.h, m.p + 512, &back));
		EXPECT(back == i, "round %llu: the mapping has 0x%llx", (unsigned long long)i,
		       (unsigned long long)back);
	}
	EXPECT(fallbacks() == 0, "%llu fallbacks", (unsigned long long)fallbacks());
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
		EXPECT(!pthread_create(&thread[i], NULL, without_context, &m), "pthread_create");
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &bad);
		EXPECT(!bad, "%s", (const char *)bad);
	}
	EXPECT(copies() == 80, "%llu copies by the engine", (unsigned long long)copies());
	OK(mapped_close(&m));
}

/* The memory is gone, and its address with it: only the mapping knows the bytes. */
static void freed_memory(void)
{
	uint8_t *a = malloc(SIZE), *b = malloc(SIZE);
	uint64_t persistent = 0;
	struct mapped m;

	EXPECT(a && b, "no memory");
	if (open_with(&m, 65536))
		return;
	OK(barcopy_get_handle_attribute(test_g, m.h, BARCOPY_HANDLE_ATTR_PERSISTENT, &persistent));
	pattern(a, 1 << 20, 9);
	OK(gdr_copy_to_mapping(m.h, m.p, a, 1 << 20));
	if (!persistent) {
		OK(mapped_close(&m));
		SKIP("the mapping ends with its memory");
	}
	vmm_unmap(&m.v);
	OK(gdr_copy_from_mapping(m.h, b, m.p, 1 << 20));
	EXPECT(!memcmp(a, b, 1 << 20), "other bytes than the mapping's");
	EXPECT(copies() == 1 && fallbacks() == 1, "%llu copies, %llu fallbacks",
	       (unsigned long long)copies(), (unsigned long long)fallbacks());
	OK(mapped_close(&m));
	free(a);
	free(b);
}

/* Of CUDA's stream capture, what this test needs; the stand-in has none. */
struct capture {
	CUresult (*begin)(CUstream stream, CUstreamCaptureMode mode);
	CUresult (*end)(CUstream stream, void **graph);
	CUresult (*destroy)(void *graph);
};

static bool find(void *lib, const char *name, void *fn)
{
	void *p = dlsym(lib, name);

	memcpy(fn, &p, sizeof(p));
	return p != NULL;
}

/* A capture that forbids every unsafe call in every thread, and a copy in the midst of it. */
static void during_capture(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	uint8_t *buf = malloc(SIZE);
	struct capture c;
	void *graph = NULL;
	struct mapped m;
	CUstream stream;

	EXPECT(lib && buf, "libcuda.so.1");
	if (!find(lib, "cuStreamBeginCapture_v2", &c.begin) ||
	    !find(lib, "cuStreamEndCapture", &c.end) || !find(lib, "cuGraphDestroy", &c.destroy)) {
		free(buf);
		SKIP("no stream capture here");
	}
	if (open_with(&m, 65536))
		return;
	CU(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(c.begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(gdr_copy_from_mapping(m.h, buf, m.p, 1 << 20));
	OK(gdr_copy_to_mapping(m.h, m.p, buf, 1 << 20));
	CU(c.end(stream, &graph));
	EXPECT(copies() == 2 && fallbacks() == 0, "%llu copies, %llu fallbacks",
	       (unsigned long long)copies(), (unsigned long long)fallbacks());
	CU(c.destroy(graph));
	OK(mapped_close(&m));
	free(buf);
}

static const struct gpu_test tests[] = {
	{ "copy engine: the same bytes both ways, counted", engine_bytes },
	{ "copy engine: in order with the mapping", order_with_the_mapping },
	{ "copy engine: threads without a context", several_threads },
	{ "copy engine: freed memory goes by the mapping", freed_memory },
	{ "copy engine: a stream capture is not broken", during_capture },
};

GPU_TEST_MAIN(tests)
