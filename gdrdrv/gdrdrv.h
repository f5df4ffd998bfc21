/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The driver's inside: objects, the lock that guards each field, the table of a page source.
 *
 * Must not know nv-p2p.h (p2p.c alone does) nor the kernel's version (compat.h alone does).
 *
 * Lock order, outermost first. What stands on one line is never held together.
 *
 *	mmap_lock of a process		taken by the kernel before ->mmap, ->fault, ->close of a VMA
 *	gdrdrv_file.lock		table of regions and handles of one descriptor
 *	p2p_key_lock			p2p.c, around get and put; not in the free callback, and
 *					nothing is allocated inside it
 *	the GPU driver's own locks	held by it around get, put and the free callback
 *	dma_resv of a buffer		taken by dmabuf.c, held by an exporter around its notice;
 *					inside it the GPU driver's locks of map and unmap
 *	i_mmap_rwsem			the kernel's, inside zap
 *	gdrdrv_mr.lock			one region; never two of them together
 *	page-table locks		the kernel's, inside zap and insert
 *	xa_lock of p2p_pins		p2p.c; inside it nothing
 *	files_lock			file.c, list of open descriptors; inside it nothing
 *
 * From this follow four rules. The GPU driver is never called with gdrdrv_mr.lock held. Nor is
 * anything zapped with it: a zap tells the MMU notifiers of the mapping's process, and one of them
 * may be the GPU driver's own (nvidia-uvm has one), whose locks are held around our callback too.
 * The free callback takes gdrdrv_mr.lock and p2p_pins' lock, no other of ours. Nothing is copied to
 * or from user space with any of our locks held.
 */
#ifndef GDRDRV_H
#define GDRDRV_H

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "compat.h"
#include "gdrdrv_uapi.h"

struct gdrdrv_mr;

/* The process that opened the descriptor. Constant from open to release. */
struct gdrdrv_owner {
	pid_t tgid;
	u64 start_time;
};

/* One open descriptor. References: the node, each region that was published, a reader of /proc. */
struct gdrdrv_file {
	struct kref ref;
	u64 id; /* constant: for /proc, no two alike, rising in the list */
	struct gdrdrv_owner owner; /* constant */
	kuid_t uid; /* constant: who opened it */
	struct address_space mapping; /* its own: offsets are handles of this descriptor */
	struct mutex lock; /* mrs and next_handle */
	struct xarray mrs; /* lock; handle -> region, each entry holds a reference */
	u64 next_handle; /* lock */
	wait_queue_head_t wait; /* poll */
	atomic_t nr_revoked; /* regions revoked and not yet unpinned */
	struct list_head node; /* files_lock of file.c */
};

/* A physically contiguous run of a region. Sources hand out nothing else. */
struct gdrdrv_range {
	u64 off; /* bytes from the start of the region */
	u64 len;
	phys_addr_t start;
};

/* By what a caller names memory. One source serves each; gdrdrv_source_for() finds it. */
enum gdrdrv_by {
	GDRDRV_BY_ADDRESS, /* of the calling process's GPU context */
	GDRDRV_BY_DMABUF, /* a file descriptor that the GPU driver exported */
};

/* What a caller asks to have pinned; for a source, va and size are multiples of its unit. */
struct gdrdrv_pin_req {
	enum gdrdrv_by by;
	bool persistent; /* where the source can */
	u64 va;
	u64 size;
	/* GDRDRV_BY_ADDRESS */
	u32 flags; /* GDRDRV_PIN_FLAG_* */
	/* GDRDRV_BY_DMABUF; va is a name that the caller gave, and nothing else */
	int fd;
	u64 offset; /* in the buffer, a multiple of the page size */
	u32 pci_domain;
	u8 pci_bus;
	u8 pci_devfn;
};

/*
 * Where pages come from. The rest of the driver knows a source by this table alone, and which are
 * built in by source.c alone.
 *
 * Context: all may sleep and are called without any lock of ours. ->release: with
 * mr->any_context exactly once per successful ->pin, in any process, revoked or not; without it at
 * most once, in the owner's process only, possibly after gdrdrv_mr_revoke() or beside it.
 */
struct gdrdrv_source_ops {
	const char *name;
	enum gdrdrv_by by;
	u32 unit; /* bytes, a power of two, at least a page: what it pins is rounded out to this */
	bool has_persistent; /* can pin so that the memory outlives its free until the release */
	bool has_callback; /* can pin so that the free takes the pages back */
	bool has_force_pcie; /* knows GDRDRV_PIN_FLAG_FORCE_PCIE */
	/* Pins; sets mr->any_context. A source that may revoke holds a reference. */
	int (*pin)(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req);
	/*
	 * Writes up to @max runs that cover the region; returns how many there are. Also sets
	 * mr->page_size and mr->cpu_cacheable. -EINVAL once revoked.
	 */
	int (*ranges)(struct gdrdrv_mr *mr, struct gdrdrv_range *out, u32 max);
	void (*release)(struct gdrdrv_mr *mr);
};

