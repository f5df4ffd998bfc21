// SPDX-License-Identifier: MIT
/* Compares the library with the implementations, the baseline and CUDA, by size and alignment. */
#include <stdio.h>

#include "common/exit.h"
#include "setup.h"

static void add(struct job *job, size_t *count, struct job contender)
{
	if (*count == MAX_COLUMNS)
		tool_fail("more than %d columns: MAX_COLUMNS of setup.h", MAX_COLUMNS);
	job[(*count)++] = contender;
}

/* The public call twice, the baseline, then the implementations, then CUDA and the copy engine. */
static size_t contenders(struct job *job, bool read)
{
	size_t count = 0;

	add(job, &count, library_job("library"));
	add(job, &count, library_job("again"));
	add(job, &count, baseline_job("baseline"));
	if (read)
		add(job, &count, fenced_job("b.fenced"));
	for (size_t i = 0; impl_at(i); i++) {
		const struct gdri_copy_impl *impl = impl_at(i);

		if ((read ? impl->from : impl->to) && impl != job[2].raw)
			add(job, &count, impl_job(impl->name, impl->name));
	}
	add(job, &count, cuda_job("cuMemcpy", false));
	add(job, &count, cuda_job("cuMem.pin", true));
	add(job, &count, helped_job("engine", &st.engine, false));
	add(job, &count, helped_job("eng.pin", &st.engine, true));
	for (size_t i = 0; i < count; i++)
		job[i].read = read;
	return count;
}

static void sizes(const char *name, bool read, const size_t *size, size_t n)
{
	struct table t = { .name = name, .unit = "ns" };
	struct job job[MAX_COLUMNS];
	size_t count = contenders(job, read);

	for (size_t i = 0; i < n && size[i] <= st.max; i++)
		size_line(&t, job, count, size[i]);
	show(&t);
}

void read_section(void)
{
	static const size_t size[] = { 4,	 8,	    32,	       64,	128,	 256,
				       512,	 1 << 10,   2 << 10,   4 << 10, 8 << 10, 16 << 10,
				       64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20 };

	sizes("read", true, size, COUNT(size));
}

void write_section(void)
{
	static const size_t size[] = { 4,	8,	  32,	    64,	       128,
				       256,	512,	  1 << 10,  2 << 10,   4 << 10,
				       8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
				       2 << 20, 4 << 20,  8 << 20,  16 << 20,  32 << 20 };

	sizes("write", false, size, COUNT(size));
}

/* Small unaligned reads: the library and the baseline. */
void edges_section(void)
{
	static const size_t at[][2] = {
		{ 8, 0 },   { 1, 3 },	 { 7, 1 },   { 8, 5 },	 { 16, 9 },
		{ 31, 33 }, { 50, 5 },	 { 64, 0 },  { 64, 1 },	 { 64, 63 },
		{ 65, 0 },  { 100, 61 }, { 200, 7 }, { 511, 1 }, { 4000, 5 }
	};
	struct table t = { .name = "edges, reads", .unit = "ns" };
	struct job job[] = { library_job("read"), library_job("again"), baseline_job("r.baseline"),
			     fenced_job("r.b.fenced") };

	for (size_t i = 0; i < COUNT(at); i++) {
		char name[24];

		for (size_t c = 0; c < COUNT(job); c++) {
			job[c].read = true;
			job[c].size = at[i][0], job[c].offset = at[i][1];
		}
		snprintf(name, sizeof(name), "%zu@%zu", at[i][0], at[i][1]);
		line(&t, job, COUNT(job), name);
	}
	show(&t);
}
