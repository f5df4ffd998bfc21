// SPDX-License-Identifier: MIT
/* The free that comes in the map window; two threads at random. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "rig.h"

struct window {
	int prov;
	uint64_t va;
	volatile uint8_t *at;
	volatile int armed;
	int ret;
};

static void *free_when_mapped(void *arg)
{
	struct window *w = arg;
	struct provider_free_on_map req = { .va = w->va,
					    .addr = (uintptr_t)w->at,
					    .timeout_ms = 3000 };

	w->armed = 1;
	w->ret = ioctl(w->prov, PROVIDER_IOC_FREE_ON_MAP, &req) ? errno : 0;
	return NULL;
}

/*
 * The callback starts at the moment the first entry appears. Whatever is inserted after it must be
 * zapped: an entry that is left maps memory that somebody else may have by now.
 */
static void t_window(void)
{
	int drv = drv_open(), prov = prov_open();
	unsigned int i, stale = 0, late = 0;
	size_t size = 2 * MiB, off;
	uint8_t *at = reserve(size, 2 * MiB);

	for (i = 0; i < rig.rounds; i++) {
		uint64_t va = gpu_alloc_flags(prov, size, i & 1 ? PROVIDER_SCATTER : 0).va;
		uint64_t h = must_pin(drv, va, size);
		struct window w = { .prov = prov, .va = va, .at = at + (i * 7919 * 4096UL) % size };
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, free_when_mapped, &w));
		while (!w.armed)
			sched_yield();
		CHECK(map_prot(drv, h, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, at) ==
		      at);
		try_write(w.at, 1);
		CHECK(!pthread_join(thread, NULL));
		if (w.ret)
			late++;
		CHECK_EQ(cb_flag(drv, h), 1);
		for (off = 0; off < size; off += 4096) {
			if (read_pte(prov, at + off).level) {
				stale++;
				break;
			}
		}
		CHECK_EQ(try_read(at), SIGBUS);
		CHECK_EQ(unpin(drv, h), 0);
		CHECK(mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      at);
	}
	printf("# window: %u rounds, %u stale mappings, %u without an entry in time\n", rig.rounds,
	       stale, late);
	CHECK_EQ(stale, 0);
	CHECK(late < rig.rounds / 4 + 1);
}

/* A free against an unpin of the same region, both starting together. */
static pthread_barrier_t start;

static void *free_now(void *arg)
{
	struct window *w = arg;

	pthread_barrier_wait(&start);
	w->ret = gpu_free(w->prov, w->va);
	return NULL;
}

static void t_free_against_unpin(void)
{
	int drv = drv_open(), prov = prov_open();
	unsigned int i;

	pthread_barrier_init(&start, NULL, 2);
	for (i = 0; i < rig.rounds; i++) {
		struct window w = { .prov = prov, .va = gpu_alloc(prov, GPU_PAGE) };
		uint64_t h = must_pin(drv, w.va, GPU_PAGE);
		volatile uint8_t *p = must_map(drv, h, GPU_PAGE);
		pthread_t thread;

		p[0] = 1;
		CHECK(!pthread_create(&thread, NULL, free_now, &w));
		pthread_barrier_wait(&start);
		CHECK_EQ(unpin(drv, h), 0);
		CHECK(!pthread_join(thread, NULL));
		CHECK_EQ(w.ret, 0);
		CHECK_EQ(read_pte(prov, p).level, 0);
		CHECK_EQ(try_read(p), SIGBUS);
		munmap((void *)(uintptr_t)p, GPU_PAGE);
	}
	CHECK_EQ(gpu_info(prov).pins, 0);
	printf("# free against unpin: %u rounds, %u puts came late\n", rig.rounds,
	       gpu_info(prov).late_puts);
}

/* Random: slots of memory, each in any state; two threads, one descriptor. */
#define NR_SLOTS 8

struct slot {
	uint64_t va, h;
	volatile uint8_t *p;
	size_t size, len;
};

static struct slot slots[NR_SLOTS];
static pthread_mutex_t slot_lock[NR_SLOTS];
static int rnd_drv, rnd_prov;
static long long rnd_until;
static volatile unsigned long rnd_ops;

