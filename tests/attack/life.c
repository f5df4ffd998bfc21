// SPDX-License-Identifier: MIT
/* See life.h. */
#include "life.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/standin.h"
#include "model/fault.h"
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
