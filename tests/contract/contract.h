/* SPDX-License-Identifier: MIT */
/*
 * What the client programs share: device memory, loading, and checks. A client loads and calls
 * libgdrapi as a known program does; it includes the installed header, or declares the interface
 * itself where that program does. C and C++.
 *
 * A client exits with 0 and one line that says what it has seen, with 1 and a reason, or with
 * CONTRACT_DISABLED where that program would switch itself off quietly.
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
 * gpu.c: device memory, by cudaMalloc or, with CONTRACT_MEMORY=vmm, as an exportable VMM
 * allocation. An allocation of cudaMalloc below 1 MiB begins 512 bytes behind a GPU page, as a
 * program's second one.
 */
uint64_t contract_alloc(size_t size);
void contract_free(uint64_t address);
void contract_to_gpu(uint64_t to, const void *from, size_t size);
void contract_from_gpu(void *to, uint64_t from, size_t size);

/* `size` bytes in front of an unmapped page. */
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

/* A call of the interface that must return 0. */
#define OK(call)                                                        \
	do {                                                            \
		int rc_ = (call);                                       \
		if (rc_)                                                \
			FAIL("%s: %s (%d)", #call, strerror(rc_), rc_); \
	} while (0)

/* The library, or the end of the program. */
static inline void *contract_load(const char *name, int flags)
{
	void *lib = dlopen(name, flags);

	if (!lib)
		FAIL("%s", dlerror());
	return lib;
}

#define LOAD(library, slot, name)                           \
	do {                                                \
		void *symbol_ = dlsym(library, name);       \
		if (!symbol_)                               \
			FAIL("no symbol %s", name);         \
		memcpy(&(slot), &symbol_, sizeof(symbol_)); \
	} while (0)

/*
 * For a client's list of symbols, #define SYMBOLS(X) X(open) X(close) ...: an entry of its table
 * `f`, of the installed header's type; and the statement that fills it from `lib`.
 */
#define SYMBOL(name)	  __typeof__(&gdr_##name) name;
#define LOAD_SYMBOL(name) LOAD(lib, f.name, "gdr_" #name);

#define DISABLED(...)                    \
	do {                             \
		printf(__VA_ARGS__);     \
		putchar('\n');           \
		exit(CONTRACT_DISABLED); \
	} while (0)

/* A context of the client's, or a client that is off. */
#define OPEN(g, call)                                    \
	do {                                             \
		(g) = (call);                            \
		if (!(g))                                \
			DISABLED("gdr_open fails: off"); \
	} while (0)

#define AT_LEAST(major, minor, m, n) CHECK((major) > (m) || ((major) == (m) && (minor) >= (n)))

/* Copies `size` bytes both ways by the client's two calls, and compares them with the GPU's. */
#define BOTH_WAYS(to, from, mh, map, address, size)     \
	do {                                            \
		char in_[100000], out_[100000];         \
		CHECK((size) <= sizeof(in_));           \
		for (size_t i_ = 0; i_ < (size); i_++)  \
			in_[i_] = (char)(i_ * 11 / 7);  \
		OK(to(mh, map, in_, size));             \
		contract_from_gpu(out_, address, size); \
		CHECK(!memcmp(in_, out_, size));        \
		memset(in_, 0x22, size);                \
		contract_to_gpu(address, in_, size);    \
		OK(from(mh, out_, map, size));          \
		CHECK(!memcmp(in_, out_, size));        \
	} while (0)

/* A word that the CPU writes at `map` is the GPU's word at `address`, and the other way round. */
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
