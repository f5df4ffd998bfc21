// SPDX-License-Identifier: MIT
/* Which thread runs. See explore.h. */
#include <errno.h>
#include <execinfo.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/random.h"
#include "explore/explore.h"

enum { MOST_SWITCHES = 1 << 16, MOST_CHANGES = 3, FRAMES = 40, STACK = 1 << 20 };
/*
 * Points without the end of a call. The most in 600 seeds: never 141782; evict, short, queue and
 * verdict 2022. More where plain accesses are points too.
 */
enum { LIVELOCK = 1500000, LIVELOCK_PLAIN = 6 * LIVELOCK };

/* What a thread's futex word says. */
enum { PARKED, GO_ON, LOOK };

static struct thread {
	enum { RUNS, WAITS, SLEEPS, DONE } state;
	const void *on; /* WAITS: for this object */
	const char *what;
	uint64_t until; /* virtual ns; of WAITS 0: for ever */
	bool timed_out;
	int priority, word;
	char *stack_low, *stack_high;
} threads[EX_THREADS];

/* A switch: after that many points, to that thread. */
struct turn {
	uint64_t step;
	int to;
};

static _Thread_local int me = -1;

/* Of the thread that has the baton. */
static int count;
static bool active, verbose;
static uint64_t now_ns, steps, quiet_steps, seed_now;
static unsigned long long random_state[2]; /* the schedule's, the scenario's */
static bool by_priority; /* PCT */
static uint32_t denominator; /* the random walk switches at one point of that many */
static int low_priority, change_count;
static uint64_t change_at[MOST_CHANGES];
static const char *scenario_now = "";
static void (*body)(int);
unsigned int ex_patience;
static uint64_t livelock;
static struct turn turns[MOST_SWITCHES];
static int turn_count;
static struct turn *plan; /* EXPLORE_PLAN="STEP:THREAD ...": these switches instead of the seed's */
static int plan_count, plan_next;
static int finished, looked; /* futexes: the run has ended; a thread has looked where it is */

/* A page that a forked child finds empty: its one thread goes on alone. */
static int *not_forked;
static bool forked; /* this has been seen */

