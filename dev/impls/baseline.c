// SPDX-License-Identifier: MIT
/*
 * Copies as GDRCopy 2.6 does, for comparison. Every piece is naturally aligned on the mapping's side and as large
 * as possible: words of up to 8 bytes up to 16-byte alignment, 16 and 32 bytes up to a line, then MOVDIR64B
 * stores or 32-byte streaming loads, then the same downwards; an SFENCE ends either direction. Its reads return
 * stale data (fence.h) unless the plan's fences are around it.
 */
#include <immintrin.h>

#include "copy/word.h"
#include "impls.h"

/* One piece of up to 8 bytes on the mapping's side at `map`; returns its size. */
static size_t word(uint8_t *d, const uint8_t *s, uintptr_t map, size_t n)
{
	if (!(map & 7) && n >= 8) {
		gdri_store64(d, gdri_load64(s));
		return 8;
	}
	if (!(map & 3) && n >= 4) {
		gdri_store32(d, gdri_load32(s));
		return 4;
	}
	if (!(map & 1) && n >= 2) {
		gdri_store16(d, gdri_load16(s));
		return 2;
	}
	gdri_store8(d, gdri_load8(s));
	return 1;
}

static inline void store16(uint8_t *d, const uint8_t *s)
{
	__m128i v = _mm_loadu_si128((const __m128i *)s);

	__asm__ volatile("vmovdqa %1, %0" : "=m"(*(__m128i *)d) : "x"(v));
}

static inline void store32(uint8_t *d, const uint8_t *s)
{
	__m256i v = _mm256_loadu_si256((const __m256i *)s);

	__asm__ volatile("vmovdqa %1, %0" : "=m"(*(__m256i *)d) : "x"(v));
}

static inline void load16(uint8_t *d, const uint8_t *s)
{
	__m128i v;

	__asm__ volatile("vmovntdqa %1, %0" : "=x"(v) : "m"(*(const __m128i *)s));
	_mm_storeu_si128((__m128i *)d, v);
}

static inline void load32(uint8_t *d, const uint8_t *s)
{
	__m256i v;

	__asm__ volatile("vmovntdqa %1, %0" : "=x"(v) : "m"(*(const __m256i *)s));
	_mm256_storeu_si256((__m256i *)d, v);
}

static inline void sfence(void)
{
	__asm__ volatile("sfence" ::: "memory");
}

void impl_baseline_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	while (n) {
		uintptr_t map = (uintptr_t)d;
		size_t step;

		if (!(map & 63) && n >= 64)
			impl_movdir64b_to(d, s, step = n & ~(size_t)63);
		else if (!(map & 31) && n >= 32)
			store32(d, s), step = 32;
		else if (!(map & 15) && n >= 16)
			store16(d, s), step = 16;
		else
			step = word(d, s, map, n);
		d += step, s += step, n -= step;
	}
	sfence();
}

void impl_baseline_from(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	while (n) {
		uintptr_t map = (uintptr_t)s;
		size_t step;

		if (!(map & 31) && n >= 32)
			for (step = 0; n - step >= 32; step += 32)
				load32(d + step, s + step);
		else if (!(map & 15) && n >= 16)
			load16(d, s), step = 16;
		else
			step = word(d, s, map, n);
		d += step, s += step, n -= step;
	}
	sfence();
}
