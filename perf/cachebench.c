/* SPDX-License-Identifier: MIT */
/*
 * cachebench: what the registration cache saves. Measures a hit with each kind of validation, the
 * pin, map, unmap and unpin that a hit replaces, and hits among a growing number of regions. For
 * developers: not installed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "common/exit.h"
#include "bench/timing.h"

#define REGION GPU_PAGE_SIZE

static struct {
	long hits, regions;
} opt = { .hits = 1000000, .regions = 100000 };

static const struct opt options[] = {
	{ 'n', "hits", OPT_COUNT, &opt.hits, "N", "hits of each kind (1000000)", 1, 1000000000,
	  NULL },
	{ 'r', "regions", OPT_COUNT, &opt.regions, "N",
	  "largest number of regions of 64 KiB (100000: 6.1 GiB\n"
	  "of page-locked host memory); 0: none",
	  0, 1000000, NULL },
};

static const struct tool tool = {
	"cachebench",
	"Measures the registration cache: hits against pinning and mapping.",
	"  A hit is one barcopy_cache_get() and its barcopy_cache_put(). Hits are timed in\n"
	"  batches of 1000; the median batch is shown. A pin, map, unmap and unpin are timed as\n"
	"  one; the median is shown, and how many times longer it takes than a hit. Among many\n"
	"  regions each hit goes to a random one. These regions are parts of one allocation of\n"
	"  cuMemHostAlloc: a process may not have so many mappings of the BAR, and the cache\n"
	"  treats all memory alike. The last column is a dependent load from one of as many lines.",
	options,
	sizeof(options) / sizeof(options[0]),
};

enum { BATCH = 1000, PINS = 200 };

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* The median of a hit in one of `regions` regions, side by side from addr on. */
static double measure_hits(barcopy_cache_t cache, uint64_t addr, size_t regions)
{
	size_t count = (size_t)(opt.hits + BATCH - 1) / BATCH;
	uint64_t *sample = tool_calloc(count + 1, sizeof(*sample));
	uint64_t x = 88172645463325252ull;
	struct stats st;

	for (size_t n = 0; n <= count; n++) {
		uint64_t start = timing_ticks();

		for (int i = 0; i < BATCH; i++) {
			size_t at = regions > 1 ? next_random(&x) % regions * REGION : 0;
			barcopy_region_t region;

			if (barcopy_cache_get(cache, addr + at, 8, &region) ||
			    barcopy_cache_put(cache, &region))
				tool_fail("a hit failed: %s", barcopy_last_error());
		}
		sample[n] = timing_ticks() - start;
	}
	stats_compute(&st, sample + 1, count, timing.ns_per_tick / BATCH); /* without the first */
	free(sample);
	return st.p50;
}

static barcopy_cache_t make_cache(gdr_t g, barcopy_cache_validity_t validity)
{
	barcopy_cache_options_t o = { .struct_size = sizeof(o),
				      .validity = validity,
				      .max_bytes = UINT64_MAX };
	barcopy_cache_t cache;

	if (barcopy_cache_create(g, &o, &cache))
		tool_fail("barcopy_cache_create: %s", barcopy_last_error());
	return cache;
}

/*
 * The time of a load from one of n cache lines in random order; each load depends on the previous
 * one. It shows what n cache lines cost on this machine.
 */
static double measure_loads(size_t n)
{
	struct line {
		struct line *next;
		char rest[56];
	} *lines = tool_alloc_pages((n * sizeof(*lines) + 4095) & ~(size_t)4095), *at = lines;
	uint64_t x = 88172645463325252ull, start;
	long count = opt.hits;

	for (size_t i = 0; i < n; i++)
		lines[i].next = &lines[i];
	/* Sattolo's shuffle: one cycle through all lines. */
	for (size_t i = n - 1; i > 0; i--) {
		size_t k = next_random(&x) % i;
		struct line *t = lines[i].next;

		lines[i].next = lines[k].next;
		lines[k].next = t;
	}
	for (size_t i = 0; i < n; i++)
		at = at->next;
	start = timing_ticks();
	for (long i = 0; i < count; i++)
		at = at->next;
	start = timing_ticks() - start;
	__asm__ volatile("" : : "r"(at));
	free(lines);
	return (double)start * timing.ns_per_tick / (double)count;
}

