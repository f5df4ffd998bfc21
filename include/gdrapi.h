/* SPDX-License-Identifier: MIT */
/**
 * @file gdrapi.h
 * libgdrapi: low-latency CPU access to GPU memory through the GPU's BAR.
 *
 * The first half is the interface that existing programs were written against and is kept as it
 * is, source and binary. The second half, under GDR_EXT_VERSION, is barcopy's own.
 *
 * Conventions, valid for every call unless its comment says otherwise:
 *  - returns 0, or a positive errno; outputs are written only on success;
 *  - sizes and offsets are in bytes;
 *  - every call may be made from any thread at any time; two calls on different handles run at
 *    the same time; the copies take no lock. Unmapping, unpinning or closing while another
 *    thread still copies on that handle is the caller's error;
 *  - a gdr_t or gdr_mh_t that is NULL, stale or invented gives EINVAL, never a crash;
 *  - in a child made by fork, every call on the parent's gdr_t or handles gives EACCES;
 *  - gdr_last_error() tells the cause of this thread's last failure in words.
 *
 * errno values used throughout: EINVAL bad argument, stale handle, not mapped; EAGAIN already
 * mapped; EACCES another process's object; ENODEV nothing can serve here; ENOTSUP this device or
 * this memory cannot; EOVERFLOW address + size wraps; ENOMEM memory, address space or BAR space;
 * EIO the GPU's driver failed without a reason that fits.
 */
#ifndef GDRAPI_H
#define GDRAPI_H

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

/* BAR1 is managed in pages of 64 KiB (GPUDirect RDMA guide, section 12.2). */
#define GPU_PAGE_SHIFT 16
#define GPU_PAGE_SIZE (1UL << GPU_PAGE_SHIFT)
#define GPU_PAGE_OFFSET (GPU_PAGE_SIZE - 1)
#define GPU_PAGE_MASK (~GPU_PAGE_OFFSET)

/* ---------------------------------------------------------------------------------------------
 * Types
 */

/** A context: opaque, made by gdr_open() or gdr_open_ex(), ended by gdr_close(). */
struct gdr;
typedef struct gdr *gdr_t;

/** A pinned range: a plain value of 8 bytes, copied freely; 0 is never valid. */
typedef struct gdr_mh_s {
	unsigned long h;
} gdr_mh_t;

/** How to pin; see gdr_pin_buffer_v2(). */
typedef enum gdr_pin_flags {
	GDR_PIN_FLAG_DEFAULT = 0,
	/** Map through PCIe even where a coherent link exists; EINVAL where that cannot be asked. */
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

/** What gdr_map_v2() may be asked for; a type that the buffer cannot have gives ENOTSUP. */
typedef enum gdr_map_flags {
	GDR_MAP_FLAG_DEFAULT = 0,
	GDR_MAP_FLAG_REQ_WC_MAPPING = 1,
	GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2,
	GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3
} gdr_map_flags_t;

/** What gdr_get_attribute() answers. */
typedef enum gdr_attr {
	GDR_ATTR_USE_PERSISTENT_MAPPING = 1,
	GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2,
	GDR_ATTR_USING_DMA_BUF_MMAP = 3,
	GDR_ATTR_MAX
} gdr_attr_t;

/** What is known of a pinned range. The layout is frozen. */
typedef struct gdr_info_v2 {
	uint64_t va;	       /**< device address that the map pointer stands for: 64 KiB-aligned */
	uint64_t mapped_size;  /**< bytes from va that may be mapped: a multiple of 64 KiB */
	uint32_t page_size;    /**< bytes per GPU page */
	uint64_t tm_cycles;    /**< cycles that the driver's pin took; 0 where not measured */
	uint32_t cycles_per_ms; /**< cycles in a millisecond; 0 where not known */
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
 * Fails where nothing can serve that memory, so that programs fall back to another way of copying
 * before they rely on this one. With the gdrdrv node it is cheap: the node is opened. Without it the
 * GPUs are asked whether they export their memory (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), for which
 * CUDA is initialised (cuInit; no context). gdr_open_ex(GDR_OPEN_ANY) never initialises CUDA; it is for
 * programs that can choose how they allocate.
 *
 * @return the context, owned by the caller, or NULL with errno set: ENODEV (no way here), EACCES
 *         (the node may not be opened), EINVAL (GDRCOPY_BACKEND names no backend, or the node's
 *         driver is too old), ENOMEM, EMFILE, ENFILE.
 */
gdr_t gdr_open(void);

/**
 * Closes a context: unmaps and unpins what is left, waits for calls on it in other threads.
 * Always finishes; a failure of one unpin is reported after the rest has been released.
 * @return 0; EINVAL; EACCES.
 */
int gdr_close(gdr_t g);

/** The interface level of this library; NULL pointers are skipped. Never fails. */
void gdr_runtime_get_version(int *major, int *minor);

/**
 * The level of the driver below: the node's own on the gdrdrv backend, 2.6 on every other.
 * @return 0; EINVAL (g, or a NULL pointer).
 */
int gdr_driver_get_version(gdr_t g, int *major, int *minor);

/**
 * Answers for the whole context; where several backends can serve, the answer is for what all
 * those do that serve ordinary device memory.
 *
 * GDR_ATTR_USE_PERSISTENT_MAPPING: 1 if a mapping outlives the free of its memory. 0 on gdrdrv drivers
 * before 2.5, which cannot be asked; a single pin may fall back to the other kind (GPU slices).
 * GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE: 1 if that pin flag is accepted by any of them.
 * GDR_ATTR_USING_DMA_BUF_MMAP: 1 if ordinary device memory is served by dma-buf mmap.
 * @return 0; EINVAL (g, unknown attribute, NULL).
 */
int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v);

/* ---------------------------------------------------------------------------------------------
 * Pinning
 */

/**
 * Pins [addr, addr + size), so that it can be mapped. The range is widened to 64 KiB pages;
 * gdr_get_info() tells the result.
 *
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is set on the allocation where CUDA allows it, so that copies
 * and memsets of the CUDA API are complete, as a mapping sees them, when the call returns
 * (GPUDirect RDMA guide, sections 11.7 and 12.2). CUDA refuses it for VMM memory (cuMemCreate;
 * seen with driver 580): the pin succeeds, GDR_HANDLE_ATTR_SYNC_MEMOPS reads 0, and the caller
 * must synchronise the stream or the context (cuStreamSynchronize, cuCtxSynchronize) after CUDA
 * operations on the buffer and before reading it through the mapping.
 *
 * @param addr       device address; for memory of cudaHostAlloc, the host or the device address
 * @param size       bytes, at least 1
 * @param p2p_token  0, or the token of CU_POINTER_ATTRIBUTE_P2P_TOKENS (deprecated since CUDA 6);
 *                   not used: memory of the calling process needs none
 * @param va_space   0, or the VA-space token of the same; likewise
 * @param handle     the pinned range, owned by the caller until gdr_unpin_buffer() or gdr_close()
 * @return 0; EINVAL (NULL, size 0, unknown address, managed memory); EOVERFLOW; ENOTSUP (memory of a
 *         kind that cannot be mapped here: the text lists each backend's reason); ENOMEM (also: BAR1 is full); ENODEV; EACCES.
 */
int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space,
		   gdr_mh_t *handle);

