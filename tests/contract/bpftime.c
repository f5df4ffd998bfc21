/* SPDX-License-Identifier: MIT */
/*
 * bpftime: the versioned name, then the unversioned one; a GPU map's buffer pinned as it is and
 * mapped whole; offsets from the info's address; elements read out of it one by one.
 */
#include <gdrapi.h>

#include "contract.h"

enum { ELEMENTS = 4096, SIZE = 24 };

/* clang-format off */
#define SYMBOLS(X) X(open) X(close) X(pin_buffer) X(unpin_buffer) X(get_info_v2) X(map) X(unmap) \
	X(copy_from_mapping)
/* clang-format on */

static struct {
	SYMBOLS(SYMBOL)
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
		lib = contract_load("libgdrapi.so", RTLD_NOW | RTLD_LOCAL);
	SYMBOLS(LOAD_SYMBOL)
	OPEN(g, f.open());
	memory = contract_alloc(sizeof(elements));
	for (size_t i = 0; i < sizeof(elements); i++)
		elements[i] = (char)(i * 13 / 7);
	contract_to_gpu(memory, elements, sizeof(elements));
	OK(f.pin_buffer(g, memory, sizeof(elements), 0, 0, &mh));
	OK(f.get_info_v2(g, mh, &info));
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
