/* SPDX-License-Identifier: MIT */
/*
 * MSCCL++: linked. Looks for the node before it opens a context, and wants a driver with the v2
 * pin; pins the one GPU page around a word, the PCIe flag first; maps that page, and the CPU stores
 * to the word atomically while the GPU polls it.
 */
#include <unistd.h>

#include <gdrapi.h>

#include "contract.h"

int main(void)
{
	int drv_major = 0, drv_minor = 0, major = 0, minor = 0;
	uint64_t memory, address, aligned, seen = 0, *word;
	const char *how = "FORCE_PCIE";
	gdr_mh_t mh = { 0 };
	void *map;
	gdr_t g;

	if (access("/dev/gdrdrv", F_OK) != 0)
		DISABLED("no node: off");
	OPEN(g, gdr_open());
	OK(gdr_driver_get_version(g, &drv_major, &drv_minor));
	if (drv_major < 2 || (drv_major == 2 && drv_minor < 5)) {
		OK(gdr_close(g));
		DISABLED("driver %d.%d is older than 2.5: off", drv_major, drv_minor);
	}
	gdr_runtime_get_version(&major, &minor);

	memory = contract_alloc(64);
	address = memory + 16;
	aligned = address & GPU_PAGE_MASK;
	if (gdr_pin_buffer_v2(g, aligned, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &mh)) {
		how = "flags 0";
		OK(gdr_pin_buffer_v2(g, aligned, GPU_PAGE_SIZE, 0, &mh));
	}
	OK(gdr_map(g, mh, &map, GPU_PAGE_SIZE));
	word = (uint64_t *)(void *)((char *)map + (address - aligned));
	contract_same_word(word, address);
	for (uint64_t i = 1; i < 1000; i++)
		__atomic_store_n(word, i, __ATOMIC_RELEASE);
	contract_from_gpu(&seen, address, sizeof(seen));
	CHECK(seen == 999);
	seen = 5;
	OK(gdr_copy_to_mapping(mh, word, &seen, sizeof(seen)));
	OK(gdr_copy_from_mapping(mh, &seen, word, sizeof(seen)));
	CHECK(seen == 5);
	OK(gdr_unmap(g, mh, map, GPU_PAGE_SIZE));
	OK(gdr_unpin_buffer(g, mh));
	OK(gdr_close(g));
	contract_free(memory);
	printf("driver %d.%d, page around a word pinned with %s\n", drv_major, drv_minor, how);
	return 0;
}
