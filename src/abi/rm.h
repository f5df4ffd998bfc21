/* SPDX-License-Identifier: MIT */
/*
 * The part of the NVIDIA kernel driver's interface that this library uses: the ioctls of
 * /dev/nvidiactl and /dev/nvidiaN by which every CUDA program reaches the resource manager (RM).
 * Our own declarations of what the MIT-licensed headers of open-gpu-kernel-modules declare:
 * src/common/sdk/nvidia/inc (nvos.h, nvstatuscodes.h, class/cl0080.h, cl2080.h,
 * ctrl/ctrl0000/ctrl0000gpu.h, ctrl0000unix.h, ctrl/ctrl2080/ctrl2080gpu.h),
 * src/nvidia/arch/nvalloc/unix/include (nv_escape.h, nv-unix-nvos-params-wrappers.h) and
 * kernel-open/common/inc (nv-ioctl.h, nv-ioctl-numbers.h).
 *
 * Compared with the releases 515.43 to 595.45 (rm-abi.sh and rm-abi.txt of tests/rm-abi): all of
 * them have these declarations, except for the place of RM_ALLOC's status, and two layouts each of
 * EXPORT_TO_DMABUF_FD and GET_EXPORT_OBJECT_INFO.
 */
#ifndef GDRI_ABI_RM_H
#define GDRI_ABI_RM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define RM_CTL_NODE	"/dev/nvidiactl"
#define RM_GPU_NODE	"/dev/nvidia%u" /* by minor number */
#define RM_VERSION_FILE "/proc/driver/nvidia/version"
#define RM_TAINT_FILE	"/sys/module/nvidia/taint" /* with a P: the proprietary flavour */

#define RM_IOC_TYPE	     'F'
#define RM_IOC(number, size) _IOC(_IOC_READ | _IOC_WRITE, RM_IOC_TYPE, number, size)

/* Major versions of the driver from which on something holds. */
enum {
	RM_FIRST_WITH_EXPORT = 515, /* EXPORT_TO_DMABUF_FD */
	RM_FIRST_WITH_GPU_INSTANCE =
		545, /* struct rm_export_info; before it, struct rm_export_info_515 */
	RM_FIRST_WITH_NORMAL_BAR1 = 590 /* arm64: BAR1 is mapped Normal non-cached, Device before */
};

typedef uint32_t rm_handle; /* of a client or of an object in it; 0: none */

/* NV_STATUS: the values that the library distinguishes. */
enum {
	RM_OK = 0x00,
	RM_GPU_IS_LOST = 0x0f,
	RM_INSUFFICIENT_RESOURCES = 0x1a,
	RM_INSUFFICIENT_PERMISSIONS = 0x1b,
	RM_INVALID_ARGUMENT = 0x1f,
	RM_INVALID_CLIENT = 0x23,
	RM_INVALID_LIMIT = 0x2e,
	RM_INVALID_OBJECT_HANDLE = 0x33,
	RM_INVALID_PARAM_STRUCT = 0x3a,
	RM_INVALID_STATE = 0x40,
	RM_NO_MEMORY = 0x51,
	RM_NOT_SUPPORTED = 0x56,
	RM_OBJECT_NOT_FOUND = 0x57
};

/* ---- what a node itself knows: on /dev/nvidiactl --------------------------------------------- */

struct rm_card_info {
	uint8_t valid;
	uint8_t pad[3];
	uint32_t pci_domain;
	uint8_t pci_bus, pci_slot, pci_function, pad2;
	uint16_t pci_vendor, pci_device;
	uint32_t gpu_id;
	uint16_t interrupt_line;
	uint64_t reg_address, reg_size;
	uint64_t fb_address, fb_size;
	uint32_t minor;
	uint8_t dev_name[10];
};

#define RM_MAX_CARDS	 32
#define RM_IOC_CARD_INFO RM_IOC(200, sizeof(struct rm_card_info) * RM_MAX_CARDS)

/* Ties a descriptor of a GPU's node to one of /dev/nvidiactl: on the GPU's node. */
struct rm_register_fd {
	int32_t ctl_fd;
};
#define RM_IOC_REGISTER_FD RM_IOC(201, sizeof(struct rm_register_fd))

/* ---- objects: on /dev/nvidiactl -------------------------------------------------------------- */

enum { RM_CLASS_CLIENT = 0x41, RM_CLASS_DEVICE = 0x80, RM_CLASS_SUBDEVICE = 0x2080 };

