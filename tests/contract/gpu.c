/* SPDX-License-Identifier: MIT */
/* Device memory for the client programs, from the libcuda.so.1 that the loader finds. */
#include "contract.h"

#include <sys/mman.h>
#include <unistd.h>

#include "abi/cuda.h"

#define GRANULE ((size_t)2 << 20)

static struct {
	__typeof__(&cuInit) init;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	__typeof__(&cuCtxPushCurrent_v2) push;
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuMemFree_v2) free;
	__typeof__(&cuMemcpyHtoD_v2) htod;
	__typeof__(&cuMemcpyDtoH_v2) dtoh;
	__typeof__(&cuMemCreate) create;
	__typeof__(&cuMemRelease) release;
	__typeof__(&cuMemAddressReserve) reserve;
	__typeof__(&cuMemMap) map;
	__typeof__(&cuMemSetAccess) access;
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

	if (cu.init)
		return;
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib)
		FAIL("%s", dlerror());
	LOAD(lib, cu.init, "cuInit");
	LOAD(lib, cu.retain, "cuDevicePrimaryCtxRetain");
	LOAD(lib, cu.push, "cuCtxPushCurrent_v2");
	LOAD(lib, cu.alloc, "cuMemAlloc_v2");
	LOAD(lib, cu.free, "cuMemFree_v2");
	LOAD(lib, cu.htod, "cuMemcpyHtoD_v2");
	LOAD(lib, cu.dtoh, "cuMemcpyDtoH_v2");
	LOAD(lib, cu.create, "cuMemCreate");
	LOAD(lib, cu.release, "cuMemRelease");
	LOAD(lib, cu.reserve, "cuMemAddressReserve");
	LOAD(lib, cu.map, "cuMemMap");
	LOAD(lib, cu.access, "cuMemSetAccess");
	CUDA(cu.init(0));
	CUDA(cu.retain(&ctx, 0));
	CUDA(cu.push(ctx));
	/* Nobody's allocation is the first of its block. */
	CUDA(cu.alloc(&first, 512));
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
	CUDA(cu.reserve(&ptr, size, 0, 0, 0));
	CUDA(cu.create(&handle, size, &prop, 0));
	CUDA(cu.map(ptr, size, 0, handle, 0));
	CUDA(cu.release(handle));
	CUDA(cu.access(ptr, size, &desc, 1));
	return ptr;
}

uint64_t contract_alloc(size_t size)
{
	const char *kind = getenv("CONTRACT_MEMORY");
	CUdeviceptr ptr;

	start();
	if (kind && !strcmp(kind, "vmm"))
		return alloc_vmm(size);
	CUDA(cu.alloc(&ptr, size));
	return ptr;
}

/* Memory of either kind; a VMM allocation lives until the program ends. */
void contract_free(uint64_t address)
{
	const char *kind = getenv("CONTRACT_MEMORY");

	if (!kind || strcmp(kind, "vmm") != 0)
		CUDA(cu.free(address));
}

void contract_to_gpu(uint64_t to, const void *from, size_t size)
{
	CUDA(cu.htod(to, from, size));
}

void contract_from_gpu(void *to, uint64_t from, size_t size)
{
	CUDA(cu.dtoh(to, from, size));
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
