/* SPDX-License-Identifier: MIT */
/*
 * Self-test: the stand-in Vulkan with memory of the stand-in CUDA.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test_sim.h"

static PFN_vkGetInstanceProcAddr get;
static VkInstance instance;
static VkPhysicalDevice physical;
static VkDevice device;

#define VI(name)    ((__typeof__(&name))get(instance, #name))
#define VD(name)    ((__typeof__(&name))VI(vkGetDeviceProcAddr)(device, #name))
#define ck_vk(call) ck_assert_int_eq(call, VK_SUCCESS)

static void start_instance(int direct)
{
	static const char *const names[] = { VK_LUNARG_DIRECT_DRIVER_LOADING_EXTENSION_NAME };
	VkDirectDriverLoadingInfoLUNARG driver = {
		.sType = VK_STRUCTURE_TYPE_DIRECT_DRIVER_LOADING_INFO_LUNARG,
	};
	VkDirectDriverLoadingListLUNARG list = {
		.sType = VK_STRUCTURE_TYPE_DIRECT_DRIVER_LOADING_LIST_LUNARG,
		.driverCount = 1,
		.pDrivers = &driver,
	};
	VkInstanceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO };
	uint32_t n = 0;

	get = (PFN_vkGetInstanceProcAddr)sim_symbol(sim_vulkan, "vkGetInstanceProcAddr");
	ck_vk(VI(vkEnumerateInstanceExtensionProperties)(NULL, &n, NULL));
	ck_assert_uint_eq(n, direct ? 1 : 0);
	if (direct) {
		info.pNext = &list;
		info.enabledExtensionCount = 1;
		info.ppEnabledExtensionNames = names;
		ck_assert_int_eq(VI(vkCreateInstance)(&info, NULL, &instance),
				 VK_ERROR_INITIALIZATION_FAILED);
		driver.pfnGetInstanceProcAddr =
			(PFN_vkGetInstanceProcAddr)sim_symbol(sim_icd, "vk_icdGetInstanceProcAddr");
	}
	ck_vk(VI(vkCreateInstance)(&info, NULL, &instance));
}

static void start_device(int placed)
{
	static const char *const names[] = { VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME,
					     VK_KHR_MAP_MEMORY_2_EXTENSION_NAME,
					     VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME };
	VkPhysicalDeviceMapMemoryPlacedFeaturesEXT features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT,
		.memoryMapPlaced = 1,
		.memoryUnmapReserve = 1,
	};
	float priority = 1;
	VkDeviceQueueCreateInfo queue = { .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					  .queueCount = 1,
					  .pQueuePriorities = &priority };
	VkDeviceCreateInfo info = { .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
				    .queueCreateInfoCount = 1,
				    .pQueueCreateInfos = &queue,
				    .enabledExtensionCount = placed ? 3 : 1,
				    .ppEnabledExtensionNames = names };
	uint32_t n = 1;

	ck_vk(VI(vkEnumeratePhysicalDevices)(instance, &n, &physical));
	if (placed)
		info.pNext = &features;
	ck_vk(VI(vkCreateDevice)(physical, &info, NULL, &device));
}

static void end(void)
{
	VD(vkDestroyDevice)(device, NULL);
	VI(vkDestroyInstance)(instance, NULL);
	instance = NULL;
}

static VkResult import(int fd, VkDeviceSize size, uint32_t type, VkDeviceMemory *memory)
{
	VkImportMemoryFdInfoKHR fd_info = {
		.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
		.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
		.fd = fd,
	};
	VkMemoryAllocateInfo info = { .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
				      .pNext = &fd_info,
				      .allocationSize = size,
				      .memoryTypeIndex = type };

	return VD(vkAllocateMemory)(device, &info, NULL, memory);
}

static int export(CUmemGenericAllocationHandle handle)
{
	int fd;

	ck_cu(CU(cuMemExportToShareableHandle)(&fd, handle,
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return fd;
}

START_TEST(same_device)
{
	VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT,
	};
	VkPhysicalDeviceIDProperties id = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
		.pNext = &pci,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &id,
	};
	VkPhysicalDevice devices[4];
	uint32_t n = 4;
	CUuuid uuid;
	int bus;

	setenv("GDRSIM_DEVICES", "2", 1);
	setenv("GDRSIM_VK_FOREIGN", "1", 1);
	sim_start();
	start_instance(1);
	ck_vk(VI(vkEnumeratePhysicalDevices)(instance, &n, devices));
	ck_assert_uint_eq(n, 3);
	for (int i = 0; i < 2; i++) {
		ck_cu(CU(cuDeviceGetUuid)(&uuid, i));
		ck_cu(CU(cuDeviceGetAttribute)(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
		VI(vkGetPhysicalDeviceProperties2)(devices[0], &properties);
		ck_assert_mem_ne(&uuid, id.deviceUUID, sizeof(uuid));
		VI(vkGetPhysicalDeviceProperties2)(devices[i + 1], &properties);
		ck_assert_mem_eq(&uuid, id.deviceUUID, sizeof(uuid));
		ck_assert_int_eq(bus, (int)pci.pciBus);
		ck_assert_uint_eq(properties.properties.vendorID, 0x10de);
	}
	VI(vkDestroyInstance)(instance, NULL);
	instance = NULL;
}
END_TEST

START_TEST(import_and_map)
{
	unsigned long long (*bar1)(int) =
		(unsigned long long (*)(int))sim_symbol(sim_vulkan, "gdrsim_bar1_used");
	CUmemGenericAllocationHandle handle;
	unsigned char byte = 0;
	VkDeviceMemory memory;
	CUdeviceptr ptr;
	void *map, *more;
	int fd, null;

	sim_start();
	start_instance(1);
	start_device(1);
	ptr = sim_vmm(GRANULE, 1, &handle, 1);
	fd = export(handle);
	ck_assert_int_eq(import(fd, 2 * GRANULE, 4, &memory), VK_ERROR_INVALID_EXTERNAL_HANDLE);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1); /* still ours */
	null = open("/dev/null", O_RDWR);
	ck_assert_int_eq(import(null, GRANULE, 4, &memory), VK_ERROR_INVALID_EXTERNAL_HANDLE);
	close(null);
	ck_vk(import(fd, GRANULE, 1, &memory)); /* not host-visible */
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* Vulkan's now */
	ck_assert_int_eq(VD(vkMapMemory)(device, memory, 0, GRANULE, 0, &map),
			 VK_ERROR_MEMORY_MAP_FAILED);
	VD(vkFreeMemory)(device, memory, NULL);
	ck_vk(import(export(handle), GRANULE, 4, &memory));
	ck_vk(VD(vkMapMemory)(device, memory, 65536, 65536, 0, &map));
	ck_assert_int_eq(VD(vkMapMemory)(device, memory, 0, 65536, 0, &more),
			 VK_ERROR_MEMORY_MAP_FAILED);
	ck_assert_uint_gt(bar1(0), 0);
	((char *)map)[3] = 0x2b;
	ck_cu(CU(cuMemcpyDtoH_v2)(&byte, ptr + 65536 + 3, 1));
	ck_assert_int_eq(byte, 0x2b);
	sim_vmm_end(ptr, GRANULE, 1, &handle);
	ck_assert_int_eq(((char *)map)[3], 0x2b); /* the map outlives it */
	VD(vkUnmapMemory)(device, memory);
	ck_assert_int_eq(sim_faults(map), 1);
	ck_assert_uint_eq(bar1(0), 0);
	VD(vkFreeMemory)(device, memory, NULL);
	end();
}
END_TEST

