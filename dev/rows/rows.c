// SPDX-License-Identifier: MIT
/* See rows.h. */
#include "rows.h"

#include <string.h>

#include "copy/word.h"

static const struct gdri_copy_row rows[] = {
#if defined(__x86_64__)
	/* Weakly ordered on every memory type, where a cached mapping's fences assume plain stores. */
	{ "movdir64b", GDRI_CPU_MOVDIR64B, GDRI_LINE, GDRI_ROW_UNCACHED, row_movdir64b_to, NULL,
	  NULL },
	{ "baseline", GDRI_CPU_AVX2 | GDRI_CPU_MOVDIR64B, 1, GDRI_ROW_UNCACHED, row_baseline_to,
	  row_baseline_from, NULL },
#elif defined(__aarch64__)
	{ "ls64", GDRI_CPU_LS64, GDRI_LINE, GDRI_ROW_UNCACHED, row_ls64_to, row_ls64_from, NULL },
#endif
};

const struct gdri_copy_row *row_at(size_t n)
{
	if (n < gdri_copy_row_count)
		return &gdri_copy_rows[n];
	n -= gdri_copy_row_count;
	return n < sizeof(rows) / sizeof(rows[0]) ? &rows[n] : NULL;
}

const struct gdri_copy_row *row_named(const char *name)
{
	const struct gdri_copy_row *row;

	for (size_t n = 0; (row = row_at(n)) && strcmp(row->name, name); n++)
		;
	return row;
}
