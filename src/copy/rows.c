// SPDX-License-Identifier: MIT
/*
 * Every way of moving bytes that the library uses, as one table. A new instruction set is a row here,
 * two names in rows.h, a short file, and its flags in copy.mk. Which row is used where: tune.h.
 */
#include "rows.h"

#include <string.h>

#include "word.h"

const struct gdri_copy_row gdri_copy_rows[] = {
/* name, needs, block, flags, to, from */
#if defined(__x86_64__)
	{ "avx512", GDRI_CPU_AVX512, GDRI_LINE, 0, gdri_avx512_to, gdri_avx512_from },
	{ "avx2", GDRI_CPU_AVX2, GDRI_LINE, 0, gdri_avx2_to, gdri_avx2_from },
	{ "sse4.1", GDRI_CPU_SSE41, GDRI_LINE, 0, gdri_sse41_to, gdri_sse41_from },
	{ "sse2", GDRI_CPU_SSE2, GDRI_LINE, 0, gdri_sse2_to, NULL },
#elif defined(__aarch64__)
	{ "neon", GDRI_CPU_NEON, GDRI_LINE, 0, gdri_neon_to, gdri_neon_from },
#endif
	{ "ref", 0, 1, GDRI_ROW_ANY_MEMORY, gdri_ref_to, gdri_ref_from },
};
const size_t gdri_copy_row_count = sizeof(gdri_copy_rows) / sizeof(gdri_copy_rows[0]);

const struct gdri_copy_row *gdri_copy_row_find(const char *name)
{
	for (size_t i = 0; i < gdri_copy_row_count; i++)
		if (strcmp(gdri_copy_rows[i].name, name) == 0)
			return &gdri_copy_rows[i];
	return NULL;
}
