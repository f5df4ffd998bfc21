// SPDX-License-Identifier: MIT
/*
 * The vulkan backend: where the driver is had from, which device, one and several chunks under
 * every form of placed maps, small BARs, and every way in which it can fail.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/vulkan_device.h"
#include "common/resources.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "gdrapi.h"

static gdr_t g;

static void start(void)
{
	setenv("GDRCOPY_BACKEND", "vulkan", 1);
	standin_start();
	g = gdr_open();
	ck_assert_msg(g != NULL, "%s", gdr_last_error());
}

static void has(const char *part)
{
	ck_assert_msg(strstr(gdr_last_error(), part), "\"%s\" is not in \"%s\"", part,
		      gdr_last_error());
}

static void pin_fails(CUdeviceptr addr, size_t size, int err, const char *text)
{
	gdr_mh_t h = { 77 };
	int rc = gdr_pin_buffer_v2(g, addr, size, 0, &h);

	ck_assert_msg(rc == err, "%d: %s", rc, gdr_last_error());
	has(text);
	ck_assert_uint_eq(h.h, 77);
}

static void check_bytes(gdr_mh_t h, void *map, CUdeviceptr stands_for, CUdeviceptr at, size_t size)
{
	uint8_t *a = malloc(size), *b = malloc(size), *p = (uint8_t *)map + (at - stands_for);

	for (size_t i = 0; i < size; i++)
		a[i] = (uint8_t)(i * 7 + 3 + (i >> 8));
	ck_assert_int_eq(gdr_copy_to_mapping(h, p, a, size), 0);
	ck_assert_int_eq(cuda.cuMemcpyDtoH_v2(b, at, size), 0);
	ck_assert_int_eq(memcmp(a, b, size), 0);
	for (size_t i = 0; i < size; i++)
		a[i] = (uint8_t)(i * 5 + 1 + (i >> 8));
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(at, a, size), 0);
	ck_assert_int_eq(cuda.cuCtxSynchronize(), 0);
	ck_assert_int_eq(gdr_copy_from_mapping(h, b, p, size), 0);
	ck_assert_int_eq(memcmp(a, b, size), 0);
	free(a);
	free(b);
}

/* Pins, maps, copies and lets go of [addr, addr + size): nothing is left of it. */
static void serve(CUdeviceptr addr, size_t size)
{
	struct resources before, after;
	const char *wrong;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;
	int rc;

	resources_look(&before);
	rc = gdr_pin_buffer_v2(g, addr, size, 0, &h);
	ck_assert_msg(!rc, "%d: %s", rc, gdr_last_error());
	ck_assert_int_eq(gdr_get_info(g, h, &info), 0);
	ck_assert_uint_eq(info.va, addr & ~0xffffULL);
	rc = gdr_map(g, h, &map, info.mapped_size);
	ck_assert_msg(!rc, "%d: %s", rc, gdr_last_error());
	check_bytes(h, map, info.va, addr, size);
	ck_assert_int_eq(gdr_unmap(g, h, map, info.mapped_size), 0);
	/* Again, a part only. */
	rc = gdr_map(g, h, &map, 4096);
	ck_assert_msg(!rc, "%d: %s", rc, gdr_last_error());
	check_bytes(h, map, info.va, info.va, 4096);
	ck_assert_int_eq(gdr_copy_to_mapping(h, (char *)map + 4090, &info, 7), EINVAL);
	ck_assert_int_eq(gdr_unpin_buffer(g, h), 0);
	ck_assert_uint_eq(standin_bar1_used(0), 0);
	resources_look(&after);
	/* Without a reserve the driver frees what we mapped: our own sum cannot balance. */
	if (getenv("GDRSIM_VK_NO_RESERVE"))
		after.mapped = before.mapped;
	wrong = resources_differ(&before, &after);
	ck_assert_msg(!wrong, "%s", wrong);
}

static void warm_up(void)
{
	struct standin_vmm v;
	gdr_mh_t h;

	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, 1, 0, &h), 0);
	ck_assert_int_eq(gdr_unpin_buffer(g, h), 0);
	standin_vmm_free(&v);
}

static void one_chunk(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 1, 3 * STANDIN_GRANULE, true);
	serve(v.ptr, v.size);
	serve(v.ptr + 1, 1);
	serve(v.ptr + 65535, 2);
	serve(v.ptr + (1 << 20) + 77, 300000);
	serve(v.ptr + v.size - 1, 1);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* L16: the pointer goes on into the next chunk, wherever the range begins and ends. */
