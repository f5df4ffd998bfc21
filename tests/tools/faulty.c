/* SPDX-License-Identifier: MIT */
/*
 * Preloaded under gdrcopy_sanity, it plants one fault of a library or system: a test must find it.
 * FAULT names it: write, read (a wrong byte), dontfork (a child inherits the mapping), leak (a
 * close that closes nothing), unmap (an unmap that leaves the mapping), info (va not rounded), flag
 * (revocation is hidden), child (a child's copies are served), open (a process gets one context),
 * crash, hang.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "barcopy.h"

static int fault_is(const char *name)
{
	const char *set = getenv("FAULT");

	return set && !strcmp(set, name);
}

#define REAL(name)                                     \
	__typeof__(&(name)) real;                      \
	{                                              \
		void *next_ = dlsym(RTLD_NEXT, #name); \
		if (!next_)                            \
			abort();                       \
		memcpy(&real, &next_, sizeof(next_));  \
	}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	REAL(gdr_copy_to_mapping)
	int rc = real(handle, map_d_ptr, h_ptr, size);

	if (!rc && size > 5 && fault_is("write"))
		((volatile unsigned char *)map_d_ptr)[5] ^= 1;
	return rc == EACCES && fault_is("child") ? 0 : rc;
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	REAL(gdr_copy_from_mapping)
	int rc = real(handle, h_ptr, map_d_ptr, size);

	if (!rc && size > 5 && fault_is("read"))
		((unsigned char *)h_ptr)[5] ^= 1;
	return rc == EACCES && fault_is("child") ? 0 : rc;
}

gdr_t barcopy_open(unsigned int flags)
{
	static int opened;
	REAL(barcopy_open)

	if (fault_is("open") && opened++) {
		errno = ENODEV;
		return NULL;
	}
	return real(flags);
}

int gdr_close(gdr_t g)
{
	REAL(gdr_close)
	return fault_is("leak") ? 0 : real(g);
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
	REAL(gdr_unmap)
	return fault_is("unmap") ? 0 : real(g, handle, va, size);
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
	REAL(gdr_get_info_v2)
	int rc = real(g, handle, info);

	if (!rc && fault_is("info"))
		info->va += 4096;
	return rc;
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
	REAL(gdr_get_callback_flag)
	int rc = real(g, handle, flag);

	if (!rc && fault_is("flag"))
		*flag = !*flag;
	return rc;
}

int barcopy_flush(gdr_mh_t handle)
{
	REAL(barcopy_flush)
	if (fault_is("crash"))
		raise(SIGSEGV);
	while (fault_is("hang"))
		sleep(1);
	return real(handle);
}

int madvise(void *addr, size_t length, int advice)
{
	REAL(madvise)
	if (advice == MADV_DONTFORK && fault_is("dontfork"))
		return 0;
	return real(addr, length, advice);
}
