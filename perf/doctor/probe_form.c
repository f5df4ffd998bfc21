/* SPDX-License-Identifier: MIT */
/*
 * Probes from a file, as tests have them, by one table per struct: a line is a name and its value; an element of a
 * list is a line of its name alone, and its own lines follow, two columns further in. '#' begins a
 * comment line. Reading is strict: an unknown name, a value of another type, a text or list that is
 * too long are refused. It must not know where probes come from.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "doctor/probe.h"

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
	F(probes, format, INT), F(probes, date, TEXT), F(probes, machine, TEXT),
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

struct level {
	const struct field *fields;
	char *base;
};

/* NULL, or what is wrong with the value. */
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

static const char *read_line(struct level level[], size_t *depth, char *line)
{
	size_t indent = strspn(line, " ");
	char *name = line + indent, *value = name;
	const struct field *f;
	int *count;

	if (!*name || *name == '#')
		return NULL;
	if (indent % 2 || indent / 2 > *depth)
		return "indented wrongly";
	*depth = indent / 2;
	strsep(&value, " ");
	for (f = level[*depth].fields; f->name && strcmp(f->name, name);)
		f++;
	if (!f->name)
		return "there is no such entry";
	if (f->kind != LIST)
		return set(f, level[*depth].base + f->offset, value ? value : "");
	count = (int *)(void *)(level[*depth].base + f->count_offset);
	if (value)
		return "takes no value";
	if (*count == f->max)
		return "too many";
	level[*depth + 1].fields = f->fields;
	level[*depth + 1].base = level[*depth].base + f->offset + (size_t)(*count)++ * f->size;
	++*depth;
	return NULL;
}

struct probes *probes_replay(const char *path, char *why, size_t why_size)
{
	struct probes *p = tool_calloc(1, sizeof(*p));
	struct level level[4] = { { probes_fields, (char *)p } };
	char line[2 * PROBE_TEXT];
	const char *wrong = NULL;
	size_t depth = 0;
	FILE *f = fopen(path, "re");
	int number = 0;

	why[0] = '\0';
	while (f && !wrong && fgets(line, sizeof(line), f)) {
		char *end = strchr(line, '\n');

		number++;
		if (!end && !feof(f))
			wrong = strlen(line) + 1 == sizeof(line) ? "too long" : "has a zero byte";
		else if (end)
			*end = '\0';
		if (!wrong)
			wrong = read_line(level, &depth, line);
	}
	if (!f || ferror(f))
		snprintf(why, why_size, "%s", strerror(errno));
	else if (wrong)
		snprintf(why, why_size, "line %d: \"%.40s\": %s", number, line + strspn(line, " "),
			 wrong);
	else if (p->format != PROBE_FORMAT)
		snprintf(why, why_size, "\"format\" is %d, this tool reads %d", p->format,
			 PROBE_FORMAT);
	if (f)
		fclose(f);
	if (!why[0])
		return p;
	free(p);
	return NULL;
}

const struct probe_node *probes_node(const struct probes *p, const char *path)
{
	for (int i = 0; i < p->nodes; i++)
		if (!strcmp(p->node[i].path, path))
			return &p->node[i];
	return NULL;
}

const struct probe_library *probes_library(const struct probes *p, const char *name)
{
	for (int i = 0; i < p->libraries; i++)
		if (!strcmp(p->library[i].name, name))
			return &p->library[i];
	return NULL;
}
