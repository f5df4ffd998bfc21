/* SPDX-License-Identifier: MIT */
/* See slots.h. */
#include "base/slots.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static int add_chunk_locked(struct gdri_slots *table)
{
	uint32_t first = atomic_load_explicit(&table->count, memory_order_relaxed);
	size_t bytes = table->object_size * GDRI_SLOTS_PER_CHUNK;
	char *chunk;

	if (first / GDRI_SLOTS_PER_CHUNK >= GDRI_SLOTS_CHUNKS)
		return -1;
	chunk = aligned_alloc(64, bytes);
	if (!chunk)
		return -1;
	memset(chunk, 0, bytes);
	atomic_store_explicit(&table->chunks[first / GDRI_SLOTS_PER_CHUNK], chunk,
			      memory_order_release);
	atomic_store_explicit(&table->count, first + GDRI_SLOTS_PER_CHUNK, memory_order_release);
	for (uint32_t i = GDRI_SLOTS_PER_CHUNK; i-- > 0;) {
		struct gdri_slot *slot = gdri_slot_at(table, first + i);

		slot->index = first + i;
		slot->next_free = table->first_free;
		table->first_free = slot->index + 1;
	}
	return 0;
}

struct gdri_slot *gdri_slots_new(struct gdri_slots *table, size_t object_size,
				 void (*init)(struct gdri_slot *slot))
{
	struct gdri_slot *slot = NULL;

	pthread_mutex_lock(&table->lock);
	if (!table->count) {
		table->object_size = (object_size + 63) & ~(size_t)63;
		table->tag = atomic_load_explicit(&gdri_process_page, memory_order_relaxed);
		table->init = init;
	}
	if (table->first_free || !add_chunk_locked(table)) {
		slot = gdri_slot_at(table, table->first_free - 1);
		table->first_free = slot->next_free;
	}
	pthread_mutex_unlock(&table->lock);
	/* New, or used before the fork by the parent process, one of whose threads may hold its lock. */
	if (slot && table->init && !gdri_slot_is_own(table, slot)) {
		table->init(slot);
		atomic_store_explicit(&slot->owner, gdri_process_tag(), memory_order_relaxed);
	}
	return slot;
}

uint64_t gdri_slot_publish(struct gdri_slot *slot)
{
	atomic_store_explicit(&slot->owner, gdri_process_tag(), memory_order_relaxed);
	atomic_fetch_add_explicit(&slot->generation, 1, memory_order_release);
	return gdri_slot_name(slot);
}

void gdri_slot_retire(struct gdri_slot *slot)
{
	atomic_fetch_add_explicit(&slot->generation, 1, memory_order_release);
}

void gdri_slots_free(struct gdri_slots *table, struct gdri_slot *slot)
{
	/* The next name would be the slot's first again: the slot stays unused. */
	if (atomic_load_explicit(&slot->generation, memory_order_relaxed) == UINT32_MAX - 1)
		return;
	pthread_mutex_lock(&table->lock);
	slot->next_free = table->first_free;
	table->first_free = slot->index + 1;
	pthread_mutex_unlock(&table->lock);
}

void gdri_slots_each(struct gdri_slots *table, void (*fn)(struct gdri_slot *slot, void *arg),
		     void *arg)
{
	uint32_t count = atomic_load_explicit(&table->count, memory_order_acquire);

	for (uint32_t i = 0; i < count; i++)
		if (gdri_slot_is_own(table, gdri_slot_at(table, i)))
			fn(gdri_slot_at(table, i), arg);
}

int gdri_slots_fail(struct gdri_slots *table, uint64_t name, const char *what)
{
	struct gdri_slot *slot = gdri_slots_find(table, name);

	if (slot && !gdri_slot_is_own(table, slot))
		return gdri_fail(EACCES, "0x%" PRIx64 " is %s of the parent process", name, what);
	return gdri_fail(EINVAL, "0x%" PRIx64 " is not %s", name, what);
}
