/* SPDX-License-Identifier: MIT */
/*
 * The library's other calls on a mapping, its reports, and what it refuses on this machine; what
 * it refuses anywhere is in tests/unit/test_api.c.
 */
#include <errno.h>
#include <string.h>

#include "common/copytest.h"
#include "sanity/sanity.h"

/* Direct loads and stores of every size that gdr_map() allows. */
static void pointer(void)
{
	uint8_t expect[15], seen[15];
	struct buffer b;

	sanity_make(&b, 64 * KIB);
	copytest_random(expect, sizeof(expect), 1);
	memset(seen, 0, sizeof(seen));
	sanity_gpu_write(b.mem.dptr, seen, sizeof(seen));

#define STORE(type, at)                                        \
	do {                                                   \
		type v_;                                       \
		memcpy(&v_, expect + (at), sizeof(v_));        \
		*(volatile type *)(void *)(b.cpu + (at)) = v_; \
	} while (0)
#define LOAD(type, at)                                              \
	do {                                                        \
		type v_ = *(volatile type *)(void *)(b.cpu + (at)); \
		memcpy(seen + (at), &v_, sizeof(v_));               \
	} while (0)
	STORE(uint64_t, 0);
	STORE(uint32_t, 8);
	STORE(uint16_t, 12);
	STORE(uint8_t, 14);
	OK(barcopy_flush(b.mh));
	sanity_gpu_read(seen, b.mem.dptr, sizeof(seen));
	SAME("stored through the pointer", expect, seen, sizeof(seen));

	copytest_random(expect, sizeof(expect), 2);
	sanity_gpu_write(b.mem.dptr, expect, sizeof(expect));
	OK(barcopy_fence(b.mh, BARCOPY_FENCE_BEFORE_READ));
	LOAD(uint64_t, 0);
	LOAD(uint32_t, 8);
	LOAD(uint16_t, 12);
	LOAD(uint8_t, 14);
	SAME("loaded through the pointer", expect, seen, sizeof(seen));
#undef STORE
#undef LOAD
	sanity_unmake(&b);
}

static void words(void)
{
	uint64_t v64 = 0, in64 = 0x0123456789abcdef;
	uint32_t v32 = 0, in32 = 0x89abcdef;
	struct buffer b;

	sanity_make(&b, 64 * KIB);
	OK(barcopy_put64(b.mh, b.cpu + 64, in64));
	OK(barcopy_put32(b.mh, b.cpu + 4, in32));
	OK(barcopy_flush(b.mh));
	sanity_gpu_read(&v64, b.mem.dptr + 64, 8);
	SAME("barcopy_put64", &in64, &v64, 8);
	sanity_gpu_read(&v32, b.mem.dptr + 4, 4);
	SAME("barcopy_put32", &in32, &v32, 4);
	OK(barcopy_get64(b.mh, b.cpu + 64, &v64));
	SAME("barcopy_get64", &in64, &v64, 8);
	OK(barcopy_get32(b.mh, b.cpu + 4, &v32));
	SAME("barcopy_get32", &in32, &v32, 4);
	OK(barcopy_wait64(b.mh, b.cpu + 64, BARCOPY_CMP_EQ, in64, UINT64_MAX));
	OK(barcopy_wait32(b.mh, b.cpu + 4, BARCOPY_CMP_GE, in32, 0));
	FAILS(ETIMEDOUT, barcopy_wait64(b.mh, b.cpu + 64, BARCOPY_CMP_NE, in64, 0));
	FAILS(ETIMEDOUT, barcopy_wait32(b.mh, b.cpu + 4, BARCOPY_CMP_LT, in32, 1000000));
	for (int use = BARCOPY_FENCE_BEFORE_READ; use <= BARCOPY_FENCE_FULL; use++)
		OK(barcopy_fence(b.mh, (barcopy_fence_t)use));
	sanity_unmake(&b);
}

