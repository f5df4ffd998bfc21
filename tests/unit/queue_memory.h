/* SPDX-License-Identifier: MIT */
/*
 * The code of queues and ports, src/queue and barcopy_queue.cuh, over a relaxed memory. Each word
 * has a history, and a load gives any value that is not older than what its agent knows. Agents are
 * coroutines that run in random order: the lanes of a warp, further threads, and two threads of the
 * CPU. An agent knows what it loaded and stored, what a fence of its own and one before the store that
 * it loaded bring together, and after __syncwarp() what the other lanes know (PTX ISA, "Memory
 * Consistency Model").
 *
 * The CPU's stores to GPU memory wait in a buffer of their thread until a push, or leave it in any
 * order. A fence of the CPU orders what its instruction orders, of src/copy/fence.h: on x86, or on
 * arm64 (m.arm), where a load of bulk data may be performed behind later loads and stores.
 *
 * A test sets WARP, THREADS, QUEUES, LINES (the largest ring) and IN_WORDS before the #include.
 */
#ifndef TEST_QUEUE_MEMORY_H
#define TEST_QUEUE_MEMORY_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "base/error.h"
#include "base/process.h"
#include "barcopy_queue.h"
#include "common/expect.h"
#include "common/unit.h"
#include "copy/fence.h"
#include "copy/impl.h"
#include "copy/word.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "core/mem.h"
#include "cuda/cuda.h"

static uint64_t host_load(uintptr_t addr);
static void know_gates(bool publish);
static uint32_t lap_mask; /* of a run */
/* The test's. */
static bool context_works(void);
static uint64_t host_time(void);
static void host_rest(const struct timespec *t); /* sched_yield() and nanosleep() */

#undef gdri_store64
#undef gdri_load64
#define gdri_store64(p, v)	     host_store((uintptr_t)(p), v)
#define gdri_load64(p)		     host_load((uintptr_t)(p))
#define gdri_store_line(to, w, last) host_store_line((uintptr_t)(to), w)
#define gdri_fence_push(type)	     host_push()
#define gdri_fence_after_write(type) host_after_write(type)
#define gdri_fence_before_word(type) host_before_word(type)
#define gdri_fence_after_read(type)  host_after_read()
#define gdri_flush_word(plan, p)     ((void)(plan), host_flush())
#define gdri_post64(plan, p, v)	     host_post(plan, (uintptr_t)(p), v)
#define gdri_put64(plan, p, v)	     (host_store((uintptr_t)(p), v), host_push())
#define gdri_relax()		     (m.polls++, yield())
#define gdri_now_ns()		     host_time()
#define gdri_cuda_context_works(c)   ((void)(c), note_question(), context_works())
#define sched_yield()		     host_rest(NULL)
#define nanosleep(t, left)	     host_rest(t)
#undef BARCOPY_QUEUE_LAP_MASK
#define BARCOPY_QUEUE_LAP_MASK lap_mask
#include "queue/port.h"
#include "queue/queue.h"
#define pthread_mutex_lock(gate)   gate_lock(gate)
#define pthread_mutex_unlock(gate) gate_unlock(gate)
#undef atomic_load_explicit
#undef atomic_store_explicit
#define KNOW(order, publish)	       ((order) == memory_order_relaxed ? (void)0 : know_gates(publish))
#define atomic_load_explicit(p, order) (KNOW(order, false), *(p))

/* ---- the memory ---------------------------------------------------------- */

enum {
	DEVICE = WARP + THREADS,
	SENDER = DEVICE, /* or the thread that stops the queues */
	RECEIVER,
	AGENTS,
	STACK = 131072,
	HISTORY = 256,
	STEPS = 1500000,
	STEP_NS = 100000
};

/* Regions of a queue, in words. An address is a region's word times 8, plus BASE. */
enum {
	BASE = 1 << 20,
	CONTROL = 0,
	REQUESTS = BARCOPY_PORT_CONTROL / 8, /* or the slots of calls */
	STATE = REQUESTS + LINES * 8,
	REPLIES = STATE + 32,
	OUT = REPLIES + LINES * 8, /* a word of each device agent, which it stores before a post */
	IN = OUT + DEVICE, /* words that the CPU stores before a message or an answer */
	REGION = IN + IN_WORDS + (DEVICE + IN_WORDS) % 2,
	WORDS = QUEUES * REGION
};

