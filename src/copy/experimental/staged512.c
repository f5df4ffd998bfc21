// SPDX-License-Identifier: MIT
/*
 * Experimental: writes of more than the caches hold, in two phases. Loads of the source and
 * write-combining share the line buffers, and above 4 MiB the source comes from memory. Here 4 KiB
 * of source are first touched, a load a line, which keeps all line buffers busy with loads; then
 * they are written from the first-level cache, which keeps all busy with stores.
 */
#include <immintrin.h>

#include "../engine.h"
#include "../word.h"

#define STAGE ((size_t)4096)

void gdri_staged512_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	while (n) {
		size_t step = n < STAGE ? n : STAGE;

		for (size_t i = 0; i < step; i += GDRI_LINE)
			__asm__ volatile("" ::"r"(s[i]));
		gdri_avx512_to(d, s, step);
		d += step, s += step, n -= step;
	}
}
