// SPDX-License-Identifier: MIT
/*
 * The functions that gcc's -fsanitize=thread calls: each atomic access is a point, and is made
 * sequentially consistent; with EXPLORE_PLAIN=1 each plain one that is not of the stack is a point
 * too. race.c is told of all. See explore.h; the names are those of gcc's gcc/sanitizer.def.
 */
#include <stdint.h>
#include <stdlib.h>

#include "explore/explore.h"

#define PC __builtin_return_address(0)

static bool plain;

void __tsan_init(void);
void __tsan_init(void)
{
	plain = getenv("EXPLORE_PLAIN");
}

static inline void at_access(const void *p, size_t size, int kind, void *pc)
{
	if (__builtin_expect(plain, 0) && ex_inside() && !ex_is_stack(p))
		ex_at_point(false, pc);
	ex_race_access(p, size, kind, pc);
}

#define ACCESS(name, size, kind)              \
	void name(void *p);                   \
	void name(void *p)                    \
	{                                     \
		at_access(p, size, kind, PC); \
	}
#define ACCESSES(size)                                     \
	ACCESS(__tsan_read##size, size, EX_LOAD)           \
	ACCESS(__tsan_write##size, size, EX_STORE)         \
	ACCESS(__tsan_unaligned_read##size, size, EX_LOAD) \
	ACCESS(__tsan_unaligned_write##size, size, EX_STORE)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

#define RANGE(name, kind)                    \
	void name(void *p, unsigned long n); \
	void name(void *p, unsigned long n)  \
	{                                    \
		at_access(p, n, kind, PC);   \
	}
RANGE(__tsan_read_range, EX_LOAD)
RANGE(__tsan_write_range, EX_STORE)

void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
	ex_race_call(pc);
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
	ex_race_return();
}

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
	ex_at_point(false, PC);
	ex_race_fence(order);
	if (order == __ATOMIC_SEQ_CST)
		ex_unlocks_are_seen();
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
	(void)order;
}

#define UPDATE(bits, operation, builtin)                                                   \
	uint##bits##_t __tsan_atomic##bits##_##operation(volatile uint##bits##_t *p,       \
							 uint##bits##_t value, int order); \
	uint##bits##_t __tsan_atomic##bits##_##operation(volatile uint##bits##_t *p,       \
							 uint##bits##_t value, int order)  \
	{                                                                                  \
		ex_at_point(false, PC);                                                    \
		ex_race_atomic(p, bits / 8, EX_UPDATE, order, PC);                         \
		return builtin(p, value, __ATOMIC_SEQ_CST);                                \
	}
#define EXCHANGE(bits, kind)                                                                      \
	int __tsan_atomic##bits##_compare_exchange_##kind(                                        \
		volatile uint##bits##_t *p, uint##bits##_t *expected, uint##bits##_t value,       \
		int order, int otherwise);                                                        \
	int __tsan_atomic##bits##_compare_exchange_##kind(                                        \
		volatile uint##bits##_t *p, uint##bits##_t *expected, uint##bits##_t value,       \
		int order, int otherwise)                                                         \
	{                                                                                         \
		int done;                                                                         \
                                                                                                  \
		ex_at_point(false, PC);                                                           \
		done = __atomic_compare_exchange_n(p, expected, value, 0, __ATOMIC_SEQ_CST,       \
						   __ATOMIC_SEQ_CST);                             \
		ex_race_atomic(p, bits / 8, done ? EX_UPDATE : EX_LOAD, done ? order : otherwise, \
			       PC);                                                               \
		return done;                                                                      \
	}
#define ATOMICS(bits)                                                                           \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order); \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order)  \
	{                                                                                       \
		ex_at_point(false, PC);                                                         \
		ex_race_atomic(p, bits / 8, EX_LOAD, order, PC);                                \
		return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                    \
	}                                                                                       \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t value,      \
					 int order);                                            \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t value,      \
					 int order)                                             \
	{                                                                                       \
		ex_at_point(false, PC);                                                         \
		ex_race_atomic(p, bits / 8, EX_STORE, order, PC);                               \
		__atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                   \
	}                                                                                       \
	UPDATE(bits, exchange, __atomic_exchange_n)                                             \
	UPDATE(bits, fetch_add, __atomic_fetch_add)                                             \
	UPDATE(bits, fetch_sub, __atomic_fetch_sub)                                             \
	UPDATE(bits, fetch_and, __atomic_fetch_and)                                             \
	UPDATE(bits, fetch_or, __atomic_fetch_or)                                               \
	UPDATE(bits, fetch_xor, __atomic_fetch_xor)                                             \
	EXCHANGE(bits, strong)                                                                  \
	EXCHANGE(bits, weak)
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
