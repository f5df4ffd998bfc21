/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy.h
 * What barcopy adds to gdrapi.h: ranges of any alignment, memory that GPU and CPU share, vectored copies,
 * words, waits and fences, the copy engine for large copies, a registration cache, statistics.
 *
 * The conventions are those of gdrapi.h:
 *  - a call returns 0 or a positive errno and writes outputs on success only; barcopy_last_error() describes
 *    the cause of this thread's last failure, including that of a gdr_*() call;
 *  - sizes and offsets are in bytes, times in nanoseconds (_ns), device addresses are uint64_t;
 *  - any thread may make any call at any time; a thread that ends an object (unmaps, unpins, frees, destroys)
 *    must not do so while another thread uses it;
 *  - what a call makes belongs to the caller until the call that is named with it, or until gdr_close();
 *  - EINVAL is a bad argument or an object that has ended, EACCES an object of the parent process; a call that
 *    reaches the GPU's driver may give EIO;
 *  - unknown bits of `uint32_t flags` are EINVAL. A struct that begins with `size_t struct_size` is given with
 *    its sizeof there. The struct of an older program is smaller than the library's, that of a newer one
 *    larger: bytes that the library does not know must be 0, and are 0 in a result. A struct_size below that
 *    of the first release, or above 4096, is EINVAL.
 */
#ifndef BARCOPY_H
#define BARCOPY_H

#include "gdrapi.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/**
 * The level of this header. It grows when something is added; from the release on that declares these
 * calls stable, nothing is taken away (docs/versions.md).
 */
#define BARCOPY_API_VERSION 1

/** The level of the library that the program runs with: BARCOPY_API_VERSION when it was built. */
uint32_t barcopy_get_api_version(void);

/** Flags of barcopy_open(). */
typedef enum barcopy_open_flags {
	BARCOPY_OPEN_DEFAULT = 0, /**< exactly gdr_open() */
	/** Also where some memory alone is served: memory of cudaHostAlloc; exportable VMM memory,
	 *  where the driver exports no dma-buf. */
	BARCOPY_OPEN_ANY = 1
} barcopy_open_flags_t;

/**
 * gdr_open() with flags. With BARCOPY_OPEN_ANY it fails (ENODEV) only where there is neither a gdrdrv node
 * nor a libcuda.so.1.
 * @param flags  0 or BARCOPY_OPEN_ANY
 * @return the context, the caller's until gdr_close(); or NULL with errno set as by gdr_open(), EINVAL also for
 *         unknown flags
 */
gdr_t barcopy_open(uint32_t flags);

/**
 * The cause of this thread's last failing call, in words; "" if none has failed. Never NULL.
 * @return a text of the library's, valid until this thread's next call or its end
 */
const char *barcopy_last_error(void);

/** Backends, as BARCOPY_HANDLE_ATTR_BACKEND names them. */
typedef enum barcopy_backend {
	BARCOPY_BACKEND_GDRDRV = 1, /**< kernel driver: any device memory */
	BARCOPY_BACKEND_DMABUF = 2, /**< mmap of a dma-buf, no module: CUDA driver 13.3 or newer */
	BARCOPY_BACKEND_RM = 3,	/**< the GPU driver's resource manager, no module: any device memory */
	BARCOPY_BACKEND_HOST = 4	/**< memory of cudaHostAlloc: the CPU pointer itself */
} barcopy_backend_t;

/** Attributes that barcopy_get_handle_attribute() returns. */
typedef enum barcopy_handle_attr {
	BARCOPY_HANDLE_ATTR_BACKEND = 1,	  /**< a barcopy_backend_t */
	BARCOPY_HANDLE_ATTR_DEVICE = 2,	  /**< CUDA device ordinal; ENOTSUP where not known */
	BARCOPY_HANDLE_ATTR_PERSISTENT = 3,	  /**< 1: the mapping outlives the free of its memory */
	BARCOPY_HANDLE_ATTR_SYNC_MEMOPS = 4,  /**< 1: SYNC_MEMOPS is in force; see gdr_pin_buffer() */
	BARCOPY_HANDLE_ATTR_MAPPING_TYPE = 5, /**< the type a default map has; a gdr_mapping_type_t */
	BARCOPY_HANDLE_ATTR_MAX
} barcopy_handle_attr_t;

/**
 * Reads an attribute of a pinned range.
 * @param value  the attribute, in the unit that barcopy_handle_attr_t names
 * @return 0; EINVAL (g, handle, attribute, NULL); ENOTSUP (not known for this handle); EACCES.
 */