enum {
	AT_CREDIT = CONTROL + BARCOPY_QUEUE_CREDIT_AT / 8,
	AT_FREED = STATE + BARCOPY_QUEUE_FREED_AT / 8,
	AT_TAKEN = CONTROL + BARCOPY_PORT_TAKEN_AT / 8, /* lines of 8 words */
	AFTER_TAKEN = AT_TAKEN + BARCOPY_PORT_TAKEN_LINES * 8,
	AT_TICKET = CONTROL + BARCOPY_PORT_TICKET_AT / 8,
	AT_RESERVED = CONTROL + BARCOPY_PORT_RESERVED_AT / 8
};

/* What an agent knows: for each word the number of the oldest value that it may still load. */
struct view {
	uint32_t at[WORDS];
	unsigned int uses;
};

struct word {
	uint32_t count; /* of values; the last HISTORY are kept */
	uint64_t value[HISTORY];
	struct view *released[HISTORY]; /* what the storing agent had fenced */
};

struct buffered {
	uintptr_t addr;
	uint64_t value;
	bool posted; /* needs no push */
	unsigned int epoch; /* stores of an earlier one leave first */
	struct view *released; /* what comes before it */
};

/* A load of the CPU's that has not been performed yet. */
struct later {
	uintptr_t addr;
	uint64_t want;
};

/* How code or memory is made worse, to show that this test sees it. */
enum fault {
	NONE,
	NO_FENCE, /* the m.fence-th of the device that a correct run executes */
	MORE_ROOM, /* the kernel sees one line more */
	NO_GATE,
	NO_PUSH, /* the CPU's stores wait for other stores' pushes */
	NO_ACQUIRE, /* an ordered answer */
	NO_SYNC, /* __syncwarp() orders nothing */
	TORN_WORDS,
	EARLY_FREED, /* the CPU sees half a ring more that was freed */
	NO_STOP_LINE, /* an abort */
	STORES_ONLY, /* the fence before a word is DMB OSHST, which orders no loads */
	FAULTS
};

static struct {
	uint64_t random;
	enum fault fault;
	unsigned int fence; /* of NO_FENCE */
	uint32_t lines;
	unsigned int stale; /* of 100 loads, those that may give an old value */
	uint64_t asked[AGENTS]; /* when an agent asked CUDA last */
	unsigned int polls; /* in vain, since the test set it to 0 */
	bool lazy; /* the CPU's stores wait for a push */
	bool arm; /* else x86, whose loads come in order, and before later stores */
	/* If it posts, a posted word needs no push, and arrives behind later loads. */
	struct gdri_copy_plan plan;
	struct word word[WORDS];
	struct view now[AGENTS], heard[AGENTS], gates, all_sc; /* heard: from what it loaded */
	struct view own[AGENTS], loaded[AGENTS]; /* of `now`: by its stores, by its loads */
	struct later later[AGENTS][64];
	unsigned int laters[AGENTS], epoch[AGENTS];
	struct view *released[AGENTS];
	struct buffered buffer[AGENTS][64];
	unsigned int buffers[AGENTS];
	ucontext_t context[AGENTS], caller;
	char *stacks;
	bool done[AGENTS], waits[AGENTS];
	bool exact; /* no number is taken before its line is free */
	uint64_t taken[AGENTS]; /* numbers, up to this one */
	unsigned int until[AGENTS], steps;
	int me;
	unsigned int turn[DEVICE], arrived[2];
	uint64_t gathered[2][DEVICE];
	const char *wrong;
	struct gdri_queue q[QUEUES];
	unsigned int laps[QUEUES][LINES * 8];
	const uint64_t *freed[QUEUES]; /* lines of the ring that were read, or retired */
	uint64_t base; /* lines before this run */
	bool destroyed[QUEUES];
	uint64_t told[QUEUES]; /* of those, lines that the device was told of */
	uint64_t told_taken; /* the same, those that wait for posts */
	struct gdri_port left; /* the port when its gate was opened last */
	uint8_t marks[LINES];
} m;

static unsigned int below(unsigned int n)
{
	m.random = m.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(m.random >> 33) % n;
}

