// SPDX-License-Identifier: MIT
/*
 * AVX2: 32-byte streaming loads, two a line; 32-byte stores. Correct only behind the fence of
 * gdri_fence_before_read(): fence.h has the counts.
 */
#include <immintrin.h>

#define VEC		 __m256i
#define LOOP_TO		 gdri_avx2_to
#define LOOP_FROM	 gdri_avx2_from
#define LOOP_GATHER	 gdri_avx2_lines
#define LOOP_LINES	 4
#define LOAD_MAP(v, p)	 __asm__ volatile("vmovntdqa %1, %0" : "=x"(v) : "m"(*(const VEC *)(p)))
#define STORE_MAP(p, v)	 __asm__ volatile("vmovdqa %1, %0" : "=m"(*(VEC *)(p)) : "x"(v))
#define LOAD_HOST(p)	 _mm256_loadu_si256((const void *)(p))
#define STORE_HOST(p, v) _mm256_storeu_si256((void *)(p), (v))

#include "loop.h"
