/* SPDX-License-Identifier: MIT */
/*
 * A pin: by whichever of a context's backends can serve that memory, or why none can. Its operations,
 * counted. It knows no backend's workings.
 */
#include "backend/backend.h"

#include <errno.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/error.h"
#include "base/log.h"

/* A dma-buf of another process is known by its descriptor alone. */
static void describe_dmabuf(struct gdri_pin_request *request)
{
	request->va = 0;
	request->mapped_size = request->size;
	request->memory = (struct gdri_memory){ .kind = GDRI_MEMORY_DEVICE,
						.device = request->imported->device };
}

/* Why this backend is not asked at all: 0, or -errno with its text. */
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
 * Which of several errors the caller sees: lack of room first, then what the hardware or the memory
 * cannot do, then a bad argument; anything else last. With a pin flag a bad argument comes before what
 * the memory cannot do: a caller that sees EINVAL tries again without the flag. The host backend's
 * ENOTSUP for device memory, which it never serves, comes behind another backend's EINVAL.
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
		return b->id == BARCOPY_BACKEND_HOST && request->memory.kind != GDRI_MEMORY_HOST ? 2
												 : 4;
	case EINVAL:
		return request->flags ? 5 : 3;
	default:
		return 1;
	}
}

/*
 * What to allocate instead, where that is known: an integrated GPU has no BAR, and there the way is
 * memory of cudaHostAlloc (GPUDirect RDMA guide, section 13.4.1). Said, not decided: a later driver
 * may map a dma-buf of its other memory.
 */
static void add_advice(struct gdri_text *text, const struct gdri_memory *m)
{
	bool integrated = false;

	if (m->kind != GDRI_MEMORY_DEVICE || m->device < 0 ||
	    gdri_cuda_is_integrated(m->device, &integrated) || !integrated)
		return;
	gdri_text_add(text,
		      "GPU %d is integrated and its device memory has no mapping for the CPU: "
		      "allocate with cudaHostAlloc, cuMemHostAlloc or barcopy_mem_alloc; ",
		      m->device);
}

/*
 * The nth backend to ask. Host memory goes to the host backend first, if the context has it: the
 * CPU pointer needs no driver's help, and a driver's mapping of it would be a second one.
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

int gdri_backends_pin(struct gdri_backends *set, struct gdri_pin_request *request,
		      struct gdri_pin *pin)
{
	struct gdri_text why = { .len = 0 }, advice = { .len = 0 };
	int rc, rank, err = 0, highest = 0;

	if (gdri_is_dmabuf(request)) {
		describe_dmabuf(request);
	} else {
		rc = gdri_pin_describe(request);
		if (rc)
			return rc;
	}

	for (size_t i = 0; i < set->count; i++) {
		const struct gdri_backend *b = set->of[nth_backend(set, &request->memory, i)];
		void *state = set->state[b->id - 1];

		*pin = (struct gdri_pin){
			.backend = b,
			.state = state,
			.va = request->va,
			.mapped_size = request->mapped_size,
			.page_size = GPU_PAGE_SIZE,
			.device = request->memory.device,
		};
		gdri_error_clear();
		rc = check_caps(set, b, request);
		if (!rc)
			rc = b->pin(state, request, pin);
		if (!rc) {
			pin->counters = set->counters;
			gdri_count(pin->counters, GDRI_COUNT_PIN, 1);
			gdri_log(GDRI_LOG_DEBUG, "%s pins 0x%llx + 0x%zx", b->name,
				 (unsigned long long)pin->va, pin->mapped_size);
			return 0;
		}
		gdri_text_add(&why, "%s%s: %s", why.len ? "; " : "", b->name, gdri_error_text());
		rank = error_rank(b, -rc, request);
		if (rank > highest) {
			highest = rank;
			err = -rc;
		}
		/* What is short here is short for those that come later too. */
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
