/* SPDX-License-Identifier: MIT */
/* Memory in a second process, and BAR1, on a GPU or the stand-in; tests/model has the rest of it. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/pass_fd.h"
#include "gpu_test.h"

/* Of each GPU. */
static void bar_info(void)
{
	int rc = 0;

	for (int device = 0; !rc; device++) {
		barcopy_bar_info_t info = { .struct_size = sizeof(info) }, later = info;
		barcopy_mem_t mem;

		rc = barcopy_get_bar_info(device, &info);
		if (rc == ENOTSUP)
			SKIP("%s", barcopy_last_error());
		if (rc && device)
			break;
		OK(rc);
		OK(barcopy_mem_alloc(test_g, device, 64 << 20, 0, &mem));
		OK(barcopy_get_bar_info(device, &later));
		printf("# GPU %d: BAR1 %llu MiB, used %llu, with 64 MiB more %llu\n", device,
		       (unsigned long long)info.total >> 20, (unsigned long long)info.used >> 20,
		       (unsigned long long)later.used >> 20);
		CHECK(info.used + info.free == info.total, "sums");
		CHECK(later.total == info.total, "total");
		OK(barcopy_mem_free(test_g, &mem));
	}
	CHECK(rc == EINVAL, "errno %d", rc);
}

/* ---- another process ------------------------------------------------------------------------- */

enum { CANNOT = 77 };

static const char *program; /* main()'s argv[0] */

/* Starts this program in that role, with the other end of the socket. -1: it does not start. */
static pid_t peer_start(const char *role, int *socket)
{
	char number[16];
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return -1;
	*socket = ends[0];
	fflush(stdout);
	pid = fork();
	if (!pid) {
		snprintf(number, sizeof(number), "%d", ends[1]);
		execl(program, program, role, number, (char *)NULL);
		_exit(9);
	}
	close(ends[1]);
	return pid;
}

/* Returns its exit status, or -1. */
static int peer_end(pid_t pid, int socket)
{
	int status = 0;

	close(socket);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

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
 * The other process, a program of its own since CUDA does not survive a fork. flags: of
 * barcopy_mem_import(). Returns 0, what was wrong, or CANNOT for a driver that cannot do that.
 */
static int importer(int socket, uint32_t flags)
{
	uint64_t value = 0, answer = 0x5678;
	barcopy_mem_t mem, half;
	size_t size;
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);
	int fd = take_fd(socket, &size), rc;

	/* A process without CUDA does not know the device of a dma-buf. */
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

/* One buffer in two processes: by the library's own descriptor, or by a dma-buf of CUDA's. */
static void two_processes(void)
{
	const bool dmabuf = test_arg;
	uint64_t value = 0x1234, seen = 0;
	barcopy_mem_t mem;
	int fd, rc, socket;
	pid_t pid;

	if (dmabuf && !cu.MemGetHandleForAddressRange)
		SKIP("this libcuda exports no dma-buf");
	rc = barcopy_mem_alloc(test_g, test_gpu.ordinal, 4 << 20,
			       dmabuf ? 0 : BARCOPY_MEM_SHAREABLE, &mem);
	if (rc == ENOTSUP && !dmabuf)
		SKIP("%s", barcopy_last_error());
	OK(rc);
	OK(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, &value, 8));
	OK(barcopy_flush(mem.handle));
	if (dmabuf)
		CU(cu.MemGetHandleForAddressRange(&fd, mem.device_ptr, mem.size,
						  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	else
		OK(barcopy_mem_export(test_g, &mem, &fd));
	pid = peer_start(dmabuf ? "dmabuf-importer" : "importer", &socket);
	CHECK(pid > 0 && !pass_fd(socket, fd, mem.size), "no other process");
	rc = peer_end(pid, socket);
	close(fd);
	if (rc == CANNOT && dmabuf) {
		OK(barcopy_mem_free(test_g, &mem));
		SKIP("no backend here maps a dma-buf");
	}
	CHECK(!rc, "the other process: %d", rc);
	CU(cu.MemcpyDtoH(&seen, mem.device_ptr + 8192, 8));
	CHECK(seen == 0x5678, "0x%llx", (unsigned long long)seen);
	OK(barcopy_mem_free(test_g, &mem));
}

/* CUDA's own calls to share memory, which the stand-in lacks. */
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

/* The other process reads what the first wrote through its mapping, and writes an answer. */
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

/*
 * As in Aerial's nvIPC: exported by CUDA IPC, then pinned; another process opens it while pinned.
 */
static void pinned_and_exported_by_ipc(void)
{
	uint64_t value = 0x1234, seen = 0;
	ipc_handle handle;
	struct mapped m;
	CUdeviceptr ptr;
	int socket, rc;
	pid_t pid;

	if (!ipc_load())
		SKIP("this libcuda has no CUDA IPC");
	CU(cu.MemAlloc(&ptr, 4 << 20));
	CU(ipc.get(&handle, ptr));
	OK(pin_and_map(&m, ptr, 4 << 20));
	CHECK(m.h.h, "a handle of 0");
	CHECK(m.info.va == ptr, "pinned from 0x%llx", (unsigned long long)m.info.va);
	OK(gdr_copy_to_mapping(m.h, m.p, &value, 8));
	OK(barcopy_flush(m.h));
	pid = peer_start("ipc-opener", &socket);
	CHECK(pid > 0 && write(socket, &handle, sizeof(handle)) == sizeof(handle),
	      "no other process");
	rc = peer_end(pid, socket);
	CHECK(!rc, "the other process: %d", rc);
	OK(gdr_copy_from_mapping(m.h, &seen, m.p + 8192, 8));
	CHECK(seen == 0x5678, "0x%llx", (unsigned long long)seen);
	OK(unmap_and_unpin(&m));
	CU(cu.MemFree(ptr));
}

static const struct gpu_test tests[] = {
	{ "BAR1", bar_info },
	{ "one buffer in two processes", two_processes },
	{ "a dma-buf in another process", two_processes, "dma-buf" },
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
