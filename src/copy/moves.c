// SPDX-License-Identifier: MIT
/* The implementations' functions: the portable ones, and those that loop.h defines. */
#include "impl.h"
#include "word.h"

/* Naturally aligned words of at most 8 bytes: the only accesses that DEVICE mappings allow. */
void gdri_ref_to(void *dst, const void *src, size_t n)
{
	gdri_store_exact(dst, src, n);
}

/* Reads the aligned 8-byte words around the range, each once. */
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
		gdri_store_exact(d, (const uint8_t *)&word, part);
		d += part, n -= part, skip = 0;
	}
}

#if defined(__x86_64__)

/* A whole line per load and per store; some CPUs do either in two halves. */
#define LOOP(name)  gdri_avx512_##name
#define LOOP_TARGET __attribute__((target("avx512f")))
#define LOOP_VEC    64
#define LOOP_LINES  8
#define LOOP_LOAD   "vmovntdqa %1, %0"
#define LOOP_STORE  "vmovdqa64 %1, %0"
#include "loop.h"

#define LOOP(name)  gdri_avx2_##name
#define LOOP_TARGET __attribute__((target("avx2")))
#define LOOP_VEC    32
#define LOOP_LINES  4
#define LOOP_LOAD   "vmovntdqa %1, %0"
#define LOOP_STORE  "vmovdqa %1, %0"
#include "loop.h"

/* A line's first streaming load fetches all 64 bytes; the line buffer serves the others. */
#define LOOP(name)  gdri_sse41_##name
#define LOOP_TARGET __attribute__((target("sse4.1")))
#define LOOP_VEC    16
#define LOOP_LINES  2
#define LOOP_LOAD   "movntdqa %1, %0"
#define LOOP_STORE  "movdqa %1, %0"
#include "loop.h"

/* Stores only: a plain load of a write-combined mapping is one bus read for 16 bytes. */
#define LOOP(name) gdri_sse2_##name
#define LOOP_TARGET
#define LOOP_VEC   16
#define LOOP_STORE "movdqa %1, %0"
#include "loop.h"

#elif defined(__aarch64__)

/* Stores of one line are issued back to back, so that the write buffer can gather them. */
#define LOOP(name) gdri_neon_##name
#define LOOP_TARGET
#define LOOP_VEC   16
#define LOOP_LINES 4
#define LOOP_LOAD  "ldr %q0, %1"
#define LOOP_STORE "str %q1, %0"
#include "loop.h"

#endif
