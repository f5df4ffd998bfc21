/* SPDX-License-Identifier: MIT */
/*
 * Splits messages into lines and joins them again. docs/internals/queue-protocol.md says why the
 * order of the words does not matter.
 */
#include "queue/queue.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/process.h"
#include "copy/fence.h"
#include "copy/impl.h"
#include "cuda/cuda.h"

/* Polls between two readings of the clock: a poll of cached memory takes 1 ns, the clock 25. */
enum { LOOKS = 64 };

/* The least time between two questions to CUDA, which take a few microseconds each. */
#define ASK_NS UINT64_C(100000000)

#define DATA_MASK ((UINT64_C(1) << BARCOPY_QUEUE_DATA_BITS) - 1)
#define LAP_AT	  BARCOPY_QUEUE_DATA_BITS
#define LAP_BITS  ((uint64_t)BARCOPY_QUEUE_LAP_MASK << LAP_AT)
#define HEAD_AT	  56

GDRI_SLOTS(, gdri_queues);

/* A wait in send or receive, which polls once more after `last` was set, or `error` to EPIPE. */
struct patience {
	uint64_t timeout_ns, start, *asked;
	uint32_t flags, looks;
	int error; /* why the wait ends; 0: it has not begun, and the rest is not set */
	bool last;
};

bool gdri_queue_is_dead(struct gdri_queue *q)
{
	q->dead = !gdri_cuda_context_works(q->pages->context);
	return q->dead;
}

/* True once: no kernel will answer, and one more look at the ring is to follow. */
static bool sees_end(const struct gdri_queue *q, struct patience *p)
{
	if (p->error == EPIPE)
		return false;
	if (!(p->flags & BARCOPY_QUEUE_UNTIL_END || gdri_queue_is_stopped(q)) ||
	    !gdri_queue_begun(q) || gdri_queue_has_kernel(q))
		return false;
	gdri_fence_after_read(GDR_MAPPING_TYPE_CACHING); /* the replies came before */
	p->error = EPIPE;
	return true;
}

static __attribute__((noinline)) void look_up(struct gdri_queue *q, struct patience *p)
{
	uint64_t now = gdri_now_ns();

	p->start = p->start ?: now; /* not by `looks`, which begins anew after minutes */
	p->last = now - p->start >= p->timeout_ns;
	if (sees_end(q, p) || now - *p->asked < ASK_NS)
		return;
	*p->asked = now;
	if (gdri_queue_is_dead(q))
		p->error = EPIPE;
}

/* Called after a poll in vain. What a wait needs is set up here, not where nothing waits. */
static __attribute__((noinline)) bool is_over(struct gdri_queue *q, struct patience *p,
					      uint64_t *asked, uint32_t flags, uint64_t timeout_ns,
					      int error)
{
	if (!p->error)
		*p = (struct patience){ timeout_ns, 0, asked, flags, 0, error, !timeout_ns };
	if (p->last || p->error == EPIPE)
		return !sees_end(q, p);
	gdri_relax();
	if (++p->looks % LOOKS == 0)
		look_up(q, p);
	return false;
}

/* Says why a wait was in vain; returns -errno. */
static __attribute__((cold, noinline)) int give_up(const struct gdri_queue *q, int error,
						   const char *why)
{
	if (error == EPIPE)
		why = q->dead ? "CUDA's context has ended" : "the kernel has ended";
	else if (error != ESHUTDOWN && !gdri_queue_begun(q))
		why = "no kernel has begun; with lazy loading a first launch waits for those that "
		      "run";
	gdri_error_say(why);
	return -error;
}

static uint64_t lap_of(const struct gdri_queue *q, uint64_t line)
{
	return ((line >> q->shift) + 1) << LAP_AT & LAP_BITS;
}

static char *line_at(const struct gdri_queue *q, char *ring, uint64_t line)
{
	return ring + (line & (q->lines - 1)) * GDRI_LINE;
}

/* ---- to the kernel --------------------------------------------------------------------------- */

/*
 * Writes the next line: eight words, each with six bytes of the message, the lap and the header.
 * MOVDIR64B sends all 64 bytes at once. Eight plain stores gather in a write-combining buffer until
 * gdri_fence_push() flushes it.
 */
static inline void put_line(struct gdri_queue *q, const uint8_t *p, uint64_t head)
{
	char *to = line_at(q, q->requests, q->sent);
	const uint64_t tag = lap_of(q, q->sent++) | head << HEAD_AT;
	_Alignas(GDRI_LINE) uint64_t w[GDRI_QUEUE_WORDS];

	GDRI_UNROLL
	for (unsigned int i = 0; i < GDRI_QUEUE_WORDS - 1; i++)
		w[i] = (gdri_any64(p + 6 * i) & DATA_MASK) | tag;
	/* This load begins two bytes early: it must not read beyond the message. */
	w[GDRI_QUEUE_WORDS - 1] = gdri_any64(p + 40) >> 16 | tag;
	if (q->direct)
		gdri_direct_line(to, w);
	else
		gdri_store_line(to, w, true);
}

