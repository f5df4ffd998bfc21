// SPDX-License-Identifier: MIT
/*
 * What a forked child has of its parent's: no descriptor of the driver's nodes or of a dma-buf,
 * which would hold the parent's pins; and none of the locks that another thread holds at the fork.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "barcopy_queue.h"
#include "common/resources.h"
#include "common/wrap.h"
#include "base/process.h"
#include "cache/cache.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "fixture.h"

static int child_counts(void *expected)
{
	int n = resources_fds();

	if (n == *(int *)expected)
		return 0;
	fprintf(stderr, "%d descriptors in the child, not %d\n", n, *(int *)expected);
	return 1;
}

/* A child has that many descriptors fewer than this process. */
static void child_lacks(int owned)
{
	int n = resources_fds() - owned;

	ck_assert_int_eq(unit_in_child(child_counts, &n), 0);
}

/* Each of two pins holds a dma-buf. (The nodes: test_gdrdrv.c, test_rm_fork.c.) */
static void dmabufs(void)
{
	gdr_mh_t h[2];

	start();
	for (int i = 0; i < 2; i++)
		OK(gdr_pin_buffer_v2(g, standin_alloc(65536), 65536, 0, &h[i]));
	child_lacks(2);
	/* A closed descriptor is not closed again: its number may be another one's. */
	OK(gdr_unpin_buffer(g, h[0]));
	child_lacks(1);
	end_now();
	child_lacks(0);
}

/* ---- the table itself ---------------------------------------------------- */

static void owned(void)
{
	int fd, kept;

	OK(gdri_process_enter());
	errno = 0;
	ck_assert_int_eq(gdri_fork_open("/no/such/node", O_RDWR), -1);
	ck_assert_int_eq(errno, ENOENT);
	fd = gdri_fork_open("/dev/null", O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	kept = dup(fd);
	OK(gdri_fork_own(kept));
	child_lacks(2);
	gdri_fork_close(kept);
	ck_assert_int_eq(fcntl(kept, F_GETFD), -1);
	child_lacks(1);
	gdri_fork_close(fd);
}

/*
 * The program closes a descriptor of the library by mistake (a double close), and its number becomes
 * another file's: that is closed neither in a child nor by the library.
 */
static void closed_by_the_program(void)
{
	int fd, other, mine;

	OK(gdri_process_enter());
	fd = gdri_fork_open("/dev/null", O_RDWR);
	close(fd);
	mine = open("/dev/zero", O_RDWR);
	ck_assert_int_eq(mine, fd);
	child_lacks(0);
	gdri_fork_close(fd);
	ck_assert_int_ge(fcntl(mine, F_GETFD), 0);
	/* The number becomes another file of the library's. */
	other = gdri_fork_open("/dev/null", O_RDWR);
	close(other);
	ck_assert_int_eq(gdri_fork_open("/dev/full", O_RDWR), other);
	child_lacks(1);
	gdri_fork_close(other);
	ck_assert_int_eq(fcntl(other, F_GETFD), -1);
	child_lacks(0);
}

/* ---- an application's own handlers, and cancellation --------------------- */

static uint64_t addr;

static int maps(void)
{
	gdr_t own = gdr_open();
	gdr_mh_t h;
	void *map;

	if (!own || gdr_pin_buffer_v2(own, addr, 65536, 0, &h) || gdr_map(own, h, &map, 65536) ||
	    gdr_unmap(own, h, map, 65536) || gdr_unpin_buffer(own, h))
		return 1;
	return gdr_close(own);
}

static int mapped;

static void map_now(void)
{
	mapped += maps() ? 100 : 1;
}

/* A handler registered before the library's runs while the library holds its locks. */
static void handlers_that_map(void)
{
	int in_child;

#ifdef __SANITIZE_THREAD__
	SKIP("the sanitizer does not know that no other thread runs during the handlers");
#endif
	standin_start();
	addr = standin_alloc(65536);
	ck_assert_int_eq(pthread_atfork(map_now, map_now, NULL), 0);
	for (int i = 0; i < 2; i++) /* the stand-in closes its ends of dma-bufs at the next one */
		ck_assert_int_eq(maps(), 0);
	in_child = resources_fds();
	alarm(20);
	for (int i = 1; i <= 3; i++) {
		ck_assert_int_eq(unit_in_child(child_counts, &in_child), 0);
		ck_assert_int_eq(mapped, 2 * i);
	}
	alarm(0);
}

static _Atomic int reached;

static void *cancelled(void *arg)
{
	(void)arg;
	pthread_cancel(pthread_self());
	atomic_store(&reached, maps() ? 100 : 1);
	pthread_testcancel();
	atomic_store(&reached, 1000);
	return NULL;
}

/* A cancelled thread ends after the call and holds no lock of the library. */
static void cancellation(void)
{
	pthread_t thread;
	void *result;

	standin_start();
	addr = standin_alloc(65536);
	ck_assert_int_eq(maps(), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, cancelled, NULL), 0);
	pthread_join(thread, &result);
	ck_assert_int_eq(atomic_load(&reached), 1);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_int_eq(maps(), 0);
}

