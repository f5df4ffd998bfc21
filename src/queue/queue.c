/* SPDX-License-Identifier: MIT */
/* Queues: creates them, writes messages into lines and reads them again. */
#include "queue/queue.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/process.h"
#include "copy/fence.h"
#include "copy/impl.h"
#include "cuda/cuda.h"

/* Polls between two readings of the clock: a poll of cached memory takes 1 ns, the clock 25. */
enum { LOOKS = 64 };

GDRI_SLOTS(, gdri_queues);

/* A wait in send or receive, which polls once more after `error` was set. */
struct patience {
	uint64_t start;
	uint32_t looks;
	int error; /* -errno: why the wait ends */
};

static __attribute__((noinline)) void look_up(const struct gdri_queue *q, struct patience *p,
					      uint64_t *asked, uint64_t timeout_ns)
{
	uint64_t now = gdri_now_ns();

	p->start = p->start ?: now; /* not by `looks`, which begins anew after minutes */
	if (now - p->start >= timeout_ns)
		p->error = -ETIMEDOUT;
	if (now - *asked < GDRI_ASK_NS)
		return;
	*asked = now;
	if (!gdri_cuda_context_works(q->ring.pages->context))
		p->error = -EPIPE;
}

/* Called after a poll in vain. */
static __attribute__((noinline)) bool is_over(const struct gdri_queue *q, struct patience *p,
					      uint64_t *asked, uint64_t timeout_ns)
{
	if (!timeout_ns)
		p->error = -ETIMEDOUT;
	if (p->error)
		return true;
	gdri_relax();
	if (++p->looks % LOOKS == 0)
		look_up(q, p, asked, timeout_ns);
	return false;
}

static __attribute__((cold, noinline)) int give_up(int rc, const char *why)
{
	gdri_error_say(
		rc == -EPIPE ? "the CUDA context has ended, by an error or by a reset of the device"
			     : why);
	return rc;
}

/* ---- to the kernel --------------------------------------------------------------------------- */

/*
 * Writes the next line: eight words, each with six bytes of the message, the lap and the header.
 * MOVDIR64B sends all 64 bytes at once. Eight plain stores gather in a write-combining buffer until
 * gdri_fence_push() flushes it.
 */
static inline void put_line(struct gdri_queue *q, const uint8_t *p, uint64_t head)
{
	char *to = gdri_line_at(&q->ring, q->requests, q->sent);
	const uint64_t tag = gdri_line_lap(&q->ring, q->sent++) | head << GDRI_HEAD_AT;
	_Alignas(GDRI_LINE) uint64_t w[GDRI_LINE_WORDS];

	GDRI_UNROLL
	for (unsigned int i = 0; i < GDRI_LINE_WORDS - 1; i++)
		w[i] = (gdri_any64(p + 6 * i) & GDRI_DATA_MASK) | tag;
	/* This load begins two bytes early: it must not read beyond the message. */
	w[GDRI_LINE_WORDS - 1] = gdri_any64(p + 40) >> 16 | tag;
	if (q->direct) {
		gdri_direct_line(to, w);
		return;
	}
	gdri_store_line(to, w, true);
	gdri_fence_push(q->ring.plan->fences);
}

/* Keeps one line free for gdri_queue_stop(). */
static bool has_room(struct gdri_queue *q)
{
	if (q->sent + 1 - q->freed < q->ring.lines)
		return true;
	q->freed = gdri_load64(q->state + BARCOPY_QUEUE_FREED_AT);
	return q->sent + 1 - q->freed < q->ring.lines;
}

int gdri_queue_send(struct gdri_queue *q, const void *message, size_t size, uint32_t flags,
		    uint64_t timeout_ns)
{
	uint8_t all[BARCOPY_QUEUE_LINE] = { 0 };
	struct patience p = { 0 };

	if (__builtin_expect(q->stopped, 0))
		return gdri_fail(ESHUTDOWN, "the queue was stopped");
	if (__builtin_expect(size - 1 >= BARCOPY_QUEUE_LINE, 0))
		return gdri_fail(EMSGSIZE, "a message has 1 to %d bytes, not %zu",
				 BARCOPY_QUEUE_LINE, size);
	while (__builtin_expect(!has_room(q), 0))
		if (is_over(q, &p, &q->send_asked, timeout_ns))
			return give_up(p.error, "the kernel has not taken what was sent before");
	if (flags & BARCOPY_QUEUE_ORDERED)
		gdri_fence_after_write(q->ring.plan->fences);
	if (size < BARCOPY_QUEUE_LINE)
		message = memcpy(all, message, size);
	put_line(q, message, size);
	return 0;
}