/*
 * NVOS21, 32 bytes in every release. Before 535 the status is the first of the last two words, and
 * the second is padding. From 535 on the first is the size of the parameters, where 0 stands for
 * that of the class, and the second is the status. With 0 in both before the call, the status is
 * the word that is not 0 after it, and RM_OK if both are.
 */
struct rm_alloc {
	rm_handle client, parent, object; /* object: 0, and out */
	uint32_t class;
	uint64_t params;
	uint32_t status_515; /* 0, and out */
	uint32_t status_535; /* 0, and out */
};
#define RM_IOC_ALLOC RM_IOC(0x2b, sizeof(struct rm_alloc))

/* The parameters of RM_CLASS_DEVICE: NV0080_ALLOC_PARAMETERS. */
struct rm_device_params {
	uint32_t instance;
	rm_handle client_share, target_client, target_device;
	uint32_t flags;
	uint64_t va_size, va_start, va_limit;
	uint32_t va_mode;
};

/* The parameters of RM_CLASS_SUBDEVICE: NV2080_ALLOC_PARAMETERS. */
struct rm_subdevice_params {
	uint32_t instance;
};

/* NVOS00: an object and all below it. */
struct rm_free {
	rm_handle client, parent, object;
	uint32_t status;
};
#define RM_IOC_FREE RM_IOC(0x29, sizeof(struct rm_free))

/* NVOS55. */
struct rm_dup {
	rm_handle client, parent, object; /* object: 0, and out */
	rm_handle source_client, source_object;
	uint32_t flags;
	uint32_t status;
};
#define RM_IOC_DUP RM_IOC(0x34, sizeof(struct rm_dup))

/* NVOS54. */
struct rm_control {
	rm_handle client, object;
	uint32_t command;
	uint32_t flags;
	uint64_t params;
	uint32_t params_size;
	uint32_t status;
};
#define RM_IOC_CONTROL RM_IOC(0x2a, sizeof(struct rm_control))

/* NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2 */
#define RM_CONTROL_GPU_ID_INFO 0x205
struct rm_gpu_id_info {
	uint32_t gpu_id;
	uint32_t gpu_flags; /* out, as all that follows */
	uint32_t device_instance, subdevice_instance;
	uint32_t sli_status, board_id, gpu_instance;
	int32_t numa_id;
};
#define RM_GPU_FLAG_SOC 0x20 /* of gpu_flags: an integrated GPU, from 580 on */

/* NV2080_CTRL_CMD_GPU_GET_INFO, on a subdevice. */
#define RM_CONTROL_GPU_INFO 0x20800101
struct rm_gpu_info_list {
	uint32_t count;
	uint64_t infos; /* address of struct rm_gpu_info[count] */
};
struct rm_gpu_info {
	uint32_t index;
	uint32_t data; /* out */
};
#define RM_GPU_INFO_DMABUF 0x3d /* 1: the GPU exports its memory as a dma-buf */

/*
 * NV2080_CTRL_CMD_GPU_GET_INFO_V2: with the list in the structure, whose length each release has
 * for itself (NV2080_CTRL_GPU_INFO_MAX_LIST_SIZE).
 */
#define RM_CONTROL_GPU_INFO_V2 0x20800102
#define RM_GPU_INFO_LENGTHS    0x46, 0x42, 0x41, 0x40, 0x3f, 0x3e /* 580, 575, 545, 535, 530, 515 */
#define RM_GPU_INFO_V2_SIZE(len) \
	(offsetof(struct rm_gpu_info_v2, infos) + (len) * sizeof(struct rm_gpu_info))
struct rm_gpu_info_v2 {
	uint32_t count;
	struct rm_gpu_info infos[0x46];
};

/* NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD: what cuMemExportToShareableHandle() gives. */
#define RM_CONTROL_IMPORT_FD 0x3d06
#define RM_EXPORT_TYPE_RM    1
struct rm_import_fd {
	int32_t fd;
	uint32_t type;
	rm_handle device, parent, object;
};

/* NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO: where that memory is. */
#define RM_CONTROL_EXPORT_INFO 0x3d08
struct rm_export_info {
	int32_t fd;
	uint32_t device_instance; /* out, as all that follows; RM_MAX_CARDS: below no device */
	uint32_t gpu_instance; /* of MIG */
	uint16_t max_objects;
	uint8_t metadata[64];
};

