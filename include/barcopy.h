/* SPDX-License-Identifier: MIT */
/**
 * @file barcopy.h
 * What barcopy adds to gdrapi.h: ranges of any alignment, memory that GPU and CPU share, vectored
 * copies, words, waits and fences, the copy engine for large copies, a registration cache,
 * statistics.
 *
 * The conventions are those of gdrapi.h:
 *  - a call returns 0 or a positive errno and writes outputs on success only; barcopy_last_error()
 *    describes the cause of this thread's last failure, including that of a gdr_*() call;
 *  - sizes and offsets are in bytes, times in nanoseconds (_ns), device addresses are uint64_t;
 *  - a copy, a put, a get or a post waits for no GPU work. The caller waits for kernels and
 *    asynchronous calls that still write the memory before it reads or writes there, and for those
 *    that still read the memory before it writes there;
 *  - any thread may make any call at any time, unless the call's comment says otherwise; a thread
 *    that ends an object (unmaps, unpins, frees, destroys) must not do so while another thread uses
 *    it;
 *  - the caller owns what a call makes, until it makes the call that the comment names, or
 *    gdr_close();
 *  - EINVAL is a bad argument or an object that has ended, EACCES an object of the parent process;
 *    a call that reaches the GPU's driver may return EIO;
 *  - a call returns EINVAL for unknown bits of `uint32_t flags`. The caller sets `size_t
 *    struct_size` to its own sizeof. An older program's struct is smaller than the library's, a
 *    newer program's larger: bytes that the library does not know must be 0, and are 0 in a result.
 *    A call returns EINVAL for a struct_size below that of the first release, or above 4096.
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
 * The level of this header, which grows with each release that adds to it. Nothing is removed
 * (docs/versions.md).
 */
#define BARCOPY_API_VERSION 1

/** The level of the library that the program runs with: BARCOPY_API_VERSION when it was built. */
uint32_t barcopy_get_api_version(void);

/** Flags of barcopy_open(). */
typedef enum barcopy_open_flags {
	BARCOPY_OPEN_DEFAULT = 0, /**< exactly gdr_open() */
	/** Also where only some memory can be mapped: memory of cudaHostAlloc, or exportable VMM
	 *  memory where the driver exports no dma-buf. */
	BARCOPY_OPEN_ANY = 1
} barcopy_open_flags_t;

/**
 * gdr_open() with flags. With BARCOPY_OPEN_ANY it fails (ENODEV) only where neither a gdrdrv node
 * nor libcuda.so.1 exists, unless the environment restricts the backends (gdrapi(7)).
 * @param flags  0 or BARCOPY_OPEN_ANY
 * @return the context, which the caller owns until gdr_close(); or NULL with errno set as by
 *         gdr_open(), EINVAL also for unknown flags
 */
gdr_t barcopy_open(uint32_t flags);

/**
 * Says in words why this thread's last call failed. After a call that succeeded the text is "" or
 * that of an earlier failure: read it after a failure only. Never NULL.
 * @return a string that the library owns, valid until this thread's next call or its end
 */
const char *barcopy_last_error(void);

/** Backends, as BARCOPY_HANDLE_ATTR_BACKEND names them. */
typedef enum barcopy_backend {
	BARCOPY_BACKEND_GDRDRV = 1, /**< the kernel driver gdrdrv */
	BARCOPY_BACKEND_DMABUF = 2, /**< mmap of a dma-buf, no module: CUDA driver 13.3 or newer */
	BARCOPY_BACKEND_RM = 3,	/**< the GPU driver's resource manager, no module */
	BARCOPY_BACKEND_HOST = 4	/**< memory of cudaHostAlloc: the CPU pointer itself */
} barcopy_backend_t;

/** Attributes that barcopy_get_handle_attribute() returns. */
typedef enum barcopy_handle_attr {
	BARCOPY_HANDLE_ATTR_BACKEND = 1,	  /**< a barcopy_backend_t */
	BARCOPY_HANDLE_ATTR_DEVICE = 2,	  /**< CUDA device ordinal; ENOTSUP where it is unknown */
	BARCOPY_HANDLE_ATTR_PERSISTENT = 3,	  /**< 1: a mapping outlives its memory's free */
	BARCOPY_HANDLE_ATTR_SYNC_MEMOPS = 4,  /**< 1: SYNC_MEMOPS is set; see gdr_pin_buffer(). Of a
						   cache's region: for the allocations that it knows;
						   not those of a gap, see BARCOPY_CACHE_NOTIFIED */
	BARCOPY_HANDLE_ATTR_MAPPING_TYPE = 5, /**< of a default map: a gdr_mapping_type_t */
	BARCOPY_HANDLE_ATTR_MAX
} barcopy_handle_attr_t;

