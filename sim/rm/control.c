/* SPDX-License-Identifier: MIT */
/*
 * The commands of the root client: GPUs by id, and objects by descriptor (export.c). One of a
 * subdevice: what a GPU can do.
 *
 * src/nvidia/src/kernel/rmapi/control.c (_rmapiRmControl()), client_resource.c, entry_points.c;
 * src/nvidia/src/kernel/gpu_mgr/gpu_mgr.c; src/nvidia/arch/nvalloc/unix/src/os.c;
 * src/nvidia/interface/deprecated/rmapi_deprecated_control.c (_NV2080_CTRL_CMD_GPU_GET_INFO());
 * src/nvidia/src/kernel/gpu/subdevice/subdevice_ctrl_gpu_kernel.c (getGpuInfos()).
 */
#include <string.h>

#include "rm/rm.h"

static enum nv_status id_info_v2(void *arg)
{
	struct nv_id_info_v2 p;
	struct rm_gpu gpu;
	int at;

	memcpy(&p, arg, sizeof(p));
	at = rm_gpu_by_id(p.gpu_id);
	if (at < 0)
		return NV_ERR_INVALID_ARGUMENT;
	rm_gpu(at, &gpu);
	p.flags = NV_ID_INFO_IN_USE;
	if (rm_flag("GDRSIM_INTEGRATED", false) && rm_version() >= 580)
		p.flags |= NV_ID_INFO_SOC; /* before, of Tegra's display alone */
	p.device_instance = p.gpu_instance = gpu.instance;
	p.subdevice_instance = p.sli_status = 0;
	p.board_id = gpu.id;
	p.numa_id = -1;
	memcpy(arg, &p, sizeof(p));
	return NV_OK;
}

static const struct command {
	enum nv_cmd cmd;
	uint32_t size;
	enum nv_status (*gpus)(void *arg); /* NULL: a command with descriptors */
} commands[] = {
	{ NV_CMD_GPU_GET_ID_INFO_V2, sizeof(struct nv_id_info_v2), id_info_v2 },
	{ NV_CMD_UNIX_IMPORT_OBJECT_FROM_FD, sizeof(struct nv_import_from_fd), NULL },
	{ NV_CMD_UNIX_GET_EXPORT_OBJECT_INFO, sizeof(struct nv_export_info), NULL },
};

/* Of a size that is not the command's: resControlLookup_IMPL(), _rmapiRmControl() from 550 on. */
static enum nv_status wrong_size(void)
{
	return rm_version() < 550 ? NV_ERR_INVALID_PARAM_STRUCT : NV_ERR_INVALID_ARGUMENT;
}

static uint32_t size_of(const struct command *command)
{
	bool old = command->cmd == NV_CMD_UNIX_GET_EXPORT_OBJECT_INFO && rm_version() < 545;

	return command->size - (old ? sizeof(uint32_t) : 0);
}

/* The device instance has one offset in both layouts; what follows is not used. */
static enum nv_status export_info(void *arg)
{
	struct nv_export_info p;
	enum nv_status status;

	memcpy(&p, arg, offsetof(struct nv_export_info, gpu_instance));
	status = rm_export_info(p.fd, &p.device_instance);
	memcpy(arg, &p, offsetof(struct nv_export_info, gpu_instance));
	return status;
}

static const struct command *command_of(uint32_t cmd)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (commands[i].cmd == cmd)
			return &commands[i];
	return NULL;
}

/* NV2080_CTRL_GPU_INFO_MAX_LIST_SIZE of the version (SDK/ctrl/ctrl2080/ctrl2080gpu.h). */
static uint32_t list_max(void)
{
	int version = rm_version();

	return version >= 580	? NV_GPU_INFO_MAX_LIST_SIZE
	       : version >= 575 ? 0x42
	       : version >= 545 ? 0x41
	       : version >= 535 ? 0x40
	       : version >= 530 ? 0x3f
				: 0x3e;
}

/* Of all indices the stand-in knows one. */
static enum nv_status gpu_infos(struct nv_gpu_info *list, uint32_t size)
{
	for (uint32_t i = 0; i < size; i++)
		if (list[i].index != NV_GPU_INFO_DMABUF_CAPABILITY)
			return NV_ERR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < size; i++)
		list[i].data = rm_flag("GDRSIM_DMABUF", true);
	return NV_OK;
}

/* The caller's size of the structure does not count. */
static enum nv_status gpu_info(const struct nv_control *c)
{
	struct nv_gpu_get_info p;

	if (!c->params)
		return NV_ERR_INVALID_POINTER;
	memcpy(&p, (const void *)(uintptr_t)c->params, sizeof(p));
	if (p.list_size > list_max())
		return NV_ERR_OUT_OF_RANGE;
	if (!p.list_size)
		return NV_ERR_INVALID_ARGUMENT;
	if (!p.list)
		return NV_ERR_INVALID_POINTER;
	return gpu_infos((struct nv_gpu_info *)(uintptr_t)p.list, p.list_size);
}

static enum nv_status gpu_info_v2(const struct nv_control *c)
{
	struct nv_gpu_get_info_v2 *p = (struct nv_gpu_get_info_v2 *)(uintptr_t)c->params;

	if (c->params_size != sizeof(p->list_size) + list_max() * sizeof(p->list[0]))
		return wrong_size();
	if (!p->list_size || p->list_size > list_max())
		return NV_ERR_INVALID_ARGUMENT;
	return gpu_infos(p->list, p->list_size);
}

/* Commands of a subdevice. */
static bool is_of_subdevice(const struct nv_control *c, int client)
{
	int object = rm_object_find(client, c->object);

	return object && rm->objects[object].class == NV20_SUBDEVICE_0;
}

enum nv_status rm_control(int file, struct nv_control *c)
{
	const struct rm_client *client = rm_client_find(c->client);
	const struct command *command = command_of(c->cmd);
	void *arg = (void *)(uintptr_t)c->params;
	enum nv_status status;

	if (!(c->cmd & 0xffff)) /* the null command of any class */
		return NV_OK;
	if (c->flags & 3) /* raised IRQL; without locks */
		return NV_ERR_INVALID_ARGUMENT;
	if (!client)
		return NV_ERR_INVALID_CLIENT;
	if (!c->params != !c->params_size)
		return NV_ERR_INVALID_ARGUMENT;
	if (command && c->params_size != size_of(command))
		return wrong_size();
	status = rm_client_validate(client, file);
	if (status != NV_OK)
		return status;
	if (c->object != c->client && !rm_object_find(rm_client_index(client), c->object))
		return NV_ERR_OBJECT_NOT_FOUND;
	if (is_of_subdevice(c, rm_client_index(client))) {
		/* An older form, which is taken with no flags. */
		if (c->cmd == NV_CMD_GPU_GET_INFO && !c->flags)
			return gpu_info(c);
		if (c->cmd == NV_CMD_GPU_GET_INFO_V2)
			return gpu_info_v2(c);
	}
	if (c->object != c->client || !command)
		return NV_ERR_NOT_SUPPORTED; /* not a command of this class */
	if (command->gpus)
		return command->gpus(arg);
	if (command->cmd == NV_CMD_UNIX_GET_EXPORT_OBJECT_INFO)
		return export_info(arg);
	return rm_import_from_fd(rm_client_index(client), arg);
}
