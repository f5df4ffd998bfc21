/* SPDX-License-Identifier: MIT */
/*
 * The variables GDRSIM_* of the machine, the driver and faults, and the gdrsim_* hooks of the
 * stand-ins (others: rm/gdrsim_rm.h, node/gdrsim_node.h, warp.h). libcuda.so.1 and
 * libnvidia-ml.so.1 each export their own copy of the hooks, for the calls of that library only:
 * take them by dlsym() from its handle.
 *
 * Machine. Read at cuInit (libcuda), at each call (NVML).
 *   GDRSIM_DEVICES=n           simulated GPUs, 0 to 32 (1); with 0, cuInit gives NO_DEVICE
 *   GDRSIM_GPU_NAME=text      name of each GPU (Simulated GPU)
 *   GDRSIM_MEM_MIB=n           memory of each GPU (8192); sparse, only what is written costs memory
 *   GDRSIM_BAR1_MIB=n          BAR1 of each GPU (16384)
 *   GDRSIM_BAR1_STATIC=1       all of a GPU's memory is mapped in its BAR1, if that is as large, and
 *                              a map takes none of it (kbusGetStaticFbAperture_TU102() of 580)
 *   GDRSIM_BAR1_REUSE=1        maps of one range of one memory share their place in BAR1
 *                              (kbusMapFbAperture_GM107() from 580 on, where it is the default)
 *   GDRSIM_ARENA_GIB=n         address space for device memory (256); a small one saves seconds
 *                              under an emulator that records every page
 *
 * Driver. Read at each use, so that a test can change them between calls.
 *   GDRSIM_DRIVER_VERSION=n    what cuDriverGetVersion answers (13000)
 *   GDRSIM_PCI_DOMAIN=n, GDRSIM_PCI_DEVICE=n  of each GPU's PCI address (0)
 *   GDRSIM_DMABUF=0            no dma-buf export: the attribute, and RM's answer, are 0, the call
 *                              gives NOT_SUPPORTED
 *   GDRSIM_DMABUF_MMAP=0|1     whether the fd of cuMemGetHandleForAddressRange can be mapped;
 *                              unset: from driver version 13030 on, as on discrete GPUs
 *   GDRSIM_DMABUF_FIRST=0|1    a mapping of it has the pages of the first memory object alone, and
 *                              SIGBUS for others; unset: from 13000 to 13020 (dmabuf.c)
 *   GDRSIM_EXPORT_UNSEEN=1     libcuda makes its exports past its import of ioctl()
 *   GDRSIM_EXPORT_MORE=1       libcuda makes three other ioctls before each export
 *   GDRSIM_DMABUF_WRONG=1      a mapping of it shows other memory
 *   GDRSIM_DMABUF_PCIE=1       the PCIE flag of that call is accepted (NOT_SUPPORTED otherwise)
 *   GDRSIM_INTEGRATED=1        device attribute INTEGRATED: a GPU without its own frame buffer. No
 *                              dma-buf of device memory, no peer-to-peer capability of it
 *                              (GPUDirect RDMA guide, "Porting to Tegra": cudaHostAlloc's instead)
 *   GDRSIM_COHERENT=1          device attribute PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: the
 *                              CPU reaches device memory over a coherent link
 *   GDRSIM_HOST_POINTER=0      CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM is 0: all host memory has a
 *                              device address of its own, which the CPU cannot use
 *   GDRSIM_VMM_SYNC_MEMOPS=1   SYNC_MEMOPS can be set on VMM memory (NOT_SUPPORTED otherwise)
 *   GDRSIM_SYNC_MEMOPS=1       device memory begins with SYNC_MEMOPS set, as on an H200 with driver
 *                              580 (0, by which a test detects a pin that does not set it)
 *   GDRSIM_WC_SAME=1           write-combined host memory has one address for CPU and GPU, as on
 *                              an H200 with driver 580 (0: two, which CUDA's documents allow)
 *   GDRSIM_ASYNC_DELAY_US=n    asynchronous work (and the "synchronous" calls that CUDA lets return
 *                              early, unless SYNC_MEMOPS is set) is done n microseconds later (0)
 *
 * Faults.
 *   GDRSIM_FAIL="cuMemMap:3=999,nvmlInit:*=9"
 *       The 3rd call of cuMemMap (from 1) gives 999, every nvmlInit 9. A name is given
 *       with or without its _v2. Unknown names are left alone: one value serves all libraries.
 *       Read at the first call into the library. A call without a result (void) is only counted.
 */
#ifndef GDRSIM_H
#define GDRSIM_H

#include <stddef.h>

/* Replaces the fault rules (form as GDRSIM_FAIL); call numbers count from now. NULL: none. */
void gdrsim_fail(const char *spec);
/* Calls of that name so far, with or without _v2; NULL: all calls of this library. */
unsigned long gdrsim_calls(const char *name);
/* The nth call (from 1) from now on, of any function with a result, gives result. 0: none. */
int gdrsim_fail_nth(unsigned long n, int result);
/* The function that failed last by a rule; NULL: none since the last gdrsim_fail_nth. */
const char *gdrsim_failed(void);

/* libcuda only: contexts made so far, revived primary ones included. */
unsigned long gdrsim_contexts(void);
/* libcuda only: bytes of device memory that live allocations of this process hold. */
unsigned long long gdrsim_device_bytes(int device);
/*
 * libcuda only, for the stand-in of the gdrdrv node. Pins pages of device memory. Returns the
 * number of `pieces` written, or -errno. A piece is a mappable range of a descriptor of libcuda's,
 * valid until the unpin. With `revoke`, freeing the last allocation in the range ends the pin:
 * libcuda calls revoke(arg) once, under its lock, and not after gdrsim_unpin().
 */
struct gdrsim_piece {
	int fd;
	size_t offset;
	size_t size;
};
int gdrsim_pin(unsigned long long addr, size_t size, void (*revoke)(void *arg), void *arg,
	       struct gdrsim_piece *pieces, unsigned int room, unsigned long *id);
void gdrsim_unpin(unsigned long id);
/* libcuda only: bytes of a GPU's BAR1 that this process has mapped of dma-bufs. */
unsigned long long gdrsim_dmabuf_bar1(int device);

#endif