static void chunks(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 4, 2 * STANDIN_GRANULE, true);
	serve(v.ptr, v.size);
	serve(v.ptr + v.chunk - 1, 2);
	serve(v.ptr + 65536, v.size - 65536);
	serve(v.ptr + v.chunk - 70000, v.chunk + 140000);
	serve(v.ptr + 3 * v.chunk - 65536, 65537);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void no_placed_maps(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	serve(v.ptr, v.chunk);
	serve(v.ptr + v.chunk, v.chunk);
	pin_fails(v.ptr + v.chunk - 1, 2, ENOTSUP, "2 chunks");
	has("VK_EXT_map_memory_placed");
	ck_assert_int_eq(gdr_close(g), 0);
}

static void mixed_chunks(void)
{
	struct resources before, after;
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc_mixed(&v, 0, 3, STANDIN_GRANULE, 5); /* not the middle one */
	resources_look(&before);
	pin_fails(v.ptr, v.size, ENOTSUP, "exportable");
	resources_look(&after);
	ck_assert_ptr_null(resources_differ(&before, &after));
	serve(v.ptr + 2 * v.chunk, v.chunk);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* A range that runs out of the chunks into nothing. */
static void beyond_the_last(void)
{
	struct resources before, after;
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	resources_look(&before);
	pin_fails(v.ptr + v.size - 4096, 4097, ENOTSUP, "not memory of cuMemCreate");
	resources_look(&after);
	ck_assert_ptr_null(resources_differ(&before, &after));
	ck_assert_int_eq(gdr_close(g), 0);
}

static void ordinary_memory(void)
{
	start();
	pin_fails(standin_alloc(4096), 4096, ENOTSUP, "cudaMalloc memory cannot be imported");
	/* Vulkan is not loaded for memory that it cannot serve. */
	ck_assert_ptr_null(dlopen("libGLX_nvidia.so.0", RTLD_NOW | RTLD_NOLOAD));
	ck_assert_int_eq(gdr_close(g), 0);
}

static void driver_directly(void)
{
	struct standin_vmm v;

	start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	serve(v.ptr, 4096);
	ck_assert_uint_gt(standin_vulkan_hooks().calls("vkCreateInstance"), 0);
	ck_assert_ptr_null(dlopen("libvulkan.so.1", RTLD_NOW | RTLD_NOLOAD));
	ck_assert_int_eq(gdr_close(g), 0);
}

static void by_the_loader(void)
{
	struct standin_vmm v;

	start();
	standin_vmm_alloc(&v, 0, 3, STANDIN_GRANULE, true);
	wrap_reset();
	wrap_deny_library("nvidia.so.0");
	warm_up();
	wrap_reset();
	ck_assert_uint_gt(standin_loader_hooks().calls("vkCreateInstance"), 0);
	serve(v.ptr, v.size);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* A driver whose interface is too old, or that offers no entry, is not called: the loader is. */
static void driver_refused(const char *symbol)
{
	struct standin_vmm v;

	start();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	wrap_reset();
	wrap_deny_symbol(symbol);
	warm_up();
	wrap_reset();
	ck_assert_uint_eq(standin_vulkan_hooks().calls("vkCreateInstance"), 0);
	ck_assert_uint_eq(standin_loader_hooks().calls("vkCreateInstance"), 1);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void no_negotiation(void)
{
	driver_refused("vk_icdNegotiateLoaderICDInterfaceVersion");
}

static void no_entry(void)
{
	driver_refused("vk_icdGetInstanceProcAddr");
}

static void no_vulkan(void)
{
	struct resources before, after;
	struct standin_vmm v;

	start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	resources_look(&before);
	wrap_reset();
	wrap_deny_library("nvidia.so.0");
	wrap_fail("dlopen", 3, ENOENT);
	pin_fails(v.ptr, 4096, ENODEV, "no Vulkan driver");
	ck_assert_uint_eq(wrap_calls("dlopen"), 3);
	wrap_reset();
	resources_look(&after);
	ck_assert_ptr_null(resources_differ(&before, &after));
	/* It may have been installed since. */
	warm_up();
	ck_assert_int_eq(gdr_close(g), 0);
}

static void instance_fails(void)
{
	struct standin_hooks hooks;
	struct standin_vmm v;

	start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	hooks = standin_vulkan_hooks();
	hooks.set_fail("vkCreateInstance:*=-9");
	standin_loader_hooks().set_fail("vkCreateInstance:*=-1");
	pin_fails(v.ptr, 4096, ENOMEM, "VK_ERROR_INCOMPATIBLE_DRIVER");
	has("VK_ERROR_OUT_OF_HOST_MEMORY");
	standin_loader_hooks().set_fail(NULL);
	warm_up();
	ck_assert_uint_gt(standin_loader_hooks().calls("vkCreateDevice"), 0);
	hooks.set_fail(NULL);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* A foreign device comes first in the list: it is not taken. */
static void foreign_device(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	serve(v.ptr, 4096);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void not_this_gpu(void)
{
	const struct gdri_vulkan_device *d = NULL;
	struct gdri_device_id id, other;

	start();
	ck_assert_int_eq(gdri_cuda_device_id(0, &id), 0);
	other = id;
	other.uuid[3] ^= 1;
	ck_assert_int_eq(gdri_vulkan_device_get(&other, &d), -ENODEV);
	has("graphics capability");
	other = id;
	other.pci_bus ^= 1;
	ck_assert_int_eq(gdri_vulkan_device_get(&other, &d), -ENODEV);
	other = id;
	other.pci_domain = 9;
	ck_assert_int_eq(gdri_vulkan_device_get(&other, &d), -ENODEV);
	ck_assert_ptr_null(d);
	ck_assert_int_eq(gdri_vulkan_device_get(&id, &d), 0);
	ck_assert_ptr_nonnull(d);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* Every GPU its own device, made once. */
static void several_gpus(void)
{
	struct standin_vmm v[3];
	uint64_t device;
	gdr_mh_t h[3];
	void *map;

	start();
	for (int i = 0; i < 3; i++) {
		standin_vmm_alloc(&v[i], i, 2, STANDIN_GRANULE, true);
		ck_assert_int_eq(gdr_pin_buffer_v2(g, v[i].ptr, v[i].size, 0, &h[i]), 0);
		ck_assert_int_eq(gdr_get_handle_attribute(g, h[i], GDR_HANDLE_ATTR_DEVICE, &device),
				 0);
		ck_assert_uint_eq(device, (unsigned int)i);
		ck_assert_int_eq(gdr_map(g, h[i], &map, v[i].size), 0);
		cuda.cuCtxSetCurrent(standin_primary(i));
		check_bytes(h[i], map, v[i].ptr, v[i].ptr + v[i].chunk - 500, 1000);
		cuda.cuCtxSetCurrent(standin_primary(0));
		ck_assert_uint_eq(standin_bar1_used(i), v[i].size);
	}
	ck_assert_uint_eq(standin_vulkan_hooks().calls("vkCreateDevice"), 3);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v[1].ptr, 1, 0, &h[0]), 0);
	ck_assert_uint_eq(standin_vulkan_hooks().calls("vkCreateDevice"), 3);
	ck_assert_uint_eq(standin_vulkan_hooks().calls("vkCreateInstance"), 1);
	ck_assert_int_eq(gdr_close(g), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(standin_bar1_used(i), 0);
}

static void no_import(void)
{
	struct standin_vmm v;

	start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	pin_fails(v.ptr, 4096, ENOTSUP, "cannot import memory by fd");
	ck_assert_int_eq(gdr_close(g), 0);
}

static void no_host_visible(void)
{
	struct standin_vmm v;

	start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	pin_fails(v.ptr, 4096, ENOTSUP, "no host-visible device memory");
	ck_assert_int_eq(gdr_close(g), 0);
}

/* A BAR of 8 MiB: what fits is served, then a clear ENOMEM, and room comes back. */
static void small_bar(void)
{
	struct standin_vmm v, big;
	gdr_mh_t h = { 77 };

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 1, 4 << 20, true);
	standin_vmm_alloc(&big, 0, 1, 16 << 20, true);
	pin_fails(big.ptr, 4096, ENOMEM, "VK_ERROR_OUT_OF_DEVICE_MEMORY");
	serve(v.ptr, v.size);
	ck_assert_uint_eq(h.h, 77);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* The map of that many bytes meets a full BAR; nothing stays behind, and the next one works. */
static void full_bar_for(CUdeviceptr ptr, size_t size, const char *call)
{
	struct resources before, after;
	void *map = &map;
	gdr_mh_t h;

	ck_assert_int_eq(gdr_pin_buffer_v2(g, ptr, size, 0, &h), 0);
	resources_look(&before);
	standin_vulkan_hooks().set_fail(call);
	ck_assert_int_eq(gdr_map(g, h, &map, size), ENOMEM);
	has("BAR1 is full");
	has("8192 MiB");
	standin_vulkan_hooks().set_fail(NULL);
	ck_assert_ptr_eq(map, &map);
	resources_look(&after);
	ck_assert_ptr_null(resources_differ(&before, &after));
	ck_assert_uint_eq(standin_bar1_used(0), 0);
	ck_assert_int_eq(gdr_map(g, h, &map, size), 0);
	ck_assert_int_eq(gdr_unpin_buffer(g, h), 0);
}

static void full_bar(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	full_bar_for(v.ptr, v.chunk, "vkMapMemory2KHR:*=-5");
	full_bar_for(v.ptr, v.size, "vkMapMemory2KHR:2=-5");
	ck_assert_int_eq(gdr_close(g), 0);
}

static void full_bar_not_placed(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	full_bar_for(v.ptr, v.chunk, "vkMapMemory:*=-5");
	ck_assert_int_eq(gdr_close(g), 0);
}

static void placed_alignment_of_a_gpu_page(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 3, STANDIN_GRANULE, true);
	for (int i = 0; i < 8; i++) /* the kernel places maps anywhere */
		serve(v.ptr + v.chunk - 65536, 2 * v.chunk);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void placed_alignment_too_large(void)
{
	struct standin_vmm v;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	pin_fails(v.ptr, v.size, ENOTSUP, "VK_EXT_map_memory_placed");
	serve(v.ptr, v.chunk);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void cached_memory(void)
{
	struct standin_vmm v;
	uint64_t type;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;

	start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h), 0);
	ck_assert_int_eq(gdr_get_handle_attribute(g, h, GDR_HANDLE_ATTR_MAPPING_TYPE, &type), 0);
	ck_assert_uint_eq(type, GDR_MAPPING_TYPE_CACHING);
	ck_assert_int_eq(gdr_map_v2(g, h, &map, v.size, GDR_MAP_FLAG_REQ_WC_MAPPING), ENOTSUP);
	ck_assert_int_eq(gdr_map_v2(g, h, &map, v.size, GDR_MAP_FLAG_REQ_CACHE_MAPPING), 0);
	ck_assert_int_eq(gdr_get_info(g, h, &info), 0);
	ck_assert_int_eq(info.mapping_type, GDR_MAPPING_TYPE_CACHING);
	ck_assert_uint_eq(info.wc_mapping, 0);
	check_bytes(h, map, v.ptr, v.ptr, 10000);
	ck_assert_int_eq(gdr_close(g), 0);
}

/* Every call in use, failing: an errno of its own, nothing left, and the next pin works. */
static void calls_fail(void)
{
	static const struct {
		const char *fail;
		int err;
	} table[] = {
		{ "vkEnumeratePhysicalDevices:1=-1", ENOMEM },
		{ "vkEnumeratePhysicalDevices:2=-3", ENODEV },
		{ "vkEnumerateDeviceExtensionProperties:1=-1", ENODEV },
		{ "vkEnumerateDeviceExtensionProperties:2=-1", ENODEV },
		{ "vkEnumerateDeviceExtensionProperties:3=-1", ENOMEM },
		{ "vkEnumerateDeviceExtensionProperties:4=-1", ENOMEM },
		{ "vkCreateDevice:*=-3", ENODEV },
		{ "vkCreateDevice:*=-7", ENOTSUP },
		{ "vkCreateDevice:*=-10", ENOMEM },
		{ "vkAllocateMemory:*=-4", ENODEV },
		{ "vkAllocateMemory:*=-1000072003", ENOTSUP },
		{ "vkAllocateMemory:2=-2", ENOMEM },
		{ "vkAllocateMemory:*=-12345", EIO },
	};
	struct standin_hooks hooks;
	struct resources before, after;
	struct standin_vmm v;
	gdr_mh_t h;

	start();
	hooks = standin_vulkan_hooks();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	for (size_t i = 0; i < COUNT(table); i++) {
		const char *wrong;
		int rc;

		resources_look(&before);
		hooks.set_fail(table[i].fail);
		h.h = 77;
		rc = gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h);
		hooks.set_fail(NULL);
		ck_assert_msg(rc == table[i].err, "%s: %d, %s", table[i].fail, rc,
			      gdr_last_error());
		ck_assert_uint_eq(h.h, 77);
		resources_look(&after);
		wrong = resources_differ(&before, &after);
		ck_assert_msg(!wrong, "%s: %s", table[i].fail, wrong);
	}
	has("VkResult -12345");
	serve(v.ptr, v.size);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void no_memory(void)
{
	struct resources before, after;
	struct standin_vmm v;

	start();
	standin_vulkan_hooks();
	standin_vmm_alloc(&v, 0, 3, STANDIN_GRANULE, true);
	for (unsigned long n = 1; n < 6; n++) {
		gdr_mh_t h = { 77 };
		int rc;

		resources_look(&before);
		wrap_reset();
		wrap_fail(n < 6 ? "calloc" : "realloc", n, ENOMEM);
		rc = gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h);
		if (!wrap_failed())
			break;
		wrap_reset();
		ck_assert_msg(rc == ENOMEM || rc == ENODEV, "calloc %lu: %d", n, rc);
		ck_assert_uint_eq(h.h, 77);
		resources_look(&after);
		ck_assert_ptr_null(resources_differ(&before, &after));
	}
	wrap_reset();
	serve(v.ptr, v.size);
	for (unsigned long n = 1; n < 4; n++) {
		gdr_mh_t h = { 77 };

		resources_look(&before);
		wrap_reset();
		wrap_fail("realloc", n, ENOMEM);
		if (!gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h)) {
			ck_assert_uint_eq(n, 4);
			break;
		}
		ck_assert_str_eq(wrap_failed(), "realloc");
		wrap_reset();
		ck_assert_uint_eq(h.h, 77);
		resources_look(&after);
		ck_assert_ptr_null(resources_differ(&before, &after));
	}
	wrap_reset();
	ck_assert_int_eq(gdr_close(g), 0);
}

static void map_errors(void)
{
	struct resources before, after;
	struct standin_vmm v;
	gdr_mh_t h;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	for (int multi = 0; multi < 2; multi++) {
		size_t size = multi ? v.size : v.chunk;
		void *map = &map;

		ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, size, 0, &h), 0);
		resources_look(&before);
		wrap_reset();
		wrap_fail("madvise", 1, ENOMEM);
		ck_assert_int_eq(gdr_map(g, h, &map, size), ENOMEM);
		has("MADV_DONTFORK");
		wrap_reset();
		wrap_fail("madvise", 1, EINVAL);
		ck_assert_int_eq(gdr_map(g, h, &map, size), ENOTSUP);
		wrap_reset();
		if (multi) {
			wrap_fail("mmap", 1, ENOMEM);
			ck_assert_int_eq(gdr_map(g, h, &map, size), ENOMEM);
			has("address space");
			wrap_reset();
		}
		ck_assert_ptr_eq(map, &map);
		resources_look(&after);
		ck_assert_ptr_null(resources_differ(&before, &after));
		ck_assert_int_eq(gdr_map(g, h, &map, size), 0);
		ck_assert_int_eq(gdr_unpin_buffer(g, h), 0);
	}
	ck_assert_int_eq(gdr_close(g), 0);
}

