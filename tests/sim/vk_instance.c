/* SPDX-License-Identifier: MIT */
/*
 * The instance and the logical device: what a program asks for is checked against what is
 * offered. It knows nothing of memory.
 */
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "vk.h"

pthread_mutex_t sim_vk_lock = PTHREAD_MUTEX_INITIALIZER;

bool sim_vk_fault(const char *call, VkResult *result)
{
	int value;

	if (!sim_fault(call, &value))
		return false;
	*result = (VkResult)value;
	return true;
}

static bool direct_loading(void)
{
	return sim_env("GDRSIM_VK_DIRECT", 1) != 0;
}

/* The two-call idiom of every enumeration; *count is the room when properties is given. */
static VkResult list_extensions(const char *const *names, uint32_t n, uint32_t *count,
				VkExtensionProperties *properties)
{
	uint32_t room = *count;

	*count = n;
	if (!properties)
		return VK_SUCCESS;
	if (room < n)
		*count = room;
	for (uint32_t i = 0; i < *count; i++) {
		memset(&properties[i], 0, sizeof(properties[i]));
		strcpy(properties[i].extensionName, names[i]);
		properties[i].specVersion = 1;
	}
	return room < n ? VK_INCOMPLETE : VK_SUCCESS;
}

VkResult vkEnumerateInstanceExtensionProperties(const char *layer, uint32_t *count,
						VkExtensionProperties *properties)
{
	static const char *const names[] = { VK_LUNARG_DIRECT_DRIVER_LOADING_EXTENSION_NAME };

	SIM_VK_ENTER();
	if (layer)
		return VK_ERROR_LAYER_NOT_PRESENT;
	return list_extensions(names, direct_loading() ? 1 : 0, count, properties);
}

/* A driver list that is there must be usable: at least one entry, each with its function. */
static VkResult check_direct(const VkInstanceCreateInfo *info, bool enabled)
{
	const VkDirectDriverLoadingListLUNARG *list = info->pNext;

	while (list && list->sType != VK_STRUCTURE_TYPE_DIRECT_DRIVER_LOADING_LIST_LUNARG)
		list = list->pNext;
	if (!list)
		return VK_SUCCESS;
	if (!enabled || list->driverCount == 0 || !list->pDrivers)
		return VK_ERROR_INITIALIZATION_FAILED;
	for (uint32_t i = 0; i < list->driverCount; i++) {
		const VkDirectDriverLoadingInfoLUNARG *driver = &list->pDrivers[i];

		if (driver->sType != VK_STRUCTURE_TYPE_DIRECT_DRIVER_LOADING_INFO_LUNARG ||
		    !driver->pfnGetInstanceProcAddr)
			return VK_ERROR_INITIALIZATION_FAILED;
	}
	return VK_SUCCESS;
}

VkResult vkCreateInstance(const VkInstanceCreateInfo *info, const void *allocator,
			  VkInstance *instance)
{
	bool direct = false, foreign = sim_env("GDRSIM_VK_FOREIGN", 0) != 0;
	VkInstance made;
	VkResult r;
	int gpus;

	(void)allocator;
	SIM_VK_ENTER();
	if (info->sType != VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO)
		return VK_ERROR_INITIALIZATION_FAILED;
	if (info->enabledLayerCount)
		return VK_ERROR_LAYER_NOT_PRESENT;
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
		if (!direct_loading() || strcmp(info->ppEnabledExtensionNames[i],
						VK_LUNARG_DIRECT_DRIVER_LOADING_EXTENSION_NAME))
			return VK_ERROR_EXTENSION_NOT_PRESENT;
		direct = true;
	}
	r = check_direct(info, direct);
	if (r != VK_SUCCESS)
		return r;
	gpus = sim_gpu_count();
	if (gpus == 0 && !foreign)
		return VK_ERROR_INCOMPATIBLE_DRIVER;
	made = calloc(1, sizeof(*made));
	if (!made)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	made->loader_word = SIM_ICD_MAGIC;
	if (foreign)
		sim_vk_physical_init(&made->device[made->n_devices++], -1);
	for (int i = 0; i < gpus; i++)
		sim_vk_physical_init(&made->device[made->n_devices++], i);
	*instance = made;
	return VK_SUCCESS;
}