/* Without a cache: the median of pin, map, unmap and unpin, in nanoseconds. */
static double measure_pins(gdr_t g, uint64_t addr)
{
	uint64_t sample[PINS];
	struct stats st;

	for (int i = -2; i < PINS; i++) {
		uint64_t start = timing_ticks();
		gdr_info_t info;
		gdr_mh_t mh;
		void *map;

		if (gdr_pin_buffer_v2(g, addr, REGION, 0, &mh) || gdr_get_info(g, mh, &info) ||
		    gdr_map(g, mh, &map, info.mapped_size) ||
		    gdr_unmap(g, mh, map, info.mapped_size) || gdr_unpin_buffer(g, mh))
			tool_fail("pin and map: %s", barcopy_last_error());
		if (i >= 0)
			sample[i] = timing_ticks() - start;
	}
	stats_compute(&st, sample, PINS, timing.ns_per_tick);
	return st.p50;
}

/* Hits among 10, 100 .. opt.regions regions of one host allocation. */
static void measure_growth(struct bench *b, struct json *j)
{
	size_t most = (size_t)opt.regions, made = 0;
	barcopy_cache_t cache;
	struct gpu_mem mem;
	double first = 0;
	char why[256];
	uint64_t addr;

	if (mem_alloc(&mem, &b->gpu, MEM_HOST_ALLOC, (most + 1) * REGION, false, why,
		      sizeof(why))) {
		tool_note("no growth is measured: %zu bytes of host memory: %s", most * REGION,
			  why);
		return;
	}
	addr = ((uintptr_t)mem.host + REGION - 1) & ~(uint64_t)(REGION - 1);
	cache = make_cache(b->buf.g, BARCOPY_CACHE_NOTIFIED);
	if (j)
		json_array(j, "growth");
	else
		printf("\n   regions    hit, ns   of 10   a load among as many lines, ns\n");
	for (size_t n = most < 10 ? most : 10, last = 0; n > last;) {
		double ns, load;

		for (; made < n; made++) {
			barcopy_region_t region;

			if (barcopy_cache_get(cache, addr + made * REGION, 8, &region) ||
			    barcopy_cache_put(cache, &region))
				tool_fail("region %zu: %s", made, barcopy_last_error());
		}
		ns = measure_hits(cache, addr, n);
		load = measure_loads(n);
		first = first > 0 ? first : ns;
		if (j) {
			json_object(j, NULL);
			json_uint(j, "regions", n);
			json_number(j, "hit_ns", ns);
			json_number(j, "load_ns", load);
			json_end(j);
		} else {
			printf("%10zu %10.1f %7.2f   %.1f\n", n, ns, ns / first, load);
		}
		last = n;
		n = n * 10 < most ? n * 10 : most;
	}
	if (j)
		json_end(j);
	if (barcopy_cache_destroy(cache))
		tool_fail("barcopy_cache_destroy: %s", barcopy_last_error());
	mem_free(&mem);
}

int main(int argc, char **argv)
{
	double plain, tagged, pin;
	barcopy_cache_t notified, tags;
	struct bench b;
	struct json j;
	uint64_t addr;

	bench_options(&b, &tool, argc, argv);
	bench_start(&b, REGION);
	addr = b.buf.mem.dptr;
	notified = make_cache(b.buf.g, BARCOPY_CACHE_NOTIFIED);
	tags = make_cache(b.buf.g, BARCOPY_CACHE_CHECK_TAG);

	pin = measure_pins(b.buf.g, addr);
	plain = measure_hits(notified, addr, 1);
	tagged = measure_hits(tags, addr, 1);
	if (b.json) {
		bench_json(&b, &j);
		json_number(&j, "hit_ns", plain);
		json_number(&j, "hit_with_tag_check_ns", tagged);
		json_number(&j, "pin_map_unmap_unpin_ns", pin);
	} else {
		printf("\nhit, notified            %10.1f ns\n"
		       "hit, tag check           %10.1f ns\n"
		       "pin, map, unmap, unpin   %10.1f ns, of hits: %.0f and %.0f\n",
		       plain, tagged, pin, pin / plain, pin / tagged);
	}
	if (opt.regions)
		measure_growth(&b, b.json ? &j : NULL);
	if (b.json)
		json_finish(&j, stdout);
	if (barcopy_cache_destroy(notified) || barcopy_cache_destroy(tags))
		tool_fail("barcopy_cache_destroy: %s", barcopy_last_error());
	bench_stop(&b);
	return TOOL_OK;
}
