/* SPDX-License-Identifier: MIT */
/*
 * The part of Vulkan that barcopy uses, declared by us so that no Vulkan headers are needed to
 * build (and because older ones lack the placed-map structures). Names, values and layouts are
 * those of the Vulkan registry; LP64 only. Nothing links against these: they are looked up at run
 * time, and the stand-in in tests/sim defines them. It knows nothing of barcopy.
 */
#ifndef GDRI_ABI_VULKAN_H
#define GDRI_ABI_VULKAN_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t VkBool32;
typedef uint32_t VkFlags;
typedef uint64_t VkDeviceSize;
typedef struct VkInstance_T *VkInstance;
typedef struct VkPhysicalDevice_T *VkPhysicalDevice;
typedef struct VkDevice_T *VkDevice;
typedef struct VkDeviceMemory_T *VkDeviceMemory;
typedef void (*PFN_vkVoidFunction)(void);
typedef PFN_vkVoidFunction (*PFN_vkGetInstanceProcAddr)(VkInstance instance, const char *name);

typedef enum VkResult {
	VK_SUCCESS = 0,
	VK_INCOMPLETE = 5,
	VK_ERROR_OUT_OF_HOST_MEMORY = -1,
	VK_ERROR_OUT_OF_DEVICE_MEMORY = -2,
	VK_ERROR_INITIALIZATION_FAILED = -3,
	VK_ERROR_DEVICE_LOST = -4,
	VK_ERROR_MEMORY_MAP_FAILED = -5,
	VK_ERROR_LAYER_NOT_PRESENT = -6,
	VK_ERROR_EXTENSION_NOT_PRESENT = -7,
	VK_ERROR_FEATURE_NOT_PRESENT = -8,
	VK_ERROR_INCOMPATIBLE_DRIVER = -9,
	VK_ERROR_TOO_MANY_OBJECTS = -10,
	VK_ERROR_UNKNOWN = -13,
	VK_ERROR_INVALID_EXTERNAL_HANDLE = -1000072003,
	VK_RESULT_MAX_ENUM = 0x7FFFFFFF
} VkResult;

typedef enum VkStructureType {
	VK_STRUCTURE_TYPE_APPLICATION_INFO = 0,
	VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO = 1,
	VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO = 2,
	VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO = 3,
	VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO = 5,
	VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2 = 1000059000,
	VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2 = 1000059001,
	VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES = 1000071004,
	VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR = 1000074000,
	VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT = 1000212000,
	VK_STRUCTURE_TYPE_MEMORY_MAP_INFO = 1000271000,
	VK_STRUCTURE_TYPE_MEMORY_UNMAP_INFO = 1000271001,
	VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT = 1000272000,
	VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_PROPERTIES_EXT = 1000272001,
	VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT = 1000272002,
	VK_STRUCTURE_TYPE_DIRECT_DRIVER_LOADING_INFO_LUNARG = 1000459000,
	VK_STRUCTURE_TYPE_DIRECT_DRIVER_LOADING_LIST_LUNARG = 1000459001,
	VK_STRUCTURE_TYPE_MAX_ENUM = 0x7FFFFFFF
} VkStructureType;

#define VK_API_VERSION_1_1 ((1u << 22) | (1u << 12))

#define VK_MAX_EXTENSION_NAME_SIZE 256
#define VK_MAX_PHYSICAL_DEVICE_NAME_SIZE 256
#define VK_UUID_SIZE 16
#define VK_LUID_SIZE 8
#define VK_MAX_MEMORY_TYPES 32
#define VK_MAX_MEMORY_HEAPS 16

#define VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT 0x1u
#define VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT 0x2u
#define VK_MEMORY_PROPERTY_HOST_COHERENT_BIT 0x4u
#define VK_MEMORY_PROPERTY_HOST_CACHED_BIT 0x8u

#define VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT 0x1u

#define VK_MEMORY_MAP_PLACED_BIT_EXT 0x1u
#define VK_MEMORY_UNMAP_RESERVE_BIT_EXT 0x1u

#define VK_DIRECT_DRIVER_LOADING_MODE_EXCLUSIVE_LUNARG 0
#define VK_LUNARG_DIRECT_DRIVER_LOADING_EXTENSION_NAME "VK_LUNARG_direct_driver_loading"
#define VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME "VK_KHR_external_memory_fd"
#define VK_KHR_MAP_MEMORY_2_EXTENSION_NAME "VK_KHR_map_memory2"
#define VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME "VK_EXT_map_memory_placed"
#define VK_EXT_PCI_BUS_INFO_EXTENSION_NAME "VK_EXT_pci_bus_info"

