// SPDX-License-Identifier: MIT
/*
 * The walks of t_walk.c one after the other on the same mapping: every pair, and random sequences.
 * Two calls that are harmless alone may not be together; userfaultfd and mremap() were such a pair.
 *
 * A sequence fails by what walk.h names, or by a warning, a bug or another taint of the kernel.
 *
 * Sequences follow from the seed. On a kernel with KCOV half of them are variants of those that
 * reached new code.
 */
#define _GNU_SOURCE
#include <fcntl.h>

#include "rig.h"
#include "walk.h"

#define KCOV_INIT   _IOR('c', 1, unsigned long)
#define KCOV_ENABLE _IO('c', 100)

#define COVER_MAX  (1UL << 18) /* addresses kept of a step */
#define SEEN_BITS  (1UL << 20)
#define CORPUS_MAX 256

/* Shared with the processes that take the steps. */
static struct cover {
	unsigned long nr_seen, fresh;
	uint8_t seen[SEEN_BITS / 8];
} * cover;

static unsigned long *cover_area; /* of the process that takes the steps: number, addresses */
static uint64_t state;

static unsigned int rnd(unsigned int n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned int)(state >> 20) % n;
}

static void cover_begin(void)
{
	int fd = open("/sys/kernel/debug/kcov", O_RDWR);

	CHECK(fd >= 0);
	CHECK_EQ(ioctl(fd, KCOV_INIT, COVER_MAX), 0);
	cover_area = mmap(NULL, COVER_MAX * sizeof(*cover_area), PROT_READ | PROT_WRITE, MAP_SHARED,
			  fd, 0);
	CHECK(cover_area != MAP_FAILED);
	CHECK_EQ(ioctl(fd, KCOV_ENABLE, 0), 0);
	cover->fresh = 0;
}

static void cover_step_begins(void)
{
	__atomic_store_n(cover_area, 0, __ATOMIC_RELAXED);
}

static void cover_step_ended(void)
{
	unsigned long n = __atomic_load_n(cover_area, __ATOMIC_RELAXED), i, bit;

	for (i = 1; i <= n && i < COVER_MAX; i++) {
		bit = (cover_area[i] * 0x9e3779b97f4a7c15UL) >> 44;
		if (cover->seen[bit / 8] & 1 << bit % 8)
			continue;
		cover->seen[bit / 8] |= (uint8_t)(1 << bit % 8);
		cover->fresh++;
		cover->nr_seen++;
	}
}

static const struct walk_hooks cover_hooks = { cover_begin, cover_step_begins, cover_step_ended };

/* Takes the steps. Checks that they are harmless; false: a call is not in this kernel. */
static bool run(const struct walk_sequence *s, const struct walk_hooks *hooks)
{
	long was = read_number("/proc/sys/kernel/tainted"), now;
	bool lacking;
	int code = walk_sequence(s, hooks, &lacking);

	now = read_number("/proc/sys/kernel/tainted");
	if (now != was) {
		printf("# the kernel's taint changes from %ld to %ld\n", was, now);
		walk_print(s);
	}
	CHECK(!code && now == was);
	return !lacking;
}

/* Fills @here with the walks whose calls this kernel has; returns their number. */
static unsigned int walks_here(unsigned int *here)
{
	unsigned int i, n = 0;

	for (i = 0; i < nr_walks; i++) {
		struct walk_sequence alone = { .n = 1, .steps = { i }, .touched = true };

		if (run(&alone, NULL))
			here[n++] = i;
	}
	return n;
}

static void t_pairs(void)
{
	unsigned int here[64], n, i, j, k;

	CHECK(nr_walks <= ARRAY_SIZE(here));
	n = walks_here(here);
	for (i = 0; i < n; i++)
		for (j = 0; j < n; j++)
			for (k = 0; k < 2; k++) {
				struct walk_sequence pair = { .n = 2,
							      .steps = { here[i], here[j] },
							      .touched = k,
							      .freed = by_callback() &&
								       (i + j) % 2 };

				run(&pair, NULL);
			}
	printf("# pairs: %u of %u walks, %u sequences\n", n, nr_walks, 2 * n * n);
}

static unsigned int random_walk(const unsigned int *here, unsigned int n)
{
	unsigned int walk = here[rnd(n)];

	return walk_is_slow(walk) && rnd(8) ? here[rnd(n)] : walk;
}

static void t_sequences(void)
{
	static struct walk_sequence corpus[CORPUS_MAX];
	const struct walk_hooks *hooks = NULL;
	unsigned int here[64], n, kept = 0, done = 0, i;
	long long start;

	CHECK(nr_walks <= ARRAY_SIZE(here));
	state = rig.seed * 0x9e3779b97f4a7c15ULL + 1;
	printf("# sequences: seed %u\n", rig.seed);
	fflush(stdout);
	if (!access("/sys/kernel/debug/kcov", R_OK)) {
		cover = mmap(NULL, sizeof(*cover), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		CHECK(cover != MAP_FAILED);
		hooks = &cover_hooks;
	}
	n = walks_here(here);
	start = now_us();
	for (; now_us() - start < rig.sequences_s * 1000000LL; done++) {
		struct walk_sequence s = { .n = 2 + rnd(WALK_STEPS - 1) };

		for (i = 0; i < s.n; i++)
			s.steps[i] = random_walk(here, n);
		if (kept && rnd(2)) {
			s = corpus[rnd(kept)];
			if (s.n < WALK_STEPS && rnd(2))
				s.n++;
			s.steps[rnd(2) ? s.n - 1 : rnd(s.n)] = random_walk(here, n);
		}
		s.touched = rnd(2);
		s.freed = rnd(2) && by_callback();
		run(&s, hooks);
		if (hooks && cover->fresh && kept < CORPUS_MAX)
			corpus[kept++] = s;
	}
	printf("# sequences: seed %u, %u sequences of %u walks", rig.seed, done, n);
	if (hooks)
		printf("; %lu places of the kernel, %u sequences found new ones", cover->nr_seen,
		       kept);
	printf("\n");
	CHECK(done);
}

const struct test tests_pairs[] = {
	{ "pairs", t_pairs, ANY_MODE, 1500, 0 },
	{ "sequences", t_sequences, ANY_MODE, 1500, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
