// SPDX-License-Identifier: MIT
/* barcopy_get_event_fd() and barcopy_next_revoked(), on the stand-in of the node. */
#include <fcntl.h>
#include <poll.h>

#include "barcopy_queue.h"
#include "common/wrap.h"
#include "node_sim.h"

static bool is_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	return poll(&p, 1, 0) == 1 && p.revents == POLLPRI;
}

static void test_events(void)
{
	uint64_t at[4];
	gdr_mh_t h[4], told, other;
	unsigned int seen = 0;
	int fd, second, flag, in = dup(0);

	node_open("2.6", "0");
	for (int i = 0; i < 4; i++) {
		at[i] = standin_alloc(2 * MIB);
		OK(gdr_pin_buffer(g, at[i], 2 * MIB, 0, 0, &h[i]));
	}
	OK(barcopy_get_event_fd(g, &fd));
	ck_assert(!is_ready(fd));
	told.h = 42;
	FAILS(ENOENT, barcopy_next_revoked(g, &told));
	ck_assert_uint_eq(told.h, 42);

	CU(cuda.cuMemFree_v2(at[0]));
	CU(cuda.cuMemFree_v2(at[2]));
	ck_assert(is_ready(fd));
	/* Reading the flag, even twice, leaves the event. */
	for (int i = 0; i < 2; i++) {
		OK(gdr_get_callback_flag(g, h[0], &flag));
		ck_assert_int_eq(flag, 1);
	}
	node.faults(NULL);
	OK(barcopy_next_revoked(g, &told));
	OK(barcopy_next_revoked(g, &other));
	/* Both events take one round of questions, without the pin that is known to be revoked. */
	ck_assert_uint_eq(node.calls("GET_CB_FLAG"), 3);
	FAILS(ENOENT, barcopy_next_revoked(g, &other));
	for (int i = 0; i < 4; i++)
		seen |= (unsigned int)(told.h == h[i].h || other.h == h[i].h) << i;
	ck_assert_uint_eq(seen, 5);
	ck_assert_uint_eq(stats_of(g).revoked, 2); /* each once */

	OK(gdr_unpin_buffer(g, h[0]));
	ck_assert(is_ready(fd));
	OK(gdr_unpin_buffer(g, h[2]));
	ck_assert(!is_ready(fd));
	OK(gdr_unpin_buffer(g, h[1]));
	OK(gdr_unpin_buffer(g, h[3]));
	FAILS(ENOENT, barcopy_next_revoked(g, &other));
	/* Each descriptor is new, the caller's, close-on-exec. A signal interrupts poll(). */
	wrap_reset();
	wrap_fail("poll", 1, EINTR);
	close(0);
	OK(barcopy_get_event_fd(g, &second));
	ck_assert_int_eq(second, 0);
	ck_assert_str_eq(wrap_failed(), "poll");
	wrap_reset();
	wrap_fail("poll", 1, ENOMEM);
	FAILS_WITH(ENOTSUP, "poll of /dev/gdrdrv: Cannot allocate", barcopy_get_event_fd(g, &(int){ -1 }));
	wrap_reset();
	ck_assert_int_ne(second, fd);
	ck_assert_int_eq(fcntl(second, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(close(fd), 0);
	OK(gdr_pin_buffer(g, at[1], 2 * MIB, 0, 0, &h[1]));
	CU(cuda.cuMemFree_v2(at[1]));
	ck_assert(is_ready(second));
	end_now();
	ck_assert_int_ne(fcntl(second, F_GETFD), -1);
	ck_assert(!is_ready(second));
	ck_assert_int_eq(close(second), 0);
	dup2(in, 0);
	close(in);
	FAILS(EINVAL, barcopy_get_event_fd(g, &fd));
	FAILS(EINVAL, barcopy_next_revoked(g, &other));
}

/* A new pin in the place of a revoked one, which was reported, is reported too. */
static void test_events_place_used_again(void)
{
	uint32_t place = 0;

	node_open("2.6", "0");
	for (int i = 0; i < 3; i++) {
		uint64_t at = standin_alloc(2 * MIB);
		gdr_mh_t h, told;

		OK(gdr_pin_buffer(g, at, 2 * MIB, 0, 0, &h));
		ck_assert(!place || (uint32_t)h.h == place);
		place = (uint32_t)h.h;
		FAILS(ENOENT, barcopy_next_revoked(g, &told));
		CU(cuda.cuMemFree_v2(at));
		OK(barcopy_next_revoked(g, &told));
		ck_assert_uint_eq(told.h, h.h);
		OK(gdr_unpin_buffer(g, h));
	}
	ck_assert_uint_eq(stats_of(g).revoked, 3);
}

/* Without poll() in the driver there is no descriptor, but barcopy_next_revoked() works. */
static void test_events_no_poll(void)
{
	gdr_mh_t h, told;
	int fd = 42;

	node_env("GDRSIM_NODE_POLL", "0");
	node_open("2.5", "0");
	FAILS_WITH(ENOTSUP, "cannot be polled for revoked ranges", barcopy_get_event_fd(g, &fd));
	ck_assert_int_eq(fd, 42);
	OK(gdr_pin_buffer(g, base, 2 * MIB, 0, 0, &h));
	CU(cuda.cuMemFree_v2(base));
	OK(barcopy_next_revoked(g, &told));
	ck_assert_uint_eq(told.h, h.h);
	FAILS(ENOENT, barcopy_next_revoked(g, &told));
	FAILS(EINVAL, barcopy_get_event_fd(g, NULL));
	FAILS(EINVAL, barcopy_next_revoked(g, NULL));
}

static void test_events_other_backends(void)
{
	gdr_mh_t told;
	int fd;

	node_env("GDRSIM_NODE", "absent");
	g = open_any();
	FAILS_WITH(ENOTSUP, "no range is ever revoked", barcopy_get_event_fd(g, &fd));
	FAILS(ENOENT, barcopy_next_revoked(g, &told));
}

/*
 * Regions that a cache keeps: idle ones are released and not told of; one in use is, once, and the
 * last put releases it. A cache's handle is nobody's to unpin.
 */
static void test_events_cached(void)
{
	uint64_t at[4], seen = 0;
	barcopy_region_t region, other, idle;
	barcopy_cache_t cache;
	gdr_mh_t told, own;
	int fd;

	node_open("2.6", "0");
	OK(barcopy_get_event_fd(g, &fd));
	cache = cache_with(g, BARCOPY_CACHE_NOTIFIED, 0);
	for (int i = 0; i < 4; i++)
		at[i] = standin_alloc(2 * MIB);
	OK(gdr_pin_buffer(g, at[0], 2 * MIB, 0, 0, &own));
	OK(barcopy_cache_get(cache, at[0] + 100, 8, &region));
	OK(barcopy_cache_put(cache, &region));
	CU(cuda.cuMemFree_v2(at[0]));
	ck_assert(is_ready(fd));
	OK(barcopy_next_revoked(g, &told)); /* after the idle region */
	ck_assert_uint_eq(told.h, own.h);
	FAILS(ENOENT, barcopy_next_revoked(g, &told));
	OK(gdr_unpin_buffer(g, own));
	ck_assert(!is_ready(fd));
	ck_assert_uint_eq(node.pins(), 0);

	OK(gdr_pin_buffer(g, at[2], 2 * MIB, 0, 0, &own));
	OK(barcopy_cache_get(cache, at[2], 8, &region));
	OK(barcopy_cache_get(cache, at[2], 8, &other));
	FAILS(EINVAL, gdr_unpin_buffer(g, region.handle));
	FAILS_WITH(EINVAL, "barcopy_cache_put",
		   gdr_unmap(g, region.handle, region.cpu_ptr, 2 * MIB));
	OK(gdr_copy_from_mapping(region.handle, &seen, region.cpu_ptr, 8));
	for (int i = 1; i < 4; i += 2) {
		OK(barcopy_cache_get(cache, at[i], 8, &idle));
		OK(barcopy_cache_put(cache, &idle));
	}
	CU(cuda.cuMemFree_v2(at[2]));
	OK(barcopy_next_revoked(g, &told));
	ck_assert(told.h == own.h || told.h == region.handle.h);
	OK(barcopy_next_revoked(g, &told));
	ck_assert(told.h == own.h || told.h == region.handle.h);
	FAILS(ENOENT, barcopy_next_revoked(g, &told));
	OK(gdr_unpin_buffer(g, own));
	OK(barcopy_cache_put(cache, &region));
	ck_assert(is_ready(fd));
	OK(barcopy_cache_put(cache, &other));
	ck_assert(!is_ready(fd));
	ck_assert_uint_eq(node.pins(), 2); /* below and above what was freed */
	FAILS(ENOENT, barcopy_next_revoked(g, &told));
}

/* A reset of the device revokes the memory of a queue and of a port, whose handles are nobody's. */
static void test_events_queues(void)
{
	barcopy_port_message_t m;
	barcopy_queue_t queue;
	barcopy_port_t port;
	barcopy_mem_t mem;
	gdr_mh_t told;
	uint32_t n;
	int fd;

	node_open("2.6", "0");
	OK(barcopy_get_event_fd(g, &fd));
	OK(barcopy_queue_create(g, 0, NULL, &queue));
	OK(barcopy_port_create(g, 0, NULL, &port));
	OK(barcopy_mem_alloc(g, 0, 4096, 0, &mem));
	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	ck_assert(is_ready(fd));
	OK(barcopy_next_revoked(g, &told));
	ck_assert_uint_eq(told.h, mem.handle.h);
	FAILS(ENOENT, barcopy_next_revoked(g, &told));
	/* Another's handle, which the next numbers give. */
	for (mem.handle.h = told.h - 2; mem.handle.h < told.h; mem.handle.h++) {
		FAILS_WITH(EINVAL, "barcopy_port_destroy", barcopy_mem_free(g, &mem));
		FAILS_WITH(EINVAL, "barcopy_port_destroy", gdr_unpin_buffer(g, mem.handle));
	}
	OK(barcopy_mem_free(g, &mem));
	FAILS(EPIPE, barcopy_port_receive(port, &m, 1, &n, UINT64_MAX));
	OK(barcopy_port_destroy(port));
	ck_assert(is_ready(fd));
	OK(barcopy_queue_destroy(queue));
	ck_assert(!is_ready(fd));
	ck_assert_int_eq(close(fd), 0);
}

static const struct unit_test tests[] = {
	{ "events", test_events },
	{ "events place used again", test_events_place_used_again },
	{ "events no poll", test_events_no_poll },
	{ "events other backends", test_events_other_backends },
	{ "events cached", test_events_cached },
	{ "events queues", test_events_queues },
};

UNIT_MAIN("events", tests, node_start(argv))
