// SPDX-License-Identifier: MIT
/* What two to four threads do at the same time, and what must hold after it. See scenarios.h. */
#include "explore/scenarios.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory and its uses --------------------------------------------------------------------- */

gdr_t g, other;
barcopy_cache_t a, b;
CUdeviceptr shared[SHARED], own[THREADS], three;
uint32_t own_tag[THREADS];
unsigned long long (*bar_used)(int);
void (*rm_fail)(const char *);
uint32_t next_tag = 1000;
static unsigned int (*node_pins)(void);
unsigned long long bar_before;
static unsigned long long bytes_before;
uint64_t pins_before;

uint64_t pinned(void)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_get_stats(NULL, &s));
	return s.pins - s.unpins;
}

void remember(void)
{
	bytes_before = standin_device_bytes(0);
	bar_before = bar_used(0);
	pins_before = pinned();
}

void all_is_back_but(uint64_t bytes_kept)
{
	if (bar_used(0) != bar_before)
		ex_fail("%llu bytes of BAR1 in use, before it were %llu", bar_used(0), bar_before);
	if (pinned() != pins_before)
		ex_fail("%llu pins are left", (unsigned long long)(pinned() - pins_before));
	if (standin_device_bytes(0) > bytes_before + bytes_kept)
		ex_fail("%llu bytes are allocated, before it were %llu", standin_device_bytes(0),
			bytes_before);
	if (node_pins())
		ex_fail("%u pins of gdrdrv's are left", node_pins());
}

void fill(CUdeviceptr d, uint32_t tag)
{
	uint32_t words[2] = { tag, ~tag };

	CU_MUST(cuda.cuMemcpyHtoD_v2(d, words, sizeof(words)));
	CU_MUST(cuda.cuMemcpyHtoD_v2(d + CHUNK - 8, words, sizeof(words)));
}

void check_tag(const void *p, uint32_t tag, const char *what)
{
	const uint32_t *words = p;

	if (words[0] != tag || words[1] != ~tag)
		ex_fail("%s: the bytes of %u, not of %u", what, words[0], tag);
}

static CUdeviceptr new_chunks(unsigned int n)
{
	return standin_chunks(0, 0, n, CHUNK, STANDIN_EXPORTABLE);
}

barcopy_cache_t new_cache(gdr_t ctx, bool notified, uint64_t max_bytes)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o),
				      .max_bytes = max_bytes,
				      .validity = notified ? BARCOPY_CACHE_NOTIFIED
							   : BARCOPY_CACHE_CHECK_TAG };
	barcopy_cache_t c;

	MUST(barcopy_cache_create(ctx, &o, &c));
	return c;
}

static int by_cache(barcopy_cache_t c, CUdeviceptr at, uint32_t tag)
{
	barcopy_region_t r;
	int rc = barcopy_cache_get(c, at, 8, &r);

	if (rc)
		return rc;
	check_tag(r.cpu_ptr, tag, "a get");
	MUST(barcopy_cache_put(c, &r));
	return 0;
}

static int by_range(gdr_t ctx, CUdeviceptr at, uint32_t tag)
{
	uint32_t words[2];
	gdr_mh_t h;
	void *p;
	int rc = barcopy_map_range(ctx, at, 8, 0, &p, &h);

	if (rc)
		return rc;
	MUST(gdr_copy_from_mapping(h, words, p, 8));
	check_tag(words, tag, "a range");
	MUST(barcopy_unmap_range(ctx, h));
	return 0;
}

static int by_pin(gdr_t ctx, CUdeviceptr d, CUdeviceptr at, uint32_t tag)
{
	gdr_info_t info;
	gdr_mh_t h;
	void *p;
	int rc = gdr_pin_buffer_v2(ctx, d, CHUNK, 0, &h);

	if (rc)
		return rc;
	rc = gdr_map(ctx, h, &p, CHUNK);
	if (!rc) {
		MUST(gdr_get_info(ctx, h, &info));
		check_tag((char *)p + (at - info.va), tag, "a map");
		MUST(gdr_unmap(ctx, h, p, CHUNK));
	}
	MUST(gdr_unpin_buffer(ctx, h));
	return rc;
}

void all_is_back(void)
{
	all_is_back_but(0);
}

/* The errno of the call that took it. */
int use(gdr_t ctx, enum how how, barcopy_cache_t c, CUdeviceptr d, uint32_t tag)
{
	static const int may[] = { 0, EINVAL, EACCES, ENODEV, ENOTSUP, ENOMEM, EIO };
	CUdeviceptr at = ex_random(2) ? d + CHUNK - 8 : d;
	int rc, known = 0;

	rc = how == GET	    ? by_cache(c, at, tag)
	     : how == RANGE ? by_range(ctx, at, tag)
			    : by_pin(ctx, d, at, tag);
	for (size_t i = 0; i < sizeof(may) / sizeof(may[0]); i++)
		known |= rc == may[i];
	if (!known)
		ex_fail("use %d: errno %d is not documented", how, rc);
	ex_note("use %d of 0x%llx: %d", how, (unsigned long long)at, rc);
	ex_progress();
	return rc;
}

/* The same where nothing may fail. */
void uses(enum how how, barcopy_cache_t c, CUdeviceptr d, uint32_t tag)
{
	int rc = use(g, how, c, d, tag);

	if (rc)
		ex_fail("use %d: errno %d, and %llu bytes of BAR1 in use: %s", how, rc, bar_used(0),
			barcopy_last_error());
}

void in_context(void)
{
	CU_MUST(cuda.cuCtxSetCurrent(standin_primary(0)));
}

