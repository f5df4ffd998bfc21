// SPDX-License-Identifier: MIT
/*
 * Every way by which a user can make the kernel walk a mapping. BAR memory has no struct page: a
 * walk that takes an entry for a page's reads what is not there, and the machine goes down; what
 * wants to hold pages must get EFAULT. After each walk the mapping shows the same bytes,
 * and at a test's end by small entries.
 *
 * The mapping is as large and as aligned as a program's can be: a driver that makes huge entries
 * would have made some.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "rig.h"

#define SIZE (4 * MiB)
#define STEP GPU_PAGE

static uint8_t *map_at;
static int drv, prov;

static uint8_t byte_at(size_t off)
{
	return (uint8_t)(off / STEP + 1);
}

static void begin(void)
{
	size_t off;

	drv = drv_open();
	prov = prov_open();
	map_at = map_prot(
		drv, must_pin(drv, gpu_alloc_flags(prov, SIZE, PROVIDER_ALIGN_2M).va, SIZE), SIZE,
		PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, reserve(SIZE, 2 * MiB));
	CHECK(map_at != MAP_FAILED);
	for (off = 0; off < SIZE; off += STEP)
		map_at[off] = byte_at(off);
}

static void same(const char *after)
{
	size_t off;

	for (off = 0; off < SIZE; off += STEP) {
		int sig = try_read(map_at + off);

		if (sig || map_at[off] != byte_at(off)) {
			printf("# after %s: signal %d at 0x%zx, or other bytes\n", after, sig, off);
			_exit(1);
		}
	}
}

static void end(void)
{
	size_t off;

	same("all of them");
	for (off = 0; off < SIZE; off += STEP)
		CHECK_EQ(read_pte(prov, map_at + off).level, 1);
}

/* As a call in the table: 0 or -errno. */
static int result(long ret)
{
	return ret < 0 ? -errno : 0;
}

/* What wants to hold pages gets none. A kernel without the call is told of. */
static void no_pages(const char *what, long ret)
{
	int err = result(ret);

	same(what);
	if (err == -ENOSYS)
		printf("# %s: not in this kernel\n", what);
	else if (err != -EFAULT)
		printf("# %s: %d\n", what, err);
	CHECK(err == -EFAULT || err == -ENOSYS);
}

static void t_numa(void)
{
	unsigned long node = 1, old[1] = { 1 };
	void *pages[SIZE / STEP];
	int status[SIZE / STEP], nodes[SIZE / STEP] = { 0 }, where;
	unsigned int mode, flags;
	size_t i;

	begin();
	if (syscall(SYS_get_mempolicy, &where, NULL, 0, NULL, 0) && errno == ENOSYS)
		SKIP("this kernel has no memory policies");
	for (mode = MPOL_DEFAULT; mode < MPOL_MAX; mode++) {
		for (flags = 0; flags < 16; flags++) {
			bool any = mode != MPOL_DEFAULT && mode != MPOL_LOCAL;

			syscall(SYS_mbind, map_at, SIZE, mode, any ? &node : NULL, any ? 64 : 0,
				flags);
			same("mbind");
		}
	}
	syscall(SYS_mbind, map_at, SIZE, MPOL_DEFAULT, NULL, 0, 0);
	syscall(SYS_migrate_pages, 0, 64, old, &node);
	same("migrate_pages");
	for (i = 0; i < SIZE / STEP; i++)
		pages[i] = map_at + i * STEP;
	for (flags = MPOL_MF_MOVE; flags <= MPOL_MF_MOVE_ALL; flags <<= 1) {
		syscall(SYS_move_pages, 0, SIZE / STEP, pages, nodes, status, flags);
		same("move_pages");
		for (i = 0; i < SIZE / STEP; i++)
			CHECK(status[i] < 0);
	}
	syscall(SYS_move_pages, 0, SIZE / STEP, pages, NULL, status, 0);
	same("move_pages to nowhere");
	for (i = 0; i < SIZE / STEP; i++)
		CHECK(status[i] < 0);
	no_pages("get_mempolicy of an address",
		 syscall(SYS_get_mempolicy, &where, NULL, 0, map_at, MPOL_F_NODE | MPOL_F_ADDR));
	end();
}

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

