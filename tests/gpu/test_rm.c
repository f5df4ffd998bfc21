/* SPDX-License-Identifier: MIT */
/*
 * The rm backend on real memory (or the stand-in's): every kind of device memory, also when it is
 * freed under the pin; read-only maps; a kernel that runs meanwhile; many pins; threads that allocate
 * and free; children that end in every way. What is counted at the start is counted at the end.
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

/* Calls that the tools do not need. */
static struct {
	__typeof__(&cuMemAllocAsync) alloc_async;
	__typeof__(&cuMemFreeAsync) free_async;
	__typeof__(&cuMemAllocManaged) alloc_managed;
	__typeof__(&cuMemExportToShareableHandle) export;
	__typeof__(&cuMemImportFromShareableHandle) import;
	__typeof__(&cuMemsetD8_v2) memset;
} more;

static void find_more(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	more.alloc_async = (__typeof__(more.alloc_async))dlsym(lib, "cuMemAllocAsync");
	more.free_async = (__typeof__(more.free_async))dlsym(lib, "cuMemFreeAsync");
	more.alloc_managed = (__typeof__(more.alloc_managed))dlsym(lib, "cuMemAllocManaged");
	more.export = (__typeof__(more.export))dlsym(lib, "cuMemExportToShareableHandle");
	more.import = (__typeof__(more.import))dlsym(lib, "cuMemImportFromShareableHandle");
	more.memset = (__typeof__(more.memset))dlsym(lib, "cuMemsetD8_v2");
}

/* ---- one range from pin to unpin ------------------------------------------------------------------- */

struct use {
	CUdeviceptr addr;
	size_t size;
	gdr_mh_t h;
	gdr_info_t info;
	void *map;
	uint8_t *p; /* the byte at addr */
};

static int use_open(gdr_t g, struct use *u, CUdeviceptr addr, size_t size)
{
	int rc = gdr_pin_buffer_v2(g, addr, size, 0, &u->h);

	u->addr = addr;
	u->size = size;
	if (rc)
		return rc;
	rc = gdr_get_info(g, u->h, &u->info);
	if (!rc)
		rc = gdr_map(g, u->h, &u->map, u->info.mapped_size);
	if (!rc)
		rc = gdr_get_info(g, u->h, &u->info);
	if (rc) {
		gdr_unpin_buffer(g, u->h);
		return rc;
	}
	u->p = (uint8_t *)u->map + (addr - u->info.va);
	return 0;
}

static int use_close(gdr_t g, struct use *u)
{
	int rc = gdr_unmap(g, u->h, u->map, u->info.mapped_size);
	int rc2 = gdr_unpin_buffer(g, u->h);

	return rc ? rc : rc2;
}

/* Both ways at one place: true if all bytes arrive. */
static bool both_ways_at(struct use *u, size_t at, unsigned int seed)
{
	size_t n = u->size - at < LOOK ? u->size - at : LOOK;
	uint8_t a[LOOK], b[LOOK];

	pattern(a, n, seed);
	if (gdr_copy_to_mapping(u->h, u->p + at, a, n) || cu.MemcpyDtoH(b, u->addr + at, n) ||
	    memcmp(a, b, n))
		return false;
	pattern(a, n, seed + 1);
	memset(b, 0, sizeof(b));
	if (cu.MemcpyHtoD(u->addr + at, a, n) || cu.CtxSynchronize() ||
	    gdr_copy_from_mapping(u->h, b, u->p + at, n))
		return false;
	return !memcmp(a, b, n);
}

/* At both ends, in the middle, across 64 KiB and 2 MiB. */
static bool both_ways(struct use *u)
{
	size_t places[] = { 0, u->size / 2 | 1, u->size - (u->size < LOOK ? u->size : LOOK),
			    64 * KIB - 100, 2 * MIB - 100 };
	unsigned int seed = (unsigned int)(u->addr >> 8);

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (places[i] < u->size && !both_ways_at(u, places[i], seed + (unsigned int)i))
			return false;
	return true;
}

