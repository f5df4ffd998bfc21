// SPDX-License-Identifier: MIT
/*
 * The rm backend's trial: once for each GPU, again where it has no verdict, and what it finds wrong
 * in libcuda's exports.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/rm.h"
#include "base/process.h"
#include "backend/rm_client.h"
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
	size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
	pthread_attr_t attr;
	pthread_t thread;
	CUdeviceptr p = standin_alloc(MIB);
	void *rc;

	OK(pthread_attr_init(&attr));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	OK(pthread_attr_setstacksize(&attr, least > 24 << 10 ? least : 24 << 10));
#else
	(void)least;
#endif
	OK(pthread_create(&thread, &attr, pins_first, &p));
	OK(pthread_join(thread, &rc));
	ck_assert_ptr_null(rc);
}

/* After ENOMEM and the like the next pin tries again, after an unknown failure a later one. */
static void tried_again(void)
{
	static const struct {
		const char *rule;
		int err;
		unsigned int kept;
	} table[] = {
		{ "OPEN_CTL:1=EMFILE", EMFILE, 0 },	{ "RM_ALLOC.41:1=0x1a", ENOMEM, 0 },
		{ "CARD_INFO:1=ENOMEM", ENOMEM, 0 },	{ "OPEN_DEVICE:1=ENFILE", ENFILE, 0 },
		{ "OPEN_DEVICE:1=EIO", EIO, 0 },	{ "RM_ALLOC.80:1=0x51", ENOMEM, 0 },
		{ "RM_DUP_OBJECT:2=0x51", ENOMEM, 1 },	{ "OPEN_DEVICE:2=EMFILE", EMFILE, 1 },
		{ "RM_MAP_MEMORY:1=0x1a", ENOMEM, 1 },	{ "RM_MAP_MEMORY:2=ENOMEM", ENOMEM, 1 },
		{ "MMAP:2=EAGAIN", ENOMEM, 1 },		{ "RM_DUP_OBJECT:1=0xffff", ENOTSUP, 1 },
		{ "RM_MAP_MEMORY:2=0x0f", ENOTSUP, 1 },
	};
	CUdeviceptr p = standin_alloc(MIB);
	time_t later = RM_SECOND;

	for (size_t i = 0; i < COUNT(table); i++) {
		rm_sim.faults(table[i].rule);
		ck_assert_msg(rm_pin(p, MIB, 0) == table[i].err, "%s: %s", table[i].rule,
			      barcopy_last_error());
		ck_assert_ptr_nonnull(rm_sim.failed());
		rm_assert_clear();
		rm_sim.faults(NULL);
		rm_assert_kept(table[i].kept);
		ck_assert_uint_eq(standin_device_bytes(0), 2 * MIB);
		if (table[i].err == ENOTSUP)
			wrap_clock(later += 3600);
	}
	OK(rm_pin(p, MIB, 0));
	OK(gdr_close(rm_g));
	rm_sim.faults("OPEN_CTL:1=EINTR,OPEN_DEVICE:1=EINTR"); /* a signal: no reason to fail */
	rm_open_context();
	rm_whole_life("after all that", p, MIB);
}

/* An unknown failure stands for a second. Exportable memory is served meanwhile, one warning. */
static CUdeviceptr plain, vmm;

static void pins_for_a_while(void)
{
	time_t now = RM_SECOND;

	for (int i = 0; i < 20; i++) {
		unsigned long tried = rm_sim.calls("EXPORT_TO_DMABUF_FD");

		FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
		rm_assert_clear();
		ck_assert_uint_gt(rm_sim.calls("EXPORT_TO_DMABUF_FD"), tried);
		tried = rm_sim.calls("EXPORT_TO_DMABUF_FD");
		OK(rm_pin(vmm, 2 * MIB, 0));
		FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
		ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), tried);
		wrap_clock(now += 2);
	}
}

