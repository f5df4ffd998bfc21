/* SPDX-License-Identifier: MIT */
/*
 * The rm backend on real memory or the stand-in's: every kind of device memory, a kernel that runs
 * meanwhile, many pins, threads that allocate and free, descriptors that the program closes.
 * Descriptors and BAR1 in use are the same before and after.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/maps.h"
#include "gpu_test.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

enum { LOOK = 300, THREADS = 8 };

/* At both ends, in the middle, across 64 KiB and 2 MiB. */
static bool look(struct mapped *m)
{
	size_t places[] = { 0, m->size / 2 | 1, m->size - (m->size < LOOK ? m->size : LOOK),
			    64 * KIB - 100, 2 * MIB - 100 };
	unsigned int seed = (unsigned int)(m->addr >> 8);

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		size_t at = places[i], n = m->size - at < LOOK ? m->size - at : LOOK;

		if (at < m->size &&
		    !both_ways(m->h, m->p + at, m->addr + at, n, seed + (unsigned int)i))
			return false;
	}
	return true;
}

/* Twice: nothing of the first pin is in the way of the second. */
static void whole_life(const char *what, CUdeviceptr addr, size_t size)
{
	struct mapped m;

	for (int round = 0; round < 2; round++) {
		int rc = pin_and_map(&m, addr, size);

		CHECK(!rc, "%s: errno %d: %s", what, rc, barcopy_last_error());
		CHECK(backend_of(m.h) == BARCOPY_BACKEND_RM, "%s: backend %d", what,
		      (int)backend_of(m.h));
#if !defined(__aarch64__) /* there Device before driver 590, and cached over a coherent link */
		CHECK(m.info.wc_mapping, "%s: not write-combined", what);
#endif
		CHECK(look(&m), "%s: other bytes at pin %d", what, round);
		OK(unmap_and_unpin(&m));
	}
}

/* ---- kinds of memory ------------------------------------------------------------------------- */

/* The 64 KiB page of its first bytes begins in p[0], which is freed here. */
static void beside_freed(const char *what, CUdeviceptr p[3], CUresult (*release)(CUdeviceptr))
{
	CU(release(p[0]));
	CU(cu.StreamSynchronize(NULL));
	whole_life(what, p[1], 16);
	whole_life(what, p[1], 100000);
	whole_life(what, p[1] + 99990, 10);
	CU(release(p[1]));
	CU(release(p[2]));
}

static void plain(void)
{
	static const size_t sizes[] = { 4096, 100000, 8 << 20, 4 };
	CUdeviceptr p[4];

	for (int i = 0; i < 4; i++)
		CU(cu.MemAlloc(&p[i], sizes[i]));
	for (int i = 0; i < 4; i++)
		whole_life("cuMemAlloc", p[i], sizes[i]);
	/* Inside of an allocation, unaligned at both ends. */
	whole_life("a part of cuMemAlloc", p[2] + 3 * MIB + 12345, 70001);
	for (int i = 0; i < 4; i++)
		CU(cu.MemFree(p[i]));
	for (int i = 0; i < 3; i++)
		CU(cu.MemAlloc(&p[i], 100000));
	beside_freed("cuMemAlloc beside freed memory", p, cu.MemFree);
}

static CUresult free_in_order(CUdeviceptr p)
{
	return cu.MemFreeAsync(p, NULL);
}

static void pools(void)
{
	static const size_t sizes[] = { 1 << 20, 40 << 20, 1000 };
	CUdeviceptr p[3];

	if (!cu.MemAllocAsync)
		SKIP("no cuMemAllocAsync");
	for (int i = 0; i < 3; i++)
		CU(cu.MemAllocAsync(&p[i], sizes[i], NULL));
	CU(cu.StreamSynchronize(NULL));
	for (int i = 0; i < 3; i++)
		whole_life("cuMemAllocAsync", p[i], sizes[i]);
	whole_life("a part of cuMemAllocAsync", p[1] + 3 * MIB + 12345, 70001);
	whole_life("its last bytes", p[1] + 40 * MIB - 1000, 1000);
	for (size_t at = 2 * MIB; at < 40 * MIB; at += 2 * MIB) /* an object may end there */
		whole_life("over a boundary", p[1] + at - 5000, 9000);
	for (int i = 0; i < 3; i++)
		CU(cu.MemFreeAsync(p[i], NULL));
	for (int i = 0; i < 3; i++)
		CU(cu.MemAllocAsync(&p[i], 100000, NULL));
	beside_freed("cuMemAllocAsync beside freed memory", p, free_in_order);
	CU(cu.StreamSynchronize(NULL));
}

