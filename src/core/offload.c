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

/* For reads, by device: from where the engine is ahead on this machine. */
enum { DEVICES = 32, TRIALS = 6 };
static struct thresholds known[DEVICES]; /* 0: not measured */
GDRI_MUTEX(known_lock);

void gdri_offload_know(int device, size_t any, size_t page_locked)
{
	pthread_mutex_lock(&known_lock);
	known[device % DEVICES] = (struct thresholds){ any, page_locked };
	pthread_mutex_unlock(&known_lock);
}

/* Nanoseconds of the fastest read; 0: the engine refuses. addr 0: by the mapping. */
static uint64_t time_read(const struct gdri_offload *a, void *host, const void *map, uint64_t addr,
			  bool locked)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < TRIALS; i++) {
		uint64_t start = gdri_now_ns(), ns;

		if (!addr)
			gdri_copy_from(a->base, host, map, TRIAL_SIZE);
		else if (!gdri_cuda_engine_copy(a->engine, false, host, locked, addr, TRIAL_SIZE))
			return 0;
		ns = gdri_now_ns() - start;
		best = ns < best ? ns : best;
	}
	return best ? best : 1;
}

/* The mapping's time grows with the size, the engine's hardly up to 8 KiB: where are they equal? */
static size_t crossing(uint64_t map_ns, uint64_t engine_ns)
{
	double size = (double)TRIAL_SIZE * (double)engine_ns / (double)map_ns;

	if (!engine_ns || size > GDRI_ENGINE_MOST)
		return GDRI_ENGINE_MOST;
	return size < GDRI_ENGINE_LEAST ? GDRI_ENGINE_LEAST : (size_t)size;
}

/* Some 150 us, once for each device of a process. False: the pin is shorter than a trial. */
static bool measure(const struct gdri_offload *a, struct thresholds *t)
{
	const struct gdri_pin *pin = a->pin;
	uint64_t low = a->region->low > pin->va ? a->region->low : pin->va;
	const uint8_t *map = (const uint8_t *)pin->map + (low - pin->va);
	void *locked = gdri_cuda_engine_scratch(a->engine, TRIAL_SIZE);
	uint8_t pageable[TRIAL_SIZE];
	uint64_t map_ns;

	if (a->region->high < low + TRIAL_SIZE || pin->map_length < low - pin->va + TRIAL_SIZE ||
	    gdri_region_verify(a->region, NULL, low, TRIAL_SIZE) != GDRI_VALID)
		return false;
	map_ns = time_read(a, pageable, map, 0, false);
	t->any = crossing(map_ns, time_read(a, pageable, NULL, low, false));
	t->page_locked = locked ? crossing(map_ns, time_read(a, locked, NULL, low, true)) : t->any;
	return true;
}

static struct thresholds for_reads(const struct gdri_offload *a)
{
	struct thresholds t = { GDRI_ENGINE_MIN_FROM, GDRI_ENGINE_MIN_FROM_LOCKED };
	int device = a->pin->device;

	if (device < 0 || device >= DEVICES)
		return t;
	pthread_mutex_lock(&known_lock);
	if (known[device].any || measure(a, &known[device]))
		t = known[device];
	pthread_mutex_unlock(&known_lock);
	return t;
}

/*
 * A size holds for every kind of memory. AUTO: over a coherent link the CPU is taken to be faster,
 * unmeasured; writes are not measured here, as a trial would write to the caller's memory.
 */
static struct thresholds thresholds(const struct gdri_offload *a, size_t asked, bool to)
{
	if (!asked ||
	    (asked == BARCOPY_COPY_ENGINE_AUTO && a->pin->map_type == GDR_MAPPING_TYPE_CACHING))
		return (struct thresholds){ SIZE_MAX, SIZE_MAX };
	if (asked != BARCOPY_COPY_ENGINE_AUTO)
		return (struct thresholds){ asked, asked };
	return to ? (struct thresholds){ GDRI_ENGINE_MIN_TO, GDRI_ENGINE_MIN_TO_LOCKED }
		  : for_reads(a);
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
	gdri_cuda_engine_poll(a->engine);
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
