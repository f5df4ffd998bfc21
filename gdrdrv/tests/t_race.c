// SPDX-License-Identifier: MIT
/* A free during an unpin, moves and POPULATE during both; random calls of two threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "rig.h"

struct freed {
	uint64_t va;
	int ret;
};

/* A free races with an unpin of the same region; both start at the same time. */
static pthread_barrier_t start;

static void *free_now(void *arg)
{
	struct freed *f = arg;

	pthread_barrier_wait(&start);
	f->ret = gpu_free(prov, f->va);
	return NULL;
}

static void t_free_against_unpin(void)
{
	unsigned int i;

	pthread_barrier_init(&start, NULL, 2);
	for (i = 0; i < rig.rounds; i++) {
		struct region r = region(GPU_PAGE, 0);
		struct freed f = { .va = r.va };
		pthread_t thread;

		r.p[0] = 1;
		CHECK(!pthread_create(&thread, NULL, free_now, &f));
		pthread_barrier_wait(&start);
		OK(unpin(drv, r.h));
		CHECK(!pthread_join(thread, NULL));
		CHECK_EQ(f.ret, 0);
		CHECK_EQ(read_pte(prov, r.p).level, 0);
		CHECK_EQ(try_read(r.p), SIGBUS);
		unmap(r.p, GPU_PAGE);
	}
	CHECK_EQ(gpu_info(prov).pins, 0);
	printf("# free against unpin: %u rounds, %u puts came late\n", rig.rounds,
	       gpu_info(prov).late_puts);
}

/*
 * A mapping is moved to and fro and populated while its memory is freed, or else unpinned: no entry
 * stays in either place. The places lie differently in their page tables.
 */
static struct {
	uint8_t *at[2];
	size_t size;
	uint64_t h;
	unsigned int moves, populated;
	bool end;
} mover;

static void *move_thread(void *unused)
{
	pthread_barrier_wait(&start);
	while (!__atomic_load_n(&mover.end, __ATOMIC_RELAXED)) {
		uint8_t *from = mover.at[mover.moves % 2], *to = mover.at[(mover.moves + 1) % 2];

		CHECK(mremap(from, mover.size, mover.size, MREMAP_MAYMOVE | MREMAP_FIXED, to) ==
		      to);
		mover.moves++;
	}
	return unused;
}

static void *populate_thread(void *unused)
{
	pthread_barrier_wait(&start);
	while (!__atomic_load_n(&mover.end, __ATOMIC_RELAXED))
		mover.populated += !populate(drv, mover.h);
	return unused;
}