static const struct kind {
	const char *what;
	unsigned int flags, count;
	size_t chunk;
} kinds[] = {
	{ "VMM", 0, 1, 4 * MIB },
	{ "VMM, exportable", EXPORTABLE, 1, 4 * MIB },
	{ "VMM, gpuDirectRDMACapable", RDMA_CAPABLE, 1, 4 * MIB },
	{ "VMM, two chunks", 0, 2, 4 * MIB },
	{ "VMM, more chunks than one export call takes", 0, 140, 2 * MIB },
};

static void vmm_kinds(void)
{
	for (const struct kind *k = kinds; k < kinds + sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct vmm v;

		if (vmm_alloc(&v, k->count * k->chunk, k->count, k->flags))
			return;
		whole_life(k->what, v.ptr, v.size);
		if (k->count > 2)
			whole_life("from inside one chunk to inside another",
				   v.ptr + v.chunk - 5000, (k->count - 2) * v.chunk + 9000);
		vmm_free(&v);
	}
}

/* A chunk that came by a descriptor, mapped by CUDA a second time. */
static void imported(void)
{
	CUmemAllocationProp prop = vmm_prop(EXPORTABLE);
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle first, second;
	CUdeviceptr p;
	int fd = -1;

	CU(cu.MemCreate(&first, 4 * MIB, &prop, 0));
	CU(cu.MemExportToShareableHandle(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cu.MemImportFromShareableHandle(&second, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CU(cu.MemAddressReserve(&p, 4 * MIB, 0, 0, 0));
	CU(cu.MemMap(p, 4 * MIB, 0, second, 0));
	CU(cu.MemSetAccess(p, 4 * MIB, &access, 1));
	whole_life("imported VMM", p, 4 * MIB);
	CU(cu.MemUnmap(p, 4 * MIB));
	CU(cu.MemRelease(second));
	CU(cu.MemRelease(first));
	CU(cu.MemAddressFree(p, 4 * MIB));
}

static void refused(void)
{
	CUdeviceptr p;
	gdr_mh_t h;

	if (!cu.MemAllocManaged)
		SKIP("no cuMemAllocManaged");
	CU(cu.MemAllocManaged(&p, MIB, CU_MEM_ATTACH_GLOBAL));
	FAILS(EINVAL, gdr_pin_buffer_v2(test_g, p, MIB, 0, &h));
	CHECK(strstr(barcopy_last_error(), "managed"), "%s", barcopy_last_error());
	CU(cu.MemFree(p));
	CU(cu.MemAlloc(&p, MIB));
	CHECK(gdr_pin_buffer_v2(test_g, p, 64 * MIB, 0, &h), "far beyond the allocation");
	CU(cu.MemFree(p));
	CHECK(gdr_pin_buffer_v2(test_g, p, MIB, 0, &h), "memory that was freed was pinned");
}

/* ---- while a kernel runs --------------------------------------------------------------------- */

static const char spin_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			       ".visible .entry spin(.param .u64 p)\n"
			       "{\n"
			       "\t.reg .u64 a;\n\t.reg .u32 v;\n\t.reg .pred q;\n"
			       "\tld.param.u64 a, [p];\n"
			       "again:\n"
			       "\tld.volatile.global.u32 v, [a];\n"
			       "\tsetp.eq.u32 q, v, 0;\n"
			       "\t@q bra again;\n"
			       "\tret;\n"
			       "}\n";

static volatile uint32_t *spin_flag;
static atomic_bool spin_released;

static void *release_spin(void *arg)
{
	(void)arg;
	for (int i = 0; i < 1000 && !*spin_flag; i++)
		usleep(10000);
	if (!*spin_flag) {
		atomic_store(&spin_released, true);
		*spin_flag = 1;
	}
	return NULL;
}

/* A pin must not wait for the GPU: a kernel may be waiting for the CPU's write. */
static void while_a_kernel_runs(void)
{
	CUdeviceptr p, flag;
	CUfunction f;
	CUmodule module;
	CUstream stream;
	pthread_t guard;
	void *host, *args[1] = { &flag };
	struct mapped m;

	if (cu.is_stand_in)
		SKIP("the stand-in runs no kernel of ours");
	CU(cu.MemAlloc(&p, 64 * KIB));
	CU(cu.MemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cu.MemHostGetDevicePointer(&flag, host, 0));
	spin_flag = host;
	*spin_flag = 0;
	CU(cu.ModuleLoadData(&module, spin_ptx));
	CU(cu.ModuleGetFunction(&f, module, "spin"));
	CU(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cu.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	CHECK(!pthread_create(&guard, NULL, release_spin, NULL), "no thread");
	OK(pin_and_map(&m, p, 64 * KIB));
	OK(gdr_copy_to_mapping(m.h, m.p, "x", 1));
	OK(unmap_and_unpin(&m));
	CHECK(!atomic_load(&spin_released), "pin, map, unmap or unpin waited for the kernel");
	*spin_flag = 1;
	pthread_join(guard, NULL);
	CU(cu.StreamSynchronize(stream));
	CU(cu.StreamDestroy(stream));
	CU(cu.ModuleUnload(module));
	CU(cu.MemFreeHost(host));
	CU(cu.MemFree(p));
}

/* ---- counts ---------------------------------------------------------------------------------- */

static int count_fds(void)
{
	unsigned long long (*device_bytes)(int);
	DIR *dir;
	int n = 0;

	/* The stand-in closes a dma-buf only at its next call. */
	*(void **)&device_bytes = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "gdrsim_device_bytes");
	if (device_bytes)
		device_bytes(0);
	dir = opendir("/proc/self/fd");
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* Bytes of BAR1 in use by NVML; 0 where NVML does not say. */
static uint64_t bar1_used(void)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) };

	return barcopy_get_bar_info(test_gpu.ordinal, &info) ? 0 : info.used;
}

static void many_pins(void)
{
	size_t count = cu.is_stand_in ? 200 : 2000;
	struct mapped *m = calloc(count, sizeof(*m));
	uint64_t bar1 = bar1_used();
	CUdeviceptr p;
	size_t at;
	int fds;

	CHECK(m, "no memory");
	CU(cu.MemAlloc(&p, 4 * MIB));
	fds = count_fds();
	for (at = 0; at < count; at++)
		if (pin_and_map(&m[at], p + at % 64 * 64 * KIB, 64 * KIB))
			break;
	CHECK(at == count, "pin %zu: %s", at, barcopy_last_error());
	CHECK(count_fds() == fds, "%d descriptors, %d before", count_fds(), fds);
	if (bar1)
		CHECK(bar1_used() - bar1 <= count * 64 * KIB,
		      "%llu bytes of BAR1 for %zu pins of 64 KiB",
		      (unsigned long long)(bar1_used() - bar1), count);
	CHECK(look(&m[0]) && look(&m[count - 1]), "other bytes");
	for (at = 0; at < count; at++)
		OK(unmap_and_unpin(&m[at]));
	CU(cu.MemFree(p));
	CHECK(bar1_used() == bar1, "%llu bytes of BAR1 in use, %llu before",
	      (unsigned long long)bar1_used(), (unsigned long long)bar1);
	free(m);
}

static void large(void)
{
	const char *text = getenv("GDRCOPY_TEST_GIB");
	size_t size = (size_t)(text ? strtoul(text, NULL, 10) : 0) << 30;
	CUdeviceptr p;

	if (!size)
		size = 512 * MIB;
	CU(cu.MemAlloc(&p, size));
	whole_life("a large allocation", p, size);
	CU(cu.MemFree(p));
}

/* ---- threads --------------------------------------------------------------------------------- */

static atomic_bool stop;
static _Atomic unsigned long rounds_done, wrong;

static void *work(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg * 7919 + 1;

	cu.CtxSetCurrent(test_gpu.ctx);
	while (!atomic_load(&stop)) {
		size_t size = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 4 ? 100000 : 5000000);
		CUdeviceptr p;
		struct mapped m;
		int rc;

		if (cu.MemAlloc(&p, size))
			continue;
		rc = pin_and_map(&m, p, size);
		if (rc || !look(&m) || unmap_and_unpin(&m)) {
			printf("# thread: errno %d: %s\n", rc, barcopy_last_error());
			atomic_fetch_add(&wrong, 1);
		}
		cu.MemFree(p);
		atomic_fetch_add(&rounds_done, 1);
	}
	return NULL;
}

