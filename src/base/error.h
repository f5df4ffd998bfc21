/* SPDX-License-Identifier: MIT */
/*
 * The text of this thread's last failure. Internal functions return 0 or -errno; the place that
 * detects a failure first says why with gdri_fail(), the entry points only pass the number on.
 */
#ifndef GDRI_ERROR_H
#define GDRI_ERROR_H

#include <stddef.h>

void gdri_error_set(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* The same for a text as it is, and without a message: for what a caller polls for. */
void gdri_error_say(const char *text) __attribute__((cold));

/* Records the text and gives -err; a macro, so that the compiler sees that it is not 0. */
#define gdri_fail(err, ...)                        \
	__extension__({                            \
		int err_ = (err);                  \
		gdri_error_set(err_, __VA_ARGS__); \
		-err_;                             \
	})

/* The text recorded last in this thread; "" if none; never NULL. */
const char *gdri_error_text(void);

/* Empties the text, so that a callee's reason can be told from an older one. */
void gdri_error_clear(void);

/* A growing text of bounded length, for an error that lists several reasons. */
struct gdri_text {
	char s[768];
	size_t len;
};

void gdri_text_add(struct gdri_text *text, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), cold));

#endif
