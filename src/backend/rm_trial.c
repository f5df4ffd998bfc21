/* SPDX-License-Identifier: MIT */
/*
 * The whole way tried once for each GPU, before the first pin of anybody's memory. See rm.h.
 *
 * The structures of the resource manager are not documented as an interface, and a mapping of the
 * wrong pages would be somebody else's memory. So the first ranges that are pinned are our own: two
 * small allocations, which share one object on every driver seen, so that offsets count, and a larger
 * one. The GPU's copy engine writes a pattern that is looked for through the mapping; only when it
 * is there does the CPU write another, which the copy engine reads back. If anything differs the GPU is
 * not served, and the reason is kept. About 1 ms.
 *
 * The pattern differs from trial to trial: an old one still in memory proves nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda/cuda.h"
#include "base/process.h"
#include "base/error.h"
#include "base/log.h"
#include "copy/copy.h"
#include "backend/rm.h"

enum { SMALL = 4096, LARGE = 4 << 20, LOOK = 4096, BUFFERS = 3 };

enum { TRIALS = 3 }; /* so many that say nothing are enough */

/* One allocation of ours, and what the CPU sees of it. */
struct buffer {
	struct gdri_allocation memory;
	struct gdri_rm_range range;
	struct gdri_cuda_engine *engine;
	void *map;
	size_t mapped;
	gdr_mapping_type_t type; /* of that */
	uint64_t addr; /* its last bytes, to the GPU */
	char *cpu; /* and through the mapping */
	unsigned char pattern[LOOK];
};

GDRI_MUTEX(lock);

static void make_pattern(struct buffer *b, unsigned int nth)
{
	struct timespec now;
	unsigned int seed;

	clock_gettime(CLOCK_MONOTONIC, &now);
	seed = (unsigned int)(now.tv_nsec ^ now.tv_sec << 20) ^
	       (unsigned int)(b->memory.addr >> 9) ^ nth * 0x9e3779b9u;
	for (size_t i = 0; i < LOOK; i++)
		b->pattern[i] = (unsigned char)(rand_r(&seed) >> 8);
}

/*
 * Is it Device memory, where an unaligned load faults? The kernel's own load of the call's argument
 * answers without a signal: EFAULT, or EINVAL for its nonsense `how`.
 */
static bool refuses_unaligned(const void *map)
{
	return syscall(SYS_rt_sigprocmask, -1, (const char *)map + 1, NULL, 8) == -1 &&
	       errno == EFAULT;
}

/*
 * RM says where it has put a map: in BAR1, or where a coherent link has the memory, cached. To be called
 * cached, which needs fewer fences, both RM and CUDA must say so. On arm64 nvidia_mmap_helper() made
 * BAR1 Device memory before 590 (NV_PGPROT_WRITE_COMBINED_DEVICE, nv-pgprot.h), and does on some
 * machines still (rm_disable_iomap_wc()).
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
	return refuses_unaligned(map) ? GDR_MAPPING_TYPE_DEVICE : GDR_MAPPING_TYPE_WC;
}

/* *ours: what fails is not how rm gets at memory, but memory and copies of CUDA's for the trial. */
static int open_buffer(struct buffer *b, const struct gdri_rm_gpu *gpu, const char *no_look,
		       bool *ours)
{
	struct gdri_pin_request request = { .addr = b->memory.addr, .size = b->memory.size };
	int rc = gdri_pin_describe(&request);

	if (!rc)
		rc = gdri_cuda_engine_new(request.addr, request.size, &b->engine);
	*ours = rc;
	if (!rc)
		rc = gdri_rm_range_open(&b->range, gpu, &request, no_look);
	if (!rc)
		rc = gdri_rm_map(&b->range, request.mapped_size, false, &b->map);
	if (rc)
		return rc;
	b->mapped = request.mapped_size;
	b->type = type_of(gpu, b->range.objects[0].address, b->map);
	b->addr = request.addr + request.size - LOOK;
	b->cpu = (char *)b->map + (b->addr - request.va);
	return 0;
}

static void close_buffer(struct buffer *b)
{
	if (b->mapped)
		gdri_rm_unmap(&b->range, b->map, b->mapped);
	gdri_rm_range_close(&b->range);
	gdri_cuda_engine_free(b->engine);
	gdri_cuda_free(&b->memory);
}

