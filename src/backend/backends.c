/* SPDX-License-Identifier: MIT */
/* The backends of a context: which of them open, in which order, and their common answers. */
#include "backend/backend.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"

/* In the order in which they are asked; the last one only if GDRCOPY_BACKEND names it. */
static const struct gdri_backend *const all_backends[] = {
	&gdri_backend_gdrdrv, &gdri_backend_dmabuf,	   &gdri_backend_rm,
	&gdri_backend_host,   &gdri_backend_gdrdrv_dmabuf,
};

_Static_assert(sizeof(all_backends) / sizeof(all_backends[0]) == GDRI_BACKENDS + 1,
	       "room for every backend in a context");

static const struct gdri_backend *backend_named(const char *name, size_t length)
{
	for (size_t i = 0; i <= GDRI_BACKENDS; i++)
		if (strlen(all_backends[i]->name) == length &&
		    !strncmp(all_backends[i]->name, name, length))
			return all_backends[i];
	return NULL;
}

/* The names in GDRCOPY_BACKEND, in their order: 0 or -EINVAL. */
static int backends_named(const char *list, const struct gdri_backend **out, size_t *count)
{
	*count = 0;
	while (*list) {
		size_t length = strcspn(list, ",");
		const struct gdri_backend *found = backend_named(list, length);

		if (!found)
			return gdri_fail(EINVAL, "GDRCOPY_BACKEND names no backend: \"%.*s\"",
					 (int)length, list);
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

int gdri_backends_open(struct gdri_backends *set, bool any)
{
	const struct gdri_backend *candidates[GDRI_BACKENDS];
	struct gdri_text why = { .len = 0 };
	const char *list = gdri_env("GDRCOPY_BACKEND");
	const char *dmabuf = gdri_env("GDRCOPY_USE_DMABUF_MMAP");
	bool by_name = list && *list;
	bool served = false;
	size_t count = GDRI_BACKENDS;
	int rc, err = ENODEV;

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
		rc = b->open(!any && !by_name && !served, &set->state[b->id - 1]);
		if (rc) {
			gdri_why_add(&why, b, gdri_error_text());
			/* A node that exists but refuses says more than one that does not exist. */
			if (rc != -ENODEV && err == ENODEV)
				err = -rc;
			continue;
		}
		set->of[set->count++] = b;
		served |= !!(b->caps & GDRI_CAP_DEVICE_MEMORY);
	}
	if (served || ((any || by_name) && set->count))
		return 0;
	gdri_backends_close(set);
	return gdri_fail(err, "no backend can serve %s here: %s",
			 any || by_name ? "any memory" : "ordinary device memory", why.s);
}

void gdri_backends_close(struct gdri_backends *set)
{
	while (set->count) {
		const struct gdri_backend *b = set->of[--set->count];

		if (b->close)
			b->close(set->state[b->id - 1]);
	}
}

/* A flag is supported if any backend takes it, since a pin goes on to that one. */
int gdri_backends_attribute(struct gdri_backends *set, gdr_attr_t attr)
{
	bool any = attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE;
	uint32_t needed = 0;

	/* If any backend serves ordinary device memory, only those that do are asked (gdrapi.h). */
	for (size_t i = 0; i < set->count; i++)
		needed |= set->of[i]->caps & GDRI_CAP_DEVICE_MEMORY;
	for (size_t i = 0; i < set->count; i++) {
		const struct gdri_backend *b = set->of[i];

		if ((b->caps & needed) == needed && gdri_backends_ask(set, b, attr) == any)
			return any;
	}
	return !any;
}

int gdri_backends_driver_version(struct gdri_backends *set, int *major, int *minor)
{
	const struct gdri_backend *b = set->of[0];

	if (b->driver_version)
		return b->driver_version(set->state[b->id - 1], major, minor);
	*major = GDR_API_MAJOR_VERSION;
	*minor = GDR_API_MINOR_VERSION;
	return 0;
}

int gdri_backends_event_fd(struct gdri_backends *set, int *fd)
{
	struct gdri_text why = { .len = 0 };

	for (size_t i = 0; i < set->count; i++) {
		const struct gdri_backend *b = set->of[i];

		if (b->event_fd && !b->event_fd(set->state[b->id - 1], fd))
			return 0;
		gdri_why_add(&why, b, b->event_fd ? gdri_error_text() : "no range is ever revoked");
	}
	return gdri_fail(ENOTSUP, "no notice of revoked ranges here: %s", why.s);
}
