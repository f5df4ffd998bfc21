// SPDX-License-Identifier: MIT
/*
 * The rm backend through the public interface, on the stand-in of nvidia.ko: every kind of device
 * memory and every part of it, what a map and a pin are, and that nothing is left. What is refused
 * is in test_rm_refused.c, several GPUs in test_rm_gpus.c, several processes in test_rm_fork.c.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "common/maps.h"
#include "cuda/private.h"
#include "rm_sim.h"

/* ---- kinds --------------------------------------------------------------- */

static void plain(void)
{
	static const size_t sizes[] = { 4 * KIB, 100000, 8 * MIB, 4, 64 * KIB };
	CUdeviceptr p[COUNT(sizes)];

	for (size_t i = 0; i < COUNT(sizes); i++)
		p[i] = standin_alloc(sizes[i]);
	for (size_t i = 0; i < COUNT(sizes); i++)
		rm_whole_life("cuMemAlloc", p[i], sizes[i]);
	rm_whole_life("a part", p[2] + 3 * MIB, 64 * KIB);
	rm_whole_life("a part at odd places", p[2] + 3 * MIB + 12345, 70001);
	rm_whole_life("its last byte", p[2] + 8 * MIB - 1, 1);
}

static void vmm(void)
{
	for (int exportable = 0; exportable < 2; exportable++) {
		CUdeviceptr one = standin_chunks(0, 0, 1, 4 * MIB, exportable);
		CUdeviceptr some = standin_chunks(0, 0, 5, 2 * MIB, exportable);

		rm_whole_life("VMM", one, 4 * MIB);
		rm_whole_life("VMM, a part", one + MIB + 77, 70000);
		rm_whole_life("VMM, five chunks", some, 10 * MIB);
		rm_whole_life("VMM, inside to inside", some + 2 * MIB - 5000, 4 * MIB + 9000);
	}
}

/* More objects than one export call of libcuda has room for. */
static void several_calls(void)
{
	CUdeviceptr p = standin_chunks(0, 0, 140, 2 * MIB, 0);

	rm_whole_life("VMM, 140 chunks", p, 280 * MIB);
	rm_sim.faults(NULL);
	rm_whole_life("VMM, the middle of 140 chunks", p + MIB, 278 * MIB);
	ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), 2 * 2);
	ck_assert_uint_eq(rm_sim.calls("RM_DUP_OBJECT"), 2 * 140);
	setenv("GDRSIM_RM_EXPORT_MAX", "3", 1);
	rm_sim.faults(NULL);
	rm_whole_life("VMM, three objects a call", p + MIB + 1, 15 * MIB);
	ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), 2 * 3);
	setenv("GDRSIM_RM_EXPORT_MAX", "1", 1);
	rm_whole_life("VMM, one object a call", p + MIB + 1, 15 * MIB);
}

/* ---- pools: libcuda exports wrong sizes ---------------------------------- */

static void pools(void)
{
	CUdeviceptr small[3], one, two, three;

	for (int i = 0; i < 3; i++)
		small[i] = rm_pool_alloc(100000);
	one = rm_pool_alloc(MIB);
	two = rm_pool_alloc(40 * MIB);
	three = rm_pool_alloc(90 * MIB);
	for (int i = 0; i < 3; i++) {
		rm_whole_life("a small one of a pool", small[i], 100000);
		rm_whole_life("a part of it", small[i] + 70001, 17);
	}
	rm_whole_life("1 MiB of a pool", one, MIB);
	rm_whole_life("40 MiB of a pool", two, 40 * MIB);
	rm_whole_life("its last bytes", two + 40 * MIB - 1000, 1000);
	rm_whole_life("across its two objects", two + 32 * MIB - 5000, 9000);
	rm_whole_life("90 MiB of a pool", three, 90 * MIB);
	rm_whole_life("across its three objects", three + 5 * MIB + 1, 70 * MIB);
}

/*
 * Where the 64 KiB page of a part begins in memory that has been freed, libcuda refuses that page;
 * where it begins in a neighbour's, libcuda looks at that one while another thread may free it.
 */
static void beside_freed(void)
{
	static const struct {
		size_t front, size, offset, part;
	} rows[] = {
		{ 100000, 100000, 0, 16 },	 { 100000, 100000, 99990, 10 },
		{ 100000, 100000, 0, 100000 },	 { 0xf200, 100000, 0, 16 }, /* own pages behind */
		{ 0x200, 0x10000, 0xff00, 200 }, /* own pages in front */
		{ 0x200, 1000, 999, 1 },	 { 0xe00, 0x400, 0, 4 }, /* no own page */
		{ 0xfe00, 0x400, 0, 4 },	 { 0xfe00, 0x400, 0x3ff, 1 },
	};

	OK(rm_pin(standin_alloc(2 * MIB), 1, 0)); /* with the trial */
	for (size_t i = 0; i < 2 * COUNT(rows); i++) {
		bool pool = i % 2;
		size_t row = i / 2;
		CUdeviceptr p[3];

		for (int k = 0; k < 3; k++) {
			size_t size = k == 1 ? rows[row].size : rows[row].front;

			p[k] = pool ? rm_pool_alloc(size) : standin_alloc(size);
		}
		ck_assert_uint_eq(p[1] - p[0], (rows[row].front + 511) & ~511ull);
		CU(cuda.cuMemFree_v2(p[0]));
		CU(cuda.cuMemFree_v2(p[2]));
		rm_whole_life("beside freed memory", p[1] + rows[row].offset, rows[row].part);
		CU(cuda.cuMemFree_v2(p[1]));
	}
}

