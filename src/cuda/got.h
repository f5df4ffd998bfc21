/* SPDX-License-Identifier: MIT */
/*
 * Where a loaded library keeps the address of a function that it imports: the slots of its global
 * offset table, found by its own relocations (ELF gABI, chapter 5, "Relocation"; System V psABI of
 * x86-64, table 4.9; ELF for the Arm 64-bit architecture, "Dynamic relocations"). It knows nothing of
 * what is imported, nor why it is looked for.
 */
#ifndef GDRI_GOT_H
#define GDRI_GOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GDRI_GOT_SLOTS = 4 };

struct gdri_got {
	size_t count;
	_Atomic(uintptr_t) *slots[GDRI_GOT_SLOTS];
	uintptr_t start, end; /* the library's own range: a lazy slot points into it */
	uintptr_t sealed_start, sealed_end; /* made read-only by the loader (PT_GNU_RELRO) */
};

/* The slots of `symbol` in the library of that dlopen() handle; false where there are none. */
bool gdri_got_find(void *library, const char *symbol, struct gdri_got *got);

/*
 * Writes a slot if it holds *expected, as a compare and exchange; what it held is left in *expected.
 * A sealed page is writable for the time of the call. False without a write where that is refused,
 * or where it holds something else. Copies of this library in one process take turns; _alone() is for
 * a child of fork(), which has no other thread, and where the lock that they share may be held.
 */
bool gdri_got_write_alone(const struct gdri_got *got, size_t slot, uintptr_t *expected,
			  uintptr_t value);
bool gdri_got_write(const struct gdri_got *got, size_t slot, uintptr_t *expected, uintptr_t value);

#endif