/* To load a library may be a point of cancellation. */
static void cancel_here(void)
{
	pthread_testcancel();
	wrap_before("dlopen", cancel_here);
}

static void *cancelled_while_loading(void *arg)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) };
	barcopy_mem_t mem;

	wrap_reset();
	wrap_before("dlopen", cancel_here);
	pthread_cancel(pthread_self());
	if (unit_row)
		(void)barcopy_mem_import(NULL, 0, STDERR_FILENO, 65536, BARCOPY_MEM_DMABUF, &mem);
	else
		(void)barcopy_get_bar_info(0, &info);
	atomic_store(&reached, 1);
	return arg;
}

/* Calls without a context hold no lock either. */
static void cancellation_while_loading(void)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) };
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, cancelled_while_loading, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(atomic_load(&reached), 1);
	OK(barcopy_get_bar_info(0, &info));
}

/* ---- forks while another thread holds a lock ----------------------------- */

static sem_t inside, go_on;
static atomic_bool stopped;

static void stop_here(void)
{
	atomic_store(&stopped, true);
	sem_post(&inside);
	sem_wait(&go_on);
}

static int opens(void *arg)
{
	gdr_t own = barcopy_open(BARCOPY_OPEN_ANY);

	(void)arg;
	return own ? gdr_close(own) : 1;
}

static void *runs_into(void *rc)
{
	wrap_reset();
	wrap_before(unit_arg, stop_here);
	*(int *)rc = opens(NULL);
	sem_post(&inside); /* the call was not made */
	return NULL;
}

/* SIGALRM ends a child that deadlocks. */
static int with_alarm(void *run)
{
	alarm(20);
	return (*(int (**)(void *))run)(NULL);
}

/* A thread that opens holds the lock in the call that unit_arg names. */
static void fork_inside(void)
{
	int (*child)(void *) = opens;
	int rc = -1;

	ck_assert_int_eq(sem_init(&inside, 0, 0), 0);
	ck_assert_int_eq(sem_init(&go_on, 0, 0), 0);
	OK(gdri_process_enter());
	unit_start(1, runs_into, &rc, 0);
	sem_wait(&inside);
	ck_assert_int_eq(unit_in_child(with_alarm, &child), 0);
	sem_post(&go_on);
	unit_join();
	ck_assert_int_eq(rc, 0);
	ck_assert(atomic_load(&stopped));
}

static int none(void *arg)
{
	return arg != NULL;
}

static void *forks(void *ends)
{
	unit_in_child(none, NULL);
	sem_post(ends);
	return NULL;
}

/* Whether a fork waits for this thread. */
static void fork_waits(void)
{
	unit_start(1, forks, &inside, 0);
	atomic_store(&stopped, unit_blocks() && sem_trywait(&inside));
}

/* A child would inherit what is mapped and not yet MADV_DONTFORK: a mapping, a ring, the blocks. */
static void fork_between(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_read_min = 1 };
	static struct gdri_cuda_pages *pages; /* reachable for LeakSanitizer */
	gdr_mh_t h;
	void *map;

	start();
	ck_assert_int_eq(sem_init(&inside, 0, 0), 0);
	OK(gdr_pin_buffer_v2(g, standin_alloc(65536), 65536, 0, &h));
	if (unit_row)
		OK(gdr_map(g, h, &map, 65536));
	wrap_reset();
	wrap_before("mmap", fork_waits);
	if (unit_row == 0)
		OK(gdr_map(g, h, &map, 65536));
	else if (unit_row == 1)
		OK(gdri_cuda_take_pages(0, 1 << 20, &pages));
	else
		OK(barcopy_set_copy_options(h, &o));
	unit_join();
	ck_assert(atomic_load(&stopped));
	if (unit_row == 1)
		gdri_cuda_give_pages(pages);
	end_now();
}

