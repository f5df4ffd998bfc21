// SPDX-License-Identifier: MIT
/* Small copies: vectors, a flag after its data. */
#include <stdio.h>

#include "copy/fence.h"
#include "setup.h"

/*
 * Pieces of a vector: lines a stride apart or at random, or adjacent words. The vectors are
 * prepared before the measurement, and so many that no line is used again soon.
 */
enum { SETS = 32, PIECES = 64 };

static const struct pattern {
	const char *name;
	size_t size, stride; /* stride 0: at random */
} patterns[] = {
	{ "192 B apart", 64, 192 },
	{ "128 B apart", 64, 128 },
	{ "in random lines", 64, 0 },
	{ "words side by side", 8, 8 },
};

static barcopy_copy_seg_t vector[SETS][PIECES];
static const uint8_t *lines_of[SETS][PIECES]; /* each line of a vector once */
static size_t line_count;

static void make_vectors(const struct pattern *p, size_t count)
{
	static uint64_t number = 1;

	for (size_t n = 0; n < SETS * count; n++) {
		size_t s = n / count, i = n % count, at = n * p->stride;

		number = number * 6364136223846793005u + 1442695040888963407u;
		if (!p->stride)
			at = (number >> 33) % (REGION / 64) * 64;
		else if (p->stride < 64)
			at = s * 4160 + i * p->stride;
		vector[s][i] = (barcopy_copy_seg_t){ .map_ptr = st.map + at,
						     .host_ptr = st.host + i * 64,
						     .size = p->size };
		line_count = p->stride && p->stride < 64 ? (i * p->stride) / 64 : i;
		lines_of[s][line_count++] = st.map + at / 64 * 64;
	}
}

static void run_vector(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		const barcopy_copy_seg_t *seg = vector[job->next++ % SETS];

		must(job->read ? barcopy_copyv_from_mapping(job->handle, seg, job->count, 0)
			       : barcopy_copyv_to_mapping(job->handle, seg, job->count, 0));
	}
}

/* One call for each piece. */
static void run_pieces(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		const barcopy_copy_seg_t *seg = vector[job->next++ % SETS];

		for (size_t i = 0; i < job->count; i++) {
			if (!job->handle.h)
				copy_once(job, seg[i].map_ptr, seg[i].host_ptr);
			else
				must(job->read ? gdr_copy_from_mapping(job->handle, seg[i].host_ptr,
								       seg[i].map_ptr, seg[i].size)
					       : gdr_copy_to_mapping(job->handle, seg[i].map_ptr,
								     seg[i].host_ptr, seg[i].size));
		}
	}
}

/* Only the loads and their fences: the least time that the machine needs. */
static void run_loads(struct job *job, size_t times)
{
	static uint8_t line[PIECES][64] __attribute__((aligned(64)));

	for (size_t n = 0; n < times; n++) {
		gdri_fence_before_read(job->plan.fences);
		job->plan.from->lines(line[0], lines_of[job->next++ % SETS], line_count);
		gdri_fence_after_read(job->plan.fences);
	}
}

static void vectors(const struct pattern *p, bool read)
{
	static const size_t pieces[] = { 1, 2, 4, 8, 12, 16, 24, 32, 64 };
	struct table t = { .unit = "ns" };
	struct job job[5] = { library_job("one call"), library_job("again"), library_job("each"),
			      baseline_job("baseline"), impl_job("loads alone", NULL) };
	size_t count = read ? 5 : 4;
	char name[64];

	snprintf(name, sizeof(name), "%s, %s", read ? "reads" : "writes", p->name);
	t.name = name;
	for (size_t c = 0; c < count; c++) {
		job[c].run = c < 2 ? run_vector : c < 4 ? run_pieces : run_loads;
		job[c].read = read;
		job[c].size = p->size;
	}
	job[4].off = job[4].off || !job[4].plan.from->lines;
	for (size_t i = 0; i < COUNT(pieces); i++) {
		char text[24];

		for (size_t c = 0; c < count; c++)
			job[c].count = pieces[i];
		make_vectors(p, pieces[i]);
		snprintf(text, sizeof(text), "%zu", pieces[i]);
		line(&t, job, count, text);
	}
	show(&t);
}