int barcopy_get_handle_attribute(gdr_t g, gdr_mh_t handle, barcopy_handle_attr_t attr, uint64_t *value);

/**
 * A descriptor that becomes ready when the GPU driver has revoked a pinned range, because its memory was
 * freed: poll it, or add it to an epoll set, for POLLPRI. It stays ready until every revoked range
 * has been unpinned. Do not read or write it.
 *
 * Only barcopy's gdrdrv driver supports this; revocation happens where its mappings are not persistent.
 * @param fd  the caller's to close, close-on-exec. It outlives gdr_close(), but then is never ready. A
 *            forked child that neither execs nor closes it keeps the driver's file open: what its
 *            parent has pinned when it dies stays pinned until then.
 * @return 0; EINVAL (g, NULL); ENOTSUP (no backend of this context gives notice); EMFILE (descriptors);
 *         EACCES.
 */
int barcopy_get_event_fd(gdr_t g, int *fd);

/**
 * Reports one revoked range: each once, in no particular order. The handle remains the caller's to
 * unpin; a copy on it, or an access through its map pointer, ends in SIGBUS. Works without a
 * descriptor too, wherever gdr_get_callback_flag() does, and then costs a system call for each range.
 * Idle regions of a cache are released by this call and not reported. A region in use is reported by the
 * handle of its barcopy_region_t: no get finds it any more, and the last barcopy_cache_put() releases it.
 * @param handle  the range
 * @return 0; ENOENT (no further one); EINVAL (g, NULL); ENOMEM; EACCES.
 */
int barcopy_next_revoked(gdr_t g, gdr_mh_t *handle);

/** Flags of a segment, and of a vectored copy. */
enum barcopy_copy_flags {
	BARCOPY_COPY_ORDERED = 1, /**< segment: after every segment before it has been performed */
	BARCOPY_COPY_NO_FENCE = 2 /**< call: the caller uses barcopy_fence() itself */
};

/** One piece of a vectored copy. */
typedef struct barcopy_copy_seg {
	void *map_ptr;	   /**< any byte of the mapping */
	void *host_ptr;	   /**< host memory */
	size_t size;	   /**< bytes; 0 is skipped */
	uint32_t flags;	   /**< 0 or BARCOPY_COPY_ORDERED */
	uint32_t reserved; /**< must be 0 */
} barcopy_copy_seg_t;

/**
 * Copies `count` pieces into the mapping with one fence at the end. The pieces are unordered
 * among themselves, save that one with BARCOPY_COPY_ORDERED is ordered behind all before it. Every
 * piece is checked before the first byte is written.
 * @param flags  0 or BARCOPY_COPY_NO_FENCE
 * @return 0; EINVAL (handle, not mapped, seg NULL, a piece outside, host_ptr NULL, unknown flag, reserved not
 *         0); EACCES (also: a read-only range).
 */
int barcopy_copyv_to_mapping(gdr_mh_t handle, const barcopy_copy_seg_t *seg, size_t count, uint32_t flags);

/**
 * Copies `count` pieces out of the mapping: the loads of many pieces are in flight together. Each line of 64
 * bytes is loaded once, however many pieces between two ORDERED ones lie in it; where host destinations
 * overlap, the later piece's bytes remain.
 *
 * An Intel core has as many line buffers for lines with address bit 6 clear as for lines with it set
 * (measured: 8 and 8), so flags that are read together should lie at odd multiples of 64 bytes from each
 * other: 16 then take one round trip of the link, and two at even multiples. docs/performance.md has figures.
 * @return as barcopy_copyv_to_mapping(), but a read-only range is no error
 */
int barcopy_copyv_from_mapping(gdr_mh_t handle, const barcopy_copy_seg_t *seg, size_t count,
			   uint32_t flags);

/** One piece of a vectored copy through several handles. */
typedef struct barcopy_handle_seg {
	gdr_mh_t handle;	/**< whose mapping seg.map_ptr is in */
	barcopy_copy_seg_t seg; /**< as in a vector of one handle */
} barcopy_handle_seg_t;

