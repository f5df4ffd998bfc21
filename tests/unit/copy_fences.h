/* SPDX-License-Identifier: MIT */
/*
 * Which fence stands where, call by call and mapping type by mapping type: the demand of fence.h,
 * written down once more so that neither can change alone. Who includes this watches a mapping and
 * turns what happens to it into a text, a letter each, runs of one letter drawn together:
 *
 *   r  a load of the mapping      w  a store to it
 *   and one of the letters below for each barrier, in the order in which they were executed.
 *
 * A barrier's letter is its instruction, so that a weaker one in its place is another text.
 */
#ifndef COPY_FENCES_H
#define COPY_FENCES_H

#include "copy_area.h"

#include <errno.h>
#include <stdio.h>

#include "copy/copy.h"
#include "copy/impl.h"
#include "queue/queue.h"

#if defined(__x86_64__)
/* m MFENCE, l LFENCE, s SFENCE */
#define BEFORE_READ   "m"
#define AFTER_READ    "l"
#define BETWEEN_READS "m"
#define GATHERED      ""
#define AFTER_WRITE   "s"
#define BEFORE_WORD   "s"
#define PUSH	      "s"
#define FULL	      "m"
#define READ_DONE     "l"
#define HOST_READ     ""
#define CACHED_FENCES 0 /* total store order */
#elif defined(__aarch64__)
/* f DMB OSH, d DMB OSHLD, s DMB OSHST, D DSB OSHLD, S DSB OSHST, g DGH */
#define BEFORE_READ   "f"
#define AFTER_READ    "d"
#define BETWEEN_READS "d"
#define GATHERED      "g"
#define AFTER_WRITE   "s"
#define BEFORE_WORD   "f"
#define PUSH	      "gS"
#define FULL	      "f"
#define READ_DONE     "D"
#define HOST_READ     "d"
#define CACHED_FENCES 1
#endif

#define WATCHED ((size_t)64 << 10)

/* The watch: its memory, and the text of what happened between two calls. */
struct fence_watch {
	uint8_t *map;
	bool brief;
	void (*begin)(void);
	const char *(*end)(void);
	/* The nth access from here on finds that value in the word; NULL: cannot be had. */
	void (*set_before)(unsigned int nth, uint64_t *word, uint64_t value);
	/* Copies that line of the mapping at the first barrier, or before the last access if none
	   comes. NULL: no longer. */
	void (*keep_line)(uint8_t *line, uint8_t *copy);
};

/* What a call should come to: with its type's fences, and where the type needs none. */
static void fences_are(const struct fence_watch *w, const struct gdri_copy_plan *plan,
		       const char *call, size_t at, size_t size, const char *fenced,
		       const char *bare)
{
	const char *got = w->end();
	bool due = plan->fences == GDR_MAPPING_TYPE_WC || plan->fences == GDR_MAPPING_TYPE_DEVICE ||
		   (plan->fences == GDR_MAPPING_TYPE_CACHING && CACHED_FENCES);
	const char *want = due ? fenced : bare;

	ck_assert_msg(!strcmp(got, want),
		      "%s, type %d, fences of %d, impl %s, %zu bytes at %zu: %s, not %s", call,
		      (int)plan->type, (int)plan->fences, plan->to->name, size, at, got, want);
}