/*
 * An unmap that cannot keep the range reserved: the range is given up once, not a second time
 * when it may already be somebody else's.
 */
static void unmap_without_reserve(void)
{
	struct standin_vmm v;
	long long before;
	gdr_mh_t h;
	void *map;

	start();
	warm_up();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h), 0);
	before = wrap_mapped();
	ck_assert_int_eq(gdr_map(g, h, &map, v.size), 0);
	wrap_reset();
	standin_vulkan_hooks().set_fail("vkUnmapMemory2KHR:1=-5");
	ck_assert_int_eq(gdr_unmap(g, h, map, v.size), 0);
	standin_vulkan_hooks().set_fail(NULL);
	/* The first chunk's range went with vkUnmapMemory, only the second's is ours to free. */
	ck_assert_int_eq(wrap_mapped(), before + (long long)v.chunk);
	wrap_reset();
	ck_assert_uint_eq(standin_bar1_used(0), 0);
	ck_assert_int_eq(gdr_close(g), 0);
}

static void not_persistent_memory(void)
{
	uint64_t value = 0x1122334455667788, back = 0, persistent;
	struct standin_vmm v;
	gdr_mh_t h;
	void *map;

	start();
	standin_vmm_alloc(&v, 0, 2, STANDIN_GRANULE, true);
	ck_assert_int_eq(gdr_pin_buffer_v2(g, v.ptr, v.size, 0, &h), 0);
	ck_assert_int_eq(gdr_get_handle_attribute(g, h, GDR_HANDLE_ATTR_PERSISTENT, &persistent),
			 0);
	ck_assert_uint_eq(persistent, 1);
	ck_assert_int_eq(gdr_map(g, h, &map, v.size), 0);
	standin_vmm_free(&v);
	ck_assert_int_eq(gdr_copy_to_mapping(h, map, &value, 8), 0);
	ck_assert_int_eq(gdr_copy_from_mapping(h, &back, map, 8), 0);
	ck_assert_uint_eq(back, value);
	ck_assert_int_eq(gdr_close(g), 0);
}