static void whole_life(const char *what, CUdeviceptr addr, size_t size)
{
	uint64_t backend = 0;
	struct use u;

	int rc = use_open(test_g, &u, addr, size);

	EXPECT(!rc, "%s: errno %d: %s", what, rc, barcopy_last_error());
	OK(barcopy_get_handle_attribute(test_g, u.h, BARCOPY_HANDLE_ATTR_BACKEND, &backend));
	EXPECT(backend == BARCOPY_BACKEND_RM, "%s: backend %d", what, (int)backend);
	EXPECT(u.info.wc_mapping, "%s: not write-combined", what);
	EXPECT(both_ways(&u), "%s: other bytes", what);
	OK(use_close(test_g, &u));
	/* And once more: nothing of the first is in the way. */
	OK(use_open(test_g, &u, addr, size));
	EXPECT(both_ways(&u), "%s: other bytes at the second pin", what);
	OK(use_close(test_g, &u));
}

/* ---- kinds of memory --------------------------------------------------------------------------------- */

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
}

static void pools(void)
{
	static const size_t sizes[] = { 1 << 20, 40 << 20, 1000 };
	CUdeviceptr p[3];

	if (!more.alloc_async)
		SKIP("no cuMemAllocAsync");
	for (int i = 0; i < 3; i++)
		CU(more.alloc_async(&p[i], sizes[i], NULL));
	CU(cu.StreamSynchronize(NULL));
	for (int i = 0; i < 3; i++)
		whole_life("cuMemAllocAsync", p[i], sizes[i]);
	whole_life("a part of cuMemAllocAsync", p[1] + 3 * MIB + 12345, 70001);
	whole_life("its last bytes", p[1] + 40 * MIB - 1000, 1000);
	for (int i = 0; i < 3; i++)
		CU(more.free_async(p[i], NULL));
	CU(cu.StreamSynchronize(NULL));
}

static CUmemAllocationProp vmm_prop(bool exportable, bool rdma)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						   : CU_MEM_HANDLE_TYPE_NONE,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, test_gpu.dev },
		.allocFlags = { .gpuDirectRDMACapable = rdma },
	};
}

/* `count` chunks of cuMemCreate side by side. */
static void chunks(const char *what, CUmemAllocationProp prop, size_t chunk, unsigned int count)
{
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;

	CU(cu.MemAddressReserve(&p, count * chunk, 0, 0, 0));
	for (unsigned int i = 0; i < count; i++) {
		CU(cu.MemCreate(&handle, chunk, &prop, 0));
		CU(cu.MemMap(p + i * chunk, chunk, 0, handle, 0));
		CU(cu.MemRelease(handle));
	}
	CU(cu.MemSetAccess(p, count * chunk, &access, 1));
	whole_life(what, p, count * chunk);
	if (count > 2)
		whole_life("from inside one chunk to inside another", p + chunk - 5000,
			   (count - 2) * chunk + 9000);
	CU(cu.MemUnmap(p, count * chunk));
	CU(cu.MemAddressFree(p, count * chunk));
}

static void vmm_kinds(void)
{
	chunks("VMM", vmm_prop(false, false), 4 * MIB, 1);
	chunks("VMM, exportable", vmm_prop(true, false), 4 * MIB, 1);
	chunks("VMM, gpuDirectRDMACapable", vmm_prop(false, true), 4 * MIB, 1);
	chunks("VMM, two chunks", vmm_prop(false, false), 4 * MIB, 2);
}