typedef struct VkExtensionProperties {
	char extensionName[VK_MAX_EXTENSION_NAME_SIZE];
	uint32_t specVersion;
} VkExtensionProperties;

typedef struct VkApplicationInfo {
	VkStructureType sType;
	const void *pNext;
	const char *pApplicationName;
	uint32_t applicationVersion;
	const char *pEngineName;
	uint32_t engineVersion;
	uint32_t apiVersion;
} VkApplicationInfo;

typedef struct VkInstanceCreateInfo {
	VkStructureType sType;
	const void *pNext;
	VkFlags flags;
	const VkApplicationInfo *pApplicationInfo;
	uint32_t enabledLayerCount;
	const char *const *ppEnabledLayerNames;
	uint32_t enabledExtensionCount;
	const char *const *ppEnabledExtensionNames;
} VkInstanceCreateInfo;

typedef struct VkDirectDriverLoadingInfoLUNARG {
	VkStructureType sType;
	void *pNext;
	VkFlags flags;
	PFN_vkGetInstanceProcAddr pfnGetInstanceProcAddr;
} VkDirectDriverLoadingInfoLUNARG;

typedef struct VkDirectDriverLoadingListLUNARG {
	VkStructureType sType;
	const void *pNext;
	int mode;
	uint32_t driverCount;
	const VkDirectDriverLoadingInfoLUNARG *pDrivers;
} VkDirectDriverLoadingListLUNARG;

/*
 * VkPhysicalDeviceProperties ends in limits and sparse properties that are not used: only the
 * fields before them are named, the rest is room (824 bytes in all).
 */
