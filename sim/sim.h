/* SPDX-License-Identifier: MIT */
/*
 * The stand-in libcuda.so.1 inside: its one lock, its objects and their owners. Unless noted, the
 * lock protects everything below; an exported function holds it from SIM_ENTER to its return.
 */
#ifndef SIM_H
#define SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#pragma GCC visibility push(default)
#include "abi/cuda.h"
#include "gdrsim.h"
/* Those that the library does not call. */
typedef struct CUevent_st *CUevent;
enum { CU_EVENT_DISABLE_TIMING = 2 };
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
CUresult cuEventDestroy_v2(CUevent event);
#pragma GCC visibility pop
#include "machine.h"

#define SIM_GRANULE ((size_t)2 << 20) /* VMM granularity and size of a sub-allocated block */
#define SIM_PAGE    ((size_t)4096)

typedef unsigned long long sim_addr;

/* state.c: lock, initialisation, devices as they were at cuInit */
enum sim_need {
	SIM_NEED_NOTHING,
	SIM_NEED_INIT,
	SIM_NEED_CONTEXT,
};

struct sim_state {
	pthread_mutex_t lock;
	pthread_cond_t progress; /* a stream has moved on */
	int n_gpus;
	struct sim_gpu gpu[SIM_MAX_GPUS];
	uint64_t used_bytes[SIM_MAX_GPUS];
};
extern struct sim_state sim;

/* Counts the call and injects faults; then locks, if what the call needs exists. */
CUresult sim_enter(const char *call, enum sim_need need);
void sim_leave(const CUresult *entered); /* unlocks, if sim_enter() succeeded */

/* Opens an exported function: returns the error, or holds the lock until the function returns. */
#define SIM_ENTER(need)                                                                    \
	CUresult entered_ __attribute__((cleanup(sim_leave))) = sim_enter(__func__, need); \
	if (entered_ != CUDA_SUCCESS)                                                      \
	return entered_

int sim_driver_version(void);
bool sim_device_ok(CUdevice dev);
bool sim_integrated(void);
bool sim_exports_dmabuf(void);

/* context.c */
struct CUstream_st {
	struct CUstream_st *next; /* of the same context */
	CUcontext ctx;
	unsigned int flags;
	bool alive;
	bool per_thread; /* the owner's CU_STREAM_PER_THREAD */
	CUstreamCaptureStatus capture; /* work submitted is recorded, and does not run */
	CUstreamCaptureMode capture_mode;
	pthread_t owner; /* of the stream if per_thread, and of the capture */
	unsigned long next_ticket; /* of the next piece of work submitted */
	unsigned long done_ticket; /* of the next piece of work to run */
};

struct CUctx_st {
	struct CUctx_st *next;
	CUdevice dev;
	unsigned int flags;
	unsigned int primary_refs; /* 0 for a created one */
	bool primary;
	bool alive;
	bool was_reset; /* can still be pushed; calls then fail */
	struct CUstream_st *streams; /* the first is the NULL stream */
};

void sim_ctx_adopt(CUcontext ctx); /* becomes the only one of the calling thread */
CUcontext sim_contexts(void); /* the first of all, dead ones included */
CUcontext sim_ctx(void); /* the calling thread's current context; NULL: none or destroyed */
CUresult sim_ctx_check(void); /* why there is no current context */

/* va.c: the CUDA address space: a PROT_NONE arena and the ranges of it in use */
struct sim_va {
	sim_addr base;
	size_t size;
	bool reservation; /* of cuMemAddressReserve */
};

sim_addr sim_va_alloc(size_t size, size_t align, sim_addr hint, bool reservation); /* 0: full */
void sim_va_free(sim_addr base);
const struct sim_va *sim_va_find(sim_addr addr);
bool sim_va_inside(sim_addr addr); /* in use or not */

