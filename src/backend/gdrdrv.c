/* SPDX-License-Identifier: MIT */
/*
 * The gdrdrv backend: the kernel driver's node pins any device memory and maps it. It serves
 * barcopy's driver and installed ones of level 2.0 to 2.6: the newer calls where the driver has
 * them, the older ones where not. It must not know how any of these drivers is made inside.
 *
 * One descriptor per context, used by all its threads: the driver locks for itself, and nothing
 * here changes after the open.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "backend/backend.h"
#include "backend/probe.h"
#include "error.h"

struct gdrdrv {
	int fd;
	uint32_t version;
	bool persistent;
	bool force_pcie;
};

struct gdrdrv_pin {
	const struct gdrdrv *drv;
	uint64_t handle; /* all 64 bits: 0 is a valid one of installed drivers */
};

/* What is known of a region, whichever call told it. */
struct region_info {
	uint64_t va, mapped_size, tm_cycles;
	uint32_t page_size, tsc_khz;
	gdr_mapping_type_t type;
};

/* Returns 0 or the positive errno, which the caller turns into one of the interface's. */
static int node_call(const struct gdrdrv *drv, unsigned long request, void *arg)
{
	while (ioctl(drv->fd, request, arg))
		if (errno != EINTR)
			return errno;
	return 0;
}

/* The errno of the interface for one of the node's. */
static int public_errno(int err)
{
	switch (err) {
	case EINVAL:
	case EACCES:
	case ENOMEM:
	case ENODEV:
	case EOVERFLOW:
		return err;
	case EPERM:
		return EACCES;
	case ENOSPC:
		return ENOMEM;
	case ENOTTY:
	case EOPNOTSUPP:
	case GDRDRV_ENOTSUPP:
		return ENOTSUP;
	default:
		return EIO;
	}
}

static const char *errno_name(int err)
{
	return err == GDRDRV_ENOTSUPP ? "Operation not supported" : strerror(err);
}

static int fail_node(const char *what, int err)
{
	return gdri_fail(public_errno(err), "%s: %s", what, errno_name(err));
}

static int fail_open(int err)
{
	switch (err) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
		return gdri_fail(ENODEV, "no " GDRDRV_NODE ": the gdrdrv driver is not loaded");
	case EACCES:
	case EPERM:
		return gdri_fail(EACCES, GDRDRV_NODE " may not be opened: %s (permissions of the "
					 "node, or the container's device list)", strerror(err));
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return gdri_fail(err, GDRDRV_NODE ": %s", strerror(err));
	default:
		return gdri_fail(ENODEV, GDRDRV_NODE ": %s", strerror(err));
	}
}

static int check_version(struct gdrdrv *drv)
{
	struct gdrdrv_get_version v = { 0 };
	int err = node_call(drv, GDRDRV_IOC_GET_VERSION, &v);

	if (err == ENOTTY || err == EINVAL)
		return gdri_fail(EINVAL, "the gdrdrv driver is older than 2.0: it tells no version");
	if (err)
		return fail_node("GET_VERSION", err);
	drv->version = v.gdrdrv_version;
	if (v.gdrdrv_version < MINIMUM_GDRDRV_VERSION)
		return gdri_fail(EINVAL, "the gdrdrv driver is %u.%u; %d.%d is the oldest that works",
				 v.gdrdrv_version >> MAJOR_VERSION_SHIFT,
				 v.gdrdrv_version & MINOR_VERSION_MASK,
				 MINIMUM_GDRDRV_MAJOR_VERSION, MINIMUM_GDRDRV_MINOR_VERSION);
	if (v.minimum_gdr_api_version > GDR_API_VERSION)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver (%u.%u) wants a libgdrapi of %u.%u or newer; "
				 "this one is %d.%d",
				 v.gdrdrv_version >> MAJOR_VERSION_SHIFT,
				 v.gdrdrv_version & MINOR_VERSION_MASK,
				 v.minimum_gdr_api_version >> MAJOR_VERSION_SHIFT,
				 v.minimum_gdr_api_version & MINOR_VERSION_MASK,
				 GDR_API_MAJOR_VERSION, GDR_API_MINOR_VERSION);
	return 0;
}

/* What the driver says; false where it does not know the attribute, or is too old to be asked. */
static bool ask_attribute(const struct gdrdrv *drv, uint32_t attr)
{
	struct gdrdrv_get_attr a = { .attr = attr };

	return drv->version >= GDRDRV_HAS_ATTR && !node_call(drv, GDRDRV_IOC_GET_ATTR, &a) &&
	       a.val;
}

