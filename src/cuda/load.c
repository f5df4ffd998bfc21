/* SPDX-License-Identifier: MIT */
/* libcuda.so.1 at run time, the meaning of its results, and calls in an allocation's context. */
#include "cuda/private.h"
#include "base/process.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

/* Read once `loaded` is set, in release order. libcuda stays loaded: its threads may be running. */
struct gdri_cuda_calls gdri_cu;
void *gdri_cuda_library;

GDRI_MUTEX(load_lock);
static atomic_bool loaded;

/* The needed calls, or -ENODEV; those of a group that is not complete are NULL. */
static int find_calls(void *lib, struct gdri_cuda_calls *calls)
{
	unsigned int absent = 0; /* 1 << group of each missing call */

#define X(name, group)                                                  \
	calls->name = (__typeof__(calls->name))dlsym(lib, #name);       \
	if (GDRI_CUDA_##group == GDRI_CUDA_NEEDED && !calls->name)      \
		return gdri_fail(ENODEV, "libcuda.so.1 has no " #name); \
	absent |= !calls->name << GDRI_CUDA_##group;
	CUDA_CALLS(X)
#undef X
#define X(name, group)                                                                \
	if (GDRI_CUDA_##group != GDRI_CUDA_ALONE && absent & 1u << GDRI_CUDA_##group) \
		calls->name = NULL;
	CUDA_CALLS(X)
#undef X
	return 0;
}

/*
 * Fails for the errno that dlerror() names at its end, in glibc as in musl: a shortage, or else
 * ENODEV. The text of ENFILE begins with that of EMFILE.
 */
static int fail_load(const char *text)
{
	static const int shortages[] = { ENFILE, EMFILE, ENOMEM };
	int err = ENODEV;

	for (size_t i = 0; err == ENODEV && i < sizeof(shortages) / sizeof(*shortages); i++)
		if (strstr(text, strerror(shortages[i])))
			err = shortages[i];
	return gdri_fail(err, "no CUDA driver: %s", text);
}

/*
 * The loader has a lock of its own, which a thread holds while it runs a constructor, and that may
 * come here: so the loader is called without load_lock. Of two threads the first one's load counts.
 */
int gdri_cuda_load(void)
{
	struct gdri_cuda_calls calls;
	void *lib;
	int rc;

	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return 0;
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return fail_load(dlerror());
	rc = find_calls(lib, &calls);
	if (rc) {
		dlclose(lib);
		return rc;
	}
	pthread_mutex_lock(&load_lock);
	if (!atomic_load_explicit(&loaded, memory_order_relaxed)) {
		gdri_cu = calls;
		gdri_cuda_library = lib;
		atomic_store_explicit(&loaded, true, memory_order_release);
	}
	pthread_mutex_unlock(&load_lock);
	return 0;
}

/* ---- results --------------------------------------------------------------------------------- */

static int result_errno(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return ENOMEM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return ENOTSUP;
	case CUDA_ERROR_NOT_PERMITTED:
		return EACCES;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_STUB_LIBRARY:
	case CUDA_ERROR_SYSTEM_NOT_READY:
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return ENODEV;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return EINVAL;
	default:
		return EIO;
	}
}

const char *gdri_cuda_result_name(CUresult r)
{
	const char *name = NULL;

	(void)gdri_cu.cuGetErrorName(r, &name); /* which leaves NULL where it does not know r */
	return name ? name : "unknown error";
}

int gdri_cuda_result(CUresult r, const char *call)
{
	if (!r)
		return 0;
	return gdri_fail(result_errno(r), "%.*s: %s (%d)", (int)strcspn(call, "_"), call,
			 gdri_cuda_result_name(r), (int)r);
}

/* ---- contexts -------------------------------------------------------------------------------- */

enum { KEPT_DEVICES = 64 }; /* twice as many as the kernel driver serves (NV_MAX_DEVICES) */

GDRI_MUTEX(kept_lock); /* guards what follows */
/* By CUdevice: how often its primary context is retained; more than once if a release failed. */
static unsigned int kept[KEPT_DEVICES];

static bool is_fatal(CUresult r);

int gdri_cuda_release_primary(void)
{
	struct gdri_first first = { 0 };

	for (CUdevice dev = 0; dev < KEPT_DEVICES; dev++) {
		for (; kept[dev]; kept[dev]--) {
			CUresult r = gdri_cu.cuDevicePrimaryCtxRelease_v2(dev);

			if (!is_fatal(r)) /* else it has ended */
				gdri_first_note(&first,
						gdri_cuda_result(r, "cuDevicePrimaryCtxRelease"));
		}
	}
	return gdri_first_failure(&first) ? -EIO : 0;
}

void gdri_cuda_unretain(CUdevice dev)
{
	pthread_mutex_lock(&kept_lock);
	if (gdri_cu.cuDevicePrimaryCtxRelease_v2(dev) && dev >= 0 && dev < KEPT_DEVICES)
		kept[dev]++;
	pthread_mutex_unlock(&kept_lock);
}

static void after_fork(void)
{
	memset(kept, 0, sizeof(kept));
}

GDRI_IN_CHILD(after_fork);

void gdri_cuda_relax(struct gdri_cuda_scope *s)
{
	*s = (struct gdri_cuda_scope){ .mode = CU_STREAM_CAPTURE_MODE_RELAXED };
	if (gdri_cu.cuThreadExchangeStreamCaptureMode)
		s->mode_changed = !gdri_cu.cuThreadExchangeStreamCaptureMode(&s->mode);
}

void gdri_cuda_leave(struct gdri_cuda_scope *s)
{
	CUcontext ctx;

	if (s->pushed)
		gdri_cu.cuCtxPopCurrent_v2(&ctx);
	if (s->mode_changed)
		gdri_cu.cuThreadExchangeStreamCaptureMode(&s->mode);
}

/* Retains each time, which revives the context after a reset; keeps one reference. */
static int push_primary(struct gdri_cuda_scope *s, CUdevice dev, CUcontext *ctx)
{
	const char *call = "cuDevicePrimaryCtxRetain";
	CUresult r = CUDA_ERROR_INVALID_DEVICE;

	*ctx = NULL;
	pthread_mutex_lock(&kept_lock);
	if (dev >= 0 && dev < KEPT_DEVICES)
		r = gdri_cu.cuDevicePrimaryCtxRetain(ctx, dev);
	if (!r) {
		if (!kept[dev] || gdri_cu.cuDevicePrimaryCtxRelease_v2(dev))
			kept[dev]++;
		call = "cuCtxPushCurrent";
		r = gdri_cu.cuCtxPushCurrent_v2(*ctx);
	}
	pthread_mutex_unlock(&kept_lock);
	s->pushed = !r;
	return gdri_cuda_result(r, call);
}

int gdri_cuda_enter_primary(struct gdri_cuda_scope *s, CUdevice dev, CUcontext *ctx)
{
	int rc;

	gdri_cuda_relax(s);
	rc = push_primary(s, dev, ctx);
	if (rc)
		gdri_cuda_leave(s);
	return rc;
}

int gdri_cuda_enter(struct gdri_cuda_scope *s, void *context, int device)
{
	CUcontext ctx, current = NULL;
	CUdevice dev, at;
	int rc = 0;

	gdri_cuda_relax(s);
	if (context) {
		rc = GDRI_CU(cuCtxPushCurrent_v2, context);
		s->pushed = !rc;
	} else if (device >= 0) {
		rc = GDRI_CU(cuDeviceGet, &dev, device);
		if (!rc && (gdri_cu.cuCtxGetCurrent(&current) || !current ||
			    gdri_cu.cuCtxGetDevice(&at) || at != dev))
			rc = push_primary(s, dev, &ctx);
	}
	if (rc)
		gdri_cuda_leave(s);
	return rc;
}

/*
 * Errors after which a context runs no work: those that any further call returns, or that come of
 * its end (cuda.h, CUresult). Another error, such as that of a capture, says nothing about kernels.
 */
static bool is_fatal(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		return false;
	}
}

/*
 * cuStreamIsCapturing() of the legacy stream returns the context's error, also one that no call has
 * synchronised with, and leaves every capture whole; 906 says that one is at work. The other calls
 * that would tell do harm (H100, 580.159.04, 2026-11-26): after a call of the per-thread stream
 * every forked child dies in exit() while this thread lives, a query of the legacy stream
 * invalidates another thread's capture, and a stream of the library's own ends with a reset of the
 * primary context, after which its query is a SIGSEGV.
 */
bool gdri_cuda_context_works(void *context)
{
	CUstreamCaptureStatus unused;
	struct gdri_cuda_scope s;
	CUresult r;

	gdri_cuda_relax(&s);
	r = gdri_cu.cuCtxPushCurrent_v2(context);
	s.pushed = !r;
	if (!r && gdri_cu.cuStreamIsCapturing)
		r = gdri_cu.cuStreamIsCapturing(CU_STREAM_LEGACY, &unused);
	gdri_cuda_leave(&s);
	return !is_fatal(r);
}
