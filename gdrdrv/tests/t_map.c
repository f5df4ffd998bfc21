// SPDX-License-Identifier: MIT
/* Mappings: lengths, flags, memory type, what may not be done to the VMA. */
#define _GNU_SOURCE
#include <signal.h>

#include "rig.h"

static const int rw = PROT_READ | PROT_WRITE;

static void t_lengths(void)
{
	uint64_t h = must_pin(drv, gpu_alloc(prov, 2 * GPU_PAGE), 2 * GPU_PAGE);
	static const size_t good[] = { 1, 4096, 4097, GPU_PAGE, 2 * GPU_PAGE - 1, 2 * GPU_PAGE };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		volatile uint8_t *p = must_map(drv, h, good[i]);

		p[good[i] - 1] = 7;
		CHECK(map(drv, h, good[i]) == MAP_FAILED && errno == EAGAIN); /* mapped already */
		unmap(p, good[i]);
	}
	CHECK(map(drv, h, 2 * GPU_PAGE + 1) == MAP_FAILED && errno == EINVAL);
	CHECK(map(drv, h, 1UL << 40) == MAP_FAILED);
}

/* Checks write-combining in the entries and in the kernel's list of memory types. */
static void t_wc(void)
{
	size_t size = 4 * GPU_PAGE, off;
	struct region r = region(size, rig.arg);

	for (off = 0; off < size; off += cpu_page()) {
		struct provider_pte pte;
#ifdef __x86_64__
		size_t run = rig.arg & PROVIDER_SCATTER ? GPU_PAGE : size;
#endif

		(void)r.p[off];
		pte = read_pte(prov, r.p + off);
		CHECK_EQ(pte.level, 1);
		if (!pte_is_wc(pte.pte))
			printf("# entry at 0x%zx: 0x%llx\n", off, (unsigned long long)pte.pte);
		CHECK(pte_is_wc(pte.pte));
#ifdef __x86_64__
		if (off % run == 0)
			CHECK(listed_as_wc(pte.pte & 0xffffffffff000ULL, run));
#endif
	}
}

/* Checks the type that both calls report of a mapped region. */
static void says_type(uint64_t h, unsigned int type)
{
	struct gdrdrv_ioc_get_info info;
	struct gdrdrv_ioc_get_info_v2 info2;

	OK(get_info(drv, h, &info));
	CHECK_EQ(info.mapped, 1);
	CHECK_EQ(info.wc_mapping, type == GDRDRV_MAPPING_TYPE_WC);
	OK(get_info_v2(drv, h, &info2));
	CHECK_EQ(info2.mapping_type, type);
}

/* Another driver holds the page uncached: the mapping is uncached too, and GET_INFO reports it. */
static void t_uncached_by_other(void)
{
	uint64_t va = gpu_alloc(prov, 2 * GPU_PAGE), h, other;
	volatile uint8_t *p;

#ifndef __x86_64__
	SKIP("only x86 forces one type on all mappings of a page");
#endif
	knob("map_uncached", 1);
	h = must_pin(drv, va, 2 * GPU_PAGE);
	knob("map_uncached", 0);
	p = must_map(drv, h, 2 * GPU_PAGE);
	CHECK_EQ(try_write(p, 0x21), 0);
	CHECK_EQ(*p, 0x21);
	CHECK(!pte_is_wc(read_pte(prov, p).pte));
	says_type(h, GDRDRV_MAPPING_TYPE_DEVICE);
	OK(unpin(drv, h));
	/* This get removes the other mapping: write-combining again. */
	other = must_pin(drv, va, 2 * GPU_PAGE);
	OK(unpin(drv, other));
	h = must_pin(drv, va, 2 * GPU_PAGE);
	unmap(p, 2 * GPU_PAGE);
	p = must_map(drv, h, 2 * GPU_PAGE);
	*p = 1;
	CHECK(pte_is_wc(read_pte(prov, p).pte));
	says_type(h, GDRDRV_MAPPING_TYPE_WC);
}

/*
 * The kernel refuses the memory type of run @nth and all later ones: the pin succeeds, and every
 * run of the mapping has the type that GET_INFO reports.
 */
