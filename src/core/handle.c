/* SPDX-License-Identifier: MIT */
/* See handle.h. */
#include "core/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/ctx.h"
#include "base/error.h"
#include "base/log.h"
#include "core/stats.h"

static void count_handle(struct gdri_slot *slot, void *count)
{
	struct gdri_handle *handle = (struct gdri_handle *)slot;

	if (*(bool *)count)
		atomic_fetch_or_explicit(&handle->owner, GDRI_HANDLE_COUNTED, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(&handle->owner, ~GDRI_HANDLE_COUNTED,
					  memory_order_relaxed);
}

static void init_handle(struct gdri_slot *slot)
{
	bool count = gdri_stats_on();

	pthread_mutex_init(&((struct gdri_handle *)slot)->lock, NULL);
	count_handle(slot, &count);
}

struct gdri_slots gdri_handles = GDRI_SLOTS_INIT(struct gdri_handle, init_handle);

void gdri_handles_count(bool count)
{
	gdri_slots_each(&gdri_handles, count_handle, &count);
}

int gdri_handle_copy_errno(gdr_mh_t h)
{
	struct gdri_handle *handle = (struct gdri_handle *)gdri_slots_find(&gdri_handles, h.h);

	if (!handle)
		return -gdri_fail(EINVAL, "0x%lx is no handle (never pinned, or unpinned)", h.h);
	if (!gdri_handle_is_own(handle))
		return -gdri_fail(EACCES, "the handle belongs to the parent process");
	return -gdri_fail(EINVAL, "the handle is not mapped");
}

static gdr_mh_t publish(struct gdri_handle *handle)
{
	uint64_t owner = atomic_load_explicit(&handle->owner, memory_order_relaxed);
	gdr_mh_t h;

	while (!atomic_compare_exchange_weak_explicit(
		&handle->owner, &owner, (owner & GDRI_HANDLE_COUNTED) | gdri_process_tag(),
		memory_order_relaxed, memory_order_relaxed))
		;
	gdri_ctx_link(handle->ctx, handle);
	h.h = gdri_slot_publish(&handle->slot);
	return h;
}

int gdri_handle_new(struct gdri_ctx *ctx, struct gdri_region *region, uint64_t low, uint64_t high,
		    gdr_mh_t *h)
{
	struct gdri_handle *handle = (struct gdri_handle *)gdri_slots_new(&gdri_handles);
	int rc = 0;

	if (!handle)
		return gdri_fail(ENOMEM, "no memory for a handle");
	/* A stale name may still make another thread lock and look: write under the lock. */
	pthread_mutex_lock(&handle->lock);
	handle->ctx = ctx;
	handle->region = region;
	handle->low = low;
	handle->high = high;
	handle->pin = region->pin;
	handle->notice = GDRI_NOTICE_NONE;
	handle->assist = NULL;
	handle->assist_set = false;
	handle->prev = NULL;
	handle->next = NULL;
	if (region->mapped) {
		handle->pin.va = low & GPU_PAGE_MASK;
		handle->pin.mapped_size =
			((high + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - handle->pin.va;
		handle->pin.map = NULL;
		gdri_events_clear(&handle->pin.events);
		rc = gdri_handle_map_locked(handle, handle->pin.mapped_size, GDR_MAPPING_TYPE_NONE);
	}
	pthread_mutex_unlock(&handle->lock);
	if (rc)
		gdri_slots_free(&gdri_handles, &handle->slot);
	else
		*h = publish(handle);
	return rc;
}

static int put_pin(struct gdri_region *region)
{
	int rc = gdri_region_close(region);

	free(region);
	return rc;
}

int gdri_handle_pin(struct gdri_ctx *ctx, struct gdri_pin_request *request, gdr_mh_t *h)
{
	struct gdri_region *region = malloc(sizeof(*region));
	int rc;

	if (!region)
		return gdri_fail(ENOMEM, "no memory for a pin");
	rc = gdri_region_open(region, ctx, request, 0);
	if (rc) {
		free(region);
		return rc;
	}
	region->use = GDRI_USE_PIN;
	region->put = put_pin;
	rc = gdri_handle_new(ctx, region, region->low, region->high, h);
	if (rc)
		put_pin(region);
	return rc;
}

int gdri_handle_lock(struct gdri_ctx *ctx, gdr_mh_t h, struct gdri_handle **out)
{
	struct gdri_handle *handle = (struct gdri_handle *)gdri_slots_find(&gdri_handles, h.h);

	if (handle) {
		if (!gdri_handle_is_own(handle))
			return gdri_fail(EACCES, "the handle belongs to the parent process");
		pthread_mutex_lock(&handle->lock);
		if (gdri_slot_is(&handle->slot, h.h) && handle->ctx == ctx) {
			*out = handle;
			return 0;
		}
		pthread_mutex_unlock(&handle->lock);
	}
	return gdri_fail(EINVAL, "0x%lx is no handle of this context", h.h);
}

struct gdri_handle *gdri_handle_lock_any(gdr_mh_t h)
{
	struct gdri_handle *handle = (struct gdri_handle *)gdri_slots_find(&gdri_handles, h.h);

	/* A parent's lock may be held for ever: look whose the handle is first. */
	if (!handle || !gdri_handle_is_own(handle))
		return NULL;
	pthread_mutex_lock(&handle->lock);
	if (gdri_slot_is(&handle->slot, h.h))
		return handle;
	pthread_mutex_unlock(&handle->lock);
	return NULL;
}

void gdri_handle_unlock(struct gdri_handle *handle)
{
	pthread_mutex_unlock(&handle->lock);
}

/* The length that a map of `size` bytes takes: whole host pages. */
static size_t map_length(const struct gdri_pin *pin, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t length = (size + page - 1) & ~(page - 1);

	return length < pin->mapped_size ? length : pin->mapped_size;
}

static pthread_once_t env_looked_at = PTHREAD_ONCE_INIT;

static void log_env_problem(void)
{
	const char *problem = gdri_copy_env_problem();

	if (problem)
		gdri_log(BARCOPY_LOG_WARN, "%s", problem);
}

/* What copies through the pin's mapping go by. */
static const struct gdri_copy_plan *plan_of(struct gdri_handle *handle)
{
	if (handle->assist)
		return gdri_offload_plan(handle->assist, &handle->pin);
	return gdri_copy_plan(handle->pin.map_type);
}

int gdri_handle_set_copy_options_locked(struct gdri_handle *handle,
					const barcopy_copy_options_t *options)
{
	struct gdri_offload *assist, *former = handle->assist;
	int rc = gdri_offload_new(handle->region, &handle->pin, options, &assist);

	if (rc)
		return rc;
	handle->assist = assist;
	handle->assist_set = true;
	if (handle->pin.map)
		atomic_store_explicit(&handle->plan, plan_of(handle), memory_order_release);
	gdri_offload_free(former);
	return 0;
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
	pthread_once(&env_looked_at, log_env_problem);
	if (!handle->assist_set) {
		(void)gdri_offload_new(handle->region, pin, NULL, &handle->assist);
		handle->assist_set = true;
	}
	atomic_store_explicit(&handle->plan, plan_of(handle), memory_order_release);
	return 0;
}

int gdri_handle_unmap_locked(struct gdri_handle *handle)
{
	atomic_store_explicit(&handle->plan, NULL, memory_order_relaxed);
	atomic_store_explicit(&handle->copy_end, 0, memory_order_relaxed);
	atomic_store_explicit(&handle->copy_start, 0, memory_order_relaxed);
	return gdri_region_unmap(handle->region, &handle->pin);
}

bool gdri_handle_length_matches(const struct gdri_handle *handle, size_t size)
{
	return size && size <= handle->pin.mapped_size &&
	       map_length(&handle->pin, size) == handle->pin.map_length;
}

int gdri_handle_release_locked(struct gdri_handle *handle)
{
	int rc = 0, rc2;

	gdri_slot_retire(&handle->slot);
	if (handle->pin.map)
		rc = gdri_handle_unmap_locked(handle);
	gdri_offload_free(handle->assist);
	handle->assist = NULL;
	rc2 = handle->region->put(handle->region);
	gdri_ctx_unlink(handle->ctx, handle);
	pthread_mutex_unlock(&handle->lock);
	gdri_slots_free(&gdri_handles, &handle->slot);
	return rc ? rc : rc2;
}

void gdri_handle_after_fork(void)
{
	gdri_offload_after_fork();
	gdri_slots_after_fork(&gdri_handles);
}
