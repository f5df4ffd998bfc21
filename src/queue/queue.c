/* SPDX-License-Identifier: MIT */
/* Creates and destroys queues. */
#include "queue/queue.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "copy/impl.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "core/mem.h"
#include "cuda/cuda.h"

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
	int rc = gdri_queue_map(q->ctx, device, BARCOPY_QUEUE_CONTROL + q->lines * GDRI_LINE,
				&q->mem, &q->plan);

	if (rc)
		return rc;
	q->control = q->mem.cpu_ptr;
	q->requests = q->control + BARCOPY_QUEUE_CONTROL;
	q->direct =
		q->plan->type == GDR_MAPPING_TYPE_WC && (gdri_cpu_features() & GDRI_CPU_MOVDIR64B);
#ifdef GDRI_TSAN
	q->direct = false; /* the sanitizer does not see MOVDIR64B */
#endif
	return 0;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

int gdri_queue_create(struct gdri_ctx *ctx, int device, const barcopy_queue_options_t *options,
		      barcopy_queue_t *out)
{
	uint32_t lines = options->lines;
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
		.version = BARCOPY_QUEUE_VERSION,
	};
	atomic_store_explicit(&q->g, (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot),
			      memory_order_release);
	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->queues, q, link);
	pthread_mutex_unlock(&ctx->lock);
	*out = (barcopy_queue_t)(uintptr_t)gdri_slot_publish(&q->slot);
	return 0;
}

/* Nobody finds the queue any more, and a kernel that still runs is told to leave. */
static void retire(struct gdri_queue *q)
{
	gdri_slot_retire(&q->slot);
	if (gdri_cuda_context_works(q->pages->context)) /* else the mapping may be gone */
		gdri_queue_stop(q, BARCOPY_QUEUE_ABORT);
	pthread_mutex_lock(&q->ctx->lock);
	LIST_REMOVE(q, link);
	pthread_mutex_unlock(&q->ctx->lock);
}

void gdri_queue_destroy(struct gdri_queue *q)
{
	retire(q);
	gdri_queue_unmap(q->ctx, &q->mem);
	gdri_cuda_give_pages(q->pages);
	gdri_slots_free(&gdri_queues, &q->slot);
}

void gdri_queues_end(struct gdri_ctx *ctx)
{
	struct gdri_queue *q;

	while ((q = LIST_FIRST(&ctx->queues))) {
		gdri_log(GDRI_LOG_ERROR, "a queue was not destroyed: its memory stays allocated");
		retire(q);
		gdri_queue_abandon(ctx, &q->mem);
		/* The object stays as well: a receiver may be in a call. */
	}
}
