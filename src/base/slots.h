/* SPDX-License-Identifier: MIT */
/*
 * Tables of objects that are named by index and generation. An object's memory is never given back,
 * so a stale or invented name is looked up without a lock or a crash: the generation differs.
 *
 * A name is (generation << 32) | (index + 1). Generations of live objects are odd, so 0 is no name.
 * An index is reused after its object was freed, but for at most 2^31 names: none comes back.
 */
#ifndef GDRI_SLOTS_H
#define GDRI_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/process.h"

enum { GDRI_SLOTS_PER_CHUNK = 64, GDRI_SLOTS_CHUNKS = 16384 };

/* The head of every object; the object begins with it. */
struct gdri_slot {
	_Atomic uint32_t generation;
	uint32_t index; /* set once, before the object is first handed out */
	uint32_t next_free; /* index + 1, or 0; under the table's lock */
	_Atomic uint32_t owner; /* gdri_process_tag() of init or gdri_slot_publish(); 0: neither */
};

/*
 * All zeroes are an empty table (PTHREAD_MUTEX_INITIALIZER is zeroes), so tables lie in .bss. What
 * finds the first objects lies in one cache line, which a call with cold caches waits for.
 */
struct gdri_slots {
	_Alignas(64) size_t object_size; /* a multiple of 64; constant once there is a chunk */
	const _Atomic uint32_t *tag; /* gdri_process_page, likewise */
	_Atomic(char *) chunks[GDRI_SLOTS_CHUNKS]; /* read without the lock */
	pthread_mutex_t lock; /* guards what follows, and the writing of the above */
	void (*init)(struct gdri_slot *slot); /* or NULL; constant as well */
	uint32_t first_free; /* index + 1, or 0 */
	_Atomic uint32_t count; /* objects made; read without the lock */
};

/*
 * Returns a new object, without a name, or NULL. Size and init are the same in every call for a
 * table. init runs before the first use in each process: a forked child pays for what it uses.
 * Called after gdri_process_enter().
 */
struct gdri_slot *gdri_slots_new(struct gdri_slots *table, size_t object_size,
				 void (*init)(struct gdri_slot *slot));

/* Makes it findable for this process; a finder sees all written before. Its name. */
uint64_t gdri_slot_publish(struct gdri_slot *slot);

void gdri_slot_retire(struct gdri_slot *slot); /* makes it not findable, and keeps its memory */
/* Gives a retired or never published object back. */
void gdri_slots_free(struct gdri_slots *table, struct gdri_slot *slot);

/* Calls fn for every object that this process has used, live or not. Takes no lock: fn may wait. */
void gdri_slots_each(struct gdri_slots *table, void (*fn)(struct gdri_slot *slot, void *arg),
		     void *arg);

/* Defines a table, whose lock a forked child makes anew; the parent's live objects stay taken. */
#define GDRI_SLOTS(SCOPE, name)                         \
	SCOPE struct gdri_slots name;                   \
	static void name##_anew(void)                   \
	{                                               \
		pthread_mutex_init(&(name).lock, NULL); \
	}                                               \
	GDRI_IN_CHILD(name##_anew)

/* Why no `what`, such as "a cache", was found: -EACCES (the parent's) or -EINVAL. */
__attribute__((cold, noinline)) int gdri_slots_fail(struct gdri_slots *table, uint64_t name,
						    const char *what);

/* The object's name, which finds it only while it is findable. */
static inline uint64_t gdri_slot_name(struct gdri_slot *slot)
{
	uint64_t generation = atomic_load_explicit(&slot->generation, memory_order_relaxed);

	return generation << 32 | (slot->index + 1);
}

static inline bool gdri_slot_is(struct gdri_slot *slot, uint64_t name)
{
	return atomic_load_explicit(&slot->generation, memory_order_acquire) == name >> 32;
}

/* The object of an index below that of the last chunk; NULL where there is no chunk. */
static inline struct gdri_slot *gdri_slot_at(struct gdri_slots *table, uint32_t index)
{
	char *chunk = atomic_load_explicit(&table->chunks[index / GDRI_SLOTS_PER_CHUNK],
					   memory_order_acquire);

	if (!chunk)
		return NULL;
	return (struct gdri_slot *)(void *)(chunk +
					    index % GDRI_SLOTS_PER_CHUNK * table->object_size);
}

/* The object of that name, or NULL. Takes no lock. */
static inline struct gdri_slot *gdri_slots_find(struct gdri_slots *table, uint64_t name)
{
	uint32_t index = (uint32_t)name - 1;
	struct gdri_slot *slot;

	if (index / GDRI_SLOTS_PER_CHUNK >= GDRI_SLOTS_CHUNKS || !(name >> 32 & 1))
		return NULL;
	slot = gdri_slot_at(table, index);
	return slot && gdri_slot_is(slot, name) ? slot : NULL;
}

static inline bool gdri_slot_is_own(const struct gdri_slots *table, const struct gdri_slot *slot)
{
	return atomic_load_explicit(&slot->owner, memory_order_relaxed) ==
	       atomic_load_explicit(table->tag, memory_order_relaxed);
}

/* As gdri_slots_find(), but no object of the parent process: its locks may be held for ever. */
static inline struct gdri_slot *gdri_slots_find_own(struct gdri_slots *table, uint64_t name)
{
	struct gdri_slot *slot = gdri_slots_find(table, name);

	return __builtin_expect(slot && gdri_slot_is_own(table, slot), 1) ? slot : NULL;
}

#endif