static void threads(void)
{
	const char *text = getenv("GDRCOPY_TEST_SECONDS");
	unsigned int seconds = text ? (unsigned int)strtoul(text, NULL, 10) : 1;
	int fds = count_fds();
	uint64_t bar1 = bar1_used();
	pthread_t t[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, work, (void *)i), "no thread");
	sleep(seconds);
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("# %lu rounds by %d threads in %u s\n", atomic_load(&rounds_done), THREADS, seconds);
	CHECK(atomic_load(&rounds_done) >= THREADS, "hardly anything ran");
	CHECK(!atomic_load(&wrong), "%lu rounds failed", atomic_load(&wrong));
	CHECK(count_fds() == fds, "%d descriptors, %d before", count_fds(), fds);
	CHECK(bar1_used() == bar1, "%llu bytes of BAR1 in use, %llu before",
	      (unsigned long long)bar1_used(), (unsigned long long)bar1);
}

/* ---- a program that closes what it did not open ---------------------------------------------- */

enum { MAX_FDS = 4096 };

/* Descriptors of the GPU's nodes. */
static int find_nodes(void *found)
{
	struct stat st;

	for (int fd = 0; fd < MAX_FDS; fd++)
		((bool *)found)[fd] =
			!fstat(fd, &st) && S_ISCHR(st.st_mode) && major(st.st_rdev) == 195;
	return 0;
}

