/* SPDX-License-Identifier: MIT */
/*
 * NCCL: knows no header of ours. Loads the unversioned name, eleven symbols, the version calls as
 * returning nothing; wants 2.1 of library and driver; allocates one GPU page more than it needs,
 * aligns up, pins, asks for the first info struct, and uses the pointer without the copies.
 */
#include "nccl.h"

int main(void)
{
	int lib_major = 0, lib_minor = 0, drv_major = 0, drv_minor = 0;
	struct gdr_info *info = (struct gdr_info *)contract_guarded(sizeof(*info));
	uint64_t memory, aligned;
	size_t size = 3 * sizeof(uint64_t), map_size = (size + GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE;
	gdr_mh_t mh;
	char *ptr;
	void *map;
	gdr_t g;

	CHECK(sizeof(*info) == 40);
	load();
	OPEN(g, f.open());
	f.runtime_get_version(&lib_major, &lib_minor);
	f.driver_get_version(g, &drv_major, &drv_minor);
	AT_LEAST(lib_major, lib_minor, 2, 1);
	AT_LEAST(drv_major, drv_minor, 2, 1);

	memory = contract_alloc(map_size + GPU_PAGE - 1);
	aligned = (memory + GPU_PAGE - 1) & ~(uint64_t)(GPU_PAGE - 1);
	OK(f.pin_buffer(g, aligned, map_size, 0, 0, &mh));
	OK(f.get_info(g, mh, info));
	CHECK(info->va == aligned && info->mapped_size == map_size && info->page_size == GPU_PAGE);
	OK(f.map(g, mh, &map, map_size));
	OK(f.get_info(g, mh, info));
	CHECK(info->mapped);
	ptr = (char *)map + (info->va - aligned);
	contract_same_word(ptr + 2 * sizeof(uint64_t), aligned + 2 * sizeof(uint64_t));
	/* The flag that a proxy thread and a kernel share. */
	__atomic_store_n((uint64_t *)(void *)ptr, 1, __ATOMIC_RELEASE);
	CHECK(__atomic_load_n((uint64_t *)(void *)ptr, __ATOMIC_ACQUIRE) == 1);
	OK(f.unmap(g, mh, map, map_size));
	OK(f.unpin_buffer(g, mh));
	contract_free(memory);
	OK(f.close(g));
	printf("library %d.%d, driver %d.%d, info of 40 bytes\n", lib_major, lib_minor, drv_major,
	       drv_minor);
	return 0;
}
