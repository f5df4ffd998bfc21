// SPDX-License-Identifier: MIT
/*
 * The rm backend where something is missing: which memory it still serves, errno and text of the
 * rest, and that nothing is left.
 */
#include <sys/mman.h>

#include "common/resources.h"
#include "common/wrap.h"
#include "rm_sim.h"

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

	for (int i = 0; i < 7; i++)
		OK(rm_use_open(&u[i], p + (size_t)i * 2 * MIB, 2 * MIB, 0));
	FAILS_WITH(ENOMEM,
		   "RM_MAP_MEMORY: NV_ERR_NO_MEMORY (0x51): BAR1 has no room for 0x800000 bytes",
		   rm_use_open(&more, p, 8 * MIB, 0));
	rm_assert_clear();
	ck_assert_uint_eq(rm_sim.bar1_used(0), 14 * MIB);
	OK(rm_use_open(&u[7], p + 20 * MIB, 2 * MIB, 0));
	for (int i = 0; i < 8; i++) {
		rm_look("while BAR1 is full", &u[i]);
		rm_use_close(&u[i]);
	}
	rm_whole_life("when there is room again", p, 8 * MIB);
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
	CUdeviceptr p = standin_alloc(MIB);
	int fds;

	OK(rm_pin(p, MIB, 0));
	fds = resources_fds();
	rm_sim.faults("RM_DUP_OBJECT:1=EBADF");
	OK(rm_pin(p, MIB, 0));
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 1);
	ck_assert_int_eq(resources_fds(), fds);
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
	FAILS_WITH(ENOMEM, "the range is still mapped", gdr_unpin_buffer(rm_g, mh));
	wrap_reset();
	rm_sim.counts(&after);
	ck_assert_uint_eq(after.memories, before.memories);
	ck_assert_uint_eq(after.maps, before.maps);
	OK(gdr_close(rm_g));
	rm_g = NULL;
}

/* ---- memory of the process ------------------------------------------------ */

static void heap(void)
{
	CUdeviceptr p = standin_alloc(MIB), v = standin_chunks(0, 0, 3, 2 * MIB, STANDIN_EXPORTABLE);
	size_t used = 0;

	for (int i = 0; i < 110; i++) {
		if (i == 10)
			used = resources_heap();
		OK(rm_pin(p, MIB, 0));
		OK(rm_pin(v, 6 * MIB, 0));
	}
	ck_assert_uint_lt(resources_heap(), used + 1000);
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

#define LAYOUT "this library does not know the layout of this driver's export of a dma-buf: use a " \
	       "newer library, or load gdrdrv; and "

static const struct unit_test tests[] = {
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
	{ "no import of ioctl in libcuda", rm_exportable_alone, "LD_LIBRARY_PATH=$SIM/direct",
	  "libcuda imports no ioctl() that could be watched; and " },
	{ "exports past the import of ioctl", rm_exportable_alone, "GDRSIM_EXPORT_UNSEEN=1",
	  "libcuda's export of a dma-buf was not seen: libcuda does not call its import of ioctl(), or "
	  "another hook hides the call; gdrdrv serves without it; and " },
	{ "the share policy", rm_exportable_alone, "GDRSIM_RM_SHARE=0",
	  "RM_DUP_OBJECT: NV_ERR_INSUFFICIENT_PERMISSIONS (0x1b); and " },
	{ "confidential computing", confidential, "GDRSIM_RM_PROTECTED=1" },
	{ "BAR1 is full", bar1_full, "GDRSIM_BAR1_MIB=16" },
	{ "BAR1 is full, no NVML", bar1_full, "GDRSIM_BAR1_MIB=16 GDRSIM_FAIL=nvmlInit:*=9" },
	{ "BAR1 is full half way", bar1_full_half_way, "GDRSIM_BAR1_MIB=16" },
	{ "BAR1 is too small for the trial", bar1_too_small_for_the_trial, "GDRSIM_BAR1_MIB=1" },
	{ "no pages", no_pages, "" },
	{ "signals", interrupted, "" },
	{ "a client made anew", client_made_anew, "" },
	{ "the gap of a failed map", gap_of_a_failed_map, "" },
	{ "a range that cannot be unmapped", unmap_fails, "" },
	{ "pins and the heap", heap, "" },
	{ "an integrated GPU", integrated, "GDRSIM_INTEGRATED=1" },
};

UNIT_MAIN("rm: refused", tests, rm_start(argv), unit_before = rm_begin, unit_after = rm_end_one)
