/* SPDX-License-Identifier: MIT */
/* gdrcopy_apiperf: the cost of each call of libgdrapi, by size. */
#include <stdio.h>

#include "bench/bench.h"
#include "common/copytest.h"
#include "common/exit.h"
#include "common/progress.h"
#include "bench/timing.h"

enum { BINS = 10 };

static struct {
	size_t last;
	long iters, warm_up;
	bool histogram;
} opt = { .last = GPU_PAGE_SIZE, .iters = 100, .warm_up = 1 };

static const struct opt options[] = {
	OPTION_SIZE('s', "size", &opt.last, "the largest of the ranges, 64K and its doubles (64K)", 1,
		    0),
	OPTION_COUNT('n', "iters", &opt.iters, "times each call is made a size (100)", 1, 10000000),
	OPTION_COUNT('w', "warm-up", &opt.warm_up, "untimed rounds before them (1)", 0, 10000000),
	OPTION_FLAG('H', "histogram", &opt.histogram,
		    "print each call's histogram: 10 bins from P0 to P99, and one\n"
		    "for what is above"),
};

static const struct tool tool = {
	"gdrcopy_apiperf",
	"Measures the cost of each call of libgdrapi, by size.",
	"  One round: pin, attributes, map, one store and one load of the first word, unmap,\n"
	"  unpin, on the same memory each time; then open and close of a context of its own.\n"
	"  Each call is timed by itself, after the untimed rounds. Work that the library does\n"
	"  once in a process (the rm backend's trial) falls into these rounds, unless there are\n"
	"  none (-w 0). The cost of one reading of the clock (in the JSON document) is part of\n"
	"  each figure. Percentiles are measured values (nearest rank), in microseconds. After\n"
	"  the rounds of a size the whole range is written through a mapping, and compared.",
	options,
	ARRAY_SIZE(options),
	.examples = "  gdrcopy_apiperf -s 64K -n 1000\n"
		    "      what pin, map and the other calls cost for one GPU page\n"
		    "  gdrcopy_apiperf -H\n"
		    "      with a histogram of each call",
};

enum call { OPEN, PIN, INFO, ATTRIBUTE, CALLBACK_FLAG, MAP, PUT, GET, UNMAP, UNPIN, CLOSE, CALLS };

static const char *const call_name[CALLS] = { "barcopy_open",
					      "gdr_pin_buffer_v2",
					      "gdr_get_info_v2",
					      "barcopy_get_handle_attribute",
					      "gdr_get_callback_flag",
					      "gdr_map_v2",
					      "barcopy_put32",
					      "barcopy_get32",
					      "gdr_unmap",
					      "gdr_unpin_buffer",
					      "gdr_close" };

struct state {
	struct bench b;
	struct copytest test;
	uint64_t *sample[CALLS];
};

/* Times one expression whose value is 0 if it succeeds. */
#define TIMED(s, call, round, expression)             \
	do {                                          \
		uint64_t t0_ = timing_ticks(), t1_;   \
		int rc_ = (expression);               \
                                                      \
		t1_ = timing_ticks();                 \
		lib_must(rc_, call_name[call]);       \
		(s)->sample[call][round] = t1_ - t0_; \
	} while (0)

/* All calls on one pin of the buffer's first `size` bytes; samples at `round`. */
static void one_round(struct state *s, size_t size, long round)
{
	unsigned long addr = (unsigned long)s->b.buf.mem.dptr;
	gdr_t g = s->b.buf.g, other;
	gdr_info_t info;
	uint64_t value;
	gdr_mh_t mh;
	uint32_t word;
	size_t whole;
	uint8_t *at;
	void *map;
	int flag;

	TIMED(s, PIN, round, gdr_pin_buffer_v2(g, addr, size, GDR_PIN_FLAG_DEFAULT, &mh));
	TIMED(s, INFO, round, gdr_get_info_v2(g, mh, &info));
	TIMED(s, ATTRIBUTE, round,
	      barcopy_get_handle_attribute(g, mh, BARCOPY_HANDLE_ATTR_BACKEND, &value));
	TIMED(s, CALLBACK_FLAG, round, gdr_get_callback_flag(g, mh, &flag));
	whole = (size_t)(addr - info.va) + size;
	TIMED(s, MAP, round, gdr_map_v2(g, mh, &map, whole, s->b.mapping));
	at = (uint8_t *)map + (addr - info.va);
	if (size >= sizeof(word)) {
		/* The read first: behind a write it would wait for the write to reach memory. */
		TIMED(s, GET, round, barcopy_get32(mh, at, &word));
		TIMED(s, PUT, round, barcopy_put32(mh, at, (uint32_t)round + 1));
		if (barcopy_get32(mh, at, &word))
			tool_fail("barcopy_get32: %s", barcopy_last_error());
		if (word != (uint32_t)round + 1)
			tool_fail("wrong word at offset 0: expected 0x%08x, found 0x%08x",
				  (uint32_t)round + 1, word);
	}
	TIMED(s, UNMAP, round, gdr_unmap(g, mh, map, whole));
	TIMED(s, UNPIN, round, gdr_unpin_buffer(g, mh));
	TIMED(s, OPEN, round, !(other = barcopy_open(BARCOPY_OPEN_ANY)));
	TIMED(s, CLOSE, round, gdr_close(other));
}

