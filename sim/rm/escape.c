/* SPDX-License-Identifier: MIT */
/*
 * The ioctls of the nodes: the structure and the node of each, and how its result comes back. A
 * status is in the structure; EINVAL is for a call that the driver does not recognise.
 *
 * kernel-open/nvidia/nv.c (nvidia_ioctl(), nv_validate_ioctls());
 * src/nvidia/arch/nvalloc/unix/src/escape.c (RmIoctl()).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "node/node.h"
#include "rm/rm.h"

enum { CTL = 1, DEVICE = 2 };

static const struct escape {
	enum nv_escape nr;
	const char *name;
	int nodes;
	size_t size; /* 0: see size_ok() */
	size_t status; /* offset; 0: see status_at() */
} escapes[] = {
#define ESCAPE(name, type) \
	NV_ESC_##name, #name, CTL, sizeof(struct type), offsetof(struct type, status)
	{ ESCAPE(RM_FREE, nv_free) },
	{ ESCAPE(RM_CONTROL, nv_control) },
	{ NV_ESC_RM_ALLOC, "RM_ALLOC", CTL, 0, 0 },
	{ ESCAPE(RM_DUP_OBJECT, nv_dup) },
	{ ESCAPE(RM_MAP_MEMORY, nv_map) },
	{ ESCAPE(RM_UNMAP_MEMORY, nv_unmap) },
	{ NV_ESC_CARD_INFO, "CARD_INFO", CTL, 0, 0 },
	{ NV_ESC_REGISTER_FD, "REGISTER_FD", CTL | DEVICE, sizeof(struct nv_register_fd), 0 },
	{ NV_ESC_EXPORT_TO_DMABUF_FD, "EXPORT_TO_DMABUF_FD", DEVICE, 0, 0 },
#undef ESCAPE
};

static size_t alloc_64_size(void)
{
	return rm_version() >= 535 ? sizeof(struct nv_alloc_64) : sizeof(struct nv_alloc_64_old);
}

static bool size_ok(const struct escape *e, size_t size)
{
	struct gdrsim_rm_export_layout layout;

	switch (e->nr) {
	case NV_ESC_RM_ALLOC:
		return size == sizeof(struct nv_alloc_21) || size == alloc_64_size();
	case NV_ESC_CARD_INFO:
		return size && !(size % sizeof(struct nv_card_info));
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		gdrsim_rm_export_layout(&layout);
		return rm_version() >= 515 && size == layout.size;
	default:
		return size == e->size;
	}
}

/* The offset of the structure's status; 0: it has none. */
static size_t status_at(const struct escape *e, size_t size)
{
	struct gdrsim_rm_export_layout layout;

	switch (e->nr) {
	case NV_ESC_RM_ALLOC:
		if (size == sizeof(struct nv_alloc_21))
			return rm_version() >= 535 ? offsetof(struct nv_alloc_21, status)
						   : offsetof(struct nv_alloc_21, params_size);
		if (size == sizeof(struct nv_alloc_64))
			return offsetof(struct nv_alloc_64, status);
		return rm_version() >= 525 ? offsetof(struct nv_alloc_64_old, status)
					   : offsetof(struct nv_alloc_64_old, flags);
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		gdrsim_rm_export_layout(&layout);
		return layout.status;
	default:
		return e->status;
	}
}

/* All classes of root are that of a client of user space. */
static enum nv_status alloc(int file, struct nv_alloc *a)
{
	if (a->class == NV01_ROOT || a->class == NV01_ROOT_NON_PRIV)
		a->class = NV01_ROOT_CLIENT;
	return rm_alloc(file, a);
}

/* Returns the errno; sets *status for the calls that have one. */
static int call_locked(int file, enum nv_escape nr, size_t size, void *arg, enum nv_status *status)
{
	switch (nr) {
	case NV_ESC_RM_FREE:
		*status = rm_free(file, arg);
		return 0;
	case NV_ESC_RM_CONTROL:
		*status = rm_control(file, arg);
		return 0;
	case NV_ESC_RM_ALLOC:
		*status = alloc(file, arg);
		return 0;
	case NV_ESC_RM_DUP_OBJECT:
		*status = rm_dup(file, arg);
		return 0;
	case NV_ESC_RM_MAP_MEMORY:
		*status = rm_map_memory(file, arg);
		return 0;
	case NV_ESC_RM_UNMAP_MEMORY:
		*status = rm_unmap_memory(file, arg);
		return 0;
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		*status = rm_export(rm->files[file].gpu, arg);
		return 0;
	case NV_ESC_CARD_INFO:
		return rm_card_info(arg, size);
	case NV_ESC_REGISTER_FD:
		return rm_register_fd(file, ((const struct nv_register_fd *)arg)->ctl_fd);
	}
	return EINVAL;
}

static unsigned int detail_of(enum nv_escape nr, const void *arg)
{
	switch (nr) {
	case NV_ESC_RM_ALLOC:
		return ((const struct nv_alloc *)arg)->class;
	case NV_ESC_RM_CONTROL:
		return ((const struct nv_control *)arg)->cmd;
	default:
		return 0;
	}
}

static int serve(int file, const struct escape *e, size_t size, void *arg)
{
	bool mine = !rm->files[file].driver || e->nr == NV_ESC_EXPORT_TO_DMABUF_FD;
	int fault = mine ? rm_fault(e->name, detail_of(e->nr, arg)) : 0, err = 0;
	size_t at = status_at(e, size);
	enum nv_status status = NV_OK;

	if (fault > 0)
		return fault;
	if (fault < 0 && !at)
		return EIO;
	if (fault < 0) {
		status = (enum nv_status) - fault;
	} else {
		rm_lock();
		err = call_locked(file, e->nr, size, arg, &status);
		rm_unlock();
	}
	if (at) {
		uint32_t word = status;

		memcpy((char *)arg + at, &word, sizeof(word));
	}
	return err;
}

int rm_ioctl(int file, int fd, unsigned long request, void *arg)
{
	enum rm_kind kind = rm->files[file].kind;
	const struct escape *e = NULL;
	int err;

	(void)fd;
	for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++)
		if (_IOC_NR(request) == escapes[i].nr)
			e = &escapes[i];
	if (kind == RM_DMABUF)
		err = ENOTTY;
	else if (!e || !size_ok(e, _IOC_SIZE(request)))
		err = EINVAL;
	else if (!arg)
		err = EFAULT;
	else if (!(e->nodes & (kind == RM_CTL ? CTL : DEVICE)))
		err = EINVAL;
	else
		err = serve(file, e, _IOC_SIZE(request), arg);
	if (!rm_is_driver())
		rm_memory_reap();
	errno = err;
	return err ? -1 : 0;
}
