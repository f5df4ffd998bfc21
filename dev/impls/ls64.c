// SPDX-License-Identifier: MIT
/*
 * LS64: LD64B and ST64B, 64 bytes in one single-copy atomic access. The library does not use them: no machine
 * that has them was at hand, and QEMU does not know them. The tests emulate them in a signal handler, which
 * validates bytes and addresses only.
 *
 * They want a place that supports them: Normal Non-cacheable or Device memory of a target that
 * takes 64-byte accesses. On cacheable memory they fault (Arm ARM, "Single-copy atomic 64-byte
 * load/store"; Linux, Documentation/arch/arm64/elf_hwcaps.rst, HWCAP3_LS64: "only ... on supported
 * target (device) memory"). So the mapping's side only, and of WC mappings only.
 *
 * The eight registers are named, since no constraint asks for eight in a row. Nothing else may stand
 * between naming them and the instruction: a sanitizer's call would overwrite them.
 */
#include "copy/word.h"
#include "impls.h"

#define REGISTERS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

void impl_ls64_to(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE) {
		uint64_t v[8];

#define X(i) v[i] = gdri_any64(s + 8 * (i));
		REGISTERS(X)
#undef X
#define X(i) register uint64_t r##i __asm__("x" #i) = v[i];
		REGISTERS(X)
#undef X
		__asm__ volatile("st64b x0, [%1]"
				 : "=m"(*(uint8_t(*)[64])d)
				 : "r"(d), "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5),
				   "r"(r6), "r"(r7));
	}
}

void impl_ls64_from(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= GDRI_LINE; d += GDRI_LINE, s += GDRI_LINE, n -= GDRI_LINE) {
#define X(i) register uint64_t r##i __asm__("x" #i);
		REGISTERS(X)
#undef X
		__asm__ volatile("ld64b x0, [%8]"
				 : "=&r"(r0), "=&r"(r1), "=&r"(r2), "=&r"(r3), "=&r"(r4), "=&r"(r5),
				   "=&r"(r6), "=&r"(r7)
				 : "r"(s), "m"(*(const uint8_t(*)[64])s));
#define X(i) const uint64_t v##i = r##i;
		REGISTERS(X)
#undef X
#define X(i) __builtin_memcpy(d + 8 * (i), &v##i, 8);
		REGISTERS(X)
#undef X
	}
}
