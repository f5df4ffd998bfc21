/* SPDX-License-Identifier: MIT */
/* The stand-in's lock, cuInit, and what every exported function does first and last. */
#include <stdatomic.h>
#include <unistd.h>

#include "sim.h"

struct sim_state sim = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.progress = PTHREAD_COND_INITIALIZER,
};

/* The process that called cuInit. CUDA cannot be used in its forked children. */
static atomic_int owner_pid;

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
