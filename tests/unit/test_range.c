// SPDX-License-Identifier: MIT
/* barcopy_map_range(): errors, the word of a flush, vectors, a full BAR; tests/model has the rest. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "common/wrap.h"
#include "fixture.h"

/* Mappings so far, by the rm backend. */
static unsigned long maps_made(void)
{
	unsigned long (*calls)(const char *);

	*(void **)&calls = dlsym(RTLD_DEFAULT, "gdrsim_rm_calls");
	ck_assert_ptr_nonnull(calls);
	return calls("RM_MAP_MEMORY");
}

/* A vector is read from its first piece on; a wrong piece is named, with what is wrong. */
static void vectors(void)
{
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	barcopy_handle_seg_t *v = (barcopy_handle_seg_t *)(void *)(pages + PAGE);
	void *cpu;

	ck_assert_ptr_ne(pages, MAP_FAILED);
	ck_assert_int_eq(mprotect(pages, PAGE, PROT_NONE), 0);
	OK(barcopy_map_range(g, vmm_new(0, 1), 64, 0, &cpu, &v[0].handle));
	v[0].seg = (barcopy_copy_seg_t){ .map_ptr = cpu, .host_ptr = v + 2, .size = 8 };
	v[1] = v[0];
	OK(barcopy_copyv_to_mappings(v, 2, 0));
	for (int i = 0; i < 2; i++) {
		v[1].seg.flags = i ? 0 : 1u << 31;
		v[1].seg.reserved = i;
		FAILS_WITH(EINVAL, "segment 1: unknown flags or reserved not 0",
			   barcopy_copyv_to_mappings(v, 2, 0));
	}
	OK(barcopy_unmap_range(g, v[0].handle));
}

