// SPDX-License-Identifier: MIT
/*
 * What the library learns from CUDA of an address, of every kind of memory and from every kind of
 * thread; SYNC_MEMOPS; exports; and that the caller's context and capture mode are as they were.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/resources.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "cuda/cuda.h"
#include "base/error.h"

static struct gdri_memory describe(uint64_t addr, size_t size)
{
	struct gdri_memory m;

	memset(&m, 0xee, sizeof(m));
	ck_assert_int_eq(gdri_cuda_describe(addr, size, &m), 0);
	return m;
}

static void device_memory(void)
{
	struct gdri_memory m;
	CUdeviceptr p;
	CUcontext ctx;

	standin_start();
	ctx = standin_primary(0);
	p = standin_alloc(100000);
	for (uint64_t at = p; at < p + 100000; at += 33333) {
		m = describe(at, 1);
		ck_assert_int_eq(m.kind, GDRI_MEMORY_DEVICE);
		ck_assert(!m.managed);
		ck_assert_int_eq(m.device, 0);
		ck_assert_ptr_eq(m.context, ctx);
		ck_assert_uint_eq(m.known, at);
		ck_assert_uint_eq(m.base, p);
		ck_assert_uint_eq(m.size, 100000);
	}
}

static void neighbours(void)
{
	CUdeviceptr a, b;
	struct gdri_memory m;

	standin_start();
	a = standin_alloc(512);
	b = standin_alloc(512);
	ck_assert_uint_eq(a & ~0xffffULL, b & ~0xffffULL); /* one GPU page */
	m = describe(a, 512);
	ck_assert_uint_eq(m.base, a);
	ck_assert_uint_eq(m.size, 512);
	m = describe(b + 511, 1);
	ck_assert_uint_eq(m.base, b);
}

/* A range widened to a GPU page begins before its allocation, or ends behind it. */
static void widened_ranges(void)
{
	CUdeviceptr pad, p, big;
	struct gdri_memory m;

	standin_start();
	pad = standin_alloc(4096);
	p = standin_alloc(512);
	cuda.cuMemFree_v2(pad);
	ck_assert_uint_eq(p & 0xffff, 4096);
	m = describe(p & ~0xffffULL, 65536); /* only the middle is known */
	ck_assert_int_eq(m.kind, GDRI_MEMORY_DEVICE);
	ck_assert_uint_eq(m.known, p);
	ck_assert_uint_eq(m.base, p);
	m = describe(p & ~0xffffULL, 4097); /* only the last byte is known */
	ck_assert_int_eq(m.kind, GDRI_MEMORY_DEVICE);
	ck_assert_uint_eq(m.known, p);
	m = describe(p & ~0xffffULL, 4096);
	ck_assert_int_eq(m.kind, GDRI_MEMORY_UNKNOWN);
	big = standin_alloc(2 << 20);
	m = describe(big + 65535, 1 << 20);
	ck_assert_uint_eq(m.known, big + 65535);
}

static void vmm_and_pool_memory(void)
{
	struct standin_vmm v;
	struct gdri_memory m;
	CUdeviceptr p;

	standin_start();
	standin_vmm_alloc(&v, 0, 3, STANDIN_GRANULE, true);
	m = describe(v.ptr + v.chunk + 7, v.chunk);
	ck_assert_int_eq(m.kind, GDRI_MEMORY_DEVICE);
	ck_assert_ptr_null(m.context);
	ck_assert_int_eq(m.device, 0);
	ck_assert_uint_eq(m.base, v.ptr + v.chunk);
	ck_assert_uint_eq(m.size, v.chunk);
	standin_vmm_free(&v);
	ck_assert_int_eq(describe(v.ptr, 1).kind, GDRI_MEMORY_UNKNOWN);

	ck_assert_int_eq(cuda.cuMemAllocAsync(&p, 4096, NULL), 0);
	ck_assert_int_eq(describe(p, 4096).kind, GDRI_MEMORY_DEVICE);
}