/**
 * As gdr_pin_buffer() without tokens.
 * @param flags  GDR_PIN_FLAG_*; an unknown flag, or one that this driver cannot do, is EINVAL
 */
int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle);

/**
 * Unpins; a mapping that is left is unmapped first. The handle is invalid afterwards.
 * @return 0; EINVAL; EACCES.
 */
int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle);

/**
 * Tells whether the GPU driver has revoked the range (its memory was freed).
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
 * Maps the first `size` bytes of a pinned range. The pointer stands for info.va, that is for the
 * pinned address rounded down to 64 KiB, and may be loaded from and stored to directly with
 * naturally aligned accesses of 1 to 8 bytes.
 *
 * A mapping is not inherited over fork. For memory of cudaHostAlloc the pointer is arithmetic on
 * the allocation's own address: only bytes of the allocation itself may be touched, and the copies
 * check that.
 *
 * @param va    the pointer, valid until gdr_unmap(), gdr_unpin_buffer() or gdr_close()
 * @param size  bytes, 1 to info.mapped_size; rounded up to a host page
 * @return 0; EINVAL (size, NULL, handle); EAGAIN (mapped already); EACCES; ENOMEM (address space;
 *         BAR full); ENOTSUP.
 */
int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size);

/**
 * As gdr_map(), for a mapping of the type that flags ask for.
 * @param flags  one gdr_map_flags_t; another value is EINVAL, an impossible type ENOTSUP
 */
int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **ptr_va, size_t size, int flags);

/**
 * Ends the mapping.
 * @param va    the pointer that gdr_map() gave; an address in the first 64 KiB of the pinned
 *              device range is taken for it as well (DPDK passes that one)
 * @param size  the size given to gdr_map(), or that rounded up to a host page
 * @return 0; EINVAL (not mapped, or not this mapping); EACCES.
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
 *
 * Ordering. gdr_copy_from_mapping() returns data at least as new as anything that the caller had
 * observed before the call; no load or store of the caller that follows the call is performed
 * before the copy's loads. After gdr_copy_to_mapping(), later stores of this CPU to the same
 * device are ordered behind the data; another device needs gdr_flush() first. Each byte is stored
 * exactly once and each naturally aligned word of 4 or 8 bytes in one store; a copy of exactly 4
 * or 8 aligned bytes is one plain store. Not promised: what a GPU kernel that is already running
 * sees (GPUDirect RDMA guide, section 11.7).
 */

