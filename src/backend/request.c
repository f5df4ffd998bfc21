/* SPDX-License-Identifier: MIT */
/* What a request for a pin is for: its GPU pages, and what CUDA says of the memory. */
#include <errno.h>

#include "backend/backend.h"
#include "base/error.h"

/* Rounds the range to GPU pages: 0 or -errno. */
static int round_range(struct gdri_pin_request *request)
{
	uint64_t end;

	if (!request->size)
		return gdri_fail(EINVAL, "size is 0");
	if (!request->addr)
		return gdri_fail(EINVAL, "the address is 0");
	if (__builtin_add_overflow(request->addr, request->size, &end) ||
	    end > UINT64_MAX - GPU_PAGE_OFFSET)
		return gdri_fail(EOVERFLOW, "address 0x%llx + size 0x%zx wraps",
				 (unsigned long long)request->addr, request->size);
	request->va = request->addr & GPU_PAGE_MASK;
	request->mapped_size = ((end + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - request->va;
	return 0;
}

int gdri_pin_describe(struct gdri_pin_request *request)
{
	const struct gdri_memory *m = &request->memory;
	int rc = round_range(request);

	if (!rc)
		rc = gdri_cuda_describe(request->addr, request->size, &request->memory);
	if (rc)
		return rc;
	if (m->managed)
		return gdri_fail(EINVAL,
				 "0x%llx is managed (unified) memory, which migrates and cannot be "
				 "pinned: allocate with cudaMalloc, cuMemCreate or cudaHostAlloc",
				 (unsigned long long)request->addr);
	return 0;
}
