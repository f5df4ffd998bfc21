/* SPDX-License-Identifier: MIT */
/* The entry points for ranges that the GPU driver has revoked: their notice, and which they are. */
#include <fcntl.h>
#include <string.h>

#include "calls/calls.h"

int barcopy_get_event_fd(gdr_t g, int *fd)
{
	struct gdri_ctx *ctx;
	int rc, copy, err = fd ? -gdri_ctx_get(g, &ctx) : gdri_null("fd");

	if (err)
		return err;
	rc = gdri_backends_event_fd(&ctx->backends, &copy);
	if (!rc) {
		/* The caller's descriptor outlives the context. */
		copy = fcntl(copy, F_DUPFD_CLOEXEC, 0);
		if (copy < 0)
			rc = gdri_fail(errno, "dup of the node: %s", strerror(errno));
		else
			*fd = copy;
	}
	return gdri_ctx_leave(ctx, rc);
}

/* A handle to be reported; of a cache: with the pages of its region. */
struct revoked {
	uint64_t name, start, end;
	struct gdri_cache *cache;
};

/*
 * Finds a revoked handle that was not reported, and marks it. With `ask` the driver is asked about
 * every handle: many revoked ones cost one round of system calls, not one each.
 */
static bool find(struct gdri_ctx *ctx, bool ask, struct revoked *out)
{
	struct gdri_handle *handle, *found = NULL;

	pthread_mutex_lock(&ctx->lock);
	LIST_FOREACH(handle, &ctx->handles, link) {
		struct gdri_region *region = handle->region;
		bool revoked = atomic_load_explicit(&region->revoked, memory_order_relaxed);

		if (ask && !revoked)
			(void)gdri_region_is_revoked(region, &revoked);
		if (revoked && !handle->reported && !found)
			found = handle;
		if (found && !ask)
			break;
	}
	if (found) {
		struct gdri_region *region = found->region;

		found->reported = true;
		*out = (struct revoked){ .name = gdri_slot_name(&found->slot),
					 .start = region->pin.va,
					 .end = gdri_region_end(region) };
		if (region->kind == &gdri_kind_cached)
			out->cache = gdri_entry_of(region)->cache;
	}
	pthread_mutex_unlock(&ctx->lock);
	return found;
}

int barcopy_next_revoked(gdr_t g, gdr_mh_t *handle)
{
	struct gdri_ctx *ctx;
	struct revoked r;
	int err = handle ? -gdri_ctx_get(g, &ctx) : gdri_null("handle");

	if (err)
		return err;
	while (find(ctx, false, &r) || find(ctx, true, &r)) {
		/* This ends an idle region and its handle, which is then not reported. */
		if (r.cache)
			gdri_cache_forget(r.cache, r.start, r.end);
		if (gdri_slots_find(&gdri_handles, r.name)) {
			handle->h = r.name;
			return gdri_ctx_leave(ctx, 0);
		}
	}
	return gdri_ctx_leave(ctx, gdri_fail(ENOENT, "no further range has been revoked"));
}