struct rm_export_info_515 { /* before 545 */
	int32_t fd;
	uint32_t device_instance;
	uint16_t max_objects;
	uint8_t metadata[64];
};

/* ---- mappings: on /dev/nvidiactl ------------------------------------------------------------- */

/* NVOS33 with a descriptor of the GPU's node, which then allows one mmap() of that length at 0. */
struct rm_map {
	rm_handle client, device, object;
	uint64_t offset, length;
	uint64_t address; /* out: names the mapping */
	uint32_t status;
	uint32_t flags;
	int32_t fd;
};
#define RM_IOC_MAP RM_IOC(0x4e, sizeof(struct rm_map))

enum { RM_MAP_READ_ONLY = 1 };

/* NVOS34. */
struct rm_unmap {
	rm_handle client, device, object;
	uint64_t address;
	uint32_t status;
	uint32_t flags;
};
#define RM_IOC_UNMAP RM_IOC(0x4f, sizeof(struct rm_unmap))

/* ---- a dma-buf of objects: on the GPU's node, by libcuda ------------------------------------- */

#define RM_EXPORT_NUMBER 217
#define RM_EXPORT_MAX	 128 /* objects of one call */

/* 515 to 565. */
struct rm_export_515 {
	int32_t fd;
	rm_handle client;
	uint32_t total, count, index;
	uint64_t size;
	rm_handle objects[RM_EXPORT_MAX];
	uint64_t offsets[RM_EXPORT_MAX];
	uint64_t sizes[RM_EXPORT_MAX];
	uint32_t status;
};

/* From 570 on. */
struct rm_export_570 {
	int32_t fd;
	rm_handle client;
	uint32_t total, count, index;
	uint64_t size;
	uint8_t mapping_type, allow_mmap; /* the second from 580 on, a hole before */
	rm_handle objects[RM_EXPORT_MAX];
	uint64_t offsets[RM_EXPORT_MAX];
	uint64_t sizes[RM_EXPORT_MAX];
	uint32_t status;
};

_Static_assert(sizeof(struct rm_card_info) == 72, "nv_ioctl_card_info_t");
_Static_assert(sizeof(struct rm_alloc) == 32, "NVOS21_PARAMETERS");
_Static_assert(sizeof(struct rm_device_params) == 56, "NV0080_ALLOC_PARAMETERS");
_Static_assert(sizeof(struct rm_free) == 16, "NVOS00_PARAMETERS");
_Static_assert(sizeof(struct rm_dup) == 28, "NVOS55_PARAMETERS");
_Static_assert(sizeof(struct rm_control) == 32, "NVOS54_PARAMETERS");
_Static_assert(sizeof(struct rm_gpu_id_info) == 32, "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS");
_Static_assert(sizeof(struct rm_subdevice_params) == 4, "NV2080_ALLOC_PARAMETERS");
_Static_assert(sizeof(struct rm_gpu_info_list) == 16, "NV2080_CTRL_GPU_GET_INFO_PARAMS");
_Static_assert(sizeof(struct rm_gpu_info) == 8, "NV2080_CTRL_GPU_INFO");
_Static_assert(sizeof(struct rm_import_fd) == 20, "..._IMPORT_OBJECT_FROM_FD_PARAMS");
_Static_assert(sizeof(struct rm_export_info) == 80, "..._GET_EXPORT_OBJECT_INFO_PARAMS");
_Static_assert(sizeof(struct rm_export_info_515) == 76, "..._GET_EXPORT_OBJECT_INFO before 545");
_Static_assert(sizeof(struct rm_map) == 56, "nv_ioctl_nvos33_parameters_with_fd");
_Static_assert(offsetof(struct rm_map, fd) == 48, "nv_ioctl_nvos33_parameters_with_fd");
_Static_assert(sizeof(struct rm_unmap) == 32, "NVOS34_PARAMETERS");
_Static_assert(sizeof(struct rm_export_515) == 2600, "nv_ioctl_export_to_dma_buf_fd_t to 565");
_Static_assert(sizeof(struct rm_export_570) == 2608, "nv_ioctl_export_to_dma_buf_fd_t from 570");
_Static_assert(offsetof(struct rm_export_570, objects) == 36, "handles behind the two bytes");
_Static_assert(offsetof(struct rm_export_515, objects) == 32, "one head up to there");

#endif
