// SPDX-License-Identifier: MIT
/* See impls.h. */
#include "impls.h"

#include <string.h>

#include "copy/word.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))

/* MOVDIR64B: src/copy/plan.c says where it is ahead and where it is not. */
static void movdir64b_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE)
		__asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x3e" /* MOVDIR64B (%rsi), %rdi */
				 :
				 : "S"(s), "D"(d)
				 : "memory");
}

/*
 * GDRCopy 2.6's copies. Every piece is naturally aligned on the mapping's side and as large as
 * possible: words of up to 8 bytes up to 16-byte alignment, 16 and 32 bytes up to a line, then
 * MOVDIR64B stores or 32-byte streaming loads, then the same downwards. An SFENCE ends either
 * direction, so reads return stale data (fence.h) unless the plan's fences are around them.
 */

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

TARGET
static void baseline_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	while (n) {
		uintptr_t map = (uintptr_t)d;
		size_t step;

		if (!(map & 63) && n >= 64)
			movdir64b_to(d, s, step = n & ~(size_t)63);
		else if (!(map & 31) && n >= 32)
			_mm256_store_si256((void *)d, _mm256_loadu_si256((const void *)s)),
				step = 32;
		else if (!(map & 15) && n >= 16)
			_mm_store_si128((void *)d, _mm_loadu_si128((const void *)s)), step = 16;
		else
			step = word(d, s, map, n);
		d += step, s += step, n -= step;
	}
	_mm_sfence();
}

TARGET
static void baseline_from(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	while (n) {
		uintptr_t map = (uintptr_t)s;
		size_t step;

		if (!(map & 31) && n >= 32)
			for (step = 0; n - step >= 32; step += 32)
				_mm256_storeu_si256(
					(void *)(d + step),
					_mm256_stream_load_si256((const void *)(s + step)));
		else if (!(map & 15) && n >= 16)
			_mm_storeu_si128((void *)d, _mm_stream_load_si128((void *)(uintptr_t)s)),
				step = 16;
		else
			step = word(d, s, map, n);
		d += step, s += step, n -= step;
	}
	_mm_sfence();
}

#endif

static const struct gdri_copy_impl impls[] = {
#if defined(__x86_64__)
	/* Weakly ordered on cacheable memory too, where the fences assume plain stores. */
	{ "movdir64b", GDRI_CPU_MOVDIR64B, GDRI_LINE, GDRI_IMPL_UNCACHED, movdir64b_to, NULL,
	  NULL },
	{ "baseline", GDRI_CPU_AVX2 | GDRI_CPU_MOVDIR64B, 1, GDRI_IMPL_UNCACHED, baseline_to,
	  baseline_from, NULL },
#endif
	{ .name = NULL }, /* the end */
};

const struct gdri_copy_impl *impl_at(size_t n)
{
	if (n < gdri_copy_impl_count)
		return &gdri_copy_impls[n];
	n -= gdri_copy_impl_count;
	return impls[n].name ? &impls[n] : NULL;
}

const struct gdri_copy_impl *impl_named(const char *name)
{
	const struct gdri_copy_impl *impl;

	for (size_t n = 0; (impl = impl_at(n)) && strcmp(impl->name, name); n++)
		;
	return impl;
}
