/* SPDX-License-Identifier: MIT */
/*
 * What the client programs share: device memory, and how a program says what came of it. A client
 * is written from how a known user of libgdrapi loads and calls it; it includes the installed
 * header, or declares the interface itself where that user does. C and C++.
 *
 * A client exits with 0 and one line that says what it has seen, 1 and a reason, or
 * CONTRACT_DISABLED where that user would switch itself off quietly.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTRACT_DISABLED 3

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Device memory, by cudaMalloc or, with CONTRACT_MEMORY=vmm, as an exportable VMM allocation. Of
 * cudaMalloc memory the address is 512 bytes off a GPU page where size is below 1 MiB, as a second
 * allocation of a program's is. gpu.c.
 */
uint64_t contract_alloc(size_t size);
void contract_free(uint64_t address);
void contract_to_gpu(uint64_t to, const void *from, size_t size);
void contract_from_gpu(void *to, uint64_t from, size_t size);

/* `size` bytes that end where memory ends: one byte more and the program dies. */
void *contract_guarded(size_t size);

#ifdef __cplusplus
}
#endif

#define FAIL(...)                                               \
	do {                                                    \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                   \
		fputc('\n', stderr);                            \
		exit(1);                                        \
	} while (0)

#define CHECK(cond)                                  \
	do {                                         \
		if (!(cond))                         \
			FAIL("%s is not so", #cond); \
	} while (0)

/* A call of the interface: 0 or it is over. */
#define OK(call)                                                        \
	do {                                                            \
		int rc_ = (call);                                       \
		if (rc_)                                                \
			FAIL("%s: %s (%d)", #call, strerror(rc_), rc_); \
	} while (0)

#define LOAD(library, slot, name)                           \
	do {                                                \
		void *symbol_ = dlsym(library, name);       \
		if (!symbol_)                               \
			FAIL("no symbol %s", name);         \
		memcpy(&(slot), &symbol_, sizeof(symbol_)); \
	} while (0)

/*
 * For a list of symbols, #define SYMBOLS(X) X(open) X(close) ...: the table's entries, of the types that
 * the installed header has, and what fills it from `lib`. The names are those that are looked up.
 */
#define SYMBOL(name)	  __typeof__(&gdr_##name) name;
#define LOAD_SYMBOL(name) LOAD(lib, f.name, "gdr_" #name);

#define DISABLED(...)                    \
	do {                             \
		printf(__VA_ARGS__);     \
		putchar('\n');           \
		exit(CONTRACT_DISABLED); \
	} while (0)

/* Whether a word written by the CPU at `map` is the GPU's word at `address`, and the other way. */
static inline void contract_same_word(volatile void *map, uint64_t address)
{
	volatile uint64_t *word = (volatile uint64_t *)map;
	uint64_t value = 0x1122334455667788, seen = 0;

	*word = value;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	contract_from_gpu(&seen, address, sizeof(seen));
	CHECK(seen == value);
	value = ~value;
	contract_to_gpu(address, &value, sizeof(value));
	CHECK(*word == value);
}

#endif