/* A handle of a region without memory. */
static int pins(gdr_t own, gdr_mh_t *h)
{
	static const struct gdri_backend none = { .name = "none", .id = BARCOPY_BACKEND_HOST };
	static struct gdri_region region = { .pin = { .backend = &none, .mapped_size = 65536 },
					     .kind = &gdri_kind_cached };
	struct gdri_ctx *ctx;
	int rc = gdri_ctx_get(own, &ctx);

	if (rc)
		return 1;
	rc = gdri_handle_new(ctx, &region, 0, 65536, h);
	gdri_ctx_put(ctx, 0);
	return rc != 0;
}

static int uses_tables(void *arg)
{
	gdr_t own = barcopy_open(BARCOPY_OPEN_ANY);
	barcopy_cache_t cache;
	gdr_mh_t h;

	(void)arg;
	if (!own || pins(own, &h) || barcopy_cache_create(own, NULL, &cache) ||
	    barcopy_cache_trim(cache, 0))
		return 1;
	gdri_slots_free(&gdri_entries,
			gdri_slots_new(&gdri_entries, sizeof(struct gdri_entry), NULL));
	return gdr_close(own) ? 2 : 0;
}

/* At the fork each table's lock is held, and locks of objects in free slots, where a late put may be. */
static void tables(void)
{
	struct gdri_slots *const all[] = { &gdri_handles, &gdri_caches, &gdri_entries };
	int (*run)(void *) = uses_tables;
	struct gdri_handle *handle;
	struct gdri_cache *cache;
	barcopy_cache_t c;
	gdr_mh_t h;
	gdr_t own;

	gdri_slots_free(&gdri_entries,
			gdri_slots_new(&gdri_entries, sizeof(struct gdri_entry), NULL));
	own = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_ptr_nonnull(own);
	ck_assert_int_eq(pins(own, &h), 0);
	OK(barcopy_cache_create(own, NULL, &c));
	handle = (struct gdri_handle *)gdri_slots_find(&gdri_handles, h.h);
	cache = (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)c);
	ck_assert(handle && cache);
	OK(gdr_close(own));
	for (size_t i = 0; i < COUNT(all); i++)
		pthread_mutex_lock(&all[i]->lock);
	pthread_mutex_lock(&handle->lock);
	pthread_mutex_lock(&cache->lock);
	pthread_mutex_lock(&cache->ending); /* a late put */
	ck_assert_int_eq(unit_in_child(with_alarm, &run), 0);
	pthread_mutex_unlock(&cache->ending);
	pthread_mutex_unlock(&cache->lock);
	pthread_mutex_unlock(&handle->lock);
	for (size_t i = 0; i < COUNT(all); i++)
		pthread_mutex_unlock(&all[i]->lock);
	ck_assert_int_eq(uses_tables(NULL), 0);
}

/* ---- CUDA's contexts ----------------------------------------------------- */

static int uses_cuda(void *arg)
{
	(void)arg;
	standin_load();
	for (int i = 0; i < 2; i++) {
		gdr_t own = barcopy_open(BARCOPY_OPEN_ANY);
		barcopy_mem_t mem;

		if (!own || barcopy_mem_alloc(own, 0, 4096, 0, &mem) ||
		    barcopy_mem_free(own, &mem) || gdr_close(own))
			return 1;
		if (cuda_hooks.calls("cuDevicePrimaryCtxRetain") !=
		    cuda_hooks.calls("cuDevicePrimaryCtxRelease"))
			return 2;
	}
	return 0;
}

static int releases_nothing(void *arg)
{
	unsigned long before = cuda_hooks.calls("cuDevicePrimaryCtxRelease");
	gdr_t own = barcopy_open(BARCOPY_OPEN_ANY);

	(void)arg;
	return !own || gdr_close(own) || cuda_hooks.calls("cuDevicePrimaryCtxRelease") != before;
}

/* A child retains primary contexts of its own and releases them with its last gdr_close(). */
static void primary_contexts(void)
{
	gdr_t own = barcopy_open(BARCOPY_OPEN_ANY);
	barcopy_mem_t mem;

	ck_assert_ptr_nonnull(own);
	ck_assert_int_eq(unit_in_child(uses_cuda, NULL), 0);
	OK(gdr_close(own));
	ck_assert_int_eq(uses_cuda(NULL), 0);
	own = barcopy_open(BARCOPY_OPEN_ANY);
	OK(barcopy_mem_alloc(own, 0, 4096, 0, &mem));
	ck_assert_int_eq(unit_in_child(releases_nothing, NULL), 0); /* the parent's is kept */
	OK(barcopy_mem_free(own, &mem));
	OK(gdr_close(own));
}

/* ---- children that end by exit(), after each call that asks CUDA --------- */

