/* SPDX-License-Identifier: MIT */
/*
 * Memory that is freed, and mappings that end, while somebody still holds a pointer: persistent
 * mappings keep their data until the unpin, others are revoked and fault.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "sanity/sanity.h"
#include "sanity/tests.h"

#define KIB ((size_t)1024)

static const uint64_t token = 0x0123456789abcdef;

/* Free and access are undefined for memory that is nothing but the allocation itself. */
static void not_on_host(void)
{
	if (sanity_is_host())
		sanity_waive("memory of the CPU: the pointer is the allocation's own, nothing is "
			     "pinned or mapped");
}

static void make_marked(struct buffer *b)
{
	sanity_make(b, 128 * KIB);
	OK(gdr_copy_to_mapping(b->mh, b->cpu, &token, sizeof(token)));
	OK(barcopy_flush(b->mh));
}

/* What must hold once the memory of a mapped buffer is freed. */
static void check_freed(const struct buffer *b)
{
	uint64_t seen = 0;
	int flag = -1;

	OK(gdr_get_callback_flag(b->g, b->mh, &flag));
	CHECK(flag == !sanity.facts.persistent, "the callback flag is %d after the free", flag);
	if (sanity.facts.persistent) {
		OK(gdr_copy_from_mapping(b->mh, &seen, b->cpu, sizeof(seen)));
		SAME("after the free of the memory", &token, &seen, sizeof(seen));
	} else {
		sanity_must_fault(b->cpu, "after the free");
		sanity_must_fault(b->cpu + b->mem.size - 1, "of the last byte after the free");
	}
}

static void access_after_free(void)
{
	struct buffer b, other;
	int flag = -1;

	not_on_host();
	make_marked(&b);
	OK(gdr_get_callback_flag(b.g, b.mh, &flag));
	CHECK(flag == 0, "the callback flag is %d before the free", flag);
	mem_free(&b.mem);
	check_freed(&b);
	/* new memory is not the old one while that is pinned */
	sanity_make(&other, 128 * KIB);
	sanity_round_trip(&other, 1);
	check_freed(&b);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	OK(gdr_unpin_buffer(b.g, b.mh));
	sanity_round_trip(&other, 2);
	sanity_unmake(&other);
}

static void free_one_of_two(void)
{
	struct buffer b, other;

	not_on_host();
	make_marked(&b);
	make_marked(&other);
	mem_free(&b.mem);
	check_freed(&b);
	sanity_round_trip(&other, 1);
	OK(gdr_unpin_buffer(b.g, b.mh));
	sanity_round_trip(&other, 2);
	sanity_unmake(&other);
}

static void unmap_after_free(void)
{
	struct buffer b;

	not_on_host();
	make_marked(&b);
	mem_free(&b.mem);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	EXPECT(gdr_unmap(b.g, b.mh, b.map, b.map_size), EINVAL);
	OK(gdr_unpin_buffer(b.g, b.mh));
	EXPECT(gdr_unpin_buffer(b.g, b.mh), EINVAL);
}

static void unpin_after_free(void)
{
	uint64_t seen;
	struct buffer b;

	not_on_host();
	make_marked(&b);
	mem_free(&b.mem);
	OK(gdr_unpin_buffer(b.g, b.mh)); /* while mapped */
	EXPECT(gdr_copy_from_mapping(b.mh, &seen, b.cpu, sizeof(seen)), EINVAL);
	/* and never mapped */
	make_marked(&b);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	mem_free(&b.mem);
	OK(gdr_unpin_buffer(b.g, b.mh));
}

static void close_after_free(void)
{
	struct buffer b;

	not_on_host();
	make_marked(&b);
	mem_free(&b.mem);
	OK(gdr_close(sanity.g));
	sanity_must_fault(b.cpu, "after the free and the close");
	sanity.g = buffer_open_library();
	make_marked(&b);
	sanity_unmake(&b);
}