/**
 * As barcopy_copyv_to_mapping() and barcopy_copyv_from_mapping(), each piece through a handle of its own,
 * with one fence for all. The handles may be of several contexts and GPUs, and their mappings of several
 * types: the fences are those of the strictest. Every handle and piece is checked before the first byte is
 * moved. No handle may be unmapped or unpinned meanwhile.
 *
 * A piece with BARCOPY_COPY_ORDERED leaves this CPU behind all before it, also those of other GPUs. A write
 * to another GPU may still be on its way then: barcopy_flush() on its handle waits for it.
 * @param flags  0 or BARCOPY_COPY_NO_FENCE
 * @return as barcopy_copyv_to_mapping() and barcopy_copyv_from_mapping()
 */
int barcopy_copyv_to_mappings(const barcopy_handle_seg_t *seg, size_t count, uint32_t flags);
int barcopy_copyv_from_mappings(const barcopy_handle_seg_t *seg, size_t count, uint32_t flags);

/** For a threshold of barcopy_copy_options_t: the size that measurements speak for. */
#define BARCOPY_COPY_ENGINE_AUTO SIZE_MAX

/** When the GPU's copy engine makes the large copies of one handle. Zeroes are the defaults: never. */
typedef struct barcopy_copy_options {
	size_t struct_size; /**< sizeof(barcopy_copy_options_t) */
	uint32_t flags;	    /**< 0 */
	uint32_t reserved;  /**< 0 */
	/** gdr_copy_from_mapping() of this many bytes and more goes through the GPU's copy engine;
	 *  0: never; BARCOPY_COPY_ENGINE_AUTO: from where it is faster, which CUDA is asked for: into
	 *  page-locked memory that is sooner than into pageable memory. */
	size_t engine_read_min;
	/** The same for gdr_copy_to_mapping(). AUTO: from page-locked memory, where the copy engine is
	 *  ahead for large copies; from pageable memory never, as the mapping is faster at every size. */
	size_t engine_write_min;
} barcopy_copy_options_t;

/**
 * Gives large copies on this handle to the copy engine, from now on and over its further mappings
 * until the unpin; replaces what was set before. NULL: the defaults. No other thread may copy on the handle
 * meanwhile.
 *
 * The order of the copies stays what it is, and so do the vectored copies and those of 4 or 8
 * aligned bytes, which go through the mapping. The copy engine moves bytes, not words: do not let it
 * write where the GPU polls for a word meanwhile. It uses CUDA on a stream of its own, in the
 * context of the memory (for VMM memory in the device's primary one, which stays retained). Where
 * CUDA cannot be used, or the memory is not what was pinned any more (CUDA's buffer ID is compared for
 * every allocation that a copy touches), the copy goes through the mapping as if nothing had been set;
 * barcopy_get_stats() counts both. In a host function of a stream CUDA forbids its own calls, and may or
 * may not refuse them: make no large copy there.
 *
 * @return 0; EINVAL (handle; the handle of a barcopy_region_t, whose options are in barcopy_cache_options_t;
 *         struct_size, flags, unknown bytes not 0; memory that was freed); ENOTSUP (memory that is not the
 *         GPU's, or an imported dma-buf); ENOMEM; ENODEV; EIO; EACCES. After a failure all is as before.
 */
int barcopy_set_copy_options(gdr_mh_t handle, const barcopy_copy_options_t *options);

/** What a fence is for. */
typedef enum barcopy_fence_use {
	BARCOPY_FENCE_BEFORE_READ = 1, /**< reads that follow return what was observed before, or newer */
	BARCOPY_FENCE_AFTER_READ = 2,  /**< nothing that follows is performed before the reads */
	BARCOPY_FENCE_AFTER_WRITE = 3, /**< stores that follow, same device and kind of mapping, are behind */
	BARCOPY_FENCE_FULL = 4	   /**< all of them */
} barcopy_fence_t;

/**
 * Makes the fence that a mapping of the handle's type needs for that use.
 * @return 0; EINVAL (handle, not mapped, use); EACCES.
 */
int barcopy_fence(gdr_mh_t handle, barcopy_fence_t use);

/**
 * Returns when this CPU's earlier writes through the mapping have reached GPU memory, so that
 * another device may be notified: a fence, then a read-back of one word.
 * @return 0; EINVAL (handle, not mapped); EACCES.
 */
int barcopy_flush(gdr_mh_t handle);

/**
 * Stores or loads one naturally aligned word of 4 or 8 bytes as a whole, with the fences of the copies.
 * @param map_ptr  in the mapping, aligned to the size of the word
 * @return 0; EINVAL (handle, not mapped, misaligned, outside, NULL); EACCES (a put also: a read-only range).
 */
