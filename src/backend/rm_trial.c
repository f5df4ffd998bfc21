/* SPDX-License-Identifier: MIT */
/*
 * A trial of rm on each GPU, before the first pin of a caller's memory. See rm.h.
 *
 * RM's structures are not documented as an interface, and a mapping of the wrong pages would show
 * another process's memory. So the library first pins memory of its own: two small allocations,
 * which share one object on every driver seen, so that offsets matter, and a larger one. The copy
 * engine writes a pattern, which is compared through the mapping; only then does the CPU write
 * another pattern, which the copy engine reads back. If any byte differs, rm does not serve that
 * GPU, and the reason is kept. The trial takes about 1 ms.
 *
 * Each trial has patterns of its own: those of an earlier one may still be in memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/process.h"
#include "copy/copy.h"
#include "backend/rm.h"

enum { SMALL = 4096, LARGE = 4 << 20, COMPARED = 4096, BUFFERS = 3 };

/* Exportable memory is tried with the first one only. */
static const size_t sizes[BUFFERS] = { SMALL, SMALL, LARGE };

enum { TRIALS = 3 }; /* after so many inconclusive ones the last result is the verdict */

/* One try, under lock; too large for a caller's stack. */
static struct {
	const struct gdri_rm_gpu *gpu;
	const char *only_exportable;
	bool setup; /* the failure lies in the memory or the engine: nothing about rm */
	size_t count;
	struct buffer {
		struct gdri_allocation memory;
		struct gdri_rm_range *range;
		struct gdri_cuda_engine *engine;
		void *map;
		size_t mapped;
		gdr_mapping_type_t type; /* of the mapping */
		uint64_t addr; /* of the last bytes, which are compared, for the GPU */
		char *cpu; /* and in the mapping */
		unsigned char pattern[COMPARED];
	} buffers[BUFFERS];
	unsigned char seen[COMPARED];
} attempt;

GDRI_MUTEX(lock); /* guards each GPU's verdict */

static void make_pattern(struct buffer *b, unsigned int nth)
{
	struct timespec now;
	unsigned int seed;

	clock_gettime(CLOCK_MONOTONIC, &now);
	seed = (unsigned int)(now.tv_nsec ^ now.tv_sec << 20) ^
	       (unsigned int)(b->memory.addr >> 9) ^ nth * 0x9e3779b9u;
	for (size_t i = 0; i < COMPARED; i++)
		b->pattern[i] = (unsigned char)(rand_r(&seed) >> 8);
}

/*
 * RM reports where it has put a map: in BAR1, or where a coherent link has the memory. A mapping
 * counts as cached, which needs fewer fences, if both RM and CUDA say so. On arm64,
 * nvidia_mmap_helper() mapped BAR1 as Device memory before 590 (NV_PGPROT_WRITE_COMBINED_DEVICE,
 * nv-pgprot.h), and still does on some machines (rm_disable_iomap_wc()); an unaligned load from
 * Device memory faults.
 */
static gdr_mapping_type_t type_of(const struct gdri_rm_gpu *gpu, uint64_t address, const void *map)
{
	bool in_bar1 = address - gpu->bar1 < gpu->bar1_size;

	if (gpu->coherent && !in_bar1)
		return GDR_MAPPING_TYPE_CACHING;
#ifdef __aarch64__
	unsigned int major = gdri_rm_driver_major();

	if (major && major < RM_FIRST_WITH_NORMAL_BAR1)
		return GDR_MAPPING_TYPE_DEVICE;
#endif
	return gdri_load_errno((const char *)map + 1) == EFAULT ? GDR_MAPPING_TYPE_DEVICE
								: GDR_MAPPING_TYPE_WC;
}

static int open_buffer(struct buffer *b)
{
	struct gdri_pin_request request = { .addr = b->memory.addr, .size = b->memory.size };
	int rc = gdri_pin_describe(&request);

	if (!rc)
		rc = gdri_cuda_engine_new(request.addr, request.size, &b->engine);
	attempt.setup = rc;
	if (!rc)
		rc = gdri_rm_range_open(attempt.gpu, &request, attempt.only_exportable, &b->range);
	if (!rc)
		rc = gdri_rm_map(b->range, request.mapped_size, false, &b->map);
	if (rc)
		return rc;
	b->mapped = request.mapped_size;
	b->type = type_of(attempt.gpu, b->range->objects[0].address, b->map);
	b->addr = request.addr + request.size - COMPARED;
	b->cpu = (char *)b->map + (b->addr - request.va);
	return 0;
}

static void close_buffer(struct buffer *b)
{
	if (b->mapped)
		gdri_rm_unmap(b->range, b->map, b->mapped);
	gdri_rm_range_close(b->range);
	gdri_cuda_engine_free(b->engine);
	gdri_cuda_free(&b->memory);
}

static int by_gpu(struct buffer *b, bool to, unsigned char *host)
{
	return gdri_cuda_engine_copy(b->engine, to, host, false, b->addr, COMPARED)
		       ? 0
		       : gdri_fail(EIO, "the copy engine could not reach the trial's memory");
}

