// SPDX-License-Identifier: MIT
/*
 * The worker pool: the same bytes as one thread's copy, canaries untouched, several callers at
 * once, pools made and freed.
 */
#include "copy_area.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "common/resources.h"
#include "copy/rows.h"
#include "copy/pool.h"

#define BYTES ((size_t)4 << 20)

static const size_t sizes[] = { 1,
				4096,
				(256 << 10) - 1,
				256 << 10,
				(300 << 10) + 13,
				2 << 20,
				(2 << 20) + 32769,
				(3 << 20) + 5 };

static void both_ways(struct gdri_copy_pool *pool, const struct area *map, const struct area *host)
{
	for (size_t i = 0; i < COUNT(sizes); i++) {
		for (size_t at = 0; at < 3; at++) {
			static const size_t places[][2] = { { 0, 0 }, { 4095, 8 }, { 77, 33 } };
			const struct gdri_copy_plan *plan = gdri_copy_plan(
				at == 1 ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC);
			uint8_t *m = map->base + LINE + places[at][0];
			uint8_t *h = host->base + LINE + places[at][1];
			size_t n = sizes[i];

			area_fill(host);
			memset(map->base, CANARY, map->size);
			gdri_copy_pool_copy(pool, plan, m, h, n, true);
			ck_assert_int_eq(memcmp(m, h, n), 0);
			ck_assert_uint_eq(m[-1], CANARY);
			ck_assert_uint_eq(m[n], CANARY);

			area_fill(map);
			memset(host->base, CANARY, host->size);
			gdri_copy_pool_copy(pool, plan, h, m, n, false);
			ck_assert_int_eq(memcmp(m, h, n), 0);
			ck_assert_uint_eq(h[-1], CANARY);
			ck_assert_uint_eq(h[n], CANARY);
		}
	}
}

START_TEST(test_same_bytes)
{
	struct area map = area_new(BYTES, MAP_PRIVATE), host = area_new(BYTES, MAP_PRIVATE);

	for (unsigned int threads = 2; threads <= 5; threads += 3) {
		struct gdri_copy_pool *pool;

		ck_assert_int_eq(gdri_copy_pool_new(&pool, threads, threads == 2 ? 0 : -1), 0);
		both_ways(pool, &map, &host);
		gdri_copy_pool_free(pool);
	}
}
END_TEST

struct user {
	pthread_t thread;
	struct gdri_copy_pool *pool;
	struct area map, host;
	uint8_t value;
	int wrong;
};

static void *use(void *arg)
{
	struct user *u = arg;
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);

	for (int round = 0; round < (unit_quick() ? 5 : 30); round++) {
		memset(u->host.base, u->value + round, u->host.size);
		gdri_copy_pool_copy(u->pool, plan, u->map.base, u->host.base, u->map.size, true);
		memset(u->host.base, 0, u->host.size);
		gdri_copy_pool_copy(u->pool, plan, u->host.base, u->map.base, u->map.size, false);
		for (size_t i = 0; i < u->host.size; i += 999)
			u->wrong += u->host.base[i] != (uint8_t)(u->value + round);
	}
	return NULL;
}

/* One has the workers, the others copy alone, and nobody waits for another's copy. */
START_TEST(test_several_callers)
{
	struct gdri_copy_pool *pool;
	struct user user[3];

	ck_assert_int_eq(gdri_copy_pool_new(&pool, 3, -1), 0);
	for (size_t i = 0; i < COUNT(user); i++) {
		user[i].pool = pool;
		user[i].map = area_new((size_t)2 << 20, MAP_PRIVATE);
		user[i].host = area_new((size_t)2 << 20, MAP_PRIVATE);
		user[i].value = (uint8_t)(80 * i);
		user[i].wrong = 0;
		ck_assert_int_eq(pthread_create(&user[i].thread, NULL, use, &user[i]), 0);
	}
	for (size_t i = 0; i < COUNT(user); i++) {
		pthread_join(user[i].thread, NULL);
		ck_assert_int_eq(user[i].wrong, 0);
	}
	gdri_copy_pool_free(pool);
}
END_TEST

START_TEST(test_make_and_free)
{
	struct gdri_copy_pool *pool = NULL;

	ck_assert_int_eq(gdri_copy_pool_new(&pool, 0, -1), -EINVAL);
	ck_assert_int_eq(gdri_copy_pool_new(&pool, 1, -1), -EINVAL);
	ck_assert_int_eq(gdri_copy_pool_new(&pool, 65, -1), -EINVAL);
	ck_assert_ptr_null(pool);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(gdri_copy_pool_new(&pool, 4, i % 2 ? 0 : 1000), 0);
		gdri_copy_pool_free(pool);
	}
	gdri_copy_pool_free(NULL);
}
END_TEST

/* A fault in whichever thread copies reaches the program's handler: here one that mends it. */
static struct area faulty;
static pthread_t faulty_caller;
static _Atomic int worker_faults;