static struct {
	CUdeviceptr memory;
	barcopy_cache_t cache;
	barcopy_mem_t mem;
	barcopy_region_t region;
	barcopy_queue_t queue;
	gdr_mh_t pin, range;
	void *map;
	char bytes[4096];
} asks;

static int opens_any(void)
{
	g = open_any();
	return 0;
}

static int pins_and_maps(void)
{
	return gdr_pin_buffer(g, asks.memory, CHUNK, 0, 0, &asks.pin)
		       ?: gdr_map(g, asks.pin, &asks.map, CHUNK);
}

static int copies_by_the_engine(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = 1,
				     .engine_write_min = 1 };

	return barcopy_set_copy_options(asks.pin, &o)
		       ?: gdr_copy_from_mapping(asks.pin, asks.bytes, asks.map, sizeof(asks.bytes));
}

static int maps_a_range(void)
{
	void *cpu;

	return barcopy_map_range(g, asks.memory, 8, 0, &cpu, &asks.range);
}

static int hits(void)
{
	return barcopy_cache_create(g, NULL, &asks.cache) ?:
	       barcopy_cache_get(asks.cache, asks.memory, 8, &asks.region) ?:
	       barcopy_cache_put(asks.cache, &asks.region) ?:
	       barcopy_cache_get(asks.cache, asks.memory, 8, &asks.region) ?:
	       barcopy_cache_put(asks.cache, &asks.region) ?:
	       barcopy_cache_trim(asks.cache, 0);
}

static int allocates(void)
{
	return barcopy_mem_alloc(g, 0, CHUNK, BARCOPY_MEM_SHAREABLE, &asks.mem);
}

static int exports_and_imports(void)
{
	barcopy_mem_t mem;
	int fd, rc = barcopy_mem_export(g, &asks.mem, &fd);

	rc = rc ?: barcopy_mem_import(g, 0, fd, CHUNK, 0, &mem) ?: barcopy_mem_free(g, &mem);
	close(fd);
	return rc;
}

static int tells(void)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) };
	uint64_t value;
	int major;

	return barcopy_get_bar_info(0, &info) ?:
	       gdr_driver_get_version(g, &major, &major) ?:
	       gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &major) ?:
	       barcopy_get_handle_attribute(g, asks.pin, BARCOPY_HANDLE_ATTR_DEVICE, &value);
}

/* A wait asks each 100 ms whether the context works. */
static int waits_in_a_queue(void)
{
	return barcopy_queue_create(g, 0, NULL, &asks.queue)
		       ?: barcopy_queue_receive(asks.queue, asks.bytes, 48, NULL, 300000000) !=
				  ETIMEDOUT;
}

static int ends_a_queue(void)
{
	return barcopy_queue_destroy(asks.queue);
}

static int ends_all(void)
{
	return barcopy_mem_free(g, &asks.mem) ?:
	       barcopy_unmap_range(g, asks.range) ?:
	       gdr_unpin_buffer(g, asks.pin) ?:
	       gdr_close(g);
}

/*
 * libcuda's exit handlers run in the child too. LeakSanitizer's would find what the child has
 * forgotten, which is its parent's: its row turns that off.
 */
static void children_exit(void)
{
	static int (*const calls[])(void) = {
		opens_any, pins_and_maps, copies_by_the_engine, maps_a_range,	  hits,
		allocates, tells,	  exports_and_imports,	waits_in_a_queue, ends_a_queue,
		ends_all,
	};

	standin_start();
	asks.memory = standin_alloc(CHUNK);
	for (size_t i = 0; i < COUNT(calls); i++) {
		int status;
		pid_t child;

		OK(calls[i]());
		child = fork();
		if (!child)
			exit(0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(!status, "after call %zu a child ended with 0x%x", i, status);
	}
}

static const struct unit_test tests[] = {
	{ "children that exit", children_exit,
	  "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0" },
	{ "dma-bufs of pins", dmabufs, "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "owned descriptors", owned, "" },
	{ "descriptors that the program has closed", closed_by_the_program, "" },
	{ "handlers that map", handlers_that_map,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "cancellation while a library is loaded", cancellation_while_loading, "", .rows = 2 },
	{ "cancellation", cancellation, "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "inside the table of contexts", fork_inside, "GDRCOPY_BACKEND=host", "aligned_alloc" },
	{ "while libcuda is loaded", fork_inside, "GDRCOPY_BACKEND=host", "dlopen" },
	{ "between mmap and madvise", fork_between,
	  "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030", .rows = 3 },
	{ "primary contexts", primary_contexts, "" },
	{ "other tables locked", tables, "GDRCOPY_BACKEND=host" },
};

UNIT_MAIN("fork", tests)
