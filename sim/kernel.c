/* SPDX-License-Identifier: MIT */
/*
 * Modules, functions and launches. A module is PTX text whose entries are all in the table of
 * kernels.c; any other is CUDA_ERROR_NOT_SUPPORTED.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "sim.h"

#define MAX_ENTRIES 32

struct CUfunc_st {
	const struct sim_kernel *kernel;
};

struct CUmod_st {
	struct CUmod_st *next;
	bool loaded;
	unsigned int n;
	struct CUfunc_st function[MAX_ENTRIES];
};

struct running {
	const struct sim_kernel *kernel;
	CUstream stream;
	unsigned long ticket;
	struct sim_launch launch;
	char params[SIM_MAX_PARAMS][SIM_MAX_PARAM_SIZE] __attribute__((aligned(16)));
};

static CUmodule modules; /* never freed: a stale handle is recognised */

static const struct sim_kernel *kernel_named(const char *name, size_t len)
{
	for (const struct sim_kernel *k = sim_kernels; k->name; k++)
		if (strlen(k->name) == len && strncmp(k->name, name, len) == 0)
			return k;
	return NULL;
}

static CUresult parse(const char *ptx, CUmodule module)
{
	static const char word[] = ".entry";

	if (strncmp(ptx, "\177ELF", 4) == 0 || !strstr(ptx, ".version"))
		return CUDA_ERROR_NOT_SUPPORTED;
	for (const char *p = strstr(ptx, word); p; p = strstr(p, word)) {
		size_t len;

		p += strlen(word);
		p += strspn(p, " \t\r\n");
		len = strcspn(p, " \t\r\n(");
		if (module->n == MAX_ENTRIES)
			return CUDA_ERROR_NOT_SUPPORTED;
		module->function[module->n].kernel = kernel_named(p, len);
		if (!module->function[module->n++].kernel)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return module->n ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	CUmodule made;
	CUresult r;

	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = parse(image, made);
	if (r != CUDA_SUCCESS) {
		free(made);
		return r;
	}
	made->loaded = true;
	made->next = modules;
	modules = made;
	*module = made;
	return CUDA_SUCCESS;
}

static bool loaded(CUmodule module)
{
	for (CUmodule m = modules; m; m = m->next)
		if (m == module)
			return m->loaded;
	return false;
}

CUresult cuModuleUnload(CUmodule module)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	sim_drain_all();
	if (!loaded(module))
		return CUDA_ERROR_INVALID_HANDLE;
	module->loaded = false;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	SIM_ENTER(SIM_NEED_CONTEXT);
	if (!function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!loaded(module))
		return CUDA_ERROR_INVALID_HANDLE;
	for (unsigned int i = 0; i < module->n; i++) {
		if (strcmp(module->function[i].kernel->name, name) != 0)
			continue;
		*function = &module->function[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

static void *run(void *arg)
{
	struct running *job = arg;

	pthread_mutex_lock(&sim.lock);
	sim_ctx_adopt(job->stream->ctx);
	while (job->stream->done_ticket != job->ticket)
		pthread_cond_wait(&sim.progress, &sim.lock);
	pthread_mutex_unlock(&sim.lock);
	job->kernel->run(&job->launch);
	pthread_mutex_lock(&sim.lock);
	job->stream->done_ticket++;
	pthread_cond_broadcast(&sim.progress);
	pthread_mutex_unlock(&sim.lock);
	free(job);
	return NULL;
}

static CUresult launch(struct running *job)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (pthread_attr_init(&attr))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	job->ticket = job->stream->next_ticket;
	err = pthread_create(&thread, &attr, run, job);
	pthread_attr_destroy(&attr);
	if (err)
		return CUDA_ERROR_OUT_OF_MEMORY;
	job->stream->next_ticket++;
	return CUDA_SUCCESS;
}

static bool known(CUfunction f)
{
	for (CUmodule m = modules; m; m = m->next)
		if (m->loaded && f >= m->function && f < m->function + m->n)
			return true;
	return false;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z,
			unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
	struct running *job;
	CUresult r;

	(void)shared_bytes;
	SIM_ENTER(SIM_NEED_CONTEXT);
	r = sim_stream(stream, &stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (!known(f))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z ||
	    (f->kernel->n_params && !params))
		return CUDA_ERROR_INVALID_VALUE;
	if (extra)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (sim_capture_takes(stream, &r))
		return r;
	job = calloc(1, sizeof(*job));
	if (!job)
		return CUDA_ERROR_OUT_OF_MEMORY;
	job->kernel = f->kernel;
	job->stream = stream;
	job->launch = (struct sim_launch){ .grid = { grid_x, grid_y, grid_z },
					   .block = { block_x, block_y, block_z } };
	for (unsigned int i = 0; i < f->kernel->n_params; i++) {
		memcpy(job->params[i], params[i], f->kernel->param_size[i]);
		job->launch.param[i] = job->params[i];
	}
	r = launch(job);
	if (r != CUDA_SUCCESS)
		free(job);
	return r;
}

void *sim_kernel_reach(uint64_t addr, size_t size)
{
	void *cpu;

	pthread_mutex_lock(&sim.lock);
	cpu = sim_ctx() ? sim_reach(addr, size) : NULL;
	pthread_mutex_unlock(&sim.lock);
	return cpu;
}
