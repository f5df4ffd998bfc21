/* SPDX-License-Identifier: MIT */
/*
 * Several GPUs in one process, or the stand-in's two: each has its own memory, mapping and counts,
 * whichever device is current in the calling thread. Skipped on one GPU.
 */
#include "gpu_test.h"

#define SIZE ((size_t)4 << 20)

enum { MAX_DEVICES = 8 };

/* A device and a buffer on it. */
struct device {
	struct gpu gpu;
	barcopy_mem_t mem;
};

static struct device devices[MAX_DEVICES];
static int device_count;
static uint8_t a[SIZE], b[SIZE];

static bool allocated(void)
{
	int n = 0;

	if (device_count)
		return true;
	if (cu.DeviceGetCount(&n) || n < 2) {
		test_skip("%d CUDA device", n);
		return false;
	}
	for (int i = 0; i < n && i < MAX_DEVICES; i++) {
		struct device *d = &devices[i];

		gpu_find(&d->gpu, i);
		gpu_start(&d->gpu);
		if (barcopy_mem_alloc(test_g, i, SIZE, 0, &d->mem)) {
			test_fail(__FILE__, __LINE__, "barcopy_mem_alloc", "device %d: %s", i,
				  barcopy_last_error());
			return false;
		}
		device_count++;
	}
	cu.CtxSetCurrent(devices[0].gpu.ctx);
	return true;
}

/* Fills every buffer with bytes of its own, then compares. */
static void own_memory(void)
{
	if (!allocated())
		return;
	for (int i = 0; i < device_count; i++) {
		const barcopy_mem_t *m = &devices[i].mem;
		uint64_t ordinal = 99;

		pattern(a, SIZE, (unsigned int)i + 1);
		OK(gdr_copy_to_mapping(m->handle, m->cpu_ptr, a, SIZE));
		OK(barcopy_flush(m->handle));
		OK(barcopy_get_handle_attribute(test_g, m->handle, BARCOPY_HANDLE_ATTR_DEVICE,
						&ordinal));
		CHECK(ordinal == (uint64_t)i, "device %d says %llu", i,
		      (unsigned long long)ordinal);
	}
	for (int i = 0; i < device_count; i++) {
		const barcopy_mem_t *m = &devices[i].mem;

		CU(cu.CtxSetCurrent(devices[i].gpu.ctx));
		pattern(a, SIZE, (unsigned int)i + 1);
		memset(b, 0, SIZE);
		CU(cu.MemcpyDtoH(b, m->device_ptr, SIZE));
		CHECK(!memcmp(a, b, SIZE), "to device %d", i);
		pattern(a, SIZE, (unsigned int)i + 50);
		CU(cu.MemcpyHtoD(m->device_ptr, a, SIZE));
		CU(cu.CtxSynchronize());
		OK(gdr_copy_from_mapping(m->handle, b, m->cpu_ptr, SIZE));
		CHECK(!memcmp(a, b, SIZE), "from device %d", i);
	}
	CU(cu.CtxSetCurrent(devices[0].gpu.ctx));
}

/* Ranges and cached regions of one device while another, or none, is current. */
static void others_current(void)
{
	barcopy_cache_t cache;
	CUcontext now;

	if (!allocated())
		return;
	OK(barcopy_cache_create(test_g, NULL, &cache));
	for (int i = 0; i < device_count; i++)
		for (int j = -1; j < device_count; j++) {
			uint64_t at = devices[i].mem.device_ptr + 4096 + (uint64_t)j + 1;
			uint64_t value = (uint64_t)i << 32 | (uint64_t)(j + 1), seen = 0;
			CUcontext current = j < 0 ? NULL : devices[j].gpu.ctx;
			barcopy_region_t region;
			gdr_mh_t h;
			void *cpu;

			CU(cu.CtxSetCurrent(current));
			OK(barcopy_map_range(test_g, at, 8, 0, &cpu, &h));
			OK(gdr_copy_to_mapping(h, cpu, &value, 8));
			OK(barcopy_unmap_range(test_g, h));
			OK(barcopy_cache_get(cache, at, 8, &region));
			OK(gdr_copy_from_mapping(region.handle, &seen, region.cpu_ptr, 8));
			OK(barcopy_cache_put(cache, &region));
			CHECK(seen == value, "device %d with %d current", i, j);
			CU(cu.CtxGetCurrent(&now));
			CHECK(now == current, "the current context was changed");
		}
	OK(barcopy_cache_destroy(cache));
	CU(cu.CtxSetCurrent(devices[0].gpu.ctx));
}

/* The copy engine of the memory's device, not of the current one. */
static void engines(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 65536 };

	if (!allocated())
		return;
	for (int i = 0; i < device_count; i++) {
		const barcopy_mem_t *m = &devices[i].mem;
		barcopy_stats_t before = { .struct_size = sizeof(before) }, after = before;
		uint64_t copies;

		OK(barcopy_get_stats(test_g, &before));
		CU(cu.CtxSetCurrent(devices[(i + 1) % device_count].gpu.ctx));
		OK(barcopy_set_copy_options(m->handle, &o));
		pattern(a, SIZE, (unsigned int)i + 100);
		OK(gdr_copy_to_mapping(m->handle, m->cpu_ptr, a, SIZE));
		OK(gdr_copy_from_mapping(m->handle, b, m->cpu_ptr, SIZE));
		CHECK(!memcmp(a, b, SIZE), "device %d", i);
		OK(barcopy_get_stats(test_g, &after));
		copies = after.engine_copies - before.engine_copies;
		CHECK(copies == 1, "device %d: %llu copies by its engine", i,
		      (unsigned long long)copies);
		OK(barcopy_set_copy_options(m->handle, NULL));
	}
	CU(cu.CtxSetCurrent(devices[0].gpu.ctx));
}

static void bars(void)
{
	if (!allocated())
		return;
	for (int i = 0; i < device_count; i++) {
		barcopy_bar_info_t before = { .struct_size = sizeof(before) },
				   after = { .struct_size = sizeof(after) };
		barcopy_mem_t mem;
		int rc = barcopy_get_bar_info(i, &before);

		if (rc)
			SKIP("%s", barcopy_last_error());
		OK(barcopy_mem_alloc(test_g, i, (size_t)64 << 20, 0, &mem));
		OK(barcopy_get_bar_info(i, &after));
		OK(barcopy_mem_free(test_g, &mem));
		CHECK(after.used >= before.used + ((uint64_t)64 << 20), "device %d: %llu to %llu",
		      i, (unsigned long long)before.used, (unsigned long long)after.used);
	}
}

static void give_back(void)
{
	if (!allocated())
		return;
	while (device_count) {
		struct device *d = &devices[--device_count];

		OK(barcopy_mem_free(test_g, &d->mem));
		gpu_stop(&d->gpu);
	}
	cu.CtxSetCurrent(test_gpu.ctx);
}

static const struct gpu_test tests[] = {
	{ "each device its own memory", own_memory },
	{ "another device current, or none", others_current },
	{ "the copy engine of the memory's device", engines },
	{ "BAR1 of each", bars },
	{ "given back", give_back },
};

int main(void)
{
	/* For the stand-in, which has one GPU by default. */
	setenv("GDRSIM_DEVICES", "2", 0);
	return gpu_test_main(tests, sizeof(tests) / sizeof(tests[0]));
}
