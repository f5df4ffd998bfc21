/* SPDX-License-Identifier: MIT */
/*
 * Memory of barcopy_mem_alloc() and any range of device memory, on the GPU at hand: which bytes the CPU
 * and the GPU see, read-only maps, shared pages, a second process, BAR1.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/pass_fd.h"
#include "gpu_test.h"

/* Both directions, n bytes at an offset. 0, or what was wrong. */
static int round_trip(gdr_mh_t mh, void *cpu, CUdeviceptr dptr, size_t n)
{
	uint8_t *a = malloc(n), *b = malloc(n);
	int bad = 0;

	pattern(a, n, 1);
	bad |= gdr_copy_to_mapping(mh, cpu, a, n) || barcopy_flush(mh) ||
	       cu.MemcpyDtoH(b, dptr, n) || memcmp(a, b, n);
	pattern(a, n, 2);
	bad |= (cu.MemcpyHtoD(dptr, a, n) || cu.CtxSynchronize() ||
		gdr_copy_from_mapping(mh, b, cpu, n) || memcmp(a, b, n))
	       << 1;
	free(a);
	free(b);
	return bad;
}

static void alloc(void)
{
	static const size_t sizes[] = { 1, 100000, 2 << 20, (64 << 20) + 1 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t backend = 0;
		barcopy_mem_t mem;

		OK(barcopy_mem_alloc(test_g, test_gpu.ordinal, sizes[i], 0, &mem));
		OK(barcopy_get_handle_attribute(test_g, mem.handle, BARCOPY_HANDLE_ATTR_BACKEND,
						&backend));
		printf("# %zu bytes: %zu, backend %llu\n", sizes[i], mem.size,
		       (unsigned long long)backend);
		EXPECT(mem.size >= sizes[i], "%zu", mem.size);
		EXPECT(!round_trip(mem.handle, mem.cpu_ptr, mem.device_ptr, mem.size), "bytes");
		OK(barcopy_mem_free(test_g, &mem));
	}
}

static void cached_on_discrete(void)
{
	barcopy_mem_t mem;
	int rc = barcopy_mem_alloc(test_g, test_gpu.ordinal, 100, BARCOPY_MEM_CACHED, &mem);

	if (gpu_has(&test_gpu, CU_DEVICE_ATTRIBUTE_INTEGRATED)) {
		OK(rc);
		OK(barcopy_mem_free(test_g, &mem));
	} else {
		EXPECT(rc == ENOTSUP, "errno %d", rc);
	}
}

static void ranges(void)
{
	gdr_mh_t mh[20];
	void *cpu[20];
	struct vmm v;

	if (vmm_alloc(&v, 8 << 20, 4, true))
		return;
	for (size_t i = 0; i < 20; i++) {
		size_t offset = i * 300007,
		       size = v.size - offset < 500000 ? v.size - offset : 500000;

		OK(barcopy_map_range(test_g, v.ptr + offset, size, 0, &cpu[i], &mh[i]));
		EXPECT(!round_trip(mh[i], cpu[i], v.ptr + offset, size), "range %zu", i);
	}
	for (size_t i = 0; i < 20; i += 2)
		OK(barcopy_unmap_range(test_g, mh[i]));
	for (size_t i = 1; i < 20; i += 2)
		EXPECT(!round_trip(mh[i], cpu[i], v.ptr + i * 300007, 1000), "range %zu", i);
	for (size_t i = 1; i < 20; i += 2)
		OK(barcopy_unmap_range(test_g, mh[i]));
	vmm_free(&v);
}

/* A range that was never unmapped must not serve new memory at its address. */
static void reallocated(void)
{
	gdr_mh_t mh[4];
	void *cpu[4];

	for (int i = 0; i < 4; i++) {
		struct vmm v;
		CUdeviceptr at;

		if (vmm_alloc(&v, 2 << 20, 1, true))
			return;
		at = v.ptr;
		printf("# at 0x%llx\n", (unsigned long long)at);
		OK(barcopy_map_range(test_g, at, 4096, 0, &cpu[i], &mh[i]));
		EXPECT(!round_trip(mh[i], cpu[i], at, 4096), "round %d", i);
		vmm_free(&v);
	}
	for (int i = 0; i < 4; i++)
		OK(barcopy_unmap_range(test_g, mh[i]));
}

static sigjmp_buf fault;