void gdri_queue_stop(struct gdri_ring *ring, uint32_t flags)
{
	struct gdri_queue *q = (struct gdri_queue *)ring;
	const uint8_t nothing[BARCOPY_QUEUE_LINE] = { 0 };

	if (!q->stopped)
		put_line(q, nothing, BARCOPY_QUEUE_HEAD_STOP);
	q->stopped = true;
	if (flags & BARCOPY_QUEUE_ABORT)
		gdri_post64(q->ring.plan, q->ring.control + BARCOPY_QUEUE_ABORT_AT, 1);
}

/* ---- from the kernel ------------------------------------------------------------------------- */

int gdri_queue_receive(struct gdri_queue *q, void *message, size_t capacity, size_t *size,
		       uint64_t timeout_ns)
{
	struct patience p = { 0 };
	uint64_t words[BARCOPY_QUEUE_LINE / 8];
	int head;
	unsigned int n;

	while ((head = gdri_line_read(&q->ring, q->received, words)) < 0)
		if (is_over(q, &p, &q->receive_asked, timeout_ns))
			return give_up(p.error, "no reply has come in time; with lazy loading a "
						"kernel's first launch waits until all that run "
						"have ended");
	n = (unsigned int)head;
	if (__builtin_expect(n - 1 >= BARCOPY_QUEUE_LINE, 0))
		return gdri_fail(
			EBADMSG,
			"the kernel wrote a reply that has not 1 to 48 bytes (header 0x%x)", n);
	if (size)
		*size = n;
	if (__builtin_expect(n > capacity, 0))
		return gdri_fail(EMSGSIZE, "the next reply has %u bytes, the buffer only %zu", n,
				 capacity);
	if (n == BARCOPY_QUEUE_LINE)
		memcpy(message, words, BARCOPY_QUEUE_LINE); /* inline */
	else
		memcpy(message, words, n);
	/* Later loads see what was stored before an ordered reply. The lines are in host memory. */
	gdri_fence_after_read(GDR_MAPPING_TYPE_CACHING);
	q->received++;
	if (q->received - q->credited >= q->ring.lines / 4) {
		q->credited = q->received;
		gdri_post64(q->ring.plan, q->ring.control + BARCOPY_QUEUE_CREDIT_AT, q->received);
	}
	return 0;
}

/* ---- create ---------------------------------------------------------------------------------- */

static void set_up_queue(struct gdri_ring *r, const void *options)
{
	struct gdri_queue *q = (struct gdri_queue *)r;

	(void)options;
	q->requests = r->control + BARCOPY_QUEUE_CONTROL;
	q->state = r->pages->host;
#ifndef GDRI_TSAN /* the sanitizer does not see MOVDIR64B */
	q->direct = r->plan->posts_lines;
#endif
	q->view = (barcopy_queue_view_t){
		.requests = r->gpu + BARCOPY_QUEUE_CONTROL,
		.replies = r->pages->addr + BARCOPY_QUEUE_STATE,
		.control = r->gpu,
		.state = r->pages->addr,
		.lines = r->lines,
		.version = BARCOPY_QUEUE_VERSION,
	};
}

const struct gdri_ring_kind gdri_queue_kind = {
	.table = &gdri_queues,
	.what = "a queue",
	.lines = 256,
	.object = sizeof(struct gdri_queue),
	.control = BARCOPY_QUEUE_CONTROL,
	.gpu_line = GDRI_LINE,
	.state = BARCOPY_QUEUE_STATE,
	.set_up = set_up_queue,
	.stop = gdri_queue_stop,
};
