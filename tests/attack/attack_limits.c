// SPDX-License-Identifier: MIT
/*
 * The life of a buffer without descriptors, without address space, killed at any point, in 64
 * threads at once, and with children forked in the middle of it all.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/life.h"
#include "common/again.h"
#include "common/expect.h"
#include "common/resources.h"
#include "common/standin.h"
#include "common/unit.h"
#include "barcopy.h"

static struct life lives[LIVES];
static size_t n_lives;

/* Sets the limit; the former one. */
static rlim_t limit(int what, rlim_t value)
{
	struct rlimit r;
	rlim_t former;

	getrlimit(what, &r);
	former = r.rlim_cur;
	r.rlim_cur = value;
	setrlimit(what, &r);
	return former;
}

/* The lowest number that no descriptor has. */
static rlim_t next_fd(void)
{
	int fd = dup(0);

	ck_assert_int_gt(fd, 0);
	close(fd);
	return (rlim_t)fd;
}

static rlim_t address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	ck_assert(f && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	return pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Each life with a little more of a resource each time, until it works; at least so many fail. */
static void runs_out(int what, rlim_t (*in_use)(void), rlim_t step, rlim_t most, int least_failures)
{
	int failures = 0;

	n_lives = lives_make(lives);
	for (size_t l = 0; l < n_lives; l++) {
		bool worked = false;
		/* Makes what the first use makes for good. */
		const char *wrong = life_run(&lives[l], &worked);

		ck_assert_msg(!wrong && worked, "%s: %s", lives[l].name, wrong ? wrong : "failed");
		worked = false;
		for (rlim_t more = 0; !worked; more += step) {
			rlim_t usual;

			ck_assert_uint_lt(more, most);
			resources_note();
			usual = limit(what, in_use() + more);
			wrong = life_run(&lives[l], &worked);
			limit(what, usual);
			failures += !worked;
			if (!wrong)
				wrong = resources_changed();
			ck_assert_msg(!wrong, "%s, %lu more: %s", lives[l].name,
				      (unsigned long)more, wrong);
		}
	}
	ck_assert_int_gt(failures, least_failures);
}

static void descriptors_run_out(void)
{
	runs_out(RLIMIT_NOFILE, next_fd, 1, 64, 3);
}

static void address_space_runs_out(void)
{
	if (!resources_heap() || unit_quick())
		SKIP("a sanitizer or valgrind needs its address space without limit");
	else if (!test_emulator_lacks("address space runs out", "RLIMIT_AS"))
		runs_out(RLIMIT_AS, address_space, 256 << 10, 256 << 20, 5);
}

/* ---- kill -9 ------------------------------------------------------------- */

/* Runs one life after the other, and writes a byte for each. */
_Noreturn static void live_for_ever(int out)
{
	bool worked;

	n_lives = lives_make(lives);
	for (size_t l = 0;; l = (l + 1) % n_lives)
		if (life_run(&lives[l], &worked) || !worked || write(out, "x", 1) != 1)
			_exit(1);
}

static void killed_in_the_middle(void)
{
	unsigned long long state = 12345;
	int rounds = unit_quick() ? 5 : 30;

	if (test_emulator_lacks("killed in the middle", "robust futexes"))
		return;
	resources_note();
	for (int i = 0; i < rounds; i++) {
		int ends[2], status;
		size_t lives_left = 1 + unit_random(&state) % 40;
		char c;
		pid_t pid;

		ck_assert_int_eq(pipe(ends), 0);
		fflush(NULL);
		pid = fork();
		if (!pid)
			live_for_ever(ends[1]);
		ck_assert_int_gt(pid, 0);
		close(ends[1]);
		while (lives_left-- && read(ends[0], &c, 1) == 1)
			;
		for (unsigned long long spin = unit_random(&state) % 100000; spin; spin--)
			__asm__ volatile("" ::: "memory");
		ck_assert_int_eq(kill(pid, SIGKILL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		/* An exit would be a life that failed. */
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		close(ends[0]);
	}
	ck_assert_ptr_null(resources_changed());
}

/* ---- 64 threads, and forks ----------------------------------------------- */

enum { MANY = 64, SLICE = 65536 };

static struct standin_vmm arena; /* a slice for each thread */
static gdr_t shared;
static gdr_mh_t shared_handle;
static uint8_t *shared_map;
static atomic_bool stop;
static atomic_long laps;

struct worker {
	unsigned int id;
	const char *wrong;
};

/* Pins, maps, copies, unmaps and unpins its slice, on its own context or on the shared one. */
static void *work(void *arg)
{
	static const int wait_laps = 3;
	struct worker *w = arg;
	unsigned long long state = w->id + 1;
	int least = unit_quick() ? wait_laps : 40;

	cuda.cuCtxSetCurrent(standin_primary(0));
	for (int lap = 0; lap < least || (!atomic_load(&stop) && lap < 100000); lap++) {
		gdr_t g = lap % 3 ? shared : gdr_open();
		uint64_t addr = arena.ptr + (uint64_t)w->id * SLICE, in[8], out[8];
		uint8_t *mine = shared_map + (size_t)w->id * SLICE;
		size_t at = unit_random(&state) % (SLICE - sizeof(in)) & ~(size_t)7;
		gdr_info_t info;
		gdr_mh_t h;
		void *va;

		for (int i = 0; i < 8; i++)
			in[i] = unit_random(&state);
		if (!g || gdr_pin_buffer_v2(g, addr, SLICE, 0, &h) || gdr_map(g, h, &va, SLICE)) {
			w->wrong = "open, pin or map";
			break;
		}
		/* Each mapping shows what the other one wrote. */
		if (gdr_copy_to_mapping(h, (char *)va + at, in, sizeof(in)) || barcopy_flush(h) ||
		    gdr_copy_from_mapping(shared_handle, out, mine + at, sizeof(out)) ||
		    memcmp(in, out, sizeof(in)))
			w->wrong = "written by its own, read by the shared";
		in[3] ^= ~0ULL;
		if (barcopy_put64(shared_handle, mine + at + 24, in[3]) ||
		    barcopy_flush(shared_handle) ||
		    barcopy_get64(h, (char *)va + at + 24, &out[3]) || in[3] != out[3])
			w->wrong = "written by the shared, read by its own";
		if (gdr_get_info(g, h, &info) || !info.mapped)
			w->wrong = "info";
		if (lap % 2 && gdr_unmap(g, h, va, SLICE))
			w->wrong = "unmap";
		if (g == shared || lap % 2) {
			if (gdr_unpin_buffer(g, h))
				w->wrong = "unpin";
			if (gdr_unpin_buffer(g, h) != EINVAL)
				w->wrong = "unpinned twice";
		}
		if (g != shared && gdr_close(g))
			w->wrong = "close";
		if (w->wrong)
			break;
		atomic_fetch_add(&laps, 1);
	}
	return NULL;
}

static void arena_open(unsigned int count)
{
	void *va;
	int rc;

	standin_start();
	if (standin_gdrdrv()) { /* the node's stand-in takes cudaMalloc memory only */
		arena.size = 2 * STANDIN_GRANULE;
		arena.ptr = standin_alloc(arena.size);
	} else {
		standin_vmm_alloc(&arena, 0, 2, STANDIN_GRANULE, true);
	}
	ck_assert_uint_le((size_t)count * SLICE, arena.size);
	shared = gdr_open();
	ck_assert_msg(shared != NULL, "%s", barcopy_last_error());
	rc = gdr_pin_buffer_v2(shared, arena.ptr, arena.size, 0, &shared_handle);
	ck_assert_msg(!rc, "%d: %s", rc, barcopy_last_error());
	OK(gdr_map(shared, shared_handle, &va, arena.size));
	shared_map = va;
}

static void start_workers(struct worker *w, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		w[i] = (struct worker){ .id = i };
	unit_start(count, work, w, sizeof(*w));
}

static void end_workers(struct worker *w, unsigned int count)
{
	unit_join();
	for (unsigned int i = 0; i < count; i++)
		ck_assert_msg(!w[i].wrong, "thread %u: %s", i, w[i].wrong);
}

static void many_threads(void)
{
	struct worker w[MANY];
	struct resources before, after;

	arena_open(MANY);
	resources_look(&before);
	atomic_store(&stop, true); /* the least number of laps */
	start_workers(w, MANY);
	end_workers(w, MANY);
	resources_look(&after);
	after.retained = before.retained; /* one for each thread */
	ck_assert_ptr_null(resources_differ(&before, &after));
	printf("%ld laps in %d threads\n", atomic_load(&laps), MANY);
	OK(gdr_close(shared));
}

/* The child can take every lock, also one that another thread of the parent held. */
static int child_of_many(void *arg)
{
	uint64_t value = 0;
	gdr_mh_t h = { 77 };
	gdr_t own;
	int v, rc;

	(void)arg;
	alarm(60); /* a deadlock ends by SIGALRM */
	if (gdr_copy_from_mapping(shared_handle, &value, shared_map, 8) != EACCES ||
	    gdr_close(shared) != EACCES)
		return 1;
	for (int i = 0; i < 3; i++) {
		own = barcopy_open(BARCOPY_OPEN_ANY);
		if (!own)
			return 2;
		/* CUDA itself does not work in a child: the pin says so. */
		rc = gdr_pin_buffer_v2(own, arena.ptr, SLICE, 0, &h);
		if (rc != EINVAL || !strstr(barcopy_last_error(), "NOT_INITIALIZED") || h.h != 77)
			return 3;
		if (gdr_get_attribute(own, GDR_ATTR_USE_PERSISTENT_MAPPING, &v) ||
		    gdr_unpin_buffer(own, shared_handle) != EACCES || gdr_close(own))
			return 4;
	}
	return 0;
}

static void forks_in_the_middle(void)
{
	enum { WORKERS = 8 };
	int children = unit_quick() ? 5 : 60;
	struct worker w[WORKERS];

	if (!resources_heap()) {
		SKIP("the allocator of a sanitizer or of valgrind may be locked in a child");
		return;
	}
	arena_open(WORKERS);
	start_workers(w, WORKERS);
	for (int i = 0; i < children; i++) {
		int status = unit_in_child(child_of_many, NULL);

		ck_assert_msg(!status, "child %d: status %d", i, status);
	}
	atomic_store(&stop, true);
	end_workers(w, WORKERS);
	ck_assert_int_gt(atomic_load(&laps), WORKERS);
	OK(gdr_close(shared));
}

static const struct unit_test tests[] = {
	{ "descriptors run out", descriptors_run_out, "" },
	{ "descriptors run out, gdrdrv", descriptors_run_out, "LD_PRELOAD=$SIM/libgdrdrv_node.so" },
	{ "address space runs out", address_space_runs_out, "" },
	{ "killed in the middle", killed_in_the_middle, "" },
	{ "killed in the middle, gdrdrv", killed_in_the_middle,
	  "LD_PRELOAD=$SIM/libgdrdrv_node.so" },
	{ "64 threads, gdrdrv", many_threads,
	  "GDRCOPY_BACKEND=gdrdrv LD_PRELOAD=$SIM/libgdrdrv_node.so" },
	{ "64 threads, rm", many_threads, "GDRCOPY_BACKEND=rm" },
	{ "64 threads, dma-buf", many_threads,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "forks while others pin and copy, rm", forks_in_the_middle, "GDRCOPY_BACKEND=rm" },
	{ "forks while others pin and copy, dma-buf", forks_in_the_middle,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
};

UNIT_MAIN("attack: limits", tests)
