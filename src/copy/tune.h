/* SPDX-License-Identifier: MIT */
/*
 * Which row for which size on which CPU: every choice of the copy engine that rests on a
 * measurement, beside the measurement. perf/copybench measures all rows and prints such tables.
 *
 * Run A: one H200 (PCIe 5.0 x16, driver 580.159.04), write-combined BAR1, Sapphire-Rapids-class
 * CPU in a virtual machine, 2026-11-20.
 *   reads, behind an MFENCE: 64 KiB 66 us and 4 MiB 4.24 ms with 64-byte loads, 68.6 us and
 *     5.14 ms with 32-byte loads; 4 KiB 4.0 and 4.9 us; one line about 1.0 us with any
 *   writes: 16-, 32- and 64-byte stores alike at every size: 64 B 132 ns, 64 KiB 3.0 us, 1 MiB
 *     47 us; MOVDIR64B no faster anywhere (3.3 us, 54.7 us)
 *
 * Hence: reads want the widest loads; writes do not care, and take 64-byte stores only where
 * these are free, since a line that is stored whole can never drain in parts.
 *
 * A CPU is known by what it can do, not by its model number, which virtual machines invent. One
 * that matches nothing measured gets the last lines of each block: correct everywhere, and within
 * some 20% of the best for reads.
 *
 * The first line of a block whose needs the CPU has is taken, separately for `small` (min 0) and
 * `large` (the first with another min, if its needs are there).
 */
#ifndef GDRI_COPY_TUNE_H
#define GDRI_COPY_TUNE_H

#include "cpu.h"

struct gdri_tune {
	uint32_t when; /* enum gdri_cpu: all of them, besides the row's own needs */
	size_t min; /* from this many bytes on */
	const char *row;
};

/* Out of WC mappings: loads decide. */
static const struct gdri_tune gdri_tune_from_wc[] = {
	{ GDRI_CPU_AVX512_WIDE, 0, "avx512" }, /* run A */
	{ 0, 0, "avx2" },
	{ 0, 0, "sse4.1" },
	{ 0, 0, "sse2" },
	{ 0, 0, "neon" },
};

/* Into WC mappings, and both ways for cached ones: stores decide. */
static const struct gdri_tune gdri_tune_to[] = {
	{ GDRI_CPU_AVX512_WIDE, 0, "avx512" }, /* run A */
	{ 0, 0, "sse2" },
	{ 0, 0, "neon" },
};

/*
 * The worker pool: below these sizes the caller copies alone. Waking a thread takes some 50 us in a
 * virtual machine; one thread reads 256 KiB in 262 us and writes 2 MiB in 95 us (run A). Chosen
 * from these figures, not measured by themselves yet.
 */
#define GDRI_POOL_MIN_FROM ((size_t)256 << 10)
#define GDRI_POOL_MIN_TO   ((size_t)2 << 20)

/*
 * The copy engine, where the caller lets the library choose: reads from here on are faster by it
 * into pageable memory (run C: 8 KiB 8.2 us by the mapping, 7.8 us by cuMemcpyDtoH, and the handing
 * over costs some 2 us more; 16 KiB 16.3 and 8.5 us). Writes never are: 16 MiB from pageable memory
 * 0.96 ms by the mapping, 1.03 ms by cuMemcpyHtoD.
 */
#define GDRI_ENGINE_MIN_FROM ((size_t)16 << 10)
#define GDRI_ENGINE_MIN_TO   SIZE_MAX

/* What one thread takes at a time: pages of the mapping, some 32 us of reading. */
#define GDRI_POOL_PIECE ((size_t)32 << 10)

#endif
