// SPDX-License-Identifier: MIT
/* Tables by index and generation: names that go stale, reuse, growth. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/unit.h"
#include "common/wrap.h"
#include "base/slots.h"

struct object {
	struct gdri_slot slot;
	int inits;
};

static void init_object(struct gdri_slot *slot)
{
	((struct object *)slot)->inits++;
}

static struct gdri_slots table;

static struct gdri_slot *new_in(struct gdri_slots *in)
{
	return gdri_slots_new(in, sizeof(struct object), init_object);
}

static void names_and_generations(void)
{
	struct gdri_slot *a = new_in(&table), *b = new_in(&table), *again;
	uint64_t name, next;

	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_ne(a, b);
	ck_assert_uint_eq((uintptr_t)a % 64, 0);
	ck_assert_int_eq(((struct object *)a)->inits, 1);
	name = gdri_slot_publish(a);
	ck_assert_uint_ne(name, 0);
	ck_assert_uint_ne((uint32_t)name, 0);
	ck_assert_ptr_eq(gdri_slots_find(&table, name), a);
	/* An invented name, of a chunk that there is not. */
	ck_assert_ptr_null(gdri_slots_find(&table, name + 9 * GDRI_SLOTS_PER_CHUNK + 1));
	ck_assert_ptr_null(gdri_slots_find(&table, gdri_slot_publish(b) ^ 1ULL << 32));
	/* Of the first chunk behind the table, whose place has the lock. */
	pthread_mutex_lock(&table.lock);
	ck_assert_ptr_null(gdri_slots_find(
		&table, 1ULL << 32 | (GDRI_SLOTS_CHUNKS * GDRI_SLOTS_PER_CHUNK + 1ULL)));
	pthread_mutex_unlock(&table.lock);
	gdri_slot_retire(a);
	ck_assert_ptr_null(gdri_slots_find(&table, name));
	/* Nor by the generation that a retired object has. */
	ck_assert_ptr_null(gdri_slots_find(&table, name + (1ULL << 32)));
	gdri_slots_free(&table, a);
	ck_assert_ptr_null(gdri_slots_find(&table, name));
	ck_assert_ptr_null(gdri_slots_find(&table, name + (1ULL << 32)));

	/* The index is used again, the name is not. */
	again = new_in(&table);
	ck_assert_ptr_eq(again, a);
	next = gdri_slot_publish(again);
	ck_assert_uint_eq((uint32_t)next, (uint32_t)name);
	ck_assert_uint_ne(next, name);
	ck_assert_ptr_null(gdri_slots_find(&table, name));
	ck_assert_ptr_eq(gdri_slots_find(&table, next), again);
	ck_assert_int_eq(((struct object *)again)->inits, 1);
}

/* Several chunks: every object its own, found by its own name only; none lost on the way back. */
static void many(void)
{
	enum { N = 5 * GDRI_SLOTS_PER_CHUNK + 3 };
	struct gdri_slot *slot[N];
	uint64_t name[N];
	uint32_t count;

	for (int i = 0; i < N; i++) {
		slot[i] = new_in(&table);
		ck_assert_ptr_nonnull(slot[i]);
		name[i] = gdri_slot_publish(slot[i]);
	}
	for (int i = 0; i < N; i++)
		ck_assert_ptr_eq(gdri_slots_find(&table, name[i]), slot[i]);
	count = table.count;
	for (int i = 0; i < N; i++) {
		gdri_slot_retire(slot[i]);
		gdri_slots_free(&table, slot[i]);
	}
	for (int i = 0; i < N; i++)
		ck_assert_ptr_null(gdri_slots_find(&table, name[i]));
	for (int i = 0; i < N; i++)
		ck_assert_ptr_nonnull(new_in(&table));
	ck_assert_uint_eq(table.count, count);
}

static void no_memory(void)
{
	static struct gdri_slots small;

	wrap_reset();
	wrap_fail("aligned_alloc", 1, 12);
	ck_assert_ptr_null(new_in(&small));
	ck_assert_uint_eq(small.count, 0);
	ck_assert_ptr_nonnull(new_in(&small));
}

static void full_table(void)
{
	static struct gdri_slots full;

	full.count = GDRI_SLOTS_PER_CHUNK * GDRI_SLOTS_CHUNKS;
	ck_assert_ptr_null(new_in(&full));
}

/* A slot whose names are used up is not used again: the next name would be the first one. */
static void no_name_comes_back(void)
{
	static struct gdri_slots old;
	struct gdri_slot *a = new_in(&old);

	atomic_store(&a->generation, UINT32_MAX - 3);
	ck_assert_uint_eq(gdri_slot_publish(a) >> 32, UINT32_MAX - 2);
	gdri_slot_retire(a);
	gdri_slots_free(&old, a);
	for (uint32_t i = 1; i <= GDRI_SLOTS_PER_CHUNK; i++)
		ck_assert_ptr_ne(new_in(&old), a);
	ck_assert_uint_eq(old.count, 2 * GDRI_SLOTS_PER_CHUNK);
}

static const struct unit_test tests[] = {
	{ "names and generations", names_and_generations, NULL },
	{ "many objects", many, NULL },
	{ "no memory for a chunk", no_memory, NULL },
	{ "a full table", full_table, NULL },
	{ "no name comes back", no_name_comes_back, NULL },
};

static void enter(void)
{
	ck_assert_int_eq(gdri_process_enter(), 0);
}

UNIT_MAIN("slots", tests, unit_before = enter)