static int gdrdrv_open(struct gdri_ctx *ctx, void **state)
{
	struct gdrdrv *drv;
	int rc;

	(void)ctx;
	drv = malloc(sizeof(*drv));
	if (!drv)
		return gdri_fail(ENOMEM, "no memory for a context");
	do
		drv->fd = open(GDRDRV_NODE, O_RDWR | O_CLOEXEC);
	while (drv->fd < 0 && errno == EINTR);
	if (drv->fd < 0) {
		rc = fail_open(errno);
		goto err_free;
	}
	rc = check_version(drv);
	if (rc)
		goto err_close;
	drv->persistent = ask_attribute(drv, GDRDRV_ATTR_USE_PERSISTENT_MAPPING);
	drv->force_pcie = drv->version >= GDRDRV_HAS_PIN_V2 &&
			  ask_attribute(drv, GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE);
	*state = drv;
	return 0;

err_close:
	close(drv->fd);
err_free:
	free(drv);
	return rc;
}

static void gdrdrv_close(void *state)
{
	struct gdrdrv *drv = state;

	close(drv->fd);
	free(drv);
}

static int gdrdrv_driver_version(void *state, int *major, int *minor)
{
	const struct gdrdrv *drv = state;

	*major = (int)(drv->version >> MAJOR_VERSION_SHIFT);
	*minor = (int)(drv->version & MINOR_VERSION_MASK);
	return 0;
}

static int gdrdrv_attribute(void *state, gdr_attr_t attr)
{
	const struct gdrdrv *drv = state;

	switch (attr) {
	case GDR_ATTR_USE_PERSISTENT_MAPPING:
		return drv->persistent;
	case GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
		return drv->force_pcie;
	default:
		return 0;
	}
}

/* Tokens have no place in the newer call, flags none in the older one. */
static int pin_region(const struct gdrdrv *drv, const struct gdri_pin_request *request,
		      uint64_t *handle)
{
	bool tokens = request->p2p_token || request->va_space;
	int err;

	/* Whole GPU pages: what every level pins, and some tell only if it was asked for. */
	if (drv->version >= GDRDRV_HAS_PIN_V2 && !tokens) {
		struct gdrdrv_pin_buffer_v2 p = {
			.addr = request->va,
			.size = request->mapped_size,
			.flags = request->flags & GDR_PIN_FLAG_FORCE_PCIE ?
					 GDRDRV_PIN_FLAG_FORCE_PCIE : 0,
		};

		err = node_call(drv, GDRDRV_IOC_PIN_BUFFER_V2, &p);
		*handle = p.handle;
	} else {
		struct gdrdrv_pin_buffer p = {
			.addr = request->va,
			.size = request->mapped_size,
			.p2p_token = request->p2p_token,
			.va_space = request->va_space,
		};

		err = node_call(drv, GDRDRV_IOC_PIN_BUFFER, &p);
		*handle = p.handle;
	}
	return err;
}

/* What GET_INFO, which knows write-combining alone, says of a mapping. */
static gdr_mapping_type_t old_type(const struct gdrdrv_get_info *info)
{
	if (!info->mapped)
		return GDR_MAPPING_TYPE_NONE;
	if (info->wc_mapping)
		return GDR_MAPPING_TYPE_WC;
#ifdef __aarch64__
	/* Cached or device memory: what is right for device memory is right for both. */
	return GDR_MAPPING_TYPE_DEVICE;
#else
	return GDR_MAPPING_TYPE_CACHING;
#endif
}

static int get_info(const struct gdrdrv_pin *gp, struct region_info *out)
{
	int err;

	if (gp->drv->version >= GDRDRV_HAS_INFO_V2) {
		struct gdrdrv_get_info_v2 info = { .handle = gp->handle };

		err = node_call(gp->drv, GDRDRV_IOC_GET_INFO_V2, &info);
		if (!err)
			*out = (struct region_info){
				.va = info.va, .mapped_size = info.mapped_size,
				.tm_cycles = info.tm_cycles, .page_size = info.page_size,
				.tsc_khz = info.tsc_khz,
				.type = (gdr_mapping_type_t)info.mapping_type,
			};
	} else {
		struct gdrdrv_get_info info = { .handle = gp->handle };

		err = node_call(gp->drv, GDRDRV_IOC_GET_INFO, &info);
		if (!err)
			*out = (struct region_info){
				.va = info.va, .mapped_size = info.mapped_size,
				.tm_cycles = info.tm_cycles, .page_size = info.page_size,
				.tsc_khz = info.tsc_khz, .type = old_type(&info),
			};
	}
	return err ? fail_node("GET_INFO", err) : 0;
}

