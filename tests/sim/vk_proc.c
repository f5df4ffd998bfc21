/* SPDX-License-Identifier: MIT */
/*
 * The way to every other function: by name, of the loader, an instance or a device. A function of
 * an extension is there for a device only when the device was created with it. It knows nothing
 * of what they do.
 */
#include <string.h>

#include "fault.h"
#include "vk.h"

enum level {
	GLOBAL,
	INSTANCE,
	DEVICE,
};

struct proc {
	const char *name;
	enum level level;
	unsigned int extension; /* SIM_VK_*, 0: core */
	PFN_vkVoidFunction fn;
};

#define PROC(name, level, extension)                              \
	{                                                         \
#name, level, extension, (PFN_vkVoidFunction)name \
	}

/* The casts are what the table is for; the caller casts back. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type"
static const struct proc procs[] = {
	PROC(vkGetInstanceProcAddr, GLOBAL, 0),
	PROC(vkEnumerateInstanceExtensionProperties, GLOBAL, 0),
	PROC(vkCreateInstance, GLOBAL, 0),
	PROC(vkDestroyInstance, INSTANCE, 0),
	PROC(vkEnumeratePhysicalDevices, INSTANCE, 0),
	PROC(vkGetPhysicalDeviceProperties2, INSTANCE, 0),
	PROC(vkGetPhysicalDeviceFeatures2, INSTANCE, 0),
	PROC(vkGetPhysicalDeviceMemoryProperties, INSTANCE, 0),
	PROC(vkEnumerateDeviceExtensionProperties, INSTANCE, 0),
	PROC(vkCreateDevice, INSTANCE, 0),
	PROC(vkGetDeviceProcAddr, DEVICE, 0),
	PROC(vkDestroyDevice, DEVICE, 0),
	PROC(vkAllocateMemory, DEVICE, 0),
	PROC(vkFreeMemory, DEVICE, 0),
	PROC(vkMapMemory, DEVICE, 0),
	PROC(vkUnmapMemory, DEVICE, 0),
	PROC(vkMapMemory2KHR, DEVICE, SIM_VK_MAP2),
	PROC(vkUnmapMemory2KHR, DEVICE, SIM_VK_MAP2),
};
#pragma GCC diagnostic pop

static const struct proc *find(const char *name)
{
	for (size_t i = 0; name && i < sizeof(procs) / sizeof(procs[0]); i++)
		if (strcmp(procs[i].name, name) == 0)
			return &procs[i];
	return NULL;
}

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name)
{
	const struct proc *p = find(name);

	sim_fault(__func__, NULL);
	return p && (instance || p->level == GLOBAL) ? p->fn : NULL;
}

PFN_vkVoidFunction vkGetDeviceProcAddr(VkDevice device, const char *name)
{
	const struct proc *p = find(name);

	sim_fault(__func__, NULL);
	if (!p || p->level != DEVICE || (p->extension & ~device->extensions))
		return NULL;
	return p->fn;
}
