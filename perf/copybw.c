/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_copybw: bandwidth of the CPU's copies to and from GPU memory. It must not know how the
 * library copies.
 */
#include <stdio.h>

#include "common/bench.h"
#include "common/copytest.h"
#include "common/exit.h"
#include "common/progress.h"
#include "common/timing.h"
#include "common/words.h"

#define MIB	  (1024.0 * 1024.0)
#define MAX_SIZES (8 * sizeof(size_t) + 1) /* powers of two, and the copy size itself */

static struct {
	size_t size, copy_size, offset;
	bool sweep;
	long writes, reads; /* -1: by the size */
} opt = { .writes = -1, .reads = -1 };

static const struct opt options[] = {
	{ 's', "size", OPT_SIZE, &opt.size, "SIZE", "bytes of the buffer (128K; 16M with -l)", 1, 0,
	  NULL },
	{ 'c', "copy-size", OPT_SIZE, &opt.copy_size, "SIZE",
	  "bytes of one copy (the buffer from the offset on);\n"
	  "with -l of the last and largest",
	  1, 0, NULL },
	{ 'o', "offset", OPT_SIZE, &opt.offset, "SIZE",
	  "first byte of the copies in the buffer (0)", 0, 0, NULL },
	{ 'l', "sweep", OPT_FLAG, &opt.sweep, NULL, "all powers of two from 1 to the copy size", 0,
	  0, NULL },
	{ 'w', "write-iters", OPT_COUNT, &opt.writes, "N",
	  "copies to the GPU (4 GiB in all, 10 to 10000); 0: none", 0, 1000000000, NULL },
	{ 'r', "read-iters", OPT_COUNT, &opt.reads, "N",
	  "copies from the GPU (256 MiB in all, 10 to 10000);\n"
	  "0: none",
	  0, 1000000000, NULL },
};

static const struct tool tool = {
	"gdrcopy_copybw",
	"Measures the bandwidth of CPU copies to and from GPU memory through its mapping.",
	"  One thread copies the same range again and again, after an untimed tenth (1 to 10\n"
	"  copies); the clock is read once before and once after the whole loop. MiB/s are 2^20\n"
	"  bytes a second; the lines at the end, in the form of GDRCopy's copybw, call them MB/s.\n"
	"  Host memory is pageable and, where it fits, stays in the CPU's caches.\n"
	"  Before each loop both sides get random bytes, through cuMemcpy on the GPU's side; "
	"after\n"
	"  it every byte of the buffer is compared.",
	options,
	sizeof(options) / sizeof(options[0]),
};

static const char examples[] =
	"  gdrcopy_copybw -s 16M -l -c 1M\n"
	"      every power of two up to 1 MiB, in a buffer of 16 MiB\n"
	"  gdrcopy_copybw -s 64K -w 100 -r 100 --json\n"
	"      a health check: status 0 only if GPU memory was reached and all data were right\n"
	"  gdrcopy_copybw -a cuMemHostAlloc\n"
	"      the same copies in the memory of the CPU, for comparison";

struct result {
	long iters; /* 0: not measured */
	double seconds;
};

static struct row {
	size_t size;
	struct result write, read;
} rows[MAX_SIZES];

/* Iterations for a size: the user's, or those that move `total` bytes, from 10 to 10000. */
static long iterations(long asked, size_t size, size_t total)
{
	size_t n = total / size;

	if (asked >= 0)
		return asked;
	return n < 10 ? 10 : n > 10000 ? 10000 : (long)n;
}

static long warm_up(long iters)
{
	return iters > 100 ? 10 : (iters + 9) / 10;
}

/* Ends the tool if a copy failed. */
static void check(int rc, const char *call)
{
	if (rc)
		tool_fail("%s: %s", call, lib_error_text(rc));
}

static int run_write(struct bench *b, struct copytest *t, size_t size, struct result *res)
{
	uint8_t *dst = b->buf.cpu + opt.offset;
	gdr_mh_t mh = b->buf.mh;
	uint64_t t0, t1;
	int rc = 0;
	long i;

	res->iters = iterations(opt.writes, size, (size_t)4 << 30);
	if (!res->iters)
		return 0;
	progress_show("write", size);
	copytest_before_write(t, t->host, opt.offset, size);
	for (i = 0; i < warm_up(res->iters); i++)
		rc |= gdr_copy_to_mapping(mh, dst, t->host, size);
	t0 = timing_ticks();
	for (i = 0; i < res->iters; i++)
		rc |= gdr_copy_to_mapping(mh, dst, t->host, size);
	t1 = timing_ticks();
	check(rc, "gdr_copy_to_mapping");
	res->seconds = (double)(t1 - t0) * timing.ns_per_tick * 1e-9;
	return copytest_after_write(t);
}

