/* SPDX-License-Identifier: MIT */
/*
 * Prints each structure and number that src/abi/rm.h declares, one a line: as it stands there, with
 * every layout of what changed; or, with -DTHEIRS, as the headers of one release of
 * open-gpu-kernel-modules have it. For rm-abi.sh, which compares the lines.
 */
#include <stddef.h>
#include <stdio.h>

#ifdef THEIRS
#include <nvtypes.h>
#include <nvos.h>
#include <nvstatus.h>
#include <nv-ioctl.h>
#include <nv-ioctl-numbers.h>
#include <nv_escape.h>
#include <nv-unix-nvos-params-wrappers.h>
#include <class/cl0041.h>
#include <class/cl0080.h>
#include <class/cl2080.h>
#include <ctrl/ctrl0000/ctrl0000gpu.h>
#include <ctrl/ctrl0000/ctrl0000unix.h>
#include <ctrl/ctrl2080/ctrl2080gpu.h>
#define PICK(ours, theirs) theirs
#else
#include "abi/rm.h"
#define PICK(ours, theirs) ours
#endif

#define S(name, ours, theirs, ...)                 \
	do {                                       \
		typedef PICK(ours, theirs) T;      \
		printf("%s=%zu", name, sizeof(T)); \
		__VA_ARGS__ printf("\n");          \
	} while (0)
#define F(ours, theirs)                                                           \
	printf("%c%zu+%zu", first++ ? ',' : ':', offsetof(T, PICK(ours, theirs)), \
	       sizeof(((T *)0)->PICK(ours, theirs)));
#define N(ours, theirs) printf("%s=%#x\n", #theirs, (unsigned int)PICK(ours, theirs))

#define ALLOC(answer)                                                                      \
	S("NVOS21", struct rm_alloc, NVOS21_PARAMETERS, int first = 0;                     \
	  F(client, hRoot) F(parent, hObjectParent) F(object, hObjectNew) F(class, hClass) \
		  F(params, pAllocParms) F(answer, status))
#define EXPORT(ours)                                                                               \
	S("EXPORT_TO_DMABUF_FD", ours, nv_ioctl_export_to_dma_buf_fd_t, int first = 0;             \
	  F(fd, fd) F(client, hClient) F(total, totalObjects) F(count, numObjects) F(index, index) \
		  F(size, totalSize) F(objects, handles) F(offsets, offsets) F(sizes, sizes)       \
			  F(status, status))
#define EXPORT_INFO(ours)                                                                    \
	S("GET_EXPORT_OBJECT_INFO", ours, NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS, \
	  int first = 0;                                                                     \
	  F(fd, fd) F(device_instance, deviceInstance))

