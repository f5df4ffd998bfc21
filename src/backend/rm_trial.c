/* SPDX-License-Identifier: MIT */
/*
 * A trial of rm on each GPU, before the first pin of a caller's memory. See rm_client.h.
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
#include "backend/rm_range.h"
#include "backend/rm_trial.h"

enum { SMALL = 4096, LARGE = 4 << 20, COMPARED = 4096, BUFFERS = 3 };

/* Exportable memory is tried with the first one only. */
static const size_t sizes[BUFFERS] = { SMALL, SMALL, LARGE };

#define SECOND	     1000000000ull
#define LONGEST_WAIT (3600 * SECOND)

/* One try, under lock; too large for a caller's stack. */
static struct {
	const struct gdri_rm_gpu *gpu;
	const char *only_exportable;
	bool wrong; /* bytes, or types of mappings */
	bool unseen; /* no export can be observed */
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

static int fail_wrong(const char *text)
{
	attempt.wrong = true;
	return gdri_fail(ENOTSUP, "%s", text);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

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
		rc = gdri_cuda_engine_new(request.addr, request.size, &b->engine, NULL);
	if (!rc)
		rc = gdri_rm_range_open(attempt.gpu, &request, attempt.only_exportable, &b->range,
					&attempt.unseen);
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
			rc = fail_wrong("the mapping shows other memory than the GPU's");
	}
	for (struct buffer *b = attempt.buffers; !rc && b < end; b++) {
		make_pattern(b, (unsigned int)(b - attempt.buffers + BUFFERS));
		gdri_copy_to(plan, b->cpu, b->pattern, COMPARED);
		gdri_flush_word(plan, b->cpu);
	}
	for (struct buffer *b = attempt.buffers; !rc && b < end; b++) {
		rc = by_gpu(b, false, attempt.seen);
		if (!rc && memcmp(attempt.seen, b->pattern, COMPARED) != 0)
			rc = fail_wrong("the GPU does not see what the CPU has written");
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
		if (!rc)
			rc = open_buffer(&attempt.buffers[attempt.count++]);
	}
	/* If the GPU, or its BAR1, has no room for the large one, the small ones have to do. */
	if (rc != -ENOMEM || sizes[i - 1] != LARGE)
		return rc;
	if (attempt.count == i)
		close_buffer(&attempt.buffers[--attempt.count]);
	return 0;
}

/* 0 or -errno; *never: it will be the same each time. */
static int try(struct gdri_rm_gpu *gpu, enum gdri_allocation_kind kind, void *context,
	       const char *only_exportable, gdr_mapping_type_t *type, bool *never)
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
			rc = fail_wrong("two mappings are of different types");
	if (!rc)
		rc = compare(gdri_copy_plan(*type));
	if (rc)
		gdri_text_add(&why, "%s", gdri_error_text());
	while (attempt.count)
		close_buffer(&attempt.buffers[--attempt.count]);
	*never = rc && (attempt.wrong || attempt.unseen);
	gpu->wrong |= attempt.wrong;
	return rc ? gdri_fail(-rc, "%s", why.s) : 0;
}

#define UNKNOWN_FLAVOUR                                                                          \
	" (the driver's flavour cannot be read here; no dma-buf is exported by the proprietary " \
	"one, nor in gVisor without its capability \"rdma\")"

/* -ENOMEM and its like leave the verdict as it is. *settled: no later trial can differ. */
static int try_locked(struct gdri_rm_gpu *gpu, void *context, bool *settled)
{
	struct gdri_rm_trial *trial = &gpu->trial;
	gdr_mapping_type_t type;
	int rc = -ENOTSUP;

	*settled = true;
	if (!gpu->never_any) {
		rc = try(gpu, GDRI_ALLOCATION_PLAIN, context, NULL, &type, &gpu->never_any);
		if (gdri_is_short(rc))
			return rc;
		snprintf(trial->reason, sizeof(trial->reason), "%s%s", rc ? gdri_error_text() : "",
			 rc && !attempt.wrong && gdri_rm_flavour() == GDRI_RM_UNKNOWN
				 ? UNKNOWN_FLAVOUR
				 : "");
	}
	if (rc) {
		rc = try(gpu, GDRI_ALLOCATION_VMM, context, trial->reason, &type, settled);
		if (gdri_is_short(rc))
			return rc;
		*settled |= !rc && gpu->never_any;
		trial->verdict = rc ? GDRI_RM_NONE : GDRI_RM_EXPORTABLE;
	} else {
		trial->verdict = GDRI_RM_ANY;
	}
	trial->type = type;
	return 0;
}

/* One warning for each GPU, however often it is tried. */
static void say(struct gdri_rm_gpu *gpu)
{
	static const char *const texts[] = {
		[GDRI_RM_ANY] = "any device memory is served",
		[GDRI_RM_EXPORTABLE] = "exportable VMM memory alone is served: ",
		[GDRI_RM_NONE] = "not served: ",
	};
	const struct gdri_rm_trial *now = &gpu->trial;
	bool warn = now->verdict != GDRI_RM_ANY && !gpu->warned;

	gpu->warned |= warn;
	gdri_log(warn ? GDRI_LOG_WARN : GDRI_LOG_DEBUG,
		 "rm: GPU %d (%04x:%02x:%02x.0, minor %u): %s%s", gpu->ordinal, gpu->pci.domain,
		 gpu->pci.bus, gpu->pci.device, gpu->minor, texts[now->verdict], now->reason);
}

/* Before the first pin, and when the verdict's time is over. */
static int verify_locked(struct gdri_rm_gpu *gpu, void *context)
{
	bool served = gpu->trial.verdict == GDRI_RM_EXPORTABLE, settled;
	uint64_t now = now_ns();
	int rc;

	if (gpu->trial.verdict != GDRI_RM_UNTRIED && (!gpu->again_ns || now < gpu->again_ns))
		return 0;
	rc = try_locked(gpu, context, &settled);
	if (rc && !served)
		return gdri_fail(-rc, "the first pin on GPU %d tries memory of its own: %s",
				 gpu->ordinal, gdri_error_text());
	if (!rc)
		say(gpu);
	gpu->wait_ns = gpu->wait_ns ? 2 * gpu->wait_ns : SECOND;
	if (gpu->wait_ns > LONGEST_WAIT)
		gpu->wait_ns = LONGEST_WAIT;
	gpu->again_ns = !rc && settled ? 0 : now + gpu->wait_ns;
	return 0;
}

int gdri_rm_trial(struct gdri_rm_gpu *gpu, void *context, struct gdri_rm_trial *trial)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = verify_locked(gpu, context);
	*trial = gpu->trial;
	pthread_mutex_unlock(&lock);
	if (!rc && trial->verdict == GDRI_RM_NONE)
		rc = gdri_fail(ENOTSUP, "the trial on GPU %d failed: %s", gpu->ordinal,
			       trial->reason);
	return rc;
}