static void futex(int *word, int operation, int value)
{
	syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void set_word(int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	futex(word, FUTEX_WAKE_PRIVATE, 1);
}

static int get_word(int *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint32_t draw(int which, uint32_t below)
{
	uint32_t number = (uint32_t)(unit_random(&random_state[which]) >> 33);

	return below ? number % below : 0;
}

/* splitmix64, never 0. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (x ^ (x >> 31)) | 1;
}

uint32_t ex_random(uint32_t below)
{
	return draw(1, below);
}

void ex_progress(void)
{
	quiet_steps = 0;
}

bool ex_inside(void)
{
	return active && me >= 0;
}

int ex_me(void)
{
	return me;
}

bool ex_is_parent(void)
{
	return *not_forked && !forked;
}

bool ex_is_stack(const void *p)
{
	return me >= 0 && (const char *)p >= threads[me].stack_low &&
	       (const char *)p < threads[me].stack_high;
}

/* ---- reports --------------------------------------------------------------------------------- */

void ex_say(const char *format, ...)
{
	va_list ap;

	if (getenv("EXPLORE_QUIET"))
		return;
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* Of this program's frames; the others are the stand-ins' and the C library's. */
void ex_print_frames(void **frames, int n)
{
	char command[64 + FRAMES * 20], line[512];
	size_t length;
	bool any = false;
	FILE *f;

	if (getenv("EXPLORE_QUIET"))
		return;
	active = false;
	length = (size_t)sprintf(command, "env -u LD_PRELOAD addr2line -fip -e /proc/%d/exe",
				 (int)getpid());
	for (int i = 0; i < n && i < FRAMES; i++)
		length += (size_t)sprintf(command + length, " %p", (char *)frames[i] - 1);
	f = popen(command, "r"); /* no handlers of fork() run */
	for (; f && fgets(line, sizeof(line), f); any = true)
		if (!strstr(line, "??") && !strstr(line, "/sched.c:"))
			fprintf(stderr, "    %s", line);
	if (f)
		pclose(f);
	if (!any) /* without addr2line */
		fprintf(stderr, "    %s\n", strchr(command, ' '));
}

/* Where a thread is: it looks itself, and the failed one prints. */
static void *place[FRAMES];
static int place_length;

static void print_place(int t)
{
	static const char *const states[] = { "runs", "waits for", "sleeps", "is done" };

	ex_say("thread %d %s %s", t, states[threads[t].state],
	       threads[t].state == WAITS && threads[t].what ? threads[t].what : "");
	ex_print_frames(place, place_length);
}

/* Sleeps until this thread has the baton; looks where it is when another thread's run failed. */
static void park(int t)
{
	int *word = &threads[t].word;

	for (;;) {
		int seen = get_word(word);

		if (seen == GO_ON)
			break;
		if (seen == LOOK) {
			place_length = backtrace(place, FRAMES);
			__atomic_store_n(word, PARKED, __ATOMIC_RELEASE);
			set_word(&looked, 1);
		} else {
			futex(word, FUTEX_WAIT_PRIVATE, seen);
		}
	}
	__atomic_store_n(word, PARKED, __ATOMIC_RELEASE);
}

static void print_turns(void)
{
	fprintf(stderr, "%d switches in %llu points; EXPLORE_PLAN='", turn_count,
		(unsigned long long)steps);
	for (int i = 0; i < turn_count; i++)
		fprintf(stderr, "%s%llu:%d", i ? " " : "", (unsigned long long)turns[i].step,
			turns[i].to);
	fprintf(stderr, "'\n");
}

void ex_fail(const char *format, ...)
{
	va_list ap;

	active = false;
	fprintf(stderr, "FAILED %s, seed %llu: ", scenario_now, (unsigned long long)seed_now);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	if (!getenv("EXPLORE_QUIET") && me >= 0) {
		place_length = backtrace(place, FRAMES);
		print_place(me);
		for (int t = 0; t < count; t++) {
			if (t == me || threads[t].state == DONE || !*not_forked)
				continue;
			__atomic_store_n(&looked, 0, __ATOMIC_RELEASE);
			set_word(&threads[t].word, LOOK);
			while (!get_word(&looked))
				futex(&looked, FUTEX_WAIT_PRIVATE, 0);
			print_place(t);
		}
	}
	print_turns();
	_exit(1);
}

void ex_note(const char *format, ...)
{
	va_list ap;

	if (!verbose)
		return;
	va_start(ap, format);
	fprintf(stderr, "  [%d @%llu] ", me, (unsigned long long)steps);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
}

/* ---- choices --------------------------------------------------------------------------------- */

static int by_plan(const int *can, int n, bool must)
{
	while (plan_next < plan_count && plan[plan_next].step < steps)
		plan_next++;
	if (plan_next < plan_count && plan[plan_next].step == steps) {
		int to = plan[plan_next++].to;

		for (int i = 0; i < n; i++)
			if (can[i] == to)
				return to;
	}
	if (!must)
		return me;
	for (int t = (me + 1) % count;; t = (t + 1) % count) /* the next one in turn */
		for (int i = 0; i < n; i++)
			if (can[i] == t)
				return t;
}

/* The thread that runs next; leave: not this one, if another can. -1: none can. */
static int choose(bool leave)
{
	int can[EX_THREADS], n = 0, best;
	bool must = leave || threads[me].state != RUNS;

	for (int t = 0; t < count; t++)
		if (threads[t].state == RUNS && !(leave && t == me))
			can[n++] = t;
	if (!n)
		return threads[me].state == RUNS ? me : -1;
	if (plan)
		return by_plan(can, n, must);
	if (!by_priority)
		return !must && draw(0, denominator) ? me : can[draw(0, (uint32_t)n)];
	best = can[0];
	for (int i = 1; i < n; i++)
		if (threads[can[i]].priority > threads[best].priority)
			best = can[i];
	return best;
}

static void pass_to(int t)
{
	bool ends = threads[me].state == DONE;

	if (t == me)
		return;
	if (turn_count < MOST_SWITCHES)
		turns[turn_count++] = (struct turn){ steps, t };
	set_word(&threads[t].word, GO_ON);
	if (!ends)
		park(me);
}

/* A forked child has this thread alone. */
static void alone_after_fork(void)
{
	for (int t = 0; t < count; t++)
		if (t != me)
			threads[t].state = DONE;
	turn_count = 0;
	forked = true;
	*not_forked = 1;
}

static void count_step(void)
{
	if (!*not_forked)
		alone_after_fork();
	if (!(++steps % 65536))
		alarm(EX_STUCK_S);
	if (++quiet_steps > livelock)
		ex_fail("livelock: %d points without the end of a call", (int)livelock);
	for (int i = 0; i < change_count; i++)
		if (steps == change_at[i])
			threads[me].priority = -1 - i;
}

void ex_at_point(bool leave, void *pc)
{
	int err = errno;

	(void)pc;
	if (!ex_inside())
		return;
	count_step();
	if (leave && by_priority)
		threads[me].priority = --low_priority;
	pass_to(choose(leave));
	errno = err;
}

void ex_point(void)
{
	ex_at_point(false, __builtin_return_address(0));
}

void ex_yield(void)
{
	ex_at_point(true, __builtin_return_address(0));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool is_timed(const struct thread *t)
{
	return t->until && (t->state == SLEEPS || t->state == WAITS);
}

/* Nobody can run: time passes until the first that waits for it. */
static void let_time_pass(void)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < count; i++)
		if (is_timed(&threads[i]) && threads[i].until < first)
			first = threads[i].until;
	if (first == UINT64_MAX)
		ex_fail("deadlock");
	now_ns = first > now_ns ? first : now_ns;
	for (int i = 0; i < count; i++)
		if (is_timed(&threads[i]) && threads[i].until <= now_ns) {
			threads[i].timed_out = true;
			threads[i].state = RUNS;
		}
}

/* This thread cannot run any more, for now or for good: another one does. */
static void leave_off(void)
{
	int next;

	while ((next = choose(true)) < 0) {
		bool all_done = true;

		for (int i = 0; i < count; i++)
			all_done &= threads[i].state == DONE;
		if (all_done) {
			set_word(&finished, 1);
			return;
		}
		let_time_pass();
	}
	pass_to(next);
}

bool ex_wait(const void *on, const char *what, uint64_t until_ns, void *pc)
{
	struct thread *t = &threads[me];

	(void)pc;
	count_step();
	t->state = WAITS;
	t->on = on;
	t->what = what;
	t->until = until_ns;
	t->timed_out = false;
	leave_off();
	t->until = 0;
	return !t->timed_out;
}

void ex_wake(const void *on, bool one)
{
	int woken[EX_THREADS], n = 0;

	for (int t = 0; t < count; t++)
		if (threads[t].state == WAITS && threads[t].on == on)
			woken[n++] = t;
	if (one && n > 1) {
		woken[0] = woken[draw(0, (uint32_t)n)];
		n = 1;
	}
	while (n--)
		threads[woken[n]].state = RUNS;
}

void ex_sleep(uint64_t ns, void *pc)
{
	struct thread *t = &threads[me];

	(void)pc;
	count_step();
	t->state = SLEEPS;
	t->until = now_ns + ns + 1;
	leave_off();
	t->until = 0;
}

uint64_t ex_clock(uint64_t advance_ns)
{
	return now_ns += advance_ns;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void *worker(void *arg)
{
	char here;

	me = (int)(intptr_t)arg;
	threads[me].stack_low = &here - STACK;
	threads[me].stack_high = &here + 4096;
	park(me);
	body(me);
	threads[me].state = DONE;
	leave_off();
	for (;;) /* what the end of a thread frees would be free at any time */
		pause();
	return NULL;
}

static void read_plan(void)
{
	const char *text = getenv("EXPLORE_PLAN");
	char *end;

	if (!text)
		return;
	plan = calloc(strlen(text) / 3 + 2, sizeof(*plan));
	for (; plan && *text; text = end + (*end == ' ')) {
		plan[plan_count].step = strtoull(text, &end, 10);
		if (*end != ':')
			break;
		plan[plan_count++].to = (int)strtol(end + 1, &end, 10);
	}
}

/* Priorities are a permutation; each change puts the running thread below all. */
static void choose_priorities(void)
{
	uint64_t length = 200ull << draw(0, 7); /* of the run: a guess, which the seed makes */

	change_count = 1 + (int)(seed_now / 2 % MOST_CHANGES);
	for (int i = 0; i < change_count; i++)
		change_at[i] = 1 + draw(0, (uint32_t)length);
	for (int t = 0; t < count; t++) {
		int other = (int)draw(0, (uint32_t)t + 1);

		threads[t].priority = threads[other].priority;
		threads[other].priority = t + 1;
	}
}

void ex_begin(const char *scenario, uint64_t seed)
{
	static const uint32_t denominators[] = { 2, 8, 30, 100 };

	verbose = getenv("EXPLORE_VERBOSE");
	livelock = getenv("EXPLORE_PLAIN") ? LIVELOCK_PLAIN : LIVELOCK;
	backtrace(place, 1); /* its first call loads a library, which a report cannot */
	not_forked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (not_forked == MAP_FAILED || madvise(not_forked, 4096, MADV_WIPEONFORK))
		abort();
	*not_forked = 1;
	scenario_now = scenario;
	seed_now = seed;
	now_ns = 1000000000;
	by_priority = seed % 2;
	denominator = denominators[seed / 2 % 4];
	low_priority = -100;
	ex_patience = seed / 8 % 2 ? 16 : 1;
	read_plan();
	ex_hook_fork();
	ex_race_begin();
	random_state[0] = mix(seed);
	random_state[1] = mix(seed ^ 0x5555);
}

void ex_run(int n, void (*fn)(int))
{
	pthread_t id;
	int first = 0;

	count = n;
	body = fn;
	if (by_priority)
		choose_priorities();
	for (int t = 0; t < n; t++)
		if (pthread_create(&id, NULL, worker, (void *)(intptr_t)t))
			abort();
	if (plan)
		first = plan_count && !plan[0].step ? plan[plan_next++].to : 0;
	else if (!by_priority)
		first = (int)draw(0, (uint32_t)n);
	for (int t = 0; !plan && by_priority && t < n; t++)
		if (threads[t].priority > threads[first].priority)
			first = t;
	turns[turn_count++] = (struct turn){ 0, first };
	active = true;
	set_word(&threads[first].word, GO_ON);
	while (!get_word(&finished))
		futex(&finished, FUTEX_WAIT_PRIVATE, 0);
	active = false;
	if (getenv("EXPLORE_TURNS"))
		print_turns();
}
