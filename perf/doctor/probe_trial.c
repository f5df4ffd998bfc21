/* SPDX-License-Identifier: MIT */
/*
 * Trials: with each backend alone, 64 KiB of the memory that it is for are pinned, mapped, written by
 * the CPU and read by CUDA, written by CUDA and read by the CPU; then the same as a program does it, by
 * gdr_open() in the environment as it is. Where rm refuses ordinary memory, it is tried with exportable
 * memory too, which it may serve alone. Runs in a child process. It must not know what the outcome means.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "doctor/probe.h"
#include "barcopy.h"

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
	gdr_t g;
	gdr_mh_t mh;
	gdr_info_t info;
	struct gpu_mem mem;
	void *map;
	uint8_t *cpu; /* stands for mem.dptr */
	uint8_t a[TRIAL_BYTES], b[TRIAL_BYTES];
};

static void begin(struct trial *t, const char *step)
{
	snprintf(t->out->step, sizeof(t->out->step), "%s", step);
}

/* A call of the library: false if it failed, with the cause kept. */
static bool called(struct trial *t, int error)
{
	if (!error)
		return true;
	t->out->error = error;
	snprintf(t->out->text, sizeof(t->out->text), "%s", barcopy_last_error());
	if (!t->out->text[0])
		snprintf(t->out->text, sizeof(t->out->text), "%s", strerror(error));
	return false;
}

static bool cuda_called(struct trial *t, CUresult rc, const char *call)
{
	if (rc == CUDA_SUCCESS)
		return true;
	t->out->error = cuda_errno(rc);
	snprintf(t->out->text, sizeof(t->out->text), "%s: %s", call, cuda_error_text(rc));
	return false;
}

static void pattern(uint8_t *p, uint32_t seed)
{
	for (size_t i = 0; i < TRIAL_BYTES; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (uint8_t)(seed >> 24);
	}
}

static bool same(struct trial *t, const char *way)
{
	if (!memcmp(t->a, t->b, TRIAL_BYTES))
		return true;
	t->out->error = EILSEQ;
	snprintf(t->out->text, sizeof(t->out->text), "%s reads other bytes than were written", way);
	return false;
}

static bool copies(struct trial *t)
{
	pattern(t->a, 1);
	if (!called(t, gdr_copy_to_mapping(t->mh, t->cpu, t->a, TRIAL_BYTES)) ||
	    !called(t, barcopy_flush(t->mh)) ||
	    !cuda_called(t, cu.MemcpyDtoH(t->b, t->mem.dptr, TRIAL_BYTES), "cuMemcpyDtoH") ||
	    !same(t, "CUDA"))
		return false;
	pattern(t->a, 2);
	return cuda_called(t, cu.MemcpyHtoD(t->mem.dptr, t->a, TRIAL_BYTES), "cuMemcpyHtoD") &&
	       cuda_called(t, cu.CtxSynchronize(), "cuCtxSynchronize") &&
	       called(t, gdr_copy_from_mapping(t->mh, t->b, t->cpu, TRIAL_BYTES)) &&
	       same(t, "the CPU");
}

static void mapped(struct trial *t)
{
	const char *type = "";

	if (!called(t, gdr_get_info(t->g, t->mh, &t->info)))
		return;
	gdr_get_mapping_type_string(t->info.mapping_type, &type);
	snprintf(t->out->mapping, sizeof(t->out->mapping), "%s", type);
	t->cpu = (uint8_t *)t->map + (t->mem.dptr - t->info.va);
	begin(t, "copy");
	if (copies(t))
		begin(t, "done");
}

static void pinned(struct trial *t)
{
	/* two pages where CUDA gave memory that does not begin on one */
	size_t size;

	if (!called(t, gdr_get_info(t->g, t->mh, &t->info)))
		return;
	size = t->info.mapped_size;
	begin(t, "map");
	if (called(t, gdr_map(t->g, t->mh, &t->map, size))) {
		mapped(t);
		gdr_unmap(t->g, t->mh, t->map, size);
	}
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

	snprintf(out->memory, sizeof(out->memory), "%s", mem_kind_name[kind]);
	begin(t, "open");
	t->g = open_library(index, integrated, own);
	if (!t->g) {
		called(t, errno);
		return;
	}
	begin(t, "allocate");
	out->error =
		-mem_alloc(&t->mem, gpu, kind, TRIAL_BYTES, false, out->text, sizeof(out->text));
	if (!out->error) {
		begin(t, "pin");
		if (called(t, gdr_pin_buffer_v2(t->g, t->mem.dptr, TRIAL_BYTES, 0, &t->mh))) {
			pinned(t);
			gdr_unpin_buffer(t->g, t->mh);
		}
		mem_free(&t->mem);
	}
	gdr_close(t->g);
}

/* The backend is there, and says that it cannot serve such memory. */
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
