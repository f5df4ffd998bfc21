/* SPDX-License-Identifier: MIT */
/*
 * A client as a user would write it: allocates on the GPU (or the stand-in), copies through the
 * mapping and compares. Uses the installed header and library only.
 */
#include <dlfcn.h>
#include <barcopy.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*init_fn)(unsigned int);
typedef int (*device_fn)(int *, int);
typedef int (*retain_fn)(void **, int);
typedef int (*current_fn)(void *);
typedef int (*host_alloc_fn)(void **, size_t, unsigned int);

#define CHECK(what, ok)                                                                  \
	do {                                                                             \
		if (!(ok)) {                                                             \
			fprintf(stderr, "client: %s: %s\n", what, barcopy_last_error()); \
			return 1;                                                        \
		}                                                                        \
	} while (0)

int main(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	void *ctx, *map, *mem = NULL;
	char out[100] = "the same bytes", in[100] = "";
	int device, major = 0, minor = 0;
	gdr_info_t info;
	gdr_mh_t mh;
	gdr_t g;

	if (!cuda) {
		fprintf(stderr, "client: %s\n", dlerror());
		return 1;
	}
	CHECK("cuInit", !((init_fn)dlsym(cuda, "cuInit"))(0));
	CHECK("cuDeviceGet", !((device_fn)dlsym(cuda, "cuDeviceGet"))(&device, 0));
	CHECK("cuDevicePrimaryCtxRetain",
	      !((retain_fn)dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&ctx, device));
	CHECK("cuCtxSetCurrent", !((current_fn)dlsym(cuda, "cuCtxSetCurrent"))(ctx));
	CHECK("cuMemHostAlloc", !((host_alloc_fn)dlsym(cuda, "cuMemHostAlloc"))(&mem, 1 << 20, 2));

	gdr_runtime_get_version(&major, &minor);
	CHECK("version", major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION);
	g = barcopy_open(BARCOPY_OPEN_ANY);
	CHECK("barcopy_open", g);
	CHECK("gdr_pin_buffer_v2", !gdr_pin_buffer_v2(g, (uintptr_t)mem, 1 << 20, 0, &mh));
	CHECK("gdr_get_info", !gdr_get_info(g, mh, &info));
	CHECK("gdr_map", !gdr_map(g, mh, &map, info.mapped_size));
	map = (char *)map + ((uintptr_t)mem - info.va);
	CHECK("gdr_copy_to_mapping", !gdr_copy_to_mapping(mh, map, out, sizeof(out)));
	CHECK("gdr_copy_from_mapping", !gdr_copy_from_mapping(mh, in, map, sizeof(in)));
	CHECK("gdr_close", !gdr_close(g));
	if (memcmp(in, out, sizeof(in))) {
		fprintf(stderr, "client: other bytes\n");
		return 1;
	}
	printf("client: level %d.%d, %s\n", major, minor, in);
	return 0;
}
