/* SPDX-License-Identifier: MIT */
/*
 * The driver's node in the hands of another process, which got its descriptor through a socket: every
 * call with it is refused. It knows the node's ioctls, not the library's use of them.
 */
#ifndef PERF_SANITY_NODE_H
#define PERF_SANITY_NODE_H

#include <stddef.h>
#include <stdint.h>

struct node {
	int fd;
	uint64_t addr; /* of the sender's memory */
};

/* Waives the test if the memory's backend has no node. */
void node_or_waive(void);
void node_send(int socket, uint64_t addr);
void node_receive(int socket, struct node *node);
void node_check_refused(const struct node *node, size_t size);

#endif
