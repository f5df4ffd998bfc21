/* SPDX-License-Identifier: MIT */
/*
 * A deterministic scheduler: the library's own code, one thread at a time, every switch decided by a
 * seed, time virtual. It finds what needs threads and clocks to meet in one way of many, and a seed
 * repeats it.
 *
 *   sched.c      which thread runs: a random walk or PCT; virtual time; deadlock, livelock, reports
 *   hooks.c      what waits or sleeps: locks, conditions, semaphores, the loader's lock, clocks,
 *                and the system calls at which other threads may run
 *   access.c     the calls that gcc's -fsanitize=thread puts before each access
 *   race.c       data races and uses of freed memory, by vector clocks; malloc() and free()
 *   scenarios.c  the table of scenarios, their memory and its uses; the scenarios: space.c, contexts.c, ends.c
 *   main.c       one process for each seed; a failing schedule reduced to its fewest switches
 *   seeds.sh     the fixed seeds of make check; fresh.sh: further and new ones, of check-ci
 *   planted.py   faults that the scenarios must find, which it plants in a copy of the tree
 *
 * The objects of src/ are compiled with -fsanitize=thread, but the functions that this calls are
 * access.c's: each C11 atomic is a point at which another thread may run. Real threads pass a
 * baton. Seeds that are even walk at random, odd ones are PCT (Burckhardt et al., "A Randomized
 * Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010) with depth 2 to 4.
 *
 * Hunts, `explore all SEED COUNT`, of 2026-11-27, shared by all 34 to 39 scenarios: 670000 seeds in
 * 5291 CPU s, of which room 310028320 failed (a call short of BAR1; `returned` has that fault); the
 * last 144000 of them, 910000000 to 910071999 and as many from 1020000000 on, ran on 9440aa40. The
 * seeds of a slice of 2000 shared one stand-in of the resource manager. 460000 more, 2000000000 to
 * 2000459999, ran on 81a4f124, each a process of its own: none failed. 60000 from 2200000000 on ran
 * on b79dbc3b, and 24000 from 2300000000 and 2310000000 on, on e48f9bc2: none failed. On 2026-11-28 none
 * failed of 60000 from 2500000000 on (five times 12000, 1000000 apart), on 0909dafc, and of 260000 and
 * 494000 from 2600000000 and 2700000000 on (26 times 10000, 19 times 26000, 100000 apart), on e7f3d636.
 *
 * Not seen: what weak memory does to atomics (test_queue_explorer has that for the queues; race.c has
 * a barrier that a plain access lacks, hooks.c a fence behind an unlock), accesses of CUDA's, of the
 * kernel's, of vector and assembly code, and to a thread's own stack; a real kernel, a real GPU.
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
 * At one look at the clock, and callback of the loader, of that many another thread has to run: a fork
 * or an eviction just there is rare else. With 1 no thread pins while another one stands still.
 */
extern unsigned int ex_patience;
bool ex_inside(void); /* does the scheduler decide about the calling thread? */
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
