/* SPDX-License-Identifier: MIT */
/*
 * The interface of /dev/p2p-provider, the stand-in GPU of the emulated machine.
 *
 * An open descriptor is a GPU context; closing it ends the context like the end of its process.
 * Used by the guest's tests and by a stand-in libcuda: cuMemAlloc is ALLOC, cuMemFree is FREE,
 * cuMemcpy is PEEK and POKE. Addresses are of the device's own space (PROVIDER_VA_BASE upwards) and
 * never those of a CPU mapping. All calls return 0, or -1 with errno.
 */
#ifndef PROVIDER_UAPI_H
#define PROVIDER_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PROVIDER_NODE	   "/dev/p2p-provider"
#define PROVIDER_VA_BASE   0xd000000000ULL
#define PROVIDER_PAGE_SIZE 0x10000ULL

/* ALLOC flags. */
#define PROVIDER_SCATTER  1U /* no two pages adjacent in physical memory */
#define PROVIDER_ALIGN_2M 2U /* physical start a multiple of 2 MiB */
#define PROVIDER_REUSE_VA 4U /* the address of the last freed block, when it fits */
#define PROVIDER_KEEP	  8U /* behind all other memory: nothing else writes there, see @keep */

#define PROVIDER_KEEP_PAGES 64 /* reserved for PROVIDER_KEEP and not counted in INFO */

/*
 * ENOMEM; size is rounded up to 64 KiB; va is a multiple of 2 MiB. Blocks of KEEP with other
 * numbers and the same size never share a page, also not with those of an earlier load.
 */
struct provider_alloc {
	__u64 size;
	__u32 flags;
	__u32 keep; /* of KEEP: its number, from 0 */
	__u64 va; /* out */
	__u64 phys; /* out: of the first page */
};

/* EINVAL if ALLOC did not return @va. Runs the free callbacks before it returns. */
struct provider_free {
	__u64 va;
};

/* Through the provider's own mapping of the BAR, not through gdrdrv. Any alignment. */
struct provider_copy {
	__u64 va;
	__u64 len;
	__u64 buf; /* pointer */
};

/* The raw page-table entry of an address of the calling process. */
struct provider_pte {
	__u64 addr;
	__u64 pte; /* out */
	__u32 level; /* out: 0 none, 1 page, 2 huge */
	__u32 pad;
};

/* Places where a thread can be stopped. */
#define PROVIDER_AFTER_MMAP	1 /* of @fd, before a zap can find the VMA */
#define PROVIDER_BEFORE_INSERT	2 /* of a page-table entry */
#define PROVIDER_BEFORE_PUT	3 /* of any kind, before any lock of the provider */
#define PROVIDER_AFTER_GET	4 /* of any kind, before it returns; no lock held */
#define PROVIDER_BEFORE_RESERVE 5 /* of a memory type (x86) */

/*
 * Opens a window, in place of the one this descriptor had. EOPNOTSUPP where the kernel has no
 * kprobes or no such place; EBUSY when another descriptor has one, or this one's is in use.
 */
struct provider_window {
	__u32 place;
	__s32 fd; /* of AFTER_MMAP: the client's node */
};

/* Outcomes of a free in the window. */
#define PROVIDER_FREED_INSIDE	1 /* it ended while the thread was stopped */
#define PROVIDER_FREE_WAITED	2 /* its callback slept while the thread was stopped */
#define PROVIDER_WINDOW_TIMEOUT 3 /* neither, within the timeout */
#define PROVIDER_WINDOW_MISSED	4 /* no thread stopped within the timeout; freed anyway */

#define PROVIDER_WINDOW_MAX_MS 60000U

/*
 * FREE of @va inside the window: waits until another thread has armed itself and stopped there,
 * frees, and returns when that thread has gone on. EINVAL without a window, or as FREE; EBUSY if
 * another WINDOW_FREE runs.
 */
struct provider_window_free {
	__u64 va;
	__u32 timeout_ms; /* of each wait, at most PROVIDER_WINDOW_MAX_MS */
	__u32 outcome; /* out; of a held one by WINDOW_GO */
	__u32 hold; /* 1: returns after the free; the thread stays stopped until WINDOW_GO */
	__u32 pad;
};

