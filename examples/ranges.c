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
#include <stdint.h>
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
	barcopy_stats_t stats = { .struct_size = sizeof(stats) };
	gdr_mh_t handle[BUFFERS], reader;
	void *cpu[BUFFERS], *look;
	char text[8] = "";
	CUdeviceptr segment;
	CUcontext ctx;
	int integrated;
	gdr_t g;

	must(cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
		     cuDeviceGetAttribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0),
	     "CUDA");
	segment = allocate(1 << 20, integrated);
	must(!segment, "cuMemAlloc or cuMemHostAlloc");
	g = barcopy_open(BARCOPY_OPEN_ANY);
	must(!g, "barcopy_open");
	/* The pointer is that of the range's first byte; copies beyond the range fail. */
	for (int i = 0; i < BUFFERS; i++)
		must(barcopy_map_range(g, segment + (CUdeviceptr)i * SIZE, SIZE, 0, &cpu[i],
				       &handle[i]),
		     "barcopy_map_range");
	must(gdr_copy_to_mapping(handle[3], cpu[3], "buffer3", 8), "gdr_copy_to_mapping");

	/* Read-only: a store through this pointer raises SIGSEGV. The mapping of cuMemHostAlloc
	 * memory is the memory itself, which cannot be read-only. */
	must(barcopy_map_range(g, segment + 3 * SIZE, 8,
			       integrated ? 0 : BARCOPY_MAP_RANGE_READ_ONLY, &look, &reader),
	     "barcopy_map_range, read-only");
	must(gdr_copy_from_mapping(reader, text, look, 8), "gdr_copy_from_mapping");
	must(barcopy_get_stats(g, &stats), "barcopy_get_stats");
	printf("\"%s\"; %d ranges, %llu pins\n", text, BUFFERS + 1, (unsigned long long)stats.pins);

	must(barcopy_unmap_range(g, reader), "barcopy_unmap_range");
	for (int i = 0; i < BUFFERS; i++)
		must(barcopy_unmap_range(g, handle[i]), "barcopy_unmap_range");
	gdr_close(g);
	if (integrated)
		cuMemFreeHost((void *)(uintptr_t)segment);
	else
		cuMemFree(segment);
	return 0;
}
