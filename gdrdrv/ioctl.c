// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The ioctl table. gdrdrv_ioctl() copies the argument in once, runs the call, and copies it out
 * once.
 *
 * Knows no mappings.
 */
#include <linux/uaccess.h>

#include "gdrdrv.h"

union gdrdrv_ioc_arg {
	struct gdrdrv_ioc_pin_buffer pin;
	struct gdrdrv_ioc_unpin_buffer unpin;
	struct gdrdrv_ioc_get_cb_flag cb_flag;
	struct gdrdrv_ioc_get_info info;
	struct gdrdrv_ioc_get_info_v2 info_v2;
	struct gdrdrv_ioc_get_attr attr;
	struct gdrdrv_ioc_pin_buffer_v2 pin_v2;
	struct gdrdrv_ioc_req_mapping_type req_type;
	struct gdrdrv_ioc_populate populate;
	struct gdrdrv_ioc_get_version version;
};

/*
 * P2P tokens are refused. A token names a context of any process and is a small number that can be
 * guessed: the GPU driver would give any process's memory to any caller.
 */
static int gdrdrv_ioc_pin(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	struct gdrdrv_pin_req req = {
		.va = arg->pin.addr,
		.size = arg->pin.size,
	};

	if (arg->pin.p2p_token || arg->pin.va_space)
		return -EINVAL;
	return gdrdrv_mr_pin(file, &req, &arg->pin.handle);
}

static int gdrdrv_ioc_pin_v2(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	struct gdrdrv_pin_req req = {
		.va = arg->pin_v2.addr,
		.size = arg->pin_v2.size,
		.flags = arg->pin_v2.flags,
	};

	if (req.flags & ~GDRDRV_PIN_FLAG_FORCE_PCIE || (req.flags && !gdrdrv_p2p_can_force_pcie()))
		return -EINVAL;
	return gdrdrv_mr_pin(file, &req, &arg->pin_v2.handle);
}

static int gdrdrv_ioc_unpin(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	return gdrdrv_mr_unpin(file, arg->unpin.handle);
}

/*
 * The flag is 1 once the memory is revoked; then accesses raise SIGBUS. During a revocation the
 * call waits for its end, a few ms, so that a caller that received SIGBUS never reads 0.
 */
static int gdrdrv_ioc_get_cb_flag(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	struct gdrdrv_mr *mr = gdrdrv_mr_get(file, arg->cb_flag.handle);

	if (!mr)
		return -EINVAL;
	arg->cb_flag.flag = READ_ONCE(mr->revoked);
	if (arg->cb_flag.flag)
		wait_for_completion(&mr->zapped);
	gdrdrv_mr_put(mr);
	return 0;
}

static int gdrdrv_ioc_get_info_v2(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	struct gdrdrv_ioc_get_info_v2 *info = &arg->info_v2;
	struct gdrdrv_mr *mr = gdrdrv_mr_get(file, info->handle);

	if (!mr)
		return -EINVAL;
	info->va = mr->va;
	info->mapped_size = mr->size;
	info->page_size = mr->page_size;
	info->tsc_khz = gdrdrv_cycles_khz();
	info->tm_cycles = mr->tm_cycles;
	info->mapping_type = READ_ONCE(mr->map_type);
	gdrdrv_mr_put(mr);
	return 0;
}

/* GET_INFO has the layout of GET_INFO_V2 up to its last two fields. */
static int gdrdrv_ioc_get_info(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	int ret = gdrdrv_ioc_get_info_v2(file, arg);
	u32 type = arg->info_v2.mapping_type;

	if (!ret) {
		arg->info.mapped = type != GDRDRV_MAPPING_TYPE_NONE;
		arg->info.wc_mapping = type == GDRDRV_MAPPING_TYPE_WC;
	}
	return ret;
}

static int gdrdrv_ioc_get_attr(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	switch (arg->attr.attr) {
	case GDRDRV_ATTR_USE_PERSISTENT_MAPPING:
		arg->attr.val = gdrdrv_p2p_is_persistent();
		return 0;
	case GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
		arg->attr.val = gdrdrv_p2p_can_force_pcie();
		return 0;
	default:
		return -EINVAL;
	}
}

/* Sets the type of the next mapping; 0 restores the default. -EAGAIN while mapped. */
static int gdrdrv_ioc_req_mapping_type(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	struct gdrdrv_mr *mr = gdrdrv_mr_get(file, arg->req_type.handle);
	int ret;

	if (!mr)
		return -EINVAL;
	ret = gdrdrv_memtype_check(mr, arg->req_type.mapping_type);
	if (!ret) {
		mutex_lock(&mr->lock);
		if (mr->nr_vmas)
			ret = -EAGAIN;
		else
			mr->req_type = arg->req_type.mapping_type;
		mutex_unlock(&mr->lock);
	}
	gdrdrv_mr_put(mr);
	return ret;
}

