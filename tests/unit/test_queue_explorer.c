/* SPDX-License-Identifier: MIT */
/*
 * The queue's own code, src/queue/messages.c and barcopy_queue.cuh, over a relaxed memory: each word
 * has a history, and a load gives any value that is not older than what its agent knows. Agents are
 * the sender, the receiver and the warp's 32 lanes, coroutines that run in random order. An agent
 * knows what it loaded and stored, what a fence of its own and one before the store that it loaded
 * bring together, and after __syncwarp() what the other lanes know (PTX ISA, "Memory Consistency
 * Model"). Laps have two bits, so that old words look like new ones early.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "base/error.h"
#include "barcopy_queue.h"
#include "common/expect.h"
#include "common/unit.h"
#include "copy/fence.h"
#include "copy/impl.h"
#include "copy/word.h"
#include "cuda/cuda.h"

static void store(uintptr_t addr, uint64_t value);
static void store_line(uintptr_t addr, const uint64_t *w);
static uint64_t load(uintptr_t addr);
static void fence(void);
static void yield(void);
static void push(uintptr_t addr, uint64_t value);

/* What messages.c calls, and its own names, which the library has too. */
#undef gdri_store64
#undef gdri_load64
#define gdri_store64(p, v)	     store((uintptr_t)(p), v)
#define gdri_load64(p)		     load((uintptr_t)(p))
#define gdri_store_line(to, w, last) store_line((uintptr_t)(to), w)
#define gdri_fence_push(type)	     fence()
#define gdri_fence_after_write(type) fence()
#define gdri_fence_after_read(type)  fence()
#define gdri_post64(plan, p, v)	     push((uintptr_t)(p), v)
#define gdri_relax()		     yield()
#define gdri_queues		     explored_queues
#define gdri_queue_send		     explored_send
#define gdri_queue_send_batch	     explored_send_batch
#define gdri_queue_receive	     explored_receive
#define gdri_queue_receive_any	     explored_receive_any
#define gdri_queue_answer	     explored_answer
#define gdri_queue_stop		     explored_stop
#define gdri_queue_is_dead	     explored_is_dead
#undef BARCOPY_QUEUE_LAP_MASK
#define BARCOPY_QUEUE_LAP_MASK 0x3u
#include "queue/messages.c"

/* ---- the memory ---------------------------------------------------------- */

enum {
	LINES = 16,
	LANES = 32,
	SENDER = LANES,
	RECEIVER,
	AGENTS,
	BULK = 8, /* words that the sender stores before a message, and lanes before a reply */
	STACK = 131072,
	REGION = 1 << 16, /* bytes of each of the six regions */
	WORDS = 6 * 160,
	HISTORY = 64,
	STEPS = 1500000 /* a run of 600 messages takes up to a third */
};

enum {
	REQUESTS = REGION,
	REPLIES = 2 * REGION,
	CONTROL = 3 * REGION,
	STATE = 4 * REGION,
	BULK_IN = 5 * REGION,
	BULK_OUT = 6 * REGION
};

/* What an agent knows: for each word the number of the oldest value that it may still load. */
struct view {
	uint32_t at[WORDS];
	struct view *next; /* all that were made in a run */
};

struct word {
	uint32_t count; /* of values; the last HISTORY are kept */
	uint64_t value[HISTORY];
	const struct view *released[HISTORY]; /* what the storing agent had fenced */
};

/* How the model is made worse, to show that this test sees it. */
enum fault { NONE, NO_FENCES, TORN_WORDS, EARLY_CREDIT, NO_STOP_LINE };

static struct {
	uint64_t random;
	enum fault fault;
	struct word word[WORDS];
	struct view now[AGENTS], heard[AGENTS]; /* heard: from stores that it loaded */
	const struct view *released[AGENTS];
	struct view *views;
	ucontext_t context[AGENTS], caller;
	char *stacks;
	bool done[AGENTS], waits[AGENTS];
	int me;
	unsigned int turn[LANES], arrived[2], steps;
	uint64_t gathered[2][LANES];
	const char *wrong;
	struct gdri_queue q;
} m;

static unsigned int below(unsigned int n)
{
	m.random = m.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(m.random >> 33) % n;
}

static void join_views(struct view *to, const struct view *from)
{
	for (int i = 0; i < WORDS; i++)
		if (from->at[i] > to->at[i])
			to->at[i] = from->at[i];
}

static void switch_to_any(ucontext_t *from)
{
	int next, left = 0;

	for (int i = 0; i < AGENTS; i++)
		left += !m.done[i];
	do
		next = (int)below(AGENTS);
	while (left && (m.done[next] || m.waits[next]));
	m.me = next;
	swapcontext(from, left ? &m.context[next] : &m.caller);
}

