/* SPDX-License-Identifier: MIT */
/*
 * aws-ofi-nccl: loads the unversioned name for itself alone, reads the versions into unsigned words
 * and takes the v2 pin from 2.5 on, the PCIe flag first and then none; rounds down and up to GPU
 * pages; the copies only. Closes the library after the context.
 */
#include <gdrapi.h>

#include "contract.h"

/* clang-format off */
#define SYMBOLS(X) X(open) X(close) X(pin_buffer) X(unpin_buffer) X(map) X(unmap) \
	X(copy_to_mapping) X(copy_from_mapping) X(runtime_get_version) X(driver_get_version)
/* clang-format on */

static struct {
	SYMBOLS(SYMBOL)
	SYMBOL(pin_buffer_v2)
} f;

int main(void)
{
	int major = 0, minor = 0, drv_major = 0, drv_minor = 0, rc;
	uint64_t memory, address, begin;
	const size_t size = 1500;
	const char *how = "flag 0";
	gdr_mh_t mh;
	size_t length;
	void *map;
	gdr_t g;
	void *lib = contract_load("libgdrapi.so", RTLD_NOW | RTLD_LOCAL);

	SYMBOLS(LOAD_SYMBOL)
	g = f.open();
	if (!g) {
		CHECK(!dlclose(lib));
		DISABLED("gdr_open fails: off");
	}
	f.runtime_get_version(&major, &minor);
	OK(f.driver_get_version(g, &drv_major, &drv_minor));
	AT_LEAST(major, minor, 2, 5);
	if (drv_major < 2 || (drv_major == 2 && drv_minor < 5)) {
		OK(f.close(g));
		CHECK(!dlclose(lib));
		DISABLED("the driver is older than 2.5: off");
	}
	LOAD(lib, f.pin_buffer_v2, "gdr_pin_buffer_v2");

	memory = contract_alloc(1 << 20);
	address = memory + GPU_PAGE_SIZE - 700;
	begin = address & GPU_PAGE_MASK;
	length = (address + size - begin + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
	rc = f.pin_buffer_v2(g, begin, length, GDR_PIN_FLAG_FORCE_PCIE, &mh);
	if (rc)
		OK(f.pin_buffer_v2(g, begin, length, 0, &mh));
	else
		how = "flag FORCE_PCIE";
	OK(f.map(g, mh, &map, length));
	BOTH_WAYS(f.copy_to_mapping, f.copy_from_mapping, mh, (char *)map + (address - begin),
		  address, size);
	OK(f.unmap(g, mh, map, length));
	OK(f.unpin_buffer(g, mh));
	contract_free(memory);
	OK(f.close(g));
	CHECK(!dlclose(lib));
	printf("library %d.%d, driver %d.%d, pinned with %s\n", major, minor, drv_major, drv_minor,
	       how);
	return 0;
}
