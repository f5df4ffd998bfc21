// SPDX-License-Identifier: MIT
/*
 * The rm backend through the public interface, on the stand-in of nvidia.ko: every kind of device
 * memory and every part of it, what a map and a pin are; where something is missing, which memory it
 * still serves, errno and text of the rest; and that nothing is left. Several GPUs are in test_rm_gpus.c,
 * several processes in test_rm_fork.c.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/rm_client.h"
#include "base/process.h"
#include "common/maps.h"
#include "common/resources.h"
#include "common/wrap.h"
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
		/* A range may begin in freed memory of its first page, but not in a page of it. */
		OK(rm_pin(p[1] - 1, 2, 0));
		FAILS(EINVAL, rm_pin((p[1] & GPU_PAGE_MASK) - 1, (p[1] & GPU_PAGE_OFFSET) + 2, 0));
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
	for (int i = 1; i <= 2; i++) { /* of two parts */
		rm_sim.faults(i == 1 ? "RM_DUP_OBJECT:1=0x1f" : "RM_DUP_OBJECT:2=0x1f");
		FAILS(EINVAL, rm_pin(p + MIB, 38 * MIB, 0));
		rm_assert_kept(1);
	}
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
	FAILS_WITH(ENOTSUP, "the rm backend maps this memory as ",
		   gdr_map_v2(rm_g, u[0].h, &u[0].map, 8 * MIB, GDR_MAP_FLAG_REQ_CACHE_MAPPING));
	rm_assert_bar1(0, 0);
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
	standin_to_gpu(p + 70000, a, RM_LOOK);
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

/* ---- refused -------------------------------------------------------------- */

static void confidential(void)
{
	const char *text =
		"rm: the trial on GPU 0 failed: RM_MAP_MEMORY: NV_ERR_NOT_SUPPORTED (0x56)";
	CUdeviceptr plain, vmm;

	plain = standin_alloc(MIB);
	vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	for (int i = 0; i < 2; i++) {
		FAILS_WITH(ENOTSUP, text, rm_pin(plain, MIB, 0));
		rm_assert_clear();
		FAILS_WITH(ENOTSUP, text, rm_pin(vmm, MIB, 0));
		rm_assert_clear();
		ck_assert_uint_eq(rm_times(barcopy_last_error(), "the trial on GPU 0"), 1);
		if (!i) /* the verdict is final */
			unsetenv("GDRSIM_RM_PROTECTED");
		if (!i)
			rm_sim.faults(NULL);
	}
	ck_assert_uint_eq(rm_sim.calls("RM_MAP_MEMORY"), 0);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC"), 0);
	ck_assert_uint_eq(standin_device_bytes(0), 4 * MIB); /* of the trial none */
}

/* ---- maps ---------------------------------------------------------------- */

static void bar1_full(void)
{
	struct rm_use u[8], more;
	CUdeviceptr p = standin_alloc(32 * MIB);
	long long mapped;

	for (int i = 0; i < 7; i++)
		OK(rm_use_open(&u[i], p + (size_t)i * 2 * MIB, 2 * MIB, 0));
	mapped = wrap_mapped();
	FAILS_WITH(ENOMEM,
		   "RM_MAP_MEMORY: NV_ERR_NO_MEMORY (0x51): BAR1 has no room for 0x800000 bytes",
		   rm_use_open(&more, p, 8 * MIB, 0));
	rm_assert_clear();
	ck_assert_int_eq(wrap_mapped(), mapped);
	ck_assert_uint_eq(rm_sim.bar1_used(0), 14 * MIB);
	OK(rm_use_open(&u[7], p + 20 * MIB, 2 * MIB, 0));
	for (int i = 0; i < 8; i++) {
		rm_look("while BAR1 is full", &u[i]);
		rm_use_close(&u[i]);
	}
	rm_whole_life("when there is room again", p, 8 * MIB);
}