static __typeof__(gdri_cu.cuMemGetHandleForAddressRange) export_range;
static CUdeviceptr exported; /* from there on; libcuda looks up the allocation at that byte */

static CUresult note_first(void *fd, CUdeviceptr p, size_t size, CUmemRangeHandleType type,
			   unsigned long long flags)
{
	exported = exported ? exported : p;
	return export_range(fd, p, size, type, flags);
}

/* An object begins between an allocation's own pages and the page that it shares. */
static void objects_around(void)
{
	CUdeviceptr page = (CUdeviceptr)sysconf(_SC_PAGESIZE);
	CUdeviceptr p, two;
	struct rm_use u;

	setenv("GDRSIM_RM_OBJECT_MIB", "1", 1);
	rm_begin();
	OK(rm_pin(standin_alloc(2 * MIB), 1, 0)); /* with the trial */
	export_range = gdri_cu.cuMemGetHandleForAddressRange;
	gdri_cu.cuMemGetHandleForAddressRange = note_first;
	for (int i = 0; i < 4; i++) {
		bool pool = i & 1, freed = i & 2;
		CUdeviceptr front = pool ? rm_pool_alloc(0xff200) : standin_alloc(0xff200);

		p = pool ? rm_pool_alloc(100000) : standin_alloc(100000);
		ck_assert_uint_eq(p - front, 0xff200);
		if (freed)
			CU(cuda.cuMemFree_v2(front));
		exported = 0;
		OK(rm_use_open(&u, p, 16, 0));
		ck_assert_uint_eq(exported, p & -page);
		rm_look("in front of the object", &u);
		rm_use_close(&u);
		rm_whole_life("on both sides", p, 5000);
		rm_whole_life("behind it", p + 0xe00, 1);
		CU(cuda.cuMemFree_v2(p));
		if (!freed)
			CU(cuda.cuMemFree_v2(front));
	}
	two = rm_pool_alloc(2 * MIB + 431);
	rm_whole_life("some bytes of the next object", two, 2 * MIB + 431);
	rm_whole_life("these alone", two + 2 * MIB + 1, 430);
	rm_whole_life("the last of the object", two + 2 * MIB - 1, 1);
	rm_end(1);
}

/* The library's own export, of the right size, is the second one. */
static void pool_mended(void)
{
	CUdeviceptr p = rm_pool_alloc(40 * MIB);

	OK(rm_pin(p, MIB, 0)); /* with the trial */
	rm_sim.faults("EXPORT_TO_DMABUF_FD:2=EINTR");
	OK(rm_pin(p + MIB, 64 * KIB, 0));
	ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), 3);
	rm_sim.faults("EXPORT_TO_DMABUF_FD:2=ENOMEM,EXPORT_TO_DMABUF_FD:4=ENOMEM"); /* repeated once */
	FAILS_WITH(ENOMEM, "EXPORT_TO_DMABUF_FD: Cannot allocate", rm_pin(p + MIB, 64 * KIB, 0));
	rm_sim.faults("EXPORT_TO_DMABUF_FD:2=0x51,EXPORT_TO_DMABUF_FD:4=0x51");
	FAILS_WITH(ENOMEM, "NV_ERR_NO_MEMORY (0x51)", rm_pin(p + MIB, 64 * KIB, 0));
	rm_sim.faults("EXPORT_TO_DMABUF_FD:2=0x57");
	FAILS(EINVAL, rm_pin(p + MIB, 64 * KIB, 0));
	rm_sim.faults("RM_DUP_OBJECT:2=0x1f"); /* of two parts */
	FAILS(EINVAL, rm_pin(p + MIB, 38 * MIB, 0));
	rm_assert_kept(1);
	rm_sim.faults("EXPORT_TO_DMABUF_FD:1=0x1f"); /* for another reason */
	FAILS(EINVAL, rm_pin(standin_alloc(8 * MIB) + MIB, 64 * KIB, 0));
	ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), 1);
	rm_sim.faults("EXPORT_TO_DMABUF_FD:1=0x1f"); /* the same at the begin of an object */
	FAILS(EINVAL, rm_pin(standin_alloc(8 * MIB), 64 * KIB, 0));
	ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), 1);
	rm_sim.faults(NULL);
	rm_whole_life("after the refusals", p + MIB, 64 * KIB);
}

