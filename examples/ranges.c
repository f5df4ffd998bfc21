/* SPDX-License-Identifier: MIT */
/*
 * Ranges: buffers of any address and size, for programs with an allocator of their own, such as
 * PyTorch's. One call pins and maps a buffer. Buffers that lie close together share a pin, and so
 * their BAR1.
 *
 *     cc -I/usr/local/cuda/include ranges.c -lgdrapi -lcuda -o ranges && ./ranges
 *
 * The output counts the pins: one for the eight ranges in one allocation of 1 MiB, and one more for
 * the read-only range, whose pages are mapped without write permission.
 */
#include "gpu.h"

enum { BUFFERS = 8, SIZE = 100000 };

static unsigned long long pins(gdr_t g)
{
	barcopy_stats_t stats = { .struct_size = sizeof(stats) };

	GDR(barcopy_get_stats(g, &stats));
	return stats.pins;
}

int main(void)
{
	int integrated = gpu_begin();
	CUdeviceptr segment = gpu_alloc(1 << 20, integrated);
	gdr_mh_t handle[BUFFERS], reader;
	void *cpu[BUFFERS], *look;
	unsigned long long shared;
	char text[8] = "";
	gdr_t g = open_any();

	/* The pointer is that of the range's first byte; copies beyond the range fail. */
	for (int i = 0; i < BUFFERS; i++)
		GDR(barcopy_map_range(g, segment + (CUdeviceptr)i * SIZE, SIZE, 0, &cpu[i],
				      &handle[i]));
	/* No GPU work uses the buffer. Otherwise cuStreamSynchronize() comes before the copy. */
	GDR(gdr_copy_to_mapping(handle[3], cpu[3], "buffer3", 8));
	shared = pins(g);
	printf("%d ranges of %d bytes share %llu pin%s\n", BUFFERS, SIZE, shared,
	       shared == 1 ? "" : "s");

	/* Read-only: a store through this pointer raises SIGSEGV. The mapping of cuMemHostAlloc
	 * memory is the memory itself, which cannot be read-only. */
	GDR(barcopy_map_range(g, segment + 3 * SIZE, 8,
			      integrated ? 0 : BARCOPY_MAP_RANGE_READ_ONLY, &look, &reader));
	GDR(gdr_copy_from_mapping(reader, text, look, 8));
	printf("the %s range of one of them took %llu more, and reads \"%s\"\n",
	       integrated ? "second" : "read-only", pins(g) - shared, text);

	GDR(barcopy_unmap_range(g, reader));
	for (int i = 0; i < BUFFERS; i++)
		GDR(barcopy_unmap_range(g, handle[i]));
	gdr_close(g);
	gpu_free(segment, integrated);
	return 0;
}
