/* SPDX-License-Identifier: MIT */
/*
 * The same two calls copy large blocks with the GPU's copy engine and small ones through the
 * mapping: barcopy_set_copy_options() says from which size on.
 *
 *     cc large_copies.c -lgdrapi -o large_copies && ./large_copies
 *
 * Both ways wait for no GPU work: kernels and asynchronous copies that still use the memory must
 * have ended before a copy (cuStreamSynchronize()). Here there are none.
 *
 * See in the output, for each size: the time of a read without and with the option, and which of the
 * two made the read with it. GDRCOPY_STATS=1 also counts the copies and their bytes.
 */
#include "must.h"

enum { SMALL = 256, LARGE = 4 << 20, ROUNDS = 5 };

/* The fastest of a few reads. */
static double time_of_read(const barcopy_mem_t *mem, void *to, size_t size)
{
	double best = 1e9;

	for (int i = 0; i < ROUNDS; i++) {
		double start = now_us(), us;

		GDR(gdr_copy_from_mapping(mem->handle, to, mem->cpu_ptr, size));
		us = now_us() - start;
		best = us < best ? us : best;
	}
	return best;
}

static barcopy_stats_t stats_of(gdr_t g)
{
	barcopy_stats_t stats = { .struct_size = sizeof(stats) };

	GDR(barcopy_get_stats(g, &stats));
	return stats;
}

int main(void)
{
	/* AUTO: the library chooses the sizes from which on the copy engine is faster. 0: never use
	 * it. */
	barcopy_copy_options_t options = { .struct_size = sizeof(options),
					   .engine_read_min = BARCOPY_COPY_ENGINE_AUTO,
					   .engine_write_min = BARCOPY_COPY_ENGINE_AUTO };
	char *bytes = calloc(1, LARGE);
	barcopy_stats_t stats;
	barcopy_mem_t mem;
	gdr_t g = open_any();

	SYSTEM(bytes != NULL);
	GDR(barcopy_mem_alloc(g, 0, LARGE, 0, &mem));
	GDR(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, bytes, LARGE));
	printf("  bytes   mapping   with the option\n");
	for (size_t size = SMALL; size <= LARGE; size *= 4) {
		double mapping, chosen;
		uint64_t before;

		GDR(barcopy_set_copy_options(mem.handle,
					     NULL)); /* the default: the mapping alone */
		mapping = time_of_read(&mem, bytes, size);
		GDR(barcopy_set_copy_options(mem.handle, &options));
		before = stats_of(g).engine_copies;
		chosen = time_of_read(&mem, bytes, size);
		printf("%7zu %6.1f us %6.1f us by the %s\n", size, mapping, chosen,
		       stats_of(g).engine_copies > before ? "copy engine" : "mapping");
	}
	stats = stats_of(g);
	if (stats.flags & BARCOPY_STATS_COPIES) /* GDRCOPY_STATS is set */
		printf("%llu copies of %llu bytes to the GPU, %llu of %llu from it\n",
		       (unsigned long long)stats.copies_to, (unsigned long long)stats.bytes_to,
		       (unsigned long long)stats.copies_from, (unsigned long long)stats.bytes_from);
	gdr_close(g);
	free(bytes);
	return 0;
}
