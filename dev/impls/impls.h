/* SPDX-License-Identifier: MIT */
/*
 * Implementations that the library does not have: GDRCopy 2.6's, one that lost, one that no machine at hand can
 * run. For the tools that compare and for the tests.
 */
#ifndef DEV_IMPLS_H
#define DEV_IMPLS_H

#include "copy/impl.h"

/* The n-th implementation: the library's, then these; NULL after the last. */
const struct gdri_copy_impl *impl_at(size_t n);

/* NULL if there is no implementation of that name. */
const struct gdri_copy_impl *impl_named(const char *name);

#if defined(__x86_64__)
gdri_move_fn impl_movdir64b_to;
gdri_move_fn impl_baseline_to, impl_baseline_from;
#elif defined(__aarch64__)
gdri_move_fn impl_ls64_to, impl_ls64_from;
#endif

#endif
