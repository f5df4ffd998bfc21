/* SPDX-License-Identifier: MIT */
/*
 * Posts and calls: src/queue and barcopy_queue.cuh over a relaxed memory, as test_queue_explorer.c
 * has it, and beyond that: the CPU's stores to GPU memory wait in buffers of their thread until a
 * push, or leave them in any order; sequentially consistent fences; atomic additions. A grid of
 * three threads and a warp of eight lanes posts to two queues, again and again; one thread stops
 * the queues, one receives from both, answers in batches, in any order, and ends them.
 */
#include <errno.h>
#include <pthread.h>
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

static void host_store(uintptr_t addr, uint64_t value);
static uint64_t host_load(uintptr_t addr);
static uint64_t host_get(uintptr_t addr);
static void host_push(void);
static void host_flush(void);
static void fence(bool sc);
static void yield(void);
static void gate_lock(pthread_mutex_t *gate);
static void gate_unlock(pthread_mutex_t *gate);
static void know_gates(bool publish);
static uint64_t explored_time(void);

#undef gdri_store64
#undef gdri_load64
#define gdri_store64(p, v)	     host_store((uintptr_t)(p), v)
#define gdri_load64(p)		     host_load((uintptr_t)(p))
#define gdri_store_line(to, w, last) ((void)(to), (void)(w))
#define gdri_fence_push(type)	     host_push()
#define gdri_fence_after_write(type) host_push()
#define gdri_fence_after_read(type)  fence(false)
#define gdri_flush_word(plan, p)     ((void)(plan), host_flush())
#define gdri_post64(plan, p, v)	     (host_store((uintptr_t)(p), v), host_push())
#define gdri_put64(plan, p, v)	     (host_store((uintptr_t)(p), v), host_push())
#define gdri_get64(plan, p)	     host_get((uintptr_t)(p))
#define gdri_relax()		     yield()
#define gdri_now_ns()		     explored_time()
#define gdri_cuda_context_works(c)   ((void)(c), true)
#define gdri_queue_send		     explored_send
#define gdri_queue_send_batch	     explored_send_batch
#define gdri_queue_receive	     explored_receive
#define gdri_queue_receive_any	     explored_receive_any
#define gdri_queue_answer	     explored_answer
#define gdri_queue_stop		     explored_stop
#define gdri_queue_is_dead	     explored_is_dead
#define gdri_queue_create	     explored_create
#define gdri_queue_destroy	     explored_destroy
#define gdri_queues_end		     explored_end
#define gdri_queues		     explored_queues
#include "queue/queue.h"
#define gdri_queue_find(name)	   ((struct gdri_queue *)(void *)(name))
#define pthread_mutex_lock(gate)   gate_lock(gate)
#define pthread_mutex_unlock(gate) gate_unlock(gate)
#undef atomic_load_explicit
#undef atomic_store_explicit
#define atomic_load_explicit(p, order) \
	(know_gates(false), __atomic_load_n((__typeof__(*(p)) *)(p), __ATOMIC_RELAXED))
#undef BARCOPY_QUEUE_LAP_MASK
#define BARCOPY_QUEUE_LAP_MASK m.lap_mask

/* ---- the memory ---------------------------------------------------------- */

enum {
	WARP = 8,
	THREADS = 3,
	PRODUCERS = THREADS + 1, /* the warp is the last */
	DEVICE = WARP + THREADS,
	STOPPER = DEVICE,
	RECEIVER,
	AGENTS,
	QUEUES = 2,
	LINES = 4, /* or 2 */
	STACK = 131072,
	HISTORY = 256,
	STEPS = 1500000
};

/* Regions of a queue, in words. An address is a region's word times 8, plus BASE. */
enum {
	BASE = 1 << 20,
	CONTROL = 0,
	SLOTS = 32,
	STATE = SLOTS + LINES * GDRI_QUEUE_SLOTS * 2,
	REPLIES = STATE + 32,
	OUT = REPLIES + LINES * 8, /* a word of each device agent, which it stores before a post */
	IN = OUT + DEVICE, /* a word of each thread, which the CPU stores before an answer */
	REGION = IN + PRODUCERS + (DEVICE + PRODUCERS) % 2,
	WORDS = QUEUES * REGION
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
};

/* How code or memory is made worse, to show that this test sees it. */
enum fault {
	NONE,
	NO_FENCE, /* the m.fence-th of FENCES that a correct run executes */
	WEAK_FENCE, /* acq_rel instead of sc there */
	MORE_ROOM, /* the kernel sees one line more */
	LESS_ROOM, /* a bound one too near, as the stop stores it */
	NO_FREEZE, /* the credit goes on after a stop */
	NO_GATE,
	NO_PUSH, /* the CPU's stores wait for other stores' pushes */
	NO_READ_BACK, /* the stop pushes only */
	NO_MARK,
	NO_STOP, /* begin does not see the stop */
	NO_SEQUENCE, /* a kernel begins to count its calls anew */
	NO_WAIT, /* begin does not wait for the first producer */
	EARLY_END, /* by the first producer that leaves */
	LEFT_OPEN, /* end does not close the grid */
	LATE_STORE, /* end stores another word behind its last store */
	NO_ACQUIRE, /* an ordered answer */
	NO_SYNC, /* __syncwarp() orders nothing */
	FAULTS
};

