// SPDX-License-Identifier: MIT
/*
 * Frees inside the driver's windows, in every round: the thread under test stops in the window, the
 * memory is freed, the thread goes on (gdrdrv/rig/provider/window.c). Afterwards no entry may be left: it
 * would map memory that may belong to another process by now.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include "rig.h"

/* Counts over the rounds of one test: stale mappings, and frees with the wrong outcome. */
static unsigned int stale, others;

/* Timeout of steps that take a millisecond; a loaded host may stop a processor for long. */
#define WINDOW_MS 30000

static void open_window(unsigned int place)
{
	struct provider_window arg = { .place = place, .fd = drv };
	int err = ioctl(prov, PROVIDER_IOC_WINDOW, &arg) ? errno : 0;

#ifndef __x86_64__
	if (err == EOPNOTSUPP && place == PROVIDER_BEFORE_RESERVE)
		SKIP("only x86 reserves memory types");
#endif
	if (err == EOPNOTSUPP) {
		char *symbols = read_text("/proc/kallsyms");

		CHECK(symbols && !strstr(symbols, " register_kprobe\n"));
		SKIP("this kernel has no kprobes");
	}
	CHECK_EQ(err, 0);
}

/* Arms the calling thread: it stops at the window after passing it @passes times. */
static void window_arm(unsigned int passes)
{
	struct provider_window_arm arg = { .passes = passes, .timeout_ms = WINDOW_MS };

	CHECK(!ioctl(prov, PROVIDER_IOC_WINDOW_ARM, &arg));
}

/* Returns the outcome. @hold: returns at once; the thread stays stopped until window_go(). */
static unsigned int window_free(uint64_t va, bool hold)
{
	struct provider_window_free arg = { .va = va, .timeout_ms = WINDOW_MS, .hold = hold };

	CHECK(!ioctl(prov, PROVIDER_IOC_WINDOW_FREE, &arg));
	return arg.outcome;
}

static unsigned int window_go(void)
{
	struct provider_window_go arg = { 0 };

	CHECK(!ioctl(prov, PROVIDER_IOC_WINDOW_GO, &arg));
	return arg.outcome;
}

/* Tests whether a thread sleeps uninterruptibly for 20 ms, or has ended. */
static bool thread_sleeps(pid_t tid)
{
	char path[64], *text, *end;
	bool sleeps = true;
	int i;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	for (i = 0; i < 20 && sleeps; i++) {
		text = read_text(path);
		end = text ? strrchr(text, ')') : NULL;
		sleeps = !end || end[2] == 'D';
		free(text);
		usleep(1000);
	}
	return sleeps;
}

struct freer {
	pthread_t thread;
	uint64_t va;
	unsigned int outcome;
};

static void *free_thread(void *arg)
{
	struct freer *f = arg;

	f->outcome = window_free(f->va, false);
	return NULL;
}

/* Arms the calling thread, after a thread that frees has started. */
static void freer_start(struct freer *f, unsigned int passes)
{
	CHECK(!pthread_create(&f->thread, NULL, free_thread, f));
	window_arm(passes);
}

/* If no thread stops, or the free neither ends nor waits, the test fails after one timeout. */
static void freer_join(struct freer *f, unsigned int want)
{
	CHECK(!pthread_join(f->thread, NULL));
	CHECK(f->outcome != PROVIDER_WINDOW_MISSED);
	CHECK(f->outcome != PROVIDER_WINDOW_TIMEOUT);
	others += f->outcome != want;
}

/* After the free: the flag is set, no entry is left, and an access fails. */
static void count_stale(uint64_t h, const uint8_t *at, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), off;

	CHECK_EQ(cb_flag(drv, h), 1);
	for (off = 0; off < size; off += page) {
		if (read_pte(prov, at + off).level) {
			stale++;
			return;
		}
	}
	CHECK_EQ(try_read(at + size / 2), SIGBUS);
}

