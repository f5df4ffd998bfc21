/* SPDX-License-Identifier: MIT */
/*
 * The loops of the vector implementations, included once by each instruction set's file, which has defined:
 *
 *   LOOP_TO, LOOP_FROM, LOOP_GATHER    names of the functions to make; what is left out is not made
 *   VEC                   a vector type that GCC gives may_alias, as all of <immintrin.h>
 *   LOAD_MAP(v, p)        v = the vector at p, aligned, by the instruction set's streaming load
 *   STORE_MAP(p, v)       the same, storing
 *   LOAD_HOST(p)          an unaligned load, any way the compiler likes
 *   STORE_HOST(p, v)      an unaligned store
 *
 * The mapping's side is asm volatile: never split, merged, repeated, turned into a call of memcpy or moved
 * across another, and no sanitizer objects to the rest of a line. The host's side is C, which sanitizers see.
 *
 * A step is LOOP_LINES lines, whose loads all come before its first store. Longer steps gain nothing: the
 * number of line buffers limits the speed.
 */
#include <stddef.h>
#include <stdint.h>

#include "impl.h"
#include "word.h"

#define LOOP_VECS (GDRI_LINE / sizeof(VEC))

/* Vectors of one step: all of them have to fit into registers. */
#ifndef LOOP_LINES
#define LOOP_LINES 2
#endif

#ifdef LOOP_TO
void LOOP_TO(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE) {
		VEC v[LOOP_VECS];

		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			v[i] = LOAD_HOST(s + i * sizeof(VEC));
		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			STORE_MAP(d + i * sizeof(VEC), v[i]);
	}
}
#endif

#ifdef LOOP_FROM
void LOOP_FROM(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= LOOP_LINES * GDRI_LINE; n -= LOOP_LINES * GDRI_LINE) {
		VEC v[LOOP_LINES * LOOP_VECS];

		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_LINES * LOOP_VECS; i++)
			LOAD_MAP(v[i], s + i * sizeof(VEC));
		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_LINES * LOOP_VECS; i++)
			STORE_HOST(d + i * sizeof(VEC), v[i]);
		d += LOOP_LINES * GDRI_LINE;
		s += LOOP_LINES * GDRI_LINE;
	}
	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE) {
		VEC v[LOOP_VECS];

		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			LOAD_MAP(v[i], s + i * sizeof(VEC));
		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			STORE_HOST(d + i * sizeof(VEC), v[i]);
	}
}
#endif

#ifdef LOOP_GATHER
void LOOP_GATHER(uint8_t *line, const uint8_t *const *at, size_t n)
{
	for (; n; at++, line += GDRI_LINE, n--) {
		VEC v[LOOP_VECS];

		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			LOAD_MAP(v[i], *at + i * sizeof(VEC));
		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			STORE_HOST(line + i * sizeof(VEC), v[i]);
	}
}
#endif