/* object.c: physical memory: one memfd each, mapped for the stand-in's own use */
struct sim_obj {
	struct sim_obj *next;
	int fd;
	ino_t inode;
	dev_t dev_no;
	bool orphan; /* a dma-buf alone holds it */
	size_t size;
	char *cpu;
	int dev;
	unsigned int refs; /* handle (1 if any), maps, exports, blocks */
	unsigned int handle_refs; /* VMM: what the program has to release */
	CUmemGenericAllocationHandle handle; /* 0: not VMM */
	CUmemAllocationProp prop;
	bool counted; /* in used_bytes */
	int rm_id; /* rmclient.c: 0 until it is exported */
	size_t rm_window;
	unsigned int *rm_handles;
};

CUresult sim_obj_create(int dev, size_t size, struct sim_obj **obj); /* one reference */
CUresult sim_obj_create_vmm(size_t size, const CUmemAllocationProp *prop, struct sim_obj **obj);
CUresult sim_obj_adopt(int fd, size_t size, const CUmemAllocationProp *prop, struct sim_obj **obj);
void sim_obj_get(struct sim_obj *obj);
void sim_obj_put(struct sim_obj *obj); /* it lives on while the resource manager has users */
void sim_obj_destroy(struct sim_obj *obj);
void sim_obj_sweep(void); /* destroys those whose last dma-buf has gone */
/* A descriptor of the memory that keeps it, and so do maps of it; or -1 with errno. */
int sim_obj_export(const struct sim_obj *obj, int (*opener)(const char *path, int flags, ...));
const struct sim_obj *sim_obj_exported(unsigned long inode); /* NULL: no such export */
struct sim_obj *sim_obj_by_fd(int fd); /* any descriptor of its memfd */
struct sim_obj *sim_obj_by_handle(CUmemGenericAllocationHandle handle);

/* table.c: allocations by address */
enum sim_kind {
	SIM_DEVICE,
	SIM_POOL,
	SIM_VMM,
	SIM_HOST,
	SIM_REGISTERED,
	SIM_MANAGED,
};

struct sim_alloc {
	enum sim_kind kind;
	sim_addr base; /* device address */
	size_t size;
	char *host; /* CPU address; NULL for device memory */
	char *cpu; /* how the stand-in reaches the bytes */
	struct sim_obj *obj; /* NULL for host and managed memory */
	size_t obj_offset;
	sim_addr block; /* the address range that backs it, freed with its last allocation */
	size_t block_size;
	CUdevice dev;
	CUcontext ctx; /* NULL for VMM memory */
	unsigned long long buffer_id;
	unsigned int host_flags;
	bool sync_memops;
	uint8_t access[SIM_MAX_GPUS];
};

struct sim_alloc *sim_find(sim_addr addr);
/* The first one that starts at or after addr, and where; NULL: none. */
struct sim_alloc *sim_find_next(sim_addr addr, sim_addr *base);
struct sim_alloc *sim_find_in(sim_addr addr, size_t size); /* the first that touches the range */
struct sim_alloc *sim_find_of(CUcontext ctx); /* any one of that context */
CUresult sim_insert(struct sim_alloc *alloc); /* sets buffer_id, takes ownership on success */
void sim_remove(struct sim_alloc *alloc); /* the caller owns it */
CUresult sim_alloc_new(enum sim_kind kind, struct sim_alloc **alloc);

/* block.c: the address ranges that back allocations */
struct sim_block {
	struct sim_block *next;
	enum sim_kind kind;
	int dev; /* -1: host memory */
	bool wc; /* write-combined memory has blocks of its own (H200, 2026-11-20) */
	bool shared; /* by several small allocations */
	sim_addr base;
	size_t size;
	struct sim_obj *obj; /* of device memory */
	unsigned int allocs;
};

/* A place for size in a block like this one, which may be new; 0: no space. */
sim_addr sim_block_place(const struct sim_block *like, size_t size, struct sim_block **block);
void sim_block_put(struct sim_block *block); /* frees it unless it has allocations */
void sim_block_leave(const struct sim_alloc *alloc); /* the block has one allocation less */

