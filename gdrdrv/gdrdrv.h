/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Internal interfaces: the objects, the lock that guards each field, the operations of a page
 * source.
 *
 * Only p2p.c includes nv-p2p.h, and only compat.h tests the kernel's version.
 *
 * Lock order, outermost first:
 *
 *	mmap_lock of a process		taken by the kernel before ->mmap, ->fault, ->close of a VMA
 *	gdrdrv_file.lock		table of regions and handles of one descriptor
 *	p2p_large_lock			p2p.c, around the get of a large pin
 *	p2p_key_lock			p2p.c, around get and put; not in the free callback; nothing
 *					of gdrdrv is allocated under it
 *	the GPU driver's own locks	held by the GPU driver around get, put and the free callback
 *	dma_resv of a buffer		taken by dmabuf.c, held by an exporter around its notice;
 *					the GPU driver's locks of map and unmap nest inside
 *	i_mmap_rwsem			taken by the kernel inside a zap
 *	gdrdrv_mr.lock			one region; two are never held together
 *	memtype_lock			memtype.c, for one piece of a BAR; not with gdrdrv_mr.lock
 *	page-table locks		taken by the kernel inside zap and insert
 *	xa_lock of any xarray		innermost
 *
 * Four rules follow:
 *
 * - The GPU driver is never called with gdrdrv_mr.lock held.
 * - No mapping is zapped with gdrdrv_mr.lock held. A zap runs the MMU notifiers of the mapping's
 *   process; nvidia-uvm registers one, and it may take locks that the GPU driver holds around the
 *   free callback.
 * - The free callback takes gdrdrv_mr.lock, memtype_lock and the spinlocks of xarrays, and no other
 *   lock of gdrdrv.
 * - copy_to_user() and copy_from_user() run without any lock of gdrdrv.
 */
#ifndef GDRDRV_H
#define GDRDRV_H

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "compat.h"
#include "gdrdrv_uapi.h"

struct gdrdrv_mr;

/* Identifies the process that opened a descriptor. Constant from open to release. */
struct gdrdrv_owner {
	pid_t tgid;
	u64 start_time;
};

/* One open descriptor. References: the open file, each published region, a reader of /proc. */
struct gdrdrv_file {
	struct kref ref;
	unsigned long id; /* constant; unique, shown in /proc */
	struct gdrdrv_owner owner; /* constant */
	kuid_t uid; /* constant; of the opener */
	struct address_space mapping; /* not shared: offsets are handles of this descriptor */
	struct mutex lock; /* mrs and next_handle */
	struct xarray mrs; /* lock; handle -> region, each entry holds a reference */
	u64 next_handle; /* lock */
	wait_queue_head_t wait; /* poll */
	atomic_t nr_revoked; /* regions revoked and not yet unpinned */
};

/* A physically contiguous run of a region; sources describe regions in these alone. */
struct gdrdrv_range {
	u64 off; /* bytes from the start of the region */
	u64 len;
	phys_addr_t start;
};

/* How a caller names memory. One source serves each kind; gdrdrv_source_for() returns it. */
enum gdrdrv_by {
	GDRDRV_BY_ADDRESS, /* an address in a GPU context of the calling process */
	GDRDRV_BY_DMABUF, /* a dma-buf that the GPU driver exported */
};

/* A caller's request. gdrdrv_mr_pin() rounds va and size to the source's unit before ->pin. */
struct gdrdrv_pin_req {
	enum gdrdrv_by by;
	bool persistent; /* preferred; the source may fall back to a callback pin */
	u64 va;
	u64 size;
	/* GDRDRV_BY_ADDRESS */
	u32 flags; /* GDRDRV_PIN_FLAG_* */
	/* GDRDRV_BY_DMABUF; va is only a label for GET_INFO and is never dereferenced */
	int fd;
	u64 offset; /* in the buffer, a multiple of the page size */
	u32 pci_domain;
	u8 pci_bus;
	u8 pci_devfn;
};

