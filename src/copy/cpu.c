// SPDX-License-Identifier: MIT
/* CPU features. Decoding is separate from reading, so that tests decode other CPUs. */
#include "cpu.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const struct {
	const char *name;
	uint32_t bit;
} names[] = {
	{ "sse2", GDRI_CPU_SSE2 },
	{ "sse4.1", GDRI_CPU_SSE41 },
	{ "avx2", GDRI_CPU_AVX2 },
	{ "avx512", GDRI_CPU_AVX512 },
	{ "avx512wide", GDRI_CPU_AVX512_WIDE },
	{ "movdir64b", GDRI_CPU_MOVDIR64B },
	{ "movdiri", GDRI_CPU_MOVDIRI },
	{ "neon", GDRI_CPU_NEON },
};

static uint32_t bit_of(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i].name) == len && memcmp(names[i].name, name, len) == 0)
			return names[i].bit;
	return 0;
}

/* A comma-separated list: all names plain, or all with a minus sign. */
static int parse_names(const char *text, uint32_t *mask)
{
	bool minus = text[0] == '-';
	uint32_t set = 0;

	do {
		size_t len = strcspn(text, ",");
		uint32_t bit = 0;

		if (len && (text[0] == '-') == minus)
			bit = bit_of(text + minus, len - minus);
		if (!bit)
			return -EINVAL;
		set |= bit;
		text += len;
	} while (*text++);
	*mask = minus ? GDRI_CPU_ALL & ~set : set;
	return 0;
}

int gdri_cpu_parse_mask(const char *text, uint32_t *mask)
{
	if (!*text || strcmp(text, "all") == 0) {
		*mask = GDRI_CPU_ALL;
		return 0;
	}
	if (strcmp(text, "none") == 0) {
		*mask = 0;
		return 0;
	}
	if (*text >= '0' && *text <= '9') {
		unsigned long long value;
		char *end;

		errno = 0;
		value = strtoull(text, &end, 0);
		if (errno || *end || value > GDRI_CPU_ALL)
			return -EINVAL;
		*mask = (uint32_t)value;
		return 0;
	}
	return parse_names(text, mask);
}

uint32_t gdri_cpu_features(void)
{
	const char *text = secure_getenv("GDRCOPY_CPU_MASK");
	uint32_t mask = GDRI_CPU_ALL;

	/* An invalid value is ignored; plan.c reports it. */
	if (text)
		(void)gdri_cpu_parse_mask(text, &mask);
	return gdri_cpu_detect() & mask;
}

#if defined(__x86_64__)

/* All of these bits, not some: part of a state switched on is a state that cannot be used. */
#define HAS(reg, bits) (((reg) & (bits)) == (bits))

#define ECX1_OSXSAVE (1u << 27)
#define ECX1_AVX     (1u << 28)
#define XCR0_YMM     0x06ull /* SSE and AVX state */
#define XCR0_ZMM     0xe6ull /* and opmask, upper halves of ZMM0-15, ZMM16-31 */

uint32_t gdri_x86_features(const struct gdri_x86_id *id)
{
	uint64_t xcr0 = HAS(id->leaf1_ecx, ECX1_OSXSAVE) ? id->xcr0 : 0;
	bool ymm = HAS(id->leaf1_ecx, ECX1_AVX) && HAS(xcr0, XCR0_YMM);
	bool zmm = ymm && HAS(xcr0, XCR0_ZMM);
	const struct {
		uint32_t leaf, reg, bit, feature;
		bool usable;
	} row[] = {
		{ 1, id->leaf1_edx, 26, GDRI_CPU_SSE2, true },
		{ 1, id->leaf1_ecx, 19, GDRI_CPU_SSE41, true },
		{ 7, id->leaf7_ebx, 5, GDRI_CPU_AVX2, ymm },
		{ 7, id->leaf7_ebx, 16, GDRI_CPU_AVX512, zmm },
		{ 7, id->leaf7_ecx, 27, GDRI_CPU_MOVDIRI, true },
		{ 7, id->leaf7_ecx, 28, GDRI_CPU_MOVDIR64B, true },
		/*
		 * VBMI2, which Ice Lake, Zen 4 and later have. Older CPUs with AVX-512 (Skylake to
		 * Cooper Lake) lower the clock, and stop for 10 us, when 64-byte registers are used.
		 */
		{ 7, id->leaf7_ecx, 6, GDRI_CPU_AVX512_WIDE, HAS(id->leaf7_ebx, 1u << 16) && zmm },
	};
	uint32_t have = 0;

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if (id->max_leaf >= row[i].leaf && row[i].usable && row[i].reg >> row[i].bit & 1)
			have |= row[i].feature;
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
	struct gdri_x86_id id = { .max_leaf = __get_cpuid_max(0, NULL) };
	uint32_t eax, other;

	__cpuid(1, eax, other, id.leaf1_ecx, id.leaf1_edx);
	__cpuid_count(7, 0, eax, id.leaf7_ebx, id.leaf7_ecx, other); /* or rubbish: see max_leaf */
	if (HAS(id.leaf1_ecx, ECX1_OSXSAVE))
		id.xcr0 = read_xcr0();
	return gdri_x86_features(&id);
}

#elif defined(__aarch64__)

/* The bits are Linux's, arch/arm64/include/uapi/asm/hwcap.h. */
uint32_t gdri_arm64_features(unsigned long hwcap)
{
	return hwcap & 1ul << 1 ? GDRI_CPU_NEON : 0;
}

uint32_t gdri_cpu_detect(void)
{
	return gdri_arm64_features(getauxval(AT_HWCAP));
}

#endif
