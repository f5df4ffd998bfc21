/* SPDX-License-Identifier: MIT */
/*
 * The order of the backends, and the choice among them: at open by what can be here at all, at
 * each pin by who can serve that memory. It knows no backend's workings.
 */
#include "backend/backend.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "core/ctx.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/probes.h"

static const struct gdri_backend *const all_backends[] = {
	&gdri_backend_gdrdrv,
	&gdri_backend_dmabuf,
	&gdri_backend_rm,
	&gdri_backend_host,
};

/* One that only its name brings in: a way of a backend, whose id (and room) it shares. */
static const struct gdri_backend *const named_backends[] = {
	&gdri_backend_gdrdrv_dmabuf,
};

#define NAMED_BACKENDS (sizeof(named_backends) / sizeof(named_backends[0]))
#define ALL_BACKENDS   (sizeof(all_backends) / sizeof(all_backends[0]))

_Static_assert(ALL_BACKENDS <= GDRI_BACKENDS, "room for every backend in a context");

void gdri_default_close(void *state)
{
	(void)state;
}

int gdri_default_driver_version(void *state, int *major, int *minor)
{
	(void)state;
	*major = GDR_API_MAJOR_VERSION;
	*minor = GDR_API_MINOR_VERSION;
	return 0;
}

int gdri_default_callback_flag(struct gdri_pin *pin, int *flag)
{
	(void)pin;
	*flag = 0;
	return 0;
}

int gdri_default_event_fd(void *state, int *fd)
{
	(void)state;
	(void)fd;
	return gdri_fail(ENOTSUP, "no range is ever revoked");
}

void gdri_default_after_fork(void)
{
}

int gdri_check_wish(const struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	const char *want = "", *have = "";

	if (wish == GDR_MAPPING_TYPE_NONE || wish == pin->type)
		return 0;
	gdr_get_mapping_type_string(wish, &want);
	gdr_get_mapping_type_string(pin->type, &have);
	return gdri_fail(ENOTSUP,
			 "a mapping of type \"%s\" was asked for, the %s backend has \"%s\"", want,
			 pin->backend->name, have);
}

static const struct gdri_backend *backend_named(const char *name, size_t length)
{
	for (size_t i = 0; i < ALL_BACKENDS + NAMED_BACKENDS; i++) {
		const struct gdri_backend *b =
			i < ALL_BACKENDS ? all_backends[i] : named_backends[i - ALL_BACKENDS];

		if (strlen(b->name) == length && !strncmp(b->name, name, length))
			return b;
	}
	return NULL;
}

/* The names in GDRCOPY_BACKEND, in their order; -EINVAL for one that does not exist. */
static int backends_named(const char *list, const struct gdri_backend **out, size_t *count)
{
	*count = 0;
	while (*list) {
		size_t length = strcspn(list, ",");
		const struct gdri_backend *found = backend_named(list, length);

		if (!found)
			return gdri_fail(EINVAL, "GDRCOPY_BACKEND names no backend: \"%.*s\"%s",
					 (int)length, list,
					 length == 6 && !strncmp(list, "vulkan", 6)
						 ? " (rm serves what it served, and more)"
						 : "");
		for (size_t i = 0; i < *count; i++)
			if (out[i]->id == found->id)
				return gdri_fail(EINVAL, "GDRCOPY_BACKEND names %s twice",
						 out[i]->name);
		out[(*count)++] = found;
		list += length;
		if (*list == ',' && *++list == '\0')
			return gdri_fail(EINVAL, "GDRCOPY_BACKEND ends in a comma");
	}
	return 0;
}

int gdri_backends_open(struct gdri_ctx *ctx, bool any)
{
	const struct gdri_backend *candidates[GDRI_BACKENDS];
	struct gdri_text why = { .len = 0 };
	const char *list = gdri_env("GDRCOPY_BACKEND");
	bool by_name = list && *list;
	bool served = false;
	size_t count;
	int rc, err = ENODEV;

	if (by_name) {
		rc = backends_named(list, candidates, &count);
		if (rc)
			return rc;
	} else if (gdri_env_true("GDRCOPY_USE_DMABUF_MMAP")) {
		candidates[0] = &gdri_backend_dmabuf;
		count = 1;
	} else {
		for (count = 0; count < ALL_BACKENDS; count++)
			candidates[count] = all_backends[count];
	}

	memset(ctx->backend_state, 0, sizeof(ctx->backend_state));
	ctx->backend_count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct gdri_backend *b = candidates[i];

		gdri_error_clear();
		rc = b->open(ctx, !any && !by_name && !served, &ctx->backend_state[b->id - 1]);
		if (rc) {
			gdri_text_add(&why, "%s%s: %s", why.len ? "; " : "", b->name,
				      gdri_error_text());
			/* A node that is there but refuses says more than one that is not. */
			if (rc != -ENODEV && err == ENODEV)
				err = -rc;
			continue;
		}
		ctx->backends[ctx->backend_count++] = b;
		served |= !!(b->caps & GDRI_CAP_DEVICE_MEMORY);
	}
	if (served || ((any || by_name) && ctx->backend_count))
		return 0;
	gdri_backends_close(ctx);
	return gdri_fail(err, "no backend can serve ordinary device memory here: %s", why.s);
}

