/* SPDX-License-Identifier: MIT */
/*
 * Which implementation serves which CPU, and from which size on the copy engine does: every choice that rests
 * on a measurement, beside the measurement. dev/copybench prints such tables, docs/results/ has whole runs.
 *
 * One H200 (PCIe 5.0 x16, driver 580.159.04, 2026-11-22), write-combined BAR1 by the rm backend, under a
 * Sapphire-Rapids-class CPU in a virtual machine; medians of 15 rounds, all fenced:
 *
 *   us                   reads                           writes
 *                 64 B  1 KiB  4 KiB  256 KiB     64 B   1 KiB   4 KiB  64 KiB  4 MiB
 *     avx512      1.17   1.34   4.73      348    0.153   0.184   0.339    3.64    262
 *     avx2        1.21   2.13   7.54      411    0.154   0.186   0.336    3.65    262
 *     sse4.1      1.13   3.01   10.2      487    0.153   0.184   0.337    3.69    262
 *     sse2                                       0.155   0.188   0.338    3.70    260
 *     movdir64b                                  0.153   0.183   0.333    4.18    267
 *
 * Hence reads take the widest loads, and writes take 64-byte stores only where these cost no clock speed.
 * MOVDIR64B is 1 to 2% ahead at 1 and 4 KiB, level at 512 B, 2 and 8 KiB, 10 to 20% behind from 16 KiB on.
 *
 * A CPU is known by its features, not by its model number, which virtual machines invent. The first line of a
 * block that the CPU can do is taken; the last lines are correct everywhere, and within some 20% of the best.
 */
#ifndef GDRI_COPY_TUNE_H
#define GDRI_COPY_TUNE_H

#include "cpu.h"

struct gdri_tune {
	uint32_t when; /* enum gdri_cpu, all of them, besides its own needs */
	const char *impl;
};

/* Out of WC mappings: loads decide. */
static const struct gdri_tune gdri_tune_from_wc[] = {
	{ GDRI_CPU_AVX512_WIDE, "avx512" },
	{ 0, "avx2" },
	{ 0, "sse4.1" },
	{ 0, "neon" },
	{ 0, "ref" },
};

/* Into WC mappings, and both ways for cached ones: stores decide. */
static const struct gdri_tune gdri_tune_to[] = {
	{ GDRI_CPU_AVX512_WIDE, "avx512" },
	{ 0, "sse2" },
	{ 0, "neon" },
	{ 0, "ref" },
};

/*
 * BARCOPY_COPY_ENGINE_AUTO. Reads are measured when a mapping is made (core/offload.c); the first two serve where
 * that cannot be. Writes from page-locked memory cross between 256 and 320 KiB on an H200 and an H100; from
 * pageable memory the engine never writes faster (1 MiB: 50 us by the mapping, 80 by the engine).
 */
#define GDRI_ENGINE_MIN_FROM	    ((size_t)11 << 10)
#define GDRI_ENGINE_MIN_FROM_LOCKED ((size_t)6 << 10)
/* The bounds of a measured size. */
#define GDRI_ENGINE_LEAST	    ((size_t)1 << 10)
#define GDRI_ENGINE_MOST	    ((size_t)1 << 20)
#define GDRI_ENGINE_MIN_TO	    SIZE_MAX
#define GDRI_ENGINE_MIN_TO_LOCKED   ((size_t)320 << 10)

#endif
