/* SPDX-License-Identifier: MIT */
/* A context's backends: which of them open, in which order, and which serves a pin. */
#include "backend/backend.h"

#include "base/env.h"

/*
 * In the order in which they are tried: dmabuf after rm, since no run of it on a GPU is recorded
 * (docs/release-2.6.0.md).
 */
static const struct gdri_backend *const all_backends[] = {
	&gdri_backend_gdrdrv,
	&gdri_backend_rm,
	&gdri_backend_dmabuf,
	&gdri_backend_host,
};

_Static_assert(sizeof(all_backends) / sizeof(all_backends[0]) == GDRI_BACKENDS,
	       "room for every backend in a context");

/* The names in GDRCOPY_BACKEND, in their order: 0 or -EINVAL. */
static int backends_named(const char *list, const struct gdri_backend **out, size_t *count)
{
	*count = 0;
	while (*list) {
		const struct gdri_backend *found = NULL;
		int length = (int)strcspn(list, ",");

		for (size_t i = 0; i < GDRI_BACKENDS; i++)
			if (!strncmp(all_backends[i]->name, list, (size_t)length) &&
			    !all_backends[i]->name[length])
				found = all_backends[i];
		if (!found)
			return gdri_fail(EINVAL,
					 "GDRCOPY_BACKEND: no such backend: \"%.*s\" (gdrdrv, "
					 "dmabuf, rm, host)",
					 length, list);
		for (size_t i = 0; i < *count; i++)
			if (out[i]->id == found->id)
				return gdri_fail(EINVAL, "GDRCOPY_BACKEND: %s twice", out[i]->name);
		out[(*count)++] = found;
		list += length;
		if (*list == ',' && *++list == '\0')
			return gdri_fail(EINVAL, "GDRCOPY_BACKEND ends in a comma");
	}
	return 0;
}

/* Adds one backend's reason to a list of them. */
static void add_reason(struct gdri_text *why, const struct gdri_backend *b, const char *reason)
{
	gdri_text_add(why, "%s%s: %s", why->len ? "; " : "", b->name, reason);
}

int gdri_backends_open(struct gdri_backends *set, bool any)
{
	const struct gdri_backend *candidates[GDRI_BACKENDS];
	struct gdri_text why = { .len = 0 };
	const char *list = gdri_env("GDRCOPY_BACKEND");
	const char *dmabuf = gdri_env("GDRCOPY_USE_DMABUF_MMAP");
	bool by_name = list && *list;
	bool served = false, perhaps = false;
	size_t count = GDRI_BACKENDS;
	int rc, err = ENODEV;
	const char *hint;

	memcpy(candidates, all_backends, sizeof(candidates));
	if (by_name) {
		rc = backends_named(list, candidates, &count);
		if (rc)
			return rc;
	} else if (dmabuf && !strcmp(dmabuf, "1")) { /* GDRCopy takes no other value either */
		candidates[0] = &gdri_backend_dmabuf;
		count = 1;
	}

	memset(set->state, 0, sizeof(set->state));
	set->count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct gdri_backend *b = candidates[i];

		gdri_error_clear();
		rc = b->open(&set->state[b->id - 1]);
		if (!rc && b->decide && !any && !by_name && !served) {
			rc = b->decide();
			perhaps |= rc; /* memory of another kind, as who_counts() says */
		}
		if (rc) {
			add_reason(&why, b, gdri_error_text());
			/*
			 * A node that exists but refuses says more than one that does not exist; a
			 * backend that is short now might open later.
			 */
			if (gdri_is_short(rc) ||
			    (rc != -ENODEV && rc != -ENOTSUP && err == ENODEV))
				err = -rc;
			continue;
		}
		set->of[set->count++] = b;
		served |= !!(b->caps & GDRI_CAP_DEVICE_MEMORY);
	}
	if (served || ((any || by_name) && set->count))
		return 0;
	hint = set->count && set->of[set->count - 1] == &gdri_backend_host
		       ? "; barcopy_open(BARCOPY_OPEN_ANY) maps cudaHostAlloc memory"
		       : "";
	gdri_backends_close(set);
	return gdri_fail(err, "no backend can map %s here: %s%s%s",
			 any || by_name ? "any memory" : "ordinary device memory", why.s, hint,
			 perhaps && *hint ? ", and perhaps that of barcopy_mem_alloc()" : "");
}

void gdri_backends_close(struct gdri_backends *set)
{
	while (set->count) {
		const struct gdri_backend *b = set->of[--set->count];

		if (b->close)
			b->close(set->state[b->id - 1]);
	}
}

static int ask_attribute(const struct gdri_backends *set, const struct gdri_backend *b,
			 gdr_attr_t attr)
{
	return b->attribute ? b->attribute(set->state[b->id - 1], attr) : 0;
}

