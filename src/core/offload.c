// SPDX-License-Identifier: MIT
/* See offload.h. */
#include "core/offload.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "cuda/cuda.h"
#include "base/error.h"
#include "base/process.h"
#include "copy/rows.h"
#include "copy/tune.h"
#include "copy/word.h"

#define TRIAL_SIZE ((size_t)4 << 10)

/* The copy engine copies from so many bytes on, by what the host's side is; SIZE_MAX: never. */
struct by_size {
	size_t any, page_locked;
};

struct gdri_offload {
	struct gdri_copy_plan plan; /* first: the plan's copies find the rest through it */
	const struct gdri_copy_plan *base;
	struct gdri_cuda_engine *engine;
	struct by_size from, to; /* when the copy engine is asked, now; */
	bool auto_from, auto_to; /* that is this library's choice, */
	struct by_size asked_from, asked_to; /* or the caller's */
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
static bool by_engine(struct gdri_offload *a, void *dst, const void *src, size_t size, bool to,
		      bool locked)
{
	uintptr_t map = to ? (uintptr_t)dst : (uintptr_t)src;
	uint64_t addr = a->pin->va + (map - (uintptr_t)a->pin->map);
	void *host = to ? (void *)(uintptr_t)src : dst;
	bool done;

	gdri_drain(a->base, (const void *)(map & ~(uintptr_t)3));
	/* The engine follows the address, the mapping the memory: they may have parted since the pin. */
	done = gdri_region_verify(a->region, addr, size) == GDRI_VALID &&
	       gdri_cuda_engine_copy(a->engine, to, host, locked, addr, size);
	gdri_count(a->pin->counters, done ? GDRI_COUNT_ENGINE_COPY : GDRI_COUNT_ENGINE_FALLBACK, 1);
	gdri_fence(a->base, BARCOPY_FENCE_FULL);
	return done;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Is it for the copy engine? *locked: the host's memory is page-locked, which CUDA is asked. */
static bool is_for_engine(const struct by_size *min, const void *host, size_t size, bool *locked)
{
	if (size < least(min->any, min->page_locked))
		return false;
	*locked = gdri_cuda_is_page_locked(host);
	return size >= (*locked ? min->page_locked : min->any);
}

/* The plan's, for copies of so many bytes that the copy engine may be ahead. */
static void large(const struct gdri_copy_plan *plan, void *dst, const void *src, size_t size,
		  bool to)
{
	struct gdri_offload *a = (struct gdri_offload *)(uintptr_t)plan;
	bool locked;

	if (is_for_engine(to ? &a->to : &a->from, to ? src : dst, size, &locked) &&
	    by_engine(a, dst, src, size, to, locked))
		return;
	if (to)
		gdri_copy_to(a->base, dst, src, size);
	else
		gdri_copy_from(a->base, dst, src, size);
}

/* ---- AUTO ------------------------------------------------------------------------------------------ */

static const struct by_size never = { SIZE_MAX, SIZE_MAX };

/* Reads, by device: where the copy engine gets ahead on this machine. */
enum { DEVICES = 32, TRIALS = 6 };
static struct by_size known[DEVICES]; /* 0: not measured */
GDRI_MUTEX(known_lock);

void gdri_offload_know(int device, size_t any, size_t page_locked)
{
	pthread_mutex_lock(&known_lock);
	known[device % DEVICES] = (struct by_size){ any, page_locked };
	pthread_mutex_unlock(&known_lock);
}

/* Nanoseconds that a read takes at best; 0: the engine does not do it. addr 0: by the mapping. */
static uint64_t time_read(const struct gdri_offload *a, void *host, const void *map, size_t size,
			  uint64_t addr, bool locked)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < TRIALS; i++) {
		uint64_t start = gdri_now_ns(), ns;

		if (!addr)
			gdri_copy_from(a->base, host, map, size);
		else if (!gdri_cuda_engine_copy(a->engine, false, host, locked, addr, size))
			return 0;
		ns = gdri_now_ns() - start;
		best = ns < best ? ns : best;
	}
	return best ? best : 1;
}

/*
 * A read by the mapping takes time by its size, one by the engine hardly more for 8 KiB than for 8 bytes: so
 * they cross at the size for which the mapping needs what the engine needs.
 */
static size_t crossing(uint64_t map_ns, uint64_t engine_ns)
{
	double size = (double)TRIAL_SIZE * (double)engine_ns / (double)map_ns;

	if (!engine_ns || size > GDRI_ENGINE_MOST)
		return GDRI_ENGINE_MOST;
	return size < GDRI_ENGINE_LEAST ? GDRI_ENGINE_LEAST : (size_t)size;
}

