// SPDX-License-Identifier: MIT
/*
 * Small copies in their company: vectors of them, what ends a write, a flag behind its data, what a call
 * costs. See sections.h.
 */
#include <stdio.h>

#include "common/exit.h"
#include "copy/fence.h"
#include "sections.h"
#include "setup.h"

static void must(int rc)
{
	if (rc)
		tool_fail("a copy: %s", barcopy_last_error());
}

/*
 * Scattered pieces of one line, a stride apart. Made beforehand, as many vectors as keep a line from
 * being met again soon: finding the places is not part of a copy.
 */
#define SETS 32
static barcopy_copy_seg_t vector[SETS][64];

static void make_vectors(size_t count, size_t stride)
{
	for (size_t n = 0; n < SETS * count; n++)
		vector[n / count][n % count] =
			(barcopy_copy_seg_t){ .map_ptr = st.map + n * stride,
					      .host_ptr = st.host + n % count * 64,
					      .size = 64 };
}

static void run_vector(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		const barcopy_copy_seg_t *seg = vector[job->next++ % SETS];

		if (!job->handle.h && job->read)
			gdri_copyv_from(&job->plan, seg, job->count, sizeof(*seg), 0);
		else if (!job->handle.h)
			gdri_copyv_to(&job->plan, seg, job->count, sizeof(*seg), 0);
		else
			must(job->read ? barcopy_copyv_from_mapping(job->handle, seg, job->count, 0)
				       : barcopy_copyv_to_mapping(job->handle, seg, job->count, 0));
	}
}

/* A call for each piece. */
static void run_pieces(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		const barcopy_copy_seg_t *seg = vector[job->next++ % SETS];

		for (size_t i = 0; i < job->count; i++) {
			if (!job->handle.h)
				copy_once(job, seg[i].map_ptr, seg[i].host_ptr);
			else
				must(job->read ? gdr_copy_from_mapping(job->handle, seg[i].host_ptr,
								       seg[i].map_ptr, 64)
					       : gdr_copy_to_mapping(job->handle, seg[i].map_ptr,
								     seg[i].host_ptr, 64));
		}
	}
}

static void vectors(const char *name, bool read, size_t stride)
{
	static const size_t pieces[] = { 1, 2, 4, 8, 16, 32, 64 };
	struct table t = { .name = name, .first = "pieces", .unit = "ns" };
	struct job job[5] = { library_job("one call"), library_job("again"), library_job("each"),
			      baseline_job("baseline"), row_job("movdir64b", "movdir64b") };
	size_t count = read ? 4 : 5;

	for (size_t c = 0; c < count; c++) {
		job[c].run = c == 2 || c == 3 ? run_pieces : run_vector;
		job[c].read = read;
		job[c].size = 64;
	}
	for (size_t i = 0; i < COUNT(pieces); i++) {
		char text[24];

		for (size_t c = 0; c < count; c++)
			job[c].count = pieces[i];
		make_vectors(pieces[i], stride);
		snprintf(text, sizeof(text), "%zu", pieces[i]);
		line(&t, job, count, text);
	}
	show(&t);
}

void vectors_section(void)
{
	vectors("vectors of 64 B, reads", true, 256);
	vectors("vectors of 64 B, writes", false, 256);
	vectors("vectors of 64 B, a page each, reads", true, 4096 + 64);
	vectors("vectors of 64 B, a page each, writes", false, 4096 + 64);
}

/* What ends a small write, and what it costs. */
enum { NOTHING, STORE_FENCE, FULL_FENCE, LOCKED };

static void run_drain(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		copy_once(job, place(job), job->host);
		switch (job->how) {
		case STORE_FENCE:
			gdri_fence_after_write(GDR_MAPPING_TYPE_WC);
			break;
		case FULL_FENCE:
			gdri_fence_full(GDR_MAPPING_TYPE_WC);
			break;
		case LOCKED: {
			int word = 0;

			__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
			break;
		}
		}
	}
}

void drain_section(void)
{
	static const size_t sizes[] = { 4, 8, 16, 64, 128, 256, 1024, 4096 };
	static const char *const names[] = { "nothing",	  "sfence",    "mfence",    "locked",
					     "mdir64+no", "mdir64+sf", "mdir64+mf", "mdir64+lk" };
	struct table t = { .name = "ends of a write", .first = "bytes", .unit = "ns" };
	struct job job[8];

	for (size_t c = 0; c < 8; c++) {
		job[c] = row_job(names[c], c < 4 ? NULL : "movdir64b");
		job[c].plan.fences = GDR_MAPPING_TYPE_NONE;
		job[c].run = run_drain;
		job[c].how = (int)(c % 4);
	}
	for (size_t i = 0; i < COUNT(sizes); i++)
		size_line(&t, job, 8, sizes[i]);
	show(&t);
}