/* ---- what the map is ----------------------------------------------------- */

static void bar1(void)
{
	struct rm_use u[3];
	CUdeviceptr p = standin_alloc(8 * MIB);

	OK(gdr_pin_buffer_v2(rm_g, p, 8 * MIB, 0, &u[0].h));
	rm_assert_bar1(0, 0); /* the trial has none left, the pin none yet */
	OK(gdr_unpin_buffer(rm_g, u[0].h));
	OK(rm_use_open(&u[0], p + 3 * MIB, 64 * KIB, 0));
	rm_assert_bar1(0, 64 * KIB);
	OK(rm_use_open(&u[1], p + 3 * MIB + 1, 4, 0));
	rm_assert_bar1(0, 2 * 64 * KIB);
	OK(rm_use_open(&u[2], p + 5 * MIB - 4, 8, 0));
	rm_assert_bar1(0, 4 * 64 * KIB);
	for (int i = 2; i >= 0; i--)
		rm_look("several maps of one object", &u[i]);
	for (int i = 0; i < 3; i++)
		rm_use_close(&u[i]);
	rm_assert_bar1(0, 0);
}

static void read_only(void)
{
	uint8_t a[RM_LOOK], b[RM_LOOK];
	CUdeviceptr p = standin_alloc(MIB);
	gdr_mh_t h;
	void *map, *page;

	rm_pattern(a, RM_LOOK, 5);
	CU(cuda.cuMemcpyHtoD_v2(p + 70000, a, RM_LOOK));
	OK(barcopy_map_range(rm_g, p + 70000, RM_LOOK, BARCOPY_MAP_RANGE_READ_ONLY, &map, &h));
	OK(gdr_copy_from_mapping(h, b, map, RM_LOOK));
	ck_assert_int_eq(memcmp(a, b, RM_LOOK), 0);
	ck_assert(!strncmp(maps_at(map), "r--s", 4));
	/*
	 * RM was asked for a read-only one too: then the stand-in's memory is open for reading
	 * alone, by which it shows here. (nvidia.ko's mapping lets mprotect() pass, and BAR1's own
	 * entries are read-only.)
	 */
	page = (void *)((uintptr_t)map & ~4095ul);
	ck_assert_int_eq(mprotect(page, 4096, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(errno, EACCES);
	OK(barcopy_unmap_range(rm_g, h));
	OK(barcopy_map_range(rm_g, p + 70000, RM_LOOK, 0, &map, &h));
	ck_assert(!strncmp(maps_at(map), "rw-s", 4));
	OK(barcopy_unmap_range(rm_g, h));
}

#define DRIVER(version) "GDRSIM_RM_DRIVER=" version

static const struct unit_test tests[] = {
	{ "cuMemAlloc", plain, "" },
	{ "cuMemCreate", vmm, "" },
	{ "several export calls", several_calls, "" },
	{ "pools", pools, "" },
	{ "pools, two objects a call", pools, "GDRSIM_RM_EXPORT_MAX=2" },
	{ "beside freed memory", beside_freed, "" },
	{ "objects around own pages", objects_around, "", .bare = true },
	{ "another ioctl in an export", plain, "GDRSIM_EXPORT_MORE=1" },
	{ "an export mended", pool_mended, "" },
	{ "driver 515, cuMemAlloc", plain, DRIVER("515.105.01") },
	{ "driver 525, cuMemCreate", vmm, DRIVER("525.147.05") },
	{ "driver 535, pools", pools, DRIVER("535.230.02") },
	{ "driver 550, cuMemAlloc", plain, DRIVER("550.54.14") },
	{ "driver 565, several export calls", several_calls, DRIVER("565.57.01") },
	{ "driver 570, cuMemCreate", vmm, DRIVER("570.86.15") },
	{ "driver 580, cuMemAlloc", plain, DRIVER("580.159.04") },
	{ "driver 590, cuMemAlloc", plain, DRIVER("590.48.01") },
	{ "driver 595, pools", pools, DRIVER("595.45.04") },
	{ "driver 515, the slot is sealed", plain,
	  DRIVER("515.105.01") " LD_LIBRARY_PATH=$SIM/now" },
	{ "the slot is of the other type", several_calls, "LD_LIBRARY_PATH=$SIM/noplt" },
	{ "BAR1", bar1, "" },
	{ "static BAR1", bar1, "GDRSIM_BAR1_STATIC=1" },
	{ "BAR1, maps that share", bar1, "GDRSIM_BAR1_REUSE=1" },
	{ "read-only", read_only, "" },
};

UNIT_MAIN("rm", tests, rm_start(argv), unit_before = rm_begin, unit_after = rm_end_one)
