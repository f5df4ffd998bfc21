// SPDX-License-Identifier: MIT
/* Copy options: the copy engine makes the large copies of one handle, by its own plan. */
#include "core/offload.h"

#include <stdlib.h>

#include "copy/impl.h"
#include "core/parts.h"

struct gdri_offload {
	struct gdri_copy_plan plan; /* first: its large copies find the rest through it */
	const struct gdri_copy_plan *base; /* of the mapping alone */
	struct gdri_cuda_engine *engine;
	enum gdri_engine_end end;
	size_t asked[2]; /* of reads and of writes, as in the caller's options */
	size_t min[2][2]; /* what they come to, with pageable and with page-locked memory */
	const struct gdri_region *region;
	const struct gdri_pin *pin;
};

/*
 * Copies by the engine, in the order that copies through the mapping keep: gdri_drain() completes
 * this CPU's earlier writes before the engine reads or overwrites the memory, and the fence keeps
 * later accesses behind the loads that saw the engine's completion; a line buffer from before it
 * would serve a later streaming load.
 */
static bool by_engine(struct gdri_offload *a, uintptr_t map, void *host, size_t size, bool to,
		      bool locked)
{
	uint64_t addr = a->pin->va + (map - (uintptr_t)a->pin->map);
	bool done;

	gdri_drain(a->base, (const void *)(map & ~(uintptr_t)3));
	/* The engine goes by the address, which may name other memory since the pin. */
	done = gdri_region_verify(a->region, NULL, addr, size) == GDRI_VALID &&
	       gdri_cuda_engine_copy(a->engine, to, host, locked, addr, size);
	gdri_count(a->pin->counters, done ? GDRI_COUNT_ENGINE_COPY : GDRI_COUNT_ENGINE_FALLBACK, 1);
	gdri_fence(a->base, BARCOPY_FENCE_FULL);
	return done;
}

/* The plan's function for copies of at least the smaller size. */
static void large(const struct gdri_copy_plan *plan, void *dst, const void *src, size_t size,
		  bool to)
{
	struct gdri_offload *a = (struct gdri_offload *)(uintptr_t)plan;
	uintptr_t map = to ? (uintptr_t)dst : (uintptr_t)src;
	void *host = to ? (void *)(uintptr_t)src : dst;
	bool locked = gdri_cuda_is_page_locked(host);

	if (size >= a->min[to][locked] && by_engine(a, map, host, size, to, locked))
		return;
	if (to)
		gdri_copy_to(a->base, dst, src, size);
	else
		gdri_copy_from(a->base, dst, src, size);
}

/*
 * AUTO's sizes, from which the engine was ahead of the mapping on several H200 and an H100, with
 * host memory in the caches and not (2026-11-22 and 23; docs/performance.md has where they cross).
 * From pageable memory the engine never writes faster.
 */
#define KIB(n) ((size_t)(n) << 10)
static const struct {
	size_t read, read_locked, write_locked;
} sizes[] = {
	[GDRI_ENGINE_POLLS] = { KIB(8), KIB(7), KIB(320) },
	[GDRI_ENGINE_SPINS] = { KIB(10), KIB(8), KIB(384) },
	[GDRI_ENGINE_SLEEPS] = { KIB(24), KIB(20), KIB(2048) },
};

/* Sets the sizes of one direction; returns the smaller. AUTO's own value means never. */
static size_t set_min(struct gdri_offload *a, bool to)
{
	size_t *min = a->min[to], asked = a->asked[to];

	min[false] = min[true] = asked ? asked : SIZE_MAX;
	/* Over a coherent link the CPU is taken to be faster, unmeasured. */
	if (asked != BARCOPY_COPY_ENGINE_AUTO || a->pin->map_type == GDR_MAPPING_TYPE_CACHING)
		return min[false];
	min[true] = to ? sizes[a->end].write_locked : sizes[a->end].read_locked;
	if (!to)
		min[false] = sizes[a->end].read;
	return min[true];
}

const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *a)
{
	a->base = gdri_copy_plan(a->pin->map_type);
	a->plan = *a->base;
	a->plan.large_to_min = set_min(a, true);
	a->plan.large_from_min = set_min(a, false);
	a->plan.large = large;
	return &a->plan;
}

static int engine_new(struct gdri_offload *a, uint64_t low, uint64_t high)
{
	const struct gdri_pin *pin = a->pin;

	/* At the offsets of an imported dma-buf CUDA has something else. */
	if (!pin->va)
		return gdri_fail(ENOTSUP, "an imported dma-buf has no device address, which the "
					  "copy engine needs");
	if (pin->backend->id == BARCOPY_BACKEND_HOST)
		return gdri_fail(ENOTSUP, "the copy engine copies device memory only");
	if (!gdri_region_is_intact(a->region, low, high))
		return gdri_fail(EINVAL, "the memory has been freed since it was pinned");
	return gdri_cuda_engine_new(pin->va, pin->mapped_size, &a->engine, &a->end);
}

int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin, uint64_t low,
		     uint64_t high, const barcopy_copy_options_t *options,
		     struct gdri_offload **out)
{
	/* The GPU does not heed this process's page protection. */
	size_t write_min = pin->read_only ? 0 : options->engine_write_min;
	struct gdri_offload *a;
	int rc;

	*out = NULL;
	if (!options->engine_read_min && !write_min)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return gdri_fail(ENOMEM, "no memory for copy options");
	*a = (struct gdri_offload){ .asked = { options->engine_read_min, write_min },
				    .region = region,
				    .pin = pin };
	rc = engine_new(a, low, high);
	if (rc)
		free(a);
	else
		*out = a;
	return rc;
}

int gdri_offload_free(struct gdri_offload *a)
{
	int rc = a ? gdri_cuda_engine_free(a->engine) : 0;

	free(a);
	return rc;
}