void check_stats(barcopy_cache_t c)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };

	MUST(barcopy_cache_get_stats(c, &s));
	if (s.regions_in_use > s.regions || s.bytes_pinned > 64ull * CHUNK)
		ex_fail("statistics: %llu in use of %llu regions, %llu bytes",
			(unsigned long long)s.regions_in_use, (unsigned long long)s.regions,
			(unsigned long long)s.bytes_pinned);
	ex_progress();
}

void end_caches(void)
{
	ex_before_munmap = NULL;
	if (a)
		MUST(barcopy_cache_destroy(a));
	if (b)
		MUST(barcopy_cache_destroy(b));
	all_is_back();
}

/* ---- unordered: two threads write the same bytes, and the scheduler says so ---------------------- */

static void unordered(int thread)
{
	static char bytes[64];
	volatile size_t n = sizeof(bytes); /* a call, which race.c sees */

	memset(bytes, thread, n);
}

const struct scenario scenarios[] = {
	{ "room", 3, 8, room_begin, room, end_caches },
	{ "short", 2, 8, short_begin, short_of_room, end_caches },
	{ "returned", 3, 8, returned_begin, returned, returned_check },
	{ "ended", 3, 8, returned_begin, ended, returned_check },
	{ "drained", 3, 8, remember, drained, all_is_back },
	{ "covered", 3, 8, covered_begin, covered, all_is_back },
	{ "lost", 3, 256, lost_begin, lost, lost_check },
	{ "moves", 3, 8, short_begin, moves, end_caches },
	{ "evict", 3, 8, evict_begin, evict, end_caches },
	{ "never", 3, 8, never_begin, never, never_check },
	{ "stale", 3, 256, stale_begin, stale, end_caches },
	{ "reuse", 3, 256, reuse_begin, reuse, end_caches },
	{ "limit", 3, 256, limit_begin, limit, end_caches },
	{ "hook", 3, 256, hook_begin, hook, end_caches },
	{ "trim", 3, 256, trim_begin, trim, end_caches },
	{ "close", 3, 256, close_begin, closes, close_check },
	{ "table", 3, 256, table_begin, table, table_check },
	{ "again", 2, 256, again_begin, again, again_check },
	{ "fork", 3, 256, stale_begin, forks, end_caches },
	{ "place", 2, 256, place_begin, place, place_check },
	{ "queue", 3, 256, remember, queue, queues_check },
	{ "hit", 2, 256, hit_begin, hit, end_caches },
	{ "piece", 4, 256, piece_begin, piece, end_caches },
	{ "caches", 3, 256, remember, caches, all_is_back },
	{ "fresh", 2, 256, hit_begin, fresh, end_caches },
	{ "joined", 2, 256, joined_begin, joined, end_caches },
	{ "doom", 3, 256, doom_begin, doom, doom_check },
	{ "once", 2, 256, once_begin, once, end_caches },
	{ "elsewhere", 2, 256, elsewhere_begin, elsewhere, elsewhere_check },
	{ "ranged", 2, 256, elsewhere_begin, ranged, ranged_check },
	{ "mid-pin", 3, 256, mid_pin_begin, mid_pin, end_caches },
	{ "next", 3, 256, next_begin, next, next_check },
	{ "others", 2, 8, others_begin, others, others_check },
	{ "leftover", 3, 256, leftover_begin, leftover, leftover_check },
	{ "engine", 3, 256, engine_begin, engine, engine_check },
	{ "memory", 3, 256, memory_begin, memory, memory_check },
	{ "queues", 3, 256, memory_begin, queues, queues_check },
	{ "abandon", 2, 256, abandon_begin, abandon, abandon_check },
	{ "opens", 3, 256, remember, opens, all_is_back, .fresh = true },
	{ "client", 2, 256, client_begin, client, client_check },
	{ "verdict", 3, 256, verdict_begin, verdict, verdict_check, .fresh = true },
	{ "port", 3, 256, port_begin, ports, port_check },
	{ "unordered", 2, 256, remember, unordered, all_is_back }, /* fails: a test of race.c */
};
const int scenario_count = sizeof(scenarios) / sizeof(scenarios[0]) - 1;

void scenario_start(const struct scenario *s)
{
	char text[20];
	gdr_mh_t taken;
	void *p;

	snprintf(text, sizeof(text), "%d", s->bar_mib);
	setenv("GDRSIM_BAR1_MIB", text, 1);
	standin_start();
	*(void **)&bar_used = dlsym(RTLD_DEFAULT, "gdrsim_rm_bar1_used");
	*(void **)&rm_fail = dlsym(RTLD_DEFAULT, "gdrsim_rm_fail");
	*(void **)&node_pins = dlsym(RTLD_DEFAULT, "gdrsim_node_pins");
	if (!bar_used || !rm_fail || !node_pins)
		ex_fail("the stand-ins of the drivers are not preloaded");
	for (uint32_t i = 0; i < SHARED; i++)
		fill(shared[i] = new_chunks(1), i);
	for (int i = 0; i < THREADS; i++)
		fill(own[i] = new_chunks(1), own_tag[i] = next_tag++);
	three = new_chunks(3);
	if (s->fresh)
		return;
	g = barcopy_open(BARCOPY_OPEN_ANY);
	if (!g)
		ex_fail("open: %s", barcopy_last_error());
	uses(PIN, NULL, shared[0], 0); /* with rm's trial */
	uses(RANGE, NULL, shared[1], 1);
	if (s->bar_mib == 8) { /* space for three chunks is left */
		MUST(gdr_pin_buffer_v2(g, new_chunks(1), CHUNK, 0, &taken));
		MUST(gdr_map(g, taken, &p, CHUNK));
	}
}
