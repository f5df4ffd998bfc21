// SPDX-License-Identifier: MIT
/*
 * MOVDIR64B, a 64-byte store that goes out whole and at once. docs/performance.md says where it is
 * ahead and where it is not.
 */
#include "copy/word.h"
#include "rows.h"

void row_movdir64b_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE)
		__asm__ volatile("movdir64b %1, %2"
				 : "=m"(*(uint8_t(*)[64])d)
				 : "m"(*(const uint8_t(*)[64])s), "r"(d));
}
