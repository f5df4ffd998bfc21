// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Pages from nvidia_p2p_*(), the interface of the GPU driver of desktop and server machines.
 *
 * The only file that includes nv-p2p.h. It knows two kinds of pin and chooses one per pin:
 *
 * persistent	There is no callback. The memory stays allocated until the put, also after its free,
 *		and any process may put. The call is nvidia_p2p_get_pages_persistent(), or in 515,
 *		520, 525 up to 525.89.02 and 530 nvidia_p2p_get_pages() with a NULL callback.
 * callback	The GPU driver takes the pages back when the memory is freed or its process ends.
 *		The put works in the pinning process only; elsewhere it returns 0 and does nothing.
 *
 * A persistent pin is tried first. Where the GPU driver does not support one (MIG and vGPU up to
 * 550, old branches), the pin falls back to a callback pin.
 *
 * A callback may still come after a put that returned 0. A process can lend its memory to another
 * (NV503C_CTRL_CMD_REGISTER_PID needs no privilege). When the borrower's client of the GPU driver
 * ends, with its process or earlier, later puts of the borrower find nothing and return 0; the
 * callback comes when the lender frees the memory. The GPU driver therefore gets a number instead
 * of a pointer. The put and the callback both look the number up in p2p_pins, and the first one
 * removes it. For the same reason the first callback pin keeps the module loaded until the reboot.
 *
 * gdrdrv never passes a P2P token. With a token the GPU driver does not compare processes, and a
 * put after the callback frees the page table a second time (third_party_p2p.c of all branches:
 * thirdpartyp2pDelMappingInfoByKey() reports no error for a missing key).
 *
 * Knows neither mappings, handles nor files.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "gdrdrv.h"
#include "nv-p2p.h"

/*
 * Gets hold it for reading, the check of mr->revoked and the put that follows for writing.
 *
 * The GPU driver identifies a callback pin by the address of its page table only. The callback
 * frees that memory, and the next get may reuse it: a late put would then release that other pin,
 * whose callback would never come and whose mapping would stay. So no get may run between the last
 * check of mr->revoked and the put. Persistent gets count: the GPU driver may keep their pins under
 * the same process. The lock is taken outside the GPU driver's locks; the callback does not take
 * it. Gets of other clients of the GPU driver are not covered.
 *
 * One lock for all processes: a put looks for the address in each context that admits the caller
 * (RmP2PGetInfoWithoutToken()), that of a lender too, where pins of the lender and of all borrowers
 * are. So a late put of one borrower could release the pin that another process has just made.
 */
static DECLARE_RWSEM(p2p_key_lock);

/*
 * Callback pins by number. An entry owns a reference to its region and one count of
 * gdrdrv_p2p_pins; removing the entry passes both to the remover. Numbers are not reused: the
 * module is never reloaded after a callback pin, see p2p_keep_module().
 */
static DEFINE_XARRAY_FLAGS(p2p_pins, XA_FLAGS_ACCOUNT);
static atomic_long_t p2p_last_number;

/* Constant once pinned, except what @table points to: see gdrdrv_p2p_ranges(). */
struct gdrdrv_p2p_pin {
	struct gdrdrv_mr *mr;
	struct nvidia_p2p_page_table *table;
	unsigned long number; /* key in p2p_pins; 0: persistent */
};

/*
 * Gets of 16 MiB and more, one at a time for each user. The GPU driver allocates for a request
 * before it checks the address, charged to no cgroup: without this, threads that wait for its lock
 * would hold that memory all at once. Users with the same hash share a lock. Taken before
 * p2p_key_lock; no callback takes it.
 */
#define P2P_LARGE_BITS 8
static struct mutex p2p_large_locks[1 << P2P_LARGE_BITS];

/*
 * Returns the lock of the calling user. Processes in a user namespace, who choose their numbers,
 * count as the user who made it, outside of all others: else one user could take any lock, or all.
 */
static struct mutex *p2p_large_lock(void)
{
	const struct user_namespace *ns = current_cred()->user_ns;
	kuid_t uid = current_uid();

	for (; ns->parent; ns = ns->parent)
		uid = ns->owner;
	return &p2p_large_locks[hash_32(__kuid_val(uid), P2P_LARGE_BITS)];
}

