/* SPDX-License-Identifier: MIT */
/*
 * What the registration cache saves: a hit with each kind of validation, the pin, map, unmap and
 * unpin that a hit replaces, and hits among a growing number of regions.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/exit.h"
#include "bench/timing.h"
#include "setup.h"

#define CACHED GPU_PAGE_SIZE /* bytes of a region */

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
	size_t count = (size_t)(st.hits + BATCH - 1) / BATCH;
	uint64_t *sample = tool_calloc(count + 1, sizeof(*sample));
	uint64_t x = 88172645463325252ull;
	struct stats got;

	for (size_t n = 0; n <= count; n++) {
		uint64_t start = timing_ticks();

		for (int i = 0; i < BATCH; i++) {
			size_t at = regions > 1 ? next_random(&x) % regions * CACHED : 0;
			barcopy_region_t region;

			if (barcopy_cache_get(cache, addr + at, 8, &region) ||
			    barcopy_cache_put(cache, &region))
				tool_fail("a hit failed: %s", barcopy_last_error());
		}
		sample[n] = timing_ticks() - start;
	}
	stats_compute(&got, sample + 1, count, timing.ns_per_tick / BATCH); /* without the first */
	free(sample);
	return got.p50;
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
	long count = st.hits;

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
	struct stats got;

	for (int i = -2; i < PINS; i++) {
		uint64_t start = timing_ticks();
		gdr_info_t info;
		gdr_mh_t mh;
		void *map;

		if (gdr_pin_buffer_v2(g, addr, CACHED, 0, &mh) || gdr_get_info(g, mh, &info) ||
		    gdr_map(g, mh, &map, info.mapped_size) ||
		    gdr_unmap(g, mh, map, info.mapped_size) || gdr_unpin_buffer(g, mh))
			tool_fail("pin and map: %s", barcopy_last_error());
		if (i >= 0)
			sample[i] = timing_ticks() - start;
	}
	stats_compute(&got, sample, PINS, timing.ns_per_tick);
	return got.p50;
}

/* Hits among 10, 100 .. st.regions regions of one host allocation. */
static void measure_growth(struct json *j)
{
	size_t most = (size_t)st.regions, made = 0;
	barcopy_cache_t cache;
	struct gpu_mem mem;
	double first = 0;
	char why[256];
	uint64_t addr;

	if (mem_alloc(&mem, &st.b.gpu, MEM_HOST_ALLOC, (most + 1) * CACHED, false, why,
		      sizeof(why))) {
		tool_note("no growth is measured: %zu bytes of host memory: %s", most * CACHED,
			  why);
		return;
	}
	addr = ((uintptr_t)mem.host + CACHED - 1) & ~(uint64_t)(CACHED - 1);
	cache = make_cache(st.b.buf.g, BARCOPY_CACHE_NOTIFIED);
	if (j)
		json_array(j, "growth");
	else
		printf("\n   regions    hit, ns   of 10   a load among as many lines, ns\n");
	for (size_t n = most < 10 ? most : 10, last = 0; n > last;) {
		double ns, load;

		for (; made < n; made++) {
			barcopy_region_t region;

			if (barcopy_cache_get(cache, addr + made * CACHED, 8, &region) ||
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

void cache_section(void)
{
	struct json *j = st.b.json ? &st.json : NULL;
	double plain, tagged, pin;
	barcopy_cache_t notified, tags;
	uint64_t addr = st.b.buf.mem.dptr;

	notified = make_cache(st.b.buf.g, BARCOPY_CACHE_NOTIFIED);
	tags = make_cache(st.b.buf.g, BARCOPY_CACHE_CHECK_TAG);
	pin = measure_pins(st.b.buf.g, addr);
	plain = measure_hits(notified, addr, 1);
	tagged = measure_hits(tags, addr, 1);
	if (j) {
		json_object(j, NULL);
		json_string(j, "table", "cache");
		json_number(j, "hit_ns", plain);
		json_number(j, "hit_with_tag_check_ns", tagged);
		json_number(j, "pin_map_unmap_unpin_ns", pin);
	} else {
		printf("\nhit, notified            %10.1f ns\n"
		       "hit, tag check           %10.1f ns\n"
		       "pin, map, unmap, unpin   %10.1f ns, of hits: %.0f and %.0f\n",
		       plain, tagged, pin, pin / plain, pin / tagged);
	}
	if (st.regions)
		measure_growth(j);
	if (j)
		json_end(j);
	must(barcopy_cache_destroy(notified));
	must(barcopy_cache_destroy(tags));
}
