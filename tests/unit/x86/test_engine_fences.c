// SPDX-License-Identifier: MIT
/*
 * The fences around a copy by the GPU's copy engine, watched (step.h): what core/offload.c adds to
 * those of the copies, which test_copy_fences.c is for; and those of a vector over several handles
 * (calls/vectors.c).
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

#include "common/standin.h"
#include "common/unit.h"
#include "cache/cache.h"
#include "copy/copy.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "core/offload.h"
#include "core/parts.h"
#include "copy/impl.h"
#include "step.h"

/* The letters are those of copy_fences.h: m MFENCE, l LFENCE, s SFENCE. */

/*
 * What this CPU has written is out before the engine begins, and nothing that follows passes it.
 * The host's memory is watched too, so that the engine's own access is seen between; where the
 * engine is not asked after all, the mapping's own copy is behind both.
 */
static void both_ways(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = 1,
				     .engine_write_min = 1 };
	struct gdri_region region = { .low = 0 };
	uint8_t *map = step_watch((size_t)1 << 20);
	static uint8_t own[300];
	const struct gdri_copy_plan *plan;
	struct gdri_offload *offload;
	const char *got;

	standin_start();
	region.low = standin_alloc(GPU_PAGE_SIZE);
	region.high = region.low + GPU_PAGE_SIZE;
	region.pin = (struct gdri_pin){ .backend = &gdri_backend_rm,
					.va = region.low,
					.mapped_size = GPU_PAGE_SIZE,
					.map_length = GPU_PAGE_SIZE,
					.map_type = GDR_MAPPING_TYPE_WC,
					.map = map };
	ck_assert_int_eq(
		gdri_parts_note(&region, region.low, region.high, &(struct gdri_memory){ 0 }), 0);
	for (int known = 1; known >= 0; known--) {
		uint8_t *host = known ? map + ((size_t)512 << 10) : own;

		ck_assert_int_eq(gdri_offload_new(&region, &region.pin, region.low, region.high, &o,
						  &offload),
				 0);
		plan = gdri_offload_plan(offload);
		step_begin();
		gdri_copy_to(plan, map + 5, host, sizeof(own));
		got = step_end();
		ck_assert_str_eq(got, known ? "srm" : "smws");
		step_begin();
		gdri_copy_from(plan, host, map + 5, sizeof(own));
		got = step_end();
		ck_assert_str_eq(got, known ? "mswm" : "msmmrl");
		region.pin.map_type = GDR_MAPPING_TYPE_CACHING;
		ck_assert(gdri_copy_alike(gdri_offload_plan(offload),
					  gdri_copy_plan(GDR_MAPPING_TYPE_CACHING)));
		region.pin.map_type = GDR_MAPPING_TYPE_WC;
		gdri_offload_free(offload);
		gdri_region_free_parts(&region); /* then nothing is proven */
	}
}

/* A handle of memory of no GPU, mapped by that type. */
static gdr_mh_t handle_of(gdr_t g, uint8_t *map, gdr_mapping_type_t type)
{
	static const struct gdri_backend none = { .name = "none", .id = BARCOPY_BACKEND_HOST };
	static struct gdri_region regions[3];
	static size_t count;
	struct gdri_region *region = &regions[count++];
	struct gdri_handle *handle;
	struct gdri_ctx *ctx;
	gdr_mh_t h;

	region->pin.backend = &none;
	region->pin.mapped_size = 65536;
	region->kind = &gdri_kind_cached;
	ck_assert_int_eq(gdri_ctx_get(g, &ctx), 0);
	ck_assert_int_eq(gdri_handle_new(ctx, region, 0, 65536, &h), 0);
	gdri_ctx_put(ctx, 0);
	handle = (struct gdri_handle *)gdri_slots_find(&gdri_handles, h.h);
	handle->copy_start = (uintptr_t)map;
	handle->copy_end = handle->write_end = (uintptr_t)map + 65536;
	handle->plan = gdri_copy_plan(type);
	return h;
}

/* A vector over several handles: one fence for all, and between two types the stricter one's. */
static void several_handles(void)
{
	uint8_t *map = step_watch((size_t)1 << 20);
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);
	uint8_t host[4][64] = { { 0 } };
	barcopy_handle_seg_t v[4];
	static const struct {
		/* c: cached, w, x: write-combined; capital: ordered; 0: cached, of size 0; E: so and
		 * ordered */
		const char *types;
		const char *writes, *reads;
	} rows[] = {
		{ "wxwx", "ws", "mrl" },
		{ "wxWx", "wsws", "mrmrl" },
		{ "cccc", "w", "r" },
		{ "ccCC", "w", "r" },
		{ "wcxc", "ws", "mrl" },
		{ "wcCx", "wsws", "mrmrl" },
		{ "cwcC", "wsws", "mrmrl" },
		{ "CcwW", "wsws", "mrmrl" },
		{ "wx0C", "wsws", "mrmrl" },
		{ "wEcx", "ws", "mrl" },
		{ "WCXC", "wswswsws", "mrmrmrmrl" },
	};
	gdr_mh_t h[3];

	ck_assert_ptr_nonnull(g);
	h[0] = handle_of(g, map, GDR_MAPPING_TYPE_WC);
	h[1] = handle_of(g, map + 65536, GDR_MAPPING_TYPE_WC);
	h[2] = handle_of(g, map + 131072, GDR_MAPPING_TYPE_CACHING);
	for (size_t r = 0; r < COUNT(rows); r++) {
		for (size_t i = 0; i < 4; i++) {
			char c = rows[r].types[i];
			size_t which = c == 'w' || c == 'W' ? 0 : c == 'x' || c == 'X' ? 1 : 2;

			v[i].handle = h[which];
			v[i].seg = (barcopy_copy_seg_t){
				.map_ptr = map + which * 65536 + 256 * i,
				.host_ptr = host[i],
				.size = c == '0' || c == 'E' ? 0 : 64,
				.flags = c < 'a' && c != '0' ? BARCOPY_COPY_ORDERED : 0,
			};
		}
		step_begin();
		ck_assert_int_eq(barcopy_copyv_to_mappings(v, 4, 0), 0);
		ck_assert_str_eq(step_end(), rows[r].writes);
		step_begin();
		ck_assert_int_eq(barcopy_copyv_from_mappings(v, 4, 0), 0);
		ck_assert_str_eq(step_end(), rows[r].reads);
	}
	/* Between fences of the caller's own. */
	v[0].handle = h[0];
	v[0].seg.map_ptr = map;
	v[2] = v[1]; /* what lies behind the count is no piece */
	v[2].seg.flags = 0;
	step_begin();
	ck_assert_int_eq(barcopy_copyv_to_mappings(v, 2, BARCOPY_COPY_NO_FENCE), 0);
	ck_assert_str_eq(step_end(), "wsw");
	step_begin();
	ck_assert_int_eq(barcopy_fence(h[0], BARCOPY_FENCE_FULL), 0);
	ck_assert_str_eq(step_end(), "m");
}

