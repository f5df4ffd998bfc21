/* SPDX-License-Identifier: MIT */
/* The stand-in's lock, cuInit, and what every exported function does first and last. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim.h"

struct sim_state sim = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.progress = PTHREAD_COND_INITIALIZER,
};

/* The process that called cuInit. CUDA cannot be used in its forked children. */
static atomic_int owner_pid;

/*
 * libcuda 580.159.04 on an H100 (2026-11-26): after cuStreamIsCapturing() or cuStreamQuery() of
 * CU_STREAM_PER_THREAD each forked child dies by SIGSEGV in exit(), whichever thread forks, while
 * the thread that called lives. After the thread's end no child did, nor after twelve other calls.
 */
static pthread_once_t per_thread_once = PTHREAD_ONCE_INIT;
static pthread_key_t per_thread_key;
static atomic_int per_thread_users; /* threads that live */

static void per_thread_end(void *unused)
{
	(void)unused;
	atomic_fetch_sub(&per_thread_users, 1);
}

static void per_thread_begin(void)
{
	if (pthread_key_create(&per_thread_key, per_thread_end))
		abort();
}

void sim_per_thread_used(void)
{
	pthread_once(&per_thread_once, per_thread_begin);
	if (pthread_getspecific(per_thread_key))
		return;
	if (pthread_setspecific(per_thread_key, &per_thread_users))
		abort();
	atomic_fetch_add(&per_thread_users, 1);
}

__attribute__((destructor)) static void exit_of_a_child(void)
{
	int owner = atomic_load(&owner_pid);

	if (owner && owner != getpid() && atomic_load(&per_thread_users)) {
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
	}
}

CUresult sim_enter(const char *call, enum sim_need need)
{
	int result, owner;

	if (sim_fault(call, &result))
		return (CUresult)result;
	owner = atomic_load(&owner_pid);
	if (owner ? owner != getpid() : need != SIM_NEED_NOTHING)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&sim.lock);
	if (need == SIM_NEED_CONTEXT && !sim_ctx()) {
		CUresult why = sim_ctx_check();

		pthread_mutex_unlock(&sim.lock);
		return why;
	}
	return CUDA_SUCCESS;
}

void sim_leave(const CUresult *entered)
{
	if (*entered == CUDA_SUCCESS)
		pthread_mutex_unlock(&sim.lock);
}

int sim_driver_version(void)
{
	return (int)sim_env("GDRSIM_DRIVER_VERSION", 13000);
}

bool sim_integrated(void)
{
	return sim_env("GDRSIM_INTEGRATED", 0) != 0;
}

/* The proprietary flavour exports none, though RM's answer is the same (docs/internals/rm.md). */
bool sim_exports_dmabuf(void)
{
	return !sim_integrated() && sim_env("GDRSIM_DMABUF", 1) && sim_env("GDRSIM_RM_OPEN", 1);
}

bool sim_device_ok(CUdevice dev)
{
	return dev >= 0 && dev < sim.n_gpus;
}

CUresult cuInit(unsigned int flags)
{
	SIM_ENTER(SIM_NEED_NOTHING);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (atomic_load(&owner_pid))
		return CUDA_SUCCESS;
	sim.n_gpus = sim_gpu_count();
	if (sim.n_gpus == 0)
		return CUDA_ERROR_NO_DEVICE;
	for (int i = 0; i < sim.n_gpus; i++)
		sim_gpu(i, &sim.gpu[i]);
	sim_rm_start();
	atomic_store(&owner_pid, getpid());
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	int result;

	if (sim_fault(__func__, &result))
		return (CUresult)result;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = sim_driver_version();
	return CUDA_SUCCESS;
}

unsigned long long gdrsim_device_bytes(int device)
{
	unsigned long long used = 0;

	sim_rm_sweep();
	pthread_mutex_lock(&sim.lock);
	sim_dmabuf_sweep();
	if (sim_device_ok(device))
		used = sim.used_bytes[device];
	pthread_mutex_unlock(&sim.lock);
	return used;
}
