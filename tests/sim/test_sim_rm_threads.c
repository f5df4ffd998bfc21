/* SPDX-License-Identifier: MIT */
/*
 * Self-test of nvidia.ko's stand-in: many threads at once, with forks and signals in the middle, and
 * many maps held.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/unit.h"
#include "test_sim_rm.h"

enum { THREADS = 8, HELD = 2000 };

struct shared {
	struct rm_user u;
	handle from, object;
	uint64_t offset;
	atomic_uint laps, wrong;
	unsigned int laps_each;
};

/* A map of one page of the object, or MAP_FAILED. */
static uint32_t *map_page(const struct shared *s, unsigned int page, handle *dup, uint64_t *linear)
{
	int fd = rm_node(s->u.minor), ctl = s->u.ctl;
	uint32_t *p = MAP_FAILED;

	*dup = 0;
	if (fd < 0)
		return p;
	if (!ioctl(fd, ESC_REGISTER, &ctl) && !rm_duplicate(&s->u, s->from, s->object, dup) &&
	    !rm_map(&s->u, *dup, s->offset + page * 4096ul, 4096, 0, fd, linear))
		p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p;
}

static void unmap_page(const struct shared *s, uint32_t *p, handle dup, uint64_t linear)
{
	munmap(p, 4096);
	rm_unmap(&s->u, dup, linear);
	rm_end(s->u.ctl, s->u.client, dup);
}

struct work {
	struct shared *shared;
	unsigned int page;
};

static void *lap(void *arg)
{
	const struct work *w = arg;
	struct shared *s = w->shared;

	for (unsigned int i = 1; i <= s->laps_each; i++) {
		uint64_t linear;
		handle dup;
		uint32_t *p = map_page(s, w->page, &dup, &linear);

		if (p == MAP_FAILED) {
			atomic_fetch_add(&s->wrong, 1);
			continue;
		}
		atomic_fetch_add(&s->wrong, i > 1 && p[0] != i - 1);
		p[0] = i;
		unmap_page(s, p, dup, linear);
		atomic_fetch_add(&s->laps, 1);
	}
	return NULL;
}

static int signal_ctl;
static atomic_uint handled;

/* A call of the same node in the middle of whatever the thread was at. */
static void on_signal(int number)
{
	uint32_t version[18] = { '2' };
	int err = errno;

	(void)number;
	if (!ioctl(signal_ctl, ESC_N(210, sizeof(version)), version))
		atomic_fetch_add(&handled, 1);
	errno = err;
}

static void start(struct shared *s)
{
	CUdeviceptr a;
	int fd;

	memset(s, 0, sizeof(*s));
	standin_start();
	a = standin_alloc(16 * MIB);
	rm_user_start(&s->u, 0);
	fd = rm_export(a, 16 * MIB);
	s->from = rm_seen.call[0].client;
	s->object = rm_seen.call[0].handles[0];
	s->offset = rm_seen.call[0].offsets[0];
	close(fd);
}

START_TEST(threads_forks_signals)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct work work[THREADS];
	pthread_t threads[THREADS];
	struct shared s;

	start(&s);
	s.laps_each = unit_quick() ? 50 : 300;
	signal_ctl = s.u.ctl;
	sigaction(SIGUSR1, &action, NULL);
	for (unsigned int i = 0; i < THREADS; i++) {
		work[i] = (struct work){ &s, i };
		ck_assert_int_eq(pthread_create(&threads[i], NULL, lap, &work[i]), 0);
	}
	for (unsigned int i = 0; i < 20; i++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			atomic_store(&handled, 0);
			on_signal(0);
			/* At an exit checkers would miss the parent's threads and what they hold. */
			if (atomic_load(&handled))
				raise(SIGKILL);
			_exit(1);
		}
		for (unsigned int t = 0; t < THREADS; t++)
			pthread_kill(threads[t], SIGUSR1);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&s.wrong), 0);
	ck_assert_uint_eq(atomic_load(&s.laps), THREADS * s.laps_each);
	ck_assert_uint_gt(atomic_load(&handled), 0);
	ck_assert_uint_eq(rm_sim.stale(), 0);
	rm_user_end(&s.u);
}
END_TEST

START_TEST(many_held)
{
	unsigned int n = unit_quick() ? HELD / 10 : HELD;
	struct held {
		uint32_t *p;
		handle dup;
		uint64_t linear;
	} *held = calloc(n, sizeof(*held));
	struct gdrsim_rm_counts c;
	struct shared s;

	start(&s);
	for (unsigned int i = 0; i < n; i++) {
		held[i].p = map_page(&s, i, &held[i].dup, &held[i].linear);
		ck_assert_ptr_ne(held[i].p, MAP_FAILED);
		held[i].p[1] = i;
	}
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.maps, n);
	ck_assert_uint_eq(c.vmas, n);
	ck_assert_uint_eq(c.memories, n);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_uint_eq(held[i].p[1], i);
	for (unsigned int i = 0; i < n; i++)
		unmap_page(&s, held[i].p, held[i].dup, held[i].linear);
	free(held);
	rm_user_end(&s.u);
}
END_TEST

void rm_tests_threads(TCase *tc)
{
	tcase_add_test(tc, threads_forks_signals);
	tcase_add_test(tc, many_held);
}