/* Most of a run's time; in this form gcc makes vectors of it. */
static void join_views(struct view *restrict to, const struct view *restrict from)
{
	for (int i = 0; i < WORDS; i++)
		to->at[i] = from->at[i] > to->at[i] ? from->at[i] : to->at[i];
}

static void drop(struct view *v)
{
	if (v && !--v->uses)
		free(v);
}

static bool may_run(int i, bool *later)
{
	if (m.done[i] || m.waits[i])
		return false;
	*later |= m.until[i] > m.steps;
	return m.until[i] <= m.steps;
}

static void switch_to_any(ucontext_t *from)
{
	int can[AGENTS], n = 0, before = m.me;
	bool later = false;

	for (int i = 0; i < AGENTS; i++)
		if (may_run(i, &later))
			can[n++] = i;
	while (!n && later) {
		m.steps++;
		for (int i = 0; i < AGENTS; i++)
			if (may_run(i, &later))
				can[n++] = i;
	}
	if (!n && !m.done[RECEIVER] && !m.wrong)
		m.wrong = "all wait";
	if (!n || m.wrong) {
		swapcontext(from, &m.caller);
		return;
	}
	m.me = can[below((unsigned int)n)];
	if (m.me != before || from == &m.caller)
		swapcontext(from, &m.context[m.me]);
}

static void drain(int agent, bool all);

static void perform(int agent, bool all);

static void yield(void)
{
	if (++m.steps > STEPS && !m.wrong)
		m.wrong = "no end";
	if (!below(8))
		drain(SENDER + (int)below(2), false);
	if (!below(64))
		perform(SENDER + (int)below(2), false);
	switch_to_any(&m.context[m.me]);
}

static void maybe(void)
{
	if (!below(4))
		yield();
}

static void wrong(const char *what)
{
	if (!m.wrong)
		m.wrong = what;
	yield();
}

static uint64_t explored_time(void)
{
	yield();
	return (uint64_t)m.steps * STEP_NS;
}

static unsigned int index_of(uintptr_t addr)
{
	return (unsigned int)(addr - BASE) / 8;
}

static int queue_of(uintptr_t addr)
{
	return (int)index_of(addr) / REGION;
}

static unsigned int word_of(uintptr_t addr)
{
	return index_of(addr) % REGION;
}

static uintptr_t addr_of(int q, unsigned int word)
{
	return BASE + ((unsigned int)q * REGION + word) * 8;
}

static void append(uintptr_t addr, uint64_t value, struct view *released)
{
	struct word *w = &m.word[index_of(addr)];
	uint64_t old = w->value[(w->count - 1) % HISTORY];
	unsigned int at = w->count % HISTORY;

	if (m.fault == TORN_WORDS && (old ^ value) >> 32 && (uint32_t)(old ^ value)) {
		append(addr, (value & ~UINT64_C(0xffffffff)) | (uint32_t)old, released);
		at = w->count % HISTORY;
	}
	drop(w->released[at]);
	w->value[at] = value;
	w->released[at] = released;
	if (released)
		released->uses++;
	m.own[m.me].at[index_of(addr)] = m.now[m.me].at[index_of(addr)] = w->count++;
}

static uint64_t newest(uintptr_t addr)
{
	const struct word *w = &m.word[index_of(addr)];

	return w->value[(w->count - 1) % HISTORY];
}

/* The number of the oldest value that the agent may still load. */
static uint32_t oldest_of(unsigned int word)
{
	uint32_t count = m.word[word].count, at = m.now[m.me].at[word];

	return count > HISTORY && at < count - HISTORY ? count - HISTORY : at;
}

static uint64_t oldest(int q, unsigned int word)
{
	word += (unsigned int)q * REGION;
	return m.word[word].value[oldest_of(word) % HISTORY];
}

static uint64_t load(uintptr_t addr, bool acquire)
{
	struct word *w = &m.word[index_of(addr)];
	uint32_t first = oldest_of(index_of(addr)), at = w->count - 1;

	if (below(100) < m.stale)
		at = first + below(w->count - first);
	m.now[m.me].at[index_of(addr)] = m.loaded[m.me].at[index_of(addr)] = at;
	if (w->released[at % HISTORY]) {
		join_views(&m.heard[m.me], w->released[at % HISTORY]);
		if (acquire)
			join_views(&m.now[m.me], w->released[at % HISTORY]);
	}
	return w->value[at % HISTORY];
}

