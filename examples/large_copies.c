/* SPDX-License-Identifier: MIT */
/*
 * The same two calls copy large blocks with the GPU's copy engine and small ones through the
 * mapping. The library's statistics count both.
 *
 *     cc large_copies.c -lgdrapi -o large_copies && GDRCOPY_STATS=1 ./large_copies
 */
#include <barcopy.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMALL = 256, LARGE = 4 << 20 };

static void must(int failed, const char *call)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", call, barcopy_last_error());
	exit(1);
}

int main(void)
{
	/* AUTO: the library chooses the sizes from which on the copy engine is faster. 0: never use
	 * it. */
	barcopy_copy_options_t options = { .struct_size = sizeof(options),
					   .engine_read_min = BARCOPY_COPY_ENGINE_AUTO,
					   .engine_write_min = BARCOPY_COPY_ENGINE_AUTO };
	barcopy_stats_t stats = { .struct_size = sizeof(stats) };
	char *bytes = calloc(1, LARGE);
	barcopy_mem_t mem;
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

	must(!bytes || !g, "barcopy_open");
	must(barcopy_mem_alloc(g, 0, LARGE, 0, &mem), "barcopy_mem_alloc");
	must(barcopy_set_copy_options(mem.handle, &options), "barcopy_set_copy_options");
	for (size_t size = SMALL; size <= LARGE; size *= 4) {
		must(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, bytes, size),
		     "gdr_copy_to_mapping");
		must(gdr_copy_from_mapping(mem.handle, bytes, mem.cpu_ptr, size),
		     "gdr_copy_from_mapping");
	}
	must(barcopy_get_stats(g, &stats), "barcopy_get_stats");
	printf("%llu copies by the copy engine\n", (unsigned long long)stats.engine_copies);
	if (stats.flags & BARCOPY_STATS_COPIES) /* GDRCOPY_STATS is set */
		printf("%llu copies and %llu bytes to the GPU, %llu and %llu from it\n",
		       (unsigned long long)stats.copies_to, (unsigned long long)stats.bytes_to,
		       (unsigned long long)stats.copies_from, (unsigned long long)stats.bytes_from);
	gdr_close(g);
	free(bytes);
	return 0;
}
