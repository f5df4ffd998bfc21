/* SPDX-License-Identifier: MIT */
/*
 * The subjects, one file each: what collects its facts (machine.h), and the check that turns facts into
 * findings (report.h). All facts are there before the first check runs, so that a check may use those
 * of other subjects; a check reads no file, and no subject calls another.
 */
#ifndef DOCTOR_SUBJECTS_H
#define DOCTOR_SUBJECTS_H

#include "doctor/machine.h"
#include "doctor/report.h"

struct subject {
	const char *name, *title;
	void (*collect)(struct machine *m); /* NULL: other subjects' facts are enough */
	void (*check)(const struct machine *m, struct report *r);
};
extern const struct subject subject_gpus, subject_driver, subject_host, subject_backends,
	subject_gdrdrv, subject_bar1, subject_places;

/* subjects.c: all, in the order of the report; ends with NULL. */
extern const struct subject *const subjects[];
void subjects_collect(struct machine *m);
void subjects_check(const struct machine *m, struct report *r);

/* nodes.c: why a node that exists cannot be opened, and what to do about it; false: it opens. */
bool node_refused(const struct machine *m, const struct probe_node *n, const char **means,
		  const char **todo);
/* backends.c: what is known to keep rm from memory of cudaMalloc there; NULL: nothing. */
struct obstacle {
	const char *means, *todo;
	bool on_host; /* in a container: nothing to be done inside */
};
const struct obstacle *rm_obstacle(const struct machine *m, const struct unit *u);
/* places.c: how many CPUs two lists ("0-15,32") have in common. */
long cpus_common(const char *a, const char *b);

#endif