/*
 * A source of pages. The rest of the driver uses a source through this table only; source.c lists
 * the sources that are built in.
 *
 * Context: every operation may sleep and is called without any lock of gdrdrv. If mr->any_context
 * is set, ->release runs exactly once per successful ->pin, in any process, whether or not the
 * region was revoked. Otherwise ->release runs at most once, in the owner's process, possibly
 * during or after gdrdrv_mr_revoke().
 */
struct gdrdrv_source_ops {
	const char *name;
	enum gdrdrv_by by;
	u32 unit; /* bytes, a power of two, at least a page; requests are rounded out to it */
	bool has_persistent; /* can keep freed memory allocated until ->release */
	bool has_callback; /* can have the free of the memory revoke the region */
	bool has_force_pcie; /* supports GDRDRV_PIN_FLAG_FORCE_PCIE */
	/* Pins and sets mr->any_context. A source that may revoke the region takes a reference. */
	int (*pin)(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req);
	/*
	 * Writes up to @max of the runs that cover the region, and returns the number of all runs.
	 * Also sets mr->page_size and mr->cpu_cacheable. -EINVAL once revoked.
	 */
	int (*ranges)(struct gdrdrv_mr *mr, struct gdrdrv_range *out, u32 max);
	void (*release)(struct gdrdrv_mr *mr);
};

/* A pinned region. References: the table, each VMA, a source that may still revoke the region. */
struct gdrdrv_mr {
	struct kref ref;
	struct mutex lock; /* the fields that say "lock"; also held to make page-table entries */
	struct gdrdrv_file *file; /* a reference, written once under lock; NULL: not published */
	bool revoked; /* lock to write; the source takes the pages back: no new entries */
	struct completion zapped; /* revoked, and all entries are removed */
	bool retired; /* lock; unpinned, or its descriptor is closed */
	bool in_nr_revoked; /* lock; counted in file->nr_revoked */
	unsigned int nr_vmas; /* lock */
	u32 req_type; /* lock; GDRDRV_MAPPING_TYPE_*, NONE for the default */
	u32 map_type; /* lock to write; of the current mapping */
	/* mmap_lock; of the current or last mapping */
	unsigned long map_addr;
	unsigned long map_len;
	u64 handle; /* written once, under file->lock and lock */

	/* Constant once pinned. */
	kuid_t uid; /* has one pin more in gdrdrv_users while the region exists */
	u64 va;
	u64 size;
	u64 tm_cycles;
	u32 page_size;
	u32 nr_ranges;
	struct gdrdrv_range *ranges;
	bool cpu_cacheable;
	bool read_only; /* writable mappings are refused */
	bool any_context; /* ->release may run in any process */
	const struct gdrdrv_source_ops *src; /* set before ->pin */
	void *src_data; /* the source's; freed with the region, also if ->pin fails */

	u64 wc_pages; /* memtype_lock; so many pages, from the first on, are reserved */
	bool wc_reserved; /* all pages were reserved; constant once published */
};

/* Counters for the administrator and the tests; not a stable interface. */
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
};

/* counters.c */
extern struct gdrdrv_stats gdrdrv_stats;
extern atomic_t gdrdrv_source_pins; /* nv_get_pages_refcount in /proc */
extern atomic_t gdrdrv_kept; /* 1: a callback pin was made, so the module stays until the reboot */
extern int gdrdrv_dbg_enabled;
extern int gdrdrv_info_enabled;

/* file.c */
bool gdrdrv_file_is_owner(const struct gdrdrv_file *file);
struct gdrdrv_file *gdrdrv_file_new(struct inode *inode, const struct file *filp);
void gdrdrv_file_unlist(struct gdrdrv_file *file);
struct gdrdrv_file *gdrdrv_file_after(unsigned long id);
void gdrdrv_file_put(struct gdrdrv_file *file);
int gdrdrv_user_count(kuid_t uid, int pins);

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

/* Returns the run that contains byte @off of the region. */
static inline const struct gdrdrv_range *gdrdrv_mr_range(const struct gdrdrv_mr *mr, u64 off)
{
	u32 low = 0, high = mr->nr_ranges - 1;

	while (low < high) {
		u32 mid = low + (high - low + 1) / 2;

		if (mr->ranges[mid].off <= off)
			low = mid;
		else
			high = mid - 1;
	}
	return &mr->ranges[low];
}

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
