/* SPDX-License-Identifier: MIT */
/*
 * The parts of gdrcopy_doctor: its reads of files, and what it concludes of lists of CPUs. And all
 * of it on a described machine, for machines.py: `test_doctor ROOT [json]
 * <PROBES` reads files below ROOT, takes the rest from its input, prints the report and ends with its
 * status. A line of the input is the path of a member of struct probes, and its value:
 * "gpu/1/trial/0/step done". `test_doctor probes` prints what the probes find here, for test_doctor.sh.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit.h"
#include "common/unit.h"
#include "doctor/doctor.h"

/* ---- files below a root: nothing is opened that is no file, nothing is read beyond what fits ---- */

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
	char name[16];

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
	ck_assert_int_eq(root_link(&root, "/d/relative", name, sizeof(name)), 0);
	ck_assert_str_eq(name, "file");
	ck_assert_int_eq(root_link(&root, "/outside", name, 3), 0);
	ck_assert_str_eq(name, "et");
	ck_assert_int_eq(root_link(&root, "/file", name, sizeof(name)), -EINVAL);
	ck_assert_str_eq(name, "");
	end();
	/* the machine itself */
	ck_assert_int_eq(root_open(&root, "/"), 0);
	ck_assert(root_exists(&root, "/proc/self/status"));
}