/**
 * Reads an attribute of a pinned range.
 * @param value  the attribute, in the unit that barcopy_handle_attr_t names
 * @return 0; EINVAL (g, handle, attribute, NULL); ENOTSUP (not known for this handle); EACCES.
 */
int barcopy_get_handle_attribute(gdr_t g, gdr_mh_t handle, barcopy_handle_attr_t attr,
				 uint64_t *value);

/** Flags of a segment, and of a vectored copy. */
enum barcopy_copy_flags {
	BARCOPY_COPY_ORDERED = 1, /**< segment: after every segment before it has been performed */
	BARCOPY_COPY_NO_FENCE = 2 /**< call: no fence; the caller makes it with barcopy_fence() */
};

/** One piece of a vectored copy. */
typedef struct barcopy_copy_seg {
	void *map_ptr;	   /**< any byte of the mapping */
	void *host_ptr;	   /**< host memory */
	size_t size;	   /**< bytes; an empty segment is skipped */
	uint32_t flags;	   /**< 0 or BARCOPY_COPY_ORDERED */
	uint32_t reserved; /**< must be 0 */
} barcopy_copy_seg_t;

/**
 * Copies `count` pieces into the mapping with one fence at the end. The pieces have no order among
 * themselves, except that one with BARCOPY_COPY_ORDERED follows all before it. Every piece is
 * checked before the first byte is written.
 * @param flags  0 or BARCOPY_COPY_NO_FENCE
 * @return 0; EINVAL (handle, not mapped, seg NULL, a piece outside, host_ptr NULL, unknown flag,
 *         reserved not 0); EACCES (also: a read-only range).
 */
int barcopy_copyv_to_mapping(gdr_mh_t handle, const barcopy_copy_seg_t *seg, size_t count,
			     uint32_t flags);

/**
 * Copies `count` pieces out of the mapping, with the loads of many pieces in flight together. Each
 * line of 64 bytes is loaded once, however many pieces between two ORDERED ones lie in it. Where
 * host destinations overlap, the bytes of the later piece remain.
 *
 * An Intel core has as many line buffers for lines with address bit 6 clear as for lines with it
 * set (measured: 8 and 8), so flags that are read together should lie at odd multiples of 64 bytes
 * from each other: 16 then take one round trip of the link, and two at even multiples.
 * docs/performance.md has figures.
 *
 * Needs up to 12 KiB of the caller's stack: a signal handler's may be smaller.
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
 * As barcopy_copyv_to_mapping() and barcopy_copyv_from_mapping(), but each piece names its handle,
 * with one fence for all. The handles may belong to several contexts and GPUs, and their mappings
 * may have several types: the fences are those of the strictest. Every handle and piece is checked
 * before the first byte moves. No handle may be unmapped or unpinned during the call.
 *
 * A piece with BARCOPY_COPY_ORDERED leaves this CPU after all before it, also those of other GPUs.
 * A write to another GPU may still be under way then: barcopy_flush() on its handle waits for it.
 * @param flags  0 or BARCOPY_COPY_NO_FENCE
 * @return as barcopy_copyv_to_mapping() and barcopy_copyv_from_mapping()
 */
int barcopy_copyv_to_mappings(const barcopy_handle_seg_t *seg, size_t count, uint32_t flags);
int barcopy_copyv_from_mappings(const barcopy_handle_seg_t *seg, size_t count, uint32_t flags);

/** A threshold of barcopy_copy_options_t: sizes from which the copy engine was measured faster. */
#define BARCOPY_COPY_ENGINE_AUTO SIZE_MAX

/** When the copy engine makes the large copies of one handle. Zeroes are the defaults: never. */
typedef struct barcopy_copy_options {
	size_t struct_size; /**< sizeof(barcopy_copy_options_t) */
	uint32_t flags;	    /**< 0 */
	uint32_t reserved;  /**< 0 */
	/** gdr_copy_from_mapping() of this many bytes and more uses the GPU's copy engine; 0:
	 *  never; BARCOPY_COPY_ENGINE_AUTO: from 8 KiB on into pageable memory and from 7 KiB on
	 *  into page-locked memory, where the engine was faster on an H200 and an H100 under
	 *  Sapphire Rapids (PCIe 5.0); later where the end of a copy cannot be polled
	 *  (docs/performance.md), and never over a coherent link. gdrcopy_copylat -E prints the
	 *  sizes of another machine. */
	size_t engine_read_min;
	/** The same for gdr_copy_to_mapping(). AUTO: from 320 KiB on from page-locked memory; never
	 *  from pageable memory, as the mapping is faster at every size. */
	size_t engine_write_min;
} barcopy_copy_options_t;

