/* SPDX-License-Identifier: MIT */
/* See sized.h. */
#include "base/sized.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

static size_t size_of(const void *theirs)
{
	size_t size;

	memcpy(&size, theirs, sizeof(size));
	return size;
}

/* Beyond a page it was never set. */
enum { SIZE_MOST = 4096 };

int gdri_sized_check(const void *theirs, size_t first)
{
	size_t size = size_of(theirs);

	return size < first || size > SIZE_MOST
		       ? gdri_fail(EINVAL, "struct_size is %zu: %zu to %d", size, first, SIZE_MOST)
		       : 0;
}

int gdri_sized_in(void *ours, size_t size, size_t first, const void *theirs)
{
	size_t given = size_of(theirs);
	int rc = gdri_sized_check(theirs, first);

	if (rc)
		return rc;
	for (size_t i = size; i < given; i++)
		if (((const char *)theirs)[i])
			return gdri_fail(EINVAL, "byte %zu of the struct is not known, and not 0",
					 i);
	memset(ours, 0, size);
	memcpy(ours, theirs, given < size ? given : size);
	return 0;
}

int gdri_sized_out(const void *ours, size_t size, size_t first, void *theirs)
{
	size_t given = size_of(theirs), head = sizeof(size_t);
	int rc = gdri_sized_check(theirs, first);

	if (rc)
		return rc;
	memcpy((char *)theirs + head, (const char *)ours + head,
	       (given < size ? given : size) - head);
	if (given > size)
		memset((char *)theirs + size, 0, given - size);
	return 0;
}
