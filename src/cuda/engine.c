/* SPDX-License-Identifier: MIT */
/* The GPU's copy engine for the copies of one pinned range. See cuda.h. */
#include "cuda/private.h"

#include <stdlib.h>

/*
 * The context is the allocation's own; for VMM memory, which has none, the device's primary one. That one,
 * whichever way it was come by, is retained as long as the engine lives: one that was merely current
 * could be destroyed meanwhile, and memory may be freed long before its handle ends.
 */
struct gdri_cuda_engine {
	CUcontext ctx;
	CUstream stream;
	CUdevice retained; /* primary context to give back, or -1 */
	/* Where the context is a program's own: an address of its memory, and what it was. */
	uint64_t known, buffer_id;
};

static int choose_context(struct gdri_cuda_engine *e, void *context, int device)
{
	CUdevice dev;
	int rc = GDRI_CU(cuDeviceGet, &dev, device);

	if (!rc)
		rc = GDRI_CU(cuDevicePrimaryCtxRetain, &e->ctx, dev);
	if (rc)
		return rc;
	if (context && context != e->ctx) {
		/* One that a program made for itself: its end is not ours to put off. */
		gdri_cu.cuDevicePrimaryCtxRelease_v2(dev);
		e->ctx = context;
		return 0;
	}
	e->retained = dev;
	return 0;
}

static void discard(struct gdri_cuda_engine *e)
{
	if (e->retained >= 0)
		gdri_cu.cuDevicePrimaryCtxRelease_v2(e->retained);
	free(e);
}

int gdri_cuda_engine_new(uint64_t addr, size_t size, struct gdri_cuda_engine **out)
{
	struct gdri_cuda_engine *e;
	struct gdri_cuda_scope s;
	struct gdri_memory m;
	int rc;

	gdri_cuda_describe(addr, size, &m);
	if (m.kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "the copy engine serves device memory only%s%s",
				 *m.note ? ": " : "", m.note);
	rc = gdri_cuda_need(GDRI_CUDA_STREAMS);
	if (rc)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e)
		return gdri_fail(ENOMEM, "no memory for a copy engine");
	e->retained = -1;
	e->known = m.known;
	e->buffer_id = m.buffer_id;
	rc = choose_context(e, m.context, m.device);
	if (!rc)
		rc = gdri_cuda_enter(&s, e->ctx, -1);
	if (rc)
		goto err_discard;
	rc = GDRI_CU(cuStreamCreate, &e->stream, CU_STREAM_NON_BLOCKING);
	gdri_cuda_leave(&s);
	if (rc)
		goto err_discard;
	*out = e;
	return 0;

err_discard:
	discard(e);
	return rc;
}

/* No text of a failure: to the caller's caller nothing has failed. */
bool gdri_cuda_engine_copy(struct gdri_cuda_engine *e, bool to_device, void *host, uint64_t addr,
			   size_t size)
{
	struct gdri_cuda_scope s;
	CUresult r;

	gdri_cuda_relax(&s);
	r = gdri_cu.cuCtxPushCurrent_v2(e->ctx);
	if (!r) {
		s.pushed = true;
		if (to_device)
			r = gdri_cu.cuMemcpyHtoDAsync_v2(addr, host, size, e->stream);
		else
			r = gdri_cu.cuMemcpyDtoHAsync_v2(host, addr, size, e->stream);
		/* After a failure too: nothing of the copy may come later. */
		if (gdri_cu.cuStreamSynchronize(e->stream))
			r = CUDA_ERROR_UNKNOWN;
	}
	gdri_cuda_leave(&s);
	return r == CUDA_SUCCESS;
}

/* Managed memory answers too, with a type of its own choosing; it is not what is asked for. */
bool gdri_cuda_is_page_locked(const void *host)
{
	unsigned int type = 0, managed = 0;
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED };
	void *values[] = { &type, &managed };

	return !gdri_cu.cuPointerGetAttributes(2, names, values, (uintptr_t)host) &&
	       type == CU_MEMORYTYPE_HOST && !managed;
}

void gdri_cuda_engine_free(struct gdri_cuda_engine *e)
{
	CUcontext ctx;

	if (!e)
		return;
	/* A context of a program's own that went with its memory took the stream along. */
	if ((e->retained >= 0 || gdri_cuda_tag_holds(e->known, e->buffer_id)) &&
	    !gdri_cu.cuCtxPushCurrent_v2(e->ctx)) {
		gdri_cu.cuStreamDestroy_v2(e->stream);
		gdri_cu.cuCtxPopCurrent_v2(&ctx);
	}
	discard(e);
}