void gdrdrv_p2p_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(p2p_large_locks); i++)
		mutex_init(&p2p_large_locks[i]);
}

#define P2P_HAS_PERSISTENT \
	(__is_defined(HAVE_P2P_PERSISTENT_API) || __is_defined(HAVE_P2P_NULL_CALLBACK))
#define P2P_HAS_FORCE_PCIE \
	(__is_defined(HAVE_P2P_PERSISTENT_API) && __is_defined(HAVE_P2P_FORCE_BAR1))

static int gdrdrv_use_persistent_mapping = 1;
module_param_named(use_persistent_mapping, gdrdrv_use_persistent_mapping, int, 0444);
MODULE_PARM_DESC(use_persistent_mapping,
		 "pin persistently where the GPU driver can (default 1); 0: free callbacks");

bool gdrdrv_p2p_is_persistent(void)
{
	return P2P_HAS_PERSISTENT && gdrdrv_use_persistent_mapping;
}

/* A forced pin is persistent, so it needs persistent pins to be enabled by the administrator. */
bool gdrdrv_p2p_can_force_pcie(void)
{
	return P2P_HAS_FORCE_PCIE && gdrdrv_p2p_is_persistent();
}

/* Drops what a removed entry owned. */
static void p2p_drop(const struct gdrdrv_p2p_pin *pin)
{
	atomic_dec(&gdrdrv_p2p_pins);
	gdrdrv_mr_put(pin->mr);
}

/* Removes the entry. Returns false if the callback has removed it already. */
static bool p2p_remove(const struct gdrdrv_p2p_pin *pin)
{
	if (!xa_erase(&p2p_pins, pin->number))
		return false;
	p2p_drop(pin);
	return true;
}

/*
 * Keeps the module until the reboot from the first callback pin on, because no later answer of the
 * GPU driver excludes another callback. The caller's descriptor holds the module during this call.
 */
static void p2p_keep_module(void)
{
	if (!atomic_xchg(&gdrdrv_kept, 1))
		__module_get(THIS_MODULE);
}

/*
 * The free callback: the GPU driver takes the pages back. Runs with the GPU driver's locks held, in
 * any process, at any time after the get has begun: before the get returns, while a put waits for
 * those locks, or long after a put that found nothing.
 */
static void p2p_callback(void *number)
{
	const struct gdrdrv_p2p_pin *pin = xa_erase(&p2p_pins, (unsigned long)number);

	if (!pin)
		return;
	gdrdrv_mr_revoke(pin->mr);
	/* gdrdrv_p2p_ranges() reads the table under mr->lock, before the revocation alone. */
	nvidia_p2p_free_page_table(pin->table);
	p2p_drop(pin);
}

static int p2p_get_persistent(struct gdrdrv_p2p_pin *pin, const struct gdrdrv_pin_req *req)
{
	int ret = -EOPNOTSUPP;

#ifdef HAVE_P2P_PERSISTENT_API
	u32 flags = 0;

#ifdef HAVE_P2P_FORCE_BAR1
	if (req->flags & GDRDRV_PIN_FLAG_FORCE_PCIE)
		flags |= NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING;
#endif
	ret = nvidia_p2p_get_pages_persistent(req->va, req->size, &pin->table, flags);
#elif defined(HAVE_P2P_NULL_CALLBACK)
	ret = nvidia_p2p_get_pages(0, 0, req->va, req->size, &pin->table, NULL, NULL);
#endif
	return ret;
}

static int p2p_get_callback(struct gdrdrv_p2p_pin *pin, const struct gdrdrv_pin_req *req)
{
	int ret;

	pin->number = atomic_long_inc_return(&p2p_last_number);
	ret = xa_insert(&p2p_pins, pin->number, pin, GFP_KERNEL);
	if (ret)
		return ret;
	/* Before the get: the callback may come before the get returns. */
	kref_get(&pin->mr->ref);
	atomic_inc(&gdrdrv_p2p_pins);
	ret = down_read_killable(&p2p_key_lock);
	if (!ret) {
		ret = nvidia_p2p_get_pages(0, 0, req->va, req->size, &pin->table, p2p_callback,
					   (void *)pin->number);
		up_read(&p2p_key_lock);
	}
	/* Also when the get failed while a callback ran: that callback may still be running. */
	if (!ret || !p2p_remove(pin))
		p2p_keep_module();
	return ret;
}