static void on_fault(int sig)
{
	(void)sig;
	siglongjmp(fault, 1);
}

static void read_only(void)
{
	struct sigaction act = { .sa_handler = on_fault }, old;
	volatile bool faulted = true;
	gdr_mh_t ro, rw;
	void *pr, *pw;
	struct vmm v;
	uint32_t value = 0x12345678, seen = 0;
	int rc;

	if (vmm_alloc(&v, 2 << 20, 1, true))
		return;
	rc = barcopy_map_range(test_g, v.ptr, 4096, BARCOPY_MAP_RANGE_READ_ONLY, &pr, &ro);
	if (rc == ENOTSUP) {
		vmm_free(&v);
		SKIP("no read-only maps here: %s", barcopy_last_error());
	}
	OK(rc);
	OK(barcopy_map_range(test_g, v.ptr, 4096, 0, &pw, &rw));
	OK(gdr_copy_to_mapping(rw, pw, &value, 4));
	OK(barcopy_flush(rw));
	OK(gdr_copy_from_mapping(ro, &seen, pr, 4));
	EXPECT(seen == value, "0x%x", seen);
	sigaction(SIGSEGV, &act, &old);
	if (!sigsetjmp(fault, 1)) {
		*(volatile uint32_t *)pr = 1;
		faulted = false;
	}
	sigaction(SIGSEGV, &old, NULL);
	EXPECT(faulted, "a store through a read-only mapping was performed");
	OK(barcopy_unmap_range(test_g, ro));
	OK(barcopy_unmap_range(test_g, rw));
	vmm_free(&v);
}

static void bar_info(void)
{
	barcopy_bar_info_t info = { .struct_size = sizeof(info) },
			   later = { .struct_size = sizeof(later) };
	barcopy_mem_t mem;
	int rc = barcopy_get_bar_info(test_gpu.ordinal, &info);

	if (rc == ENOTSUP)
		SKIP("%s", barcopy_last_error());
	OK(rc);
	OK(barcopy_mem_alloc(test_g, test_gpu.ordinal, 64 << 20, 0, &mem));
	OK(barcopy_get_bar_info(test_gpu.ordinal, &later));
	printf("# BAR1 %llu MiB, used %llu, with 64 MiB more %llu\n",
	       (unsigned long long)info.total >> 20, (unsigned long long)info.used >> 20,
	       (unsigned long long)later.used >> 20);
	EXPECT(info.used + info.free == info.total, "sums");
	EXPECT(later.total == info.total, "total");
	OK(barcopy_mem_free(test_g, &mem));
}

static const char *program; /* main()'s argv[0] */

enum { CANNOT = 77 };

static int attribute(gdr_t g, gdr_mh_t h, barcopy_handle_attr_t which, uint64_t *value)
{
	*value = 7;
	return barcopy_get_handle_attribute(g, h, which, value);
}

/* An imported dma-buf is memory without a device address or a device. 0, or what was wrong. */
static int dmabuf_is_plain(gdr_t g, const barcopy_mem_t *mem, size_t size)
{
	barcopy_copy_options_t engine = { .struct_size = sizeof(engine), .engine_write_min = 1 };
	gdr_info_t info;
	uint64_t value;
	int fd;

	if (mem->device_ptr || mem->size != size || gdr_get_info(g, mem->handle, &info) ||
	    info.va || info.mapped_size != size)
		return 10;
	if (attribute(g, mem->handle, BARCOPY_HANDLE_ATTR_BACKEND, &value) ||
	    value != BARCOPY_BACKEND_DMABUF ||
	    attribute(g, mem->handle, BARCOPY_HANDLE_ATTR_DEVICE, &value) != ENOTSUP ||
	    attribute(g, mem->handle, BARCOPY_HANDLE_ATTR_SYNC_MEMOPS, &value) || value)
		return 11;
	if (barcopy_mem_export(g, mem, &fd) != ENOTSUP)
		return 12;
	/* CUDA is not asked about address 0. */
	if (barcopy_set_copy_options(mem->handle, &engine) != ENOTSUP ||
	    !strstr(barcopy_last_error(), "no device address"))
		return 13;
	return 0;
}

/*
 * The other process, started anew: CUDA does not survive a fork. flags: of barcopy_mem_import(). CANNOT:
 * this driver cannot do that.
 */
