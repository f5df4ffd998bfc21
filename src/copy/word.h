/* SPDX-License-Identifier: MIT */
/*
 * Accesses of one word, and the store discipline built from them. No fences: see fence.h.
 *
 * A word access is one instruction of exactly that width: relaxed and volatile, so that no compiler
 * merges, splits, repeats or drops it. A naturally aligned one is single-copy atomic for any memory
 * type (Intel SDM vol. 3A "Guaranteed Atomic Operations"; Arm ARM "Single-copy atomicity").
 */
#ifndef GDRI_COPY_WORD_H
#define GDRI_COPY_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bytes are picked out of words in little-endian order"
#endif

/* The unit of everything: a CPU's line buffer, and the largest read that it sends over PCIe. */
#define GDRI_LINE ((size_t)64)

/*
 * For functions that read whole aligned words or lines around a range. The rest is in a mapped
 * page, and harmless to read; a sanitizer knows the caller's range only.
 */
#define GDRI_WHOLE_LINES __attribute__((no_sanitize("address", "thread")))

/* Before a loop of a constant, small number of turns. */
#if defined(__clang__)
#define GDRI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GDRI_UNROLL _Pragma("GCC unroll 64")
#endif

/* A thread sanitizer sees no fences: release and acquire let it follow flags through a mapping. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GDRI_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define GDRI_TSAN 1
#endif
#ifdef GDRI_TSAN
#define GDRI_STORE_ORDER __ATOMIC_RELEASE
#define GDRI_LOAD_ORDER	 __ATOMIC_ACQUIRE
#else
#define GDRI_STORE_ORDER __ATOMIC_RELAXED
#define GDRI_LOAD_ORDER	 __ATOMIC_RELAXED
#endif

#define gdri_store8(p, v)  __atomic_store_n((volatile uint8_t *)(p), (v), GDRI_STORE_ORDER)
#define gdri_store16(p, v) __atomic_store_n((volatile uint16_t *)(p), (v), GDRI_STORE_ORDER)
#define gdri_store32(p, v) __atomic_store_n((volatile uint32_t *)(p), (v), GDRI_STORE_ORDER)
#define gdri_store64(p, v) __atomic_store_n((volatile uint64_t *)(p), (v), GDRI_STORE_ORDER)
#define gdri_load8(p)	   __atomic_load_n((const volatile uint8_t *)(p), GDRI_LOAD_ORDER)
#define gdri_load16(p)	   __atomic_load_n((const volatile uint16_t *)(p), GDRI_LOAD_ORDER)
#define gdri_load32(p)	   __atomic_load_n((const volatile uint32_t *)(p), GDRI_LOAD_ORDER)
#define gdri_load64(p)	   __atomic_load_n((const volatile uint64_t *)(p), GDRI_LOAD_ORDER)

/* Between two polls of a word; and the clock. */
static inline void gdri_relax(void)
{
#if defined(__x86_64__)
	__asm__ volatile("pause" ::: "memory");
#else
	__asm__ volatile("yield" ::: "memory");
#endif
}

static inline uint64_t gdri_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Stores the words of an aligned line back to back, from registers; the last of the eight only if
 * `last`. On arm64 a compiler's loop of loads and stores forms one write of the line "less than 1 in
 * 10,000" times, consecutive STRs nearly always, and STP fails in some virtual machines (Linux, mails
 * of "arm64/io: Provide a WC friendly __iowriteXX_copy()").
 */
static inline __attribute__((always_inline)) void gdri_store_line(void *to, const uint64_t *w,
								  bool last)
{
#if defined(__aarch64__)
#define STORES                                                               \
	"str %x1, [%0]\n\tstr %x2, [%0, #8]\n\tstr %x3, [%0, #16]\n\t"       \
	"str %x4, [%0, #24]\n\tstr %x5, [%0, #32]\n\tstr %x6, [%0, #40]\n\t" \
	"str %x7, [%0, #48]"
#define WORDS                                                                            \
	"r"(to), "rZ"(w[0]), "rZ"(w[1]), "rZ"(w[2]), "rZ"(w[3]), "rZ"(w[4]), "rZ"(w[5]), \
		"rZ"(w[6]), "rZ"(w[7])
	if (last)
		__asm__ volatile(STORES "\n\tstr %x8, [%0, #56]" ::WORDS : "memory");
	else
		__asm__ volatile(STORES ::WORDS : "memory");
#undef STORES
#undef WORDS
#else
	for (unsigned int i = 0; i < 7u + last; i++)
		gdri_store64((char *)to + 8 * i, w[i]);
#endif
}

/* Loads of ordinary memory at any alignment; the compiler may do them as it likes. */
#define GDRI_ANY(bits)                                                \
	static inline uint##bits##_t gdri_any##bits(const uint8_t *p) \
	{                                                             \
		uint##bits##_t v;                                     \
                                                                      \
		__builtin_memcpy(&v, p, sizeof(v));                   \
		return v;                                             \
	}
GDRI_ANY(16)
GDRI_ANY(32)
GDRI_ANY(64)

/*
 * Sends an aligned line of 64 bytes in one piece, where the CPU has MOVDIR64B (%rsi), %rdi: in
 * bytes, since binutils before 2.31 do not know it. It does not gather in a line buffer [SDM].
 */
static inline void gdri_direct_line(void *map, const void *line)
{
#if defined(__x86_64__)
	__asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x3e" ::"S"(line), "D"(map) : "memory");
#else
	(void)map, (void)line;
#endif
}

/*
 * The store discipline: copies n bytes to d so that every byte is stored exactly once and every
 * naturally aligned word of 4 or 8 bytes inside goes in one store. An overlapping tail would write
 * again a flag that the other side has just reset. Loads only [s, s + n). For a few lines.
 */
static inline void gdri_store_exact(uint8_t *d, const uint8_t *s, size_t n)
{
	if (((uintptr_t)d & 1) && n >= 1) {
		gdri_store8(d, *s);
		d += 1, s += 1, n -= 1;
	}
	if (((uintptr_t)d & 2) && n >= 2) {
		gdri_store16(d, gdri_any16(s));
		d += 2, s += 2, n -= 2;
	}
	if (((uintptr_t)d & 4) && n >= 4) {
		gdri_store32(d, gdri_any32(s));
		d += 4, s += 4, n -= 4;
	}
	for (; n >= 8; d += 8, s += 8, n -= 8)
		gdri_store64(d, gdri_any64(s));
	if (n & 4) {
		gdri_store32(d, gdri_any32(s));
		d += 4, s += 4;
	}
	if (n & 2) {
		gdri_store16(d, gdri_any16(s));
		d += 2, s += 2;
	}
	if (n & 1)
		gdri_store8(d, *s);
}

#endif
