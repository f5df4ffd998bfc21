/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Internal interfaces: the objects, the lock that guards each field.
 *
 * Only p2p.c includes nv-p2p.h, and only compat.h tests the kernel's version.
 *
 * Lock order, outermost first:
 *
 *	mmap_lock of a process		taken by the kernel before ->mmap, ->fault, ->close of a VMA
 *	gdrdrv_file.lock		table of regions and handles of one descriptor
 *	p2p_large_locks			p2p.c, one of them around the get of a large pin
 *	p2p_key_lock			p2p.c, around get and put; not in the free callback; nothing
 *					of gdrdrv is allocated under it
 *	the GPU driver's own locks	held by the GPU driver around get, put and the free callback
 *	i_mmap_rwsem			taken by the kernel inside a zap
 *	gdrdrv_mr.lock			one region; two are never held together
 *	memtype_lock			memtype.c, for one piece of a BAR; not with gdrdrv_mr.lock
 *	page-table locks		taken by the kernel inside zap and insert
 *	xa_lock of any xarray		innermost
 *
 * Five rules follow:
 *
 * - The GPU driver is never called with gdrdrv_mr.lock held.
 * - No mapping is zapped with gdrdrv_mr.lock held. A zap runs the MMU notifiers of the mapping's
 *   process; nvidia-uvm registers one, and it may take locks that the GPU driver holds around the
 *   free callback.
 * - No memory is reclaimed with gdrdrv_mr.lock or memtype_lock held, since reclaim runs the same
 *   notifiers, and the free callback waits for these locks: what is allocated under them is
 *   allocated after gdrdrv_alloc_prepare() and between memalloc_noreclaim_save() and _restore().
 * - The free callback takes gdrdrv_mr.lock, memtype_lock and the spinlocks of xarrays, and no other
 *   lock of gdrdrv.
 * - copy_to_user() and copy_from_user() run without any lock of gdrdrv.
 */
#ifndef GDRDRV_H
#define GDRDRV_H

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/uidgid.h>
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
};

/* A physically contiguous run of a region; p2p.c describes regions in these alone. */
struct gdrdrv_range {
	u64 off; /* bytes from the start of the region */
	u64 len;
	phys_addr_t start;
};

/* A caller's request. gdrdrv_mr_pin() rounds va and size to whole pages of the pin. */
struct gdrdrv_pin_req {
	u64 va;
	u64 size;
	u32 flags; /* GDRDRV_PIN_FLAG_* */
};

/* A pinned region. References: the table, each VMA, a callback that may still come. */
struct gdrdrv_mr {
	struct kref ref;
	struct mutex lock; /* the fields that say "lock"; also held to make page-table entries */
	struct gdrdrv_file *file; /* a reference, written once under lock; NULL: not published */
	bool revoked; /* lock to write; the GPU driver takes the pages back: no new entries */
	struct completion zapped; /* revoked, and all entries are removed */
	bool retired; /* lock; unpinned, or its descriptor is closed */
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
	bool any_context; /* gdrdrv_p2p_release() may run in any process */
	struct gdrdrv_p2p_pin *pin; /* p2p.c's; freed with the region, also if the pin fails */

	u64 wc_pages; /* memtype_lock; so many pages, from the first on, are reserved */
	bool wc_reserved; /* all pages were reserved; constant once published */
};

/* Counters for the administrator and the tests; not a stable interface. */
struct gdrdrv_stats {
	atomic64_t pins;
	atomic64_t pins_persistent;
	atomic64_t revokes;
	atomic64_t orphans;
	atomic64_t faults;
	atomic64_t ptes;
	atomic64_t memtypes;
	atomic64_t memtype_failures;
};

/* counters.c */
extern struct gdrdrv_stats gdrdrv_stats;
extern atomic_t gdrdrv_p2p_pins; /* nv_get_pages_refcount in /proc */
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

/* ioctl.c */
long gdrdrv_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);

/* mr.c */
int gdrdrv_mr_pin(struct gdrdrv_file *file, const struct gdrdrv_pin_req *user_req, u64 *handle);
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

/*
 * p2p.c: called without any lock of gdrdrv; each may sleep. If mr->any_context is set, the release
 * runs exactly once per successful pin, in any process, whether or not the region was revoked.
 * Otherwise it runs at most once, in the owner's process, possibly during or after
 * gdrdrv_mr_revoke(). gdrdrv_p2p_ranges() writes up to @max of the runs that cover the region and
 * returns the number of all; -EINVAL once revoked.
 */
void gdrdrv_p2p_init(void);
bool gdrdrv_p2p_is_persistent(void);
bool gdrdrv_p2p_can_force_pcie(void);
int gdrdrv_p2p_pin(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req);
int gdrdrv_p2p_ranges(struct gdrdrv_mr *mr, struct gdrdrv_range *out, u32 max);
void gdrdrv_p2p_release(struct gdrdrv_mr *mr);

/*
 * Called before a lock under which this thread allocates a few pages by memalloc_noreclaim_save():
 * reclaims memory as the allocation of a page with @gfp does. Returns false if there is none.
 *
 * Under the lock the thread reclaims nothing, neither of the machine nor of its cgroup: it takes
 * from the kernel's reserves and exceeds the cgroup's limit instead. This function fails while the
 * reserves are in use or the cgroup is beyond its limit, so what is taken so is at most that of the
 * threads that wait for the lock or have it: for each one page table in a fault, and 3 in POPULATE
 * (4 with five levels of page tables).
 */
static inline bool gdrdrv_alloc_prepare(gfp_t gfp)
{
	unsigned long page = __get_free_page(gfp);

	free_page(page);
	return page;
}

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