/**
 * Sets from which size the copy engine makes the copies of this handle, until the unpin and for all
 * its mappings; replaces earlier options. NULL: the defaults. No other thread may copy on the
 * handle during the call.
 *
 * The order of the copies does not change. Vectored copies and those of 4 or 8 aligned bytes always
 * use the mapping. The copy engine moves bytes, not words: do not let it write where the GPU polls
 * a word. It works on a stream that the library makes in the context of the memory (for VMM memory
 * the device's primary context, which stays retained) and that waits for no other stream, and has
 * 260 KiB of page-locked memory for each device, made by the first call and kept. Where CUDA cannot
 * be used, or the memory is no longer the one that was pinned (the library compares CUDA's buffer
 * ID of every allocation that a copy touches), the copy goes through the mapping as if no option
 * were set; barcopy_get_stats() counts both. Make no large copy in a host function of a stream:
 * CUDA forbids its calls there, and may or may not refuse them.
 *
 * @return 0; EINVAL (handle; the handle of a barcopy_region_t, whose options are in
 *         barcopy_cache_options_t; struct_size, flags, unknown bytes not 0; memory that was freed);
 *         ENOTSUP (host memory, or an imported dma-buf); ENOMEM; ENODEV; EIO; EACCES. A failed call
 *         changes nothing.
 */
int barcopy_set_copy_options(gdr_mh_t handle, const barcopy_copy_options_t *options);

/** What a fence is for. */
typedef enum barcopy_fence_use {
	BARCOPY_FENCE_BEFORE_READ = 1, /**< later reads are no older than anything seen before */
	BARCOPY_FENCE_AFTER_READ = 2,  /**< no later access is performed before the reads */
	BARCOPY_FENCE_AFTER_WRITE = 3, /**< later stores to this device and type come after */
	BARCOPY_FENCE_FULL = 4	   /**< all three */
} barcopy_fence_t;

/**
 * Executes the fence that the handle's type of mapping needs for that use. What a running kernel
 * sees, and when: docs/guide.md, "Order".
 * @return 0; EINVAL (handle, not mapped, use); EACCES.
 */
int barcopy_fence(gdr_mh_t handle, barcopy_fence_t use);

/**
 * Waits until this CPU's earlier writes through the mapping have reached GPU memory, so that the
 * caller may notify another device: a fence, then a read-back of one word.
 * @return 0; EINVAL (handle, not mapped); EACCES.
 */
int barcopy_flush(gdr_mh_t handle);

/**
 * Stores or loads one naturally aligned word of 4 or 8 bytes as a whole, with the fences of the
 * copies.
 * @param map_ptr  in the mapping, aligned to the size of the word
 * @return 0; EINVAL (handle, not mapped, misaligned, outside, NULL); EACCES (a put also: a
 *         read-only range).
 */
int barcopy_put32(gdr_mh_t handle, void *map_ptr, uint32_t value);
int barcopy_put64(gdr_mh_t handle, void *map_ptr, uint64_t value);
int barcopy_get32(gdr_mh_t handle, const void *map_ptr, uint32_t *value);
int barcopy_get64(gdr_mh_t handle, const void *map_ptr, uint64_t *value);

/**
 * A put that does not wait, for the last word of a message that the other side acknowledges. Where
 * the CPU has a store that leaves at once (MOVDIRI; write-combined mappings), the call is that
 * store without a fence: in a loop 10 to 30 ns instead of 155 to 200, and 134 where all go to one
 * line. Elsewhere a fence drives it out.
 *
 * Promised: the word is stored whole. It follows every earlier copy and put of this thread through
 * write-combined mappings and those of its own mapping's type, except vectored copies with
 * BARCOPY_COPY_NO_FENCE and other posts. It leaves the CPU without a further call (arm64: a data
 * gathering hint, DGH, and a DSB OSHST follow it). Not promised: that it has left when the call
 * returns; any order with later stores of this thread, to this mapping or elsewhere, a second post
 * included. A later copy, put or barcopy_fence(BARCOPY_FENCE_AFTER_WRITE) restores the order. The
 * caller must see the other side's answer before it reuses memory that the other side reads after
 * the word.
 * @return as barcopy_put32()
 */