/* A map, and what maps at its creation, say that descriptors are short, and not memory. */
static void no_descriptors(void)
{
	CUdeviceptr p = standin_alloc(MIB);
	const char *text = "/dev/nvidia0: Too many open files";
	barcopy_mem_t mem;
	gdr_mh_t h;
	void *va;

	OK(gdr_pin_buffer(rm_g, p, MIB, 0, 0, &h));
	rm_sim.faults("OPEN_DEVICE:*=EMFILE");
	FAILS_WITH(EMFILE, text, gdr_map(rm_g, h, &va, MIB));
	FAILS_WITH(EMFILE, text, barcopy_mem_alloc(rm_g, 0, MIB, 0, &mem));
	rm_sim.faults(NULL);
	OK(gdr_map(rm_g, h, &va, MIB));
	OK(gdr_unpin_buffer(rm_g, h));
}

/* An allocation that is short of them evicts what is idle, and looks for no freed memory before. */
static void evicts_for_descriptors(void)
{
	CUdeviceptr p[2] = { standin_alloc(MIB), standin_alloc(MIB) };
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	barcopy_cache_t cache;
	barcopy_region_t r;
	barcopy_mem_t mem;

	OK(barcopy_cache_create(rm_g, NULL, &cache));
	for (int i = 0; i < 2; i++) {
		OK(barcopy_cache_get(cache, p[i], MIB, &r));
		OK(barcopy_cache_put(cache, &r));
	}
	CU(cuda.cuMemFree_v2(p[1]));
	rm_sim.faults("OPEN_DEVICE:1=EMFILE");
	OK(barcopy_mem_alloc(rm_g, 0, MIB, 0, &mem));
	rm_sim.faults(NULL);
	OK(barcopy_cache_get_stats(cache, &s));
	ck_assert_uint_eq(s.evictions, 1);
	ck_assert_uint_eq(s.invalidations, 0);
	OK(barcopy_mem_free(rm_g, &mem));
	OK(barcopy_cache_destroy(cache));
}

/* BAR1 has room for the first objects of several, not for the last. */
static void bar1_full_half_way(void)
{
	struct rm_use u;
	CUdeviceptr p = standin_chunks(0, 0, 10, 2 * MIB, 0);

	FAILS_WITH(ENOMEM, "BAR1 has no room for 0x200000 bytes", rm_use_open(&u, p, 20 * MIB, 0));
	ck_assert_uint_eq(rm_sim.bar1_used(0), 0);
	rm_assert_kept(1);
	rm_whole_life("what has room", p, 16 * MIB);
}

static void bar1_too_small_for_the_trial(void)
{
	rm_whole_life("with the small ones alone", standin_alloc(4096), 4096);
}

/* mmap() fails: RM's map ends too, and the next map works. */
static void no_pages(void)
{
	static const struct {
		int err, want;
	} cases[] = { { ENOMEM, ENOMEM }, { EAGAIN, ENOMEM }, { EPERM, ENOTSUP } };
	struct gdrsim_rm_counts before, after;
	struct rm_use u;
	CUdeviceptr p = standin_alloc(MIB);

	OK(rm_pin(p, MIB, 0)); /* with the trial */
	OK(gdr_pin_buffer_v2(rm_g, p, MIB, 0, &u.h));
	rm_sim.counts(&before);
	for (size_t i = 0; i < COUNT(cases); i++) {
		wrap_reset();
		wrap_fail("mmap", 0, cases[i].err);
		FAILS(cases[i].want, gdr_map(rm_g, u.h, &u.map, MIB));
		wrap_reset();
		rm_sim.counts(&after);
		ck_assert_uint_eq(after.maps, before.maps);
		ck_assert_uint_eq(after.device_files, before.device_files);
		ck_assert_uint_eq(rm_sim.bar1_used(0), 0);
	}
	OK(gdr_map(rm_g, u.h, &u.map, MIB));
	OK(gdr_unpin_buffer(rm_g, u.h));
}

/* ---- the first pin ------------------------------------------------------- */