typedef struct VkPhysicalDeviceProperties {
	uint32_t apiVersion;
	uint32_t driverVersion;
	uint32_t vendorID;
	uint32_t deviceID;
	uint32_t deviceType;
	char deviceName[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
	uint8_t pipelineCacheUUID[VK_UUID_SIZE];
	uint64_t limitsAndSparse[66];
} VkPhysicalDeviceProperties;

typedef struct VkPhysicalDeviceProperties2 {
	VkStructureType sType;
	void *pNext;
	VkPhysicalDeviceProperties properties;
} VkPhysicalDeviceProperties2;

typedef struct VkPhysicalDeviceIDProperties {
	VkStructureType sType;
	void *pNext;
	uint8_t deviceUUID[VK_UUID_SIZE];
	uint8_t driverUUID[VK_UUID_SIZE];
	uint8_t deviceLUID[VK_LUID_SIZE];
	uint32_t deviceNodeMask;
	VkBool32 deviceLUIDValid;
} VkPhysicalDeviceIDProperties;

typedef struct VkPhysicalDevicePCIBusInfoPropertiesEXT {
	VkStructureType sType;
	void *pNext;
	uint32_t pciDomain;
	uint32_t pciBus;
	uint32_t pciDevice;
	uint32_t pciFunction;
} VkPhysicalDevicePCIBusInfoPropertiesEXT;

typedef struct VkPhysicalDeviceMapMemoryPlacedPropertiesEXT {
	VkStructureType sType;
	void *pNext;
	VkDeviceSize minPlacedMemoryMapAlignment;
} VkPhysicalDeviceMapMemoryPlacedPropertiesEXT;

typedef struct VkPhysicalDeviceMapMemoryPlacedFeaturesEXT {
	VkStructureType sType;
	void *pNext;
	VkBool32 memoryMapPlaced;
	VkBool32 memoryMapRangePlaced;
	VkBool32 memoryUnmapReserve;
} VkPhysicalDeviceMapMemoryPlacedFeaturesEXT;

/* 55 booleans of no interest here. */
typedef struct VkPhysicalDeviceFeatures {
	VkBool32 features[55];
} VkPhysicalDeviceFeatures;

typedef struct VkPhysicalDeviceFeatures2 {
	VkStructureType sType;
	void *pNext;
	VkPhysicalDeviceFeatures features;
} VkPhysicalDeviceFeatures2;

typedef struct VkMemoryType {
	VkFlags propertyFlags;
	uint32_t heapIndex;
} VkMemoryType;

typedef struct VkMemoryHeap {
	VkDeviceSize size;
	VkFlags flags;
} VkMemoryHeap;

typedef struct VkPhysicalDeviceMemoryProperties {
	uint32_t memoryTypeCount;
	VkMemoryType memoryTypes[VK_MAX_MEMORY_TYPES];
	uint32_t memoryHeapCount;
	VkMemoryHeap memoryHeaps[VK_MAX_MEMORY_HEAPS];
} VkPhysicalDeviceMemoryProperties;

typedef struct VkDeviceQueueCreateInfo {
	VkStructureType sType;
	const void *pNext;
	VkFlags flags;
	uint32_t queueFamilyIndex;
	uint32_t queueCount;
	const float *pQueuePriorities;
} VkDeviceQueueCreateInfo;

typedef struct VkDeviceCreateInfo {
	VkStructureType sType;
	const void *pNext;
	VkFlags flags;
	uint32_t queueCreateInfoCount;
	const VkDeviceQueueCreateInfo *pQueueCreateInfos;
	uint32_t enabledLayerCount;
	const char *const *ppEnabledLayerNames;
	uint32_t enabledExtensionCount;
	const char *const *ppEnabledExtensionNames;
	const VkPhysicalDeviceFeatures *pEnabledFeatures;
} VkDeviceCreateInfo;

typedef struct VkMemoryAllocateInfo {
	VkStructureType sType;
	const void *pNext;
	VkDeviceSize allocationSize;
	uint32_t memoryTypeIndex;
} VkMemoryAllocateInfo;

typedef struct VkImportMemoryFdInfoKHR {
	VkStructureType sType;
	const void *pNext;
	uint32_t handleType;
	int fd;
} VkImportMemoryFdInfoKHR;

typedef struct VkMemoryMapInfo {
	VkStructureType sType;
	const void *pNext;
	VkFlags flags;
	VkDeviceMemory memory;
	VkDeviceSize offset;
	VkDeviceSize size;
} VkMemoryMapInfo;

typedef struct VkMemoryUnmapInfo {
	VkStructureType sType;
	const void *pNext;
	VkFlags flags;
	VkDeviceMemory memory;
} VkMemoryUnmapInfo;

typedef struct VkMemoryMapPlacedInfoEXT {
	VkStructureType sType;
	const void *pNext;
	void *pPlacedAddress;
} VkMemoryMapPlacedInfoEXT;

/* The loader's only symbol that is looked up with dlsym; everything else comes through it. */
PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);

/* The same of a driver (Vulkan's loader-driver interface): first agree on a version, then ask. */
VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);
PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance instance, const char *name);

VkResult vkEnumerateInstanceExtensionProperties(const char *layer, uint32_t *count,
						VkExtensionProperties *properties);
VkResult vkCreateInstance(const VkInstanceCreateInfo *info, const void *allocator,
			  VkInstance *instance);
void vkDestroyInstance(VkInstance instance, const void *allocator);
VkResult vkEnumeratePhysicalDevices(VkInstance instance, uint32_t *count,
				    VkPhysicalDevice *devices);
void vkGetPhysicalDeviceProperties2(VkPhysicalDevice device,
				    VkPhysicalDeviceProperties2 *properties);
void vkGetPhysicalDeviceFeatures2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *features);
void vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice device,
					 VkPhysicalDeviceMemoryProperties *properties);
VkResult vkEnumerateDeviceExtensionProperties(VkPhysicalDevice device, const char *layer,
					      uint32_t *count, VkExtensionProperties *properties);
VkResult vkCreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
			const void *allocator, VkDevice *device);
void vkDestroyDevice(VkDevice device, const void *allocator);
PFN_vkVoidFunction vkGetDeviceProcAddr(VkDevice device, const char *name);
VkResult vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info, const void *allocator,
			  VkDeviceMemory *memory);
void vkFreeMemory(VkDevice device, VkDeviceMemory memory, const void *allocator);
VkResult vkMapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
		     VkDeviceSize size, VkFlags flags, void **data);
void vkUnmapMemory(VkDevice device, VkDeviceMemory memory);
VkResult vkMapMemory2KHR(VkDevice device, const VkMemoryMapInfo *info, void **data);
VkResult vkUnmapMemory2KHR(VkDevice device, const VkMemoryUnmapInfo *info);

#endif