static void again(void)
{
	const char *text;

	plain = standin_alloc(MIB);
	vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	rm_sim.faults(getenv("RULE"));
	text = unit_stderr_of(pins_for_a_while);
	ck_assert_uint_eq(rm_times(text, "WARN: rm: GPU 0, memory of cuMemAlloc: "), 1);
	rm_sim.faults(NULL);
	OK(rm_pin(plain, MIB, 0));
	rm_whole_life("healed", plain, MIB);
}

/* What says nothing about rm passes: a context that an error has ended, another thread's. */
static void heals(void)
{
	static const struct {
		const char *rule, *text;
	} table[] = {
		{ "cuMemAlloc:*=700", "cuMemAlloc: " },
		{ "cuStreamCreate:*=700", "cuStreamCreate: " },
		{ "cuMemcpyHtoDAsync:*=700", "the copy engine could not reach" },
		{ "cuMemcpyHtoDAsync:1=700", "the copy engine could not reach" },
		{ "cuMemcpyDtoHAsync:*=700", "the copy engine could not reach" },
		/* The copy is still under way: the memory is not unmapped before it has ended. */
		{ "cuStreamSynchronize:1=719", "the copy engine could not reach" },
		{ "cuMemGetHandleForAddressRange:*=709", "CUDA_ERROR_CONTEXT_IS_DESTROYED" },
		{ "cuMemGetHandleForAddressRange:*=201", "CUDA_ERROR_INVALID_CONTEXT" },
		{ "cuMemGetHandleForAddressRange:*=1", "CUDA_ERROR_INVALID_VALUE" },
	};
	CUdeviceptr spare[COUNT(table)];
	time_t now = RM_SECOND;

	plain = standin_alloc(2 * MIB); /* a block of its own: so has the memory of the trial */
	for (size_t i = 0; i < COUNT(table); i++)
		spare[i] = standin_alloc(2 * MIB);
	for (size_t i = 0; i < COUNT(table); i++) {
		cuda_hooks.set_fail(table[i].rule);
		FAILS_WITH(ENOTSUP, table[i].text, rm_pin(plain, MIB, 0));
		cuda_hooks.set_fail(NULL);
		FAILS_WITH(ENOTSUP, table[i].text, rm_pin(plain, MIB, 0));
		CU(cuda.cuMemFree_v2(spare[i])); /* waits for all work */
		wrap_clock(now += 3700);
	}
	rm_whole_life("healed", plain, MIB);
}

/* Another hook may have hidden it. */
static void seen_again(void)
{
	plain = standin_alloc(MIB);
	FAILS_WITH(ENOTSUP, "libcuda's export of a dma-buf was not seen", rm_pin(plain, MIB, 0));
	unsetenv("GDRSIM_EXPORT_UNSEEN");
	FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
	wrap_clock(RM_SECOND + 2);
	rm_whole_life("seen", plain, MIB);
}

/* A shortage while the verdict is verified again leaves what is served as it is. */
static void short_again(void)
{
	plain = standin_alloc(MIB);
	vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	cuda_hooks.set_fail("cuMemGetHandleForAddressRange:*=999");
	FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
	cuda_hooks.set_fail("cuMemAlloc:*=2");
	wrap_clock(RM_SECOND + 2);
	OK(rm_pin(vmm, 2 * MIB, 0));
	FAILS_WITH(ENOTSUP, "CUDA_ERROR_UNKNOWN", rm_pin(plain, MIB, 0));
	cuda_hooks.set_fail(NULL);
	FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
	wrap_clock(RM_SECOND + 5);
	rm_whole_life("healed", plain, MIB);
}

/* The trial needs memory of its own, which a GPU that is full does not have. */
static void gpu_full(void)
{
	plain = standin_alloc(MIB);
	cuda_hooks.set_fail("cuMemAlloc:*=2");
	for (int i = 0; i < 2; i++)
		FAILS_WITH(ENOMEM,
			   "rm: the trial before the first pin on GPU 0 failed: cuMemAlloc: "
			   "CUDA_ERROR_OUT_OF_MEMORY (2)",
			   rm_pin(plain, MIB, 0));
	cuda_hooks.set_fail(NULL);
	rm_whole_life("with room", plain, MIB);
}