static void check_host(uint64_t addr, uint64_t base, void *host, size_t size, bool wc)
{
	struct gdri_memory m = describe(addr, 1);

	ck_assert_int_eq(m.kind, GDRI_MEMORY_HOST);
	ck_assert_uint_eq(m.base, base);
	ck_assert_uint_eq(m.size, size);
	ck_assert_ptr_eq(m.host_ptr, host);
	ck_assert_int_eq(m.write_combined, wc);
}

static void host_memory(void)
{
	char *cached, *wc, *mine = malloc(10000);
	CUdeviceptr d;

	standin_start();
	cached = standin_host_alloc(1000, 0);
	check_host((uintptr_t)cached, (uintptr_t)cached, cached, 1000, false);
	check_host((uintptr_t)cached + 999, (uintptr_t)cached, cached, 1000, false);

	/* Write-combined memory has a device address of its own. */
	wc = standin_host_alloc(1000, CU_MEMHOSTALLOC_WRITECOMBINED);
	ck_assert_int_eq(cuda.cuMemHostGetDevicePointer_v2(&d, wc, 0), 0);
	ck_assert_uint_ne(d, (uintptr_t)wc);
	check_host((uintptr_t)wc + 5, (uintptr_t)wc, wc, 1000, true);
	check_host(d + 5, d, wc, 1000, true);

	ck_assert_int_eq(cuda.cuMemHostRegister_v2(mine, 10000, 0), 0);
	check_host((uintptr_t)mine + 77, (uintptr_t)mine, mine, 10000, false);
	cuda.cuMemHostUnregister(mine);
	free(mine);
}

static void *write_combined_here(void *arg)
{
	struct gdri_memory m;

	gdri_cuda_describe((uintptr_t)arg, 1, &m);
	return m.kind == GDRI_MEMORY_HOST && m.write_combined && m.size == 1000 ? NULL : "wrong";
}

/* The type of a mapping follows from this: a thread without a context must learn it as well. */
static void host_memory_without_a_context(void)
{
	void *wc, *wrong;
	pthread_t t;

	standin_start();
	wc = standin_host_alloc(1000, CU_MEMHOSTALLOC_WRITECOMBINED);
	ck_assert_int_eq(pthread_create(&t, NULL, write_combined_here, wc), 0);
	pthread_join(t, &wrong);
	ck_assert_ptr_null(wrong);
}

static void memory_that_is_none(void)
{
	void *heap = malloc(64);
	struct gdri_memory m;
	CUdeviceptr p;
	int local;

	standin_start();
	m = describe((uintptr_t)heap, 64);
	ck_assert_int_eq(m.kind, GDRI_MEMORY_UNKNOWN);
	ck_assert_ptr_nonnull(strstr(m.note, "pageable"));
	ck_assert_int_eq(describe((uintptr_t)&local, 4).kind, GDRI_MEMORY_UNKNOWN);
	ck_assert_int_eq(describe(1, 1).kind, GDRI_MEMORY_UNKNOWN);
	p = standin_alloc(1 << 20);
	cuda.cuMemFree_v2(p);
	ck_assert_int_eq(describe(p, 1).kind, GDRI_MEMORY_UNKNOWN);
	ck_assert_int_eq(cuda.cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL), 0);
	m = describe(p, 4096);
	ck_assert(m.managed);
	ck_assert_int_eq(m.kind, GDRI_MEMORY_UNKNOWN);
	free(heap);
}

static void not_initialised(void)
{
	struct gdri_memory m;

	standin_load();
	m = describe(0x100000, 65536);
	ck_assert_int_eq(m.kind, GDRI_MEMORY_UNKNOWN);
	ck_assert_str_eq(m.note, "CUDA_ERROR_NOT_INITIALIZED");
	ck_assert_uint_eq(cuda_hooks.calls("cuInit"), 0);
	ck_assert(!gdri_cuda_sync_memops(&m));
}