int barcopy_post32(gdr_mh_t handle, void *map_ptr, uint32_t value);
int barcopy_post64(gdr_mh_t handle, void *map_ptr, uint64_t value);

/** Bytes of a posted line, and its alignment. */
#define BARCOPY_LINE 64

/**
 * Posts a message of one line: copies BARCOPY_LINE bytes from `line`, of any alignment, to map_ptr,
 * which is aligned to BARCOPY_LINE.
 *
 * Promised: each aligned word of 8 bytes is stored whole, and the last one becomes visible last, so
 * it can be the flag of the 56 bytes before it. Where the CPU has MOVDIR64B and the mapping is
 * write-combined, the line is one write of 64 bytes, without a fence: in a loop 10 to 35 ns, and
 * 95 to 133 where all go to one place; elsewhere it is a copy of 56 bytes, a copy's fence, and
 * barcopy_post64(). The order with this thread's earlier and later accesses is that of
 * barcopy_post32(). Not promised: any order among the first 56 bytes.
 * @return 0; EINVAL (handle, not mapped, misaligned, outside, line is NULL); EACCES (also: a
 *         read-only range).
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
 * @return 0; ETIMEDOUT (the comparison did not hold in time); EINVAL (as barcopy_get32(), or cmp);
 *         EACCES.
 */
int barcopy_wait32(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint32_t value,
	       uint64_t timeout_ns);
int barcopy_wait64(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint64_t value,
	       uint64_t timeout_ns);

/* ---- memory ---------------------------------------------------------------------------------- */

/** Flags of barcopy_mem_alloc() and barcopy_mem_import(). */
enum barcopy_mem_flags {
	/** On an integrated GPU: a cached mapping instead of a write-combined one. ENOTSUP on a
	 *  discrete GPU, where the backend decides the type. */
	BARCOPY_MEM_CACHED = 1,
	/** barcopy_mem_import(): the descriptor is a dma-buf. */
	BARCOPY_MEM_DMABUF = 2,
	/** barcopy_mem_alloc(): barcopy_mem_export() can export it. ENOTSUP on an integrated
	 *  GPU. */
	BARCOPY_MEM_SHAREABLE = 4
};

/** Memory that GPU and CPU both reach. */
typedef struct barcopy_mem {
	uint64_t device_ptr; /**< for kernels and the CUDA API; 0 for an imported dma-buf */
	void *cpu_ptr;	     /**< the same first byte, for loads, stores and the copies */
	size_t size;	     /**< bytes: at least the requested size */
	gdr_mh_t handle;     /**< for the copies; covers all of it */
} barcopy_mem_t;

/**
 * Allocates, pins and maps device memory. The call initialises CUDA if necessary, and retains the
 * device's primary context while contexts of this library are open.
 *
 * The platform decides the allocator: cuMemHostAlloc on integrated GPUs; cuMemAlloc where its
 * memory can be mapped; else, and with BARCOPY_MEM_SHAREABLE, exportable, GPUDirect-capable memory
 * of cuMemCreate, with the size rounded up to its granularity (2 MiB on most GPUs). The memory is
 * not cleared: it may hold what this process stored there before.
 *
 * @param device  CUDA device ordinal
 * @param size    bytes, at least 1
 * @param flags   0, BARCOPY_MEM_CACHED or BARCOPY_MEM_SHAREABLE; no GPU supports both flags
 * @param mem     owned by the caller until barcopy_mem_free() or gdr_close(), which frees it too;
 *                gdr_unpin_buffer() of the handle returns EINVAL
 * @return 0; EINVAL (g, device, size 0, unknown flag, NULL); ENOTSUP (this device or driver cannot,
 *         or not with these flags); ENOMEM (device memory, BAR1 or address space); EMFILE; ENFILE;
 *         ENODEV; EACCES; EIO.
 */
int barcopy_mem_alloc(gdr_t g, int device, size_t size, uint32_t flags, barcopy_mem_t *mem);

/**
 * Unmaps, unpins and frees. The GPU must have finished its work on the memory: the call need not
 * wait for it. The call zeroes *mem, so that a second call on it returns EINVAL. If a part of the
 * end fails, the call does the rest, zeroes *mem and returns the first failure. Memory that a reset
 * of the device, or the end of its CUDA context, has freed is no failure.
 * @return 0; EINVAL (g, NULL, not memory of barcopy_mem_alloc() or barcopy_mem_import()); EACCES;
 *         ENOMEM (munmap() failed); EIO.
 */
