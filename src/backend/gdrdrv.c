/* SPDX-License-Identifier: MIT */
/* The gdrdrv backend: the kernel driver pins and maps memory. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "backend/backend.h"
#include "base/env.h"
#include "base/process.h"

struct node {
	int fd;
	uint32_t version; /* (major << 16) | minor */
	bool persistent; /* by the driver: pins outlive the free of their memory */
	bool force_pcie; /* GDR_PIN_FLAG_FORCE_PCIE is known */
};

/* "%u.%u" of a version. */
#define VERSION(v) (v) >> MAJOR_VERSION_SHIFT, (v)&MINOR_VERSION_MASK

/* 0, or the node's positive errno. */
static int call(const struct node *node, unsigned long request, void *arg)
{
	while (ioctl(node->fd, request, arg))
		if (errno != EINTR)
			return errno;
	return 0;
}

/* The interface's errno for the node's. */
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

/* -errno of the interface, with its text, for an errno of the node; 0 for 0. */
static int result(const char *what, int err)
{
	if (!err)
		return 0;
	return gdri_fail(public_errno(err), "%s: %s", what,
			 strerror(err == GDRDRV_ENOTSUPP ? EOPNOTSUPP : err));
}

/* ---- the node -------------------------------------------------------------------------------- */

/* An attribute's value; `absent` if the driver does not know it, or cannot be asked. */
static uint32_t ask_attribute(const struct node *node, uint32_t attr, uint32_t absent)
{
	struct gdrdrv_get_attr a = { .attr = attr };

	if (node->version < GDRDRV_HAS_ATTR || call(node, GDRDRV_IOC_GET_ATTR, &a))
		return absent;
	return a.val;
}

/* Fills in what the driver is and can do; refuses one that this library cannot work with. */
static int ask(struct node *node)
{
	struct gdrdrv_get_version v = { 0 };
	int err = call(node, GDRDRV_IOC_GET_VERSION, &v);

	if (err == ENOTTY || err == EINVAL)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver reports no version: it is older than 2.0");
	if (err)
		return result("GET_VERSION", err);
	node->version = v.gdrdrv_version;
	if (node->version < MINIMUM_GDRDRV_VERSION)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver is %u.%u; %u.%u is the oldest that works",
				 VERSION(node->version), VERSION(MINIMUM_GDRDRV_VERSION));
	if (v.minimum_gdr_api_version > GDR_API_VERSION)
		return gdri_fail(EINVAL,
				 "the gdrdrv driver (%u.%u) needs libgdrapi %u.%u or newer; "
				 "this library is %u.%u",
				 VERSION(node->version), VERSION(v.minimum_gdr_api_version),
				 VERSION(GDR_API_VERSION));
	node->persistent = ask_attribute(node, GDRDRV_ATTR_USE_PERSISTENT_MAPPING, 0);
	node->force_pcie = node->version >= GDRDRV_HAS_PIN_V2 &&
			   ask_attribute(node, GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, 0);
	return 0;
}

static void node_close(void *state)
{
	struct node *node = state;

	gdri_fork_close(node->fd);
	free(node);
}

static int node_open(void **state)
{
	struct node *node = malloc(sizeof(*node));
	int rc;

	if (!node)
		return gdri_fail(ENOMEM, "no memory for a context");
	rc = gdri_open_node(GDRDRV_NODE, "the gdrdrv driver is not loaded", &node->fd);
	if (rc) {
		free(node);
		return rc == -EIO ? -ENODEV : rc;
	}
	rc = ask(node);
	if (rc)
		node_close(node);
	else
		*state = node;
	return rc;
}

static void driver_version(void *state, int *major, int *minor)
{
	const struct node *node = state;

	*major = (int)(node->version >> MAJOR_VERSION_SHIFT);
	*minor = (int)(node->version & MINOR_VERSION_MASK);
}

static int attribute(void *state, gdr_attr_t attr)
{
	const struct node *node = state;

	return (attr == GDR_ATTR_USE_PERSISTENT_MAPPING && node->persistent) ||
	       (attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE && node->force_pcie);
}

/* ---- regions --------------------------------------------------------------------------------- */

