/* SPDX-License-Identifier: MIT */
/*
 * A small strict JSON reader (RFC 8259): the whole text becomes a tree. Refused, with the line: what
 * the RFC does not allow, text behind the value, nesting deeper than JSON_READ_DEPTH, a name twice in
 * one object, strings with a NUL or that are not UTF-8. It must not know what is read.
 */
#ifndef DOCTOR_JSON_READ_H
#define DOCTOR_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_READ_DEPTH 32

enum jtype { J_NULL, J_BOOL, J_INTEGER, J_NUMBER, J_STRING, J_ARRAY, J_OBJECT };

struct jvalue {
	enum jtype type;
	int line;
	char *key; /* in an object; else NULL */
	bool boolean;
	int64_t integer; /* J_INTEGER: without fraction and exponent, and within 64 bits */
	double number; /* J_INTEGER too */
	char *string;
	struct jvalue *child; /* J_ARRAY, J_OBJECT: the first */
	struct jvalue *next; /* of the same array or object */
};

/* The tree, or NULL and the cause ("line 3: ...") in `why`. */
struct jvalue *json_read(const char *text, size_t size, char *why, size_t why_size);
void json_read_free(struct jvalue *value);

/* The member of that name, or NULL. */
const struct jvalue *json_member(const struct jvalue *object, const char *key);

#endif
