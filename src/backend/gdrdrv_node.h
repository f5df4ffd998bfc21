/* SPDX-License-Identifier: MIT */
/*
 * The calls of /dev/gdrdrv, whatever the driver's level: the newer ones where it has them, the older
 * ones where not. It knows nothing of the library's handles, nor of mappings.
 *
 * A node does not change after its open and may be used by all threads: the driver locks for itself.
 * All return 0 or -errno with its text set.
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

/* What is known of a region, whichever call told it. */
struct gdri_node_info {
	uint64_t va, mapped_size, tm_cycles;
	uint32_t page_size, tsc_khz;
	gdr_mapping_type_t type; /* NONE while not mapped */
};

/*
 * Opens, and refuses a driver that this library cannot work with. Pins go by address where the
 * driver can do that, else by dma-buf; always by dma-buf with @dmabuf.
 */
int gdri_node_open(struct gdri_node *node, bool dmabuf);
void gdri_node_close(struct gdri_node *node);

/* A handle is all of 64 bits, and 0 is a valid one of installed drivers. */
int gdri_node_pin(const struct gdri_node *node, const struct gdri_pin_request *request,
		  uint64_t *handle);
/* The same by dma-buf: gdrdrv_dmabuf.c. */
int gdri_node_pin_dmabuf(const struct gdri_node *node, const struct gdri_pin_request *request,
			 uint64_t *handle);
int gdri_node_unpin(const struct gdri_node *node, uint64_t handle);

int gdri_node_get_info(const struct gdri_node *node, uint64_t handle, struct gdri_node_info *info);
int gdri_node_get_flag(const struct gdri_node *node, uint64_t handle, int *flag);

/*
 * The type of the next mapping; NONE: the default. A driver that cannot be asked is no failure: the
 * type of the mapping itself decides.
 */
int gdri_node_request_type(const struct gdri_node *node, uint64_t handle, gdr_mapping_type_t type);

/* Makes all entries of the region's mapping. False: not done, by a driver that cannot or a revocation. */
bool gdri_node_populate(const struct gdri_node *node, uint64_t handle);

/* Any call: 0, or the node's positive errno. */
int gdri_node_call(const struct gdri_node *node, unsigned long request, void *arg);

/* -errno of the interface, with a text, for an errno of the node. */
int gdri_node_fail(const char *what, int err);

#endif
