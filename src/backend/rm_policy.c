/* SPDX-License-Identifier: MIT */
/*
 * Whether the administrator lets the library use rm on this machine: RM_POLICY_FILE, lines of
 * "rm=on" or "rm=off", blank ones, and comments from '#' on. Without the file it is allowed; a file
 * that cannot be read, or that says anything else, forbids. See rm.h.
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

static int judge(FILE *f)
{
	static const char blank[] = " \t\r\n";
	int found = ALLOWED;
	char line[256];

	while (fgets(line, sizeof(line), f)) {
		char *word = line + strspn(line, blank);
		bool whole = strchr(line, '\n') || feof(f);

		word[strcspn(word, "#")] = '\0';
		for (size_t n = strlen(word); n && strchr(blank, word[n - 1]);)
			word[--n] = '\0';
		if (!whole || (*word && strcmp(word, "rm=on") != 0 && strcmp(word, "rm=off") != 0))
			return MALFORMED;
		if (strcmp(word, "rm=off") == 0)
			found = FORBIDDEN;
	}
	return ferror(f) ? UNREADABLE : found;
}

/* Short of something it is not known: 0, or the errno of that. */
static int read_locked(void)
{
	FILE *f = fopen(RM_POLICY_FILE, "re");

	read_errno = errno;
	if (f) {
		errno = 0;
		policy = judge(f);
		read_errno = errno;
		fclose(f);
	} else if (read_errno == EMFILE || read_errno == ENFILE || read_errno == ENOMEM) {
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
