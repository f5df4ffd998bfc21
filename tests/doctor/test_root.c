/* SPDX-License-Identifier: MIT */
/*
 * Files below a root: nothing is opened that is no file, nothing is read beyond what fits, and
 * paths are those below the root.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/unit.h"
#include "doctor/doctor.h"

static char top[UNIT_DIR];
static struct root root;

static const char *below(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	return path;
}

/* A file of these bytes. */
static void put(const char *name, const char *bytes, size_t size)
{
	int fd = open(below(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_eq(write(fd, bytes, size), size);
	close(fd);
}

static void begin(void)
{
	unit_temp_dir(top);
	ck_assert_int_eq(root_open(&root, top), 0);
	ck_assert_int_eq(mkdir(below("d"), 0755), 0);
}

static void end(void)
{
	unit_remove_dir(top);
}

static void is(const char *path, const char *text)
{
	char buf[16];

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
	put("file", "at the top", 10);
	ck_assert_int_eq(symlink("../file", below("d/relative")), 0);
	ck_assert_int_eq(symlink("loop", below("loop")), 0);
	ck_assert_int_eq(symlink("/etc", below("outside")), 0);
	is("/d/relative", "at the top");
	fails("/loop", ELOOP);
	fails("/nothing", ENOENT);
	ck_assert(!root_exists(&root, "/etc/passwd"));
	ck_assert(!root_exists(&root, "/loop"));
	ck_assert(root_exists(&root, "/d/relative"));
	ck_assert_int_eq(root_real(&root, "/d/relative", real, sizeof(real)), 0);
	ck_assert_str_eq(real, "/file");
	ck_assert_int_eq(root_real(&root, "/", real, sizeof(real)), 0);
	ck_assert_str_eq(real, "/");
	ck_assert_int_eq(root_real(&root, "/file", real, 4), -ENAMETOOLONG);
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
	struct dirent **names;

	begin();
	ck_assert_int_eq(mkfifo(below("fifo"), 0600), 0);
	fails("/fifo", EINVAL);
	fails("/d", EINVAL);
	ck_assert_int_eq(root_list(&root, "/fifo", &names), -ENOTDIR);
	ck_assert_int_eq(root_list(&root, "/none", &names), -ENOENT);
	ck_assert_int_eq(root_list(&root, "/d", &names), 0);
	root_list_free(names, 0);
	put("d/b", "", 0);
	put("d/a", "", 0);
	ck_assert_int_eq(root_list(&root, "/d", &names), 2);
	ck_assert_str_eq(names[0]->d_name, "a");
	ck_assert_str_eq(names[1]->d_name, "b");
	root_list_free(names, 2);
	is("/d/a", "");
	put("d/long", "0123456789abcdef0123456789", 26);
	is("/d/long", "0123456789abcde"); /* cut, and ended */
	put("d/nuls", "one\0two\0\0", 9); /* as a device tree has them */
	is("/d/nuls", "one\ntwo");
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

		put("n", rows[i].text, strlen(rows[i].text));
		ck_assert_msg(root_number(&root, "/n", &v) == rows[i].rc, "\"%s\"", rows[i].text);
		ck_assert_int_eq(v, rows[i].rc ? 4711 : rows[i].value);
	}
	end();
}

static const struct unit_test tests[] = {
	{ "links", links, NULL },
	{ "long_names", long_names, NULL },
	{ "no_files", no_files, NULL },
	{ "numbers", numbers, NULL },
};

UNIT_MAIN("doctor_root", tests)