static unsigned int exact_reads;

static void count_exact_read(void *dst, const void *src, size_t n)
{
	exact_reads++;
	memcpy(dst, src, n);
}

static unsigned int batches;

static void count_batch(uint8_t *line, const uint8_t *const *at, size_t n)
{
	batches++;
	for (size_t i = 0; i < n; i++)
		memcpy(line + 64 * i, at[i], 64);
}

/* Each mapping is read by its own plan, whichever comes first; pieces of one plan together. */
static void several_plans(void)
{
	static const struct gdri_copy_impl counting = { .name = "counting",
							.block = 64,
							.to = count_exact_read };
	uint8_t *map = step_watch((size_t)1 << 20);
	static _Alignas(64) uint8_t host[3][256];
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);
	struct gdri_copy_plan cached = *gdri_copy_plan(GDR_MAPPING_TYPE_CACHING);
	struct gdri_copy_plan combined = *gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	struct gdri_copy_impl by_lines = *combined.from;
	gdr_mh_t h[2];

	ck_assert_ptr_nonnull(g);
	cached.from = &counting;
	h[0] = handle_of(g, map, GDR_MAPPING_TYPE_WC);
	h[1] = handle_of(g, map + 65536, GDR_MAPPING_TYPE_CACHING);
	by_lines.lines = count_batch;
	combined.from = &by_lines;
	((struct gdri_handle *)gdri_slots_find(&gdri_handles, h[0].h))->plan = &combined;
	((struct gdri_handle *)gdri_slots_find(&gdri_handles, h[1].h))->plan = &cached;
	for (unsigned int first = 0; first < 2; first++) {
		static const unsigned int pieces[2][3] = { { 0, 0, 1 }, { 1, 0, 0 } };
		barcopy_handle_seg_t v[3];

		for (unsigned int i = 0; i < 3; i++)
			v[i] = (barcopy_handle_seg_t){
				.handle = h[pieces[first][i]],
				.seg = { map + pieces[first][i] * 65536, host[i], 256, 0, 0 },
			};
		ck_assert_int_eq(barcopy_copyv_from_mappings(v, 3, 0), 0);
		ck_assert_uint_eq(exact_reads, first + 1);
		ck_assert_uint_eq(batches, first + 1);
	}
}

/*
 * The public posts are the CPU's direct stores where the plan has them. A CPU that lacks MOVDIRI
 * refuses the instruction, which shows as well that it was tried; one whose hypervisor hides MOVDIRI
 * does not.
 */
static sigjmp_buf refused;

static void on_sigill(int sig)
{
	siglongjmp(refused, sig);
}

static void posted_words(void)
{
	uint8_t *map = step_watch((size_t)1 << 20);
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);
	bool has = gdri_cpu_features() & GDRI_CPU_MOVDIRI;
	struct gdri_copy_plan plan;
	struct gdri_handle *handle;
	volatile int call;
	gdr_mh_t h;

	ck_assert_ptr_nonnull(g);
	h = handle_of(g, map, GDR_MAPPING_TYPE_WC);
	handle = (struct gdri_handle *)gdri_slots_find(&gdri_handles, h.h);
	gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, 0, NULL);
	handle->plan = &plan;
	for (call = 0; call < 2; call++) {
		plan.posts = false;
		step_begin();
		ck_assert_int_eq(call ? barcopy_post64(h, map, 1) : barcopy_post32(h, map, 1), 0);
		ck_assert_str_eq(step_end(), "ws");
		plan.posts = true;
		signal(SIGILL, has ? SIG_DFL : on_sigill);
		if (sigsetjmp(refused, 1))
			continue;
		step_begin();
		ck_assert_int_eq(call ? barcopy_post64(h, map, 1) : barcopy_post32(h, map, 1), 0);
		ck_assert_str_eq(step_end(), "w");
	}
}

static const struct unit_test tests[] = {
	{ "both ways", both_ways },
	{ "several handles", several_handles },
	{ "several plans", several_plans },
	{ "posts", posted_words },
};

UNIT_MAIN("copy engine: fences", tests, step_start())
