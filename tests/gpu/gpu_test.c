/* SPDX-License-Identifier: MIT */
/* See gpu_test.h. */
#include "gpu_test.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/random.h"

struct gpu test_gpu;
const void *test_arg;
gdr_t test_g;

static bool failed, skipped;
static char skipped_why[128];

void test_fail(const char *file, int line, const char *cond, const char *fmt, ...)
{
	va_list ap;

	failed = true;
	printf("# %s:%d: %s: ", file, line, cond);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

void test_skip(const char *fmt, ...)
{
	va_list ap;

	skipped = true;
	va_start(ap, fmt);
	vsnprintf(skipped_why, sizeof(skipped_why), fmt, ap);
	va_end(ap);
}

/* Why there is no GPU to test on, or NULL. */
static const char *no_gpu(void)
{
	static char why[128];
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(&cuInit) init;
	__typeof__(&cuDeviceGetCount) get_count;
	int count = 0, r;

	if (!lib)
		return "no libcuda.so.1";
	init = (__typeof__(init))dlsym(lib, "cuInit");
	get_count = (__typeof__(get_count))dlsym(lib, "cuDeviceGetCount");
	if (!init || !get_count)
		return "libcuda.so.1 is not a CUDA driver";
	r = init(0);
	if (!r)
		r = get_count(&count);
	if (r) {
		snprintf(why, sizeof(why), "cuInit: CUresult %d", r);
		return why;
	}
	return count ? NULL : "no CUDA device";
}

int gpu_test_main(const struct gpu_test *tests, size_t count)
{
	unsigned int bad = 0, good = 0, left = 0;
	const char *why = no_gpu();

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (why) {
		printf("no GPU: %s\n", why);
		return 77;
	}
	cuda_dl_load();
	gpu_find(&test_gpu, 0);
	gpu_start(&test_gpu);
	printf("# %s, CUDA %s, libcuda from %s\n", test_gpu.name, test_gpu.cuda_version,
	       cu.path);
	test_g = barcopy_open(BARCOPY_OPEN_ANY);
	if (!test_g) {
		printf("not ok barcopy_open: %s\n0 passed, 1 failed, 0 skipped\n",
		       barcopy_last_error());
		return 1;
	}
	for (size_t i = 0; i < count; i++) {
		failed = false;
		skipped = false;
		test_arg = tests[i].arg;
		tests[i].fn();
		bad += failed;
		left += skipped && !failed;
		good += !failed && !skipped;
		printf("%s %zu - %s%s%s\n", failed ? "not ok" : "ok", i + 1, tests[i].name,
		       skipped ? " # SKIP " : "", skipped ? skipped_why : "");
	}
	if (gdr_close(test_g)) {
		printf("not ok gdr_close: %s\n", barcopy_last_error());
		bad++;
	}
	gpu_stop(&test_gpu);
	printf("%u passed, %u failed, %u skipped\n", good, bad, left);
	return bad != 0;
}

CUmemAllocationProp vmm_prop(unsigned int flags)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = flags & EXPORTABLE
						? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						: CU_MEM_HANDLE_TYPE_NONE,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, test_gpu.dev },
		.allocFlags = { .gpuDirectRDMACapable = (flags & RDMA_CAPABLE) != 0 },
	};
}

CUresult vmm_map(CUdeviceptr at, size_t size, unsigned int flags)
{
	CUmemAllocationProp prop = vmm_prop(flags);
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUresult r = cu.MemCreate(&handle, size, &prop, 0);

	if (r)
		return r;
	r = cu.MemMap(at, size, 0, handle, 0);
	cu.MemRelease(handle); /* the mapping keeps the memory */
	return r ? r : cu.MemSetAccess(at, size, &access, 1);
}