static void no_libcuda(void)
{
	struct gdri_memory m;
	int version;

	wrap_reset();
	wrap_deny_library("libcuda");
	ck_assert_int_eq(gdri_cuda_load(), -ENODEV);
	ck_assert_int_eq(gdri_cuda_driver_version(&version), -ENODEV);
	ck_assert_ptr_nonnull(strstr(gdri_error_text(), "no CUDA driver"));
	m = describe(0x100000, 65536);
	ck_assert_int_eq(m.kind, GDRI_MEMORY_UNKNOWN);
	ck_assert_ptr_nonnull(strstr(m.note, "no CUDA driver"));
	/* Not for ever: it may be there at the next open. */
	wrap_reset();
	ck_assert_int_eq(gdri_cuda_load(), 0);
}

/* L11: containers have the run-time name only. */
static void only_the_run_time_name(void)
{
	wrap_reset();
	wrap_fail("dlopen", 2, ENOENT);
	ck_assert_int_eq(gdri_cuda_load(), 0);
	ck_assert_uint_eq(wrap_calls("dlopen"), 1);
	wrap_reset();
	wrap_deny_library("libcuda.so.1");
	ck_assert_int_eq(gdri_cuda_load(), 0); /* loaded already, not asked for again */
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
		ck_assert_int_eq(gdri_cuda_load(), -ENODEV);
		ck_assert_ptr_nonnull(strstr(gdri_error_text(), needed[i]));
	}
	wrap_reset();
	ck_assert_int_eq(gdri_cuda_load(), 0);
}

static void older_driver(const char *missing)
{
	wrap_reset();
	wrap_deny_symbol(missing);
	ck_assert_int_eq(gdri_cuda_load(), 0);
	wrap_reset();
	standin_start();
}

static void without_dmabuf(void)
{
	struct gdri_memory m;
	CUdeviceptr p;
	int fd = -7;

	older_driver("cuMemGetHandleForAddressRange");
	p = standin_alloc(2 << 20);
	m = describe(p, 65536);
	ck_assert_int_eq(gdri_cuda_dmabuf(&m, p, 65536, false, &fd), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(gdri_error_text(), "cuMemGetHandleForAddressRange"));
	ck_assert_int_eq(fd, -7);
}

static void without_vmm(void)
{
	struct standin_vmm v;
	uint64_t base;
	size_t size;
	int fd = -7;

	older_driver("cuMemExportToShareableHandle");
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	ck_assert_int_eq(gdri_cuda_export_chunk(v.ptr, -1, &base, &size, &fd), -ENOTSUP);
	ck_assert_int_eq(fd, -7);
}

static void without_capture_mode(void)
{
	struct gdri_memory m;

	older_driver("cuThreadExchangeStreamCaptureMode");
	m = describe(standin_alloc(4096), 4096);
	ck_assert(gdri_cuda_sync_memops(&m));
}

static void pci_addresses(void)
{
	struct gdri_pci_address a, b;

	standin_start();
	ck_assert_int_eq(gdri_cuda_load(), 0);
	ck_assert_int_eq(gdri_cuda_pci_address(0, &a), 0);
	ck_assert_int_eq(gdri_cuda_pci_address(1, &b), 0);
	ck_assert_uint_ne(a.bus, b.bus);
	ck_assert_int_eq(gdri_cuda_pci_address(2, &b), -EINVAL);
	ck_assert_int_eq(gdri_cuda_pci_address(-1, &b), -EINVAL);
	cuda_hooks.set_fail("cuDeviceGetPCIBusId:*=999");
	ck_assert_int_eq(gdri_cuda_pci_address(0, &b), -EIO);
	cuda_hooks.set_fail(NULL);
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
		ck_assert_int_eq(gdri_cuda_driver_version(&version), -table[i].err);
		snprintf(spec, sizeof(spec), "(%d)", table[i].result);
		ck_assert_ptr_nonnull(strstr(gdri_error_text(), spec));
	}
	ck_assert_ptr_nonnull(strstr(gdri_error_text(), "unknown error"));
	cuda_hooks.set_fail(NULL);
	ck_assert_int_eq(gdri_cuda_driver_version(&version), 0);
	ck_assert_int_eq(version, 13000);
}