START_TEST(placed)
{
	CUmemGenericAllocationHandle handles[3];
	VkMemoryMapPlacedInfoEXT place = { .sType = VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT };
	VkMemoryMapInfo info = { .sType = VK_STRUCTURE_TYPE_MEMORY_MAP_INFO,
				 .pNext = &place,
				 .flags = VK_MEMORY_MAP_PLACED_BIT_EXT,
				 .size = GRANULE };
	VkMemoryUnmapInfo unmap = { .sType = VK_STRUCTURE_TYPE_MEMORY_UNMAP_INFO,
				    .flags = VK_MEMORY_UNMAP_RESERVE_BIT_EXT };
	char *area, *data = malloc(3 * GRANULE);
	VkDeviceMemory memory[3];
	CUdeviceptr ptr;
	void *map;

	sim_start();
	start_instance(1);
	start_device(1);
	ptr = sim_vmm(GRANULE, 3, handles, 1);
	area = mmap(NULL, 3 * GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 3; i++) {
		ck_vk(import(export(handles[i]), GRANULE, 4, &memory[i]));
		info.memory = memory[i];
		place.pPlacedAddress = area + 100;
		ck_assert_int_eq(VD(vkMapMemory2KHR)(device, &info, &map),
				 VK_ERROR_MEMORY_MAP_FAILED);
		place.pPlacedAddress = area + (size_t)i * GRANULE;
		ck_vk(VD(vkMapMemory2KHR)(device, &info, &map));
		ck_assert_ptr_eq(map, place.pPlacedAddress);
	}
	for (size_t i = 0; i < 3 * GRANULE; i++)
		area[i] = (char)(i * 3 + i / 4096);
	ck_cu(CU(cuMemcpyDtoH_v2)(data, ptr, 3 * GRANULE));
	ck_assert_int_eq(memcmp(area, data, 3 * GRANULE), 0);
	for (int i = 0; i < 3; i++) {
		unmap.memory = memory[i];
		ck_vk(VD(vkUnmapMemory2KHR)(device, &unmap));
		VD(vkFreeMemory)(device, memory[i], NULL);
	}
	ck_assert_int_eq(sim_faults(area), 1);
	ck_assert_int_eq(munmap(area, 3 * GRANULE), 0);
	free(data);
	end();
}
END_TEST

