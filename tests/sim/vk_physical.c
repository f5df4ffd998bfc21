/* SPDX-License-Identifier: MIT */
/*
 * The physical devices: the simulated GPUs as Vulkan sees them, and optionally one of another
 * vendor. Memory types 1 and 4 are those of an H200 with driver 580 (2026-11-20); the others fill
 * the gaps. It knows nothing of allocations.
 */
#include <string.h>

#include "fault.h"
#include "vk.h"

#define HEAP_DEVICE 0u
#define HEAP_HOST   1u
#define HEAP_BAR    2u /* only with a BAR1 smaller than the memory */

#define LOCAL	 VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define VISIBLE	 VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
#define COHERENT VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
#define CACHED	 VK_MEMORY_PROPERTY_HOST_CACHED_BIT

#define HEAP_DEVICE_LOCAL_BIT 0x1u /* VK_MEMORY_HEAP_DEVICE_LOCAL_BIT */
#define TYPE_DISCRETE_GPU     2u
#define TYPE_INTEGRATED_GPU   1u

static const VkFlags types[] = {
	0, LOCAL, VISIBLE | COHERENT, VISIBLE | COHERENT | CACHED, LOCAL | VISIBLE | COHERENT,
};

void sim_vk_physical_init(struct VkPhysicalDevice_T *device, int ordinal)
{
	device->loader_word = SIM_ICD_MAGIC;
	device->ordinal = ordinal;
	device->foreign = ordinal < 0;
	sim_gpu(ordinal, &device->gpu);
	device->extensions = SIM_VK_PLACED | SIM_VK_MAP2 | SIM_VK_FD | SIM_VK_PCI;
	if (sim_env("GDRSIM_VK_NO_PLACED", 0))
		device->extensions &= ~(SIM_VK_PLACED | SIM_VK_MAP2);
	if (sim_env("GDRSIM_VK_NO_FD", 0))
		device->extensions &= ~SIM_VK_FD;
	device->no_host_visible = sim_env("GDRSIM_VK_NO_HOST_VISIBLE", 0) != 0;
	device->cached = sim_env("GDRSIM_VK_CACHED", 0) != 0;
	device->range_placed = sim_env("GDRSIM_VK_RANGE_PLACED", 0) != 0;
	device->no_reserve = sim_env("GDRSIM_VK_NO_RESERVE", 0) != 0;
	device->placed_align = (VkDeviceSize)sim_env("GDRSIM_VK_PLACED_ALIGN", 4096);
	if (device->foreign) {
		memset(device->gpu.uuid, 0x5a, sizeof(device->gpu.uuid));
		strcpy(device->gpu.name, "Foreign device");
		device->gpu.pci_bus = 0;
		device->gpu.pci_device = 2;
	}
}

unsigned int sim_vk_extension(const char *name)
{
	if (strcmp(name, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) == 0)
		return SIM_VK_FD;
	if (strcmp(name, VK_KHR_MAP_MEMORY_2_EXTENSION_NAME) == 0)
		return SIM_VK_MAP2;
	if (strcmp(name, VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME) == 0)
		return SIM_VK_PLACED;
	if (strcmp(name, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME) == 0)
		return SIM_VK_PCI;
	return 0;
}

static uint32_t driver_version(void)
{
	return (580u << 22) | (159u << 14);
}

static void fill_id(const struct VkPhysicalDevice_T *device, VkPhysicalDeviceIDProperties *id)
{
	memcpy(id->deviceUUID, device->gpu.uuid, VK_UUID_SIZE);
	memset(id->driverUUID, 0xd1, VK_UUID_SIZE);
	memset(id->deviceLUID, 0, VK_LUID_SIZE);
	id->deviceNodeMask = 0;
	id->deviceLUIDValid = 0;
}

/* The structures of a chain begin alike: type, next. */
struct chained {
	VkStructureType sType;
	struct chained *pNext;
};

