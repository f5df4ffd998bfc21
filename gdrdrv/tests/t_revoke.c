// SPDX-License-Identifier: MIT
/* Free of pinned memory in each mode, and every order of free, unmap, unpin, close, exit. */
#define _GNU_SOURCE
#include <signal.h>

#include "rig.h"

static void t_free_mapped(void)
{
	struct region r = region(4 * MiB, 0);

	r.p[0] = 0x11;
	r.p[3 * MiB] = 0x22;
	OK(gpu_free(prov, r.va));
	if (!by_callback()) {
		/* Persistent: readable and writable until unpin. */
		CHECK_EQ(cb_flag(drv, r.h), 0);
		CHECK_EQ(try_read(r.p), 0);
		CHECK_EQ(r.p[0], 0x11);
		CHECK_EQ(try_write(r.p + 3 * MiB, 1), 0);
			CHECK(gpu_info(prov).pages_free != gpu_info(prov).pages_total);
		OK(unpin(drv, r.h));
		CHECK_EQ(gpu_info(prov).pages_free, gpu_info(prov).pages_total);
		CHECK_EQ(try_read(r.p), SIGBUS);
		return;
	}
	CHECK_EQ(cb_flag(drv, r.h), 1);
	CHECK_EQ(read_pte(prov, r.p).level, 0);
	CHECK_EQ(read_pte(prov, r.p + 3 * MiB).level, 0);
	CHECK_EQ(try_read(r.p), SIGBUS);
	CHECK_EQ(try_write(r.p + MiB, 1), SIGBUS);
	unmap(r.p, 4 * MiB);
	CHECK(map(drv, r.h, GPU_PAGE) == MAP_FAILED && errno == EINVAL);
	OK(unpin(drv, r.h));
	FAILS(EINVAL, cb_flag(drv, r.h));
}

/* The revocation of one region does not affect others. */
static void t_free_one_of_three(void)
{
	int i;
	struct region r[3];

	for (i = 0; i < 3; i++) {
		r[i] = region(4 * GPU_PAGE, PROVIDER_SCATTER);
		r[i].p[3 * GPU_PAGE] = (uint8_t)(i + 1);
	}
	OK(gpu_free(prov, r[1].va));
	CHECK_EQ(cb_flag(drv, r[1].h), by_callback());
	CHECK_EQ(try_read(r[1].p), by_callback() ? SIGBUS : 0);
	for (i = 0; i < 3; i += 2) {
		CHECK_EQ(read_pte(prov, r[i].p + 3 * GPU_PAGE).level, 1);
		CHECK_EQ(r[i].p[3 * GPU_PAGE], i + 1);
		CHECK_EQ(cb_flag(drv, r[i].h), 0);
	}
	/* Explicitly: at exit the provider's descriptor closes first, and no put would run. */
	for (i = 0; i < 3; i++)
		OK(unpin(drv, r[i].h));
}

/*
 * A revocation gives up the memory type of the region's range, even while the program keeps the
 * dead pin: the range may belong to another program at once.
 */
static void t_free_memtype(void)
{
	struct provider_alloc mem = gpu_alloc_flags(prov, 4 * GPU_PAGE, PROVIDER_SCATTER);
	uint64_t h = must_pin(drv, mem.va, 4 * GPU_PAGE);

	must_map(drv, h, 4 * GPU_PAGE)[0] = 1;
	OK(gpu_free(prov, mem.va));
#ifdef __x86_64__
	CHECK_EQ(listed_as_wc(mem.phys, GPU_PAGE), !by_callback());
	if (rig.gpl)
		CHECK_EQ(stat_of("memtypes"), by_callback() ? 0 : 4);
#endif
	OK(unpin(drv, h));
}

/* Two pins of one allocation: both are revoked, and both can be unpinned. */
static void t_free_pinned_twice(void)
{
	uint64_t va = gpu_alloc(prov, 2 * GPU_PAGE);
	uint64_t a = must_pin(drv, va, 2 * GPU_PAGE), b = must_pin(drv, va + GPU_PAGE, 1);

	must_map(drv, a, 2 * GPU_PAGE)[GPU_PAGE] = 9;
	CHECK_EQ(must_map(drv, b, 1)[0], 9);
	OK(gpu_free(prov, va));
	CHECK_EQ(cb_flag(drv, a), by_callback());
	CHECK_EQ(cb_flag(drv, b), by_callback());
	OK(unpin(drv, a));
	OK(unpin(drv, b));
}