static void fence(bool sc)
{
	struct view *v = malloc(sizeof(*v)), *now = &m.now[m.me];

	if (!v)
		abort();
	join_views(now, &m.heard[m.me]);
	if (sc) {
		join_views(now, &m.all_sc);
		m.all_sc = *now;
	}
	*v = *now;
	v->uses = 1;
	drop(m.released[m.me]);
	m.released[m.me] = v;
}

/* ---- the CPU's side ------------------------------------------------------ */

/*
 * Writes all of the agent's buffered stores; or one, if it need not wait for a push. Stores to one
 * address stay in order.
 */
static void drain(int agent, bool all)
{
	int me = m.me;

	m.me = agent;
	while (m.buffers[agent]) {
		struct buffered *b = m.buffer[agent], take;
		unsigned int k = below(m.buffers[agent]), i = 0;

		while (b[i].addr != b[k].addr)
			i++;
		i = b[i].epoch == b[0].epoch ? i : 0;
		if (m.lazy && !all && !b[i].posted)
			break;
		take = b[i];
		memmove(b + i, b + i + 1, (--m.buffers[agent] - i) * sizeof(*b));
		append(take.addr, take.value, take.released);
		drop(take.released);
		if (!all)
			break;
	}
	m.me = me;
}

static void host_buffer(uintptr_t addr, uint64_t value, bool posted)
{
	if (word_of(addr) == AT_CREDIT && value <= m.told[queue_of(addr)])
		wrong("a count is stored again, or goes back");
	if (word_of(addr) == AT_CREDIT)
		m.told[queue_of(addr)] = value;
	if (word_of(addr) >= AT_TAKEN && word_of(addr) < AFTER_TAKEN && THREADS) {
		if (value <= m.told_taken)
			wrong("posts are told as taken again, or fewer");
		m.told_taken = value;
	}
	m.buffer[m.me][m.buffers[m.me]++] =
		(struct buffered){ addr, value, posted, m.epoch[m.me], m.released[m.me] };
	if (m.released[m.me])
		m.released[m.me]->uses++;
	if (m.buffers[m.me] == 64)
		drain(m.me, true);
	maybe();
}

static void host_store(uintptr_t addr, uint64_t value)
{
	host_buffer(addr, value, false);
}

static void host_store_line(uintptr_t addr, const uint64_t *w)
{
	for (unsigned int i = 0; i < GDRI_LINE_WORDS; i++)
		host_store(addr + 8 * i, w[i]);
}

static uint64_t host_load(uintptr_t addr)
{
	uint64_t value = load(addr, false);

	maybe();
	return value + (m.fault == EARLY_FREED && word_of(addr) == AT_FREED ? LINES / 2 : 0);
}

/* A question may wait for CUDA's locks, so each thread asks once in GDRI_ASK_NS. */
static void note_question(void)
{
	uint64_t now = (uint64_t)m.steps * STEP_NS;

	if (m.asked[m.me] && now - m.asked[m.me] < GDRI_ASK_NS)
		wrong("CUDA is asked again and again");
	m.asked[m.me] = now;
}

/* Performs the agent's late loads: one, or all. */
static void perform(int agent, bool all)
{
	int me = m.me;

	m.me = agent;
	while (m.laters[agent]) {
		struct later *l = m.later[agent], *take = l + below(m.laters[agent]);

		if (load(take->addr, false) != take->want && !m.wrong)
			m.wrong = "bulk data are overwritten before the CPU has read them";
		*take = l[--m.laters[agent]];
		if (!all)
			break;
	}
	m.me = me;
}

static __attribute__((unused)) void host_load_bulk(uintptr_t addr, uint64_t want)
{
	m.later[m.me][m.laters[m.me]++] = (struct later){ addr, want };
	if (!m.arm || m.laters[m.me] == COUNT(m.later[0]))
		perform(m.me, true);
	maybe();
}

/* What a view has comes before the agent's later stores. */
static void release(const struct view *what)
{
	struct view *v = calloc(1, sizeof(*v));

	if (!v)
		abort();
	if (m.released[m.me])
		join_views(v, m.released[m.me]);
	join_views(v, what);
	v->uses = 1;
	drop(m.released[m.me]);
	m.released[m.me] = v;
}

