// SPDX-License-Identifier: MIT
/*
 * Words, waits and flushes through the public calls on the stand-ins: a flush of the smallest
 * ranges reads back, a wait does not miss a word that came while its thread was away, and asking
 * once costs no message; posted words arrive, are counted and are checked like puts.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "mapped.h"

/* ---- a flush reads ------------------------------------------------------- */

static uint8_t *guarded;
static volatile int reads;
static volatile uintptr_t unaligned; /* of any read: it is a word's */
static volatile uintptr_t read_at; /* the last one's address */

static void on_read(int sig, siginfo_t *info, void *context)
{
	uint8_t *at = info->si_addr;

	(void)context;
	if (at < guarded || at >= guarded + 4096) {
		signal(sig, SIG_DFL);
		return;
	}
	reads++;
	unaligned |= (uintptr_t)at & 3;
	read_at = (uintptr_t)at;
	mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
}

static void guard_reads(void)
{
	struct sigaction action = { .sa_sigaction = on_read, .sa_flags = SA_SIGINFO };

	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
}

/* A copy inside one word loads the word, not its line, and an aligned half of it alone. */
static void reads_of_a_word(void)
{
	guard_reads();
	guarded = p;
	for (size_t at = 8; at < 16; at++) {
		for (size_t size = 1; at + size <= 16; size++) {
			ck_assert_int_eq(mprotect(guarded, 4096, PROT_NONE), 0);
			OK(gdr_copy_from_mapping(h, got, p + at, size));
			ck_assert_msg(read_at - (uintptr_t)p == (size == 4 && !(at & 3) ? at : 8),
				      "%zu bytes at %zu are read at %zu", size, at,
				      read_at - (uintptr_t)p);
		}
	}
}

static void flush_of_small_ranges(void)
{
	guard_reads();
	for (size_t size = 1; size <= 8; size++) {
		for (size_t at = 0; at < 8; at++) {
			gdr_mh_t range;
			void *cpu;

			OK(barcopy_map_range(g, v.ptr + at, size, 0, &cpu, &range));
			guarded = (uint8_t *)((uintptr_t)cpu & ~(uintptr_t)4095);
			reads = 0;
			ck_assert_int_eq(mprotect(guarded, 4096, PROT_NONE), 0);
			OK(barcopy_flush(range));
			ck_assert_msg(reads == 1, "a flush of %zu bytes at %zu read %d times", size,
				      at, reads);
			ck_assert_msg(!unaligned, "a flush of %zu bytes at %zu", size, at);
			OK(barcopy_unmap_range(g, range));
		}
	}
}

/* ---- a wait and the clock ------------------------------------------------ */

static struct {
	uint64_t step_ns; /* 0: the system's clock */
	int looks, comes_at; /* the look with which the word comes; 0: it does not */
	uint32_t *word;
} fake_clock;

/* Replaces the C library's: each look is a step later. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t now;

	if (!fake_clock.step_ns)
		return (int)syscall(SYS_clock_gettime, id, t);
	now = fake_clock.step_ns * (uint64_t)++fake_clock.looks;
	if (fake_clock.looks == fake_clock.comes_at)
		__atomic_store_n(fake_clock.word, 7, __ATOMIC_RELEASE);
	*t = (struct timespec){ (time_t)(now / 1000000000), (long)(now % 1000000000) };
	return 0;
}

/* How often a wait looked at the clock: first for its start, then until its time is over. */
static void waits(int err, uint64_t step_ns, int comes_at, uint64_t timeout_ns, int looks)
{
	for (int wide = 0; wide < 2; wide++) {
		int rc;

		*(uint64_t *)(void *)fake_clock.word = 0;
		fake_clock.looks = 0;
		fake_clock.comes_at = comes_at;
		fake_clock.step_ns = step_ns;
		rc = wide ? barcopy_wait64(h, fake_clock.word, BARCOPY_CMP_EQ, 7, timeout_ns)
			  : barcopy_wait32(h, fake_clock.word, BARCOPY_CMP_EQ, 7, timeout_ns);
		fake_clock.step_ns = 0;
		FAILS(err, rc);
		ck_assert_int_eq(fake_clock.looks, looks);
	}
}