/* A signal is no reason to fail. */
static void interrupted(void)
{
	CUdeviceptr p = standin_alloc(MIB);

	rm_sim.faults("RM_ALLOC:1=EINTR,CARD_INFO:1=EINTR,REGISTER_FD:1=EINTR,RM_CONTROL:1=EINTR,"
		      "RM_DUP_OBJECT:1=EINTR,RM_MAP_MEMORY:1=EINTR,RM_UNMAP_MEMORY:1=EINTR,RM_FREE:1=EINTR");
	rm_whole_life("interrupted", p, MIB);
}

/* One call does not reach the client: there is another one, and nothing of the first is left. */
static void client_made_anew(void)
{
	static const char *const lost[] = { "RM_DUP_OBJECT:1=EBADF", "RM_DUP_OBJECT:1=ENOTTY",
					    "RM_DUP_OBJECT:1=0x23", "RM_DUP_OBJECT:1=0x33" };
	CUdeviceptr p = standin_alloc(MIB);
	enum { TIMES = 40 };
	size_t used = 0;
	int fds;

	OK(rm_pin(p, MIB, 0));
	fds = resources_fds();
	for (size_t i = 0; i < COUNT(lost) + TIMES; i++) {
		if (i == COUNT(lost))
			used = resources_heap();
		rm_sim.faults(lost[i % COUNT(lost)]);
		OK(rm_pin(p, MIB, 0));
		ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 1);
		ck_assert_int_eq(resources_fds(), fds);
	}
	/* The stand-in keeps its streams; a GPU of the library is larger. */
	ck_assert_uint_lt(resources_heap(), used + TIMES * sizeof(struct gdri_rm_gpu));
	rm_sim.faults("RM_DUP_OBJECT:1=0x77"); /* which this library does not know */
	FAILS_WITH(EIO, "RM_DUP_OBJECT: NV_STATUS 0x77", rm_pin(p, MIB, 0));
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 0);
}

static int mmaps;
static void *foreign; /* another thread's page, in a place that the kernel has emptied */

/* Behind the failure: takes the first page between a mapping of the GPU and the rest of its place. */
static void take_gap(void)
{
	unsigned long start, end, before = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512], prot[8];
	bool shared = false;

	ck_assert_ptr_nonnull(f);
	while (!foreign && fgets(line, sizeof(line), f) &&
	       sscanf(line, "%lx-%lx %7s", &start, &end, prot) == 3) {
		if (shared && !strcmp(prot, "---p") && start - before == 2 * MIB)
			foreign = mmap((void *)before, 4096, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		shared = prot[3] == 's';
		before = end;
	}
	fclose(f);
}

/* The reservation, then a map of each object: the third fails. */
static void count_mmaps(void)
{
	if (++mmaps < 3)
		wrap_before("mmap", count_mmaps);
	else
		wrap_before("ioctl", take_gap);
}

/*
 * A driver that fails an mmap() with MAP_FIXED leaves a gap. What another thread maps there stays, and
 * nothing more does.
 */
static void gap_of_a_failed_map(void)
{
	CUdeviceptr p = standin_chunks(0, 0, 4, 2 * MIB, STANDIN_EXPORTABLE);
	gdr_mh_t mh;
	long long mapped;
	void *va;

	OK(gdr_pin_buffer_v2(rm_g, p, 8 * MIB, 0, &mh));
	wrap_reset();
	mapped = wrap_mapped();
	wrap_fail("mmap", 3, EAGAIN);
	wrap_before("mmap", count_mmaps);
	FAILS(ENOMEM, gdr_map(rm_g, mh, &va, 8 * MIB));
	wrap_reset();
	ck_assert(foreign && foreign != MAP_FAILED);
	ck_assert_int_eq(msync(foreign, 4096, MS_ASYNC), 0); /* ENOMEM: it is not mapped */
	munmap(foreign, 4096);
	OK(gdr_unpin_buffer(rm_g, mh));
	ck_assert_int_eq(wrap_mapped(), mapped);
}