static void refused_from(int nth)
{
	uint64_t va = gpu_alloc_flags(prov, 4 * GPU_PAGE, PROVIDER_SCATTER).va, h;
	size_t size = 4 * GPU_PAGE, off;
	volatile uint8_t *p;

	knob("refuse_reserve", nth);
	h = must_pin(drv, va, size);
	knob("refuse_reserve", 0);
	FAILS(EOPNOTSUPP, req_type(drv, h, GDRDRV_MAPPING_TYPE_WC));
	p = must_map(drv, h, size);
	for (off = 0; off < size; off += GPU_PAGE / 2) {
		p[off] = (uint8_t)(off / 4096 + 1);
		CHECK_EQ(gpu_byte(va + off), (uint8_t)(off / 4096 + 1));
		if (pte_is_wc(read_pte(prov, p + off).pte))
			printf("# refused from run %d on: write-combining at 0x%zx\n", nth, off);
		CHECK_EQ(read_pte(prov, p + off).level, 1);
		CHECK(!pte_is_wc(read_pte(prov, p + off).pte));
	}
	says_type(h, GDRDRV_MAPPING_TYPE_DEVICE);
	OK(unpin(drv, h));
	unmap(p, size);
	if (rig.gpl)
		CHECK_EQ(stat_of("memtypes"), 0);
	/* The next pin of the same memory is write-combining. */
	h = must_pin(drv, va, size);
	p = must_map(drv, h, size);
	for (off = 0; off < size; off += GPU_PAGE) {
		p[off] = 1;
		CHECK(pte_is_wc(read_pte(prov, p + off).pte));
	}
	says_type(h, GDRDRV_MAPPING_TYPE_WC);
	OK(unpin(drv, h));
	OK(gpu_free(prov, va));
	unmap(p, size);
}

static void t_reserve_refused(void)
{
	int nth;

#ifndef __x86_64__
	SKIP("only x86 reserves memory types");
#endif
	for (nth = 1; nth <= 4; nth++)
		refused_from(nth);
}

/*
 * Pins share pages. Each page is reserved once, and only while a pin has it: another driver gets a
 * page next to ours uncached, and ours stay write-combining.
 */
static void t_shared_pages(void)
{
	size_t size = 4 * GPU_PAGE, off, i;
	struct provider_alloc mem = gpu_alloc_flags(prov, size, 0);
	uint64_t whole = must_pin(drv, mem.va, size), part[100], other;
	volatile uint8_t *p;

#ifndef __x86_64__
	SKIP("only x86 reserves memory types");
#endif
	CHECK(listed_as_wc(mem.phys, size));
	for (i = 0; i < ARRAY_SIZE(part); i++)
		part[i] = must_pin(drv, mem.va + GPU_PAGE, 2 * GPU_PAGE);
	for (off = 0; off < size; off += GPU_PAGE)
		CHECK_EQ(nr_memtypes_at(mem.phys + off), 1);
	OK(unpin(drv, whole));
	for (i = 1; i < ARRAY_SIZE(part); i++)
		OK(unpin(drv, part[i]));
	CHECK(listed_as_wc(mem.phys + GPU_PAGE, 2 * GPU_PAGE));
	CHECK_EQ(nr_memtypes_at(mem.phys), 0);
	CHECK_EQ(nr_memtypes_at(mem.phys + 3 * GPU_PAGE), 0);

	knob("map_uncached", 1);
	other = must_pin(drv, mem.va, GPU_PAGE);
	OK(unpin(drv, other));
	CHECK(listed_as_uncached(mem.phys, cpu_page()));
	p = must_map(drv, part[0], 2 * GPU_PAGE);
	for (off = 0; off < 2 * GPU_PAGE; off += cpu_page()) {
		p[off] = 1;
		CHECK(pte_is_wc(read_pte(prov, p + off).pte));
	}
	says_type(part[0], GDRDRV_MAPPING_TYPE_WC);
	OK(unpin(drv, part[0]));
	knob("map_uncached", 0);
	/* This get removes the other mapping. */
	other = must_pin(drv, mem.va, GPU_PAGE);
	OK(unpin(drv, other));
}

