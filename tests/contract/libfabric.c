/* SPDX-License-Identifier: MIT */
/*
 * libfabric: opens the unversioned name, takes eight symbols, opens a context, and closes the
 * library at once; the symbols and the context stay in use. It opens the library again later, by
 * the versioned name in newer releases. Never asks for the info: the map pointer stands for the
 * address rounded down to a GPU page. A range whose end is a page's end is registered with one page
 * more.
 */
#include <pthread.h>

#include <gdrapi.h>

#include "contract.h"

/* clang-format off */
#define SYMBOLS(X) X(open) X(close) X(pin_buffer) X(unpin_buffer) X(map) X(unmap) \
	X(copy_to_mapping) X(copy_from_mapping)
/* clang-format on */

struct ops {
	SYMBOLS(SYMBOL)
};

static pthread_spinlock_t lock;

static void *load(struct ops *ops, const char *name)
{
	void *lib = contract_load(name, RTLD_NOW);
	struct ops f;

	SYMBOLS(LOAD_SYMBOL)
	*ops = f;
	return lib;
}

static void register_and_copy(const struct ops *f, gdr_t g, uint64_t address, size_t size)
{
	uint64_t begin = address & GPU_PAGE_MASK;
	uint64_t end = ((address + size) & GPU_PAGE_MASK) + GPU_PAGE_SIZE;
	gdr_mh_t mh;
	void *map;

	pthread_spin_lock(&lock);
	OK(f->pin_buffer(g, begin, end - begin, 0, 0, &mh));
	OK(f->map(g, mh, &map, end - begin));
	pthread_spin_unlock(&lock);
	BOTH_WAYS(f->copy_to_mapping, f->copy_from_mapping, mh, (char *)map + (address - begin),
		  address, size);
	pthread_spin_lock(&lock);
	OK(f->unmap(g, mh, map, end - begin));
	OK(f->unpin_buffer(g, mh));
	pthread_spin_unlock(&lock);
}

int main(void)
{
	struct ops first, again;
	uint64_t address;
	void *lib;
	gdr_t g;

	lib = load(&first, "libgdrapi.so");
	g = first.open();
	CHECK(!dlclose(lib));
	if (!g)
		DISABLED("gdr_open fails: off");
	CHECK(!pthread_spin_init(&lock, 0));
	address = contract_alloc(1 << 20);
	register_and_copy(&first, g, address + 100, 3000);
	register_and_copy(&first, g, (address & GPU_PAGE_MASK) + 2 * GPU_PAGE_SIZE - 64, 64);

	lib = load(&again, "libgdrapi.so.2");
	CHECK(again.pin_buffer == first.pin_buffer);
	register_and_copy(&again, g, address + 500, 1);
	CHECK(!dlclose(lib));
	register_and_copy(&first, g, address, 3000);
	OK(first.close(g));
	contract_free(address);
	printf("used after dlclose, opened again by the other name\n");
	return 0;
}
