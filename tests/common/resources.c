// SPDX-License-Identifier: MIT
/* See resources.h. */
#include "resources.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"
#include "wrap.h"

int resources_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	if (!dir)
		abort();
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

size_t resources_heap(void)
{
#if __GLIBC_PREREQ(2, 33)
	return mallinfo2().uordblks;
#else
	return (size_t)mallinfo().uordblks;
#endif
}

static int count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4096];
	int n = 0;

	if (!f)
		abort();
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:gdrsim") != NULL;
	fclose(f);
	return n;
}

void resources_look(struct resources *r)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUcontext ctx = NULL;

	memset(r, 0, sizeof(*r));
	/* The stand-in notices only now that a dma-buf of its own was closed. */
	if (standin_device_bytes)
		standin_device_bytes(0);
	r->fds = resources_fds();
	r->maps = count_maps();
	r->mapped = wrap_mapped();
	if (cuda.cuCtxGetCurrent && !cuda.cuCtxGetCurrent(&ctx))
		r->context = ctx;
	if (cuda.cuThreadExchangeStreamCaptureMode &&
	    !cuda.cuThreadExchangeStreamCaptureMode(&mode)) {
		r->capture_mode = (int)mode;
		cuda.cuThreadExchangeStreamCaptureMode(&mode);
	}
	if (cuda_hooks.calls)
		r->retained = (long)cuda_hooks.calls("cuDevicePrimaryCtxRetain") -
			      (long)cuda_hooks.calls("cuDevicePrimaryCtxRelease");
}

const char *resources_differ(const struct resources *a, const struct resources *b)
{
	static char text[256];

	if (a->fds == b->fds && a->maps == b->maps && a->mapped == b->mapped &&
	    a->context == b->context && a->capture_mode == b->capture_mode &&
	    a->retained == b->retained)
		return NULL;
	snprintf(text, sizeof(text),
		 "descriptors %d -> %d, mappings %d -> %d, mapped bytes %lld -> %lld, "
		 "context %p -> %p, capture mode %d -> %d, contexts retained %ld -> %ld",
		 a->fds, b->fds, a->maps, b->maps, a->mapped, b->mapped, a->context, b->context,
		 a->capture_mode, b->capture_mode, a->retained, b->retained);
	return text;
}

static _Thread_local struct resources noted;

void resources_note(void)
{
	resources_look(&noted);
}

const char *resources_changed(void)
{
	struct resources now;

	resources_look(&now);
	return resources_differ(&noted, &now);
}
