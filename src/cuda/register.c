/* SPDX-License-Identifier: MIT */
/* Host memory of ours that kernels reach, and whether a context still runs any. See cuda.h. */
#include "cuda/private.h"

/* The stream of this thread alone: to ask about the legacy one would break a capture elsewhere. */
#define PER_THREAD ((CUstream)(uintptr_t)2)

int gdri_cuda_register(void *host, size_t size, int device, void **context, uint64_t *addr)
{
	const unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct gdri_cuda_scope s;
	CUcontext primary;
	CUdeviceptr ptr;
	CUdevice dev;
	int rc = gdri_cuda_find_device(device, &dev);

	if (!rc)
		rc = gdri_cuda_enter_primary(&s, dev, &primary);
	if (rc)
		return rc;
	rc = GDRI_CU(cuMemHostRegister_v2, host, size, flags);
	if (rc)
		goto out;
	rc = GDRI_CU(cuMemHostGetDevicePointer_v2, &ptr, host, 0);
	if (rc) {
		gdri_cu.cuMemHostUnregister(host);
		goto out;
	}
	*context = primary;
	*addr = ptr;
out:
	gdri_cuda_leave(&s);
	return rc;
}

int gdri_cuda_unregister(void *host, void *context)
{
	struct gdri_cuda_scope s;
	int rc = gdri_cuda_enter(&s, context, -1);

	if (rc)
		return rc;
	rc = GDRI_CU(cuMemHostUnregister, host);
	gdri_cuda_leave(&s);
	return rc;
}

bool gdri_cuda_context_works(void *context)
{
	struct gdri_cuda_scope s;
	CUresult r;

	if (gdri_cuda_enter(&s, context, -1))
		return false;
	r = gdri_cu.cuStreamQuery ? gdri_cu.cuStreamQuery(PER_THREAD) : CUDA_SUCCESS;
	gdri_cuda_leave(&s);
	return r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY;
}
