/* SPDX-License-Identifier: MIT */
/*
 * What the library asks of CUDA's driver API, in the library's own terms. libcuda.so.1 is loaded
 * at run time. It is initialised by gdri_cuda_init() alone: whoever has a device address has done
 * that, whoever wants us to allocate may not have. A CUresult never leaves src/cuda/; the calling
 * thread's current context is left as it was found.
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
	int device; /* ordinal, -1 where not known */
	void *context; /* CUcontext of the allocation; NULL for VMM and pool memory */
	uint64_t
		buffer_id; /* names this allocation for the life of the process (guide, 12.5); or 0 */
	uint64_t known; /* the address asked about: the caller's, or one nearby that is known */
	uint64_t base; /* start of the allocation, or of the VMM chunk, around `known` */
	size_t size; /* its size; 0 where not known */
	void *host_ptr; /* HOST: CPU address of base */
	bool write_combined; /* HOST: allocated CU_MEMHOSTALLOC_WRITECOMBINED */
	char note[96]; /* UNKNOWN: why, or "" */
};

/* A PCI function. */
struct gdri_pci_address {
	uint32_t domain;
	uint8_t bus, device, function;
};

/* Loads libcuda.so.1 once: 0, or -ENODEV with its text. Thread-safe, like all of these. */
int gdri_cuda_load(void);

/* CUDA version that the driver serves, as 1000 * major + 10 * minor. 0 or -ENODEV. */
int gdri_cuda_driver_version(int *version);

/*
 * Calls that need a context where the allocation has none take the device's primary one, and so do
 * memory and copy engines of ours: it is retained when it is first needed, and given back by the
 * last drop, which ends a hold. So a program that does not use it does not see one made and destroyed
 * at each pin, and what is ours does not depend on others who keep it. An engine for memory of a
 * program's own context keeps none; it takes one for a moment, to know that context from it.
 */
void gdri_cuda_hold(void);
void gdri_cuda_drop(void);

/*
 * Describes [addr, addr + size). Where addr itself is unknown (a range widened to 64 KiB begins
 * before its allocation) an address further on that is known is described instead. Unknown memory
 * is no failure.
 */
int gdri_cuda_describe(uint64_t addr, size_t size, struct gdri_memory *memory);

/* The ordinal of the device that the range is on, or -1. */
int gdri_cuda_device_of(uint64_t addr, size_t size);

/*
 * Sets SYNC_MEMOPS on the allocation: 10 us, and it waits for no kernel (H100, driver 580, 2026-11-21).
 * To read it first would not tell: driver 580 reads 1 for memory that nobody has set it on, and a
 * program may clear it. Returns whether it is in force; VMM memory refuses it. Host memory needs none
 * (it is not reached through the BAR): true.
 */
bool gdri_cuda_sync_memops(const struct gdri_memory *memory);

/* PCI address of a device. 0 or -errno. */
int gdri_cuda_pci_address(int device, struct gdri_pci_address *pci);

/*
 * A dma-buf of the range, which must be page-aligned; pcie: asks for the PCIe mapping type. The fd
 * is the caller's, close-on-exec.
 */
int gdri_cuda_dmabuf(const struct gdri_memory *memory, uint64_t addr, size_t size, bool pcie,
		     int *fd);

/*
 * The VMM chunk around addr: its range and an exported fd, the caller's, close-on-exec. -EINVAL where
 * it is not on that device; -1: on any.
 */
int gdri_cuda_export_chunk(uint64_t addr, int device, uint64_t *base, size_t *size, int *fd);

/* Loads libcuda.so.1 and initialises it: 0 or -errno. */
int gdri_cuda_init(void);

/* A GPU without a memory of its own (CUDA initialised if need be). */
int gdri_cuda_is_integrated(int device, bool *integrated);

/* Bytes of memory of a GPU (likewise). */
int gdri_cuda_total_memory(int device, uint64_t *bytes);

