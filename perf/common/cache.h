/* SPDX-License-Identifier: MIT */
/* Puts a range of host memory out of the CPU's caches. It must not know what the range is for. */
#ifndef PERF_CACHE_H
#define PERF_CACHE_H

#include <stddef.h>
#include <stdint.h>

/* Writes back and drops every line of [p, p + size); done when it returns. */
static inline void cache_flush(const void *p, size_t size)
{
	uintptr_t line = 64, at, end = (uintptr_t)p + size;

#if defined(__x86_64__)
	for (at = (uintptr_t)p & ~(line - 1); at < end; at += line)
		__asm__ volatile("clflush (%0)" ::"r"(at) : "memory");
	/* CLFLUSH is ordered by MFENCE (Intel SDM volume 2, CLFLUSH) */
	__asm__ volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
	uint64_t ctr;

	/* CTR_EL0.DminLine: log2 of the words in the smallest data cache line */
	__asm__("mrs %0, ctr_el0" : "=r"(ctr));
	line = (uintptr_t)4 << ((ctr >> 16) & 15);
	for (at = (uintptr_t)p & ~(line - 1); at < end; at += line)
		__asm__ volatile("dc civac, %0" ::"r"(at) : "memory");
	__asm__ volatile("dsb sy" ::: "memory");
#else
#error "cache_flush: no instruction known for this architecture"
#endif
}

#endif
