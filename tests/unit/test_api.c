// SPDX-License-Identifier: MIT
/*
 * What public calls say of arguments that they refuse, and what a program finds by name. Which arguments
 * these are is a rule of tests/model. And the summary of statistics.
 */

#include "barcopy_queue.h"
#include "calls/calls.h"
#include "fixture.h"

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, void *v1);

static gdr_mh_t h;
static CUdeviceptr buffer;
static uint8_t *map;

enum { SIZE = 3 * 65536, MAPPED = 2 * 65536 };

/* A dma-buf pin of three GPU pages, of which two are mapped. */
static void start_mapped(void)
{
	void *va;

	start();
	buffer = standin_alloc(2 << 20);
	OK(gdr_pin_buffer_v2(g, buffer, SIZE, 0, &h));
	OK(gdr_map(g, h, &va, MAPPED));
	map = va;
}

static void versions(void)
{
	int major = -1, minor = -1;

	gdr_runtime_get_version(&major, &minor);
	ck_assert_int_eq(major, GDR_API_MAJOR_VERSION);
	ck_assert_int_eq(minor, GDR_API_MINOR_VERSION);
	gdr_runtime_get_version(NULL, NULL);
	gdr_runtime_get_version(&major, NULL);
	gdr_runtime_get_version(NULL, &minor);
	start_mapped();
	FAILS(EINVAL, gdr_driver_get_version(g, NULL, &minor));
	FAILS_WITH(EINVAL, "NULL", gdr_driver_get_version(g, &major, NULL));
	OK(gdr_driver_get_version(g, &major, &minor));
	ck_assert_uint_eq(barcopy_get_api_version(), BARCOPY_API_VERSION);
}

static void type_names(void)
{
	static const char *const names[] = { "None", "Write Combining", "Caching", "Device" };
	const char *text = "before";

	for (int i = 0; i < GDR_MAPPING_TYPE_MAX; i++) {
		OK(gdr_get_mapping_type_string((gdr_mapping_type_t)i, &text));
		ck_assert_str_eq(text, names[i]);
	}
	text = "before";
	FAILS(EINVAL, gdr_get_mapping_type_string(GDR_MAPPING_TYPE_MAX, &text));
	FAILS(EINVAL, gdr_get_mapping_type_string((gdr_mapping_type_t)-1, &text));
	FAILS(EINVAL, gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, NULL));
	ck_assert_str_eq(text, "before");
}

/* The first info struct is 40 bytes; not one more is written. */
static void first_info(void)
{
	uint8_t room[64];
	gdr_info_v2_t v2;
	uint32_t padding;

	memset(room, 0x5a, sizeof(room));
	OK(gdr_get_info(g, h, room));
	memset(&v2, 0xff, sizeof(v2));
	OK(gdr_get_info_v2(g, h, &v2));
	/* What no member has is 0, for a program that compares or prints the bytes. */
	memcpy(&padding, (char *)&v2 + offsetof(gdr_info_v2_t, page_size) + 4, sizeof(padding));
	ck_assert_uint_eq(padding, 0);
	ck_assert_int_eq(memcmp(room, &v2, 36), 0);
	ck_assert_uint_eq(room[36] & 3, 3); /* mapped, write-combining */
	for (int i = 40; i < 64; i++)
		ck_assert_uint_eq(room[i], 0x5a);
	FAILS(EINVAL, gdr_get_info(g, h, NULL));
	FAILS(EINVAL, gdr_get_info_v2(g, h, NULL));
	memset(room, 0x5a, sizeof(room));
	FAILS(EINVAL, gdr_get_info(g, (gdr_mh_t){ 5 }, room));
	for (int i = 0; i < 64; i++)
		ck_assert_uint_eq(room[i], 0x5a);
	FAILS(EINVAL, gdr_get_callback_flag(g, h, NULL));
}

