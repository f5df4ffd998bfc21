/* SPDX-License-Identifier: MIT */
/**
 * @file gdrapi.h
 * libgdrapi: low-latency CPU access to GPU memory through the GPU's BAR.
 *
 * The interface of GDRCopy 2.6, source and binary, and nothing else. <barcopy.h> has what barcopy
 * adds.
 *
 * Conventions, valid for every call unless its comment says otherwise:
 *  - returns 0, or a positive errno; outputs are written only on success;
 *  - sizes and offsets are in bytes;
 *  - every call may be made from any thread at any time; two calls on different handles run at the
 *    same time; the copies take no lock. The caller must not unmap, unpin or close while another
 *    thread still copies on that handle;
 *  - a call that pins, maps or allocates and finds BAR1 full may unmap what other threads have
 *    ended, or wait for them: do not make it while you hold a lock that the program's hook of
 *    munmap() takes;
 *  - a gdr_t or gdr_mh_t that is NULL, stale or invented gives EINVAL, never a crash;
 *  - CUDA does not see the CPU's loads and stores, and no copy waits for GPU work. Before the
 *    caller reads memory through a mapping, the GPU work that writes this memory must have ended;
 *    before the caller writes, also the work that reads it: a queued memset would overwrite the new
 *    data, and a queued kernel would read them too early. cuStreamSynchronize() or an event waits.
 *    A kernel that is launched after a copy sees the copy's data;
 *  - in a child made by fork, every call on the parent's gdr_t or handles gives EACCES;
 *  - a thread that is cancelled (pthread_cancel) in a call other than a copy ends after the call.
 *
 * errno values used throughout: EINVAL bad argument, stale handle, not mapped; EAGAIN already
 * mapped; EACCES another process's object; ENODEV no backend works here; ENOTSUP this device or
 * this memory cannot; EOVERFLOW address + size wraps; ENOMEM memory, address space or BAR space;
 * EMFILE, ENFILE descriptors; EIO the GPU's driver failed without a reason that fits, which every
 * call that reaches the driver may give.
 */
#ifndef GDRAPI_H
#define GDRAPI_H

/* GDRCopy's guard and include, for sources that rely on them. */
#ifndef __GDRAPI_H__
#define __GDRAPI_H__
#endif
#include <stdarg.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* ---------------------------------------------------------------------------------------------
 * Versions and page geometry
 */
#define MAJOR_VERSION_SHIFT 16
#define MINOR_VERSION_MASK (((uint32_t)1 << MAJOR_VERSION_SHIFT) - 1)

#define GDR_API_MAJOR_VERSION 2
#define GDR_API_MINOR_VERSION 6
#define GDR_API_VERSION ((GDR_API_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | GDR_API_MINOR_VERSION)

/* The oldest gdrdrv that this library accepts. */
#define MINIMUM_GDRDRV_MAJOR_VERSION 2
#define MINIMUM_GDRDRV_MINOR_VERSION 0
#define MINIMUM_GDRDRV_VERSION \
	((MINIMUM_GDRDRV_MAJOR_VERSION << MAJOR_VERSION_SHIFT) | MINIMUM_GDRDRV_MINOR_VERSION)

/* BAR1 is managed in pages of 64 KiB (GPUDirect RDMA guide, "Registration Cache"). */
/* Spelled to the space as in GDRCopy's header: programs define the same names themselves. */
/* clang-format off */
#define GPU_PAGE_SHIFT 16
#define GPU_PAGE_SIZE (1UL << GPU_PAGE_SHIFT)
#define GPU_PAGE_OFFSET (GPU_PAGE_SIZE-1)
#define GPU_PAGE_MASK (~GPU_PAGE_OFFSET)
/* clang-format on */

/* ---------------------------------------------------------------------------------------------
 * Types
 */

/** A context: opaque, made by gdr_open() or barcopy_open(), ended by gdr_close(). */
struct gdr;
typedef struct gdr *gdr_t;

/** A pinned range: a plain value of 8 bytes, copied freely; 0 is never valid. */
typedef struct gdr_mh_s {
	unsigned long h;
} gdr_mh_t;

