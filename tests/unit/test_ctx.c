// SPDX-License-Identifier: MIT
/*
 * Contexts and handles: stale, doubled and invented names, names of another context; a close with
 * live pins, with unpins that fail. Where a backend has to misbehave, a fake one is pinned by hand.
 * Threads that close are scenarios of tests/explore, a child's calls are a step of tests/model.
 */
#include <pthread.h>
#include <sched.h>

#include "core/ctx.h"
#include "base/error.h"
#include "core/handle.h"
#include "fixture.h"

/* ---- a backend that does as it is told ----------------------------------- */

static int unpins, unmaps;
static int unpin_result, unmap_result;

static int fake_unpin(struct gdri_pin *pin)
{
	(void)pin;
	unpins++;
	return unpin_result ? gdri_fail(unpin_result, "unpin was told to fail") : 0;
}

static int fake_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	(void)wish;
	pin->map = (void *)(uintptr_t)0x10000;
	pin->copy_start = 0x10000;
	pin->copy_end = 0x20000;
	return 0;
}

static int fake_unmap(struct gdri_pin *pin)
{
	(void)pin;
	unmaps++;
	return unmap_result ? gdri_fail(unmap_result, "unmap was told to fail") : 0;
}

static int failing_flag(struct gdri_pin *pin, int *flag)
{
	(void)pin;
	*flag = 99;
	return gdri_fail(EIO, "the flag was told to fail");
}

static struct gdri_backend fake = {
	.name = "fake",
	.id = BARCOPY_BACKEND_GDRDRV,
	.unpin = fake_unpin,
	.map = fake_map,
	.unmap = fake_unmap,
	.callback_flag = failing_flag,
};

static gdr_t opened(void)
{
	gdr_t own;

	setenv("GDRCOPY_BACKEND", "host", 1);
	own = gdr_open();
	ck_assert_msg(own != NULL, "%s", barcopy_last_error());
	return own;
}

static gdr_mh_t fake_pin(gdr_t own)
{
	struct gdri_region *region = calloc(1, sizeof(*region));
	struct gdri_ctx *ctx;
	gdr_mh_t h;

	region->pin = (struct gdri_pin){ .backend = &fake,
					 .va = 0x70000,
					 .mapped_size = 65536,
					 .page_size = 65536,
					 .device = -1,
					 .type = GDR_MAPPING_TYPE_WC };
	region->kind = &gdri_kind_pin;
	OK(gdri_ctx_get(own, &ctx));
	OK(gdri_handle_new(ctx, region, 0x70000, 0x80000, &h));
	gdri_ctx_put(ctx, 0);
	return h;
}

static void start_host(void)
{
	g = opened();
}

/* ---- names --------------------------------------------------------------- */

/* Every call with an invalid handle, on a valid context. */
static void handle_refused(gdr_t in, gdr_mh_t h, int err)
{
	gdr_info_t info;
	uint64_t value = 7;
	void *va = &va;
	int v = 7;

	FAILS(err, gdr_get_callback_flag(in, h, &v));
	FAILS(err, gdr_get_info(in, h, &info));
	FAILS(err, gdr_map(in, h, &va, 4096));
	FAILS(err, gdr_unmap(in, h, va, 4096));
	FAILS(err, barcopy_get_handle_attribute(in, h, BARCOPY_HANDLE_ATTR_BACKEND, &value));
	FAILS(err, gdr_unpin_buffer(in, h));
	ck_assert_int_eq(v, 7);
	ck_assert_uint_eq(value, 7);
	ck_assert_ptr_eq(va, &va);
}

/* Every call on an invalid context leaves its outputs alone. */
static void all_refuse(gdr_t in, gdr_mh_t h, int err)
{
	gdr_info_t info, before;
	int major = 7, minor = 7, v = 7;
	void *va = &va;
	gdr_mh_t out = { 77 };

	memset(&info, 0x5a, sizeof(info));
	before = info;
	FAILS(err, gdr_driver_get_version(in, &major, &minor));
	FAILS(err, gdr_get_attribute(in, GDR_ATTR_USE_PERSISTENT_MAPPING, &v));
	FAILS(err, gdr_pin_buffer(in, 0x10000, 4096, 0, 0, &out));
	FAILS(err, gdr_pin_buffer_v2(in, 0x10000, 4096, 0, &out));
	handle_refused(in, h, err);
	FAILS(err, gdr_get_info(in, h, &info));
	FAILS(err, gdr_map_v2(in, h, &va, 4096, 0));
	FAILS(err, gdr_close(in));
	ck_assert_int_eq(major, 7);
	ck_assert_int_eq(minor, 7);
	ck_assert_int_eq(v, 7);
	ck_assert_uint_eq(out.h, 77);
	ck_assert_ptr_eq(va, &va);
	ck_assert_int_eq(memcmp(&info, &before, sizeof(info)), 0);
}