/* memory.c, host.c; the caller has drained the streams */
void sim_free(struct sim_alloc *alloc);
void sim_free_host(struct sim_alloc *alloc);
void sim_free_of_context(CUcontext ctx);

/* capture.c */
CUresult sim_capture_asks(CUstream stream); /* a query or a wait conflicts with a capture of it */
bool sim_capture_takes(CUstream stream, CUresult *r); /* work: recorded or refused, not to be run */
CUresult sim_capture_forbids(void); /* a call that is potentially unsafe */

/* copy.c, stream.c */
struct sim_op {
	struct sim_op *next;
	CUstream stream;
	unsigned long ticket;
	unsigned long behind; /* operations of the legacy stream that come first */
	CUstream after; /* of an event: a wait alone, for that stream's work before after_ticket */
	unsigned long after_ticket;
	uint64_t due_ns;
	char *dst;
	const char *src; /* NULL: a memset, or a word to be written */
	size_t size;
	uint32_t value;
	bool word;
	void *staged; /* freed with the operation */
};

CUresult sim_stream(CUstream handle, CUstream *stream);
void sim_per_thread_used(void); /* its stream, by the calling thread */
CUresult sim_submit(const struct sim_op *op); /* runs at once when nothing is ahead of it */
void sim_run_op(const struct sim_op *op);
bool sim_has_delay(void);
void sim_drain_stream(CUstream stream);
void sim_drain_context(CUcontext ctx); /* what the NULL stream waits for */
void sim_drain_all(void);
void sim_forget_streams(CUcontext ctx);

/* cpu address of device memory, NULL when the whole range is not accessible; for kernels */
void *sim_reach(sim_addr addr, size_t size);

/* pins.c: an allocation has been taken out of the table */
void sim_pins_freed(sim_addr addr, size_t size);

/* dmabuf.c: descriptors that stand for a piece or several of GPU memory */
#define SIM_MAX_PIECES 4096

struct sim_piece {
	struct sim_obj *obj;
	size_t offset;
	size_t size;
};

CUresult sim_dmabuf_create(const struct sim_piece *pieces, unsigned int n, size_t first,
			   bool mappable, int *fd);
/* The pieces of a part of the dma-buf of fd: how many, or -EBADF, -EINVAL. */
int sim_dmabuf_pieces(int fd, size_t off, size_t size, struct sim_piece *out, unsigned int room);
void sim_dmabuf_sweep(void); /* releases what closed descriptors held */
/* Maps len bytes of the dma-buf of fd from off on; false: fd is not ours. Takes the lock itself. */
bool sim_dmabuf_map(void *addr, size_t len, int prot, int flags, int fd, int64_t off, void **out);

/* rmclient.c: this library as a client of the resource manager; escape.c: its ioctls */
void sim_rm_start(void);
bool sim_rm_running(void);
void sim_rm_sweep(void); /* not under the lock */
/*
 * Marks calls under the lock that unmap as libcuda's own. After a program's calls the resource
 * manager releases unused memory, for which it takes the lock.
 */
void sim_rm_own(bool on);
bool sim_rm_memory_end(
	struct sim_obj *obj); /* false: others use it; sim_obj_destroy() comes later */
/*
 * Exports pieces of one GPU as a dma-buf, in objects of `window` bytes (0: one each). pool: memory
 * of cuMemAllocAsync.
 */
CUresult sim_rm_export(const struct sim_piece *pieces, unsigned int n, size_t window, bool pool,
		       bool pcie, int *fd);
void sim_rm_replace(int exported, int *fd);
int sim_escape(int fd, unsigned long request, void *arg);

/* mmap_hook.c: makes the loaded objects' mmap map these descriptors */
void sim_hook_mmap(void);
bool sim_is_dmabuf(int fd);

#endif
