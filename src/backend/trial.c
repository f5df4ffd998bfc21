/* SPDX-License-Identifier: MIT */
/*
 * A trial of rm or dmabuf on each GPU, before the first pin of this process's memory is served.
 *
 * RM's structures are not documented as an interface, a driver may map a part of a dma-buf, and a
 * mapping of the wrong pages would show another process's memory. So the backend first pins memory
 * of the library: two small allocations, which share one object on every driver seen, and a larger
 * one. Where there is room it pins from the second GPU page on, so that the offset in the object is
 * not 0. The copy engine writes a pattern, which is compared through the mapping; only then does
 * the CPU write another pattern, which the copy engine reads back. If any byte differs, the backend
 * does not serve that GPU, and the reason is kept. The trial takes about 1 ms.
 *
 * Each trial has patterns of its own: those of an earlier one may still be in memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "copy/copy.h"
#include "copy/word.h"
#include "backend/trial.h"

enum { LARGE = 4 << 20, COMPARED = 4096, BUFFERS = 3 };

/* Exportable memory, which CUDA rounds up to 2 MiB, is tried with the first one only. */
static const size_t sizes[BUFFERS] = { 2 * GPU_PAGE_SIZE, COMPARED, LARGE };

#define SECOND 1000000000ull

/* One try, under lock; too large for a caller's stack. */
static struct {
	const struct gdri_trial_of *of;
	bool exportable;
	uint32_t flags;
	bool wrong; /* bytes, or types of mappings */
	bool lasting; /* by the backend */
	size_t count;
	struct buffer {
		struct gdri_allocation memory;
		struct gdri_cuda_engine *engine;
		struct gdri_pin pin;
		bool pinned;
		gdr_mapping_type_t type; /* of the mapping */
		uint64_t addr; /* of the last bytes, which are compared, for the GPU */
		char *cpu; /* and in the mapping */
		unsigned char pattern[COMPARED];
	} buffers[BUFFERS];
	unsigned char seen[COMPARED];
} attempt;

GDRI_MUTEX(lock); /* guards every verdict */

static int fail_wrong(const char *text)
{
	attempt.wrong = true;
	return gdri_fail(ENOTSUP, "%s", text);
}

static void make_pattern(struct buffer *b, unsigned int nth)
{
	unsigned int seed = (unsigned int)gdri_now_ns() ^ nth * 0x9e3779b9u;

	for (size_t i = 0; i < COMPARED; i++)
		b->pattern[i] = (unsigned char)(rand_r(&seed) >> 8);
}

static int open_buffer(struct buffer *b)
{
	size_t skipped = b->memory.size > GPU_PAGE_SIZE ? GPU_PAGE_SIZE : 0;
	struct gdri_pin_request request = { .addr = b->memory.addr + skipped,
					    .size = b->memory.size - skipped,
					    .flags = attempt.flags };
	const struct gdri_backend *by = attempt.of->backend;
	int rc = gdri_pin_describe(&request);

	b->pin = (struct gdri_pin){ .backend = by,
				    .va = request.va,
				    .mapped_size = request.mapped_size,
				    .map_length = request.mapped_size };
	if (!rc)
		rc = gdri_cuda_engine_new(request.addr, request.size, &b->engine, NULL);
	if (!rc)
		rc = attempt.of->pin(&request, &b->pin, attempt.exportable, &attempt.lasting);
	b->pinned = !rc;
	if (!rc)
		rc = by->map(&b->pin, GDR_MAPPING_TYPE_NONE);
	if (rc)
		return rc;
	b->type = attempt.of->type ? attempt.of->type(&b->pin) : b->pin.type;
	b->addr = request.addr + request.size - COMPARED;
	b->cpu = (char *)b->pin.map + (b->addr - request.va);
	return 0;
}

