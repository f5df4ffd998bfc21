/* SPDX-License-Identifier: MIT */
/*
 * A deterministic scheduler runs the library's own code, one thread at a time. A seed decides each
 * switch, and time is virtual. So it finds faults that need one order of threads and clocks among
 * many, and the seed repeats them. docs/results/fuzz.md has the seeds that were run.
 *
 *   sched.c      which thread runs: a random walk or PCT; virtual time; deadlock, livelock, reports
 *   hooks.c      what waits or sleeps: locks, conditions, semaphores, the loader's lock, clocks,
 *                and the system calls at which other threads may run
 *   access.c     the calls that gcc's -fsanitize=thread puts before each access
 *   race.c       data races and uses of freed memory, by vector clocks; malloc() and free()
 *   scenarios.c  the table of scenarios, and their memory; they are in space.c, contexts.c, ends.c
 *   main.c       one process for each seed; a failing schedule reduced to its fewest switches
 *   seeds.sh     the fixed seeds of make check; fresh.sh: further and new ones, of check-ci
 *   planted.py   faults that the scenarios must find, which it plants in a copy of the tree
 *
 * gcc compiles src/ with -fsanitize=thread and puts a call before each access; access.c defines
 * these calls in place of TSan's library. Each C11 atomic is a point at which another thread may
 * run. The threads are real ones, of which one runs while the others wait. An even seed walks at
 * random. An odd one is PCT with depth 2 to 4 (Burckhardt et al., "A Randomized Scheduler with
 * Probabilistic Guarantees of Finding Bugs", ASPLOS 2010).
 *
 * The scheduler does not see:
 *   - what weak memory does to atomics. test_queue_explorer does for the queues. Two cases are
 *     seen: a plain access that lacks a barrier (race.c), a fence behind an unlock (hooks.c);
 *   - accesses by CUDA, by the kernel, by vector and assembly code, and to a thread's own stack;
 *   - a real kernel, a real GPU.
 */
#ifndef TEST_EXPLORE_H
#define TEST_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EX_THREADS = 8, EX_STUCK_S = 20 };

/* ---- for scenarios --------------------------------------------------------------------------- */

void ex_begin(const char *scenario, uint64_t seed); /* once in a process, before all others */
/* Runs fn(0) to fn(n - 1), each in a thread, under the schedule of the seed. Once in a process. */
void ex_run(int n, void (*fn)(int));
/* Ends the run as failed, from any of its threads: prints why and the schedule, and exits. */
void ex_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void ex_note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* EXPLORE_VERBOSE=1 */
uint32_t ex_random(uint32_t below); /* of the seed, apart from the schedule's own choices */
void ex_progress(void); /* a call of the scenario has ended: this is no livelock */
void ex_point(void); /* another thread may run */
void ex_yield(void); /* another thread is to run, if one can */

/*
 * The number of files in /dev that the library has open: none in a forked child. One of /proc that
 * another thread reads at the fork may be open there: fork() does not wait for it.
 */
int ex_open_devices(void);

/* Called before each munmap() of the library. */
extern void (*ex_before_munmap)(void);

/* ---- for hooks.c and access.c ---------------------------------------------------------------- */

/*
 * Another thread has to run at one of so many reads of the clock, and at one of so many callbacks of
 * the loader. Otherwise a fork or an eviction at such a point is rare. With 1, another thread always
 * runs there, so that none pins while another thread stands still.
 */
extern unsigned int ex_patience;
bool ex_inside(void); /* Returns true if the scheduler decides when the calling thread runs. */
void ex_at_point(bool leave, void *pc);
/* Waits until ex_wake() of `on`, or the virtual time; 0: for ever. Returns false at the latter. */
bool ex_wait(const void *on, const char *what, uint64_t until_ns, void *pc);
void ex_wake(const void *on, bool one);
void ex_sleep(uint64_t ns, void *pc);
uint64_t ex_clock(uint64_t advance_ns); /* the virtual time, after it has advanced */
bool ex_is_stack(const void *p); /* of the calling thread */
bool ex_is_parent(void); /* and no forked child, which has one thread alone */
int ex_me(void); /* the number of the calling thread, or -1 */
/* Lines of a report, which may end in ex_fail(); not with EXPLORE_QUIET=1. */
void ex_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ex_print_frames(void **frames, int n);
void ex_unlocks_are_seen(void); /* by a fence of the calling thread */
void ex_hook_fork(void); /* before the library registers its handlers of fork() */

/* ---- race.c ---------------------------------------------------------------------------------- */

enum ex_access { EX_LOAD, EX_STORE, EX_UPDATE /* of an atomic: both */ };

void ex_race_begin(void);
void ex_race_call(void *pc); /* a function of the library begins, called there */
void ex_race_return(void);
void ex_race_access(const void *p, size_t size, int kind, void *pc);
void ex_race_atomic(const volatile void *p, size_t size, int kind, int order, void *pc);
void ex_race_fence(int order);
/* A lock, or what is like one, is taken; is given up. */
void ex_race_acquire(const void *p);
void ex_race_release(const void *p);
bool ex_race_has_seen(const void *p); /* does all before its releases come before this point? */
/* Memory that is new: nobody has accessed it. Memory that is freed: nobody may. */
void ex_race_new(const void *p, size_t size);
void ex_race_free(void *p, void *pc);

#endif
