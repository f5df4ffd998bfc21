// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Pages from the GPU driver of desktop and server machines (nvidia_p2p_*).
 *
 * One of the files that know nv-p2p.h. Two ways to pin, chosen per pin:
 *
 * persistent	no callback; the memory outlives its free until the put, which any process may do.
 *		Two spellings: nvidia_p2p_get_pages_persistent(), and in 515 and 520
 *		nvidia_p2p_get_pages() with a NULL callback.
 * callback	the GPU driver takes the pages back when the memory is freed or its process ends.
 *		The put works in the pinning process only: elsewhere it returns 0 and does nothing.
 *
 * Persistent is tried first; where the GPU driver does not support it (MIG and vGPU up to 550, an
 * old branch) that pin falls back to the callback way.
 *
 * A put that returned 0 does not mean that no callback will come. The memory may be another
 * process's, who lent it (NV503C_CTRL_CMD_REGISTER_PID asks nobody's leave); when the borrower's
 * client of the GPU driver ends, by its process's death or before, its puts find nothing, and the
 * callback comes with the lender's free, whenever that is. So the GPU driver has a number from us
 * and no pointer: a number is looked up in p2p_pins, once, by the first that comes. And a module
 * that has pinned by callback is kept for good.
 *
 * The GPU driver is asked without P2P tokens, always. With one it looks at no process, and a put
 * that comes after the callback frees the page table a second time (third_party_p2p.c there, of all
 * branches: thirdpartyp2pDelMappingInfoByKey() has no error for a key that is gone).
 *
 * Must not know mappings, handles or files.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/pci.h>
#include <linux/slab.h>

#include "gdrdrv.h"
#include "nv-p2p.h"

/*
 * The GPU driver knows a callback pin by the address of its page table, and by nothing else. That
 * memory is free when the callback has run, and the next get may have it: a put that comes late
 * then takes that other pin, whose callback never comes and whose mapping stays. So no get may come
 * between the last look at mr->revoked and the put. Held around both, outside the GPU driver's
 * locks; the callback does not take it. (Of other clients of the GPU driver it knows nothing.)
 */
static DEFINE_MUTEX(p2p_key_lock);

/*
 * Callback pins by number. An entry owns a reference of its region, and one count of
 * gdrdrv_source_pins; the taker has them. No number is used twice: see p2p_keep_module().
 */
static DEFINE_XARRAY_FLAGS(p2p_pins, XA_FLAGS_ACCOUNT);
static atomic_long_t p2p_last_number;

/* Constant once pinned, but for what @table points to: see p2p_ranges(). */
struct p2p_pin {
	struct gdrdrv_mr *mr;
	struct nvidia_p2p_page_table *table;
	unsigned long number; /* of a callback pin; 0: persistent */
};

#define P2P_HAS_PERSISTENT \
	(__is_defined(HAVE_P2P_PERSISTENT_API) || __is_defined(HAVE_P2P_NULL_CALLBACK))
#define P2P_HAS_FORCE_PCIE \
	(__is_defined(HAVE_P2P_PERSISTENT_API) && __is_defined(HAVE_P2P_FORCE_BAR1))

/* What an entry that has been taken out owned. */
static void p2p_give_back(const struct p2p_pin *pin)
{
	atomic_dec(&gdrdrv_source_pins);
	gdrdrv_mr_put(pin->mr);
}

/* Unless the callback has been first: false. */
static bool p2p_take_out(const struct p2p_pin *pin)
{
	if (!xa_erase(&p2p_pins, pin->number))
		return false;
	p2p_give_back(pin);
	return true;
}

/*
 * The first callback pin keeps the module until the reboot: nothing that the GPU driver answers
 * later means that no callback will come. The caller's descriptor holds the module meanwhile.
 */
static void p2p_keep_module(void)
{
	if (!atomic64_xchg(&gdrdrv_stats.kept, 1))
		__module_get(THIS_MODULE);
}

/*
 * The GPU driver takes the pages back. Runs inside its locks, in any process, at any time from the
 * get on: also before the get has returned to us, while a put waits for those locks, and long after
 * one that found nothing.
 */
static void p2p_callback(void *number)
{
	const struct p2p_pin *pin = xa_erase(&p2p_pins, (unsigned long)number);

	if (!pin)
		return;
	gdrdrv_mr_revoke(pin->mr);
	/* p2p_ranges() reads the table under mr->lock and not once revoked. */
	nvidia_p2p_free_page_table(pin->table);
	p2p_give_back(pin);
}

static int p2p_get_persistent(struct p2p_pin *pin, const struct gdrdrv_pin_req *req)
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

