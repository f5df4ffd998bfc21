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
#include "base/log.h"
#include "copy/copy.h"
#include "backend/rm.h"

enum { SMALL = 4096, LARGE = 4 << 20, COMPARED = 4096, BUFFERS = 3 };

/* Exportable memory is tried with the first one only. */
static const size_t sizes[BUFFERS] = { SMALL, SMALL, LARGE };

enum { TRIALS = 3 }; /* after so many inconclusive ones the last result is the verdict */

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
};

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

/* *setup: the failure lies in the trial's own memory or copy engine, and says nothing about rm. */
static int open_buffer(struct buffer *b, const struct gdri_rm_gpu *gpu, const char *only_exportable,
		       bool *setup)
{
	struct gdri_pin_request request = { .addr = b->memory.addr, .size = b->memory.size };
	int rc = gdri_pin_describe(&request);

	if (!rc)
		rc = gdri_cuda_engine_new(request.addr, request.size, &b->engine);
	*setup = rc;
	if (!rc)
		rc = gdri_rm_range_open(gpu, &request, only_exportable, &b->range);
	if (!rc)
		rc = gdri_rm_map(b->range, request.mapped_size, false, &b->map);
	if (rc)
		return rc;
	b->mapped = request.mapped_size;
	b->type = type_of(gpu, b->range->objects[0].address, b->map);
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
static int compare(struct buffer *buffers, size_t count, const struct gdri_copy_plan *plan)
{
	static unsigned char seen[COMPARED]; /* under lock; too large for a caller's stack */
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++) {
		make_pattern(&buffers[i], (unsigned int)i);
		rc = by_gpu(&buffers[i], true, buffers[i].pattern);
	}
	for (size_t i = 0; !rc && i < count; i++) {
		gdri_copy_from(plan, seen, buffers[i].cpu, COMPARED);
		if (memcmp(seen, buffers[i].pattern, COMPARED) != 0)
			rc = gdri_fail(ENOTSUP, "the mapping shows other memory than the GPU's");
	}
	for (size_t i = 0; !rc && i < count; i++) {
		make_pattern(&buffers[i], (unsigned int)(i + BUFFERS));
		gdri_copy_to(plan, buffers[i].cpu, buffers[i].pattern, COMPARED);
		gdri_flush_word(plan, buffers[i].cpu);
	}
	for (size_t i = 0; !rc && i < count; i++) {
		rc = by_gpu(&buffers[i], false, seen);
		if (!rc && memcmp(seen, buffers[i].pattern, COMPARED) != 0)
			rc = gdri_fail(ENOTSUP, "the GPU does not see what the CPU has written");
	}
	return rc;
}

static int open_buffers(struct buffer *buffers, size_t want, size_t *count,
			const struct gdri_rm_gpu *gpu, enum gdri_allocation_kind kind,
			void *context, const char *only_exportable, bool *setup)
{
	size_t i;
	int rc = 0;

	*count = 0;
	for (i = 0; !rc && i < want; i++) {
		struct buffer *b = &buffers[i];

		rc = gdri_cuda_alloc(&b->memory, kind, gpu->ordinal, context, sizes[i], false, -1);
		*setup = rc;
		if (!rc) {
			++*count;
			rc = open_buffer(b, gpu, only_exportable, setup);
		}
	}
	/* If the GPU, or its BAR1, has no room for the large one, the small ones have to do. */
	if (rc != -ENOMEM || sizes[i - 1] != LARGE)
		return rc;
	if (*count == i)
		close_buffer(&buffers[--*count]);
	*setup = false;
	return 0;
}

/* 0 or -errno; *sure: the failure says something about rm. */
static int try(const struct gdri_rm_gpu *gpu, enum gdri_allocation_kind kind, void *context,
	       const char *only_exportable, gdr_mapping_type_t *type, bool *sure)
{
	static struct buffer buffers[BUFFERS]; /* likewise */
	struct gdri_text why = { .len = 0 };
	size_t want = kind == GDRI_ALLOCATION_PLAIN ? BUFFERS : 1, count;
	bool setup;
	int rc;

	memset(buffers, 0, sizeof(buffers));
	rc = open_buffers(buffers, want, &count, gpu, kind, context, only_exportable, &setup);
	for (size_t i = 1; !rc && i < count; i++)
		if (buffers[i].type != buffers[0].type)
			rc = gdri_fail(ENOTSUP, "two mappings are of different types");
	if (!rc) {
		*type = buffers[0].type;
		rc = compare(buffers, count, gdri_copy_plan(*type));
	}
	if (rc)
		gdri_text_add(&why, "%s", gdri_error_text());
	while (count)
		close_buffer(&buffers[--count]);
	*sure = rc != -EIO && !setup;
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
	const struct gdri_rm_trial *t = &gpu->trial;

	if (t->verdict != GDRI_RM_UNTRIED)
		gdri_log(t->verdict == GDRI_RM_ANY ? GDRI_LOG_DEBUG : GDRI_LOG_WARN,
			 "rm: GPU %d (%04x:%02x:%02x.0, minor %u): %s%s", gpu->ordinal,
			 gpu->pci.domain, gpu->pci.bus, gpu->pci.device, gpu->minor,
			 texts[t->verdict], t->reason);
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
