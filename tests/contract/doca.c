/* SPDX-License-Identifier: MIT */
/*
 * DOCA GPUNetIO: the versioned name; pins the address as it is, aligned or not, never asks for the
 * info, and takes the map pointer for the address rounded down to a GPU page.
 */
#include <gdrapi.h>

#include "contract.h"

#define SYMBOLS(X) X(open) X(close) X(pin_buffer) X(unpin_buffer) X(map) X(unmap)

static struct {
	SYMBOLS(SYMBOL)
} f;

static void use(gdr_t g, uint64_t address, size_t size)
{
	size_t offset = address & GPU_PAGE_OFFSET;
	gdr_mh_t mh;
	void *map;

	OK(f.pin_buffer(g, address, size, 0, 0, &mh));
	OK(f.map(g, mh, &map, offset + size));
	contract_same_word((char *)map + offset, address);
	OK(f.unmap(g, mh, map, offset + size));
	OK(f.unpin_buffer(g, mh));
}

int main(void)
{
	void *lib = contract_load("libgdrapi.so.2", RTLD_LAZY);
	uint64_t memory;
	gdr_t g;

	SYMBOLS(LOAD_SYMBOL)
	OPEN(g, f.open());
	memory = contract_alloc(1 << 20);
	use(g, memory, 4096);
	use(g, memory + 8, 8);
	use(g, memory + 4096, GPU_PAGE_SIZE);
	use(g, memory + GPU_PAGE_SIZE - 8, 24);
	use(g, memory + 3 * GPU_PAGE_SIZE + 512, 2 * GPU_PAGE_SIZE);
	OK(f.close(g));
	contract_free(memory);
	printf("five ranges, none asked about\n");
	return 0;
}