static int run_read(struct bench *b, struct copytest *t, size_t size, struct result *res)
{
	const uint8_t *src = b->buf.cpu + opt.offset;
	gdr_mh_t mh = b->buf.mh;
	uint64_t t0, t1;
	int rc = 0;
	long i;

	res->iters = iterations(opt.reads, size, (size_t)256 << 20);
	if (!res->iters)
		return 0;
	progress_show("read", size);
	copytest_before_read(t, t->host, opt.offset, size);
	for (i = 0; i < warm_up(res->iters); i++)
		rc |= gdr_copy_from_mapping(mh, t->host, src, size);
	t0 = timing_ticks();
	for (i = 0; i < res->iters; i++)
		rc |= gdr_copy_from_mapping(mh, t->host, src, size);
	t1 = timing_ticks();
	check(rc, "gdr_copy_from_mapping");
	res->seconds = (double)(t1 - t0) * timing.ns_per_tick * 1e-9;
	return copytest_after_read(t, t->host, opt.offset, size);
}

static double mib_per_s(const struct result *res, size_t size)
{
	return (double)size * (double)res->iters / MIB / res->seconds;
}

static void print_column(const struct result *res, size_t size)
{
	if (res->iters)
		printf(" %14.2f %10ld", mib_per_s(res, size), res->iters);
	else
		printf(" %14s %10s", "-", "-");
}

static void json_result(struct json *j, const char *key, const struct result *res, size_t size)
{
	if (!res->iters)
		return;
	json_object(j, key);
	json_int(j, "iterations", res->iters);
	json_number(j, "seconds", res->seconds);
	json_number(j, "mib_per_s", mib_per_s(res, size));
	json_end(j);
}

/* One direction of one size as tests/copybw.cpp of GDRCopy 2.6 prints it: its MB are 2^20 bytes. */
static void print_as_gdrcopy(const char *doing, const char *name, const struct result *res,
			     size_t size)
{
	if (!res->iters)
		return;
	printf("%s test, size=%zu offset=%zu num_iters=%ld\n%s BW: %gMB/s\n", doing, size,
	       opt.offset, res->iters, name, mib_per_s(res, size));
}

/* Any copy at all was asked for. */
static bool copies(void)
{
	return opt.writes || opt.reads;
}

static void settle_options(void)
{
	if (!opt.size)
		opt.size = opt.sweep ? (size_t)16 << 20 : (size_t)128 << 10;
	if (opt.offset >= opt.size)
		tool_fail("-o %zu: must be less than the buffer's %zu byte%s (-s)", opt.offset,
			  opt.size, plural(opt.size));
	if (!opt.copy_size)
		opt.copy_size = opt.size - opt.offset;
	if (opt.copy_size > opt.size - opt.offset)
		tool_fail("-c %zu: with -o %zu at most %zu fit into the buffer's %zu byte%s (-s)",
			  opt.copy_size, opt.offset, opt.size - opt.offset, opt.size,
			  plural(opt.size));
}

static void print_row(const struct row *row)
{
	printf("%12zu", row->size);
	print_column(&row->write, row->size);
	print_column(&row->read, row->size);
	printf("\n");
	fflush(stdout);
}

static void json_row(struct json *j, const struct row *row)
{
	json_object(j, NULL);
	json_uint(j, "size", row->size);
	json_result(j, "write", &row->write, row->size);
	json_result(j, "read", &row->read, row->size);
	json_end(j);
}

/* All sizes, each printed when it is measured; *count those of them that were. 0, or not. */
static int measure(struct bench *b, struct copytest *t, struct json *j, size_t *count)
{
	size_t size;
	int rc;

	for (size = opt.sweep ? 1 : opt.copy_size; size;
	     size = bench_next_size(size, opt.copy_size)) {
		struct row *row = &rows[*count];

		row->size = size;
		rc = run_write(b, t, size, &row->write);
		if (!rc)
			rc = run_read(b, t, size, &row->read);
		if (rc)
			return rc;
		progress_clear();
		if (b->json)
			json_row(j, row);
		else
			print_row(row);
		++*count;
	}
	return 0;
}

int main(int argc, char **argv)
{
	size_t count = 0, i;
	struct copytest t;
	struct bench b;
	struct json j;
	int rc;

	opts_examples(examples);
	bench_options(&b, &tool, argc, argv);
	settle_options();
	bench_start(&b, opt.size);
	copytest_init(&t, &b.buf.mem, opt.copy_size);
	if (b.json) {
		bench_json(&b, &j);
		json_uint(&j, "offset", opt.offset);
		json_string(&j, "unit", "2^20 bytes/s");
		json_array(&j, "results");
	} else {
		printf("offset:   %zu\n\n%12s %14s %10s %14s %10s\n", opt.offset, "bytes",
		       "write MiB/s", "copies", "read MiB/s", "copies");
	}
	rc = measure(&b, &t, &j, &count);
	if (b.json) {
		json_end(&j);
		bench_json_verified(&j, rc, copies());
		json_finish(&j, stdout);
	} else if (!rc) {
		printf("\n");
		for (i = 0; i < count; i++) {
			print_as_gdrcopy("writing", "write", &rows[i].write, rows[i].size);
			print_as_gdrcopy("reading", "read", &rows[i].read, rows[i].size);
		}
		bench_print_verified(copies());
	}
	copytest_free(&t);
	bench_stop(&b);
	return rc ? TOOL_FAIL : TOOL_OK;
}