/* A piece of 64 bytes on each of several handles. */
enum { HANDLES = 8 };
static barcopy_handle_seg_t over_handles[SETS][HANDLES];

static void run_handles(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		const barcopy_handle_seg_t *v = over_handles[job->next++ % SETS];

		if (job->how) {
			must(barcopy_copyv_from_mappings(v, job->count, 0));
			continue;
		}
		for (size_t i = 0; i < job->count; i++)
			must(gdr_copy_from_mapping(v[i].handle, v[i].seg.host_ptr, v[i].seg.map_ptr,
						   64));
	}
}

static void handles(void)
{
	struct table t = { .name = "reads, a piece on each handle", .unit = "ns" };
	struct job job[3] = { library_job("one call"), library_job("again"), library_job("each") };
	struct helped pin[HANDLES];

	for (size_t i = 0; i < HANDLES; i++) {
		pin[i] = pin_again(st.b.buf.mem.dptr, REGION, 0);
		for (size_t s = 0; s < SETS; s++) {
			over_handles[s][i].handle = pin[i].handle;
			over_handles[s][i].seg =
				(barcopy_copy_seg_t){ .map_ptr = pin[i].map + i * 65536 + i * 192 +
								 s * 2048,
						      .host_ptr = st.host + i * 64,
						      .size = 64 };
		}
	}
	for (size_t n = 1; n <= HANDLES; n *= 2) {
		char text[24];

		for (size_t c = 0; c < COUNT(job); c++) {
			job[c].run = run_handles;
			job[c].how = c < 2;
			job[c].count = n;
		}
		snprintf(text, sizeof(text), "%zu", n);
		line(&t, job, COUNT(job), text);
	}
	show(&t);
	for (size_t i = 0; i < HANDLES; i++)
		unpin(&pin[i]);
}

void vectors_section(void)
{
	for (size_t i = 0; i < COUNT(patterns); i++)
		vectors(&patterns[i], true);
	vectors(&patterns[0], false);
	handles();
}

/*
 * Data, then an 8-byte flag in a cache line of its own, by every call that can write both. A loop
 * of posts shows the link's rate; a post after each copy shows its cost, as the copy's fence waits
 * for the last post.
 */
enum { PUT, POST, COPY_PUT, COPY_POST, ORDERED, LINE };

static void run_flag(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		uint8_t *map = place(job);
		uint8_t *flag = map + ((job->size + 127) & ~(size_t)63);
		uint64_t value = n;
		barcopy_copy_seg_t seg[2] = {
			{ .map_ptr = map, .host_ptr = job->host, .size = job->size },
			{ .map_ptr = flag,
			  .host_ptr = &value,
			  .size = 8,
			  .flags = BARCOPY_COPY_ORDERED },
		};

		if (job->how == LINE) {
			must(barcopy_post_line(job->handle, flag, job->host));
			continue;
		}
		if (job->how == COPY_PUT || job->how == COPY_POST)
			must(gdr_copy_to_mapping(job->handle, map, job->host, job->size));
		if (job->how == PUT || job->how == COPY_PUT)
			must(barcopy_put64(job->handle, flag, value));
		else if (job->how == POST || job->how == COPY_POST)
			must(barcopy_post64(job->handle, flag, value));
		else
			must(barcopy_copyv_to_mapping(job->handle, seg, 2, 0));
	}
}

void flags_section(void)
{
	static const size_t sizes[] = { 8, 64, 256, 1024, 4096 };
	static const struct {
		const char *name;
		int how;
	} ways[] = { { "copy+put", COPY_PUT }, { "again", COPY_PUT }, { "copy+post", COPY_POST },
		     { "ordered", ORDERED },   { "post line", LINE }, { "put alone", PUT },
		     { "post alone", POST } };
	struct table t = { .name = "flags", .unit = "ns" };
	struct job job[COUNT(ways)];

	for (size_t c = 0; c < COUNT(ways); c++) {
		job[c] = library_job(ways[c].name);
		job[c].run = run_flag;
		job[c].how = ways[c].how;
		job[c].offset = 0;
	}
	for (size_t i = 0; i < COUNT(sizes); i++)
		size_line(&t, job, COUNT(ways), sizes[i]);
	show(&t);
}