/*
 * Data of a size, then a flag of 8 bytes in a line of its own behind it, in every way. A loop of posts
 * shows what the link takes; one post behind a copy, whose fence waits for the one before, what it costs.
 */
enum { PUT, POST, COPY_PUT, COPY_POST, ORDERED, SPARED };

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

		if (job->how == COPY_PUT || job->how == COPY_POST)
			must(gdr_copy_to_mapping(job->handle, map, job->host, job->size));
		if (job->how == PUT || job->how == COPY_PUT)
			must(barcopy_put64(job->handle, flag, value));
		else if (job->how == POST || job->how == COPY_POST)
			must(barcopy_post64(job->handle, flag, value));
		else
			must(barcopy_copyv_to_mapping(job->handle, seg, 2,
						      job->how == SPARED ? BARCOPY_COPY_NO_FENCE
									 : 0));
	}
}

void flags_section(void)
{
	static const size_t sizes[] = { 8, 64, 256, 1024, 4096 };
	static const struct {
		const char *name;
		int how;
	} ways[] = { { "copy+put", COPY_PUT }, { "again", COPY_PUT },	{ "copy+post", COPY_POST },
		     { "ordered", ORDERED },   { "ord.nofen", SPARED }, { "put alone", PUT },
		     { "post alone", POST } };
	struct table t = { .name = "flags", .first = "data", .unit = "ns" };
	struct job job[COUNT(ways)];

	if (st.host_only)
		return;
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

/*
 * A copy of 4 or 8 bytes to cached memory against the same by hand: what the call itself costs; the
 * copy's own, and the public call on a handle of host memory.
 */
static uint8_t words[64] __attribute__((aligned(64)));

enum { COPY, BY_HAND, ENTRY, WAIT };

static void run_call(struct job *job, size_t times)
{
	for (size_t n = 0; n < times; n++) {
		if (job->how == ENTRY)
			gdr_copy_to_mapping(job->handle, job->map, st.host, job->size);
		else if (job->how == WAIT)
			barcopy_wait32(job->handle, job->map, BARCOPY_CMP_EQ, 0x12345678, 0);
		else if (job->how == COPY)
			gdri_copy_to(&job->plan, words, st.host, job->size);
		else if (job->size == 4)
			*(volatile uint32_t *)(void *)words = *(uint32_t *)(void *)st.host;
		else
			*(volatile uint64_t *)(void *)words = *(uint64_t *)(void *)st.host;
		if (job->how == BY_HAND)
			gdri_fence_after_write(job->plan.fences);
	}
}

/* Memory of cuMemHostAlloc, pinned and mapped; false where the library cannot. */
static bool pin_host(struct helped *pin)
{
	void *map;

	if (st.host_only || gdr_pin_buffer_v2(st.b.buf.g, (unsigned long)(uintptr_t)st.pinned, 4096,
					      0, &pin->handle))
		return false;
	if (gdr_map(st.b.buf.g, pin->handle, &map, 4096)) {
		gdr_unpin_buffer(st.b.buf.g, pin->handle);
		return false;
	}
	pin->map = map;
	return true;
}

void call_section(void)
{
	static const struct {
		const char *name;
		int how;
		gdr_mapping_type_t type;
	} calls[] = { { "entry", ENTRY, GDR_MAPPING_TYPE_CACHING },
		      { "again", ENTRY, GDR_MAPPING_TYPE_CACHING },
		      { "inside", COPY, GDR_MAPPING_TYPE_CACHING },
		      { "by hand", BY_HAND, GDR_MAPPING_TYPE_CACHING },
		      { "wc inside", COPY, GDR_MAPPING_TYPE_WC },
		      { "wc hand", BY_HAND, GDR_MAPPING_TYPE_WC },
		      { "wait 0", WAIT, GDR_MAPPING_TYPE_CACHING } };
	struct table t = { .name = "call, cached memory", .first = "bytes", .unit = "ns" };
	struct job job[COUNT(calls)];
	struct helped pin = { .there = false };

	pin.there = pin_host(&pin);
	for (size_t c = 0; c < COUNT(calls); c++) {
		job[c] = (struct job){ .name = calls[c].name,
				       .run = run_call,
				       .how = calls[c].how,
				       .handle = pin.handle,
				       .map = pin.map };
		job[c].off = (calls[c].how == ENTRY || calls[c].how == WAIT) && !pin.there;
		gdri_copy_plan_init(&job[c].plan, calls[c].type, gdri_cpu_features(), NULL);
	}
	for (size_t size = 4; size <= 8; size += 4)
		size_line(&t, job, COUNT(calls), size);
	show(&t);
	if (pin.there)
		gdr_unpin_buffer(st.b.buf.g, pin.handle);
}
