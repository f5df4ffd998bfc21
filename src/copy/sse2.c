// SPDX-License-Identifier: MIT
/*
 * SSE2: what every x86-64 has. Its loads of a write-combined mapping are one bus read per 16 bytes.
 */
#include <emmintrin.h>

#define VEC		 __m128i
#define LOOP_TO		 gdri_sse2_to
#define LOOP_FROM	 gdri_sse2_from
#define LOOP_LINES	 2
#define LOAD_MAP(v, p)	 __asm__ volatile("movdqa %1, %0" : "=x"(v) : "m"(*(const VEC *)(p)))
#define STORE_MAP(p, v)	 __asm__ volatile("movdqa %1, %0" : "=m"(*(VEC *)(p)) : "x"(v))
#define LOAD_HOST(p)	 _mm_loadu_si128((const void *)(p))
#define STORE_HOST(p, v) _mm_storeu_si128((void *)(p), (v))

#include "loop.h"
