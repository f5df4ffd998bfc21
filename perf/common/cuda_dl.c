/* SPDX-License-Identifier: MIT */
/* libcuda.so.1 by dlopen; see cuda_dl.h. It must not know libgdrapi. */
#include "cuda_dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "exit.h"

struct cuda_dl cu;

const char *cuda_dl_advice(void)
{
	static char advice[PATH_MAX + 64];
	char dir[PATH_MAX], file[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	if (n <= 0)
		return "";
	dir[n] = '\0';
	*strrchr(dir, '/') = '\0';
	snprintf(file, sizeof(file), "%s/sim/libcuda.so.1", dir);
	if (access(file, R_OK))
		return "";
	snprintf(advice, sizeof(advice), ", or run on the stand-in with --sim %s/sim", dir);
	return advice;
}

static const char advice[] = "install the NVIDIA driver, in a container give it the GPU";

static bool stand_in;
static char loaded_from[4096] = "libcuda.so.1";

void cuda_dl_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	Dl_info where;

	if (!lib) {
		const char *why = dlerror();

		/* where the file is simply not there, the loader's sentence adds nothing */
		if (!why || strstr(why, "libcuda.so.1: cannot open shared object file: No such"))
			tool_cannot("libcuda.so.1 not found; %s%s", advice, cuda_dl_advice());
		tool_cannot("libcuda.so.1 cannot be loaded (%s); %s%s", why, advice,
			    cuda_dl_advice());
	}

	/* ISO C has no conversion from an object pointer to a function's: copy the bytes */
#define CUDA_DL_LOOK_UP(field, symbol)            \
	{                                         \
		void *p = dlsym(lib, #symbol);    \
		memcpy(&cu.field, &p, sizeof(p)); \
	}
#define CUDA_DL_DEMAND(field, symbol)  \
	CUDA_DL_LOOK_UP(field, symbol) \
	if (!cu.field)                 \
		tool_cannot("%s has no %s; a newer NVIDIA driver is needed", loaded_from, #symbol);

	{
		void *p = dlsym(lib, "cuInit");

		if (p && dladdr(p, &where) && where.dli_fname)
			snprintf(loaded_from, sizeof(loaded_from), "%s", where.dli_fname);
	}
	stand_in = dlsym(lib, "gdrsim_calls") != NULL;
	CUDA_DL_REQUIRED(CUDA_DL_DEMAND)
	CUDA_DL_OPTIONAL(CUDA_DL_LOOK_UP)
#undef CUDA_DL_DEMAND
#undef CUDA_DL_LOOK_UP
}

const char *cuda_dl_path(void)
{
	return loaded_from;
}

bool cuda_dl_is_stand_in(void)
{
	return stand_in;
}

const char *cuda_error_text(CUresult error)
{
	static char text[256];
	const char *name = NULL, *words = NULL;

	if (cu.GetErrorName(error, &name) != CUDA_SUCCESS || !name)
		name = "CUDA error";
	if (cu.GetErrorString(error, &words) != CUDA_SUCCESS || !words)
		words = "no text";
	snprintf(text, sizeof(text), "%s (%d: %s)", name, (int)error, words);
	return text;
}

int cuda_errno(CUresult error)
{
	switch (error) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_NOT_SUPPORTED:
		return ENOTSUP;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return ENOMEM;
	case CUDA_ERROR_NOT_PERMITTED:
		return EPERM;
	case CUDA_ERROR_INVALID_VALUE:
		return EINVAL;
	default:
		return EIO;
	}
}

void cuda_must(CUresult error, const char *call)
{
	if (error != CUDA_SUCCESS)
		tool_fail("%s: %s", call, cuda_error_text(error));
}