static void end_round(uint64_t h, uint8_t *at, size_t size)
{
	OK(unpin(drv, h));
	CHECK(mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
}

static void verdict(const char *what, unsigned int want)
{
	printf("# %s: %u rounds, %u stale mappings; %u frees %s\n", what, rig.rounds, stale, others,
	       want == PROVIDER_FREE_WAITED ? "did not wait" : "had to wait");
	CHECK_EQ(stale, 0);
	CHECK_EQ(others, 0);
}

/*
 * A free between two entries of a fault, or (rig.arg) of POPULATE: the callback must wait until the
 * entries are made, and then remove all of them.
 */
static void t_insert(void)
{
	bool populated = rig.arg;
	size_t size = populated ? 4 * MiB : 2 * MiB - GPU_PAGE;
	unsigned int places = (unsigned int)(size / cpu_page()), i;
	uint8_t *at = reserve(size, 2 * MiB);

	open_window(PROVIDER_BEFORE_INSERT);
	for (i = 0; i < rig.rounds; i++) {
		struct freer f = {
			.va = gpu_alloc_flags(prov, size, i & 1 ? PROVIDER_SCATTER : 0).va
		};
		uint64_t h = must_pin(drv, f.va, size);
		int ret;

		must_map_at(drv, h, size, at);
		freer_start(&f, (i * 7919 + rig.seed) % places);
		/* The call or the access may come before the free or after it. */
		if (populated) {
			ret = populate(drv, h);
			CHECK(ret == 0 || ret == -EINVAL);
		} else {
			ret = try_write(at + (i * 4099UL * 4096) % size, 1);
			CHECK(ret == 0 || ret == SIGBUS);
		}
		freer_join(&f, PROVIDER_FREE_WAITED);
		count_stale(h, at, size);
		end_round(h, at, size);
	}
	verdict(populated ? "free between populated entries" : "free between entries",
		PROVIDER_FREE_WAITED);
}

/*
 * A free after ->mmap and before a zap can find the VMA: the callback finds no mapping, so there
 * must be no entry, and none may follow.
 */
static void t_mmap(void)
{
	size_t size = 2 * MiB;
	uint8_t *at = reserve(size, 2 * MiB);
	unsigned int i;

	open_window(PROVIDER_AFTER_MMAP);
	for (i = 0; i < rig.rounds; i++) {
		struct freer f = {
			.va = gpu_alloc_flags(prov, size, i & 1 ? PROVIDER_SCATTER : 0).va
		};
		uint64_t h = must_pin(drv, f.va, size);

		freer_start(&f, 0);
		must_map_at(drv, h, size, at);
		freer_join(&f, PROVIDER_FREED_INSIDE);
		count_stale(h, at, size);
		end_round(h, at, size);
	}
	verdict("free before the VMA is linked", PROVIDER_FREED_INSIDE);
}

/*
 * A free during a pin: the pin fails and leaves nothing behind. Either before the get returns; or
 * after the driver has read the table and before the region is published, when the memory type of
 * one of four runs is reserved.
 */
static void t_pin(void)
{
	unsigned int place = rig.arg, places = place == PROVIDER_BEFORE_RESERVE ? 4 : 1;
	bool persistent = rig.mode == PERSISTENT && rig.gen > 470;
	size_t size = places * GPU_PAGE;
	unsigned int i, callbacks;
	uint64_t h;

	open_window(place);
	callbacks = gpu_info(prov).callbacks;
	for (i = 0; i < rig.rounds; i++) {
		struct freer f = { .va = gpu_alloc_flags(prov, size, PROVIDER_SCATTER).va };

		freer_start(&f, i % places);
		CHECK_EQ(pin(drv, f.va, size, &h), persistent ? 0 : -EINVAL);
		freer_join(&f, PROVIDER_FREED_INSIDE);
		if (persistent)
			OK(unpin(drv, h));
		CHECK_EQ(gpu_info(prov).pins, 0);
		CHECK_EQ(gpu_info(prov).tables, 0);
		CHECK_EQ(gpu_info(prov).pages_free, gpu_info(prov).pages_total);
		CHECK_EQ(read_number("/proc/driver/gdrdrv/nv_get_pages_refcount"), 0);
		if (rig.gpl)
			CHECK_EQ(stat_of("memtypes"), 0);
	}
	verdict(place == PROVIDER_AFTER_GET ? "free before the get returns"
					    : "free before the pin is published",
		PROVIDER_FREED_INSIDE);
	CHECK_EQ(gpu_info(prov).callbacks - callbacks, persistent ? 0 : rig.rounds);
}

/* A free after an unpin has checked mr->revoked and before its put: a late put. */
static void t_put(void)
{
	size_t size = 2 * GPU_PAGE;
	uint8_t *at = reserve(size, GPU_PAGE);
	unsigned int i, late;

	open_window(PROVIDER_BEFORE_PUT);
	late = gpu_info(prov).late_puts;
	for (i = 0; i < rig.rounds; i++) {
		struct freer f = { .va = gpu_alloc(prov, size) };
		uint64_t h = must_pin(drv, f.va, size);

		must_map_at(drv, h, size, at);
		CHECK_EQ(try_write(at, 1), 0);
		freer_start(&f, 0);
		OK(unpin(drv, h));
		freer_join(&f, PROVIDER_FREED_INSIDE);
		CHECK_EQ(try_read(at), SIGBUS);
		CHECK_EQ(munmap(at, size), 0);
		CHECK_EQ(gpu_info(prov).pins, 0);
	}
	verdict("free before the put of an unpin", PROVIDER_FREED_INSIDE);
	CHECK_EQ(gpu_info(prov).late_puts, late + rig.rounds);
}

struct pinner {
	pthread_t thread;
	uint64_t va, size, handle;
	pid_t tid;
	int ret;
};

static void *pin_thread(void *arg)
{
	struct pinner *p = arg;

	__atomic_store_n(&p->tid, gettid(), __ATOMIC_RELEASE);
	p->ret = pin(drv, p->va, p->size, &p->handle);
	return NULL;
}

static void *unpin_thread(void *arg)
{
	window_arm(0);
	OK(unpin(drv, *(uint64_t *)arg));
	return NULL;
}

/*
 * The same with another pin made in the window, which gets the key of the first one. The late put
 * must not release it: the free of its memory must call back.
 */
static void t_put_reused(void)
{
	size_t size = 2 * GPU_PAGE;
	uint8_t *at = reserve(size, GPU_PAGE);
	unsigned int i;

	open_window(PROVIDER_BEFORE_PUT);
	for (i = 0; i < rig.rounds; i++) {
		uint64_t va = gpu_alloc(prov, size), h = must_pin(drv, va, size);
		struct pinner p = { .va = gpu_alloc(prov, size), .size = size };
		unsigned int callbacks;
		pthread_t unpinner;

		CHECK(!pthread_create(&unpinner, NULL, unpin_thread, &h));
		window_free(va, true);
		CHECK(!pthread_create(&p.thread, NULL, pin_thread, &p));
		/* Until the pin is made, or waits for the stopped thread. */
		while (!__atomic_load_n(&p.tid, __ATOMIC_ACQUIRE) || !thread_sleeps(p.tid))
			;
		CHECK_EQ(window_go(), PROVIDER_FREED_INSIDE);
		CHECK(!pthread_join(unpinner, NULL));
		CHECK(!pthread_join(p.thread, NULL));
		CHECK_EQ(p.ret, 0);
		must_map_at(drv, p.handle, size, at);
		CHECK_EQ(try_write(at, 1), 0);
		callbacks = gpu_info(prov).callbacks;
		OK(gpu_free(prov, p.va));
		CHECK_EQ(gpu_info(prov).callbacks, callbacks + 1);
		count_stale(p.handle, at, size);
		end_round(p.handle, at, size);
	}
	verdict("pin in the window before a late put", PROVIDER_FREED_INSIDE);
}

static void *armed_pin_thread(void *arg)
{
	window_arm(0);
	return pin_thread(arg);
}

/*
 * A pin does not wait for another one, which the GPU driver has not finished. A large one waits for a
 * large one of its user, so that the GPU driver has the memory of one such request at a time, and
 * for no other user's.
 */
static void t_pin_during(void)
{
	const size_t large = 16 * MiB;
	int done[2];
	pid_t pid;
	char byte;
	uint64_t aside = gpu_alloc(prov, GPU_PAGE), va = gpu_alloc(prov, GPU_PAGE);
	struct pinner p = { .va = gpu_alloc(prov, large), .size = large, .ret = 1 };
	struct pinner q = { .va = gpu_alloc(prov, large), .size = large, .ret = 1 };

	open_window(PROVIDER_AFTER_GET);
	CHECK(!pthread_create(&p.thread, NULL, armed_pin_thread, &p));
	window_free(aside, true);
	CHECK(!pthread_create(&q.thread, NULL, pin_thread, &q));
	while (!__atomic_load_n(&q.tid, __ATOMIC_ACQUIRE) || !thread_sleeps(q.tid))
		;
	must_pin(drv, va, GPU_PAGE);
	CHECK(!pipe(done));
	pid = fork();
	if (!pid) {
		alarm(60);
		become_user_like_root();
		drv = drv_open();
		prov = prov_open();
		must_pin(drv, gpu_alloc(prov, large), large);
		CHECK_EQ(write(done[1], "", 1), 1);
		_exit(0); /* by callback, its put waits for the stopped get */
	}
	close(done[1]);
	CHECK_EQ(read(done[0], &byte, 1), 1);
	CHECK_EQ(__atomic_load_n(&p.ret, __ATOMIC_ACQUIRE), 1);
	CHECK_EQ(__atomic_load_n(&q.ret, __ATOMIC_ACQUIRE), 1);
	CHECK_EQ(window_go(), PROVIDER_FREED_INSIDE);
	CHECK_EQ(wait_child(pid), 0);
	CHECK(!pthread_join(p.thread, NULL));
	CHECK(!pthread_join(q.thread, NULL));
	CHECK_EQ(p.ret, 0);
	CHECK_EQ(q.ret, 0);
}

struct populator {
	pthread_t thread;
	uint64_t h;
	unsigned int passes;
	int ret;
};

static void *armed_populate_thread(void *arg)
{
	struct populator *p = arg;

	window_arm(p->passes);
	p->ret = populate(drv, p->h);
	return NULL;
}

#define WINDOWS 16 /* of the mapping; a fault, and a step of POPULATE, fill one */

/*
 * Populates; the unmap by another thread ends that. Both threads have one processor: another one
 * could fill many windows before the host runs the thread that has waited for the lock.
 */
static void populate_in_child(int go)
{
	struct populator p = { .passes = rig.seed % (2 * MiB / cpu_page()) };
	size_t size = WINDOWS * 2 * MiB;
	uint8_t *at = reserve(size, 2 * MiB);
	cpu_set_t one;
	char byte;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one));
	drv = drv_open();
	p.h = must_pin(drv, gpu_alloc(prov_open(), size), size);
	must_map_at(drv, p.h, size, at);
	CHECK(!pthread_create(&p.thread, NULL, armed_populate_thread, &p));
	CHECK_EQ(read(go, &byte, 1), 1);
	CHECK_EQ(munmap(at, size), 0);
	CHECK(!pthread_join(p.thread, NULL));
	FAILS(EINVAL, p.ret);
	_exit(0);
}

