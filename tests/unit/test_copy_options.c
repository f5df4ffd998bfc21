// SPDX-License-Identifier: MIT
/*
 * barcopy_set_copy_options() and GDRCOPY_COPY_THREADS on the stand-ins: arguments, failures when they
 * are set, threads that are there only when asked for, and what is left behind. The copy engine's own
 * are in test_copy_engine.c.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/again.h"
#include "common/resources.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "copy/pool.h"
#include "options_sim.h"

static int tasks(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static void *own_task(void *arg)
{
	*(long *)arg = syscall(SYS_gettid);
	return NULL;
}

/*
 * Before any thread of the library's; a sanitizer's own comes with the first thread of all. That one is
 * joined before it has left the list: who counts it waits for a task too many ever after.
 */
static int tasks_at_first(void)
{
	pthread_t thread;
	char path[64];
	long task;

	ck_assert_int_eq(pthread_create(&thread, NULL, own_task, &task), 0);
	pthread_join(thread, NULL);
	snprintf(path, sizeof(path), "/proc/self/task/%ld", task);
	while (!access(path, F_OK))
		usleep(1000);
	return tasks();
}

/*
 * Threads that have ended may still be listed for a while, and how long is the machine's affair: there is
 * no end to this but the test's own, which is against hangs.
 */
static void tasks_become(int n)
{
	for (int i = 1; tasks() != n; i++) {
		if (i % 5000 == 0)
			fprintf(stderr, "%d tasks where %d are waited for\n", tasks(), n);
		usleep(1000);
	}
}

static void arguments(void)
{
	struct {
		barcopy_copy_options_t o;
		uint64_t later;
	} longer = { .o = { .struct_size = sizeof(longer) } };
	barcopy_copy_options_t o = { .struct_size = sizeof(o) };
	struct mapped m;

	open_mapped(&m);
	OK(barcopy_set_copy_options(m.h, &o));
	OK(barcopy_set_copy_options(m.h, NULL));
	OK(barcopy_set_copy_options(m.h, &longer.o));
	longer.later = 1;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &longer.o), EINVAL);
	o.struct_size--;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	o.struct_size = 0;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	o.struct_size = sizeof(o);
	o.flags = 1;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	o.flags = 0;
	o.threads = 65;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	ck_assert_int_eq(barcopy_set_copy_options((gdr_mh_t){ 0 }, &o), EINVAL);
	ck_assert_int_eq(barcopy_set_copy_options((gdr_mh_t){ ~0ul }, &o), EINVAL);
	OK(gdr_unpin_buffer(m.g, m.h));
	o.threads = 0;
	ck_assert_int_eq(barcopy_set_copy_options(m.h, &o), EINVAL);
	close_mapped(&m);
}

/* Options last over the handle's mappings, and may be set before the first, whatever the environment says. */
static void over_mappings(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(gdr_unpin_buffer(m.g, m.h));
	OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &m.h));
	OK(set(&m, 1, 4096, 4096));
	map_now(&m);
	both_ways(&m, 3, 5000);
	check_counts(&m, 2, 0);
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	map_now(&m);
	both_ways(&m, 3, 5000);
	check_counts(&m, 4, 0);
	close_mapped(&m);
}

static void failures_of_setting(void)
{
	struct resources before, after;
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 1, 4096, 0));
	both_ways(&m, 5, 5000);
	check_counts(&m, 1, 0);
	resources_look(&before);
	cuda_hooks.set_fail("cuStreamCreate:*=2");
	ck_assert_int_eq(set(&m, 3, 1, 1), ENOMEM);
	cuda_hooks.set_fail("cuCtxPushCurrent:*=201");
	ck_assert_int_eq(set(&m, 3, 1, 1), EINVAL);
	cuda_hooks.set_fail(NULL);
	resources_look(&after);
	ck_assert_msg(!resources_differ(&before, &after), "%s", resources_differ(&before, &after));
	/* All is as before. */
	both_ways(&m, 5, 5000);
	check_counts(&m, 2, 0);
	close_mapped(&m);
}

