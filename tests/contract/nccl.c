/* SPDX-License-Identifier: MIT */
/*
 * NCCL: knows no header of ours. Loads the unversioned name, eleven symbols, the version calls as
 * returning nothing; wants 2.1 of library and driver; allocates one GPU page more than it needs,
 * aligns up, pins, asks for the first info struct, and uses the pointer without the copies.
 */
#include "contract.h"

#define GPU_PAGE ((size_t)65536)

struct gdr;
typedef struct gdr *gdr_t;
typedef struct gdr_mh_s {
	unsigned long h;
} gdr_mh_t;

struct gdr_info {
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
};

static struct {
	gdr_t (*open)(void);
	int (*close)(gdr_t);
	int (*pin_buffer)(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *);
	int (*unpin_buffer)(gdr_t, gdr_mh_t);
	int (*get_info)(gdr_t, gdr_mh_t, struct gdr_info *);
	int (*map)(gdr_t, gdr_mh_t, void **, size_t);
	int (*unmap)(gdr_t, gdr_mh_t, void *, size_t);
	void (*runtime_get_version)(int *, int *);
	void (*driver_get_version)(gdr_t, int *, int *);
	int (*copy_to_mapping)(gdr_mh_t, void *, const void *, size_t);
	int (*copy_from_mapping)(gdr_mh_t, void *, const void *, size_t);
} f;

static void load(void)
{
	void *lib = dlopen("libgdrapi.so", RTLD_NOW);

	if (!lib)
		FAIL("%s", dlerror());
	LOAD(lib, f.open, "gdr_open");
	LOAD(lib, f.close, "gdr_close");
	LOAD(lib, f.pin_buffer, "gdr_pin_buffer");
	LOAD(lib, f.unpin_buffer, "gdr_unpin_buffer");
	LOAD(lib, f.get_info, "gdr_get_info");
	LOAD(lib, f.map, "gdr_map");
	LOAD(lib, f.unmap, "gdr_unmap");
	LOAD(lib, f.runtime_get_version, "gdr_runtime_get_version");
	LOAD(lib, f.driver_get_version, "gdr_driver_get_version");
	LOAD(lib, f.copy_to_mapping, "gdr_copy_to_mapping");
	LOAD(lib, f.copy_from_mapping, "gdr_copy_from_mapping");
}

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
	g = f.open();
	if (!g)
		DISABLED("gdr_open fails: off");
	f.runtime_get_version(&lib_major, &lib_minor);
	f.driver_get_version(g, &drv_major, &drv_minor);
	CHECK(lib_major > 2 || (lib_major == 2 && lib_minor >= 1));
	CHECK(drv_major > 2 || (drv_major == 2 && drv_minor >= 1));

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
