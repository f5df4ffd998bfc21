// SPDX-License-Identifier: MIT
/* The process tag: which page it lies in, what a fork does to it, and the locks after a fork. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/again.h"
#include "common/expect.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "barcopy.h"
#include "base/process.h"

static void tag_lasts(void)
{
	uint32_t tag;

	ck_assert_uint_eq(gdri_process_tag(), 0);
	OK(gdri_process_enter());
	tag = gdri_process_tag();
	ck_assert_uint_ne(tag, 0);
	OK(gdri_process_enter());
	ck_assert_uint_eq(gdri_process_tag(), tag);
}

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

static int grandchild_tag(void *arg)
{
	uint32_t tags[1];

	if (child_tag(arg))
		return 1;
	tags[0] = gdri_process_tag();
	return unit_in_child(child_tag, tags);
}

static void child_has_none(void)
{
	uint32_t tag;

	OK(gdri_process_enter());
	tag = gdri_process_tag();
	ck_assert_int_eq(unit_in_child(child_tag, &tag), 0);
	ck_assert_int_eq(unit_in_child(grandchild_tag, &tag), 0);
	ck_assert_uint_eq(gdri_process_tag(), tag);
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
	wrap_fail("pthread_atfork", 1, ENOMEM);
	FAILS(-ENOMEM, gdri_process_enter());
	ck_assert_int_eq(wrap_mapped(), before);
	SAYS("fork guard");
	OK(gdri_process_enter());
	ck_assert_uint_ne(gdri_process_tag(), 0);
}

static void *enter(void *arg)
{
	(void)arg;
	if (gdri_process_enter())
		return "enter failed";
	return gdri_process_tag() ? NULL : "no tag";
}

static void from_many_threads(void)
{
	ck_assert_ptr_null(unit_threads(16, enter, NULL, 0));
	ck_assert_uint_eq(gdri_process_tag(), 1);
}

static const struct unit_test tests[] = {
	{ "the tag lasts", tag_lasts, "" },
	{ "a child and its child", child_has_none, "" },
	{ "the kernel empties the page", kernel_empties_the_page, "" },
	{ "without MADV_WIPEONFORK", handler_alone, "" },
	{ "no memory", no_page, "" },
	{ "from many threads", from_many_threads, "" },
};

UNIT_MAIN("process", tests)
