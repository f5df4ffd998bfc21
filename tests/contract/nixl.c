/* SPDX-License-Identifier: MIT */
/*
 * NIXL: the versioned name, then the unversioned one; a context opened and closed as a probe; then
 * a context of its own for each allocation, because it does not rely on a context's locks; memory
 * zeroed and published in copies of eight bytes. In many threads at once here.
 */
#include <pthread.h>

#include <gdrapi.h>

#include "contract.h"

enum { THREADS = 8, ROUNDS = 20 };

#define SYMBOLS(X) X(open) X(close) X(pin_buffer) X(unpin_buffer) X(map) X(unmap) X(copy_to_mapping)

static struct {
	SYMBOLS(SYMBOL)
} f;

static void load(void)
{
	void *lib = dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
	gdr_t probe;

	if (!lib)
		lib = contract_load("libgdrapi.so", RTLD_NOW | RTLD_LOCAL);
	SYMBOLS(LOAD_SYMBOL)
	probe = f.open();
	if (!probe) {
		CHECK(!dlclose(lib));
		DISABLED("gdr_open fails: off");
	}
	OK(f.close(probe));
}

static void *work(void *arg)
{
	uint64_t aligned = (*(uint64_t *)arg + GPU_PAGE_OFFSET) & GPU_PAGE_MASK, value = 0, i;
	gdr_mh_t mh;
	void *map;
	gdr_t g;

	for (int round = 0; round < ROUNDS; round++) {
		g = f.open();
		CHECK(g != NULL);
		OK(f.pin_buffer(g, aligned, GPU_PAGE_SIZE, 0, 0, &mh));
		OK(f.map(g, mh, &map, GPU_PAGE_SIZE));
		for (i = 0; i < 64; i++)
			OK(f.copy_to_mapping(mh, (char *)map + 8 * i, &value, sizeof(value)));
		i = 1000 + (uint64_t)round;
		__atomic_thread_fence(__ATOMIC_RELEASE);
		OK(f.copy_to_mapping(mh, (char *)map + 8, &i, sizeof(i)));
		CHECK(((volatile uint64_t *)map)[1] == i && ((volatile uint64_t *)map)[2] == 0);
		OK(f.unmap(g, mh, map, GPU_PAGE_SIZE));
		OK(f.unpin_buffer(g, mh));
		OK(f.close(g));
	}
	return NULL;
}

int main(void)
{
	uint64_t memory[THREADS], seen = 0;
	pthread_t threads[THREADS];

	load();
	for (int i = 0; i < THREADS; i++) {
		memory[i] = contract_alloc(2 * GPU_PAGE_SIZE - 1);
		CHECK(!pthread_create(&threads[i], NULL, work, &memory[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		contract_from_gpu(&seen, ((memory[i] + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) + 8,
				  sizeof(seen));
		CHECK(seen == 1000 + ROUNDS - 1);
		contract_free(memory[i]);
	}
	printf("%d contexts at a time, %d in turn each\n", THREADS, ROUNDS);
	return 0;
}
