/* SPDX-License-Identifier: MIT */
/*
 * Copies what root.c has read into the directory r->copy, so that it becomes a root that shows the
 * same machine. Where r->copy is NULL, each does nothing; a failure is said once and ends the
 * copying. It must not read anything of the machine itself.
 */
#ifndef DOCTOR_ROOT_COPY_H
#define DOCTOR_ROOT_COPY_H

#include "doctor/root.h"

/* Names are relative to the root's top. */
void root_copy_file(struct root *r, const char *name, const void *bytes, size_t size);
void root_copy_link(struct root *r, const char *name, const char *target);
void root_copy_name(struct root *r, const char *name, bool directory); /* that it exists */
void root_copy_closed(struct root *r, const char *name); /* that it may not be read */

#endif
