// SPDX-License-Identifier: MIT
/*
 * The portable implementation: naturally aligned words of at most 8 bytes in plain C, for CPUs without any
 * of the others, and for DEVICE mappings, which allow no other accesses.
 */
#include "impl.h"
#include "word.h"

void gdri_ref_to(void *dst, const void *src, size_t n)
{
	gdri_store_exact(dst, src, n);
}

/*
 * Reads the aligned 8-byte words around the range, each once.
 */
GDRI_WHOLE_LINES
void gdri_ref_from(void *dst, const void *src, size_t n)
{
	const uint8_t *s = src;
	size_t skip = (uintptr_t)s & 7;
	uint8_t *d = dst;

	for (s -= skip; n; s += 8) {
		uint64_t word = gdri_load64(s);
		size_t part = 8 - skip < n ? 8 - skip : n;

		word >>= 8 * skip;
		if (part == 8 && !((uintptr_t)d & 7))
			gdri_store64(d, word);
		else
			gdri_store_exact(d, (const uint8_t *)&word, part);
		d += part, n -= part, skip = 0;
	}
}
