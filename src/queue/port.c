/* SPDX-License-Identifier: MIT */
/* Ports. docs/internals/queue-protocol.md holds for their ring as for a queue's replies. */
#include "queue/port.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/process.h"
#include "copy/fence.h"
#include "copy/impl.h"
#include "cuda/cuda.h"

/* Polls between two readings of the clock; lines retired before kernels are told in any case. */
enum { PORT_LOOKS = 16, QUANTUM = 32 };

#define REPLY_MASK ((UINT64_C(1) << BARCOPY_PORT_REPLY_BITS) - 1)

GDRI_SLOTS(, gdri_ports);

/* ---- receive and retire ---------------------------------------------------------------------- */

/*
 * Kernels see what is retired, behind the copies and the loads of the threads that retired it. Those
 * that wait for posts look at eight lines, which are written in turn: a MOVDIRI waits 150 ns until
 * the one before to the same line has left the CPU. Those that need space look at one word: `space`.
 */
static void show(struct gdri_port *p, bool taken, bool space)
{
	const struct gdri_copy_plan *plan = p->ring.plan;

	taken = taken && p->shown != p->retired;
	space = space && p->spaced != p->retired;
	if (!taken && !space)
		return;
	gdri_fence_before_word(GDR_MAPPING_TYPE_CACHING);
	if (taken) {
		char *to = p->ring.control + BARCOPY_PORT_TAKEN_AT +
			   ++p->shows % BARCOPY_PORT_TAKEN_LINES * 64;

		p->shown = p->retired;
		if (plan->posts || !space)
			gdri_post64(plan, to, p->retired);
		else
			gdri_store64(to, p->retired); /* one push for both */
	}
	if (space) {
		p->spaced = p->retired;
		gdri_post64(plan, p->ring.control + BARCOPY_PORT_RETIRED_AT, p->retired);
	}
}

/* Behind the loads of lines that are retired. */
static void advance(struct gdri_port *p)
{
	uint8_t *done;

	while (*(done = &p->done[p->retired & (p->ring.lines - 1)])) {
		*done = 0;
		p->retired++;
	}
	show(p, true, true);
}

/* Reads line i. Returns its header; -1: a word of it has not arrived. */
static inline int read_line(const struct gdri_port *p, uint64_t i, barcopy_port_message_t *to)
{
	int rc = gdri_line_read(&p->ring, i, to->data);
	unsigned int head = (unsigned int)rc;

	if (rc < 0)
		return rc;
	to->post = i + 1;
	to->size = head & BARCOPY_PORT_HEAD_SIZE;
	if (to->size > BARCOPY_QUEUE_LINE)
		to->size = 0;
	to->call = (uint32_t)to->data[0] & -(head / BARCOPY_PORT_HEAD_CALL); /* no branch */
	return rc;
}

/* Line i is no post: a thread whose call found its slot taken has left the line out. */
static void skip(struct gdri_port *p, uint64_t i)
{
	if (!p->manual)
		return; /* as a post */
	gdri_fence_after_read(GDR_MAPPING_TYPE_CACHING);
	pthread_mutex_lock(&p->gate);
	p->done[i & (p->ring.lines - 1)] = 1;
	advance(p);
	pthread_mutex_unlock(&p->gate);
}

/* After a poll in vain: spins, yields or sleeps. Returns -errno before the last poll; else 0. */
static int rest(struct gdri_port *p, uint64_t *start, uint64_t timeout_ns)
{
	struct timespec pause = { 0 };
	uint64_t now, left, quiet;

	if (timeout_ns)
		gdri_relax();
	if (++p->looks % PORT_LOOKS)
		return timeout_ns ? 0 : -ETIMEDOUT;
	now = gdri_now_ns();
	if (now - p->asked >= GDRI_ASK_NS) { /* also if a caller polls without waiting */
		p->asked = now;
		if (!gdri_cuda_context_works(p->ring.pages->context))
			return -EPIPE;
	}
	*start = *start ?: now;
	p->idle = p->idle ?: now;
	if (now - *start >= timeout_ns)
		return -ETIMEDOUT;
	quiet = now - p->idle;
	if (!p->spin_ns || quiet < p->spin_ns)
		return 0;
	p->looks = PORT_LOOKS - 1; /* each poll now reads the clock and rests */
	if (!p->sleep_ns || quiet - p->spin_ns < p->yield_ns) {
		sched_yield();
		return 0;
	}
	left = timeout_ns - (now - *start);
	left = left < p->sleep_ns ? left : p->sleep_ns;
	left = left < GDRI_ASK_NS ? left : GDRI_ASK_NS; /* nothing else shows the end, or CUDA's */
	pause.tv_sec = (time_t)(left / 1000000000);
	pause.tv_nsec = (long)(left % 1000000000);
	nanosleep(&pause, NULL);
	return 0;
}