/* Invented names of contexts: every call is EINVAL and writes no output. */
static void invented_contexts(void)
{
	uintptr_t name = (uintptr_t)g;
	uintptr_t wrong[] = { 0,
			      1,
			      ~(uintptr_t)0,
			      name + 1,
			      name + (1ULL << 32),
			      name + (2ULL << 32),
			      name ^ 1ULL << 63,
			      name & 0xffffffff,
			      0x7fffff00 };
	gdr_mh_t h = fake_pin(g);

	for (size_t i = 0; i < COUNT(wrong); i++)
		all_refuse((gdr_t)wrong[i], h, EINVAL);
	ck_assert_int_eq(unpins, 0);
	OK(gdr_close(g));
	ck_assert_int_eq(unpins, 1);
	all_refuse(g, h, EINVAL);
	g = NULL;
}

/* Invented names of handles: the same. */
static void invented_handles(void)
{
	gdr_mh_t h = fake_pin(g);
	gdr_t own;
	unsigned long wrong[] = { 0,
				  1,
				  ~0UL,
				  h.h + 1,
				  h.h + (1UL << 32),
				  h.h + (2UL << 32),
				  h.h ^ 1UL << 63,
				  h.h & 0xffffffff,
				  0xdeadbeef,
				  (unsigned long)g };

	for (size_t i = 0; i < COUNT(wrong); i++) {
		gdr_mh_t w = { wrong[i] };

		if (w.h == h.h) /* the first context may have the name of the first handle */
			continue;
		handle_refused(g, w, EINVAL);
		copies_refused(w, (void *)(uintptr_t)0x10000, EINVAL);
	}
	copies_refused(h, (void *)(uintptr_t)0x10000, EINVAL); /* not mapped */
	FAILS_WITH(EINVAL, "size 65537 is not in 1 .. 65536",
		   gdr_map(g, h, &(void *){ NULL }, 65537));
	/* Nor is it a handle of another context. */
	own = opened();
	ck_assert_ptr_ne(own, g);
	handle_refused(own, h, EINVAL);
	OK(gdr_close(own));
	ck_assert_int_eq(unpins, 0);
}

static void stale_and_doubled(void)
{
	gdr_mh_t h = fake_pin(g), next;
	void *map;

	OK(gdr_map(g, h, &map, 65536));
	OK(gdr_unpin_buffer(g, h));
	ck_assert_int_eq(unmaps, 1);
	FAILS(EINVAL, gdr_unpin_buffer(g, h)); /* doubled */
	ck_assert_int_eq(unpins, 1);
	handle_refused(g, h, EINVAL);
	copies_refused(h, map, EINVAL);
	/* The slot is used again: the old name does not reach the new pin. */
	next = fake_pin(g);
	ck_assert_uint_eq((uint32_t)next.h, (uint32_t)h.h);
	OK(gdr_map(g, next, &map, 65536));
	handle_refused(g, h, EINVAL);
	copies_refused(h, map, EINVAL);
	ck_assert_int_eq(unpins, 1);
	OK(gdr_close(g));
	FAILS(EINVAL, gdr_close(g));
	copies_refused(next, map, EINVAL);
	g = NULL;
}

/* ---- closing ------------------------------------------------------------- */

/* Whatever fails, everything is released, and the first failure is returned. */
static void close_always_finishes(void)
{
	gdr_mh_t h[10];
	void *map;

	for (size_t i = 0; i < COUNT(h); i++) {
		h[i] = fake_pin(g);
		if (i % 2)
			OK(gdr_map(g, h[i], &map, 4096));
	}
	unpin_result = EIO;
	unmap_result = ENOMEM;
	FAILS(ENOMEM, gdr_close(g)); /* the last pin, which is mapped, is released first */
	ck_assert_int_eq(unpins, 10);
	ck_assert_int_eq(unmaps, 5);
	all_refuse(g, h[0], EINVAL);
	for (size_t i = 0; i < COUNT(h); i++)
		copies_refused(h[i], map, EINVAL);
	unpin_result = unmap_result = 0;
	g = opened();
	fake_pin(g);
}