static int importer(int socket, uint32_t flags)
{
	uint64_t value = 0, answer = 0x5678;
	barcopy_mem_t mem, half;
	size_t size;
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);
	int fd = take_fd(socket, &size), rc;

	/* Of a dma-buf a process without CUDA does not know the device. */
	rc = g && fd >= 0 ? barcopy_mem_import(g, flags ? -1 : 0, fd, size, flags, &mem) : ENODEV;
	if (rc) {
		printf("# import: %s\n", barcopy_last_error());
		return rc == ENOTSUP ? CANNOT : 1;
	}
	if (gdr_copy_from_mapping(mem.handle, &value, mem.cpu_ptr, 8) || value != 0x1234)
		return 2;
	if (gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + 8192, &answer, 8) ||
	    barcopy_flush(mem.handle))
		return 3;
	if (gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + size, &answer, 1) != EINVAL)
		return 4;
	rc = flags ? dmabuf_is_plain(g, &mem, size) : 0;
	if (rc)
		return rc;
	/* A second import needs neither the first nor, later, the descriptor. */
	size = flags ? size / 2 : size;
	if (barcopy_mem_import(g, 0, fd, size, flags, &half) || close(fd) ||
	    barcopy_mem_free(g, &mem))
		return 5;
	if (gdr_copy_from_mapping(half.handle, &value, half.cpu_ptr, 8) || value != 0x1234)
		return 6;
	return gdr_close(g) ? 7 : 0; /* and frees the second */
}

/* Hands fd, of mem, to another process; its answer. */
static int hand_over(int fd, const barcopy_mem_t *mem, const char *role)
{
	int socket[2], status = 0;
	char number[16];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socket))
		return -1;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		snprintf(number, sizeof(number), "%d", socket[1]);
		execl(program, program, role, number, (char *)NULL);
		_exit(9);
	}
	if (pass_fd(socket[0], fd, mem->size))
		status = -1;
	close(socket[0]);
	close(socket[1]);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void two_processes(void)
{
	uint64_t value = 0x1234, seen = 0;
	barcopy_mem_t mem;
	int fd, rc;

	rc = barcopy_mem_alloc(test_g, test_gpu.ordinal, 4 << 20, BARCOPY_MEM_SHAREABLE, &mem);
	if (rc == ENOTSUP)
		SKIP("%s", barcopy_last_error());
	OK(rc);
	OK(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, &value, 8));
	OK(barcopy_flush(mem.handle));
	OK(barcopy_mem_export(test_g, &mem, &fd));
	rc = hand_over(fd, &mem, "importer");
	EXPECT(!rc, "the other process: %d", rc);
	CU(cu.MemcpyDtoH(&seen, mem.device_ptr + 8192, 8));
	EXPECT(seen == 0x5678, "0x%llx", (unsigned long long)seen);
	close(fd);
	OK(barcopy_mem_free(test_g, &mem));
}

static void dmabuf_handed_over(void)
{
	uint64_t value = 0x1234, seen = 0;
	barcopy_mem_t mem;
	int fd, rc;

	if (!cu.MemGetHandleForAddressRange)
		SKIP("this libcuda exports no dma-buf");
	OK(barcopy_mem_alloc(test_g, test_gpu.ordinal, 4 << 20, 0, &mem));
	OK(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, &value, 8));
	OK(barcopy_flush(mem.handle));
	CU(cu.MemGetHandleForAddressRange(&fd, mem.device_ptr, mem.size,
					  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	rc = hand_over(fd, &mem, "dmabuf-importer");
	if (rc == CANNOT) {
		close(fd);
		barcopy_mem_free(test_g, &mem);
		SKIP("no backend here maps a dma-buf");
	}
	EXPECT(!rc, "the other process: %d", rc);
	CU(cu.MemcpyDtoH(&seen, mem.device_ptr + 8192, 8));
	EXPECT(seen == 0x5678, "0x%llx", (unsigned long long)seen);
	close(fd);
	OK(barcopy_mem_free(test_g, &mem));
}

/* CUDA's own way to share memory, which the stand-in lacks. */
typedef struct {
	char bytes[64];
} ipc_handle;

static struct {
	CUresult (*get)(ipc_handle *handle, CUdeviceptr ptr);
	CUresult (*open)(CUdeviceptr *ptr, ipc_handle handle, unsigned int flags);
	CUresult (*close)(CUdeviceptr ptr);
} ipc;

static bool ipc_load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	*(void **)&ipc.get = dlsym(lib, "cuIpcGetMemHandle");
	*(void **)&ipc.open = dlsym(lib, "cuIpcOpenMemHandle_v2");
	*(void **)&ipc.close = dlsym(lib, "cuIpcCloseMemHandle");
	return ipc.get && ipc.open && ipc.close;
}