/**
 * Copies from host memory into the mapping.
 * @param handle     mapped
 * @param map_d_ptr  destination: any byte of the mapping
 * @param h_ptr      source, any alignment
 * @param size       bytes; 0 is a no-op
 * @return 0; EINVAL (handle, not mapped, NULL, or not wholly inside the mapping); EACCES.
 */
int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size);

/**
 * Copies from the mapping into host memory. Loads whole aligned 64-byte lines around the range.
 * @param h_ptr      destination, any alignment
 * @param map_d_ptr  source: any byte of the mapping
 * @return as gdr_copy_to_mapping().
 */
int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size);

/* ---------------------------------------------------------------------------------------------
 * Extensions of barcopy
 *
 * One style: options in structs that begin with `size_t size` (unknown trailing bytes must be 0)
 * or in a `uint32_t flags` whose unknown bits are EINVAL; device addresses uint64_t; times _ns.
 */
#define GDR_EXT_VERSION 1

/** Flags of gdr_open_ex(). */
typedef enum gdr_open_flags {
	GDR_OPEN_DEFAULT = 0, /**< exactly gdr_open() */
	/** Also where only some memory is served: memory of cudaHostAlloc; exportable VMM memory,
	 *  where the driver exports no dma-buf. */
	GDR_OPEN_ANY = 1,
	/** Set CU_CTX_SYNC_MEMOPS (CUDA 12.1) on the context of each pinned pointer whose allocation
	 *  refuses SYNC_MEMOPS. It stays set: CUDA has no way to clear it. */
	GDR_OPEN_CTX_SYNC_MEMOPS = 2
} gdr_open_flags_t;

/**
 * gdr_open() with flags; unknown bits are EINVAL. With GDR_OPEN_ANY it fails (ENODEV) only where
 * there is neither a gdrdrv node nor a libcuda.so.1. Errors as gdr_open().
 */
gdr_t gdr_open_ex(uint32_t flags);

/**
 * The cause of this thread's last failing call, in words; "" if none failed yet. Never NULL.
 * Owned by the library, valid until this thread's next call.
 */
const char *gdr_last_error(void);

/** Levels of log messages, as in GDRCOPY_LOG_LEVEL. */
typedef enum gdr_log_level {
	GDR_LOG_DEBUG = 1,
	GDR_LOG_INFO = 2,
	GDR_LOG_WARN = 3,
	GDR_LOG_ERROR = 4
} gdr_log_level_t;

/** Receives one message without a newline; may be called from any thread; must not call us. */
typedef void (*gdr_log_fn)(void *arg, gdr_log_level_t level, const char *message);

/**
 * Sends this process's log messages, all levels, to `fn` instead of stderr; NULL restores the
 * default (stderr if GDRCOPY_ENABLE_LOGGING, from GDRCOPY_LOG_LEVEL up). When it returns, the
 * former function is not running and will not be called again. Nothing is logged by the copies.
 */
void gdr_set_log_fn(gdr_log_fn fn, void *arg);

/** Backends, as GDR_HANDLE_ATTR_BACKEND names them. */
typedef enum gdr_backend {
	GDR_BACKEND_GDRDRV = 1, /**< kernel driver: any device memory */
	GDR_BACKEND_DMABUF = 2, /**< mmap of a dma-buf, no module: CUDA driver 13.3 or newer */
	GDR_BACKEND_RM = 3,	/**< the GPU driver's resource manager, no module: any device memory */
	GDR_BACKEND_HOST = 4	/**< memory of cudaHostAlloc: the CPU pointer itself */
} gdr_backend_t;

/** What gdr_get_handle_attribute() answers. */
typedef enum gdr_handle_attr {
	GDR_HANDLE_ATTR_BACKEND = 1,	  /**< a gdr_backend_t */
	GDR_HANDLE_ATTR_DEVICE = 2,	  /**< CUDA device ordinal; ENOTSUP where not known */
	GDR_HANDLE_ATTR_PERSISTENT = 3,	  /**< 1: the mapping outlives the free of its memory */
	GDR_HANDLE_ATTR_SYNC_MEMOPS = 4,  /**< 1: SYNC_MEMOPS is in force; see gdr_pin_buffer() */
	GDR_HANDLE_ATTR_MAPPING_TYPE = 5, /**< the type a default map has; a gdr_mapping_type_t */
	/** Copies done by the copy engine, and those that came back to the mapping, since
	 *  gdr_set_copy_options(). */
	GDR_HANDLE_ATTR_ENGINE_COPIES = 6,
	GDR_HANDLE_ATTR_ENGINE_FALLBACKS = 7,
	GDR_HANDLE_ATTR_MAX
} gdr_handle_attr_t;

/**
 * Asks about one pinned range.
 * @return 0; EINVAL (g, handle, attribute, NULL); ENOTSUP (not known for this handle); EACCES.
 */
