/* SPDX-License-Identifier: MIT */
/*
 * bpftime: the versioned name, then the unversioned one; a GPU map's buffer pinned as it is and
 * mapped whole; offsets from the info's address; elements read out of it one by one.
 */
#include <gdrapi.h>

#include "contract.h"

enum { ELEMENTS = 4096, SIZE = 24 };

static struct {
	gdr_t (*open)(void);
	int (*close)(gdr_t g);
	int (*pin_buffer)(gdr_t g, unsigned long addr, size_t size, uint64_t token, uint32_t space,
			  gdr_mh_t *handle);
	int (*unpin_buffer)(gdr_t g, gdr_mh_t handle);
	int (*get_info)(gdr_t g, gdr_mh_t handle, gdr_info_t *info);
	int (*map)(gdr_t g, gdr_mh_t handle, void **va, size_t size);
	int (*unmap)(gdr_t g, gdr_mh_t handle, void *va, size_t size);
	int (*copy_from_mapping)(gdr_mh_t handle, void *h_ptr, const void *map_ptr, size_t size);
} f;

int main(void)
{
	static char elements[ELEMENTS * SIZE], one[SIZE];
	void *lib = dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
	uint64_t memory;
	gdr_info_t info;
	gdr_mh_t mh;
	void *map;
	gdr_t g;

	if (!lib)
		lib = dlopen("libgdrapi.so", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		FAIL("%s", dlerror());
	LOAD(lib, f.open, "gdr_open");
	LOAD(lib, f.close, "gdr_close");
	LOAD(lib, f.pin_buffer, "gdr_pin_buffer");
	LOAD(lib, f.unpin_buffer, "gdr_unpin_buffer");
	LOAD(lib, f.get_info, "gdr_get_info_v2");
	LOAD(lib, f.map, "gdr_map");
	LOAD(lib, f.unmap, "gdr_unmap");
	LOAD(lib, f.copy_from_mapping, "gdr_copy_from_mapping");
	g = f.open();
	if (!g)
		DISABLED("gdr_open fails: off");
	memory = contract_alloc(sizeof(elements));
	for (size_t i = 0; i < sizeof(elements); i++)
		elements[i] = (char)(i * 13 / 7);
	contract_to_gpu(memory, elements, sizeof(elements));
	OK(f.pin_buffer(g, memory, sizeof(elements), 0, 0, &mh));
	OK(f.get_info(g, mh, &info));
	OK(f.map(g, mh, &map, info.mapped_size));
	for (size_t i = 0; i < ELEMENTS; i++) {
		OK(f.copy_from_mapping(mh, one, (char *)map + (memory - info.va) + i * SIZE, SIZE));
		CHECK(!memcmp(one, elements + i * SIZE, SIZE));
	}
	OK(f.unmap(g, mh, map, info.mapped_size));
	OK(f.unpin_buffer(g, mh));
	OK(f.close(g));
	contract_free(memory);
	printf("%d elements of %d bytes\n", ELEMENTS, SIZE);
	return 0;
}