/*
 * The largest size that can be pinned: that of the largest BAR of any GPU, or all of the host's
 * memory where GPU memory may be coherent and so be part of it. Larger requests are refused here
 * because the GPU driver allocates 16 bytes per 64 KiB of a request before it checks the address.
 */
static u64 p2p_largest_pin(void)
{
	struct pci_dev *pdev = NULL;
	u64 largest = 0;
	int i;

	while ((pdev = pci_get_device(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID, pdev)))
		for (i = 0; i < PCI_STD_NUM_BARS; i++)
			largest = max_t(u64, largest, pci_resource_len(pdev, i));
	if (IS_ENABLED(CONFIG_ARM64))
		largest = max_t(u64, largest, (u64)totalram_pages() << PAGE_SHIFT);
	return largest;
}

/*
 * Looks for GPUs that were added since the last call, at most once a second because any user can
 * bring this about. A GPU that was removed only leaves the limit too high.
 */
static bool p2p_is_too_large(u64 size)
{
	static unsigned long next_look;
	static u64 largest;

	if (size > READ_ONCE(largest) &&
	    (!READ_ONCE(largest) || time_after_eq(jiffies, READ_ONCE(next_look)))) {
		WRITE_ONCE(largest, p2p_largest_pin());
		WRITE_ONCE(next_look, jiffies + HZ);
	}
	return size > READ_ONCE(largest);
}

int gdrdrv_p2p_pin(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req)
{
	struct mutex *large = req->size < SZ_16M ? NULL : p2p_large_lock();
	bool force = req->flags & GDRDRV_PIN_FLAG_FORCE_PCIE;
	struct gdrdrv_p2p_pin *pin;
	int ret = -EOPNOTSUPP;

	if (p2p_is_too_large(req->size))
		return -ENOMEM;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	if (!pin)
		return -ENOMEM;
	pin->mr = mr;
	mr->pin = pin;

	if (large && mutex_lock_killable(large))
		return -EINTR;
	if (force || gdrdrv_p2p_is_persistent()) {
		ret = down_read_killable(&p2p_key_lock);
		if (!ret) {
			ret = p2p_get_persistent(pin, req);
			up_read(&p2p_key_lock);
		}
	}
	/*
	 * No other error falls back: a user who can cause one must not get the weaker kind of pin.
	 */
	if ((ret == -ENOTSUPP || ret == -EOPNOTSUPP) && !force) {
		if (gdrdrv_p2p_is_persistent())
			gdrdrv_dbg("no persistent pin (%d), trying the callback interface\n", ret);
		ret = p2p_get_callback(pin, req);
	}
	if (large)
		mutex_unlock(large);
	if (!ret && !pin->number) {
		mr->any_context = true;
		atomic_inc(&gdrdrv_p2p_pins);
		atomic64_inc(&gdrdrv_stats.pins_persistent);
	}
	return ret;
}

static u32 p2p_page_size(const struct nvidia_p2p_page_table *table)
{
	static const u32 sizes[] = {
		[NVIDIA_P2P_PAGE_SIZE_4KB] = 4 << 10,
		[NVIDIA_P2P_PAGE_SIZE_64KB] = 64 << 10,
		[NVIDIA_P2P_PAGE_SIZE_128KB] = 128 << 10,
	};

	return table->page_size < ARRAY_SIZE(sizes) ? sizes[table->page_size] : 0;
}

static int p2p_table_check(const struct gdrdrv_mr *mr, const struct nvidia_p2p_page_table *table)
{
	u32 page = p2p_page_size(table);

	if (!page) {
		pr_err_ratelimited("GPU page table with unknown page size %u\n", table->page_size);
		return -EOPNOTSUPP;
	}
	if (table->entries < DIV_ROUND_UP(mr->size + (mr->va & (page - 1)), page)) {
		pr_err_ratelimited("GPU page table with %u entries of %u bytes for %llu bytes\n",
				   table->entries, page, mr->size);
		return -EINVAL;
	}
	return 0;
}

