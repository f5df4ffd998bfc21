/* SPDX-License-Identifier: MIT */
/* A small strict JSON reader; see json_read.h. */
#include "doctor/json_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	const char *at, *end;
	int line, depth;
	const char *error; /* the first one */
};

static bool fail(struct reader *r, const char *error)
{
	if (!r->error)
		r->error = error;
	return false;
}

static int peek(const struct reader *r)
{
	return r->at < r->end ? (unsigned char)*r->at : -1;
}

static void skip_space(struct reader *r)
{
	while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at) {
		if (*r->at == '\n')
			r->line++;
		r->at++;
	}
}

static bool take(struct reader *r, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n))
		return false;
	r->at += n;
	return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

static bool hex4(struct reader *r, uint32_t *v)
{
	*v = 0;
	for (int i = 0; i < 4; i++) {
		int c = peek(r), d;

		if (c >= '0' && c <= '9')
			d = c - '0';
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			d = (c | 32) - 'a' + 10;
		else
			return fail(r, "four hexadecimal digits must follow \\u");
		*v = *v << 4 | (uint32_t)d;
		r->at++;
	}
	return true;
}

static char *put_utf8(char *out, uint32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 63));
		*out++ = (char)(0x80 | (c & 63));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 63));
		*out++ = (char)(0x80 | (c >> 6 & 63));
		*out++ = (char)(0x80 | (c & 63));
	}
	return out;
}

/* Behind a backslash. An escape is never shorter than the bytes that it stands for. */
static bool escape(struct reader *r, char **out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	int c = peek(r);
	const char *p = c > 0 ? strchr(from, c) : NULL;
	uint32_t v, low;

	if (p) {
		*(*out)++ = to[p - from];
		r->at++;
		return true;
	}
	if (c != 'u')
		return fail(r, "unknown escape in a string");
	r->at++;
	if (!hex4(r, &v))
		return false;
	if (v >= 0xd800 && v < 0xdc00) {
		if (!take(r, "\\u"))
			return fail(r, "half a surrogate pair");
		if (!hex4(r, &low))
			return false;
		if (low < 0xdc00 || low > 0xdfff)
			return fail(r, "half a surrogate pair");
		v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
	} else if (v >= 0xdc00 && v < 0xe000) {
		return fail(r, "half a surrogate pair");
	}
	if (!v)
		return fail(r, "a NUL in a string");
	*out = put_utf8(*out, v);
	return true;
}

/* Copies one well-formed UTF-8 sequence (RFC 3629): no overlong form, no surrogate. */
static bool utf8(struct reader *r, char **out)
{
	unsigned char c = (unsigned char)*r->at;
	int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : (c & 0xf0) == 0xe0 ? 2 : 3;
	uint32_t v = c & (0x3f >> more);

	if ((c >= 0x80 && c < 0xc2) || c > 0xf4 || r->end - r->at <= more)
		return fail(r, "a string that is not UTF-8");
	for (int i = 1; i <= more; i++) {
		unsigned char b = (unsigned char)r->at[i];

		if ((b & 0xc0) != 0x80)
			return fail(r, "a string that is not UTF-8");
		v = v << 6 | (b & 0x3f);
	}
	if ((more == 2 && (v < 0x800 || (v >= 0xd800 && v < 0xe000))) ||
	    (more == 3 && (v < 0x10000 || v > 0x10ffff)))
		return fail(r, "a string that is not UTF-8");
	memcpy(*out, r->at, (size_t)more + 1);
	*out += more + 1;
	r->at += more + 1;
	return true;
}