/* All numbers that there are, and those between. */
static void t_madvise(void)
{
	struct iovec iov;
	int advice, self;

	begin();
	iov = (struct iovec){ map_at, SIZE };
	for (advice = 0; advice < 128; advice++) {
		madvise(map_at, SIZE, advice);
		same("madvise");
	}
	self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	CHECK(self >= 0);
	for (advice = 0; advice < 128; advice++) {
		syscall(SYS_process_madvise, self, &iov, 1, advice, 0);
		same("process_madvise");
	}
	/* The kernel's own walks, with all that was asked for above. */
	prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0);
	if (!access("/sys/kernel/mm/ksm/run", W_OK)) {
		write_text("/sys/kernel/mm/ksm/run", "1");
		usleep(200000);
		write_text("/sys/kernel/mm/ksm/run", "2");
		write_text("/sys/kernel/mm/ksm/run", "0");
	}
	same("a round of merging");
	end();
}

static void t_calls(void)
{
	unsigned char present[SIZE / 4096];
	static const int prots[] = { PROT_READ, PROT_NONE, PROT_WRITE, PROT_READ | PROT_WRITE };
	size_t i;

	begin();
	CHECK_EQ(mincore(map_at, SIZE, present), 0);
	same("mincore");
	mlock(map_at, SIZE);
	same("mlock");
	mlock2(map_at, SIZE, MLOCK_ONFAULT);
	munlock(map_at, SIZE);
	mlockall(MCL_CURRENT);
	munlockall();
	same("mlockall");
	for (i = 0; i < sizeof(prots) / sizeof(prots[0]); i++)
		CHECK_EQ(mprotect(map_at, SIZE, prots[i]), 0);
	same("mprotect");
	msync(map_at, SIZE, MS_SYNC);
	msync(map_at, SIZE, MS_ASYNC | MS_INVALIDATE);
	same("msync");
	CHECK(mremap(map_at, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, reserve(SIZE, SIZE)) ==
	      MAP_FAILED);
	same("mremap");
	syscall(SYS_remap_file_pages, map_at, GPU_PAGE, 0, 0, 0);
	same("remap_file_pages");
	end();
}

struct pm_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, anyof, mask_return;
};

#define PAGEMAP_SCAN_ALL _IOWR('f', 16, struct pm_scan)

static void t_proc_files(void)
{
	static const char *const files[] = { "maps", "smaps", "smaps_rollup", "numa_maps",
					     "status" };
	uint64_t entries[SIZE / 4096], regions[64][3];
	struct pm_scan scan = { .size = sizeof(scan), .vec = (uintptr_t)regions, .vec_len = 64 };
	char path[96], text[2];
	int fd, what;
	size_t i;

	begin();
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "/proc/self/%s", files[i]);
		free(read_text(path));
		same(files[i]);
	}
	fd = open("/proc/self/pagemap", O_RDONLY);
	CHECK(fd >= 0);
	CHECK(pread(fd, entries, SIZE / cpu_page() * 8,
		    (off_t)((uintptr_t)map_at / cpu_page() * 8)) > 0);
	same("pagemap");
	scan.start = (uintptr_t)map_at;
	scan.end = scan.start + SIZE;
	for (what = 0; what < 128; what++) {
		scan.anyof = (uint64_t)what;
		scan.mask_return = 127;
		scan.flags = (uint64_t)what & 3;
		if (ioctl(fd, PAGEMAP_SCAN_ALL, &scan) && errno == ENOTTY) {
			printf("# PAGEMAP_SCAN: not in this kernel\n");
			break;
		}
		same("PAGEMAP_SCAN");
	}
	close(fd);
	for (what = 1; what <= 5; what++) {
		snprintf(text, sizeof(text), "%d", what);
		fd = open("/proc/self/clear_refs", O_WRONLY);
		if (fd < 0 || write(fd, text, 1) != 1)
			printf("# clear_refs %d: %d\n", what, errno);
		close(fd);
		same("clear_refs");
	}
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)map_at,
		 (unsigned long)map_at + SIZE);
	if (readlink(path, (char *)regions, sizeof(regions)) < 0)
		printf("# no map_files: %d\n", errno);
	/* Somebody else's memory by the debugger's way. */
	fd = open("/proc/self/mem", O_RDWR);
	CHECK(fd >= 0);
	CHECK(pread(fd, entries, 4096, (off_t)(uintptr_t)map_at) == -1 && errno == EIO);
	CHECK(pwrite(fd, entries, 4096, (off_t)(uintptr_t)map_at) == -1 && errno == EIO);
	same("/proc/self/mem");
	close(fd);
	end();
}

static void direct_io(void)
{
	char *buf = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/tmp/direct", O_RDWR | O_CREAT | O_DIRECT, 0600);

	if (fd < 0) {
		printf("# O_DIRECT: not on this kernel's tmpfs\n");
		return;
	}
	/* A file of memory copies, and so may read: but it must not hold pages. */
	CHECK_EQ(pwrite(fd, buf, 4096, 0), 4096);
	if (pwrite(fd, map_at, 4096, 4096) < 0)
		CHECK(errno == EFAULT || errno == EINVAL);
	same("O_DIRECT");
	close(fd);
	unlink("/tmp/direct");
}

