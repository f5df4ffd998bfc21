/* SPDX-License-Identifier: MIT */
/* Creates and destroys queues. */
#include "queue/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/process.h"
#include "copy/impl.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "core/mem.h"
#include "cuda/cuda.h"

/* How long gdr_close() waits for the kernels that it stops, and a kernel takes to see an abort. */
#define CLOSE_TIMEOUT_NS UINT64_C(1000000000)
#define ABORT_TIMEOUT_NS UINT64_C(100000000)

static void set_generation(const struct gdri_queue *q, uint64_t generation)
{
	gdri_put64(q->plan, q->control + BARCOPY_QUEUE_GENERATION_AT, generation);
}

int gdri_queue_map(struct gdri_ctx *ctx, int device, size_t size, barcopy_mem_t *mem,
		   const struct gdri_copy_plan **plan)
{
	static const char zeroes[4096];
	struct gdri_window w;
	int rc = gdri_mem_alloc(ctx, device, size, GDRI_MEM_STAYS, mem, NULL);

	if (rc)
		return rc;
	rc = gdri_handle_window(mem->handle, GDRI_WRITES, &w);
	if (rc)
		return rc;
	*plan = w.plan;
	for (size_t at = 0; at < size; at += sizeof(zeroes))
		gdri_copy_to(w.plan, (char *)mem->cpu_ptr + at, zeroes,
			     size - at < sizeof(zeroes) ? size - at : sizeof(zeroes));
	gdri_flush_word(w.plan, mem->cpu_ptr);
	return 0;
}

void gdri_queue_unmap(struct gdri_ctx *ctx, const barcopy_mem_t *mem)
{
	struct gdri_handle *handle;

	if (mem->cpu_ptr && !gdri_handle_lock(ctx, mem->handle, &handle))
		gdri_handle_release_locked(handle);
}

void gdri_queue_abandon(struct gdri_ctx *ctx, const barcopy_mem_t *mem)
{
	struct gdri_handle *handle;

	if (gdri_handle_lock(ctx, mem->handle, &handle))
		return;
	pthread_mutex_lock(&ctx->lock);
	LIST_REMOVE(handle, link);
	pthread_mutex_unlock(&ctx->lock);
	gdri_slot_retire(&handle->slot);
	pthread_mutex_unlock(&handle->lock);
}

static int map_device(struct gdri_queue *q, int device)
{
	int rc = gdri_queue_map(q->ctx, device, BARCOPY_QUEUE_CONTROL + q->lines * GDRI_LINE, &q->mem,
				&q->plan);

	if (rc)
		return rc;
	q->control = q->mem.cpu_ptr;
	q->requests = q->control + BARCOPY_QUEUE_CONTROL;
	q->direct =
		q->plan->type == GDR_MAPPING_TYPE_WC && (gdri_cpu_features() & GDRI_CPU_MOVDIR64B);
#ifdef GDRI_TSAN
	q->direct = false; /* the sanitizer does not see MOVDIR64B */
#endif
	q->push = !q->direct;
	return 0;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

int gdri_queue_create(struct gdri_ctx *ctx, int device, const barcopy_queue_options_t *options,
		      barcopy_queue_t *out)
{
	uint32_t lines = options->lines;
	static atomic_uint generations;
	struct gdri_queue *q = (struct gdri_queue *)gdri_slots_new(&gdri_queues, sizeof(*q), NULL);
	int rc;

	if (!q)
		return gdri_fail(ENOMEM, "no memory for a queue");
	memset((char *)q + offsetof(struct gdri_queue, control), 0,
	       sizeof(*q) - offsetof(struct gdri_queue, control));
	q->ctx = ctx;
	q->lines = lines;
	q->shift = (uint32_t)__builtin_ctz(lines);
	rc = map_device(q, device);
	if (!rc)
		rc = gdri_cuda_take_pages(device, BARCOPY_QUEUE_STATE + lines * GDRI_LINE,
					  &q->pages);
	if (rc) {
		gdri_queue_unmap(ctx, &q->mem);
		gdri_slots_free(&gdri_queues, &q->slot);
		return rc;
	}
	q->state = q->pages->host;
	q->replies = q->state + BARCOPY_QUEUE_STATE;
	q->view = (barcopy_queue_view_t){
		.requests = q->mem.device_ptr + BARCOPY_QUEUE_CONTROL,
		.replies = q->pages->addr + BARCOPY_QUEUE_STATE,
		.control = q->mem.device_ptr,
		.state = q->pages->addr,
		.lines = lines,
		.generation = BARCOPY_QUEUE_VERSION << 24 | (++generations & 0xffffff),
	};
	set_generation(q, q->view.generation);
	atomic_store_explicit(&q->g, (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot),
			      memory_order_release);
	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->queues, q, link);
	pthread_mutex_unlock(&ctx->lock);
	*out = (barcopy_queue_t)(uintptr_t)gdri_slot_publish(&q->slot);
	return 0;
}

