/* SPDX-License-Identifier: MIT */
/*
 * The Vulkan side of the vulkan backend: driver, instance and one VkDevice per GPU, made at the
 * first pin that needs them (tens to hundreds of milliseconds) and kept for the life of the
 * process. It knows nothing of pins.
 */
#ifndef GDRI_VULKAN_DEVICE_H
#define GDRI_VULKAN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/vulkan.h"
#include "cuda.h"

struct gdri_vulkan_device {
	struct gdri_device_id id;
	VkDevice device;
	uint32_t memory_type;	 /* DEVICE_LOCAL | HOST_VISIBLE */
	bool cached;		 /* that type is HOST_CACHED: coherent systems */
	uint64_t heap_size;	 /* bytes of its heap; as small as 256 MiB without a large BAR */
	uint64_t placed_align;	 /* alignment of placed maps; 0: no placed maps */
	bool range_placed;	 /* a placed map may be a part of its memory object */
	bool unmap_reserve;	 /* an unmap can leave the range reserved */

	__typeof__(&vkAllocateMemory) allocate;
	__typeof__(&vkFreeMemory) free;
	__typeof__(&vkMapMemory) map;
	__typeof__(&vkUnmapMemory) unmap;
	__typeof__(&vkMapMemory2KHR) map2;
	__typeof__(&vkUnmapMemory2KHR) unmap2;
	struct gdri_vulkan_device *next;
};

/* The device of that identity; made if need be. 0 or -errno. Thread-safe. */
int gdri_vulkan_device_get(const struct gdri_device_id *id,
			   const struct gdri_vulkan_device **device);

/* -errno for a result, with "call: name" as its text. */
int gdri_vulkan_fail(VkResult r, const char *call);

/* In a forked child: instance and devices belong to the parent. */
void gdri_vulkan_after_fork(void);

#endif