static void ring_buffers(void)
{
	struct io_uring_params params = { 0 };
	struct iovec iov = { map_at, SIZE };
	int ring = (int)syscall(SYS_io_uring_setup, 2, &params);

	if (ring < 0) {
		printf("# io_uring: %d\n", errno);
		return;
	}
	no_pages("io_uring buffers",
		 syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &iov, 1));
	close(ring);
}

static void t_pages(void)
{
	struct iovec remote, local;
	uint8_t buf[4096];
	int fds[2];

	begin();
	remote = (struct iovec){ map_at, sizeof(buf) };
	local = (struct iovec){ buf, sizeof(buf) };
	no_pages("process_vm_readv", process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
	no_pages("process_vm_writev", process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
	CHECK(!pipe(fds));
	no_pages("vmsplice", vmsplice(fds[1], &remote, 1, 0));
	no_pages("vmsplice of a gift", vmsplice(fds[1], &remote, 1, SPLICE_F_GIFT));
	no_pages("shared futex, wait", syscall(SYS_futex, map_at, FUTEX_WAIT, 77, NULL, NULL, 0));
	no_pages("shared futex, wake", syscall(SYS_futex, map_at, FUTEX_WAKE, 1, NULL, NULL, 0));
	CHECK(syscall(SYS_futex, map_at, FUTEX_WAIT_PRIVATE, 77, NULL, NULL, 0) == -1 &&
	      errno == EAGAIN);
	CHECK_EQ(syscall(SYS_futex, map_at, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
	same("private futex");
	direct_io();
	ring_buffers();
	end();
}

#define UFFD_WP_ASYNC	    (1ULL << 15)
#define UFFD_WP_UNPOPULATED (1ULL << 13)

/* With asynchronous write protection (6.7) a range of any kind could be registered; 6.12.117 refuses. */
static void t_userfaultfd(void)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_writeprotect wp = { .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	size_t off;

	if (fd < 0)
		SKIP("this kernel has no userfaultfd");
	begin();
	if (ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
		api = (struct uffdio_api){ .api = UFFD_API };
		CHECK_EQ(ioctl(fd, UFFDIO_API, &api), 0);
	}
	reg.range.start = wp.range.start = (uintptr_t)map_at;
	reg.range.len = wp.range.len = SIZE;
	if (ioctl(fd, UFFDIO_REGISTER, &reg)) {
		printf("# write protection: %d, features 0x%llx\n", errno,
		       (unsigned long long)api.features);
	} else {
		CHECK_EQ(ioctl(fd, UFFDIO_WRITEPROTECT, &wp), 0);
		same("write protection");
		for (off = 0; off < SIZE; off += STEP)
			CHECK_EQ(try_write(map_at + off, byte_at(off)), 0);
	}
	same("userfaultfd");
	reg.mode = UFFDIO_REGISTER_MODE_MISSING;
	CHECK(ioctl(fd, UFFDIO_REGISTER, &reg) == -1);
	close(fd);
	same("the close of userfaultfd");
	end();
}

static void t_core(void)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	char *pattern_was = read_text("/proc/sys/kernel/core_pattern");
	pid_t pid;

	if (!pattern_was)
		SKIP("this kernel writes no core files");
	write_text("/proc/sys/kernel/core_pattern", "/tmp/core");
	pid = fork();
	if (!pid) {
		setrlimit(RLIMIT_CORE, &all);
		write_text("/proc/self/coredump_filter", "0x1ff");
		begin();
		abort();
	}
	CHECK_EQ(wait_child(pid), 128 + 6);
	write_text("/proc/sys/kernel/core_pattern", pattern_was);
	CHECK(access("/tmp/core", F_OK) == 0);
	unlink("/tmp/core");
}

const struct test tests_walk[] = {
	{ "walk-numa", t_numa, ANY_MODE, 0 },	{ "walk-madvise", t_madvise, ANY_MODE, 30 },
	{ "walk-calls", t_calls, ANY_MODE, 0 }, { "walk-proc", t_proc_files, ANY_MODE, 0 },
	{ "walk-pages", t_pages, ANY_MODE, 0 }, { "walk-userfaultfd", t_userfaultfd, ANY_MODE, 0 },
	{ "walk-core", t_core, ANY_MODE, 0 },	{ NULL, NULL, 0, 0 },
};
