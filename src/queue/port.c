/* SPDX-License-Identifier: MIT */
/* Ports. docs/internals/queue-protocol.md holds for their ring as for a queue's replies. */
#include "queue/port.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/process.h"
#include "copy/fence.h"
#include "copy/impl.h"
#include "core/ctx.h"
#include "cuda/cuda.h"

/* Polls between two readings of the clock; lines retired before kernels are told in any case. */
enum { PORT_LOOKS = 16, QUANTUM = 32 };

#define REPLY_MASK ((UINT64_C(1) << BARCOPY_PORT_REPLY_BITS) - 1)

GDRI_SLOTS(, gdri_ports);

/* ---- receive and retire ---------------------------------------------------------------------- */

/* Kernels see what is retired, behind what the threads that retired it had copied before. */
static void show(struct gdri_port *p)
{
	if (p->shown == p->retired)
		return;
	gdri_fence_after_write(GDR_MAPPING_TYPE_CACHING);
	p->shown = p->retired;
	gdri_post64(p->plan, p->control + BARCOPY_PORT_RETIRED_AT, p->retired);
}

/* Behind the loads of lines that are retired. */
static void advance(struct gdri_port *p)
{
	uint8_t *done;

	while (*(done = &p->done[p->retired & (p->lines - 1)])) {
		*done = 0;
		p->retired++;
	}
	show(p);
}

/* Reads line i. Returns its header; -1: a word of it has not arrived. */
static inline int read_line(const struct gdri_port *p, uint64_t i, barcopy_port_message_t *to)
{
	const uint64_t lap_bits = (uint64_t)BARCOPY_QUEUE_LAP_MASK << BARCOPY_QUEUE_DATA_BITS;
	const char *from = p->ring + (i & (p->lines - 1)) * GDRI_LINE;
	uint64_t w[8], lap = ((i >> p->shift) + 1) << BARCOPY_QUEUE_DATA_BITS & lap_bits;
	uint64_t differs = 0;
	unsigned int head;

	/* The last word first: while no line arrives, a poll reads only this word. */
	w[7] = gdri_load64(from + 56);
	if ((w[7] ^ lap) & lap_bits)
		return -1;
	GDRI_UNROLL
	for (unsigned int k = 0; k < 7; k++) {
		w[k] = gdri_load64(from + 8 * k);
		differs |= w[k] ^ lap;
	}
	if (differs & lap_bits)
		return -1;
	head = (unsigned int)(w[0] >> 56);
	to->post = i + 1;
	to->size = head & BARCOPY_QUEUE_HEAD_SIZE;
	if (to->size > BARCOPY_QUEUE_LINE)
		to->size = 0;
	to->call = head & BARCOPY_PORT_HEAD_CALL ? (uint32_t)w[0] : 0;
	gdri_queue_join(to->data, w);
	return (int)head;
}