static void mend(int sig, siginfo_t *info, void *context)
{
	uint8_t *page = (uint8_t *)((uintptr_t)info->si_addr & ~(uintptr_t)4095);

	(void)context;
	if (page < faulty.base || page >= faulty.base + faulty.size) {
		signal(sig, SIG_DFL);
		return;
	}
	if (!pthread_equal(pthread_self(), faulty_caller)) {
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
		worker_faults++;
	}
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void watch_faults(void)
{
	struct sigaction action = { .sa_sigaction = mend, .sa_flags = SA_SIGINFO };

	faulty = area_new((size_t)2 << 20, MAP_PRIVATE);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
}

START_TEST(test_faults)
{
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	struct area host = area_new((size_t)2 << 20, MAP_PRIVATE);
	struct gdri_copy_pool *pool;

	watch_faults();
	area_fill(&host);
	faulty_caller = pthread_self();
	ck_assert_int_eq(gdri_copy_pool_new(&pool, 4, -1), 0);
	for (int i = 0; i < 1000 && !worker_faults; i++) {
		ck_assert_int_eq(mprotect(faulty.base, faulty.size, PROT_NONE), 0);
		gdri_copy_pool_copy(pool, plan, faulty.base, host.base, host.size, true);
		ck_assert_int_eq(memcmp(faulty.base, host.base, host.size), 0);
	}
	ck_assert_int_gt(worker_faults, 0);
	gdri_copy_pool_free(pool);
}
END_TEST

/*
 * A thread that is cancelled in the midst of a copy: the copy ends first. A worker that is held up by
 * its fault makes the caller wait for it, which would be the moment.
 */
static void *cancelled(void *arg)
{
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	struct user *u = arg;

	faulty_caller = pthread_self();
	pthread_cancel(pthread_self());
	/* No assertion within: Check writes, where a thread can be cancelled too. */
	while (!worker_faults && u->wrong < 1000 &&
	       !mprotect(faulty.base, faulty.size, PROT_NONE)) {
		gdri_copy_pool_copy(u->pool, plan, faulty.base, u->host.base, u->host.size, true);
		u->wrong++;
	}
	u->value = 1;
	pthread_testcancel();
	return NULL;
}

START_TEST(test_cancel)
{
	struct user u = { .host = area_new((size_t)2 << 20, MAP_PRIVATE) };
	void *end;

	watch_faults();
	ck_assert_int_eq(gdri_copy_pool_new(&u.pool, 4, -1), 0);
	ck_assert_int_eq(pthread_create(&u.thread, NULL, cancelled, &u), 0);
	pthread_join(u.thread, &end);
	ck_assert_ptr_eq(end, PTHREAD_CANCELED);
	ck_assert_int_gt(worker_faults, 0);
	ck_assert_int_eq(u.value, 1);
	gdri_copy_pool_free(u.pool);
}
END_TEST

static bool cancel_enabled(void)
{
	int state;

	ck_assert_int_eq(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state), 0);
	return state == PTHREAD_CANCEL_ENABLE;
}

/* The caller is afterwards as he was: his signals, whether he can be cancelled, his descriptors. */
START_TEST(test_caller)
{
	const struct gdri_copy_plan *plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	struct area map = area_new((size_t)2 << 20, MAP_PRIVATE);
	struct area host = area_new((size_t)2 << 20, MAP_PRIVATE);
	struct gdri_copy_pool *pool;
	int fds = resources_fds();
	sigset_t some, now;

	sigemptyset(&some);
	sigaddset(&some, SIGUSR1);
	sigaddset(&some, SIGSEGV);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &some, NULL), 0);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(gdri_copy_pool_new(&pool, 3, i % 2 - 1), 0);
		ck_assert(cancel_enabled());
		gdri_copy_pool_copy(pool, plan, map.base, host.base, map.size, i < 2);
		ck_assert(cancel_enabled());
		gdri_copy_pool_free(pool);
		ck_assert(cancel_enabled());
	}
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	for (int sig = 1; sig < 32; sig++)
		ck_assert_int_eq(sigismember(&now, sig), sigismember(&some, sig));
	ck_assert_int_eq(resources_fds(), fds);
}
END_TEST

/* One for each number and node, for as long as somebody has it. */
START_TEST(test_shared)
{
	struct gdri_copy_pool *a, *b, *other;

	ck_assert_int_eq(gdri_copy_pool_get(&a, 3, -1), 0);
	ck_assert_int_eq(gdri_copy_pool_get(&b, 3, -1), 0);
	ck_assert_ptr_eq(a, b);
	ck_assert_int_eq(gdri_copy_pool_get(&other, 3, 0), 0);
	ck_assert_ptr_ne(a, other);
	gdri_copy_pool_put(other);
	ck_assert_int_eq(gdri_copy_pool_get(&other, 2, -1), 0);
	ck_assert_ptr_ne(a, other);
	gdri_copy_pool_put(other);
	gdri_copy_pool_put(a);
	ck_assert_int_eq(gdri_copy_pool_get(&a, 3, -1), 0);
	ck_assert_ptr_eq(a, b);
	gdri_copy_pool_put(a);
	gdri_copy_pool_put(b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy: worker pool");
	TCase *tc = tcase_create("pool");

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_same_bytes);
	tcase_add_test(tc, test_several_callers);
	tcase_add_test(tc, test_make_and_free);
	tcase_add_test(tc, test_caller);
	tcase_add_test(tc, test_shared);
	tcase_add_test(tc, test_cancel);
	tcase_add_test(tc, test_faults);
	suite_add_tcase(suite, tc);
	return unit_suite(suite, CK_FORK_GETENV);
}