/* DMB OSHLD. x86 needs no instruction. */
static void host_after_read(void)
{
	perform(m.me, true);
	join_views(&m.now[m.me], &m.heard[m.me]);
	join_views(&m.loaded[m.me], &m.heard[m.me]);
	release(&m.loaded[m.me]);
	maybe();
}

/* SFENCE; DSB OSHST, which orders no loads. */
static void host_push(void)
{
	if (m.fault != NO_PUSH)
		drain(m.me, true);
	if (m.arm)
		release(&m.own[m.me]);
	else
		fence(false);
	maybe();
}

/* SFENCE, or for CACHING nothing; DMB OSHST. */
static __attribute__((unused)) void host_after_write(gdr_mapping_type_t type)
{
	if (!m.arm) {
		if (gdri_fence_weak(type))
			host_push();
		else
			host_after_read();
		return;
	}
	m.epoch[m.me]++;
	release(&m.own[m.me]);
	maybe();
}

/* The same, and the loads as well: DMB OSH. */
static void host_before_word(gdr_mapping_type_t type)
{
	if (m.fault == STORES_ONLY) {
		host_after_write(type);
		return;
	}
	host_after_write(type);
	host_after_read();
}

static void host_post(const struct gdri_copy_plan *plan, uintptr_t addr, uint64_t value)
{
	host_buffer(addr, value, plan->posts);
	if (!plan->posts)
		host_push();
}

static void host_flush(void)
{
	drain(m.me, true);
	perform(m.me, true);
	fence(true);
	maybe();
}

/* What release of a gate and release stores of the CPU tell all its threads, at once. */
static void know_gates(bool publish)
{
	join_views(&m.now[m.me], &m.gates);
	join_views(&m.loaded[m.me], &m.gates);
	if (!publish)
		return;
	perform(m.me, true);
	m.gates = m.now[m.me];
}

static struct gdri_port *port_of(pthread_mutex_t *gate)
{
	return (struct gdri_port *)(void *)((char *)gate - offsetof(struct gdri_port, gate));
}

static void gate_lock(pthread_mutex_t *gate)
{
	const struct gdri_port *p = port_of(gate);
	int *taken = (int *)(void *)gate;

	while (*taken && m.fault != NO_GATE)
		yield();
	*taken = 1;
	if (m.left.done && (memcmp(m.marks, p->done, m.lines) || m.left.retired != p->retired ||
			    m.left.shown != p->shown || m.left.spaced != p->spaced ||
			    m.left.shows != p->shows))
		wrong("what a gate guards changes while it is open");
	know_gates(false);
	maybe();
}

static void gate_unlock(pthread_mutex_t *gate)
{
	if (!*(int *)(void *)gate && m.fault != NO_GATE)
		wrong("a gate is opened that was not closed");
	m.left = *port_of(gate);
	memcpy(m.marks, m.left.done, m.lines);
	if (m.plan.posts) /* by a locked instruction, which empties buffers (SDM 3A, 11.3.1) */
		drain(m.me, true);
	know_gates(true);
	*(int *)(void *)gate = 0;
	maybe();
}

#define atomic_store_explicit(p, v, order) (KNOW(order, true), *(p) = (v))

#include "queue/port.c"
#include "queue/queue.c"

/* ---- the GPU's side ------------------------------------------------------ */

