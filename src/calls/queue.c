/* SPDX-License-Identifier: MIT */
/* The entry points of queues. Sending and receiving take no lock and log nothing. */
#include "queue/queue.h"

#include "base/process.h"
#include "base/sized.h"
#include "calls/calls.h"

static __attribute__((cold, noinline)) int fail_queue(barcopy_queue_t name)
{
	if (gdri_slots_find(&gdri_queues, (uintptr_t)name))
		return gdri_fail(EACCES, "the queue belongs to the parent process");
	return gdri_fail(EINVAL, "%p is not a queue", (void *)name);
}

static inline __attribute__((always_inline)) struct gdri_queue *find_queue(barcopy_queue_t name)
{
	struct gdri_queue *q =
		(struct gdri_queue *)gdri_slots_find(&gdri_queues, (uintptr_t)name);

	if (!q ||
	    atomic_load_explicit(&q->owner, memory_order_relaxed) != gdri_process_tag())
		return NULL;
	return q;
}

int barcopy_queue_create(gdr_t g, int device, const barcopy_queue_options_t *options,
			 barcopy_queue_t *queue)
{
	barcopy_queue_options_t o = { 0 };
	int rc;

	if (!queue)
		return gdri_null("queue");
	rc = options ? gdri_sized_in(&o, sizeof(o), FIRST_QUEUE_OPTIONS, options) : 0;
	if (rc)
		return -rc;
	if (o.flags)
		return -gdri_fail(EINVAL, "unknown bits in flags 0x%x of a queue", o.flags);
	if (!o.lines)
		o.lines = GDRI_QUEUE_RING;
	if (o.lines < GDRI_QUEUE_RING_MIN || o.lines > GDRI_QUEUE_RING_MAX ||
	    o.lines & (o.lines - 1))
		return -gdri_fail(EINVAL, "%u lines of a queue: not a power of two from %d to %d",
				  o.lines, GDRI_QUEUE_RING_MIN, GDRI_QUEUE_RING_MAX);
	return GDRI_WITH(g, ctx, gdri_queue_create(ctx, device, o.lines, queue));
}

int barcopy_queue_get_view(barcopy_queue_t queue, barcopy_queue_view_t *view)
{
	const struct gdri_queue *q = find_queue(queue);

	if (!q)
		return -fail_queue(queue);
	if (!view)
		return gdri_null("view");
	*view = q->view;
	return 0;
}

static inline __attribute__((always_inline)) int send_as(barcopy_queue_t queue, const void *message,
							 size_t size, uint64_t timeout_ns, int err)
{
	struct gdri_queue *q = find_queue(queue);

	if (__builtin_expect(!q, 0))
		return -fail_queue(queue);
	if (__builtin_expect(!message, 0))
		return gdri_null("message");
	return -gdri_queue_send(q, message, size, timeout_ns, err);
}

int barcopy_queue_send(barcopy_queue_t queue, const void *message, size_t size, uint64_t timeout_ns)
{
	return send_as(queue, message, size, timeout_ns, ETIMEDOUT);
}

int barcopy_queue_try_send(barcopy_queue_t queue, const void *message, size_t size)
{
	return send_as(queue, message, size, 0, EAGAIN);
}

int barcopy_queue_receive(barcopy_queue_t queue, void *message, size_t capacity, size_t *size,
			  uint64_t timeout_ns)
{
	struct gdri_queue *q = find_queue(queue);

	if (__builtin_expect(!q, 0))
		return -fail_queue(queue);
	if (__builtin_expect(!message, 0))
		return gdri_null("message");
	return -gdri_queue_receive(q, message, capacity, size, timeout_ns);
}

int barcopy_queue_stop(barcopy_queue_t queue)
{
	struct gdri_queue *q = find_queue(queue);

	if (!q)
		return -fail_queue(queue);
	gdri_queue_stop(q);
	return 0;
}

int barcopy_queue_destroy(barcopy_queue_t queue, uint64_t timeout_ns)
{
	struct gdri_queue *q = find_queue(queue);
	struct gdri_ctx *ctx;
	int rc;

	if (!q)
		return -fail_queue(queue);
	rc = gdri_ctx_get(atomic_load_explicit(&q->g, memory_order_acquire), &ctx);
	if (rc)
		return -rc;
	rc = gdri_slot_is(&q->slot, (uintptr_t)queue) ? gdri_queue_destroy(q, timeout_ns)
						      : fail_queue(queue);
	gdri_ctx_put(ctx);
	return -rc;
}
