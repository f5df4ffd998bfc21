/* SPDX-License-Identifier: MIT */
/*
 * GDRCopy's own calls on a buffer that the program has allocated: open, pin, map, copy to the GPU
 * and back, unmap, unpin, close. Where one of the first three fails, cuMemcpy copies instead.
 *
 *     cc -I/usr/local/cuda/include pin.c -lgdrapi -lcuda -o pin && ./pin
 *
 * The output says which way the text went to the GPU, and why if that was cuMemcpy; then the time of
 * 8 bytes to the GPU and of 8 bytes back. On a GPU the mapping takes a small part of cuMemcpy's time.
 */
#include "gpu.h"

enum { SEGMENT = 1 << 20, OFFSET = 5000, SIZE = 4096, ROUNDS = 1000 };

struct buffer {
	CUdeviceptr gpu; /* for CUDA */
	char *cpu; /* the same byte for the CPU; NULL: not mapped, cuMemcpy copies */
	gdr_mh_t handle;
	void *map; /* of the pages around it */
	size_t map_size;
};

/* Returns the context if the buffer is mapped, else NULL. */
static gdr_t map_buffer(struct buffer *b)
{
	gdr_t g = gdr_open();
	gdr_info_t info;

	/* The pin is widened to pages of 64 KiB, and the mapping begins at info.va, the first byte of
	 * the first page: the buffer lies after that. */
	if (g && !gdr_pin_buffer(g, b->gpu, SIZE, 0, 0, &b->handle) &&
	    !gdr_get_info(g, b->handle, &info) &&
	    !gdr_map(g, b->handle, &b->map, info.mapped_size)) {
		b->map_size = info.mapped_size;
		b->cpu = (char *)b->map + (b->gpu - info.va);
		printf("the buffer begins %llu bytes behind the mapping's first byte\n",
		       (unsigned long long)(b->gpu - info.va));
		return g;
	}
	/* The first pin finds what gdr_open() does not see, such as confidential computing. */
	printf("no mapping: %s\n", barcopy_last_error());
	if (g)
		GDR(gdr_close(g)); /* also unpins */
	return NULL;
}

/*
 * A copy through the mapping waits for no GPU work. A program whose kernels or asynchronous copies
 * still read or write the buffer calls cuStreamSynchronize() before put(), and before get() where
 * they write it. Here nothing does: cuMemcpy has ended when it returns.
 */
static void put(const struct buffer *b, const void *from, size_t size)
{
	if (b->cpu)
		GDR(gdr_copy_to_mapping(b->handle, b->cpu, from, size));
	else
		CUDA(cuMemcpyHtoD(b->gpu, from, size));
}

static void get(const struct buffer *b, void *to, size_t size)
{
	if (b->cpu)
		GDR(gdr_copy_from_mapping(b->handle, to, b->cpu, size));
	else
		CUDA(cuMemcpyDtoH(to, b->gpu, size));
}

static void measure(const struct buffer *b)
{
	double to = 1e9, from = 1e9;

	for (uint64_t n = 0, back = 0; n < ROUNDS; n++) {
		double start = now_us(), written, read;

		put(b, &n, sizeof(n));
		written = now_us();
		get(b, &back, sizeof(back));
		read = now_us();
		if (back != n)
			fail("the copy", "the bytes that came back are not those that were sent");
		to = written - start < to ? written - start : to;
		from = read - written < from ? read - written : from;
	}
	printf("%s: 8 bytes to the GPU in %.2f us, back in %.2f us (fastest of %d)\n",
	       b->cpu ? "mapping" : "cuMemcpy", to, from, ROUNDS);
}

int main(void)
{
	struct buffer plain = { 0 }, b;
	char text[16] = "";
	CUdeviceptr segment;
	gdr_t g;

	gpu_begin();
	CUDA(cuMemAlloc(&segment, SEGMENT));
	plain.gpu = segment + OFFSET; /* a buffer inside it, as an allocator hands out */
	b = plain;
	g = map_buffer(&b);
	put(&b, "hello, GPU", 11);
	get(&plain, text, 11); /* by cuMemcpy: CUDA sees what the CPU has written */
	printf("\"%s\" went through %s\n", text, b.cpu ? "the mapping" : "cuMemcpy");
	measure(&plain);
	if (g) {
		measure(&b);
		GDR(gdr_unmap(g, b.handle, b.map, b.map_size));
		GDR(gdr_unpin_buffer(g, b.handle));
		GDR(gdr_close(g));
	}
	CUDA(cuMemFree(segment));
	return 0;
}
