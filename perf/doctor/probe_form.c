/* SPDX-License-Identifier: MIT */
/*
 * Probes as JSON, both ways, by one table per struct. Reading is strict: an unknown name, another
 * type, a text or list that is too long are refused. What is missing is zero. It must not know where
 * probes come from.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "common/json.h"
#include "doctor/json_read.h"
#include "doctor/probe.h"

#define MAX_FILE (4 << 20)

enum kind { TEXT, INT, BIG, BOOL, NUMBER, OBJECT, LIST };

struct field {
	const char *name;
	enum kind kind;
	size_t offset;
	size_t size; /* TEXT: room; LIST: of one element */
	const struct field *fields; /* OBJECT, LIST: ends with a NULL name */
	size_t count_offset; /* LIST: an int */
	size_t max; /* LIST */
};

#define FIELD(type, member, kind)                                                              \
	{                                                                                      \
#member, kind, offsetof(type, member), sizeof(((type *)0)->member), NULL, 0, 0 \
	}
#define ITEMS(type, member, count, fields)                                                     \
	{                                                                                      \
#member, LIST, offsetof(type, member), sizeof(((type *)0)->member[0]), fields, \
			offsetof(type, count),                                                 \
			sizeof(((type *)0)->member) / sizeof(((type *)0)->member[0])           \
	}
#define END                                  \
	{                                    \
		NULL, TEXT, 0, 0, NULL, 0, 0 \
	}

#define N(member, kind) FIELD(struct probe_node, member, kind)
static const struct field node_fields[] = { N(path, TEXT), N(exists, BOOL), N(mode, INT),
					    N(uid, INT),   N(gid, INT),	    N(major, INT),
					    N(minor, INT), N(error, INT),   END };
#undef N

#define L(member, kind) FIELD(struct probe_library, member, kind)
static const struct field library_fields[] = { L(name, TEXT), L(found, BOOL), L(path, TEXT),
					       L(error, TEXT), END };
#undef L

#define T(member, kind) FIELD(struct probe_trial, member, kind)
static const struct field trial_fields[] = {
	T(backend, TEXT),
	T(memory, TEXT),
	T(step, TEXT),
	T(error, INT),
	T(text, TEXT),
	T(mapping, TEXT),
	T(timed, BOOL),
	T(merged_ns, NUMBER),
	T(split_ns, NUMBER),
	T(pat_error, INT),
	T(pat_wc, INT),
	T(pat_uc, INT),
	END,
};
#undef T

#define G(member, kind) FIELD(struct probe_gpu, member, kind)
static const struct field gpu_fields[] = {
	G(ordinal, INT),
	G(name, TEXT),
	G(pci, TEXT),
	G(integrated, BOOL),
	G(cc_major, INT),
	G(cc_minor, INT),
	G(dmabuf, BOOL),
	G(mig, BOOL),
	G(vgpu, BOOL),
	G(context_error, TEXT),
	G(nvml_error, TEXT),
	G(bar1_total, BIG),
	G(bar1_used, BIG),
	G(bar1_free, BIG),
	G(memory, BIG),
	ITEMS(struct probe_gpu, trial, trials, trial_fields),
	END,
};
#undef G

#define E(member) FIELD(__typeof__(((struct probes *)0)->env), member, TEXT)
static const struct field env_fields[] = { E(backend),	    E(dmabuf_mmap),
					   E(visible),	    E(capabilities),
					   E(cuda_visible), E(container),
					   E(kubernetes),   END };
#undef E

#define P(member, kind) FIELD(struct probes, member, kind)
static const struct field probes_fields[] = {
	P(format, INT),
	P(stand_in, BOOL),
	P(date, TEXT),
	P(machine, TEXT),
	P(release, TEXT),
	P(euid, INT),
	P(hypervisor, BOOL),
	P(hypervisor_name, TEXT),
	P(cpus, TEXT),
	{ "env", OBJECT, offsetof(struct probes, env), 0, env_fields, 0, 0 },
	ITEMS(struct probes, library, libraries, library_fields),
	P(cuda_version, INT),
	P(init_code, INT),
	P(init_text, TEXT),
	P(cuda_failure, TEXT),
	ITEMS(struct probes, gpu, gpus, gpu_fields),
	P(nvml_error, TEXT),
	P(nvml_version, TEXT),
	P(confidential, BOOL),
	ITEMS(struct probes, node, nodes, node_fields),
	END,
};
#undef P

/* ---- writing --------------------------------------------------------------------------------- */

static void write_fields(struct json *j, const struct field *f, const void *from)
{
	for (; f->name; f++) {
		const char *p = (const char *)from + f->offset;
		int count = 0;

		switch (f->kind) {
		case TEXT:
			json_string(j, f->name, p);
			break;
		case INT:
			json_int(j, f->name, *(const int *)p);
			break;
		case BIG:
			json_int(j, f->name, *(const int64_t *)p);
			break;
		case BOOL:
			json_bool(j, f->name, *(const bool *)p);
			break;
		case NUMBER:
			json_number(j, f->name, *(const double *)p);
			break;
		case OBJECT:
			json_object(j, f->name);
			write_fields(j, f->fields, p);
			json_end(j);
			break;
		case LIST:
			memcpy(&count, (const char *)from + f->count_offset, sizeof(count));
			json_array(j, f->name);
			for (int i = 0; i < count; i++) {
				json_object(j, NULL);
				write_fields(j, f->fields, p + (size_t)i * f->size);
				json_end(j);
			}
			json_end(j);
			break;
		}
	}
}