static int unpin_region(const struct gdrdrv_pin *gp)
{
	struct gdrdrv_unpin_buffer u = { .handle = gp->handle };

	return node_call(gp->drv, GDRDRV_IOC_UNPIN_BUFFER, &u);
}

/* The region must hold what was asked for, and begin where a mapping of it can begin. */
static int check_region(const struct region_info *info, const struct gdri_pin_request *request)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (info->va > request->addr || info->va % page || info->mapped_size % page ||
	    request->addr - info->va > info->mapped_size ||
	    request->size > info->mapped_size - (request->addr - info->va))
		return gdri_fail(EIO, "the driver pinned 0x%llx + 0x%llx instead of 0x%llx + 0x%zx",
				 (unsigned long long)info->va,
				 (unsigned long long)info->mapped_size,
				 (unsigned long long)request->addr, request->size);
	return 0;
}

static int fail_pin(const struct gdrdrv *drv, const struct gdri_pin_request *request, int err)
{
	if (err == EINVAL && (request->p2p_token || request->va_space) && drv->persistent)
		return gdri_fail(EINVAL, "PIN_BUFFER: %s (drivers with persistent mappings take no "
					 "P2P tokens)", strerror(err));
	if (err == ENOMEM || err == ENOSPC)
		return gdri_fail(ENOMEM, "PIN_BUFFER: no memory, or BAR1 is full");
	return fail_node("PIN_BUFFER", err);
}

static int gdrdrv_pin(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdrdrv *drv = state;
	struct region_info info;
	struct gdrdrv_pin *gp;
	int rc;

	gp = malloc(sizeof(*gp));
	if (!gp)
		return gdri_fail(ENOMEM, "no memory for a pin");
	gp->drv = drv;
	rc = pin_region(drv, request, &gp->handle);
	if (rc) {
		rc = fail_pin(drv, request, rc);
		goto err_free;
	}
	rc = get_info(gp, &info);
	if (!rc)
		rc = check_region(&info, request);
	if (rc)
		goto err_unpin;
	pin->va = info.va;
	pin->mapped_size = info.mapped_size;
	pin->page_size = info.page_size;
	pin->tm_cycles = info.tm_cycles;
	pin->cycles_per_ms = info.tsc_khz;
	pin->persistent = drv->persistent;
	pin->type = GDR_MAPPING_TYPE_WC; /* of BAR1; the first map tells if it is another one */
	pin->priv = gp;
	return 0;

err_unpin:
	(void)unpin_region(gp);
err_free:
	free(gp);
	return rc;
}

static int gdrdrv_unpin(struct gdri_pin *pin)
{
	struct gdrdrv_pin *gp = pin->priv;
	int err = unpin_region(gp);

	free(gp);
	return err ? fail_node("UNPIN_BUFFER", err) : 0;
}

static int refuse_wish(gdr_mapping_type_t wish)
{
	const char *name = "";

	gdr_get_mapping_type_string(wish, &name);
	return gdri_fail(ENOTSUP, "this memory cannot be mapped as \"%s\"", name);
}

/* Always told, NONE too: an earlier wish would still be in force. */
static int request_type(const struct gdrdrv_pin *gp, gdr_mapping_type_t wish)
{
	struct gdrdrv_req_mapping_type r = { .handle = gp->handle, .mapping_type = wish };
	int err;

	if (gp->drv->version < GDRDRV_HAS_MAPPING_TYPE)
		return 0;
	err = node_call(gp->drv, GDRDRV_IOC_REQ_MAPPING_TYPE, &r);
	if (!err || err == ENOTTY)
		return 0; /* the type of the mapping itself decides */
	if (public_errno(err) == ENOTSUP && wish != GDR_MAPPING_TYPE_NONE)
		return refuse_wish(wish);
	return fail_node("REQ_MAPPING_TYPE", err);
}

static int fail_map(int err, size_t length)
{
	switch (err) {
	case ENOMEM:
		return gdri_fail(ENOMEM, "no address space for %zu bytes", length);
	case EINVAL:
		return gdri_fail(EINVAL, "the driver refuses to map the region (has its memory been "
					 "freed?)");
	default:
		return fail_node("mmap of " GDRDRV_NODE, err);
	}
}