/* The errno of an ioctl says whether it was refused, is not there, or the GPU is. */
static void ioctl_errnos(void)
{
	static const int rows[][2] = {
		{ EIO, EIO },	    { EBUSY, EIO },	  { ENODEV, ENODEV },  { EPERM, EACCES },
		{ EACCES, EACCES }, { ENOTTY, ENOTSUP },  { EINVAL, ENOTSUP }, { ENOSYS, ENOTSUP },
		{ ENOMEM, ENOMEM }, { EMFILE, EMFILE },	  { ENFILE, ENFILE },  { EBADF, ENOTSUP },
		{ EOPNOTSUPP, ENOTSUP },
	};
	gdr_mh_t mh;
	void *va;

	OK(gdr_pin_buffer_v2(rm_g, standin_alloc(2 * MIB), 2 * MIB, 0, &mh));
	for (size_t i = 0; i < COUNT(rows); i++) {
		wrap_reset();
		wrap_fail("ioctl", 0, rows[i][0]);
		FAILS_WITH(rows[i][1], "REGISTER_FD: ", gdr_map(rm_g, mh, &va, 2 * MIB));
		wrap_reset();
	}
	OK(gdr_map(rm_g, mh, &va, 2 * MIB));
	OK(gdr_unpin_buffer(rm_g, mh));
}

/* What is still mapped keeps its objects: RM would give their BAR1 to the next caller. */
static void unmap_fails(void)
{
	CUdeviceptr p = standin_alloc(2 * MIB);
	struct gdrsim_rm_counts before, after;
	gdr_mh_t mh;
	void *va;

	OK(gdr_pin_buffer_v2(rm_g, p, 2 * MIB, 0, &mh));
	OK(gdr_map(rm_g, mh, &va, 2 * MIB));
	rm_sim.counts(&before);
	wrap_reset();
	wrap_fail("munmap", 0, ENOMEM);
	FAILS_WITH(ENOMEM, "munmap: ", gdr_unpin_buffer(rm_g, mh));
	wrap_reset();
	rm_sim.counts(&after);
	ck_assert_uint_eq(after.memories, before.memories);
	ck_assert_uint_eq(after.maps, before.maps);
	/* Nor is what is left of a map that failed mapped again. */
	p = standin_chunks(0, 0, 4, 2 * MIB, STANDIN_EXPORTABLE);
	OK(gdr_pin_buffer_v2(rm_g, p, 8 * MIB, 0, &mh));
	wrap_fail("mmap", 3, EAGAIN);
	wrap_fail("munmap", 0, ENOMEM);
	FAILS(ENOMEM, gdr_map(rm_g, mh, &va, 8 * MIB));
	FAILS_WITH(EIO, "an earlier map of this range", gdr_map(rm_g, mh, &va, 8 * MIB));
	wrap_reset();
	FAILS_WITH(EIO, "the range is still mapped", gdr_unpin_buffer(rm_g, mh));
	OK(gdr_close(rm_g));
	rm_g = NULL;
}

/* RM refuses to end the map of one of several objects: the others end, and the caller is told. */
static void unmap_refused(void)
{
	CUdeviceptr p = standin_chunks(0, 0, 3, 2 * MIB, STANDIN_EXPORTABLE);
	struct gdrsim_rm_counts before, after;
	gdr_mh_t mh;
	void *va;

	OK(gdr_pin_buffer_v2(rm_g, p, 6 * MIB, 0, &mh));
	rm_sim.counts(&before);
	OK(gdr_map(rm_g, mh, &va, 6 * MIB));
	rm_sim.faults("RM_UNMAP_MEMORY:2=0x1f");
	FAILS_WITH(EIO, "RM_UNMAP_MEMORY: NV_ERR_INVALID_ARGUMENT", gdr_unmap(rm_g, mh, va, 6 * MIB));
	rm_sim.faults(NULL);
	rm_sim.counts(&after);
	ck_assert_uint_eq(after.maps, before.maps + 1);
	OK(gdr_unpin_buffer(rm_g, mh));
	rm_assert_kept(1);
}

/* ---- memory of the process ------------------------------------------------ */