static void yield(void)
{
	if (++m.steps > STEPS && !m.wrong)
		m.wrong = "no end";
	if (m.wrong)
		swapcontext(&m.context[m.me], &m.caller);
	switch_to_any(&m.context[m.me]);
}

static void maybe(void)
{
	if (!below(4))
		yield();
}

static void wrong(const char *what)
{
	m.wrong = what;
	yield();
}

static unsigned int index_of(uintptr_t addr)
{
	return (unsigned int)(addr / REGION - 1) * 160 + (unsigned int)(addr % REGION) / 8;
}

static void store(uintptr_t addr, uint64_t value)
{
	unsigned int i = index_of(addr);
	struct word *w = &m.word[i];

	for (int part = m.fault == TORN_WORDS ? 0 : 1; part < 2; part++) {
		uint64_t old = w->value[(w->count - 1) % HISTORY];

		w->value[w->count % HISTORY] =
			part ? value : (value & ~UINT64_C(0xffffffff)) | (uint32_t)old;
		w->released[w->count % HISTORY] = m.released[m.me];
		m.now[m.me].at[i] = w->count++;
	}
	maybe();
}

static void store_line(uintptr_t addr, const uint64_t *w)
{
	unsigned int first = below(8);

	for (unsigned int i = first; i < first + 8; i++)
		store(addr + i % 8 * 8, w[i % 8]);
}

static uint64_t load(uintptr_t addr)
{
	unsigned int i = index_of(addr);
	struct word *w = &m.word[i];
	uint32_t first = m.now[m.me].at[i], at = w->count - 1;

	if (w->count > HISTORY && first < w->count - HISTORY)
		first = w->count - HISTORY;
	if (below(10) < 3)
		at = first + below(w->count - first);
	m.now[m.me].at[i] = at;
	if (w->released[at % HISTORY])
		join_views(&m.heard[m.me], w->released[at % HISTORY]);
	maybe();
	return w->value[at % HISTORY] + (m.fault == EARLY_CREDIT && addr == STATE ? LINES / 2 : 0);
}

static void fence(void)
{
	struct view *v = malloc(sizeof(*v));

	if (m.fault == NO_FENCES || !v) {
		free(v);
		return;
	}
	join_views(&m.now[m.me], &m.heard[m.me]);
	*v = m.now[m.me];
	v->next = m.views;
	m.views = v;
	m.released[m.me] = v;
}

static void push(uintptr_t addr, uint64_t value)
{
	store(addr, value);
	fence();
}

/* ---- the warp ------------------------------------------------------------ */

static const uint64_t *gather(uint64_t value, bool sync)
{
	unsigned int t = m.turn[m.me]++ & 1;

	m.gathered[t][m.me] = value;
	if (++m.arrived[t] < LANES) {
		m.waits[m.me] = true;
	} else {
		m.arrived[t] = 0;
		for (int i = 1; sync && i < LANES; i++)
			join_views(&m.now[0], &m.now[i]);
		for (int i = 0; i < LANES; i++) {
			m.waits[i] = false;
			if (sync)
				m.now[i] = m.now[0];
		}
	}
	yield();
	return m.gathered[t];
}

static unsigned int ballot(int yes)
{
	const uint64_t *all = gather(yes != 0, false);
	unsigned int bits = 0;

	for (int i = 0; i < LANES; i++)
		bits |= (unsigned int)all[i] << i;
	return bits;
}

#define BARCOPY_WARP_FN		 static inline __attribute__((unused))
#define __ballot_sync(mask, yes) ballot(yes)
#define __any_sync(mask, yes)	 (ballot(yes) != 0)
#define __all_sync(mask, yes)	 (ballot(yes) == 0xffffffff)
#define __shfl_sync(mask, value, src) \
	((__typeof__(value))gather((uint64_t)(value), false)[(src)&31])
#define __syncwarp(mask)     ((void)gather(0, true))
#define __popc(bits)	     __builtin_popcount(bits)
#define barcopy_warp_lane()  ((unsigned int)m.me)
#define barcopy_warp_fence() fence()
/* of posts: test_queue_posts.c */
#define barcopy_warp_fence_sc()   fence()
#define barcopy_warp_add(addr, n) ((addr) + (n))
#define barcopy_warp_pause()	  yield()

static void barcopy_warp_load(unsigned long long addr, unsigned int acquire, unsigned long long *v)
{
	unsigned int first = below(2);

	v[first] = load(addr + 8 * first);
	v[!first] = load(addr + 8 * !first);
	if (acquire)
		join_views(&m.now[m.me], &m.heard[m.me]);
}

static void barcopy_warp_store(int yes, unsigned long long addr, unsigned long long v0,
			       unsigned long long v1)
{
	unsigned int first = below(2);

	if (!yes)
		return;
	store(addr + 8 * first, first ? v1 : v0);
	store(addr + 8 * !first, first ? v0 : v1);
}