int vmm_alloc(struct vmm *v, size_t size, unsigned int chunks, unsigned int flags)
{
	CUmemAllocationProp prop = vmm_prop(flags);
	size_t grain = 0;
	CUresult r;

	memset(v, 0, sizeof(*v));
	r = cu.MemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (!r) {
		v->chunk = ((size + chunks - 1) / chunks + grain - 1) / grain * grain;
		v->size = v->chunk * chunks;
		r = cu.MemAddressReserve(&v->ptr, v->size, 0, 0, 0);
	}
	for (; !r && v->count < chunks; v->count++)
		r = vmm_map(v->ptr + v->count * v->chunk, v->chunk, flags);
	v->mapped = !r;
	if (r)
		test_fail(__FILE__, __LINE__, "vmm_alloc", "%s", cuda_error_text(r));
	return r ? -1 : 0;
}

void vmm_unmap(struct vmm *v)
{
	if (v->mapped)
		cu.MemUnmap(v->ptr, v->size);
	v->mapped = false;
}

void vmm_free(struct vmm *v)
{
	vmm_unmap(v);
	cu.MemAddressFree(v->ptr, v->size);
}

int pin_and_map(struct mapped *m, CUdeviceptr addr, size_t size)
{
	int rc = gdr_pin_buffer_v2(test_g, addr, size, 0, &m->h);

	m->addr = addr;
	m->size = size;
	if (rc)
		return rc;
	rc = gdr_get_info(test_g, m->h, &m->info);
	if (!rc)
		rc = gdr_map(test_g, m->h, &m->map, m->info.mapped_size);
	if (!rc)
		rc = gdr_get_info(test_g, m->h, &m->info);
	if (rc)
		gdr_unpin_buffer(test_g, m->h);
	else
		m->p = (uint8_t *)m->map + (addr - m->info.va);
	return rc;
}

int unmap_and_unpin(struct mapped *m)
{
	int rc = gdr_unmap(test_g, m->h, m->map, m->info.mapped_size);
	int rc2 = gdr_unpin_buffer(test_g, m->h);

	return rc ? rc : rc2;
}

int mapped_open(struct mapped *m, size_t size, unsigned int chunks)
{
	int rc;

	if (vmm_alloc(&m->v, size, chunks, EXPORTABLE))
		return -1;
	rc = pin_and_map(m, m->v.ptr, m->v.size);
	if (rc)
		test_fail(__FILE__, __LINE__, __func__, "errno %d: %s", rc, barcopy_last_error());
	return rc ? -1 : 0;
}

int mapped_close(struct mapped *m)
{
	int rc = unmap_and_unpin(m);

	vmm_free(&m->v);
	return rc;
}

bool both_ways(gdr_mh_t h, void *cpu, CUdeviceptr addr, size_t n, unsigned int seed)
{
	uint8_t *a = malloc(n), *b = malloc(n + 1);
	bool to, from;

	pattern(a, n, seed);
	to = !gdr_copy_to_mapping(h, cpu, a, n) && !cu.MemcpyDtoH(b, addr, n) && !memcmp(a, b, n) &&
	     !barcopy_flush(h);
	if (!to)
		printf("# %zu bytes to the GPU: %s\n", n, barcopy_last_error());
	pattern(a, n, ~seed);
	memset(b, 0xa5, n + 1);
	/* Such memory may refuse SYNC_MEMOPS: CUDA's copy can still be under way. */
	from = !cu.MemcpyHtoD(addr, a, n) && !cu.CtxSynchronize() &&
	       !gdr_copy_from_mapping(h, b, cpu, n) && !memcmp(a, b, n) && b[n] == 0xa5;
	if (!from)
		printf("# %zu bytes from the GPU: %s\n", n, barcopy_last_error());
	free(a);
	free(b);
	return to && from;
}

uint64_t backend_of(gdr_mh_t h)
{
	uint64_t backend = 0;

	barcopy_get_handle_attribute(test_g, h, BARCOPY_HANDLE_ATTR_BACKEND, &backend);
	return backend;
}

int in_child(int (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(fn(arg));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void pattern(void *buf, size_t size, unsigned int seed)
{
	unsigned long long state = seed * 0x9e3779b97f4a7c15ULL + 1;
	uint8_t *p = buf;

	for (size_t i = 0; i < size; i++)
		p[i] = (uint8_t)(unit_random(&state) >> 24);
}
