/* SPDX-License-Identifier: MIT */
/* See handle.h. */
#include "core/handle.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/ctx.h"
#include "core/offload.h"

static void init_handle(struct gdri_slot *slot)
{
	pthread_mutex_init(&((struct gdri_handle *)slot)->lock, NULL);
}

GDRI_SLOTS(, gdri_handles);

static struct gdri_handle *find(gdr_mh_t h)
{
	return (struct gdri_handle *)gdri_slots_find_own(&gdri_handles, h.h);
}

_Static_assert(offsetof(struct gdri_handle, lock) <= 64, "what copies read is one cache line");

static int fail_handle(gdr_mh_t h)
{
	return gdri_slots_fail(&gdri_handles, h.h, "a pinned handle");
}

int gdri_handle_for_copy_slow(gdr_mh_t h, enum gdri_access access, struct gdri_window *w)
{
	struct gdri_handle *handle = find(h);

	if (!handle)
		return fail_handle(h);
	w->plan = atomic_load_explicit(&handle->counted_plan, memory_order_acquire);
	gdri_window_bounds(w, handle, access);
	w->counters = &handle->ctx->counters;
	return w->plan ? 0 : gdri_fail(EINVAL, "the handle is not mapped");
}

int gdri_handle_new(struct gdri_ctx *ctx, struct gdri_region *region, uint64_t low, uint64_t high,
		    gdr_mh_t *h)
{
	struct gdri_handle *handle =
		(struct gdri_handle *)gdri_slots_new(&gdri_handles, sizeof(*handle), init_handle);

	if (!handle)
		return gdri_fail(ENOMEM, "no memory for a handle");
	/* A thread with a stale name may lock the handle and read it. */
	pthread_mutex_lock(&handle->lock);
	handle->ctx = ctx;
	handle->region = region;
	handle->low = low;
	handle->high = high;
	handle->pin = region->pin;
	handle->offload = NULL;
	if (region->mapped) {
		handle->pin.va = low & GPU_PAGE_MASK;
		handle->pin.mapped_size =
			((high + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - handle->pin.va;
		handle->pin.map = NULL;
		/* Of a mapped region, without a wish, it does not fail. */
		(void)gdri_handle_map_locked(handle, handle->pin.mapped_size,
					     GDR_MAPPING_TYPE_NONE);
	}
	pthread_mutex_unlock(&handle->lock);
	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->handles, handle, link);
	h->h = gdri_slot_publish(&handle->slot);
	pthread_mutex_unlock(&ctx->lock);
	return 0;
}

static int put_pin(struct gdri_region *region)
{
	int rc = gdri_region_close(region);

	free(region);
	return rc;
}

const struct gdri_region_kind gdri_kind_pin = { "gdr_pin_buffer", "gdr_unpin_buffer", put_pin };

int gdri_handle_pin(struct gdri_ctx *ctx, struct gdri_pin_request *request, gdr_mh_t *h)
{
	struct gdri_region *region = malloc(sizeof(*region));
	struct gdri_first first = { 0 };
	int rc = region ? gdri_region_open(region, &ctx->backends, request, 0)
			: gdri_fail(ENOMEM, "no memory for a pin");

	if (rc) {
		free(region);
		return rc;
	}
	region->kind = &gdri_kind_pin;
	rc = gdri_handle_new(ctx, region, region->low, region->high, h);
	gdri_first_note(&first, rc);
	if (rc)
		gdri_first_note(&first, put_pin(region));
	return gdri_first_failure(&first);
}

int gdri_handle_lock(struct gdri_ctx *ctx, gdr_mh_t h, struct gdri_handle **out)
{
	struct gdri_handle *handle = find(h);

	if (!handle)
		return fail_handle(h);
	pthread_mutex_lock(&handle->lock);
	if (gdri_slot_is(&handle->slot, h.h) && (!ctx || handle->ctx == ctx)) {
		*out = handle;
		return 0;
	}
	pthread_mutex_unlock(&handle->lock);
	return fail_handle(h);
}

int gdri_handle_enter(gdr_t g, gdr_mh_t h, const struct gdri_region_kind *kind,
		      struct gdri_handle **out)
{
	const struct gdri_region_kind *is;
	struct gdri_ctx *ctx;
	int rc = gdri_ctx_get(g, &ctx);

	if (rc)
		return rc;
	rc = gdri_handle_lock(ctx, h, out);
	if (rc)
		return gdri_ctx_put(ctx, rc);
	is = (*out)->region->kind;
	if (!kind || is == kind)
		return 0;
	return gdri_handle_leave(
		*out, gdri_fail(EINVAL, "handle 0x%lx was not made by %s(): end it by %s()", h.h,
				kind->made_by, is->ended_by));
}

int gdri_handle_leave(struct gdri_handle *handle, int rc)
{
	struct gdri_ctx *ctx = handle->ctx;

	pthread_mutex_unlock(&handle->lock);
	return gdri_ctx_put(ctx, rc);
}

/* What a map of `size` bytes takes: whole host pages. */
static size_t map_length(const struct gdri_pin *pin, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t length = (size + page - 1) & ~(page - 1);

	return length < pin->mapped_size ? length : pin->mapped_size;
}

/* Sets the plan of further copies, which are refused while the handle is not mapped. */
static void publish_plan(struct gdri_handle *handle)
{
	const struct gdri_copy_plan *plan = NULL;
	bool counted = gdri_copies_counted;

	if (handle->pin.map)
		plan = handle->offload ? gdri_offload_plan(handle->offload)
				       : gdri_copy_plan(handle->pin.map_type);
	atomic_store_explicit(&handle->counted_plan, counted ? plan : NULL, memory_order_release);
	atomic_store_explicit(&handle->plan, counted ? NULL : plan, memory_order_release);
}

static int set_copy_options_locked(struct gdri_handle *handle,
				   const barcopy_copy_options_t *options)
{
	struct gdri_offload *offload, *former = handle->offload;
	int rc = gdri_offload_new(handle->region, &handle->pin, handle->low, handle->high, options,
				  &offload);

	if (rc)
		return rc;
	handle->offload = offload;
	publish_plan(handle);
	/* The new options hold: no failure of the call. */
	if (gdri_offload_free(former))
		gdri_log(GDRI_LOG_ERROR, "ending former copy options: %s", gdri_error_text());
	return 0;
}

int gdri_handle_set_copy_options(struct gdri_ctx *ctx, gdr_mh_t h,
				 const barcopy_copy_options_t *options)
{
	struct gdri_handle *handle;
	int rc = gdri_handle_lock(ctx, h, &handle);

	if (rc)
		return rc;
	if (!ctx && !handle->region->kind->put)
		rc = gdri_fail(EINVAL,
			       "the users of a cached region share its handle: copy options "
			       "are those of the cache");
	else
		rc = set_copy_options_locked(handle, options);
	pthread_mutex_unlock(&handle->lock);
	return rc;
}

int gdri_handle_map_locked(struct gdri_handle *handle, size_t size, gdr_mapping_type_t wish)
{
	struct gdri_pin *pin = &handle->pin;
	int rc;

	if (pin->map)
		return gdri_fail(EAGAIN, "the handle is mapped already");
	if (!size || size > pin->mapped_size)
		return gdri_fail(EINVAL, "size %zu is not in 1 .. %zu, the pinned range", size,
				 pin->mapped_size);
	pin->map_length = map_length(pin, size);
	rc = gdri_region_map(handle->region, pin, handle->low, handle->high, wish);
	if (rc)
		return rc;
	atomic_store_explicit(&handle->copy_start, pin->copy_start, memory_order_relaxed);
	atomic_store_explicit(&handle->copy_end, pin->copy_end, memory_order_relaxed);
	atomic_store_explicit(&handle->write_end, pin->read_only ? 0 : pin->copy_end,
			      memory_order_relaxed);
	publish_plan(handle);
	return 0;
}

int gdri_handle_unmap_locked(struct gdri_handle *handle)
{
	handle->pin.map = NULL;
	handle->pin.map_length = 0;
	publish_plan(handle);
	atomic_store_explicit(&handle->write_end, 0, memory_order_relaxed);
	atomic_store_explicit(&handle->copy_end, 0, memory_order_relaxed);
	atomic_store_explicit(&handle->copy_start, 0, memory_order_relaxed);
	return gdri_region_unmap(handle->region);
}

bool gdri_handle_length_matches(const struct gdri_handle *handle, size_t size)
{
	return size && size <= handle->pin.mapped_size &&
	       map_length(&handle->pin, size) == handle->pin.map_length;
}

int gdri_handle_release_locked(struct gdri_handle *handle)
{
	struct gdri_first first = { 0 };

	gdri_slot_retire(&handle->slot);
	if (handle->pin.map)
		gdri_first_note(&first, gdri_handle_unmap_locked(handle));
	gdri_first_note(&first, gdri_offload_free(handle->offload));
	handle->offload = NULL;
	pthread_mutex_lock(&handle->ctx->lock);
	LIST_REMOVE(handle, link);
	pthread_mutex_unlock(&handle->ctx->lock);
	pthread_mutex_unlock(&handle->lock);
	if (handle->region->kind->put)
		gdri_first_note(&first, handle->region->kind->put(handle->region));
	gdri_slots_free(&gdri_handles, &handle->slot);
	return gdri_first_failure(&first);
}

int gdri_handle_end(gdr_t g, gdr_mh_t h, const struct gdri_region_kind *kind, bool *ended)
{
	struct gdri_handle *handle;
	struct gdri_ctx *ctx;
	int rc = gdri_handle_enter(g, h, kind, &handle);

	if (rc)
		return rc;
	ctx = handle->ctx;
	rc = gdri_handle_release_locked(handle);
	if (ended)
		*ended = true;
	atomic_fetch_add(&ctx->unpinned, 1);
	return gdri_ctx_put(ctx, rc);
}

int gdri_handles_end(struct gdri_ctx *ctx)
{
	struct gdri_first first = { 0 };
	struct gdri_handle *handle;

	while ((handle = LIST_FIRST(&ctx->handles))) {
		pthread_mutex_lock(&handle->lock);
		gdri_first_note(&first, gdri_handle_release_locked(handle));
	}
	return gdri_first_failure(&first);
}
