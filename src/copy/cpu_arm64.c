// SPDX-License-Identifier: MIT
/*
 * CPU features of arm64: the auxiliary vector only; the ID registers are not asked.
 */
#include "cpu.h"

#include <sys/auxv.h>

#define HWCAP_BIT_ASIMD (1ul << 1)

uint32_t gdri_cpu_detect(void)
{
	uint32_t have = 0;

	if (getauxval(AT_HWCAP) & HWCAP_BIT_ASIMD)
		have |= GDRI_CPU_NEON;
	/*
	 * LS64 would be read from AT_HWCAP3 here, together with the first row that uses it. User
	 * space may execute it only where the kernel says so.
	 */
	return have;
}