int barcopy_put32(gdr_mh_t handle, void *map_ptr, uint32_t value);
int barcopy_put64(gdr_mh_t handle, void *map_ptr, uint64_t value);
int barcopy_get32(gdr_mh_t handle, const void *map_ptr, uint32_t *value);
int barcopy_get64(gdr_mh_t handle, const void *map_ptr, uint64_t *value);

/**
 * A put that does not wait: for the last word of a message, whose arrival the other side acknowledges. Where
 * the CPU has a store that is sent at once (MOVDIRI; write-combined mappings), the call is that store without
 * a fence: some 10 ns instead of 140. Elsewhere it is barcopy_put32().
 *
 * Promised: the word is stored whole. It is behind every earlier copy and put of this thread through
 * write-combined mappings, but not behind vectored copies with BARCOPY_COPY_NO_FENCE or other posts. It leaves
 * without a further call.
 * Not promised: that it has left when the call returns; any order with later stores of this thread, to
 * this mapping or anywhere else, a second post included. A later copy, put or
 * barcopy_fence(BARCOPY_FENCE_AFTER_WRITE) brings the order back. The caller must have seen the other side's
 * answer before it reuses memory that the other side reads after the word.
 * @return as barcopy_put32()
 */
int barcopy_post32(gdr_mh_t handle, void *map_ptr, uint32_t value);
int barcopy_post64(gdr_mh_t handle, void *map_ptr, uint64_t value);

/** Bytes of a posted line, and its alignment. */
#define BARCOPY_LINE 64

/**
 * Posts a message of one line: copies BARCOPY_LINE bytes from `line`, of any alignment, to map_ptr, which is
 * aligned to BARCOPY_LINE.
 *
 * Promised: each aligned word of 8 bytes is stored whole, and the last one becomes visible last, so it can
 * be the flag of the 56 bytes before it. Where the CPU has MOVDIR64B and the mapping is write-combined, the
 * line is one write of 64 bytes, without a fence: some 7 ns; elsewhere it is a copy of 56 bytes, the
 * fence of a copy, and barcopy_post64(). The order with what this thread did before and does after is as
 * for barcopy_post32(). Not promised: any order among the first 56 bytes.
 * @return 0; EINVAL (handle, not mapped, misaligned, outside, line is NULL); EACCES (also: a read-only
 *         range).
 */
int barcopy_post_line(gdr_mh_t handle, void *map_ptr, const void *line);

/** Comparison of a wait; unsigned. */
typedef enum barcopy_cmp {
	BARCOPY_CMP_EQ = 1,
	BARCOPY_CMP_NE = 2,
	BARCOPY_CMP_LT = 3,
	BARCOPY_CMP_LE = 4,
	BARCOPY_CMP_GT = 5,
	BARCOPY_CMP_GE = 6
} barcopy_cmp_t;

/**
 * Polls one naturally aligned word until `word cmp value` holds; what the caller loads afterwards
 * is at least as new as the word.
 * @param timeout_ns  nanoseconds; UINT64_MAX: no limit; 0: loads the word once
 * @return 0; ETIMEDOUT (the word did not compare so in time); EINVAL (as barcopy_get32(), or cmp); EACCES.
 */
int barcopy_wait32(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint32_t value,
	       uint64_t timeout_ns);
int barcopy_wait64(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint64_t value,
	       uint64_t timeout_ns);

/* ---- memory ---------------------------------------------------------------------------------- */

/** Flags of barcopy_mem_alloc() and barcopy_mem_import(). */
enum barcopy_mem_flags {
	/** On an integrated GPU: a cached mapping instead of a write-combined one. ENOTSUP on a GPU
	 *  with memory of its own, whose mapping has the backend's type. */
	BARCOPY_MEM_CACHED = 1,
	/** barcopy_mem_import(): the descriptor is a dma-buf. */
	BARCOPY_MEM_DMABUF = 2,
	/** barcopy_mem_alloc(): barcopy_mem_export() will be asked for it. ENOTSUP on an integrated GPU. */
	BARCOPY_MEM_SHAREABLE = 4
};

/** Memory that GPU and CPU both reach. */
typedef struct barcopy_mem {
	uint64_t device_ptr; /**< for kernels and the CUDA API; 0 for an imported dma-buf */
	void *cpu_ptr;	     /**< the same first byte, for loads, stores and the copies */
	size_t size;	     /**< bytes: at least those asked for */
	gdr_mh_t handle;     /**< for the copies; covers all of it */
} barcopy_mem_t;