/** How to pin; see gdr_pin_buffer_v2(). */
typedef enum gdr_pin_flags {
	GDR_PIN_FLAG_DEFAULT = 0,
	/** Map through PCIe even where a coherent link exists; EINVAL where the driver has no such
	 *  choice. */
	GDR_PIN_FLAG_FORCE_PCIE = 1
} gdr_pin_flags_t;

/** How the CPU's mapping treats memory. */
typedef enum gdr_mapping_type {
	GDR_MAPPING_TYPE_NONE = 0,    /**< not mapped */
	GDR_MAPPING_TYPE_WC = 1,      /**< write-combining (Normal-NC on arm64) */
	GDR_MAPPING_TYPE_CACHING = 2, /**< cached, coherent */
	GDR_MAPPING_TYPE_DEVICE = 3,  /**< device memory: aligned accesses only (arm64) */
	GDR_MAPPING_TYPE_MAX
} gdr_mapping_type_t;

/** Flags of gdr_map_v2(); a type that the buffer cannot have gives ENOTSUP. */
typedef enum gdr_map_flags {
	GDR_MAP_FLAG_DEFAULT = 0,
	GDR_MAP_FLAG_REQ_WC_MAPPING = 1,
	GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2,
	GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3
} gdr_map_flags_t;

/** Attributes that gdr_get_attribute() returns. */
typedef enum gdr_attr {
	GDR_ATTR_USE_PERSISTENT_MAPPING = 1,
	GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2,
	GDR_ATTR_USING_DMA_BUF_MMAP = 3,
	GDR_ATTR_MAX
} gdr_attr_t;

/** A pinned range. The layout is frozen. */
typedef struct gdr_info_v2 {
	uint64_t va;	       /**< device address of the mapping's first byte: 64 KiB-aligned */
	uint64_t mapped_size;  /**< bytes from va that may be mapped: a multiple of 64 KiB */
	uint32_t page_size;    /**< bytes per GPU page */
	uint64_t tm_cycles;    /**< cycles that the driver's pin took; 0 if not measured */
	uint32_t cycles_per_ms; /**< cycles in a millisecond; 0 if unknown */
	unsigned mapped : 1;	/**< 1 while mapped */
	unsigned wc_mapping : 1; /**< 1 while mapped write-combining */
	gdr_mapping_type_t mapping_type; /**< type of the mapping, NONE while not mapped */
} gdr_info_v2_t;
typedef gdr_info_v2_t gdr_info_t;

/* ---------------------------------------------------------------------------------------------
 * Contexts
 */

/**
 * Opens a context for ordinary device memory (cudaMalloc).
 *
 * Fails where no backend can map that memory, so that programs fall back to other copies before
 * they rely on this library. The call opens the nodes of every backend that it finds, loads libcuda
 * and reads its version. Without the gdrdrv node it also reads from the GPU driver whether a GPU
 * exports its memory as a dma-buf. CUDA is not initialised, so that processes that are forked later
 * can use it.
 *
 * @return the context, owned by the caller, or NULL with errno set: ENODEV (no backend works here),
 *         EACCES (no permission to open a node, or /etc/barcopy/policy forbids rm), EINVAL
 *         (GDRCOPY_BACKEND names no backend, or the gdrdrv driver is too old or needs a newer
 *         library), ENOMEM, EMFILE, ENFILE, EIO (the GPU driver's node cannot be opened for another
 *         reason, or the driver failed).
 */
gdr_t gdr_open(void);

/**
 * Closes a context: waits for calls on it in other threads, then unmaps and unpins everything that
 * remains, and frees memory of barcopy_mem_alloc() as barcopy_mem_free() does: the GPU must have
 * finished its work on it. If an unpin fails, the call releases the rest and returns the first
 * failure.
 * @return 0; EINVAL; EACCES; ENOMEM (munmap() failed); EIO.
 */
int gdr_close(gdr_t g);

