/* SPDX-License-Identifier: MIT */
/* The entry points for ranges that the GPU driver has revoked: their notice, and which they are. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "calls/calls.h"
#include "core/handle.h"

int barcopy_get_event_fd(gdr_t g, int *fd)
{
	struct gdri_ctx *ctx;
	int err, rc, copy;

	if (!fd)
		return gdri_null("fd");
	err = -gdri_ctx_get(g, &ctx);
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

/* The names of the context's handles, for later: handle->lock is not taken under ctx->lock. */
static int list_handles(struct gdri_ctx *ctx, uint64_t **names, size_t *count)
{
	struct gdri_handle *handle;
	size_t n = 0;

	pthread_mutex_lock(&ctx->lock);
	LIST_FOREACH(handle, &ctx->handles, link)
		n++;
	*names = n ? malloc(n * sizeof(**names)) : NULL;
	*count = 0;
	if (*names)
		LIST_FOREACH(handle, &ctx->handles, link)
			(*names)[(*count)++] = gdri_slot_name(&handle->slot);
	pthread_mutex_unlock(&ctx->lock);
	return *count < n ? gdri_fail(ENOMEM, "no memory for a list of %zu handles", n) : 0;
}

/*
 * Must this revoked handle be reported? A cache's handle must only while its region is in use: the cache
 * forgets the region now, which releases an idle one. Called with the handle's lock, which is still held
 * where the answer is yes; a cache's lock comes before those of its handles.
 */
static bool must_report(struct gdri_ctx *ctx, struct gdri_handle **handle, uint64_t name)
{
	struct gdri_region *region = (*handle)->region;
	uint64_t start = region->pin.va, end = gdri_region_end(region);
	struct gdri_cache *cache;

	if (region->kind != &gdri_kind_cached)
		return true;
	cache = gdri_entry_of(region)->cache;
	pthread_mutex_unlock(&(*handle)->lock);
	gdri_cache_forget(cache, start, end);
	return !gdri_handle_lock(ctx, (gdr_mh_t){ name }, handle);
}

/*
 * The first handle to be reported. With `ask` the driver is asked about every handle first, so that many
 * revoked handles cost one round of system calls, not one each.
 */
static bool next_of(struct gdri_ctx *ctx, const uint64_t *names, size_t count, bool ask,
		    gdr_mh_t *out)
{
	bool found = false;

	for (size_t i = 0; i < count && !(found && !ask); i++) {
		struct gdri_handle *handle;
		bool revoked;

		if (gdri_handle_lock(ctx, (gdr_mh_t){ names[i] }, &handle))
			continue; /* unpinned meanwhile */
		revoked = atomic_load_explicit(&handle->region->revoked, memory_order_relaxed);
		if (ask && !revoked)
			(void)gdri_region_is_revoked(handle->region, &revoked);
		if (revoked && !handle->reported) {
			if (!must_report(ctx, &handle, names[i]))
				continue;
			if (!found) {
				handle->reported = true;
				out->h = names[i];
				found = true;
			}
		}
		pthread_mutex_unlock(&handle->lock);
	}
	return found;
}

static int next_revoked(struct gdri_ctx *ctx, gdr_mh_t *out)
{
	uint64_t *names;
	size_t count;
	int rc = list_handles(ctx, &names, &count);

	if (rc)
		return rc;
	if (!next_of(ctx, names, count, false, out) && !next_of(ctx, names, count, true, out))
		rc = gdri_fail(ENOENT, "no further range has been revoked");
	free(names);
	return rc;
}

int barcopy_next_revoked(gdr_t g, gdr_mh_t *handle)
{
	struct gdri_ctx *ctx;

	if (!handle)
		return gdri_null("handle");
	return -gdri_ctx_get(g, &ctx) ?: gdri_ctx_leave(ctx, next_revoked(ctx, handle));
}
