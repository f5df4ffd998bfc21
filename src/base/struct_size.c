/* SPDX-License-Identifier: MIT */
/* See struct_size.h. */
#include "base/struct_size.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

enum { SIZE_MOST = 4096 };

int gdri_struct_check(const void *theirs, size_t first)
{
	size_t given = *(const size_t *)theirs;

	if (given < first || given > SIZE_MOST)
		return gdri_fail(EINVAL,
				 "struct_size is %zu; it has to be sizeof the struct, %zu to %d",
				 given, first, SIZE_MOST);
	return 0;
}

int gdri_struct_in(void *ours, size_t size, size_t first, const void *theirs)
{
	size_t given = *(const size_t *)theirs;
	int rc = gdri_struct_check(theirs, first);

	for (size_t i = size; !rc && i < given; i++)
		if (((const char *)theirs)[i])
			rc = gdri_fail(EINVAL,
				       "byte %zu of the struct is not 0, and lies behind the last "
				       "member that this library knows",
				       i);
	if (rc)
		return rc;
	memset(ours, 0, size);
	memcpy(ours, theirs, given < size ? given : size);
	return 0;
}

int gdri_struct_out(const void *ours, size_t size, size_t first, void *theirs)
{
	size_t given = *(const size_t *)theirs, head = sizeof(given);
	int rc = gdri_struct_check(theirs, first);

	if (rc)
		return rc;
	memcpy((char *)theirs + head, (const char *)ours + head,
	       (given < size ? given : size) - head);
	if (given > size)
		memset((char *)theirs + size, 0, given - size);
	return 0;
}