static void heap(void)
{
	CUdeviceptr p = standin_alloc(MIB), v = standin_chunks(0, 0, 3, 2 * MIB, STANDIN_EXPORTABLE);
	size_t used = 0;

	for (int works = 0; works < 2; works++) {
		rm_sim.faults(works ? NULL : "OPEN_DEVICE:*=EIO");
		for (int i = 0; i < 110; i++) {
			if (i == 10)
				used = resources_heap();
			FAILS(works ? 0 : EIO, rm_pin(p, MIB, 0));
			FAILS(works ? 0 : EIO, rm_pin(v, 6 * MIB, 0));
		}
		ck_assert_uint_lt(resources_heap(), used + 1000);
	}
}

/* The table of descriptors, or that of a pin's objects, cannot grow: that pin alone fails. */
static void tables_are_full(void)
{
	CUdeviceptr v = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);

	unsigned int exports = !getenv("GDRSIM_DMABUF"); /* of which the objects are noted first */

	OK(rm_pin(v, 2 * MIB, 0)); /* with the trial */
	for (int i = 0; i < 17; i++) {
		ck_assert_int_ge(gdri_fork_open("/dev/null", O_RDONLY), 0);
		rm_sim.faults(NULL);
		wrap_reset();
		wrap_fail("realloc", 1 + exports, ENOMEM);
		FAILS(ENOMEM, rm_pin(v, 2 * MIB, 0));
		ck_assert_str_eq(wrap_failed(), "realloc");
		ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), exports);
		OK(rm_pin(v, 2 * MIB, 0));
		wrap_reset();
		wrap_clock(RM_SECOND);
		rm_assert_kept(1);
	}
}

/* ---- an integrated GPU --------------------------------------------------- */

/* RM would map exportable memory, which the CPU cannot reach coherently. */
static void integrated(void)
{
	CUdeviceptr plain = standin_alloc(MIB);
	CUdeviceptr vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);

	for (int i = 0; i < 2; i++) {
		FAILS_WITH(ENOTSUP, "rm: the GPU is integrated: its memory has no mapping",
			   rm_pin(i ? vmm : plain, MIB, 0));
		SAYS("GPU 0 is integrated");
		SAYS("allocate with cudaHostAlloc");
		rm_assert_clear();
	}
	rm_end(0);
}

#define DRIVER(version) "GDRSIM_RM_DRIVER=" version
/* No version file: the driver's own error, not the one of the other release's structure. */
static void export_info_fails(void)
{
	static const struct {
		unsigned int status;
		int err;
		const char *text;
	} table[] = {
		{ 0x0f, EIO, "INFO: NV_ERR_GPU_IS_LOST (0xf)" },
		{ 0x1b, EACCES, "INFO: NV_ERR_INSUFFICIENT_PERMISSIONS (0x1b)" },
		{ 0x1f, EINVAL, "INFO: NV_ERR_INVALID_ARGUMENT (0x1f)" },
		{ 0x40, ENOTSUP, "INFO: NV_ERR_INVALID_STATE (0x40)" },
		{ 0x57, EINVAL, "INFO: NV_ERR_OBJECT_NOT_FOUND (0x57)" },
	};
	CUdeviceptr vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	bool old = strstr(getenv("GDRSIM_RM_DRIVER"), "535.");
	char rule[64];

	OK(rm_pin(vmm, MIB, 0));
	for (size_t i = 0; i < COUNT(table); i++) {
		snprintf(rule, sizeof(rule), "RM_CONTROL.3d08:%d=0x%x", 1 + old, table[i].status);
		rm_sim.faults(rule);
		FAILS_WITH(table[i].err, table[i].text, rm_pin(vmm, MIB, 0));
	}
}

#define LAYOUT "this library does not know the layout of this driver's export of a dma-buf: use a " \
	       "newer library, or load gdrdrv; and "

#define UNKNOWN(version) "GDRSIM_DMABUF=0 GDRSIM_RM_VERSION=0 GDRSIM_RM_DRIVER=" version