static int map_region(const struct gdrdrv_pin *gp, size_t length, void **out)
{
	int shift = __builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	void *map;

	if (gp->handle >> (63 - shift))
		return gdri_fail(EOVERFLOW, "handle 0x%llx has no mmap offset",
				 (unsigned long long)gp->handle);
	map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, gp->drv->fd,
		   (off_t)(gp->handle << shift));
	if (map == MAP_FAILED)
		return fail_map(errno, length);
	/* The driver refuses a child's faults too; this keeps the mapping out of it at all. */
	if (madvise(map, length, MADV_DONTFORK)) {
		int err = errno;

		munmap(map, length);
		return gdri_fail(err == ENOMEM ? ENOMEM : ENOTSUP, "madvise(MADV_DONTFORK): %s",
				 strerror(err));
	}
	/* Page-table entries are made on fault: now, not in the first copy. */
	if (!gdri_probe_range(map, length)) {
		munmap(map, length);
		return gdri_fail(EINVAL, "the mapping cannot be read: the GPU driver has revoked it");
	}
	*out = map;
	return 0;
}

static int gdrdrv_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	const struct gdrdrv_pin *gp = pin->priv;
	struct region_info info;
	int rc;

	rc = request_type(gp, wish);
	if (rc)
		return rc;
	rc = map_region(gp, pin->map_length, &pin->map);
	if (rc)
		return rc;
	rc = get_info(gp, &info);
	if (rc)
		goto err_unmap;
	if (wish != GDR_MAPPING_TYPE_NONE && info.type != wish) {
		rc = refuse_wish(wish);
		goto err_unmap;
	}
	/* NONE: revoked in this very moment; the plan of the pin's type does no harm then. */
	if (info.type != GDR_MAPPING_TYPE_NONE)
		pin->map_type = info.type;
	if (wish == GDR_MAPPING_TYPE_NONE)
		pin->type = pin->map_type;
	pin->copy_start = (uintptr_t)pin->map;
	pin->copy_end = pin->copy_start + pin->map_length;
	return 0;

err_unmap:
	munmap(pin->map, pin->map_length);
	return rc;
}

static int gdrdrv_unmap(struct gdri_pin *pin)
{
	if (munmap(pin->map, pin->map_length))
		return gdri_fail(errno, "munmap: %s", strerror(errno));
	return 0;
}

static int gdrdrv_callback_flag(struct gdri_pin *pin, int *flag)
{
	const struct gdrdrv_pin *gp = pin->priv;
	struct gdrdrv_get_cb_flag f = { .handle = gp->handle };
	int err = node_call(gp->drv, GDRDRV_IOC_GET_CB_FLAG, &f);

	if (err)
		return fail_node("GET_CB_FLAG", err);
	*flag = f.flag != 0;
	return 0;
}

/*
 * The node itself. A driver without poll of its own leaves the answer to the kernel, which then
 * says that writing would not block; ours never says that. In persistent mode too: a pin for which
 * the GPU driver has no persistent pages can be revoked.
 */
static int gdrdrv_event_fd(void *state, int *fd)
{
	const struct gdrdrv *drv = state;
	struct pollfd p = { .fd = drv->fd, .events = POLLPRI | POLLIN | POLLOUT };
	int n;

	do
		n = poll(&p, 1, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return gdri_fail(ENOTSUP, "poll of " GDRDRV_NODE ": %s", strerror(errno));
	if (p.revents & ~POLLPRI)
		return gdri_fail(ENOTSUP, "this gdrdrv driver (%u.%u) gives no notice",
				 drv->version >> MAJOR_VERSION_SHIFT,
				 drv->version & MINOR_VERSION_MASK);
	*fd = drv->fd;
	return 0;
}

const struct gdri_backend gdri_backend_gdrdrv = {
	.name = "gdrdrv",
	.id = GDR_BACKEND_GDRDRV,
	.caps = GDRI_CAP_DEVICE_MEMORY | GDRI_CAP_UNKNOWN_MEMORY | GDRI_CAP_TOKENS,
	.open = gdrdrv_open,
	.close = gdrdrv_close,
	.driver_version = gdrdrv_driver_version,
	.attribute = gdrdrv_attribute,
	.pin = gdrdrv_pin,
	.unpin = gdrdrv_unpin,
	.map = gdrdrv_map,
	.unmap = gdrdrv_unmap,
	.callback_flag = gdrdrv_callback_flag,
	.event_fd = gdrdrv_event_fd,
	.after_fork = gdri_default_after_fork,
};