/* Writes all patterns before it compares any, to find two buffers in each other's place. */
static int compare(const struct gdri_copy_plan *plan)
{
	struct buffer *end = attempt.buffers + attempt.count;
	int rc = 0;

	for (struct buffer *b = attempt.buffers; !rc && b < end; b++) {
		make_pattern(b, (unsigned int)(b - attempt.buffers));
		rc = by_gpu(b, true, b->pattern);
	}
	for (struct buffer *b = attempt.buffers; !rc && b < end; b++) {
		gdri_copy_from(plan, attempt.seen, b->cpu, COMPARED);
		if (memcmp(attempt.seen, b->pattern, COMPARED) != 0)
			rc = gdri_fail(ENOTSUP, "the mapping shows other memory than the GPU's");
	}
	for (struct buffer *b = attempt.buffers; !rc && b < end; b++) {
		make_pattern(b, (unsigned int)(b - attempt.buffers + BUFFERS));
		gdri_copy_to(plan, b->cpu, b->pattern, COMPARED);
		gdri_flush_word(plan, b->cpu);
	}
	for (struct buffer *b = attempt.buffers; !rc && b < end; b++) {
		rc = by_gpu(b, false, attempt.seen);
		if (!rc && memcmp(attempt.seen, b->pattern, COMPARED) != 0)
			rc = gdri_fail(ENOTSUP, "the GPU does not see what the CPU has written");
	}
	return rc;
}

static int open_buffers(enum gdri_allocation_kind kind, void *context)
{
	size_t i, want = kind == GDRI_ALLOCATION_PLAIN ? BUFFERS : 1;
	int rc = 0;

	for (i = 0; !rc && i < want; i++) {
		rc = gdri_cuda_alloc(&attempt.buffers[i].memory, kind, attempt.gpu->ordinal,
				     context, sizes[i], false, -1);
		attempt.setup = rc;
		if (!rc)
			rc = open_buffer(&attempt.buffers[attempt.count++]);
	}
	/* If the GPU, or its BAR1, has no room for the large one, the small ones have to do. */
	if (rc != -ENOMEM || sizes[i - 1] != LARGE)
		return rc;
	if (attempt.count == i)
		close_buffer(&attempt.buffers[--attempt.count]);
	attempt.setup = false;
	return 0;
}

/* 0 or -errno; *sure: the failure says something about rm. */
static int try(const struct gdri_rm_gpu *gpu, enum gdri_allocation_kind kind, void *context,
	       const char *only_exportable, gdr_mapping_type_t *type, bool *sure)
{
	struct gdri_text why = { .len = 0 };
	int rc;

	memset(&attempt, 0, sizeof(attempt));
	attempt.gpu = gpu;
	attempt.only_exportable = only_exportable;
	rc = open_buffers(kind, context);
	*type = attempt.buffers[0].type;
	for (size_t i = 1; !rc && i < attempt.count; i++)
		if (attempt.buffers[i].type != *type)
			rc = gdri_fail(ENOTSUP, "two mappings are of different types");
	if (!rc)
		rc = compare(gdri_copy_plan(*type));
	if (rc)
		gdri_text_add(&why, "%s", gdri_error_text());
	while (attempt.count)
		close_buffer(&attempt.buffers[--attempt.count]);
	*sure = rc != -EIO && !attempt.setup;
	return rc ? gdri_fail(-rc, "%s", why.s) : 0;
}

/*
 * -ENOMEM and its like, where the trial says nothing, leave no verdict. Neither does another
 * inconclusive failure, which may pass, up to TRIALS of them: *trial then serves this one pin.
 */
static int try_locked(struct gdri_rm_gpu *gpu, void *context, struct gdri_rm_trial *trial)
{
	bool sure, sure_too = true;
	int rc = try(gpu, GDRI_ALLOCATION_PLAIN, context, NULL, &trial->type, &sure);

	trial->verdict = GDRI_RM_ANY;
	if (gdri_is_short(rc))
		return rc;
	if (rc) {
		snprintf(trial->reason, sizeof(trial->reason), "%s", gdri_error_text());
		rc = try(gpu, GDRI_ALLOCATION_VMM, context, trial->reason, &trial->type, &sure_too);
		if (gdri_is_short(rc))
			return rc;
		trial->verdict = rc ? GDRI_RM_NONE : GDRI_RM_EXPORTABLE;
		sure &= sure_too;
	}
	if (trial->verdict == GDRI_RM_ANY || sure || ++gpu->inconclusive == TRIALS)
		gpu->trial = *trial;
	return 0;
}

static void say(const struct gdri_rm_gpu *gpu)
{
	static const char *const texts[] = {
		[GDRI_RM_ANY] = "any device memory is served",
		[GDRI_RM_EXPORTABLE] = "exportable VMM memory alone is served: ",
		[GDRI_RM_NONE] = "not served: ",
	};
	const struct gdri_rm_trial *now = &gpu->trial;

	if (now->verdict != GDRI_RM_UNTRIED)
		gdri_log(now->verdict == GDRI_RM_ANY ? GDRI_LOG_DEBUG : GDRI_LOG_WARN,
			 "rm: GPU %d (%04x:%02x:%02x.0, minor %u): %s%s", gpu->ordinal,
			 gpu->pci.domain, gpu->pci.bus, gpu->pci.device, gpu->minor,
			 texts[now->verdict], now->reason);
}

int gdri_rm_trial(struct gdri_rm_gpu *gpu, void *context, struct gdri_rm_trial *trial)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	*trial = gpu->trial;
	if (trial->verdict == GDRI_RM_UNTRIED) {
		rc = try_locked(gpu, context, trial);
		if (!rc)
			say(gpu);
	}
	pthread_mutex_unlock(&lock);
	if (!rc && trial->verdict == GDRI_RM_NONE)
		rc = gdri_fail(ENOTSUP, "the trial on GPU %d failed: %s", gpu->ordinal,
			       trial->reason);
	return rc;
}
