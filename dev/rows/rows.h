/* SPDX-License-Identifier: MIT */
/*
 * Rows that the library does not have: the way of old, what lost, what no machine at hand can run. For
 * the tools that compare and for the tests; "a row" of these is one of the library's table or of this.
 */
#ifndef DEV_ROWS_H
#define DEV_ROWS_H

#include "copy/rows.h"

/* The n-th row: the library's, then these; NULL after the last. */
const struct gdri_copy_row *row_at(size_t n);

/* NULL if there is no row of that name. */
const struct gdri_copy_row *row_named(const char *name);

#if defined(__x86_64__)
gdri_move_fn row_movdir64b_to;
gdri_move_fn row_baseline_to, row_baseline_from;
#elif defined(__aarch64__)
gdri_move_fn row_ls64_to, row_ls64_from;
#endif

#endif
