// SPDX-License-Identifier: MIT
/*
 * AVX-512: a whole line per load and per store. (Some processors do either in two halves.)
 */
#include <immintrin.h>

#define VEC		 __m512i
#define LOOP_TO		 gdri_avx512_to
#define LOOP_FROM	 gdri_avx512_from
#define LOOP_GATHER	 gdri_avx512_lines
#define LOOP_LINES	 8
#define LOAD_MAP(v, p)	 __asm__ volatile("vmovntdqa %1, %0" : "=v"(v) : "m"(*(const VEC *)(p)))
#define STORE_MAP(p, v)	 __asm__ volatile("vmovdqa64 %1, %0" : "=m"(*(VEC *)(p)) : "v"(v))
#define LOAD_HOST(p)	 _mm512_loadu_si512((const void *)(p))
#define STORE_HOST(p, v) _mm512_storeu_si512((void *)(p), (v))

#include "loop.h"
