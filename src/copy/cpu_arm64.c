// SPDX-License-Identifier: MIT
/*
 * CPU features of arm64, from the auxiliary vector: it says what the kernel lets user space execute (LS64 traps
 * unless the kernel enables it). The bits are those of Linux, arch/arm64/include/uapi/asm/hwcap.h.
 */
#include "cpu.h"

#include <sys/auxv.h>

#ifndef AT_HWCAP3
#define AT_HWCAP3 29 /* an older kernel has none: getauxval() gives 0 */
#endif
#define HWCAP_BIT_ASIMD (1ul << 1)
#define HWCAP3_BIT_LS64 (1ul << 3)

uint32_t gdri_arm64_features(unsigned long hwcap, unsigned long hwcap3)
{
	uint32_t have = 0;

	if (hwcap & HWCAP_BIT_ASIMD)
		have |= GDRI_CPU_NEON;
	if (hwcap3 & HWCAP3_BIT_LS64)
		have |= GDRI_CPU_LS64;
	return have;
}

uint32_t gdri_cpu_detect(void)
{
	return gdri_arm64_features(getauxval(AT_HWCAP), getauxval(AT_HWCAP3));
}
