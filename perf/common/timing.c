/* SPDX-License-Identifier: MIT */
/* Choice and calibration of the clock; see timing.h. */
#include "timing.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

struct timing timing = { .ns_per_tick = 1.0 };

#define CALIBRATION_NS	20000000u
#define OVERHEAD_ROUNDS 2000

/* CPUID 80000007h EDX bit 8: the counter keeps one rate in all power states. */
static bool tsc_is_invariant(void)
{
#ifdef __x86_64__
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
#else
	return false;
#endif
}

void timing_init(void)
{
	uint64_t t0, t1, n0, n1, least = UINT64_MAX;
	int i;

	timing.tsc = tsc_is_invariant();
	if (timing.tsc) {
		n0 = clock_raw_ns();
		t0 = timing_ticks();
		do
			n1 = clock_raw_ns();
		while (n1 - n0 < CALIBRATION_NS);
		t1 = timing_ticks();
		if (t1 > t0)
			timing.ns_per_tick = (double)(n1 - n0) / (double)(t1 - t0);
		else
			timing.tsc = false;
	}
	for (i = 0; i < OVERHEAD_ROUNDS; i++) {
		t0 = timing_ticks();
		t1 = timing_ticks();
		if (t1 - t0 < least)
			least = t1 - t0;
	}
	timing.overhead_ns = (double)least * timing.ns_per_tick;
}

const char *timing_name(void)
{
	return timing.tsc ? "TSC" : "CLOCK_MONOTONIC_RAW";
}
