/* SPDX-License-Identifier: MIT */
/* Device memory for the client programs, from the libcuda.so.1 that the loader finds. */
#include "contract.h"

#include <sys/mman.h>
#include <unistd.h>

#include "abi/cuda.h"

#define GRANULE ((size_t)2 << 20)

#define CALLS(X)                                                                            \
	X(cuInit)                                                                           \
	X(cuDevicePrimaryCtxRetain) X(cuCtxPushCurrent_v2) X(cuMemAlloc_v2) X(cuMemFree_v2) \
		X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemCreate) X(cuMemRelease)        \
			X(cuMemAddressReserve) X(cuMemMap) X(cuMemSetAccess) X(cuCtxSynchronize)

static struct {
#define X(name) __typeof__(&(name)) name;
	CALLS(X)
#undef X
} cu;

#define CUDA(call)                                                 \
	do {                                                       \
		CUresult r_ = (call);                              \
		if (r_)                                            \
			FAIL("%s: CUDA error %d", #call, (int)r_); \
	} while (0)

static void start(void)
{
	CUdeviceptr first;
	CUcontext ctx;
	void *lib;

	if (cu.cuInit)
		return;
	lib = contract_load("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
#define X(name) LOAD(lib, cu.name, #name);
	CALLS(X)
#undef X
	CUDA(cu.cuInit(0));
	CUDA(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	CUDA(cu.cuCtxPushCurrent_v2(ctx));
	/* No client's allocation is the first of its block. */
	CUDA(cu.cuMemAlloc_v2(&first, 512));
}

static uint64_t alloc_vmm(size_t size)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
		.allocFlags = { .gpuDirectRDMACapable = 1 },
	};
	CUmemAccessDesc desc = { .location = prop.location,
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	size = (size + GRANULE - 1) & ~(GRANULE - 1);
	CUDA(cu.cuMemAddressReserve(&ptr, size, 0, 0, 0));
	CUDA(cu.cuMemCreate(&handle, size, &prop, 0));
	CUDA(cu.cuMemMap(ptr, size, 0, handle, 0));
	CUDA(cu.cuMemRelease(handle));
	CUDA(cu.cuMemSetAccess(ptr, size, &desc, 1));
	return ptr;
}

uint64_t contract_alloc(size_t size)
{
	const char *kind = getenv("CONTRACT_MEMORY");
	CUdeviceptr ptr;

	start();
	if (kind && !strcmp(kind, "vmm"))
		return alloc_vmm(size);
	CUDA(cu.cuMemAlloc_v2(&ptr, size));
	return ptr;
}

/* Memory of either kind; a VMM allocation lives until the program ends. */
void contract_free(uint64_t address)
{
	const char *kind = getenv("CONTRACT_MEMORY");

	if (!kind || strcmp(kind, "vmm") != 0)
		CUDA(cu.cuMemFree_v2(address));
}

void contract_to_gpu(uint64_t to, const void *from, size_t size)
{
	CUDA(cu.cuMemcpyHtoD_v2(to, from, size));
	CUDA(cu.cuCtxSynchronize()); /* a small copy of pageable memory may return before */
}

void contract_from_gpu(void *to, uint64_t from, size_t size)
{
	CUDA(cu.cuMemcpyDtoH_v2(to, from, size));
}

void *contract_guarded(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + page, page, PROT_NONE))
		FAIL("no memory");
	memset(p, 0x5a, page);
	return p + page - size;
}
