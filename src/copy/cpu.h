/* SPDX-License-Identifier: MIT */
/* The CPU features that copies use: those detected, less what GDRCOPY_CPU_MASK takes away. */
#ifndef GDRI_COPY_CPU_H
#define GDRI_COPY_CPU_H

#include <stdint.h>

/* Features; the values are also those of a numeric GDRCOPY_CPU_MASK, so they never change. */
enum gdri_cpu {
	GDRI_CPU_SSE2 = 1u << 0,
	GDRI_CPU_SSE41 = 1u << 1, /* MOVNTDQA, 16 bytes */
	GDRI_CPU_AVX2 = 1u << 2, /* and the OS saves YMM */
	GDRI_CPU_AVX512 = 1u << 3, /* AVX512F, and the OS saves ZMM and masks */
	GDRI_CPU_AVX512_WIDE = 1u << 4, /* 64-byte accesses cost no clock speed: see cpu.c */
	GDRI_CPU_MOVDIR64B = 1u << 5, /* a line stored past the line buffers */
	GDRI_CPU_MOVDIRI = 1u << 6, /* a word stored past the line buffers */

	GDRI_CPU_NEON = 1u << 16,
};
#define GDRI_CPU_ALL 0xffffffffu

/* The features that may be used: the CPU's own, less those masked out. Thread-safe. */
uint32_t gdri_cpu_features(void);

/* The features of the CPU itself. */
uint32_t gdri_cpu_detect(void);

/*
 * The value of GDRCOPY_CPU_MASK as a set of features that may be used: bits of enum gdri_cpu (0x7,
 * 7), these only (sse2,sse4.1), all but these (-avx512,-avx2), `none` or `all`; an empty text is
 * `all`. Returns 0 and the set; -EINVAL for anything else, *mask untouched.
 */
int gdri_cpu_parse_mask(const char *text, uint32_t *mask);

#if defined(__x86_64__)
/* The registers that detection reads; tests make their own. */
struct gdri_x86_id {
	uint32_t max_leaf;
	uint32_t leaf1_ecx, leaf1_edx;
	uint32_t leaf7_ebx, leaf7_ecx;
	uint64_t xcr0; /* read only when OSXSAVE is set, 0 otherwise */
};
uint32_t gdri_x86_features(const struct gdri_x86_id *id);
#elif defined(__aarch64__)
/* The word of the auxiliary vector that detection reads; tests make their own. */
uint32_t gdri_arm64_features(unsigned long hwcap);
#endif

#endif