void gdri_backends_close(struct gdri_ctx *ctx)
{
	while (ctx->backend_count) {
		const struct gdri_backend *b = ctx->backends[--ctx->backend_count];

		b->close(ctx->backend_state[b->id - 1]);
	}
}

static bool is_dmabuf(const struct gdri_pin_request *request)
{
	return request->imported && request->imported->dmabuf;
}

/* Rounds the range to GPU pages: 0 or -errno. */
static int round_range(struct gdri_pin_request *request)
{
	uint64_t end;

	if (!request->size)
		return gdri_fail(EINVAL, "size is 0");
	if (!request->addr)
		return gdri_fail(EINVAL, "the address is 0");
	if (__builtin_add_overflow(request->addr, request->size, &end) ||
	    end > UINT64_MAX - GPU_PAGE_OFFSET)
		return gdri_fail(EOVERFLOW, "address 0x%llx + size 0x%zx wraps",
				 (unsigned long long)request->addr, request->size);
	request->va = request->addr & GPU_PAGE_MASK;
	request->mapped_size = ((end + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - request->va;
	return 0;
}

/* A dma-buf of another process is known by its descriptor alone. */
static void describe_dmabuf(struct gdri_pin_request *request)
{
	request->va = 0;
	request->mapped_size = request->size;
	request->memory = (struct gdri_memory){ .kind = GDRI_MEMORY_DEVICE,
						.device = request->imported->device };
}

/* Completes the request; refuses at once what no backend can serve. */
static int describe(struct gdri_pin_request *request)
{
	const struct gdri_memory *m = &request->memory;
	int rc = round_range(request);

	if (!rc)
		rc = gdri_cuda_describe(request->addr, request->size, &request->memory);
	if (rc)
		return rc;
	if (m->managed)
		return gdri_fail(EINVAL,
				 "0x%llx is managed (unified) memory, which migrates and cannot be "
				 "pinned: allocate with cudaMalloc, cuMemCreate or cudaHostAlloc",
				 (unsigned long long)request->addr);
	return 0;
}

/* Why this backend is not asked at all: 0, or -errno with its text. */
static int check_caps(const struct gdri_backend *b, void *state,
		      const struct gdri_pin_request *request)
{
	if (is_dmabuf(request) && !(b->caps & GDRI_CAP_TAKES_DMABUF))
		return gdri_fail(ENOTSUP, "cannot map a dma-buf");
	if (request->memory.kind == GDRI_MEMORY_UNKNOWN && !(b->caps & GDRI_CAP_UNKNOWN_MEMORY))
		return gdri_fail(EINVAL, "CUDA does not know this address%s%s",
				 request->memory.note[0] ? ": " : "", request->memory.note);
	if (request->flags & GDR_PIN_FLAG_FORCE_PCIE &&
	    !b->attribute(state, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE))
		return gdri_fail(EINVAL, "GDR_PIN_FLAG_FORCE_PCIE is not supported");
	return 0;
}

/*
 * Which of several errors is the caller's: lack of room, then what the hardware or memory cannot
 * do, then a bad argument; anything else last. With a pin flag a bad argument comes before what
 * the memory cannot do: whoever sees EINVAL tries again without the flag.
 */
static int error_rank(int err, uint32_t flags)
{
	switch (err) {
	case ENOMEM:
		return 5;
	case EACCES:
		return 4;
	case ENOTSUP:
		return 3;
	case EINVAL:
		return flags ? 4 : 2;
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
static size_t nth_backend(const struct gdri_ctx *ctx, const struct gdri_memory *m, size_t n)
{
	size_t host = 0;

	if (m->kind != GDRI_MEMORY_HOST)
		return n;
	while (host < ctx->backend_count && ctx->backends[host]->id != BARCOPY_BACKEND_HOST)
		host++;
	if (host == ctx->backend_count || n > host)
		return n;
	return n ? n - 1 : host;
}

int gdri_backends_pin(struct gdri_ctx *ctx, struct gdri_pin_request *request, struct gdri_pin *pin)
{
	struct gdri_text why = { .len = 0 }, advice = { .len = 0 };
	int rc, err = 0;

	if (is_dmabuf(request)) {
		describe_dmabuf(request);
	} else {
		rc = describe(request);
		if (rc)
			return rc;
	}

	for (size_t i = 0; i < ctx->backend_count; i++) {
		const struct gdri_backend *b = ctx->backends[nth_backend(ctx, &request->memory, i)];
		void *state = ctx->backend_state[b->id - 1];

		*pin = (struct gdri_pin){
			.backend = b,
			.va = request->va,
			.mapped_size = request->mapped_size,
			.page_size = GPU_PAGE_SIZE,
			.device = request->memory.device,
		};
		gdri_error_clear();
		rc = check_caps(b, state, request);
		if (!rc)
			rc = b->pin(state, request, pin);
		if (!rc) {
			pin->ctx = ctx;
			gdri_backends_count(pin, GDRI_EVENT_PIN);
			GDRI_PROBE3(pin, pin->va, pin->mapped_size, b->id);
			gdri_log(BARCOPY_LOG_DEBUG, "%s pins 0x%llx + 0x%zx", b->name,
				 (unsigned long long)pin->va, pin->mapped_size);
			return 0;
		}
		gdri_text_add(&why, "%s%s: %s", why.len ? "; " : "", b->name, gdri_error_text());
		if (!err || error_rank(-rc, request->flags) > error_rank(err, request->flags))
			err = -rc;
		/* What is short here is short for those that come later too. */
		if (rc == -ENOMEM)
			break;
	}
	if (is_dmabuf(request))
		return gdri_fail(err, "no backend can map this dma-buf of 0x%zx bytes: %s",
				 request->size, why.s);
	add_advice(&advice, &request->memory);
	return gdri_fail(err, "no backend can pin 0x%llx + 0x%zx: %s%s",
			 (unsigned long long)request->addr, request->size, advice.s, why.s);
}

void gdri_backends_count_in(struct gdri_ctx *ctx, enum gdri_event event, uint64_t n)
{
	gdri_events_add(&ctx->events, event, n);
	gdri_events_add(&gdri_process_events, event, n);
}

void gdri_backends_count(struct gdri_pin *pin, enum gdri_event event)
{
	if (!pin->ctx)
		return;
	gdri_events_add(&pin->events, event, 1);
	gdri_backends_count_in(pin->ctx, event, 1);
}

int gdri_backends_unpin(struct gdri_pin *pin)
{
	gdri_backends_count(pin, GDRI_EVENT_UNPIN);
	GDRI_PROBE2(unpin, pin->va, pin->mapped_size);
	return pin->backend->unpin(pin);
}

int gdri_backends_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	int rc = pin->backend->map(pin, wish);

	if (!rc) {
		gdri_backends_count(pin, GDRI_EVENT_MAP);
		GDRI_PROBE3(map, pin->va, pin->map, pin->map_length);
	}
	return rc;
}

int gdri_backends_unmap(struct gdri_pin *pin)
{
	gdri_backends_count(pin, GDRI_EVENT_UNMAP);
	GDRI_PROBE3(unmap, pin->va, pin->map, pin->map_length);
	return pin->backend->unmap(pin);
}

/* What a backend answers; being the dma-buf way is told by its capabilities. */
static bool has_attribute(const struct gdri_ctx *ctx, const struct gdri_backend *b, gdr_attr_t attr)
{
	if (attr == GDR_ATTR_USING_DMA_BUF_MMAP)
		return b->caps & GDRI_CAP_DMABUF_MMAP;
	return b->attribute(ctx->backend_state[b->id - 1], attr);
}

/* A flag is supported where any backend takes it, since a pin goes on to that one. */
int gdri_backends_attribute(struct gdri_ctx *ctx, gdr_attr_t attr)
{
	bool any = attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE;
	uint32_t needed = 0;

	/* Ordinary device memory decides where any backend serves it (gdrapi.h). */
	for (size_t i = 0; i < ctx->backend_count; i++)
		needed |= ctx->backends[i]->caps & GDRI_CAP_DEVICE_MEMORY;
	for (size_t i = 0; i < ctx->backend_count; i++) {
		const struct gdri_backend *b = ctx->backends[i];

		if ((b->caps & needed) == needed && has_attribute(ctx, b, attr) == any)
			return any;
	}
	return !any;
}

int gdri_backends_driver_version(struct gdri_ctx *ctx, int *major, int *minor)
{
	const struct gdri_backend *b = ctx->backends[0];

	return b->driver_version(ctx->backend_state[b->id - 1], major, minor);
}

int gdri_backends_event_fd(struct gdri_ctx *ctx, int *fd)
{
	struct gdri_text why = { .len = 0 };

	for (size_t i = 0; i < ctx->backend_count; i++) {
		const struct gdri_backend *b = ctx->backends[i];

		if (!b->event_fd(ctx->backend_state[b->id - 1], fd))
			return 0;
		gdri_text_add(&why, "%s%s: %s", why.len ? "; " : "", b->name, gdri_error_text());
	}
	return gdri_fail(ENOTSUP, "no notice of revoked ranges here: %s", why.s);
}

void gdri_backends_after_fork(void)
{
	for (size_t i = 0; i < ALL_BACKENDS; i++)
		all_backends[i]->after_fork();
}
