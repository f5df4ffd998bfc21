/* SPDX-License-Identifier: MIT */
/* Words of a message that depend on its figures. */
#ifndef PERF_WORDS_H
#define PERF_WORDS_H

/* What follows a noun that is counted: "1 byte", "2 bytes". */
static inline const char *plural(unsigned long long count)
{
	return count == 1 ? "" : "s";
}

#endif