static unsigned int has_sync(CUdeviceptr p)
{
	unsigned int on = 7;

	ck_assert_int_eq(cuda.cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p), 0);
	return on;
}

/* Set at each pin: nothing that this library remembers is stale, and a program may have cleared it. */
static void sync_memops_is_set(void)
{
	unsigned int off = 0;
	CUdeviceptr p, q;
	struct gdri_memory m;

	standin_start();
	p = standin_alloc(1 << 20);
	q = standin_alloc(1 << 20);
	m = describe(p, 65536);
	ck_assert(gdri_cuda_sync_memops(&m));
	ck_assert_uint_eq(has_sync(p), 1);
	ck_assert_uint_eq(has_sync(q), 0);
	ck_assert_int_eq(cuda.cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p), 0);
	ck_assert_uint_eq(has_sync(p), 0);
	m = describe(p + 65536, 65536);
	ck_assert(gdri_cuda_sync_memops(&m));
	ck_assert_uint_eq(has_sync(p), 1);
}

/* A driver that reads 1 for memory that nobody asked it for (580 does): only a set counts. */
static void sync_memops_reads_one(void)
{
	struct standin_vmm v;
	struct gdri_memory m;
	unsigned long calls;
	CUdeviceptr p;

	setenv("GDRSIM_SYNC_MEMOPS", "1", 1);
	standin_start();
	p = standin_alloc(1 << 20);
	ck_assert_uint_eq(has_sync(p), 1);
	calls = cuda_hooks.calls("cuPointerSetAttribute");
	m = describe(p, 65536);
	ck_assert(gdri_cuda_sync_memops(&m));
	ck_assert_uint_eq(cuda_hooks.calls("cuPointerSetAttribute"), calls + 1);
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	m = describe(v.ptr, 65536);
	ck_assert(!gdri_cuda_sync_memops(&m));
}

static void sync_memops_of_vmm(void)
{
	struct standin_vmm v;
	struct gdri_memory m;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	m = describe(v.ptr, 65536);
	ck_assert(!gdri_cuda_sync_memops(&m));
	/* A driver that takes it. */
	setenv("GDRSIM_VMM_SYNC_MEMOPS", "1", 1);
	ck_assert(gdri_cuda_sync_memops(&m));
	ck_assert_uint_eq(has_sync(v.ptr), 1);
	unsetenv("GDRSIM_VMM_SYNC_MEMOPS");
}

static void sync_memops_refused(void)
{
	struct standin_vmm v;
	struct gdri_memory m;

	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	m = describe(v.ptr, 65536);
	cuda_hooks.set_fail("cuDeviceGet:*=999");
	ck_assert(!gdri_cuda_sync_memops(&m));
	cuda_hooks.set_fail(NULL);
	m.kind = GDRI_MEMORY_HOST;
	ck_assert(gdri_cuda_sync_memops(&m));
}

/* The whole of what the library does in CUDA contexts, once. */
static int everything(const struct standin_vmm *v, CUdeviceptr p, bool *in_force)
{
	struct gdri_memory m = describe(p, 65536), mv = describe(v->ptr, 65536);
	uint64_t base;
	size_t size;
	int fd, rc;

	*in_force = gdri_cuda_sync_memops(&m);
	gdri_cuda_sync_memops(&mv);
	rc = gdri_cuda_dmabuf(&m, p & ~0xffffULL, 65536, false, &fd);
	if (rc)
		return rc;
	close(fd);
	rc = gdri_cuda_export_chunk(v->ptr + 5, -1, &base, &size, &fd);
	if (rc)
		return rc;
	close(fd);
	return base == v->ptr && size == v->chunk ? 0 : -1;
}

struct scene {
	struct standin_vmm v;
	CUdeviceptr p;
	CUcontext current;
	const char *wrong;
};

static void play(struct scene *s)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	struct resources before, after;
	bool in_force;
	int rc;

	s->wrong = NULL;
	cuda.cuThreadExchangeStreamCaptureMode(&mode);
	resources_look(&before);
	gdri_cuda_hold();
	rc = everything(&s->v, s->p, &in_force);
	gdri_cuda_drop();
	resources_look(&after);
	if (rc)
		s->wrong = gdri_error_text();
	else if (!in_force)
		s->wrong = "SYNC_MEMOPS not in force";
	else
		s->wrong = resources_differ(&before, &after);
}

