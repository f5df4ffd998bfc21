/* SPDX-License-Identifier: MIT */
/*
 * The slots in which a loaded library keeps the address of a function that it imports: entries of
 * its global offset table, found by its relocations (ELF gABI, chapter 5, "Relocation"; System V
 * psABI of x86-64, table 4.9; ELF for the Arm 64-bit architecture, "Dynamic relocations").
 */
#ifndef GDRI_IMPORT_SLOTS_H
#define GDRI_IMPORT_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GDRI_IMPORT_SLOTS = 4 };

struct gdri_import_slots {
	size_t count;
	_Atomic(uintptr_t) *at[GDRI_IMPORT_SLOTS];
	uintptr_t start, end; /* of the library: a slot that is not bound yet points into it */
	uintptr_t relro_start, relro_end; /* made read-only by the loader (PT_GNU_RELRO) */
};

struct link_map;

/* Of `symbol` in a loaded object, or in that of a dlopen() handle; false if it has none. */
bool gdri_import_slots_in(const struct link_map *map, const char *symbol,
			  struct gdri_import_slots *slots);
bool gdri_import_slots_find(void *library, const char *symbol, struct gdri_import_slots *slots);

/*
 * Returns 0, or the errno by which mprotect() refuses the read-only pages of slots: a sandbox may
 * refuse every call of it. Makes no page writable. Takes the loader's lock, as the next function.
 */
int gdri_import_slots_locked_out(const struct gdri_import_slots *slots);

/*
 * Compares and exchanges a slot: *expected receives the value found. A read-only page is made
 * writable for the duration of the call. Returns false if that fails or the slot holds another
 * value. The loader's lock serializes all copies of this library in a process. in_child: does not
 * take it, since a forked child may not be able to, and has no other thread.
 */
bool gdri_import_slot_write(const struct gdri_import_slots *slots, size_t slot, uintptr_t *expected,
			    uintptr_t value, bool in_child);

#endif