/*
 * Pins whole GPU pages: some driver levels pin only those. P2P tokens are not passed on: the
 * process's own memory needs none, and drivers from level 2.5 on refuse them.
 */
static int pin_address(const struct node *node, const struct gdri_pin_request *request,
		       uint64_t *handle)
{
	struct gdrdrv_pin_buffer_v2 p = { .addr = request->va, .size = request->mapped_size };
	struct gdrdrv_pin_buffer old = { .addr = request->va, .size = request->mapped_size };
	bool v2 = node->version >= GDRDRV_HAS_PIN_V2;
	int err;

	if (request->flags & GDR_PIN_FLAG_FORCE_PCIE)
		p.flags = GDRDRV_PIN_FLAG_FORCE_PCIE;
	err = v2 ? call(node, GDRDRV_IOC_PIN_BUFFER_V2, &p)
		 : call(node, GDRDRV_IOC_PIN_BUFFER, &old);
	if (err == ENOMEM || err == ENOSPC)
		return gdri_fail(ENOMEM, "PIN_BUFFER: no memory, or BAR1 is full");
	if (err == EINVAL && request->memory.kind == GDRI_MEMORY_DEVICE &&
	    !gdri_cuda_is_rdma_capable(request->addr))
		return gdri_fail(EINVAL, "PIN_BUFFER: the memory is not suitable for GPUDirect "
					 "RDMA: cuMemCreate memory needs "
					 "allocFlags.gpuDirectRDMACapable");
	*handle = v2 ? p.handle : old.handle;
	return result("PIN_BUFFER", err);
}

/* The type of a mapping by GET_INFO, which only knows whether it is write-combined. */
static uint32_t old_type(const struct gdrdrv_get_info *info)
{
	if (!info->mapped)
		return GDR_MAPPING_TYPE_NONE;
	if (info->wc_mapping)
		return GDR_MAPPING_TYPE_WC;
#ifdef __aarch64__
	/* Cached or Device memory: copies for Device memory are right for both. */
	return GDR_MAPPING_TYPE_DEVICE;
#else
	return GDR_MAPPING_TYPE_CACHING;
#endif
}

/* By the call that the driver has; the two structures differ in the last two words only. */
static int get_info(const struct node *node, uint64_t handle, struct gdrdrv_get_info_v2 *out)
{
	struct gdrdrv_get_info old = { .handle = handle };
	int err;

	*out = (struct gdrdrv_get_info_v2){ .handle = handle };
	if (node->version >= GDRDRV_HAS_INFO_V2) {
		err = call(node, GDRDRV_IOC_GET_INFO_V2, out);
	} else {
		err = call(node, GDRDRV_IOC_GET_INFO, &old);
		memcpy(out, &old, offsetof(struct gdrdrv_get_info, mapped));
		out->mapping_type = old_type(&old);
	}
	return result("GET_INFO", err);
}

/* Fails unless the region holds the request's range and can be mapped from its start. */
static int check_region(const struct gdrdrv_get_info_v2 *info,
			const struct gdri_pin_request *request)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (info->va > request->addr || info->va % page || info->mapped_size % page ||
	    request->addr - info->va > info->mapped_size ||
	    request->size > info->mapped_size - (request->addr - info->va))
		return gdri_fail(EIO,
				 "the driver pinned 0x%" PRIx64 " + 0x%" PRIx64
				 " instead of 0x%" PRIx64 " + 0x%zx",
				 info->va, info->mapped_size, request->addr, request->size);
	return 0;
}

static int unpin(struct gdri_pin *pin)
{
	struct gdrdrv_unpin_buffer u = { .handle = pin->handle };

	return result("UNPIN_BUFFER", call(pin->state, GDRDRV_IOC_UNPIN_BUFFER, &u));
}

static int pin_request(const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct node *node = pin->state;
	struct gdrdrv_get_info_v2 info;
	int rc;

	rc = pin_address(node, request, &pin->handle);
	if (rc)
		return rc;
	rc = get_info(node, pin->handle, &info);
	if (!rc)
		rc = check_region(&info, request);
	if (rc) {
		call(node, GDRDRV_IOC_UNPIN_BUFFER,
		     &(struct gdrdrv_unpin_buffer){ .handle = pin->handle });
		return rc;
	}
	pin->va = info.va;
	pin->mapped_size = info.mapped_size;
	pin->page_size = info.page_size;
	pin->tm_cycles = info.tm_cycles;
	pin->cycles_per_ms = info.tsc_khz;
	pin->persistent = node->persistent;
	pin->type = GDR_MAPPING_TYPE_WC; /* BAR1's; the first map corrects it */
	return 0;
}