static void texts(void)
{
	/* None of these holds of 5. */
	static const char *const signs[] = { "==", "!=", "<", "<=", ">", ">=" };
	static const uint32_t than[] = { 4, 5, 5, 4, 5, 6 };
	gdr_mh_t out = { 77 };
	uint64_t value;
	char text[128];
	uint32_t word;
	void *va;
	int v;

	snprintf(text, sizeof(text), "%p + 4 is not inside the handle's range (%p + %zu)",
		 (void *)(map + MAPPED), (void *)map, (size_t)MAPPED);
	FAILS_WITH(EINVAL, text, barcopy_put32(h, map + MAPPED, 1));
	FAILS_WITH(EINVAL, text, barcopy_get32(h, map + MAPPED, &word));
	FAILS_WITH(EINVAL, text, gdr_copy_to_mapping(h, map + MAPPED, &text, 4));
	FAILS_WITH(EINVAL, "unknown attribute", gdr_get_attribute(g, GDR_ATTR_MAX, &v));
	FAILS_WITH(EINVAL, "unknown handle attribute",
		   barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_MAX, &value));
	FAILS(EINVAL, gdr_pin_buffer(g, buffer, 4096, 0, 0, NULL));
	FAILS(EINVAL, gdr_pin_buffer_v2(g, buffer, 4096, 0, NULL));
	FAILS_WITH(EINVAL, "flags", gdr_pin_buffer_v2(g, buffer, 4096, 2, &out));
	FAILS_WITH(EINVAL, "size is 0", gdr_pin_buffer_v2(g, buffer, 0, 0, &out));
	FAILS_WITH(EINVAL, "the address is 0", gdr_pin_buffer_v2(g, 0, 4096, 0, &out));
	FAILS_WITH(EAGAIN, "mapped already", gdr_map(g, h, &va, 4096));
	FAILS_WITH(EINVAL, "aligned", barcopy_put64(h, map + 4, 1));
	FAILS(EINVAL, barcopy_put64(h, NULL, 1));
	FAILS(EINVAL, barcopy_get32(h, map, NULL));
	FAILS(EINVAL, barcopy_get64(h, map, NULL));
	OK(barcopy_put64(h, map + MAPPED - 8, 0x123456789abcdef0));
	FAILS_WITH(ETIMEDOUT, "the comparison does not hold",
		   barcopy_wait64(h, map + MAPPED - 8, BARCOPY_CMP_NE, 0x123456789abcdef0, 0));
	FAILS_WITH(ETIMEDOUT, "the word is 2596069104, waited for < 7",
		   barcopy_wait32(h, map + MAPPED - 8, BARCOPY_CMP_LT, 7, 1000));
	FAILS_WITH(ETIMEDOUT, "the word is 1311768467463790320, waited for == 18446744073709551615",
		   barcopy_wait64(h, map + MAPPED - 8, BARCOPY_CMP_EQ, UINT64_MAX, 1000));
	OK(barcopy_put32(h, map, 5));
	for (size_t i = 0; i < COUNT(signs); i++) {
		snprintf(text, sizeof(text), "the word is 5, waited for %s %u", signs[i], than[i]);
		FAILS_WITH(ETIMEDOUT, text,
			   barcopy_wait32(h, map, (barcopy_cmp_t)(BARCOPY_CMP_EQ + i), than[i], 1));
	}
	FAILS_WITH(EINVAL, "unknown comparison", barcopy_wait64(h, map, (barcopy_cmp_t)7, 0, 0));
	FAILS_WITH(EINVAL, "unknown fence", barcopy_fence(h, (barcopy_fence_t)-1));
	FAILS_WITH(EINVAL, "not inside", gdr_copy_to_mapping(h, NULL, map, 1));
	FAILS_WITH(EINVAL, "host pointer is NULL", gdr_copy_to_mapping(h, map, NULL, 1));
	FAILS(EINVAL, barcopy_copyv_to_mapping(h, NULL, 1, 0));
}

