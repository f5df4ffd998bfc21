// SPDX-License-Identifier: MIT
/*
 * Other users of ioctl() during a watch of libcuda's ioctls: signal handlers, hooks of other
 * software on the same slot, forks, a second copy of the library.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "barcopy.h"
#include "base/process.h"
#include "watch_sim.h"

/* ---- signals ------------------------------------------------------------- */

static atomic_ulong handled, wrong;

/* Calls ioctl() through this program's import and through libcuda's slot. */
static void on_timer(int sig)
{
	int err = errno, n = -1;

	(void)sig;
	errno = 0x5678;
	if (ioctl(watch_pipe[0], FIONREAD, &n) || n != 5 || !watch_pipe_has_5() || errno != 0x5678)
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_add(&handled, 1);
	errno = err;
}

static void signal_handler(void)
{
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction act = { .sa_handler = on_timer, .sa_flags = SA_RESTART };
	unsigned long want = unit_quick() ? 200 : 4000, rounds = 0;
	struct watch_seen seen = { .calls = 0 };
	uintptr_t held = watch_slot();

	watch_fill_pipe();
	ck_assert_int_eq(sigaction(SIGALRM, &act, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	while (atomic_load(&handled) < want) {
		watch_one_export(&seen);
		rounds++;
	}
	ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	ck_assert_uint_eq(atomic_load(&wrong), 0);
	ck_assert_uint_eq(seen.exports, rounds);
	ck_assert_uint_eq(seen.other_threads, 0);
	ck_assert_uint_eq(watch_slot(), held);
}

/* ---- hooks --------------------------------------------------------------- */

/* A hook of other software that passes calls on, as UCX's. */
struct hook {
	uintptr_t below; /* what the slot held */
	unsigned int calls, depth;
	bool again; /* it was called by what it called */
};
static struct hook hooks[2];

static int pass(struct hook *h, int fd, unsigned long request, void *data)
{
	int rc;

	h->calls++;
	h->again |= h->depth++ > 0;
	rc = h->again ? -1 : ((ioctl_fn)h->below)(fd, request, data);
	h->depth--;
	return rc;
}

#define PASS_0(...) pass(&hooks[0], __VA_ARGS__)
#define PASS_1(...) pass(&hooks[1], __VA_ARGS__)
IOCTL_FUNCTION(hook_0, PASS_0)
IOCTL_FUNCTION(hook_1, PASS_1)

static const ioctl_fn functions[] = { hook_0, hook_1 };

static void set_slot(uintptr_t value)
{
	void *page = (void *)((uintptr_t)watch_slots.at[0] & ~4095ul);
	bool sealed = !strcmp(watch_page(), "r--");

	if (sealed)
		ck_assert_int_eq(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
	atomic_store(watch_slots.at[0], value);
	if (sealed)
		ck_assert_int_eq(mprotect(page, 4096, PROT_READ), 0);
}

static void hook_put(int i)
{
	hooks[i] = (struct hook){ .below = watch_slot() };
	set_slot((uintptr_t)functions[i]);
}

static void hook_take(int i)
{
	ck_assert_uint_eq(watch_slot(), (uintptr_t)functions[i]);
	set_slot(hooks[i].below);
}

/* The watch and each hook in place see every call once. */
static void watch_through(unsigned int hooks_there)
{
	struct watch_seen seen = { .calls = 0 };
	unsigned int before[2] = { hooks[0].calls, hooks[1].calls };

	watch_one_export(&seen);
	ck_assert_uint_eq(seen.calls, 1);
	ck_assert_uint_eq(seen.exports, 1);
	for (unsigned int i = 0; i < 2; i++) {
		ck_assert_uint_eq(hooks[i].calls - before[i], hooks_there >> i & 1);
		ck_assert(!hooks[i].again);
		before[i] = hooks[i].calls;
	}
	watch_export();
	ck_assert_uint_eq(seen.calls, 1);
	for (unsigned int i = 0; i < 2; i++)
		ck_assert_uint_eq(hooks[i].calls - before[i], hooks_there >> i & 1);
}

static void hook_before(void)
{
	uintptr_t held = watch_slot();

	hook_put(0);
	for (int i = 0; i < 3; i++) {
		watch_through(1);
		ck_assert_uint_eq(watch_slot(), (uintptr_t)functions[0]);
	}
	hook_take(0);
	ck_assert_uint_eq(watch_slot(), held);
	watch_through(0);
	ck_assert_uint_eq(watch_slot(), held);
}

/* A hook is installed during a watch. */
static void put_during_a_watch(int i, unsigned int hooks_there)
{
	struct watch_seen seen = { .calls = 0 };

	OK(gdri_cuda_watch_begin(watch_note, &seen));
	hook_put(i);
	watch_export();
	gdri_cuda_watch_end();
	ck_assert_uint_eq(seen.exports, 1);
	ck_assert_uint_eq(watch_slot(), (uintptr_t)functions[i]);
	watch_through(hooks_there);
}

static void hook_meanwhile(void)
{
	put_during_a_watch(0, 1);
	watch_through(1);
	watch_through(1);
	hook_take(0);
	for (int i = 0; i < 3; i++)
		watch_through(0);
	/* Once more, on top of the watch's own function, which has stayed. */
	hook_put(1);
	watch_through(2);
	hook_take(1);
	put_during_a_watch(0, 1);
	hook_take(0);
	watch_through(0);
}

static void hook_below_and_above(void)
{
	hook_put(0);
	watch_through(1);
	put_during_a_watch(1, 3);
	watch_through(3);
	hook_take(1);
	watch_through(1);
	put_during_a_watch(1, 3);
	hook_take(1);
	watch_through(1);
}

/* Installed and removed within one watch: the slot is as before. */
static void hook_that_passes(void)
{
	struct watch_seen seen = { .calls = 0 };
	uintptr_t held = watch_slot();

	for (int i = 0; i < 2; i++) {
		OK(gdri_cuda_watch_begin(watch_note, &seen));
		hook_put(0);
		watch_export();
		hook_take(0);
		gdri_cuda_watch_end();
		ck_assert_uint_eq(watch_slot(), held);
	}
	ck_assert_uint_eq(seen.exports, 2);
	watch_through(0);
}

/*
 * A hook from before the watch removes itself during the watch and writes back what it had found.
 * The next watch works again.
 */
static void hook_that_tramples(void)
{
	struct watch_seen seen = { .calls = 0 };
	uintptr_t held = watch_slot();

	hook_put(0);
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	watch_export();
	set_slot(held);
	gdri_cuda_watch_end();
	ck_assert_uint_eq(seen.exports, 1);
	ck_assert_uint_eq(watch_slot(), held);
	for (int i = 0; i < 3; i++)
		watch_through(0);
	put_during_a_watch(1, 2);
	hook_take(1);
	watch_through(0);
}

/* Passes calls on, and installs itself again whenever the slot holds something else. */
static _Atomic(uintptr_t) stubborn_below;
static atomic_uint stubborn_calls;

static int pass_on(int fd, unsigned long request, void *data)
{
	if (atomic_fetch_add(&stubborn_calls, 1) > 1000)
		abort();
	return ((ioctl_fn)atomic_load(&stubborn_below))(fd, request, data);
}

IOCTL_FUNCTION(stubborn, pass_on)

static void put_stubborn(void)
{
	if (watch_slot() == (uintptr_t)stubborn)
		return;
	atomic_store(&stubborn_below, watch_slot());
	set_slot((uintptr_t)stubborn);
}

/* This hook is both above and below the watch: no call goes round in a circle. */
static void hook_that_insists(void)
{
	watch_fill_pipe();
	put_stubborn();
	for (int i = 0; i < 3; i++) {
		struct watch_seen seen = { .calls = 0 };

		OK(gdri_cuda_watch_begin(watch_note, &seen));
		put_stubborn();
		watch_export();
		ck_assert(watch_pipe_has_5());
		gdri_cuda_watch_end();
		ck_assert_uint_eq(seen.exports, 1);
		ck_assert_uint_eq(seen.calls, 2);
		put_stubborn();
		watch_export();
		ck_assert_uint_eq(seen.exports, 1);
	}
}

/* ---- fork ---------------------------------------------------------------- */

static uintptr_t held_before;
static char page_before[4];
static ioctl_fn watch_hooked;

/* A forked child can use libcuda's import, although not CUDA. */
static int watch_in_child(void *arg)
{
	struct watch_seen seen = { .calls = 0 };

	(void)arg;
	if (watch_slot() != held_before || strcmp(watch_page(), page_before) != 0)
		return 1;
	if (gdri_cuda_watch_begin(watch_note, &seen))
		return 2;
	if (watch_slot() == held_before || !watch_pipe_has_5())
		return 3;
	gdri_cuda_watch_end();
	if (seen.calls != 1 || watch_slot() != held_before ||
	    strcmp(watch_page(), page_before) != 0)
		return 4;
	return !watch_pipe_has_5() || seen.calls != 1 ? 5 : 0;
}

/* A hook above the watch calls it in a child of the watching thread too: no watch is at work there. */
static int hook_in_child(void *arg)
{
	struct watch_seen *seen = arg;
	int n = -1;

	return watch_hooked(watch_pipe[0], FIONREAD, &n) || n != 5 || seen->calls;
}

static void *fork_one(void *arg)
{
	*(int *)arg = unit_in_child(watch_in_child, NULL);
	return NULL;
}

static void start_to_fork(void)
{
	watch_start();
	OK(gdri_process_enter());
	watch_fill_pipe();
	held_before = watch_slot();
	strcpy(page_before, watch_page());
}

static void fork_meanwhile(void)
{
	struct watch_seen seen = { .calls = 0 };
	int status = -1;

	start_to_fork();
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	watch_hooked = watch_ioctl();
	ck_assert_int_eq(unit_in_child(hook_in_child, &seen), 0);
	unit_threads(1, fork_one, &status, 0);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(seen.calls, 0);
	watch_export();
	gdri_cuda_watch_end();
	ck_assert_uint_eq(seen.exports, 1);
	ck_assert_uint_eq(watch_slot(), held_before);
	/* Without a watch. */
	fork_one(&status);
	ck_assert_int_eq(status, 0);
}

static atomic_bool stop;

static void *watch_on(void *arg)
{
	cuda.cuCtxSetCurrent(standin_primary(0));
	while (!atomic_load(&stop)) {
		struct watch_seen seen = { .calls = 0 };

		if (gdri_cuda_watch_begin(watch_note, &seen))
			return arg;
		watch_export();
		gdri_cuda_watch_end();
		if (seen.exports != 1)
			return arg;
	}
	return NULL;
}

/* Forks at any point of a watch. */
static void fork_anywhere(void)
{
	int children = unit_quick() ? 20 : 150;

	start_to_fork();
	unit_start(1, watch_on, watch_pipe, 0);
	for (int i = 0; i < children; i++) {
		int status = unit_in_child(watch_in_child, NULL);

		ck_assert_msg(!status, "child %d: step %d", i, status);
	}
	atomic_store(&stop, true);
	ck_assert_ptr_null(unit_join());
	ck_assert_uint_eq(watch_slot(), held_before);
}

#define NOW   "LD_LIBRARY_PATH=$SIM/now"
#define NOPLT "LD_LIBRARY_PATH=$SIM/noplt"

/* ---- a second copy of the library ---------------------------------------- */

/* Calls of libgdrapi.so, a second copy beside this program's, as of a wheel. */
static struct {
	__typeof__(&gdr_open) open;
	__typeof__(&gdr_pin_buffer_v2) pin;
	__typeof__(&gdr_unpin_buffer) unpin;
	__typeof__(&barcopy_last_error) error;
} copy;

static sem_t copy_goes, copy_went;

static void load_copy(void)
{
	char path[4096];
	void *lib;

	snprintf(path, sizeof(path), "%s/../libgdrapi.so.2", getenv("GDRSIM_DIR"));
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(lib != NULL, "%s", dlerror());
	copy.open = (__typeof__(copy.open))dlsym(lib, "gdr_open");
	copy.pin = (__typeof__(copy.pin))dlsym(lib, "gdr_pin_buffer_v2");
	copy.unpin = (__typeof__(copy.unpin))dlsym(lib, "gdr_unpin_buffer");
	copy.error = (__typeof__(copy.error))dlsym(lib, "barcopy_last_error");
	ck_assert(copy.open != gdr_open);
}

static void *pin_by_copy(void *arg)
{
	gdr_t g = copy.open();
	gdr_mh_t h;

	cuda.cuCtxSetCurrent(standin_primary(0));
	while (g && !sem_wait(&copy_goes) && !copy.pin(g, watch_memory, 65536, 0, &h)) {
		copy.unpin(g, h);
		sem_post(&copy_went);
	}
	return arg;
}

/*
 * Lets the copy pin: waits for the end of the pin, or, where it has to wait for the caller, a tenth
 * of a second.
 */
static void let_the_copy_pin(void)
{
	struct timespec until;

	sem_post(&copy_goes);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 100000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	sem_timedwait(&copy_went, &until);
}

static void (*once_writable)(void); /* called once, after a page was made writable */

/* Replaces the C library's, for the library too. */
int mprotect(void *addr, size_t len, int prot)
{
	int rc = (int)syscall(SYS_mprotect, addr, len, prot);
	void (*fn)(void) = once_writable;

	if (fn && (prot & PROT_WRITE)) {
		once_writable = NULL;
		fn();
	}
	return rc;
}

/* Both copies write the slot, and each seals the page afterwards. */
static void second_copy(void)
{
	struct watch_seen seen = { .calls = 0 };
	pthread_t there;

	setenv("GDRCOPY_BACKEND", "rm", 1);
	watch_start();
	load_copy();
	sem_init(&copy_goes, 0, 0);
	sem_init(&copy_went, 0, 0);
	ck_assert_int_eq(pthread_create(&there, NULL, pin_by_copy, NULL), 0);
	sem_post(&copy_goes); /* with its trial */
	sem_wait(&copy_went);
	once_writable = let_the_copy_pin;
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	ck_assert_ptr_null(once_writable);
	watch_export();
	gdri_cuda_watch_end();
	ck_assert_uint_eq(seen.exports, 1);
}

static void put_another(void)
{
	hook_put(0);
}

/* A hook is installed between reading the slot and writing it: the watch reads again. */
static void hook_in_between(void)
{
	struct watch_seen seen = { .calls = 0 };

	wrap_reset();
	wrap_before("mprotect", put_another);
	watch_one_export(&seen);
	ck_assert_uint_eq(seen.exports, 1);
	ck_assert_uint_eq(hooks[0].calls, 1);
	ck_assert_uint_eq(watch_slot(), (uintptr_t)hook_0);
}

/* mprotect() fails for lack of mappings (vm.max_map_count). */
static void no_room_to_unseal(void)
{
	struct watch_seen seen = { .calls = 0 };

	wrap_reset();
	wrap_fail("mprotect", 1, ENOMEM);
	FAILS(-ENOMEM, gdri_cuda_watch_begin(watch_note, &seen));
	wrap_fail("mprotect", 1, EACCES);
	FAILS_WITH(-ENOTSUP, "mprotect() fails: Permission denied",
		   gdri_cuda_watch_begin(watch_note, &seen));
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	gdri_cuda_watch_end();
}

/* A slot in a page that may be written needs no mprotect(). */
static void no_need_to_unseal(void)
{
	struct watch_seen seen = { .calls = 0 };

	wrap_reset();
	wrap_fail("mprotect", 0, EPERM);
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	gdri_cuda_watch_end();
	wrap_reset();
}

/* A sandbox refuses mprotect(): gdr_open() says so, or the pin if the program insists on rm. */
static void no_mprotect(void)
{
	gdr_mh_t h;
	gdr_t g;

	standin_start();
	wrap_reset();
	wrap_fail("mprotect", 0, EPERM);
	if (!getenv("GDRCOPY_BACKEND")) {
		FAILS_WITH(ENODEV,
			   "rm: libcuda's import of ioctl() is in a read-only page, and "
			   "mprotect() fails: Operation not permitted",
			   ERRNO_OF(gdr_open()));
		wrap_reset();
	}
	g = gdr_open();
	OK(ERRNO_OF(g));
	wrap_fail("mprotect", 0, EPERM);
	FAILS_WITH(ENOTSUP, "mprotect() fails: Operation not permitted",
		   gdr_pin_buffer(g, standin_alloc(65536), 65536, 0, 0, &h));
	OK(gdr_close(g));
}

/* ---- two slots ----------------------------------------------------------- */

static _Atomic(uintptr_t) second; /* a slot of libcuda's, as far as its relocations say */

static const ElfW(Rela) *table(const struct link_map *map, int tag)
{
	const ElfW(Dyn) *d = map->l_ld;

	while (d->d_tag != tag)
		d++;
	return (const ElfW(Rela) *)(d->d_un.d_ptr + (d->d_un.d_ptr < map->l_addr ? map->l_addr : 0));
}

/* Writes an import of ioctl() over a relocation that the loader has made. */
static void add_second(uintptr_t value)
{
	const uintptr_t page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	const struct link_map *map;
	const ElfW(Rela) *slot;
	ElfW(Rela) *made;
	char *page;

	OK(dlinfo(gdri_cuda_library, RTLD_DI_LINKMAP, &map));
	made = (ElfW(Rela) *)table(map, DT_RELA);
	slot = table(map, DT_JMPREL);
	while (map->l_addr + slot->r_offset != (uintptr_t)watch_slots.at[0])
		slot++;
	page = (char *)((uintptr_t)made & page_mask);
	/* On arm64 libcuda's code may lie in the same page. */
	OK(mprotect(page, (size_t)((char *)(made + 1) - page),
		    PROT_READ | PROT_WRITE | PROT_EXEC));
	made->r_info = slot->r_info;
	made->r_offset = (uintptr_t)&second - map->l_addr;
	second = value;
}

static int second_in_child(void *held)
{
	return watch_slot() != (uintptr_t)held || second != (uintptr_t)held;
}

/* Both lead to the watch, for the duration of it. */
static void two_slots(void)
{
	struct watch_seen seen = { .calls = 0 };
	uintptr_t held = watch_slot(), watch;

	OK(gdri_process_enter());
	add_second(held);
	for (unsigned int i = 0; i < 2; i++) {
		OK(gdri_cuda_watch_begin(watch_note, &seen));
		ck_assert_uint_ne(second, held);
		ck_assert_uint_eq(second, watch_slot());
		ck_assert_int_eq(unit_in_child(second_in_child, (void *)held), 0);
		gdri_cuda_watch_end();
		ck_assert_uint_eq(second, held);
		ck_assert_uint_eq(watch_slot(), held);
	}
	/* A hook comes to the second one during a watch, and goes after it. */
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	watch = second;
	second = (uintptr_t)hook_0;
	gdri_cuda_watch_end();
	second = watch;
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	ck_assert_uint_eq(watch_slot(), watch);
	gdri_cuda_watch_end();
	ck_assert_uint_eq(watch_slot(), held);
}

/* They lead to two functions, of which one alone can be called by the watch. */
static void two_functions(void)
{
	struct watch_seen seen = { .calls = 0 };
	uintptr_t held = watch_slot();

	add_second((uintptr_t)hook_0);
	FAILS_WITH(-ENOTSUP, "libcuda's imports of ioctl() lead to different functions",
		   gdri_cuda_watch_begin(watch_note, &seen));
	ck_assert_uint_eq(watch_slot(), held);
	ck_assert_uint_eq(second, (uintptr_t)hook_0);
	second = held;
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	gdri_cuda_watch_end();
	ck_assert_uint_eq(watch_slot(), held);
	ck_assert_uint_eq(second, held);
}

static const struct unit_test tests[] = {
	{ "two slots", two_slots, "" },
	{ "two slots, two functions", two_functions, "" },
	{ "a signal handler", signal_handler, "" },
	{ "a signal handler, sealed", signal_handler, NOW },
	{ "a hook that was there before", hook_before, "" },
	{ "a hook that was there before, sealed", hook_before, NOPLT },
	{ "a hook that comes meanwhile", hook_meanwhile, "" },
	{ "a hook that comes meanwhile, sealed", hook_meanwhile, NOW },
	{ "hooks below and above", hook_below_and_above, "" },
	{ "a hook that comes and goes", hook_that_passes, "" },
	{ "a hook that tramples", hook_that_tramples, "" },
	{ "a hook that insists", hook_that_insists, "" },
	{ "fork meanwhile", fork_meanwhile, "", .bare = true },
	{ "fork meanwhile, sealed", fork_meanwhile, NOW, .bare = true },
	{ "fork anywhere", fork_anywhere, "", .bare = true },
	{ "fork anywhere, sealed", fork_anywhere, NOPLT, .bare = true },
	{ "a second copy of the library", second_copy, NOW, .bare = true },
	{ "a second copy, no procedure linkage table", second_copy, NOPLT, .bare = true },
	{ "no room to unseal the page", no_room_to_unseal, NOW },
	{ "mprotect() is refused, an open page", no_need_to_unseal, "" },
	{ "mprotect() is refused", no_mprotect, NOW, .bare = true },
	{ "mprotect() is refused, rm is named", no_mprotect, NOW " GDRCOPY_BACKEND=rm",
	  .bare = true },
	{ "a hook that comes in between", hook_in_between, NOW },
};

UNIT_MAIN("watch: others", tests, unit_before = watch_start)
