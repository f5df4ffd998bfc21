// SPDX-License-Identifier: MIT
/* The process tag: which page it lies in, what a fork does to it, and the locks after a fork. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/again.h"
#include "common/expect.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "backend/backend.h"
#include "barcopy.h"
#include "base/env.h"
#include "base/inside.h"
#include "base/process.h"

static int child_tag(void *arg)
{
	uint32_t parent = *(uint32_t *)arg, own;

	if (gdri_process_tag())
		return 1;
	if (gdri_process_enter())
		return 2;
	own = gdri_process_tag();
	if (!own || own == parent)
		return 3;
	return 0;
}

/* A fork that no handler sees (the system call itself): the kernel alone must empty the page. */
static void kernel_empties_the_page(void)
{
	int ends[2];
	char zero = 'x';
	pid_t pid;

	if (test_emulator_lacks("the kernel empties the page", "MADV_WIPEONFORK"))
		return;
	OK(gdri_process_enter());
	ck_assert_int_eq(pipe(ends), 0);
	pid = (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, NULL, NULL, NULL, NULL);
	if (!pid) {
		char c = gdri_process_tag() ? 'n' : 'y';

		syscall(SYS_write, ends[1], &c, 1);
		syscall(SYS_exit_group, 0);
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(read(ends[0], &zero, 1), 1);
	ck_assert_int_eq(zero, 'y');
}

/* Where the kernel does not know MADV_WIPEONFORK the handler does it. */
static void handler_alone(void)
{
	uint32_t tag;

	wrap_reset();
	wrap_fail("madvise", 1, EINVAL);
	OK(gdri_process_enter());
	ck_assert_str_eq(wrap_failed(), "madvise");
	tag = gdri_process_tag();
	ck_assert_int_eq(unit_in_child(child_tag, &tag), 0);
}

static void no_page(void)
{
	long long before = wrap_mapped();

	wrap_reset();
	wrap_fail("mmap", 1, ENOMEM);
	FAILS(-ENOMEM, gdri_process_enter());
	ck_assert_uint_eq(gdri_process_tag(), 0);
	wrap_reset();
	wrap_fail("mmap", 1, EAGAIN);
	FAILS(ENOMEM, ERRNO_OF(gdr_open()));
	wrap_reset();
	wrap_fail("pthread_atfork", 1, ENOMEM);
	FAILS(-ENOMEM, gdri_process_enter());
	ck_assert_int_eq(wrap_mapped(), before);
	SAYS("fork guard");
	OK(gdri_process_enter());
	ck_assert_uint_ne(gdri_process_tag(), 0);
	wrap_reset();
	wrap_fail("aligned_alloc", 1, EAGAIN);
	FAILS_WITH(ENOMEM, "no memory for a context", ERRNO_OF(gdr_open()));
	wrap_reset();
}

/* ---- inside the library -------------------------------------------------- */

static int deferred;

static void defer_once(void)
{
	deferred++;
	ck_assert(gdri_is_inside());
	if (deferred == 1)
		gdri_inside_defer(defer_once);
}

/* What is deferred runs when the thread leaves the library, and so does what that defers. */
static void deferred_work(void)
{
	int state;

	gdri_inside_enter();
	gdri_inside_enter();
	gdri_inside_defer(defer_once);
	gdri_inside_leave();
	ck_assert_int_eq(deferred, 0);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	ck_assert_int_eq(state, PTHREAD_CANCEL_DISABLE);
	gdri_inside_leave();
	ck_assert_int_eq(deferred, 2);
	ck_assert(!gdri_is_inside());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	ck_assert_int_eq(state, PTHREAD_CANCEL_ENABLE);
	gdri_inside_enter();
	gdri_inside_leave();
	ck_assert_int_eq(deferred, 2);
}

/* ---- descriptors --------------------------------------------------------- */

static int is_closed(void *arg)
{
	return fcntl(*(int *)arg, F_GETFD) == -1 ? 0 : 1;
}

/* A program that another thread executes meanwhile does not get it. */
static void closes_on_exec(void)
{
	ck_assert_int_eq(fcntl(0, F_GETFD), FD_CLOEXEC);
}

/* A child that another thread makes meanwhile does not keep it. */
static void closed_in_child(void)
{
	ck_assert_int_eq(unit_in_child(is_closed, &(int){ 0 }), 0);
}

/* A program without standard input: what the library opens gets descriptor 0. */
static void descriptor_0(void)
{
	struct {
		char text[8], behind;
	} part = { .behind = 'x' };
	char text[64];
	int fd = -1;

	if (test_emulator_lacks("descriptor 0", "the program's own name in /proc"))
		return;
	close(0);
	gdri_read_line("/proc/self/comm", part.text, sizeof(part.text)); /* its begin */
	ck_assert_str_eq(part.text, "test_pr");
	ck_assert_int_eq(part.behind, 'x');
	wrap_reset();
	wrap_before("close", closes_on_exec);
	gdri_read_line("/proc/self/comm", text, sizeof(text));
	ck_assert_str_eq(text, "test_process");
	ck_assert_int_eq(is_closed(&(int){ 0 }), 0);
	gdri_read_line("/proc/self/no such file", text, sizeof(text));
	ck_assert_str_eq(text, "");
	OK(gdri_process_enter());
	wrap_before("read", closed_in_child);
	gdri_read_line("/proc/self/comm", text, sizeof(text));
	ck_assert_str_eq(text, "test_process");
	ck_assert_int_eq(is_closed(&(int){ 0 }), 0);
	errno = EINTR; /* of an earlier call: an open that worked is not made again */
	OK(gdri_open_node("/dev/null", "", &fd));
	ck_assert_int_eq(fd, 0);
	ck_assert_int_eq(unit_in_child(is_closed, &fd), 0);
	gdri_fork_close(fd);
	ck_assert_int_eq(is_closed(&fd), 0);
}

/* Pages that a child would inherit do not stay; what was replaced by them is no hole. */
static void not_advised(void)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	char *at = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long long mapped = wrap_mapped();
	void *map;

	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	for (int err = EINVAL; err; err = err == EINVAL ? ENOMEM : 0) {
		wrap_reset();
		wrap_fail("madvise", 1, err);
		FAILS(-err, gdri_fork_map(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0, &map));
		ck_assert_ptr_eq(map, MAP_FAILED);
		ck_assert_int_eq(wrap_mapped(), mapped);
		wrap_reset();
		wrap_fail("madvise", 1, err);
		FAILS(-err, gdri_fork_map(at + 4096, 4096, PROT_READ, MAP_SHARED, fd, 0, &map));
		ck_assert_ptr_eq(map, at + 4096);
		ck_assert_int_eq(gdri_load_errno(map), EFAULT);
		ck_assert_int_eq(msync(map, 4096, MS_ASYNC), 0); /* ENOMEM: a hole */
	}
	wrap_reset();
	OK(gdri_fork_map(at + 4096, 4096, PROT_READ, MAP_SHARED, fd, 0, &map));
	ck_assert_int_eq(gdri_load_errno(map), EINVAL);
	wrap_fail("mmap", 1, EPERM);
	FAILS(EPERM, gdri_fork_map(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0, &map));
	wrap_reset();
	munmap(at, 8192);
	close(fd);
}

