// SPDX-License-Identifier: MIT
/* See life.h. */
#include "life.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/standin.h"
#include "barcopy.h"

size_t lives_make(struct life lives[LIVES])
{
	struct standin_vmm many, dma;

	setenv("GDRSIM_DRIVER_VERSION", "13030", 1);
	standin_start();
	standin_vmm_alloc(&many, 0, 3, STANDIN_GRANULE, true);
	standin_vmm_alloc(&dma, 0, 2, STANDIN_GRANULE, false);
	lives[0] = (struct life){ "cudaMalloc by dma-buf", "dmabuf", standin_alloc(3 << 20) + 70000,
				  100000 };
	lives[1] = (struct life){ "VMM by dma-buf", "dmabuf", dma.ptr + 100, dma.size - 200 };
	lives[2] =
		(struct life){ "cudaMalloc by rm", "rm", standin_alloc(3 << 20) + 70000, 100000 };
	lives[3] = (struct life){ "VMM by rm", "rm", many.ptr + 70000, many.size - 80000 };
	lives[4] =
		(struct life){ "host memory", "host",
			       (uintptr_t)standin_host_alloc(5000, CU_MEMHOSTALLOC_WRITECOMBINED),
			       5000 };
	lives[5] = (struct life){ "cudaMalloc by gdrdrv", "gdrdrv", standin_alloc(3 << 20) + 5000,
				  100000 };
	return standin_gdrdrv() ? LIVES : LIVES - 1;
}

#define PIN	EINVAL, EOVERFLOW, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO
#define THE_END EINVAL, EACCES, ENOMEM, EIO /* ENOMEM: of munmap() */

bool errno_documented(const char *call, int err)
{
	static const struct {
		const char *call;
		int errnos[12];
	} all[] = {
		{ "gdr_open", { ENODEV, EACCES, EINVAL, ENOMEM, EMFILE, ENFILE, EIO } },
		{ "gdr_pin_buffer_v2", { PIN } },
		{ "gdr_map",
		  { EINVAL, EAGAIN, EACCES, ENODEV, ENOMEM, EMFILE, ENFILE, ENOTSUP, EIO } },
		{ "gdr_unmap", { THE_END } },
		{ "gdr_unpin_buffer", { THE_END } },
		{ "gdr_close", { THE_END } },
		{ "gdr_copy_to_mapping", { EINVAL, EACCES, EIO } },
		{ "gdr_copy_from_mapping", { EINVAL, EACCES, EIO } },
		{ "barcopy_map_range", { PIN } },
		{ "barcopy_unmap_range", { THE_END } },
		{ "barcopy_set_copy_options", { EINVAL, ENOTSUP, ENOMEM, EACCES, EIO } },
		{ "barcopy_cache_create", { EINVAL, ENOMEM, EACCES } },
		{ "barcopy_cache_get", { PIN } },
		{ "barcopy_cache_put", { EINVAL, EACCES } },
		{ "barcopy_cache_invalidate", { EINVAL, EACCES } },
		{ "barcopy_cache_trim", { EINVAL, EACCES } },
		{ "barcopy_cache_destroy", { EBUSY, THE_END } },
		{ "barcopy_mem_alloc",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_mem_free", { THE_END } },
		{ "barcopy_mem_export",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_port_create",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_port_stop", { EINVAL, EACCES } },
		{ "barcopy_port_destroy", { THE_END } },
		{ "barcopy_queue_create",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_queue_send", { EINVAL, EACCES, ETIMEDOUT, EPIPE } },
		{ "barcopy_queue_stop", { EINVAL, EACCES } },
		{ "barcopy_queue_destroy", { THE_END } },
		{ "barcopy_mem_import",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
	};
	size_t i = 0;

	while (i < sizeof(all) / sizeof(all[0]) && strcmp(all[i].call, call) != 0)
		i++;
	for (int k = 0; i < sizeof(all) / sizeof(all[0]) && all[i].errnos[k]; k++)
		if (all[i].errnos[k] == err)
			return true;
	return false;
}

static _Thread_local char text[512];

static const char *fault(const char *call, int err)
{
	snprintf(text, sizeof(text), "%s: errno %d (%s)", call, err, barcopy_last_error());
	return text;
}

/* Maps, copies both ways and unmaps. */
static const char *mapped_part(const struct life *life, gdr_t g, gdr_mh_t h, bool *worked)
{
	uint8_t in[300], out[300];
	gdr_info_t info;
	void *va = text;
	uint8_t *at;
	size_t n = life->size < sizeof(in) ? life->size : sizeof(in);
	int rc = gdr_get_info(g, h, &info);

	if (rc)
		return fault("gdr_get_info", rc);
	rc = gdr_map(g, h, &va, info.mapped_size);
	if (rc) {
		*worked = false;
		if (va != text)
			return "gdr_map wrote its output and failed";
		if (gdr_get_info(g, h, &info) || info.mapped)
			return "gdr_map failed and the handle is mapped";
		return errno_documented("gdr_map", rc) ? NULL : fault("gdr_map", rc);
	}
	at = (uint8_t *)va + (life->addr + life->size - n - info.va);
	for (size_t i = 0; i < n; i++)
		in[i] = (uint8_t)(i ^ (uintptr_t)life);
	rc = gdr_copy_to_mapping(h, at, in, n);
	if (!rc)
		rc = gdr_copy_from_mapping(h, out, at, n);
	if (rc)
		return fault("copy", rc);
	if (memcmp(in, out, n))
		return "wrong bytes";
	rc = gdr_unmap(g, h, va, info.mapped_size);
	if (rc) {
		*worked = false;
		if (!errno_documented("gdr_unmap", rc))
			return fault("gdr_unmap", rc);
	}
	return NULL;
}

const char *life_run(const struct life *life, bool *worked)
{
	const char *wrong = NULL;
	gdr_mh_t h = { 77 };
	int rc;
	gdr_t g;

	*worked = true;
	setenv("GDRCOPY_BACKEND", life->backend, 1);
	errno = 0;
	g = gdr_open();
	if (!g) {
		*worked = false;
		return errno_documented("gdr_open", errno) ? NULL : fault("gdr_open", errno);
	}
	rc = gdr_pin_buffer_v2(g, life->addr, life->size, 0, &h);
	if (rc) {
		*worked = false;
		if (h.h != 77)
			wrong = "gdr_pin_buffer_v2 wrote its output and failed";
		else if (!errno_documented("gdr_pin_buffer_v2", rc))
			wrong = fault("gdr_pin_buffer_v2", rc);
		else if (!*barcopy_last_error())
			wrong = "gdr_pin_buffer_v2 failed without a text";
	} else {
		wrong = mapped_part(life, g, h, worked);
		rc = gdr_unpin_buffer(g, h);
		if (rc) {
			*worked = false;
			if (!wrong && !errno_documented("gdr_unpin_buffer", rc))
				wrong = fault("gdr_unpin_buffer", rc);
		}
	}
	rc = gdr_close(g);
	if (rc) {
		*worked = false;
		if (!wrong && !errno_documented("gdr_close", rc))
			wrong = fault("gdr_close", rc);
	}
	return wrong;
}
