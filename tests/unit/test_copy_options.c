// SPDX-License-Identifier: MIT
/*
 * barcopy_set_copy_options() on the stand-ins: arguments, failures when they are set, and what is left
 * behind. The copy engine's own tests are in test_copy_engine.c.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "common/resources.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "options_sim.h"

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
	FAILS(EINVAL, barcopy_set_copy_options(m.h, &longer.o));
	o.struct_size--;
	FAILS(EINVAL, barcopy_set_copy_options(m.h, &o));
	o.struct_size = 0;
	FAILS(EINVAL, barcopy_set_copy_options(m.h, &o));
	o.struct_size = sizeof(o);
	o.flags = 1;
	FAILS(EINVAL, barcopy_set_copy_options(m.h, &o));
	o.flags = 0;
	o.reserved = 1;
	FAILS(EINVAL, barcopy_set_copy_options(m.h, &o));
	FAILS(EINVAL, barcopy_set_copy_options((gdr_mh_t){ 0 }, &o));
	FAILS(EINVAL, barcopy_set_copy_options((gdr_mh_t){ ~0ul }, &o));
	OK(gdr_unpin_buffer(m.g, m.h));
	o.reserved = 0;
	FAILS(EINVAL, barcopy_set_copy_options(m.h, &o));
	close_mapped(&m);
}

/* Options last over the handle's mappings, and may be set before the first. */
static void over_mappings(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(gdr_unpin_buffer(m.g, m.h));
	OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &m.h));
	OK(set(&m, 4096, 4096));
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
	OK(set(&m, 4096, 0));
	both_ways(&m, 5, 5000);
	check_counts(&m, 1, 0);
	resources_look(&before);
	cuda_hooks.set_fail("cuStreamCreate:*=2");
	FAILS(ENOMEM, set(&m, 1, 1));
	cuda_hooks.set_fail("cuCtxPushCurrent:*=201");
	FAILS(EINVAL, set(&m, 1, 1));
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
		FAILS(ENOMEM, set(&m, 4096, 0));
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

	open_mapped(&m);
	OK(set(&m, 4096, 0)); /* a page of words for the device stays */
	resources_look(&before);
	for (int i = 0; i < 20; i++)
		OK(set(&m, i % 2 ? 4096 : 0, i % 3 ? 4096 : 0));
	OK(set(&m, 4096, 4096));
	both_ways(&m, 0, BIG);
	OK(gdr_unmap(m.g, m.h, m.p, SIZE));
	OK(barcopy_set_copy_options(m.h, NULL));
	map_now(&m);
	resources_look(&after);
	ck_assert_msg(!resources_differ(&before, &after), "%s", resources_differ(&before, &after));
	close_mapped(&m);
}

static void host_memory(void)
{
	struct mapped m;
	uint8_t *memory;
	void *va;

	open_mapped(&m);
	OK(gdr_unpin_buffer(m.g, m.h));
	memory = standin_host_alloc(SIZE, 0);
	OK(gdr_pin_buffer_v2(m.g, (unsigned long)(uintptr_t)memory, SIZE, 0, &m.h));
	OK(gdr_map(m.g, m.h, &va, SIZE));
	FAILS(ENOTSUP, set(&m, 1, 0));
	FAILS(ENOTSUP, set(&m, 0, 1));
	OK(set(&m, 0, 0));
	OK(gdr_copy_to_mapping(m.h, (uint8_t *)va + 3, buf, BIG));
	OK(gdr_copy_from_mapping(m.h, got, (uint8_t *)va + 3, BIG));
	ck_assert_int_eq(memcmp(got, buf, BIG), 0);
	close_mapped(&m);
}

/* What was set for a handle is nothing to the next one at its place. */
static void place_used_again(void)
{
	struct mapped m;
	gdr_mh_t former;

	open_mapped(&m);
	OK(set(&m, 4096, 4096));
	former = m.h;
	OK(gdr_unpin_buffer(m.g, m.h));
	OK(gdr_pin_buffer_v2(m.g, m.v.ptr, SIZE, 0, &m.h));
	ck_assert_uint_eq((uint32_t)m.h.h, (uint32_t)former.h);
	map_now(&m);
	both_ways(&m, 3, 5000);
	check_counts(&m, 0, 0);
	close_mapped(&m);
}

static struct mapped wrong;

static void map_twice(void)
{
	open_mapped(&wrong);
	OK(gdr_unmap(wrong.g, wrong.h, wrong.p, SIZE));
	map_now(&wrong);
}

/* A variable with nonsense in it: logged once, and ignored. One that has no meaning is not read. */
static void wrong_environment(void)
{
	const char *text = "GDRCOPY_COPY_IMPL names no implementation";
	const char *first = strstr(unit_stderr_of(map_twice), text);

	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "GDRCOPY_COPY_IMPL"));
	both_ways(&wrong, 1, BIG);
	close_mapped(&wrong);
}

static int in_child(void *arg)
{
	struct mapped *m = arg;

	if (gdr_copy_to_mapping(m->h, m->p, buf, BIG) != EACCES)
		return 1;
	return set(m, 4096, 4096) != EACCES || barcopy_set_copy_options(m->h, NULL) != EACCES;
}

static void forked_child(void)
{
	struct mapped m;

	open_mapped(&m);
	OK(set(&m, 4096, 4096));
	ck_assert_int_eq(unit_in_child(in_child, &m), 0);
	both_ways(&m, 1, BIG);
	check_counts(&m, 2, 0);
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
	OK(set(&m, 4096, 4096));
	for (size_t i = 0; i < COUNT(user); i++) {
		user[i] = (struct user){ .m = &m, .at = (i << 20) + 5 * i };
		ck_assert_int_eq(pthread_create(&user[i].thread, NULL, use, &user[i]), 0);
	}
	for (size_t i = 0; i < COUNT(user); i++) {
		pthread_join(user[i].thread, NULL);
		ck_assert_int_eq(user[i].wrong, 0);
	}
	close_mapped(&m);
}

static const struct unit_test tests[] = {
	{ "arguments", arguments, "" },
	{ "options over several mappings", over_mappings, "" },
	{ "CUDA fails when options are set", failures_of_setting, "" },
	{ "no memory for options", no_memory, "" },
	{ "nothing is left", leaves_nothing, "" },
	{ "host memory", host_memory, "" },
	{ "a handle's place used again", place_used_again, "" },
	{ "wrong environment", wrong_environment,
	  "GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=3 GDRCOPY_COPY_THREADS=lots GDRCOPY_COPY_IMPL=best" },
	{ "a forked child", forked_child, "" },
	{ "several threads", several_threads, "GDRSIM_ASYNC_DELAY_US=20" },
};

UNIT_MAIN("copy options", tests)
