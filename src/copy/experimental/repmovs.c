// SPDX-License-Identifier: MIT
/*
 * Experimental: REP MOVSB, the microcode's own copy loop, out of the mapping. Not into it: it
 * promises nothing about how its stores are cut.
 */
#include "../engine.h"

void gdri_repmovs_from(void *dst, const void *src, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
}