/** The interface level of this library; NULL pointers are skipped. Never fails. */
void gdr_runtime_get_version(int *major, int *minor);

/**
 * Returns the level of the context's backends that map ordinary device memory, or of all its
 * backends if none does; of several the highest. The backend gdrdrv has the level that its
 * node reports, every other backend 2.6.
 * @return 0; EINVAL (g, or a NULL pointer); ENOMEM, EMFILE, ENFILE (beside gdrdrv the call asks the
 *         GPU driver which backends map that memory).
 */
int gdr_driver_get_version(gdr_t g, int *major, int *minor);

/**
 * Reads an attribute of the context's backends that map ordinary device memory.
 *
 * GDR_ATTR_USE_PERSISTENT_MAPPING: 1 if a mapping of each of them outlives the free of its memory.
 * 0 on gdrdrv drivers before 2.5, which do not report it. A single pin may still be of the other
 * kind, as on GPU slices (MIG). GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE: 1 if any of them accepts that
 * pin flag; with the backend rm the call initialises CUDA. GDR_ATTR_USING_DMA_BUF_MMAP: 1 if
 * all of them map by dma-buf mmap.
 * @return 0; EINVAL (g, unknown attribute, NULL); ENOMEM, EMFILE, ENFILE as of
 *         gdr_driver_get_version().
 */
int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v);

/* ---------------------------------------------------------------------------------------------
 * Pinning
 */

/**
 * Pins [addr, addr + size), so that it can be mapped. The range is widened to 64 KiB pages;
 * gdr_get_info() returns the result. The range may reach over several allocations: each of its GPU
 * pages has to hold a byte of an allocation, and its last byte has to lie in an allocation. The
 * GPU driver verifies this for its own blocks alone: with CUDA a range may end behind a small
 * allocation, within 2 MiB, and is pinned. barcopy_map_range() verifies every byte.
 *
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is set on the allocation where CUDA allows it, so that later
 * synchronous copies and memsets of CUDA (cuMemcpy, cuMemset) are complete, as a mapping sees them,
 * when the call returns (GPUDirect RDMA guide, "Pinning GPU memory" and "Synchronization and Memory
 * Ordering"). After kernels and asynchronous calls the caller must synchronise the stream or the
 * context (cuStreamSynchronize, cuCtxSynchronize) before it reads through the mapping what they
 * write, and before it writes through the mapping what they read or write.
 * CUDA refuses the attribute for VMM memory (cuMemCreate; seen with driver 580): the pin succeeds,
 * BARCOPY_HANDLE_ATTR_SYNC_MEMOPS reads 0, and the caller must also synchronise after synchronous
 * copies and memsets.
 *
 * @param addr       device address; for memory of cudaHostAlloc, the host or the device address
 * @param size       bytes, at least 1
 * @param p2p_token  0, or the token of CU_POINTER_ATTRIBUTE_P2P_TOKENS (deprecated since CUDA 6);
 *                   not used: memory of the calling process needs none
 * @param va_space   0, or the VA-space token of that attribute; not used either
 * @param handle     the pinned range, owned by the caller until gdr_unpin_buffer() or gdr_close()
 * @return 0; EINVAL (NULL, size 0, an unknown address, a range beyond its allocation, managed
 *         memory); EOVERFLOW; ENOTSUP (memory of a kind that cannot be mapped here:
 *         barcopy_last_error() lists each backend's reason); ENOMEM (also: BAR1 is full); EMFILE;
 *         ENFILE; ENODEV; EACCES; EIO.
 */
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
		   gdr_mh_t *handle);

/**
 * Like gdr_pin_buffer(), without tokens.
 * @param flags  a gdr_pin_flags_t
 * @return as gdr_pin_buffer(); EINVAL also for an unknown flag, or a flag that this driver does not
 *         support
 */
int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle);

/**
 * Unmaps the range if it is still mapped, and unpins it. The handle is invalid afterwards, also if
 * the driver reports a failure.
 * @return 0; EINVAL; EACCES; ENOMEM (munmap() failed); EIO.
 */
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);