static void *comes_later(void *arg)
{
	for (int i = 0; i < 1000; i++)
		sched_yield();
	__atomic_store_n((uint32_t *)arg, 7, __ATOMIC_RELEASE);
	return NULL;
}

static void wait_by_the_clock(void)
{
	fake_clock.word = (uint32_t *)(void *)(p + 64);
	waits(ETIMEDOUT, 100, 0, 1000, 11);
	waits(ETIMEDOUT, 100, 0, 1001, 12);
	waits(ETIMEDOUT, 100, 0, 1, 2);
	waits(ETIMEDOUT, 100, 0, 0, 0);
	waits(0, 100, 3, 1000, 3);
	waits(0, 100, 3, UINT64_MAX - 1, 3);
	/* The thread loses its CPU for a second, in which the word comes. */
	waits(0, 1000000000, 2, 1000000, 2);
	waits(0, 1000000000, 1, 1000000, 1);
	/* Without a timeout the clock does not count. */
	fake_clock.looks = 0;
	fake_clock.step_ns = UINT64_MAX / 4;
	*fake_clock.word = 0;
	unit_start(1, comes_later, fake_clock.word, 0);
	OK(barcopy_wait32(h, fake_clock.word, BARCOPY_CMP_EQ, 7, UINT64_MAX));
	fake_clock.step_ns = 0;
	unit_join();
	ck_assert_int_eq(fake_clock.looks, 0);
}

static void ask_in_vain(void)
{
	for (int i = 0; i < 100; i++) {
		FAILS(ETIMEDOUT, barcopy_wait32(h, p, BARCOPY_CMP_EQ, 0x12345678, 0));
		FAILS(ETIMEDOUT, barcopy_wait64(h, p, BARCOPY_CMP_EQ, 0x12345678, 0));
	}
}

static void ask_wrongly(void)
{
	FAILS(EINVAL, barcopy_wait32(h, p + 1, BARCOPY_CMP_EQ, 0, 0));
}

static void asking_is_quiet(void)
{
	ck_assert_str_eq(unit_stderr_of(ask_in_vain), "");
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "the comparison does not hold"));
	/* Another failure is logged. */
	ck_assert_ptr_nonnull(strstr(unit_stderr_of(ask_wrongly), "aligned"));
	ck_assert_ptr_nonnull(strstr(barcopy_last_error(), "aligned"));
}

/* ---- posted words -------------------------------------------------------- */

static void posted(void)
{
	uint64_t word = 0;

	memset(p, 0, 64);
	OK(barcopy_post32(h, p + 4, 0x89abcdefu));
	OK(barcopy_post64(h, p + 16, 0x0123456789abcdefu));
	OK(barcopy_fence(h, BARCOPY_FENCE_AFTER_WRITE));
	CU(cuda.cuMemcpyDtoH_v2(&word, v.ptr, 8));
	ck_assert_uint_eq(word, 0x89abcdef00000000u);
	CU(cuda.cuMemcpyDtoH_v2(&word, v.ptr + 16, 8));
	ck_assert_uint_eq(word, 0x0123456789abcdefu);
	FAILS(EINVAL, barcopy_post32(h, p + 2, 1));
	FAILS(EINVAL, barcopy_post64(h, p + 4, 1));
	FAILS(EINVAL, barcopy_post32(h, p + SIZE, 1));
	FAILS(EINVAL, barcopy_post64(h, p - 8, 1));
	FAILS(EINVAL, barcopy_post32((gdr_mh_t){ 0 }, p, 1));
	OK(gdr_unmap(g, h, p, SIZE));
	FAILS(EINVAL, barcopy_post32(h, p, 1));
}

static const struct unit_test tests[] = {
	{ "reads of a word", reads_of_a_word, "" },
	{ "a flush of the smallest ranges reads", flush_of_small_ranges, "" },
	{ "a wait ends by the clock or by its word", wait_by_the_clock, "" },
	{ "asking once is quiet", asking_is_quiet, "GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=1" },
	{ "posted words", posted, "" },
};

UNIT_MAIN("words", tests, unit_before = start_mapped, unit_after = end)
