// SPDX-License-Identifier: MIT
/*
 * The rm backend's trial: once for each GPU, again where it has no verdict, and what it finds wrong
 * in libcuda's exports.
 */
#include <pthread.h>

#include "abi/rm.h"
#include "cuda/import_slots.h"
#include "cuda/private.h"
#include "common/wrap.h"
#include "rm_sim.h"

/* ---- the trial ----------------------------------------------------------- */

static void once_per_gpu(void)
{
	CUdeviceptr p[2];

	p[0] = standin_alloc(MIB);
	CU(cuda.cuCtxSetCurrent(standin_primary(1)));
	p[1] = standin_alloc(MIB);
	rm_sim.faults(NULL);
	wrap_reset();
	OK(rm_pin(p[0], MIB, 0));
	/* A pin holds locks for which another thread's constructor may wait in the loader. */
	ck_assert_uint_eq(wrap_calls("dlopen") + wrap_calls("dlsym"), 0);
	ck_assert_uint_eq(rm_sim.calls("RM_DUP_OBJECT"), 3 + 1);
	ck_assert_uint_eq(rm_sim.calls("RM_MAP_MEMORY"), 3);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 1);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.80"), 1);
	OK(rm_pin(p[0], MIB, 0));
	ck_assert_uint_eq(rm_sim.calls("RM_DUP_OBJECT"), 5);
	OK(rm_pin(p[1], MIB, 0));
	ck_assert_uint_eq(rm_sim.calls("RM_DUP_OBJECT"), 9);
	OK(gdr_close(rm_g));
	rm_open_context(); /* a second context knows it too */
	OK(rm_pin(p[0], MIB, 0));
	OK(rm_pin(p[1], MIB, 0));
	ck_assert_uint_eq(rm_sim.calls("RM_DUP_OBJECT"), 11);
	ck_assert_uint_eq(rm_sim.calls("RM_MAP_MEMORY"), 6);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 1);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.80"), 2);
	rm_end(2);
}

static void *pins_first(void *p)
{
	return (void *)(intptr_t)rm_pin(*(CUdeviceptr *)p, MIB, 0);
}

/* The trial's buffers are not on the caller's stack. */
static void small_stack(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	CUdeviceptr p = standin_alloc(MIB);
	void *rc;

	OK(pthread_attr_init(&attr));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	OK(pthread_attr_setstacksize(&attr, 24 << 10));
#endif
	OK(pthread_create(&thread, &attr, pins_first, &p));
	OK(pthread_join(thread, &rc));
	ck_assert_ptr_null(rc);
}

/* After ENOMEM and the like, or an unknown failure, the next pin tries again. */
static void tried_again(void)
{
	static const struct {
		const char *rule;
		int err;
		unsigned int kept;
	} table[] = {
		{ "OPEN_CTL:1=EMFILE", ENOMEM, 0 },	 { "RM_ALLOC.41:1=0x1a", ENOMEM, 0 },
		{ "CARD_INFO:1=ENOMEM", ENOMEM, 0 },	 { "OPEN_DEVICE:1=ENFILE", ENOMEM, 0 },
		{ "OPEN_DEVICE:1=EIO", EIO, 0 },	 { "RM_ALLOC.80:1=0x51", ENOMEM, 0 },
		{ "RM_DUP_OBJECT:2=0x51", ENOMEM, 1 },	 { "RM_DUP_OBJECT:1=0xffff", ENOTSUP, 1 },
		{ "OPEN_DEVICE:2=EMFILE", ENOMEM, 1 },	 { "RM_MAP_MEMORY:1=0x1a", ENOMEM, 1 },
		{ "RM_MAP_MEMORY:2=ENOMEM", ENOMEM, 1 }, { "RM_MAP_MEMORY:2=0x0f", ENOTSUP, 1 },
		{ "MMAP:2=EAGAIN", ENOMEM, 1 },
	};
	CUdeviceptr p = standin_alloc(MIB);

	for (size_t i = 0; i < COUNT(table); i++) {
		rm_sim.faults(table[i].rule);
		ck_assert_msg(rm_pin(p, MIB, 0) == table[i].err, "%s: %s", table[i].rule,
			      barcopy_last_error());
		ck_assert_ptr_nonnull(rm_sim.failed());
		rm_assert_clear();
		rm_sim.faults(NULL);
		rm_assert_kept(table[i].kept);
		ck_assert_uint_eq(standin_device_bytes(0), 2 * MIB);
	}
	OK(rm_pin(p, MIB, 0));
	OK(gdr_close(rm_g));
	rm_sim.faults("OPEN_CTL:1=EINTR,OPEN_DEVICE:1=EINTR"); /* a signal: no reason to fail */
	rm_open_context();
	rm_whole_life("after all that", p, MIB);
}

