/* SPDX-License-Identifier: MIT */
/* The GPU's copy engine for the copies of one pinned range. See cuda.h. */
#include "cuda/private.h"

#include <stdlib.h>

/*
 * The context is the allocation's own; for VMM memory, which has none, the device's primary one,
 * which is kept: one that was merely current could be destroyed meanwhile, and memory may be freed
 * long before its handle ends.
 */
struct gdri_cuda_engine {
	CUcontext ctx;
	CUstream stream;
	/* A program's own context, which may end: an address of its memory, and what it was. */
	bool foreign;
	uint64_t known, buffer_id;
};

static int make_stream(struct gdri_cuda_engine *e, const struct gdri_memory *m)
{
	struct gdri_cuda_scope s;
	CUdevice dev;
	int rc = GDRI_CU(cuDeviceGet, &dev, m->device);

	/* Is its context the primary one? A primary one made for that question goes at once. */
	if (!rc && m->context) {
		rc = GDRI_CU(cuDevicePrimaryCtxRetain, &e->ctx, dev);
		if (rc)
			return rc;
		e->foreign = e->ctx != m->context;
		gdri_cu.cuDevicePrimaryCtxRelease_v2(dev);
	}
	if (rc)
		return rc;
	if (e->foreign) { /* a program's own: its end is not ours to put off */
		e->ctx = m->context;
		rc = gdri_cuda_enter(&s, e->ctx, -1);
	} else {
		rc = gdri_cuda_enter_primary(&s, dev, &e->ctx);
	}
	if (rc)
		return rc;
	rc = GDRI_CU(cuStreamCreate, &e->stream, CU_STREAM_NON_BLOCKING);
	gdri_cuda_leave(&s);
	return rc;
}

int gdri_cuda_engine_new(uint64_t addr, size_t size, struct gdri_cuda_engine **out)
{
	struct gdri_cuda_engine *e;
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
	e->known = m.known;
	e->buffer_id = m.buffer_id;
	rc = make_stream(e, &m);
	if (rc)
		free(e);
	else
		*out = e;
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
	if ((!e->foreign || gdri_cuda_tag_holds(e->known, e->buffer_id)) &&
	    !gdri_cu.cuCtxPushCurrent_v2(e->ctx)) {
		gdri_cu.cuStreamDestroy_v2(e->stream);
		gdri_cu.cuCtxPopCurrent_v2(&ctx);
	}
	free(e);
}