/* The first and the second allocation of memory fail. */
static void no_memory(void)
{
	struct mapped m;

	open_mapped(&m);
	for (unsigned long nth = 1; nth <= 2; nth++) {
		wrap_reset();
		wrap_fail("calloc", nth, ENOMEM);
		ck_assert_int_eq(set(&m, 0, 4096, 0), ENOMEM);
		wrap_reset();
		wrap_fail("calloc", nth, ENOMEM);
		ck_assert_int_eq(set(&m, 2, 0, 0), ENOMEM);
	}
	wrap_reset();
	both_ways(&m, 5, BIG);
	close_mapped(&m);
}

/* Set and forgotten many times: nothing is left. */
static void leaves_nothing(void)
{
	struct resources before, after;
	struct mapped m;
	int before_tasks = tasks_at_first();

	open_mapped(&m);
	resources_look(&before);
	for (int i = 0; i < 20; i++)
		OK(set(&m, (uint32_t)i % 4, i % 2 ? 4096 : 0, i % 3 ? 4096 : 0));
	OK(set(&m, 3, 4096, 4096));
	both_ways(&m, 0, BIG);
	tasks_become(before_tasks + 2);
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	OK(barcopy_set_copy_options(m.h, NULL));
	map_now(&m);
	resources_look(&after);
	ck_assert_msg(!resources_differ(&before, &after), "%s", resources_differ(&before, &after));
	tasks_become(before_tasks);
	close_mapped(&m);
}

static void host_memory(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .threads = 2 };
	struct mapped m;
	uint8_t *memory;
	void *va;

	open_mapped(&m);
	OK(gdr_unpin_buffer(m.g, m.h));
	memory = standin_host_alloc(SIZE, 0);
	OK(gdr_pin_buffer_v2(m.g, (unsigned long)(uintptr_t)memory, SIZE, 0, &m.h));
	OK(gdr_map(m.g, m.h, &va, SIZE));
	ck_assert_int_eq(set(&m, 1, 1, 0), ENOTSUP);
	ck_assert_int_eq(set(&m, 1, 0, 1), ENOTSUP);
	OK(barcopy_set_copy_options(m.h, &o));
	OK(gdr_copy_to_mapping(m.h, (uint8_t *)va + 3, buf, BIG));
	OK(gdr_copy_from_mapping(m.h, got, (uint8_t *)va + 3, BIG));
	ck_assert_int_eq(memcmp(got, buf, BIG), 0);
	close_mapped(&m);
}

static void no_threads_unasked(void)
{
	int before = tasks_at_first();
	struct mapped m;

	open_mapped(&m);
	both_ways(&m, 1, BIG);
	OK(set(&m, 1, 0, 0));
	both_ways(&m, 1, BIG);
	tasks_become(before);
	close_mapped(&m);
}

/* GDRCOPY_COPY_THREADS=3: two workers for all handles; 1 in the options is one thread still. */
static void threads_by_environment(void)
{
	int before = tasks_at_first();
	struct mapped m;
	gdr_mh_t other;
	void *va;

	open_mapped(&m);
	tasks_become(before + 2);
	OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &other));
	OK(gdr_map(m.g, other, &va, SIZE));
	tasks_become(before + 2);
	both_ways(&m, 1, BIG);
	OK(gdr_unpin_buffer(m.g, other));
	tasks_become(before + 2);
	OK(set(&m, 1, 0, 0));
	tasks_become(before);
	OK(barcopy_set_copy_options(m.h, NULL));
	tasks_become(before + 2);
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	OK(gdr_unpin_buffer(m.g, m.h));
	tasks_become(before);
	close_mapped(&m);
}

