/* SPDX-License-Identifier: MIT */
/* The node /dev/gdrdrv: its driver's abilities and errors. Constant once open; for all threads. */
#ifndef GDRI_GDRDRV_NODE_H
#define GDRI_GDRDRV_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

struct gdri_node {
	int fd;
	uint32_t version; /* (major << 16) | minor */
	bool takes_dmabuf; /* PIN_DMABUF exists */
	bool by_dmabuf; /* pins go by PIN_DMABUF, not by address */
	bool persistent; /* by the driver: pins outlive the free of their memory */
	bool force_pcie; /* GDR_PIN_FLAG_FORCE_PCIE is known */
};

/* "%u.%u" of a version. */
#define GDRI_VERSION(v) (v) >> MAJOR_VERSION_SHIFT, (v)&MINOR_VERSION_MASK

/*
 * Makes a struct gdri_node. Refuses a driver that this library cannot work with. Pins go by address
 * if the driver can do that, else by dma-buf; always by dma-buf with @dmabuf. 0 or -errno.
 */
int gdri_node_open(void **node, bool dmabuf);
void gdri_node_close(void *node);

/* Any call: 0, or the node's positive errno. */
int gdri_node_call(const struct gdri_node *node, unsigned long request, void *arg);

/* -errno of the interface, with its text, for an errno of the node; 0 for 0. */
int gdri_node_result(const char *what, int err);

/* A pin by dma-buf. A handle has 64 bits, and 0 is a valid one. */
int gdri_node_pin_dmabuf(const struct gdri_node *node, const struct gdri_pin_request *request,
			 uint64_t *handle);

#endif