/* What will be the same each time is not tried again. */
static void final(void)
{
	unsigned long trials;

	plain = standin_alloc(MIB);
	vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
	OK(rm_pin(vmm, 2 * MIB, 0));
	trials = cuda_hooks.calls("cuMemAlloc") + cuda_hooks.calls("cuMemCreate");
	for (int day = 1; day < 3; day++) {
		wrap_clock(RM_SECOND + day * 86400);
		FAILS(ENOTSUP, rm_pin(plain, MIB, 0));
		OK(rm_pin(vmm, 2 * MIB, 0));
	}
	ck_assert_uint_eq(cuda_hooks.calls("cuMemAlloc") + cuda_hooks.calls("cuMemCreate"), trials);
}

/* Each page shows the GPU's bytes until the CPU writes it. */
static void writes_are_lost(void)
{
	const char *text = "the GPU does not see what the CPU has written";

	plain = standin_alloc(MIB);
	wrap_reset();
	wrap_mmap_ignores(MAP_SHARED);
	FAILS_WITH(ENOTSUP, text, rm_pin(plain, MIB, 0));
	wrap_reset();
	FAILS_WITH(ENOTSUP, text, rm_pin(plain, MIB, 0));
}

/* A map whose offset RM ignores shows other memory of the same allocation, or a neighbour's. */
static void offsets_are_lost(void)
{
	const char *text = "the mapping shows other memory than the GPU's";

	plain = standin_alloc(4 * MIB);
	vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	FAILS_WITH(ENOTSUP, text, rm_pin(plain + MIB, MIB, 0));
	FAILS_WITH(ENOTSUP, text, rm_pin(vmm + MIB, MIB, 0));
}

/* The same where exportable memory alone is served. */
static void offsets_of_exportable(void)
{
	vmm = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	FAILS_WITH(ENOTSUP, "does not know the layout", rm_pin(vmm + MIB, MIB, 0));
	ck_assert_uint_gt(rm_sim.calls("RM_MAP_MEMORY"), 0);
	/* That outlives a client, too. */
	rm_sim.faults("RM_CONTROL.3d08:1=0x23");
	FAILS(EINVAL, rm_pin(vmm + MIB, MIB, 0));
}

static void types_differ(void)
{
	wrap_reset();
	wrap_fail("syscall", 1, EFAULT); /* the first one is Device memory */
	FAILS_WITH(ENOTSUP, "two mappings are of different types", rm_pin(standin_alloc(MIB), MIB, 0));
	wrap_reset();
	final();
}

/* The GPU has room for the two small buffers alone: both are compared. */
static void small_types_differ(void)
{
	plain = standin_alloc(MIB);
	wrap_reset();
	wrap_fail("syscall", 2, EFAULT);
	cuda_hooks.set_fail("cuMemAlloc:3=2");
	FAILS_WITH(ENOTSUP, "two mappings are of different types", rm_pin(plain, MIB, 0));
	ck_assert_str_eq(cuda_hooks.failed(), "cuMemAlloc_v2");
	cuda_hooks.set_fail(NULL);
	wrap_reset();
}

/* The number of a descriptor that is closed may be another one's at the next failure. */
static void closed_once(void)
{
	int fd;

	plain = standin_alloc(MIB);
	rm_sim.faults("RM_ALLOC.80:1=0x51");
	FAILS(ENOMEM, rm_pin(plain, MIB, 0));
	rm_sim.faults(NULL);
	fd = gdri_fork_open("/dev/null", O_RDONLY);
	cuda_hooks.set_fail("cuDeviceGetAttribute:*=999");
	FAILS_WITH(EIO, "cuDeviceGetAttribute", rm_pin(plain, MIB, 0));
	cuda_hooks.set_fail(NULL);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	gdri_fork_close(fd);
	rm_whole_life("after the failures", plain, MIB);
}

