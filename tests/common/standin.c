// SPDX-License-Identifier: MIT
/* See standin.h. */
#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct standin_cuda cuda;
struct standin_hooks cuda_hooks;
bool standin_on_gpu;
unsigned long long (*standin_device_bytes)(int device);
unsigned long (*standin_contexts)(void);

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), abort())
#define MUST(call)                                              \
	do {                                                    \
		CUresult r_ = (call);                           \
		if (r_)                                         \
			DIE("%s: CUresult %d", #call, (int)r_); \
	} while (0)

static bool is_set(const char *name)
{
	const char *text = getenv(name);

	return text && *text && strcmp(text, "0");
}

bool standin_bar1_counts(void)
{
	return !is_set("GDRSIM_BAR1_STATIC") && !is_set("GDRSIM_BAR1_REUSE");
}

static void *symbol(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	if (!p)
		DIE("%s is not there: are these the stand-ins? (LD_LIBRARY_PATH)", name);
	return p;
}

static void *open_lib(const char *name)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		DIE("%s", dlerror());
	return lib;
}

static struct standin_hooks hooks_of(void *lib)
{
	struct standin_hooks h;

	h.set_fail = (__typeof__(h.set_fail))symbol(lib, "gdrsim_fail");
	h.calls = (__typeof__(h.calls))symbol(lib, "gdrsim_calls");
	h.fail_nth = (__typeof__(h.fail_nth))symbol(lib, "gdrsim_fail_nth");
	h.failed = (__typeof__(h.failed))symbol(lib, "gdrsim_failed");
	return h;
}

void standin_load(void)
{
	void *lib = open_lib("libcuda.so.1");

	if (!standin_on_gpu) {
		cuda_hooks = hooks_of(lib);
		standin_device_bytes =
			(__typeof__(standin_device_bytes))symbol(lib, "gdrsim_device_bytes");
		standin_contexts = (__typeof__(standin_contexts))symbol(lib, "gdrsim_contexts");
	}
#define X(name) cuda.name = (__typeof__(cuda.name))symbol(lib, #name);
	STANDIN_CALLS(X)
#undef X
}

CUcontext standin_primary(int device)
{
	CUcontext ctx;

	MUST(cuda.cuDevicePrimaryCtxRetain(&ctx, device));
	return ctx;
}

bool standin_gdrdrv(void)
{
	return dlsym(RTLD_DEFAULT, "gdrsim_node_fail") && !access("/dev/gdrdrv", F_OK);
}

void standin_start(void)
{
	standin_load();
	MUST(cuda.cuInit(0));
	MUST(cuda.cuCtxSetCurrent(standin_primary(0)));
}

CUmemGenericAllocationHandle standin_map_chunk(CUdeviceptr at, size_t chunk, int device,
					       unsigned int kind)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = kind & STANDIN_EXPORTABLE
						? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						: CU_MEM_HANDLE_TYPE_NONE,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, device },
		.allocFlags.gpuDirectRDMACapable = !!(kind & STANDIN_RDMA),
	};
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;

	MUST(cuda.cuMemCreate(&handle, chunk, &prop, 0));
	MUST(cuda.cuMemMap(at, chunk, 0, handle, 0));
	MUST(cuda.cuMemSetAccess(at, chunk, &access, 1));
	return handle;
}

CUdeviceptr standin_chunks(CUdeviceptr hint, int device, unsigned int count, size_t chunk,
			   unsigned int kind)
{
	CUdeviceptr p;

	MUST(cuda.cuMemAddressReserve(&p, count * chunk, 0, hint, 0));
	for (unsigned int i = 0; i < count; i++)
		MUST(cuda.cuMemRelease(standin_map_chunk(p + i * chunk, chunk, device, kind)));
	return p;
}

void standin_vmm_alloc(struct standin_vmm *v, int device, unsigned int count, size_t chunk,
		       bool exportable)
{
	*v = (struct standin_vmm){ standin_chunks(0, device, count, chunk, exportable), chunk,
				   chunk * count };
}

void standin_vmm_free(struct standin_vmm *v)
{
	MUST(cuda.cuMemUnmap(v->ptr, v->size));
	MUST(cuda.cuMemAddressFree(v->ptr, v->size));
}

CUdeviceptr standin_alloc(size_t size)
{
	CUdeviceptr p;

	MUST(cuda.cuMemAlloc_v2(&p, size));
	return p;
}

void standin_to_gpu(CUdeviceptr to, const void *from, size_t size)
{
	MUST(cuda.cuMemcpyHtoD_v2(to, from, size));
	MUST(cuda.cuCtxSynchronize());
}

void *standin_host_alloc(size_t size, unsigned int flags)
{
	void *p;

	MUST(cuda.cuMemHostAlloc(&p, size, flags));
	return p;
}

int standin_sync_memops(CUdeviceptr p)
{
	unsigned int on = 7;

	MUST(cuda.cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	return (int)on;
}

bool standin_device_bar1(void)
{
#if defined(__aarch64__)
	const char *driver = getenv("GDRSIM_RM_DRIVER"), *version = getenv("GDRSIM_DRIVER_VERSION");
	const char *file = getenv("GDRSIM_RM_VERSION");

	/* Without the version the library loads a word, which the stand-in's memory allows. */
	if (file && !strcmp(file, "0"))
		return false;
	return driver ? atoi(driver) < 590 : !version || atoi(version) < 13010;
#else
	return false;
#endif
}
