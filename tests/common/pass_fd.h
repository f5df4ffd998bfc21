/* SPDX-License-Identifier: MIT */
/* A descriptor and the size of what it stands for, over a Unix socket to another process. */
#ifndef PASS_FD_H
#define PASS_FD_H

#include <stddef.h>

/* 0 or -1. */
int pass_fd(int socket, int fd, size_t size);

/* The descriptor, the caller's, close-on-exec; or -1. */
int take_fd(int socket, size_t *size);

#endif