static void long_names(void)
{
	char path[2 * ROOT_PATH], target[16];
	struct dirent **names;

	begin();
	put("file", "", 0);
	for (size_t i = 0; i + 1 < sizeof(path); i += 2)
		memcpy(path + i, "/.", 2);
	strcpy(path + ROOT_PATH - strlen("/file"), "/file");
	fails(path, ENAMETOOLONG);
	ck_assert(!root_exists(&root, path));
	ck_assert_int_eq(root_link(&root, path, target, sizeof(target)), -ENAMETOOLONG);
	ck_assert_int_eq(root_list(&root, path, &names), -ENAMETOOLONG);
	is(path + 2, "");
	path[ROOT_PATH - strlen("/file")] = '\0';
	ck_assert_int_eq(root_list(&root, path, &names), 2);
	root_list_free(names, 2);
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

/* ---- conclusions ------------------------------------------------------------------------ */

static void cpus(void)
{
	static const struct {
		const char *a, *b;
		long common;
	} rows[] = {
		{ "", "", 0 },
		{ "0", "0", 1 },
		{ "0-3", "2-5", 2 },
		{ "0-3,8,10-11", "8-10", 2 },
		{ "0-55,112-167", "56-111", 0 },
		{ "0-99999999", "0-99999999", 8192 },
		{ "8191-8192", "8191", 1 },
		{ "3-1", "0-5", 0 },
		{ "0-", "0-5", 1 },
		{ "x", "0-5", 0 },
		{ "0-5", "99999999999999999999", 0 },
		{ "4-7,2\n", "0-4", 2 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		ck_assert_msg(cpus_common(rows[i].a, rows[i].b) == rows[i].common, "%s, %s",
			      rows[i].a, rows[i].b);
		ck_assert_int_eq(cpus_common(rows[i].b, rows[i].a), rows[i].common);
	}
}

/* ---- described machines ----------------------------------------------------------------- */

enum kind { TEXT, INT, BOOL, LIST };

struct field {
	const char *name;
	enum kind kind;
	size_t offset;
	size_t size; /* of the member; LIST: of one element */
	const struct field *fields; /* LIST: ends with a NULL name */
	size_t count_offset; /* LIST: an int */
	int max; /* LIST */
};

/* clang-format off */
#define F(type, member, kind) \
	{ #member, kind, offsetof(struct type, member), sizeof(((struct type *)0)->member), NULL, 0, 0 }
#define ITEMS(type, member, count, fields) \
	{ #member, LIST, offsetof(struct type, member), sizeof(((struct type *)0)->member[0]), fields, \
	  offsetof(struct type, count), \
	  sizeof(((struct type *)0)->member) / sizeof(((struct type *)0)->member[0]) }
#define END { NULL, TEXT, 0, 0, NULL, 0, 0 }

static const struct field node_fields[] = {
	F(probe_node, path, TEXT), F(probe_node, exists, BOOL), F(probe_node, mode, INT),
	F(probe_node, uid, INT), F(probe_node, gid, INT), F(probe_node, major, INT),
	F(probe_node, minor, INT), F(probe_node, error, INT), END
}, library_fields[] = {
	F(probe_library, name, TEXT), F(probe_library, found, BOOL), F(probe_library, path, TEXT),
	F(probe_library, error, TEXT), END
}, trial_fields[] = {
	F(probe_trial, backend, TEXT), F(probe_trial, memory, TEXT), F(probe_trial, step, TEXT),
	F(probe_trial, error, INT), F(probe_trial, text, TEXT), F(probe_trial, mapping, TEXT), END
}, gpu_fields[] = {
	F(probe_gpu, ordinal, INT), F(probe_gpu, name, TEXT), F(probe_gpu, pci, TEXT),
	F(probe_gpu, integrated, BOOL), F(probe_gpu, dmabuf, BOOL),
	F(probe_gpu, context_error, TEXT), F(probe_gpu, nvml_error, TEXT),
	F(probe_gpu, bar1_total, INT), F(probe_gpu, bar1_used, INT), F(probe_gpu, bar1_free, INT),
	F(probe_gpu, memory, INT), ITEMS(probe_gpu, trial, trials, trial_fields), END
}, probes_fields[] = {
	F(probes, stand_in, BOOL), F(probes, date, TEXT), F(probes, machine, TEXT),
	F(probes, release, TEXT), F(probes, euid, INT), F(probes, hypervisor, TEXT),
	F(probes, cpus, TEXT), F(probes, env.backend, TEXT), F(probes, env.dmabuf_mmap, TEXT),
	F(probes, env.visible, TEXT), F(probes, env.cuda_visible, TEXT),
	F(probes, env.container, TEXT), F(probes, env.kubernetes, TEXT),
	ITEMS(probes, library, libraries, library_fields), F(probes, cuda_version, INT),
	F(probes, init_code, INT), F(probes, init_text, TEXT), F(probes, cuda_failure, TEXT),
	ITEMS(probes, gpu, gpus, gpu_fields), F(probes, nvml_error, TEXT),
	F(probes, confidential, BOOL), ITEMS(probes, node, nodes, node_fields), END
};
/* clang-format on */

static void set(const struct field *f, char *p, const char *value)
{
	char *end = NULL;
	long long v;

	errno = 0;
	v = strtoll(value, &end, 0);
	if (f->kind == TEXT && strlen(value) < f->size)
		strcpy(p, value);
	else if (f->kind == BOOL && !strcmp(value, "yes"))
		*(bool *)p = true;
	else if (f->kind != INT || !*value || *end || errno || (f->size == 4 && v != (int)v))
		tool_fail("%s: bad value \"%s\"", f->name, value);
	else if (f->size == 4)
		*(int *)(void *)p = (int)v;
	else
		*(int64_t *)(void *)p = v;
}

static void read_line(char *p, char *line)
{
	const struct field *f = NULL, *fields = probes_fields;
	char *path = line, *word, *value = line;

	for (strsep(&value, " "); (word = strsep(&path, "/")); fields = f->fields) {
		for (f = fields; f && f->name && strcmp(f->name, word);)
			f++;
		if (!f || !f->name)
			tool_fail("there is no entry \"%s\"", word);
		p += f->offset;
		if (f->kind == LIST) {
			int index = path ? atoi(strsep(&path, "/")) : f->max;
			int *count = (int *)(void *)(p - f->offset + f->count_offset);

			if (index >= f->max)
				tool_fail("%s: too many", f->name);
			*count = index < *count ? *count : index + 1;
			p += (size_t)index * f->size;
		}
	}
	set(f, p, value ? value : "");
}

static struct probes *replay(FILE *in)
{
	struct probes *p = tool_calloc(1, sizeof(*p));
	char line[2 * PROBE_TEXT];

	while (fgets(line, sizeof(line), in)) {
		line[strcspn(line, "\n")] = '\0';
		read_line((char *)p, line);
	}
	return p;
}

static enum answer report(const char *dir, const struct probes *p, bool json, FILE *out)
{
	static struct machine m;
	struct report r = { 0 };
	struct verdict v;

	if (root_open(&root, dir))
		tool_fail("%s: no directory", dir);
	machine_collect(&m, &root, p);
	subjects_check(&m, &r);
	verdict_reach(&v, &m, &r);
	(json ? print_json : print_text)(&m, &r, &v, out);
	report_end(&r);
	return v.answer;
}

/* No files, no answers of libraries. */
static void nothing(void)
{
	static const struct probes none;
	char dir[UNIT_DIR], *words = NULL;
	size_t size;
	FILE *out = open_memstream(&words, &size);

	unit_temp_dir(dir);
	ck_assert_int_eq(report(dir, &none, false, out), ANSWER_NO);
	fclose(out);
	ck_assert_ptr_nonnull(strstr(words, "unknown  the PCI bus cannot be seen"));
	ck_assert_ptr_nonnull(strstr(words, "the PCI bus is not visible here."));
	free(words);
	unit_remove_dir(dir);
}

static const struct unit_test tests[] = {
	{ "links", links, NULL },	{ "long_names", long_names, NULL },
	{ "no_files", no_files, NULL }, { "numbers", numbers, NULL },
	{ "cpus", cpus, NULL },		{ "nothing", nothing, NULL },
};

static long long number(const char *at, size_t size)
{
	return size == 4 ? *(const int *)(const void *)at : *(const int64_t *)(const void *)at;
}

/* What the probes find: a line for each element of a list, with its members that are not 0. */
static void show(const struct field *fields, const char *p, const char *name)
{
	fputs(name, stdout);
	for (const struct field *f = fields; f->name; f++) {
		const char *at = p + f->offset;
		bool text = f->kind == TEXT || f->kind == BOOL;
		long long v = text		? *at
			      : f->kind == LIST ? number(p + f->count_offset, 4)
						: number(at, f->size);

		if (v && text)
			printf("  %s %s", f->name, f->kind == TEXT ? at : "yes");
		else if (v)
			printf(strcmp(f->name, "mode") ? "  %s %lld" : "  %s %#llo", f->name, v);
	}
	putchar('\n');
	for (const struct field *f = fields; f->name; f++)
		for (int i = 0; f->kind == LIST && i < number(p + f->count_offset, 4); i++)
			show(f->fields, p + f->offset + (size_t)i * f->size, f->name);
}

int main(int argc, char **argv)
{
	tool_name = "gdrcopy_doctor"; /* in the JSON document */
	if (argc > 1 && !strcmp(argv[1], "probes")) {
		int before = dup(STDOUT_FILENO), after; /* the lowest free descriptor */
		struct rlimit own, limit;

		close(before);
		getrlimit(RLIMIT_NOFILE, &own);
		show(probes_fields, (const char *)probes_make(), "probes");
		after = dup(STDOUT_FILENO);
		if (after != before)
			printf("descriptor %d is left open\n", before);
		getrlimit(RLIMIT_NOFILE, &limit);
		if (limit.rlim_cur != own.rlim_cur)
			printf("the limit of descriptors is %d\n", (int)limit.rlim_cur);
		return 0;
	}
	if (argc > 1 && strchr(argv[1], '/'))
		return (int)report(argv[1], replay(stdin), argc > 2, stdout);
	return unit_main(argv, "doctor", tests, COUNT(tests));
}