/* A pinned region. References: the table, each VMA, a source that may still call back. */
struct gdrdrv_mr {
	struct kref ref;
	struct mutex lock; /* what says so below, and that no entry is made once revoked */
	struct gdrdrv_file *file; /* a reference, written once under lock; NULL: not published */
	bool revoked; /* lock to write; the source takes the pages back: no new entries */
	struct completion zapped; /* and none is left */
	bool retired; /* lock; unpinned, or its descriptor closed */
	bool counted; /* lock; is in file->nr_revoked */
	unsigned int nr_vmas; /* lock */
	u32 req_type; /* lock; GDRDRV_MAPPING_TYPE_*, NONE for the default */
	u32 map_type; /* lock to write; of the present mapping */
	unsigned long map_addr; /* lock to write; where the present or last mapping begins */
	u64 handle; /* written once, under file->lock and lock */

	/* Constant once pinned. */
	u64 va;
	u64 size;
	u64 tm_cycles;
	u32 page_size;
	u32 nr_ranges;
	struct gdrdrv_range *ranges;
	bool cpu_cacheable;
	bool read_only; /* no writable mapping */
	bool any_context; /* ->release may run in any process */
	const struct gdrdrv_source_ops *src; /* set before ->pin */
	void *src_data; /* the source's; whatever ->pin returns, freed with the region */

	/* Of the thread that pins; once published: lock. */
	u32 nr_memtypes; /* leading runs whose memory type is reserved */
	bool wc_reserved; /* all of them were; constant once published */
};

/* Counters for the administrator and the tests; no program depends on them. */
struct gdrdrv_stats {
	atomic64_t pins;
	atomic64_t pins_persistent;
	atomic64_t pins_dmabuf;
	atomic64_t revokes;
	atomic64_t orphans;
	atomic64_t faults;
	atomic64_t ptes;
	atomic64_t memtypes;
	atomic64_t memtype_failures;
	atomic64_t kept; /* 1: there were callback pins, and the module stays until the reboot */
};

/* counters.c */
extern struct gdrdrv_stats gdrdrv_stats;
extern atomic_t gdrdrv_source_pins; /* what /proc shows as nv_get_pages_refcount */
extern int gdrdrv_dbg_enabled;
extern int gdrdrv_info_enabled;

/* file.c */
bool gdrdrv_file_is_owner(const struct gdrdrv_file *file);
struct gdrdrv_file *gdrdrv_file_new(struct inode *inode, const struct file *filp);
void gdrdrv_file_unlist(struct gdrdrv_file *file);
struct gdrdrv_file *gdrdrv_file_after(u64 id);
void gdrdrv_file_put(struct gdrdrv_file *file);

/* node.c */
int gdrdrv_node_init(const struct file_operations *fops);
void gdrdrv_node_exit(void);

/* source.c */
const struct gdrdrv_source_ops *gdrdrv_source_for(enum gdrdrv_by by);
const struct gdrdrv_source_ops *gdrdrv_source_first(void);
bool gdrdrv_source_is_persistent(const struct gdrdrv_source_ops *src);
const char *gdrdrv_source_names(void);

/* ioctl.c */
long gdrdrv_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);

/* mr.c */
int gdrdrv_mr_pin(struct gdrdrv_file *file, const struct gdrdrv_source_ops *src,
		  const struct gdrdrv_pin_req *user_req, u64 *handle);
int gdrdrv_mr_unpin(struct gdrdrv_file *file, u64 handle);
void gdrdrv_mr_close_all(struct gdrdrv_file *file);
struct gdrdrv_mr *gdrdrv_mr_get(struct gdrdrv_file *file, u64 handle);
void gdrdrv_mr_put(struct gdrdrv_mr *mr);
void gdrdrv_mr_revoke(struct gdrdrv_mr *mr);
void gdrdrv_mr_orphan_locked(struct gdrdrv_mr *mr);
const struct gdrdrv_range *gdrdrv_mr_range(const struct gdrdrv_mr *mr, u64 off);

/* memtype.c */
void gdrdrv_memtype_init(void);
void gdrdrv_memtype_reserve(struct gdrdrv_mr *mr);
void gdrdrv_memtype_free(struct gdrdrv_mr *mr);
int gdrdrv_memtype_check(const struct gdrdrv_mr *mr, u32 type);
u32 gdrdrv_memtype_default(const struct gdrdrv_mr *mr);
pgprot_t gdrdrv_memtype_prot(u32 type, pgprot_t prot);
bool gdrdrv_memtype_is_wc(pte_t entry);

/* mmap.c */
int gdrdrv_mmap(struct file *filp, struct vm_area_struct *vma);
int gdrdrv_populate(struct gdrdrv_mr *mr);

/* proc.c */
int gdrdrv_proc_init(void);
void gdrdrv_proc_exit(void);

/* p2p.c */
#ifdef GDRDRV_SOURCE_P2P
extern const struct gdrdrv_source_ops gdrdrv_p2p;
#endif

/* dmabuf.c */
#ifdef GDRDRV_SOURCE_DMABUF
extern const struct gdrdrv_source_ops gdrdrv_dmabuf;
#endif

#define gdrdrv_dbg(fmt, ...)                         \
	do {                                         \
		if (READ_ONCE(gdrdrv_dbg_enabled))   \
			pr_info(fmt, ##__VA_ARGS__); \
	} while (0)
#define gdrdrv_info(fmt, ...)                        \
	do {                                         \
		if (READ_ONCE(gdrdrv_info_enabled))  \
			pr_info(fmt, ##__VA_ARGS__); \
	} while (0)

#endif