static void t_move(void)
{
	unsigned int i, moves = 0;
	pthread_t threads[2];
	size_t size = 1 * MiB;

	pthread_barrier_init(&start, NULL, 3);
	mover.size = size;
	for (i = 0; i < 2; i++)
		mover.at[i] = (uint8_t *)reserve(4 * MiB, 2 * MiB) + 2 * MiB - (i + 1) * GPU_PAGE;
	for (i = 0; i < rig.rounds / 2; i++) {
		uint64_t va = gpu_alloc_flags(prov, size, i & 1 ? PROVIDER_SCATTER : 0).va;
		bool freed = by_callback() && i & 2;
		int j;

		mover.h = must_pin(drv, va, size);
		mover.moves = 0;
		mover.end = false;
		must_map_at(drv, mover.h, size, mover.at[0]);
		CHECK(!pthread_create(&threads[0], NULL, move_thread, NULL));
		CHECK(!pthread_create(&threads[1], NULL, populate_thread, NULL));
		pthread_barrier_wait(&start);
		usleep((i * 7919 + rig.seed) % 3000);
		/* The first round lasts until there was a move and a POPULATE: a host may be busy. */
		while (!i && (!__atomic_load_n(&mover.moves, __ATOMIC_RELAXED) ||
			      !__atomic_load_n(&mover.populated, __ATOMIC_RELAXED)))
			usleep(100);
		CHECK_EQ(freed ? gpu_free(prov, va) : unpin(drv, mover.h), 0);
		__atomic_store_n(&mover.end, true, __ATOMIC_RELAXED);
		for (j = 0; j < 2; j++)
			CHECK(!pthread_join(threads[j], NULL));
		for (j = 0; j < 2; j++)
			CHECK_EQ(nr_entries(mover.at[j], size, cpu_page()), 0);
		CHECK_EQ(try_read(mover.at[mover.moves % 2] + size / 2), SIGBUS);
		CHECK_EQ(freed ? unpin(drv, mover.h) : gpu_free(prov, va), 0);
		for (j = 0; j < 2; j++)
			CHECK(mmap(mover.at[j], size, PROT_READ,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mover.at[j]);
		moves += mover.moves;
	}
	printf("# moves: %u rounds, %u moves, %u populated\n", rig.rounds / 2, moves,
	       mover.populated);
}

/*
 * Random: slots of memory, each in any state; two threads, one descriptor. Every 64 KiB page begins
 * with the number of its buffer, so a mapping that shows another number maps the wrong memory.
 */
#define NR_SLOTS 8

struct slot {
	uint64_t va, h; /* a buffer; a pin, possibly of a freed buffer */
	size_t size, pinned_size, len; /* len: of the mapping */
	uint32_t number, pinned_number; /* of a buffer */
	unsigned int seq; /* for readers without the lock: one more with each change; odd: mapped */
	volatile uint8_t *p;
};

static struct slot slots[NR_SLOTS];
static pthread_mutex_t slot_lock[NR_SLOTS];
static uint32_t rnd_number;

/* Counts of operations, and of results that were right. */
static struct {
	unsigned long ops, numbers, bytes, sigbus, read;
} rnd;

/* A slow machine gets this many seconds more to reach the minimum of each count. */
#define RANDOM_AT_MOST_S 60

static long long rnd_start;

static bool random_enough(void)
{
	return rnd.ops >= 1000 && rnd.numbers >= 20 && rnd.bytes >= 20 && rnd.sigbus >= 5 &&
	       rnd.read >= 20;
}

static bool random_goes_on(void)
{
	long long us = now_us() - rnd_start;

	return us < rig.random_s * 1000000LL ||
	       (!random_enough() &&
		us < (rig.random_s + RANDOM_AT_MOST_S * (rig.debug ? 10 : 1)) * 1000000LL);
}

static void count(unsigned long *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static unsigned int next(unsigned int *x)
{
	*x = *x * 1664525u + 1013904223u;
	return *x >> 8;
}

static void slot_alloc(struct slot *s, unsigned int *x)
{
	struct provider_alloc arg = {
		.size = GPU_PAGE * (1 + next(x) % 40),
		.flags = next(x) % 2 ? PROVIDER_SCATTER | PROVIDER_REUSE_VA : 0,
	};
	size_t off;

	if (ioctl(prov, PROVIDER_IOC_ALLOC, &arg)) {
		CHECK_EQ(errno, ENOMEM); /* persistent pins still use the memory */
		return;
	}
	s->va = arg.va;
	s->size = arg.size;
	s->number = __atomic_add_fetch(&rnd_number, 1, __ATOMIC_RELAXED);
	for (off = 0; off < s->size; off += GPU_PAGE)
		gpu_poke(prov, s->va + off, &s->number, sizeof(s->number));
}

static void slot_map(struct slot *s)
{
	void *p = map(drv, s->h, s->pinned_size);

	if (p == MAP_FAILED) {
		CHECK_EQ(errno, EINVAL); /* revoked */
		CHECK(by_callback() && s->number != s->pinned_number);
		return;
	}
	s->len = s->pinned_size;
	s->p = p;
	__atomic_add_fetch(&s->seq, 1, __ATOMIC_SEQ_CST);
}

static void slot_unmap(struct slot *s)
{
	__atomic_add_fetch(&s->seq, 1, __ATOMIC_SEQ_CST);
	unmap(s->p, s->len);
	s->p = NULL;
}

/* With the lock held only this thread decides the result of an access. */
static void slot_access(struct slot *s, unsigned int *x)
{
	bool lives = s->va && s->number == s->pinned_number;
	int want = by_callback() && !lives ? SIGBUS : 0;
	size_t off = next(x) % s->len;
	uint8_t value = (uint8_t)next(x), got = (uint8_t)~value;
	uint32_t number = 0;

	CHECK_EQ(try_read32(s->p + (off & ~(GPU_PAGE - 1)), &number), want);
	if (!want) {
		CHECK_EQ(number, s->pinned_number);
		count(&rnd.numbers);
	}
	off += off % GPU_PAGE < sizeof(number) ? sizeof(number) : 0;
	CHECK_EQ(try_write(s->p + off, value), want);
	if (want) {
		count(&rnd.sigbus);
	} else if (lives) {
		__sync_synchronize();
		gpu_peek(prov, s->va + off, &got, 1);
		CHECK_EQ(got, value);
		got = (uint8_t)~value;
		gpu_poke(prov, s->va + off, &got, 1);
		CHECK_EQ(s->p[off], got);
		count(&rnd.bytes);
	}
}

static void slot_unpin(struct slot *s)
{
	OK(unpin(drv, s->h));
	s->h = 0;
	if (!s->p)
		return;
	CHECK_EQ(try_read(s->p), SIGBUS);
	count(&rnd.sigbus);
	slot_unmap(s);
}

static void slot_step(struct slot *s, unsigned int what, unsigned int *x)
{
	struct gdrdrv_ioc_get_info info;

	switch (what % 8) {
	case 0:
		if (!s->va)
			slot_alloc(s, x);
		break;
	case 1:
		if (s->va && !s->h) {
			s->h = must_pin(drv, s->va + next(x) % 1000, s->size - 1000);
			s->pinned_size = s->size;
			s->pinned_number = s->number;
		}
		break;
	case 2:
		if (s->h && !s->p)
			slot_map(s);
		break;
	case 3:
	case 4:
		if (s->p)
			slot_access(s, x);
		break;
	case 5:
		if (s->va) {
			OK(gpu_free(prov, s->va));
			s->va = 0;
			s->number = 0;
		}
		break;
	case 6:
		if (s->p)
			slot_unmap(s);
		break;
	default:
		if (s->h && next(x) % 2)
			OK(get_info(drv, s->h, &info));
		else if (s->h)
			slot_unpin(s);
	}
}

static void *random_thread(void *arg)
{
	unsigned int x = (unsigned int)(uintptr_t)arg;

	while (random_goes_on()) {
		unsigned int i = next(&x) % NR_SLOTS;

		pthread_mutex_lock(&slot_lock[i]);
		slot_step(&slots[i], next(&x), &x);
		pthread_mutex_unlock(&slot_lock[i]);
		count(&rnd.ops);
	}
	return NULL;
}

/*
 * Reads through mappings that other threads tear down, without any lock. A read while the mapping
 * stayed must return the number of its buffer, also right before a revocation.
 */
static void *reader_thread(void *arg)
{
	unsigned int x = (unsigned int)(uintptr_t)arg;

	while (random_goes_on()) {
		struct slot *s = &slots[next(&x) % NR_SLOTS];
		unsigned int seq = __atomic_load_n(&s->seq, __ATOMIC_SEQ_CST);
		uint32_t want = s->pinned_number, number = 0;
		volatile uint8_t *p = s->p;
		size_t len = s->len;
		int sig;

		if (!(seq & 1) || !p)
			continue;
		sig = try_read32(p + (next(&x) % len & ~(GPU_PAGE - 1)), &number);
		if (__atomic_load_n(&s->seq, __ATOMIC_SEQ_CST) != seq)
			continue;
		CHECK(sig == 0 || sig == SIGBUS);
		if (!sig) {
			CHECK_EQ(number, want);
			count(&rnd.read);
		}
	}
	return NULL;
}

static void t_random(void)
{
	pthread_t threads[3];
	int i;

	rnd_start = now_us();
	for (i = 0; i < NR_SLOTS; i++)
		pthread_mutex_init(&slot_lock[i], NULL);
	for (i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, random_thread,
				      (void *)(uintptr_t)(rig.seed * 1000 + (unsigned int)i)));
	CHECK(!pthread_create(&threads[2], NULL, reader_thread, (void *)(uintptr_t)rig.seed));
	for (i = 0; i < 3; i++)
		CHECK(!pthread_join(threads[i], NULL));
	printf("# random: seed %u, %lu operations, %lu numbers and %lu bytes as they should be, %lu without a lock, %lu SIGBUS\n",
	       rig.seed, rnd.ops, rnd.numbers, rnd.bytes, rnd.read, rnd.sigbus);
	CHECK(random_enough());
	CHECK_EQ(gpu_info(prov).errors, 0);
}

const struct test tests_race[] = {
	{ "race-free-against-unpin", t_free_against_unpin, ANY_MODE, 60, 0 },
	{ "race-move", t_move, ANY_MODE, 60, 0 },
	{ "race-random", t_random, ANY_MODE, 90, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