int gdr_get_handle_attribute(gdr_t g, gdr_mh_t handle, gdr_handle_attr_t attr, uint64_t *value);

/**
 * A descriptor that tells when the GPU driver has revoked a pinned range, because its memory was
 * freed: poll it, or add it to an epoll set, for POLLPRI. It stays ready until every revoked range
 * has been unpinned. It is the context's own: do not read, write or close it; it ends with
 * gdr_close().
 *
 * Known of barcopy's gdrdrv driver alone; revocation happens where its mappings are not persistent.
 * @param fd  the descriptor
 * @return 0; EINVAL (g, NULL); ENOTSUP (no backend of this context gives notice); EACCES.
 */
int gdr_get_event_fd(gdr_t g, int *fd);

/**
 * Tells of one revoked range: each once, in no particular order. The handle remains the caller's to
 * unpin; a copy on it, or a look through its map pointer, ends in SIGBUS. Works without a
 * descriptor too, wherever gdr_get_callback_flag() does, but then costs a system call per range.
 * A region of a cache is told of too, by the handle that its gdr_region_t has (or had): it is not to
 * be unpinned but given to gdr_cache_invalidate(), by the address in its gdr_get_info_v2().
 * @param handle  the range
 * @return 0; ENOENT (no further one); EINVAL (g, NULL); ENOMEM; EACCES.
 */
int gdr_next_revoked(gdr_t g, gdr_mh_t *handle);

/** Flags of a segment, and of a vectored copy. */
enum gdr_copy_flags {
	GDR_COPY_ORDERED = 1, /**< segment: after every segment before it has been performed */
	GDR_COPY_NO_FENCE = 2 /**< call: the caller uses gdr_fence() itself */
};

/** One piece of a vectored copy. */
typedef struct gdr_copy_seg {
	void *map_ptr;	   /**< any byte of the mapping */
	void *host_ptr;	   /**< host memory */
	size_t size;	   /**< bytes; 0 is skipped */
	uint32_t flags;	   /**< 0 or GDR_COPY_ORDERED */
	uint32_t reserved; /**< must be 0 */
} gdr_copy_seg_t;

/**
 * Copies `count` pieces into the mapping with one fence at the end. The pieces are unordered
 * among themselves, save that one with GDR_COPY_ORDERED is ordered behind all before it. Every
 * piece is checked before the first byte is written.
 * @param flags  0 or GDR_COPY_NO_FENCE
 * @return 0; EINVAL (handle, not mapped, a piece outside, unknown flag, reserved not 0); EACCES.
 */
int gdr_copyv_to_mapping(gdr_mh_t handle, const gdr_copy_seg_t *seg, size_t count, uint32_t flags);

/** The same out of the mapping: loads of many pieces are in flight together. */
int gdr_copyv_from_mapping(gdr_mh_t handle, const gdr_copy_seg_t *seg, size_t count,
			   uint32_t flags);

/** For a threshold of gdr_copy_options_t: the size that measurements speak for. */
#define GDR_COPY_ENGINE_AUTO ((size_t)-1)

/** Who helps with large copies on one handle. Zeroes are the defaults: nobody. */
typedef struct gdr_copy_options {
	size_t size; /**< sizeof(gdr_copy_options_t) */
	/** Threads of one copy, the caller's among them: 2 to 64; 1: the caller alone; 0: what
	 *  GDRCOPY_COPY_THREADS says, else the caller alone. The others wait in a pool, on CPUs of
	 *  the GPU's NUMA node where the system tells which, shared by all handles with the same
	 *  number and node. There are none unless they have been asked for. */
	uint32_t threads;
	uint32_t flags; /**< 0 */
	/** gdr_copy_from_mapping() of this many bytes and more goes through the GPU's copy engine;
	 *  0: never; GDR_COPY_ENGINE_AUTO: from where it is faster into pageable memory. */
	size_t engine_read_min;
	/** The same for gdr_copy_to_mapping(). AUTO is never: measured from pageable memory, the
	 *  mapping is faster at every size. From pinned memory the engine is ahead at 1 MiB. */
	size_t engine_write_min;
} gdr_copy_options_t;

/**
 * Lets threads or the copy engine help with large copies on this handle, from now on and over its
 * further mappings until the unpin; replaces what was set before. NULL: the defaults. Not while
 * another thread copies on the handle.
 *
 * The order of the copies stays what it is, and so do the vectored copies and those of 4 or 8
 * aligned bytes, which nobody helps with. The copy engine moves bytes, not words: do not let it
 * write where the GPU polls for a word meanwhile. It uses CUDA on a stream of its own, in the
 * context of the memory (for VMM memory in the device's primary one, which stays retained). Where
 * CUDA cannot be used, in a host function of a stream for one, or the memory has been freed, the
 * copy goes through the mapping as if nothing had been set;
 * GDR_HANDLE_ATTR_ENGINE_COPIES and _FALLBACKS count.
 *
 * A forked child has none of the threads; it cannot use its parent's handles (EACCES), and makes
 * threads of its own for its own handles.
 *
 * @return 0; EINVAL (handle, size, flags, threads, unknown bytes not 0); ENOTSUP (the copy engine for
 *         memory that is not the GPU's); ENOMEM; EAGAIN (no more threads); ENODEV or EIO (CUDA);
 *         EACCES. After a failure, all is as before.
 */
