/* SPDX-License-Identifier: MIT */
/*
 * Kinds of memory: which backend serves each, and the error's text where none does. Which kinds are
 * served depends on the machine's driver (gdrdrv, mmap of dma-bufs), so the tests ask the handle.
 */
#include <errno.h>

#include "gpu_test.h"

/* A pin that is served carries data; one that is refused has that errno and text. */
static void check_kind(CUdeviceptr addr, int expected_errno, const char *text)
{
	struct mapped m;
	int rc = pin_and_map(&m, addr, 64);

	if (rc) {
		CHECK(rc == expected_errno, "errno %d instead of %d: %s", rc, expected_errno,
		      barcopy_last_error());
		CHECK(strstr(barcopy_last_error(), text), "the text lacks \"%s\": %s", text,
		      barcopy_last_error());
		return;
	}
	printf("# served by backend %d\n", (int)backend_of(m.h));
	CHECK(m.info.va == (addr & ~0xffffULL), "va 0x%llx", (unsigned long long)m.info.va);
	CHECK(both_ways(m.h, m.p, addr, 64, 1), "other bytes");
	OK(gdr_unpin_buffer(test_g, m.h));
}

static void plain_device_memory(void)
{
	CUdeviceptr d;

	CU(cu.MemAlloc(&d, 4096));
	check_kind(d, ENOTSUP, "dmabuf: ");
	cu.MemFree(d);
}

static void not_exportable(void)
{
	struct vmm v;

	if (vmm_alloc(&v, 2 << 20, 1, 0))
		return;
	check_kind(v.ptr, ENOTSUP, "exportable");
	vmm_free(&v);
}

static void exportable(void)
{
	struct vmm v;

	if (vmm_alloc(&v, 2 << 20, 1, EXPORTABLE))
		return;
	check_kind(v.ptr + 12345 * 8, 0, "");
	vmm_free(&v);
}

struct kind {
	unsigned int flags;
	gdr_mapping_type_t type;
	bool by_device_pointer;
};

/* One of two small allocations that share a page: only its own bytes. */
static void host_memory(void)
{
	const struct kind *kind = test_arg;
	const unsigned int flags = kind->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	const gdr_mapping_type_t type = kind->type;
	uint64_t value = 0x55aa, back = 0;
	void *mem, *other;
	CUdeviceptr d;
	gdr_info_t info;
	gdr_mh_t h;
	uint64_t addr;
	uint8_t *p;
	void *va;

	CU(cu.MemHostAlloc(&mem, 256, flags));
	CU(cu.MemHostAlloc(&other, 256, flags));
	CU(cu.MemHostGetDevicePointer(&d, mem, 0));
	addr = kind->by_device_pointer ? d : (uint64_t)(uintptr_t)mem;
	memset(mem, 0, 256);
	OK(gdr_pin_buffer_v2(test_g, addr, 256, 0, &h));
	CHECK(backend_of(h) == BARCOPY_BACKEND_HOST || backend_of(h) == BARCOPY_BACKEND_GDRDRV,
	      "backend %d", (int)backend_of(h));
	OK(gdr_get_info(test_g, h, &info));
	CHECK(info.va == (addr & ~0xffffULL), "va 0x%llx", (unsigned long long)info.va);
	FAILS(ENOTSUP, gdr_map_v2(test_g, h, &va, info.mapped_size,
				  type == GDR_MAPPING_TYPE_WC ? GDR_MAP_FLAG_REQ_CACHE_MAPPING
							      : GDR_MAP_FLAG_REQ_WC_MAPPING));
	OK(gdr_map(test_g, h, &va, info.mapped_size));
	OK(gdr_get_info(test_g, h, &info));
	CHECK(info.mapping_type == type, "type %d", (int)info.mapping_type);
	p = (uint8_t *)va + (addr - info.va);
	CHECK(p == mem, "the pointer %p stands for %p", (void *)p, mem);
	OK(gdr_copy_to_mapping(h, p, &value, 8));
	CHECK(*(volatile uint64_t *)mem == value, "0x%llx",
	      (unsigned long long)*(volatile uint64_t *)mem);
	OK(gdr_copy_from_mapping(h, &back, p, 8));
	CHECK(back == value, "0x%llx", (unsigned long long)back);
	/* A neighbour's bytes are out of reach, in the same 64 KiB or not. */
	FAILS(EINVAL, gdr_copy_from_mapping(h, &back, p - 8, 8));
	FAILS(EINVAL, gdr_copy_to_mapping(h, (uint8_t *)other, &value, 8));
	OK(gdr_unpin_buffer(test_g, h));
	FAILS(EINVAL, gdr_copy_from_mapping(h, &back, p, 8));
	CU(cu.MemFreeHost(other));
	CU(cu.MemFreeHost(mem));
}

#define HOST(name, flags, type, by_pointer)                        \
	{                                                          \
		name, host_memory, &(struct kind)                  \
		{                                                  \
			flags, GDR_MAPPING_TYPE_##type, by_pointer \
		}                                                  \
	}

static const struct gpu_test tests[] = {
	{ "cuMemAlloc memory: served, or the text names what is", plain_device_memory },
	{ "VMM memory that is not exportable", not_exportable },
	{ "exportable VMM memory", exportable },
	HOST("cudaHostAlloc memory, cached", 0, CACHING, false),
	HOST("the same by its device pointer", 0, CACHING, true),
	HOST("cudaHostAlloc memory, write-combined", CU_MEMHOSTALLOC_WRITECOMBINED, WC, false),
	HOST("the same by its device pointer", CU_MEMHOSTALLOC_WRITECOMBINED, WC, true),
};

GPU_TEST_MAIN(tests)
