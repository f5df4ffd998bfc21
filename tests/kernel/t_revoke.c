// SPDX-License-Identifier: MIT
/* Free of pinned memory in each mode, poll, and every order of free, unmap, unpin, close, exit. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>

#include "rig.h"

static int poll_events(int drv)
{
	struct pollfd p = { .fd = drv, .events = POLLPRI | POLLIN | POLLOUT };

	CHECK(poll(&p, 1, 0) >= 0);
	return p.revents;
}

static void t_free_mapped(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, 4 * MiB), h = must_pin(drv, va, 4 * MiB);
	volatile uint8_t *p = must_map(drv, h, 4 * MiB);

	p[0] = 0x11;
	p[3 * MiB] = 0x22;
	CHECK_EQ(poll_events(drv), 0);
	CHECK_EQ(gpu_free(prov, va), 0);
	if (!by_callback()) {
		/* Persistent: readable and writable until unpin. */
		CHECK_EQ(cb_flag(drv, h), 0);
		CHECK_EQ(try_read(p), 0);
		CHECK_EQ(p[0], 0x11);
		CHECK_EQ(try_write(p + 3 * MiB, 1), 0);
		CHECK_EQ(poll_events(drv), 0);
		CHECK(gpu_info(prov).pages_free != gpu_info(prov).pages_total);
		CHECK_EQ(unpin(drv, h), 0);
		CHECK_EQ(gpu_info(prov).pages_free, gpu_info(prov).pages_total);
		CHECK_EQ(try_read(p), SIGBUS);
		return;
	}
	CHECK_EQ(cb_flag(drv, h), 1);
	CHECK_EQ(poll_events(drv), POLLPRI);
	CHECK_EQ(read_pte(prov, p).level, 0);
	CHECK_EQ(read_pte(prov, p + 3 * MiB).level, 0);
	CHECK_EQ(try_read(p), SIGBUS);
	CHECK_EQ(try_write(p + MiB, 1), SIGBUS);
	CHECK_EQ(munmap((void *)(uintptr_t)p, 4 * MiB), 0);
	CHECK(map(drv, h, GPU_PAGE) == MAP_FAILED && errno == EINVAL);
	CHECK_EQ(poll_events(drv), POLLPRI);
	CHECK_EQ(unpin(drv, h), 0);
	CHECK_EQ(poll_events(drv), 0);
	CHECK_EQ(cb_flag(drv, h), -EINVAL);
}

/* The revocation of one region does not affect others. */
static void t_free_one_of_three(void)
{
	int drv = drv_open(), prov = prov_open(), i;
	volatile uint8_t *p[3];
	uint64_t va[3], h[3];

	for (i = 0; i < 3; i++) {
		va[i] = gpu_alloc_flags(prov, 4 * GPU_PAGE, PROVIDER_SCATTER).va;
		h[i] = must_pin(drv, va[i], 4 * GPU_PAGE);
		p[i] = must_map(drv, h[i], 4 * GPU_PAGE);
		p[i][3 * GPU_PAGE] = (uint8_t)(i + 1);
	}
	CHECK_EQ(gpu_free(prov, va[1]), 0);
	CHECK_EQ(cb_flag(drv, h[1]), by_callback());
	CHECK_EQ(try_read(p[1]), by_callback() ? SIGBUS : 0);
	CHECK_EQ(read_pte(prov, p[0] + 3 * GPU_PAGE).level, 1);
	CHECK_EQ(read_pte(prov, p[2] + 3 * GPU_PAGE).level, 1);
	CHECK_EQ(p[0][3 * GPU_PAGE], 1);
	CHECK_EQ(p[2][3 * GPU_PAGE], 3);
	CHECK_EQ(cb_flag(drv, h[0]), 0);
	CHECK_EQ(cb_flag(drv, h[2]), 0);
	/* Explicitly: at exit the provider's descriptor closes first, and no put would run. */
	for (i = 0; i < 3; i++)
		CHECK_EQ(unpin(drv, h[i]), 0);
}

/*
 * The range of a revoked region is somebody else's at once: its memory type is not reserved any
 * more, also while the program keeps the dead pin.
 */
static void t_free_memtype(void)
{
	int drv = drv_open(), prov = prov_open();
	struct provider_alloc mem = gpu_alloc_flags(prov, 4 * GPU_PAGE, PROVIDER_SCATTER);
	uint64_t h = must_pin(drv, mem.va, 4 * GPU_PAGE);
	char want[64], *list;
	bool reserved;

	must_map(drv, h, 4 * GPU_PAGE)[0] = 1;
	snprintf(want, sizeof(want), "0x%016llx-0x%016llx] write-combining",
		 (unsigned long long)mem.phys, (unsigned long long)mem.phys + GPU_PAGE);
	CHECK_EQ(gpu_free(prov, mem.va), 0);
	list = read_text("/sys/kernel/debug/x86/pat_memtype_list");
	reserved = list && strstr(list, want);
	free(list);
#ifdef __x86_64__
	CHECK_EQ(reserved, !by_callback());
#else
	CHECK(!reserved);
#endif
	if (rig.gpl)
		CHECK_EQ(stat_of("memtypes"), by_callback() ? 0 : 4);
	CHECK_EQ(unpin(drv, h), 0);
}