/*
 * POPULATE of a large mapping is stopped in its first window. Then SIGKILL (rig.arg) ends it after
 * that window, and an unmap, which waits for mmap_lock, after those that fit in the 4 ms after which
 * the kernel hands the lock over.
 */
static void t_populate_ends(void)
{
	uint64_t aside = gpu_alloc(prov, GPU_PAGE);
	long ptes = stat_of("ptes"), windows;
	int go[2], killed = rig.arg;
	pid_t pid;

	open_window(PROVIDER_BEFORE_INSERT);
	CHECK(!pipe(go));
	fflush(stdout);
	pid = fork();
	if (!pid)
		populate_in_child(go[0]);
	window_free(aside, true);
	if (killed) {
		CHECK(!kill(pid, SIGKILL));
	} else {
		CHECK_EQ(write(go[1], "", 1), 1);
		while (!thread_sleeps(pid))
			;
	}
	CHECK_EQ(window_go(), PROVIDER_FREED_INSIDE);
	CHECK_EQ(wait_child(pid), killed ? 128 + SIGKILL : 0);
	windows = (stat_of("ptes") - ptes) / (long)(2 * MiB / cpu_page());
	printf("# POPULATE ended after %ld of %d windows\n", windows, WINDOWS);
	CHECK(windows <= (killed ? 1 : WINDOWS - 1));
}