static __attribute__((cold, noinline)) int gave_up(const struct gdri_port *p, int rc)
{
	gdri_error_say(
		rc == -ETIMEDOUT ? "no post has come in time"
		: p->ended	 ? "barcopy_port_end() or gdr_close() was called; no post is left"
			   : "the CUDA context has ended, by an error or by a reset of the device");
	return rc;
}

int gdri_port_receive(struct gdri_port *p, barcopy_port_message_t *messages, uint32_t n,
		      uint32_t *count, uint64_t timeout_ns)
{
	uint64_t first = atomic_load_explicit(&p->received, memory_order_relaxed), at = first;
	uint64_t start = 0;
	uint32_t k = 0;
	int head, rc = 0;

	*count = 0;
	if (!p->manual) {
		p->retired = at;
		/* Before the caller works on: a kernel may wait for one of these. */
		show(p, p->due > p->shown || at - p->shown >= p->quantum,
		     at - p->spaced >= p->quantum);
	}
	for (;;) {
		/* Before the ring: what is not there then never comes, or not in time. */
		bool last = rc || atomic_load_explicit(&p->ended, memory_order_acquire);

		while (k < n && (head = read_line(p, at, &messages[k])) >= 0) {
			uint32_t call = messages[k].call;

			if (!(head & BARCOPY_PORT_HEAD_UNAWAITED))
				p->due = at + 1;
			if (head == BARCOPY_PORT_HEAD_CALL) {
				skip(p, at++);
				if (at - first < p->ring.lines)
					continue;
				p->looks = PORT_LOOKS - 1; /* a kernel may write on: see rest() */
				break;
			}
			/*
			 * Another thread closed the slot before its last answer, which came before
			 * this call.
			 */
			if (call & 1 && call >> 8 < p->ring.lines) {
				gdri_fence_after_read(GDR_MAPPING_TYPE_CACHING);
				gdri_store32(&p->open[call >> 8], call);
			}
			k++;
			at++;
		}
		if (at != first) {
			/* Later loads see what was stored before; retiring follows the loads. */
			gdri_fence_after_read(GDR_MAPPING_TYPE_CACHING);
			atomic_store_explicit(&p->received, at, memory_order_release);
			first = at;
		}
		if (k)
			break;
		if (!p->manual) {
			p->retired = at;
			show(p, true, true); /* who waits for these may post nothing more before */
		}
		if (__builtin_expect(last, 0))
			return gave_up(p, rc ?: -EPIPE);
		rc = rest(p, &start, timeout_ns);
		if (rc == -ETIMEDOUT && !timeout_ns) /* no wait, and no other look */
			return gave_up(p, rc);
	}
	p->idle = 0;
	*count = k;
	return 0;
}

int gdri_port_retire(struct gdri_port *p, uint64_t post, uint32_t n)
{
	uint64_t received = atomic_load_explicit(&p->received, memory_order_acquire);
	uint64_t first = post - 1, i = first;
	bool valid;

	if (!p->manual)
		return gdri_fail(EINVAL, "the port was created without BARCOPY_PORT_MANUAL: "
					 "receive retires its posts");
	if (!n)
		return 0;
	pthread_mutex_lock(&p->gate);
	/* A line that is no post may have been retired before it counts as received. */
	valid = p->retired <= received && first - p->retired < received - p->retired &&
		n <= received - first;
	while (valid && i < first + n && !p->done[i & (p->ring.lines - 1)])
		i++;
	valid = valid && i == first + n;
	if (valid) {
		while (i-- > first)
			p->done[i & (p->ring.lines - 1)] = 1;
		advance(p);
	}
	pthread_mutex_unlock(&p->gate);
	return valid ? 0
		     : gdri_fail(EINVAL,
				 "cannot retire %u from post %llu on: the last one received is "
				 "%llu; one is beyond it, is retired already, or was no post",
				 n, (unsigned long long)post, (unsigned long long)received);
}

