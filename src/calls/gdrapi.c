/* SPDX-License-Identifier: MIT */
/* The entry points for contexts, pins and maps. copies.c, single.c, vectors.c: those for copies. */
#include <string.h>

#include "base/inside.h"
#include "calls/calls.h"
#include "queue/ring.h"

/* What gdr_get_info() filled before it became a macro: today's struct without its last member. */
enum { INFO_V1_SIZE = offsetof(gdr_info_v2_t, mapping_type) };
_Static_assert(INFO_V1_SIZE == 40 && sizeof(gdr_info_v2_t) == 48 && sizeof(gdr_mh_t) == 8,
	       "these structs are frozen: tests/build/test_header.sh has their offsets");

/* Programs look this symbol up by name; the header hides it behind the macro. */
#undef gdr_get_info
__attribute__((visibility("default"))) int gdr_get_info(gdr_t g, gdr_mh_t handle, void *info);

static pthread_once_t env_looked_at = PTHREAD_ONCE_INIT;

/* The environment is read by the first open alone: later another thread may change it. */
static void look_at_env(void)
{
	const char *problem;

	gdri_log_init();
	gdri_stats_init();
	problem = gdri_copy_env_problem();
	if (problem)
		gdri_log(GDRI_LOG_WARN, "%s", problem);
}

gdr_t barcopy_open(uint32_t flags)
{
	gdr_t g = NULL;
	int rc;

	gdri_inside_enter();
	pthread_once(&env_looked_at, look_at_env);
	rc = gdri_ctx_open(flags, &g);
	gdri_inside_leave();
	if (rc)
		errno = -rc;
	return g;
}

gdr_t gdr_open(void)
{
	return barcopy_open(BARCOPY_OPEN_DEFAULT);
}

int gdr_close(gdr_t g)
{
	struct gdri_first first = { 0 };
	struct gdri_ctx *ctx;
	int rc;

	gdri_inside_enter();
	rc = gdri_ctx_retire(g, &ctx);
	if (!rc) {
		gdri_rings_end(ctx); /* their memory is among the handles */
		/* Before the handles: a last put under way ends a handle. */
		gdri_first_note(&first, gdri_caches_end(ctx, true));
		gdri_first_note(&first, gdri_handles_end(ctx));
		gdri_first_note(&first, gdri_caches_end(ctx, false));
		gdri_first_note(&first, gdri_ctx_free(ctx));
		rc = gdri_first_failure(&first);
	}
	gdri_inside_leave();
	return gdri_out(rc);
}

void gdr_runtime_get_version(int *major, int *minor)
{
	if (major)
		*major = GDR_API_MAJOR_VERSION;
	if (minor)
		*minor = GDR_API_MINOR_VERSION;
}

int gdr_driver_get_version(gdr_t g, int *major, int *minor)
{
	struct gdri_ctx *ctx;
	int rc = major && minor ? gdri_ctx_get(g, &ctx) : gdri_null("major or minor");

	if (!rc)
		rc = gdri_ctx_put(ctx, gdri_backends_driver_version(&ctx->backends, major, minor));
	return gdri_out(rc);
}

int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v)
{
	struct gdri_ctx *ctx;
	int rc;

	if (!v)
		rc = gdri_null("v");
	else if ((int)attr < GDR_ATTR_USE_PERSISTENT_MAPPING || attr >= GDR_ATTR_MAX)
		rc = gdri_fail(EINVAL, "unknown attribute %d", (int)attr);
	else
		rc = gdri_ctx_get(g, &ctx);
	if (!rc)
		rc = gdri_ctx_put(ctx, gdri_backends_attribute(&ctx->backends, attr, v));
	return gdri_out(rc);
}

static int pin(gdr_t g, struct gdri_pin_request *request, gdr_mh_t *out)
{
	struct gdri_attempts attempts;
	struct gdri_ctx *ctx;
	int rc = out ? gdri_ctx_get(g, &ctx) : gdri_null("handle");

	if (rc)
		return rc;
	attempts = gdri_attempts_begin(ctx);
	do
		rc = gdri_handle_pin(ctx, request, out);
	while (gdri_caches_give_way(ctx, rc, request->memory.device, request->size, &attempts));
	return gdri_ctx_put(ctx, rc);
}

int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
		   gdr_mh_t *handle)
{
	struct gdri_pin_request request = { .addr = addr, .size = size };

	/* P2P tokens are a counter and no secret: nothing is made of them. */
	(void)p2p_token;
	(void)va_space;
	return gdri_out(pin(g, &request, handle));
}

int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle)
{
	struct gdri_pin_request request = { .addr = addr, .size = size, .flags = flags };

	return gdri_out(flags & ~(uint32_t)GDR_PIN_FLAG_FORCE_PCIE
				? gdri_fail(EINVAL, "unknown bits in pin flags 0x%x", flags)
				: pin(g, &request, handle));
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
	return gdri_out(gdri_handle_end(g, handle, &gdri_kind_pin, NULL));
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
	struct gdri_handle *hd;
	bool revoked;
	int rc = flag ? gdri_handle_enter(g, handle, NULL, &hd) : gdri_null("flag");

	if (!rc) {
		rc = gdri_handle_leave(hd, gdri_region_is_revoked(hd->region, &revoked));
		if (!rc)
			*flag = revoked;
	}
	return gdri_out(rc);
}