/* A GPU whose memory the CPU reaches over a coherent link, cached (likewise). */
int gdri_cuda_is_coherent(int device, bool *coherent);

/* Is any GPU like that? False where CUDA is not initialised. */
bool gdri_cuda_any_coherent(void);

/* Does any GPU here export its memory as a dma-buf (likewise)? 0, or -ENODEV with its text. */
int gdri_cuda_exports_dmabuf(void);

/* Does addr still lie in the allocation of that buffer ID? One call into CUDA. */
bool gdri_cuda_tag_holds(uint64_t addr, uint64_t id);

enum gdri_allocation_kind {
	GDRI_ALLOCATION_VMM, /* cuMemCreate: exportable, GPUDirect-capable where the device is */
	GDRI_ALLOCATION_PLAIN, /* cuMemAlloc */
	GDRI_ALLOCATION_HOST /* cuMemHostAlloc */
};

/* Memory that is ours. */
struct gdri_allocation {
	enum gdri_allocation_kind kind;
	uint64_t addr;
	size_t size; /* VMM: rounded up to the granularity */
	void *host; /* HOST: its CPU address */
	void *context;
};

/*
 * Allocates; initialises CUDA if need be. context: to allocate in, which must outlive the memory;
 * NULL: the device's primary one. cached: HOST memory not write-combined.
 */
int gdri_cuda_alloc(struct gdri_allocation *allocation, enum gdri_allocation_kind kind, int device,
		    void *context, size_t size, bool cached);

/* VMM memory that fd exports, of another process or ours; fd stays the caller's. */
int gdri_cuda_import(struct gdri_allocation *allocation, int device, int fd, size_t size);

/* No work may be on the memory any more: none is waited for. */
int gdri_cuda_free(struct gdri_allocation *allocation);

/*
 * Lets kernels on a device reach host memory of ours: whole pages, which stay ours. addr: what kernels call
 * it; context: the device's primary one, where it is registered until the second call.
 */
int gdri_cuda_register(void *host, size_t size, int device, void **context, uint64_t *addr);
int gdri_cuda_unregister(void *host, void *context);

/* False after an error that ended a context, or a reset of its device: nothing runs in it any more. */
bool gdri_cuda_context_works(void *context);

/*
 * Copies by the GPU's copy engine, on a private stream that neither waits for the caller's streams
 * nor breaks a capture of theirs. new: -ENOTSUP where [addr, addr + size) is not device memory.
 * It follows addresses: that they still mean the memory that they did is its caller's to prove.
 */
struct gdri_cuda_engine;
int gdri_cuda_engine_new(uint64_t addr, size_t size, struct gdri_cuda_engine **engine);
void gdri_cuda_engine_free(struct gdri_cuda_engine *engine);

/*
 * Copies and waits until all is there. False, with no text, where CUDA cannot be used in this thread
 * at this time: nothing of the copy is under way then, and any part of it may have been done. locked: `host`
 * is page-locked.
 */
bool gdri_cuda_engine_copy(struct gdri_cuda_engine *engine, bool to_device, void *host,
			   bool locked, uint64_t addr, size_t size);

/* From now on its copies of page-locked memory end by a word that is polled, where this driver can do that. */
void gdri_cuda_engine_poll(struct gdri_cuda_engine *engine);

/* Page-locked memory of that size, for measurements one at a time; NULL: its copies are not polled. */
void *gdri_cuda_engine_scratch(struct gdri_cuda_engine *engine, size_t size);

/* Is this byte of host memory page-locked, as CUDA knows it? One call into CUDA; false where it fails. */
bool gdri_cuda_is_page_locked(const void *host);

/* ---- NVML, which is loaded at run time too; an nvmlReturn_t never leaves nvml.c -------------- */

struct gdri_bar {
	uint64_t total, used, free;
};

/* BAR1 of that PCI function: 0; -ENOTSUP (no NVML, or it does not know); -EIO. */
int gdri_nvml_bar(const struct gdri_pci_address *pci, struct gdri_bar *bar);

#endif