/* Random parts of one buffer, pinned and unpinned: each page is listed once if a pin has it. */
static void t_parts(void)
{
	enum { PAGES = 12, PINS = 8 };
	struct provider_alloc mem = gpu_alloc_flags(prov, PAGES * GPU_PAGE, 0);
	struct {
		uint64_t handle;
		unsigned int first, pages;
	} pins[PINS] = { 0 };
	unsigned int i, page, x = rig.seed, round;

#ifndef __x86_64__
	SKIP("only x86 reserves memory types");
#endif
	for (round = 0; round < 150; round++) {
		x = x * 1664525u + 1013904223u;
		i = x >> 16 & (PINS - 1);
		if (pins[i].handle) {
			OK(unpin(drv, pins[i].handle));
			pins[i].handle = 0;
		} else {
			pins[i].first = (x >> 19) % PAGES;
			pins[i].pages = 1 + (x >> 24) % (PAGES - pins[i].first);
			pins[i].handle = must_pin(drv, mem.va + pins[i].first * GPU_PAGE,
						  pins[i].pages * GPU_PAGE);
		}
		for (page = 0; page < PAGES; page++) {
			unsigned int pinned = 0,
				     listed = nr_memtypes_at(mem.phys + page * GPU_PAGE);

			for (i = 0; i < PINS; i++)
				pinned += pins[i].handle && page >= pins[i].first &&
					  page < pins[i].first + pins[i].pages;
			if (listed != !!pinned)
				printf("# seed %u, round %u: page %u has %u pins and %u entries\n",
				       rig.seed, round, page, pinned, listed);
			CHECK_EQ(listed, !!pinned);
		}
	}
}

static void t_read_only(void)
{
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h = must_pin(drv, va, GPU_PAGE);
	uint8_t byte = 0x42;
	void *p = map_prot(drv, h, GPU_PAGE, PROT_READ, MAP_SHARED, NULL);

	CHECK(p != MAP_FAILED);
	gpu_poke(prov, va, &byte, 1);
	CHECK_EQ(*(volatile uint8_t *)p, 0x42);
	CHECK_EQ(try_write(p, 1), SIGSEGV);
	CHECK(mprotect(p, GPU_PAGE, rw) == -1 && errno == EACCES);
	CHECK_EQ(try_write(p, 1), SIGSEGV);
	CHECK_EQ(gpu_byte(va), 0x42);
}

/* What may not be done to a mapping. (mremap, madvise: t_walk.c) */
static void t_vma_flags(void)
{
	uint64_t h = must_pin(drv, gpu_alloc(prov, 2 * GPU_PAGE), 2 * GPU_PAGE);
	size_t page = cpu_page();
	uint8_t *p;

	CHECK(map_prot(drv, h, GPU_PAGE, rw, MAP_PRIVATE, NULL) == MAP_FAILED && errno == EINVAL);
	CHECK(map_prot(drv, h, GPU_PAGE, PROT_READ, MAP_PRIVATE, NULL) == MAP_FAILED);
	CHECK(map_prot(drv, h, GPU_PAGE, rw | PROT_EXEC, MAP_SHARED, NULL) == MAP_FAILED &&
	      errno == EPERM);
	p = (uint8_t *)(uintptr_t)must_map(drv, h, 2 * GPU_PAGE);
	p[0] = 1;
	p[GPU_PAGE] = 2;
	CHECK(mprotect(p, 2 * GPU_PAGE, rw | PROT_EXEC) == -1 && errno == EACCES);
	CHECK(munmap(p, page) == -1 && errno == EINVAL);
	CHECK(munmap(p + GPU_PAGE, GPU_PAGE) == -1 && errno == EINVAL);
	CHECK(munmap(p + page, page) == -1 && errno == EINVAL);
	CHECK(mprotect(p, page, PROT_READ) == -1 && errno == EINVAL);
	CHECK(mprotect(p + page, page, PROT_NONE) == -1 && errno == EINVAL);
	CHECK(madvise(p, 2 * GPU_PAGE, MADV_DODUMP) == -1);
	/* None of these calls harmed the mapping. */
	CHECK_EQ(p[0], 1);
	CHECK_EQ(p[GPU_PAGE], 2);
	CHECK_EQ(mprotect(p, 2 * GPU_PAGE, PROT_READ), 0);
	CHECK_EQ(try_write(p, 9), SIGSEGV);
	CHECK_EQ(mprotect(p, 2 * GPU_PAGE, rw), 0);
	CHECK_EQ(try_write(p, 9), 0);
	CHECK(pte_is_wc(read_pte(prov, p).pte));
	CHECK_EQ(munmap(p, 2 * GPU_PAGE), 0);
	must_map(drv, h, GPU_PAGE);
}

/*
 * Neither a move nor a refused one leaks a reference, and another mapping is refused after both.
 * Refused is a move of a part, with or without the first page.
 */
