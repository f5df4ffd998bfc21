/* SPDX-License-Identifier: MIT */
/* Creates and destroys queues. */
#include "queue/queue.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/process.h"
#include "copy/impl.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "core/mem.h"
#include "cuda/cuda.h"

/* How long gdr_close() waits for a kernel that it stops. */
#define CLOSE_TIMEOUT_NS UINT64_C(1000000000)

GDRI_SLOTS(, gdri_queues);

/* Zeroes the rings: no lap is 0. The zeroes are in GPU memory before this returns. */
static int map_device(struct gdri_queue *q, int device)
{
	static const char zeroes[4096];
	size_t size = BARCOPY_QUEUE_CONTROL + q->lines * GDRI_LINE;
	struct gdri_window w;
	int rc = gdri_mem_alloc(q->ctx, device, size, 0, &q->mem, NULL);

	if (rc)
		return rc;
	rc = gdri_handle_window(q->mem.handle, GDRI_WRITES, &w);
	if (rc)
		return rc;
	q->plan = w.plan;
	q->control = q->mem.cpu_ptr;
	q->requests = q->control + BARCOPY_QUEUE_CONTROL;
	q->direct = q->plan->type == GDR_MAPPING_TYPE_WC &&
		    (gdri_cpu_features() & GDRI_CPU_MOVDIR64B);
#ifdef GDRI_TSAN
	q->direct = false; /* the sanitizer does not see MOVDIR64B */
#endif
	for (size_t at = 0; at < size; at += sizeof(zeroes))
		gdri_copy_to(q->plan, q->control + at, zeroes,
			     size - at < sizeof(zeroes) ? size - at : sizeof(zeroes));
	gdri_flush_word(q->plan, q->control);
	return 0;
}

static void free_device(struct gdri_queue *q)
{
	struct gdri_handle *handle;

	if (q->mem.cpu_ptr && !gdri_handle_lock(q->ctx, q->mem.handle, &handle))
		gdri_handle_release_locked(handle);
}

/* ---- create and destroy --------------------------------------------------------------------------- */

int gdri_queue_create(struct gdri_ctx *ctx, int device, uint32_t lines, barcopy_queue_t *out)
{
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
		rc = gdri_cuda_take_pages(device, BARCOPY_QUEUE_STATE + lines * GDRI_LINE, &q->pages);
	if (rc) {
		free_device(q);
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
	};
	atomic_store_explicit(&q->g, (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot),
			      memory_order_release);
	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->queues, q, link);
	pthread_mutex_unlock(&ctx->lock);
	*out = (barcopy_queue_t)(uintptr_t)gdri_slot_publish(&q->slot);
	return 0;
}

static bool has_kernel(const struct gdri_queue *q)
{
	uint64_t begun = gdri_load64(q->state + BARCOPY_QUEUE_BEGUN_AT);

	return gdri_load64(q->state + BARCOPY_QUEUE_ENDED_AT) != begun ||
	       gdri_load64(q->state + BARCOPY_QUEUE_ENDED_AT + 8) != begun;
}

/* Waits until no kernel uses the queue, or the context in which one could run has ended. */
static int wait_end(const struct gdri_queue *q, uint64_t timeout_ns)
{
	const struct timespec pause = { .tv_nsec = 20000 };
	uint64_t start = gdri_now_ns();
	bool last = false;

	while (has_kernel(q)) {
		if (!gdri_cuda_context_works(q->pages->context))
			return 0;
		if (last)
			return gdri_fail(ETIMEDOUT, "the kernel was told to stop and has not ended");
		last = timeout_ns != UINT64_MAX && gdri_now_ns() - start >= timeout_ns;
		nanosleep(&pause, NULL);
	}
	return 0;
}

static void unlist(struct gdri_queue *q)
{
	pthread_mutex_lock(&q->ctx->lock);
	LIST_REMOVE(q, link);
	pthread_mutex_unlock(&q->ctx->lock);
}

int gdri_queue_destroy(struct gdri_queue *q, uint64_t timeout_ns)
{
	int rc;

	if (!q->stopped && has_kernel(q) && gdri_cuda_context_works(q->pages->context))
		return gdri_fail(EBUSY, "a kernel is on the queue: barcopy_queue_stop() tells it to stop");
	rc = wait_end(q, timeout_ns);
	if (rc)
		return rc;
	gdri_slot_retire(&q->slot);
	free_device(q);
	gdri_cuda_give_pages(q->pages);
	unlist(q);
	gdri_slots_free(&gdri_queues, &q->slot);
	return 0;
}

/* Leaks both blocks on purpose: freeing memory that a kernel uses would wait for the kernel or break it. */
static void abandon(struct gdri_queue *q)
{
	struct gdri_handle *handle;

	gdri_log(GDRI_LOG_ERROR, "the memory of a queue stays allocated: %s", gdri_error_text());
	gdri_slot_retire(&q->slot);
	unlist(q);
	if (gdri_handle_lock(q->ctx, q->mem.handle, &handle))
		return;
	pthread_mutex_lock(&q->ctx->lock);
	LIST_REMOVE(handle, link);
	pthread_mutex_unlock(&q->ctx->lock);
	gdri_slot_retire(&handle->slot);
	pthread_mutex_unlock(&handle->lock);
}

void gdri_queues_end(struct gdri_ctx *ctx)
{
	struct gdri_queue *q;

	while ((q = LIST_FIRST(&ctx->queues))) {
		gdri_queue_stop(q);
		if (gdri_queue_destroy(q, CLOSE_TIMEOUT_NS))
			abandon(q);
	}
}