/* An unknown failure is a verdict after some trials; exportable memory is served meanwhile. */
static void ends(void)
{
	unsigned long tried = 0;
	CUdeviceptr plain, vmm;

	plain = standin_alloc(MIB);
	vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	rm_sim.faults(getenv("RULE"));
	for (int i = 0; i < 6; i++) {
		FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
		rm_assert_clear();
		OK(rm_pin(vmm, 2 * MIB, 0));
		if (i == 1)
			tried = rm_sim.calls("EXPORT_TO_DMABUF_FD");
	}
	ck_assert_uint_gt(tried, 0);
	ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), tried);
}

/* RM and the kernel decide on a map's type, not CUDA. */
static void mapping_type(void)
{
	const char *want = getenv("TYPE");
	struct rm_use u;
	gdr_info_v2_t info;
	CUdeviceptr p = standin_alloc(MIB);

	wrap_reset();
	if (getenv("UNALIGNED_FAULTS")) /* as of Device memory */
		wrap_fail("syscall", 0, EFAULT);
	OK(rm_pin(p, MIB, 0));
	wrap_reset();
	OK(rm_use_open(&u, p, MIB, 0));
	OK(gdr_get_info_v2(rm_g, u.h, &info));
	ck_assert_int_eq((int)info.mapping_type, atoi(want));
	rm_look("a map of that type", &u);
	rm_use_close(&u);
}

static pthread_barrier_t barrier;

static void *first_pin(void *arg)
{
	CUdeviceptr *p = arg;

	cuda.cuCtxSetCurrent(standin_primary(0));
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 2; i++) {
		struct rm_use u;

		OK(rm_use_open(&u, *p, MIB, 0));
		rm_look("of one of several threads", &u);
		rm_use_close(&u);
	}
	return NULL;
}

static void first_pins_at_once(void)
{
	CUdeviceptr p[4];

	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 4; i++)
		p[i] = standin_alloc(MIB);
	rm_sim.faults(NULL);
	unit_threads(4, first_pin, p, sizeof(p[0]));
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 1);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.80"), 1);
	ck_assert_uint_eq(rm_sim.calls("RM_MAP_MEMORY"), 3 + 4 * 2);
}

/* ---- exports with one wrong value ---------------------------------------- */

/* Changes something in the structure that the kernel has filled, before libcuda reads it. */
static void (*spoil)(struct rm_export_570 *e);
static ioctl_fn below;

static int spoil_and_pass(int fd, unsigned long request, void *data)
{
	int rc = below(fd, request, data);

	if (_IOC_NR(request) == RM_EXPORT_NUMBER)
		spoil(data);
	return rc;
}

IOCTL_FUNCTION(spoiling_ioctl, spoil_and_pass)

static void another_offset(struct rm_export_570 *e)
{
	if (e->sizes[0] == 0x10000) /* one of the small ones */
		e->offsets[0] ^= 0x10000;
}

static void within_a_page(struct rm_export_570 *e)
{
	e->sizes[0] -= 512;
}

static void too_short(struct rm_export_570 *e)
{
	e->sizes[0] -= 4096;
}

static void one_more(struct rm_export_570 *e)
{
	e->total++;
}

static void far_too_many(struct rm_export_570 *e)
{
	e->count = 129;
}

static void another_object(struct rm_export_570 *e)
{
	e->objects[0] += 1000;
}

static void sizes_that_wrap(struct rm_export_570 *e)
{
	e->total = e->count = 3;
	e->objects[1] = e->objects[2] = e->objects[0];
	e->sizes[1] = e->sizes[2] = UINT64_C(1) << 63;
}

/* The call that the kernel refuses began in another object than the next call. */
static void another_in_front(struct rm_export_570 *e)
{
	if (e->status)
		e->objects[0]++;
}

