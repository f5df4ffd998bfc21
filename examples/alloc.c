/* SPDX-License-Identifier: MIT */
/*
 * Memory that GPU and CPU both reach, in five calls: open, allocate, write, read, close. The program
 * need not initialise CUDA. BARCOPY_OPEN_ANY also opens where only some kinds of memory can be
 * mapped, such as memory of cudaHostAlloc; README, "Requirements", lists the GPU drivers that work.
 *
 *     cc alloc.c -lgdrapi -o alloc && ./alloc
 *
 * The output has the two addresses of the same memory, and the text that came back from it.
 */
#include <barcopy.h>
#include <stdio.h>

int main(void)
{
	char text[16] = "";
	barcopy_mem_t mem;

	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);
	int err = !g || barcopy_mem_alloc(g, 0, 1 << 20, 0, &mem);

	/* No GPU work uses this new memory. Otherwise wait for it before a write and before a read. */
	err = err || gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, "hello, GPU", 11);
	err = err || gdr_copy_from_mapping(mem.handle, text, mem.cpu_ptr, 11);
	if (err) {
		fprintf(stderr, "%s\n", barcopy_last_error());
		return 1;
	}
	printf("%zu bytes at 0x%llx for the GPU and at %p for the CPU hold \"%s\"\n", mem.size,
	       (unsigned long long)mem.device_ptr, mem.cpu_ptr, text);
	gdr_close(g); /* also frees the memory; barcopy_mem_free(g, &mem) frees it earlier */
	return 0;
}
