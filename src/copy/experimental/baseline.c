// SPDX-License-Identifier: MIT
/*
 * Experimental: the way that software has copied through the BAR so far, for comparison only.
 * MOVDIR64B stores, 32-byte streaming loads, naturally aligned pieces at both edges, and an SFENCE
 * at the end of either direction. Its reads return stale data: see fence.h. With the plan's own
 * fences around it, it is merely slow.
 */
#include <immintrin.h>

#include "../engine.h"
#include "../word.h"

/* One naturally aligned piece, the largest that fits, up to 8 bytes; returns its size. */
static size_t piece(uint8_t *d, const uint8_t *s, uintptr_t map, size_t n)
{
	if (!(map & 7) && n >= 8) {
		__asm__ volatile("movq %1, %%rax; movq %%rax, %0"
				 : "=m"(*(uint8_t(*)[8])d)
				 : "m"(*(const uint8_t(*)[8])s)
				 : "rax");
		return 8;
	}
	if (!(map & 3) && n >= 4) {
		__asm__ volatile("movl %1, %%eax; movl %%eax, %0"
				 : "=m"(*(uint8_t(*)[4])d)
				 : "m"(*(const uint8_t(*)[4])s)
				 : "rax");
		return 4;
	}
	if (!(map & 1) && n >= 2) {
		__asm__ volatile("movw %1, %%ax; movw %%ax, %0"
				 : "=m"(*(uint8_t(*)[2])d)
				 : "m"(*(const uint8_t(*)[2])s)
				 : "rax");
		return 2;
	}
	__asm__ volatile("movb %1, %%al; movb %%al, %0" : "=m"(*d) : "m"(*s) : "rax");
	return 1;
}

void gdri_baseline_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	while (n) {
		size_t step;

		if (!((uintptr_t)d & (GDRI_LINE - 1)) && n >= GDRI_LINE) {
			step = n & ~(GDRI_LINE - 1);
			gdri_movdir64b_to(d, s, step);
		} else {
			step = piece(d, s, (uintptr_t)d, n);
		}
		d += step, s += step, n -= step;
	}
	__asm__ volatile("sfence" ::: "memory");
}

void gdri_baseline_from(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	while (n) {
		size_t step;

		if (!((uintptr_t)s & 31) && n >= 32) {
			__m256i v;

			__asm__ volatile("vmovntdqa %1, %0" : "=x"(v) : "m"(*(const __m256i *)s));
			_mm256_storeu_si256((__m256i *)d, v);
			step = 32;
		} else {
			step = piece(d, s, (uintptr_t)s, n);
		}
		d += step, s += step, n -= step;
	}
	__asm__ volatile("sfence" ::: "memory");
}
