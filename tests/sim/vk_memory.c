/* SPDX-License-Identifier: MIT */
/*
 * Device memory: allocation, import of what libcuda exported, and maps, placed ones included.
 * What the Vulkan specification leaves undefined is an error here where it can be told. It knows
 * nothing of CUDA beyond the descriptor.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "vk.h"

#define PAGE	   ((VkDeviceSize)4096)
#define WHOLE_SIZE (~(VkDeviceSize)0)

struct VkDeviceMemory_T {
	VkDevice device;
	int fd;
	VkDeviceSize size;
	uint32_t type;
	char *map; /* NULL: not mapped */
	VkDeviceSize map_size;
	bool placed;
};

static unsigned long long bar1_used[SIM_MAX_GPUS];

unsigned long long gdrsim_bar1_used(int device)
{
	unsigned long long used = 0;

	pthread_mutex_lock(&sim_vk_lock);
	if (device >= 0 && device < SIM_MAX_GPUS)
		used = bar1_used[device];
	pthread_mutex_unlock(&sim_vk_lock);
	return used;
}

/* A descriptor of our own; the program's is closed by the caller once nothing can fail any more. */
static VkResult import(VkDevice device, const VkImportMemoryFdInfoKHR *info, VkDeviceSize size,
		       int *fd)
{
	struct sim_memfd memory;

	if (!(device->extensions & SIM_VK_FD) ||
	    info->handleType != VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT)
		return VK_ERROR_INVALID_EXTERNAL_HANDLE;
	*fd = sim_memfd_open(info->fd, &memory);
	if (*fd < 0)
		return VK_ERROR_INVALID_EXTERNAL_HANDLE;
	if (memory.device != device->physical->ordinal || memory.size != size) {
		close(*fd);
		return VK_ERROR_INVALID_EXTERNAL_HANDLE;
	}
	return VK_SUCCESS;
}

static VkResult fresh(VkDeviceSize size, int *fd)
{
	*fd = memfd_create("gdrsim-vk", MFD_CLOEXEC);
	if (*fd < 0)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	if (ftruncate(*fd, (off_t)size)) {
		close(*fd);
		return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	}
	return VK_SUCCESS;
}

/* What is host-visible must fit the BAR, together with all else that is. */
static bool take_heap(VkDevice device, uint32_t type, VkDeviceSize size)
{
	bool fits = true;

	if (!sim_vk_host_visible(device->physical, type))
		return size <= device->physical->gpu.mem_bytes;
	pthread_mutex_lock(&sim_vk_lock);
	if (size > device->physical->gpu.bar1_bytes - device->heap_used)
		fits = false;
	else
		device->heap_used += size;
	pthread_mutex_unlock(&sim_vk_lock);
	return fits;
}

static void give_heap(VkDevice device, uint32_t type, VkDeviceSize size)
{
	if (!sim_vk_host_visible(device->physical, type))
		return;
	pthread_mutex_lock(&sim_vk_lock);
	device->heap_used -= size;
	pthread_mutex_unlock(&sim_vk_lock);
}

VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info, const void *allocator,
			  VkDeviceMemory *memory)
{
	const VkImportMemoryFdInfoKHR *imported = info->pNext;
	VkDeviceSize size = info->allocationSize;
	VkDeviceMemory made;
	VkResult r;

	(void)allocator;
	SIM_VK_ENTER();
	while (imported && imported->sType != VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR)
		imported = imported->pNext;
	if (info->sType != VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO || size == 0 ||
	    info->memoryTypeIndex >= sim_vk_type_count(device->physical))
		return VK_ERROR_UNKNOWN;
	made = calloc(1, sizeof(*made));
	if (!made)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	r = VK_ERROR_OUT_OF_DEVICE_MEMORY;
	if (!take_heap(device, info->memoryTypeIndex, size))
		goto err_free;
	r = imported ? import(device, imported, size, &made->fd) : fresh(size, &made->fd);
	if (r != VK_SUCCESS)
		goto err_heap;
	if (imported)
		close(imported->fd);
	made->device = device;
	made->size = size;
	made->type = info->memoryTypeIndex;
	*memory = made;
	return VK_SUCCESS;
err_heap:
	give_heap(device, info->memoryTypeIndex, size);
err_free:
	free(made);
	return r;
}

static bool on_bar(const struct VkDeviceMemory_T *memory)
{
	return sim_vk_host_visible(memory->device->physical, memory->type) &&
	       memory->device->physical->ordinal >= 0;
}