/**
 * Reports whether the GPU driver has revoked the range (its memory was freed).
 * @param flag  1 if revoked; always 0 where mappings are persistent
 * @return 0; EINVAL; EACCES.
 */
int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag);

/**
 * Describes a pinned range.
 * @return 0; EINVAL; EACCES.
 */
int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);
#define gdr_get_info gdr_get_info_v2

/* ---------------------------------------------------------------------------------------------
 * Mapping
 */

/**
 * Maps the first `size` bytes of a pinned range. The pointer refers to info.va, the pinned address
 * rounded down to 64 KiB; the CPU may load and store through it with naturally aligned accesses of
 * 1 to 8 bytes.
 *
 * A forked child does not inherit a mapping. For memory of cudaHostAlloc the pointer is computed
 * from the allocation's own address: only bytes of the allocation may be accessed, and the copies
 * check that.
 *
 * @param va    the pointer, valid until gdr_unmap(), gdr_unpin_buffer() or gdr_close()
 * @param size  bytes, 1 to info.mapped_size; rounded up to a host page
 * @return 0; EINVAL (size, NULL, handle, or the range was revoked); EAGAIN (mapped already);
 *         EACCES; ENODEV (no node of the GPU, as after chroot()); ENOMEM (address space; BAR1 is
 *         full); EMFILE; ENFILE; ENOTSUP; EIO.
 */
int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);

/**
 * Like gdr_map(), but requests a mapping type.
 * @param flags  one gdr_map_flags_t
 * @return as gdr_map(); EINVAL also for another value, ENOTSUP for a type that the memory cannot
 *         have
 */
int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **ptr_va, size_t size, int flags);

/**
 * Ends the mapping of a handle of gdr_pin_buffer().
 * @param va    the pointer that gdr_map() returned; also accepted: an address in the first 64 KiB
 *              of the pinned device range (DPDK passes such an address)
 * @param size  the size given to gdr_map(), or another that rounds up to the same host pages
 * @return 0; EINVAL (not mapped, or not this mapping); EACCES; ENOMEM (munmap() failed).
 */
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size);

/**
 * The name of a mapping type: "None", "Write Combining", "Caching", "Device".
 * @param pstr  a string of static storage
 * @return 0; EINVAL.
 */
int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char **pstr);

/* ---------------------------------------------------------------------------------------------
 * Copies
 */

/**
 * Copies from host memory into the mapping.
 *
 * gdr_copy_from_mapping() returns data at least as new as anything that the caller had observed
 * before the call; no load or store of the caller that follows the call is performed before the
 * copy's loads. After gdr_copy_to_mapping(), later stores of this CPU through a mapping of the
 * same type and device follow the data. Stores to another device, or to memory pinned with a
 * different setting of GDR_PIN_FLAG_FORCE_PCIE, take another path: call barcopy_flush() before
 * them. A copy does not order stores before it: data in host memory that a copied flag announces
 * needs barcopy_fence(BARCOPY_FENCE_AFTER_WRITE) before the flag. A copy waits for no GPU work:
 * the caller waits for kernels and asynchronous calls that still write the memory, and before a
 * copy into the mapping also for those that still read it. Each byte is stored exactly once
 * and each naturally aligned word of 4 or 8 bytes in one store; a copy of exactly 4 or 8 aligned
 * bytes is one plain store. Not promised: what a running GPU kernel sees (GPUDirect RDMA guide,
 * "Synchronization and Memory Ordering").
 * @param handle     mapped
 * @param map_d_ptr  destination: any byte of the mapping
 * @param h_ptr      source, any alignment
 * @param size       bytes; 0 is a no-op
 * @return 0; EINVAL (handle, not mapped, NULL, or not wholly inside the mapping); EACCES (also: a
 *         handle of a read-only range).
 */
int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size);

/**
 * Copies from the mapping into host memory. Loads whole aligned 64-byte lines around the range.
 * @param h_ptr      destination, any alignment
 * @param map_d_ptr  source: any byte of the mapping
 * @return as gdr_copy_to_mapping().
 */
int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