static int by_gpu(struct buffer *b, bool to, unsigned char *host)
{
	return gdri_cuda_engine_copy(b->engine, to, host, false, b->addr, LOOK)
		       ? 0
		       : gdri_fail(EIO, "the copy engine could not reach the trial's memory");
}

/* All are written before any is looked at: two that are mixed up are told apart. */
static int compare(struct buffer *buffers, size_t count, const struct gdri_copy_plan *plan)
{
	static unsigned char seen[LOOK]; /* and try()'s buffers: under lock, off the stack of a caller */
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++) {
		make_pattern(&buffers[i], (unsigned int)i);
		rc = by_gpu(&buffers[i], true, buffers[i].pattern);
	}
	for (size_t i = 0; !rc && i < count; i++) {
		gdri_copy_from(plan, seen, buffers[i].cpu, LOOK);
		if (memcmp(seen, buffers[i].pattern, LOOK) != 0)
			rc = gdri_fail(ENOTSUP, "the mapping shows other memory than the GPU's");
	}
	for (size_t i = 0; !rc && i < count; i++) {
		make_pattern(&buffers[i], (unsigned int)(i + BUFFERS));
		gdri_copy_to(plan, buffers[i].cpu, buffers[i].pattern, LOOK);
		gdri_flush_word(plan, buffers[i].cpu);
	}
	for (size_t i = 0; !rc && i < count; i++) {
		rc = by_gpu(&buffers[i], false, seen);
		if (!rc && memcmp(seen, buffers[i].pattern, LOOK) != 0)
			rc = gdri_fail(ENOTSUP, "the GPU does not see what the CPU has written");
	}
	return rc;
}

/* Exportable memory is tried with the first of them. */
static const size_t sizes[BUFFERS] = { SMALL, SMALL, LARGE };

static int open_buffers(struct buffer *buffers, size_t want, size_t *count,
			const struct gdri_rm_gpu *gpu, enum gdri_allocation_kind kind,
			void *context, const char *no_look, bool *ours)
{
	for (*count = 0; *count < want;) {
		struct buffer *b = &buffers[*count];
		int rc = gdri_cuda_alloc(&b->memory, kind, gpu->ordinal, context, sizes[*count],
					 false);

		*ours = rc;
		if (!rc) {
			++*count;
			rc = open_buffer(b, gpu, no_look, ours);
		}
		if (!rc)
			continue;
		/* On a GPU that is full to the brim, or whose BAR1 is, the small ones have to do. */
		if (rc != -ENOMEM || sizes[b - buffers] != LARGE)
			return rc;
		if (*count == want)
			close_buffer(&buffers[--*count]);
		break;
	}
	*ours = false;
	return 0;
}

/* 0, or -errno with its text; *sure: a failure that says something of the way. */
static int try(const struct gdri_rm_gpu *gpu, enum gdri_allocation_kind kind, void *context,
	       const char *no_look, gdr_mapping_type_t *type, bool *sure)
{
	static struct buffer buffers[BUFFERS];
	struct gdri_text why = { .len = 0 };
	size_t want = kind == GDRI_ALLOCATION_PLAIN ? BUFFERS : 1, count;
	bool ours;
	int rc;

	memset(buffers, 0, sizeof(buffers));
	rc = open_buffers(buffers, want, &count, gpu, kind, context, no_look, &ours);
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
	*sure = rc != -EIO && !ours;
	return rc ? gdri_fail(-rc, "%s", why.s) : 0;
}

/*
 * Short of something the trial says nothing: -ENOMEM, and it is made again. A failure that nobody knows
 * may pass: *trial is what serves the one pin, and some such trials are a verdict.
 */
static int try_locked(struct gdri_rm_gpu *gpu, void *context, struct gdri_rm_trial *trial)
{
	bool sure, sure_of_vmm = true;
	int rc = try(gpu, GDRI_ALLOCATION_PLAIN, context, NULL, &trial->type, &sure);

	trial->verdict = GDRI_RM_ANY;
	if (gdri_is_short(rc))
		return rc;
	if (rc) {
		snprintf(trial->reason, sizeof(trial->reason), "%s", gdri_error_text());
		rc = try(gpu, GDRI_ALLOCATION_VMM, context, trial->reason, &trial->type,
			 &sure_of_vmm);
		if (gdri_is_short(rc))
			return rc;
		trial->verdict = rc ? GDRI_RM_NONE : GDRI_RM_EXPORTABLE;
		sure &= sure_of_vmm;
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
