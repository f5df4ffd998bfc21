/* SPDX-License-Identifier: MIT */
/*
 * Files below a root: links never lead out of it, nothing is opened that is no file, and a copy of
 * what was read is such a root again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/unit.h"
#include "doctor/root.h"

static char top[64];
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
	snprintf(top, sizeof(top), "/tmp/doctor-root-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
	ck_assert_int_eq(root_open(&root, top), 0);
}

static void end(void)
{
	char command[128];

	root_close(&root);
	snprintf(command, sizeof(command), "rm -rf %s", top);
	ck_assert_int_eq(system(command), 0);
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
	link_to("/file", "a/b/absolute");
	link_to("../../../../../file", "a/b/beyond");
	link_to("../a", "a/self");
	link_to("loop", "loop");
	link_to("pong", "ping");
	link_to("ping", "pong");
	link_to("nowhere", "dangling");
	link_to("/a/b", "to-b");
	is("/a/file", "in a");
	is("a//./file", "in a");
	is("/a/relative", "at the top");
	is("/a/b/absolute", "at the top");
	is("/a/b/beyond", "at the top");
	is("/../../file", "at the top");
	is("/to-b/../file", "in a"); /* ".." behind the link, as the kernel has it */
	is("/a/self/self/self/file", "in a");
	fails("/loop", ELOOP);
	fails("/ping", ELOOP);
	fails("/dangling", ENOENT);
	fails("/nothing", ENOENT);
	fails("/file/below", ENOTDIR);
	ck_assert(!root_exists(&root, "/etc/passwd"));
	ck_assert(!root_exists(&root, "/loop"));
	ck_assert(root_exists(&root, "/to-b"));
	ck_assert_int_eq(root_real(&root, "/to-b/absolute", real, sizeof(real)), 0);
	ck_assert_str_eq(real, "/file");
	ck_assert_int_eq(root_real(&root, "/", real, sizeof(real)), 0);
	ck_assert_str_eq(real, "/");
	ck_assert_int_eq(root_real(&root, "/to-b", real, 4), -ENAMETOOLONG);
	end();
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
	/* two links whose texts together are too long */
	memset(path, 'b', ROOT_PATH - 10);
	path[ROOT_PATH - 10] = '\0';
	for (size_t i = 100; i < ROOT_PATH - 10; i += 100)
		path[i] = '/';
	link_to(path, "long");
	memset(path, '\0', sizeof(path));
	strcpy(path, "/long/");
	memset(path + 6, 'c', 200);
	fails(path, ENAMETOOLONG);
	end();
}

static void no_files(void)
{
	char path[128], buf[16];
	struct root_names names;

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
	ck_assert_uint_eq(names.count, 0);
	root_names_free(&names);
	put("d/b", "");
	put("d/a", "");
	ck_assert_int_eq(root_list(&root, "/d", &names), 0);
	ck_assert_uint_eq(names.count, 2);
	ck_assert_str_eq(names.name[0], "a");
	ck_assert_str_eq(names.name[1], "b");
	root_names_free(&names);
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
	ck_assert_int_eq(root_open(&root, "/proc/self/stat"), -ENOTDIR);
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
	char path[128];
	int fd;

	begin();
	snprintf(path, sizeof(path), "%s/model", top);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_eq(write(fd, "one\0two\0\0", 9), 9);
	close(fd);
	is("/model", "one\ntwo");
	end();
}

static void copies(void)
{
	char copy[sizeof(top) + 8];
	struct root_names names;

	begin();
	dir("sys");
	dir("sys/real");
	put("sys/real/file", "text");
	put("sys/real/other", "not read");
	link_to("real", "sys/link");
	snprintf(copy, sizeof(copy), "%s-copy", top);
	ck_assert_int_eq(mkdir(copy, 0755), 0);
	root.copy = copy;
	is("/sys/link/file", "text");
	ck_assert_int_eq(root_list(&root, "/sys", &names), 0);
	root_names_free(&names);
	ck_assert(root_exists(&root, "/sys/real"));
	ck_assert(!root.copy_failed);
	end();

	ck_assert_int_eq(root_open(&root, copy), 0);
	is("/sys/link/file", "text");
	is("/sys/real/file", "text");
	fails("/sys/real/other", ENOENT);
	/* no directory to copy into: said once, and the reading goes on */
	root.copy = "/proc/nowhere";
	is("/sys/link/file", "text");
	ck_assert(root.copy_failed);
	is("/sys/link/file", "text");
	root_close(&root);
	snprintf(top, sizeof(top), "%.63s", copy);
	ck_assert_int_eq(root_open(&root, copy), 0);
	end();
}

static const struct unit_test tests[] = {
	{ "links", links, NULL },	  { "long_names", long_names, NULL },
	{ "no_files", no_files, NULL },	  { "numbers", numbers, NULL },
	{ "nul_bytes", nul_bytes, NULL }, { "copies", copies, NULL },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "doctor_root", tests, COUNT(tests));
}
