/* SPDX-License-Identifier: MIT */
/* See gpu_test.h. */
#include "gpu_test.h"

#include <dlfcn.h>
#include <stdarg.h>

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
	       cuda_dl_path());
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

int vmm_alloc(struct vmm *v, size_t size, unsigned int chunks, bool exportable)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						   : CU_MEM_HANDLE_TYPE_NONE,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, test_gpu.dev },
	};
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	size_t grain = 0;
	CUresult r;

	memset(v, 0, sizeof(*v));
	r = cu.MemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (r)
		goto fail;
	v->chunk = ((size + chunks - 1) / chunks + grain - 1) / grain * grain;
	v->size = v->chunk * chunks;
	r = cu.MemAddressReserve(&v->ptr, v->size, 0, 0, 0);
	for (; !r && v->count < chunks; v->count++) {
		r = cu.MemCreate(&v->handles[v->count], v->chunk, &prop, 0);
		if (!r)
			r = cu.MemMap(v->ptr + v->count * v->chunk, v->chunk, 0,
				      v->handles[v->count], 0);
	}
	if (!r)
		r = cu.MemSetAccess(v->ptr, v->size, &access, 1);
	if (r)
		goto fail;
	v->mapped = true;
	return 0;
fail:
	test_fail(__FILE__, __LINE__, "vmm_alloc", "%s", cuda_error_text(r));
	return -1;
}

void vmm_unmap(struct vmm *v)
{
	if (!v->mapped)
		return;
	for (unsigned int i = 0; i < v->count; i++) {
		cu.MemUnmap(v->ptr + i * v->chunk, v->chunk);
		cu.MemRelease(v->handles[i]);
	}
	v->mapped = false;
}

void vmm_free(struct vmm *v)
{
	vmm_unmap(v);
	cu.MemAddressFree(v->ptr, v->size);
}

int mapped_open(struct mapped *m, size_t size, unsigned int chunks)
{
	void *va;
	int rc;

	if (vmm_alloc(&m->v, size, chunks, true))
		return -1;
	rc = gdr_pin_buffer_v2(test_g, m->v.ptr, m->v.size, 0, &m->h);
	if (!rc)
		rc = gdr_map(test_g, m->h, &va, m->v.size);
	if (rc) {
		test_fail(__FILE__, __LINE__, __func__, "errno %d: %s", rc, barcopy_last_error());
		return -1;
	}
	m->p = va;
	return 0;
}

int mapped_close(struct mapped *m)
{
	int rc = gdr_unmap(test_g, m->h, m->p, m->v.size);
	int rc2 = gdr_unpin_buffer(test_g, m->h);

	vmm_free(&m->v);
	return rc ? rc : rc2;
}

void pattern(void *buf, size_t size, unsigned int seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;
	uint8_t *p = buf;

	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (uint8_t)(x >> 24);
	}
}