static void map_after_free(void)
{
	uint64_t seen = 0;
	struct buffer b;
	void *map;
	int rc;

	not_on_host();
	make_marked(&b);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	mem_free(&b.mem);
	rc = gdr_map(b.g, b.mh, &map, b.map_size);
	if (!sanity.facts.persistent)
		EXPECT(rc, EINVAL);
	sanity_note("a map after the free: %s", rc ? barcopy_last_error() : "gives the old data");
	if (!rc) {
		uint8_t *p = (uint8_t *)map + (b.cpu - (uint8_t *)b.map);

		OK(gdr_copy_from_mapping(b.mh, &seen, p, sizeof(seen)));
		SAME("mapped after the free of the memory", &token, &seen, sizeof(seen));
	}
	OK(gdr_unpin_buffer(b.g, b.mh));
}

static void access_after_unmap(void)
{
	uint64_t seen;
	struct buffer b;

	not_on_host();
	make_marked(&b);
	OK(gdr_unmap(b.g, b.mh, b.map, b.map_size));
	sanity_must_fault(b.cpu, "after the unmap");
	EXPECT(gdr_copy_from_mapping(b.mh, &seen, b.cpu, sizeof(seen)), EINVAL);
	OK(gdr_unpin_buffer(b.g, b.mh));
	mem_free(&b.mem);
}

/* A close with live pins and mappings cleans up; the memory itself is not touched by it. */
static void access_after_close(void)
{
	uint64_t seen = 0;
	struct buffer b;
	int flag;

	make_marked(&b);
	OK(gdr_close(sanity.g));
	EXPECT(gdr_copy_from_mapping(b.mh, &seen, b.cpu, sizeof(seen)), EINVAL);
	EXPECT(gdr_get_callback_flag(b.g, b.mh, &flag), EINVAL);
	EXPECT(gdr_unpin_buffer(b.g, b.mh), EINVAL);
	if (!sanity_is_host())
		sanity_must_fault(b.cpu, "after the close");
	sanity_gpu_read(&seen, b.mem.dptr, sizeof(seen));
	SAME("read by CUDA after the close", &token, &seen, sizeof(seen));
	mem_free(&b.mem);
	sanity.g = buffer_open_library();
}

static bool notice_now(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	CHECK(poll(&p, 1, 0) >= 0, "poll of the event descriptor fails");
	return p.revents & POLLPRI;
}

static void notice(void)
{
	gdr_mh_t told = { 0 };
	struct buffer b;
	bool revoked;
	int fd = -1, rc;

	not_on_host();
	rc = barcopy_get_event_fd(sanity.g, &fd);
	if (rc)
		EXPECT(rc, ENOTSUP);
	sanity_note("an event descriptor: %s", rc ? barcopy_last_error() : "yes");
	revoked = !sanity.facts.persistent;
	make_marked(&b);
	EXPECT(barcopy_next_revoked(sanity.g, &told), ENOENT);
	CHECK(rc || !notice_now(fd), "notice before anything is freed");
	mem_free(&b.mem);
	CHECK(rc || notice_now(fd) == revoked, "%s notice after the free", revoked ? "no" : "a");
	if (revoked) {
		OK(barcopy_next_revoked(sanity.g, &told));
		CHECK(told.h == b.mh.h, "told of another handle than the one revoked");
	}
	EXPECT(barcopy_next_revoked(sanity.g, &told), ENOENT);
	OK(gdr_unpin_buffer(b.g, b.mh));
	CHECK(rc || !notice_now(fd), "notice after the unpin");
	if (!rc)
		close(fd);
	EXPECT(barcopy_get_event_fd(sanity.g, NULL), EINVAL);
	EXPECT(barcopy_next_revoked(sanity.g, NULL), EINVAL);
}

const struct sanity_test sanity_invalidation[] = {
	{ "access_after_free", "memory freed under its mapping", access_after_free, false },
	{ "free_one_of_two", "two mappings, the memory of one freed", free_one_of_two, false },
	{ "map_after_free", "memory freed between pin and map", map_after_free, false },
	{ "unmap_after_free", "free, then unmap, then unpin", unmap_after_free, false },
	{ "unpin_after_free", "free, then unpin", unpin_after_free, false },
	{ "close_after_free", "free, then close", close_after_free, false },
	{ "access_after_unmap", "the pointer after gdr_unmap()", access_after_unmap, false },
	{ "access_after_close", "pointer and handle after gdr_close()", access_after_close, false },
	{ "notice", "notice of revoked ranges", notice, false },
	{ NULL, NULL, NULL, false },
};
