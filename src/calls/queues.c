/* SPDX-License-Identifier: MIT */
/* The entry points of queues. Sending and receiving take no lock and log nothing. */
#include "queue/queue.h"

#include "base/struct_size.h"
#include "calls/calls.h"

int barcopy_queue_create(gdr_t g, int device, const barcopy_queue_options_t *options,
			 barcopy_queue_t *queue)
{
	barcopy_queue_options_t o = { 0 };
	struct gdri_ctx *ctx;
	int rc = 0;

	if (!queue)
		rc = gdri_null("queue");
	else if (options)
		rc = gdri_struct_in(&o, sizeof(o), FIRST_QUEUE_OPTIONS, options);
	if (!o.lines)
		o.lines = GDRI_QUEUE_RING;
	if (!rc)
		rc = gdri_check_flags(o.flags, 0, "a queue");
	if (!rc && (o.lines < GDRI_QUEUE_RING_MIN || o.lines > GDRI_QUEUE_RING_MAX ||
		    o.lines & (o.lines - 1)))
		rc = gdri_fail(EINVAL, "lines is %u: a queue has a power of two from %d to %d",
			       o.lines, GDRI_QUEUE_RING_MIN, GDRI_QUEUE_RING_MAX);
	rc = rc ?: gdri_ctx_get(g, &ctx);
	return gdri_out(rc ?: gdri_ctx_put(ctx, gdri_queue_create(ctx, device, &o, queue)));
}

int barcopy_queue_get_view(barcopy_queue_t queue, barcopy_queue_view_t *view)
{
	const struct gdri_queue *q = gdri_queue_find(queue);
	int rc = !q ? gdri_queue_refuse(queue) : view ? 0 : gdri_null("view");

	if (!rc)
		*view = q->view;
	return gdri_out(rc);
}

int barcopy_queue_send(barcopy_queue_t queue, const void *message, size_t size, uint32_t flags,
		       uint64_t timeout_ns)
{
	struct gdri_queue *q = gdri_queue_find(queue);

	if (__builtin_expect(!q || !message, 0))
		return gdri_out(q ? gdri_null("message") : gdri_queue_refuse(queue));
	return gdri_out(gdri_check_flags(flags, BARCOPY_QUEUE_ORDERED, "a send")
				?: gdri_queue_send(q, message, size, flags, timeout_ns));
}

int barcopy_queue_receive(barcopy_queue_t queue, void *message, size_t capacity, size_t *size,
			  uint64_t timeout_ns)
{
	struct gdri_queue *q = gdri_queue_find(queue);

	if (__builtin_expect(!q || !message, 0))
		return gdri_out(q ? gdri_null("message") : gdri_queue_refuse(queue));
	return gdri_out(gdri_queue_receive(q, message, capacity, size, timeout_ns));
}

int barcopy_queue_stop(barcopy_queue_t queue, uint32_t flags)
{
	struct gdri_queue *q = gdri_queue_find(queue);
	int rc = q ? gdri_check_flags(flags, BARCOPY_QUEUE_ABORT, "a stop")
		   : gdri_queue_refuse(queue);

	if (!rc)
		gdri_queue_stop(q, flags);
	return gdri_out(rc);
}

int barcopy_queue_destroy(barcopy_queue_t queue)
{
	struct gdri_queue *q = gdri_queue_find(queue);
	struct gdri_ctx *ctx;
	int rc = q ? gdri_ctx_get(atomic_load_explicit(&q->g, memory_order_acquire), &ctx)
		   : gdri_queue_refuse(queue);

	if (rc)
		return gdri_out(rc);
	if (gdri_slot_is(&q->slot, (uintptr_t)queue))
		gdri_queue_destroy(q);
	else
		rc = gdri_queue_refuse(queue);
	return gdri_out(gdri_ctx_put(ctx, rc));
}
