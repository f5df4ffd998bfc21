/* SPDX-License-Identifier: MIT */
/*
 * DPDK's gpudev driver: the unversioned name, or that in GDRCOPY_PATH_L; five symbols, gdr_close
 * not among them; maps the size as given; the CPU's pointer is used as the address's own, so its
 * memory begins at a GPU page. Unmaps by the device address.
 */
#include <gdrapi.h>

#include "contract.h"

static struct {
	gdr_t (*open)(void);
	int (*pin_buffer)(gdr_t g, unsigned long addr, size_t size, uint64_t token, uint32_t space,
			  gdr_mh_t *handle);
	int (*unpin_buffer)(gdr_t g, gdr_mh_t handle);
	int (*map)(gdr_t g, gdr_mh_t handle, void **va, size_t size);
	int (*unmap)(gdr_t g, gdr_mh_t handle, void *va, size_t size);
} f;

static void load(void)
{
	const char *dir = getenv("GDRCOPY_PATH_L");
	char path[1024];
	void *lib;

	snprintf(path, sizeof(path), "%s%slibgdrapi.so", dir ? dir : "", dir ? "/" : "");
	lib = dlopen(path, RTLD_LAZY);
	if (!lib)
		FAIL("%s", dlerror());
	LOAD(lib, f.open, "gdr_open");
	LOAD(lib, f.pin_buffer, "gdr_pin_buffer");
	LOAD(lib, f.unpin_buffer, "gdr_unpin_buffer");
	LOAD(lib, f.map, "gdr_map");
	LOAD(lib, f.unmap, "gdr_unmap");
}

int main(void)
{
	uint64_t memory, address;
	size_t size = 5000;
	gdr_t g = NULL;
	gdr_mh_t mh;
	void *map;

	load();
	g = f.open();
	if (!g)
		DISABLED("gdr_open fails: off");
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