/* Lets a held thread go on, and returns when it has. EINVAL if none is held. */
struct provider_window_go {
	__u32 outcome; /* out */
	__u32 pad;
};

/*
 * Arms the calling thread: it stops once, when it next reaches the window. Waits until a
 * WINDOW_FREE has begun, so that the stopped thread cannot block that call. EINVAL without a
 * window; ETIMEDOUT.
 */
struct provider_window_arm {
	__u32 passes; /* how often it passes the window before it stops */
	__u32 timeout_ms;
};

struct provider_info {
	__u64 bar_phys;
	__u64 bar_size;
	__u32 pages_total; /* of 64 KiB */
	__u32 pages_free;
	__u32 pins; /* now */
	__u32 tables; /* page tables not freed yet */
	__u32 callbacks; /* run since load */
	__u32 late_puts; /* puts that found nothing */
	__u32 foreign_puts; /* puts in another process, which do nothing */
	__u32 errors; /* wrong use of the interface: double free, lost table, another's pin taken */
	__u64 callback_ns; /* duration of the last callback */
	__u64 largest_get; /* bytes of the largest request since load, also if it failed */
	__u32 gets; /* calls since load */
	__u32 pci_domain; /* of the GPU */
	__u8 pci_bus;
	__u8 pci_devfn;
	__u16 pad;
	__u32 notified; /* how often a notifier found its lock taken, since load */
};

/*
 * The tokens of this context, as the resource manager makes them: the context's number, and the
 * first number of an address space.
 */
#define PROVIDER_VA_SPACE 0xfe00

struct provider_tokens {
	__u64 p2p_token;
	__u32 va_space;
	__u32 pad;
};

/*
 * Admits the process of another context to this context's memory, until that context is closed.
 * EINVAL if the context does not exist; EBUSY if its process was admitted through another one;
 * ENOSPC.
 */
struct provider_lend {
	__u64 client; /* that context's p2p_token */
};

/*
 * Until the close the kernel's reclaim of [addr, addr + len) of the calling process waits for a lock.
 * EOPNOTSUPP on a kernel without MMU notifiers; EBUSY: this descriptor has such a range.
 */
struct provider_notify {
	__u64 addr;
	__u64 len;
};

/* FREE under that lock, which it holds from @delay_ms before the free on. */
struct provider_notify_free {
	__u64 va;
	__u32 delay_ms; /* at most PROVIDER_WINDOW_MAX_MS */
	__u32 pad;
};

#define PROVIDER_IOC_ALLOC	 _IOWR(0xDB, 1, struct provider_alloc)
#define PROVIDER_IOC_FREE	 _IOW(0xDB, 2, struct provider_free)
#define PROVIDER_IOC_PEEK	 _IOW(0xDB, 3, struct provider_copy)
#define PROVIDER_IOC_POKE	 _IOW(0xDB, 4, struct provider_copy)
#define PROVIDER_IOC_PTE	 _IOWR(0xDB, 5, struct provider_pte)
#define PROVIDER_IOC_INFO	 _IOR(0xDB, 7, struct provider_info)
#define PROVIDER_IOC_TOKENS	 _IOR(0xDB, 8, struct provider_tokens)
#define PROVIDER_IOC_LEND	 _IOW(0xDB, 11, struct provider_lend)
#define PROVIDER_IOC_NOTIFY	 _IOW(0xDB, 16, struct provider_notify)
#define PROVIDER_IOC_NOTIFY_FREE _IOW(0xDB, 17, struct provider_notify_free)
#define PROVIDER_IOC_WINDOW	 _IOW(0xDB, 32, struct provider_window)
#define PROVIDER_IOC_WINDOW_FREE _IOWR(0xDB, 33, struct provider_window_free)
#define PROVIDER_IOC_WINDOW_ARM	 _IOW(0xDB, 34, struct provider_window_arm)
#define PROVIDER_IOC_WINDOW_GO	 _IOR(0xDB, 35, struct provider_window_go)

#endif
