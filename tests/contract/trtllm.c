/* SPDX-License-Identifier: MIT */
/*
 * TensorRT-LLM: NCCL's calls and declarations, under one lock, kept once loaded; the copy calls are
 * used, and several threads allocate.
 */
#include <pthread.h>

#include "nccl.h"

enum { THREADS = 4, ROUNDS = 50 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gdr_t g;

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

	pthread_mutex_lock(&lock);
	load();
	pthread_mutex_unlock(&lock);
	OPEN(g, f.open());
	f.runtime_get_version(&major, &minor);
	AT_LEAST(major, minor, 2, 1);
	f.driver_get_version(g, &major, &minor);
	AT_LEAST(major, minor, 2, 1);
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
