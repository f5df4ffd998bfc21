// SPDX-License-Identifier: MIT
/* See offload.h. */
#include "core/offload.h"

#include <errno.h>
#include <stdlib.h>

#include "cuda/cuda.h"
#include "base/error.h"
#include "base/probes.h"
#include "copy/rows.h"
#include "copy/tune.h"

/* The copy engine copies from so many bytes on, by what the host's side is; SIZE_MAX: never. */
struct by_size {
	size_t any, page_locked;
};

struct gdri_offload {
	struct gdri_copy_plan plan; /* first: the plan's copies find the rest through it */
	const struct gdri_copy_plan *base;
	struct gdri_cuda_engine *engine;
	struct by_size from, to; /* when the copy engine is asked */
	const struct gdri_region *region; /* these two outlive this */
	const struct gdri_pin *pin;
};

/* ---- copies ---------------------------------------------------------------------------------------- */

/*
 * A copy by the copy engine, in the order that the mapping's own copies keep. The GPU must have what
 * this CPU has written through the mapping before the engine reads or overwrites it: gdri_drain(). The
 * engine's copy is complete when the call into CUDA returns; the fence then keeps what follows behind
 * the loads that saw its completion.
 */
static bool by_engine(struct gdri_offload *a, void *dst, const void *src, size_t size, bool to)
{
	uintptr_t map = to ? (uintptr_t)dst : (uintptr_t)src;
	uint64_t addr = a->pin->va + (map - (uintptr_t)a->pin->map);
	void *host = to ? (void *)(uintptr_t)src : dst;
	bool done;

	gdri_drain(a->base, (const void *)(map & ~(uintptr_t)3));
	/* The engine follows the address, the mapping the memory: they may have parted since the pin. */
	done = gdri_region_prove(a->region, addr, size) == GDRI_PROVEN &&
	       gdri_cuda_engine_copy(a->engine, to, host, addr, size);
	gdri_count(a->pin->counters, done ? GDRI_COUNT_ENGINE_COPY : GDRI_COUNT_ENGINE_FALLBACK, 1);
	if (!done)
		GDRI_PROBE3(fallback, a->pin->va, size, to);
	gdri_fence(a->base, BARCOPY_FENCE_FULL);
	return done;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* What the host's memory is is asked only where it decides. */
static bool is_for_engine(const struct by_size *min, const void *host, size_t size)
{
	return size >= min->any || (size >= min->page_locked && gdri_cuda_is_page_locked(host));
}

/* The plan's, for copies of so many bytes that the copy engine may be ahead. */
static void large(const struct gdri_copy_plan *plan, void *dst, const void *src, size_t size,
		  bool to)
{
	struct gdri_offload *a = (struct gdri_offload *)(uintptr_t)plan;

	if (is_for_engine(to ? &a->to : &a->from, to ? src : dst, size) &&
	    by_engine(a, dst, src, size, to))
		return;
	if (to)
		gdri_copy_to(a->base, dst, src, size);
	else
		gdri_copy_from(a->base, dst, src, size);
}

const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *a)
{
	struct gdri_copy_plan *plan = &a->plan;

	a->base = gdri_copy_plan(a->pin->map_type);
	*plan = *a->base;
	plan->large_to_min = least(a->to.any, a->to.page_locked);
	plan->large_from_min = least(a->from.any, a->from.page_locked);
	plan->large = large;
	return plan;
}

static const struct by_size never = { SIZE_MAX, SIZE_MAX };
static const struct by_size measured_from = { GDRI_ENGINE_MIN_FROM, GDRI_ENGINE_MIN_FROM_LOCKED };
static const struct by_size measured_to = { GDRI_ENGINE_MIN_TO, GDRI_ENGINE_MIN_TO_LOCKED };

/* ---- options --------------------------------------------------------------------------------------- */

/* A size that is asked for holds for every kind of memory. */
static struct by_size by_option(size_t asked, struct by_size measured)
{
	if (asked == BARCOPY_COPY_ENGINE_AUTO)
		return measured;
	return asked ? (struct by_size){ asked, asked } : never;
}

static int engine_new(const struct gdri_region *region, const struct gdri_pin *pin,
		      struct gdri_cuda_engine **out)
{
	/* A dma-buf that came without an address: what CUDA has at its offsets is something else. */
	if (!pin->va)
		return gdri_fail(ENOTSUP, "an imported dma-buf has no device address, which the "
					  "copy engine needs");
	/* For the CPU's own memory there is nothing to gain, and no GPU address to give. */
	if (pin->backend->id == BARCOPY_BACKEND_HOST)
		return gdri_fail(ENOTSUP, "the copy engine serves device memory only");
	if (region->part_count && !gdri_region_holds(region))
		return gdri_fail(EINVAL, "the memory has been freed since it was pinned");
	return gdri_cuda_engine_new(pin->va, pin->mapped_size, out);
}

int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin,
		     const barcopy_copy_options_t *options, struct gdri_offload **out)
{
	struct by_size from = never, to = never;
	struct gdri_offload *a;
	int rc;

	*out = NULL;
	if (options) {
		from = by_option(options->engine_read_min, measured_from);
		/* The GPU heeds no page protection of ours. */
		if (!pin->read_only)
			to = by_option(options->engine_write_min, measured_to);
	}
	if (from.page_locked == SIZE_MAX && to.page_locked == SIZE_MAX)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return gdri_fail(ENOMEM, "no memory for copy options");
	a->from = from;
	a->to = to;
	a->region = region;
	a->pin = pin;
	rc = engine_new(region, pin, &a->engine);
	if (rc) {
		gdri_offload_free(a);
		return rc;
	}
	*out = a;
	return 0;
}

void gdri_offload_free(struct gdri_offload *a)
{
	if (!a)
		return;
	gdri_cuda_engine_free(a->engine);
	free(a);
}
