/* SPDX-License-Identifier: MIT */
/* The entry points of queues. Sending and receiving take no lock and log nothing. */
#include "queue/queue.h"

#include "base/struct_size.h"
#include "calls/calls.h"

int barcopy_queue_create(gdr_t g, int device, const barcopy_queue_options_t *options,
			 barcopy_queue_t *queue)
{
	barcopy_queue_options_t o = { 0 };
	void *name;
	int rc = queue ? 0 : gdri_null("queue");

	if (!rc && options)
		rc = gdri_struct_in(&o, sizeof(o), FIRST_QUEUE_OPTIONS, options);
	rc = rc ?: gdri_check_flags(o.flags, 0, "a queue");
	rc = rc ?: gdri_ring_create(g, &gdri_queue_kind, device, o.lines, &o, &name);
	if (!rc)
		*queue = name;
	return gdri_out(rc);
}

int barcopy_queue_get_view(barcopy_queue_t queue, barcopy_queue_view_t *view)
{
	const struct gdri_queue *q = gdri_ring_find(&gdri_queues, queue);
	int rc = !q ? gdri_ring_refuse(queue, &gdri_queue_kind) : view ? 0 : gdri_null("view");

	if (!rc)
		*view = q->view;
	return gdri_out(rc);
}

int barcopy_queue_send(barcopy_queue_t queue, const void *message, size_t size, uint32_t flags,
		       uint64_t timeout_ns)
{
	struct gdri_queue *q = gdri_ring_find(&gdri_queues, queue);

	if (__builtin_expect(!q || !message, 0))
		return gdri_out(q ? gdri_null("message")
				  : gdri_ring_refuse(queue, &gdri_queue_kind));
	return gdri_out(gdri_check_flags(flags, BARCOPY_QUEUE_ORDERED, "a send")
				?: gdri_queue_send(q, message, size, flags, timeout_ns));
}

int barcopy_queue_receive(barcopy_queue_t queue, void *message, size_t capacity, size_t *size,
			  uint64_t timeout_ns)
{
	struct gdri_queue *q = gdri_ring_find(&gdri_queues, queue);

	if (__builtin_expect(!q || !message, 0))
		return gdri_out(q ? gdri_null("message")
				  : gdri_ring_refuse(queue, &gdri_queue_kind));
	return gdri_out(gdri_queue_receive(q, message, capacity, size, timeout_ns));
}

int barcopy_queue_stop(barcopy_queue_t queue, uint32_t flags)
{
	return gdri_out(gdri_ring_stop(&gdri_queue_kind, queue, flags, BARCOPY_QUEUE_ABORT));
}

int barcopy_queue_destroy(barcopy_queue_t queue)
{
	return gdri_out(gdri_ring_destroy(&gdri_queue_kind, queue));
}