int gdr_set_copy_options(gdr_mh_t handle, const gdr_copy_options_t *options);

/** What a fence is for. */
typedef enum gdr_fence_use {
	GDR_FENCE_BEFORE_READ = 1, /**< reads that follow return what was observed before, or newer */
	GDR_FENCE_AFTER_READ = 2,  /**< nothing that follows is performed before the reads */
	GDR_FENCE_AFTER_WRITE = 3, /**< stores that follow, same device, are behind the writes */
	GDR_FENCE_FULL = 4	   /**< all of them */
} gdr_fence_t;

/**
 * The fence that a mapping of this type needs for that use.
 * @return 0; EINVAL (handle, not mapped, use); EACCES.
 */
int gdr_fence(gdr_mh_t handle, gdr_fence_t use);

/**
 * Returns when this CPU's earlier writes through the mapping have reached GPU memory, so that
 * another device may be told of them: a fence, then a read-back of one word.
 * @return 0; EINVAL (handle, not mapped); EACCES.
 */
int gdr_flush(gdr_mh_t handle);

/**
 * Single-copy atomic store or load of one naturally aligned word; the fences are those of the
 * copies. @return 0; EINVAL (handle, not mapped, misaligned, outside, NULL); EACCES.
 */
int gdr_put32(gdr_mh_t handle, void *map_ptr, uint32_t value);
int gdr_put64(gdr_mh_t handle, void *map_ptr, uint64_t value);
int gdr_get32(gdr_mh_t handle, const void *map_ptr, uint32_t *value);
int gdr_get64(gdr_mh_t handle, const void *map_ptr, uint64_t *value);

/** Comparison of a wait; unsigned. */
typedef enum gdr_cmp {
	GDR_CMP_EQ = 1,
	GDR_CMP_NE = 2,
	GDR_CMP_LT = 3,
	GDR_CMP_LE = 4,
	GDR_CMP_GT = 5,
	GDR_CMP_GE = 6
} gdr_cmp_t;

/**
 * Polls one naturally aligned word until `word cmp value` holds; what the caller loads afterwards
 * is at least as new as the word.
 * @param timeout_ns  nanoseconds; UINT64_MAX waits for ever; 0 looks once
 * @return 0; ETIMEDOUT; EINVAL (as gdr_get32(), or cmp); EACCES.
 */
int gdr_wait32(gdr_mh_t handle, const void *map_ptr, gdr_cmp_t cmp, uint32_t value,
	       uint64_t timeout_ns);
int gdr_wait64(gdr_mh_t handle, const void *map_ptr, gdr_cmp_t cmp, uint64_t value,
	       uint64_t timeout_ns);

/* ---- memory ---------------------------------------------------------------------------------- */

/** Flags of gdr_mem_alloc() and gdr_mem_import(). */
enum gdr_mem_flags {
	/** On an integrated GPU: a cached mapping instead of a write-combined one. ENOTSUP on a GPU
	 *  with memory of its own, whose mapping has the backend's type. */
	GDR_MEM_CACHED = 1,
	/** gdr_mem_import(): the descriptor is a dma-buf. */
	GDR_MEM_DMABUF = 2,
	/** gdr_mem_alloc(): gdr_mem_export() will be asked for it. ENOTSUP on an integrated GPU. */
	GDR_MEM_SHAREABLE = 4
};

/** Memory that GPU and CPU both reach. */
typedef struct gdr_mem {
	uint64_t device_ptr; /**< for kernels and the CUDA API; 0 for an imported dma-buf */
	void *cpu_ptr;	     /**< the same first byte, for loads, stores and the copies */
	size_t size;	     /**< bytes: at least those asked for */
	gdr_mh_t handle;     /**< for the copies; covers all of it */
} gdr_mem_t;

/**
 * Allocates device memory that is pinned, mapped and ready. CUDA is initialised if it was not, and
 * the device's primary context is kept until the free.
 *
 * The allocator is the one that this platform needs: cuMemHostAlloc on integrated GPUs; cuMemAlloc
 * where that memory is served; else, and with GDR_MEM_SHAREABLE, exportable, GPUDirect-capable memory
 * of cuMemCreate, whose size is rounded up to its granularity (2 MiB on most GPUs).
 *
 * @param device  CUDA device ordinal
 * @param size    bytes, at least 1
 * @param flags   0, or GDR_MEM_CACHED and GDR_MEM_SHAREABLE or'ed
 * @param mem     owned by the caller until gdr_mem_free() or gdr_close(), which frees it too;
 *                gdr_unpin_buffer() of the handle is the same as gdr_mem_free()
 * @return 0; EINVAL (g, device, size 0, unknown flag, NULL); ENOTSUP (this device or driver cannot,
 *         or not with these flags); ENOMEM (device memory, BAR or address space); ENODEV; EACCES; EIO.
 */