/* The text is of this thread's last failure; a success leaves it. */
static void last_error_lasts(void)
{
	char text[256];
	int v;

	FAILS(EINVAL, gdr_unpin_buffer(g, (gdr_mh_t){ 9 }));
	snprintf(text, sizeof(text), "%s", barcopy_last_error());
	ck_assert_ptr_nonnull(strstr(text, "0x9"));
	OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &v));
	ck_assert_str_eq(barcopy_last_error(), text);
}

/* ---- a forked child ------------------------------------------------------ */

static barcopy_queue_t queue;

static int calls_in_child(void *unused)
{
	barcopy_queue_view_t view;
	char byte;

	(void)unused;
	FAILS(EACCES, barcopy_queue_send(queue, "x", 1, 0, 0));
	FAILS(EACCES, barcopy_queue_receive(queue, &byte, 1, NULL, 0));
	FAILS(EACCES, barcopy_queue_get_view(queue, &view));
	FAILS(EACCES, barcopy_queue_stop(queue, 0));
	FAILS(EACCES, barcopy_queue_stop(queue, 8));
	FAILS(EACCES, barcopy_queue_destroy(queue));
	return 0;
}

/* A child may call nothing on what its parent has, and changes nothing of it: tests/model has the rest. */
static void forked_child(void)
{
	OK(barcopy_queue_create(g, 0, NULL, &queue));
	ck_assert_int_eq(unit_in_child(calls_in_child, NULL), 0);
	OK(barcopy_queue_send(queue, "x", 1, 0, 0));
	OK(barcopy_queue_destroy(queue));
}

/* ---- statistics: tests/model counts ------------------------------------------ */

static void statistics(void)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };
	barcopy_queue_options_t o;

	FAILS(EINVAL, barcopy_get_stats(g, NULL));
	s.struct_size = FIRST_STATS - 1;
	FAILS(EINVAL, barcopy_get_stats(g, &s));
	/* A size that nobody has is not read so far. */
	o.struct_size = SIZE_MAX;
	FAILS_WITH(EINVAL, "struct_size is", barcopy_queue_create(g, 0, &o, &queue));
	s.struct_size = sizeof(s);
	FAILS(EINVAL, barcopy_get_stats((gdr_t)(uintptr_t)77, &s));
	OK(gdr_close(g));
	FAILS(EINVAL, barcopy_get_stats(g, &s));
	g = NULL;
}

/* In a child, which exits: with memory of its own, or without any use of the library. */
static int uses_and_exits(void *own)
{
	static char zeroes[65536];
	barcopy_mem_t mem;

	if (own) {
		start();
		OK(barcopy_mem_alloc(g, 0, sizeof(zeroes), 0, &mem));
		OK(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, zeroes, sizeof(zeroes)));
		OK(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, zeroes, 3));
		OK(barcopy_put32(mem.handle, mem.cpu_ptr, 1));
		for (int i = 0; i < 2; i++)
			FAILS(EINVAL, barcopy_put64(mem.handle, (char *)mem.cpu_ptr + 1, 1));
		end();
	}
	exit(0);
}

static void child_without_use(void)
{
	gdri_stats_note_stderr(); /* as if the child had loaded the library */
	ck_assert_int_eq(unit_in_child(uses_and_exits, NULL), 0);
}

static void child_with_memory(void)
{
	gdri_stats_note_stderr();
	ck_assert_int_eq(unit_in_child(uses_and_exits, &g), 0);
}

/* Standard error is a pipe whose reader has gone. */
static int exits_unread(void *own)
{
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[0]);
	gdri_stats_note_stderr();
	alarm(60); /* a write that is tried again and again does not outlive the test */
	return uses_and_exits(own);
}

static int opens_and_exits(void *unused)
{
	(void)unused;
	g = gdr_open();
	OK(gdr_close(g));
	exit(0);
}

