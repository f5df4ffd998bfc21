/* SPDX-License-Identifier: MIT */
/*
 * Implementations that the library does not have, for the tools that compare and for the tests:
 * GDRCopy 2.6's, and MOVDIR64B, which is slower. Both are x86's.
 */
#ifndef DEV_IMPLS_H
#define DEV_IMPLS_H

#include "copy/impl.h"

/* The n-th implementation: the library's, then these; NULL for the number behind the last. */
const struct gdri_copy_impl *impl_at(size_t n);

/* NULL if there is no implementation of that name. */
const struct gdri_copy_impl *impl_named(const char *name);

#endif