static void vectors(void)
{
	enum { PIECES = 5, PIECE = 777, STEP = 1001 };
	uint8_t in[PIECES][PIECE], out[PIECES][PIECE];
	barcopy_copy_seg_t to[PIECES], from[PIECES];
	struct buffer b;

	sanity_make(&b, 64 * KIB);
	for (size_t i = 0; i < PIECES; i++) {
		copytest_random(in[i], PIECE, i);
		to[i] = (barcopy_copy_seg_t){ .map_ptr = b.cpu + i * STEP,
					      .host_ptr = in[i],
					      .size = PIECE,
					      .flags = i == PIECES - 1 ? BARCOPY_COPY_ORDERED : 0 };
		from[i] = (barcopy_copy_seg_t){ .map_ptr = b.cpu + i * STEP,
						.host_ptr = out[i],
						.size = PIECE };
	}
	OK(barcopy_copyv_to_mapping(b.mh, to, PIECES, 0));
	for (size_t i = 0; i < PIECES; i++) {
		sanity_gpu_read(out[i], b.mem.dptr + i * STEP, PIECE);
		SAME("a piece written, read by CUDA", in[i], out[i], PIECE);
	}
	memset(out, 0, sizeof(out));
	OK(barcopy_copyv_from_mapping(b.mh, from, PIECES, 0));
	SAME("pieces read", in, out, sizeof(in));
	/* a bad piece is found before the first byte is written */
	to[0].host_ptr = out[1];
	to[PIECES - 1].map_ptr = (uint8_t *)b.map - PIECE;
	FAILS(EINVAL, barcopy_copyv_to_mapping(b.mh, to, PIECES, 0));
	sanity_gpu_read(out[0], b.mem.dptr, PIECE);
	SAME("after a vector that was refused", in[0], out[0], PIECE);
	sanity_unmake(&b);
}

static void attributes(void)
{
	int values[GDR_ATTR_MAX] = { 0 };
	struct buffer b;
	gdr_mh_t h;
	uint64_t v;
	int rc;

	for (int a = GDR_ATTR_USE_PERSISTENT_MAPPING; a < GDR_ATTR_MAX; a++) {
		OK(gdr_get_attribute(sanity.g, (gdr_attr_t)a, &values[a]));
		CHECK(values[a] == 0 || values[a] == 1, "attribute %d is %d", a, values[a]);
	}
	sanity_note("persistent mappings %d, force-PCIe pins %d, dma-buf mmap %d",
		    values[GDR_ATTR_USE_PERSISTENT_MAPPING],
		    values[GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE],
		    values[GDR_ATTR_USING_DMA_BUF_MMAP]);

	sanity_make(&b, 64 * KIB);
	OK(barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_BACKEND, &v));
	CHECK(v == sanity.facts.backend, "backend %llu, then %llu",
	      (unsigned long long)sanity.facts.backend, (unsigned long long)v);
	rc = barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_DEVICE, &v);
	if (rc)
		FAILS(ENOTSUP, rc);
	else
		CHECK(v == (uint64_t)sanity.gpu.ordinal, "device %llu", (unsigned long long)v);
	for (int a = BARCOPY_HANDLE_ATTR_PERSISTENT; a <= BARCOPY_HANDLE_ATTR_SYNC_MEMOPS; a++) {
		OK(barcopy_get_handle_attribute(b.g, b.mh, (barcopy_handle_attr_t)a, &v));
		CHECK(v <= 1, "handle attribute %d is %llu", a, (unsigned long long)v);
	}

	/* the attribute agrees with the pin flag */
	rc = gdr_pin_buffer_v2(b.g, (unsigned long)b.mem.dptr, 4096, GDR_PIN_FLAG_FORCE_PCIE, &h);
	if (!rc)
		OK(gdr_unpin_buffer(b.g, h));
	else
		FAILS(EINVAL, rc);
	if (sanity.facts.backend == BARCOPY_BACKEND_GDRDRV)
		CHECK((!rc) == values[GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE],
		      "force-PCIe pins: attribute %d, errno %d",
		      values[GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE], rc);
	sanity_unmake(&b);
}

/* SYNC_MEMOPS: a copy of CUDA's is complete when its call returns. */
static void sync_memops(void)
{
	static uint8_t in[60 * 1024], out[60 * 1024];
	struct buffer b;

	if (!sanity.facts.sync_memops)
		sanity_waive("CUDA refuses SYNC_MEMOPS for %s memory: callers must synchronise",
			     mem_kind_name[sanity.facts.kind]);
	sanity_make(&b, sizeof(in));
	for (uint64_t i = 0; i < 20; i++) {
		copytest_random(in, sizeof(in), i);
		CU(cu.MemcpyHtoD(b.mem.dptr, in, sizeof(in)));
		OK(gdr_copy_from_mapping(b.mh, out, b.cpu, sizeof(out)));
		SAME("right after cuMemcpyHtoD", in, out, sizeof(in));
	}
	sanity_unmake(&b);
}

