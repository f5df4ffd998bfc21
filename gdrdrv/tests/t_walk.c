// SPDX-License-Identifier: MIT
/*
 * System calls that make the kernel walk or change the page tables of a mapping without the driver.
 * Each row of the table runs on a fresh mapping (no entry yet) and on a touched one.
 *
 * BAR memory has no struct page: a walk that takes an entry for that of a page crashes the kernel,
 * and a call that wants to hold pages must fail with EFAULT. A call that leaves a marker in the
 * tables must not make the next access fault for ever: in a copy to user space no signal would end
 * it.
 *
 * After each row all accesses that make entries use the mapping: read, write, read(2) into it,
 * getdents(2) into it (which holds the directory's lock), POPULATE, unpin. Each use must end, and
 * the mapping must show the same bytes through small entries. In rows with MAY_FAULT an access may
 * fail: SIGBUS, SIGSEGV, EFAULT.
 *
 * The mapping is large and aligned enough for huge entries, if the driver made any.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "rig.h"
#include "walk.h"

#define WINDOW (2 * MiB) /* filled by one fault; each use has its own */
#define USES   6
#define SIZE   (USES * WINDOW)
#define STEP   (4 * GPU_PAGE)
#define DIR_AT "/tmp/walk"

/* Shared with the process that runs a row. */
static struct watched {
	unsigned int steps;
	char doing[64];
	char skipped[96];
	struct walk_sequence sequence; /* n 0: one walk alone */
} * watched;

static uint8_t *map_at;
static uint64_t handle, memory;
static bool touched, may_fault;

/* Where the mapping has been. */
static uint8_t *places[WALK_STEPS + 1];
static unsigned int nr_places;

static void doing(const char *what)
{
	snprintf(watched->doing, sizeof(watched->doing), "%s", what);
	__atomic_add_fetch(&watched->steps, 1, __ATOMIC_RELAXED);
}

static void not_here(const char *why)
{
	snprintf(watched->skipped, sizeof(watched->skipped), "%s", why);
	if (check_jmp)
		siglongjmp(*check_jmp, 1);
	_exit(SKIP_CODE);
}

/* Skips the row if the kernel lacks the call, whose result is @ret. Returns @ret. */
static long needs_call(long ret)
{
	if (ret < 0 && errno == ENOSYS)
		not_here("this kernel lacks the call");
	return ret;
}

static uint8_t byte_at(size_t off)
{
	return (uint8_t)(off / STEP + 1);
}

static void begin(void)
{
	size_t off;

	drv = drv_open();
	prov = prov_open();
	memory = gpu_alloc_flags(prov, SIZE, PROVIDER_ALIGN_2M).va;
	handle = must_pin(drv, memory, SIZE);
	map_at = reserve(SIZE, WINDOW);
	must_map_at(drv, handle, SIZE, map_at);
	nr_places = 0;
	places[nr_places++] = map_at;
	for (off = 0; off < SIZE; off += STEP) {
		uint8_t byte = byte_at(off);

		if (touched)
			map_at[off] = byte;
		else
			gpu_poke(prov, memory + off, &byte, 1);
	}
}

static void same_at(size_t off, const char *after)
{
	int sig = try_read(map_at + off);

	if (sig ? !may_fault : map_at[off] != byte_at(off)) {
		printf("# after %s: signal %d at 0x%zx, or other bytes\n", after, sig, off);
		_exit(1);
	}
}

/* Checks the bytes after a step of a row; a fresh mapping stays untouched. */
static void same(const char *after)
{
	size_t off;

	doing(after);
	for (off = 0; touched && off < SIZE; off += STEP)
		same_at(off, after);
}

/* Checks that a call that wants to hold pages fails; a kernel may lack it. */
static void no_pages(const char *what, long ret)
{
	int err = ret < 0 ? errno : 0;

	same(what);
	if (err != EFAULT)
		printf("# %s: errno %d\n", what, err);
	CHECK(err == EFAULT || err == ENOSYS);
}

/* Writes to a file of the kernel, which may lack it. */
static void tell_kernel(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		printf("# %s to %s: errno %d\n", text, path, errno);
	close(fd);
	same(path);
}

static void walk_nothing(void)
{
}