static void spoil_exports(void (*how)(struct rm_export_570 *e))
{
	struct gdri_import_slots slots;

	standin_start();
	OK(gdri_cuda_load());
	ck_assert(gdri_import_slots_find(gdri_cuda_library, "ioctl", &slots));
	spoil = how;
	below = (ioctl_fn)atomic_load(slots.at[0]);
	atomic_store(slots.at[0], (uintptr_t)spoiling_ioctl);
}

static void front_of_a_pool(void)
{
	CUdeviceptr p;

	spoil_exports(another_in_front);
	rm_open_context();
	p = rm_pool_alloc(8 * MIB);
	rm_whole_life("from its start on", p, 8 * MIB);
	FAILS_WITH(EINVAL, "in front of the range is another memory object than behind it",
		   rm_pin(p + MIB, 64 * KIB, 0));
	rm_end(1);
}

struct spoiled {
	void (*how)(struct rm_export_570 *e);
	const char *text;
};

static void spoiled(void)
{
	const struct spoiled *spoiled = unit_arg;
	uint8_t a[MIB / 2], b[MIB / 2];
	CUdeviceptr p;

	spoil_exports(spoiled->how);
	/* The trial's memory will be next to this. */
	p = standin_alloc(sizeof(a));
	rm_pattern(a, sizeof(a), 4711);
	CU(cuda.cuMemcpyHtoD_v2(p, a, sizeof(a)));
	CU(cuda.cuCtxSynchronize());
	rm_open_context();
	unit_arg = spoiled->text;
	rm_exportable_alone();
	rm_end(1);
	CU(cuda.cuMemcpyDtoH_v2(b, p, sizeof(b)));
	ck_assert_int_eq(memcmp(a, b, sizeof(a)), 0);
}

#define SPOILED(how, text) spoiled, "", &(struct spoiled){ how, text }, .bare = true

static const struct unit_test tests[] = {
	{ "tried once for each GPU", once_per_gpu, "GDRSIM_DEVICES=2" },
	{ "on a small stack", small_stack, "" },
	{ "tried again", tried_again, "" },
	{ "an unknown failure of the export ends", ends, "RULE=EXPORT_TO_DMABUF_FD:*=EINVAL" },
	{ "an unknown status ends", ends, "RULE=RM_DUP_OBJECT:*=0xffff" },
	{ "INVALID_STATE ends", ends, "RULE=RM_DUP_OBJECT:*=0x40" },
	{ "in BAR1", mapping_type, "TYPE=1" },
	{ "over a coherent link", mapping_type, "TYPE=2 GDRSIM_COHERENT=1" },
	{ "coherent to CUDA, in BAR1", mapping_type, "TYPE=1 GDRSIM_COHERENT=1 GDRSIM_RM_BAR1=1" },
	{ "outside BAR1, not coherent to CUDA", mapping_type, "TYPE=1 GDRSIM_RM_BAR1=0" },
	{ "in BAR1, as Device memory", mapping_type, "TYPE=3 UNALIGNED_FAULTS=1" },
	{ "several first pins at once", first_pins_at_once, "" },
	{ "another offset",
	  SPOILED(another_offset, "the mapping shows other memory than the GPU's; and ") },
	{ "a size within a page",
	  SPOILED(within_a_page, "a memory object ends within a page; and ") },
	{ "too small a size",
	  SPOILED(too_short, "libcuda exported 1 of 1 objects, 0xf000 of 0x10000 bytes; and ") },
	{ "one object more",
	  SPOILED(one_more, "libcuda exported 1 of 2 objects, 0x10000 of 0x10000 bytes; and ") },
	{ "too many objects",
	  SPOILED(far_too_many, "this driver's export of a dma-buf has another layout; and ") },
	{ "no such object",
	  SPOILED(another_object, "RM_DUP_OBJECT: NV_ERR_OBJECT_NOT_FOUND (0x57); and ") },
	{ "sizes that wrap", SPOILED(sizes_that_wrap, "libcuda exported 3 of 3 objects") },
	{ "another object in front", front_of_a_pool, "", .bare = true },
};

UNIT_MAIN("rm: trial", tests, rm_start(argv), unit_before = rm_begin, unit_after = rm_end_one)