static struct {
	uint64_t random;
	enum fault fault;
	unsigned int fence; /* of NO_FENCE and WEAK_FENCE */
	uint32_t lines, lap_mask;
	unsigned int stale; /* of 100 loads, those that may give an old value */
	bool lazy; /* the CPU's stores wait for a push */
	struct word word[WORDS];
	struct view now[AGENTS], heard[AGENTS], gates, all_sc; /* heard: from what it loaded */
	struct view *released[AGENTS];
	struct buffered buffer[AGENTS][64];
	unsigned int buffers[AGENTS];
	ucontext_t context[AGENTS], caller;
	char *stacks;
	bool done[AGENTS], waits[AGENTS];
	unsigned int until[AGENTS], steps;
	int me;
	unsigned int turn[2][DEVICE], arrived[2][2];
	uint64_t gathered[2][2][DEVICE];
	const char *wrong;
	struct gdri_queue q[QUEUES];
	unsigned int laps[QUEUES][LINES * 8];
	bool destroyed[QUEUES];
	bool killed;
	unsigned int kill_at, stores;
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

static void yield(void)
{
	if (++m.steps > STEPS && !m.wrong)
		m.wrong = "no end";
	if (!m.lazy && !below(8))
		drain(STOPPER + (int)below(2), false);
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

/* A thousand steps are all that withdraw() waits. */
static uint64_t explored_time(void)
{
	yield();
	return (uint64_t)m.steps * 100000;
}

static unsigned int index_of(uintptr_t addr)
{
	return (unsigned int)(addr - BASE) / 8;
}

static uintptr_t addr_of(int q, unsigned int word)
{
	return BASE + ((unsigned int)q * REGION + word) * 8;
}

static void append(uintptr_t addr, uint64_t value, struct view *released)
{
	struct word *w = &m.word[index_of(addr)];
	unsigned int at = w->count % HISTORY;

	drop(w->released[at]);
	w->value[at] = value;
	w->released[at] = released;
	if (released)
		released->uses++;
	m.now[m.me].at[index_of(addr)] = w->count++;
}

static uint64_t load(uintptr_t addr, bool acquire)
{
	struct word *w = &m.word[index_of(addr)];
	uint32_t first = m.now[m.me].at[index_of(addr)], at = w->count - 1;

	if (w->count > HISTORY && first < w->count - HISTORY)
		first = w->count - HISTORY;
	if (below(100) < m.stale)
		at = first + below(w->count - first);
	m.now[m.me].at[index_of(addr)] = at;
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

	ck_assert_ptr_nonnull(v);
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

/* Writes one of the agent's buffered stores, or all. Stores to one address stay in order. */
static void drain(int agent, bool all)
{
	int me = m.me;

	m.me = agent;
	while (m.buffers[agent]) {
		struct buffered *b = m.buffer[agent], take;
		unsigned int k = below(m.buffers[agent]), i = 0;

		while (b[i].addr != b[k].addr)
			i++;
		take = b[i];
		memmove(b + i, b + i + 1, (--m.buffers[agent] - i) * sizeof(*b));
		append(take.addr, take.value, m.released[agent]);
		if (!all)
			break;
	}
	m.me = me;
}

static void host_store(uintptr_t addr, uint64_t value)
{
	if (m.fault == NO_FREEZE && index_of(addr) % REGION == CONTROL && m.me == RECEIVER &&
	    value >> 62)
		value = m.q[index_of(addr) / REGION].received | value >> 62 << 62;
	if (m.fault == LESS_ROOM && index_of(addr) % REGION == CONTROL && value >> 62)
		value--;
	m.buffer[m.me][m.buffers[m.me]++] = (struct buffered){ addr, value };
	if (m.buffers[m.me] == 64)
		drain(m.me, true);
	maybe();
}

static uint64_t host_load(uintptr_t addr)
{
	uint64_t value = load(addr, false);

	maybe();
	return value;
}

static void host_push(void)
{
	if (m.fault != NO_PUSH)
		drain(m.me, true);
	fence(false);
	maybe();
}

static void host_flush(void)
{
	if (m.fault == NO_READ_BACK) {
		host_push();
		return;
	}
	drain(m.me, true);
	fence(true);
	maybe();
}

static uint64_t host_get(uintptr_t addr)
{
	uint64_t value;

	drain(m.me, true);
	fence(true);
	value = host_load(addr);
	fence(false);
	return value;
}

/* What release of a gate and release stores of the CPU tell all its threads, at once. */
static void know_gates(bool publish)
{
	join_views(&m.now[m.me], &m.gates);
	if (publish)
		m.gates = m.now[m.me];
}

static void gate_lock(pthread_mutex_t *gate)
{
	int *taken = (int *)(void *)gate;

	while (*taken && m.fault != NO_GATE)
		yield();
	*taken = 1;
	know_gates(false);
	maybe();
}

static void gate_unlock(pthread_mutex_t *gate)
{
	know_gates(true);
	*(int *)(void *)gate = 0;
	maybe();
}

#define atomic_store_explicit(p, v, order) \
	(know_gates(true), __atomic_store_n((__typeof__(*(p)) *)(p), v, __ATOMIC_RELAXED))

#include "queue/messages.c"
#include "queue/queue.c"

/* ---- the GPU's side ------------------------------------------------------ */

/* Of the warp (0) or the whole grid (1). */
static const uint64_t *gather(int which, uint64_t value, bool sync)
{
	unsigned int n = which ? DEVICE : WARP, t = m.turn[which][m.me]++ & 1;

	m.gathered[which][t][m.me] = value;
	if (++m.arrived[which][t] < n) {
		m.waits[m.me] = true;
	} else {
		m.arrived[which][t] = 0;
		for (unsigned int i = 1; sync && i < n; i++)
			join_views(&m.now[0], &m.now[i]);
		for (unsigned int i = 0; i < n; i++) {
			m.waits[i] = false;
			if (sync)
				m.now[i] = m.now[0];
		}
	}
	yield();
	return m.gathered[which][t];
}

static unsigned int ballot(int yes)
{
	const uint64_t *all = gather(0, yes != 0, false);
	unsigned int bits = 0;

	for (int i = 0; i < WARP; i++)
		bits |= (unsigned int)all[i] << i;
	return bits;
}

/* The fences of the ports, by their lines in barcopy_queue.cuh, in the order of their first use. */
enum { FENCES = 7 };
static int fence_line[FENCES];
static bool fence_is_sc[FENCES];

static void warp_fence(int line, bool sc)
{
	unsigned int i = 0;

	while (i < FENCES - 1 && fence_line[i] && fence_line[i] != line)
		i++;
	fence_line[i] = line;
	fence_is_sc[i] = sc;
	if (m.fault == NO_FENCE && m.fence == i)
		return;
	fence(sc && !(m.fault == WEAK_FENCE && m.fence == i));
	maybe();
}

#define BARCOPY_WARP_FN		 static inline __attribute__((unused))
#define __ballot_sync(mask, yes) ballot(yes)
#define __any_sync(mask, yes)	 (ballot(yes) != 0)
#define __all_sync(mask, yes)	 (ballot(yes) == (1u << WARP) - 1)
#define __shfl_sync(mask, value, src) \
	((__typeof__(value))gather(0, (uint64_t)(value), false)[(src) % WARP])
#define __syncwarp(mask)	 ((void)gather(0, 0, m.fault != NO_SYNC))
#define __popc(bits)		 __builtin_popcount(bits)
#define barcopy_warp_lane()	 ((unsigned int)m.me)
#define barcopy_warp_fence()	 warp_fence(__LINE__, false)
#define barcopy_warp_fence_sc()	 warp_fence(__LINE__, true)
#define barcopy_warp_pause()	 yield()
#define barcopy_warp_claim(addr) ((void)(addr), 0u) /* of a serving warp */

static int queue_of(uintptr_t addr)
{
	return (int)index_of(addr) / REGION;
}

static unsigned int word_of(uintptr_t addr)
{
	return index_of(addr) % REGION;
}

enum {
	AT_CREDIT = CONTROL + BARCOPY_QUEUE_CREDIT_AT / 8,
	AT_GENERATION = CONTROL + BARCOPY_QUEUE_GENERATION_AT / 8,
	AT_OWNER = CONTROL + BARCOPY_QUEUE_OWNER_AT / 8,
	AT_OPEN = CONTROL + BARCOPY_QUEUE_OPEN_AT / 8,
	AT_LEFT = CONTROL + BARCOPY_QUEUE_LEFT_AT / 8,
	AT_BEGUN = STATE + BARCOPY_QUEUE_BEGUN_AT / 8,
	AT_ENDED = STATE + BARCOPY_QUEUE_ENDED_AT / 8
};

static uint64_t device_load(uintptr_t addr, bool acquire)
{
	unsigned int at = word_of(addr);
	uint64_t v;

	/* A grid that begins after the end looks for the generation. */
	if (m.destroyed[queue_of(addr)] && at != AT_GENERATION && at != AT_GENERATION + 1)
		wrong("a kernel reads after the queue's end");
	v = load(addr, acquire);
	maybe();
	if (at == AT_CREDIT && m.fault == MORE_ROOM && !(v >> 62))
		return v + 1;
	if (at == AT_CREDIT && m.fault == NO_STOP)
		return v & ~BARCOPY_QUEUE_STOPPED_BIT;
	if (m.fault == NO_SEQUENCE && at >= SLOTS && at < STATE && below(8) == 0)
		return v & DATA_MASK;
	if (m.fault == NO_WAIT && at == AT_OPEN && !v)
		return 1;
	return v;
}

static void barcopy_warp_load(unsigned long long addr, unsigned int acquire, unsigned long long *v)
{
	unsigned int first = below(2);

	acquire &= m.fault != NO_ACQUIRE;
	v[first] = device_load(addr + 8 * first, acquire);
	v[!first] = device_load(addr + 8 * !first, acquire);
}

/* A line's words: the line before it in this place has been received, and the lap is the next. */
static void check_word(uintptr_t addr, uint64_t value)
{
	int q = queue_of(addr);
	unsigned int word = word_of(addr) - REPLIES, lap = m.laps[q][word]++;
	uint64_t line = word / 8 + (uint64_t)lap * m.lines;

	if ((value >> BARCOPY_QUEUE_DATA_BITS & m.lap_mask) != ((lap + 1) & m.lap_mask))
		wrong("a line is skipped or written twice");
	if (lap && m.q[q].received < line - m.lines + 1)
		wrong("a line is written that was not read");
	if (m.kill_at && ++m.stores == m.kill_at) { /* the context ends: all its threads at once */
		m.killed = true;
		for (int i = 0; i < DEVICE; i++)
			m.done[i] = true;
		yield();
	}
}

static void device_store(uintptr_t addr, uint64_t value)
{
	unsigned int at = word_of(addr);

	if (m.destroyed[queue_of(addr)])
		wrong("a kernel stores after the queue's end");
	if (m.fault == LEFT_OPEN && at == AT_OPEN && !value)
		return;
	if (at >= REPLIES && at < OUT) {
		if (m.fault == NO_MARK && value >> 56 == BARCOPY_QUEUE_HEAD_CALL)
			return;
		check_word(addr, value);
	}
	append(addr, value, m.released[m.me]);
	maybe();
}

static void barcopy_warp_store(int yes, unsigned long long addr, unsigned long long v0,
			       unsigned long long v1)
{
	unsigned int first = below(2), at = word_of(addr);

	if (!yes || (m.fault == LATE_STORE && at == AT_LEFT))
		return;
	device_store(addr + 8 * first, first ? v1 : v0);
	device_store(addr + 8 * !first, first ? v0 : v1);
	if (m.fault == LATE_STORE && at == AT_ENDED)
		device_store(addr_of(queue_of(addr), AT_LEFT), 0);
}

/* A store of a release sequence: what it adds to was released, too. */
static unsigned long long barcopy_warp_add(unsigned long long addr, unsigned long long n)
{
	struct word *w = &m.word[index_of(addr)];
	struct view *before = w->released[(w->count - 1) % HISTORY], *mine = m.released[m.me];
	uint64_t value = w->value[(w->count - 1) % HISTORY];

	/* A producer that comes too late may add to the owner's word, and takes that back. */
	if (m.destroyed[queue_of(addr)] && word_of(addr) != AT_OWNER)
		wrong("a kernel adds after the queue's end");
	if (before) {
		struct view *both = calloc(1, sizeof(*both));

		ck_assert_ptr_nonnull(both);
		join_views(&m.heard[m.me], before);
		join_views(both, before);
		if (mine)
			join_views(both, mine);
		append(addr, value + n, both);
	} else {
		append(addr, value + n, mine);
	}
	if (!below(10))
		m.until[m.me] = m.steps + below(3000);
	yield();
	return m.fault == EARLY_END && word_of(addr) == AT_LEFT ? PRODUCERS - 1 : value;
}

#include "barcopy_queue.cuh"

/* ---- the programs -------------------------------------------------------- */

static struct {
	bool few, with_stop, with_abort, with_drop;
	bool no_launch; /* no further grid */
	bool aborted, stopped[QUEUES], received_all;
	int rounds, max_rounds;
	barcopy_queue_view_t view[QUEUES];
	int grid[QUEUES][2]; /* of the running grid: producers that were accepted, and refused */
	uint64_t begun[QUEUES]; /* grids that were accepted */
	uint64_t sent[PRODUCERS][QUEUES], accepted[PRODUCERS][QUEUES], seen[PRODUCERS][QUEUES];
	bool refused[PRODUCERS][QUEUES];
	uint64_t open_call[THREADS][QUEUES], answered, posts;
	uint64_t names[QUEUES][THREADS], answers[QUEUES][THREADS];
	unsigned int owed[QUEUES], late[QUEUES];
	bool ended[QUEUES]; /* receive said so */
} run;

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ b * UINT64_C(0xc2b2ae3d27d4eb4f) ^
		     c * UINT64_C(0x165667b19e3779f9);

	return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static uint64_t answer_to(uint64_t n, int who, int q)
{
	return mix(n, (uint64_t)who + 77, (uint64_t)q) >> 16;
}

enum { ORDERED = 1, A_CALL = 2 };

/* Message n of a producer. The first six bytes of a call are its name. */
static void fill(unsigned int *data, uint64_t n, int who, int q, unsigned int flags, uint64_t begun)
{
	for (unsigned int i = 0; i < 12; i++)
		data[i] = (unsigned int)mix(n, (uint64_t)who * 4 + (uint64_t)q, i);
	data[2] = (unsigned int)who | (unsigned int)q << 8 | flags << 16;
	data[3] = (unsigned int)n;
	data[4] = (unsigned int)begun;
}

/* A grid is accepted, or refused because of a stop or the queue's end, as a whole. */
static void note_begin(int q, int open)
{
	if (m.killed)
		return;
	run.grid[q][!open]++;
	if (run.grid[q][0] && run.grid[q][1])
		wrong("half a grid");
	if (!open && !run.stopped[q])
		wrong("a grid is refused");
	run.begun[q] += run.grid[q][0] == 1 && open;
}

static void note_post(int who, int q, int ok, uint64_t n)
{
	if (ok && run.refused[who][q])
		wrong("accepted after a refusal");
	if (!ok && !run.stopped[q])
		wrong("refused without a stop");
	if (ok) {
		run.accepted[who][q] += n;
		run.posts += n;
	} else {
		run.refused[who][q] = true;
		run.sent[who][q] -= n;
	}
}

static void finish_call(barcopy_port_t *p, int who, int q)
{
	unsigned int flags = below(2) ? BARCOPY_WARP_ORDERED : 0;
	uint64_t n = run.open_call[who][q];
	unsigned long long answer;

	if (!n)
		return;
	run.open_call[who][q] = 0;
	if (!barcopy_port_wait(p, &answer, flags)) {
		if (!run.aborted)
			wrong("a call without answer");
		return;
	}
	if (answer != answer_to(n, who, q))
		wrong("an answer");
	if (flags && load(addr_of(q, IN + (unsigned int)who), false) < n)
		wrong("what was copied before an answer is not seen");
	run.answered++;
}

static void one_post(barcopy_port_t *p, int who, int q)
{
	unsigned int flags = below(2), data[12];
	bool call = !below(3);
	uint64_t n;
	int ok;

	if (call)
		finish_call(p, who, q);
	n = ++run.sent[who][q];
	fill(data, n, who, q, flags | (call ? A_CALL : 0u), run.begun[q]);
	if (flags) {
		append(addr_of(q, OUT + (unsigned int)m.me), n, m.released[m.me]);
		maybe();
	}
	ok = call ? barcopy_port_call(p, (unsigned int)who, data, 48, flags)
		  : barcopy_port_post(p, data, 48, flags);
	note_post(who, q, ok, 1);
	if (call && ok)
		run.open_call[who][q] = n;
	if (call && below(2))
		finish_call(p, who, q);
	if (!below(40))
		m.until[m.me] = m.steps + below(2000);
}

/* A producer that was refused goes on to its end only when receive has said that no more comes. */
static void hold(int who, int q)
{
	while (run.refused[who][q] && !run.ended[q] && !run.with_drop && !run.aborted && !m.killed)
		yield();
}

static void thread(void)
{
	int who = m.me - WARP;
	barcopy_port_t p[QUEUES];

	do {
		for (int q = 0; q < QUEUES; q++)
			note_begin(q, barcopy_port_begin(&p[q], run.view[q], PRODUCERS));
		for (unsigned int k = below(run.few ? 3 : 12 * m.lines); k; k--) {
			int q = (int)below(QUEUES);

			one_post(&p[q], who, q);
		}
		for (int q = 0; q < QUEUES; q++) {
			if (below(2))
				finish_call(&p[q], who, q);
			run.open_call[who][q] = 0;
			hold(who, q);
			barcopy_port_end(&p[q]);
		}
		gather(1, 0, true);
	} while (!gather(1, 0, true)[0]);
}

static void warp_post(barcopy_port_t *p, int q, unsigned int n, unsigned int flags)
{
	unsigned int lane = (unsigned int)m.me, data[12];
	uint64_t last;
	int ok;

	if (!lane)
		run.sent[THREADS][q] += n;
	last = gather(0, run.sent[THREADS][q], false)[0];
	fill(data, last - n + 1 + lane / 4, THREADS, q, flags, run.begun[q]);
	if (flags) {
		append(addr_of(q, OUT + lane), last, m.released[m.me]);
		maybe();
	}
	ok = barcopy_port_post_warp(p, n, data + lane % 4 * 3, 48, flags);
	if (!lane)
		note_post(THREADS, q, ok, n);
	gather(0, 0, false);
}

static void warp(void)
{
	barcopy_port_t p[QUEUES];
	unsigned int posts, r;
	bool last = false;
	int open;

	do {
		for (int q = 0; q < QUEUES; q++) {
			open = barcopy_port_begin_warp(&p[q], run.view[q], PRODUCERS);
			if (!m.me)
				note_begin(q, open);
		}
		posts = (unsigned int)gather(0, below(run.few ? 2 : 6 * m.lines), false)[0];
		for (unsigned int k = 0; k < posts; k++) {
			r = (unsigned int)gather(0, below(8), false)[0];
			warp_post(&p[r & 1], (int)r & 1, 1 + (r >> 2), r >> 1 & 1);
		}
		for (int q = 0; q < QUEUES; q++) {
			if (!m.me)
				hold(THREADS, q);
			barcopy_port_end_warp(&p[q]);
		}
		gather(1, 0, true);
		if (!m.me) { /* all have ended: the launcher's turn */
			memset(run.grid, 0, sizeof(run.grid));
			last = ++run.rounds >= run.max_rounds || run.no_launch;
			run.no_launch |= last;
		}
		last = gather(1, last, true)[0];
	} while (!last);
}

static void stop(int q, uint32_t flags)
{
	run.stopped[q] = true;
	explored_stop(&m.q[q], flags);
}

static void stopper(void)
{
	unsigned int end =
		m.steps + below((unsigned int[]){ 60000, 4000, 300 }[run.few ? 2 : below(3)]);
	int first = (int)below(2);

	if (!run.with_stop)
		return;
	while (m.steps < end && !run.no_launch)
		yield();
	if (below(2))
		run.no_launch = true;
	stop(first, 0);
	for (unsigned int i = below(3000); i; i--)
		yield();
	stop(!first, 0);
	if (run.with_abort) {
		for (unsigned int i = below(20000); i; i--)
			yield();
		run.aborted = true;
		stop(0, BARCOPY_QUEUE_ABORT);
		stop(1, BARCOPY_QUEUE_ABORT);
	}
	run.no_launch = true;
}

static void check_message(int q, const unsigned int *got, size_t size, uint64_t call)
{
	unsigned int want[12], flags = got[2] >> 16;
	int who = got[2] & 255;
	uint64_t n;

	if (who >= PRODUCERS || (int)(got[2] >> 8 & 255) != q || size != 48) {
		wrong("a message's bytes");
		return;
	}
	n = ++run.seen[who][q];
	if (got[3] != (unsigned int)n)
		wrong("a message is lost, doubled or out of its producer's order");
	fill(want, n, who, q, flags, got[4]);
	if (flags & A_CALL) {
		want[0] = got[0];
		want[1] = (want[1] & 0xffff0000) | (got[1] & 0xffff);
	}
	if (run.ended[q])
		wrong("a message after the end");
	if (memcmp(got, want, 48))
		wrong("a message's bytes");
	if (load(addr_of(q, AT_BEGUN), false) < got[4])
		wrong("a message before its kernel has begun");
	if (!(flags & A_CALL) != !call)
		wrong("a call, or none");
	for (unsigned int i = 0; flags & ORDERED && i < (who == THREADS ? WARP : 1); i++)
		if (load(addr_of(q, OUT + (who == THREADS ? i : (unsigned int)(WARP + who))),
			 false) < n)
			wrong("what was stored before an ordered post is not seen");
	if (call) {
		run.names[q][run.owed[q]] = call;
		run.answers[q][run.owed[q]++] = answer_to(n, who, q);
		host_store(addr_of(q, IN + (unsigned int)who), n);
	}
}

/* Some of the open calls, in any order. */
static void answer_some(int q)
{
	uint64_t names[THREADS], answers[THREADS], one = 1;
	uint32_t n = 1 + below(run.owed[q]), k;

	for (uint32_t i = 0; i < n; i++) {
		k = below(run.owed[q]--);
		names[i] = run.names[q][k];
		answers[i] = run.answers[q][k];
		run.names[q][k] = run.names[q][run.owed[q]];
		run.answers[q][k] = run.answers[q][run.owed[q]];
	}
	host_push(); /* as the copy that came before */
	if (explored_answer(&m.q[q], names, answers, n))
		wrong("an answer is refused");
	if (!below(8) && explored_answer(&m.q[q], names, &one, 1) != -EINVAL)
		wrong("a call is answered twice");
}

static bool grids_ended(void)
{
	for (int q = 0; q < QUEUES; q++)
		if (host_load(addr_of(q, AT_BEGUN)) < (uint64_t)run.max_rounds ||
		    gdri_queue_has_kernel(&m.q[q]))
			return false;
	return true;
}

static void check_fair(int served, const bool *ready)
{
	for (int q = 0; q < QUEUES; q++) {
		run.late[q] = q != served && ready[q] ? run.late[q] + 1 : 0;
		if (run.late[q] >= QUEUES)
			wrong("a queue is not served");
	}
}

static bool is_ready(struct gdri_queue *q)
{
	uint64_t words[BARCOPY_QUEUE_LINE / 8];
	unsigned int head;

	return unpack(q, q->received, &head, words) && head != BARCOPY_QUEUE_HEAD_CALL;
}

static void receive_all(void)
{
	const barcopy_queue_t queues[] = { (barcopy_queue_t)(void *)&m.q[0],
					   (barcopy_queue_t)(void *)&m.q[1] };
	unsigned int got[12], idle = 0;
	uint32_t which = 0;
	uint64_t call;
	size_t size;
	int rc;

	for (;;) {
		bool ready[] = { is_ready(&m.q[0]), is_ready(&m.q[1]) }, owed = false;
		uint32_t from = below(3), one = 0; /* one of them, or any */

		rc = explored_receive_any(queues + from % QUEUES, from < QUEUES ? 1 : QUEUES,
					  from < QUEUES ? &one : &which, got, sizeof(got), &size,
					  &call, grids_ended() ? BARCOPY_QUEUE_UNTIL_END : 0, 0);
		if (!rc) {
			idle = 0;
			if (from == QUEUES)
				check_fair((int)which, ready);
			check_message((int)(from < QUEUES ? from : which), got, size, call);
		} else if (rc == -ETIMEDOUT || rc == -EPIPE) {
			idle++;
			for (uint32_t q = 0; q < QUEUES; q++)
				run.ended[q] |= rc == -EPIPE && (from == QUEUES || from == q);
			yield();
		} else {
			wrong("a receive");
		}
		for (int q = 0; q < QUEUES; q++) {
			/* what an abort will leave unanswered */
			if (run.owed[q] && !(run.with_abort && run.stopped[q]) &&
			    (!below(10) || idle > 20 || run.owed[q] == THREADS))
				answer_some(q);
			owed |= run.owed[q] && !(run.with_abort && run.stopped[q]);
		}
		if ((rc == -EPIPE && from == QUEUES && !owed) || (m.killed && idle > 400))
			return;
		if (!below(60))
			for (unsigned int i = below(400); i; i--)
				yield();
		if (run.with_drop && !below(150)) {
			run.aborted = true;
			stop(0, BARCOPY_QUEUE_ABORT);
			stop(1, BARCOPY_QUEUE_ABORT);
			return;
		}
	}
}

static void receiver(void)
{
	receive_all();
	for (int q = 0; q < QUEUES && !m.killed; q++) {
		/* calls that nobody answers are aborted, as gdri_queue_destroy() does at its deadline */
		if (run.with_abort && run.owed[q]) {
			run.aborted = true;
			stop(q, BARCOPY_QUEUE_ABORT);
		}
		run.stopped[q] = true;
		if (run.no_launch && grids_ended() && !withdraw(&m.q[q]))
			wrong("the queue is not free after its last grid");
		while (!m.killed && (gdri_queue_has_kernel(&m.q[q]) || !withdraw(&m.q[q])))
			yield();
		m.destroyed[q] = !m.killed;
		for (int i = 0; !m.killed && !run.with_drop && i < PRODUCERS; i++)
			if (run.seen[i][q] != run.accepted[i][q])
				wrong("a message was accepted and not received");
		for (unsigned int i = 0; !m.killed && i < REGION; i++)
			if (((i > AT_GENERATION + 1 && i < SLOTS && i != AT_OWNER) ||
			     (i >= STATE && i < OUT)) &&
			    m.now[m.me].at[(unsigned int)q * REGION + i] + 1 <
				    m.word[(unsigned int)q * REGION + i].count)
				wrong("the queue ends while a store is under way");
	}
	run.received_all = true;
}

static void agent(void)
{
	if (m.me < WARP)
		warp();
	else if (m.me < DEVICE)
		thread();
	else if (m.me == STOPPER)
		stopper();
	else
		receiver();
	m.done[m.me] = true;
	drain(m.me, !m.lazy);
	switch_to_any(&m.context[m.me]);
}

/* What went wrong in one run; NULL: nothing. */
static const char *explore(uint64_t seed, enum fault fault, unsigned int fence)
{
	static const struct gdri_copy_plan plan = { .fences = GDR_MAPPING_TYPE_WC };
	static struct gdri_queue_posts *posts[QUEUES];
	static struct gdri_cuda_pages pages;
	char *stacks = m.stacks;

	for (int i = 0; i < WORDS; i++)
		for (int k = 0; k < HISTORY; k++)
			drop(m.word[i].released[k]);
	for (int i = 0; i < AGENTS; i++)
		drop(m.released[i]);
	memset(&m, 0, sizeof(m));
	memset(&run, 0, sizeof(run));
	m.stacks = stacks ? stacks : malloc((size_t)AGENTS * STACK);
	ck_assert_ptr_nonnull(m.stacks);
	m.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	below(2);
	m.fault = fault;
	m.fence = fence;
	m.lines = seed % 2 ? LINES : 2;
	m.lap_mask = seed / 2 % 2 ? 0x3 : 0xff;
	m.stale = (unsigned int[]){ 0, 30, 70 }[seed / 4 % 3];
	m.lazy = below(2);
	m.kill_at = below(6) ? 0 : 1 + below(3000);
	run.with_stop = below(4) != 0;
	run.with_abort = run.with_stop && !below(4);
	run.with_drop = !m.kill_at && !below(4);
	run.max_rounds = 1 + (int)below(6);
	run.few = below(2);
	for (int i = 0; i < WORDS; i++)
		m.word[i].count = 1;
	for (unsigned int q = 0; q < QUEUES; q++) {
		free(posts[q]);
		posts[q] = calloc(1, sizeof(*posts[q]) + LINES * GDRI_QUEUE_SLOTS * 4);
		ck_assert_ptr_nonnull(posts[q]);
		posts[q]->bound = GDRI_QUEUE_UNBOUND;
		run.view[q] = (barcopy_queue_view_t){
			.requests = addr_of((int)q, SLOTS),
			.replies = addr_of((int)q, REPLIES),
			.control = addr_of((int)q, CONTROL),
			.state = addr_of((int)q, STATE),
			.lines = m.lines,
			.generation = (BARCOPY_QUEUE_VERSION | BARCOPY_QUEUE_OF_POSTS) << 24 | 7,
		};
		m.word[q * REGION + AT_GENERATION].value[0] = run.view[q].generation;
		m.q[q] = (struct gdri_queue){ .requests = (char *)(uintptr_t)run.view[q].requests,
					      .replies = (char *)(uintptr_t)run.view[q].replies,
					      .control = (char *)(uintptr_t)run.view[q].control,
					      .state = (char *)(uintptr_t)run.view[q].state,
					      .plan = &plan,
					      .posts = posts[q],
					      .pages = &pages,
					      .view = run.view[q],
					      .lines = m.lines,
					      .shift = (uint32_t)__builtin_ctz(m.lines) };
	}
	for (int i = 0; i < AGENTS; i++) {
		getcontext(&m.context[i]);
		m.context[i].uc_stack.ss_sp = m.stacks + (size_t)i * STACK;
		m.context[i].uc_stack.ss_size = STACK;
		makecontext(&m.context[i], agent, 0);
	}
	switch_to_any(&m.caller);
	if (!m.wrong && !run.received_all)
		m.wrong = "the receiver has not ended";
	return m.wrong;
}

/* ---- the tests ----------------------------------------------------------- */

static void no_faults(void)
{
	for (uint64_t seed = 1; seed <= (unit_quick() ? 60 : 300); seed++) {
		const char *what = explore(seed, NONE, 0);

		if (what)
			ck_abort_msg("%s: seed %d, step %u", what, (int)seed, m.steps);
	}
}

/* Some take hundreds of runs. With a sanitizer half of them have to be seen. */
static unsigned int unseen;

static void expect_seen(enum fault fault, unsigned int fence)
{
	const char *what = NULL;

	for (uint64_t seed = 1; seed <= (unit_quick() ? 12 : 3000) && !what; seed++)
		what = explore(seed, fault, fence);
	if (!what && (!unit_quick() || ++unseen > 12))
		ck_abort_msg("fault %d goes unseen, line %d", fault, fence_line[fence]);
}

/* The test of the test: without each fence, and with each other fault. */
static void faults(void)
{
	for (uint64_t seed = 1; seed <= 20; seed++)
		explore(seed, NONE, 0);
	for (unsigned int i = 0; i < FENCES; i++) {
		ck_assert_int_ne(fence_line[i], 0);
		expect_seen(NO_FENCE, i);
		if (fence_is_sc[i])
			expect_seen(WEAK_FENCE, i);
	}
	for (int fault = MORE_ROOM; fault < FAULTS; fault++)
		expect_seen((enum fault)fault, 0);
}

static const struct unit_test tests[] = {
	{ "posts and calls", no_faults, NULL },
	{ "faults", faults, NULL },
};

UNIT_MAIN("queue posts", tests)
