// SPDX-License-Identifier: MIT
/*
 * Experimental: 64-byte loads that are not streaming (VMOVDQA64). A load of a whole line needs no
 * line buffer to be served from; is it the streaming that costs or helps?
 */
#include <immintrin.h>

#define VEC		 __m512i
#define LOOP_FROM	 gdri_plain512_from
#define LOOP_LINES	 8
#define LOAD_MAP(v, p)	 __asm__ volatile("vmovdqa64 %1, %0" : "=v"(v) : "m"(*(const VEC *)(p)))
#define STORE_HOST(p, v) _mm512_storeu_si512((void *)(p), (v))

#include "../loop.h"
