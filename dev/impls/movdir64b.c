// SPDX-License-Identifier: MIT
/*
 * MOVDIR64B, a 64-byte store that goes out whole and at once. docs/performance.md says where it is
 * ahead and where it is not.
 */
#include "copy/word.h"
#include "impls.h"

void impl_movdir64b_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE)
		__asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x3e" /* MOVDIR64B (%rsi), %rdi */
				 :
				 : "S"(s), "D"(d)
				 : "memory");
}