static void walk_mbind(void)
{
	unsigned long node = 1;
	unsigned int mode, flags;
	int where;

	needs_call(syscall(SYS_get_mempolicy, &where, NULL, 0, NULL, 0));
	for (mode = MPOL_DEFAULT; mode < MPOL_MAX; mode++) {
		for (flags = 0; flags < 16; flags++) {
			bool any = mode != MPOL_DEFAULT && mode != MPOL_LOCAL;

			syscall(SYS_mbind, map_at, SIZE, mode, any ? &node : NULL, any ? 64 : 0,
				flags);
			same("mbind");
		}
	}
	syscall(SYS_mbind, map_at, SIZE, MPOL_BIND, &node, 64, 0);
	syscall(450 /* set_mempolicy_home_node */, map_at, SIZE, 0, 0);
	same("set_mempolicy_home_node");
	no_pages("get_mempolicy of an address",
		 syscall(SYS_get_mempolicy, &where, NULL, 0, map_at, MPOL_F_NODE | MPOL_F_ADDR));
}

static void walk_move_pages(void)
{
	unsigned long node = 1, old[1] = { 1 };
	void *pages[SIZE / STEP];
	int status[SIZE / STEP], nodes[SIZE / STEP] = { 0 };
	unsigned int flags;
	size_t i;

	needs_call(syscall(SYS_migrate_pages, 0, 64, old, &node));
	same("migrate_pages");
	for (i = 0; i < SIZE / STEP; i++)
		pages[i] = map_at + i * STEP;
	for (flags = 0; flags <= MPOL_MF_MOVE_ALL; flags += MPOL_MF_MOVE) {
		memset(status, 0, sizeof(status));
		if (syscall(SYS_move_pages, 0, SIZE / STEP, pages, flags ? nodes : NULL, status,
			    flags))
			continue;
		same("move_pages");
		for (i = 0; i < SIZE / STEP; i++)
			CHECK(status[i] < 0);
	}
}

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

/* All advice numbers, used and unused. */
static void walk_madvise(void)
{
	int advice;

	for (advice = 0; advice < 128; advice++) {
		madvise(map_at, SIZE, advice);
		same("madvise");
	}
	CHECK(madvise(map_at, SIZE, MADV_DONTNEED) == -1);
	CHECK(madvise(map_at, SIZE, MADV_DOFORK) == -1);
}

static void walk_process_madvise(void)
{
	struct iovec iov = { map_at, SIZE };
	int advice, self = (int)syscall(SYS_pidfd_open, getpid(), 0);

	CHECK(self >= 0);
	for (advice = 0; advice < 128; advice++) {
		needs_call(syscall(SYS_process_madvise, self, &iov, 1, advice, 0));
		same("process_madvise");
	}
}

/* Guard pages (6.13): markers in place of entries. */
static void walk_guard(void)
{
	void *own = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (madvise(own, cpu_page(), 102 /* MADV_GUARD_INSTALL */))
		not_here("no guard pages in this kernel");
	CHECK(madvise(map_at, SIZE, 102) == -1);
	madvise(map_at, SIZE, 103 /* MADV_GUARD_REMOVE */);
	same("guard pages");
}

static void walk_merge(void)
{
	prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	if (access("/sys/kernel/mm/ksm/run", W_OK))
		not_here("no merging of pages in this kernel");
	tell_kernel("/sys/kernel/mm/ksm/run", "1");
	usleep(200000); /* a round of merging */
	tell_kernel("/sys/kernel/mm/ksm/run", "2");
	tell_kernel("/sys/kernel/mm/ksm/run", "0");
}

/* The administrator's knobs that visit all mappings. */
static void walk_reclaim(void)
{
	tell_kernel("/proc/sys/vm/drop_caches", "1");
	tell_kernel("/proc/sys/vm/compact_memory", "1");
}

static void walk_mseal(void)
{
	CHECK_EQ(needs_call(syscall(462 /* mseal */, map_at, SIZE, 0)), 0);
	same("mseal");
	CHECK(munmap(map_at, SIZE) == -1);
}

static void walk_mprotect(void)
{
	CHECK_EQ(mprotect(map_at, SIZE, PROT_NONE), 0);
	CHECK_EQ(mprotect(map_at, SIZE, PROT_READ), 0);
	CHECK_EQ(mprotect(map_at, SIZE, PROT_NONE), 0);
	CHECK_EQ(mprotect(map_at, SIZE, PROT_READ | PROT_WRITE), 0);
	same("mprotect");
	CHECK(mprotect(map_at + WINDOW, WINDOW, PROT_READ) == -1);
	CHECK(mprotect(map_at, SIZE, PROT_READ | PROT_EXEC) == -1);
}

