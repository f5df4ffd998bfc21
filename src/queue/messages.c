/* SPDX-License-Identifier: MIT */
/*
 * Splits messages into lines and joins them again. docs/queue.md, "Why it is correct", says why the
 * order of the words does not matter.
 */
#include "queue/queue.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "copy/fence.h"
#include "copy/impl.h"

/* Polls between two readings of the clock: a poll of cached memory takes 1 ns, the clock 25. */
enum { LOOKS = 64 };

#define DATA_MASK ((UINT64_C(1) << BARCOPY_QUEUE_DATA_BITS) - 1)
#define LAP_AT	  BARCOPY_QUEUE_DATA_BITS
#define LAP_BITS  ((uint64_t)BARCOPY_QUEUE_LAP_MASK << LAP_AT)
#define HEAD_AT	  56

/* A wait with a timeout. The caller polls once more after the clock has shown that the time is over. */
struct patience {
	uint64_t timeout_ns, start;
	unsigned int looks;
	bool last;
};

static bool is_over(struct patience *p)
{
	uint64_t now;

	if (p->last)
		return true;
	gdri_relax();
	if (++p->looks % LOOKS || p->timeout_ns == UINT64_MAX)
		return false;
	now = gdri_now_ns();
	if (p->looks == LOOKS)
		p->start = now;
	else
		p->last = now - p->start >= p->timeout_ns;
	return false;
}

static uint64_t lap_of(const struct gdri_queue *q, uint64_t line)
{
	return ((line >> q->shift) + 1) << LAP_AT & LAP_BITS;
}

static char *line_at(const struct gdri_queue *q, char *ring, uint64_t line)
{
	return ring + (line & (q->lines - 1)) * GDRI_LINE;
}

/* ---- to the kernel ------------------------------------------------------------------------------ */

/*
 * Writes the next line: eight words, each with six bytes of the message, the lap and the header. MOVDIR64B
 * sends all 64 bytes at once. Eight plain stores gather in a write-combining buffer until
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
#if defined(__x86_64__)
	if (q->direct) {
		/* MOVDIR64B (%rsi), %rdi */
		__asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x3e" : : "S"(w), "D"(to) : "memory");
		return;
	}
#endif
	for (unsigned int i = 0; i < GDRI_QUEUE_WORDS; i++)
		gdri_store64(to + 8 * i, w[i]);
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
	if (!q->direct)
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

static __attribute__((cold, noinline)) int give_up(int err, const char *why)
{
	gdri_error_say(why);
	return -err;
}

int gdri_queue_send(struct gdri_queue *q, const void *message, size_t size, uint64_t timeout_ns,
		    int wait_error)
{
	unsigned int lines = (unsigned int)((size + BARCOPY_QUEUE_LINE - 1) / BARCOPY_QUEUE_LINE);
	struct patience p = { .timeout_ns = timeout_ns, .last = !timeout_ns };
	int rc = 0;

	if (__builtin_expect(!enter(&q->sending), 0))
		return gdri_fail(EBUSY, "another thread is sending on this queue");
	if (__builtin_expect(q->stopped, 0))
		rc = give_up(ESHUTDOWN, "the queue was stopped");
	else if (__builtin_expect(size - 1 >= BARCOPY_QUEUE_MESSAGE_MAX, 0))
		rc = gdri_fail(EMSGSIZE, "a message has 1 to %d bytes, not %zu",
			       BARCOPY_QUEUE_MESSAGE_MAX, size);
	while (!rc && __builtin_expect(!has_room(q, lines), 0))
		if (is_over(&p))
			rc = give_up(wait_error, "the kernel has not taken what was sent before");
	if (!rc)
		send_lines(q, message, size);
	leave(&q->sending);
	return rc;
}

void gdri_queue_stop(struct gdri_queue *q)
{
	const uint8_t nothing[BARCOPY_QUEUE_LINE] = { 0 };

	if (q->stopped)
		return;
	q->stopped = true;
	put_line(q, nothing, BARCOPY_QUEUE_HEAD_STOP);
	if (!q->direct)
		gdri_fence_push(q->plan->fences);
	gdri_put64(q->plan, q->control + BARCOPY_QUEUE_STOP_AT, 1);
}

/* ---- from the kernel ---------------------------------------------------------------------------- */

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
static inline bool unpack(const struct gdri_queue *q, uint64_t line, unsigned int *head, uint64_t *to)
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

static inline __attribute__((always_inline)) bool wait_line(const struct gdri_queue *q, unsigned int i,
							    unsigned int *head, uint64_t *words,
							    struct patience *p)
{
	while (!unpack(q, q->received + i, head, words + i * (BARCOPY_QUEUE_LINE / 8)))
		if (__builtin_expect(is_over(p), 0))
			return false;
	return true;
}

int gdri_queue_receive(struct gdri_queue *q, void *message, size_t capacity, size_t *size,
		       uint64_t timeout_ns)
{
	struct patience p = { .timeout_ns = timeout_ns, .last = !timeout_ns };
	uint64_t words[BARCOPY_QUEUE_MESSAGE_MAX / 8];
	unsigned int lines, head;
	bool came;
	size_t n;
	int rc = 0;

	if (__builtin_expect(!enter(&q->receiving), 0))
		return gdri_fail(EBUSY, "another thread is receiving on this queue");
	came = wait_line(q, 0, &head, words, &p);
	/* Prefetch the other lines, so that their cache misses overlap. */
	for (lines = 1; lines <= 4 && came && head & BARCOPY_QUEUE_HEAD_MORE; lines++)
		__builtin_prefetch(line_at(q, q->replies, q->received + lines));
	for (lines = 1; came && head & BARCOPY_QUEUE_HEAD_MORE && lines < GDRI_QUEUE_LINES_MAX; lines++)
		came = wait_line(q, lines, &head, words, &p);
	if (__builtin_expect(!came, 0)) {
		rc = give_up(ETIMEDOUT, "the kernel has not replied in time");
		goto out;
	}
	n = (lines - 1) * BARCOPY_QUEUE_LINE + (head & BARCOPY_QUEUE_HEAD_SIZE);
	if (__builtin_expect(n > capacity, 0)) {
		rc = gdri_fail(EMSGSIZE, "the next reply has %zu bytes, more than %zu", n, capacity);
		goto out;
	}
	if (n == BARCOPY_QUEUE_LINE)
		memcpy(message, words, BARCOPY_QUEUE_LINE); /* inline */
	else
		memcpy(message, words, n);
	if (size)
		*size = n;
	/* Later loads see what the kernel stored before an ordered reply. The lines are in host memory. */
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