static void versions(void)
{
	int major = -1, minor = -1;

	gdr_runtime_get_version(&major, &minor);
	CHECK(major == GDR_API_MAJOR_VERSION && minor >= GDR_API_MINOR_VERSION,
	      "the library is %d.%d, this tool %d.%d", major, minor, GDR_API_MAJOR_VERSION,
	      GDR_API_MINOR_VERSION);
	OK(gdr_driver_get_version(sanity.g, &major, &minor));
	CHECK(major * 1000 + minor >=
		      MINIMUM_GDRDRV_MAJOR_VERSION * 1000 + MINIMUM_GDRDRV_MINOR_VERSION,
	      "the driver is %d.%d", major, minor);
	sanity_note("the driver below is %d.%d", major, minor);
}

static void unknown_memory(void)
{
	static char pageable[4096];
	gdr_mh_t h = { 99 };

	FAILS(EINVAL, gdr_pin_buffer_v2(sanity.g, (uintptr_t)pageable, sizeof(pageable), 0, &h));
	CHECK(h.h == 99, "a pin that failed wrote its handle");
	CHECK(*barcopy_last_error(), "a failure without a text");
	sanity_note("malloc memory: %s", barcopy_last_error());
	FAILS(EINVAL, gdr_pin_buffer_v2(sanity.g, 0, 4096, 0, &h));
}

static void handles(void)
{
	struct buffer b, other, again;
	gdr_info_t info;
	gdr_t g;

	sanity_make(&b, 64 * KIB);
	sanity_make(&other, 64 * KIB);
	sanity_refused(&b, (gdr_mh_t){ 0 }, EINVAL);
	sanity_refused(&b, (gdr_mh_t){ 1 }, EINVAL);
	sanity_refused(&b, (gdr_mh_t){ b.mh.h ^ 1 << 20 }, EINVAL);
	sanity_refused(&b, (gdr_mh_t){ ~0UL }, EINVAL);
	/* a handle of another context */
	g = barcopy_open(BARCOPY_OPEN_ANY);
	CHECK(g, "a second context: %s", barcopy_last_error());
	FAILS(EINVAL, gdr_get_info(g, b.mh, &info));
	FAILS(EINVAL, gdr_unpin_buffer(g, b.mh));
	OK(gdr_close(g));
	FAILS(EINVAL, gdr_get_info(g, b.mh, &info));
	/* a stale one, also after a new handle has taken its place in the table */
	sanity_unmake(&b);
	sanity_refused(&b, b.mh, EINVAL);
	sanity_make(&again, 64 * KIB);
	CHECK(again.mh.h != b.mh.h, "a handle came back at once");
	sanity_refused(&again, b.mh, EINVAL);
	sanity_unmake(&again);
	sanity_round_trip(&other, 0, other.mem.size, 1);
	sanity_unmake(&other);
}

static void open_flags(void)
{
	gdr_t g = barcopy_open(1u << 30);

	CHECK(!g && errno == EINVAL, "an unknown flag of barcopy_open: errno %d", errno);
	g = gdr_open();
	if (g) {
		OK(gdr_close(g));
		sanity_note("gdr_open can map ordinary device memory here");
	} else {
		CHECK(errno == ENODEV || errno == EACCES, "gdr_open: errno %d: %s", errno,
		      barcopy_last_error());
		sanity_note("gdr_open: %s", barcopy_last_error());
	}
}

const struct sanity_test sanity_calls[] = {
	TEST(pointer, "loads and stores through the mapping's pointer"),
	TEST(words, "single words, waits, fences"),
	TEST(vectors, "vectored copies"),
	TEST(sync_memops, "CUDA's copies are complete when they return"),
	TEST(attributes, "attributes of the context and of a handle"),
	TEST(versions, "versions of the library and of the driver"),
	TEST(unknown_memory, "memory that CUDA does not know"),
	TEST(handles, "handles that are zero, invented, stale or another's"),
	{ "open", "gdr_open() and flags of barcopy_open()", open_flags, false, NULL, NULL },
	END_OF_TESTS,
};