int barcopy_mem_free(gdr_t g, barcopy_mem_t *mem);

/**
 * Exports memory to another process by a descriptor. The caller sends it over a Unix socket
 * (SCM_RIGHTS) together with mem->size, for barcopy_mem_import(). Each process frees its own
 * barcopy_mem_t.
 * @param fd  close-on-exec; the caller closes it. The memory exists while a descriptor is open
 * @return 0; EINVAL (g, NULL, not memory of barcopy_mem_alloc()); ENOTSUP (allocated
 *         without BARCOPY_MEM_SHAREABLE, or imported as a dma-buf); ENOMEM; EMFILE; ENFILE; ENODEV;
 *         EIO; EACCES.
 */
int barcopy_mem_export(gdr_t g, const barcopy_mem_t *mem, int *fd);

/**
 * Maps memory that another process exported with barcopy_mem_export(), or with
 * cuMemExportToShareableHandle as a POSIX file descriptor: both sides then see one buffer.
 *
 * With BARCOPY_MEM_DMABUF it maps a dma-buf, such as cuMemGetHandleForAddressRange exports for any
 * device memory. mem->cpu_ptr points at the buffer's first byte. This process needs no CUDA
 * context, and has no device address of the buffer: CUDA imports dma-bufs on Thor alone (driver
 * API, cuImportExternalMemory), so mem->device_ptr is 0 and copies never use the copy engine. The
 * exporter decides about SYNC_MEMOPS. The library verifies that fd is a dma-buf, by the magic
 * number of its file system, which dma-bufs have since Linux 5.3. It does not verify that the
 * dma-buf is GPU memory.
 *
 * @param device  ordinal, in this process, of the memory's GPU; with BARCOPY_MEM_DMABUF also -1:
 *                unknown
 * @param fd      the caller keeps it, and may close it afterwards
 * @param size    bytes: all of the exported memory; with BARCOPY_MEM_DMABUF a multiple of 64 KiB,
 *                at most the buffer's size
 * @param flags   0 or BARCOPY_MEM_DMABUF
 * @param mem     as in barcopy_mem_alloc()
 * @return 0; EINVAL (g, device, size, flags, NULL; fd, with BARCOPY_MEM_DMABUF also one that is no
 *         dma-buf); ENOTSUP (also: no backend here maps this dma-buf, which only `dmabuf` can);
 *         ENOMEM; EMFILE; ENFILE; ENODEV; EACCES; EIO.
 */
int barcopy_mem_import(gdr_t g, int device, int fd, size_t size, uint32_t flags,
		       barcopy_mem_t *mem);

/** Flags of barcopy_map_range(). */
enum barcopy_map_range_flags {
	/** A separate mapping without write permission: a store through the pointer raises SIGSEGV;
	 *  a copy or a put to it returns EACCES. The mapping guards against mistakes, not against
	 *  the process: mprotect() may allow stores again. ENOTSUP for memory of cudaHostAlloc. */
	BARCOPY_MAP_RANGE_READ_ONLY = 1,
	/** Leaves SYNC_MEMOPS of the allocations alone; see barcopy_map_range(). Such ranges share
	 *  pins with each other only. */
	BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS = 2
};