/*
 * Tells of each backend whether its answers are the context's (gdrapi.h). Those of the highest rank are.
 * 2: it serves ordinary device memory here, 1: perhaps device memory of another kind, as rm with the
 * proprietary modules, 0: host memory alone. gdri_backends_open() has not asked those beside gdrdrv.
 * Fails where they cannot be asked now, since their answer would be another one later: 0 or -errno.
 */
static int who_counts(const struct gdri_backends *set, bool counts[GDRI_BACKENDS])
{
	int rank[GDRI_BACKENDS], most = 0;

	for (size_t i = 0; i < set->count; i++) {
		const struct gdri_backend *b = set->of[i];
		int rc = b->decide ? b->decide() : 0;

		if (gdri_is_short(rc))
			return rc;
		rank[i] = !(b->caps & GDRI_CAP_DEVICE_MEMORY) ? 0 : rc ? 1 : 2;
		most = rank[i] > most ? rank[i] : most;
	}
	for (size_t i = 0; i < set->count; i++)
		counts[i] = rank[i] == most;
	return 0;
}

/* A flag is supported if any backend takes it, since a pin goes on to that one. */
int gdri_backends_attribute(struct gdri_backends *set, gdr_attr_t attr, int *value)
{
	bool any = attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, found = false;
	bool counts[GDRI_BACKENDS];
	int rc = who_counts(set, counts);

	if (rc)
		return rc;
	for (size_t i = 0; i < set->count && !found; i++)
		found = counts[i] && ask_attribute(set, set->of[i], attr) == any;
	*value = found == any;
	return 0;
}

/* The highest one: a pin that an old driver refuses goes on to the next backend. */
int gdri_backends_driver_version(struct gdri_backends *set, int *major, int *minor)
{
	bool counts[GDRI_BACKENDS];
	int rc = who_counts(set, counts);

	if (rc)
		return rc;
	*major = *minor = 0;
	for (size_t i = 0; i < set->count; i++) {
		const struct gdri_backend *b = set->of[i];
		int of[2] = { GDR_API_MAJOR_VERSION, GDR_API_MINOR_VERSION };

		if (b->driver_version)
			b->driver_version(set->state[b->id - 1], &of[0], &of[1]);
		if (counts[i] && (of[0] > *major || (of[0] == *major && of[1] > *minor))) {
			*major = of[0];
			*minor = of[1];
		}
	}
	return 0;
}

/* ---- pins ------------------------------------------------------------------------------------ */

/* Fails where the backend need not be tried: 0 or -errno. */
static int check_caps(const struct gdri_backends *set, const struct gdri_backend *b,
		      const struct gdri_pin_request *request)
{
	if (gdri_is_dmabuf(request) && !(b->caps & GDRI_CAP_TAKES_DMABUF))
		return gdri_fail(ENOTSUP, "cannot map a dma-buf");
	if (request->memory.kind == GDRI_MEMORY_UNKNOWN && !(b->caps & GDRI_CAP_UNKNOWN_MEMORY))
		return gdri_fail(EINVAL, "CUDA does not know this address%s%s",
				 request->memory.note[0] ? ": " : "", request->memory.note);
	if (request->flags & GDR_PIN_FLAG_FORCE_PCIE &&
	    !ask_attribute(set, b, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE))
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
	if (gdri_is_short(-err))
		return 6;
	switch (err) {
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
 * An integrated GPU has no BAR; the CPU reaches memory of cudaHostAlloc (GPUDirect RDMA guide,
 * "Changing the allocator"). Only a text: a later driver may map a dma-buf of device memory.
 */
static void add_advice(struct gdri_text *text, const struct gdri_memory *m)
{
	bool integrated = false;

	if (m->kind == GDRI_MEMORY_DEVICE && !gdri_cuda_is_integrated(m->device, &integrated) &&
	    integrated)
		gdri_text_add(
			text,
			"GPU %d is integrated and its device memory has no mapping for the CPU: "
			"allocate with cudaHostAlloc, cuMemHostAlloc or barcopy_mem_alloc; ",
			m->device);
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
		rc = b->pin(request, pin);
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
	/* Host memory: the host backend first, as a driver's mapping would be a second one. */
	for (size_t i = 0; i < 2 * set->count; i++) {
		const struct gdri_backend *b = set->of[i % set->count];
		bool comes_first =
			b->id == BARCOPY_BACKEND_HOST && request->memory.kind == GDRI_MEMORY_HOST;

		if (comes_first != (i < set->count))
			continue;
		rc = pin_by(set, b, request, pin);
		if (!rc)
			return 0;
		add_reason(&why, b, gdri_error_text());
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
