/* SPDX-License-Identifier: MIT */
/* Pins: which of a context's backends serves a request, or why none can; counted operations. */
#include "backend/backend.h"

#include <errno.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/error.h"
#include "base/log.h"

int gdri_check_range(uint64_t addr, size_t size)
{
	uint64_t end;

	if (!size)
		return gdri_fail(EINVAL, "size is 0");
	if (!addr)
		return gdri_fail(EINVAL, "the address is 0");
	if (__builtin_add_overflow(addr, size, &end) || end > UINT64_MAX - GPU_PAGE_OFFSET)
		return gdri_fail(EOVERFLOW, "address 0x%llx + size 0x%zx wraps",
				 (unsigned long long)addr, size);
	return 0;
}

int gdri_pin_describe(struct gdri_pin_request *request)
{
	int rc;

	if (gdri_is_dmabuf(request)) { /* only the descriptor is known */
		request->va = 0;
		request->mapped_size = request->size;
		request->memory = (struct gdri_memory){ .kind = GDRI_MEMORY_DEVICE,
							.device = request->imported->device };
		return 0;
	}
	rc = gdri_check_range(request->addr, request->size);
	if (rc)
		return rc;
	request->va = request->addr & GPU_PAGE_MASK;
	request->mapped_size =
		((request->addr + request->size + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - request->va;
	if (!request->memory.known)
		gdri_cuda_describe(request->addr, request->size, &request->memory);
	if (request->memory.managed)
		return gdri_fail(EINVAL,
				 "0x%llx is managed (unified) memory, which migrates and cannot be "
				 "pinned: allocate with cudaMalloc, cuMemCreate or cudaHostAlloc",
				 (unsigned long long)request->addr);
	return 0;
}

/* Fails where the backend need not be asked: 0 or -errno. */
static int check_caps(const struct gdri_backends *set, const struct gdri_backend *b,
		      const struct gdri_pin_request *request)
{
	if (gdri_is_dmabuf(request) && !(b->caps & GDRI_CAP_TAKES_DMABUF))
		return gdri_fail(ENOTSUP, "cannot map a dma-buf");
	if (request->memory.kind == GDRI_MEMORY_UNKNOWN && !(b->caps & GDRI_CAP_UNKNOWN_MEMORY))
		return gdri_fail(EINVAL, "CUDA does not know this address%s%s",
				 request->memory.note[0] ? ": " : "", request->memory.note);
	if (request->flags & GDR_PIN_FLAG_FORCE_PCIE &&
	    !gdri_backends_ask(set, b, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE))
		return gdri_fail(EINVAL, "GDR_PIN_FLAG_FORCE_PCIE is not supported");
	return 0;
}

/*
 * The caller gets the errno of the highest rank. With a pin flag, EINVAL outranks ENOTSUP: callers
 * that see EINVAL try again without the flag. The host backend's ENOTSUP for device memory, which
 * it never serves, ranks behind another backend's EINVAL.
 */
static int error_rank(const struct gdri_backend *b, int err, const struct gdri_pin_request *request)
{
	switch (err) {
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return 6;
	case EACCES:
		return 5;
	case ENOTSUP:
		return b->id != BARCOPY_BACKEND_HOST || request->memory.kind == GDRI_MEMORY_HOST
			       ? 4
			       : 2;
	case EINVAL:
		return request->flags ? 5 : 3;
	default:
		return 1;
	}
}

/*
 * An integrated GPU has no BAR; memory of cudaHostAlloc is what the CPU can reach there (GPUDirect
 * RDMA guide, section 13.4.1). This only adds to the error's text: a later driver may map a dma-buf
 * of device memory.
 */
static void add_advice(struct gdri_text *text, const struct gdri_memory *m)
{
	bool integrated = false;

	if (m->kind == GDRI_MEMORY_DEVICE && m->device >= 0 &&
	    !gdri_cuda_is_integrated(m->device, &integrated) && integrated)
		gdri_text_add(
			text,
			"GPU %d is integrated and its device memory has no mapping for the CPU: "
			"allocate with cudaHostAlloc, cuMemHostAlloc or barcopy_mem_alloc; ",
			m->device);
}

/*
 * The nth backend to ask: of host memory the host backend first, if the context has it, since the
 * CPU pointer needs no driver and a driver's mapping would be a second one.
 */
static size_t nth_backend(const struct gdri_backends *set, const struct gdri_memory *m, size_t n)
{
	size_t host = 0;

	if (m->kind != GDRI_MEMORY_HOST)
		return n;
	while (host < set->count && set->of[host]->id != BARCOPY_BACKEND_HOST)
		host++;
	if (host == set->count || n > host)
		return n;
	return n ? n - 1 : host;
}

static int pin_by(const struct gdri_backends *set, const struct gdri_backend *b,
		  const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	int rc;

	*pin = (struct gdri_pin){
		.backend = b,
		.state = set->state[b->id - 1],
		.va = request->va,
		.mapped_size = request->mapped_size,
		.page_size = GPU_PAGE_SIZE,
		.device = request->memory.device,
		.counters = set->counters,
	};
	gdri_error_clear();
	rc = check_caps(set, b, request);
	if (!rc)
		rc = b->pin(pin->state, request, pin);
	if (!rc) {
		gdri_count(pin->counters, GDRI_COUNT_PIN, 1);
		gdri_log(GDRI_LOG_DEBUG, "%s pins 0x%llx + 0x%zx", b->name,
			 (unsigned long long)pin->va, pin->mapped_size);
	}
	return rc;
}

int gdri_backends_pin(struct gdri_backends *set, struct gdri_pin_request *request,
		      struct gdri_pin *pin)
{
	struct gdri_text why = { .len = 0 }, advice = { .len = 0 };
	int rc = gdri_pin_describe(request), rank, err = 0, highest = 0;

	if (rc)
		return rc;
	for (size_t i = 0; i < set->count; i++) {
		const struct gdri_backend *b = set->of[nth_backend(set, &request->memory, i)];

		rc = pin_by(set, b, request, pin);
		if (!rc)
			return 0;
		gdri_why_add(&why, b, gdri_error_text());
		rank = error_rank(b, -rc, request);
		if (rank > highest) {
			highest = rank;
			err = -rc;
		}
		/* What is short for one backend is short for the next as well. */
		if (gdri_is_short(rc))
			break;
	}
	if (gdri_is_dmabuf(request))
		return gdri_fail(err, "no backend can map this dma-buf of 0x%zx bytes: %s",
				 request->size, why.s);
	add_advice(&advice, &request->memory);
	return gdri_fail(err, "no backend can pin 0x%llx + 0x%zx: %s%s",
			 (unsigned long long)request->addr, request->size, advice.s, why.s);
}

int gdri_backends_unpin(struct gdri_pin *pin)
{
	gdri_count(pin->counters, GDRI_COUNT_UNPIN, 1);
	return pin->backend->unpin ? pin->backend->unpin(pin) : 0;
}

int gdri_backends_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	int rc = pin->backend->map(pin, wish);

	if (!rc)
		gdri_count(pin->counters, GDRI_COUNT_MAP, 1);
	return rc;
}

int gdri_backends_unmap(struct gdri_pin *pin)
{
	gdri_count(pin->counters, GDRI_COUNT_UNMAP, 1);
	return pin->backend->unmap ? pin->backend->unmap(pin) : 0;
}

int gdri_backends_callback_flag(struct gdri_pin *pin, int *flag)
{
	*flag = 0;
	return pin->backend->callback_flag ? pin->backend->callback_flag(pin, flag) : 0;
}