/* Two pins of one allocation: both are revoked, and both can be unpinned. */
static void t_free_pinned_twice(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, 2 * GPU_PAGE);
	uint64_t a = must_pin(drv, va, 2 * GPU_PAGE), b = must_pin(drv, va + GPU_PAGE, 1);

	must_map(drv, a, 2 * GPU_PAGE)[GPU_PAGE] = 9;
	CHECK_EQ(must_map(drv, b, 1)[0], 9);
	CHECK_EQ(gpu_free(prov, va), 0);
	CHECK_EQ(cb_flag(drv, a), by_callback());
	CHECK_EQ(cb_flag(drv, b), by_callback());
	CHECK_EQ(unpin(drv, a), 0);
	CHECK_EQ(unpin(drv, b), 0);
}

/* A revocation wakes poll(). */
static void t_poll_wakes(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE);
	struct pollfd pfd = { .fd = drv, .events = POLLPRI };
	pid_t child;

	must_pin(drv, va, GPU_PAGE);
	child = fork();
	if (!child) {
		usleep(100000);
		_exit(gpu_free(prov, va) ? 1 : 0);
	}
	CHECK_EQ(poll(&pfd, 1, -1), 1); /* the time limit ends it otherwise */
	CHECK_EQ(pfd.revents, POLLPRI);
	CHECK_EQ(wait_child(child), 0);
}

static void t_gpu_process_first(void)
{
	int drv = drv_open(), prov = prov_open(), other = prov_open();
	uint64_t h = must_pin(drv, gpu_alloc(prov, GPU_PAGE), GPU_PAGE);
	volatile uint8_t *p = must_map(drv, h, GPU_PAGE);

	p[0] = 1;
	close(prov);
	CHECK_EQ(cb_flag(drv, h), by_callback());
	CHECK_EQ(try_read(p), by_callback() ? SIGBUS : 0);
	CHECK_EQ(unpin(drv, h), 0);
	CHECK_EQ(gpu_info(other).pages_free, gpu_info(other).pages_total);
}

/* All orders of four steps, each in a process of its own, with three kinds of end. */
enum step { FREE, UNMAP, UNPIN, CLOSE, NR_STEPS };

static void do_step(enum step step, int drv, int prov, uint64_t va, uint64_t h, void *p)
{
	switch (step) {
	case FREE:
		CHECK_EQ(gpu_free(prov, va), 0);
		break;
	case UNMAP:
		CHECK_EQ(munmap(p, GPU_PAGE), 0);
		break;
	case UNPIN:
		unpin(drv, h); /* EBADF once closed */
		break;
	default:
		CHECK_EQ(close(drv), 0);
	}
}

/* Checks the result of an access while the region is mapped. */
static void check_mapped(const bool *done, const volatile uint8_t *p, int prov)
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
	int drv = drv_open(), prov = prov_open(), i;
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h = must_pin(drv, va, GPU_PAGE);
	volatile uint8_t *p = must_map(drv, h, GPU_PAGE);

	p[0] = 1;
	for (i = 0; i < steps; i++) {
		do_step((enum step)order[i], drv, prov, va, h, (void *)(uintptr_t)p);
		/* An unpin after the close has no effect. */
		done[order[i]] = order[i] != UNPIN || !done[CLOSE];
		check_mapped(done, p, prov);
	}
	if (end == 1)
		close(prov);
	if (end == 2)
		kill(getpid(), SIGKILL);
	_exit(0);
}

static void orders(int *order, int n, int *runs)
{
	int i, end, steps;

	if (n == NR_STEPS) {
		for (steps = 0; steps <= NR_STEPS; steps++) {
			for (end = 0; end < 3; end++) {
				pid_t pid = fork();

				if (!pid)
					run_order(order, steps, end);
				CHECK_EQ(wait_child(pid), end == 2 ? 128 + SIGKILL : 0);
				++*runs;
			}
		}
		return;
	}
	for (i = 0; i < NR_STEPS; i++) {
		int j, used = 0;

		for (j = 0; j < n; j++)
			used |= order[j] == i;
		if (!used) {
			order[n] = i;
			orders(order, n + 1, runs);
		}
	}
}

static void t_all_orders(void)
{
	int order[NR_STEPS], runs = 0;

	orders(order, 0, &runs);
	CHECK_EQ(runs, 24 * 5 * 3);
}

/* A free during an unpin. (Before the get returns: t_window.c) */
static void t_slow_callback_against_unpin(void)
{
	int drv = drv_open(), prov = prov_open(), i;

	knob("callback_ms", 30);
	for (i = 0; i < 5; i++) {
		uint64_t va = gpu_alloc(prov, GPU_PAGE), h = must_pin(drv, va, GPU_PAGE);
		volatile uint8_t *p = must_map(drv, h, GPU_PAGE);
		pid_t pid;

		p[0] = 1;
		pid = fork();
		if (!pid)
			_exit(gpu_free(prov, va) ? 1 : 0);
		usleep(10000); /* now the provider holds its lock, and the put below waits for it */
		CHECK_EQ(unpin(drv, h), 0);
		CHECK_EQ(wait_child(pid), 0);
		munmap((void *)(uintptr_t)p, GPU_PAGE);
	}
	knob("callback_ms", 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
}

const struct test tests_revoke[] = {
	{ "free-mapped", t_free_mapped, ANY_MODE, 0, 0 },
	{ "free-one-of-three", t_free_one_of_three, ANY_MODE, 0, 0 },
	{ "free-memtype", t_free_memtype, ANY_MODE, 0, 0 },
	{ "free-pinned-twice", t_free_pinned_twice, ANY_MODE, 0, 0 },
	{ "poll-wakes", t_poll_wakes, BY_CALLBACK, 0, 0 },
	{ "gpu-process-first", t_gpu_process_first, ANY_MODE, 0, 0 },
	{ "all-orders", t_all_orders, ANY_MODE, 120, 0 },
	{ "slow-callback-against-unpin", t_slow_callback_against_unpin, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
