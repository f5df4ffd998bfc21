// SPDX-License-Identifier: MIT
/*
 * What the library asks CUDA about an address (kinds of memory: test_host, tests/model),
 * from each kind of thread; SYNC_MEMOPS; exports; and that the caller's context and capture mode are
 * restored.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/rm_client.h"
#include "common/resources.h"
#include "common/wrap.h"
#include "cuda/private.h"
#include "cuda/watch.h"
#include "base/error.h"
#include "base/process.h"
#include "fixture.h"

static struct gdri_memory describe(uint64_t addr, size_t size)
{
	struct gdri_memory m;

	memset(&m, 0xee, sizeof(m));
	gdri_cuda_describe(addr, size, &m);
	return m;
}

static void described(int line, uint64_t addr, size_t size, const struct gdri_memory *is)
{
	struct gdri_memory m = describe(addr, size);

	ck_assert_msg(m.kind == is->kind, "line %d: kind %d", line, m.kind);
	if (m.kind == GDRI_MEMORY_UNKNOWN) {
		ck_assert_msg(m.device == -1, "line %d: device %d", line, m.device);
		return;
	}
	ck_assert_msg(m.base == is->base && m.size == is->size, "line %d: 0x%lx, 0x%zx bytes", line,
		      (unsigned long)m.base, m.size);
	ck_assert_msg(m.known == (is->known ? is->known : addr), "line %d: known by 0x%lx", line,
		      (unsigned long)m.known);
	ck_assert_msg(m.context == is->context && m.device == 0, "line %d: context %p, device %d",
		      line, m.context, m.device);
}

/* Describes [addr, addr + size). .known: the address that CUDA knows, if not the first. */
#define IS(addr, size, what, ...)       \
	described(__LINE__, addr, size, \
		  &(struct gdri_memory){ .kind = GDRI_MEMORY_##what, __VA_ARGS__ })

static void device_memory(void)
{
	CUdeviceptr p, a, b, pad, big;
	CUcontext ctx = standin_primary(0);
	struct gdri_memory m;

	p = standin_alloc(100000);
	for (uint64_t at = p; at < p + 100000; at += 33333)
		IS(at, 1, DEVICE, .context = ctx, .base = p, .size = 100000);
	/* Neighbours in one GPU page. */
	a = standin_alloc(512);
	b = standin_alloc(512);
	ck_assert_uint_eq(a & ~0xffffULL, b & ~0xffffULL);
	IS(a, 512, DEVICE, .context = ctx, .base = a, .size = 512);
	IS(b + 511, 1, DEVICE, .context = ctx, .base = b, .size = 512);
	cuda.cuMemFree_v2(p);
	cuda.cuMemFree_v2(a);
	cuda.cuMemFree_v2(b);
	/* A range widened to a GPU page begins before its allocation, or ends behind it. */
	pad = standin_alloc(4096);
	p = standin_alloc(512);
	cuda.cuMemFree_v2(pad);
	ck_assert_uint_eq(p & 0xffff, 4096);
	pad = p & ~0xffffULL;
	IS(pad, 65536, DEVICE, .known = p, .context = ctx, .base = p, .size = 512); /* its middle */
	IS(pad, 4097, DEVICE, .known = p, .context = ctx, .base = p,
	   .size = 512); /* its last byte */
	IS(pad, 4096, UNKNOWN);
	IS((uintptr_t)&big, 8, UNKNOWN); /* pageable */
	CU(cuda.cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
	m = describe(p, 4096);
	ck_assert(m.managed && m.kind == GDRI_MEMORY_UNKNOWN && m.device == 0);
	IS(pad - 61440, 65536 + 8192, UNKNOWN); /* it begins behind the first 64 KiB */
	big = standin_alloc(2 << 20);
	IS(big + 65535, 1 << 20, DEVICE, .context = ctx, .base = big, .size = 2 << 20);
	cuda_hooks.set_fail("cuPointerGetAttributes:1=999");
	IS(big, 65536, UNKNOWN);
	cuda_hooks.set_fail(NULL);
}

static void no_libcuda(void)
{
	static const int shortages[] = { EMFILE, ENFILE, ENOMEM };
	struct gdri_memory m;
	int version;

	wrap_reset();
	wrap_deny_library("libcuda");
	FAILS(-ENODEV, gdri_cuda_load());
	FAILS_WITH(-ENODEV, "no CUDA driver", gdri_cuda_driver_version(&version));
	FAILS_WITH(-ENODEV, "no CUDA driver", gdri_cuda_watch_possible());
	m = describe(0x100000, 65536);
	ck_assert_int_eq(m.kind, GDRI_MEMORY_UNKNOWN);
	ck_assert_ptr_nonnull(strstr(m.note, "no CUDA driver"));
	for (size_t i = 0; i < COUNT(shortages); i++) {
		wrap_reset();
		wrap_fail("dlopen", 1, shortages[i]);
		FAILS_WITH(-shortages[i], "this library", gdri_cuda_load());
	}
	/* The next open looks for it again. */
	wrap_reset();
	OK(gdri_cuda_load());
}

/* Containers have only libcuda.so.1. */
static void only_the_run_time_name(void)
{
	wrap_reset();
	wrap_fail("dlopen", 2, ENOENT);
	OK(gdri_cuda_load());
	ck_assert_uint_eq(wrap_calls("dlopen"), 1);
	wrap_reset();
	wrap_deny_library("libcuda.so.1");
	OK(gdri_cuda_load()); /* loaded already, not asked for again */
	ck_assert_uint_eq(wrap_calls("dlopen"), 0);
}

static void needed_calls(void)
{
	static const char *const needed[] = {
		"cuDriverGetVersion",
		"cuGetErrorName",
		"cuPointerGetAttributes",
		"cuPointerSetAttribute",
		"cuMemGetAddressRange_v2",
		"cuMemHostGetFlags",
		"cuDeviceGetAttribute",
		"cuCtxGetCurrent",
		"cuCtxGetDevice",
		"cuCtxPushCurrent_v2",
		"cuCtxPopCurrent_v2",
		"cuDevicePrimaryCtxRetain",
		"cuDevicePrimaryCtxRelease_v2",
	};

	for (size_t i = 0; i < COUNT(needed); i++) {
		wrap_reset();
		wrap_deny_symbol(needed[i]);
		FAILS_WITH(-ENODEV, needed[i], gdri_cuda_load());
	}
	wrap_reset();
	OK(gdri_cuda_load());
}

static void older_drivers(void)
{
	const char *missing = unit_arg;
	struct gdri_allocation a;
	struct gdri_memory m;
	uint64_t base;
	size_t size;
	int fd = -7;

	wrap_reset();
	wrap_deny_symbol(missing); /* for the rest of the process */
	OK(gdri_cuda_load());
	wrap_reset();
	standin_start();
	m = describe(standin_alloc(2 << 20), 65536);
	if (strstr(missing, "Async") || strstr(missing, "Stream")) {
		OK(gdri_cuda_alloc(&a, GDRI_ALLOCATION_PLAIN, 0, NULL, 65536, false, -1));
		OK(gdri_cuda_free(&a));
	}
	if (strstr(missing, "Capturing")) {
		CUcontext current = NULL;

		CU(cuda.cuCtxGetCurrent(&current));
		ck_assert(gdri_cuda_context_works(current));
	}
	if (strstr(missing, "AddressRange"))
		FAILS_WITH(-ENOTSUP, missing, gdri_cuda_dmabuf(&m, m.base, 65536, false, &fd));
	else if (strstr(missing, "Export"))
		FAILS(-ENOTSUP, gdri_cuda_export_chunk(vmm_new(0, 1), -1, &base, &size, &fd));
	else
		ck_assert(gdri_cuda_sync_memops(&m));
	ck_assert_int_eq(fd, -7);
}

static const char *bus_id;

static CUresult says_bus_id(char *text, int size, CUdevice dev)
{
	(void)dev;
	snprintf(text, (size_t)size, "%s", bus_id);
	return CUDA_SUCCESS;
}

static void pci_addresses(void)
{
	static const char *const wrong[] = { "0000:100:00.0", "0000:01:20.0", "0000:01:00.8", "x" };
	struct gdri_pci_address a, b;
	struct gdri_bar bar;
	uint64_t bytes = 0;
	bool is;

	OK(gdri_cuda_load());
	OK(gdri_cuda_total_memory(1, &bytes));
	ck_assert_uint_gt(bytes, 0);
	OK(gdri_cuda_pci_address(0, &a));
	OK(gdri_cuda_pci_address(1, &b));
	ck_assert_uint_ne(a.bus, b.bus);
	FAILS(-EINVAL, gdri_cuda_pci_address(2, &b));
	FAILS(-EINVAL, gdri_cuda_pci_address(-1, &b));
	FAILS_WITH(-EINVAL, "no CUDA device 2: there are 2", gdri_cuda_is_integrated(2, &is));
	FAILS_WITH(-EINVAL, "no CUDA device -1", gdri_cuda_is_integrated(-1, &is));
	FAILS_WITH(-ENODEV, "not known", gdri_cuda_bar(-1, &bar));
	cuda_hooks.set_fail("cuDeviceGetCount:*=999");
	FAILS(-EIO, gdri_cuda_is_integrated(-1, &is));
	cuda_hooks.set_fail("cuInit:*=100");
	FAILS(-ENODEV, gdri_cuda_is_integrated(0, &is));
	cuda_hooks.set_fail("cuDeviceGetPCIBusId:*=999");
	FAILS(-EIO, gdri_cuda_pci_address(0, &b));
	cuda_hooks.set_fail(NULL);
	gdri_cu.cuDeviceGetPCIBusId = says_bus_id;
	for (size_t i = 0; i < COUNT(wrong); i++) {
		bus_id = wrong[i];
		FAILS_WITH(-EIO, wrong[i], gdri_cuda_pci_address(0, &b));
	}
	bus_id = "10000:ff:1f.7";
	OK(gdri_cuda_pci_address(0, &b));
	ck_assert(b.domain == 0x10000 && b.bus == 0xff && b.device == 31);
}

static void no_exports(void)
{
	wrap_reset();
	wrap_deny_symbol("cuMemGetHandleForAddressRange");
	OK(gdri_cuda_load());
	FAILS_WITH(-ENODEV, "has no cuMemGetHandleForAddressRange", gdri_cuda_can_export());
	FAILS_WITH(-ENODEV, "has no cuMemGetHandleForAddressRange", gdri_rm_exports_dmabuf());
}

/* A GPU of which CUDA does not say that its link is coherent has none. */
static void coherent_links(void)
{
	static const char *const fails[] = { "cuDeviceGetCount:*=999", "cuDeviceGet:*=999",
					     "cuDeviceGetAttribute:*=999" };

	standin_load();
	ck_assert(gdri_cuda_any_coherent()); /* the first call of CUDA's */
	cuda_hooks.set_fail("cuDeviceGetAttribute:2=999"); /* one is enough */
	ck_assert(gdri_cuda_any_coherent());
	for (size_t i = 0; i < COUNT(fails); i++) {
		cuda_hooks.set_fail(fails[i]);
		ck_assert(!gdri_cuda_any_coherent());
	}
	cuda_hooks.set_fail(NULL);
}

static void no_nvml(void)
{
	void (*nvml_fails)(const char *spec);
	struct gdri_pci_address pci;
	struct gdri_bar bar;

	OK(gdri_cuda_load());
	OK(gdri_cuda_pci_address(0, &pci));
	wrap_reset();
	wrap_deny_library("libnvidia-ml");
	FAILS_WITH(-ENOTSUP, "without NVML", gdri_nvml_bar(&pci, &bar));
	wrap_reset();
	wrap_deny_symbol("nvmlInit");
	FAILS_WITH(-ENOTSUP, "has no nvmlInit_v2", gdri_nvml_bar(&pci, &bar));
	wrap_reset();
	OK(gdri_nvml_bar(&pci, &bar));
	ck_assert(gdri_may_fit(0, bar.total) && !gdri_may_fit(0, bar.total + 1));
	pci.bus++;
	FAILS_WITH(-ENOTSUP, "Not found (6)", gdri_nvml_bar(&pci, &bar));
	pci.bus--;
	*(void **)&nvml_fails = dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), "gdrsim_fail");
	nvml_fails("nvmlDeviceGetBAR1MemoryInfo:*=999");
	FAILS_WITH(-EIO, "nvmlDeviceGetBAR1MemoryInfo: ", gdri_nvml_bar(&pci, &bar));
}

static void results_as_errno(void)
{
	static const struct {
		int result, err;
	} table[] = { { 2, ENOMEM }, { 801, ENOTSUP }, { 800, EACCES }, { 100, ENODEV },
		      { 4, ENODEV }, { 34, ENODEV },   { 802, ENODEV }, { 803, ENODEV },
		      { 1, EINVAL }, { 201, EINVAL },  { 101, EINVAL }, { 400, EINVAL },
		      { 3, EINVAL }, { 709, EINVAL },  { 999, EIO },	{ 700, EIO },
		      { 77777, EIO } };
	char spec[64];
	int version;

	standin_load();
	for (size_t i = 0; i < COUNT(table); i++) {
		snprintf(spec, sizeof(spec), "cuDriverGetVersion:*=%d", table[i].result);
		cuda_hooks.set_fail(spec);
		version = -7;
		FAILS(-table[i].err, gdri_cuda_driver_version(&version));
		snprintf(spec, sizeof(spec), "(%d)", table[i].result);
		SAYS(spec);
	}
	SAYS("unknown error");
	cuda_hooks.set_fail(NULL);
	OK(gdri_cuda_driver_version(&version));
	ck_assert_int_eq(version, 13000);
}

static bool sync_memops(CUdeviceptr p)
{
	struct gdri_memory m = describe(p, 65536);

	return gdri_cuda_sync_memops(&m);
}

static void sync_memops_is_set(void)
{
	struct gdri_memory host = { .kind = GDRI_MEMORY_HOST };
	unsigned int off = 0;
	unsigned long calls;
	struct standin_vmm v;
	CUdeviceptr p, q;

	p = standin_alloc(1 << 20);
	q = standin_alloc(1 << 20);
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	ck_assert(sync_memops(p));
	ck_assert_int_eq(standin_sync_memops(p), 1);
	ck_assert_int_eq(standin_sync_memops(q), 0);
	/* Set at each pin: the program may have cleared it, and the library remembers nothing. */
	CU(cuda.cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	ck_assert_int_eq(standin_sync_memops(p), 0);
	ck_assert(sync_memops(p + 65536));
	ck_assert_int_eq(standin_sync_memops(p), 1);
	/* VMM memory has no SYNC_MEMOPS unless the driver accepts it. */
	ck_assert(!sync_memops(v.ptr));
	setenv("GDRSIM_VMM_SYNC_MEMOPS", "1", 1);
	ck_assert(sync_memops(v.ptr));
	ck_assert_int_eq(standin_sync_memops(v.ptr), 1);
	cuda_hooks.set_fail("cuDeviceGet:*=999");
	ck_assert(!sync_memops(v.ptr));
	cuda_hooks.set_fail(NULL);
	unsetenv("GDRSIM_VMM_SYNC_MEMOPS");
	ck_assert(gdri_cuda_sync_memops(&host));
	/* Driver 580 reads 1 before any set: only a successful set counts. */
	setenv("GDRSIM_SYNC_MEMOPS", "1", 1);
	q = standin_alloc(1 << 20);
	ck_assert_int_eq(standin_sync_memops(q), 1);
	calls = cuda_hooks.calls("cuPointerSetAttribute");
	ck_assert(sync_memops(q));
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerSetAttribute"), calls + 1);
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	ck_assert(!sync_memops(v.ptr));
}

static struct standin_vmm chunks;
static CUdeviceptr plain;

/* All that the library does in CUDA contexts, once, between a hold and a drop. */
static int everything(bool *in_force)
{
	struct gdri_memory m = describe(plain, 65536), mv = describe(chunks.ptr, 65536);
	uint64_t start_of = 0;
	size_t size;
	int fd, rc;

	gdri_cuda_hold();
	*in_force = gdri_cuda_sync_memops(&m);
	gdri_cuda_sync_memops(&mv);
	rc = gdri_cuda_dmabuf(&m, plain & ~0xffffULL, 65536, false, &fd);
	if (!rc) {
		close(fd);
		rc = gdri_cuda_export_chunk(chunks.ptr + 5, -1, &start_of, &size, &fd);
	}
	if (!rc)
		close(fd);
	gdri_cuda_drop();
	return rc || (start_of == chunks.ptr && size == chunks.chunk) ? rc : -1;
}

/* NULL, or what is wrong; in a thread of its own, without a context, or in the caller's. */
static void *play(void *unused)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	const char *wrong = unused;
	bool in_force;

	cuda.cuThreadExchangeStreamCaptureMode(&mode);
	resources_note();
	if (everything(&in_force))
		wrong = gdri_error_text();
	else
		wrong = in_force ? resources_changed() : "SYNC_MEMOPS not in force";
	return (void *)(uintptr_t)wrong;
}

/* The current context is the pointer's, another device's, none, another one of its device. */
static void context_as_found(void)
{
	CUcontext created, primary[2] = { standin_primary(0), standin_primary(1) };
	unsigned long retains = cuda_hooks.calls("cuDevicePrimaryCtxRetain");
	struct gdri_cuda_scope s;

	OK(gdri_cuda_load());
	FAILS(-EINVAL, gdri_cuda_enter_primary(&s, -1, &created));
	FAILS(-EINVAL, gdri_cuda_enter_primary(&s, 64, &created));
	ck_assert_uint_eq(cuda_hooks.calls("cuDevicePrimaryCtxRetain"), retains);
	standin_vmm_alloc(&chunks, 0, 2, STANDIN_GRANULE, true);
	plain = standin_alloc(2 << 20);
	ck_assert_ptr_null(play(NULL));
	cuda.cuCtxSetCurrent(primary[1]);
	ck_assert_ptr_null(play(NULL));
	ck_assert_ptr_null(unit_threads(1, play, NULL, 0));
	CU(cuda.cuCtxCreate_v2(&created, 0, 0));
	plain = standin_alloc(2 << 20);
	cuda.cuCtxSetCurrent(primary[0]);
	ck_assert_ptr_null(play(NULL));
	/* A thread without one, and the device's cannot be had. */
	cuda.cuCtxSetCurrent(NULL);
	cuda_hooks.set_fail("cuDevicePrimaryCtxRetain:*=2");
	FAILS_WITH(-ENOMEM, "cuDevicePrimaryCtxRetain", gdri_cuda_enter(&s, NULL, 0));
	FAILS_WITH(-ENOMEM, "cuDevicePrimaryCtxRetain", gdri_cuda_enter_primary(&s, 0, &created));
}

static void exports(void)
{
	static const struct {
		const char *spec;
		int answer;
	} faults[] = { { "cuMemRetainAllocationHandle:*=2", -ENOMEM },
		       { "cuMemGetAllocationPropertiesFromHandle:*=999", -EIO },
		       { "cuMemExportToShareableHandle:*=999", -EIO } };
	struct standin_vmm v, other;
	unsigned long long bytes;
	uint64_t base = 7;
	size_t size = 7;
	int fd = -7;

	OK(gdri_cuda_load());
	bytes = standin_device_bytes(0);
	standin_vmm_alloc(&v, 0, 3, 2 * STANDIN_GRANULE, true);
	standin_vmm_alloc(&other, 0, 1, STANDIN_GRANULE, false);
	FAILS_WITH(-ENOTSUP, "created without the handle type",
		   gdri_cuda_export_chunk(other.ptr, -1, &base, &size, &fd));
	FAILS_WITH(-ENOTSUP, "cuMemCreate",
		   gdri_cuda_export_chunk(standin_alloc(1), -1, &base, &size, &fd));
	for (size_t i = 0; i < COUNT(faults); i++) {
		cuda_hooks.set_fail(faults[i].spec);
		FAILS(faults[i].answer, gdri_cuda_export_chunk(v.ptr, -1, &base, &size, &fd));
	}
	cuda_hooks.set_fail(NULL);
	ck_assert_uint_eq(base, 7);
	ck_assert_uint_eq(size, 7);
	ck_assert_int_eq(fd, -7);
	OK(gdri_cuda_export_chunk(v.ptr + v.chunk + 1, -1, &base, &size, &fd));
	ck_assert_uint_eq(base, v.ptr + v.chunk);
	ck_assert_uint_eq(size, v.chunk);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(fd);
	/* The library holds no reference to a chunk: the program's release frees it. */
	standin_vmm_free(&v);
	standin_vmm_free(&other);
	ck_assert_uint_eq(standin_device_bytes(0), bytes + (2 << 20)); /* the block of 1 byte */
}

static int next_fd;

static void is_not_inherited(void)
{
	ck_assert_int_eq(fcntl(next_fd, F_GETFD), FD_CLOEXEC);
}

static int is_open(void *arg)
{
	(void)arg;
	return fcntl(next_fd, F_GETFD) >= 0;
}

static void second_open(void)
{
	ck_assert_int_eq(is_open(NULL), 1);
	ck_assert_int_eq(unit_in_child(is_open, NULL), 0);
}

static void first_open(void)
{
	wrap_before("open", second_open);
}

/* What is opened only to learn why CUDA failed is not inherited either, nor by a forked child. */
static void probe_of_descriptors(void)
{
	struct gdri_memory m = describe(standin_alloc(65536), 65536);
	int fd;

	next_fd = dup(0);
	close(next_fd);
	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:*=999");
	wrap_reset();
	wrap_before("close", is_not_inherited);
	FAILS(-EIO, gdri_cuda_dmabuf(&m, m.base, 65536, false, &fd));
	ck_assert_uint_ge(wrap_calls("close"), 1);
	ck_assert_uint_eq(wrap_calls("close"), wrap_calls("open"));
	OK(gdri_process_enter());
	wrap_before("open", first_open);
	FAILS(-EIO, gdri_cuda_dmabuf(&m, m.base, 65536, false, &fd));
	/* libcuda may need four. */
	for (unsigned long n = 1; n <= 5; n++) {
		wrap_reset();
		wrap_fail("open", n, ENFILE);
		FAILS_WITH(n > 4 ? -EIO : -ENFILE,
			   n > 4 ? "cuMemGetHandleForAddressRange: CUDA_ERROR_UNKNOWN"
				 : "cuMemGetHandleForAddressRange: Too many open files",
			   gdri_cuda_dmabuf(&m, m.base, 65536, false, &fd));
	}
	wrap_reset();
	wrap_fail("open", 1, EACCES);
	FAILS(-EIO, gdri_cuda_dmabuf(&m, m.base, 65536, false, &fd));
	cuda_hooks.set_fail(NULL);
}

/* Memory of a context that has ended is not freed a second time, as its address may be another's. */
static void freed_by_its_context(void)
{
	struct gdri_allocation a;
	unsigned long waits;

	OK(gdri_cuda_load());
	OK(gdri_cuda_alloc(&a, GDRI_ALLOCATION_PLAIN, 0, NULL, 65536, false, -1));
	a.buffer_id++;
	waits = cuda_hooks.calls("cuMemFreeAsync");
	OK(gdri_cuda_free(&a));
	ck_assert_uint_eq(cuda_hooks.calls("cuMemFreeAsync"), waits);
	a.buffer_id--;
	/* What is kept serves the same GPU alone. */
	OK(gdri_cuda_keep(&a));
	ck_assert(!gdri_cuda_take_kept(&a, GDRI_ALLOCATION_PLAIN, 1, 65536));
	ck_assert(gdri_cuda_take_kept(&a, GDRI_ALLOCATION_PLAIN, 0, 65536));
	waits = cuda_hooks.calls("cuStreamSynchronize"); /* for the free, in its stream */
	OK(gdri_cuda_free(&a));
	ck_assert_uint_eq(cuda_hooks.calls("cuStreamSynchronize"), waits + 1);
	FAILS_WITH(-ENOMEM, "cannot be rounded up to ",
		   gdri_cuda_alloc(&a, GDRI_ALLOCATION_VMM, 0, NULL, SIZE_MAX, false, -1));
	FAILS(-EINVAL, gdri_cuda_alloc(&a, GDRI_ALLOCATION_PLAIN, 99, standin_primary(0), 1, false, -1));
}

/* What is kept ends with the last context: no memory of others, in no other context, by no wait. */
static void kept_at_the_end(void)
{
	static const char *const frees[] = { "cuMemFreeAsync", "cuMemFree", "cuMemUnmap",
					     "cuMemFreeHost" };
	struct gdri_allocation a;

	OK(gdri_cuda_load());
	for (int i = 0; i < 4; i++) {
		unsigned long before = 0, after = 0;

		gdri_cuda_hold();
		OK(gdri_cuda_alloc(&a, i == 2 ? GDRI_ALLOCATION_HOST : GDRI_ALLOCATION_PLAIN, 0,
				   NULL, 65536, false, -1));
		a.buffer_id += i == 0;
		OK(gdri_cuda_keep(&a));
		for (size_t k = 0; k < COUNT(frees); k++)
			before += cuda_hooks.calls(frees[k]);
		if (i == 1)
			cuda_hooks.set_fail("cuCtxPushCurrent:*=709");
		gdri_cuda_drop();
		cuda_hooks.set_fail(NULL);
		for (size_t k = 0; k < COUNT(frees); k++)
			after += cuda_hooks.calls(frees[k]);
		/* What could not be freed stays for the next time. */
		ck_assert_uint_eq(after, before + (i >= 2));
	}
}

static void kept_and_the_heap(void)
{
	struct gdri_allocation a;
	size_t used = 0;

	OK(gdri_cuda_load());
	for (int i = 0; i < 110; i++) {
		if (i == 10)
			used = resources_heap();
		gdri_cuda_hold();
		OK(gdri_cuda_alloc(&a, GDRI_ALLOCATION_VMM, 0, NULL, CHUNK, false, -1));
		OK(gdri_cuda_keep(&a));
		gdri_cuda_drop();
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
}

/* Chunks that cannot be placed, and those of another process, whose descriptor may be 0. */
static void own_chunks(void)
{
	static const char *const fails[] = { "cuMemAddressReserve:*=2", "cuMemMap:*=2",
					     "cuMemSetAccess:*=2" };
	struct gdri_allocation a;
	unsigned long long bytes;
	uint64_t base;
	size_t size;
	int fd;

	OK(gdri_cuda_load());
	OK(gdri_cuda_export_chunk(vmm_new(0, 1), -1, &base, &size, &fd));
	bytes = standin_device_bytes(0);
	for (size_t i = 0; i < COUNT(fails); i++) {
		cuda_hooks.set_fail(fails[i]);
		FAILS(-ENOMEM, gdri_cuda_alloc(&a, GDRI_ALLOCATION_VMM, 0, NULL, size, false, -1));
	}
	cuda_hooks.set_fail(NULL);
	dup2(fd, 0);
	OK(gdri_cuda_alloc(&a, GDRI_ALLOCATION_VMM, 0, NULL, size, false, 0));
	ck_assert_uint_eq(standin_device_bytes(0), bytes);
}

static int is_mapped(void *pages)
{
	unsigned char resident;

	return !mincore(pages, 4096, &resident);
}

static _Atomic bool holds;

static void *hold(void *unused)
{
	gdri_cuda_hold();
	atomic_store(&holds, true);
	return unused;
}

/* A context that begins during the last drop waits for its end. */
static void while_dropping(void)
{
	unit_start(1, hold, NULL, 0);
	ck_assert(unit_blocks() && !atomic_load(&holds));
}

/* Pages that are no longer registered are unmapped by the next call. */
static void pages_of_the_host(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	struct gdri_cuda_pages *p, *q, *larger;
	long long mapped = wrap_mapped();
	unsigned long modes, ends;
	size_t used = 0;

	OK(gdri_cuda_load());
	wrap_reset();
	wrap_fail("calloc", 1, ENOMEM);
	FAILS(-ENOMEM, gdri_cuda_take_pages(0, 1, &p));
	for (int i = 0; i < 110; i++) {
		if (i == 10)
			used = resources_heap();
		wrap_fail("mmap", 1, ENOMEM);
		FAILS(-ENOMEM, gdri_cuda_take_pages(0, 1, &p));
		wrap_reset();
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
	/* Pages that a child would inherit are none. */
	for (int i = 0; i < 2; i++) {
		wrap_fail("madvise", 1, i ? EINVAL : ENOMEM);
		FAILS_WITH(i ? -ENOTSUP : -ENOMEM, "madvise(MADV_DONTFORK)",
			   gdri_cuda_take_pages(0, 1, &p));
		ck_assert_int_eq(wrap_mapped(), mapped);
	}
	cuda_hooks.set_fail("cuMemHostRegister:*=999");
	FAILS(-EIO, gdri_cuda_take_pages(0, 1, &p));
	ck_assert_int_eq(wrap_mapped(), mapped);
	cuda_hooks.set_fail(NULL);
	modes = cuda_hooks.calls("cuThreadExchangeStreamCaptureMode");
	OK(gdri_cuda_take_pages(0, 1, &p)); /* also while another thread captures */
	ck_assert_uint_eq(cuda_hooks.calls("cuThreadExchangeStreamCaptureMode"), modes + 2);
	OK(gdri_cuda_take_pages(0, 2 * 4096, &larger));
	if (!test_emulator_lacks("pages of the host, in a child", "MADV_DONTFORK"))
		ck_assert_int_eq(unit_in_child(is_mapped, p->host), 0);
	CU(cuda.cuMemHostUnregister(p->host));
	gdri_cuda_give_pages(p);
	wrap_reset();
	OK(gdri_cuda_take_pages(0, 4096, &q));
	ck_assert_uint_eq(wrap_calls("munmap"), 1);
	gdri_cuda_give_pages(q);
	gdri_cuda_give_pages(larger);
	OK(gdri_cuda_take_pages(0, 2 * 4096, &q));
	ck_assert_ptr_eq(q, larger);
	gdri_cuda_give_pages(q);
	/* They serve the same GPU alone. */
	wrap_reset();
	OK(gdri_cuda_take_pages(1, 4096, &q));
	ck_assert_int_eq(q->device, 1);
	ck_assert_uint_eq(wrap_calls("munmap"), 0);
	gdri_cuda_give_pages(q);
	/* Either error says that they are not registered. */
	for (int i = 0; i < 2; i++) {
		cuda_hooks.set_fail(i ? "cuMemHostGetDevicePointer:1=713"
				      : "cuMemHostGetDevicePointer:1=1");
		wrap_reset();
		OK(gdri_cuda_take_pages(1, 4096, &q));
		ck_assert_uint_eq(wrap_calls("munmap"), 1);
		gdri_cuda_give_pages(q);
	}
	cuda_hooks.set_fail(NULL);
	gdri_cuda_free_idle(); /* registered: to end that would wait for kernels */
	ck_assert_int_gt(wrap_mapped(), mapped);
	cuda.cuThreadExchangeStreamCaptureMode(&mode);
	/* which does not say; nor does a context that cannot be entered */
	cuda_hooks.set_fail("cuMemHostGetDevicePointer:*=999,cuCtxPushCurrent:2=999");
	gdri_cuda_free_idle();
	cuda_hooks.set_fail(NULL);
	ck_assert_int_gt(wrap_mapped(), mapped);
	CU(cuda.cuDevicePrimaryCtxReset_v2(0));
	cuda_hooks.set_fail("cuCtxPushCurrent:*=709");
	/* What cannot be unmapped stays for the next time. */
	wrap_reset();
	wrap_fail("munmap", 0, ENOMEM);
	gdri_cuda_free_idle();
	ck_assert_int_gt(wrap_mapped(), mapped);
	wrap_reset();
	gdri_cuda_hold();
	wrap_before("munmap", while_dropping);
	gdri_cuda_drop();
	unit_join();
	cuda_hooks.set_fail(NULL);
	ck_assert(atomic_load(&holds));
	cuda.cuThreadExchangeStreamCaptureMode(&mode);
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	ck_assert_int_eq(wrap_mapped(), mapped);
	/* Of a context that was reported dead and is not, in a thread without a context. */
	CU(cuda.cuCtxSetCurrent(NULL));
	OK(gdri_cuda_take_pages(0, 4096, &q));
	ends = cuda_hooks.calls("cuMemHostUnregister");
	for (unsigned int i = 0; i < 2; i++) {
		void *host = q->host;

		gdri_cuda_give_pages(q);
		cuda_hooks.set_fail("cuStreamIsCapturing:1=700");
		if (!i)
			OK(gdri_cuda_take_pages(0, 4096, &q));
		else
			gdri_cuda_free_idle();
		cuda_hooks.set_fail(NULL);
		ck_assert_uint_eq(cuda_hooks.calls("cuMemHostUnregister"), ends + 1 + i);
		ck_assert(!i || !gdri_cuda_is_page_locked(host));
	}
	ck_assert_int_eq(wrap_mapped(), mapped);
}

static void *loads(void *arg)
{
	(void)arg;
	return gdri_cuda_load() ? "failed" : NULL;
}

static void load_from_many_threads(void)
{
	ck_assert_ptr_null(unit_threads(16, loads, NULL, 0));
}

/* ---- a constructor that comes here holds the loader's lock ---------------- */

static int (*meanwhile)(void);

static void *calls(void *arg)
{
	(void)arg;
	return meanwhile() ? "failed" : NULL;
}

/* Another thread gets through, as one that runs a plugin's constructor must. */
static void in_another_thread(void)
{
	ck_assert_ptr_null(unit_threads(1, calls, NULL, 0));
}

static int asks_nvml(void)
{
	struct gdri_pci_address pci;
	struct gdri_bar bar;
	int rc = gdri_cuda_pci_address(0, &pci);

	return rc ? rc : gdri_nvml_bar(&pci, &bar);
}

struct loading {
	const char *call; /* of the loader */
	int (*fn)(void), (*before)(void);
};

static void no_lock_in_the_loader(void)
{
	const struct loading *l = unit_arg;

	if (l->before)
		OK(l->before());
	meanwhile = l->fn;
	alarm(20);
	wrap_reset();
	wrap_before(l->call, in_another_thread);
	OK(l->fn());
	ck_assert_uint_gt(wrap_calls(l->call), 0);
	OK(l->fn());
	alarm(0);
}

#define LOADING(...)                                 \
	no_lock_in_the_loader, "", &(struct loading) \
	{                                            \
		__VA_ARGS__                          \
	}

static CUresult fails_and_writes(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
	*base = at;
	*size = 4096;
	return CUDA_ERROR_UNKNOWN;
}

static CUresult says_another(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
	*base = at - 4096;
	*size = 4096;
	return CUDA_SUCCESS;
}

/* What a call that fails has written counts for nothing; nor does what does not hold the address. */
static void outputs_of_a_failure(void)
{
	__typeof__(gdri_cu.cuMemGetAddressRange_v2) ask;
	struct gdri_memory m;
	uint64_t base;
	size_t size;
	int fd;

	standin_start();
	OK(gdri_cuda_load());
	ask = gdri_cu.cuMemGetAddressRange_v2;
	gdri_cu.cuMemGetAddressRange_v2 = fails_and_writes;
	gdri_cuda_describe(standin_alloc(4096), 8, &m);
	gdri_cu.cuMemGetAddressRange_v2 = says_another;
	FAILS_WITH(-EINVAL, "without the address",
		   gdri_cuda_export_chunk(vmm_new(0, 1), -1, &base, &size, &fd));
	gdri_cu.cuMemGetAddressRange_v2 = ask;
	ck_assert_int_eq(m.kind, GDRI_MEMORY_DEVICE);
	ck_assert_uint_eq(m.size, 0);
}

static const struct unit_test tests[] = {
	{ "outputs of a failure", outputs_of_a_failure, "" },
	{ "device memory", device_memory, "" },
	{ "no libcuda", no_libcuda, "", .bare = true },
	{ "only libcuda.so.1", only_the_run_time_name, "", .bare = true },
	{ "calls that a driver must have", needed_calls, "", .bare = true },
	{ "driver without dma-buf export", older_drivers, "", "cuMemGetHandleForAddressRange",
	  true },
	{ "driver without VMM export", older_drivers, "", "cuMemExportToShareableHandle", true },
	{ "driver without capture modes", older_drivers, "", "cuThreadExchangeStreamCaptureMode",
	  true },
	{ "driver without a capture's status", older_drivers, "", "cuStreamIsCapturing", true },
	{ "driver without free by stream", older_drivers, "", "cuMemFreeAsync", true },
	{ "driver without streams", older_drivers, "", "cuStreamSynchronize", true },
	{ "PCI addresses", pci_addresses, "GDRSIM_DEVICES=2" },
	{ "no exports", no_exports, "" },
	{ "coherent links", coherent_links, "GDRSIM_COHERENT=1 GDRSIM_DEVICES=2", .bare = true },
	{ "no NVML", no_nvml, "" },
	{ "results as errno", results_as_errno, "", .bare = true },
	{ "SYNC_MEMOPS", sync_memops_is_set, "" },
	{ "contexts restored", context_as_found, "GDRSIM_DEVICES=2" },
	{ "exports of chunks", exports, "" },
	{ "probe of descriptors", probe_of_descriptors, "" },
	{ "freed by its context", freed_by_its_context, "" },
	{ "kept memory at the end", kept_at_the_end, "" },
	{ "what is kept, and the heap", kept_and_the_heap, "" },
	{ "chunks of the library", own_chunks, "" },
	{ "pages of the host", pages_of_the_host, "GDRSIM_DEVICES=2" },
	{ "loading from many threads", load_from_many_threads, "", .bare = true },
	{ "no lock while libcuda is loaded", LOADING("dlopen", gdri_cuda_load), true },
	{ "no lock while its calls are looked up", LOADING("dlsym", gdri_cuda_load), true },
	{ "no lock while NVML is loaded", LOADING("dlopen", asks_nvml, gdri_cuda_load) },
	{ "no lock while NVML's calls are looked up", LOADING("dlsym", asks_nvml, gdri_cuda_load) },
	{ "no lock while ioctl() is looked up",
	  LOADING("dlsym", gdri_cuda_watch_possible, gdri_cuda_load), true },
};

UNIT_MAIN("cuda", tests, unit_before = standin_start)
