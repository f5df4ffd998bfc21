// SPDX-License-Identifier: MIT
/*
 * SSE4.1: MOVNTDQA, 16 bytes at a time: the first of a line fetches all 64, the rest are served
 * from the line buffer.
 */
#include <smmintrin.h>

#define VEC		 __m128i
#define LOOP_TO		 gdri_sse41_to
#define LOOP_FROM	 gdri_sse41_from
#define LOOP_GATHER	 gdri_sse41_lines
#define LOOP_LINES	 2
#define LOAD_MAP(v, p)	 __asm__ volatile("movntdqa %1, %0" : "=x"(v) : "m"(*(const VEC *)(p)))
#define STORE_MAP(p, v)	 __asm__ volatile("movdqa %1, %0" : "=m"(*(VEC *)(p)) : "x"(v))
#define LOAD_HOST(p)	 _mm_loadu_si128((const void *)(p))
#define STORE_HOST(p, v) _mm_storeu_si128((void *)(p), (v))

#include "loop.h"