static int callback_flag(struct gdri_pin *pin, int *flag)
{
	struct gdrdrv_get_cb_flag f = { .handle = pin->handle };
	int err = call(pin->state, GDRDRV_IOC_GET_CB_FLAG, &f);

	if (!err)
		*flag = f.flag != 0;
	return result("GET_CB_FLAG", err);
}

/* ---- mappings -------------------------------------------------------------------------------- */

static int refuse_wish(gdr_mapping_type_t wish)
{
	return gdri_fail(ENOTSUP, "this memory cannot be mapped as \"%s\"",
			 gdri_mapping_type_name(wish));
}

/* Requests the next mapping's type; NONE ends an earlier request. A driver may lack the call. */
static int request_type(const struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	struct gdrdrv_req_mapping_type r = { .handle = pin->handle, .mapping_type = wish };
	const struct node *node = pin->state;
	int rc, err;

	if (node->version < GDRDRV_HAS_MAPPING_TYPE)
		return 0;
	err = call(node, GDRDRV_IOC_REQ_MAPPING_TYPE, &r);
	if (err == ENOTTY)
		return 0;
	rc = result("REQ_MAPPING_TYPE", err);
	return rc == -ENOTSUP && wish != GDR_MAPPING_TYPE_NONE ? refuse_wish(wish) : rc;
}

static int map_region(const struct gdri_pin *pin, void **map)
{
	int shift = __builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	struct gdrdrv_populate p = { .handle = pin->handle };
	const struct node *node = pin->state;
	int rc;

	if (pin->handle >> (63 - shift))
		return gdri_fail(EOVERFLOW, "handle 0x%" PRIx64 " has no mmap offset", pin->handle);
	rc = gdri_pages_map(node->fd, (off_t)(pin->handle << shift), NULL, pin->map_length,
			    PROT_READ | PROT_WRITE, map);
	if (rc == EINVAL)
		return gdri_fail(EINVAL, "the driver refuses the map (has the memory been freed?)");
	if (rc)
		return rc < 0 ? rc : result("mmap of " GDRDRV_NODE, rc);
	/* Makes the page-table entries now, not in the first copy; without POPULATE by loads. */
	if (call(node, GDRDRV_IOC_POPULATE, &p) && !gdri_pages_readable(*map, pin->map_length)) {
		munmap(*map, pin->map_length);
		return gdri_fail(EINVAL, "the mapping cannot be read: the GPU driver revoked it");
	}
	return 0;
}

static int map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	struct gdrdrv_get_info_v2 info;
	void *at;
	int rc = request_type(pin, wish);

	if (!rc)
		rc = map_region(pin, &at);
	if (rc)
		return rc;
	rc = get_info(pin->state, pin->handle, &info);
	if (!rc && wish != GDR_MAPPING_TYPE_NONE && info.mapping_type != wish)
		rc = refuse_wish(wish);
	if (rc) {
		munmap(at, pin->map_length);
		return rc;
	}
	/* NONE: revoked just now; copies as for the pin's type do no harm then. */
	if (info.mapping_type != GDR_MAPPING_TYPE_NONE)
		pin->map_type = (gdr_mapping_type_t)info.mapping_type;
	if (wish == GDR_MAPPING_TYPE_NONE)
		pin->type = pin->map_type;
	gdri_pin_mapped(pin, at);
	return 0;
}

const struct gdri_backend gdri_backend_gdrdrv = {
	.name = "gdrdrv",
	.id = BARCOPY_BACKEND_GDRDRV,
	.caps = GDRI_CAP_DEVICE_MEMORY | GDRI_CAP_UNKNOWN_MEMORY,
	.open = node_open,
	.close = node_close,
	.driver_version = driver_version,
	.attribute = attribute,
	.pin = pin_request,
	.unpin = unpin,
	.map = map,
	.unmap = gdri_pages_unmap,
	.callback_flag = callback_flag,
};
