// SPDX-License-Identifier: MIT
/*
 * Vectors over several handles, and posted lines, on the stand-ins: the bytes, what is refused, and
 * that nothing is moved then.
 */
#include "fixture.h"

enum { HANDLES = 3, LENGTH = 65536, PIECES = 200 };

/* Two mappings of GPU memory, one read-only, and host memory with another mapping type. */
static struct {
	gdr_mh_t h[HANDLES], read_only, not_mapped;
	uint8_t *map[HANDLES], *read_only_map;
} st;

static void start_handles(void)
{
	void *va;

	start();
	for (int i = 0; i < HANDLES; i++) {
		uint64_t addr =
			i < 2 ? standin_alloc(LENGTH) : (uintptr_t)standin_host_alloc(LENGTH, 0);

		OK(gdr_pin_buffer_v2(g, addr, LENGTH, 0, &st.h[i]));
		OK(gdr_map(g, st.h[i], &va, LENGTH));
		st.map[i] = va;
	}
	OK(barcopy_map_range(g, standin_alloc(LENGTH), LENGTH, BARCOPY_MAP_RANGE_READ_ONLY, &va,
			     &st.read_only));
	st.read_only_map = va;
	OK(gdr_pin_buffer_v2(g, standin_alloc(LENGTH), LENGTH, 0, &st.not_mapped));
}

static void fill(uint8_t *bytes, size_t size, unsigned int seed)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(i * 31 + i / 256 * 7 + seed);
}

static void same_bytes(void)
{
	static uint8_t host[PIECES * 512], want[HANDLES][LENGTH];
	barcopy_handle_seg_t v[PIECES] = { 0 };
	unsigned long long seed = 7;

	for (int round = 0; round < 40; round++) {
		size_t kinds = round % 3 + 1; /* one type of mapping, or several */

		for (int i = 0; i < HANDLES; i++) {
			fill(want[i], LENGTH, (unsigned int)(round + i));
			OK(gdr_copy_to_mapping(st.h[i], st.map[i], want[i], LENGTH));
		}
		fill(host, sizeof(host), (unsigned int)round + 100);
		for (size_t i = 0; i < PIECES; i++) {
			size_t which = unit_random(&seed) % kinds, at = 320 * i;

			v[i].handle = st.h[which];
			v[i].seg.map_ptr = st.map[which] + at + unit_random(&seed) % 60;
			v[i].seg.host_ptr = host + 512 * i + unit_random(&seed) % 60;
			v[i].seg.size = unit_random(&seed) % 4 ? unit_random(&seed) % 250 : 8;
			v[i].seg.flags = unit_random(&seed) % 9 ? 0 : BARCOPY_COPY_ORDERED;
			memcpy(want[which] + ((uint8_t *)v[i].seg.map_ptr - st.map[which]),
			       v[i].seg.host_ptr, v[i].seg.size);
		}
		OK(barcopy_copyv_to_mappings(v, PIECES, 0));
		for (int i = 0; i < HANDLES; i++)
			ck_assert_mem_eq(st.map[i], want[i], LENGTH);
		memset(host, 0, sizeof(host));
		OK(barcopy_copyv_from_mappings(v, PIECES, 0));
		for (size_t i = 0; i < PIECES; i++)
			ck_assert_mem_eq(v[i].seg.host_ptr, v[i].seg.map_ptr, v[i].seg.size);
	}
	OK(barcopy_copyv_to_mappings(NULL, 0, 0));
}

/* One piece of four is refused, and none is copied. */
static void refused(void)
{
	uint8_t host[64], before[64], *map = st.map[0];
	gdr_mh_t mapped = st.h[0];
	const barcopy_handle_seg_t bad[] = {
		{ mapped, { map + 64, host, 64, .flags = 2 } },
		{ mapped, { map + 64, host, 64, .reserved = 1 } },
		{ mapped, { st.map[1], host, 64, 0, 0 } }, /* another handle's */
		{ mapped, { map + LENGTH - 63, host, 64, 0, 0 } },
		{ mapped, { map + 64, NULL, 64, 0, 0 } },
		{ { 12345 }, { map + 64, host, 64, 0, 0 } },
		{ st.not_mapped, { map + 64, host, 64, 0, 0 } },
	};

	for (size_t wrong = 0; wrong < COUNT(bad); wrong++) {
		barcopy_handle_seg_t v[4];

		for (int i = 0; i < HANDLES; i++)
			v[i] = (barcopy_handle_seg_t){ st.h[i],
						       { st.map[i] + 64, host, 64, 0, 0 } };
		v[3] = bad[wrong];
		fill(host, 64, 1);
		memcpy(before, st.map[0] + 64, 64);
		FAILS(EINVAL, barcopy_copyv_to_mappings(v, 4, 0));
		ck_assert_mem_eq(st.map[0] + 64, before, 64);
		FAILS(EINVAL, barcopy_copyv_from_mappings(v, 4, 0));
		fill(before, 64, 1);
		ck_assert_mem_eq(host, before, 64);
		FAILS(EINVAL, barcopy_copyv_from_mappings(v, 3, 4));
		FAILS(EINVAL, barcopy_copyv_from_mappings(NULL, 1, 0));
		OK(barcopy_copyv_from_mappings(v, 3, BARCOPY_COPY_NO_FENCE));
		v[2].handle = st.read_only;
		v[2].seg.map_ptr = st.read_only_map;
		OK(barcopy_copyv_from_mappings(v, 3, 0));
		FAILS(EACCES, barcopy_copyv_to_mappings(v, 3, 0));
		OK(barcopy_flush(st.read_only));
	}
}

static void lines(void)
{
	uint8_t message[128];

	for (unsigned int i = 0; i < 300; i++) {
		int which = (int)(i % HANDLES);
		uint8_t *at = st.map[which] + 64 * (i % 50);

		fill(message, sizeof(message), i);
		OK(barcopy_post_line(st.h[which], at, message + i % 64));
		OK(barcopy_fence(st.h[which], BARCOPY_FENCE_FULL));
		ck_assert_mem_eq(at, message + i % 64, 64);
	}
	FAILS(EINVAL, barcopy_post_line(st.h[0], st.map[0] + 8, message));
	FAILS(EINVAL, barcopy_post_line(st.h[0], st.map[0] + LENGTH, message));
	FAILS(EINVAL, barcopy_post_line(st.h[0], st.map[0], NULL));
	FAILS(EACCES, barcopy_post_line(st.read_only, st.read_only_map, message));
	FAILS(EINVAL, barcopy_post_line((gdr_mh_t){ 0 }, st.map[0], message));
}

static const struct unit_test tests[] = {
	{ "several handles: the same bytes", same_bytes, "" },
	{ "several handles: all or nothing", refused, "" },
	{ "posted lines", lines, "" },
	{ "posted lines, any CPU", lines, "GDRCOPY_CPU_MASK=sse2" },
};

UNIT_MAIN("copies: handles and lines", tests, unit_before = start_handles, unit_after = end)