static const struct unit_test tests[] = {
	{ "cuMemAlloc", plain, "" },
	{ "cuMemCreate", vmm, "" },
	{ "several export calls", several_calls, "" },
	{ "pools", pools, "" },
	{ "pools, two objects a call", pools, "GDRSIM_RM_EXPORT_MAX=2" },
	{ "beside freed memory", beside_freed, "" },
	{ "objects around own pages", objects_around, "", .bare = true },
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
	{ "an unknown layout", rm_exportable_alone, "GDRSIM_RM_EXPORT_SIZE=2616", LAYOUT },
	{ "an unknown layout of an old driver", rm_exportable_alone,
	  "GDRSIM_RM_EXPORT_SIZE=2640 GDRSIM_RM_DRIVER=535.230.02", LAYOUT },
	{ "no export of dma-bufs", rm_exportable_alone, "GDRSIM_DMABUF=0",
	  "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801); and " },
	{ "no export of dma-bufs, the driver's version is unknown", rm_exportable_alone,
	  "GDRSIM_DMABUF=0 GDRSIM_RM_VERSION=0",
	  "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801); and " },
	{ "the same, driver 535", rm_exportable_alone,
	  "GDRSIM_DMABUF=0 GDRSIM_RM_VERSION=0 GDRSIM_RM_DRIVER=535.230.02",
	  "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801); and " },
	{ "the same, driver 545, known", rm_exportable_alone,
	  "GDRSIM_DMABUF=0 GDRSIM_RM_DRIVER=545.23.06",
	  "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801); and " },
	{ "the export's GPU is refused, 535", export_info_fails, UNKNOWN("535.129.03") },
	{ "the export's GPU is refused, 545", export_info_fails, UNKNOWN("545.29.06") },
	{ "the export's GPU is refused, 580", export_info_fails, UNKNOWN("580.65.06") },
	{ "no import of ioctl in libcuda", rm_exportable_alone, "LD_LIBRARY_PATH=$SIM/direct",
	  "libcuda imports no ioctl() that could be watched; and " },
	{ "exports past the import of ioctl", rm_exportable_alone, "GDRSIM_EXPORT_UNSEEN=1",
	  "libcuda's export of a dma-buf was not seen: libcuda does not call its import of ioctl(), or "
	  "another hook hides the call; gdrdrv works without it; and " },
	{ "the share policy", rm_exportable_alone, "GDRSIM_RM_SHARE=0",
	  "RM_DUP_OBJECT: NV_ERR_INSUFFICIENT_PERMISSIONS (0x1b); and " },
	{ "confidential computing", confidential, "GDRSIM_RM_PROTECTED=1" },
	{ "BAR1 is full", bar1_full, "GDRSIM_BAR1_MIB=16" },
	{ "BAR1 is full, no NVML", bar1_full, "GDRSIM_BAR1_MIB=16 GDRSIM_FAIL=nvmlInit:*=9" },
	{ "BAR1 is full half way", bar1_full_half_way, "GDRSIM_BAR1_MIB=16" },
	{ "BAR1 is too small for the trial", bar1_too_small_for_the_trial, "GDRSIM_BAR1_MIB=1" },
	{ "no descriptors", no_descriptors, "" },
	{ "evicts for descriptors", evicts_for_descriptors, "" },
	{ "no pages", no_pages, "" },
	{ "signals", interrupted, "" },
	{ "a client made anew", client_made_anew, "" },
	{ "errnos of an ioctl", ioctl_errnos, "" },
	{ "the gap of a failed map", gap_of_a_failed_map, "" },
	{ "a range that cannot be unmapped", unmap_fails, "" },
	{ "RM refuses to unmap an object", unmap_refused, "" },
	{ "pins and the heap", heap, "" },
	{ "tables that are full", tables_are_full, "" },
	{ "tables that are full, by descriptors", tables_are_full, "GDRSIM_DMABUF=0" },
	{ "an integrated GPU", integrated, "GDRSIM_INTEGRATED=1" },
};

UNIT_MAIN("rm", tests, rm_start(argv), unit_before = rm_begin, unit_after = rm_end_one)