int gdr_mem_alloc(gdr_t g, int device, size_t size, uint32_t flags, gdr_mem_t *mem);

/**
 * Unmaps, unpins and frees. The GPU must have finished with it. *mem is zeroes afterwards, so that
 * a second call on it is EINVAL.
 * @return 0; EINVAL (g, NULL, not memory of gdr_mem_alloc() or gdr_mem_import()); EACCES.
 */
int gdr_mem_free(gdr_t g, gdr_mem_t *mem);

/**
 * Hands memory to another process: a descriptor to be sent over a Unix socket (SCM_RIGHTS) and
 * given to gdr_mem_import() there, together with mem->size. Each side frees its own.
 * @param fd  the caller's to close, close-on-exec; the memory lives while one is open
 * @return 0; EINVAL (g, NULL, not memory of gdr_mem_alloc()); ENOTSUP (allocated
 *         without GDR_MEM_SHAREABLE, or imported as a dma-buf); EMFILE and the like as EIO; EACCES.
 */
int gdr_mem_export(gdr_t g, const gdr_mem_t *mem, int *fd);

/**
 * Maps memory that another process exported with gdr_mem_export(), or with
 * cuMemExportToShareableHandle as a POSIX file descriptor: both sides then see one buffer.
 *
 * With GDR_MEM_DMABUF it maps a dma-buf, as cuMemGetHandleForAddressRange gives for any device memory.
 * The buffer's first byte is mem->cpu_ptr. It needs no context of CUDA in this process, and has no
 * device address there: CUDA imports dma-bufs on Thor alone (driver API, cuImportExternalMemory), so
 * mem->device_ptr is 0 and copies never use the copy engine. SYNC_MEMOPS is the exporter's to set.
 *
 * @param device  ordinal, in this process, of the GPU that the memory is on; with GDR_MEM_DMABUF also
 *                -1: not known, which the dmabuf backend can do with, the gdrdrv backend (a driver
 *                that pins by dma-buf) cannot
 * @param fd      stays the caller's; may be closed afterwards
 * @param size    bytes: all of the exported memory; with GDR_MEM_DMABUF a multiple of 64 KiB, at most
 *                the buffer's size
 * @param flags   0 or GDR_MEM_DMABUF
 * @param mem     as in gdr_mem_alloc()
 * @return 0; EINVAL (g, device, fd, size, flags, NULL); ENOTSUP (also: no backend here maps this
 *         dma-buf); ENOMEM; ENODEV; EACCES; EIO.
 */
int gdr_mem_import(gdr_t g, int device, int fd, size_t size, uint32_t flags, gdr_mem_t *mem);

/** Flags of gdr_map_range(). */
enum gdr_map_range_flags {
	/** A mapping of its own without write permission: a store through the pointer, or a copy to
	 *  it, is a fault (SIGSEGV). ENOTSUP for memory of cudaHostAlloc. */
	GDR_MAP_RANGE_READ_ONLY = 1
};

/**
 * Pins and maps any range of device memory, and gives the CPU's pointer to that very byte.
 *
 * GPU pages are pinned and mapped once, however many ranges of the context lie in them: two buffers
 * in one page, equal and overlapping ranges and parts of a range share a pin, which ends with the
 * last of them. (A range that reaches beyond what is pinned gets a pin that covers both, and later
 * ranges share that one; the first stays as it is for those who have it.) Memory that was freed and
 * allocated anew since is never shared: CUDA's buffer ID is compared.
 *
 * @param addr     device address, any alignment; for memory of cudaHostAlloc also the host address
 * @param size     bytes, at least 1
 * @param flags    0 or GDR_MAP_RANGE_READ_ONLY
 * @param cpu_ptr  stands for addr; valid until the handle ends
 * @param handle   for the copies, which reach exactly this range; its gdr_info_v2_t.va is addr
 *                 rounded down to 64 KiB. The caller's until gdr_unmap_range() or gdr_close()
 * @return 0; EINVAL (g, NULL, size 0, unknown flag or address); EOVERFLOW; ENOTSUP (memory of a kind
 *         that cannot be mapped here, or not read-only); ENOMEM (also: BAR1 is full); ENODEV; EACCES.
 */
int gdr_map_range(gdr_t g, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		  gdr_mh_t *handle);

/**
 * Ends a range; the pages stay mapped while another range of the context lies in them.
 * @return 0; EINVAL (g, or not a handle of gdr_map_range()); EACCES.
 */