/* A chunk that came by a descriptor, mapped by CUDA a second time. */
static void imported(void)
{
	CUmemAllocationProp prop = vmm_prop(true, false);
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle first, second;
	CUdeviceptr p;
	int fd = -1;

	CU(cu.MemCreate(&first, 4 * MIB, &prop, 0));
	CU(more.export(&fd, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(more.import(&second, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
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

static void more_than_one_export_call(void)
{
	chunks("VMM, 140 chunks", vmm_prop(false, false), 2 * MIB, 140);
}

static void refused(void)
{
	CUdeviceptr p;
	gdr_mh_t h;

	if (!more.alloc_managed)
		SKIP("no cuMemAllocManaged");
	CU(more.alloc_managed(&p, MIB, CU_MEM_ATTACH_GLOBAL));
	EXPECT(gdr_pin_buffer_v2(test_g, p, MIB, 0, &h) == EINVAL, "managed memory was pinned");
	EXPECT(strstr(barcopy_last_error(), "managed"), "%s", barcopy_last_error());
	CU(cu.MemFree(p));
	CU(cu.MemAlloc(&p, MIB));
	EXPECT(gdr_pin_buffer_v2(test_g, p, 64 * MIB, 0, &h), "far beyond the allocation");
	CU(cu.MemFree(p));
	EXPECT(gdr_pin_buffer_v2(test_g, p, MIB, 0, &h), "memory that was freed was pinned");
}

/* ---- what a pin keeps ------------------------------------------------------------------------------------ */

static void persistent(void)
{
	uint8_t a[LOOK], b[LOOK];
	CUdeviceptr p, q;
	struct use u;
	int value = 0;

	OK(gdr_get_attribute(test_g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	EXPECT(value == 1, "the attribute is %d", value);
	CU(cu.MemAlloc(&p, 4 * MIB));
	OK(use_open(test_g, &u, p, 4 * MIB));
	pattern(a, LOOK, 77);
	CU(cu.MemcpyHtoD(p, a, LOOK));
	CU(cu.CtxSynchronize());
	CU(cu.MemFree(p));
	/* The same address may be given out again: with other memory behind it. */
	CU(cu.MemAlloc(&q, 4 * MIB));
	pattern(b, LOOK, 78);
	CU(cu.MemcpyHtoD(q, b, LOOK));
	CU(cu.CtxSynchronize());
	OK(gdr_copy_from_mapping(u.h, b, u.p, LOOK));
	EXPECT(!memcmp(a, b, LOOK), "the pinned memory has other bytes after its free");
	pattern(a, LOOK, 79);
	OK(gdr_copy_to_mapping(u.h, u.p, a, LOOK));
	CU(cu.MemcpyDtoH(b, q, LOOK));
	EXPECT(memcmp(a, b, LOOK), "a write after the free reached new memory");
	OK(use_close(test_g, &u));
	CU(cu.MemFree(q));
}

static void read_only(void)
{
	uint8_t a[LOOK], b[LOOK];
	CUdeviceptr p;
	gdr_mh_t h;
	void *map;

	CU(cu.MemAlloc(&p, 64 * KIB));
	pattern(a, LOOK, 5);
	CU(cu.MemcpyHtoD(p + 1000, a, LOOK));
	CU(cu.CtxSynchronize());
	OK(barcopy_map_range(test_g, p + 1000, LOOK, BARCOPY_MAP_RANGE_READ_ONLY, &map, &h));
	OK(gdr_copy_from_mapping(h, b, map, LOOK));
	EXPECT(!memcmp(a, b, LOOK), "other bytes");
	EXPECT(maps_at(map)[1] == '-', "the mapping can be written");
	OK(barcopy_unmap_range(test_g, h));
	CU(cu.MemFree(p));
}

/* ---- while a kernel runs ------------------------------------------------------------------------------ */

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

/* A pin that waited for the GPU would hang a program whose kernel waits for the CPU's write. */
static void beside_a_kernel(void)
{
	CUdeviceptr p, flag;
	CUfunction f;
	CUmodule module;
	CUstream stream;
	pthread_t guard;
	void *host, *args[1] = { &flag };
	struct use u;

	if (cuda_dl_is_stand_in())
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
	EXPECT(!pthread_create(&guard, NULL, release_spin, NULL), "no thread");
	OK(use_open(test_g, &u, p, 64 * KIB));
	OK(gdr_copy_to_mapping(u.h, u.p, "x", 1));
	OK(use_close(test_g, &u));
	EXPECT(!atomic_load(&spin_released), "pin, map, unmap or unpin waited for the kernel");
	*spin_flag = 1;
	pthread_join(guard, NULL);
	CU(cu.StreamSynchronize(stream));
	CU(cu.StreamDestroy(stream));
	CU(cu.ModuleUnload(module));
	CU(cu.MemFreeHost(host));
	CU(cu.MemFree(p));
}

/* ---- what is left -------------------------------------------------------------------------------------- */

static int count_fds(void)
{
	unsigned long long (*look)(int);
	DIR *dir;
	int n = 0;

	/* The stand-in sees only when it is asked that a dma-buf of its own was closed. */
	*(void **)&look = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "gdrsim_device_bytes");
	if (look)
		look(0);
	dir = opendir("/proc/self/fd");

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* Bytes of BAR1 in use, as NVML has it; 0 where it does not tell. */
static uint64_t bar1_used(void)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) };

	return barcopy_get_bar_info(test_gpu.ordinal, &info) ? 0 : info.used;
}

static void many_pins(void)
{
	size_t count = cuda_dl_is_stand_in() ? 200 : 2000;
	struct use *u = calloc(count, sizeof(*u));
	uint64_t bar1 = bar1_used();
	CUdeviceptr p;
	size_t at;
	int fds;

	EXPECT(u, "no memory");
	CU(cu.MemAlloc(&p, 4 * MIB));
	fds = count_fds();
	for (at = 0; at < count; at++)
		if (use_open(test_g, &u[at], p + at % 64 * 64 * KIB, 64 * KIB))
			break;
	EXPECT(at == count, "pin %zu: %s", at, barcopy_last_error());
	EXPECT(count_fds() == fds, "%d descriptors, %d before", count_fds(), fds);
	if (bar1)
		EXPECT(bar1_used() - bar1 <= count * 64 * KIB,
		       "%llu bytes of BAR1 for %zu pins of 64 KiB",
		       (unsigned long long)(bar1_used() - bar1), count);
	EXPECT(both_ways(&u[0]) && both_ways(&u[count - 1]), "other bytes");
	for (at = 0; at < count; at++)
		OK(use_close(test_g, &u[at]));
	CU(cu.MemFree(p));
	EXPECT(bar1_used() == bar1, "%llu bytes of BAR1 in use, %llu before",
	       (unsigned long long)bar1_used(), (unsigned long long)bar1);
	free(u);
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

/* ---- threads --------------------------------------------------------------------------------------------- */

static atomic_bool stop;
static _Atomic unsigned long rounds_done, wrong;

static void *work(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg * 7919 + 1;

	cu.CtxSetCurrent(test_gpu.ctx);
	while (!atomic_load(&stop)) {
		size_t size = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 4 ? 100000 : 5000000);
		CUdeviceptr p;
		struct use u;
		int rc;

		if (cu.MemAlloc(&p, size))
			continue;
		rc = use_open(test_g, &u, p, size);
		if (rc || !both_ways(&u) || use_close(test_g, &u)) {
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
		EXPECT(!pthread_create(&t[i], NULL, work, (void *)i), "no thread");
	sleep(seconds);
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("# %lu rounds by %d threads in %u s\n", atomic_load(&rounds_done), THREADS, seconds);
	EXPECT(atomic_load(&rounds_done) >= THREADS, "hardly anything ran");
	EXPECT(!atomic_load(&wrong), "%lu rounds failed", atomic_load(&wrong));
	EXPECT(count_fds() == fds, "%d descriptors, %d before", count_fds(), fds);
	EXPECT(bar1_used() == bar1, "%llu bytes of BAR1 in use, %llu before",
	       (unsigned long long)bar1_used(), (unsigned long long)bar1);
}

/* ---- children ------------------------------------------------------------------------------------------------ */

enum end { BY_EXIT, BY__EXIT, BY_EXEC, BY_SIGNAL, BY_CRASH, ENDS };

/* Descriptors of the GPU's nodes that the library keeps; CUDA's own are more, and stay. */
static int node_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir))) {
		char path[300], to[64];
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, to, sizeof(to) - 1);
		if (len > 0) {
			to[len] = '\0';
			n += !strncmp(to, "/dev/nvidia", 11);
		}
	}
	if (dir)
		closedir(dir);
	return n;
}

static void child_ends(enum end how, struct use *u, int parents_nodes)
{
	unsigned char resident;

	/* The mapping is not there; mincore says so without a signal. */
	if (!mincore(u->map, 4096, &resident) || errno != ENOMEM)
		_exit(11);
	if (parents_nodes >= 0 && node_fds() >= parents_nodes)
		_exit(12);
	if (gdr_copy_to_mapping(u->h, u->p, "x", 1) != EACCES)
		_exit(13);
	switch (how) {
	case BY_EXIT:
		exit(0);
	case BY_EXEC:
		execl("/bin/true", "true", (char *)NULL);
		_exit(14);
	case BY_SIGNAL:
		raise(SIGKILL);
		_exit(15);
	case BY_CRASH:
		signal(SIGSEGV, SIG_DFL);
		*(volatile char *)u->p = 1;
		_exit(16);
	default:
		_exit(0);
	}
}

static void children(void)
{
	static const int want_signal[ENDS] = { [BY_SIGNAL] = SIGKILL, [BY_CRASH] = SIGSEGV };
	int nodes = cuda_dl_is_stand_in() ? -1 : node_fds();
	CUdeviceptr p;
	struct use u;

	CU(cu.MemAlloc(&p, MIB));
	OK(use_open(test_g, &u, p, MIB));
	for (int how = 0; how < ENDS; how++) {
		int status = 0;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (!pid)
			child_ends((enum end)how, &u, nodes);
		EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid, "fork");
		if (want_signal[how])
			EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == want_signal[how],
			       "end %d: status 0x%x", how, status);
		else
			EXPECT(WIFEXITED(status) && !WEXITSTATUS(status), "end %d: status 0x%x",
			       how, status);
		EXPECT(both_ways(&u), "other bytes in the parent after end %d", how);
	}
	whole_life("after the children", p, MIB);
	OK(use_close(test_g, &u));
	CU(cu.MemFree(p));
}

