/* SPDX-License-Identifier: MIT */
/*
 * The resource manager's interface as the stand-in needs it, declared anew from the headers of
 * NVIDIA's open-gpu-kernel-modules (MIT), each named below. SDK is src/common/sdk/nvidia/inc. The
 * sizes hold for x86-64 and arm64.
 */
#ifndef SIM_RM_ABI_H
#define SIM_RM_ABI_H

#include <assert.h>
#include <stdint.h>

typedef uint32_t nv_handle;

/* SDK/nvstatuscodes.h */
enum nv_status {
	NV_OK = 0x00,
	NV_ERR_IN_USE = 0x17,
	NV_ERR_INSERT_DUPLICATE_NAME = 0x19,
	NV_ERR_INSUFFICIENT_RESOURCES = 0x1a,
	NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1b,
	NV_ERR_INVALID_ARGUMENT = 0x1f,
	NV_ERR_INVALID_BASE = 0x20,
	NV_ERR_INVALID_CLASS = 0x22,
	NV_ERR_INVALID_CLIENT = 0x23,
	NV_ERR_INVALID_FLAGS = 0x29,
	NV_ERR_INVALID_LIMIT = 0x2e,
	NV_ERR_INVALID_OBJECT = 0x31,
	NV_ERR_INVALID_OBJECT_HANDLE = 0x33,
	NV_ERR_INVALID_OBJECT_PARENT = 0x36,
	NV_ERR_INVALID_PARAM_STRUCT = 0x3a,
	NV_ERR_INVALID_PARAMETER = 0x3b,
	NV_ERR_INVALID_POINTER = 0x3d,
	NV_ERR_INVALID_STATE = 0x40,
	NV_ERR_NO_MEMORY = 0x51,
	NV_ERR_NOT_SUPPORTED = 0x56,
	NV_ERR_OBJECT_NOT_FOUND = 0x57,
	NV_ERR_OPERATING_SYSTEM = 0x59,
	NV_ERR_OUT_OF_RANGE = 0x5b,
	NV_ERR_STATE_IN_USE = 0x63,
};

#define NV_MAX_DEVICES 32 /* SDK/nvlimits.h */

/* kernel-open/common/inc/nv-ioctl-numbers.h; src/nvidia/arch/nvalloc/unix/include/nv_escape.h */
#define NV_IOCTL_MAGIC 'F'
enum nv_escape {
	NV_ESC_RM_FREE = 0x29,
	NV_ESC_RM_CONTROL = 0x2a,
	NV_ESC_RM_ALLOC = 0x2b,
	NV_ESC_RM_DUP_OBJECT = 0x34,
	NV_ESC_RM_MAP_MEMORY = 0x4e,
	NV_ESC_RM_UNMAP_MEMORY = 0x4f,
	NV_ESC_CARD_INFO = 200,
	NV_ESC_REGISTER_FD = 201,
	NV_ESC_EXPORT_TO_DMABUF_FD = 217,
};

/* kernel-open/common/inc/nv-ioctl.h */
struct nv_card_info {
	uint8_t valid;
	uint32_t domain;
	uint8_t bus, slot, function;
	uint16_t vendor_id, device_id;
	uint32_t gpu_id;
	uint16_t interrupt_line;
	uint64_t reg_address, reg_size, fb_address, fb_size;
	uint32_t minor_number;
	uint8_t dev_name[10];
};
static_assert(sizeof(struct nv_card_info) == 72, "nv_ioctl_card_info_t");

struct nv_register_fd {
	int ctl_fd;
};

#define NV_DMABUF_EXPORT_MAX_HANDLES		 128
#define NV_DMABUF_EXPORT_MAPPING_TYPE_FORCE_PCIE 1

/* The head of nv_ioctl_export_to_dma_buf_fd_t; the other offsets differ by version. */
struct nv_export_dmabuf {
	int fd;
	nv_handle client;
	uint32_t total_objects, num_objects, index;
	uint64_t total_size;
};
static_assert(sizeof(struct nv_export_dmabuf) == 32, "nv_ioctl_export_to_dma_buf_fd_t");

/* SDK/nvos.h: NVOS00, 21, 54, 55, 33, 34 */
struct nv_free {
	nv_handle root, parent, old;
	uint32_t status;
};
static_assert(sizeof(struct nv_free) == 16, "NVOS00_PARAMETERS");

/* NVOS21 and NVOS64 begin alike; where the status is depends on size and version. */
struct nv_alloc {
	nv_handle root, parent, new;
	uint32_t class;
	uint64_t params;
};

struct nv_alloc_21 { /* 32 bytes in every version: before 535 without params_size */
	struct nv_alloc a;
	uint32_t params_size, status;
};
static_assert(sizeof(struct nv_alloc_21) == 32, "NVOS21_PARAMETERS");

struct nv_alloc_64 { /* from 535 on */
	struct nv_alloc a;
	uint64_t rights;
	uint32_t params_size, flags, status;
};
static_assert(sizeof(struct nv_alloc_64) == 48, "NVOS64_PARAMETERS");

struct nv_alloc_64_old { /* 515 to 530; 515 and 520 have the status where the flags are here */
	struct nv_alloc a;
	uint64_t rights;
	uint32_t flags, status;
};
static_assert(sizeof(struct nv_alloc_64_old) == 40, "NVOS64_PARAMETERS before 535");

