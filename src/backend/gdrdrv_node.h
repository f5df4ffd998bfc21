/* SPDX-License-Identifier: MIT */
/*
 * The node /dev/gdrdrv: what the driver behind it can do, and what its errors mean. It knows
 * nothing of the library's handles, nor of mappings.
 *
 * A node does not change after its open and may be used by all threads: the driver locks for
 * itself.
 */
#ifndef GDRI_GDRDRV_NODE_H
#define GDRI_GDRDRV_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

struct gdri_node {
	int fd;
	uint32_t version; /* (major << 16) | minor */
	bool takes_dmabuf; /* PIN_DMABUF is there */
	bool by_dmabuf; /* pins go by it, not by address */
	bool persistent; /* pins outlive the free of their memory, as far as the driver tells */
	bool force_pcie; /* GDR_PIN_FLAG_FORCE_PCIE is known */
};

/*
 * A new struct gdri_node. Refuses a driver that this library cannot work with. Pins go by address
 * where the driver can do that, else by dma-buf; always by dma-buf with @dmabuf. 0 or -errno.
 */
int gdri_node_open(void **node, bool dmabuf);
void gdri_node_close(void *node);

/* Any call: 0, or the node's positive errno. */
int gdri_node_call(const struct gdri_node *node, unsigned long request, void *arg);

/* -errno of the interface, with a text, for an errno of the node; 0 for 0. */
int gdri_node_result(const char *what, int err);

/* A pin by dma-buf. A handle is all of 64 bits, and 0 is a valid one of installed drivers. */
int gdri_node_pin_dmabuf(const struct gdri_node *node, const struct gdri_pin_request *request,
			 uint64_t *handle);

#endif