/* A flush reads the word around the range's first byte; behind the last page nothing is mapped. */
static void flush(void)
{
	static const size_t offsets[] = { 0, 1, PAGE - 1 };
	char *host = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr d = vmm_new(0, 1);
	gdr_mh_t mh;
	void *cpu;

	ck_assert_ptr_ne(host, MAP_FAILED);
	host = (char *)(((uintptr_t)host + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
	ck_assert_int_eq(mprotect(host, PAGE, PROT_READ | PROT_WRITE), 0);
	CU(cuda.cuMemHostRegister_v2(host, PAGE, 0));
	for (size_t i = 0; i < 2 * COUNT(offsets); i++) {
		uint64_t addr = i % 2 ? d : (uintptr_t)host;

		OK(barcopy_map_range(g, addr + offsets[i / 2], 1, 0, &cpu, &mh));
		OK(barcopy_flush(mh));
		OK(barcopy_unmap_range(g, mh));
	}
}

/* Of a read-only range the copy engine would do no write, so it is not made for them. */
static void no_writes(void)
{
	barcopy_copy_options_t o = { .struct_size = sizeof(o), .engine_write_min = 1 };
	CUdeviceptr d = standin_alloc(CHUNK);
	gdr_mh_t mh;
	void *cpu;

	OK(barcopy_map_range(g, d, 8, BARCOPY_MAP_RANGE_READ_ONLY, &cpu, &mh));
	CU(cuda.cuMemFree_v2(d));
	OK(barcopy_set_copy_options(mh, &o));
	o.engine_read_min = 1;
	FAILS_WITH(EINVAL, "freed", barcopy_set_copy_options(mh, &o));
	OK(barcopy_unmap_range(g, mh));
}

/* Where mprotect() fails, the call fails and leaves nothing. */
static void not_protected(void)
{
	static const int errors[][2] = { { ENOMEM, ENOMEM }, { EACCES, ENOTSUP } };
	barcopy_stats_t s = { .struct_size = sizeof(s) };
	CUdeviceptr d = vmm_new(0, 1);
	gdr_mh_t mh = { 77 };
	void *cpu = NULL;

	for (size_t i = 0; i < COUNT(errors); i++) {
		long long mapped = wrap_mapped();
		char text[64];

		snprintf(text, sizeof(text), "read-only: %s", strerror(errors[i][0]));
		wrap_reset();
		wrap_fail("mprotect", 0, errors[i][0]);
		FAILS_WITH(errors[i][1], text,
			   barcopy_map_range(g, d, 8, BARCOPY_MAP_RANGE_READ_ONLY, &cpu, &mh));
		wrap_reset();
		ck_assert_uint_eq(mh.h, 77);
		ck_assert_ptr_null(cpu);
		ck_assert_int_eq(wrap_mapped() - mapped, 0);
		OK(barcopy_get_stats(g, &s));
		ck_assert_uint_eq(s.maps, s.unmaps);
		ck_assert_uint_eq(s.pins, s.unpins);
	}
}

static void errors(void)
{
	CUdeviceptr d = vmm_new(0, 1);
	void *cpu = &d;
	gdr_mh_t mh = { 42 }, other, pinned;
	unsigned long before, asked = cuda_hooks.calls("cuDeviceTotalMem");

	FAILS(EINVAL, barcopy_map_range(g, d, 0, 0, &cpu, &mh));
	FAILS(EINVAL, barcopy_map_range(g, 0, 8, 0, &cpu, &mh));
	FAILS(EINVAL, barcopy_map_range(g, d, 8, 4, &cpu, &mh));
	FAILS(EINVAL, barcopy_map_range(g, d, 8, 0, NULL, &mh));
	FAILS(EINVAL, barcopy_map_range(g, d, 8, 0, &cpu, NULL));
	FAILS(EINVAL, barcopy_map_range(NULL, d, 8, 0, &cpu, &mh));
	FAILS(EOVERFLOW, barcopy_map_range(g, d, UINT64_MAX - 5, 0, &cpu, &mh));
	FAILS(EINVAL, barcopy_map_range(g, (uint64_t)1 << 58, 5, 0, &cpu, &mh));
	FAILS(EINVAL, barcopy_map_range(g, (uintptr_t)&d, 8, 0, &cpu, &mh));
	ck_assert_ptr_eq(cpu, &d);
	ck_assert_uint_eq(mh.h, 42);
	FAILS(EINVAL, barcopy_unmap_range(g, mh));
	/* a failed call leaves the shared pin */
	OK(barcopy_map_range(g, d, 8, 0, &cpu, &mh));
	FAILS(EINVAL, barcopy_map_range(g, d + CHUNK - 8, 16, 0, &cpu, &other));
	before = maps_made();
	OK(barcopy_map_range(g, d + 8, 8, 0, &cpu, &other));
	ck_assert_uint_eq(maps_made(), before);
	OK(barcopy_unmap_range(g, mh));
	OK(barcopy_unmap_range(g, other));
	OK(gdr_pin_buffer_v2(g, d, 8, 0, &pinned));
	FAILS_WITH(EINVAL, "not made by barcopy_map_range(): end it by gdr_unpin_buffer()",
		   barcopy_unmap_range(g, pinned));
	FAILS_WITH(ENOTSUP, "read-only",
		   barcopy_map_range(g, (uintptr_t)standin_host_alloc(8, 0), 8,
				     BARCOPY_MAP_RANGE_READ_ONLY, &cpu, &mh));
	/* Ranges have no limit, so nobody asks how large the GPU's memory is. */
	ck_assert_uint_eq(cuda_hooks.calls("cuDeviceTotalMem"), asked);
}

/* Without space a part shares a longer range's pin, also where a newer range had its pages. */
static void no_space(void)
{
	enum { LONG = 200, NEWER = 100, PAGES = 512 };
	CUdeviceptr d = standin_alloc(PAGES * PAGE), other = standin_alloc(PAGES * PAGE);
	gdr_mh_t range, newer, part, fill;
	void *cpu, *at;
	int rc;

	OK(barcopy_map_range(g, d, LONG * PAGE, 0, &cpu, &range));
	OK(barcopy_map_range(g, d + (LONG - NEWER / 2) * PAGE, NEWER * PAGE, 0, &at, &newer));
	OK(barcopy_unmap_range(g, newer));
	do {
		OK(gdr_pin_buffer_v2(g, other, PAGE, 0, &fill));
		rc = gdr_map(g, fill, &at, PAGE);
	} while (!rc);
	ck_assert_int_eq(rc, ENOMEM);
	for (unsigned int page = 0; page < LONG; page += LONG - 1) {
		OK(barcopy_map_range(g, d + page * PAGE + 100, 8, 0, &at, &part));
		ck_assert_ptr_eq((char *)at, (char *)cpu + page * PAGE + 100);
		ck_assert(same_memory(part, at, d + page * PAGE + 100));
		OK(barcopy_unmap_range(g, part));
	}
	OK(barcopy_unmap_range(g, range));
}

static gdr_mh_t left; /* to the thread that is unmapping */

static void *end_left(void *unused)
{
	OK(barcopy_unmap_range(g, left));
	return unused;
}

static void end_in_another_thread(void)
{
	ck_assert_ptr_null(unit_threads(1, end_left, NULL, 0));
}

/*
 * A range that ends while a thread unmaps another one is unmapped by that thread, which returns the
 * failure: once, whoever returns it.
 */
static void unmapped_by_another(void)
{
	gdr_mh_t h;
	void *cpu;

	for (int fails = 0; fails < 4; fails++) {
		OK(barcopy_map_range(g, vmm_new(0, 1), 64, 0, &cpu, &h));
		OK(barcopy_map_range(g, vmm_new(0, 1), 64, 0, &cpu, &left));
		wrap_reset();
		if (fails)
			wrap_fail("munmap", (unsigned long)fails, ENOMEM);
		wrap_before("munmap", end_in_another_thread);
		if (fails % 3)
			FAILS_WITH(ENOMEM, "munmap: ", barcopy_unmap_range(g, h));
		else
			OK(barcopy_unmap_range(g, h));
		wrap_reset();
		FAILS(EINVAL, barcopy_unmap_range(g, h));
		FAILS(EINVAL, barcopy_unmap_range(g, left));
		ck_assert_uint_eq(stats_of(g).pins, stats_of(g).unpins);
	}
	OK(gdr_close(g));
	g = NULL;
}

static const struct unit_test tests[] = {
	{ "unmapped by another thread", unmapped_by_another, "" },
	{ "flush", flush },
	{ "vectors", vectors },
	{ "no writes by the copy engine", no_writes, "" },
	{ "pages that cannot be protected", not_protected },
	{ "errors", errors },
	{ "no space", no_space, "GDRSIM_NODE=absent GDRCOPY_BACKEND=rm GDRSIM_BAR1_MIB=32" },
};

UNIT_MAIN("barcopy_map_range", tests, unit_before = start, unit_after = end)
