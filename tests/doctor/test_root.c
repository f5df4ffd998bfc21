/* SPDX-License-Identifier: MIT */
/*
 * Files below a root: nothing is opened that is no file, nothing is read beyond what fits, and
 * paths are those below the root.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/unit.h"
#include "doctor/doctor.h"

static char top[UNIT_DIR];
static struct root root;

/* A file of that text below the top; its directories must be there. */
static void put(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static void dir(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void link_to(const char *target, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	ck_assert_int_eq(symlink(target, path), 0);
}

static void begin(void)
{
	unit_temp_dir(top);
	ck_assert_int_eq(root_open(&root, top), 0);
}

static void end(void)
{
	unit_remove_dir(top);
}

static void is(const char *path, const char *text)
{
	char buf[64];

	ck_assert_msg(!root_text(&root, path, buf, sizeof(buf)), "%s", path);
	ck_assert_str_eq(buf, text);
}

static void fails(const char *path, int error)
{
	char buf[64] = "x";

	ck_assert_msg(root_text(&root, path, buf, sizeof(buf)) == -error, "%s", path);
	ck_assert_str_eq(buf, "");
}

static void links(void)
{
	char real[ROOT_PATH];

	begin();
	dir("a");
	dir("a/b");
	put("a/file", "in a\n");
	put("file", "at the top");
	link_to("../file", "a/relative");
	link_to("../a", "a/self");
	link_to("loop", "loop");
	link_to("nowhere", "dangling");
	link_to("a/b", "to-b");
	link_to("/etc", "outside");
	is("/a/file", "in a");
	is("/a//./file", "in a");
	is("/a/relative", "at the top");
	is("/to-b/../file", "in a"); /* ".." behind the link, as the kernel has it */
	is("/a/self/self/self/file", "in a");
	fails("/loop", ELOOP);
	fails("/dangling", ENOENT);
	fails("/nothing", ENOENT);
	fails("/file/below", ENOTDIR);
	ck_assert(!root_exists(&root, "/etc/passwd"));
	ck_assert(!root_exists(&root, "/loop"));
	ck_assert(root_exists(&root, "/to-b"));
	ck_assert_int_eq(root_real(&root, "/to-b/../relative", real, sizeof(real)), 0);
	ck_assert_str_eq(real, "/file");
	ck_assert_int_eq(root_real(&root, "/", real, sizeof(real)), 0);
	ck_assert_str_eq(real, "/");
	ck_assert_int_eq(root_real(&root, "/to-b", real, 4), -ENAMETOOLONG);
	ck_assert_int_eq(root_real(&root, "/outside", real, sizeof(real)), -EXDEV);
	end();
	/* the machine itself */
	ck_assert_int_eq(root_open(&root, "/"), 0);
	ck_assert(root_exists(&root, "/proc/self/status"));
	ck_assert_int_eq(root_real(&root, "/proc/./sys", real, sizeof(real)), 0);
	ck_assert_str_eq(real, "/proc/sys");
}

static void long_names(void)
{
	char path[2 * ROOT_PATH];

	begin();
	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	fails(path, ENAMETOOLONG);
	for (size_t i = 0; i + 1 < ROOT_PATH; i += 2)
		memcpy(path + i, "/.", 2);
	path[ROOT_PATH - 1] = '\0';
	ck_assert(root_exists(&root, path));
	end();
}

static void no_files(void)
{
	char path[256], buf[16];
	struct dirent **names;

	begin();
	dir("d");
	snprintf(path, sizeof(path), "%s/fifo", top);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fails("/fifo", EINVAL);
	fails("/d", EINVAL);
	fails("/", EINVAL);
	ck_assert_int_eq(root_list(&root, "/fifo", &names), -ENOTDIR);
	ck_assert_int_eq(root_list(&root, "/none", &names), -ENOENT);
	ck_assert_int_eq(root_list(&root, "/d", &names), 0);
	root_list_free(names, 0);
	put("d/b", "");
	put("d/a", "");
	ck_assert_int_eq(root_list(&root, "/d", &names), 2);
	ck_assert_str_eq(names[0]->d_name, "a");
	ck_assert_str_eq(names[1]->d_name, "b");
	root_list_free(names, 2);
	is("/d/a", "");
	put("d/long", "0123456789abcdef0123456789");
	ck_assert_int_eq(root_text(&root, "/d/long", buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "0123456789abcde"); /* cut, and ended */
	if (geteuid()) {
		snprintf(path, sizeof(path), "%s/d/a", top);
		ck_assert_int_eq(chmod(path, 0), 0);
		fails("/d/a", EACCES);
	}
	end();
	ck_assert_int_eq(root_open(&root, "/nowhere/at/all"), -ENOENT);
	ck_assert_int_eq(root_open(&root, "/proc/version"), -ENOTDIR);
}

static void numbers(void)
{
	static const struct {
		const char *text;
		int rc;
		long long value;
	} rows[] = {
		{ "7\n", 0, 7 },      { "-1", 0, -1 },	    { "0x10de\n", 0, 0x10de },
		{ "", -EINVAL, 0 },   { "x", -EINVAL, 0 },  { "7 8", -EINVAL, 0 },
		{ "7x", -EINVAL, 0 }, { "0x", -EINVAL, 0 }, { "99999999999999999999", -EINVAL, 0 },
	};

	begin();
	for (size_t i = 0; i < COUNT(rows); i++) {
		long long v = 4711;

		put("n", rows[i].text);
		ck_assert_msg(root_number(&root, "/n", &v) == rows[i].rc, "\"%s\"", rows[i].text);
		ck_assert_int_eq(v, rows[i].rc ? 4711 : rows[i].value);
	}
	end();
}

/* NULs, as a device tree has them. */
static void nul_bytes(void)
{
	char path[256];
	int fd;

	begin();
	snprintf(path, sizeof(path), "%s/model", top);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_eq(write(fd, "one\0two\0\0", 9), 9);
	close(fd);
	is("/model", "one\ntwo");
	end();
}

static const struct unit_test tests[] = {
	{ "links", links, NULL },	  { "long_names", long_names, NULL },
	{ "no_files", no_files, NULL },	  { "numbers", numbers, NULL },
	{ "nul_bytes", nul_bytes, NULL },
};

UNIT_MAIN("doctor_root", tests)