/**
 * Pins and maps any range of device memory, and returns a CPU pointer to the byte at addr.
 *
 * A range that lies in the pages of another one with the same flags shares its pin: equal ranges,
 * parts of a range, buffers in one page. A range in the pages of several others shares the newest
 * one's pin or, if that is too long or has ended, gets a pin of its own. The pin ends with the
 * last of its ranges. A range in use keeps at most 2 MiB pinned, or twice the GPU pages that it
 * touches if that is more. This holds whichever other ranges have ended: a range that would keep
 * more than that of a longer range's pin gets a pin of its own, and shares the longer one's only
 * where no space is left. Within this bound allocations of up to 2 MiB are pinned whole. Memory
 * that was freed and reallocated is never shared: the library compares CUDA's buffer ID. Two
 * allocations of cudaHostAlloc are not shared either; nothing of them is pinned.
 *
 * The call sets SYNC_MEMOPS on the allocations in the range, as gdr_pin_buffer() does. The
 * attribute stays set after the unmap. It belongs to the whole allocation, so it also affects
 * other buffers that an allocator has placed in the same allocation. A synchronous copy or memset
 * of CUDA (cuMemcpy, cuMemset) on them is then complete when it returns; without the attribute
 * some return earlier (CUDA driver API, "API synchronization behavior"). It orders neither kernels
 * nor asynchronous calls: cuStreamSynchronize or an event comes before their result is read
 * through the mapping, and before memory that they read or write is written through it. With
 * BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS the call leaves the attribute as it is, and the caller has to
 * synchronise in the same way after CUDA's synchronous copies and memsets.
 *
 * @param addr     device address, any alignment; for memory of cudaHostAlloc also the host address
 * @param size     bytes, at least 1
 * @param flags    0 or BARCOPY_MAP_RANGE_* flags
 * @param cpu_ptr  points at the byte at addr; valid until the handle ends
 * @param handle   for the copies, which reach exactly this range; its gdr_info_v2_t.va is addr
 *                 rounded down to 64 KiB. The caller owns it until barcopy_unmap_range() or
 *                 gdr_close(); no other call ends it
 * @return 0; EINVAL (g, NULL, size 0, unknown flag or address, a range beyond its allocation,
 *         managed memory); EOVERFLOW (addr + size wraps); ENOTSUP (memory of a kind that cannot be
 *         mapped here, or cannot be mapped read-only); ENOMEM (also: BAR1 is full and no region of
 *         a cache of this context is idle); EMFILE; ENFILE; ENODEV; EACCES; EIO.
 */
int barcopy_map_range(gdr_t g, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		  gdr_mh_t *handle);

/**
 * Ends a range; the pages stay mapped while another range of the context lies in them. The handle
 * is invalid afterwards, also if the unmap or the unpin fails. Where threads end ranges at the same
 * time, one of them may unmap for others, and the failure is returned once: by one of them, or by
 * gdr_close().
 * @return 0; EINVAL (g, or not a handle of barcopy_map_range()); EACCES; ENOMEM (munmap() failed);
 *         EIO.
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
 * Gets the size and use of a GPU's BAR1 from NVML (libnvidia-ml.so.1, loaded at the first call).
 * Initialises CUDA if necessary.
 * @param device  CUDA device ordinal
 * @return 0; EINVAL (device, NULL, info->struct_size); ENOTSUP (NVML is missing or does not report
 *         it: barcopy_last_error() says which); ENODEV (no CUDA driver); ENOMEM, EACCES (CUDA does
 *         not start); EIO.
 */
int barcopy_get_bar_info(int device, barcopy_bar_info_t *info);

/* ---- registration cache ---------------------------------------------------------------------- */

/** A registration cache: opaque, ended by barcopy_cache_destroy() or by gdr_close() of its
 * context. */
struct barcopy_cache;
typedef struct barcopy_cache *barcopy_cache_t;

/** How barcopy_cache_get() verifies that a region is still the memory at its address. */
typedef enum barcopy_cache_validity {
	/** Each barcopy_cache_get() compares CUDA's buffer ID, with one call into CUDA for each
	 *  allocation in the range (GPUDirect RDMA guide, "Buffer ID Tag Check for A Registration
	 *  Cache"). */
	BARCOPY_CACHE_CHECK_TAG = 0,
	/** The library calls CUDA once for each allocation. The program, or a hook in its
	 *  allocator, calls barcopy_cache_invalidate() before memory is freed or unmapped. The
	 *  fastest. A range in a region is found even if it ends in a gap between allocations.
	 *  Memory that is allocated later, in a gap of a range that the cache has, gets no
	 *  SYNC_MEMOPS: synchronise after CUDA's synchronous copies and memsets of it, or
	 *  invalidate its range first. */
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
	/** The most bytes of each GPU's BAR to keep pinned; 0: three quarters of the BAR that is
	 *  free when the GPU's first region is made, but at most a quarter of its memory. Regions
	 *  in use stay: while they alone exceed the limit, each barcopy_cache_put() unpins the
	 *  region that it leaves idle. */
	uint64_t max_bytes;
	/** The most regions; 0: half of the mappings that the system allows a process
	 *  (vm.max_map_count). */
	uint64_t max_regions;
	/** As in barcopy_copy_options_t, for all handles of the cache. Where the copy engine cannot
	 *  be used, copies go through the mapping. */
	size_t engine_read_min, engine_write_min;
} barcopy_cache_options_t;