static void *play_here(void *arg)
{
	struct scene *s = arg;

	if (s->current)
		cuda.cuCtxSetCurrent(s->current);
	play(s);
	return NULL;
}

/* L10: with the pointer's context current, another of its device, another device's, and none. */
static void context_as_found(void)
{
	struct scene s = { .wrong = NULL };
	CUcontext created, other;
	pthread_t t;

	standin_start();
	standin_vmm_alloc(&s.v, 0, 2, STANDIN_GRANULE, true);
	s.p = standin_alloc(2 << 20);
	play(&s);
	ck_assert_msg(!s.wrong, "its own context: %s", s.wrong);

	ck_assert_int_eq(cuda.cuCtxCreate_v2(&created, 0, 0), 0);
	s.p = standin_alloc(2 << 20);
	cuda.cuCtxSetCurrent(standin_primary(0));
	play(&s);
	ck_assert_msg(!s.wrong, "memory of another context: %s", s.wrong);

	other = standin_primary(1);
	cuda.cuCtxSetCurrent(other);
	s.p = 0;
	cuda.cuCtxSetCurrent(standin_primary(0));
	s.p = standin_alloc(2 << 20);
	cuda.cuCtxSetCurrent(other);
	play(&s);
	ck_assert_msg(!s.wrong, "another device's context: %s", s.wrong);

	cuda.cuCtxSetCurrent(standin_primary(0));
	s.p = standin_alloc(2 << 20);
	s.current = NULL;
	ck_assert_int_eq(pthread_create(&t, NULL, play_here, &s), 0);
	pthread_join(t, NULL);
	ck_assert_msg(!s.wrong, "no context: %s", s.wrong);
}

/* A call that fails inside: context and capture mode are as they were all the same. */
static void context_as_found_on_failure(void)
{
	static const char *const calls[] = { "cuThreadExchangeStreamCaptureMode",
					     "cuDeviceGet",
					     "cuDevicePrimaryCtxRetain",
					     "cuCtxPushCurrent",
					     "cuPointerSetAttribute",
					     "cuCtxGetCurrent",
					     "cuMemGetHandleForAddressRange",
					     "cuMemExportToShareableHandle",
					     "cuMemGetAddressRange",
					     "cuCtxGetDevice" };
	struct resources before, after;
	struct scene s;
	char spec[128];
	bool in_force;

	standin_start();
	standin_vmm_alloc(&s.v, 0, 2, STANDIN_GRANULE, true);
	for (size_t i = 0; i < COUNT(calls); i++)
		for (int n = 1; n < 4; n++) {
			const char *wrong;

			/* Every second one is what puts the mode back. */
			if (!i && n == 2)
				continue;
			s.p = standin_alloc(2 << 20);
			cuda.cuCtxSetCurrent(i & 1 ? standin_primary(1) : standin_primary(0));
			resources_look(&before);
			snprintf(spec, sizeof(spec), "%s:%d=999", calls[i], n);
			cuda_hooks.set_fail(spec);
			gdri_cuda_hold();
			(void)everything(&s.v, s.p, &in_force);
			gdri_cuda_drop();
			cuda_hooks.set_fail(NULL);
			resources_look(&after);
			wrong = resources_differ(&before, &after);
			ck_assert_msg(!wrong, "%s: %s", spec, wrong);
			cuda.cuCtxSetCurrent(standin_primary(0));
			cuda.cuMemFree_v2(s.p);
		}
}

