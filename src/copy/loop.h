/* SPDX-License-Identifier: MIT */
/*
 * The loops of the vector implementations. moves.c includes this once for each instruction set,
 * after defining:
 *
 *   LOOP(name)    the functions' names: `to`, and with LOOP_LOAD `from` and `lines`
 *   LOOP_TARGET   the attribute that allows the instruction set
 *   LOOP_VEC      bytes of a vector
 *   LOOP_LOAD     the aligned streaming load of the mapping, LOOP_STORE the aligned store
 *   LOOP_LINES    lines of one step of `from`, whose loads all come before its first store: as
 *                 many as registers hold. More gain nothing: the line buffers limit the speed.
 *
 * The mapping's side is asm volatile: never split, merged, repeated, turned into a call of memcpy
 * or moved across another, and no sanitizer objects to the rest of a line. The host's side is C,
 * which sanitizers see.
 */
#ifndef LOOP_VECS
#define LOOP_VECS (GDRI_LINE / LOOP_VEC)
#define HOST(p)	  (*(LOOP(host) *)(uintptr_t)(p))
#define MAP(p)	  (*(LOOP(vec) *)(uintptr_t)(p))
#if defined(__aarch64__)
#define LOAD(v, p)  __asm__ volatile(LOOP_LOAD : "=w"(v) : "m"(MAP(p)))
#define STORE(p, v) __asm__ volatile(LOOP_STORE : "=m"(MAP(p)) : "w"(v))
#else
#define LOAD(v, p)  __asm__ volatile(LOOP_LOAD : "=x"(v) : "m"(MAP(p)))
#define STORE(p, v) __asm__ volatile(LOOP_STORE : "=m"(MAP(p)) : "x"(v))
#endif
#endif

typedef uint8_t LOOP(vec) __attribute__((vector_size(LOOP_VEC), may_alias));
typedef LOOP(vec) LOOP(host) __attribute__((aligned(1)));

LOOP_TARGET
void LOOP(to)(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE) {
		LOOP(vec) v[LOOP_VECS];

		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			v[i] = HOST(s + i * LOOP_VEC);
		GDRI_UNROLL
		for (size_t i = 0; i < LOOP_VECS; i++)
			STORE(d + i * LOOP_VEC, v[i]);
	}
}

#ifdef LOOP_LOAD
/* Loads `lines` lines, then stores them. */
LOOP_TARGET
static inline __attribute__((always_inline)) void LOOP(step)(uint8_t *d, const uint8_t *s,
							     const size_t lines)
{
	LOOP(vec) v[LOOP_LINES * LOOP_VECS];

	GDRI_UNROLL
	for (size_t i = 0; i < lines * LOOP_VECS; i++)
		LOAD(v[i], s + i * LOOP_VEC);
	GDRI_UNROLL
	for (size_t i = 0; i < lines * LOOP_VECS; i++)
		HOST(d + i * LOOP_VEC) = v[i];
}

LOOP_TARGET
void LOOP(from)(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= LOOP_LINES * GDRI_LINE; n -= LOOP_LINES * GDRI_LINE) {
		LOOP(step)(d, s, LOOP_LINES);
		d += LOOP_LINES * GDRI_LINE;
		s += LOOP_LINES * GDRI_LINE;
	}
	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE)
		LOOP(step)(d, s, 1);
}

LOOP_TARGET
void LOOP(lines)(uint8_t *line, const uint8_t *const *at, size_t n)
{
	for (; n; at++, line += GDRI_LINE, n--)
		LOOP(step)(line, *at, 1);
}
#endif

#undef LOOP
#undef LOOP_TARGET
#undef LOOP_VEC
#undef LOOP_LINES
#undef LOOP_LOAD
#undef LOOP_STORE