/** A use of a cached region. */
typedef struct barcopy_region {
	void *cpu_ptr;	     /**< of the byte at device_ptr; valid until barcopy_cache_put() */
	uint64_t device_ptr; /**< as requested */
	size_t size;	     /**< as requested */
	gdr_mh_t handle;     /**< for the copies; the cache unmaps and unpins it */
	uint64_t entry;	     /**< private to the cache */
} barcopy_region_t;

/**
 * Makes a cache of pinned and mapped regions. After barcopy_cache_put() a region stays pinned until
 * its space is needed, and the next barcopy_cache_get() of its addresses finds it.
 *
 * Freed memory. An idle region is never found for other memory, but where pins are persistent
 * (always, except with a gdrdrv in callback mode) it keeps the GPU's memory after its owner has
 * freed it, all of the allocation in which the region lies. In a program that does not notify the
 * cache, a GPU's memory in use exceeds its allocations by at most the limit, and by the rest of
 * those allocations where regions are smaller: each barcopy_cache_get() that has to pin checks some
 * idle regions and releases those whose memory was freed; barcopy_mem_alloc() does so with all of
 * them before it fails. Idle regions are also unpinned where a pin, map, range, allocation, queue
 * or port of the same context finds BAR1 full; that call waits as barcopy_cache_get() does. Only
 * barcopy_cache_invalidate() before the free returns all memory at once; barcopy_cache_trim() is for
 * a program that does not know which memory is freed but knows when memory is short.
 * @param options  NULL: the defaults
 * @param cache    owned by the caller until barcopy_cache_destroy() or gdr_close()
 * @return 0; EINVAL (g, NULL, an option); ENOMEM; EACCES.
 */
int barcopy_cache_create(gdr_t g, const barcopy_cache_options_t *options, barcopy_cache_t *cache);

/**
 * Unpins everything and ends the cache. No other thread may be in a call on it. If an unpin fails,
 * or one of an earlier call on the cache has failed, the call does the rest and returns the first
 * failure.
 * @return 0; EBUSY (a region is in use; the cache is unchanged); EINVAL; EACCES; ENOMEM (munmap()
 *         failed); EIO.
 */
int barcopy_cache_destroy(barcopy_cache_t cache);

/**
 * Returns a mapping of [addr, addr + size), from the cache if it has a valid one. A hit takes no
 * lock, in any number of threads. Regions are whole GPU pages (64 KiB); allocations of up to 2 MiB
 * are pinned whole. A range in a region shares it, however short it is, and keeps all of the region
 * pinned until its put.
 *
 * A range that overlaps regions by more than a page at their border gets a new region, which covers
 * them too. Where the range goes beyond them, the new region goes further, by as many bytes as they
 * have, but not into the next region. So a buffer that grows, or a window that slides, pins at most
 * four times its path, or eight times if it grows at both ends in turn. The new region grows to
 * half of the limit at most: if the old regions and the range have more, it covers the range alone.
 * The old regions end; those in use end with their last put. For host memory each allocation has a
 * separate region, and only one in a 64 KiB page is kept: allocations that share a page evict each
 * other, each at the cost of a miss.
 *
 * Where BAR1, descriptors or a limit are exhausted, the cache unpins idle regions, the least
 * recently used first, and the call waits for other threads that are unpinning regions of the
 * cache. So do not call it while you hold a lock that the program's hook of munmap() takes. The
 * caller must not free the memory before barcopy_cache_put(). (If it does, the mapping stays
 * harmless until then and is not found again.)
 *
 * @param region  filled in; one barcopy_cache_put() gives it back
 * @return as barcopy_map_range(); EINVAL also for cache
 */
int barcopy_cache_get(barcopy_cache_t cache, uint64_t addr, size_t size, barcopy_region_t *region);

/**
 * Ends a use of a region, from any thread, and zeroes *region: a second call on it returns EINVAL.
 * The last put of an invalidated region unmaps it. gdr_close() unpins regions that are in use. A
 * put after it, of a region got before it, returns EINVAL and zeroes *region. The last one frees
 * what the library keeps of the region.
 * @return 0; EINVAL (cache, NULL, not a region in use of this cache); EACCES.
 */
int barcopy_cache_put(barcopy_cache_t cache, barcopy_region_t *region);

