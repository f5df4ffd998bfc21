/* SPDX-License-Identifier: MIT */
/*
 * What the library asks of CUDA's driver API and of NVML, in the library's own terms. Both are
 * loaded at run time. Only gdri_cuda_init() and the calls that say so initialise CUDA: a caller
 * with a device address has done that. A CUresult never leaves src/cuda/. Every call leaves the
 * thread's current context as it was, and may be made by several threads. Unless noted, a call
 * returns 0 or -errno with its text.
 */
#ifndef GDRI_CUDA_H
#define GDRI_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gdri_memory_kind {
	GDRI_MEMORY_UNKNOWN, /* no libcuda, not initialised, or not an address of CUDA */
	GDRI_MEMORY_DEVICE,
	GDRI_MEMORY_HOST
};

/* What CUDA knows of an address. */
struct gdri_memory {
	enum gdri_memory_kind kind;
	bool managed;
	int device; /* ordinal; -1: unknown */
	void *context; /* CUcontext of the allocation; NULL for VMM and pool memory */
	uint64_t buffer_id; /* unique in this process, not reused (core/parts.h); or 0 */
	uint64_t known; /* the described address: addr, or one behind it */
	uint64_t base; /* start of the allocation, or of the VMM chunk, around `known` */
	size_t size; /* its size; 0: unknown */
	void *host_ptr; /* HOST: CPU address of base */
	bool write_combined; /* HOST: allocated CU_MEMHOSTALLOC_WRITECOMBINED */
	bool absent; /* UNKNOWN: CUDA has answered, and none of its memory is there */
	char note[96]; /* UNKNOWN: why, or "" */
};

struct gdri_pci_address {
	uint32_t domain;
	uint8_t bus, device, function;
};

int gdri_cuda_load(void); /* loads libcuda.so.1 once; -ENODEV */
int gdri_cuda_init(void); /* loads and initialises it */
int gdri_cuda_driver_version(int *version); /* of CUDA: 1000 * major + 10 * minor; -ENODEV */

/*
 * While held, a primary context that the library has once used stays retained; the last drop
 * frees what is kept for queues and ports, and releases all of them. The library uses a device's
 * primary context for its own memory and copy engines, and for memory that belongs to no context.
 * Without a hold, each pin would create and destroy a context in a program that does not use the
 * primary one.
 */
void gdri_cuda_hold(void);
int gdri_cuda_drop(void); /* 0, or -errno of the first release that failed */
int gdri_cuda_release_primary(void); /* part of the last drop, when no context is open */

/* ---- addresses ------------------------------------------------------------------------------- */

/* Describes addr, or a known address behind it: a widened range begins before its allocation. */
void gdri_cuda_describe(uint64_t addr, size_t size, struct gdri_memory *memory);

int gdri_cuda_device_of(uint64_t addr, size_t size); /* the ordinal of its device, or -1 */

/* Is memory there suitable for GPUDirect RDMA? Returns true also if CUDA does not say. */
bool gdri_cuda_is_rdma_capable(uint64_t addr);

uint64_t gdri_cuda_buffer_id(uint64_t addr); /* one call into CUDA; or 0 */
/* One call into CUDA. Does addr still lie in the allocation of that buffer ID? */
bool gdri_cuda_has_buffer_id(uint64_t addr, uint64_t id);
/* One call into CUDA. Is this byte of host memory page-locked, as far as CUDA knows? */
bool gdri_cuda_is_page_locked(const void *host);

/*
 * Sets SYNC_MEMOPS on the allocation, in 10 us and without waiting for a kernel (H100, driver 580,
 * 2026-11-21). It is always set anew: driver 580 reads 1 for memory on which no program has set it,
 * and a program may clear it. Returns whether it is in force: VMM memory refuses it; host memory,
 * not reached through the BAR, needs none and gives true.
 */
bool gdri_cuda_sync_memops(const struct gdri_memory *memory);

/* A dma-buf of a page-aligned range; pcie: of that mapping type. Caller's, close-on-exec. */
int gdri_cuda_dmabuf(const struct gdri_memory *memory, uint64_t addr, size_t size, bool pcie,
		     int *fd);

/*
 * Exports the VMM chunk around addr: its range, and a descriptor, the caller's, close-on-exec.
 * -EINVAL if it is on another device than `device`, which may be -1: any.
 */
int gdri_cuda_export_chunk(uint64_t addr, int device, uint64_t *base, size_t *size, int *fd);

/* ---- devices --------------------------------------------------------------------------------- */

int gdri_cuda_pci_address(int device, struct gdri_pci_address *pci);
/* 0 if libcuda, which is loaded, has the call that makes a dma-buf; or -ENODEV. */
int gdri_cuda_can_export(void);

/* These initialise CUDA. Integrated: no memory of its own. Coherent: the CPU caches its memory. */
int gdri_cuda_is_integrated(int device, bool *integrated);
int gdri_cuda_is_coherent(int device, bool *coherent);
int gdri_cuda_can_share(int device, bool *can); /* VMM memory, by a descriptor */
bool gdri_cuda_any_coherent(void); /* false where CUDA cannot be initialised */
int gdri_cuda_total_memory(int device, uint64_t *bytes);