static unsigned int barcopy_warp_claim(unsigned long long addr)
{
	unsigned int i = index_of(addr);
	bool free = !m.word[i].value[(m.word[i].count - 1) % HISTORY];

	if (free)
		store(addr, 1);
	fence();
	return free;
}

#include "barcopy_queue.cuh"

/* ---- the programs -------------------------------------------------------- */

enum how { BUFFER, REGISTERS, BOTH, HOWS };

static struct {
	uint64_t messages;
	enum how how;
	bool ordered, relaunch;
	uint64_t received;
	uint64_t kernel[601]; /* which one answered a message */
	unsigned long long shared[BARCOPY_QUEUE_MESSAGE_MAX / 8];
} run;

static size_t size_of(uint64_t n)
{
	uint64_t x = n * UINT64_C(0x9e3779b97f4a7c15);

	return 8 + (x >> 40) % (run.how == BUFFER ? BARCOPY_QUEUE_MESSAGE_MAX - 7 : 41);
}

/* Message n: its number, then bytes that depend on it; in the reply these are inverted. */
static void fill(uint8_t *p, uint64_t n, uint8_t flip)
{
	memcpy(p, &n, 8);
	for (size_t i = 8; i < size_of(n); i++)
		p[i] = (uint8_t)(n * 31 + i * 7 + (n >> 8)) ^ flip;
}

static void check_bulk(uintptr_t addr, uint64_t n)
{
	if (run.ordered && load(addr) < n)
		wrong("bulk data are older than the message");
}

static bool serve_buffer(barcopy_warp_t *q, unsigned int flags)
{
	uint8_t want[BARCOPY_QUEUE_MESSAGE_MAX], *got = (uint8_t *)run.shared;
	unsigned int size = barcopy_warp_receive(q, run.shared, flags);
	uint64_t n = run.shared[0];

	if (!size)
		return false;
	check_bulk(BULK_IN + n % BULK * 8, n);
	fill(want, n, 0);
	if (size != size_of(n) || memcmp(got, want, size))
		wrong("a request's bytes");
	if (run.ordered)
		store(BULK_OUT + q->lane * 8, n);
	run.kernel[n] = q->begun;
	__syncwarp(BARCOPY_WARP_ALL);
	for (unsigned int i = 8 + q->lane; i < size; i += LANES)
		got[i] = (uint8_t)~got[i];
	if (!barcopy_warp_reply(q, run.shared, size, flags))
		return false;
	/* the buffer is the kernel's again */
	for (unsigned int i = 8 + q->lane; i < size; i += LANES)
		got[i] = 0xee;
	return true;
}

static bool serve_registers(barcopy_warp_t *q, unsigned int flags)
{
	unsigned int data[3], size, n = barcopy_warp_take(q, data, &size, flags);
	uint64_t number = data[0] | (uint64_t)data[1] << 32, last;

	if (!n)
		return false;
	if (q->lane % 4 == 0 && q->line < n)
		run.kernel[number] = q->begun;
	last = gather(number, false)[(n - 1) * 4];
	if (q->lane % 4 == 0 && q->line < n && size != size_of(number))
		wrong("a size");
	check_bulk(BULK_IN + last % BULK * 8, last);
	if (run.ordered)
		store(BULK_OUT + q->lane * 8, last);
	for (int i = 0; i < 3; i++)
		if (q->lane % 4 || i == 2)
			data[i] = ~data[i];
	return barcopy_warp_put(q, n, data, size, flags);
}

static void lane(void)
{
	unsigned int flags = run.ordered ? BARCOPY_WARP_ORDERED : 0;
	barcopy_queue_view_t view = { REQUESTS, REPLIES, CONTROL,
				      STATE,	LINES,	 BARCOPY_QUEUE_VERSION << 24 | 1 };
	bool more = true;
	barcopy_warp_t q;

	for (unsigned int round = 0; more; round++) {
		if (!barcopy_warp_begin(&q, view))
			wrong("a kernel was refused");
		for (unsigned int k = 0; more && (!run.relaunch || k < 1 + round % 37); k++)
			more = run.how == BUFFER || (run.how == BOTH && (k & 1))
				       ? serve_buffer(&q, flags)
				       : serve_registers(&q, flags);
		barcopy_warp_end(&q);
		__syncwarp(BARCOPY_WARP_ALL); /* a launch follows what has ended */
	}
}