static int gdrdrv_ioc_populate(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	struct gdrdrv_mr *mr = gdrdrv_mr_get(file, arg->populate.handle);
	int ret;

	if (!mr)
		return -EINVAL;
	ret = gdrdrv_populate(mr);
	gdrdrv_mr_put(mr);
	return ret;
}

static int gdrdrv_ioc_get_version(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg)
{
	arg->version.gdrdrv_version = GDRDRV_VERSION;
	arg->version.minimum_gdr_api_version = GDRDRV_MINIMUM_API_VERSION;
	return 0;
}

/*
 * @handle: offset of the new handle in the argument of a pin call, 0 for other calls. If the copy
 * out fails, the region with that handle is unpinned.
 */
struct gdrdrv_ioc {
	unsigned int cmd;
	size_t size;
	size_t handle;
	int (*call)(struct gdrdrv_file *file, union gdrdrv_ioc_arg *arg);
};

#define GDRDRV_IOC(_cmd, _member, _call, _handle)                                                \
	{                                                                                        \
		.cmd = _cmd, .size = sizeof_field(union gdrdrv_ioc_arg, _member), .call = _call, \
		.handle = _handle                                                                \
	}
#define GDRDRV_IOC_PIN(_cmd, _member, _call) \
	GDRDRV_IOC(_cmd, _member, _call, offsetof(union gdrdrv_ioc_arg, _member.handle))

static const struct gdrdrv_ioc gdrdrv_iocs[] = {
	GDRDRV_IOC_PIN(GDRDRV_IOC_PIN_BUFFER, pin, gdrdrv_ioc_pin),
	GDRDRV_IOC(GDRDRV_IOC_UNPIN_BUFFER, unpin, gdrdrv_ioc_unpin, 0),
	GDRDRV_IOC(GDRDRV_IOC_GET_CB_FLAG, cb_flag, gdrdrv_ioc_get_cb_flag, 0),
	GDRDRV_IOC(GDRDRV_IOC_GET_INFO, info, gdrdrv_ioc_get_info, 0),
	GDRDRV_IOC(GDRDRV_IOC_GET_INFO_V2, info_v2, gdrdrv_ioc_get_info_v2, 0),
	GDRDRV_IOC(GDRDRV_IOC_GET_ATTR, attr, gdrdrv_ioc_get_attr, 0),
	GDRDRV_IOC_PIN(GDRDRV_IOC_PIN_BUFFER_V2, pin_v2, gdrdrv_ioc_pin_v2),
	GDRDRV_IOC(GDRDRV_IOC_REQ_MAPPING_TYPE, req_type, gdrdrv_ioc_req_mapping_type, 0),
	GDRDRV_IOC(GDRDRV_IOC_POPULATE, populate, gdrdrv_ioc_populate, 0),
	GDRDRV_IOC(GDRDRV_IOC_GET_VERSION, version, gdrdrv_ioc_get_version, 0),
};

/**
 * gdrdrv_ioctl() - run one ioctl
 * @filp: the node
 * @cmd: compared as a whole, because the size in several numbers is not that of their structure
 * @uarg: user address of the structure
 *
 * Return: 0; -EACCES (not the process that opened the node), -ENOTTY (unknown number), -EFAULT, or
 * the error of the call.
 */
long gdrdrv_ioctl(struct file *filp, unsigned int cmd, unsigned long uarg)
{
	struct gdrdrv_file *file = filp->private_data;
	void __user *user = (void __user *)uarg;
	const struct gdrdrv_ioc *ioc = NULL;
	union gdrdrv_ioc_arg arg = {};
	size_t i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(gdrdrv_iocs); i++)
		if (gdrdrv_iocs[i].cmd == cmd)
			ioc = &gdrdrv_iocs[i];
	if (!ioc)
		return -ENOTTY;
	if (!gdrdrv_file_is_owner(file))
		return -EACCES;
	if (copy_from_user(&arg, user, ioc->size))
		return -EFAULT;
	ret = ioc->call(file, &arg);
	if (ret)
		return ret;
	if (copy_to_user(user, &arg, ioc->size)) {
		if (ioc->handle)
			gdrdrv_mr_unpin(file, *(u64 *)((void *)&arg + ioc->handle));
		return -EFAULT;
	}
	return 0;
}