/**
 * Allocates device memory that is pinned, mapped and ready. CUDA is initialised if it was not, and
 * the device's primary context is kept while contexts of this library are open.
 *
 * The allocator is the one that this platform needs: cuMemHostAlloc on integrated GPUs; cuMemAlloc
 * where that memory is served; else, and with BARCOPY_MEM_SHAREABLE, exportable, GPUDirect-capable memory
 * of cuMemCreate, whose size is rounded up to its granularity (2 MiB on most GPUs).
 *
 * @param device  CUDA device ordinal
 * @param size    bytes, at least 1
 * @param flags   0, BARCOPY_MEM_CACHED or BARCOPY_MEM_SHAREABLE; no GPU can do both
 * @param mem     owned by the caller until barcopy_mem_free() or gdr_close(), which frees it too;
 *                gdr_unpin_buffer() of the handle is EINVAL
 * @return 0; EINVAL (g, device, size 0, unknown flag, NULL); ENOTSUP (this device or driver cannot,
 *         or not with these flags); ENOMEM (device memory, BAR1 or address space); EMFILE; ENFILE; ENODEV;
 *         EACCES; EIO.
 */
int barcopy_mem_alloc(gdr_t g, int device, size_t size, uint32_t flags, barcopy_mem_t *mem);

/**
 * Unmaps, unpins and frees. No work on the GPU may use the memory any more. *mem is zeroes afterwards, so that
 * a second call on it is EINVAL.
 * @return 0; EINVAL (g, NULL, not memory of barcopy_mem_alloc() or barcopy_mem_import()); EACCES.
 */
int barcopy_mem_free(gdr_t g, barcopy_mem_t *mem);

/**
 * Hands memory to another process: a descriptor to be sent over a Unix socket (SCM_RIGHTS) and
 * given to barcopy_mem_import() there, together with mem->size. Each side frees its own.
 * @param fd  the caller's to close, close-on-exec; the memory lives while one is open
 * @return 0; EINVAL (g, NULL, not memory of barcopy_mem_alloc()); ENOTSUP (allocated
 *         without BARCOPY_MEM_SHAREABLE, or imported as a dma-buf); EMFILE; EIO; EACCES.
 */
int barcopy_mem_export(gdr_t g, const barcopy_mem_t *mem, int *fd);

/**
 * Maps memory that another process exported with barcopy_mem_export(), or with
 * cuMemExportToShareableHandle as a POSIX file descriptor: both sides then see one buffer.
 *
 * With BARCOPY_MEM_DMABUF it maps a dma-buf, as cuMemGetHandleForAddressRange gives for any device memory.
 * The buffer's first byte is mem->cpu_ptr. It needs no context of CUDA in this process, and has no
 * device address there: CUDA imports dma-bufs on Thor alone (driver API, cuImportExternalMemory), so
 * mem->device_ptr is 0 and copies never use the copy engine. SYNC_MEMOPS is the exporter's to set.
 *
 * @param device  ordinal, in this process, of the GPU that the memory is on; with BARCOPY_MEM_DMABUF also
 *                -1: not known, which the dmabuf backend can do with, the gdrdrv backend (a driver
 *                that pins by dma-buf) cannot
 * @param fd      stays the caller's; may be closed afterwards
 * @param size    bytes: all of the exported memory; with BARCOPY_MEM_DMABUF a multiple of 64 KiB, at most
 *                the buffer's size
 * @param flags   0 or BARCOPY_MEM_DMABUF
 * @param mem     as in barcopy_mem_alloc()
 * @return 0; EINVAL (g, device, fd, size, flags, NULL); ENOTSUP (also: no backend here maps this
 *         dma-buf); ENOMEM; EMFILE; ENFILE; ENODEV; EACCES; EIO.
 */
int barcopy_mem_import(gdr_t g, int device, int fd, size_t size, uint32_t flags, barcopy_mem_t *mem);

/** Flags of barcopy_map_range(). */
enum barcopy_map_range_flags {
	/** A mapping of its own without write permission: a store through the pointer is a fault
	 *  (SIGSEGV); a copy or a word to it is EACCES. ENOTSUP for memory of cudaHostAlloc. */
	BARCOPY_MAP_RANGE_READ_ONLY = 1,
	/** SYNC_MEMOPS of the allocations is left as it is; see barcopy_map_range(). Such ranges have
	 *  pins of their own. */
	BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS = 2
};

