/* SPDX-License-Identifier: MIT */
/*
 * The registration cache, for a message library whose caller passes the same addresses again and
 * again. The first get of an address pins it; later ones find its mapping in less than 100 ns.
 *
 *     cc cache.c -lgdrapi -lcuda -o cache && ./cache
 */
#include <cuda.h>
#include <barcopy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int failed, const char *call)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", call, barcopy_last_error());
	exit(1);
}

/* Sends a message into any device memory of the program. */
static void send_to(barcopy_cache_t cache, CUdeviceptr to, const void *message, size_t size)
{
	barcopy_region_t region;

	must(barcopy_cache_get(cache, to, size, &region), "barcopy_cache_get");
	must(gdr_copy_to_mapping(region.handle, region.cpu_ptr, message, size),
	     "gdr_copy_to_mapping");
	must(barcopy_cache_put(cache, &region),
	     "barcopy_cache_put"); /* stays pinned for the next get */
}

/* Memory that the CPU can map: where the GPU is integrated, that of cuMemHostAlloc alone. */
static CUdeviceptr allocate(size_t size, int integrated)
{
	CUdeviceptr memory = 0;
	void *host = NULL;

	if (!integrated)
		return cuMemAlloc(&memory, size) ? 0 : memory;
	return cuMemHostAlloc(&host, size, 0) ? 0 : (CUdeviceptr)(uintptr_t)host;
}

int main(void)
{
	/* NOTIFIED: this program reports what it frees. Otherwise use BARCOPY_CACHE_CHECK_TAG. */
	barcopy_cache_options_t options = { .struct_size = sizeof(options),
					    .validity = BARCOPY_CACHE_NOTIFIED,
					    .max_bytes = 64 << 20 };
	barcopy_cache_stats_t stats = { .struct_size = sizeof(stats) };
	barcopy_cache_t cache;
	CUdeviceptr buffer;
	CUcontext ctx;
	int integrated;
	gdr_t g;

	must(cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
		     cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0),
	     "CUDA");
	buffer = allocate(1 << 20, integrated);
	must(!buffer, "cuMemAlloc or cuMemHostAlloc");
	g = barcopy_open(BARCOPY_OPEN_ANY);
	must(!g, "barcopy_open");
	must(barcopy_cache_create(g, &options, &cache), "barcopy_cache_create");
	for (int i = 0; i < 1000; i++)
		send_to(cache, buffer + (CUdeviceptr)i * 1000, "message", 8);

	must(barcopy_cache_get_stats(cache, &stats), "barcopy_cache_get_stats");
	printf("%llu hits, %llu misses, %llu KiB pinned\n", (unsigned long long)stats.hits,
	       (unsigned long long)stats.misses, (unsigned long long)stats.bytes_pinned >> 10);
	/* Call before the free, or from a hook of cuMemFree: other memory may get this address
	 * later. */
	must(barcopy_cache_invalidate(cache, buffer, 1 << 20), "barcopy_cache_invalidate");
	if (integrated)
		cuMemFreeHost((void *)(uintptr_t)buffer);
	else
		cuMemFree(buffer);
	must(barcopy_cache_destroy(cache), "barcopy_cache_destroy");
	gdr_close(g);
	return 0;
}