/* ---- answers, stop and end ------------------------------------------------------------------- */

/* Without a locked instruction, which would wait until the last answer has left the CPU. */
static bool close_slot(const struct gdri_port *p, uint32_t call)
{
	if (!call || call >> 8 >= p->ring.lines || gdri_load32(&p->open[call >> 8]) != call)
		return false;
	gdri_store32(&p->open[call >> 8], 0);
	return true;
}

int gdri_port_answer(const struct gdri_port *p, const uint32_t *calls, const uint64_t *answers,
		     uint32_t count)
{
	uint32_t i, k;

	for (i = 0; i < count; i++)
		if (answers[i] > REPLY_MASK || !close_slot(p, calls[i]))
			break;
	for (k = i; i < count && k--;) /* one is wrong: those before it stay open */
		gdri_store32(&p->open[calls[k] >> 8], calls[k]);
	if (i < count)
		return gdri_fail(EINVAL,
				 "calls[%u] is not an open call of this port, or its answer has "
				 "more than 56 bits",
				 i);
	gdri_fence_before_word(GDR_MAPPING_TYPE_CACHING);
	for (i = 0; i < count; i++) {
		char *to = p->ring.control + BARCOPY_PORT_CONTROL +
			   (uint64_t)(calls[i] >> 8) * BARCOPY_PORT_SLOT;
		uint64_t word = (uint64_t)calls[i] << BARCOPY_PORT_REPLY_BITS | answers[i];

		if (p->ring.plan->posts)
			gdri_post64(p->ring.plan, to, word);
		else
			gdri_store64(to, word);
	}
	if (!p->ring.plan->posts)
		gdri_fence_push(p->ring.plan->fences);
	return 0;
}

void gdri_port_stop(struct gdri_ring *ring, uint32_t flags)
{
	const uint32_t bits = BARCOPY_PORT_STOPPED_BIT | (flags ? BARCOPY_PORT_ABORTED_BIT : 0);
	struct gdri_port *p = (struct gdri_port *)ring;
	uint32_t before, state = atomic_fetch_or_explicit(&p->state, bits, memory_order_seq_cst);

	state |= bits;
	/*
	 * Another thread may store fewer bits behind this store: it then sees these, as its own store
	 * has arrived before it looks. A posted word alone may arrive behind a later load.
	 */
	do {
		before = state;
		gdri_post64(ring->plan, ring->control + BARCOPY_PORT_STATE_AT,
			    p->view.generation | state);
		gdri_flush_word(ring->plan, ring->control + BARCOPY_PORT_STATE_AT);
		state = atomic_load_explicit(&p->state, memory_order_seq_cst);
	} while (state != before);
	if (flags & GDRI_RING_END)
		atomic_store_explicit(&p->ended, true, memory_order_release);
}

/* ---- create ---------------------------------------------------------------------------------- */

static void set_up_port(struct gdri_ring *r, const void *options)
{
	static atomic_uint generations;
	const barcopy_port_options_t *o = options;
	struct gdri_port *p = (struct gdri_port *)r;

	pthread_mutex_init(&p->gate, NULL);
	p->open = r->arrays;
	p->done = (uint8_t *)(p->open + r->lines);
	p->quantum = r->lines / 4 < QUANTUM ? r->lines / 4 : QUANTUM;
	p->manual = o->flags & BARCOPY_PORT_MANUAL;
	p->spin_ns = o->spin_ns;
	p->yield_ns = o->yield_ns;
	p->sleep_ns = o->sleep_ns;
	p->view = (barcopy_port_view_t){
		.ring = r->pages->addr,
		.control = r->gpu,
		.generation = (uint64_t)BARCOPY_QUEUE_VERSION << 56 |
			      (uint64_t)(++generations & 0xffffff) << 32,
		.lines = r->lines,
	};
	gdri_put64(r->plan, r->control + BARCOPY_PORT_STATE_AT, p->view.generation);
}

const struct gdri_ring_kind gdri_port_kind = {
	.table = &gdri_ports,
	.what = "a port",
	.lines = 1024,
	.object = sizeof(struct gdri_port),
	.control = BARCOPY_PORT_CONTROL,
	.gpu_line = BARCOPY_PORT_SLOT,
	.array = sizeof(uint32_t) + sizeof(uint8_t), /* open, done */
	.set_up = set_up_port,
	.stop = gdri_port_stop,
};