/**
 * Pins and maps any range of device memory, and gives the CPU's pointer to that very byte.
 *
 * A range that lies in the pages of another one with the same flags shares its pin, which ends with the
 * last of them: equal ranges, parts of a range, buffers in one page. Allocations of up to 2 MiB are pinned
 * whole. Ranges that do not overlap, such as the buffers of an allocator in its segments, pin at most
 * twice the GPU pages that they touch, in whatever order they come; ranges that overlap and are no parts
 * of each other at most four times. (The neighbour of a range that is longer than 2 MiB and more than
 * twice as long does not share its pin, and so does not keep it.) Memory that was freed and
 * reallocated since is never shared: CUDA's buffer ID is compared. Nor are two allocations of
 * cudaHostAlloc, of which nothing is pinned.
 *
 * SYNC_MEMOPS is set on the allocations in the range, as by gdr_pin_buffer(), which makes all later copies
 * and memsets of the CUDA API on them synchronous, for good: also those of other buffers in an allocator's
 * segment. With BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS it is not, and the order is the caller's to make:
 * cuStreamSynchronize, or an event, behind a copy or memset of the CUDA API before its result is read through
 * the mapping, and before memory that it reads is written through the mapping.
 *
 * @param addr     device address, any alignment; for memory of cudaHostAlloc also the host address
 * @param size     bytes, at least 1
 * @param flags    0 or BARCOPY_MAP_RANGE_* flags
 * @param cpu_ptr  stands for addr; valid until the handle ends
 * @param handle   for the copies, which reach exactly this range; its gdr_info_v2_t.va is addr
 *                 rounded down to 64 KiB. The caller's until barcopy_unmap_range(), the one
 *                 way to end it, or gdr_close()
 * @return 0; EINVAL (g, NULL, size 0, unknown flag or address, a range beyond its allocation); EOVERFLOW
 *         (addr + size wraps); ENOTSUP (memory of a kind that cannot be mapped here, or not read-only); ENOMEM
 *         (also: BAR1 is full and no region of a cache of this context is idle); EMFILE; ENFILE; ENODEV; EACCES;
 *         EIO.
 */
int barcopy_map_range(gdr_t g, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		  gdr_mh_t *handle);

/**
 * Ends a range; the pages stay mapped while another range of the context lies in them.
 * @return 0; EINVAL (g, or not a handle of barcopy_map_range()); EACCES.
 */
int barcopy_unmap_range(gdr_t g, gdr_mh_t handle);

/** The BAR1 of one GPU, in bytes, for all processes together. */
typedef struct barcopy_bar_info {
	size_t struct_size; /**< in: sizeof(barcopy_bar_info_t) */
	uint64_t total;
	uint64_t used;
	uint64_t free;
} barcopy_bar_info_t;

/**
 * Asks NVML (libnvidia-ml.so.1, loaded at the first call) about a GPU's BAR1. CUDA is initialised
 * if it was not.
 * @param device  CUDA device ordinal
 * @return 0; EINVAL (device, NULL, info->struct_size); ENOTSUP (NVML is missing or does not report it:
 *         barcopy_last_error() says which); ENODEV (no CUDA driver); EIO.
 */
int barcopy_get_bar_info(int device, barcopy_bar_info_t *info);

/* ---- registration cache ---------------------------------------------------------------------- */

/** A registration cache: opaque, ended by barcopy_cache_destroy() or by gdr_close() of its context. */
struct barcopy_cache;
typedef struct barcopy_cache *barcopy_cache_t;

/** How barcopy_cache_get() verifies that a region is still the memory at its address. */
typedef enum barcopy_cache_validity {
	/** CUDA's buffer ID is compared at each barcopy_cache_get() (GPUDirect RDMA guide, section
	 *  12.5): one call into CUDA for each allocation in the range. */
	BARCOPY_CACHE_CHECK_TAG = 0,
	/** CUDA is not asked about an allocation that was asked for before. The program, or a hook in its
	 *  allocator, calls barcopy_cache_invalidate() before memory is freed or unmapped. The fastest. */
	BARCOPY_CACHE_NOTIFIED = 1
} barcopy_cache_validity_t;

/** Flags of a cache. */
enum barcopy_cache_flags {
	/** As BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS. */
	BARCOPY_CACHE_NO_SYNC_MEMOPS = 1
};

