/* SPDX-License-Identifier: MIT */
/*
 * What the scenarios share: memory whose bytes tell which it is, uses of it by each kind of call,
 * and what a run must leave. A scenario is a row of scenarios[] in scenarios.c: what one thread makes,
 * what 2 to 4 threads do, each choice by ex_random(), with ex_progress() after each call; and what must
 * hold afterwards: bytes by their tag, all_is_back(), each errno as documented. What the threads tell
 * each other goes by variables of the scenario, not by locks, which would order the library's accesses.
 *
 * A data race, a use of freed memory, a deadlock and a livelock are found in any scenario, and printed
 * with the stacks of all threads; the last line has the switches, which EXPLORE_PLAN= repeats. A
 * scenario must find a fault in planted.py; who changes the code under a planted fault moves the fault.
 */
#ifndef TEST_EXPLORE_SCENARIOS_H
#define TEST_EXPLORE_SCENARIOS_H

#include "common/standin.h"
#include "barcopy.h"
#include "explore/explore.h"

enum { CHUNK = 2 << 20, PAGE = 65536, SHARED = 4, THREADS = 4 };

struct scenario {
	const char *name;
	int threads;
	int bar_mib; /* of BAR1; 8: space for three chunks besides what `taken` has */
	void (*begin)(void), (*body)(int thread), (*check)(void);
	bool fresh; /* no context is open, nothing was ever pinned */
};

extern const struct scenario scenarios[];
extern const int scenario_count; /* but for the last, which fails */

/* ---- what they share ------------------------------------------------------------------------- */

#define MUST(call)                                                                \
	do {                                                                      \
		int rc_ = (call);                                                 \
		if (rc_)                                                          \
			ex_fail("%s: %d (%s)", #call, rc_, barcopy_last_error()); \
	} while (0)
#define CU_MUST(call)                                           \
	do {                                                    \
		int rc_ = (int)(call);                          \
		if (rc_)                                        \
			ex_fail("%s: CUresult %d", #call, rc_); \
	} while (0)

enum how { GET, RANGE, PIN };

extern gdr_t g, other;
extern barcopy_cache_t a, b;
/* Each chunk has its tag at its start and its end: `shared` stay, a thread's `own` are made anew. */
extern CUdeviceptr shared[SHARED], own[THREADS], three; /* three: chunks in a row */
extern uint32_t own_tag[THREADS], next_tag;
extern unsigned long long (*bar_used)(int device);
extern void (*rm_fail)(const char *rules);

extern uint64_t pins_before; /* of remember(), as the next */
extern unsigned long long bar_before;

uint64_t pinned(void);
/* What is pinned, mapped and allocated now has to be so at the end, too. */
void remember(void);
void all_is_back(void);
void all_is_back_but(uint64_t bytes_kept); /* allocated for later uses */
void end_caches(void);
void in_context(void);
void fill(CUdeviceptr d, uint32_t tag);
void check_tag(const void *p, uint32_t tag, const char *what);
void check_stats(barcopy_cache_t c);
barcopy_cache_t new_cache(gdr_t ctx, bool notified, uint64_t max_bytes);
/* A call and its end; the errno of the call. uses(): nothing may fail. */
int use(gdr_t ctx, enum how how, barcopy_cache_t c, CUdeviceptr d, uint32_t tag);
void uses(enum how how, barcopy_cache_t c, CUdeviceptr d, uint32_t tag);
/* Invalidates, frees and makes anew a thread's own chunk. */
void renew(int thread);
/* A call's errno during gdr_close(). */
int gone(int rc, const char *what);

/* ---- space.c ----------------------------------------------------------------------------- */

void room_begin(void), room(int thread);
void short_begin(void), short_of_room(int thread);
void returned_begin(void), returned(int thread), returned_check(void);
void ended(int thread);
void drained(int thread);
void covered_begin(void), covered(int thread);
void lost_begin(void), lost(int thread), lost_check(void);
void moves(int thread);
void evict_begin(void), evict(int thread);
void never_begin(void), never(int thread), never_check(void);
void limit_begin(void), limit(int thread);

/* ---- contexts.c -------------------------------------------------------------------------- */

void one_queue(void);
void close_begin(void), closes(int thread), close_check(void);
void table_begin(void), table(int thread), table_check(void);
void again_begin(void), again(int thread), again_check(void);
void forks(int thread);
void queue(int thread), queues_check(void);
void next_begin(void), next(int thread), next_check(void);
void others_begin(void), others(int thread), others_check(void);
void leftover_begin(void), leftover(int thread), leftover_check(void);
void memory_begin(void), memory(int thread), memory_check(void);
void queues(int thread);
void abandon_begin(void), abandon(int thread), abandon_check(void);
void opens(int thread);
void port_begin(void), ports(int thread), port_check(void);

/* ---- ends.c ------------------------------------------------------------------------------ */

void stale_begin(void), stale(int thread);
void reuse_begin(void), reuse(int thread);
void hook_begin(void), hook(int thread);
void trim_begin(void), trim(int thread);
void place_begin(void), place(int thread), place_check(void);
void hit_begin(void), hit(int thread);
void piece_begin(void), piece(int thread);
void caches(int thread);
void fresh(int thread);
void joined_begin(void), joined(int thread);
void doom_begin(void), doom(int thread), doom_check(void);
void once_begin(void), once(int thread);
void elsewhere_begin(void), elsewhere(int thread), elsewhere_check(void);
void ranged(int thread), ranged_check(void);
void mid_pin_begin(void), mid_pin(int thread);
void engine_begin(void), engine(int thread), engine_check(void);
void client_begin(void), client(int thread), client_check(void);
void verdict_begin(void), verdict(int thread), verdict_check(void);

/* Starts CUDA's stand-in and the library as a scenario needs them; its memory. */
void scenario_start(const struct scenario *s);
/* Forks; the child opens a context of its own, and finds nothing of its parent's. */
void scenario_fork(void);
extern bool scenario_forks; /* the first thread, before its calls */

#endif