/* Writes the whole range through a new mapping and compares. 0, or not. */
static int verify(struct state *s, size_t size)
{
	struct buffer b = { .g = s->b.buf.g, .mem = s->b.buf.mem };
	char why[1024];

	b.mem.size = size;
	if (buffer_pin(&b, GDR_PIN_FLAG_DEFAULT, s->b.mapping, why, sizeof(why)))
		tool_fail("%s", why);
	copytest_before(&s->test, WRITE, s->test.host, 0, size);
	lib_must(gdr_copy_to_mapping(b.mh, b.cpu, s->test.host, size), "gdr_copy_to_mapping");
	buffer_unpin(&b);
	return copytest_after(&s->test, WRITE, s->test.host, 0, size);
}

/* The calls of a size in which no word fits have no samples. */
static bool measured(enum call call, size_t size)
{
	return size >= sizeof(uint32_t) || (call != PUT && call != GET);
}

static void print_histogram(const struct stats_bin *bin, long count)
{
	static const char bar[] = "########################################";
	size_t most = 1;

	for (long i = 0; i < count; i++)
		if (bin[i].count > most)
			most = bin[i].count;
	for (long i = 0; i < count; i++)
		printf("    %10.3f to %10.3f us %8zu%s%.*s\n", bin[i].from, bin[i].to, bin[i].count,
		       bin[i].count ? " " : "", (int)((bin[i].count * 40 + most - 1) / most), bar);
}

static void json_call(struct json *j, const char *name, const struct stats *st,
		      const struct stats_bin *bin, long bins)
{
	json_object(j, name);
	bench_json_stats(j, st);
	json_array(j, "histogram");
	for (long i = 0; i < bins; i++) {
		json_object(j, NULL);
		json_number(j, "from", bin[i].from);
		json_number(j, "to", bin[i].to);
		json_uint(j, "count", bin[i].count);
		json_end(j);
	}
	json_end(j);
	json_end(j);
}

static void report(struct state *s, size_t size, struct json *j)
{
	double scale = timing.ns_per_tick / 1000;
	struct stats_bin bin[BINS + 1];
	struct stats st;
	int call;

	if (s->b.json) {
		json_object(j, NULL);
		json_uint(j, "size", size);
	} else {
		printf("\n%zu byte%s\n  %-28s %10s %10s %10s %10s %10s\n", size, plural(size),
		       "call", "P0 us", "P50 us", "P99 us", "mean us", "max us");
	}
	for (call = 0; call < CALLS; call++) {
		if (!measured((enum call)call, size))
			continue;
		stats_compute(&st, s->sample[call], (size_t)opt.iters, scale);
		stats_histogram(bin, BINS, s->sample[call], (size_t)opt.iters, scale);
		if (s->b.json) {
			json_call(j, call_name[call], &st, bin, BINS + 1);
			continue;
		}
		printf("  %-28s %10.3f %10.3f %10.3f %10.3f %10.3f\n", call_name[call], st.p0,
		       st.p50, st.p99, st.mean, st.max);
		if (opt.histogram)
			print_histogram(bin, BINS + 1);
	}
	if (s->b.json)
		json_end(j);
	else
		fflush(stdout);
}

int main(int argc, char **argv)
{
	size_t first, sizes, done = 0;
	static struct state s;
	struct json j;
	int rc = 0;

	bench_options(&s.b, &tool, argc, argv);
	bench_start(&s.b, opt.last);
	/* from here on the tool pins and maps the memory itself */
	buffer_unpin(&s.b.buf);
	copytest_init(&s.test, &s.b.buf.mem, opt.last);
	for (int call = 0; call < CALLS; call++)
		s.sample[call] = tool_calloc((size_t)opt.iters, sizeof(uint64_t));
	if (s.b.json) {
		bench_json(&s.b, &j);
		json_string(&j, "unit", "us");
		json_array(&j, "results");
	}
	first = opt.last < GPU_PAGE_SIZE ? opt.last : GPU_PAGE_SIZE;
	sizes = bench_size_count(first, opt.last);
	for (size_t size = first; size && !rc; size = bench_next_size(size, opt.last)) {
		progress_at(done++, sizes, "%ld rounds of %zu byte%s", opt.iters, size, plural(size));
		for (long i = -opt.warm_up; i < opt.iters; i++)
			one_round(&s, size, i < 0 ? 0 : i);
		rc = verify(&s, size);
		progress_hide();
		if (!rc)
			report(&s, size, &j);
	}
	return bench_finish(&s.b, &j, rc, true);
}
