/* SPDX-License-Identifier: MIT */
/* In child processes, as a broken driver may do anything: answers of libcuda and NVML; trials. */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "abi/nvml.h"
#include "common/buffer.h"
#include "common/copytest.h"
#include "doctor/probe.h"

static const char *const library_names[] = { "libcuda.so.1", "libnvidia-ml.so.1" };

void probe_library(struct probes *p, int index)
{
	struct probe_library *l = &p->library[index];
	struct link_map *map = NULL;
	char real[PATH_MAX];
	void *lib;

	snprintf(l->name, sizeof(l->name), "%s", library_names[index]);
	snprintf(l->error, sizeof(l->error), "%s: loading it ended the process",
		 library_names[index]);
	p->libraries = index + 1;
	lib = dlopen(library_names[index], RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *why = dlerror();

		snprintf(l->error, sizeof(l->error), "%s", why ? why : "unknown error");
		return;
	}
	l->found = true;
	l->error[0] = '\0';
	if (!dlinfo(lib, RTLD_DI_LINKMAP, &map) && map && realpath(map->l_name, real))
		snprintf(l->path, sizeof(l->path), "%.255s", real);
}

static void describe(struct probe_gpu *g, int ordinal)
{
	struct gpu gpu = { .ordinal = ordinal };

	g->ordinal = ordinal;
	snprintf(g->nvml_error, sizeof(g->nvml_error), "NVML was not asked");
	if (cu.DeviceGet(&gpu.dev, ordinal) != CUDA_SUCCESS)
		return;
	if (cu.DeviceGetName(g->name, sizeof(g->name), gpu.dev) != CUDA_SUCCESS)
		g->name[0] = '\0';
	if (cu.DeviceGetPCIBusId(g->pci, sizeof(g->pci), gpu.dev) != CUDA_SUCCESS)
		g->pci[0] = '\0';
	for (char *c = g->pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	g->integrated = gpu_has(&gpu, CU_DEVICE_ATTRIBUTE_INTEGRATED);
	g->dmabuf = gpu_has(&gpu, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
}

void probe_cuda(struct probes *p)
{
	CUresult rc;
	int count = 0;

	cuda_dl_load();
	p->stand_in = cu.is_stand_in;
	if (cu.DriverGetVersion(&p->cuda_version) != CUDA_SUCCESS)
		p->cuda_version = 0;
	rc = cu.Init(0);
	p->init_code = (int)rc;
	snprintf(p->init_text, sizeof(p->init_text), "%s",
		 rc == CUDA_SUCCESS ? "" : cuda_error_text(rc));
	if (rc != CUDA_SUCCESS || cu.DeviceGetCount(&count) != CUDA_SUCCESS)
		return;
	for (int i = 0; i < count && i < PROBE_GPUS; i++) {
		describe(&p->gpu[i], i);
		p->gpus = i + 1;
	}
}

/* Used here alone; name, values and layout are those of libnvidia-ml.so.1, as in abi/nvml.h. */
typedef struct nvmlConfComputeSystemState_st {
	unsigned int environment, ccFeature /* 1: on */, devToolsMode;
} nvmlConfComputeSystemState_t;
nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state);

#define NVML_CALLS(X) /* the last two may be missing, in the stand-in or an old driver */ \
	X(nvmlInit_v2)                                                                    \
	X(nvmlDeviceGetHandleByPciBusId_v2)                                               \
	X(nvmlDeviceGetBAR1MemoryInfo)                                                    \
	X(nvmlErrorString)                                                                \
	X(nvmlDeviceGetMemoryInfo)                                                        \
	X(nvmlSystemGetConfComputeState)

static struct {
#define X(name) __typeof__(&(name)) name;
	NVML_CALLS(X)
#undef X
} nvml;

static const char *error_text(nvmlReturn_t r)
{
	const char *words = nvml.nvmlErrorString(r);

	return words ? words : "unknown error";
}

static void ask_gpu(struct probe_gpu *g)
{
	nvmlDevice_t device = NULL;
	nvmlBAR1Memory_t bar;
	nvmlMemory_t memory;
	nvmlReturn_t r = nvml.nvmlDeviceGetHandleByPciBusId_v2(g->pci, &device);

	if (!r)
		r = nvml.nvmlDeviceGetBAR1MemoryInfo(device, &bar);
	if (r) {
		snprintf(g->nvml_error, sizeof(g->nvml_error), "%s", error_text(r));
		return;
	}
	g->nvml_error[0] = '\0';
	g->bar1_total = (int64_t)bar.bar1Total;
	g->bar1_used = (int64_t)bar.bar1Used;
	g->bar1_free = (int64_t)bar.bar1Free;
	if (nvml.nvmlDeviceGetMemoryInfo && !nvml.nvmlDeviceGetMemoryInfo(device, &memory))
		g->memory = (int64_t)memory.total;
}

void probe_nvml(struct probes *p)
{
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	nvmlConfComputeSystemState_t cc;
	nvmlReturn_t r;

	snprintf(p->nvml_error, sizeof(p->nvml_error), "libnvidia-ml.so.1 lacks what is needed");
#define LOOK_UP(name)                                        \
	{                                                    \
		void *symbol = dlsym(lib, #name);            \
		memcpy(&nvml.name, &symbol, sizeof(symbol)); \
	}
	NVML_CALLS(LOOK_UP)
	if (!nvml.nvmlInit_v2 || !nvml.nvmlDeviceGetHandleByPciBusId_v2 ||
	    !nvml.nvmlDeviceGetBAR1MemoryInfo || !nvml.nvmlErrorString)
		return;
	r = nvml.nvmlInit_v2();
	if (r) {
		snprintf(p->nvml_error, sizeof(p->nvml_error), "nvmlInit: %s", error_text(r));
		return;
	}
	p->nvml_error[0] = '\0';
	p->confidential = nvml.nvmlSystemGetConfComputeState &&
			  !nvml.nvmlSystemGetConfComputeState(&cc) && cc.ccFeature == 1;
	for (int i = 0; i < p->gpus; i++)
		if (p->gpu[i].pci[0])
			ask_gpu(&p->gpu[i]);
}

/*
 * Trials: with each backend alone, 64 KiB of the memory that it is for are pinned, mapped, written
 * by the CPU and read by CUDA, written by CUDA and read by the CPU. Then the same as a program does
 * it, by gdr_open() in this environment. rm is tried with exportable memory too if it refuses
 * ordinary memory.
 */

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

/* True if there is an error; its text is kept. */
static bool failed(struct trial *t, int error, const char *words)
{
	t->out->error = error;
	if (error)
		snprintf(t->out->text, sizeof(t->out->text), "%s", words);
	return error;
}

static bool lib_failed(struct trial *t, int error)
{
	return failed(t, error, lib_error_text(error));
}

static bool cuda_failed(struct trial *t, CUresult rc, const char *call)
{
	char words[256];

	snprintf(words, sizeof(words), "%s: %s", call, cuda_error_text(rc));
	return failed(t, cuda_errno(rc), words);
}

static void copies(struct trial *t)
{
	struct buffer *b = &t->b;

	begin(t, "copy");
	copytest_random(t->written, TRIAL_BYTES, 1);
	if (lib_failed(t, gdr_copy_to_mapping(b->mh, b->cpu, t->written, TRIAL_BYTES)) ||
	    lib_failed(t, barcopy_flush(b->mh)) ||
	    cuda_failed(t, cu.MemcpyDtoH(t->seen, b->mem.dptr, TRIAL_BYTES), "cuMemcpyDtoH"))
		return;
	if (failed(t, memcmp(t->written, t->seen, TRIAL_BYTES) ? EILSEQ : 0,
		   "CUDA reads other bytes than were written"))
		return;
	copytest_random(t->written, TRIAL_BYTES, 2);
	if (cuda_failed(t, cu.MemcpyHtoD(b->mem.dptr, t->written, TRIAL_BYTES), "cuMemcpyHtoD") ||
	    cuda_failed(t, cu.CtxSynchronize(), "cuCtxSynchronize") ||
	    lib_failed(t, gdr_copy_from_mapping(b->mh, t->seen, b->cpu, TRIAL_BYTES)))
		return;
	if (!failed(t, memcmp(t->written, t->seen, TRIAL_BYTES) ? EILSEQ : 0,
		    "the CPU reads other bytes than were written"))
		begin(t, "done");
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
	/* what gdrdrv pins there (GPUDirect RDMA guide, "Changing the allocator"), and what
	 * programs allocate */
	bool host = integrated && (index == GDRDRV || index == PROGRAM);
	enum mem_kind kind = host ? MEM_HOST_ALLOC : plan[index].kind;
	struct probe_trial *out = t->out;
	struct buffer *b = &t->b;
	gdr_t g;

	snprintf(out->memory, sizeof(out->memory), "%s", mem_kind_name[kind]);
	begin(t, "open");
	g = open_library(index, integrated, own);
	if (!g) {
		lib_failed(t, errno);
		return;
	}
	begin(t, "allocate");
	out->error = -buffer_make(b, g, gpu, kind, TRIAL_BYTES, GDR_MAP_FLAG_DEFAULT, out->text,
				  sizeof(out->text));
	if (!out->error) {
		snprintf(out->mapping, sizeof(out->mapping), "%s",
			 mapping_name(b->info.mapping_type));
		copies(t);
		gdr_unpin_buffer(g, b->mh); /* unmaps too */
		mem_free(&b->mem);
	} else if (!strncmp(out->text, "pin: ", 5) || !strncmp(out->text, "map: ", 5)) {
		begin(t, out->text[0] == 'p' ? "pin" : "map");
		memmove(out->text, out->text + 5, strlen(out->text + 5) + 1);
	}
	gdr_close(g);
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