static void walk_pkey(void)
{
	int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);

	if (key < 0)
		not_here("no protection keys here");
	CHECK_EQ(pkey_mprotect(map_at, SIZE, PROT_READ | PROT_WRITE, key), 0);
	doing("access without the key");
	CHECK_EQ(try_read(map_at), SIGSEGV);
	/* The jump out of the signal handler left the key's rights of a handler in force. */
	CHECK_EQ(pkey_mprotect(map_at, SIZE, PROT_READ | PROT_WRITE, 0), 0);
	same("a protection key");
}

/* Moves the whole mapping. */
static void move(void)
{
	uint8_t *was = map_at, *to = reserve(SIZE, WINDOW);

	CHECK(mremap(was, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	map_at = to;
	if (nr_places < ARRAY_SIZE(places))
		places[nr_places++] = to;
	same("a move");
	CHECK_EQ(nr_entries(was, SIZE, STEP), 0);
	CHECK_EQ(try_read(was), SIGSEGV);
}

static void walk_mremap(void)
{
	static const struct {
		size_t off, len, to_len;
		int flags;
	} refused[] = {
		{ 0, SIZE, SIZE, MREMAP_MAYMOVE | 4 /* DONTUNMAP */ },
		{ 0, 0, SIZE, MREMAP_MAYMOVE },
		{ 0, SIZE, 2 * SIZE, MREMAP_MAYMOVE },
		{ 0, SIZE, SIZE / 2, 0 },
		{ 0, WINDOW, WINDOW, MREMAP_MAYMOVE | MREMAP_FIXED },
		{ WINDOW, WINDOW, WINDOW, MREMAP_MAYMOVE | MREMAP_FIXED },
		{ SIZE - WINDOW, WINDOW, WINDOW, MREMAP_MAYMOVE | MREMAP_FIXED },
	};
	void *to = reserve(SIZE, WINDOW);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		CHECK(mremap(map_at + refused[i].off, refused[i].len, refused[i].to_len,
			     refused[i].flags, to) == MAP_FAILED);
		same("mremap");
	}
	move();
	syscall(SYS_remap_file_pages, map_at, GPU_PAGE, 0, 0, 0);
	same("remap_file_pages");
}

/* Parts are replaced: by nothing, and by a memfd. */
static void walk_replace(void)
{
	int fd = (int)syscall(SYS_memfd_create, "walk", 0);
	size_t at;

	CHECK(fd >= 0 && !ftruncate(fd, SIZE));
	for (at = 0; at < SIZE; at += SIZE / 2) {
		CHECK(munmap(map_at + at, WINDOW) == -1);
		CHECK(mmap(map_at + at, WINDOW, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) ==
		      MAP_FAILED);
	}
	CHECK(munmap(map_at + SIZE - WINDOW, WINDOW) == -1);
	same("replacing parts");
}

static void walk_lock(void)
{
	mlock(map_at, SIZE);
	same("mlock");
	mlock2(map_at, SIZE, MLOCK_ONFAULT);
	munlock(map_at, SIZE);
	mlockall(MCL_CURRENT | MCL_FUTURE);
	munlockall();
	same("mlockall");
}

static void walk_sync(void)
{
	unsigned char present[SIZE / 4096];

	CHECK_EQ(mincore(map_at, SIZE, present), 0);
	same("mincore");
	msync(map_at, SIZE, MS_SYNC);
	msync(map_at, SIZE, MS_ASYNC | MS_INVALIDATE);
	same("msync");
	/* As checkpoint tools do. */
	CHECK(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, map_at, SIZE, "walk") == -1);
	same("a name");
}

static void walk_fork(void)
{
	pid_t pid;

	CHECK(madvise(map_at, SIZE, MADV_DOFORK) == -1);
	pid = fork();
	if (!pid)
		_exit(try_read(map_at) == SIGSEGV ? 0 : 1);
	CHECK_EQ(wait_child(pid), 0);
	same("fork");
}

