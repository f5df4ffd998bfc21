/* SPDX-License-Identifier: MIT */
/*
 * Structs of the interface that grow at their end: they begin with their size_t struct_size, which is
 * the caller's sizeof. An older program's is smaller than ours, a newer one's larger, a page at most. It knows nothing
 * of what is in them.
 */
#ifndef GDRI_SIZED_H
#define GDRI_SIZED_H

#include <stddef.h>

/*
 * What a caller gave, into ours of `size` bytes: what an older one does not have is 0, and what a newer
 * one has beyond ours must be. `first` is the size that was published first. 0 or -EINVAL.
 */
int gdri_sized_in(void *ours, size_t size, size_t first, const void *theirs);

/* Ours to a caller, as much as fits; what a newer one has beyond ours becomes 0. Likewise. */
int gdri_sized_out(const void *ours, size_t size, size_t first, void *theirs);

/* Could it be given out? For calls that take long. Likewise. */
int gdri_sized_check(const void *theirs, size_t first);

#endif