/* ---- a program that closes what it did not open ---------------------------------------------------------- */

enum { MAX_FDS = 4096 };

/* Descriptors of the GPU's nodes. */
static void find_nodes(bool *found)
{
	struct stat st;

	for (int fd = 0; fd < MAX_FDS; fd++)
		found[fd] = !fstat(fd, &st) && S_ISCHR(st.st_mode) && major(st.st_rdev) == 195;
}

/* Closes the nodes that the library keeps: those that a child of fork() finds closed. Their number. */
static int close_the_librarys_nodes(void)
{
	bool *nodes =
		mmap(NULL, 2 * MAX_FDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool *left = nodes + MAX_FDS;
	int closed = 0, status = 1;
	pid_t pid;

	if (nodes == MAP_FAILED)
		return -1;
	find_nodes(nodes);
	pid = fork();
	if (!pid) {
		find_nodes(left);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return -1;
	for (int fd = 0; fd < MAX_FDS; fd++)
		if (nodes[fd] && !left[fd])
			closed += !close(fd);
	munmap(nodes, 2 * MAX_FDS);
	return closed;
}

/* Takes and marks all the memory that there is (of the stand-in 64 MiB), and gives it back. */
static void mark_the_rest(void)
{
	size_t max = cuda_dl_is_stand_in() ? 64 : 1024, n = 0;
	CUdeviceptr *p = calloc(max, sizeof(*p));
	size_t block = cuda_dl_is_stand_in() ? MIB : 256 * MIB;

	while (p && n < max && !cu.MemAlloc(&p[n], block))
		more.memset(p[n++], 0x77, block);
	cu.CtxSynchronize();
	while (n)
		cu.MemFree(p[--n]);
	free(p);
}

/*
 * closefrom(3), or a double close elsewhere in the program: what is mapped goes on showing the memory
 * that was pinned, and no memory of others. Last: afterwards the library has no client any more.
 */
static void nodes_closed(void)
{
	size_t size = 64 * MIB, others = 0;
	CUdeviceptr p;
	struct use u;
	int closed;

	CU(cu.MemAlloc(&p, size));
	CU(more.memset(p, 0x11, size));
	CU(cu.CtxSynchronize());
	OK(use_open(test_g, &u, p, size));
	closed = close_the_librarys_nodes();
	EXPECT(closed >= 2, "%d nodes closed", closed);
	CU(cu.MemFree(p));
	mark_the_rest();
	for (size_t at = 0; at < size; at += 64 * KIB)
		others += u.p[at] != 0x11;
	(void)use_close(test_g, &u); /* says that its client is gone */
	EXPECT(!others, "%zu of %zu pages show other memory", others, size / (64 * KIB));
}

int main(void)
{
	static const struct gpu_test tests[] = {
		/* First: what is tried once for each GPU must not wait either. */
		{ "beside a running kernel", beside_a_kernel },
		{ "cuMemAlloc", plain },
		{ "cuMemAllocAsync", pools },
		{ "cuMemCreate", vmm_kinds },
		{ "cuMemImportFromShareableHandle", imported },
		{ "a range of 140 objects", more_than_one_export_call },
		{ "managed, freed, too long", refused },
		{ "the pin keeps its memory", persistent },
		{ "read-only", read_only },
		{ "many pins", many_pins },
		{ "large", large },
		{ "threads", threads },
		{ "children", children },
		{ "its nodes closed by the program", nodes_closed },
	};

	setenv("GDRCOPY_BACKEND", "rm", 1);
	find_more();
	return gpu_test_main(tests, sizeof(tests) / sizeof(tests[0]));
}
