/* SPDX-License-Identifier: MIT */
/*
 * The subjects, one file each: collect() turns files into facts (machine.h), check() turns facts into
 * findings (report.h). All facts are collected before the first check, so that a check may use those of
 * other subjects; a check reads no file, and no subject calls another.
 */
#ifndef DOCTOR_SUBJECTS_H
#define DOCTOR_SUBJECTS_H

#include "doctor/machine.h"
#include "doctor/report.h"

struct subject {
	const char *name, *title;
	void (*collect)(struct machine *m); /* NULL: it needs only other subjects' facts */
	void (*check)(const struct machine *m, struct report *r);
};
extern const struct subject subject_gpus, subject_driver, subject_host, subject_backends,
	subject_gdrdrv, subject_bar1, subject_places;

/* subjects.c: all, in the order of the report; ends with NULL. */
extern const struct subject *const subjects[];
void subjects_collect(struct machine *m);
void subjects_check(const struct machine *m, struct report *r);

/* machine.c: why a node that exists cannot be opened, and what to do about it. */
const char *node_means(const struct machine *m, const struct probe_node *n);
const char *node_todo(const struct machine *m, const struct probe_node *n);
/* backends.c: the known obstacle of rm for cudaMalloc memory of that GPU; NULL: none. */
struct obstacle {
	const char *means, *todo;
	bool on_host; /* in a container: only the host can remove it */
};
const struct obstacle *rm_obstacle(const struct machine *m, const struct unit *u);
/* places.c: how many CPUs two lists ("0-15,32") have in common. */
long cpus_common(const char *a, const char *b);

/* verdict.c: the answer in plain words, and what to do first. */
enum { VERDICT_NEXT = 6 };
struct verdict {
	enum answer answer;
	const char *words;
	const char *next[VERDICT_NEXT]; /* the most urgent first */
	size_t nexts;
};
void verdict_reach(struct verdict *v, const struct machine *m, const struct report *r);

/* print.c: for people, where no byte of a file can control the terminal; as one JSON document. */
void print_text(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);
void print_json(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);

#endif