void vkGetPhysicalDeviceProperties2(VkPhysicalDevice device,
				    VkPhysicalDeviceProperties2 *properties)
{
	VkPhysicalDeviceProperties *p = &properties->properties;

	sim_fault(__func__, NULL);
	memset(p, 0, sizeof(*p));
	p->apiVersion = (1u << 22) | (4u << 12);
	p->driverVersion = driver_version();
	p->vendorID = device->foreign ? 0x8086 : 0x10de;
	p->deviceID = device->foreign ? 0x1234 : 0x2335;
	p->deviceType = device->foreign ? TYPE_INTEGRATED_GPU : TYPE_DISCRETE_GPU;
	memcpy(p->deviceName, device->gpu.name, sizeof(device->gpu.name));
	for (struct chained *c = properties->pNext; c; c = c->pNext) {
		void *at = c;

		if (c->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES) {
			fill_id(device, at);
		} else if (c->sType ==
			   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT) {
			VkPhysicalDevicePCIBusInfoPropertiesEXT *pci = at;

			pci->pciDomain = (uint32_t)device->gpu.pci_domain;
			pci->pciBus = (uint32_t)device->gpu.pci_bus;
			pci->pciDevice = (uint32_t)device->gpu.pci_device;
			pci->pciFunction = 0;
		} else if (
			c->sType ==
				VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_PROPERTIES_EXT &&
			(device->extensions & SIM_VK_PLACED)) {
			VkPhysicalDeviceMapMemoryPlacedPropertiesEXT *placed = at;

			placed->minPlacedMemoryMapAlignment = device->placed_align;
		}
	}
}

void vkGetPhysicalDeviceFeatures2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *features)
{
	sim_fault(__func__, NULL);
	memset(&features->features, 0, sizeof(features->features));
	for (struct chained *c = features->pNext; c; c = c->pNext) {
		void *at = c;
		VkPhysicalDeviceMapMemoryPlacedFeaturesEXT *placed = at;

		if (c->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT ||
		    !(device->extensions & SIM_VK_PLACED))
			continue;
		placed->memoryMapPlaced = 1;
		placed->memoryMapRangePlaced = device->range_placed;
		placed->memoryUnmapReserve = !device->no_reserve;
	}
}

static bool small_bar(const struct VkPhysicalDevice_T *device)
{
	return device->gpu.bar1_bytes < device->gpu.mem_bytes;
}

uint32_t sim_vk_type_count(VkPhysicalDevice physical)
{
	uint32_t n = sizeof(types) / sizeof(types[0]);

	return physical->no_host_visible ? n - 1 : n;
}

VkFlags sim_vk_type_flags(VkPhysicalDevice physical, uint32_t type)
{
	VkFlags flags = type < sim_vk_type_count(physical) ? types[type] : 0;

	if ((flags & (LOCAL | VISIBLE)) == (LOCAL | VISIBLE) && physical->cached)
		flags |= CACHED;
	return flags;
}

bool sim_vk_host_visible(VkPhysicalDevice physical, uint32_t type)
{
	return (sim_vk_type_flags(physical, type) & (LOCAL | VISIBLE)) == (LOCAL | VISIBLE);
}

void vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice device,
					 VkPhysicalDeviceMemoryProperties *properties)
{
	sim_fault(__func__, NULL);
	memset(properties, 0, sizeof(*properties));
	properties->memoryTypeCount = sim_vk_type_count(device);
	for (uint32_t i = 0; i < properties->memoryTypeCount; i++) {
		VkMemoryType *type = &properties->memoryTypes[i];

		type->propertyFlags = sim_vk_type_flags(device, i);
		type->heapIndex = types[i] & LOCAL ? HEAP_DEVICE : HEAP_HOST;
		if (sim_vk_host_visible(device, i) && small_bar(device))
			type->heapIndex = HEAP_BAR;
	}
	properties->memoryHeapCount = small_bar(device) ? 3 : 2;
	properties->memoryHeaps[HEAP_DEVICE].size = device->gpu.mem_bytes;
	properties->memoryHeaps[HEAP_DEVICE].flags = HEAP_DEVICE_LOCAL_BIT;
	properties->memoryHeaps[HEAP_HOST].size = (VkDeviceSize)16 << 30;
	if (!small_bar(device))
		return;
	properties->memoryHeaps[HEAP_BAR].size = device->gpu.bar1_bytes;
	properties->memoryHeaps[HEAP_BAR].flags = HEAP_DEVICE_LOCAL_BIT;
}
