/* SPDX-License-Identifier: MIT */
/* One-line files of the kernel. */
#ifndef GDRI_LINE_H
#define GDRI_LINE_H

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* Reads the first line; "" where it cannot be read. */
static inline void gdri_read_line(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n < 0 ? 0 : n] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

#endif