/**
 * Removes every region that touches a GPU page of [addr, addr + size). When it returns, no
 * barcopy_cache_get() of any thread finds them. Idle regions are unmapped at once or, if another
 * thread is in a call on the cache or this thread is inside another call of this library, when that
 * call ends; regions in use are unmapped by their last put. It works with either validity. Call it
 * before the memory is freed or unmapped, for every cache that may have the range: the call
 * concerns this cache alone, and another one of BARCOPY_CACHE_NOTIFIED would go on to return its
 * mapping of the old memory.
 *
 * It may be called from a hook of any call, such as cuMemFree, cuMemUnmap or munmap, also where
 * this library makes that call: the removal waits for no lock and allocates nothing. Unmapping idle
 * regions takes locks of this library and calls free(). So do not make the call from a signal
 * handler, nor while you hold a lock that the program's malloc() or free() takes.
 * @param size  a range that would wrap ends at the end of the address space; addr 0 and SIZE_MAX
 *              are all regions
 * @return 0, also where no region was found; EINVAL (cache); EACCES.
 */
int barcopy_cache_invalidate(barcopy_cache_t cache, uint64_t addr, size_t size);

/**
 * Unpins idle regions: all whose memory has been freed, then others until the idle regions that
 * remain take at most max_idle_bytes of BAR. The call also waits for other threads that are
 * unpinning regions of the cache. So do not call it while you hold a lock that the program's hook
 * of munmap() takes.
 * @param max_idle_bytes  0: unpins every idle region; UINT64_MAX: only those of freed memory
 * @return 0; EINVAL (cache); EACCES.
 */
int barcopy_cache_trim(barcopy_cache_t cache, uint64_t max_idle_bytes);

/** Counts since barcopy_cache_create(), and the present state. */
typedef struct barcopy_cache_stats {
	size_t struct_size;		 /**< in: sizeof(barcopy_cache_stats_t) */
	uint64_t hits;		 /**< barcopy_cache_get() found a valid region */
	uint64_t misses;	 /**< it had to pin, or failed to */
	uint64_t evictions;	 /**< regions unpinned to free space */
	/** Regions that were stale, invalidated, or pinned during an invalidation that may have
	 *  missed them. */
	uint64_t invalidations;
	/** Now. Also counts regions in use that no get finds any more, because a larger region has
	 *  replaced them or they were invalidated: their last put unpins them. */
	uint64_t regions;
	uint64_t regions_in_use; /**< now */
	uint64_t bytes_pinned;	 /**< of BAR, by all regions */
	/** The limit of each GPU, the smallest where they differ; UINT64_MAX: none known yet. */
	uint64_t max_bytes;
} barcopy_cache_stats_t;

/**
 * Reads the statistics.
 * @return 0; EINVAL (cache, NULL, stats->struct_size); EACCES.
 */
int barcopy_cache_get_stats(barcopy_cache_t cache, barcopy_cache_stats_t *stats);

/* ---- statistics ------------------------------------------------------------------------------ */

/** In barcopy_stats_t.flags. */
enum barcopy_stats_flags {
	/** Copies and words are counted: GDRCOPY_STATS was set to other than 0 at the first
	 *  open. */
	BARCOPY_STATS_COPIES = 1
};

/** Counts of successful calls, of a context or the process. */
typedef struct barcopy_stats {
	size_t struct_size; /**< in: sizeof(barcopy_stats_t) */
	uint64_t flags; /**< BARCOPY_STATS_COPIES or 0 */
	/** GPU ranges pinned and unpinned, mapped and unmapped. Ranges, memory and regions that
	 *  share a pin count once. */
	uint64_t pins, unpins, maps, unmaps;
	/** Ranges that gdr_get_callback_flag() found revoked, each counted once. */
	uint64_t revoked;
	/** Copies that the copy engine made, and those that fell back to the mapping. */
	uint64_t engine_copies, engine_fallbacks;
	/** Of registration caches. */
	uint64_t cache_hits, cache_misses, cache_evictions;
	/** Copies into mappings and out of them, with BARCOPY_STATS_COPIES. Each piece of a
	 *  vectored copy that is not empty is one. */
	uint64_t copies_to, bytes_to, copies_from, bytes_from;
	/** Words, with BARCOPY_STATS_COPIES: puts and posts, a posted line too; gets; waits. */
	uint64_t puts, gets, waits;
} barcopy_stats_t;

/**
 * Reads the statistics of a context, or with g NULL those of the process, closed contexts included.
 * A forked child begins at 0. This thread's finished calls are counted; calls that other threads
 * are in may or may not be.
 *
 * Copies and words are counted, and the process's statistics written to standard error at exit,
 * only if GDRCOPY_STATS is set to other than 0 in the environment at the first open.
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