/*
 * A kernel may use the queue. Of a stopped one replies are dropped, a ring of them at a time, so
 * that its kernel goes on; not of an aborted one, whose kernel goes on when the ring is full.
 */
static bool is_busy(struct gdri_queue *q)
{
	uint64_t dropped[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	uint32_t n = q->stopped && !q->aborted ? q->lines : 0;

	if (!gdri_queue_has_kernel(q) || gdri_queue_is_dead(q))
		return false;
	while (n && !gdri_queue_receive(q, dropped, sizeof(dropped), NULL, 0, 0))
		n--;
	return true;
}

/* Waits until no kernel uses the queue, or any from it on in the context's list. */
static bool wait_end(struct gdri_queue *first, bool all, uint64_t timeout_ns)
{
	const struct timespec pause = { .tv_nsec = 20000 };
	uint64_t start = gdri_now_ns();
	bool last = !timeout_ns, busy;

	for (;;) {
		busy = false;
		for (struct gdri_queue *q = first; q; q = all ? LIST_NEXT(q, link) : NULL)
			busy |= is_busy(q);
		if (!busy || last)
			return !busy;
		last = gdri_now_ns() - start >= timeout_ns;
		nanosleep(&pause, NULL);
	}
}

/* The same; what is busy at the deadline is aborted. */
static bool wait_or_abort(struct gdri_queue *first, bool all, uint64_t timeout_ns)
{
	bool ended = wait_end(first, all, timeout_ns);

	if (ended || !timeout_ns)
		return ended;
	for (struct gdri_queue *q = first; q; q = all ? LIST_NEXT(q, link) : NULL)
		gdri_queue_stop(q, BARCOPY_QUEUE_ABORT);
	return wait_end(first, all, ABORT_TIMEOUT_NS);
}

/*
 * Takes the queue from kernels that have not begun. A kernel writes the owner's word and then reads
 * the generation, this thread the other way round, so one of the two sees the other.
 */
static bool withdraw(struct gdri_queue *q)
{
	if (gdri_queue_is_dead(q))
		return true; /* the mapping may be gone with a reset */
	set_generation(q, 0);
	/* A kernel's ENDED comes last. */
	if (!gdri_get64(q->plan, q->control + BARCOPY_QUEUE_OWNER_AT) && !gdri_queue_has_kernel(q))
		return true;
	set_generation(q, q->view.generation);
	return false;
}

static void retire(struct gdri_queue *q)
{
	gdri_slot_retire(&q->slot);
	pthread_mutex_lock(&q->ctx->lock);
	LIST_REMOVE(q, link);
	pthread_mutex_unlock(&q->ctx->lock);
}

int gdri_queue_destroy(struct gdri_queue *q, uint64_t timeout_ns)
{
	uint64_t start = gdri_now_ns(), spent = 0;
	bool ended;

	do
		ended = wait_or_abort(q, false, q->stopped ? timeout_ns - spent : 0) && withdraw(q);
	while (!ended && q->stopped && (spent = gdri_now_ns() - start) < timeout_ns);
	if (!ended)
		return gdri_fail(q->stopped ? ETIMEDOUT : EBUSY, "a kernel is on the queue%s",
				 q->stopped ? ": it was told to stop and has not ended"
					    : ": barcopy_queue_stop() tells it to stop");
	retire(q);
	gdri_queue_unmap(q->ctx, &q->mem);
	gdri_cuda_give_pages(q->pages);
	gdri_slots_free(&gdri_queues, &q->slot);
	return 0;
}

/* Leaks both blocks: to free what a kernel uses would wait for the kernel or break it. */
static void abandon(struct gdri_queue *q)
{
	gdri_log(GDRI_LOG_ERROR, "the memory of a queue stays allocated: %s", gdri_error_text());
	retire(q);
	gdri_queue_abandon(q->ctx, &q->mem);
}

void gdri_queues_end(struct gdri_ctx *ctx)
{
	struct gdri_queue *q;

	LIST_FOREACH(q, &ctx->queues, link)
		gdri_queue_stop(q, 0);
	wait_or_abort(LIST_FIRST(&ctx->queues), true, CLOSE_TIMEOUT_NS);
	while ((q = LIST_FIRST(&ctx->queues)))
		if (gdri_queue_destroy(q, 0))
			abandon(q);
}
