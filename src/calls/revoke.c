/* SPDX-License-Identifier: MIT */
/*
 * The entry points for revoked ranges: where notice of them comes from, and which they are. They
 * know no backend, only what every pin's callback_flag() answers.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cache/cache.h"
#include "calls/calls.h"
#include "core/handle.h"

static int event_fd(struct gdri_ctx *ctx, int *fd)
{
	int own, rc = gdri_backends_event_fd(&ctx->backends, &own);

	if (rc)
		return rc;
	/* The caller's own, whose end is not that of the context. */
	own = fcntl(own, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return gdri_fail(errno, "dup of the node: %s", strerror(errno));
	*fd = own;
	return 0;
}

int barcopy_get_event_fd(gdr_t g, int *fd)
{
	if (!fd)
		return gdri_null("fd");
	return GDRI_WITH(g, ctx, event_fd(ctx, fd));
}

/*
 * The names of the context's handles: handle->lock comes before ctx->lock, so they are looked at
 * one by one afterwards, by name, whatever has become of them.
 */
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
 * Is the revoked handle the caller's to be told of? A cache's is only while somebody uses it; the cache
 * forgets the region now, which releases it where nobody does. Called with the handle's lock, and
 * returns with it if the answer is yes: a cache's lock comes before those of its handles.
 */
static bool is_callers(struct gdri_ctx *ctx, struct gdri_handle **handle, uint64_t name)
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
 * The first of the handles that the caller has to be told of. With `ask` every flag is asked for
 * first, so that many revoked handles cost one round of system calls, not one each.
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
		if (revoked && !handle->told) {
			if (!is_callers(ctx, &handle, names[i]))
				continue;
			if (!found) {
				handle->told = true;
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
	if (!handle)
		return gdri_null("handle");
	return GDRI_WITH(g, ctx, next_revoked(ctx, handle));
}
