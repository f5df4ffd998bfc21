/* SPDX-License-Identifier: MIT */
/* gdrcopy_copybw: bandwidth of the CPU's copies to and from GPU memory. */
#include <stdio.h>

#include "bench/bench.h"
#include "common/copytest.h"
#include "common/exit.h"
#include "common/progress.h"
#include "bench/timing.h"

#define MIB	  (1024.0 * 1024.0)
#define MAX_SIZES (8 * sizeof(size_t) + 1) /* powers of two, and the copy size itself */

static struct {
	size_t size, copy_size, offset;
	bool sweep;
	long writes, reads; /* -1: by the size */
} opt = { .writes = -1, .reads = -1 };

static const struct opt options[] = {
	OPTION_SIZE('s', "size", &opt.size, "bytes of the buffer (128K; 16M with -l)", 1, 0),
	OPTION_SIZE('c', "copy-size", &opt.copy_size,
		    "bytes of one copy (the buffer from the offset on);\n"
		    "with -l of the last and largest",
		    1, 0),
	OPTION_SIZE('o', "offset", &opt.offset, "first byte of the copies in the buffer (0)", 0, 0),
	OPTION_FLAG('l', "sweep", &opt.sweep, "all powers of two from 1 to the copy size"),
	OPTION_COUNT('w', "write-iters", &opt.writes,
		     "copies to the GPU (4 GiB in all, 10 to 10000); 0: none", 0, 1000000000),
	OPTION_COUNT('r', "read-iters", &opt.reads,
		     "copies from the GPU (256 MiB in all, 10 to 10000);\n"
		     "0: none",
		     0, 1000000000),
};

static const struct tool tool = {
	"gdrcopy_copybw",
	"Measures the bandwidth of CPU copies to and from GPU memory through its mapping.",
	"  One thread copies the same range again and again, after an untimed tenth (1 to 10\n"
	"  copies); the clock is read once before and once after the whole loop. MiB/s are 2^20\n"
	"  bytes a second; the lines at the end (without -l), in the form of GDRCopy's copybw, "
	"call\n"
	"  them MB/s.\n"
	"  Host memory is pageable and, where it fits, stays in the CPU's caches.\n"
	"  Before each loop both sides get random bytes, through cuMemcpy on the GPU's side;\n"
	"  after it every byte of the buffer is compared.",
	options,
	ARRAY_SIZE(options),
	.examples = "  gdrcopy_copybw -s 16M -l -c 1M\n"
		    "      every power of two up to 1 MiB, in a buffer of 16 MiB\n"
		    "  gdrcopy_copybw -s 64K -w 100 -r 100 --json\n"
		    "      a health check: status 0 only if GPU memory was reached and all data "
		    "were right\n"
		    "  gdrcopy_copybw -a cuMemHostAlloc\n"
		    "      the same copies in the memory of the CPU, for comparison",
};

struct result {
	long iters; /* 0: not measured */
	double seconds;
};

static struct row {
	size_t size;
	struct result result[DIRECTIONS];
} rows[MAX_SIZES];

static inline __attribute__((always_inline)) int copies(const struct bench *b, enum direction dir,
							uint8_t *host, size_t size, long count)
{
	uint8_t *gpu = b->buf.cpu + opt.offset;
	gdr_mh_t mh = b->buf.mh;
	int rc = 0;

	for (long i = 0; i < count; i++)
		rc |= dir == WRITE ? gdr_copy_to_mapping(mh, gpu, host, size)
				   : gdr_copy_from_mapping(mh, host, gpu, size);
	return rc;
}

/* 0, or not if the data were wrong; ends the tool if a copy failed. */
static int measure(struct bench *b, struct copytest *t, enum direction dir, size_t size,
		   struct result *res)
{
	uint64_t t0, t1;
	long warm_up;
	int rc;

	res->iters = dir == WRITE ? bench_iterations(opt.writes, size, (size_t)4 << 30, 10)
				  : bench_iterations(opt.reads, size, (size_t)256 << 20, 10);
	if (!res->iters)
		return 0;
	warm_up = res->iters > 100 ? 10 : (res->iters + 9) / 10;
	copytest_before(t, dir, t->host, opt.offset, size);
	rc = copies(b, dir, t->host, size, warm_up);
	t0 = timing_ticks();
	/* with a constant direction: no branch is timed */
	rc |= dir == WRITE ? copies(b, WRITE, t->host, size, res->iters)
			   : copies(b, READ, t->host, size, res->iters);
	t1 = timing_ticks();
	if (rc)
		tool_fail("gdr_copy_%s_mapping: %s", dir == WRITE ? "to" : "from",
			  lib_error_text(rc));
	res->seconds = (double)(t1 - t0) * timing.ns_per_tick * 1e-9;
	return copytest_after(t, dir, t->host, opt.offset, size);
}

static double mib_per_s(const struct result *res, size_t size)
{
	return (double)size * (double)res->iters / MIB / res->seconds;
}

/* One direction of one size as tests/copybw.cpp of GDRCopy 2.6 prints it: its MB are 2^20 bytes. */
static void print_as_gdrcopy(const struct row *row, enum direction dir)
{
	const struct result *res = &row->result[dir];

	if (res->iters)
		printf("%s test, size=%zu offset=%zu num_iters=%ld\n%s BW: %gMB/s\n",
		       dir == WRITE ? "writing" : "reading", row->size, opt.offset, res->iters,
		       direction_name[dir], mib_per_s(res, row->size));
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
	for (const struct result *res = row->result; res < row->result + DIRECTIONS; res++)
		if (res->iters)
			printf(" %14.2f %10ld", mib_per_s(res, row->size), res->iters);
		else
			printf(" %14s %10s", "-", "-");
	printf("\n");
	fflush(stdout);
}

static void json_row(struct json *j, const struct row *row)
{
	json_object(j, NULL);
	json_uint(j, "size", row->size);
	for (int dir = 0; dir < DIRECTIONS; dir++) {
		const struct result *res = &row->result[dir];

		if (!res->iters)
			continue;
		json_object(j, direction_name[dir]);
		json_int(j, "iterations", res->iters);
		json_number(j, "seconds", res->seconds);
		json_number(j, "mib_per_s", mib_per_s(res, row->size));
		json_end(j);
	}
	json_end(j);
}

/* All sizes, each printed when it is measured; *count of them were right. 0, or not. */
static int run(struct bench *b, struct copytest *t, struct json *j, size_t *count)
{
	size_t size = opt.sweep ? 1 : opt.copy_size;

	for (; size; size = bench_next_size(size, opt.copy_size)) {
		struct row *row = &rows[*count];

		row->size = size;
		for (int dir = 0; dir < DIRECTIONS; dir++) {
			int rc;

			progress_at(2 * *count + (size_t)dir,
				    2 * bench_size_count(opt.sweep ? 1 : size, opt.copy_size),
				    "%ss of %zu byte%s", direction_name[dir], size, plural(size));
			rc = measure(b, t, (enum direction)dir, size, &row->result[dir]);
			progress_hide();
			if (rc)
				return rc;
		}
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
	static struct copytest t;
	static struct bench b;
	size_t count = 0;
	struct json j;
	int rc;

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
	rc = run(&b, &t, &j, &count);
	if (!b.json && !rc && !opt.sweep)
		printf("\n");
	for (int dir = 0; dir < DIRECTIONS && count && !opt.sweep && !b.json && !rc; dir++)
		print_as_gdrcopy(&rows[0], (enum direction)dir);
	return bench_finish(&b, &j, rc, opt.writes || opt.reads);
}
