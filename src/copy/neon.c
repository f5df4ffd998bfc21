// SPDX-License-Identifier: MIT
/*
 * NEON: 16 bytes at a time. Loads and stores of one line are issued back to back, so that the
 * write buffer can gather them.
 */
#include <arm_neon.h>

#define VEC		 uint8x16_t
#define LOOP_TO		 gdri_neon_to
#define LOOP_FROM	 gdri_neon_from
#define LOOP_GATHER	 gdri_neon_lines
#define LOOP_LINES	 4
#define LOAD_MAP(v, p)	 __asm__ volatile("ldr %q0, %1" : "=w"(v) : "m"(*(const uint8_t(*)[16])(p)))
#define STORE_MAP(p, v)	 __asm__ volatile("str %q1, %0" : "=m"(*(uint8_t(*)[16])(p)) : "w"(v))
#define LOAD_HOST(p)	 vld1q_u8(p)
#define STORE_HOST(p, v) vst1q_u8((p), (v))

#include "loop.h"