void probes_record(const struct probes *p, FILE *out)
{
	struct json j;

	json_start(&j);
	write_fields(&j, probes_fields, p);
	json_finish(&j, out);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct problem {
	char *text;
	size_t size;
};

static int refuse(const struct problem *why, const struct jvalue *v, const char *what)
{
	snprintf(why->text, why->size, "line %d: \"%s\": %s", v->line, v->key ? v->key : "(list)",
		 what);
	return -EINVAL;
}

static int read_fields(const struct field *fields, const struct jvalue *object, void *to,
		       const struct problem *why);

static int read_list(const struct field *f, const struct jvalue *v, char *p, int *count,
		     const struct problem *why)
{
	int err;

	*count = 0;
	for (const struct jvalue *item = v->child; item; item = item->next) {
		if ((size_t)*count == f->max)
			return refuse(why, v, "too many");
		if (item->type != J_OBJECT)
			return refuse(why, item, "must be an object");
		err = read_fields(f->fields, item, p + (size_t)*count * f->size, why);
		if (err)
			return err;
		++*count;
	}
	return 0;
}

static int read_one(const struct field *f, const struct jvalue *v, void *to,
		    const struct problem *why)
{
	static const enum jtype wanted[] = {
		[TEXT] = J_STRING,   [INT] = J_INTEGER,	  [BIG] = J_INTEGER, [BOOL] = J_BOOL,
		[NUMBER] = J_NUMBER, [OBJECT] = J_OBJECT, [LIST] = J_ARRAY
	};
	char *p = (char *)to + f->offset;

	if (v->type != wanted[f->kind] && !(f->kind == NUMBER && v->type == J_INTEGER))
		return refuse(why, v, "not of the type that it has to be");
	switch (f->kind) {
	case TEXT:
		if (strlen(v->string) >= f->size)
			return refuse(why, v, "too long");
		strcpy(p, v->string);
		return 0;
	case INT:
		if (v->integer < INT32_MIN || v->integer > INT32_MAX)
			return refuse(why, v, "out of range");
		*(int *)(void *)p = (int)v->integer;
		return 0;
	case BIG:
		*(int64_t *)(void *)p = v->integer;
		return 0;
	case BOOL:
		*(bool *)p = v->boolean;
		return 0;
	case NUMBER:
		*(double *)(void *)p = v->number;
		return 0;
	case OBJECT:
		return read_fields(f->fields, v, p, why);
	case LIST:
		return read_list(f, v, p, (int *)(void *)((char *)to + f->count_offset), why);
	}
	return 0;
}

static int read_fields(const struct field *fields, const struct jvalue *object, void *to,
		       const struct problem *why)
{
	for (const struct jvalue *v = object->child; v; v = v->next) {
		const struct field *f = fields;
		int err;

		while (f->name && strcmp(f->name, v->key))
			f++;
		if (!f->name)
			return refuse(why, v, "there is no such entry");
		err = read_one(f, v, to, why);
		if (err)
			return err;
	}
	return 0;
}

static int parse(const char *text, size_t size, struct probes *p, char *why, size_t why_size)
{
	const struct problem problem = { why, why_size };
	struct jvalue *root = json_read(text, size, why, why_size);
	int err;

	if (!root)
		return -EINVAL;
	if (root->type != J_OBJECT) {
		snprintf(why, why_size, "line 1: an object must come here");
		err = -EINVAL;
	} else {
		err = read_fields(probes_fields, root, p, &problem);
	}
	if (!err && p->format != 1) {
		snprintf(why, why_size, "\"format\" is %d, this tool reads 1", p->format);
		err = -EINVAL;
	}
	json_read_free(root);
	return err;
}

struct probes *probes_replay(const char *path, char *why, size_t why_size)
{
	struct probes *p;
	char *text;
	size_t size;
	FILE *f = fopen(path, "re");
	int err = 0;

	if (!f) {
		snprintf(why, why_size, "%s", strerror(errno));
		return NULL;
	}
	text = tool_calloc(MAX_FILE, 1);
	size = fread(text, 1, MAX_FILE, f);
	if (ferror(f)) {
		snprintf(why, why_size, "%s", strerror(errno));
		err = -EIO;
	} else if (size == MAX_FILE) {
		snprintf(why, why_size, "larger than %d MiB", MAX_FILE >> 20);
		err = -EFBIG;
	}
	fclose(f);
	p = tool_calloc(1, sizeof(*p));
	if (!err)
		err = parse(text, size, p, why, why_size);
	free(text);
	if (!err)
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