static struct gdri_ctx *inside; /* a call that has it ends when a close waits the third time */
static int waits;

/* Replaces the C library's. POSIX allows a wait to return for no reason: each one does. */
int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	(void)cond;
	pthread_mutex_unlock(mutex);
	sched_yield();
	if (++waits == 3 && inside)
		gdri_ctx_put(inside, 0);
	return pthread_mutex_lock(mutex);
}

static int wakes; /* of a close that waits for `inside` */

int pthread_cond_signal(pthread_cond_t *cond)
{
	if (inside && cond == &inside->idle)
		wakes++;
	return 0;
}

/* A close waits for the calls of its context, however often it is woken before they end. */
static void close_waits_for_calls(void)
{
	struct gdri_ctx *second;

	OK(gdri_ctx_get(g, &inside));
	OK(gdri_ctx_get(g, &second));
	gdri_ctx_put(second, 0);
	ck_assert_int_eq(wakes, 0); /* the first call is at work */
	waits = 0;
	end_now();
	ck_assert_int_eq(waits, 3);
	ck_assert_int_eq(wakes, 1);
}

/* An output stays as it is; a handle ends all the same. */
static void failures_of_a_backend(void)
{
	gdr_mh_t h = fake_pin(g);
	uint64_t device = 7;
	int flag = 7;
	void *map;

	FAILS(EIO, gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 7);
	FAILS(ENOTSUP, barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_DEVICE, &device));
	ck_assert_uint_eq(device, 7);
	OK(gdr_map(g, h, &map, 4096));
	unpin_result = EIO;
	FAILS(EIO, gdr_unpin_buffer(g, h));
	ck_assert_str_eq(barcopy_last_error(), "unpin was told to fail");
	FAILS(EINVAL, gdr_unpin_buffer(g, h));
	ck_assert_int_eq(unpins, 1);
}

static int opens_in_place(void *of_parent)
{
	pthread_cond_t fresh;
	struct gdri_ctx *ctx;

	memset(&fresh, 0, sizeof(fresh));
	pthread_cond_init(&fresh, NULL);
	g = opened();
	OK(gdri_ctx_get(g, &ctx));
	ck_assert_ptr_eq(ctx, of_parent);
	ck_assert_mem_eq(&ctx->idle, &fresh, sizeof(fresh));
	ck_assert_int_eq(pthread_mutex_trylock(&ctx->ranges_lock), 0);
	pthread_mutex_unlock(&ctx->ranges_lock);
	gdri_ctx_put(ctx, 0);
	end_now();
	return 0;
}

/* A child opens a context in a place whose locks another thread of the parent held at the fork. */
static void locks_of_a_child(void)
{
	struct gdri_ctx *ctx;

	OK(gdri_ctx_get(g, &ctx));
	gdri_ctx_put(ctx, 0);
	end_now();
	pthread_mutex_lock(&ctx->lock);
	pthread_mutex_lock(&ctx->ranges_lock);
	memset(&ctx->idle, 0x55, sizeof(ctx->idle));
	ck_assert_int_eq(unit_in_child(opens_in_place, ctx), 0);
}

/* A context that could not be opened leaves its place in the table. */
static void failed_opens(void)
{
	gdr_t first = gdr_open(), again;

	ck_assert_ptr_nonnull(first);
	OK(gdr_close(first));
	setenv("GDRCOPY_BACKEND", "nothing", 1);
	for (int i = 0; i < 10; i++)
		FAILS(EINVAL, gdr_open() ? 0 : errno);
	unsetenv("GDRCOPY_BACKEND");
	again = gdr_open();
	ck_assert_ptr_nonnull(again);
	ck_assert_uint_eq((uint32_t)(uintptr_t)again, (uint32_t)(uintptr_t)first);
	OK(gdr_close(again));
}

static const struct unit_test tests[] = {
	{ "invalid contexts", invented_contexts, "" },
	{ "contexts that cannot be opened", failed_opens, "" },
	{ "invalid handles", invented_handles, "" },
	{ "stale and doubled handles", stale_and_doubled, "" },
	{ "gdr_close always finishes", close_always_finishes, "" },
	{ "the locks of a child", locks_of_a_child, "" },
	{ "a close waits for calls", close_waits_for_calls, "" },
	{ "a backend's failures", failures_of_a_backend, "" },
};

UNIT_MAIN("contexts and handles", tests, unit_before = start_host, unit_after = end)