static int get_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
	struct gdri_handle *hd;
	int rc = info ? gdri_handle_enter(g, handle, NULL, &hd) : gdri_null("info");

	if (rc)
		return rc;
	memset(info, 0, sizeof(*info)); /* and its padding */
	info->va = hd->pin.va;
	info->mapped_size = hd->pin.mapped_size;
	info->page_size = hd->pin.page_size;
	info->tm_cycles = hd->pin.tm_cycles;
	info->cycles_per_ms = hd->pin.cycles_per_ms;
	info->mapped = hd->pin.map != NULL;
	info->mapping_type = hd->pin.map ? hd->pin.map_type : GDR_MAPPING_TYPE_NONE;
	info->wc_mapping = info->mapping_type == GDR_MAPPING_TYPE_WC;
	return gdri_handle_leave(hd, 0);
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
	return gdri_out(get_info(g, handle, info));
}

int gdr_get_info(gdr_t g, gdr_mh_t handle, void *info)
{
	gdr_info_v2_t v2;
	int rc = get_info(g, handle, info ? &v2 : NULL);

	if (!rc)
		memcpy(info, &v2, INFO_V1_SIZE);
	return gdri_out(rc);
}

static int map(struct gdri_ctx *ctx, gdr_mh_t handle, size_t size, gdr_mapping_type_t wish,
	       void **va, int *device)
{
	struct gdri_handle *hd;
	int rc = gdri_handle_lock(ctx, handle, &hd);

	if (rc)
		return rc;
	rc = gdri_handle_map_locked(hd, size, wish);
	if (!rc)
		*va = hd->pin.map;
	*device = hd->pin.device;
	pthread_mutex_unlock(&hd->lock);
	return rc;
}

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **ptr_va, size_t size, int flags)
{
	static const gdr_mapping_type_t wishes[] = {
		[GDR_MAP_FLAG_DEFAULT] = GDR_MAPPING_TYPE_NONE,
		[GDR_MAP_FLAG_REQ_WC_MAPPING] = GDR_MAPPING_TYPE_WC,
		[GDR_MAP_FLAG_REQ_CACHE_MAPPING] = GDR_MAPPING_TYPE_CACHING,
		[GDR_MAP_FLAG_REQ_DEVICE_MAPPING] = GDR_MAPPING_TYPE_DEVICE,
	};
	struct gdri_attempts attempts;
	struct gdri_ctx *ctx;
	int rc, device = -1;

	if (!ptr_va)
		rc = gdri_null("va");
	else if (flags < GDR_MAP_FLAG_DEFAULT || flags > GDR_MAP_FLAG_REQ_DEVICE_MAPPING)
		rc = gdri_fail(EINVAL, "unknown map flags 0x%x", (unsigned int)flags);
	else
		rc = gdri_ctx_get(g, &ctx);
	if (!rc) {
		attempts = gdri_attempts_begin(ctx);
		do
			rc = map(ctx, handle, size, wishes[flags], ptr_va, &device);
		while (gdri_caches_give_way(ctx, rc, device, size, &attempts));
		rc = gdri_ctx_put(ctx, rc);
	}
	return gdri_out(rc);
}

int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
	return gdr_map_v2(g, handle, va, size, GDR_MAP_FLAG_DEFAULT);
}

static int unmap_locked(struct gdri_handle *hd, const void *va, size_t size)
{
	int rc;

	if (!hd->pin.map)
		return gdri_fail(EINVAL, "the handle is not mapped");
	if (va != hd->pin.map && ((uintptr_t)va & GPU_PAGE_MASK) != hd->pin.va)
		return gdri_fail(EINVAL, "%p is not where this handle is mapped", va);
	if (!gdri_handle_length_matches(hd, size))
		return gdri_fail(EINVAL, "size %zu is not that of the mapping, %zu", size,
				 hd->pin.map_length);
	rc = gdri_handle_unmap_locked(hd);
	atomic_fetch_add(&hd->ctx->unpinned, 1);
	return rc;
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
	struct gdri_handle *hd;
	int rc = gdri_handle_enter(g, handle, &gdri_kind_pin, &hd);

	if (!rc)
		rc = gdri_handle_leave(hd, unmap_locked(hd, va, size));
	return gdri_out(rc);
}

int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char **pstr)
{
	const char *name = gdri_mapping_type_name(type);

	if (!pstr)
		return gdri_out(gdri_null("pstr"));
	if (!name)
		return gdri_out(gdri_fail(EINVAL, "unknown mapping type %d", (int)type));
	*pstr = name;
	return 0;
}

uint32_t barcopy_get_api_version(void)
{
	return BARCOPY_API_VERSION;
}

const char *barcopy_last_error(void)
{
	return gdri_error_text();
}

static int attribute(const struct gdri_handle *hd, barcopy_handle_attr_t attr, uint64_t *value)
{
	switch (attr) {
	case BARCOPY_HANDLE_ATTR_BACKEND:
		*value = hd->pin.backend->id;
		return 0;
	case BARCOPY_HANDLE_ATTR_DEVICE:
		if (hd->pin.device < 0)
			return gdri_fail(ENOTSUP, "the device of this handle is not known");
		*value = (uint64_t)hd->pin.device;
		return 0;
	case BARCOPY_HANDLE_ATTR_PERSISTENT:
		*value = hd->pin.persistent;
		return 0;
	case BARCOPY_HANDLE_ATTR_SYNC_MEMOPS:
		*value = gdri_region_sync_memops(hd->region, hd->low, hd->high);
		return 0;
	case BARCOPY_HANDLE_ATTR_MAPPING_TYPE:
		*value = hd->pin.type;
		return 0;
	default:
		return gdri_fail(EINVAL, "unknown handle attribute %d", (int)attr);
	}
}

int barcopy_get_handle_attribute(gdr_t g, gdr_mh_t handle, barcopy_handle_attr_t attr,
				 uint64_t *value)
{
	struct gdri_handle *hd;
	int rc = value ? gdri_handle_enter(g, handle, NULL, &hd) : gdri_null("value");

	if (!rc)
		rc = gdri_handle_leave(hd, attribute(hd, attr, value));
	return gdri_out(rc);
}