static void exports(void)
{
	struct standin_vmm v, plain;
	unsigned long long bytes;
	uint64_t base = 7;
	size_t size = 7;
	int fd = -7;

	standin_start();
	ck_assert_int_eq(gdri_cuda_load(), 0);
	bytes = standin_device_bytes(0);
	standin_vmm_alloc(&v, 0, 3, 2 * STANDIN_GRANULE, true);
	standin_vmm_alloc(&plain, 0, 1, STANDIN_GRANULE, false);
	ck_assert_int_eq(gdri_cuda_export_chunk(plain.ptr, -1, &base, &size, &fd), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(gdri_error_text(), "exportable"));
	ck_assert_int_eq(gdri_cuda_export_chunk(standin_alloc(1), -1, &base, &size, &fd), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(gdri_error_text(), "cuMemCreate"));
	cuda_hooks.set_fail("cuMemRetainAllocationHandle:*=2");
	ck_assert_int_eq(gdri_cuda_export_chunk(v.ptr, -1, &base, &size, &fd), -ENOMEM);
	cuda_hooks.set_fail("cuMemGetAllocationPropertiesFromHandle:*=999");
	ck_assert_int_eq(gdri_cuda_export_chunk(v.ptr, -1, &base, &size, &fd), -EIO);
	cuda_hooks.set_fail("cuMemExportToShareableHandle:*=999");
	ck_assert_int_eq(gdri_cuda_export_chunk(v.ptr, -1, &base, &size, &fd), -EIO);
	cuda_hooks.set_fail(NULL);
	ck_assert_uint_eq(base, 7);
	ck_assert_uint_eq(size, 7);
	ck_assert_int_eq(fd, -7);
	ck_assert_int_eq(gdri_cuda_export_chunk(v.ptr + v.chunk + 1, -1, &base, &size, &fd), 0);
	ck_assert_uint_eq(base, v.ptr + v.chunk);
	ck_assert_uint_eq(size, v.chunk);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(fd);
	/* No reference to a chunk is left: its memory goes with the program's own. */
	standin_vmm_free(&v);
	standin_vmm_free(&plain);
	ck_assert_uint_eq(standin_device_bytes(0), bytes + (2 << 20)); /* the block of 1 byte */
}

static void *loads(void *arg)
{
	(void)arg;
	return gdri_cuda_load() ? "failed" : NULL;
}

static void load_from_many_threads(void)
{
	pthread_t t[16];

	for (size_t i = 0; i < COUNT(t); i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, loads, NULL), 0);
	for (size_t i = 0; i < COUNT(t); i++) {
		void *wrong;

		pthread_join(t[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
}

static const struct unit_test tests[] = {
	{ "device memory", device_memory, "" },
	{ "neighbours in one GPU page", neighbours, "" },
	{ "ranges widened to a GPU page", widened_ranges, "" },
	{ "VMM and pool memory", vmm_and_pool_memory, "" },
	{ "host memory by either address", host_memory, "" },
	{ "host memory, thread without a context", host_memory_without_a_context, "" },
	{ "memory that is none (L17)", memory_that_is_none, "" },
	{ "CUDA not initialised", not_initialised, "" },
	{ "no libcuda", no_libcuda, "" },
	{ "only libcuda.so.1 (L11)", only_the_run_time_name, "" },
	{ "calls that a driver must have", needed_calls, "" },
	{ "driver without dma-buf export", without_dmabuf, "" },
	{ "driver without VMM export", without_vmm, "" },
	{ "driver without capture modes", without_capture_mode, "" },
	{ "PCI addresses", pci_addresses, "GDRSIM_DEVICES=2" },
	{ "results as errno", results_as_errno, "" },
	{ "SYNC_MEMOPS is set", sync_memops_is_set, "" },
	{ "SYNC_MEMOPS read as 1 without a set", sync_memops_reads_one, "" },
	{ "SYNC_MEMOPS of VMM memory", sync_memops_of_vmm, "" },
	{ "SYNC_MEMOPS refused", sync_memops_refused, "" },
	{ "contexts as found (L10)", context_as_found, "GDRSIM_DEVICES=2" },
	{ "contexts as found after failures", context_as_found_on_failure, "GDRSIM_DEVICES=2" },
	{ "exports of chunks", exports, "" },
	{ "loading from many threads", load_from_many_threads, "" },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "cuda", tests, COUNT(tests));
}
