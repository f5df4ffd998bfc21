// SPDX-License-Identifier: MIT
/*
 * SSE2: what every x86-64 has. Stores only: its loads of a write-combined mapping are one bus read for
 * 16 bytes, and a CPU without SSE4.1, which would need them, is no host of any GPU that is served.
 */
#include <emmintrin.h>

#define VEC		__m128i
#define LOOP_TO		gdri_sse2_to
#define LOOP_LINES	2
#define STORE_MAP(p, v) __asm__ volatile("movdqa %1, %0" : "=m"(*(VEC *)(p)) : "x"(v))
#define LOAD_HOST(p)	_mm_loadu_si128((const void *)(p))

#include "loop.h"
