/* SPDX-License-Identifier: MIT */
/* See vulkan_device.h. */
#include "backend/vulkan_device.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "log.h"

/* All under lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VkInstance instance;
static PFN_vkGetInstanceProcAddr get_proc;
static struct gdri_vulkan_device *devices;

#define INSTANCE_CALL(name) ((__typeof__(&(name)))get_proc(instance, #name))

int gdri_vulkan_fail(VkResult r, const char *call)
{
	static const struct {
		VkResult result;
		int err;
		const char *name;
	} results[] = {
		{ VK_ERROR_OUT_OF_HOST_MEMORY, ENOMEM, "VK_ERROR_OUT_OF_HOST_MEMORY" },
		{ VK_ERROR_OUT_OF_DEVICE_MEMORY, ENOMEM, "VK_ERROR_OUT_OF_DEVICE_MEMORY" },
		{ VK_ERROR_MEMORY_MAP_FAILED, ENOMEM, "VK_ERROR_MEMORY_MAP_FAILED" },
		{ VK_ERROR_TOO_MANY_OBJECTS, ENOMEM, "VK_ERROR_TOO_MANY_OBJECTS" },
		{ VK_ERROR_INITIALIZATION_FAILED, ENODEV, "VK_ERROR_INITIALIZATION_FAILED" },
		{ VK_ERROR_INCOMPATIBLE_DRIVER, ENODEV, "VK_ERROR_INCOMPATIBLE_DRIVER" },
		{ VK_ERROR_DEVICE_LOST, ENODEV, "VK_ERROR_DEVICE_LOST" },
		{ VK_ERROR_EXTENSION_NOT_PRESENT, ENOTSUP, "VK_ERROR_EXTENSION_NOT_PRESENT" },
		{ VK_ERROR_FEATURE_NOT_PRESENT, ENOTSUP, "VK_ERROR_FEATURE_NOT_PRESENT" },
		{ VK_ERROR_INVALID_EXTERNAL_HANDLE, ENOTSUP, "VK_ERROR_INVALID_EXTERNAL_HANDLE" },
	};

	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i].result == r)
			return gdri_fail(results[i].err, "%s: %s", call, results[i].name);
	return gdri_fail(EIO, "%s: VkResult %d", call, (int)r);
}

static bool has_extension(const VkExtensionProperties *list, uint32_t count, const char *name)
{
	for (uint32_t i = 0; i < count; i++)
		if (!strcmp(list[i].extensionName, name))
			return true;
	return false;
}

/*
 * Where Vulkan is had from, in order of trial. The GPU's driver is called directly: so there are no
 * other vendors' drivers and no layers in this process, no loader and no ICD file are needed, and
 * an instance takes 34 ms (H200, driver 580, 2026-11-20; 90 to 650 ms through the loader). The
 * loader is for an installation whose driver has another name.
 */
static const struct source {
	const char *library;
	const char *entry;
	bool is_driver;
} sources[] = {
	{ "libGLX_nvidia.so.0", "vk_icdGetInstanceProcAddr", true },
	{ "libEGL_nvidia.so.0", "vk_icdGetInstanceProcAddr", true },
	{ "libvulkan.so.1", "vkGetInstanceProcAddr", false },
};

/* A driver may be called only after its interface version was agreed on: 2 or more has the entry. */
static bool negotiate(void *lib)
{
	__typeof__(&vk_icdNegotiateLoaderICDInterfaceVersion) ask =
		(__typeof__(ask))dlsym(lib, "vk_icdNegotiateLoaderICDInterfaceVersion");
	uint32_t version = 5;

	return ask && !ask(&version) && version >= 2;
}

static int create_instance_locked(const struct source *source)
{
	VkApplicationInfo app = {
		.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
		.pApplicationName = "libgdrapi",
		.apiVersion = VK_API_VERSION_1_1,
	};
	VkInstanceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
		.pApplicationInfo = &app,
	};
	__typeof__(&vkCreateInstance) create;
	VkResult r;
	void *lib;

	/* Not closed again, whatever follows: a driver may have started threads. */
	lib = dlopen(source->library, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return gdri_fail(ENODEV, "%s", dlerror());
	if (source->is_driver && !negotiate(lib))
		return gdri_fail(ENODEV, "%s is too old to be called directly", source->library);
	get_proc = (PFN_vkGetInstanceProcAddr)dlsym(lib, source->entry);
	create = get_proc ? (__typeof__(create))get_proc(NULL, "vkCreateInstance") : NULL;
	if (!create)
		return gdri_fail(ENODEV, "%s has no vkCreateInstance", source->library);
	r = create(&info, NULL, &instance);
	if (r) {
		instance = NULL;
		return gdri_vulkan_fail(r, "vkCreateInstance");
	}
	gdri_log(GDR_LOG_DEBUG, "Vulkan by %s", source->library);
	return 0;
}