/* A lack of descriptors at any step of the first pin is that, and no verdict. */
static void few_descriptors(void)
{
	struct rlimit all, few;
	int high = 0, rc, err;

	plain = standin_alloc(MIB);
	for (int fd = 0; fd < 1024; fd++)
		high = fcntl(fd, F_GETFD) < 0 ? high : fd;
	for (int fd = 0; fd < high; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			ck_assert_int_eq(dup2(0, fd), fd);
	OK(getrlimit(RLIMIT_NOFILE, &all));
	few = all;
	for (unsigned int left = 0; left < 9; left++) {
		few.rlim_cur = (rlim_t)high + 1 + left;
		OK(setrlimit(RLIMIT_NOFILE, &few));
		rc = rm_pin(plain, MIB, 0);
		OK(setrlimit(RLIMIT_NOFILE, &all));
		/* The stand-in's memory takes a descriptor, of which CUDA tells no more. */
		err = strstr(barcopy_last_error(), "CUDA_ERROR_OUT_OF_MEMORY") ? ENOMEM : EMFILE;
		ck_assert_msg(rc == err || (!rc && left > 4), "%u left: %d: %s", left, rc,
			      barcopy_last_error());
	}
	rm_whole_life("with enough", plain, MIB);
}

static bool unaligned_faults; /* as of Device memory */
static long (*next_syscall)(long number, ...);

/* Before any test: its dlsym() would be counted. */
__attribute__((constructor)) static void find_syscall(void)
{
	next_syscall = (__typeof__(next_syscall))dlsym(RTLD_NEXT, "syscall");
}

/* Replaces the C library's: the library asks rt_sigprocmask() whether a load faults. */
long syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (unaligned_faults && number == SYS_rt_sigprocmask && a[1] % 8) {
		errno = EFAULT;
		return -1;
	}
	return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* RM and the kernel decide on a map's type, not CUDA. */
static void mapping_type(void)
{
	int want = atoi(getenv("TYPE"));
	struct rm_use u;
	gdr_info_v2_t info;
	CUdeviceptr p = standin_alloc(MIB);

	unaligned_faults = getenv("UNALIGNED_FAULTS");
	OK(rm_pin(p, MIB, 0));
	unaligned_faults = false;
	OK(rm_use_open(&u, p, MIB, 0));
	OK(gdr_get_info_v2(rm_g, u.h, &info));
	if (want == GDR_MAPPING_TYPE_WC && standin_device_bar1())
		want = GDR_MAPPING_TYPE_DEVICE;
	ck_assert_int_eq((int)info.mapping_type, want);
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

/* No caller asks for that: a map would read behind the table of objects. */
static void beyond_an_import(void)
{
	static const uint64_t va[] = { 4 * MIB - 64 * KIB, 6 * MIB, 7 * MIB, 6 * MIB - 32 * KIB };
	const struct gdri_imported imported = { .fd = -1 };
	struct gdri_pin_request request = { .mapped_size = 64 * KIB,
					    .memory = { .base = 4 * MIB, .size = 2 * MIB },
					    .imported = &imported };
	struct gdri_rm_range *range;
	struct gdri_rm_gpu *gpu;

	OK(gdri_rm_gpu_get(0, &gpu));
	for (size_t i = 0; i < COUNT(va); i++) {
		request.va = va[i];
		FAILS_WITH(-EINVAL, "the range reaches beyond what was imported",
			   gdri_rm_range_open(gpu, &request, false, &range, NULL));
	}
	gdri_rm_gpu_put();
}

/* ---- exports with one wrong value ---------------------------------------- */

/* Changes something in the structure that the kernel has filled, before libcuda reads it. */
static void (*spoil)(struct rm_export_570 *e);
static ioctl_fn below;

static int spoil_and_pass(int fd, unsigned long request, void *data)
{
	int rc;

	if (fd == 2) /* of GDRSIM_EXPORT_MORE: ioctls that the driver would take */
		return 0;
	rc = below(fd, request, data);
	if (_IOC_NR(request) == RM_EXPORT_NUMBER)
		spoil(data);
	return rc;
}

IOCTL_FUNCTION(spoiling_ioctl, spoil_and_pass)

static void another_offset(struct rm_export_570 *e)
{
	if (e->sizes[0] <= 0x2000) /* one of the small ones */
		e->offsets[0] = 0; /* what was allocated before, which must stay as it is */
}

static void within_a_page(struct rm_export_570 *e)
{
	e->sizes[0] -= 512;
}

static void begins_within_a_page(struct rm_export_570 *e)
{
	e->offsets[0] += 512;
}

static void too_short(struct rm_export_570 *e)
{
	if (e->sizes[0] > 0x2000)
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

/* The call that the kernel refuses names no object. */
static void no_object_refused(struct rm_export_570 *e)
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

static void wrong_bytes_are_final(void)
{
	spoil_exports(another_offset);
	rm_open_context();
	final();
	/* They outlive what makes a client anew, which would try the GPU again. */
	rm_sim.faults("RM_CONTROL.3d08:1=0x23");
	FAILS(EINVAL, rm_pin(vmm, 2 * MIB, 0));
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 0);
	rm_end(1);
}

static void as_it_is(struct rm_export_570 *e)
{
	(void)e;
}

static bool regular; /* what fstat() says */

/* Replaces the C library's, for the library too. */
int fstat(int fd, struct stat *st)
{
	static _Atomic(__typeof__(&fstat)) next; /* dlsym() calls are counted */
	int rc;

	if (!next)
		next = (__typeof__(&fstat))dlsym(RTLD_NEXT, "fstat");
	rc = next(fd, st);
	if (regular)
		st->st_mode = S_IFREG | 0600;
	return rc;
}

/* Another hook has answered libcuda's export on a descriptor of its own. */
static void no_node(void)
{
	plain = standin_alloc(MIB);
	OK(rm_pin(plain, MIB, 0)); /* with the trial */
	regular = true;
	FAILS_WITH(ENOTSUP, "does not know the layout", rm_pin(plain, MIB, 0));
	regular = false;
	rm_whole_life("of a node", plain, MIB);
}

static bool other_client; /* the next export is another client's */

static void another_client(struct rm_export_570 *e)
{
	if (other_client)
		e->client++;
	other_client = !other_client;
}

/* A memory's objects are duplicated from one client: that of each export call. */
static void two_clients(void)
{
	spoil_exports(as_it_is);
	rm_open_context();
	plain = standin_alloc(2 * MIB);
	OK(rm_pin(plain, 2 * MIB, 0));
	spoil = another_client;
	FAILS_WITH(ENOTSUP, "does not know the layout", rm_pin(plain, 2 * MIB, 0));
	spoil = as_it_is;
	rm_whole_life("of one client", plain, 2 * MIB);
	rm_end(1);
}

/* After a trial that passed. */
static void one_range(void)
{
	spoil_exports(as_it_is);
	rm_open_context();
	plain = standin_alloc(MIB);
	OK(rm_pin(plain, MIB, 0));
	spoil = too_short;
	FAILS_WITH(ENOTSUP, "libcuda exported 1 of 1 objects, 0xff000 of 0x100000 bytes",
		   rm_pin(plain, MIB, 0));
	spoil = as_it_is;
	wrap_reset();
	wrap_fail("realloc", 0, ENOMEM);
	FAILS_WITH(ENOMEM, "no memory for the objects of a pin", rm_pin(plain, MIB, 0));
	wrap_reset();
	rm_whole_life("as it is", plain, MIB);
	rm_end(1);
}

/* Ioctls that are no export, although they have its type or its number. */
static void not_of_an_export(void)
{
	spoil_exports(as_it_is);
	rm_open_context();
	rm_whole_life("among other ioctls", standin_alloc(MIB), MIB);
	rm_end(1);
}

static void refused_of_a_pool(void)
{
	CUdeviceptr p;

	spoil_exports(no_object_refused);
	rm_open_context();
	p = rm_pool_alloc(8 * MIB);
	rm_whole_life("from its start on", p, 8 * MIB);
	FAILS_WITH(EINVAL, "EXPORT_TO_DMABUF_FD: NV_ERR_OBJECT_NOT_FOUND",
		   rm_pin(p + MIB, 64 * KIB, 0));
	rm_end(1);
}

/* ---- what libcuda exports of a pool -------------------------------------- */

static struct rm_export_570 asked;

static void record(struct rm_export_570 *e)
{
	asked = *e;
}

/*
 * What libcuda passed on an H100, driver 580.159.04: a pool's memory has an object for each 32 MiB,
 * and the sizes are wrong unless the range begins where one does or ends where the last one does.
 */
static void parts_of_a_pool(void)
{
	static const struct {
		size_t at, size;
		uint32_t status, count;
		uint64_t parts[2][2]; /* offset, size */
	} calls[] = {
		{ 0x10000, 0x10000, 0x1f, 1, { { 0x10000, 0 } } },
		{ 0x900000, 0x10000, 0x1f, 1, { { 0x900000, 0xffffffffff710000 } } },
		{ 0x10000, 0x30000, 0x1f, 1, { { 0x10000, 0x20000 } } },
		{ 0x1ff0000, 0x20000, 0x1f, 2,
		  { { 0x1ff0000, 0xfffffffffe030000 }, { 0xfffffffffe020000, 0x3fd0000 } } },
		{ 0x1ff0000, 0x10000, 0, 1, { { 0x1ff0000, 0x10000 } } },
		{ 0, 0x2010000, 0, 2, { { 0, 0x2000000 }, { 0, 0x10000 } } },
		{ 0x3000000, 0x2000000, 0, 2, { { 0x1000000, 0x1000000 }, { 0, 0x1000000 } } },
	};
	CUdeviceptr pool;
	int fd;

	spoil_exports(record);
	pool = rm_pool_alloc(80 * MIB);
	for (size_t i = 0; i < COUNT(calls); i++) {
		ck_assert_int_eq(cuda.cuMemGetHandleForAddressRange(
					 &fd, pool + calls[i].at, calls[i].size,
					 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
				 calls[i].status ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
		if (!calls[i].status)
			close(fd);
		ck_assert_uint_eq(asked.status, calls[i].status);
		ck_assert_uint_eq(asked.total, calls[i].count);
		for (uint32_t k = 0; k < asked.total; k++) {
			ck_assert_uint_eq(asked.offsets[k], calls[i].parts[k][0]);
			ck_assert_uint_eq(asked.sizes[k], calls[i].parts[k][1]);
		}
	}
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

	wrap_clock(RM_SECOND); /* also on a machine that has started less than that ago */
	spoil_exports(spoiled->how);
	/* The trial's memory will be next to this. */
	p = standin_alloc(sizeof(a));
	rm_pattern(a, sizeof(a), 4711);
	standin_to_gpu(p, a, sizeof(a));
	rm_open_context();
	unit_arg = spoiled->text;
	rm_exportable_alone();
	rm_end(1);
	CU(cuda.cuMemcpyDtoH_v2(b, p, sizeof(b)));
	ck_assert_int_eq(memcmp(a, b, sizeof(a)), 0);
}

#define SPOILED(how, text) spoiled, "", &(struct spoiled){ how, text }, .bare = true

#define LOGGED "GDRCOPY_ENABLE_LOGGING=1 GDRCOPY_LOG_LEVEL=3 "

static const struct unit_test tests[] = {
	{ "beyond an import", beyond_an_import, "" },
	{ "an export on no device", no_node, "" },
	{ "tried once for each GPU", once_per_gpu, "GDRSIM_DEVICES=2" },
	{ "on a small stack", small_stack, "" },
	{ "tried again", tried_again, "" },
	{ "an unknown failure of the export", again, LOGGED "RULE=EXPORT_TO_DMABUF_FD:*=EINVAL" },
	{ "an unknown status", again, LOGGED "RULE=RM_DUP_OBJECT:*=0xffff" },
	{ "INVALID_STATE", again, LOGGED "RULE=RM_DUP_OBJECT:*=0x40" },
	{ "a verdict heals", heals, "GDRSIM_ASYNC_DELAY_US=20000" },
	{ "an export that is seen again", seen_again, "GDRSIM_EXPORT_UNSEEN=1" },
	{ "a verdict heals, short of memory meanwhile", short_again, "" },
	{ "no memory for the trial", gpu_full, "" },
	/* On arm64 all are Device memory before 590. */
	{ "mappings of two types", types_differ, "GDRSIM_RM_DRIVER=590.48.01" },
	{ "mappings of two types, without the large one", small_types_differ,
	  "GDRSIM_RM_DRIVER=590.48.01" },
	{ "closed once", closed_once, "" },
	{ "writes that do not arrive", writes_are_lost, "" },
	{ "offsets that are lost", offsets_are_lost, "GDRSIM_RM_MAP_START=1" },
	{ "offsets that are lost, small buffers alone", offsets_are_lost,
	  "GDRSIM_RM_MAP_START=1 GDRSIM_BAR1_MIB=3" },
	{ "offsets of exportable memory that are lost", offsets_of_exportable,
	  "GDRSIM_RM_MAP_START=1 GDRSIM_RM_EXPORT_SIZE=2616" },
	{ "few descriptors", few_descriptors, "" },
	{ "an unknown layout is final", final, "GDRSIM_RM_EXPORT_SIZE=2616" },
	{ "no import to watch is final", final, "LD_LIBRARY_PATH=$SIM/direct" },
	{ "wrong bytes are final", wrong_bytes_are_final, "", .bare = true },
	{ "in BAR1", mapping_type, "TYPE=1" },
	{ "over a coherent link", mapping_type, "TYPE=2 GDRSIM_COHERENT=1" },
	{ "over a coherent link, next to BAR1", mapping_type,
	  "TYPE=2 GDRSIM_COHERENT=1 GDRSIM_BAR1_MIB=2097152" },
	{ "coherent to CUDA, in BAR1", mapping_type, "TYPE=1 GDRSIM_COHERENT=1 GDRSIM_RM_BAR1=1" },
	{ "outside BAR1, not coherent to CUDA", mapping_type, "TYPE=1 GDRSIM_RM_BAR1=0" },
	{ "in BAR1, as Device memory", mapping_type, "TYPE=3 UNALIGNED_FAULTS=1" },
	{ "several first pins at once", first_pins_at_once, "" },
	{ "another offset",
	  SPOILED(another_offset, "the mapping shows other memory than the GPU's; and ") },
	{ "a size within a page",
	  SPOILED(within_a_page, "a memory object begins or ends within a page; and ") },
	{ "an offset within a page",
	  SPOILED(begins_within_a_page, "a memory object begins or ends within a page; and ") },
	{ "too small a size",
	  SPOILED(too_short, "libcuda exported 1 of 1 objects, 0xf000 of 0x10000 bytes; and ") },
	{ "one object more",
	  SPOILED(one_more, "libcuda exported 1 of 2 objects, 0x10000 of 0x10000 bytes; and ") },
	{ "too many objects",
	  SPOILED(far_too_many, "this library does not know the layout of this driver's export of "
				"a dma-buf: use a newer library, or load gdrdrv; and ") },
	{ "no such object",
	  SPOILED(another_object, "RM_DUP_OBJECT: NV_ERR_OBJECT_NOT_FOUND (0x57); and ") },
	{ "sizes that wrap", SPOILED(sizes_that_wrap, "libcuda exported 3 of 3 objects") },
	{ "exports of two clients", two_clients, "GDRSIM_RM_OBJECT_MIB=1 GDRSIM_RM_EXPORT_MAX=1",
	  .bare = true },
	{ "one range alone", one_range, "", .bare = true },
	{ "other ioctls in an export", not_of_an_export, "GDRSIM_EXPORT_MORE=1", .bare = true },
	{ "no object in a refused call", refused_of_a_pool, "", .bare = true },
	{ "libcuda's exports of a pool", parts_of_a_pool, "", .bare = true },
};

UNIT_MAIN("rm: trial", tests, rm_start(argv), unit_before = rm_begin, unit_after = rm_end_one)
