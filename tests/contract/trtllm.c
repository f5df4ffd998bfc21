/* SPDX-License-Identifier: MIT */
/*
 * TensorRT-LLM: NCCL's way with declarations of its own, under one lock, kept once loaded; the copy
 * calls are used, and several threads allocate.
 */
#include <pthread.h>

#include "contract.h"

#define GPU_PAGE ((size_t)65536)

enum { THREADS = 4, ROUNDS = 50 };

struct gdr;
typedef struct gdr *gdr_t;
typedef struct gdr_mh_s {
	unsigned long h;
} gdr_mh_t;

struct gdr_info {
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
};

static struct {
	gdr_t (*open)(void);
	int (*close)(gdr_t);
	int (*pin_buffer)(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *);
	int (*unpin_buffer)(gdr_t, gdr_mh_t);
	int (*get_info)(gdr_t, gdr_mh_t, struct gdr_info *);
	int (*map)(gdr_t, gdr_mh_t, void **, size_t);
	int (*unmap)(gdr_t, gdr_mh_t, void *, size_t);
	void (*runtime_get_version)(int *, int *);
	void (*driver_get_version)(gdr_t, int *, int *);
	int (*copy_to_mapping)(gdr_mh_t, void *, const void *, size_t);
	int (*copy_from_mapping)(gdr_mh_t, void *, const void *, size_t);
} f;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gdr_t g;

static void load(void)
{
	void *lib;

	pthread_mutex_lock(&lock);
	lib = dlopen("libgdrapi.so", RTLD_NOW);
	if (!lib)
		FAIL("%s", dlerror());
	LOAD(lib, f.open, "gdr_open");
	LOAD(lib, f.close, "gdr_close");
	LOAD(lib, f.pin_buffer, "gdr_pin_buffer");
	LOAD(lib, f.unpin_buffer, "gdr_unpin_buffer");
	LOAD(lib, f.get_info, "gdr_get_info");
	LOAD(lib, f.map, "gdr_map");
	LOAD(lib, f.unmap, "gdr_unmap");
	LOAD(lib, f.runtime_get_version, "gdr_runtime_get_version");
	LOAD(lib, f.driver_get_version, "gdr_driver_get_version");
	LOAD(lib, f.copy_to_mapping, "gdr_copy_to_mapping");
	LOAD(lib, f.copy_from_mapping, "gdr_copy_from_mapping");
	pthread_mutex_unlock(&lock);
}

static void *work(void *arg)
{
	uint64_t memory = *(uint64_t *)arg;
	uint64_t aligned = (memory + GPU_PAGE - 1) & ~(uint64_t)(GPU_PAGE - 1);
	struct gdr_info info;
	char in[300], out[300];
	gdr_mh_t mh;
	void *map;

	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		OK(f.pin_buffer(g, aligned, GPU_PAGE, 0, 0, &mh));
		OK(f.get_info(g, mh, &info));
		OK(f.map(g, mh, &map, GPU_PAGE));
		pthread_mutex_unlock(&lock);
		CHECK(info.va == aligned);
		memset(in, i, sizeof(in));
		OK(f.copy_to_mapping(mh, (char *)map + 1, in, sizeof(in)));
		OK(f.copy_from_mapping(mh, out, (char *)map + 1, sizeof(out)));
		CHECK(!memcmp(in, out, sizeof(in)));
		pthread_mutex_lock(&lock);
		OK(f.unmap(g, mh, map, GPU_PAGE));
		OK(f.unpin_buffer(g, mh));
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

int main(void)
{
	uint64_t memory[THREADS];
	pthread_t threads[THREADS];
	int major = 0, minor = 0;

	load();
	g = f.open();
	if (!g)
		DISABLED("gdr_open fails: off");
	f.runtime_get_version(&major, &minor);
	CHECK(major > 2 || (major == 2 && minor >= 1));
	f.driver_get_version(g, &major, &minor);
	CHECK(major > 2 || (major == 2 && minor >= 1));
	for (int i = 0; i < THREADS; i++) {
		memory[i] = contract_alloc(2 * GPU_PAGE - 1);
		CHECK(!pthread_create(&threads[i], NULL, work, &memory[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		contract_free(memory[i]);
	}
	OK(f.close(g));
	printf("%d threads, %d allocations each\n", THREADS, ROUNDS);
	return 0;
}
