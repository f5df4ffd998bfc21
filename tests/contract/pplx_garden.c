/* SPDX-License-Identifier: MIT */
/*
 * pplx-garden: linked. Aligns a buffer up twice, so that its pin begins in one allocation and runs
 * past that allocation's end, into the rest of its last page. Aerial's nvIPC, the same calls: a
 * handle of 0 is an error, and the buffer's place is taken from info.va.
 */
#include <gdrapi.h>

#include "contract.h"

#define UP(x) (((x) + GPU_PAGE_OFFSET) & GPU_PAGE_MASK)

int main(void)
{
	uint64_t memory, begin;
	size_t size = 3000, pinned;
	gdr_info_t info;
	gdr_mh_t mh;
	gdr_t g;
	char *map, *buffer;
	void *p;

	OPEN(g, gdr_open());
	memory = contract_alloc(size);
	begin = memory & GPU_PAGE_MASK;
	pinned = UP(UP(memory + size) - begin);
	CHECK(begin + pinned > memory + size);
	for (int i = 0; i < 3; i++) {
		OK(gdr_pin_buffer(g, begin, pinned, 0, 0, &mh));
		CHECK(mh.h != 0);
		OK(gdr_map(g, mh, &p, pinned));
		OK(gdr_get_info(g, mh, &info));
		CHECK(info.va <= memory && memory + size <= info.va + info.mapped_size);
		map = (char *)p;
		buffer = map + (memory - info.va);
		contract_same_word(buffer, memory);
		contract_same_word(buffer + size - 8, memory + size - 8);
		OK(gdr_unmap(g, mh, map, pinned));
		OK(gdr_unpin_buffer(g, mh));
	}
	OK(gdr_close(g));
	contract_free(memory);
	printf("pinned %zu bytes for %zu, past the allocation's end\n", pinned, size);
	return 0;
}
