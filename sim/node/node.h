/* SPDX-License-Identifier: MIT */
/* The stand-in of the node inside: what interpose.c, node.c and config.c share. */
#ifndef NODE_H
#define NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#pragma GCC visibility push(default)
#include "node/gdrsim_node.h"
#pragma GCC visibility pop

#define NODE_PATH "/dev/gdrdrv"

/* config.c: the environment and the fault rules */
struct node_config {
	uint32_t level, min_api;
	bool persistent, populate, pcie, device;
	uint32_t type;
	uint64_t first_handle;
	int64_t skew, skew_size;
};

int node_presence(void); /* 0, or the errno of an open */
void node_config_read(struct node_config *config);
/* Counts a call; the errno that it must fail with (RULES_REVOKE: see gdrsim_node_fail), or 0. */
int node_fault(const char *name);

/* node.c: the driver. All return -1 with errno set where the system call would. */
int node_open(void);
bool node_is(int fd);
int node_ioctl(int fd, unsigned long request, void *arg);
void *node_mmap(int fd, void *addr, size_t len, int prot, int flags, uint64_t off);
void node_unmapped(void *addr, size_t len);
int node_close(int fd);
/* newfd is a duplicate of fd, if fd is a node: 0, or -1: too many. */
int node_dup(int fd, int newfd);

/* interpose.c: the C library's own functions */
struct libc_calls {
	int (*close)(int);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	int (*fstat)(int, struct stat *);
	int (*madvise)(void *, size_t, int);
};
const struct libc_calls *libc_calls(void);

#endif