/* process_mrelease() visits the mapping of a dying process. */
static void walk_reap(void)
{
	uint8_t *ours = map_at;
	int fds[2], pidfd;
	char byte;
	pid_t pid;
	long ret;

	CHECK(!pipe(fds));
	pid = fork();
	if (!pid) {
		begin();
		CHECK(write(fds[1], "1", 1) == 1);
		pause();
		_exit(0);
	}
	CHECK(read(fds[0], &byte, 1) == 1);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	CHECK(pidfd >= 0 && !kill(pid, SIGKILL));
	ret = syscall(448 /* process_mrelease */, pidfd, 0) && errno == ENOSYS ? -1 : 0;
	CHECK_EQ(wait_child(pid), 128 + SIGKILL);
	close(pidfd);
	map_at = ours;
	errno = ENOSYS;
	needs_call(ret);
	same("process_mrelease of another");
}

static void walk_proc(void)
{
	static const char *const files[] = { "maps", "smaps", "smaps_rollup", "numa_maps",
					     "status" };
	uint64_t entries[SIZE / 4096];
	char path[96];
	int fd;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "/proc/self/%s", files[i]);
		free(read_text(path));
		same(files[i]);
	}
	fd = open("/proc/self/pagemap", O_RDONLY);
	CHECK(fd >= 0);
	CHECK(pread(fd, entries, SIZE / cpu_page() * 8,
		    (off_t)((uintptr_t)map_at / cpu_page() * 8)) > 0);
	close(fd);
	same("pagemap");
	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)map_at,
		 (unsigned long)map_at + SIZE);
	if (readlink(path, (char *)entries, sizeof(entries)) < 0)
		printf("# no map_files: %d\n", errno);
	/* Access as a debugger. */
	fd = open("/proc/self/mem", O_RDWR);
	CHECK(fd >= 0);
	CHECK(pread(fd, entries, 4096, (off_t)(uintptr_t)map_at) == -1 && errno == EIO);
	CHECK(pwrite(fd, entries, 4096, (off_t)(uintptr_t)map_at) == -1 && errno == EIO);
	close(fd);
	same("/proc/self/mem");
}

static void walk_clear_refs(void)
{
	char what[] = "1";

	for (; what[0] <= '5'; what[0]++)
		tell_kernel("/proc/self/clear_refs", what);
}

struct pm_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, anyof, mask_return;
};

#define PAGEMAP_SCAN_ALL _IOWR('f', 16, struct pm_scan)

/* PAGEMAP_SCAN with all flags, also those that write-protect; with and without a userfaultfd. */
static void scan(void)
{
	uint64_t regions[64][3];
	struct pm_scan arg = { .size = sizeof(arg), .vec = (uintptr_t)regions, .vec_len = 64 };
	int fd = open("/proc/self/pagemap", O_RDONLY), what;

	CHECK(fd >= 0);
	for (what = 0; what < 128; what++) {
		arg.start = (uintptr_t)map_at;
		arg.end = arg.start + SIZE;
		arg.anyof = (uint64_t)what;
		arg.mask_return = 127;
		arg.flags = (uint64_t)what & 3;
		if (ioctl(fd, PAGEMAP_SCAN_ALL, &arg) && errno == ENOTTY)
			not_here("no PAGEMAP_SCAN in this kernel");
		same("PAGEMAP_SCAN");
	}
	close(fd);
}