/* A failure concerns no caller: the trial's verdict holds. */
static void close_buffer(struct buffer *b)
{
	struct gdri_first first = { 0 };

	if (b->pin.map)
		gdri_first_note(&first, attempt.of->backend->unmap(&b->pin));
	if (b->pinned)
		gdri_first_note(&first, attempt.of->backend->unpin(&b->pin));
	gdri_first_note(&first, gdri_cuda_engine_free(b->engine));
	gdri_first_note(&first, gdri_cuda_free(&b->memory));
	if (first.rc)
		gdri_log(GDRI_LOG_ERROR, "memory of the trial stays: %s", first.text.s);
}

static int by_gpu(struct buffer *b, bool to, unsigned char *host)
{
	if (gdri_cuda_engine_copy(b->engine, to, host, false, b->addr, COMPARED))
		return 0;
	b->memory.busy = true;
	return gdri_fail(EIO, "the copy engine could not reach the trial's memory");
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

static int open_buffers(int device, void *context)
{
	const enum gdri_allocation_kind kind =
		attempt.exportable ? GDRI_ALLOCATION_VMM : GDRI_ALLOCATION_PLAIN;
	size_t i, want = attempt.exportable ? 1 : BUFFERS;
	int rc = 0;

	for (i = 0; !rc && i < want; i++) {
		rc = gdri_cuda_alloc(&attempt.buffers[i].memory, kind, device, context, sizes[i],
				     false, -1);
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

/* 0 or -errno; trial->type is set, and trial->reason unless it is a shortage. */
static int try(struct gdri_trial *trial, int device, void *context)
{
	struct gdri_text why = { .len = 0 };
	int rc = open_buffers(device, context);

	trial->type = attempt.buffers[0].type;
	for (size_t i = 1; !rc && i < attempt.count; i++)
		if (attempt.buffers[i].type != trial->type)
			rc = fail_wrong("two mappings are of different types");
	if (!rc)
		rc = compare(gdri_copy_plan(trial->type));
	gdri_text_add(&why, "%s", gdri_error_text());
	while (attempt.count)
		close_buffer(&attempt.buffers[--attempt.count]);
	if (rc && !gdri_is_short(rc))
		snprintf(trial->reason, sizeof(trial->reason), "%.399s", why.s);
	return rc ? gdri_fail(-rc, "%s", why.s) : 0;
}

/* Before the first pin, and when a failure's time is over. A shortage leaves a verdict as it is. */
static int verify_locked(struct gdri_trial *trial, const struct gdri_trial_of *of, bool exportable,
			 int device, void *context, uint32_t flags)
{
	bool first = trial->verdict == GDRI_UNTRIED;
	uint64_t now = gdri_now_ns();
	int rc;

	if (!first && (!trial->again_ns || now < trial->again_ns))
		return 0;
	memset(&attempt, 0, sizeof(attempt));
	attempt.of = of;
	attempt.exportable = exportable;
	attempt.flags = flags;
	rc = try(trial, device, context);
	if (gdri_is_short(rc) && first)
		return gdri_fail(-rc, "the trial before the first pin on GPU %d failed: %s", device,
				 gdri_error_text());
	if (!gdri_is_short(rc)) {
		trial->verdict = rc ? GDRI_FAILED : GDRI_PASSED;
		trial->wrong = attempt.wrong;
		gdri_log(rc && first ? GDRI_LOG_WARN : GDRI_LOG_DEBUG,
			 "%s: GPU %d, memory of %s: %s", of->backend->name, device,
			 exportable ? "cuMemCreate" : "cuMemAlloc", rc ? trial->reason : "mapped");
	}
	trial->again_ns = !rc || attempt.wrong || attempt.lasting ? 0 : now + SECOND;
	return 0;
}

int gdri_trial(struct gdri_trial *trial, const struct gdri_trial_of *of, bool exportable,
	       int device, void *context, uint32_t flags, gdr_mapping_type_t *type)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = verify_locked(trial, of, exportable, device, context, flags);
	if (!rc && trial->verdict == GDRI_FAILED)
		rc = gdri_fail(ENOTSUP, "the trial on GPU %d failed: %s", device, trial->reason);
	*type = trial->type;
	pthread_mutex_unlock(&lock);
	return rc;
}