/* place NULL: anywhere. A placed map goes over what is there, as MAP_FIXED does. */
static VkResult map_locked(VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
			   void *place)
{
	VkPhysicalDevice physical = memory->device->physical;
	VkDeviceSize from, length;
	char *at;

	if (size == WHOLE_SIZE)
		size = memory->size - offset;
	if (memory->map || offset >= memory->size || size == 0 || size > memory->size - offset ||
	    !(sim_vk_type_flags(physical, memory->type) & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT))
		return VK_ERROR_MEMORY_MAP_FAILED;
	/* without a place all is mapped: any offset is allowed, and a map has to begin at a page */
	from = place ? offset : 0;
	length = place ? size : memory->size;
	if (on_bar(memory) && length > physical->gpu.bar1_bytes - bar1_used[physical->ordinal])
		return VK_ERROR_MEMORY_MAP_FAILED;
	at = mmap(place, length, PROT_READ | PROT_WRITE, MAP_SHARED | (place ? MAP_FIXED : 0),
		  memory->fd, (off_t)from);
	if (at == MAP_FAILED)
		return VK_ERROR_MEMORY_MAP_FAILED;
	memory->map = at;
	memory->map_size = length;
	memory->placed = place != NULL;
	if (on_bar(memory))
		bar1_used[physical->ordinal] += length;
	return VK_SUCCESS;
}

static VkResult map(VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size, void *place,
		    void **data)
{
	VkResult r;

	pthread_mutex_lock(&sim_vk_lock);
	r = map_locked(memory, offset, size, place);
	if (r == VK_SUCCESS)
		*data = memory->map + (place ? 0 : offset);
	pthread_mutex_unlock(&sim_vk_lock);
	return r;
}

/* reserve: the addresses stay taken, without access. */
static VkResult unmap(VkDeviceMemory memory, bool reserve)
{
	pthread_mutex_lock(&sim_vk_lock);
	if (!memory->map) {
		pthread_mutex_unlock(&sim_vk_lock);
		return VK_ERROR_MEMORY_MAP_FAILED;
	}
	if (!reserve)
		munmap(memory->map, memory->map_size);
	else if (mmap(memory->map, memory->map_size, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
	memory->map = NULL;
	if (on_bar(memory))
		bar1_used[memory->device->physical->ordinal] -= memory->map_size;
	pthread_mutex_unlock(&sim_vk_lock);
	return VK_SUCCESS;
}

void vkFreeMemory(VkDevice device, VkDeviceMemory memory, const void *allocator)
{
	(void)allocator;
	sim_fault(__func__, NULL);
	if (!memory)
		return;
	unmap(memory, false);
	give_heap(device, memory->type, memory->size);
	close(memory->fd);
	free(memory);
}

VkResult vkMapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
		     VkFlags flags, void **data)
{
	(void)device;
	SIM_VK_ENTER();
	if (flags)
		return VK_ERROR_MEMORY_MAP_FAILED;
	return map(memory, offset, size, NULL, data);
}

void vkUnmapMemory(VkDevice device, VkDeviceMemory memory)
{
	(void)device;
	sim_fault(__func__, NULL);
	unmap(memory, false);
}

/* Without VK_EXT_map_memory_placed's memoryMapRangePlaced a placed map is of the whole memory. */
VkResult vkMapMemory2KHR(VkDevice device, const VkMemoryMapInfo *info, void **data)
{
	const VkMemoryMapPlacedInfoEXT *placed = info->pNext;

	SIM_VK_ENTER();
	if (info->sType != VK_STRUCTURE_TYPE_MEMORY_MAP_INFO ||
	    (info->flags & ~VK_MEMORY_MAP_PLACED_BIT_EXT))
		return VK_ERROR_MEMORY_MAP_FAILED;
	while (placed && placed->sType != VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT)
		placed = placed->pNext;
	if (!(info->flags & VK_MEMORY_MAP_PLACED_BIT_EXT))
		return map(info->memory, info->offset, info->size, NULL, data);
	if (!placed || !placed->pPlacedAddress || !device->placed_feature ||
	    (uintptr_t)placed->pPlacedAddress % device->physical->placed_align)
		return VK_ERROR_MEMORY_MAP_FAILED;
	if (device->physical->range_placed) {
		if (info->offset % device->physical->placed_align ||
		    (info->size != WHOLE_SIZE && info->size % device->physical->placed_align))
			return VK_ERROR_MEMORY_MAP_FAILED;
		return map(info->memory, info->offset, info->size, placed->pPlacedAddress, data);
	}
	if (info->offset || info->memory->size % device->physical->placed_align ||
	    (info->size != WHOLE_SIZE && info->size != info->memory->size))
		return VK_ERROR_MEMORY_MAP_FAILED;
	return map(info->memory, 0, WHOLE_SIZE, placed->pPlacedAddress, data);
}

VkResult vkUnmapMemory2KHR(VkDevice device, const VkMemoryUnmapInfo *info)
{
	bool reserve = info->flags & VK_MEMORY_UNMAP_RESERVE_BIT_EXT;

	SIM_VK_ENTER();
	if (info->sType != VK_STRUCTURE_TYPE_MEMORY_UNMAP_INFO ||
	    (reserve && (!(device->extensions & SIM_VK_PLACED) || device->physical->no_reserve)))
		return VK_ERROR_MEMORY_MAP_FAILED;
	return unmap(info->memory, reserve);
}
