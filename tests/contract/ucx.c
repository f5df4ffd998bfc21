/* SPDX-License-Identifier: MIT */
/*
 * UCX, uct/gdr_copy: linked. Opens and closes at every resource query, after a check that built and
 * loaded version agree about the info struct; registers whole GPU pages with a flag and a retry,
 * maps and unmaps by the registered length, and carries {va, pointer, handle} as bytes to where it
 * copies.
 */
#include <gdrapi.h>

#include "contract.h"

enum { QUERIES = 2000 };

struct key {
	uint64_t vaddr;
	void *bar_ptr;
	gdr_mh_t mh;
};

static int old_info(int major, int minor)
{
	return major < 2 || (major == 2 && minor <= 3);
}

static int query(void)
{
	int major = 0, minor = 0;
	gdr_t ctx;

	gdr_runtime_get_version(&major, &minor);
	if (old_info(GDR_API_MAJOR_VERSION, GDR_API_MINOR_VERSION) != old_info(major, minor))
		FAIL("built for %d.%d, loaded %d.%d", GDR_API_MAJOR_VERSION, GDR_API_MINOR_VERSION,
		     major, minor);
	ctx = gdr_open();
	if (!ctx)
		return 0;
	OK(gdr_close(ctx));
	return 1;
}

static void register_and_copy(gdr_t md, uint64_t address, size_t size, uint32_t flags)
{
	uint64_t start = address & GPU_PAGE_MASK;
	size_t length = ((address + size + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - start;
	unsigned char packed[sizeof(struct key)];
	gdr_info_t info;
	struct key key;
	int rc;

	rc = gdr_pin_buffer_v2(md, start, length, flags, &key.mh);
	if (rc && flags != GDR_PIN_FLAG_DEFAULT)
		rc = gdr_pin_buffer_v2(md, start, length, GDR_PIN_FLAG_DEFAULT, &key.mh);
	OK(rc);
	OK(gdr_map(md, key.mh, &key.bar_ptr, length));
	OK(gdr_get_info(md, key.mh, &info));
	CHECK(info.va == start);
	key.vaddr = info.va;
	memcpy(packed, &key, sizeof(key));

	memset(&key, 0, sizeof(key));
	memcpy(&key, packed, sizeof(key));
	BOTH_WAYS(gdr_copy_to_mapping, gdr_copy_from_mapping, key.mh,
		  (char *)key.bar_ptr + (address - key.vaddr), address, size);
	OK(gdr_unmap(md, key.mh, key.bar_ptr, length));
	OK(gdr_unpin_buffer(md, key.mh));
}

int main(void)
{
	uint64_t address;
	gdr_t md;

	if (!query())
		DISABLED("no resource");
	for (int i = 0; i < QUERIES; i++)
		CHECK(query());

	address = contract_alloc(100000);
	md = gdr_open();
	CHECK(md != NULL);
	register_and_copy(md, address, 100000, GDR_PIN_FLAG_DEFAULT);
	register_and_copy(md, address + 4096, 8, GDR_PIN_FLAG_FORCE_PCIE);
	OK(gdr_close(md));
	contract_free(address);
	printf("%d queries, each an open and a close\n", QUERIES);
	return 0;
}