static int make_instance_locked(void)
{
	struct gdri_text why = { .len = 0 };
	int rc, err = ENODEV;

	if (instance)
		return 0;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		rc = create_instance_locked(&sources[i]);
		if (!rc)
			return 0;
		if (rc == -ENOMEM)
			err = ENOMEM;
		gdri_text_add(&why, "%s%s", why.len ? "; " : "", gdri_error_text());
	}
	return gdri_fail(err, "no Vulkan driver: %s", why.s);
}

/* Extensions of one physical device; *list is the caller's. */
static int device_extensions(VkPhysicalDevice physical, VkExtensionProperties **list,
			     uint32_t *count)
{
	__typeof__(&vkEnumerateDeviceExtensionProperties) enumerate =
		INSTANCE_CALL(vkEnumerateDeviceExtensionProperties);
	VkResult r;

	*count = 0;
	r = enumerate(physical, NULL, count, NULL);
	if (r)
		return gdri_vulkan_fail(r, "vkEnumerateDeviceExtensionProperties");
	*list = calloc(*count + 1, sizeof(**list));
	if (!*list)
		return gdri_fail(ENOMEM, "no memory for a list of extensions");
	r = enumerate(physical, NULL, count, *list);
	if (r < 0) {
		free(*list);
		return gdri_vulkan_fail(r, "vkEnumerateDeviceExtensionProperties");
	}
	return 0;
}

/* Same UUID, and same PCI address where the device tells it. */
static bool is_device(VkPhysicalDevice physical, const struct gdri_device_id *id)
{
	VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT,
	};
	VkPhysicalDeviceIDProperties ids = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &ids,
	};
	VkExtensionProperties *list;
	uint32_t count;

	if (device_extensions(physical, &list, &count))
		return false;
	if (has_extension(list, count, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME))
		ids.pNext = &pci;
	free(list);
	INSTANCE_CALL(vkGetPhysicalDeviceProperties2)(physical, &properties);
	if (memcmp(ids.deviceUUID, id->uuid, sizeof(id->uuid)))
		return false;
	return !ids.pNext || (pci.pciDomain == id->pci_domain && pci.pciBus == id->pci_bus &&
			      pci.pciDevice == id->pci_device);
}

static int find_physical_locked(const struct gdri_device_id *id, VkPhysicalDevice *physical)
{
	__typeof__(&vkEnumeratePhysicalDevices) enumerate =
		INSTANCE_CALL(vkEnumeratePhysicalDevices);
	VkPhysicalDevice *list;
	uint32_t count = 0, i;
	VkResult r;

	r = enumerate(instance, &count, NULL);
	if (r)
		return gdri_vulkan_fail(r, "vkEnumeratePhysicalDevices");
	list = calloc(count + 1, sizeof(VkPhysicalDevice));
	if (!list)
		return gdri_fail(ENOMEM, "no memory for a list of devices");
	r = enumerate(instance, &count, list);
	if (r < 0) {
		free(list);
		return gdri_vulkan_fail(r, "vkEnumeratePhysicalDevices");
	}
	for (i = 0; i < count; i++)
		if (is_device(list[i], id))
			break;
	if (i == count) {
		free(list);
		return gdri_fail(ENODEV,
				 "none of %u Vulkan devices is this GPU (%04x:%02x:%02x); a "
				 "container needs the driver's graphics capability",
				 count, id->pci_domain, id->pci_bus, id->pci_device);
	}
	*physical = list[i];
	free(list);
	return 0;
}

/* The memory type that CUDA memory is imported as. */
static int choose_memory_type(VkPhysicalDevice physical, struct gdri_vulkan_device *d)
{
	const VkFlags want =
		VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
	VkPhysicalDeviceMemoryProperties memory;

	memset(&memory, 0, sizeof(memory));
	INSTANCE_CALL(vkGetPhysicalDeviceMemoryProperties)(physical, &memory);
	for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
		VkFlags flags = memory.memoryTypes[i].propertyFlags;

		if ((flags & want) != want)
			continue;
		d->memory_type = i;
		d->cached = flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
		d->heap_size = memory.memoryHeaps[memory.memoryTypes[i].heapIndex].size;
		return 0;
	}
	return gdri_fail(ENOTSUP, "this GPU offers no host-visible device memory (no BAR1 access)");
}