/*
 * Merges the table's pages into runs. A table of 128 KiB pages is assumed to start with the page
 * that holds the region's first byte; no GPU driver is known to return one.
 */
static int p2p_table_runs(const struct gdrdrv_mr *mr, const struct nvidia_p2p_page_table *table,
			  struct gdrdrv_range *out, u32 max)
{
	u32 page = p2p_page_size(table), n = 0, i;
	u64 skip = mr->va & (page - 1), off = 0;
	struct gdrdrv_range run = {};

	for (i = 0; off < mr->size; i++) {
		u64 phys = table->pages[i]->physical_address + skip;
		u64 len = min_t(u64, page - skip, mr->size - off);

		if (run.len && phys == run.start + run.len) {
			run.len += len;
		} else {
			run = (struct gdrdrv_range){ .off = off, .len = len, .start = phys };
			n++;
		}
		if (!PAGE_ALIGNED(run.start) || !PAGE_ALIGNED(run.off))
			return -EINVAL;
		if (n <= max)
			out[n - 1] = run;
		off += len;
		skip = 0;
	}
	return n;
}

/*
 * The callback frees the table of its pin, after it has revoked the region under mr->lock. So the
 * table is read under that lock, and only while the region is not revoked.
 */
int gdrdrv_p2p_ranges(struct gdrdrv_mr *mr, struct gdrdrv_range *out, u32 max)
{
	struct gdrdrv_p2p_pin *pin = mr->pin;
	int ret = -EINVAL;

	mutex_lock(&mr->lock);
	if (mr->revoked)
		goto unlock;
	if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(pin->table)) {
		pr_err_ratelimited(
			"GPU driver's page table version 0x%x does not match 0x%x, for which this module was built: rebuild it against the running GPU driver\n",
			pin->table->version, NVIDIA_P2P_PAGE_TABLE_VERSION);
		ret = -EOPNOTSUPP;
		goto unlock;
	}
	ret = p2p_table_check(mr, pin->table);
	if (ret)
		goto unlock;
	mr->page_size = p2p_page_size(pin->table);
#ifdef HAVE_P2P_TABLE_FLAGS
	mr->cpu_cacheable = pin->table->flags & NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE;
#endif
	/* GPU drivers before 580 do not set the flag. */
	mr->cpu_cacheable |= gdrdrv_is_coherent(pin->table->pages[0]->physical_address);
	ret = p2p_table_runs(mr, pin->table, out, max);
unlock:
	mutex_unlock(&mr->lock);
	return ret;
}

/* A failed put leaves the entry in p2p_pins: the callback may still come with its number. */
static int p2p_put_callback(struct gdrdrv_mr *mr)
{
	struct gdrdrv_p2p_pin *pin = mr->pin;
	int ret = 0;

	/*
	 * Waits for the gets in progress, which may be another user's, and cannot be killed: a
	 * process that ends must give its pages back.
	 */
	down_write(&p2p_key_lock);
	/*
	 * A get that reused the table ran after the callback and under this lock: revoked is
	 * visible.
	 */
	if (!READ_ONCE(mr->revoked))
		ret = nvidia_p2p_put_pages(0, 0, mr->va, pin->table);
	up_write(&p2p_key_lock);
	if (!ret) {
		p2p_remove(pin);
		return 0;
	}
	mutex_lock(&mr->lock);
	if (!mr->revoked)
		gdrdrv_mr_orphan_locked(mr);
	mutex_unlock(&mr->lock);
	return ret;
}

static int p2p_put_persistent(struct gdrdrv_mr *mr)
{
	struct gdrdrv_p2p_pin *pin = mr->pin;

	atomic_dec(&gdrdrv_p2p_pins);
#ifdef HAVE_P2P_PERSISTENT_API
	return nvidia_p2p_put_pages_persistent(mr->va, pin->table, 0);
#else
	return nvidia_p2p_put_pages(0, 0, mr->va, pin->table);
#endif
}

void gdrdrv_p2p_release(struct gdrdrv_mr *mr)
{
	int ret = mr->any_context ? p2p_put_persistent(mr) : p2p_put_callback(mr);

	if (ret)
		pr_err_ratelimited("GPU driver did not take the pages back: %d\n", ret);
}
