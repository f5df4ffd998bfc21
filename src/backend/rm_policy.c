/* SPDX-License-Identifier: MIT */
/*
 * Does the administrator allow rm on this machine? RM_POLICY_FILE has lines of "rm=on" or "rm=off",
 * blank ones, and comments from '#' on. Without the file rm is allowed; a file that cannot be read,
 * or has any other line, forbids it. See rm.h.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/process.h"
#include "backend/rm.h"

GDRI_MUTEX(lock);
static enum { UNREAD, ALLOWED, FORBIDDEN, MALFORMED, UNREADABLE } policy;
static int read_errno; /* UNREADABLE */

static int parse(FILE *f)
{
	char line[256], word[256], more[2];
	int found = ALLOWED;

	while (fgets(line, sizeof(line), f)) {
		bool whole = strchr(line, '\n') || feof(f);
		int words;

		line[strcspn(line, "#")] = '\0';
		words = sscanf(line, "%255s %1s", word, more);
		if (!whole || words == 2 ||
		    (words == 1 && strcmp(word, "rm=on") != 0 && strcmp(word, "rm=off") != 0))
			return MALFORMED;
		if (words == 1 && strcmp(word, "rm=off") == 0)
			found = FORBIDDEN;
	}
	return ferror(f) ? UNREADABLE : found;
}

/* 0, or the errno of a shortage: then the policy remains UNREAD. */
static int read_locked(void)
{
	FILE *f = fopen(RM_POLICY_FILE, "re");

	read_errno = errno;
	if (f) {
		errno = 0;
		policy = parse(f);
		read_errno = errno;
		fclose(f);
	} else if (gdri_is_short(-read_errno)) {
		return read_errno;
	} else {
		policy = read_errno == ENOENT ? ALLOWED : UNREADABLE;
	}
	return 0;
}

int gdri_rm_allowed(void)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (policy == UNREAD)
		err = read_locked();
	pthread_mutex_unlock(&lock);
	if (err)
		return gdri_fail(err, RM_POLICY_FILE ": %s", strerror(err));
	switch (policy) {
	case ALLOWED:
		return 0;
	case FORBIDDEN:
		return gdri_fail(EACCES, RM_POLICY_FILE " says rm=off");
	case MALFORMED:
		return gdri_fail(EACCES, "a line of " RM_POLICY_FILE
					 " is not rm=on, rm=off or a comment: rm is off");
	default:
		return gdri_fail(EACCES, RM_POLICY_FILE " cannot be read (%s): rm is off",
				 strerror(read_errno));
	}
}