int gdr_unmap_range(gdr_t g, gdr_mh_t handle);

/** The BAR1 of one GPU, in bytes, for all processes together. */
typedef struct gdr_bar_info {
	size_t size; /**< in: sizeof(gdr_bar_info_t) */
	uint64_t total;
	uint64_t used;
	uint64_t free;
} gdr_bar_info_t;

/**
 * Asks NVML (libnvidia-ml.so.1, loaded at the first call) about a GPU's BAR1. CUDA is initialised
 * if it was not.
 * @param device  CUDA device ordinal
 * @return 0; EINVAL (g, device, NULL, info->size too small); ENOTSUP (no NVML here, or it does not
 *         tell: gdr_last_error() says which); ENODEV (no CUDA driver); EIO; EACCES.
 */
int gdr_get_bar_info(gdr_t g, int device, gdr_bar_info_t *info);

/* ---- registration cache ---------------------------------------------------------------------- */

/** A registration cache: opaque, ended by gdr_cache_destroy() or by gdr_close() of its context. */
struct gdr_cache;
typedef struct gdr_cache *gdr_cache_t;

/** How a region that is found is proven to be still the memory at that address. */
typedef enum gdr_cache_validity {
	/** CUDA's buffer ID is compared at each gdr_cache_get() (GPUDirect RDMA guide, section
	 *  12.5): one call into CUDA for each allocation in the range. Needs no help of anybody. */
	GDR_CACHE_CHECK_TAG = 0,
	/** The driver's callback flag is looked at. Only where pins are not persistent: elsewhere
	 *  gdr_cache_get() gives ENOTSUP. */
	GDR_CACHE_CHECK_CALLBACK = 1,
	/** Nothing is looked at: an allocator or its hook calls gdr_cache_invalidate() before memory
	 *  is freed or unmapped. The fastest. */
	GDR_CACHE_NOTIFIED = 2
} gdr_cache_validity_t;

/** Options of gdr_cache_create(). Zeroes are the defaults. */
typedef struct gdr_cache_options {
	size_t size;	   /**< sizeof(gdr_cache_options_t) */
	uint32_t validity; /**< a gdr_cache_validity_t */
	uint32_t flags;	   /**< 0 */
	/** Bytes of BAR to keep pinned at most; 0: three quarters of what is free on each GPU when
	 *  its first region is made, or no limit where NVML cannot tell. Regions in use are never
	 *  given up: while they alone are more than the limit, so is the cache. */
	uint64_t max_bytes;
	uint64_t max_regions; /**< the same, as a count; 0: no limit */
	/** Allocations up to this size are pinned whole; 0: 2 MiB. (Where a map of a part takes the
	 *  BAR space of the whole allocation, it is pinned whole in any case.) */
	uint64_t whole_max;
} gdr_cache_options_t;

/** A use of a cached region. */
typedef struct gdr_region {
	void *cpu_ptr;	     /**< stands for device_ptr; valid until gdr_cache_put() */
	uint64_t device_ptr; /**< as asked for */
	size_t size;	     /**< as asked for */
	gdr_mh_t handle;     /**< for the copies; the cache's: not to be unpinned or unmapped */
	uint64_t entry;	     /**< the cache's */
} gdr_region_t;

/**
 * Makes a cache of pinned and mapped regions: what gdr_cache_put() gives back stays pinned until
 * room is needed, and the next gdr_cache_get() of those addresses finds it.
 * @param options  NULL: the defaults
 * @param cache    the caller's until gdr_cache_destroy() or gdr_close()
 * @return 0; EINVAL (g, NULL, an option); ENOMEM; EACCES.
 */
int gdr_cache_create(gdr_t g, const gdr_cache_options_t *options, gdr_cache_t *cache);

/**
 * Unpins everything and ends the cache. No other thread may be in a call on it.
 * @return 0; EBUSY (a region is in use: nothing was done); EINVAL; EACCES.
 */
int gdr_cache_destroy(gdr_cache_t cache);

/**
 * Gives a mapping of [addr, addr + size), from the cache if a valid one is there. Finding one takes
 * no lock and runs in any number of threads at once. Regions are whole GPU pages (64 KiB) or whole
 * allocations; ranges that overlap come to share one region.
 *
 * Where BAR1 or a limit is exhausted, regions that are not in use are unpinned, the least recently
 * used first. The caller must own the memory: it may not be freed before the gdr_cache_put() (if it
 * is, the mapping stays harmless until then and is not found again).
 *
 * @param region  filled in; given back by one gdr_cache_put()
 * @return 0; ENOMEM (BAR1 is full and no region of that GPU is idle; memory); and as
 *         gdr_map_range(); ENOTSUP (also: no callback flag).
 */
int gdr_cache_get(gdr_cache_t cache, uint64_t addr, size_t size, gdr_region_t *region);

