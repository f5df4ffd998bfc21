/* SPDX-License-Identifier: MIT */
/*
 * NVSHMEM: loads the versioned name lazily, asks the loaded version before anything else and wants
 * its own or newer; hands the first info call a struct of the second one's size; pins and maps the
 * whole heap; atomics of the CPU on it, and the copies with any offset. Newer ones look for the v2
 * calls as well.
 */
#include <gdrapi.h>

#include "contract.h"

#define HEAP ((size_t)8 << 20)

/* clang-format off */
#define SYMBOLS(X) X(driver_get_version) X(open) X(close) X(pin_buffer) X(unpin_buffer) X(map) \
	X(unmap) X(get_info) X(copy_from_mapping) X(copy_to_mapping) X(pin_buffer_v2) X(map_v2) \
	X(get_attribute)
/* clang-format on */

static struct {
	SYMBOLS(SYMBOL)
	SYMBOL(runtime_get_version)
} f;

static void *load(gdr_t *g)
{
	int major = 0, minor = 0;
	void *lib = contract_load("libgdrapi.so.2", RTLD_LAZY);

	LOAD(lib, f.runtime_get_version, "gdr_runtime_get_version");
	f.runtime_get_version(&major, &minor);
	CHECK(major == GDR_API_MAJOR_VERSION && minor >= GDR_API_MINOR_VERSION);
	SYMBOLS(LOAD_SYMBOL)
	*g = f.open();
	if (!*g) {
		CHECK(!dlclose(lib));
		DISABLED("gdr_open fails: off");
	}
	return lib;
}

static void use_atomics(char *heap, uint64_t base)
{
	uint64_t word, *p = (uint64_t *)(void *)(heap + HEAP / 2);
	uint32_t *q = (uint32_t *)(void *)(heap + HEAP - 4);

	__atomic_store_n(p, 40, __ATOMIC_SEQ_CST);
	CHECK(__atomic_fetch_add(p, 2, __ATOMIC_SEQ_CST) == 40);
	contract_from_gpu(&word, base + HEAP / 2, sizeof(word));
	CHECK(word == 42);
	__atomic_store_n(q, 7, __ATOMIC_SEQ_CST);
	CHECK(__atomic_exchange_n(q, 9, __ATOMIC_SEQ_CST) == 7);
}

int main(void)
{
	gdr_info_t *info = (gdr_info_t *)contract_guarded(sizeof(*info));
	int major = 0, minor = 0, value = -1;
	unsigned char tail[8];
	uint64_t heap_base;
	char in[37], out[37];
	gdr_mh_t mh;
	void *map;
	char *heap;
	gdr_t g;
	void *lib = load(&g);

	OK(f.driver_get_version(g, &major, &minor));
	heap_base = contract_alloc(HEAP);
	CHECK((heap_base & GPU_PAGE_OFFSET) == 0);
	OK(f.pin_buffer(g, heap_base, HEAP, 0, 0, &mh));
	memset(info, 0x5a, sizeof(*info));
	memset(tail, 0x5a, sizeof(tail));
	OK(f.get_info(g, mh, info));
	/* The first struct's 40 bytes are written, and not one more. */
	CHECK(!memcmp((char *)info + 40, tail, sizeof(tail)));
	CHECK(info->va == heap_base && info->mapped_size == HEAP && !info->mapped);
	OK(f.map(g, mh, &map, HEAP));
	OK(f.get_info(g, mh, info));
	CHECK(info->mapped);
	heap = (char *)map + (heap_base - info->va);
	use_atomics(heap, heap_base);
	for (size_t at = 0; at < 70; at += 7) {
		memset(in, (int)at, sizeof(in));
		OK(f.copy_to_mapping(mh, heap + at, in, sizeof(in)));
		OK(f.copy_from_mapping(mh, out, heap + at, sizeof(out)));
		CHECK(!memcmp(in, out, sizeof(in)));
	}
	OK(f.unmap(g, mh, map, HEAP));
	OK(f.unpin_buffer(g, mh));

	/* The v2 calls, the flag with its retry. */
	OK(f.get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	CHECK(value == 0 || value == 1);
	if (!value || f.pin_buffer_v2(g, heap_base, HEAP, GDR_PIN_FLAG_FORCE_PCIE, &mh))
		OK(f.pin_buffer_v2(g, heap_base, HEAP, GDR_PIN_FLAG_DEFAULT, &mh));
	OK(f.map_v2(g, mh, &map, HEAP, GDR_MAP_FLAG_DEFAULT));
	contract_same_word(map, heap_base);
	OK(f.close(g)); /* with all that is live */
	contract_free(heap_base);
	CHECK(!dlclose(lib));
	printf("driver %d.%d, first info call with %zu bytes\n", major, minor, sizeof(*info));
	return 0;
}
