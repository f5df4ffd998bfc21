/* SPDX-License-Identifier: MIT */
/*
 * Which row on which CPU, and from which size on others help: every choice that rests on a
 * measurement, beside the measurement. perf/copybench measures all rows and prints such tables.
 *
 * One H200 each (PCIe 5.0 x16, driver 580.159.04), write-combined BAR1, Sapphire-Rapids-class CPU
 * in a virtual machine, 2026-11-20; docs/performance.md has the tables. Rows beside each other, all
 * fenced, medians of 15 rounds:
 *
 *   run C, reads in us      64 B   1 KiB   4 KiB   64 KiB   256 KiB    1 MiB
 *     avx512                1.03    1.08    4.09     75.2       270     1079
 *     avx2                  1.24    1.60    4.19     78.2       317     1282
 *     sse4.1                1.31    2.12    5.67     89.8       381     1510
 *     sse2                  4.04    64.1     262     4184     16699        -
 *   run C, writes in us     64 B   1 KiB   4 KiB   64 KiB   256 KiB    1 MiB
 *     avx512               0.138   0.182   0.320     3.38      13.2     51.1
 *     avx2                 0.138   0.178   0.320     3.40      13.3     52.0
 *     sse2                 0.141   0.179   0.321     3.44      14.0     54.9
 *     movdir64b            0.139   0.177   0.316     3.77      20.3     79.4
 *
 * Runs D and E say the same. Hence: reads want the widest loads; writes do not care much, and take
 * 64-byte stores only where these are free, since a line that is stored whole can never drain in
 * parts. MOVDIR64B with its fence is some 1.5% faster from 512 B to 4 KiB, within the noise of one
 * machine, and 1.5 times as long without one: not taken.
 *
 * A CPU is known by what it can do, not by its model number, which virtual machines invent. One
 * that matches nothing measured gets the last lines of each block: correct everywhere, and within
 * some 20% of the best for reads.
 *
 * The first line of a block whose needs the CPU has is taken; "ref" where there is none.
 */
#ifndef GDRI_COPY_TUNE_H
#define GDRI_COPY_TUNE_H

#include "cpu.h"

struct gdri_tune {
	uint32_t when; /* enum gdri_cpu: all of them, besides the row's own needs */
	const char *row;
};

/* Out of WC mappings: loads decide. */
static const struct gdri_tune gdri_tune_from_wc[] = {
	{ GDRI_CPU_AVX512_WIDE, "avx512" }, /* runs C, D, E */
	{ 0, "avx2" },
	{ 0, "sse4.1" },
	{ 0, "neon" },
};

/* Into WC mappings, and both ways for cached ones: stores decide. */
static const struct gdri_tune gdri_tune_to[] = {
	{ GDRI_CPU_AVX512_WIDE, "avx512" }, /* runs C, D, E */
	{ 0, "sse2" },
	{ 0, "neon" },
};

/*
 * The worker pool: below these sizes the caller copies alone. Run E, alone and with 2, 4 and 8
 * threads, in us: reads of 64 KiB 66, 48, 51, 53 and of 256 KiB 258, 163, 101, 105; writes of
 * 256 KiB 14.2, 14.9, 21, 21, of 512 KiB 30, 21, 25, 37 and of 1 MiB 58, 40, 42, 56.
 */
#define GDRI_POOL_MIN_FROM ((size_t)64 << 10)
#define GDRI_POOL_MIN_TO   ((size_t)1 << 20)

/* What one thread takes at a time: pages of the mapping; 32 us of reading, 6 us of writing. */
#define GDRI_POOL_PIECE_FROM ((size_t)32 << 10)
#define GDRI_POOL_PIECE_TO   ((size_t)128 << 10)

/* More helpers than these are no help with writes; and how long a worker looks for the next job. */
#define GDRI_POOL_WRITE_HELPERS 3
#define GDRI_POOL_SPIN_NS	0

/*
 * The copy engine, where the caller lets the library choose: pageable memory, handing over
 * included. Run D: reads of 8 KiB 9.0 us by it and 8.2 us by the mapping, of 16 KiB 9.6 and 16.3;
 * writes are never faster: 1 MiB 82 and 51 us, 16 MiB 1.05 and 0.97 ms.
 */
#define GDRI_ENGINE_MIN_FROM	    ((size_t)16 << 10)
#define GDRI_ENGINE_MIN_FROM_LOCKED ((size_t)8 << 10)
#define GDRI_ENGINE_MIN_TO	    SIZE_MAX
#define GDRI_ENGINE_MIN_TO_LOCKED   ((size_t)512 << 10)

#endif