/* Keeps one line free for gdri_queue_stop(). */
static bool has_room(struct gdri_queue *q, unsigned int lines)
{
	if (q->sent + lines - q->freed < q->lines)
		return true;
	q->freed = gdri_load64(q->state + BARCOPY_QUEUE_FREED_AT);
	return q->sent + lines - q->freed < q->lines;
}

static void send_lines(struct gdri_queue *q, const uint8_t *p, size_t size)
{
	uint8_t tail[BARCOPY_QUEUE_LINE] = { 0 };

	for (; size > BARCOPY_QUEUE_LINE; p += BARCOPY_QUEUE_LINE, size -= BARCOPY_QUEUE_LINE)
		put_line(q, p, BARCOPY_QUEUE_LINE | BARCOPY_QUEUE_HEAD_MORE);
	if (size < BARCOPY_QUEUE_LINE)
		p = memcpy(tail, p, size);
	put_line(q, p, size);
	if (q->push)
		gdri_fence_push(q->plan->fences);
}

/* False if another thread is in the same call. Only builds with GDRI_QUEUE_CHECK check. */
static bool enter(_Atomic bool *in_use)
{
	return !GDRI_QUEUE_CHECK || !atomic_exchange_explicit(in_use, true, memory_order_relaxed);
}

static void leave(_Atomic bool *in_use)
{
	if (GDRI_QUEUE_CHECK)
		atomic_store_explicit(in_use, false, memory_order_relaxed);
}

static unsigned int lines_of(size_t size)
{
	return (unsigned int)((size + BARCOPY_QUEUE_LINE - 1) / BARCOPY_QUEUE_LINE);
}

int gdri_queue_send(struct gdri_queue *q, const void *message, size_t size, uint32_t flags,
		    uint64_t timeout_ns, int wait_error)
{
	unsigned int lines = lines_of(size);
	struct patience p;
	int rc = 0;

	p.error = 0;
	if (__builtin_expect(!enter(&q->sending), 0))
		return gdri_fail(EBUSY, "another thread is sending on this queue");
	if (__builtin_expect(gdri_queue_is_stopped(q), 0))
		rc = give_up(q, ESHUTDOWN, "the queue was stopped");
	else if (__builtin_expect(size - 1 >= BARCOPY_QUEUE_MESSAGE_MAX, 0))
		rc = gdri_fail(EMSGSIZE, "a message has 1 to %d bytes, not %zu",
			       BARCOPY_QUEUE_MESSAGE_MAX, size);
	while (!rc && __builtin_expect(!has_room(q, lines), 0))
		if (is_over(q, &p, &q->send_asked, flags, timeout_ns, wait_error))
			rc = give_up(q, p.error, "the kernel has not taken what was sent before");
	if (flags & BARCOPY_QUEUE_ORDERED)
		gdri_fence_after_write(q->plan->fences);
	if (!rc)
		send_lines(q, message, size);
	leave(&q->sending);
	return rc;
}

/* All are sent at once, or the first one says why not. */
int gdri_queue_send_batch(struct gdri_queue *q, const uint8_t *messages, size_t size,
			  uint32_t count, uint32_t flags, uint64_t timeout_ns)
{
	bool valid = size - 1 < BARCOPY_QUEUE_MESSAGE_MAX && !gdri_queue_is_stopped(q);
	struct patience p = { 0 };
	int rc = 0;

	/* A kernel that has taken all lines has freed all but a quarter of the ring. */
	if (valid && count > q->lines * 3 / 4 / lines_of(size))
		return gdri_fail(EMSGSIZE, "%u messages need more than 3/4 of the ring", count);
	while (valid && !has_room(q, count * lines_of(size)))
		if (is_over(q, &p, &q->send_asked, flags, timeout_ns, ETIMEDOUT))
			return give_up(q, p.error, "the kernel has not taken what was sent before");
	q->push = false;
	for (uint32_t i = 0; !rc && i < count; i++, flags = 0)
		rc = gdri_queue_send(q, messages + i * size, size, flags, 0, EAGAIN);
	q->push = !q->direct;
	if (q->push)
		gdri_fence_push(q->plan->fences);
	return rc;
}

void gdri_queue_stop(struct gdri_queue *q, uint32_t flags)
{
	const uint8_t nothing[BARCOPY_QUEUE_LINE] = { 0 };

	if (flags & BARCOPY_QUEUE_ABORT)
		atomic_store_explicit(&q->aborted, true, memory_order_relaxed);
	if (!atomic_exchange_explicit(&q->stopped, true, memory_order_relaxed)) {
		put_line(q, nothing, BARCOPY_QUEUE_HEAD_STOP);
		if (!q->direct)
			gdri_fence_push(q->plan->fences);
	}
	if (flags & BARCOPY_QUEUE_ABORT)
		gdri_post64(q->plan, q->control + BARCOPY_QUEUE_ABORT_AT, 1);
}