static struct standin_vmm shared;

static void *first_pin(void *arg)
{
	gdr_mh_t h;
	void *map;

	(void)arg;
	if (gdr_pin_buffer_v2(g, shared.ptr, shared.size, 0, &h) ||
	    gdr_map(g, h, &map, shared.size) || gdr_unpin_buffer(g, h))
		return "failed";
	return NULL;
}

static void first_pins_together(void)
{
	pthread_t t[8];

	start();
	standin_vmm_alloc(&shared, 0, 2, STANDIN_GRANULE, true);
	for (size_t i = 0; i < COUNT(t); i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, first_pin, NULL), 0);
	for (size_t i = 0; i < COUNT(t); i++) {
		void *wrong;

		pthread_join(t[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	ck_assert_uint_eq(standin_vulkan_hooks().calls("vkCreateDevice"), 1);
	ck_assert_int_eq(gdr_close(g), 0);
}

static const struct unit_test tests[] = {
	{ "one chunk", one_chunk, "" },
	{ "several chunks (L16)", chunks, "" },
	{ "several chunks, placed by range", chunks, "GDRSIM_VK_RANGE_PLACED=1" },
	{ "several chunks, no reserve", chunks, "GDRSIM_VK_NO_RESERVE=1" },
	{ "several chunks, by range, no reserve", chunks,
	  "GDRSIM_VK_RANGE_PLACED=1 GDRSIM_VK_NO_RESERVE=1" },
	{ "no placed maps", no_placed_maps, "GDRSIM_VK_NO_PLACED=1" },
	{ "a chunk that cannot be exported", mixed_chunks, "" },
	{ "beyond the last chunk", beyond_the_last, "" },
	{ "ordinary memory", ordinary_memory, "" },
	{ "the driver directly", driver_directly, "" },
	{ "by the loader", by_the_loader, "" },
	{ "a driver that is too old", no_negotiation, "" },
	{ "a driver without the entry", no_entry, "" },
	{ "no Vulkan at all", no_vulkan, "" },
	{ "vkCreateInstance fails", instance_fails, "" },
	{ "a foreign device", foreign_device, "GDRSIM_VK_FOREIGN=1" },
	{ "not this GPU", not_this_gpu, "GDRSIM_VK_FOREIGN=1" },
	{ "several GPUs", several_gpus, "GDRSIM_DEVICES=3 GDRSIM_MEM_MIB=64" },
	{ "several GPUs under MIG", several_gpus,
	  "GDRSIM_DEVICES=3 GDRSIM_MIG=1 GDRSIM_MEM_MIB=64" },
	{ "no import by fd", no_import, "GDRSIM_VK_NO_FD=1" },
	{ "no host-visible memory", no_host_visible, "GDRSIM_VK_NO_HOST_VISIBLE=1" },
	{ "a small BAR", small_bar, "GDRSIM_BAR1_MIB=8" },
	{ "a full BAR", full_bar, "GDRSIM_BAR1_MIB=16384" },
	{ "a full BAR without placed maps", full_bar_not_placed, "GDRSIM_VK_NO_PLACED=1" },
	{ "placed alignment of 64 KiB", placed_alignment_of_a_gpu_page,
	  "GDRSIM_VK_PLACED_ALIGN=65536 GDRSIM_VK_RANGE_PLACED=1" },
	{ "placed alignment of 1 MiB", placed_alignment_too_large,
	  "GDRSIM_VK_PLACED_ALIGN=1048576" },
	{ "cached device memory", cached_memory, "GDRSIM_VK_CACHED=1" },
	{ "every call fails", calls_fail, "" },
	{ "no memory", no_memory, "" },
	{ "every error of a map", map_errors, "" },
	{ "unmap that cannot reserve", unmap_without_reserve, "" },
	{ "the mapping outlives the memory", not_persistent_memory, "" },
	{ "first pins of several threads", first_pins_together, "" },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "vulkan", tests, COUNT(tests));
}