/* What the device can do about placed maps; called when both extensions are there. */
static void ask_placed(VkPhysicalDevice physical, struct gdri_vulkan_device *d,
		       VkPhysicalDeviceMapMemoryPlacedFeaturesEXT *features)
{
	VkPhysicalDeviceFeatures2 features2 = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
		.pNext = features,
	};
	VkPhysicalDeviceMapMemoryPlacedPropertiesEXT placed = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_PROPERTIES_EXT,
	};
	VkPhysicalDeviceProperties2 properties = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
		.pNext = &placed,
	};

	INSTANCE_CALL(vkGetPhysicalDeviceFeatures2)(physical, &features2);
	INSTANCE_CALL(vkGetPhysicalDeviceProperties2)(physical, &properties);
	if (features->memoryMapPlaced)
		d->placed_align = placed.minPlacedMemoryMapAlignment;
	d->range_placed = features->memoryMapRangePlaced;
	d->unmap_reserve = features->memoryUnmapReserve;
	gdri_log(GDR_LOG_DEBUG,
		 "placed maps: %u, of ranges: %u, unmap reserves: %u, alignment %llu",
		 features->memoryMapPlaced, features->memoryMapRangePlaced,
		 features->memoryUnmapReserve,
		 (unsigned long long)placed.minPlacedMemoryMapAlignment);
}

static int make_device(VkPhysicalDevice physical, struct gdri_vulkan_device *d)
{
	const char *extensions[3] = { VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME };
	VkPhysicalDeviceMapMemoryPlacedFeaturesEXT features = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT,
	};
	const float priority = 1.0f;
	VkDeviceQueueCreateInfo queue = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
		.queueCount = 1,
		.pQueuePriorities = &priority,
	};
	VkDeviceCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
		.queueCreateInfoCount = 1,
		.pQueueCreateInfos = &queue,
		.enabledExtensionCount = 1,
		.ppEnabledExtensionNames = extensions,
	};
	__typeof__(&vkGetDeviceProcAddr) device_proc;
	VkExtensionProperties *list;
	uint32_t count;
	VkResult r;
	int rc;

	rc = choose_memory_type(physical, d);
	if (rc)
		return rc;
	rc = device_extensions(physical, &list, &count);
	if (rc)
		return rc;
	if (!has_extension(list, count, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME)) {
		free(list);
		return gdri_fail(ENOTSUP, "this Vulkan driver cannot import memory by fd");
	}
	if (has_extension(list, count, VK_KHR_MAP_MEMORY_2_EXTENSION_NAME) &&
	    has_extension(list, count, VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME))
		ask_placed(physical, d, &features);
	free(list);
	if (d->placed_align) {
		extensions[info.enabledExtensionCount++] = VK_KHR_MAP_MEMORY_2_EXTENSION_NAME;
		extensions[info.enabledExtensionCount++] = VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME;
		info.pNext = &features;
	}
	r = INSTANCE_CALL(vkCreateDevice)(physical, &info, NULL, &d->device);
	if (r)
		return gdri_vulkan_fail(r, "vkCreateDevice");

	device_proc = INSTANCE_CALL(vkGetDeviceProcAddr);
	d->allocate = (__typeof__(d->allocate))device_proc(d->device, "vkAllocateMemory");
	d->free = (__typeof__(d->free))device_proc(d->device, "vkFreeMemory");
	d->map = (__typeof__(d->map))device_proc(d->device, "vkMapMemory");
	d->unmap = (__typeof__(d->unmap))device_proc(d->device, "vkUnmapMemory");
	if (d->placed_align) {
		d->map2 = (__typeof__(d->map2))device_proc(d->device, "vkMapMemory2KHR");
		d->unmap2 = (__typeof__(d->unmap2))device_proc(d->device, "vkUnmapMemory2KHR");
	}
	if (!d->allocate || !d->free || !d->map || !d->unmap ||
	    (d->placed_align && (!d->map2 || !d->unmap2))) {
		INSTANCE_CALL(vkDestroyDevice)(d->device, NULL);
		return gdri_fail(ENODEV, "the Vulkan driver lacks calls that it announced");
	}
	return 0;
}

int gdri_vulkan_device_get(const struct gdri_device_id *id,
			   const struct gdri_vulkan_device **device)
{
	struct gdri_vulkan_device *d;
	VkPhysicalDevice physical = NULL;
	int rc = 0;

	pthread_mutex_lock(&lock);
	for (d = devices; d; d = d->next)
		if (!memcmp(&d->id, id, sizeof(*id)))
			goto out_found;
	rc = make_instance_locked();
	if (!rc)
		rc = find_physical_locked(id, &physical);
	if (rc)
		goto out_unlock;
	d = calloc(1, sizeof(*d));
	if (!d) {
		rc = gdri_fail(ENOMEM, "no memory for a Vulkan device");
		goto out_unlock;
	}
	d->id = *id;
	rc = make_device(physical, d);
	if (rc) {
		free(d);
		goto out_unlock;
	}
	d->next = devices;
	devices = d;
out_found:
	*device = d;
out_unlock:
	pthread_mutex_unlock(&lock);
	return rc;
}

void gdri_vulkan_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	instance = NULL;
	devices = NULL;
}
