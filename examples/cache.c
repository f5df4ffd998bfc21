/* SPDX-License-Identifier: MIT */
/*
 * The registration cache, for a message library whose caller passes the same addresses again and
 * again. The first get of an address pins and maps it; later gets find that mapping.
 *
 *     cc -I/usr/local/cuda/include cache.c -lgdrapi -lcuda -o cache && ./cache
 *
 * See in the output: the first get is by far the longest, as it alone pins (999 hits, 1 miss); and
 * a get after the free pins again, even if the new buffer has the old one's address.
 */
#include "gpu.h"

enum { SIZE = 1 << 20, MESSAGES = 1000, APART = 1000 };

/*
 * Sends a message into any device memory of the program; returns the time of the get. The caller has
 * waited for GPU work that still reads or writes that memory (cuStreamSynchronize()).
 */
static double send_to(barcopy_cache_t cache, CUdeviceptr to, const void *message, size_t size)
{
	barcopy_region_t region;
	double start = now_us(), got;

	GDR(barcopy_cache_get(cache, to, size, &region));
	got = now_us();
	GDR(gdr_copy_to_mapping(region.handle, region.cpu_ptr, message, size));
	GDR(barcopy_cache_put(cache, &region)); /* stays pinned for the next get */
	return got - start;
}

/*
 * A hook of the program's allocator, which calls it before each free. Afterwards would be too late:
 * other memory may get the address at once. It may run in any thread.
 */
static void before_free(barcopy_cache_t cache, CUdeviceptr buffer, size_t size)
{
	GDR(barcopy_cache_invalidate(cache, buffer, size));
}

static void allocator_free(barcopy_cache_t cache, CUdeviceptr buffer, int integrated)
{
	before_free(cache, buffer, SIZE);
	gpu_free(buffer, integrated);
}

static int by_time(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) -
	       (*(const double *)a < *(const double *)b);
}

static void print(barcopy_cache_t cache, const char *when)
{
	barcopy_cache_stats_t stats = { .struct_size = sizeof(stats) };

	GDR(barcopy_cache_get_stats(cache, &stats));
	printf("%s: %llu hits, %llu misses, %llu KiB pinned\n", when,
	       (unsigned long long)stats.hits, (unsigned long long)stats.misses,
	       (unsigned long long)stats.bytes_pinned >> 10);
}

int main(void)
{
	/* NOTIFIED: this program reports what it frees. Otherwise use BARCOPY_CACHE_CHECK_TAG. */
	barcopy_cache_options_t options = { .struct_size = sizeof(options),
					    .validity = BARCOPY_CACHE_NOTIFIED,
					    .max_bytes = 64 << 20 };
	int integrated = gpu_begin();
	CUdeviceptr buffer = gpu_alloc(SIZE, integrated);
	static double us[MESSAGES];
	barcopy_cache_t cache;
	gdr_t g = open_any();

	GDR(barcopy_cache_create(g, &options, &cache));
	for (int i = 0; i < MESSAGES; i++)
		us[i] = send_to(cache, buffer + (CUdeviceptr)i * APART, "message", 8);
	qsort(us + 1, MESSAGES - 1, sizeof(*us), by_time);
	printf("the first get took %.2f us, the median of the others %.2f us\n", us[0],
	       us[MESSAGES / 2]);
	print(cache, "1000 messages");
	allocator_free(cache, buffer, integrated);
	print(cache, "after the free");
	buffer = gpu_alloc(SIZE, integrated);
	send_to(cache, buffer, "message", 8);
	print(cache, "after a message to a new buffer");
	allocator_free(cache, buffer, integrated);
	GDR(barcopy_cache_destroy(cache)); /* unpins what is left */
	gdr_close(g);
	return 0;
}