/* Of the warp. */
static const uint64_t *gather(uint64_t value, bool sync)
{
	unsigned int t = m.turn[m.me]++ & 1;

	m.gathered[t][m.me] = value;
	if (++m.arrived[t] < WARP) {
		m.waits[m.me] = true;
	} else {
		m.arrived[t] = 0;
		for (int i = 1; sync && i < WARP; i++)
			join_views(&m.now[0], &m.now[i]);
		for (int i = 0; i < WARP; i++) {
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

	for (int i = 0; i < WARP; i++)
		bits |= (unsigned int)all[i] << i;
	return bits;
}

/* The fences that the device has executed, by their lines in barcopy_queue.cuh. */
static unsigned int fences;
static int fence_at[16]; /* its line */

static void warp_fence(int line)
{
	unsigned int i = 0;

	while (i < fences && fence_at[i] != line)
		i++;
	if (i == fences) {
		ck_assert_uint_lt(fences, COUNT(fence_at));
		fence_at[fences++] = line;
	}
	if (m.fault == NO_FENCE && m.fence == i)
		return;
	fence(false);
	maybe();
}

static uint64_t clock_reads, line_loads, acquires; /* of kernels, in all runs */

#define BARCOPY_WARP_FN		 static inline __attribute__((unused))
#define __ballot_sync(mask, yes) ballot(yes)
#define __any_sync(mask, yes)	 (ballot(yes) != 0)
#define __all_sync(mask, yes)	 (ballot(yes) == BARCOPY_WARP_ALL >> (32 - WARP))
#define __shfl_sync(mask, value, src) \
	((__typeof__(value))gather((uint64_t)(value), false)[(src) % WARP])
#define __syncwarp(mask)     ((void)gather(0, m.fault != NO_SYNC))
#define __popc(bits)	     __builtin_popcount(bits)
#define barcopy_warp_lane()  ((unsigned int)m.me)
#define barcopy_warp_fence() warp_fence(__LINE__)
#define barcopy_warp_pause() device_pause()
#define barcopy_warp_now()   (clock_reads++, explored_time())
#define barcopy_warp_hint()  below(LINES)

static void device_pause(void)
{
	if (m.exact && m.taken[m.me] > newest(addr_of(0, AT_CREDIT)) + m.lines)
		wrong("a post with a limit waits with its number");
	yield();
}

static uint64_t device_load(uintptr_t addr, bool acquire)
{
	unsigned int at = word_of(addr);
	uint64_t v;

	if (m.destroyed[queue_of(addr)])
		wrong("a kernel reads after the queue's end");
	v = load(addr, acquire);
	maybe();
	return v + (at == AT_CREDIT && m.fault == MORE_ROOM);
}

static void barcopy_warp_load(unsigned long long addr, unsigned int acquire, unsigned long long *v)
{
	unsigned int first = below(2);

	line_loads++;
	acquires += acquire != 0;
	acquire &= m.fault != NO_ACQUIRE;
	v[first] = device_load(addr + 8 * first, acquire);
	v[!first] = device_load(addr + 8 * !first, acquire);
}

/* A line's words: the line before it in this place has been received, and the lap is the next. */
static void check_word(uintptr_t addr, uint64_t value)
{
	int q = queue_of(addr);
	unsigned int word = word_of(addr) - REPLIES, lap = m.laps[q][word]++;
	uint64_t line = m.base + word / 8 + (uint64_t)lap * m.lines;

	if (((value >> BARCOPY_QUEUE_DATA_BITS) - line / m.lines - 1) & lap_mask)
		wrong("a line is skipped or written twice");
	if (lap && *m.freed[q] < line - m.lines + 1)
		wrong("a line is written that was not read");
}

static void device_store(uintptr_t addr, uint64_t value)
{
	unsigned int at = word_of(addr);

	if (m.destroyed[queue_of(addr)])
		wrong("a kernel stores after the queue's end");
	if (at >= REPLIES && at < OUT)
		check_word(addr, value);
	append(addr, value, m.released[m.me]);
	maybe();
}

static void barcopy_warp_store(int yes, unsigned long long addr, unsigned long long v0,
			       unsigned long long v1)
{
	unsigned int first = below(2);

	if (!yes)
		return;
	device_store(addr + 8 * first, first ? v1 : v0);
	device_store(addr + 8 * !first, first ? v0 : v1);
}

/* A store of a release sequence: what it replaces was released, too. */
static void replace(uintptr_t addr, uint64_t value)
{
	struct word *w = &m.word[index_of(addr)];
	struct view *before = w->released[(w->count - 1) % HISTORY], *mine = m.released[m.me];

	if (m.destroyed[queue_of(addr)])
		wrong("a kernel adds after the queue's end");
	if (before) {
		struct view *both = calloc(1, sizeof(*both));

		if (!both)
			abort();
		join_views(&m.heard[m.me], before);
		join_views(both, before);
		if (mine)
			join_views(both, mine);
		append(addr, value, both);
	} else {
		append(addr, value, mine);
	}
}

static unsigned long long barcopy_warp_add(unsigned long long addr, unsigned long long n)
{
	uint64_t value = newest(addr);

	replace(addr, value + n);
	if (word_of(addr) == AT_TICKET)
		m.taken[m.me] = value + n;
	if (!below(10))
		m.until[m.me] = m.steps + below(3000);
	yield();
	return value;
}

static unsigned long long barcopy_warp_or(unsigned long long addr, unsigned long long bits)
{
	uint64_t value = newest(addr);

	replace(addr, value | bits);
	yield();
	return value;
}

static unsigned long long barcopy_warp_claim(unsigned long long addr, unsigned long long from,
					     unsigned long long to)
{
	uint64_t value;

	yield();
	value = newest(addr);
	replace(addr, value == from ? to : value); /* or a store that changes nothing */
	maybe();
	return value;
}

#include "barcopy_queue.cuh"

/* ---- runs ---------------------------------------------------------------- */

static void agent(void);

/* Begins a run: memory and queues as after create. */
static void start_over(uint64_t seed, enum fault fault, unsigned int fence, uint32_t lines)
{
	static struct gdri_cuda_pages pages;
	char *stacks = m.stacks;

	for (int i = 0; i < WORDS; i++)
		for (int k = 0; k < HISTORY; k++)
			drop(m.word[i].released[k]);
	for (int i = 0; i < AGENTS; i++) {
		drop(m.released[i]);
		while (m.buffers[i])
			drop(m.buffer[i][--m.buffers[i]].released);
	}
	memset(&m, 0, sizeof(m));
	m.stacks = stacks ? stacks : malloc((size_t)AGENTS * STACK);
	ck_assert_ptr_nonnull(m.stacks);
	m.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	below(2);
	m.fault = fault;
	m.fence = fence;
	m.lines = lines;
	m.lazy = below(2);
	m.plan.fences = GDR_MAPPING_TYPE_WC;
	for (int i = 0; i < WORDS; i++)
		m.word[i].count = 1;
	for (int q = 0; q < QUEUES; q++) {
		barcopy_queue_view_t view = {
			.requests = addr_of(q, REQUESTS),
			.replies = addr_of(q, REPLIES),
			.control = addr_of(q, CONTROL),
			.state = addr_of(q, STATE),
			.lines = lines,
			.version = BARCOPY_QUEUE_VERSION,
		};

		m.q[q] = (struct gdri_queue){ .ring = { .incoming = (char *)(uintptr_t)view.replies,
							.control = (char *)(uintptr_t)view.control,
							.plan = &m.plan,
							.pages = &pages,
							.lines = lines,
							.shift = (uint32_t)__builtin_ctz(lines) },
					      .requests = (char *)(uintptr_t)view.requests,
					      .state = (char *)(uintptr_t)view.state,
					      .view = view };
		m.freed[q] = &m.q[q].received;
	}
}

static void start_agent(int i)
{
	getcontext(&m.context[i]);
	m.context[i].uc_stack.ss_sp = m.stacks + (size_t)i * STACK;
	m.context[i].uc_stack.ss_size = STACK;
	makecontext(&m.context[i], agent, 0);
}

/* Runs agent() in all of them, until the receiver has returned or something is wrong. */
static const char *run_agents(void)
{
	for (int i = 0; i < AGENTS; i++)
		start_agent(i);
	switch_to_any(&m.caller);
	return m.wrong;
}

/* The end of an agent. */
static void leave_run(void)
{
	m.done[m.me] = true;
	drain(m.me, !m.lazy);
	switch_to_any(&m.context[m.me]);
}

/* The test's: what went wrong in one run; NULL: nothing. */
static const char *explore(uint64_t seed, enum fault fault, unsigned int fence);

static void expect_right(uint64_t seed)
{
	const char *what = explore(seed, NONE, 0);

	if (what)
		ck_abort_msg("%s: seed %llu, step %u", what, (unsigned long long)seed, m.steps);
}

/* QUEUE_SEED= and QUEUE_COUNT=: the first seed, and how many. */
static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static unsigned int may_be_unseen;

/* The test of the test. */
static void expect_seen(enum fault fault, unsigned int fence, uint64_t seeds)
{
	const char *what = NULL;

	for (uint64_t seed = 1; seed <= seeds && !what; seed++)
		what = explore(seed, fault, fence);
	if (!what && !may_be_unseen--)
		ck_abort_msg("fault %d goes unseen, line %d", fault, fence_at[fence]);
}

#endif
