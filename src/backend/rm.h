/* SPDX-License-Identifier: MIT */
/*
 * The parts of the rm backend: the GPU driver's resource manager (RM), asked as every CUDA program
 * asks it, for the CPU mapping that CUDA does not offer. No kernel module of ours, no root.
 *
 *   rm_client.c   the nodes, this process's client, the GPUs
 *   rm_objects.c  which of libcuda's memory objects are behind a range, and duplicates of them
 *   rm_map.c      CPU mappings of the duplicates
 *   rm_trial.c    all of it tried on memory of our own, once for each GPU
 *   rm_policy.c   whether the administrator allows it
 *   rm.c          the backend's table
 *
 * Client and GPUs are made at the first pin and live as long as the process, as CUDA's own do. A
 * duplicate keeps the physical memory, whatever becomes of libcuda's object; so pins are persistent
 * (H100, H200, driver 580, 2026-11-21: after cuMemFree, the end of a context and of the primary one).
 * A forked child closes its copies of the descriptors (process.h): client and objects are the parent's.
 *
 * All functions return 0 or -errno with its text set, and may be called by several threads.
 */
#ifndef GDRI_RM_H
#define GDRI_RM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/rm.h"
#include "backend/backend.h"

/* Constant once made, but for its trial. */
struct gdri_rm_gpu {
	struct gdri_rm_gpu *next;
	int ordinal; /* CUDA's, in this process */
	struct gdri_pci_address pci;
	unsigned int minor;
	uint32_t instance; /* RM's number of the device */
	int node; /* kept open: without it RM refuses the device object (0x1b) */
	rm_handle device;
	uint64_t bar1, bar1_size; /* where it is for the CPU; 0: not known */
	bool coherent; /* CUDA: the CPU reaches its memory over a coherent link */

	/* Under the lock of rm_trial.c. */
	struct gdri_rm_trial {
		enum gdri_rm_verdict {
			GDRI_RM_UNTRIED,
			GDRI_RM_ANY, /* serves any device memory */
			GDRI_RM_EXPORTABLE, /* serves VMM memory that was made exportable */
			GDRI_RM_NONE
		} verdict;
		gdr_mapping_type_t type; /* of the mappings */
		char reason[256]; /* why not ANY */
	} trial; /* the final one */
	unsigned int inconclusive; /* trials before it */
};

/* A duplicate of one memory object, and the part of it that a range takes. */
struct gdri_rm_object {
	rm_handle object;
	uint64_t offset, size;
	uint64_t address; /* RM's name of the mapping, while mapped */
};

struct gdri_rm_range {
	const struct gdri_rm_gpu *gpu;
	size_t count, room;
	struct gdri_rm_object *objects; /* side by side they are the range */
	size_t mapped; /* so many of them, from the first on */
};

/*
 * 0, or -EACCES with its text where the machine's policy forbids rm. The file is read once, whatever the
 * environment says.
 */
#define RM_POLICY_FILE "/etc/barcopy/policy"
int gdri_rm_allowed(void);

/* What can be known without a context: the node can be opened, the driver is new enough. */
int gdri_rm_check(void);

/* Major version of the kernel driver; 0 where it is not told. */
unsigned int gdri_rm_driver_major(void);

/* The GPU of a CUDA ordinal; client and device object are made if need be. */
int gdri_rm_gpu_get(int device, struct gdri_rm_gpu **gpu);

/*
 * A descriptor of the GPU's node, to be closed by gdri_fork_close(). It is registered with the control
 * node, so that the file, and a mapping that holds the file, keeps our client, and with it the memory
 * and its place in BAR1, whatever descriptors the process loses (NV_ESC_REGISTER_FD, escape.c; without
 * it all pages of a mapping showed other memory: H200, driver 580, 2026-11-22).
 */
int gdri_rm_open_node(const struct gdri_rm_gpu *gpu, int *fd);

/* One call on the client; status is the field of arg that RM answers in. */
int gdri_rm_call(unsigned long request, void *arg, const uint32_t *status, const char *what);
int gdri_rm_control(uint32_t command, void *params, size_t size, const char *what);
rm_handle gdri_rm_client(void);
int gdri_rm_free_object(const struct gdri_rm_gpu *gpu, rm_handle object);

/*
 * Finds and duplicates what is behind request's range. no_look: NULL, or why the look at libcuda's
 * export is of no use here and exportable memory alone can be served.
 */
int gdri_rm_range_open(struct gdri_rm_range *range, const struct gdri_rm_gpu *gpu,
		       const struct gdri_pin_request *request, const char *no_look);
/* Gives the duplicates back, all of them whatever fails; the first failure is returned. */
int gdri_rm_range_close(struct gdri_rm_range *range);

/* Maps the first `length` bytes; not inherited by a child. */
int gdri_rm_map(struct gdri_rm_range *range, size_t length, bool read_only, void **map);
int gdri_rm_unmap(struct gdri_rm_range *range, void *map, size_t length);

/*
 * Is this way right on this GPU? Tried with memory of `context` (or NULL), once where the trial says
 * so; what was found is copied to *trial.
 */
int gdri_rm_trial(struct gdri_rm_gpu *gpu, void *context, struct gdri_rm_trial *trial);

#endif