/* Where the tag's page cannot be advised, for lack of memory, there is no tag. */
static void tag_not_advised(void)
{
	wrap_reset();
	wrap_fail("madvise", 1, ENOMEM);
	FAILS_WITH(-ENOMEM, "fork guard", gdri_process_enter());
	ck_assert_uint_eq(gdri_process_tag(), 0);
	wrap_reset();
	OK(gdri_process_enter());
}

static int open_now(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

/* Without memory for its number, an open closes what it has opened. */
static void no_memory_for_a_number(void)
{
	int fd[64], n = 0, before = open_now();

	OK(gdri_process_enter());
	wrap_reset();
	wrap_fail("realloc", 1, ENOMEM);
	while (n < 64 && (fd[n] = gdri_fork_open("/dev/null", O_RDONLY)) >= 0)
		n++;
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_str_eq(wrap_failed(), "realloc");
	wrap_reset();
	ck_assert_int_eq(open_now(), before + n);
	while (n--)
		gdri_fork_close(fd[n]);
}

/* The program has closed the library's descriptor; its own at that number has the same inode elsewhere. */
static void another_device(void)
{
	static const char *const roots[] = { "/proc", "/sys", "/dev/pts", "/dev/shm", "/dev/mqueue" };
	struct stat st[COUNT(roots)];

	OK(gdri_process_enter());
	for (size_t i = 0; i < COUNT(roots); i++) {
		if (stat(roots[i], &st[i]))
			st[i].st_ino = 0;
		for (size_t k = 0; st[i].st_ino && k < i; k++)
			if (st[i].st_ino == st[k].st_ino && st[i].st_dev != st[k].st_dev) {
				int fd = gdri_fork_open(roots[k], O_RDONLY);

				close(fd);
				ck_assert_int_eq(open(roots[i], O_RDONLY), fd);
				gdri_fork_close(fd);
				ck_assert_int_eq(close(fd), 0);
			}
	}
}

static const struct unit_test tests[] = {
	{ "pages that are not advised", not_advised, "" },
	{ "a tag that is not advised", tag_not_advised, "" },
	{ "another device", another_device, "" },
	{ "the kernel empties the page", kernel_empties_the_page, "" },
	{ "without MADV_WIPEONFORK", handler_alone, "" },
	{ "no memory", no_page, "" },
	{ "deferred work", deferred_work, "" },
	{ "descriptor 0", descriptor_0, "" },
	{ "no memory for a number", no_memory_for_a_number, "" },
};

UNIT_MAIN("process", tests)