static void structures(void)
{
#ifndef THEIRS
	static const size_t lengths[] = { RM_GPU_INFO_LENGTHS };
#endif
	S("CARD_INFO", struct rm_card_info, nv_ioctl_card_info_t, int first = 0;
	  F(valid, valid) F(pci_domain, pci_info.domain) F(pci_bus, pci_info.bus)
		  F(pci_slot, pci_info.slot) F(gpu_id, gpu_id) F(fb_address, fb_address)
			  F(fb_size, fb_size) F(minor, minor_number));
	S("REGISTER_FD", struct rm_register_fd, nv_ioctl_register_fd_t, int first = 0;
	  F(ctl_fd, ctl_fd));
	S("NV0080_ALLOC", struct rm_device_params, NV0080_ALLOC_PARAMETERS, int first = 0;
	  F(instance, deviceId) F(flags, flags) F(va_mode, vaMode));
	S("NVOS00", struct rm_free, NVOS00_PARAMETERS, int first = 0;
	  F(client, hRoot) F(parent, hObjectParent) F(object, hObjectOld) F(status, status));
	S("NVOS55", struct rm_dup, NVOS55_PARAMETERS, int first = 0;
	  F(client, hClient) F(parent, hParent) F(object, hObject) F(source_client, hClientSrc)
		  F(source_object, hObjectSrc) F(flags, flags) F(status, status));
	S("NVOS54", struct rm_control, NVOS54_PARAMETERS, int first = 0;
	  F(client, hClient) F(object, hObject) F(command, cmd) F(flags, flags) F(params, params)
		  F(params_size, paramsSize) F(status, status));
	S("GPU_GET_ID_INFO_V2", struct rm_gpu_id_info, NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS,
	  int first = 0;
	  F(gpu_id, gpuId) F(gpu_flags, gpuFlags) F(device_instance, deviceInstance));
	S("NV2080_ALLOC", struct rm_subdevice_params, NV2080_ALLOC_PARAMETERS, int first = 0;
	  F(instance, subDeviceId));
	S("GPU_GET_INFO", struct rm_gpu_info_list, NV2080_CTRL_GPU_GET_INFO_PARAMS, int first = 0;
	  F(count, gpuInfoListSize) F(infos, gpuInfoList));
	S("GPU_INFO", struct rm_gpu_info, NV2080_CTRL_GPU_INFO, int first = 0;
	  F(index, index) F(data, data));
	S("IMPORT_OBJECT_FROM_FD", struct rm_import_fd,
	  NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, int first = 0;
	  F(fd, fd) F(type, object.type) F(device, object.data.rmObject.hDevice)
		  F(parent, object.data.rmObject.hParent) F(object, object.data.rmObject.hObject));
	S("NVOS33", struct rm_map, nv_ioctl_nvos33_parameters_with_fd, int first = 0;
	  F(client, params.hClient) F(device, params.hDevice) F(object, params.hMemory)
		  F(offset, params.offset) F(length, params.length)
			  F(address, params.pLinearAddress) F(status, params.status)
				  F(flags, params.flags) F(fd, fd));
	S("NVOS34", struct rm_unmap, NVOS34_PARAMETERS, int first = 0;
	  F(client, hClient) F(device, hDevice) F(object, hMemory) F(address, pLinearAddress)
		  F(status, status) F(flags, flags));
	S("GPU_GET_INFO_V2", struct rm_gpu_info_v2, NV2080_CTRL_GPU_GET_INFO_V2_PARAMS,
	  int first = 0;
	  F(count, gpuInfoListSize) printf(",%zu", offsetof(T, PICK(infos, gpuInfoList))););
#ifdef THEIRS
	ALLOC(status);
	EXPORT();
	EXPORT_INFO();
#else
	for (size_t i = 1; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		printf("GPU_GET_INFO_V2=%zu:0+4,4\n", RM_GPU_INFO_V2_SIZE(lengths[i]));
	ALLOC(status_515);
	ALLOC(status_535);
	EXPORT(struct rm_export_515);
	EXPORT(struct rm_export_570);
	EXPORT_INFO(struct rm_export_info);
	EXPORT_INFO(struct rm_export_info_515);
#endif
}

static void numbers(void)
{
	N(_IOC_NR(RM_IOC_FREE), NV_ESC_RM_FREE);
	N(_IOC_NR(RM_IOC_CONTROL), NV_ESC_RM_CONTROL);
	N(_IOC_NR(RM_IOC_ALLOC), NV_ESC_RM_ALLOC);
	N(_IOC_NR(RM_IOC_DUP), NV_ESC_RM_DUP_OBJECT);
	N(_IOC_NR(RM_IOC_MAP), NV_ESC_RM_MAP_MEMORY);
	N(_IOC_NR(RM_IOC_UNMAP), NV_ESC_RM_UNMAP_MEMORY);
	N(_IOC_NR(RM_IOC_CARD_INFO), NV_ESC_CARD_INFO);
	N(_IOC_NR(RM_IOC_REGISTER_FD), NV_ESC_REGISTER_FD);
	N(RM_EXPORT_NUMBER, NV_ESC_EXPORT_TO_DMABUF_FD);
	N(RM_IOC_TYPE, NV_IOCTL_MAGIC);
	N(RM_EXPORT_MAX, NV_DMABUF_EXPORT_MAX_HANDLES);
	N(RM_MAX_CARDS, NV_MAX_DEVICES);
	N(RM_CLASS_CLIENT, NV01_ROOT_CLIENT);
	N(RM_CLASS_DEVICE, NV01_DEVICE_0);
	N(RM_CLASS_SUBDEVICE, NV20_SUBDEVICE_0);
	N(RM_CONTROL_GPU_ID_INFO, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2);
	N(RM_GPU_FLAG_SOC, 1u << (0 ? NV0000_CTRL_GPU_ID_INFO_SOC));
	N(RM_CONTROL_GPU_INFO, NV2080_CTRL_CMD_GPU_GET_INFO);
	N(RM_CONTROL_GPU_INFO_V2, NV2080_CTRL_CMD_GPU_GET_INFO_V2);
	N(RM_GPU_INFO_DMABUF, NV2080_CTRL_GPU_INFO_INDEX_DMABUF_CAPABILITY);
	N(RM_CONTROL_IMPORT_FD, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD);
	N(RM_CONTROL_EXPORT_INFO, NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO);
	N(RM_EXPORT_TYPE_RM, NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM);
	N(RM_MAP_READ_ONLY, NVOS33_FLAGS_ACCESS_READ_ONLY);
	N(RM_OK, NV_OK);
	N(RM_GPU_IS_LOST, NV_ERR_GPU_IS_LOST);
	N(RM_INSUFFICIENT_RESOURCES, NV_ERR_INSUFFICIENT_RESOURCES);
	N(RM_INSUFFICIENT_PERMISSIONS, NV_ERR_INSUFFICIENT_PERMISSIONS);
	N(RM_INVALID_ARGUMENT, NV_ERR_INVALID_ARGUMENT);
	N(RM_INVALID_CLIENT, NV_ERR_INVALID_CLIENT);
	N(RM_INVALID_LIMIT, NV_ERR_INVALID_LIMIT);
	N(RM_INVALID_OBJECT_HANDLE, NV_ERR_INVALID_OBJECT_HANDLE);
	N(RM_INVALID_STATE, NV_ERR_INVALID_STATE);
	N(RM_NO_MEMORY, NV_ERR_NO_MEMORY);
	N(RM_NOT_SUPPORTED, NV_ERR_NOT_SUPPORTED);
	N(RM_OBJECT_NOT_FOUND, NV_ERR_OBJECT_NOT_FOUND);
}

int main(void)
{
	structures();
	numbers();
	return 0;
}
