/* SPDX-License-Identifier: MIT */
/*
 * Trials: with each backend alone, 64 KiB of the memory that it is for are pinned, mapped, written by
 * the CPU and read by CUDA, written by CUDA and read by the CPU. Then the same as a program does it, by
 * gdr_open() in this environment. rm is tried with exportable memory too if it refuses ordinary memory.
 * Runs in a child process. It must not know what the outcome means.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/buffer.h"
#include "common/copytest.h"
#include "doctor/probe.h"

enum { TRIAL_BYTES = 65536 };

enum { GDRDRV, DMABUF, RM, HOST, PROGRAM, RM_EXPORTABLE };

static const struct {
	const char *backend;
	enum mem_kind kind;
} plan[PROBE_TRIALS] = {
	[GDRDRV] = { "gdrdrv", MEM_ALLOC },
	[DMABUF] = { "dmabuf", MEM_ALLOC },
	[RM] = { "rm", MEM_ALLOC },
	[HOST] = { "host", MEM_HOST_ALLOC },
	[PROGRAM] = { TRIAL_PROGRAM, MEM_ALLOC },
	[RM_EXPORTABLE] = { "rm", MEM_CREATE }, /* the last: not always wanted */
};

struct trial {
	struct probe_trial *out;
	struct buffer b;
	uint8_t written[TRIAL_BYTES], seen[TRIAL_BYTES];
};

static void begin(struct trial *t, const char *step)
{
	snprintf(t->out->step, sizeof(t->out->step), "%s", step);
}

/* True if there is no error, else its text is kept. */
static bool good(struct trial *t, int error, const char *words)
{
	t->out->error = error;
	if (error)
		snprintf(t->out->text, sizeof(t->out->text), "%s", words);
	return !error;
}

static bool called(struct trial *t, int error)
{
	return good(t, error, lib_error_text(error));
}

static bool cuda_called(struct trial *t, CUresult rc, const char *call)
{
	char words[256];

	snprintf(words, sizeof(words), "%s: %s", call, cuda_error_text(rc));
	return good(t, cuda_errno(rc), words);
}

static bool same(struct trial *t, const char *words)
{
	return good(t, memcmp(t->written, t->seen, TRIAL_BYTES) ? EILSEQ : 0, words);
}

static bool copies(struct trial *t)
{
	struct buffer *b = &t->b;

	copytest_random(t->written, TRIAL_BYTES, 1);
	if (!called(t, gdr_copy_to_mapping(b->mh, b->cpu, t->written, TRIAL_BYTES)) ||
	    !called(t, barcopy_flush(b->mh)) ||
	    !cuda_called(t, cu.MemcpyDtoH(t->seen, b->mem.dptr, TRIAL_BYTES), "cuMemcpyDtoH") ||
	    !same(t, "CUDA reads other bytes than were written"))
		return false;
	copytest_random(t->written, TRIAL_BYTES, 2);
	return cuda_called(t, cu.MemcpyHtoD(b->mem.dptr, t->written, TRIAL_BYTES),
			   "cuMemcpyHtoD") &&
	       cuda_called(t, cu.CtxSynchronize(), "cuCtxSynchronize") &&
	       called(t, gdr_copy_from_mapping(b->mh, t->seen, b->cpu, TRIAL_BYTES)) &&
	       same(t, "the CPU reads other bytes than were written");
}

/* Two pages are mapped where the memory does not begin on one. */
static void pinned(struct trial *t)
{
	struct buffer *b = &t->b;

	if (!called(t, gdr_get_info(b->g, b->mh, &b->info)))
		return;
	b->map_size = b->info.mapped_size;
	begin(t, "map");
	if (!called(t, gdr_map(b->g, b->mh, &b->map, b->map_size)))
		return;
	if (called(t, gdr_get_info(b->g, b->mh, &b->info))) {
		snprintf(t->out->mapping, sizeof(t->out->mapping), "%s", mapping_name(b->info.mapping_type));
		b->cpu = (uint8_t *)b->map + (b->mem.dptr - b->info.va);
		begin(t, "copy");
		if (copies(t))
			begin(t, "done");
	}
	gdr_unmap(b->g, b->mh, b->map, b->map_size);
}

/* The environment is this child's; `own` is GDRCOPY_BACKEND as it was, or NULL. */
static gdr_t open_library(int index, bool integrated, const char *own)
{
	if (index != PROGRAM)
		setenv("GDRCOPY_BACKEND", plan[index].backend, 1);
	else if (own)
		setenv("GDRCOPY_BACKEND", own, 1);
	else
		unsetenv("GDRCOPY_BACKEND");
	return index == PROGRAM && !integrated ? gdr_open() : barcopy_open(BARCOPY_OPEN_ANY);
}

static void one(struct trial *t, const struct gpu *gpu, int index, bool integrated, const char *own)
{
	/* what gdrdrv pins there (GPUDirect RDMA guide 13.4.1), and what programs allocate */
	bool host = integrated && (index == GDRDRV || index == PROGRAM);
	enum mem_kind kind = host ? MEM_HOST_ALLOC : plan[index].kind;
	struct probe_trial *out = t->out;
	struct buffer *b = &t->b;

	snprintf(out->memory, sizeof(out->memory), "%s", mem_kind_name[kind]);
	begin(t, "open");
	b->g = open_library(index, integrated, own);
	if (!b->g) {
		called(t, errno);
		return;
	}
	begin(t, "allocate");
	out->error =
		-mem_alloc(&b->mem, gpu, kind, TRIAL_BYTES, false, out->text, sizeof(out->text));
	if (!out->error) {
		begin(t, "pin");
		if (called(t, gdr_pin_buffer_v2(b->g, b->mem.dptr, TRIAL_BYTES, 0, &b->mh))) {
			pinned(t);
			gdr_unpin_buffer(b->g, b->mh);
		}
		mem_free(&b->mem);
	}
	gdr_close(b->g);
}

/* The backend exists, and refuses such memory. */
static bool refused(const struct probe_trial *t)
{
	return t->error == ENOTSUP && !strcmp(t->step, "pin");
}

void probe_trials(struct probe_gpu *g, const struct gpu *gpu)
{
	char own[64];
	const char *set = getenv("GDRCOPY_BACKEND");

	if (set)
		snprintf(own, sizeof(own), "%s", set);
	while (g->trials < (refused(&g->trial[RM]) ? PROBE_TRIALS : RM_EXPORTABLE)) {
		int index = g->trials++;
		struct trial t = { .out = &g->trial[index] };

		snprintf(t.out->backend, sizeof(t.out->backend), "%s", plan[index].backend);
		one(&t, gpu, index, g->integrated, set ? own : NULL);
	}
}
