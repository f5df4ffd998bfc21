/* SPDX-License-Identifier: MIT */
/*
 * DOCA GPUNetIO: the versioned name; pins the address as it is, aligned or not, never asks for the
 * info, and takes the map pointer for the address rounded down to a GPU page.
 */
#include <gdrapi.h>

#include "contract.h"

static struct {
	gdr_t (*open)(void);
	int (*close)(gdr_t g);
	int (*pin_buffer)(gdr_t g, unsigned long addr, size_t size, uint64_t token, uint32_t space,
			  gdr_mh_t *handle);
	int (*unpin_buffer)(gdr_t g, gdr_mh_t handle);
	int (*map)(gdr_t g, gdr_mh_t handle, void **va, size_t size);
	int (*unmap)(gdr_t g, gdr_mh_t handle, void *va, size_t size);
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
	void *lib = dlopen("libgdrapi.so.2", RTLD_LAZY);
	uint64_t memory;
	gdr_t g;

	if (!lib)
		FAIL("%s", dlerror());
	LOAD(lib, f.open, "gdr_open");
	LOAD(lib, f.close, "gdr_close");
	LOAD(lib, f.pin_buffer, "gdr_pin_buffer");
	LOAD(lib, f.unpin_buffer, "gdr_unpin_buffer");
	LOAD(lib, f.map, "gdr_map");
	LOAD(lib, f.unmap, "gdr_unmap");
	g = f.open();
	if (!g)
		DISABLED("gdr_open fails: off");
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