/* ---- memory of the library's own ------------------------------------------------------------- */

enum gdri_allocation_kind {
	GDRI_ALLOCATION_VMM, /* cuMemCreate: exportable, GPUDirect-capable if the device is */
	GDRI_ALLOCATION_PLAIN, /* cuMemAlloc */
	GDRI_ALLOCATION_HOST /* cuMemHostAlloc */
};

struct gdri_allocation {
	enum gdri_allocation_kind kind;
	uint64_t addr;
	size_t size, asked; /* VMM: rounded up to the granularity; as the caller asked */
	void *host; /* HOST: its CPU address */
	void *context;
	uint64_t buffer_id; /* of its beginning; 0: CUDA has told none */
	int device;
	bool busy; /* a copy may be under way, whose end CUDA did not tell: the free waits for it */
};

/*
 * Initialises CUDA and allocates. context: outlives the memory; NULL: the device's primary one.
 * cached: HOST memory is not write-combined. fd: exports VMM memory, and stays the caller's; or -1.
 */
int gdri_cuda_alloc(struct gdri_allocation *allocation, enum gdri_allocation_kind kind, int device,
		    void *context, size_t size, bool cached, int fd);

/*
 * Waits for no work that uses it unless it is busy. 0 or -errno: it ends in either case. Memory
 * that the end of its context, a reset or the end of CUDA has freed is no failure.
 */
int gdri_cuda_free(struct gdri_allocation *allocation);

/*
 * Keeps an allocation for a later take of the same kind and device and of at most its size, instead
 * of a free: a kernel that begins late may still access it. Memory without a buffer ID, by which a
 * take knows that it is still the library's, is freed. Take returns false if none is kept.
 */
int gdri_cuda_keep(struct gdri_allocation *allocation);
bool gdri_cuda_take_kept(struct gdri_allocation *allocation, enum gdri_allocation_kind kind,
			 int device, size_t size);

/*
 * Pages of host memory, zeroes, that kernels of a device read and write. They are mapped by the
 * library, so that a reset of the device, which frees what CUDA has allocated, leaves them
 * readable. CUDA unregisters memory only when nothing runs in the context (cuMemHostUnregister, 1.4
 * s while a kernel of that length ran: H200, driver 580, 2026-11-22), so pages that are given back
 * stay registered, and are taken again; a smaller request takes them too.
 */
struct gdri_cuda_pages {
	struct gdri_cuda_pages *next;
	char *host;
	size_t size;
	int device;
	void *context; /* CUcontext: the device's primary one */
	uint64_t addr; /* for the device */
};
int gdri_cuda_take_pages(int device, size_t size, struct gdri_cuda_pages **pages);
void gdri_cuda_give_pages(struct gdri_cuda_pages *pages);
void gdri_cuda_free_idle(void); /* so, too: unmaps those whose CUDA context has ended */

/* Returns false if an error or a reset of its device ended it: no work runs. Breaks no capture. */
bool gdri_cuda_context_works(void *context);

/* ---- the GPU's copy engine ------------------------------------------------------------------- */

/* How the end of a copy is waited for: by a polled word, or by a synchronisation of either kind. */
enum gdri_engine_end { GDRI_ENGINE_POLLS, GDRI_ENGINE_SPINS, GDRI_ENGINE_SLEEPS };

/*
 * Copies on a private stream, which neither waits for the caller's streams nor breaks their
 * capture. -ENOTSUP if [addr, addr + size) is not device memory. Copies go to addresses: the caller
 * verifies that these still belong to the same allocation. `end`: how copies end, by a polled word
 * if this driver can write one, but for writes from pageable memory; NULL: by a synchronisation.
 */
struct gdri_cuda_engine;
int gdri_cuda_engine_new(uint64_t addr, size_t size, struct gdri_cuda_engine **engine,
			 enum gdri_engine_end *end);
int gdri_cuda_engine_free(struct gdri_cuda_engine *engine); /* as gdri_cuda_free() */

/*
 * Copies and waits for the end. Returns false, without a text, if CUDA cannot be used in this
 * thread now: part of the copy may have been done, none is under way. locked: `host` is
 * page-locked.
 */
bool gdri_cuda_engine_copy(struct gdri_cuda_engine *engine, bool to_device, void *host, bool locked,
			   uint64_t addr, size_t size);

/* ---- NVML ------------------------------------------------------------------------------------ */

struct gdri_bar {
	uint64_t total, used, free;
};
/* BAR1 of a PCI function; -ENOTSUP (no NVML, or it does not know), -EIO. */
int gdri_nvml_bar(const struct gdri_pci_address *pci, struct gdri_bar *bar);
int gdri_cuda_bar(int device, struct gdri_bar *bar); /* the same, by CUDA's number; -1: -ENODEV */
/* May so many bytes fit the BAR of that GPU at all? It leaves the text of the last error. */
bool gdri_may_fit(int device, uint64_t bytes);

#endif
