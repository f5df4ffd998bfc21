/* SPDX-License-Identifier: MIT */
/* The two forms of a report. They must not know how anything was found out. */
#ifndef DOCTOR_PRINT_H
#define DOCTOR_PRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "doctor/machine.h"
#include "doctor/verdict.h"

/* For people. Bytes that are no printable ASCII come out as "?", so that no file can steer a
 * terminal. */
void print_text(const struct machine *m, const struct report *r, const struct verdict *v,
		bool colour, FILE *out);

/* One JSON document. */
void print_json(const struct machine *m, const struct report *r, const struct verdict *v,
		FILE *out);

/* What --p2p-capability shows. */
void print_capability(unsigned int clique, bool json, FILE *out);

#endif
