/* SPDX-License-Identifier: MIT */
/*
 * The stand-in libvulkan.so.1 inside. One lock protects everything; an object is only destroyed by
 * the program, as Vulkan has it. Handles begin with the word that a Vulkan loader wants there, so
 * that the ICD form (libGLX_nvidia.so.0) also runs under a real loader.
 */
#ifndef SIM_VK_H
#define SIM_VK_H

#include <pthread.h>
#include <stdbool.h>

#pragma GCC visibility push(default)
#include "abi/vulkan.h"
#include "gdrsim.h"
#pragma GCC visibility pop
#include "machine.h"

#define SIM_ICD_MAGIC 0x01CDC0DEu

#define SIM_VK_PLACED 0x1u /* VK_EXT_map_memory_placed */
#define SIM_VK_MAP2   0x2u /* VK_KHR_map_memory2 */
#define SIM_VK_FD     0x4u /* VK_KHR_external_memory_fd */
#define SIM_VK_PCI    0x8u /* VK_EXT_pci_bus_info */

struct VkPhysicalDevice_T {
	uintptr_t loader_word;
	bool foreign;
	int ordinal; /* of the simulated GPU; -1: the foreign one */
	unsigned int extensions; /* SIM_VK_* offered */
	bool no_host_visible;
	bool cached;	   /* device memory that the host sees */
	bool range_placed; /* memoryMapRangePlaced */
	bool no_reserve;   /* no memoryUnmapReserve */
	VkDeviceSize placed_align;
	struct sim_gpu gpu;
};

struct VkInstance_T {
	uintptr_t loader_word;
	uint32_t n_devices;
	struct VkPhysicalDevice_T device[SIM_MAX_GPUS + 1];
};

struct VkDevice_T {
	uintptr_t loader_word;
	VkPhysicalDevice physical;
	unsigned int extensions; /* SIM_VK_* enabled */
	bool placed_feature;
	VkDeviceSize heap_used; /* of the host-visible device heap */
};

extern pthread_mutex_t sim_vk_lock;

/* True: the call must return *result. */
bool sim_vk_fault(const char *call, VkResult *result);

#define SIM_VK_ENTER()                                  \
	do {                                            \
		VkResult injected_;                     \
		if (sim_vk_fault(__func__, &injected_)) \
			return injected_;               \
	} while (0)

/* vk_physical.c */
void sim_vk_physical_init(struct VkPhysicalDevice_T *device, int ordinal);
unsigned int sim_vk_extension(const char *name); /* its SIM_VK_* bit, 0: unknown */
bool sim_vk_host_visible(VkPhysicalDevice physical, uint32_t type); /* device-local as well */
VkFlags sim_vk_type_flags(VkPhysicalDevice physical, uint32_t type);
uint32_t sim_vk_type_count(VkPhysicalDevice physical);

#endif
