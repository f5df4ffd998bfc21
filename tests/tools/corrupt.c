/* SPDX-License-Identifier: MIT */
/*
 * Preloaded under a tool, it spoils the copies of libgdrapi: the tool must notice. The environment
 * names the fault: CORRUPT=to|from, CORRUPT_BYTE=offset of the byte that is flipped in each copy
 * that has it; CORRUPT=to-outside writes the byte behind the range, CORRUPT=error makes copies
 * fail, CORRUPT=drop loses what barcopy_put32() writes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "barcopy.h"

static int mode_is(const char *mode)
{
	const char *set = getenv("CORRUPT");

	return set && !strcmp(set, mode);
}

static size_t the_byte(void)
{
	const char *set = getenv("CORRUPT_BYTE");

	return set ? strtoul(set, NULL, 0) : 0;
}

static void *next(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort();
	return p;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	int (*real)(gdr_mh_t, void *, const void *, size_t);
	void *p = next("gdr_copy_to_mapping");
	volatile unsigned char *at = map_d_ptr;
	int rc;

	if (mode_is("error"))
		return EINVAL;
	memcpy(&real, &p, sizeof(p));
	rc = real(handle, map_d_ptr, h_ptr, size);
	if (mode_is("to") && the_byte() < size)
		at[the_byte()] = (unsigned char)~((const unsigned char *)h_ptr)[the_byte()];
	if (mode_is("to-outside"))
		at[size] = 0, at[size] = 255;
	return rc;
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	int (*real)(gdr_mh_t, void *, const void *, size_t);
	void *p = next("gdr_copy_from_mapping");
	unsigned char *host = h_ptr;
	int rc;

	memcpy(&real, &p, sizeof(p));
	rc = real(handle, h_ptr, map_d_ptr, size);
	if (mode_is("from") && the_byte() < size)
		host[the_byte()] = (unsigned char)~host[the_byte()];
	return rc;
}

int barcopy_put32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	int (*real)(gdr_mh_t, void *, uint32_t);
	void *p = next("barcopy_put32");

	if (mode_is("drop"))
		return 0;
	memcpy(&real, &p, sizeof(p));
	return real(handle, map_ptr, value);
}