/*
 * The marker in a mapping's first page is lifted while POPULATE makes the other entries: the page
 * has none. POPULATE must make it or fail.
 */
static void t_populate_lifted(void)
{
	size_t size = 2 * MiB;
	uint8_t *at = reserve(size, 2 * MiB);
	struct uffdio_api api = { .api = UFFD_API, .features = 1 << 15 | 1 << 13 };
	struct uffdio_register reg = { .range = { (uintptr_t)at, size },
				       .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect wp = { .range = { (uintptr_t)at, cpu_page() },
					  .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	uint64_t aside = gpu_alloc(prov, GPU_PAGE);
	struct populator p = { .h = must_pin(drv, gpu_alloc(prov, size), size), .passes = 1 };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	must_map_at(drv, p.h, size, at);
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg))
		SKIP("this kernel's userfaultfd refuses mappings without pages");
	CHECK(!ioctl(fd, UFFDIO_WRITEPROTECT, &wp));
	open_window(PROVIDER_BEFORE_INSERT);
	CHECK(!pthread_create(&p.thread, NULL, armed_populate_thread, &p));
	window_free(aside, true);
	wp.mode = 0;
	CHECK(!ioctl(fd, UFFDIO_WRITEPROTECT, &wp));
	CHECK_EQ(window_go(), PROVIDER_FREED_INSIDE);
	CHECK(!pthread_join(p.thread, NULL));
	CHECK(p.ret == -EINVAL || nr_entries(at, size, cpu_page()) == size / cpu_page());
}

const struct test tests_window[] = {
	{ "window-insert", t_insert, BY_CALLBACK, 240, 0 },
	{ "window-populate", t_insert, BY_CALLBACK, 240, true },
	{ "window-populate-unmap", t_populate_ends, ANY_MODE, 240, false },
	{ "window-populate-kill", t_populate_ends, ANY_MODE, 240, true },
	{ "window-populate-lifted", t_populate_lifted, ANY_MODE, 240, 0 },
	{ "window-mmap", t_mmap, BY_CALLBACK, 240, 0 },
	{ "window-get", t_pin, ANY_MODE, 240, PROVIDER_AFTER_GET },
	{ "window-pin-during", t_pin_during, ANY_MODE, 240, 0 },
	{ "window-reserve", t_pin, ANY_MODE, 240, PROVIDER_BEFORE_RESERVE },
	{ "window-put", t_put, BY_CALLBACK, 240, 0 },
	{ "window-put-reused", t_put_reused, BY_CALLBACK, 240, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