/** Options of barcopy_cache_create(). Zeroes are the defaults. */
typedef struct barcopy_cache_options {
	size_t struct_size;	   /**< sizeof(barcopy_cache_options_t) */
	uint32_t validity; /**< a barcopy_cache_validity_t */
	uint32_t flags;	   /**< 0 or BARCOPY_CACHE_NO_SYNC_MEMOPS */
	/** The most bytes of each GPU's BAR to keep pinned; 0: three quarters of what is free of its BAR
	 *  when its first region is made, but at most a quarter of its memory. Regions in use stay: while
	 *  they alone are beyond the limit, each barcopy_cache_put() unpins what it leaves idle. */
	uint64_t max_bytes;
	/** The most regions; 0: half of the mappings that the system allows a process (vm.max_map_count). */
	uint64_t max_regions;
	/** Allocations up to this size are pinned whole; 0: 2 MiB. */
	uint64_t whole_max;
	/** As in barcopy_copy_options_t, for all handles of the cache. Where the copy engine cannot be
	 *  used copies go through the mapping. */
	size_t engine_read_min, engine_write_min;
} barcopy_cache_options_t;

/** A use of a cached region. */
typedef struct barcopy_region {
	void *cpu_ptr;	     /**< stands for device_ptr; valid until barcopy_cache_put() */
	uint64_t device_ptr; /**< as asked for */
	size_t size;	     /**< as asked for */
	gdr_mh_t handle;     /**< for the copies; the cache's: to unpin or unmap it is EINVAL */
	uint64_t entry;	     /**< the cache's */
} barcopy_region_t;

/**
 * Makes a cache of pinned and mapped regions: what barcopy_cache_put() gives back stays pinned until
 * room is needed, and the next barcopy_cache_get() of those addresses finds it.
 *
 * Freed memory. An idle region is never found for other memory, but where pins are persistent (all but a
 * gdrdrv in callback mode) it holds the GPU's memory although its owner has freed it. In a program that
 * does not notify the cache, the memory held on a GPU is never more than what is allocated and the limit:
 * each barcopy_cache_get() that has to pin looks at some idle regions and releases those whose memory was
 * freed, and so does barcopy_mem_alloc() with all of them before it fails. What is idle also gives way to
 * pins, maps, ranges and memory of the same context that find BAR1 full. Only
 * barcopy_cache_invalidate() before the free returns all of the memory at once; barcopy_cache_trim() is
 * for a program that does not know what is freed but knows when memory is short.
 * @param options  NULL: the defaults
 * @param cache    the caller's until barcopy_cache_destroy() or gdr_close()
 * @return 0; EINVAL (g, NULL, an option); ENOMEM; EACCES.
 */
int barcopy_cache_create(gdr_t g, const barcopy_cache_options_t *options, barcopy_cache_t *cache);

/**
 * Unpins everything and ends the cache. No other thread may be in a call on it.
 * @return 0; EBUSY (a region is in use: nothing was done); EINVAL; EACCES.
 */
int barcopy_cache_destroy(barcopy_cache_t cache);

/**
 * Gives a mapping of [addr, addr + size), from the cache if it has a valid one. A hit takes no lock, in any
 * number of threads at once. Regions are whole GPU pages (64 KiB) or whole
 * allocations, shared and bounded as the pins of barcopy_map_range(). Of the CPU's own memory each allocation
 * has a region of its own and only one in a 64 KiB page is kept: allocations that share a page take
 * turns, each with the cost of a miss.
 *
 * Where BAR1, descriptors or a limit are exhausted, idle regions are unpinned, those first that have not been
 * used again for long. The caller must not free the memory before the barcopy_cache_put(). (If it does, the
 * mapping stays harmless until then and is not found again.)
 *
 * @param region  filled in; given back by one barcopy_cache_put()
 * @return as barcopy_map_range(); EINVAL also for cache
 */
int barcopy_cache_get(barcopy_cache_t cache, uint64_t addr, size_t size, barcopy_region_t *region);

/**
 * Gives a region back, from any thread. *region is zeroes afterwards, so that a second call on it
 * is EINVAL. A region that was invalidated meanwhile is unmapped by its last put.
 * @return 0; EINVAL (cache, NULL, not a region in use of this cache); EACCES.
 */
int barcopy_cache_put(barcopy_cache_t cache, barcopy_region_t *region);