/* ---- from the kernel ------------------------------------------------------------------------- */

/* Joins the message's bytes of a line's eight words into six words. */
static inline void join(uint64_t *to, const uint64_t *w)
{
	GDRI_UNROLL
	for (unsigned int i = 0; i < 2; i++, to += 3, w += 4) {
		to[0] = (w[0] & DATA_MASK) | w[1] << 48;
		to[1] = (w[1] & DATA_MASK) >> 16 | w[2] << 32;
		to[2] = (w[2] & DATA_MASK) >> 32 | w[3] << 16;
	}
}

/* Reads a line's header and its 48 bytes. Returns false if a word of the line has not arrived. */
static inline bool unpack(const struct gdri_queue *q, uint64_t line, unsigned int *head,
			  uint64_t *to)
{
	const char *from = line_at(q, q->replies, line);
	uint64_t w[GDRI_QUEUE_WORDS], lap = lap_of(q, line), differs = 0;

	/* The last word first: while no line arrives, a poll reads only this word. */
	w[GDRI_QUEUE_WORDS - 1] = gdri_load64(from + 8 * (GDRI_QUEUE_WORDS - 1));
	if ((w[GDRI_QUEUE_WORDS - 1] ^ lap) & LAP_BITS)
		return false;
	GDRI_UNROLL
	for (unsigned int i = 0; i < GDRI_QUEUE_WORDS - 1; i++) {
		w[i] = gdri_load64(from + 8 * i);
		differs |= w[i] ^ lap;
	}
	if (differs & LAP_BITS)
		return false;
	*head = (unsigned int)(w[0] >> HEAD_AT);
	join(to, w);
	return true;
}

static inline __attribute__((always_inline)) bool wait_line(struct gdri_queue *q, unsigned int i,
							    unsigned int *head, uint64_t *words,
							    struct patience *p, uint32_t flags,
							    uint64_t timeout_ns)
{
	while (!unpack(q, q->received + i, head, words + i * (BARCOPY_QUEUE_LINE / 8)))
		if (is_over(q, p, &q->receive_asked, flags, timeout_ns, ETIMEDOUT))
			return false;
	return true;
}

/* Is line number `lines` of a message, from 1 on, none? The last has 1 to 48 bytes, others 48. */
static bool is_wrong(unsigned int head, unsigned int lines)
{
	return head - 1 >= BARCOPY_QUEUE_LINE &&
	       (head != (BARCOPY_QUEUE_LINE | BARCOPY_QUEUE_HEAD_MORE) ||
		lines == GDRI_QUEUE_LINES_MAX);
}

int gdri_queue_receive(struct gdri_queue *q, void *message, size_t capacity, size_t *size,
		       uint32_t flags, uint64_t timeout_ns)
{
	struct patience p;
	uint64_t words[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	unsigned int lines, head;
	bool came, wrong = false;
	size_t n;
	int rc = 0;

	if (__builtin_expect(!enter(&q->receiving), 0))
		return gdri_fail(EBUSY, "another thread is receiving on this queue");
	p.error = 0;
	came = wait_line(q, 0, &head, words, &p, flags, timeout_ns);
	/* Prefetch the other lines, so that their cache misses overlap. */
	for (lines = 1; lines <= 4 && came && head & BARCOPY_QUEUE_HEAD_MORE; lines++)
		__builtin_prefetch(line_at(q, q->replies, q->received + lines));
	for (lines = 1; came && !(wrong = is_wrong(head, lines)) && head & BARCOPY_QUEUE_HEAD_MORE;
	     lines++)
		came = wait_line(q, lines, &head, words, &p, flags, timeout_ns);
	if (__builtin_expect(!came || wrong, 0)) {
		rc = came ? gdri_fail(EBADMSG, "a reply's line has the header 0x%x", head)
			  : give_up(q, p.error, "the kernel has not replied in time");
		goto out;
	}
	n = (lines - 1) * BARCOPY_QUEUE_LINE + (head & BARCOPY_QUEUE_HEAD_SIZE);
	if (size)
		*size = n;
	if (__builtin_expect(n > capacity, 0)) {
		rc = gdri_fail(EMSGSIZE, "a reply of %zu bytes, not %zu", n, capacity);
		goto out;
	}
	if (n == BARCOPY_QUEUE_LINE)
		memcpy(message, words, BARCOPY_QUEUE_LINE); /* inline */
	else
		memcpy(message, words, n);
	/* Later loads see what was stored before an ordered reply. The lines are in host memory. */
	gdri_fence_after_read(GDR_MAPPING_TYPE_CACHING);
	q->received += lines;
	if (q->received - q->credited >= q->lines / 4) {
		q->credited = q->received;
		gdri_post64(q->plan, q->control + BARCOPY_QUEUE_CREDIT_AT, q->received);
	}
out:
	leave(&q->receiving);
	return rc;
}