/* The other process: sees what the first wrote through its mapping, and writes for it. */
static int ipc_opener(int socket)
{
	enum { LAZY_ENABLE_PEER_ACCESS = 1 };
	uint64_t value = 0, answer = 0x5678;
	ipc_handle handle;
	CUdeviceptr ptr;

	cuda_dl_load();
	gpu_find(&test_gpu, 0);
	gpu_start(&test_gpu);
	if (!ipc_load() || read(socket, &handle, sizeof(handle)) != sizeof(handle) ||
	    ipc.open(&ptr, handle, LAZY_ENABLE_PEER_ACCESS))
		return 1;
	if (cu.MemcpyDtoH(&value, ptr, 8) || value != 0x1234)
		return 2;
	if (cu.MemcpyHtoD(ptr + 8192, &answer, 8) || cu.CtxSynchronize())
		return 3;
	return ipc.close(ptr) ? 4 : 0;
}

/* As Aerial's nvIPC does: exported by CUDA IPC first, then pinned, and still pinned when the other one opens it. */
static void pinned_and_exported_by_ipc(void)
{
	uint64_t value = 0x1234, seen = 0;
	int socket[2], status = 0;
	gdr_info_t info;
	ipc_handle handle;
	CUdeviceptr ptr;
	char number[16];
	gdr_mh_t mh;
	void *map;
	pid_t pid;

	if (!ipc_load())
		SKIP("this libcuda has no CUDA IPC");
	CU(cu.MemAlloc(&ptr, 4 << 20));
	CU(ipc.get(&handle, ptr));
	OK(gdr_pin_buffer(test_g, ptr, 4 << 20, 0, 0, &mh));
	EXPECT(mh.h, "a handle of 0");
	OK(gdr_map(test_g, mh, &map, 4 << 20));
	OK(gdr_get_info(test_g, mh, &info));
	EXPECT(info.va == ptr, "pinned from 0x%llx", (unsigned long long)info.va);
	OK(gdr_copy_to_mapping(mh, map, &value, 8));
	OK(barcopy_flush(mh));
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, socket), "no socket");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		snprintf(number, sizeof(number), "%d", socket[1]);
		execl(program, program, "ipc-opener", number, (char *)NULL);
		_exit(9);
	}
	EXPECT(write(socket[0], &handle, sizeof(handle)) == sizeof(handle), "the handle is not sent");
	waitpid(pid, &status, 0);
	close(socket[0]);
	close(socket[1]);
	EXPECT(!status, "the other process: %d", status);
	OK(gdr_copy_from_mapping(mh, &seen, (char *)map + 8192, 8));
	EXPECT(seen == 0x5678, "0x%llx", (unsigned long long)seen);
	OK(gdr_unmap(test_g, mh, map, 4 << 20));
	OK(gdr_unpin_buffer(test_g, mh));
	CU(cu.MemFree(ptr));
}

static const struct gpu_test tests[] = {
	{ "barcopy_mem_alloc: every byte, both ways", alloc },
	{ "a cached mapping: integrated GPUs only", cached_on_discrete },
	{ "ranges at any address, overlapping", ranges },
	{ "a range outlives its memory, others do not get it", reallocated },
	{ "read-only maps fault on a store", read_only },
	{ "BAR1", bar_info },
	{ "one buffer in two processes", two_processes },
	{ "a dma-buf in another process", dmabuf_handed_over },
	{ "memory that is pinned, and exported by CUDA IPC", pinned_and_exported_by_ipc },
};

int main(int argc, char **argv)
{
	program = argv[0];
	if (argc == 3 && !strcmp(argv[1], "importer"))
		return importer(atoi(argv[2]), 0);
	if (argc == 3 && !strcmp(argv[1], "dmabuf-importer"))
		return importer(atoi(argv[2]), BARCOPY_MEM_DMABUF);
	if (argc == 3 && !strcmp(argv[1], "ipc-opener"))
		return ipc_opener(atoi(argv[2]));
	return gpu_test_main(tests, sizeof(tests) / sizeof(tests[0]));
}
