/* SPDX-License-Identifier: MIT */
/*
 * The settings and hooks of the stand-in for /dev/gdrdrv. libgdrdrv_node.so, by LD_PRELOAD, serves
 * open, ioctl, mmap, access and close of that path alone, over the device memory of the
 * stand-in libcuda.so.1 (sim/gdrsim.h).
 *
 * Environment, read when the node is opened (the fault rules once, at the first use):
 *   GDRSIM_NODE=present|absent|denied  open gives ENOENT or EACCES, whatever the node's mode.
 *                               Default: present, but absent if the library is preloaded only as
 *                               libnvidia_node.so (rm/gdrsim_rm.h)
 *   GDRSIM_NODE_LEVEL=m.n       the driver's level, which decides the calls it knows (2.6)
 *   GDRSIM_NODE_PERSISTENT=0|1  1: a pin outlives the free of its memory; 0: the free ends it (1)
 *   GDRSIM_NODE_POPULATE=0|1    1: the call POPULATE of barcopy's driver; 0: ENOTTY, as others (1)
 *   GDRSIM_NODE_MIN_API=m.n     the oldest library level that it reports to serve (2.0)
 *   GDRSIM_NODE_PCIE=1          force-PCIe pins are supported (persistent mode only)
 *   GDRSIM_NODE_TYPE=n          the mapping type of the memory, a gdr_mapping_type_t (1)
 *   GDRSIM_NODE_DEVICE=1        a mapping as device memory can be asked for too, as on arm64
 *   GDRSIM_NODE_HANDLE=n        the first handle, also above 2^32 (1)
 *   GDRSIM_NODE_SKEW=n, GDRSIM_NODE_SKEW_SIZE=n  bytes by which GET_INFO misstates the address, and
 *                               the size
 *   GDRSIM_SYS=dir              stands for /sys in the program's open()
 *   GDRSIM_KERNEL=release       the release that uname() reports
 *
 * Process: a descriptor serves the process that opened it; any other gets EACCES.
 */
#ifndef GDRSIM_NODE_H
#define GDRSIM_NODE_H

/*
 * Replaces the fault rules: "PIN_BUFFER:2=ENOMEM,MMAP:*=EAGAIN,GET_INFO:1=524". Names: those of the
 * ioctls, OPEN, MMAP, MADVISE (MADV_DONTFORK only). Call numbers count from now. MMAP:n=REVOKE
 * maps, and revokes the region before it can be touched. NULL: none.
 */
void gdrsim_node_fail(const char *rules);

/* Calls of that name since the rules were set. */
unsigned long gdrsim_node_calls(const char *name);

/* Regions that are pinned in this process, and how many of them are mapped. */
unsigned int gdrsim_node_pins(void);
unsigned int gdrsim_node_maps(void);

#endif