/* The GPU's NUMA node is looked up where the system tells it, for a pool of its own; no file stays open. */
static void near_the_gpu(void)
{
	int before = tasks_at_first(), fds;
	char path[] = "/tmp/numa_node.XXXXXX";
	FILE *file = fdopen(mkstemp(path), "w");
	struct gdri_copy_pool *pool;
	struct mapped m;

	ck_assert_ptr_nonnull(file);
	fputs("0\n", file);
	fclose(file);
	open_mapped(&m);
	wrap_reset();
	wrap_instead("/sys/bus/pci/devices/", path);
	fds = resources_fds();
	OK(set(&m, 3, 0, 0));
	ck_assert_int_eq(resources_fds(), fds);
	wrap_reset();
	tasks_become(before + 2);
	OK(gdri_copy_pool_get(&pool, 3, 0));
	tasks_become(before + 2); /* the same one */
	gdri_copy_pool_put(pool);
	OK(set(&m, 1, 0, 0));
	tasks_become(before);
	unlink(path);
	close_mapped(&m);
}

/* What was set for a handle is nothing to who comes to its place. */
static void place_used_again(void)
{
	int before = tasks_at_first();
	struct mapped m;
	gdr_mh_t former;

	open_mapped(&m);
	for (int i = 0; i < 2; i++) {
		tasks_become(before + 2);
		OK(set(&m, 1, 0, 0));
		tasks_become(before);
		former = m.h;
		OK(gdr_unpin_buffer(m.g, m.h));
		OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &m.h));
		ck_assert_uint_eq((uint32_t)m.h.h, (uint32_t)former.h);
		map_now(&m);
	}
	tasks_become(before + 2);
	close_mapped(&m);
}

static char logged[4096];

static void take_log(void *arg, barcopy_log_level_t level, const char *message)
{
	(void)arg;
	if (level >= BARCOPY_LOG_WARN)
		snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", message);
}

/* The most threads that may be asked for, and one more; and none. */
static void most_threads(void)
{
	int before = tasks_at_first();
	struct mapped m;

	barcopy_set_log_fn(take_log, NULL);
	open_mapped(&m);
	ck_assert_str_eq(logged, "");
	tasks_become(before + 63);
	OK(set(&m, 1, 0, 0));
	tasks_become(before);
	OK(set(&m, 64, 0, 0));
	tasks_become(before + 63);
	barcopy_set_log_fn(NULL, NULL);
	close_mapped(&m);
}

static void threads_out_of_range(void)
{
	int before = tasks_at_first();
	struct mapped m;

	barcopy_set_log_fn(take_log, NULL);
	open_mapped(&m);
	ck_assert_ptr_nonnull(strstr(logged, "GDRCOPY_COPY_THREADS is not in"));
	tasks_become(before);
	barcopy_set_log_fn(NULL, NULL);
	close_mapped(&m);
}

/* Every variable with nonsense in it: said once, and ignored. */
static void wrong_environment(void)
{
	int before = tasks_at_first();
	struct mapped m;
	const char *first;

	barcopy_set_log_fn(take_log, NULL);
	open_mapped(&m);
	first = strstr(logged, "GDRCOPY_COPY_IMPL names no implementation");
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "GDRCOPY_COPY_IMPL"));
	ck_assert_ptr_nonnull(strstr(logged, "GDRCOPY_COPY_THREADS is not in"));
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	map_now(&m);
	ck_assert_ptr_null(strstr(first + 1, "GDRCOPY_COPY_IMPL"));
	both_ways(&m, 1, BIG);
	tasks_become(before);
	barcopy_set_log_fn(NULL, NULL);
	close_mapped(&m);
}

/* Without the workers, the engine's failure leaves the caller alone; with them, it does not. */
static void engine_then_threads(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 3, 4096, 4096));
	both_ways(&m, 7, BIG);
	check_counts(&m, 2, 0);
	cuda_hooks.set_fail("cuStreamSynchronize:*=700");
	OK(gdr_copy_to_mapping(m.h, m.p + 1, buf + 9, BIG));
	OK(gdr_copy_from_mapping(m.h, got, m.p + 1, BIG));
	cuda_hooks.set_fail(NULL);
	ck_assert_int_eq(memcmp(got, buf + 9, BIG), 0);
	check_counts(&m, 2, 2);
	close_mapped(&m);
}

