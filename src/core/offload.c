// SPDX-License-Identifier: MIT
/* Copy options: the copy engine makes the large copies of one handle, by its own plan. */
#include "core/offload.h"

#include <stdlib.h>

#include "base/process.h"
#include "copy/impl.h"
#include "copy/word.h"
#include "core/parts.h"

#define TRIAL_SIZE ((size_t)4 << 10)

/* From how many bytes on the copy engine copies, by the kind of host memory; SIZE_MAX: never. */
struct thresholds {
	size_t any, page_locked;
};

struct gdri_offload {
	struct gdri_copy_plan plan; /* first: its large copies find the rest through it */
	const struct gdri_copy_plan *base; /* of the mapping alone */
	struct gdri_cuda_engine *engine;
	size_t read_min, write_min; /* as in the caller's options */
	struct thresholds from, to; /* what they come to for the mapping */
	enum gdri_engine_end end[2]; /* of copies with pageable and with page-locked memory */
	const struct gdri_region *region;
	const struct gdri_pin *pin;
};

/*
 * Copies by the engine, in the order that copies through the mapping keep: gdri_drain() completes
 * this CPU's earlier writes before the engine reads or overwrites the memory, and the fence keeps
 * later accesses behind the loads that saw the engine's completion.
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

static size_t least(const struct thresholds *t)
{
	return t->any < t->page_locked ? t->any : t->page_locked;
}

/* The plan's function for copies of at least the smaller threshold. */
static void large(const struct gdri_copy_plan *plan, void *dst, const void *src, size_t size,
		  bool to)
{
	struct gdri_offload *a = (struct gdri_offload *)(uintptr_t)plan;
	const struct thresholds *t = to ? &a->to : &a->from;
	uintptr_t map = to ? (uintptr_t)dst : (uintptr_t)src;
	void *host = to ? (void *)(uintptr_t)src : dst;
	bool locked = gdri_cuda_is_page_locked(host);

	if (size >= (locked ? t->page_locked : t->any) && by_engine(a, map, host, size, to, locked))
		return;
	if (to)
		gdri_copy_to(a->base, dst, src, size);
	else
		gdri_copy_from(a->base, dst, src, size);
}

/*
 * AUTO's sizes, from which the engine was ahead of the mapping on both of an H200 and an H100
 * (docs/results/copybench-h200.json and -h100.json): pageable reads cross at 9.0 to 9.3 KiB, at 11 on
 * another H200; page-locked ones at 6.3 to 6.8; writes from page-locked memory at 235 to 320. From
 * pageable memory the engine never writes faster.
 *
 * Where the end is not polled it is seen 1.1 us later, and 11 us later in a program that chose
 * blocking synchronisation (H200, 2026-11-22, reads of 512 B to 8 KiB). The lower two rows are
 * computed: the times above with that added.
 */
#define KIB(n) ((size_t)(n) << 10)
static const struct {
	size_t read; /* into pageable memory, whose end is never polled */
	size_t read_locked, write_locked;
} sizes[] = {
	[GDRI_ENGINE_POLLS] = { .read_locked = KIB(7), .write_locked = KIB(320) },
	[GDRI_ENGINE_SPINS] = { KIB(10), KIB(8), KIB(384) },
	[GDRI_ENGINE_SLEEPS] = { KIB(24), KIB(18), KIB(768) },
};

/*
 * A size holds for every kind of memory. AUTO: over a coherent link the CPU is taken to be faster,
 * unmeasured.
 */
static struct thresholds thresholds(const struct gdri_offload *a, size_t asked, bool to)
{
	if (!asked ||
	    (asked == BARCOPY_COPY_ENGINE_AUTO && a->pin->map_type == GDR_MAPPING_TYPE_CACHING))
		return (struct thresholds){ SIZE_MAX, SIZE_MAX };
	if (asked != BARCOPY_COPY_ENGINE_AUTO)
		return (struct thresholds){ asked, asked };
	if (to)
		return (struct thresholds){ SIZE_MAX, sizes[a->end[true]].write_locked };
	return (struct thresholds){ sizes[a->end[false]].read, sizes[a->end[true]].read_locked };
}

const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *a)
{
	a->base = gdri_copy_plan(a->pin->map_type);
	a->from = thresholds(a, a->read_min, false);
	a->to = thresholds(a, a->write_min, true);
	a->plan = *a->base;
	a->plan.large_to_min = least(&a->to);
	a->plan.large_from_min = least(&a->from);
	a->plan.large = large;
	return &a->plan;
}

static int engine_new(const struct gdri_region *region, const struct gdri_pin *pin,
		      struct gdri_cuda_engine **out)
{
	/* At the offsets of an imported dma-buf CUDA has something else. */
	if (!pin->va)
		return gdri_fail(ENOTSUP, "an imported dma-buf has no device address, which the "
					  "copy engine needs");
	if (pin->backend->id == BARCOPY_BACKEND_HOST)
		return gdri_fail(ENOTSUP, "the copy engine serves device memory only");
	if (!gdri_region_is_intact(region))
		return gdri_fail(EINVAL, "the memory has been freed since it was pinned");
	return gdri_cuda_engine_new(pin->va, pin->mapped_size, out);
}

int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin,
		     const barcopy_copy_options_t *options, struct gdri_offload **out)
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
	*a = (struct gdri_offload){ .read_min = options->engine_read_min,
				    .write_min = write_min,
				    .region = region,
				    .pin = pin };
	rc = engine_new(region, pin, &a->engine);
	if (rc) {
		free(a);
		return rc;
	}
	gdri_cuda_engine_poll(a->engine, a->end);
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
