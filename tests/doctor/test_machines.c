/* SPDX-License-Identifier: MIT */
/*
 * The doctor on described machines: it reads files below a root and takes the rest from a file of
 * probes. `test_doctor_machines ROOT PROBES [json]` prints its report and ends with its status, for
 * reports.sh. Without arguments: the test of a machine of which nothing is known.
 *
 * A line of such a file is a name of struct probes and its value. An element of a list is one line:
 * the list's name, then members and their values, all separated by two spaces; a list inside it is
 * indented by two more.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "common/unit.h"
#include "doctor/doctor.h"

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
	F(probes, date, TEXT), F(probes, machine, TEXT),
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

enum { DEPTH = 2 };

struct level {
	const struct field *fields;
	char *base;
};

/* NULL, or the value's fault. */
static const char *set(const struct field *f, char *p, const char *value)
{
	long long v;
	char *end;

	if (f->kind == TEXT) {
		if (strlen(value) >= f->size)
			return "too long";
		strcpy(p, value);
		return NULL;
	}
	if (f->kind == BOOL) {
		*(bool *)p = !strcmp(value, "yes");
		return *(bool *)p ? NULL : "can only be \"yes\"";
	}
	errno = 0;
	v = strtoll(value, &end, 0);
	if (!*value || *end)
		return "not a number";
	if (errno || (f->size == sizeof(int) && v != (int)v))
		return "out of range";
	if (f->size == sizeof(int))
		*(int *)(void *)p = (int)v;
	else
		*(int64_t *)(void *)p = v;
	return NULL;
}

/* "name value", or the name of a list: its new element is *fields and *base. NULL, or the fault. */
static const char *read_entry(const struct field **fields, char **base, char *entry)
{
	char *value = entry;
	const struct field *f;
	int *count;

	strsep(&value, " ");
	for (f = *fields; f->name && strcmp(f->name, entry);)
		f++;
	if (!f->name)
		return "there is no such entry";
	if (f->kind != LIST)
		return set(f, *base + f->offset, value ? value : "");
	count = (int *)(void *)(*base + f->count_offset);
	if (value)
		return "takes no value";
	if (*count == f->max)
		return "too many";
	*base += f->offset + (size_t)(*count)++ * f->size;
	*fields = f->fields;
	return NULL;
}

/* `level` has what the lines above have opened; the line's indentation says where it belongs. */
static const char *read_line(struct level *level, char *line)
{
	size_t depth = strspn(line, " ") / 2;
	const char *wrong = NULL;
	struct level l;

	if (depth >= DEPTH || !level[depth].fields)
		return "indented wrongly";
	l = level[depth];
	for (line += 2 * depth; line && !wrong;) {
		char *end = strstr(line, "  ");

		if (end)
			*end = '\0';
		wrong = read_entry(&l.fields, &l.base, line);
		line = end ? end + 2 : NULL;
	}
	if (depth + 1 < DEPTH)
		level[depth + 1] = l;
	return wrong;
}

static struct probes *replay(const char *path)
{
	struct probes *p = tool_calloc(1, sizeof(*p));
	struct level level[DEPTH] = { { probes_fields, (char *)p } };
	char line[2 * PROBE_TEXT];
	const char *wrong = NULL;
	FILE *f = fopen(path, "re");
	int number = 0;

	while (f && !wrong && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		number++;
		wrong = read_line(level, line);
	}
	if (!f || wrong)
		tool_fail("%s:%d: %s", path, number, f ? wrong : strerror(errno));
	fclose(f);
	return p;
}

static enum answer report(const char *dir, const struct probes *p, bool json, FILE *out)
{
	static struct machine m;
	struct report r = { 0 };
	struct verdict v;
	struct root root;

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

int main(int argc, char **argv)
{
	static const struct unit_test tests[] = { { "nothing", nothing, NULL } };

	tool_name = "gdrcopy_doctor"; /* in the JSON document */
	if (argc > 2)
		return (int)report(argv[1], replay(argv[2]), argc > 3, stdout);
	return unit_main(argv, "doctor_machines", tests, COUNT(tests));
}