void vkDestroyInstance(VkInstance instance, const void *allocator)
{
	(void)allocator;
	sim_fault(__func__, NULL);
	free(instance);
}

VkResult vkEnumeratePhysicalDevices(VkInstance instance, uint32_t *count, VkPhysicalDevice *devices)
{
	uint32_t room = *count;

	SIM_VK_ENTER();
	*count = instance->n_devices;
	if (!devices)
		return VK_SUCCESS;
	if (room < *count)
		*count = room;
	for (uint32_t i = 0; i < *count; i++)
		devices[i] = &instance->device[i];
	return room < instance->n_devices ? VK_INCOMPLETE : VK_SUCCESS;
}

VkResult vkEnumerateDeviceExtensionProperties(VkPhysicalDevice device, const char *layer,
					      uint32_t *count, VkExtensionProperties *properties)
{
	const char *names[4];
	uint32_t n = 0;

	SIM_VK_ENTER();
	if (layer)
		return VK_ERROR_LAYER_NOT_PRESENT;
	if (device->extensions & SIM_VK_FD)
		names[n++] = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
	if (device->extensions & SIM_VK_MAP2)
		names[n++] = VK_KHR_MAP_MEMORY_2_EXTENSION_NAME;
	if (device->extensions & SIM_VK_PLACED)
		names[n++] = VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME;
	if (device->extensions & SIM_VK_PCI)
		names[n++] = VK_EXT_PCI_BUS_INFO_EXTENSION_NAME;
	return list_extensions(names, n, count, properties);
}

/* Whether the placed features are asked for; only those that are offered may be. */
static VkResult placed_feature(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
			       unsigned int extensions, bool *on)
{
	const VkPhysicalDeviceMapMemoryPlacedFeaturesEXT *f = info->pNext;

	*on = false;
	while (f && f->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT)
		f = f->pNext;
	if (!f)
		return VK_SUCCESS;
	if ((f->memoryMapRangePlaced && !physical->range_placed) ||
	    (f->memoryUnmapReserve && physical->no_reserve))
		return VK_ERROR_FEATURE_NOT_PRESENT;
	if ((f->memoryMapPlaced || f->memoryUnmapReserve) && !(extensions & SIM_VK_PLACED))
		return VK_ERROR_FEATURE_NOT_PRESENT;
	*on = f->memoryMapPlaced;
	return VK_SUCCESS;
}

VkResult vkCreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
			const void *allocator, VkDevice *device)
{
	unsigned int extensions = 0;
	VkDevice made;
	VkResult r;
	bool placed;

	(void)allocator;
	SIM_VK_ENTER();
	if (info->sType != VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO || info->queueCreateInfoCount == 0)
		return VK_ERROR_INITIALIZATION_FAILED;
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
		unsigned int bit = sim_vk_extension(info->ppEnabledExtensionNames[i]);

		if (!(bit & physical->extensions))
			return VK_ERROR_EXTENSION_NOT_PRESENT;
		extensions |= bit;
	}
	r = placed_feature(physical, info, extensions, &placed);
	if (r != VK_SUCCESS)
		return r;
	made = calloc(1, sizeof(*made));
	if (!made)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	made->loader_word = SIM_ICD_MAGIC;
	made->physical = physical;
	made->extensions = extensions;
	made->placed_feature = placed;
	*device = made;
	return VK_SUCCESS;
}

void vkDestroyDevice(VkDevice device, const void *allocator)
{
	(void)allocator;
	sim_fault(__func__, NULL);
	free(device);
}
