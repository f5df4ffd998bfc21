/* SPDX-License-Identifier: MIT */
/*
 * DPDK's gpudev driver: the unversioned name, or that in GDRCOPY_PATH_L; five symbols, gdr_close
 * not among them; maps the size as given; the CPU's pointer is used as the address's own, so its
 * memory begins at a GPU page. Unmaps by the device address.
 */
#include <gdrapi.h>

#include "contract.h"

#define SYMBOLS(X) X(open) X(pin_buffer) X(unpin_buffer) X(map) X(unmap)

static struct {
	SYMBOLS(SYMBOL)
} f;

int main(void)
{
	const char *dir = getenv("GDRCOPY_PATH_L");
	uint64_t memory, address;
	size_t size = 5000;
	char path[1024];
	gdr_mh_t mh;
	void *map, *lib;
	gdr_t g;

	snprintf(path, sizeof(path), "%s%slibgdrapi.so", dir ? dir : "", dir ? "/" : "");
	lib = contract_load(path, RTLD_LAZY);
	SYMBOLS(LOAD_SYMBOL)
	OPEN(g, f.open());
	memory = contract_alloc(size + GPU_PAGE_SIZE);
	address = (memory + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
	for (int i = 0; i < 3; i++) {
		OK(f.pin_buffer(g, address, size, 0, 0, &mh));
		OK(f.map(g, mh, &map, size));
		contract_same_word(map, address);
		contract_same_word((char *)map + size - 8, address + size - 8);
		OK(f.unmap(g, mh, (void *)(uintptr_t)address, size));
		OK(f.unpin_buffer(g, mh));
	}
	contract_free(memory);
	printf("unmapped by the device address, never closed\n");
	return 0;
}