static void child_opens(void)
{
	gdri_stats_note_stderr();
	ck_assert_int_eq(unit_in_child(opens_and_exits, NULL), 0);
}

/* Number 2 is another file by now, of the same file system. */
static void child_elsewhere(void)
{
	ck_assert_int_eq(unit_in_child(uses_and_exits, &g), 0);
}

static void summary(void)
{
	const char *text;

	/* CUDA must not be initialised before the fork. */
	g = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_ptr_nonnull(g);
	ck_assert_uint_eq(stats_of(g).flags, BARCOPY_STATS_COPIES);
	ck_assert_str_eq(unit_stderr_of(child_without_use), "");
	text = unit_stderr_of(child_with_memory);
	ck_assert_msg(
		strstr(text, "GDRCOPY STATS: process ") &&
			strstr(text, "  pins 1, unpinned 1; maps 1, unmapped 1; revoked 0\n") &&
			strstr(text, "  copies to the GPU: 2, bytes 65539\n") &&
			strstr(text, "  copies from the GPU: 0, bytes 0\n  words: put 1, got 0"),
		"%s", text);
	ck_assert_str_eq(unit_stderr_of(child_elsewhere), "");
	ck_assert_int_eq(unit_in_child(exits_unread, &g), 0);
	OK(gdr_close(g));
}

/* The file that was standard error at load is still that, but nobody asked for a summary. */
static void summary_unasked(void)
{
	ck_assert_str_eq(unit_stderr_of(child_opens), "");
}

/* The largest numbers fit into the text that is reserved for them. */
static void summary_room(void)
{
	struct gdri_text text = { .len = 0 };
	barcopy_stats_t s = { .pins = 1, .unpins = 2, .maps = 3, .unmaps = 4, .revoked = 5,
			      .cache_hits = 6, .cache_misses = 7, .cache_evictions = 8,
			      .engine_copies = 9, .engine_fallbacks = 10, .copies_to = 11,
			      .bytes_to = 12, .copies_from = 13, .bytes_from = 14, .puts = 15,
			      .gets = 16, .waits = 17 };

	gdri_stats_summary(&s, &text);
	ck_assert_str_eq(strchr(text.s, '\n'), "\n  pins 1, unpinned 2; maps 3, unmapped 4; revoked 5\n"
			 "  registration caches: hits 6, misses 7, evictions 8\n"
			 "  copy engine: copies 9, fallbacks 10\n"
			 "  copies to the GPU: 11, bytes 12\n"
			 "  copies from the GPU: 13, bytes 14\n"
			 "  words: put 15, got 16, waited for 17\n");
	text.len = 0;
	memset(&s, 0xff, sizeof(s));
	gdri_stats_summary(&s, &text);
	ck_assert_uint_eq(strlen(text.s), text.len);
	ck_assert_uint_lt(text.len, sizeof(text.s) - 100);
	ck_assert_ptr_nonnull(strstr(text.s, "waited for 18446744073709551615\n"));
}

#define ON_DMABUF "GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "versions", versions, ON_DMABUF, .bare = true },
	{ "names of mapping types", type_names, ON_DMABUF, .bare = true },
	{ "the first info struct", first_info, ON_DMABUF },
	{ "texts", texts, ON_DMABUF },
	{ "the last error lasts", last_error_lasts, ON_DMABUF },
	{ "a forked child's queue", forked_child, ON_DMABUF },
	{ "statistics", statistics, ON_DMABUF },
	{ "summary", summary, "GDRCOPY_STATS=1", .bare = true },
	/* Without the stand-in's thread, which LeakSanitizer misses in a forked child, and says so. */
	{ "no summary unasked", summary_unasked, ON_DMABUF " GDRSIM_ASYNC_DELAY_US=0" },
	{ "room for the summary", summary_room, .bare = true },
};

UNIT_MAIN("public calls", tests, unit_before = start_mapped, unit_after = end)
