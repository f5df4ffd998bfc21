/* SPDX-License-Identifier: MIT */
/*
 * The settings and hooks of the stand-in for nvidia.ko. One library to preload has it and the
 * stand-in for /dev/gdrdrv (node/gdrsim_node.h): as libnvidia_node.so it provides /dev/nvidiactl, a
 * /dev/nvidiaN for each simulated GPU and /proc/driver/nvidia; as libgdrdrv_node.so, /dev/gdrdrv.
 *
 * The state is the kernel's: the first process with the library shares it with all its descendants,
 * and fork does not copy it. The last descriptor or map of an open file description releases it, in
 * any process.
 *
 * Environment, read at each use, so that a test can change it between calls:
 *   GDRSIM_RM=present|absent|denied  the nodes exist; open gives ENOENT; EACCES, whatever the mode
 *   GDRSIM_RM_DRIVER=a.b.c      the driver's version; its first number decides the layout of the
 *                               structures that changed (from GDRSIM_DRIVER_VERSION: CUDA 13.0 is
 *                               580, 12.8 570, 12.4 550, 12.2 535, 11.7 515)
 *   GDRSIM_RM_OPEN=0            the version's line and the module's taint are the proprietary flavour's,
 *                               which exports no dma-buf
 *   GDRSIM_RM_VERSION=0         no version file, as under procfs with subset=pid
 *   GDRSIM_RM_TAINT=0           no taint of the module either, as in gVisor
 *   GDRSIM_RM_MINORS=n,n,...    the minor number of each GPU, in CUDA's order; default 0 and 1 for
 *                               two GPUs, rotated by one for more
 *   GDRSIM_RM_INSTANCES=n,n,... the same for the device instances; default backwards: of two GPUs
 *                               CUDA's first is instance 1
 *   GDRSIM_RM_NO_NODE=n,...     minors without a node: ENOENT
 *   GDRSIM_RM_DENIED=n,...      minors whose node may not be opened: EACCES
 *   GDRSIM_RM_EXPORT_SIZE=n     size of an export structure that is neither of the two known ones:
 *                               the arrays begin n - 2600 bytes later than in the older one
 *   GDRSIM_RM_EXPORT_MAX=n      libcuda names at most n objects in one export call (128)
 *   GDRSIM_RM_OBJECT_MIB=n      libcuda's memory of cuMemAlloc and of pools is made of objects of n
 *                               MiB (pools: 32; else one object whatever the size)
 *   GDRSIM_RM_SHARE=0           the share policy of a process's own clients allows nothing
 *   GDRSIM_RM_BAR1=0|1          maps lie outside BAR1, or in it (1; with GDRSIM_COHERENT=1 0)
 *   GDRSIM_RM_MAP_START=1       each map shows its memory from the start, whatever its offset
 *   GDRSIM_RM_PROTECTED=1       confidential computing: maps of device memory are refused
 *
 * Calls on libcuda's own files are neither counted nor made to fail, except its exports. libcuda
 * opens its nodes at cuInit, even if the above denies them to the program. With GDRSIM_RM=absent,
 * or without the library, it makes dma-bufs by itself, as on WSL, which has no such node.
 */
#ifndef GDRSIM_RM_H
#define GDRSIM_RM_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Replaces the fault rules: "RM_ALLOC:2=0x1a,RM_MAP_MEMORY:*=ENOMEM". A number is a status in the
 * structure of an ioctl that succeeds; a name is the errno of the call (EINVAL: as for a structure
 * of another size). Names: those of the escapes (RM_ALLOC, RM_FREE, RM_CONTROL, RM_DUP_OBJECT,
 * RM_MAP_MEMORY, RM_UNMAP_MEMORY, CARD_INFO, REGISTER_FD, EXPORT_TO_DMABUF_FD), OPEN_CTL,
 * OPEN_DEVICE, MMAP; a class or a command may follow: RM_ALLOC.80, RM_CONTROL.205. Call numbers
 * count from now. NULL: none.
 */
void gdrsim_rm_fail(const char *rules);
/* The nth call from now on, of any name, fails: value > 0 is a status (EIO where there is none). */
void gdrsim_rm_fail_nth(unsigned long n, int value);
/* The name of the last call that was made to fail since one of the two; NULL: none. */
const char *gdrsim_rm_failed(void);
/* Calls of that name since the rules were set; NULL: all. */
unsigned long gdrsim_rm_calls(const char *name);

/* What lives in the machine, libcuda's own not counted. */
struct gdrsim_rm_counts {
	unsigned int ctl_files, device_files; /* open file descriptions */
	unsigned int clients, devices, memories; /* memories: duplicates and imports */
	unsigned int maps; /* of the resource manager */
	unsigned int vmas; /* of this process */
	unsigned int dmabufs; /* libcuda's too */
};
void gdrsim_rm_counts(struct gdrsim_rm_counts *counts);
/* BAR1 that maps hold on the GPU of a CUDA ordinal, in 64 KiB pages. */
unsigned long long gdrsim_rm_bar1_used(int gpu);
/*
 * How often this process did what the real driver accepts but must not be done: a map ended
 * (unmapped or freed) while its pages were still mapped, or was mapped after its end.
 */
unsigned long gdrsim_rm_stale(void);
/* Releases what ended unnoticed: descriptors replaced by dup2, processes killed. */
void gdrsim_rm_sweep(void);

/* ---- for the stand-in libcuda ------------------------------------------------------------- */

/* From here on this thread's calls are the driver library's own; nests. */
void gdrsim_rm_driver(bool on);
int gdrsim_rm_driver_version(void); /* the first number */
/* Size of the export's structure, and where its arrays and status are. */
struct gdrsim_rm_export_layout {
	size_t size, handles, offsets, sizes, status;
	bool mapping_type, allow_mmap; /* bytes at 32 and 33 */
};
void gdrsim_rm_export_layout(struct gdrsim_rm_export_layout *layout);
/*
 * Physical memory of a GPU: a descriptor that stays open until `release`, which is called without a
 * lock, in the process that made the memory, after gdrsim_rm_memory_end() and the last reference.
 * An id, or -1.
 */
int gdrsim_rm_memory_new(int gpu, int fd, size_t size, void (*release)(void *arg), void *arg);
/* A memory object over a part of it; its handle, or 0. */
unsigned int gdrsim_rm_memory_object(int id, unsigned int client, unsigned int device,
				     size_t offset, size_t length);
/* Frees the client's objects over it. true: no reference is left, and no release follows. */
bool gdrsim_rm_memory_end(int id, unsigned int client);

#endif