/**
 * Gives a region back, from any thread. *region is zeroes afterwards, so that a second call on it
 * is EINVAL. A region that was invalidated meanwhile is unmapped by its last put.
 * @return 0; EINVAL (cache, NULL, not a region in use of this cache); EACCES.
 */
int gdr_cache_put(gdr_cache_t cache, gdr_region_t *region);

/**
 * Forgets every region that touches a GPU page of [addr, addr + size): idle ones are unmapped now,
 * those in use by their last put. For any validity. Call it before the memory is freed. Must not be
 * called by a hook of a CUDA call that this library itself makes: hook cuMemFree and cuMemUnmap,
 * not cuMemRelease.
 * @param size  a range that would wrap ends at the end of the address space: 0 and SIZE_MAX are all
 * @return 0, whether or not anything was there; EINVAL (cache); EACCES.
 */
int gdr_cache_invalidate(gdr_cache_t cache, uint64_t addr, size_t size);

/** Counts since gdr_cache_create(), and what is there now. */
typedef struct gdr_cache_stats {
	size_t size;		 /**< in: sizeof(gdr_cache_stats_t) */
	uint64_t hits;		 /**< gdr_cache_get() found a valid region */
	uint64_t misses;	 /**< it had to pin, or failed to */
	uint64_t evictions;	 /**< unpinned to make room */
	uint64_t invalidations;	 /**< found not valid any more, or by gdr_cache_invalidate() */
	uint64_t regions;	 /**< now, those invalidated and in use among them */
	uint64_t regions_in_use; /**< now */
	uint64_t bytes_pinned;	 /**< of BAR, by regions that can be found */
	uint64_t max_bytes;	 /**< the limit in force */
} gdr_cache_stats_t;

/**
 * Reads the statistics.
 * @return 0; EINVAL (cache, NULL, stats->size too small); EACCES.
 */
int gdr_cache_get_stats(gdr_cache_t cache, gdr_cache_stats_t *stats);

/* ---- statistics ------------------------------------------------------------------------------ */

/** Flags of gdr_set_stats(). */
enum gdr_stats_flags {
	/** Count copies and words. What else gdr_stats_t has is always counted. */
	GDR_STATS_COPIES = 1
};

/**
 * Says what is counted from now on, in the whole process, on handles there are and those to come.
 * At first it is GDR_STATS_COPIES if GDRCOPY_STATS is set, else 0. Where copies are not counted,
 * counting costs them nothing; where they are, 1 to 3 ns each and some memory for each thread. What
 * was counted is kept.
 * @param flags  0 or GDR_STATS_COPIES
 * @return 0; EINVAL (unknown bits).
 */
int gdr_set_stats(uint32_t flags);

/** Classes of sizes: up to 4, 16, 64, 256 B, 1, 4, 16, 64, 256 KiB, 1, 4 MiB, and larger ones. */
#define GDR_STATS_SIZES 12

/** Copies in one direction, by size. Each piece of a vectored copy that is not empty is one. */
typedef struct gdr_stats_copies {
	uint64_t copies[GDR_STATS_SIZES];
	uint64_t bytes[GDR_STATS_SIZES];
} gdr_stats_copies_t;

/** What a handle, a context or the process has done. Calls that failed are not in it. */
typedef struct gdr_stats {
	size_t size;	/**< in: sizeof(gdr_stats_t) */
	uint64_t flags; /**< what is counted now: the flags of gdr_set_stats() */
	/** GPU ranges pinned and unpinned, mapped and unmapped. Ranges, memory and regions that share
	 *  a pin count as the one that they share, which is no handle's own: their handles have 0. */
	uint64_t pins, unpins, maps, unmaps;
	/** Ranges found revoked by gdr_next_revoked() or gdr_get_callback_flag(). */
	uint64_t revoked;
	/** Copies done by the copy engine, and those that came back to the mapping. */
	uint64_t engine_copies, engine_fallbacks;
	/** Of registration caches; 0 for a handle. */
	uint64_t cache_hits, cache_misses, cache_evictions;
	uint64_t uncounted; /**< copies and words of the process not counted for lack of memory */
	/** Words: gdr_put32(), gdr_get32(), gdr_wait32() and those of 64 bits. */
	uint64_t puts, gets, waits;
	gdr_stats_copies_t to, from; /**< into mappings, out of mappings */
} gdr_stats_t;

/**
 * Reads the statistics, by one of three scopes: `handle` and its context; a context, with what its
 * handles did that have ended, for a handle of 0; or, for g NULL and a handle of 0, the process, with
 * what its closed contexts did. A forked child begins at 0. What other threads are doing meanwhile
 * may or may not be in it; what this thread has done is.
 *
 * With GDRCOPY_STATS=1 the process's statistics are written to standard error when it exits.
 * @return 0; EINVAL (g, handle, NULL, stats->size too small); EACCES.
 */
int gdr_get_stats(gdr_t g, gdr_mh_t handle, gdr_stats_t *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