static void t_gpu_process_first(void)
{
	int other = prov_open();
	struct region r = region(GPU_PAGE, 0);

	r.p[0] = 1;
	close(prov);
	CHECK_EQ(cb_flag(drv, r.h), by_callback());
	CHECK_EQ(try_read(r.p), by_callback() ? SIGBUS : 0);
	OK(unpin(drv, r.h));
	CHECK_EQ(gpu_info(other).pages_free, gpu_info(other).pages_total);
}

/* All orders of four steps, each in a process of its own, with three kinds of end. */
enum step { FREE, UNMAP, UNPIN, CLOSE, NR_STEPS };

static void do_step(enum step step, const struct region *r)
{
	switch (step) {
	case FREE:
		OK(gpu_free(prov, r->va));
		break;
	case UNMAP:
		unmap(r->p, GPU_PAGE);
		break;
	case UNPIN:
		unpin(drv, r->h); /* EBADF once closed */
		break;
	default:
		CHECK_EQ(close(drv), 0);
	}
}

/* Checks the result of an access while the region is mapped. */
static void check_mapped(const bool *done, const volatile uint8_t *p)
{
	bool gone = done[UNPIN] || (done[FREE] && by_callback());

	if (done[UNMAP])
		return;
	CHECK_EQ(try_read(p), gone ? SIGBUS : 0);
	CHECK_EQ(read_pte(prov, p).level, gone ? 0 : 1);
	if (!gone)
		CHECK_EQ(*p, 1);
}

static void run_order(const int *order, int steps, int end)
{
	bool done[NR_STEPS] = { false };
	struct region r;
	int i;

	drv = drv_open();
	prov = prov_open();
	r = region(GPU_PAGE, 0);
	r.p[0] = 1;
	for (i = 0; i < steps; i++) {
		do_step((enum step)order[i], &r);
		/* An unpin after the close has no effect. */
		done[order[i]] = order[i] != UNPIN || !done[CLOSE];
		check_mapped(done, r.p);
	}
	if (end == 1)
		close(prov);
	if (end == 2)
		kill(getpid(), SIGKILL);
	_exit(0);
}

static void t_all_orders(void)
{
	int run, i;

	for (run = 0; run < 24 * 5 * 3; run++) {
		int order[] = { FREE, UNMAP, UNPIN, CLOSE }, n = run / 15, end = run % 3;
		pid_t pid;

		/* @n is the number of the permutation: step i swaps with one of the rest. */
		for (i = 0; i < NR_STEPS; i++) {
			int other = i + n % (NR_STEPS - i), step = order[i];

			n /= NR_STEPS - i;
			order[i] = order[other];
			order[other] = step;
		}
		pid = fork();
		if (!pid)
			run_order(order, run / 3 % 5, end);
		CHECK_EQ(wait_child(pid), end == 2 ? 128 + SIGKILL : 0);
	}
}

/* A free during an unpin. (Before the get returns: t_window.c) */
static void t_slow_callback_against_unpin(void)
{
	int i;

	knob("callback_ms", 30);
	for (i = 0; i < 5; i++) {
		struct region r = region(GPU_PAGE, 0);
		pid_t pid;

		r.p[0] = 1;
		pid = fork();
		if (!pid)
			_exit(gpu_free(prov, r.va) ? 1 : 0);
		usleep(10000); /* now the provider holds its lock, and the put below waits for it */
		OK(unpin(drv, r.h));
		CHECK_EQ(wait_child(pid), 0);
		unmap(r.p, GPU_PAGE);
	}
	knob("callback_ms", 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
}

const struct test tests_revoke[] = {
	{ "free-mapped", t_free_mapped, ANY_MODE, 0, 0 },
	{ "free-one-of-three", t_free_one_of_three, ANY_MODE, 0, 0 },
	{ "free-memtype", t_free_memtype, ANY_MODE, 0, 0 },
	{ "free-pinned-twice", t_free_pinned_twice, ANY_MODE, 0, 0 },
	{ "gpu-process-first", t_gpu_process_first, ANY_MODE, 0, 0 },
	{ "all-orders", t_all_orders, ANY_MODE, 120, 0 },
	{ "slow-callback-against-unpin", t_slow_callback_against_unpin, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