/* Closes the library's nodes: those that a child of fork() finds closed. Returns their number. */
static int close_the_librarys_nodes(void)
{
	bool *nodes =
		mmap(NULL, 2 * MAX_FDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool *left = nodes + MAX_FDS;
	int closed = 0;

	if (nodes == MAP_FAILED)
		return -1;
	find_nodes(nodes);
	if (in_child(find_nodes, left))
		return -1;
	for (int fd = 0; fd < MAX_FDS; fd++)
		if (nodes[fd] && !left[fd])
			closed += !close(fd);
	munmap(nodes, 2 * MAX_FDS);
	return closed;
}

/* Allocates all the free memory (64 MiB of the stand-in), marks it, and frees it. */
static void mark_the_rest(void)
{
	size_t max = cu.is_stand_in ? 64 : 1024, n = 0;
	CUdeviceptr *p = calloc(max, sizeof(*p));
	size_t block = cu.is_stand_in ? MIB : 256 * MIB;

	while (p && n < max && !cu.MemAlloc(&p[n], block))
		cu.MemsetD8(p[n++], 0x77, block);
	cu.CtxSynchronize();
	while (n)
		cu.MemFree(p[--n]);
	free(p);
}

/*
 * As closefrom(3) or a double close elsewhere in the program does: the mapping still shows the
 * memory that was pinned, and never memory of others. The last test: the library has no client
 * afterwards.
 */
static void nodes_closed(void)
{
	size_t size = 64 * MIB, others = 0;
	CUdeviceptr p;
	struct mapped m;
	int closed;

	if (getenv("GDRCOPY_TEST_EMULATOR")) {
		test_skip("under user-mode emulation an unknown ioctl is ENOSYS");
		return;
	}
	CU(cu.MemAlloc(&p, size));
	CU(cu.MemsetD8(p, 0x11, size));
	CU(cu.CtxSynchronize());
	OK(pin_and_map(&m, p, size));
	closed = close_the_librarys_nodes();
	CHECK(closed >= 2, "%d nodes closed", closed);
	CU(cu.MemFree(p));
	mark_the_rest();
	for (size_t at = 0; at < size; at += 64 * KIB)
		others += m.p[at] != 0x11;
	(void)unmap_and_unpin(&m); /* says that its client is gone */
	CHECK(!others, "%zu of %zu pages show other memory", others, size / (64 * KIB));
	/* With no range left, the next pin has another client. */
	CU(cu.MemAlloc(&p, MIB));
	OK(pin_and_map(&m, p, MIB));
	CHECK(look(&m), "after the library's nodes were closed");
	OK(unmap_and_unpin(&m));
	CU(cu.MemFree(p));
}

/* ---- forks before CUDA --------------------------------------------------- */

/* The worker's cuInit(), and a pin. */
static int worker(void)
{
	struct mapped m;
	CUdeviceptr p;

	cuda_dl_load();
	gpu_find(&test_gpu, 0);
	gpu_start(&test_gpu);
	test_g = gdr_open();
	return !test_g || cu.MemAlloc(&p, MIB) || pin_and_map(&m, p, MIB) || !look(&m);
}

/* A server opens, without a backend's name, and its worker uses CUDA. */
static int open_and_fork(void)
{
	gdr_t g = gdr_open();
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(worker());
	if (pid > 0)
		waitpid(pid, &status, 0);
	return g && !gdr_close(g) ? status : -1;
}

static void workers_of_a_server(void)
{
	int status = -1;
	pid_t pid;

	if (getenv("GDRCOPY_TEST_EMULATOR")) {
		test_skip("starts itself again as another process, without the emulator");
		return;
	}
	pid = fork();
	if (!pid) {
		unsetenv("GDRCOPY_BACKEND");
		execl("/proc/self/exe", "test_rm", "open and fork", NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	CHECK(!status, "status 0x%x of a process that opens and forks", status);
}

int main(int argc, char **argv)
{
	static const struct gpu_test tests[] = {
		/* First: the trial, once for each GPU, must not wait either. */
		{ "while a kernel runs", while_a_kernel_runs },
		{ "cuMemAlloc", plain },
		{ "cuMemAllocAsync", pools },
		{ "cuMemCreate", vmm_kinds },
		{ "cuMemImportFromShareableHandle", imported },
		{ "managed, freed, too long", refused },
		{ "many pins", many_pins },
		{ "large", large },
		{ "threads", threads },
		{ "its nodes closed by the program", nodes_closed },
		{ "workers of a server that has opened", workers_of_a_server },
	};

	(void)argv;
	if (argc > 1)
		return open_and_fork() != 0;
	setenv("GDRCOPY_BACKEND", "rm", 1);
	return gpu_test_main(tests, sizeof(tests) / sizeof(tests[0]));
}
