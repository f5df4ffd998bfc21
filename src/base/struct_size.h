/* SPDX-License-Identifier: MIT */
/*
 * Structs of the interface that grow at their end. They begin with size_t struct_size, the caller's
 * sizeof, smaller in an older program, larger in a newer one. `first` is the size that was
 * published first; a size above 4096 bytes was never set. All calls return 0 or -EINVAL.
 */
#ifndef GDRI_STRUCT_SIZE_H
#define GDRI_STRUCT_SIZE_H

#include <stddef.h>

/* Copies the caller's struct. What an older one lacks is 0; what a newer one adds must be 0. */
int gdri_struct_in(void *ours, size_t size, size_t first, const void *theirs);

/* Copies the library's struct to a caller's, as far as both go. The rest becomes 0. */
int gdri_struct_out(const void *ours, size_t size, size_t first, void *theirs);

/* Is theirs->struct_size good? For calls that take long before gdri_struct_out(). */
int gdri_struct_check(const void *theirs, size_t first);

#endif
