/* SPDX-License-Identifier: MIT */
/*
 * The driver's own way in, for a program that loads libGLX_nvidia.so.0 itself and hands its
 * vk_icdGetInstanceProcAddr to a loader. It knows nothing of the functions behind it.
 */
#include "vk.h"

#define NEWEST_INTERFACE 5u

#pragma GCC visibility push(default)
PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance instance, const char *name);
VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);
#pragma GCC visibility pop

PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance instance, const char *name)
{
	return vkGetInstanceProcAddr(instance, name);
}

VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
	if (*version > NEWEST_INTERFACE)
		*version = NEWEST_INTERFACE;
	return VK_SUCCESS;
}