static unsigned int next(unsigned int *x)
{
	*x = *x * 1664525u + 1013904223u;
	return *x >> 8;
}

static void slot_step(struct slot *s, unsigned int what, unsigned int *x)
{
	struct gdrdrv_ioc_get_info info;

	switch (what % 8) {
	case 0:
		if (!s->va && !s->h) {
			s->size = GPU_PAGE * (1 + next(x) % 40);
			s->va = gpu_alloc_flags(rnd_prov, s->size,
						next(x) % 2 ? PROVIDER_SCATTER | PROVIDER_REUSE_VA
							    : 0)
					.va;
		}
		break;
	case 1:
		if (s->va && !s->h)
			s->h = must_pin(rnd_drv, s->va + next(x) % 1000, s->size - 1000);
		break;
	case 2:
	case 3:
		if (s->h && !s->p) {
			void *p;

			s->len = s->size;
			p = map(rnd_drv, s->h, s->len);
			if (p != MAP_FAILED)
				s->p = p;
			else
				CHECK_EQ(errno, EINVAL); /* revoked */
		}
		break;
	case 4:
		if (s->p) {
			size_t off = next(x) % s->len;
			int sig = try_write(s->p + off, (uint8_t)off);

			CHECK(sig == 0 || sig == SIGBUS);
		}
		break;
	case 5:
		if (s->va && !gpu_free(rnd_prov, s->va))
			s->va = 0;
		break;
	case 6:
		if (s->p && !munmap((void *)(uintptr_t)s->p, s->len))
			s->p = NULL;
		break;
	default:
		if (s->h && next(x) % 2) {
			CHECK_EQ(get_info(rnd_drv, s->h, &info), 0);
		} else if (s->h) {
			CHECK_EQ(unpin(rnd_drv, s->h), 0);
			s->h = 0;
			if (s->p)
				CHECK_EQ(try_read(s->p), SIGBUS);
			if (s->p && !munmap((void *)(uintptr_t)s->p, s->len))
				s->p = NULL;
		}
	}
}

static void *random_thread(void *arg)
{
	unsigned int x = (unsigned int)(uintptr_t)arg;

	while (now_us() < rnd_until) {
		unsigned int i = next(&x) % NR_SLOTS;

		pthread_mutex_lock(&slot_lock[i]);
		slot_step(&slots[i], next(&x), &x);
		pthread_mutex_unlock(&slot_lock[i]);
		__atomic_fetch_add(&rnd_ops, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Reads through mappings that the others tear down: without any lock, SIGBUS or SIGSEGV allowed. */
static void *reader_thread(void *arg)
{
	unsigned int x = (unsigned int)(uintptr_t)arg;

	while (now_us() < rnd_until) {
		volatile uint8_t *p = slots[next(&x) % NR_SLOTS].p;

		if (p)
			try_read(p + next(&x) % GPU_PAGE);
	}
	return NULL;
}

static void t_random(void)
{
	pthread_t threads[3];
	int i;

	rnd_drv = drv_open();
	rnd_prov = prov_open();
	rnd_until = now_us() + rig.random_s * 1000000LL;
	for (i = 0; i < NR_SLOTS; i++)
		pthread_mutex_init(&slot_lock[i], NULL);
	for (i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, random_thread,
				      (void *)(uintptr_t)(rig.seed * 1000 + (unsigned int)i)));
	CHECK(!pthread_create(&threads[2], NULL, reader_thread, (void *)(uintptr_t)rig.seed));
	for (i = 0; i < 3; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK_EQ(gpu_info(rnd_prov).errors, 0);
	printf("# random: seed %u, %lu operations in %u s\n", rig.seed, rnd_ops, rig.random_s);
}

const struct test tests_race[] = {
	{ "race-window", t_window, BY_CALLBACK, 120 },
	{ "race-free-against-unpin", t_free_against_unpin, ANY_MODE, 60 },
	{ "race-random", t_random, ANY_MODE, 90 },
	{ NULL, NULL, 0, 0 },
};
