/* SPDX-License-Identifier: MIT */
/*
 * Ranges: buffers of any address and size, for programs with an allocator of their own, such as
 * PyTorch's. Each buffer gets a mapping; buffers that lie close together share their pins, and so
 * their BAR1.
 *
 *     cc ranges.c -lgdrapi -lcuda -o ranges && ./ranges
 */
#include <cuda.h>
#include <barcopy.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFERS = 8, SIZE = 100000 };

static void must(int failed, const char *call)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", call, barcopy_last_error());
	exit(1);
}

int main(void)
{
	barcopy_stats_t stats = { .struct_size = sizeof(stats) };
	gdr_mh_t handle[BUFFERS], reader;
	void *cpu[BUFFERS], *look;
	char text[8] = "";
	CUdeviceptr segment;
	CUcontext ctx;
	gdr_t g;

	must(cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
		     cuMemAlloc(&segment, 1 << 20),
	     "CUDA");
	g = barcopy_open(BARCOPY_OPEN_ANY);
	must(!g, "barcopy_open");
	/* The pointer is that of the range's first byte; copies beyond the range fail. */
	for (int i = 0; i < BUFFERS; i++)
		must(barcopy_map_range(g, segment + (CUdeviceptr)i * SIZE, SIZE, 0, &cpu[i],
				       &handle[i]),
		     "barcopy_map_range");
	must(gdr_copy_to_mapping(handle[3], cpu[3], "buffer3", 8), "gdr_copy_to_mapping");

	/* Read-only: a store through this pointer raises SIGSEGV. */
	must(barcopy_map_range(g, segment + 3 * SIZE, 8, BARCOPY_MAP_RANGE_READ_ONLY, &look,
			       &reader),
	     "barcopy_map_range, read-only");
	must(gdr_copy_from_mapping(reader, text, look, 8), "gdr_copy_from_mapping");
	must(barcopy_get_stats(g, &stats), "barcopy_get_stats");
	printf("\"%s\"; %d ranges, %llu pins\n", text, BUFFERS + 1, (unsigned long long)stats.pins);

	must(barcopy_unmap_range(g, reader), "barcopy_unmap_range");
	for (int i = 0; i < BUFFERS; i++)
		must(barcopy_unmap_range(g, handle[i]), "barcopy_unmap_range");
	gdr_close(g);
	cuMemFree(segment);
	return 0;
}
