// SPDX-License-Identifier: MIT
/*
 * CPU features of x86-64: CPUID, and XGETBV for what the operating system saves. Decoding is separate from
 * reading, so that tests decode other CPUs.
 */
#include "cpu.h"

#include <cpuid.h>
#include <stddef.h>

/* All of these bits, not some: part of a state switched on is a state that cannot be used. */
#define HAS(reg, bits) (((reg) & (bits)) == (bits))

#define BIT(n)		       (1u << (n))
#define LEAF1_ECX_SSE41	       BIT(19)
#define LEAF1_ECX_OSXSAVE      BIT(27)
#define LEAF1_ECX_AVX	       BIT(28)
#define LEAF1_EDX_SSE2	       BIT(26)
#define LEAF7_EBX_AVX2	       BIT(5)
#define LEAF7_EBX_AVX512F      BIT(16)
#define LEAF7_ECX_AVX512_VBMI2 BIT(6)
#define LEAF7_ECX_MOVDIRI      BIT(27)
#define LEAF7_ECX_MOVDIR64B    BIT(28)

#define XCR0_YMM 0x06ull /* SSE and AVX state */
#define XCR0_ZMM 0xe6ull /* and opmask, upper halves of ZMM0-15, ZMM16-31 */

uint32_t gdri_x86_features(const struct gdri_x86_id *id)
{
	uint64_t xcr0 = HAS(id->leaf1_ecx, LEAF1_ECX_OSXSAVE) ? id->xcr0 : 0;
	uint32_t have = 0;

	if (id->max_leaf < 1)
		return 0;
	if (HAS(id->leaf1_edx, LEAF1_EDX_SSE2))
		have |= GDRI_CPU_SSE2;
	if (HAS(id->leaf1_ecx, LEAF1_ECX_SSE41))
		have |= GDRI_CPU_SSE41;
	if (id->max_leaf < 7)
		return have;
	if (HAS(id->leaf7_ecx, LEAF7_ECX_MOVDIRI))
		have |= GDRI_CPU_MOVDIRI;
	if (HAS(id->leaf7_ecx, LEAF7_ECX_MOVDIR64B))
		have |= GDRI_CPU_MOVDIR64B;
	if (!HAS(id->leaf1_ecx, LEAF1_ECX_AVX) || !HAS(xcr0, XCR0_YMM))
		return have;
	if (HAS(id->leaf7_ebx, LEAF7_EBX_AVX2))
		have |= GDRI_CPU_AVX2;
	if (!HAS(id->leaf7_ebx, LEAF7_EBX_AVX512F) || !HAS(xcr0, XCR0_ZMM))
		return have;
	have |= GDRI_CPU_AVX512;
	/*
	 * The first generations with AVX-512 (Skylake to Cooper Lake) lower the clock, and stop for some 10 us,
	 * when 64-byte registers are used. Later CPUs have VBMI2, since Ice Lake and Zen 4.
	 */
	if (HAS(id->leaf7_ecx, LEAF7_ECX_AVX512_VBMI2))
		have |= GDRI_CPU_AVX512_WIDE;
	return have;
}

/* XGETBV as bytes: the mnemonic and the intrinsic both want a compiler flag. */
static uint64_t read_xcr0(void)
{
	uint32_t low, high;

	__asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

uint32_t gdri_cpu_detect(void)
{
	struct gdri_x86_id id = { 0 };
	unsigned int eax, ebx, ecx, edx;

	id.max_leaf = __get_cpuid_max(0, NULL);
	if (id.max_leaf >= 1) {
		__cpuid(1, eax, ebx, ecx, edx);
		id.leaf1_ecx = ecx;
		id.leaf1_edx = edx;
	}
	if (id.max_leaf >= 7) {
		__cpuid_count(7, 0, eax, ebx, ecx, edx);
		id.leaf7_ebx = ebx;
		id.leaf7_ecx = ecx;
	}
	if (HAS(id.leaf1_ecx, LEAF1_ECX_OSXSAVE))
		id.xcr0 = read_xcr0();
	return gdri_x86_features(&id);
}