#define FENCES_ARE(plan, call, at, size, fenced, bare)              \
	do {                                                        \
		w->begin();                                         \
		call;                                               \
		fences_are(w, plan, #call, at, size, fenced, bare); \
	} while (0)

/*
 * A step takes microseconds: few ranges, and of an implementation that is asked for by name one.
 * `brief`: the largest range with the fences of WC alone.
 */
static void copy_fences_copies(const struct fence_watch *w, const struct gdri_copy_plan *plan,
			       bool one)
{
	static const size_t ranges[][2] = { { 60, 130 }, { 0, 4 },  { 8, 8 },	 { 1, 3 },
					    { 5, 50 },	 { 0, 64 }, { 0, 1152 }, { 3, 5000 } };
	static uint8_t host[5000];

	for (size_t i = 0; i < (one ? 1 : sizeof(ranges) / sizeof(ranges[0])); i++) {
		if (ranges[i][1] > 2048 &&
		    (plan->to->block == 1 || (w->brief && plan->fences != GDR_MAPPING_TYPE_WC)))
			continue; /* a step for each word */
		size_t at = ranges[i][0], n = ranges[i][1];
		uint8_t *map = w->map + at;
		barcopy_copy_seg_t seg[4] = {
			{ .map_ptr = map, .host_ptr = host, .size = n },
			{ .map_ptr = map + 8192, .host_ptr = host, .size = n },
			{ .map_ptr = map,
			  .host_ptr = host,
			  .size = 0,
			  .flags = BARCOPY_COPY_ORDERED },
			{ .map_ptr = map + 16384,
			  .host_ptr = host,
			  .size = n,
			  .flags = BARCOPY_COPY_ORDERED },
		};

		FENCES_ARE(plan, gdri_copy_to(plan, map, host, n), at, n, "w" AFTER_WRITE, "w");
		FENCES_ARE(plan, gdri_copy_from(plan, host, map, n), at, n,
			   BEFORE_READ "r" AFTER_READ, "r");
		FENCES_ARE(plan, gdri_copyv_to(plan, seg, 4, sizeof(*seg), 0), at, n,
			   "w" AFTER_WRITE "w" AFTER_WRITE, "w");
		FENCES_ARE(plan, gdri_copyv_to(plan, seg, 4, sizeof(*seg), BARCOPY_COPY_NO_FENCE),
			   at, n, "w" AFTER_WRITE "w", "w");
		FENCES_ARE(plan, gdri_copyv_to(plan, seg, 2, sizeof(*seg), BARCOPY_COPY_NO_FENCE),
			   at, n, "w", "w");
		FENCES_ARE(plan, gdri_copyv_from(plan, seg, 4, sizeof(*seg), 0), at, n,
			   BEFORE_READ "r" BETWEEN_READS "r" AFTER_READ, "r");
		FENCES_ARE(plan, gdri_copyv_from(plan, seg, 4, sizeof(*seg), BARCOPY_COPY_NO_FENCE),
			   at, n, "r" BETWEEN_READS "r", "r");
		/* Data and two flags: a fence before each. */
		seg[1].flags = seg[3].flags;
		FENCES_ARE(plan, gdri_copyv_to(plan, seg, 4, sizeof(*seg), 0), at, n,
			   "w" AFTER_WRITE "w" AFTER_WRITE "w" AFTER_WRITE, "w");
		FENCES_ARE(plan, gdri_copyv_from(plan, seg, 4, sizeof(*seg), 0), at, n,
			   BEFORE_READ "r" BETWEEN_READS "r" BETWEEN_READS "r" AFTER_READ, "r");
		FENCES_ARE(plan, gdri_copyv_from(plan, seg + 3, 1, sizeof(*seg), 0), at, n,
			   BEFORE_READ "r" AFTER_READ, "r");
	}
}

static void copy_fences_words(const struct fence_watch *w, const struct gdri_copy_plan *plan)
{
	static uint8_t round; /* each line differs from the one before in every byte */
	uint8_t *map = w->map + 128, line[64], kept[64];

	/* A flush's fences, and a full one, are for every type but none at all. */
	const char *flush = plan->fences == GDR_MAPPING_TYPE_NONE ? "r" : FULL "r" READ_DONE;
	const char *full = plan->fences == GDR_MAPPING_TYPE_NONE ? "" : FULL;

	/* A posted word has none where its store needs none; elsewhere one drives it out. */
	FENCES_ARE(plan, gdri_post32(plan, map, 1), 0, 4, plan->posts ? "w" : "w" PUSH, "w");
	FENCES_ARE(plan, gdri_post64(plan, map, 1), 0, 8, plan->posts ? "w" : "w" PUSH, "w");
	FENCES_ARE(plan, gdri_put32(plan, map, 1), 0, 4, "w" GATHERED AFTER_WRITE, "w");
	FENCES_ARE(plan, gdri_put64(plan, map, 1), 0, 8, "w" GATHERED AFTER_WRITE, "w");
	/* A line in pieces: the last word is stored behind all others and the first barrier. */
	round++;
	for (size_t i = 0; i < sizeof(line); i++)
		line[i] = (uint8_t)(i + round);
	w->keep_line(map + 64, kept);
	FENCES_ARE(plan, gdri_post_line(plan, map + 64, line), 0, 64,
		   plan->posts_lines ? "w"
		   : plan->posts     ? "w" AFTER_WRITE "w"
				     : "w" AFTER_WRITE "w" PUSH,
		   "w");
	w->keep_line(NULL, NULL);
	if (!plan->posts_lines)
		ck_assert_msg(!memcmp(kept, line, 56) && memcmp(kept + 56, line + 56, 8),
			      "type %d, fences of %d: another order", (int)plan->type,
			      (int)plan->fences);
	FENCES_ARE(plan, gdri_get32(plan, map), 0, 4, BEFORE_READ "r" AFTER_READ, "r");
	FENCES_ARE(plan, gdri_get64(plan, map), 0, 8, BEFORE_READ "r" AFTER_READ, "r");
	FENCES_ARE(plan, gdri_wait(plan, map, 4, BARCOPY_CMP_EQ, 1, 0, &(uint64_t){ 0 }), 0, 4,
		   BEFORE_READ "r" AFTER_READ, "r");
	FENCES_ARE(plan, gdri_wait(plan, map, 8, BARCOPY_CMP_GE, 1, UINT64_MAX, &(uint64_t){ 0 }),
		   0, 8, BEFORE_READ "r" AFTER_READ, "r");
	/* A word that comes at the third look; of cached memory there are 64 before the clock. */
	if (w->set_before && plan->type != GDR_MAPPING_TYPE_CACHING) {
		w->set_before(3, (uint64_t *)(void *)map, 2);
		FENCES_ARE(plan,
			   gdri_wait(plan, map, 4, BARCOPY_CMP_EQ, 2, UINT64_MAX, &(uint64_t){ 0 }),
			   0, 4, BEFORE_READ "r" BETWEEN_READS "r" BETWEEN_READS "r" AFTER_READ,
			   "r");
		gdri_put32(plan, map, 1);
	}
	/* Once, and nothing follows what did not hold. */
	FENCES_ARE(plan, gdri_wait(plan, map, 4, BARCOPY_CMP_NE, 1, 0, &(uint64_t){ 0 }), 0, 4,
		   BEFORE_READ "r", "r");
	FENCES_ARE(plan, gdri_wait(plan, map, 8, BARCOPY_CMP_NE, 1, 0, &(uint64_t){ 0 }), 0, 8,
		   BEFORE_READ "r", "r");
	FENCES_ARE(plan, gdri_flush_word(plan, map), 0, 4, flush, flush);
#if defined(__x86_64__)
	if (plan->type == GDR_MAPPING_TYPE_WC)
		FENCES_ARE(plan, gdri_drain(plan, map), 0, 4, AFTER_WRITE, "");
	else
#endif
		FENCES_ARE(plan, gdri_drain(plan, map), 0, 4, flush, flush);
	FENCES_ARE(plan, gdri_fence(plan, BARCOPY_FENCE_BEFORE_READ), 0, 0, BEFORE_READ, "");
	FENCES_ARE(plan, gdri_fence(plan, BARCOPY_FENCE_AFTER_READ), 0, 0, AFTER_READ, "");
	FENCES_ARE(plan, gdri_fence(plan, BARCOPY_FENCE_AFTER_WRITE), 0, 0, AFTER_WRITE, "");
	FENCES_ARE(plan, gdri_fence(plan, BARCOPY_FENCE_FULL), 0, 0, full, full);
}

/* A queue's lines and words leave at once, by their stores or by a fence behind them. */
static void copy_fences_queue(const struct fence_watch *w, const struct gdri_copy_plan *plan)
{
	static const size_t sizes[] = { 1, 47, 48 };
	static const uint8_t message[48];
	static uint64_t state[(BARCOPY_QUEUE_STATE + 5 * 64) / 8];
	struct gdri_queue q = { .ring = { .control = (char *)w->map + 8192,
					  .incoming = (char *)state + BARCOPY_QUEUE_STATE,
					  .plan = plan,
					  .lines = 16,
					  .shift = 4 },
				.requests = (char *)w->map,
				.state = (char *)state };
	uint64_t *line = (uint64_t *)(void *)q.ring.incoming, got[6];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		FENCES_ARE(plan, gdri_queue_send(&q, message, sizes[i], 0, 0), 0, sizes[i],
			   "w" PUSH, "w");
	FENCES_ARE(plan, gdri_queue_send(&q, message, 1, BARCOPY_QUEUE_ORDERED, 0), 0, 1,
		   BEFORE_WORD "w" PUSH, "w");
	for (size_t i = 0; i < 5 * 8; i++)
		line[i] = UINT64_C(1) << BARCOPY_QUEUE_DATA_BITS | UINT64_C(48) << 56;
	for (int i = 0; i < 5; i++) /* the fourth line is a quarter of the ring: a credit */
		FENCES_ARE(plan, gdri_queue_receive(&q, got, sizeof(got), NULL, 0), 0, 48,
			   i != 3	 ? HOST_READ
			   : plan->posts ? HOST_READ "w"
					 : HOST_READ "w" PUSH,
			   i != 3 ? HOST_READ : HOST_READ "w");
	FENCES_ARE(plan, gdri_queue_stop(&q.ring, 0), 0, 0, "w" PUSH, "w");
	FENCES_ARE(plan, gdri_queue_stop(&q.ring, BARCOPY_QUEUE_ABORT), 0, 0,
		   plan->posts ? "w" : "w" PUSH, "w");
}

/* Every type and every implementation by name; then a plan without fences. */
static void copy_fences_all(const struct fence_watch *w)
{
	for (int type = GDR_MAPPING_TYPE_WC; type < GDR_MAPPING_TYPE_MAX; type++) {
		for (size_t r = 0; r <= gdri_copy_impl_count; r++) {
			const struct gdri_copy_impl *impl = r ? &gdri_copy_impls[r - 1] : NULL;
			struct gdri_copy_plan plan;

			if (gdri_copy_plan_init(&plan, (gdr_mapping_type_t)type, gdri_cpu_detect(),
						impl))
				continue;
			copy_fences_copies(w, &plan, impl);
			if (!impl)
				copy_fences_words(w, &plan);
			plan.posts = plan.posts_lines = false;
			if (!impl) {
				copy_fences_words(w, &plan);
				copy_fences_queue(w, &plan);
			}
			plan.fences = GDR_MAPPING_TYPE_NONE;
			copy_fences_copies(w, &plan, impl);
			if (!impl)
				copy_fences_words(w, &plan);
		}
	}
}

#endif