static int in_child(void *arg)
{
	struct mapped *m = arg;
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .threads = 3 };

	if (tasks() != 1)
		return 1;
	if (gdr_copy_to_mapping(m->h, m->p, buf, BIG) != EACCES)
		return 2;
	if (barcopy_set_copy_options(m->h, &o) != EACCES ||
	    barcopy_set_copy_options(m->h, NULL) != EACCES)
		return 3;
	return tasks() == 1 ? 0 : 4;
}

static void forked_child(void)
{
	struct mapped m;

	if (test_emulator_lacks("a forked child has no threads", "it has threads of its own"))
		return;
	open_mapped(&m);
	OK(set(&m, 3, 0, 0));
	both_ways(&m, 1, BIG);
	ck_assert_int_eq(unit_in_child(in_child, &m), 0);
	both_ways(&m, 1, BIG);
	close_mapped(&m);
}

struct user {
	pthread_t thread;
	struct mapped *m;
	size_t at;
	int wrong;
};

/* A thread without a context: its copies go by the engine all the same, or are right without. */
static void *use(void *arg)
{
	struct user *u = arg;
	uint8_t *mine = malloc(1 << 20);

	for (int i = 0; mine && i < (unit_quick() ? 5 : 30); i++) {
		u->wrong += gdr_copy_to_mapping(u->m->h, u->m->p + u->at, buf + i, 1 << 20) != 0;
		u->wrong += gdr_copy_from_mapping(u->m->h, mine, u->m->p + u->at, 1 << 20) != 0;
		u->wrong += memcmp(mine, buf + i, 1 << 20) != 0;
	}
	u->wrong += !mine;
	free(mine);
	return NULL;
}

static void several_threads(void)
{
	struct user user[4];
	struct mapped m;

	open_mapped(&m);
	for (int round = 0; round < 2; round++) {
		OK(set(&m, round ? 3 : 1, round ? 0 : 4096, round ? 0 : 4096));
		for (size_t i = 0; i < COUNT(user); i++) {
			user[i] = (struct user){ .m = &m, .at = (i << 20) + 5 * i };
			ck_assert_int_eq(pthread_create(&user[i].thread, NULL, use, &user[i]), 0);
		}
		for (size_t i = 0; i < COUNT(user); i++) {
			pthread_join(user[i].thread, NULL);
			ck_assert_int_eq(user[i].wrong, 0);
		}
	}
	close_mapped(&m);
}

static const struct unit_test tests[] = {
	{ "arguments", arguments, "" },
	{ "options over several mappings", over_mappings, "" },
	{ "options before the first mapping, and an environment", over_mappings,
	  "GDRCOPY_COPY_THREADS=3" },
	{ "CUDA fails when options are set", failures_of_setting, "" },
	{ "no memory for options", no_memory, "" },
	{ "nothing is left", leaves_nothing, "" },
	{ "host memory", host_memory, "" },
	{ "no threads unless asked for", no_threads_unasked, "" },
	{ "threads by environment", threads_by_environment, "GDRCOPY_COPY_THREADS=3" },
	{ "near the GPU", near_the_gpu, "" },
	{ "a handle's place used again", place_used_again, "GDRCOPY_COPY_THREADS=3" },
	{ "64 threads", most_threads, "GDRCOPY_COPY_THREADS=64" },
	{ "65 threads", threads_out_of_range, "GDRCOPY_COPY_THREADS=65" },
	{ "0 threads", threads_out_of_range, "GDRCOPY_COPY_THREADS=0" },
	{ "wrong environment", wrong_environment,
	  "GDRCOPY_COPY_THREADS=lots GDRCOPY_COPY_IMPL=best" },
	{ "copy engine, then threads", engine_then_threads, "" },
	{ "a forked child has no threads", forked_child, "" },
	{ "several threads", several_threads, "GDRSIM_ASYNC_DELAY_US=20" },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "copy options", tests, COUNT(tests));
}