struct nv_control {
	nv_handle client, object;
	uint32_t cmd, flags;
	uint64_t params;
	uint32_t params_size, status;
};
static_assert(sizeof(struct nv_control) == 32, "NVOS54_PARAMETERS");

struct nv_dup {
	nv_handle client, parent, object, client_src, object_src;
	uint32_t flags, status;
};
static_assert(sizeof(struct nv_dup) == 28, "NVOS55_PARAMETERS");

struct nv_map {
	nv_handle client, device, memory;
	uint64_t offset, length, linear;
	uint32_t status, flags;
	int fd; /* nv_ioctl_nvos33_parameters_with_fd (nv-unix-nvos-params-wrappers.h) */
};
static_assert(sizeof(struct nv_map) == 56, "nv_ioctl_nvos33_parameters_with_fd");

#define NV_MAP_ACCESS		 0x3u /* NVOS33_FLAGS_ACCESS */
#define NV_MAP_ACCESS_READ_ONLY	 1
#define NV_MAP_ACCESS_WRITE_ONLY 2
#define NV_MAP_PERSISTENT	 (1u << 4)
#define NV_MAP_SKIP_SIZE_CHECK	 (1u << 8)
#define NV_MAP_MEM_SPACE_USER	 (1u << 14)
#define NV_MAP_MAPPING		 (3u << 15)
#define NV_MAP_MAPPING_REFLECTED (2u << 15)
#define NV_MAP_OS_DESCRIPTOR	 (1u << 22)
#define NV_MAP_CACHING		 (7u << 23)
#define NV_MAP_CACHING_WC	 (2u << 23)

struct nv_unmap {
	nv_handle client, device, memory;
	uint64_t linear;
	uint32_t status, flags;
};
static_assert(sizeof(struct nv_unmap) == 32, "NVOS34_PARAMETERS");

/* SDK/class/cl0000.h, cl0001.h, cl0041.h, cl0040.h, cl0080.h, cl2080.h */
enum nv_class {
	NV01_ROOT = 0x0,
	NV01_ROOT_NON_PRIV = 0x1,
	NV01_MEMORY_LOCAL_USER = 0x40,
	NV01_ROOT_CLIENT = 0x41,
	NV01_DEVICE_0 = 0x80,
	NV20_SUBDEVICE_0 = 0x2080,
};

struct nv_device_alloc { /* NV0080_ALLOC_PARAMETERS */
	uint32_t device_id;
	nv_handle client_share, target_client, target_device;
	uint32_t flags;
	uint64_t va_space_size, va_start, va_limit;
	uint32_t va_mode;
};
static_assert(sizeof(struct nv_device_alloc) == 56, "NV0080_ALLOC_PARAMETERS");

struct nv_subdevice_alloc { /* NV2080_ALLOC_PARAMETERS */
	uint32_t subdevice_id;
};

/* SDK/ctrl/ctrl0000/ctrl0000gpu.h */
enum nv_cmd {
	NV_CMD_GPU_GET_ID_INFO_V2 = 0x205,
	/* SDK/ctrl/ctrl0000/ctrl0000unix.h */
	NV_CMD_UNIX_IMPORT_OBJECT_FROM_FD = 0x3d06,
	NV_CMD_UNIX_GET_EXPORT_OBJECT_INFO = 0x3d08,
	/* SDK/ctrl/ctrl2080/ctrl2080gpu.h */
	NV_CMD_GPU_GET_INFO = 0x20800101,
	NV_CMD_GPU_GET_INFO_V2 = 0x20800102,
};

struct nv_id_info_v2 {
	uint32_t gpu_id, flags, device_instance, subdevice_instance, sli_status, board_id,
		gpu_instance;
	int32_t numa_id;
};
static_assert(sizeof(struct nv_id_info_v2) == 32, "GPU_GET_ID_INFO_V2_PARAMS");
#define NV_ID_INFO_IN_USE 0x01
#define NV_ID_INFO_SOC	  0x20

struct nv_gpu_get_info { /* NV2080_CTRL_GPU_GET_INFO_PARAMS */
	uint32_t list_size;
	uint64_t list;
};
static_assert(sizeof(struct nv_gpu_get_info) == 16, "GPU_GET_INFO_PARAMS");

struct nv_gpu_info { /* NV2080_CTRL_GPU_INFO */
	uint32_t index, data;
};
#define NV_GPU_INFO_MAX_LIST_SIZE     0x46 /* of 595 */
struct nv_gpu_get_info_v2 { /* NV2080_CTRL_GPU_GET_INFO_V2_PARAMS of 595 */
	uint32_t list_size;
	struct nv_gpu_info list[NV_GPU_INFO_MAX_LIST_SIZE];
};
#define NV_GPU_INFO_DMABUF_CAPABILITY 0x3d

struct nv_export_object {
	uint32_t type; /* 1: RM */
	nv_handle device, parent, object;
};
#define NV_EXPORT_OBJECT_TYPE_RM 1

struct nv_import_from_fd {
	int fd;
	struct nv_export_object object;
};

struct nv_export_info { /* from 545 on; before, without gpu_instance */
	int fd;
	uint32_t device_instance, gpu_instance;
	uint16_t max_objects;
	uint8_t metadata[64];
};
static_assert(sizeof(struct nv_export_info) == 80, "GET_EXPORT_OBJECT_INFO_PARAMS");

#endif