static int p2p_get_callback(struct p2p_pin *pin, const struct gdrdrv_pin_req *req)
{
	int ret;

	pin->number = atomic_long_inc_return(&p2p_last_number);
	ret = xa_insert(&p2p_pins, pin->number, pin, GFP_KERNEL);
	if (ret)
		return ret;
	/* Before the get: the callback may come before that has returned. */
	kref_get(&pin->mr->ref);
	atomic_inc(&gdrdrv_source_pins);
	ret = mutex_lock_killable(&p2p_key_lock);
	if (!ret) {
		ret = nvidia_p2p_get_pages(0, 0, req->va, req->size, &pin->table, p2p_callback,
					   (void *)pin->number);
		mutex_unlock(&p2p_key_lock);
	}
	/* Also where it failed while a callback ran, which may not be over. */
	if (!ret || !p2p_take_out(pin))
		p2p_keep_module();
	return ret;
}

/*
 * The most that can lie in one BAR1, or be coherent memory, which is a part of the host's. The GPU
 * driver allocates 16 bytes for each 64 KiB that it is asked for, before it looks at the address.
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
 * A GPU that has come since is looked for, once a second at most: any user may ask. One that has
 * gone does no harm.
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

static int p2p_pin(struct gdrdrv_mr *mr, const struct gdrdrv_pin_req *req)
{
	bool force = req->flags & GDRDRV_PIN_FLAG_FORCE_PCIE;
	struct p2p_pin *pin;
	int ret = -EOPNOTSUPP;

	if (p2p_is_too_large(req->size))
		return -ENOMEM;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	if (!pin)
		return -ENOMEM;
	pin->mr = mr;
	mr->src_data = pin;

	if (P2P_HAS_PERSISTENT && (force || req->persistent)) {
		ret = mutex_lock_killable(&p2p_key_lock);
		if (ret)
			return ret;
		ret = p2p_get_persistent(pin, req);
		mutex_unlock(&p2p_key_lock);
	}
	/* By no other error: what a user can bring about must not choose the weaker way. */
	if ((ret == -ENOTSUPP || ret == -EOPNOTSUPP) && !force) {
		gdrdrv_dbg("no persistent pin (%d), trying the callback interface\n", ret);
		ret = p2p_get_callback(pin, req);
	}
	if (ret)
		return ret;

	mr->any_context = !pin->number;
	if (mr->any_context) {
		atomic_inc(&gdrdrv_source_pins);
		atomic64_inc(&gdrdrv_stats.pins_persistent);
	}
	return 0;
}

static u32 p2p_page_size(const struct nvidia_p2p_page_table *table)
{
	switch (table->page_size) {
	case NVIDIA_P2P_PAGE_SIZE_4KB:
		return 4 << 10;
	case NVIDIA_P2P_PAGE_SIZE_64KB:
		return 64 << 10;
	case NVIDIA_P2P_PAGE_SIZE_128KB:
		return 128 << 10;
	default:
		return 0;
	}
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
 * Merges the table's pages into runs. A table of 128 KB pages is taken to start at the page that
 * holds the region's first byte (no GPU driver is known to hand one out).
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
 * The table of a callback pin dies with the callback, which first takes mr->lock to revoke the
 * region: so it is read under that lock, and only while the region is not revoked.
 */
static int p2p_ranges(struct gdrdrv_mr *mr, struct gdrdrv_range *out, u32 max)
{
	struct p2p_pin *pin = mr->src_data;
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
	/* GPU drivers before 580 do not say so. */
	mr->cpu_cacheable |= gdrdrv_is_coherent(pin->table->pages[0]->physical_address);
	ret = p2p_table_runs(mr, pin->table, out, max);
unlock:
	mutex_unlock(&mr->lock);
	return ret;
}

/* A put that failed leaves the pin registered: the callback may still come, with its number. */
static int p2p_put_callback(struct gdrdrv_mr *mr)
{
	struct p2p_pin *pin = mr->src_data;
	int ret = 0;

	mutex_lock(&p2p_key_lock);
	/* What matters, another get since the callback, held the mutex and so is seen with it. */
	if (!READ_ONCE(mr->revoked))
		ret = nvidia_p2p_put_pages(0, 0, mr->va, pin->table);
	mutex_unlock(&p2p_key_lock);
	if (!ret) {
		p2p_take_out(pin);
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
	struct p2p_pin *pin = mr->src_data;

	atomic_dec(&gdrdrv_source_pins);
#ifdef HAVE_P2P_PERSISTENT_API
	return nvidia_p2p_put_pages_persistent(mr->va, pin->table, 0);
#else
	return nvidia_p2p_put_pages(0, 0, mr->va, pin->table);
#endif
}

static void p2p_release(struct gdrdrv_mr *mr)
{
	int ret = mr->any_context ? p2p_put_persistent(mr) : p2p_put_callback(mr);

	if (ret)
		pr_err_ratelimited("GPU driver did not take the pages back: %d\n", ret);
}

const struct gdrdrv_source_ops gdrdrv_p2p = {
	.name = "nvidia-p2p",
	.by = GDRDRV_BY_ADDRESS,
	.unit = GDRDRV_PIN_SIZE,
	.has_persistent = P2P_HAS_PERSISTENT,
	.has_callback = true,
	.has_force_pcie = P2P_HAS_FORCE_PCIE,
	.pin = p2p_pin,
	.ranges = p2p_ranges,
	.release = p2p_release,
};