static void direct_io(void)
{
	char *buf = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open(DIR_AT "/direct", O_RDWR | O_CREAT | O_DIRECT, 0600);

	if (fd < 0) {
		if (!check_jmp)
			printf("# O_DIRECT: not on this kernel's tmpfs\n");
		return;
	}
	/* tmpfs copies, so a read may succeed; holding pages must not. */
	CHECK_EQ(pwrite(fd, buf, 4096, 0), 4096);
	if (touched && pwrite(fd, map_at, 4096, 4096) < 0)
		CHECK(errno == EFAULT || errno == EINVAL);
	close(fd);
	unlink(DIR_AT "/direct");
	same("O_DIRECT");
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

static void walk_pages(void)
{
	struct iovec remote = { map_at, 4096 }, local;
	uint8_t buf[4096];
	int fds[2];

	local = (struct iovec){ buf, sizeof(buf) };
	no_pages("process_vm_readv", process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
	no_pages("process_vm_writev", process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
	CHECK(!pipe(fds));
	no_pages("vmsplice", vmsplice(fds[1], &remote, 1, 0));
	no_pages("vmsplice of a gift", vmsplice(fds[1], &remote, 1, SPLICE_F_GIFT));
	no_pages("shared futex, wait", syscall(SYS_futex, map_at, FUTEX_WAIT, 77, NULL, NULL, 0));
	no_pages("shared futex, wake", syscall(SYS_futex, map_at, FUTEX_WAKE, 1, NULL, NULL, 0));
	if (touched)
		CHECK(syscall(SYS_futex, map_at, FUTEX_WAIT_PRIVATE, 77, NULL, NULL, 0) == -1 &&
		      errno == EAGAIN);
	CHECK_EQ(syscall(SYS_futex, map_at, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
	same("private futex");
	direct_io();
	ring_buffers();
}

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define UFFD_WP_ASYNC	    (1ULL << 15)
#define UFFD_WP_UNPOPULATED (1ULL << 13)

static int uffd_open(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fd < 0)
		not_here("no userfaultfd for users in this kernel");
	if (ioctl(fd, UFFDIO_API, &api))
		not_here("no asynchronous write protection in this kernel");
	return fd;
}

/*
 * With asynchronous write protection (6.7) kernels let any user register any range, until a fix of
 * 2026 that refuses ranges without pages. Returns the descriptor.
 */
static int uffd_register(void)
{
	struct uffdio_register reg = { .range = { (uintptr_t)map_at, SIZE },
				       .mode = UFFDIO_REGISTER_MODE_WP };
	int fd = uffd_open(UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED);

	if (ioctl(fd, UFFDIO_REGISTER, &reg)) {
		CHECK_EQ(errno, EINVAL);
		not_here("this kernel's userfaultfd refuses mappings without pages");
	}
	printf("# userfaultfd protects mappings without pages in this kernel\n");
	return fd;
}

static void uffd_protect(int fd, size_t off, size_t len, uint64_t mode)
{
	struct uffdio_writeprotect wp = { .range = { (uintptr_t)map_at + off, len }, .mode = mode };

	CHECK_EQ(ioctl(fd, UFFDIO_WRITEPROTECT, &wp), 0);
	same("write protection");
}

/*
 * Write protection in steps, one letter each: p(rotect), s(ome: every other page, so that a fault's
 * window has some of each kind), o(ne page, not the first of its window), l(ift), u(nregister), c(lose), m(ove), S(can).
 */
static void uffd_steps(const char *step)
{
	struct uffdio_range range = { (uintptr_t)map_at, SIZE };
	int fd = uffd_register();
	size_t off;

	for (; *step; step++) {
		switch (*step) {
		case 'p':
			uffd_protect(fd, 0, SIZE, UFFDIO_WRITEPROTECT_MODE_WP);
			break;
		case 's':
			for (off = 0; off < SIZE; off += STEP)
				uffd_protect(fd, off, cpu_page(), UFFDIO_WRITEPROTECT_MODE_WP);
			break;
		case 'o':
			uffd_protect(fd, cpu_page(), cpu_page(), UFFDIO_WRITEPROTECT_MODE_WP);
			break;
		case 'l':
			uffd_protect(fd, 0, SIZE, 0);
			break;
		case 'u':
			CHECK_EQ(ioctl(fd, UFFDIO_UNREGISTER, &range), 0);
			break;
		case 'c':
			close(fd);
			break;
		case 'm':
			move();
			break;
		default:
			scan();
		}
	}
}

/* The other modes of registration, and the calls that fill empty entries. */
static void walk_uffd_fill(void)
{
	static const unsigned int modes[] = { UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP,
					      1 << 2 /* MINOR */ };
	uint64_t from = (uintptr_t)mmap(NULL, WINDOW, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t to = (uintptr_t)map_at;
	/* Both forms of arguments: to, from, len, mode, out; and range, mode, out. */
	uint64_t two[5] = { to, from, WINDOW, 0, 0 }, one[4] = { to, WINDOW, 0, 0 };
	int fd = uffd_open(0);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		struct uffdio_register reg = { .range = { to, SIZE }, .mode = modes[i] };

		CHECK(ioctl(fd, UFFDIO_REGISTER, &reg) == -1);
		same("registering");
	}
	CHECK(ioctl(fd, UFFDIO_COPY, two) == -1);
	CHECK(ioctl(fd, UFFDIO_ZEROPAGE, one) == -1);
	CHECK(ioctl(fd, _IOWR(UFFDIO, 7, uint64_t[4]) /* CONTINUE */, one) == -1);
	CHECK(ioctl(fd, _IOWR(UFFDIO, 8, uint64_t[4]) /* POISON */, one) == -1);
	CHECK(ioctl(fd, _IOWR(UFFDIO, 5, uint64_t[5]) /* MOVE */, two) == -1);
	two[0] = from, two[1] = to;
	CHECK(ioctl(fd, _IOWR(UFFDIO, 5, uint64_t[5]), two) == -1);
	same("filling by userfaultfd");
	close(fd);
}

static void walk_core(void)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	char *pattern_was = read_text("/proc/sys/kernel/core_pattern");
	uint8_t *ours = map_at;
	pid_t pid;

	if (!pattern_was)
		not_here("this kernel writes no core files");
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
	map_at = ours;
	same("a core file of another");
}

#define AS_ROOT	  1 /* other rows run as an unprivileged user */
#define MAY_FAULT 2
#define SLOW	  4

/* docs/results/driver.md has these rows with the kernel's behaviour. */
/* clang-format off */
#define WALKS(walk)							\
	walk("nothing", walk_nothing, 0, NULL)				\
	walk("mbind", walk_mbind, AS_ROOT, NULL)				\
	walk("move-pages", walk_move_pages, AS_ROOT, NULL)		\
	walk("madvise", walk_madvise, AS_ROOT, NULL)			\
	walk("process-madvise", walk_process_madvise, 0, NULL)		\
	walk("guard", walk_guard, 0, NULL)				\
	walk("merge", walk_merge, AS_ROOT | SLOW, NULL)				\
	walk("reclaim", walk_reclaim, AS_ROOT | SLOW, NULL)			\
	walk("mseal", walk_mseal, 0, NULL)				\
	walk("mprotect", walk_mprotect, 0, NULL)				\
	walk("pkey", walk_pkey, 0, NULL)					\
	walk("mremap", walk_mremap, 0, NULL)				\
	walk("replace", walk_replace, 0, NULL)				\
	walk("lock", walk_lock, AS_ROOT, NULL)				\
	walk("sync", walk_sync, 0, NULL)					\
	walk("fork", walk_fork, 0, NULL)					\
	walk("reap", walk_reap, 0, NULL)					\
	walk("proc", walk_proc, 0, NULL)					\
	walk("clear-refs", walk_clear_refs, 0, NULL)			\
	walk("scan", scan, 0, NULL)					\
	walk("pages", walk_pages, 0, NULL)				\
	walk("uffd-wp", NULL, MAY_FAULT, "p")				\
	walk("uffd-wp-some", NULL, MAY_FAULT, "s")			\
	walk("uffd-wp-one", NULL, MAY_FAULT, "o")			\
	walk("uffd-wp-lifted", NULL, 0, "pl")				\
	walk("uffd-wp-unregistered", NULL, 0, "pu")			\
	walk("uffd-wp-closed", NULL, 0, "pc")				\
	walk("uffd-wp-scan", NULL, MAY_FAULT, "S")			\
	walk("uffd-wp-moved", NULL, 0, "pm")				\
	walk("uffd-registered-moved", NULL, 0, "m")			\
	walk("uffd-fill", walk_uffd_fill, 0, NULL)			\
	walk("core", walk_core, AS_ROOT | SLOW, NULL)
/* clang-format on */

#define WALK_ROW(name_, go_, flags_, uffd_) { "walk-" name_, go_, flags_, uffd_ },
#define TEST_ROW(name_, go_, flags_, uffd_) { "walk-" name_, t_walk, ANY_MODE, 60, 0 },

static const struct walk {
	const char *name;
	void (*go)(void);
	unsigned int flags;
	const char *uffd; /* steps, in place of @go */
} walks[] = { WALKS(WALK_ROW) };

/* A copy of the kernel into the mapping must be complete, or fail with EFAULT. */
static void kernel_reads(size_t off, bool gone)
{
	int fd = (int)syscall(SYS_memfd_create, "bytes", 0);
	uint8_t bytes[256];
	ssize_t n;

	memset(bytes, byte_at(off), sizeof(bytes));
	CHECK(fd >= 0 && write(fd, bytes, sizeof(bytes)) == sizeof(bytes));
	n = pread(fd, map_at + off, sizeof(bytes), 0);
	if (n != sizeof(bytes) || gone)
		CHECK(n == -1 && errno == EFAULT && (gone || may_fault));
	close(fd);
}

static void kernel_lists(size_t off)
{
	int fd = open(DIR_AT, O_RDONLY | O_DIRECTORY);
	long n = syscall(SYS_getdents64, fd, map_at + off, 4096);

	CHECK(n > 0 || (n == -1 && errno == EFAULT && may_fault));
	close(fd);
	if (n > 0)
		CHECK_EQ(try_write(map_at + off, byte_at(off)), 0);
}

/* Each use has a window of its own, so each meets the first touch of a window. */
static void use(void)
{
	size_t off;
	int sig, ret;

	doing("a read");
	same_at(0, "the walk");
	doing("a write");
	sig = try_write(map_at + WINDOW, byte_at(WINDOW));
	CHECK(!sig || may_fault);
	doing("read(2) into the mapping");
	kernel_reads(2 * WINDOW, false);
	doing("getdents(2) into the mapping");
	kernel_lists(3 * WINDOW);
	doing("POPULATE");
	ret = populate(drv, handle);
	CHECK(!ret || (ret == -EINVAL && may_fault));
	for (off = 0; !ret && off < SIZE; off += cpu_page())
		CHECK(read_pte(prov, map_at + off).pte & 1);
	for (off = 0; off < SIZE; off += STEP) {
		struct provider_pte entry;

		same_at(off, "all of it");
		entry = read_pte(prov, map_at + off);
		if (!may_fault || entry.pte & 1)
			CHECK_EQ(entry.level, 1);
	}
	doing("unpin");
	OK(unpin(drv, handle));
	for (off = 0; off < SIZE; off += STEP) {
		CHECK(!(read_pte(prov, map_at + off).pte & 1));
		CHECK_EQ(try_read(map_at + off), SIGBUS);
	}
	doing("read(2) after the unpin");
	kernel_reads(4 * WINDOW, true);
}

static void try_walk(const struct walk *walk)
{
	begin();
	doing(walk->name);
	if (!(walk->flags & AS_ROOT)) {
		CHECK(!setgid(65534) && !setuid(65534));
		CHECK(!prctl(PR_SET_DUMPABLE, 1)); /* its own /proc files */
	}
	may_fault = walk->flags & MAY_FAULT;
	if (walk->uffd)
		uffd_steps(walk->uffd);
	else
		walk->go();
	use();
}

/*
 * Waits for a process that may ignore SIGKILL: while it makes progress, and then up to a limit.
 * Returns its exit code.
 */
static int watch(pid_t pid)
{
	unsigned int limit_ms = rig.debug ? 120000 : 20000, quiet = 0, steps = 0, now;
	int status;

	while (!waitpid(pid, &status, WNOHANG)) {
		now = __atomic_load_n(&watched->steps, __ATOMIC_RELAXED);
		quiet = now == steps ? quiet + 1 : 0;
		steps = now;
		if (quiet > limit_ms) {
			kill(pid, SIGKILL);
			usleep(3000000);
			printf("# %s mapping: does not end: %s; 3 s after SIGKILL it is %s\n",
			       touched ? "touched" : "fresh", watched->doing,
			       waitpid(pid, &status, WNOHANG) ? "gone" : "still there");
			if (watched->sequence.n)
				walk_print(&watched->sequence);
			fflush(stdout);
			_exit(1);
		}
		usleep(1000);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void watch_prepare(void)
{
	if (watched)
		return;
	watched = mmap(NULL, sizeof(*watched), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	CHECK(watched != MAP_FAILED);
	if (mkdir(DIR_AT, 0777) && errno != EEXIST)
		CHECK(!"mkdir");
	CHECK(!chmod(DIR_AT, 0777));
}

static void t_walk(void)
{
	const struct walk *walk = walks;
	int code = 0, i;
	pid_t pid;

	while (strcmp(walk->name, rig.test))
		walk++;
	watch_prepare();
	for (i = 0; i < 2; i++) {
		/* Touched first: what a walk does to entries must show before other failures. */
		touched = !i;
		fflush(stdout);
		pid = fork();
		if (!pid) {
			try_walk(walk);
			fflush(stdout);
			_exit(0);
		}
		code = watch(pid);
		if (code == SKIP_CODE)
			SKIP(watched->skipped);
		if (code)
			printf("# %s mapping: exit code %d: %s\n", touched ? "touched" : "fresh",
			       code, watched->doing);
		CHECK_EQ(code, 0);
		/* The lock of the directory that the getdents held. */
		CHECK(!mkdir(DIR_AT "/new", 0777) && !rmdir(DIR_AT "/new"));
	}
}

const unsigned int nr_walks = ARRAY_SIZE(walks);

const char *walk_name(unsigned int walk)
{
	return walks[walk].name + strlen("walk-");
}

bool walk_is_slow(unsigned int walk)
{
	return walks[walk].flags & SLOW;
}

/* Root takes some steps, an unprivileged user the others; the real user stays root. */
static void become(bool root)
{
	CHECK(!setresuid((uid_t)-1, 0, (uid_t)-1));
	CHECK(!setresgid((gid_t)-1, root ? 0 : 65534, (gid_t)-1));
	CHECK(root || !setresuid((uid_t)-1, 65534, (uid_t)-1));
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
}

/* A failed check ends the step, and the next one follows. */
static void take_step(const struct walk *walk)
{
	sigjmp_buf jmp;

	become(walk->flags & AS_ROOT);
	doing(walk->name);
	if (!sigsetjmp(jmp, 1)) {
		check_jmp = &jmp;
		if (walk->uffd)
			uffd_steps(walk->uffd);
		else
			walk->go();
	}
	check_jmp = NULL;
}

/* Whether an entry at a place that the mapping had maps memory of the BAR. */
static bool entry_stays(const struct provider_info *info)
{
	struct provider_pte entry;
	unsigned int i;
	uint64_t phys;
	size_t off;

	for (i = 0; i < nr_places; i++) {
		for (off = 0; off < SIZE; off += GPU_PAGE) {
			entry = read_pte(prov, places[i] + off);
			phys = entry.pte & 0xffffffffff000ULL;
			if (entry.level && pte_maps(entry.pte) && phys >= info->bar_phys &&
			    phys < info->bar_phys + info->bar_size) {
				printf("# entry 0x%llx at 0x%zx of place %u\n",
				       (unsigned long long)entry.pte, off, i);
				return true;
			}
		}
	}
	return false;
}

/* As use(), where any step may have taken rights from the mapping or left a marker. */
static void use_any(bool freed)
{
	struct provider_info info = gpu_info(prov);
	int sig;

	become(false);
	doing("a read");
	same_at(0, "the steps");
	doing("a write");
	try_write(map_at + WINDOW, byte_at(WINDOW));
	doing("read(2) into the mapping");
	kernel_reads(2 * WINDOW, false);
	doing("getdents(2) into the mapping");
	kernel_lists(3 * WINDOW);
	doing("POPULATE");
	sig = populate(drv, handle);
	CHECK(!sig || sig == -EINVAL);
	same("POPULATE");
	doing(freed ? "free" : "unpin");
	CHECK_EQ(freed ? gpu_free(prov, memory) : unpin(drv, handle), 0);
	CHECK(!entry_stays(&info));
	doing("an access after it");
	sig = try_read(map_at);
	CHECK(sig == SIGBUS || sig == SIGSEGV);
	kernel_reads(4 * WINDOW, true);
	CHECK(!entry_stays(&info));
}

void walk_print(const struct walk_sequence *sequence)
{
	unsigned int i;

	printf("# on a %s mapping, then %s:", sequence->touched ? "touched" : "fresh",
	       sequence->freed ? "a free" : "an unpin");
	for (i = 0; i < sequence->n; i++)
		printf(" %s", walk_name(sequence->steps[i]));
	printf("\n");
	fflush(stdout);
}

static void take_steps(const struct walk_sequence *sequence, const struct walk_hooks *hooks)
{
	unsigned int i;

	begin();
	may_fault = true;
	if (hooks)
		hooks->begin();
	for (i = 0; i < sequence->n; i++) {
		if (hooks)
			hooks->step_begins();
		take_step(&walks[sequence->steps[i]]);
		if (hooks)
			hooks->step_ended();
	}
	use_any(sequence->freed);
}

int walk_sequence(const struct walk_sequence *sequence, const struct walk_hooks *hooks,
		  bool *lacking)
{
	pid_t pid;
	int code;

	watch_prepare();
	watched->skipped[0] = 0;
	watched->sequence = *sequence;
	touched = sequence->touched;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		take_steps(sequence, hooks);
		fflush(stdout);
		_exit(0);
	}
	code = watch(pid);
	if (code) {
		printf("# exit code %d: %s\n", code, watched->doing);
		walk_print(sequence);
	}
	*lacking = watched->skipped[0];
	/* The lock of the directory that the getdents held. */
	CHECK(!mkdir(DIR_AT "/new", 0777) && !rmdir(DIR_AT "/new"));
	return code;
}

const struct test tests_walk[] = { WALKS(TEST_ROW){ NULL, NULL, 0, 0, 0 } };