/* Some 150 us, once a process and device. False where the pin has not so many bytes to be read. */
static bool measure(const struct gdri_offload *a, struct by_size *sizes)
{
	const struct gdri_pin *pin = a->pin;
	uint64_t low = a->region->low > pin->va ? a->region->low : pin->va;
	const uint8_t *map = (const uint8_t *)pin->map + (low - pin->va);
	void *locked = gdri_cuda_engine_scratch(a->engine, TRIAL_SIZE);
	uint8_t pageable[TRIAL_SIZE];
	uint64_t map_ns;

	if (a->region->high < low + TRIAL_SIZE || pin->map_length < low - pin->va + TRIAL_SIZE ||
	    gdri_region_verify(a->region, low, TRIAL_SIZE) != GDRI_VALID)
		return false;
	map_ns = time_read(a, pageable, map, TRIAL_SIZE, 0, false);
	sizes->any = crossing(map_ns, time_read(a, pageable, NULL, TRIAL_SIZE, low, false));
	sizes->page_locked = sizes->any;
	if (locked)
		sizes->page_locked =
			crossing(map_ns, time_read(a, locked, NULL, TRIAL_SIZE, low, true));
	return true;
}

/*
 * What AUTO is for reads through this mapping. The CPU's cached loads of a coherent link were never measured
 * beside the copy engine and should be ahead: they stay with the CPU.
 */
static struct by_size measured_from(const struct gdri_offload *a)
{
	struct by_size sizes = { GDRI_ENGINE_MIN_FROM, GDRI_ENGINE_MIN_FROM_LOCKED };
	int device = a->pin->device;

	if (a->pin->map_type == GDR_MAPPING_TYPE_CACHING)
		return never;
	if (device < 0 || device >= DEVICES)
		return sizes;
	pthread_mutex_lock(&known_lock);
	if (!known[device].any && measure(a, &sizes))
		known[device] = sizes;
	if (known[device].any)
		sizes = known[device];
	pthread_mutex_unlock(&known_lock);
	return sizes;
}

/* A trial of writes would be one on the caller's memory, so these are measurements of two machines. */
static struct by_size measured_to(const struct gdri_offload *a)
{
	if (a->pin->map_type == GDR_MAPPING_TYPE_CACHING)
		return never;
	return (struct by_size){ GDRI_ENGINE_MIN_TO, GDRI_ENGINE_MIN_TO_LOCKED };
}

/* ---- options --------------------------------------------------------------------------------------- */

const struct gdri_copy_plan *gdri_offload_plan(struct gdri_offload *a)
{
	struct gdri_copy_plan *plan = &a->plan;

	a->base = gdri_copy_plan(a->pin->map_type);
	a->from = a->auto_from ? measured_from(a) : a->asked_from;
	a->to = a->auto_to ? measured_to(a) : a->asked_to;
	*plan = *a->base;
	plan->large_to_min = least(a->to.any, a->to.page_locked);
	plan->large_from_min = least(a->from.any, a->from.page_locked);
	plan->large = large;
	return plan;
}

/* A size that is asked for holds for every kind of memory. */
static struct by_size by_option(size_t asked)
{
	return asked && asked != BARCOPY_COPY_ENGINE_AUTO ? (struct by_size){ asked, asked }
							  : never;
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
	if (region->part_count && !gdri_region_is_intact(region))
		return gdri_fail(EINVAL, "the memory has been freed since it was pinned");
	return gdri_cuda_engine_new(pin->va, pin->mapped_size, out);
}

int gdri_offload_new(const struct gdri_region *region, const struct gdri_pin *pin,
		     const barcopy_copy_options_t *options, struct gdri_offload **out)
{
	size_t from = options ? options->engine_read_min : 0;
	/* The GPU heeds no page protection of ours. */
	size_t to = options && !pin->read_only ? options->engine_write_min : 0;
	struct gdri_offload *a;
	int rc;

	*out = NULL;
	if (!from && !to)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return gdri_fail(ENOMEM, "no memory for copy options");
	a->auto_from = from == BARCOPY_COPY_ENGINE_AUTO;
	a->auto_to = to == BARCOPY_COPY_ENGINE_AUTO;
	a->asked_from = by_option(from);
	a->asked_to = by_option(to);
	a->region = region;
	a->pin = pin;
	rc = engine_new(region, pin, &a->engine);
	if (rc) {
		gdri_offload_free(a);
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