static void sender(void)
{
	uint8_t message[BARCOPY_QUEUE_MESSAGE_MAX];
	int rc;

	for (uint64_t n = 1; n <= run.messages; n++) {
		fill(message, n, 0);
		store(BULK_IN + n % BULK * 8, n);
		while ((rc = explored_send(&m.q, message, size_of(n),
					   run.ordered ? BARCOPY_QUEUE_ORDERED : 0, 0, EAGAIN)))
			yield();
	}
	while (run.relaunch && run.received < run.messages)
		yield(); /* a stop between two kernels would be the end */
	explored_stop(&m.q, m.fault == NO_STOP_LINE ? BARCOPY_QUEUE_ABORT : 0);
}

static void receiver(void)
{
	uint8_t got[BARCOPY_QUEUE_MESSAGE_MAX], want[BARCOPY_QUEUE_MESSAGE_MAX];
	size_t size;
	int rc;

	while (m.word[index_of(REPLIES)].count == 1) /* its waits read the count of kernels */
		yield();
	while ((rc = explored_receive(&m.q, got, sizeof(got), &size, 0, 0)) != -EPIPE) {
		if (rc == -ETIMEDOUT) {
			yield();
			continue;
		}
		fill(want, ++run.received, 0xff);
		if (rc || size != size_of(run.received) || memcmp(got, want, size))
			wrong("a reply's bytes");
		if (load(STATE + BARCOPY_QUEUE_BEGUN_AT) < run.kernel[run.received])
			wrong("a reply before its kernel has begun");
		for (unsigned int i = 0; i < LANES; i++)
			check_bulk(BULK_OUT + i * 8, run.received);
	}
	if (run.received != run.messages)
		wrong("a message was lost");
}

static void agent(void)
{
	if (m.me < LANES)
		lane();
	else if (m.me == SENDER)
		sender();
	else
		receiver();
	m.done[m.me] = true;
	switch_to_any(&m.context[m.me]);
}

/* What went wrong in one run; NULL: nothing. */
static const char *explore(uint64_t seed, enum how how, bool ordered, bool relaunch,
			   enum fault fault)
{
	static const struct gdri_copy_plan plan = { .fences = GDR_MAPPING_TYPE_WC };
	char *stacks = m.stacks;

	for (struct view *v = m.views, *next; v; v = next) {
		next = v->next;
		free(v);
	}
	memset(&m, 0, sizeof(m));
	memset(&run, 0, sizeof(run));
	m.stacks = stacks ? stacks : malloc((size_t)AGENTS * STACK);
	ck_assert_ptr_nonnull(m.stacks);
	m.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	m.fault = fault;
	for (int i = 0; i < WORDS; i++)
		m.word[i].count = 1;
	m.word[index_of(CONTROL + BARCOPY_QUEUE_GENERATION_AT)].value[0] =
		BARCOPY_QUEUE_VERSION << 24 | 1;
	m.q = (struct gdri_queue){ .requests = (char *)(uintptr_t)REQUESTS,
				   .replies = (char *)(uintptr_t)REPLIES,
				   .control = (char *)(uintptr_t)CONTROL,
				   .state = (char *)(uintptr_t)STATE,
				   .plan = &plan,
				   .lines = LINES,
				   .shift = 4 };
	run.messages = unit_quick() ? 150 : 600;
	run.how = how;
	run.ordered = ordered;
	run.relaunch = relaunch;
	for (int i = 0; i < AGENTS; i++) {
		getcontext(&m.context[i]);
		m.context[i].uc_stack.ss_sp = m.stacks + (size_t)i * STACK;
		m.context[i].uc_stack.ss_size = STACK;
		makecontext(&m.context[i], agent, 0);
	}
	switch_to_any(&m.caller);
	return m.wrong;
}

static void every_how(bool ordered, bool relaunch)
{
	for (int how = BUFFER; how < HOWS; how++) {
		for (uint64_t seed = 1; seed <= 4; seed++) {
			const char *what = explore(seed, (enum how)how, ordered, relaunch, NONE);

			ck_assert_msg(!what, "%s: seed %d, by %d", what, (int)seed, how);
		}
	}
}

static void messages(void)
{
	every_how(false, false);
}

static void bulk_data(void)
{
	every_how(true, false);
}

static void relaunched(void)
{
	every_how(true, true);
	every_how(false, true);
}

/* The test of the test. */
static void faults(void)
{
	for (int fault = NONE + 1; fault <= NO_STOP_LINE; fault++) {
		const char *what = NULL;

		for (uint64_t seed = 1; seed <= 20 && !what; seed++)
			what = explore(seed, BUFFER, true, false, (enum fault)fault);
		ck_assert_msg(what, "fault %d goes unseen", fault);
	}
}

static const struct unit_test tests[] = {
	{ "messages", messages, NULL },
	{ "with bulk data", bulk_data, NULL },
	{ "kernels one after another", relaunched, NULL },
	{ "faults", faults, NULL },
};

UNIT_MAIN("queue explorer", tests)