START_TEST(small_bar)
{
	VkPhysicalDeviceMemoryProperties properties;
	CUmemGenericAllocationHandle handles[2];
	VkDeviceMemory memory;
	int fd;

	setenv("GDRSIM_BAR1_MIB", "6", 1);
	sim_start();
	start_instance(1);
	start_device(0);
	VI(vkGetPhysicalDeviceMemoryProperties)(physical, &properties);
	ck_assert_uint_eq(properties.memoryTypes[4].propertyFlags, 7);
	ck_assert_uint_eq(properties.memoryHeaps[properties.memoryTypes[4].heapIndex].size,
			  6 * MIB);
	sim_vmm(2 * GRANULE, 2, handles, 1);
	ck_vk(import(export(handles[0]), 2 * GRANULE, 4, &memory));
	fd = export(handles[1]);
	ck_assert_int_eq(import(fd, 2 * GRANULE, 4, &memory), VK_ERROR_OUT_OF_DEVICE_MEMORY);
	ck_assert_int_eq(close(fd), 0);
	VD(vkFreeMemory)(device, memory, NULL);
	ck_vk(import(export(handles[1]), 2 * GRANULE, 4, &memory));
	VD(vkFreeMemory)(device, memory, NULL);
	end();
}
END_TEST

START_TEST(missing)
{
	uint32_t n = 0;

	setenv("GDRSIM_VK_DIRECT", "0", 1);
	setenv("GDRSIM_VK_NO_PLACED", "1", 1);
	setenv("GDRSIM_VK_NO_FD", "1", 1);
	start_instance(0);
	n = 1;
	ck_vk(VI(vkEnumeratePhysicalDevices)(instance, &n, &physical));
	n = 0;
	ck_vk(VI(vkEnumerateDeviceExtensionProperties)(physical, NULL, &n, NULL));
	ck_assert_uint_eq(n, 1);
	VI(vkDestroyInstance)(instance, NULL);
	instance = NULL;
}
END_TEST

START_TEST(without_extension)
{
	sim_start();
	start_instance(1);
	start_device(0);
	ck_assert_ptr_null(VD(vkMapMemory2KHR));
	ck_assert_ptr_nonnull(VD(vkMapMemory));
	end();
}
END_TEST

Suite *suite_vulkan(void)
{
	Suite *suite = suite_create("sim vulkan");
	TCase *tc = tcase_create("vulkan");

	tcase_add_test(tc, same_device);
	tcase_add_test(tc, import_and_map);
	tcase_add_test(tc, placed);
	tcase_add_test(tc, small_bar);
	tcase_add_test(tc, missing);
	tcase_add_test(tc, without_extension);
	suite_add_tcase(suite, tc);
	return suite;
}