static void t_mremap_refs(void)
{
	int i;
	size_t size = 2 * GPU_PAGE, page = cpu_page();
	uint64_t h = must_pin(drv, gpu_alloc(prov, size), size);
	uint8_t *p = (uint8_t *)(uintptr_t)must_map(drv, h, size), *q = reserve(size, page), *was;
	struct gdrdrv_ioc_get_info info;

	p[0] = 1;
	for (i = 0; i < 100; i++) {
		CHECK(mremap(p, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, q) == MAP_FAILED);
		CHECK(mremap(p + page, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, q) == MAP_FAILED);
		CHECK(mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
		was = p, p = q, q = was;
		CHECK_EQ(p[0], 1);
		CHECK(map(drv, h, size) == MAP_FAILED && errno == EAGAIN);
		OK(populate(drv, h));
		CHECK_EQ(nr_entries(p, size, page), size / page);
	}
	CHECK_EQ(munmap(p, size), 0);
	OK(get_info(drv, h, &info));
	CHECK_EQ(info.mapped, 0);
}

static void t_req_type(void)
{
	uint64_t h = must_pin(drv, gpu_alloc(prov, GPU_PAGE), GPU_PAGE);
	volatile uint8_t *p;

	FAILS(EINVAL, req_type(drv, h, 4));
	FAILS(EINVAL, req_type(drv, h, 0xffffffff));
	FAILS(EOPNOTSUPP, req_type(drv, h, GDRDRV_MAPPING_TYPE_CACHING));
	OK(req_type(drv, h, GDRDRV_MAPPING_TYPE_WC));
	p = must_map(drv, h, GPU_PAGE);
	FAILS(EAGAIN, req_type(drv, h, GDRDRV_MAPPING_TYPE_WC));
	says_type(h, GDRDRV_MAPPING_TYPE_WC);
	unmap(p, GPU_PAGE);
	OK(req_type(drv, h, GDRDRV_MAPPING_TYPE_NONE));
#ifdef __x86_64__
	FAILS(EOPNOTSUPP, req_type(drv, h, GDRDRV_MAPPING_TYPE_DEVICE));
#else
	OK(req_type(drv, h, GDRDRV_MAPPING_TYPE_DEVICE));
	p = must_map(drv, h, GPU_PAGE);
	*p = 1;
	says_type(h, GDRDRV_MAPPING_TYPE_DEVICE);
	CHECK(!pte_is_wc(read_pte(prov, p).pte));
#endif
}

/* A mapping outlives its descriptor and keeps the pages pinned. */
static void t_close_first(void)
{
	struct region r = region(GPU_PAGE, 0);

	close(drv);
	r.p[5] = 0x77;
	CHECK_EQ(gpu_byte(r.va + 5), 0x77);
	CHECK_EQ(gpu_info(prov).pins, 1);
	unmap(r.p, GPU_PAGE);
	CHECK_EQ(gpu_info(prov).pins, 0); /* the unmap was the last close */
}

/* Unpin of a mapped region: entries are removed, the VMA stays, accesses raise SIGBUS. */
static void t_unpin_mapped(void)
{
	struct region r = region(GPU_PAGE, 0);

	r.p[0] = 1;
	OK(unpin(drv, r.h));
	CHECK_EQ(read_pte(prov, r.p).level, 0);
	CHECK_EQ(try_read(r.p), SIGBUS);
	CHECK_EQ(try_write(r.p + 4096, 1), SIGBUS);
	CHECK_EQ(gpu_info(prov).pins, 0);
	unmap(r.p, GPU_PAGE);
}

/* One fault per 2 MiB, and none for existing entries. */
static void t_fault_around(void)
{
	size_t size = 6 * MiB, off;
	uint64_t h = must_pin(drv, gpu_alloc_flags(prov, size, PROVIDER_SCATTER).va, size);
	uint8_t *at = reserve(size, 2 * MiB);
	long faults = stat_of("faults"), ptes = stat_of("ptes");

	must_map_at(drv, h, size, at);
	for (off = 0; off < size; off += cpu_page())
		at[off] = 1;
	CHECK_EQ(nr_entries(at, size, cpu_page()), size / cpu_page());
	if (rig.gpl) {
		CHECK_EQ(stat_of("faults") - faults, 3);
		CHECK_EQ(stat_of("ptes") - ptes, (long)(size / cpu_page()));
	}
}

/* One call makes all entries, and no fault follows. */
static void t_populate(void)
{
	size_t size = 6 * MiB, off, len = size - GPU_PAGE - 1;
	uint64_t va = gpu_alloc_flags(prov, size, PROVIDER_SCATTER).va, h = must_pin(drv, va, size);
	uint8_t *p = (uint8_t *)reserve(size + GPU_PAGE, 2 * MiB) + cpu_page();
	long faults = stat_of("faults");

	FAILS(EINVAL, populate(drv, h)); /* not mapped */
	FAILS(EINVAL, populate(drv, h + 1));
	must_map_at(drv, h, len, p);
	OK(populate(drv, h));
	OK(populate(drv, h)); /* existing entries stay */
	for (off = 0; off < len; off += cpu_page()) {
		struct provider_pte pte = read_pte(prov, p + off);

		CHECK_EQ(pte.level, 1);
		CHECK(pte_is_wc(pte.pte));
		CHECK(pte_is_written(pte.pte)); /* the CPU has no bit to set at the write */
		p[off] = (uint8_t)(off / 4096);
	}
	CHECK_EQ(read_pte(prov, p + size - GPU_PAGE).level, 0); /* the address space behind it */
	if (rig.gpl)
		CHECK_EQ(stat_of("faults"), faults);
	for (off = 0; off < len; off += cpu_page())
		CHECK_EQ(p[off], (uint8_t)(off / 4096));
	CHECK_EQ(mprotect(p, len, PROT_NONE), 0);
	OK(populate(drv, h)); /* entries without access */
	CHECK_EQ(try_read(p), SIGSEGV);
	CHECK_EQ(mprotect(p, len, PROT_READ), 0);
	CHECK_EQ(try_write(p, 1), SIGSEGV);
	OK(gpu_free(prov, va));
	CHECK_EQ(populate(drv, h), by_callback() ? -EINVAL : 0);
	CHECK_EQ(try_read(p), by_callback() ? SIGBUS : 0);
	CHECK_EQ(munmap(p, len), 0);
	FAILS(EINVAL, populate(drv, h));
	/* Entries are not dirty once the mapping is read-only. */
	h = must_pin(drv, gpu_alloc(prov, GPU_PAGE), GPU_PAGE);
	p = map(drv, h, GPU_PAGE);
	CHECK_EQ(mprotect(p, GPU_PAGE, PROT_READ), 0);
	OK(populate(drv, h));
	CHECK(!pte_is_written(read_pte(prov, p).pte));
}

/* Only faults make entries: an untouched mapping has none. */
static void t_no_entries_in_mmap(void)
{
	uint64_t h = must_pin(drv, gpu_alloc(prov, GPU_PAGE), GPU_PAGE);
	uint8_t *at = reserve(GPU_PAGE, cpu_page());

	must_map_at(drv, h, GPU_PAGE, at);
	CHECK_EQ(read_pte(prov, at).level, 0);
	at[0] = 1;
	CHECK_EQ(read_pte(prov, at).level, 1);
}

const struct test tests_map[] = {
	{ "map-lengths", t_lengths, ANY_MODE, 0, 0 },
	{ "map-wc", t_wc, ANY_MODE, 0, 0 },
	{ "map-wc-scattered", t_wc, ANY_MODE, 0, PROVIDER_SCATTER },
	{ "map-uncached-by-other", t_uncached_by_other, ANY_MODE, 0, 0 },
	{ "map-reserve-refused", t_reserve_refused, ANY_MODE, 0, 0 },
	{ "map-shared-pages", t_shared_pages, ANY_MODE, 0, 0 },
	{ "map-parts", t_parts, ANY_MODE, 60, 0 },
	{ "map-read-only", t_read_only, ANY_MODE, 0, 0 },
	{ "map-vma-flags", t_vma_flags, ANY_MODE, 0, 0 },
	{ "map-mremap-refs", t_mremap_refs, ANY_MODE, 0, 0 },
	{ "map-req-type", t_req_type, ANY_MODE, 0, 0 },
	{ "map-close-first", t_close_first, ANY_MODE, 0, 0 },
	{ "map-unpin-mapped", t_unpin_mapped, ANY_MODE, 0, 0 },
	{ "map-fault-around", t_fault_around, ANY_MODE, 0, 0 },
	{ "map-populate", t_populate, ANY_MODE, 0, 0 },
	{ "map-no-entries-in-mmap", t_no_entries_in_mmap, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