/* Line i is no post: a thread whose call found its slot taken has left the line out. */
static void skip(struct gdri_port *p, uint64_t i)
{
	if (!p->manual)
		return; /* as a post */
	gdri_fence_after_read(GDR_MAPPING_TYPE_CACHING);
	pthread_mutex_lock(&p->gate);
	p->done[i & (p->lines - 1)] = 1;
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
		if (!gdri_cuda_context_works(p->pages->context))
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
		: p->ended	 ? "barcopy_port_end() was called, and no post is left"
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
		if (at - p->shown >= p->quantum)
			show(p);
	}
	for (;;) {
		/* Before the ring: what is not there then never comes, or not in time. */
		bool last = rc || atomic_load_explicit(&p->ended, memory_order_acquire);

		while (k < n && (head = read_line(p, at, &messages[k])) >= 0) {
			uint32_t call = messages[k].call;

			if (head == BARCOPY_PORT_HEAD_CALL) {
				skip(p, at++);
				continue;
			}
			/*
			 * Another thread closed the slot before its last answer, which came before
			 * this call.
			 */
			if (call & 1 && call >> 8 < p->lines) {
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
			show(p); /* who waits for these may post nothing more before */
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
	while (valid && i < first + n && !p->done[i & (p->lines - 1)])
		i++;
	valid = valid && i == first + n;
	if (valid) {
		while (i-- > first)
			p->done[i & (p->lines - 1)] = 1;
		advance(p);
	}
	pthread_mutex_unlock(&p->gate);
	return valid ? 0
		     : gdri_fail(EINVAL,
				 "cannot retire %u posts from %llu on: not all are received, or "
				 "some are retired already",
				 n, (unsigned long long)post);
}

/* ---- answers, stop and end ------------------------------------------------------------------- */

/* Without a locked instruction, which would wait until the last answer has left the CPU. */
static bool close_slot(const struct gdri_port *p, uint32_t call)
{
	if (!call || call >> 8 >= p->lines || gdri_load32(&p->open[call >> 8]) != call)
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
	gdri_fence_after_write(GDR_MAPPING_TYPE_CACHING);
	for (i = 0; i < count; i++) {
		char *to = p->control + BARCOPY_PORT_CONTROL +
			   (uint64_t)(calls[i] >> 8) * BARCOPY_PORT_SLOT;
		uint64_t word = (uint64_t)calls[i] << BARCOPY_PORT_REPLY_BITS | answers[i];

		if (p->plan->posts)
			gdri_post64(p->plan, to, word);
		else
			gdri_store64(to, word);
	}
	if (!p->plan->posts && count)
		gdri_fence_push(p->plan->fences);
	return 0;
}

static void set_state(struct gdri_port *p, uint32_t bits)
{
	uint32_t before, state = atomic_fetch_or_explicit(&p->state, bits, memory_order_seq_cst);

	state |= bits;
	/*
	 * Another thread may store fewer bits behind this store: it then sees these, as its own store
	 * has arrived before it looks. A posted word alone may arrive behind a later load.
	 */
	do {
		before = state;
		gdri_post64(p->plan, p->control + BARCOPY_PORT_STATE_AT,
			    p->view.generation | state);
		gdri_flush_word(p->plan, p->control + BARCOPY_PORT_STATE_AT);
		state = atomic_load_explicit(&p->state, memory_order_seq_cst);
	} while (state != before);
}

void gdri_port_stop(struct gdri_port *p, uint32_t flags)
{
	set_state(p, flags & BARCOPY_PORT_ABORT
			     ? BARCOPY_PORT_STOPPED_BIT | BARCOPY_PORT_ABORTED_BIT
			     : BARCOPY_PORT_STOPPED_BIT);
}

void gdri_port_end(struct gdri_port *p)
{
	set_state(p, BARCOPY_PORT_STOPPED_BIT | BARCOPY_PORT_ABORTED_BIT);
	atomic_store_explicit(&p->ended, true, memory_order_release);
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static void free_blocks(struct gdri_port *p)
{
	gdri_queue_unmap(p->ctx, &p->mem);
	if (p->pages)
		gdri_cuda_give_pages(p->pages);
	free(p->open);
	gdri_slots_free(&gdri_ports, &p->slot);
}

int gdri_port_create(struct gdri_ctx *ctx, int device, const barcopy_port_options_t *o,
		     barcopy_port_t *out)
{
	static atomic_uint generations;
	struct gdri_port *p = (struct gdri_port *)gdri_slots_new(&gdri_ports, sizeof(*p), NULL);
	int rc;

	if (!p)
		return gdri_fail(ENOMEM, "no memory for a port");
	memset((char *)p + offsetof(struct gdri_port, control), 0,
	       sizeof(*p) - offsetof(struct gdri_port, control));
	pthread_mutex_init(&p->gate, NULL);
	p->ctx = ctx;
	p->lines = o->lines;
	p->shift = (uint32_t)__builtin_ctz(o->lines);
	p->quantum = o->lines / 4 < QUANTUM ? o->lines / 4 : QUANTUM;
	p->manual = o->flags & BARCOPY_PORT_MANUAL;
	p->spin_ns = o->spin_ns;
	p->yield_ns = o->yield_ns;
	p->sleep_ns = o->sleep_ns;
	p->open = calloc(o->lines, sizeof(*p->open) + sizeof(*p->done));
	p->done = (uint8_t *)(p->open + o->lines);
	rc = p->open ? gdri_queue_map(ctx, device,
				      BARCOPY_PORT_CONTROL + p->lines * (size_t)BARCOPY_PORT_SLOT,
				      &p->mem, &p->plan)
		     : gdri_fail(ENOMEM, "no memory for a port");
	rc = rc ?: gdri_cuda_take_pages(device, p->lines * GDRI_LINE, &p->pages);
	if (rc) {
		free_blocks(p);
		return rc;
	}
	p->control = p->mem.cpu_ptr;
	p->ring = p->pages->host;
	p->view = (barcopy_port_view_t){
		.ring = p->pages->addr,
		.control = p->mem.device_ptr,
		.generation = (uint64_t)BARCOPY_QUEUE_VERSION << 56 |
			      (uint64_t)(++generations & 0xffffff) << 32,
		.lines = p->lines,
	};
	gdri_put64(p->plan, p->control + BARCOPY_PORT_STATE_AT, p->view.generation);
	atomic_store_explicit(&p->g, (gdr_t)(uintptr_t)gdri_slot_name(&ctx->slot),
			      memory_order_release);
	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->ports, p, link);
	pthread_mutex_unlock(&ctx->lock);
	*out = (barcopy_port_t)(uintptr_t)gdri_slot_publish(&p->slot);
	return 0;
}

/* Nobody finds the port any more, and kernels post nothing more. */
static void retire_port(struct gdri_port *p)
{
	gdri_slot_retire(&p->slot);
	if (gdri_cuda_context_works(p->pages->context)) /* else the mapping may be gone */
		gdri_port_end(p);
	pthread_mutex_lock(&p->ctx->lock);
	LIST_REMOVE(p, link);
	pthread_mutex_unlock(&p->ctx->lock);
}

void gdri_port_destroy(struct gdri_port *p)
{
	retire_port(p);
	free_blocks(p);
}

void gdri_ports_end(struct gdri_ctx *ctx)
{
	struct gdri_port *p;

	while ((p = LIST_FIRST(&ctx->ports))) {
		gdri_log(GDRI_LOG_ERROR, "a port was not destroyed: its memory stays allocated");
		retire_port(p);
		gdri_queue_abandon(ctx, &p->mem);
		/* The object and its arrays stay as well: a receiver may be in a call. */
	}
}
