/* SPDX-License-Identifier: MIT */
/*
 * The text of a thread's last failure, and log messages. Functions inside the library return 0 or
 * -errno. The function that detects a failure records why by gdri_fail(); callers pass it on.
 */
#ifndef GDRI_ERROR_H
#define GDRI_ERROR_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

void gdri_error_set(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* Records a constant text, and logs nothing: for failures that a caller polls for. */
void gdri_error_say(const char *text) __attribute__((cold));

/* Records the text and gives -err. A macro, so that the compiler sees that the value is not 0. */
#define gdri_fail(err, ...)                        \
	__extension__({                            \
		int err_ = (err);                  \
		gdri_error_set(err_, __VA_ARGS__); \
		-err_;                             \
	})

static inline int gdri_check_flags(uint32_t flags, uint32_t known, const char *call)
{
	return flags & ~known ? gdri_fail(EINVAL, "unknown bits in flags 0x%x of %s", flags, call)
			      : 0;
}

/*
 * Replaces by '?' what a terminal takes for a command: control characters, those from 0x80 to 0x9f
 * (C1) too, and bytes that are no UTF-8. Texts and messages hold none: they quote the environment,
 * the loader and paths.
 */
void gdri_plain(char *text);

const char *gdri_error_text(void); /* recorded last in this thread, or "" */
void gdri_error_clear(void); /* so that an older reason is not taken for that of the next call */

/*
 * To stderr if GDRCOPY_ENABLE_LOGGING is set, from GDRCOPY_LOG_LEVEL (default: error) up. Error: a
 * failure that no call returns. Warn: the library does without what was asked for, or without a
 * backend. Info: a limit that it chose. Debug: each failure that a call returns, and each choice.
 */
enum gdri_log_level { GDRI_LOG_DEBUG = 1, GDRI_LOG_INFO, GDRI_LOG_WARN, GDRI_LOG_ERROR };
/* Costs one relaxed load where nothing is logged. */
void gdri_log(enum gdri_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void gdri_log_init(void); /* reads the environment; the first call decides */

/* A growing text of bounded length, for an error that lists several reasons. */
struct gdri_text {
	char s[768];
	size_t len;
};
void gdri_text_add(struct gdri_text *text, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), cold));

/*
 * The first failure of an end that goes on after it. A later failure is logged, and does not take
 * its text away. Begins as zeroes.
 */
struct gdri_first {
	int rc;
	struct gdri_text text;
};
void gdri_first_note(struct gdri_first *first, int rc); /* 0, or -errno with its text */
int gdri_first_failure(const struct gdri_first *first); /* the same of the first one */

#endif
