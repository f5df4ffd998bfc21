/* SPDX-License-Identifier: MIT */
/*
 * The rm backend inside. Like every CUDA program, it is a client of the GPU driver's resource
 * manager (RM), and asks it for the CPU mapping that CUDA does not offer. It needs neither a kernel
 * module nor root.
 *
 *   rm.c          the backend's table, and whether the administrator allows it
 *   rm_client.c   the nodes, what gdr_open() asks, this process's client, the GPUs
 *   rm_range.c    duplicates of the memory objects behind a range, and CPU mappings of them
 *   trial.c       all of it verified on the library's own memory, once for each GPU
 *
 * The first pin makes client and GPUs, which live as long as the process, as CUDA's own do, unless
 * the program closes their descriptors. A duplicate keeps the physical memory, whatever happens to
 * libcuda's object, so pins are persistent (H100, H200, driver 580, 2026-11-21: after cuMemFree,
 * and after the end of a context and of the primary one). A forked child closes its copies of the
 * descriptors (base/process.h): client and objects are the parent's.
 *
 * Unless noted, functions return 0 or -errno with its text. Several threads may call them.
 */
#ifndef GDRI_RM_CLIENT_H
#define GDRI_RM_CLIENT_H

#include "abi/rm.h"
#include "backend/trial.h"

#ifndef GDRI_RM
#define GDRI_RM 1 /* make RM_BACKEND=0: without what follows the question */
#endif

/* A client of RM, which ends with its descriptor. */
struct gdri_rm_session {
	int ctl;
	rm_handle client;
};

/* Constant while it is used, except for the verdicts. */
struct gdri_rm_gpu {
	struct gdri_rm_gpu *next;
	struct gdri_rm_session own; /* this process's */
	int ordinal; /* CUDA's, in this process */
	unsigned int minor;
	uint32_t instance; /* RM's number of the device */
	int node; /* open for good: without it RM refuses the device object (0x1b) */
	rm_handle device;
	uint64_t bar1, bar1_size; /* in the CPU's address space; 0: unknown */
	bool coherent; /* by CUDA: the CPU reaches its memory over a coherent link */
	struct gdri_trial any; /* of any device memory */
	struct gdri_trial exportable; /* of VMM memory that was made exportable */
};

/*
 * The flavour of the GPU driver, by its version file, or else by the taint of its module: the
 * licence of the proprietary flavour is "NVIDIA". Neither can be read in gVisor; no version file
 * where procfs is mounted with subset=pid (systemd's ProcSubset=). -errno, without a text: a
 * shortage keeps it from being read.
 */
enum gdri_rm_flavour { GDRI_RM_UNKNOWN, GDRI_RM_OPEN, GDRI_RM_PROPRIETARY };
int gdri_rm_flavour(void);

/*
 * Does a GPU export its memory as a dma-buf? Asked of RM, not of CUDA: a process that has called
 * cuInit() has no CUDA in its children. Needs 4 ms (H200, driver 580, 2026-11-23). 0, -ENODEV, or
 * what refused the question.
 */
int gdri_rm_exports_dmabuf(void);

int gdri_rm_check(void); /* without a context: the node can be opened, the driver is new enough */
unsigned int gdri_rm_driver_major(void); /* of the kernel driver's version; 0: unknown */

/* The GPU of a CUDA ordinal, used until the put; makes client and device object. */
int gdri_rm_gpu_get(int device, struct gdri_rm_gpu **gpu);
void gdri_rm_gpu_put(void);
/*
 * Ends the client if nothing uses it and a call did not reach it, since the program has closed our
 * descriptors. The next get makes another. Returns whether it has ended.
 */
bool gdri_rm_client_ends(void);

/*
 * A descriptor of the GPU's node, for gdri_fork_close(). It is registered with the control node:
 * then the file, and a mapping that holds the file, keeps our client, the memory and its place in
 * BAR1, whatever descriptors the process loses (NV_ESC_REGISTER_FD, escape.c). Without it all pages
 * of a mapping showed other memory (H200, driver 580, 2026-11-22).
 */
int gdri_rm_open_node(const struct gdri_rm_gpu *gpu, int *fd);

/* One call; status: arg's field that receives RM's answer, or NULL. */
int gdri_rm_call(int fd, unsigned long request, void *arg, const uint32_t *status,
		 const char *what);
int gdri_rm_control(const struct gdri_rm_session *s, rm_handle object, uint32_t command,
		    void *params, size_t size, const char *what);

/*
 * Whether a control may have failed because its structure has another release's size: RM answers
 * INVALID_PARAM_STRUCT, from 550 on INVALID_ARGUMENT; gVisor's call fails by EINVAL.
 */
static inline bool gdri_rm_may_be_size(int rc)
{
	return rc == -EINVAL || rc == -ENOTSUP;
}

/* ---- ranges: rm_range.c ---------------------------------------------------------------------- */

struct gdri_rm_range {
	const struct gdri_rm_gpu *gpu;
	size_t count;
	/* Duplicates of memory objects, and the part of each that the range takes, side by side. */
	struct gdri_rm_object {
		rm_handle object;
		uint64_t offset, size;
		uint64_t address; /* RM's name of the mapping, while mapped */
	} * objects;
	size_t mapped; /* the first so many are mapped */
};

/*
 * Finds and duplicates the objects behind the request's range; exportable: by descriptors, for VMM
 * memory that was made exportable. *lasting is set if no later export can be observed either.
 */
int gdri_rm_range_open(const struct gdri_rm_gpu *gpu, const struct gdri_pin_request *request,
		       bool exportable, struct gdri_rm_range **range, bool *lasting);
/* Frees all duplicates; returns the first failure. */
int gdri_rm_range_close(struct gdri_rm_range *range);

/* Maps the first `length` bytes, in no child. */
int gdri_rm_map(struct gdri_rm_range *range, size_t length, bool read_only, void **map);
int gdri_rm_unmap(struct gdri_rm_range *range, void *map, size_t length);

#endif