/**
 * Forgets every region that touches a GPU page of [addr, addr + size). When it returns, no
 * barcopy_cache_get() of any thread finds them. Idle ones are unmapped now, or, if another thread is in a call
 * on the cache or this one inside another call of this library, when that call ends; those in use by their
 * last put. For any validity. Call it before the memory is freed or unmapped.
 *
 * It may be called from a hook of any call, such as cuMemFree, cuMemUnmap or munmap, also where this library
 * itself makes that call: it waits for no lock and allocates nothing. Not from a signal handler.
 * @param size  a range that would wrap ends at the end of the address space: 0 and SIZE_MAX are all
 * @return 0, whether or not anything was there; EINVAL (cache); EACCES.
 */
int barcopy_cache_invalidate(barcopy_cache_t cache, uint64_t addr, size_t size);

/**
 * Unpins what is idle: all regions whose memory has been freed, then others until what is left of
 * them takes at most so many bytes of BAR. What is in use stays.
 * @param max_idle_bytes  0: everything idle; UINT64_MAX: only what has been freed
 * @return 0; EINVAL (cache); EACCES.
 */
int barcopy_cache_trim(barcopy_cache_t cache, uint64_t max_idle_bytes);

/** Counts since barcopy_cache_create(), and the present state. */
typedef struct barcopy_cache_stats {
	size_t struct_size;		 /**< in: sizeof(barcopy_cache_stats_t) */
	uint64_t hits;		 /**< barcopy_cache_get() found a valid region */
	uint64_t misses;	 /**< it had to pin, or failed to */
	uint64_t evictions;	 /**< unpinned to make room */
	uint64_t invalidations;	 /**< stale, invalidated, or pinned beside an invalidation that may have missed it */
	uint64_t regions;	 /**< now, those in use that are not found any more among them */
	uint64_t regions_in_use; /**< now */
	uint64_t bytes_pinned;	 /**< of BAR, by all of them */
	/** The limit of each GPU, where they differ the smallest; UINT64_MAX: none known yet. */
	uint64_t max_bytes;
	/** Of regions and bytes_pinned: those in use that are not found any more, as a larger region has
	 *  taken their place or they were invalidated. Their last put unpins them. */
	uint64_t regions_detached, bytes_detached;
} barcopy_cache_stats_t;

/**
 * Reads the statistics.
 * @return 0; EINVAL (cache, NULL, stats->struct_size); EACCES.
 */
int barcopy_cache_get_stats(barcopy_cache_t cache, barcopy_cache_stats_t *stats);

/* ---- statistics ------------------------------------------------------------------------------ */

/** In barcopy_stats_t.flags. */
enum barcopy_stats_flags {
	/** Copies and words are counted: GDRCOPY_STATS was set, and not to 0, at the first open. */
	BARCOPY_STATS_COPIES = 1
};

/** What a context or the process has done. Calls that failed are not in it. */
typedef struct barcopy_stats {
	size_t struct_size; /**< in: sizeof(barcopy_stats_t) */
	uint64_t flags; /**< BARCOPY_STATS_COPIES or 0 */
	/** GPU ranges pinned and unpinned, mapped and unmapped. Ranges, memory and regions that share
	 *  a pin count as the one that they share. */
	uint64_t pins, unpins, maps, unmaps;
	/** Ranges found revoked by barcopy_next_revoked() or gdr_get_callback_flag(). */
	uint64_t revoked;
	/** Copies done by the copy engine, and those that came back to the mapping. */
	uint64_t engine_copies, engine_fallbacks;
	/** Of registration caches. */
	uint64_t cache_hits, cache_misses, cache_evictions;
	/** Copies into mappings and out of them, with BARCOPY_STATS_COPIES. Each piece of a vectored
	 *  copy that is not empty is one. */
	uint64_t copies_to, bytes_to, copies_from, bytes_from;
	/** Words, with BARCOPY_STATS_COPIES: barcopy_put32(), barcopy_get32(), barcopy_wait32() and those
	 *  of 64 bits. */
	uint64_t puts, gets, waits;
} barcopy_stats_t;

/**
 * Reads the statistics of a context, or with g NULL of the process, with what its closed contexts did.
 * A forked child begins at 0. What other threads are doing meanwhile may or may not be in it; what
 * this thread has done is.
 *
 * Copies and words cost nothing for being counted unless GDRCOPY_STATS is set, and not to 0, in the
 * environment at the first open; then they are, and the process's statistics are written to standard
 * error when it exits.
 * @return 0; EINVAL (g, NULL, stats->struct_size); EACCES.
 */
int barcopy_get_stats(gdr_t g, barcopy_stats_t *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