/* A string, NUL-terminated, the caller's to free; NULL on error. */
static char *string(struct reader *r)
{
	const char *p = r->at + 1;
	char *text, *out;

	/* room: up to the closing quote; a backslash hides the byte behind it */
	while (p < r->end && *p != '"')
		p += *p == '\\' && p + 1 < r->end ? 2 : 1;
	if (p >= r->end) {
		fail(r, "a string without an end");
		return NULL;
	}
	text = out = malloc((size_t)(p - r->at));
	if (!text) {
		fail(r, "out of memory");
		return NULL;
	}
	r->at++;
	while (r->at < p) {
		if (*r->at == '\\') {
			r->at++;
			if (!escape(r, &out))
				break;
		} else if ((unsigned char)*r->at < 0x20) {
			fail(r, "a control character in a string");
			break;
		} else if (!utf8(r, &out)) {
			break;
		}
	}
	if (r->error || r->at != p) {
		fail(r, "a string without an end");
		free(text);
		return NULL;
	}
	*out = '\0';
	r->at++;
	return text;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool digits(struct reader *r)
{
	const char *start = r->at;

	while (peek(r) >= '0' && peek(r) <= '9')
		r->at++;
	return r->at > start;
}

static bool number(struct reader *r, struct jvalue *v)
{
	const char *start = r->at;
	bool whole = true;
	char text[64];
	size_t n;

	if (peek(r) == '-')
		r->at++;
	if (peek(r) == '0')
		r->at++;
	else if (!digits(r))
		return fail(r, "not a value");
	if (peek(r) == '.') {
		whole = false;
		r->at++;
		if (!digits(r))
			return fail(r, "a number must have digits behind its point");
	}
	if ((peek(r) | 32) == 'e') {
		whole = false;
		r->at++;
		if (peek(r) == '+' || peek(r) == '-')
			r->at++;
		if (!digits(r))
			return fail(r, "a number must have digits in its exponent");
	}
	n = (size_t)(r->at - start);
	if (n >= sizeof(text))
		return fail(r, "a number that is too long");
	memcpy(text, start, n);
	text[n] = '\0';
	v->type = J_NUMBER;
	v->number = strtod(text, NULL);
	if (whole) {
		errno = 0;
		v->integer = strtoll(text, NULL, 10);
		if (!errno)
			v->type = J_INTEGER;
	}
	return true;
}

static bool value(struct reader *r, struct jvalue *v);

/* The members behind '{' or '[' up to the closing byte. */
static bool members(struct reader *r, struct jvalue *v, char close)
{
	struct jvalue **tail = &v->child;

	if (++r->depth > JSON_READ_DEPTH)
		return fail(r, "nested too deep");
	r->at++;
	skip_space(r);
	if (peek(r) == close) {
		r->at++;
		r->depth--;
		return true;
	}
	for (;;) {
		struct jvalue *m = calloc(1, sizeof(*m));

		if (!m)
			return fail(r, "out of memory");
		skip_space(r);
		if (close == '}') {
			if (peek(r) != '"') {
				free(m);
				return fail(r, "a name in double quotes must come here");
			}
			m->key = string(r);
			if (m->key && json_member(v, m->key))
				fail(r, "a name that stands twice in one object");
			skip_space(r);
			if (!r->error && peek(r) != ':')
				fail(r, "':' must come here");
			r->at += !r->error;
		}
		*tail = m;
		tail = &m->next;
		if (r->error || !value(r, m))
			return false;
		skip_space(r);
		if (peek(r) == close) {
			r->at++;
			r->depth--;
			return true;
		}
		if (peek(r) != ',')
			return fail(r, "',' or the closing bracket must come here");
		r->at++;
	}
}

static bool value(struct reader *r, struct jvalue *v)
{
	skip_space(r);
	v->line = r->line;
	switch (peek(r)) {
	case '{':
		v->type = J_OBJECT;
		return members(r, v, '}');
	case '[':
		v->type = J_ARRAY;
		return members(r, v, ']');
	case '"':
		v->type = J_STRING;
		v->string = string(r);
		return v->string;
	case 't':
	case 'f':
		v->type = J_BOOL;
		v->boolean = peek(r) == 't';
		return take(r, v->boolean ? "true" : "false") || fail(r, "not a value");
	case 'n':
		return take(r, "null") || fail(r, "not a value");
	default:
		return number(r, v);
	}
}

struct jvalue *json_read(const char *text, size_t size, char *why, size_t why_size)
{
	struct reader r = { .at = text, .end = text + size, .line = 1 };
	struct jvalue *root = calloc(1, sizeof(*root));

	if (!root)
		fail(&r, "out of memory");
	if (root && value(&r, root)) {
		skip_space(&r);
		if (r.at < r.end)
			fail(&r, "text behind the end");
	}
	if (!r.error)
		return root;
	snprintf(why, why_size, "line %d: %s", r.line, r.error);
	json_read_free(root);
	return NULL;
}

void json_read_free(struct jvalue *v)
{
	while (v) {
		struct jvalue *next = v->next;

		json_read_free(v->child); /* as deep as JSON_READ_DEPTH at most */
		free(v->key);
		free(v->string);
		free(v);
		v = next;
	}
}

const struct jvalue *json_member(const struct jvalue *object, const char *key)
{
	const struct jvalue *m = object->type == J_OBJECT ? object->child : NULL;

	while (m && (!m->key || strcmp(m->key, key)))
		m = m->next;
	return m;
}
