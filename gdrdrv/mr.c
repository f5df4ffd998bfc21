// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Region objects: pin, look up, revoke, retire.
 *
 * The pages of a region go back exactly once, through whichever comes first:
 *
 *	the GPU driver's free callback		gdrdrv_mr_revoke()
 *	unpin, or release of the descriptor	gdrdrv_mr_retire()
 *
 * Both set a flag under mr->lock, after which no page-table entry can be made, and then remove the
 * existing entries before the pages go back. A region that only its owner's process may release is
 * orphaned when its descriptor is released in another process: it waits for the callback.
 *
 * Knows neither where pages come from, nor VMAs beyond their number.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/overflow.h>
#include <linux/slab.h>

#include "gdrdrv.h"

static void gdrdrv_mr_free(struct kref *ref)
{
	struct gdrdrv_mr *mr = container_of(ref, struct gdrdrv_mr, ref);

	/* May run inside the free callback: only frees memory. */
	kfree(mr->pin);
	if (mr->file)
		gdrdrv_file_put(mr->file);
	gdrdrv_user_count(mr->uid, -1);
	kvfree(mr->ranges);
	mutex_destroy(&mr->lock);
	kfree(mr);
}

void gdrdrv_mr_put(struct gdrdrv_mr *mr)
{
	kref_put(&mr->ref, gdrdrv_mr_free);
}

/**
 * gdrdrv_mr_get() - look a region up
 * @file: the descriptor
 * @handle: any number, exactly as the caller gave it
 *
 * Return: the region with a reference, or NULL.
 */
struct gdrdrv_mr *gdrdrv_mr_get(struct gdrdrv_file *file, u64 handle)
{
	struct gdrdrv_mr *mr;

	if (handle > GDRDRV_HANDLE_MAX)
		return NULL;
	mutex_lock(&file->lock);
	mr = xa_load(&file->mrs, handle);
	if (mr)
		kref_get(&mr->ref);
	mutex_unlock(&file->lock);
	return mr;
}

/*
 * Removes all entries of the region's range of offsets, whether or not nr_vmas counts a mapping.
 * The caller has set revoked or retired under mr->lock, so that no entry is added and mr->file is
 * final, and has dropped the lock: see the lock order.
 */
static void gdrdrv_mr_zap(struct gdrdrv_mr *mr)
{
	lockdep_assert_not_held(&mr->lock);
	if (mr->file)
		unmap_mapping_range(&mr->file->mapping, (loff_t)mr->handle << PAGE_SHIFT, mr->size,
				    1);
}

/**
 * gdrdrv_mr_revoke() - end the use of a region whose pages the GPU driver takes back
 * @mr: the region; the caller holds the callback's reference
 *
 * On return the region has no page-table entry, none can be made, and no memory type is reserved
 * for it. The GPU driver may reuse its range of BAR1 at once.
 *
 * Context: the free callback, with the GPU driver's locks held; takes mr->lock and memtype_lock,
 * one after the other. Once per region.
 */
void gdrdrv_mr_revoke(struct gdrdrv_mr *mr)
{
	mutex_lock(&mr->lock);
	WRITE_ONCE(mr->revoked, true);
	mutex_unlock(&mr->lock);
	gdrdrv_mr_zap(mr);
	if (mr->file) /* else the pinning thread still owns them */
		gdrdrv_memtype_free(mr);
	complete_all(&mr->zapped);
	atomic64_inc(&gdrdrv_stats.revokes);
}

/* Leaves the release to the callback, which may come long after the descriptor's release. */
void gdrdrv_mr_orphan_locked(struct gdrdrv_mr *mr)
{
	lockdep_assert_held(&mr->lock);
	atomic64_inc(&gdrdrv_stats.orphans);
	pr_warn_ratelimited(
		"pin of process %d closed by process %d: kept until the GPU driver takes it back\n",
		mr->file ? mr->file->owner.tgid : 0, current->tgid);
}

/**
 * gdrdrv_mr_retire() - end a region that is not, or no longer, in the table
 * @mr: the region; the reference of the table, or of the pinning thread, is consumed
 * @is_owner: whether this runs in the owner's process
 *
 * Context: process context, without any lock of gdrdrv. Once per region.
 */
static void gdrdrv_mr_retire(struct gdrdrv_mr *mr, bool is_owner)
{
	bool may_release;

	mutex_lock(&mr->lock);
	mr->retired = true;
	may_release = mr->any_context || is_owner;
	if (!mr->revoked && !may_release)
		gdrdrv_mr_orphan_locked(mr);
	mutex_unlock(&mr->lock);

	gdrdrv_mr_zap(mr);
	gdrdrv_memtype_free(mr);
	if (may_release)
		gdrdrv_p2p_release(mr);
	gdrdrv_mr_put(mr);
}

/* Counts the physical runs, then reads them; the region may be revoked in between. */
static int gdrdrv_mr_fill_ranges(struct gdrdrv_mr *mr)
{
	int n, again;

	n = gdrdrv_p2p_ranges(mr, NULL, 0);
	if (n < 0)
		return n;
	mr->ranges = kvmalloc_array(n, sizeof(*mr->ranges), GFP_KERNEL_ACCOUNT);
	if (!mr->ranges)
		return -ENOMEM;
	again = gdrdrv_p2p_ranges(mr, mr->ranges, n);
	if (again < 0)
		return again;
	if (WARN_ON_ONCE(again != n))
		return -EIO;
	mr->nr_ranges = n;
	return 0;
}

/*
 * Finds @npages unused consecutive handles, starting after the last region and wrapping to 1.
 * Handles are page offsets of the mapping: since live regions never overlap, zapping one spares the
 * others. Returns the first handle, or 0.
 */
static u64 gdrdrv_file_find_handle_locked(struct gdrdrv_file *file, u64 npages)
{
	u64 handle = file->next_handle;
	bool wrapped = false;
	unsigned long index;
	struct gdrdrv_mr *mr;

	lockdep_assert_held(&file->lock);
again:
	if (handle + npages - 1 > GDRDRV_HANDLE_MAX) {
		if (wrapped)
			return 0;
		wrapped = true;
		handle = 1;
	}
	/*
	 * @handle is 1 or follows a region's end: no region that starts below it reaches over it.
	 */
	xa_for_each_start(&file->mrs, index, mr, handle) {
		if (index >= handle + npages)
			break;
		handle = index + (mr->size >> PAGE_SHIFT);
		if (handle + npages - 1 > GDRDRV_HANDLE_MAX)
			goto again;
	}
	return handle;
}

/* Enters the region into the table: from here on it can be mapped, queried and unpinned. */
static int gdrdrv_mr_publish(struct gdrdrv_file *file, struct gdrdrv_mr *mr)
{
	u64 npages = mr->size >> PAGE_SHIFT;
	u64 handle;
	int ret;

	mutex_lock(&file->lock);
	handle = gdrdrv_file_find_handle_locked(file, npages);
	if (!handle) {
		ret = -ENOMEM;
		goto unlock;
	}
	ret = xa_insert(&file->mrs, handle, mr, GFP_KERNEL);
	if (ret)
		goto unlock;

	mutex_lock(&mr->lock);
	if (mr->revoked) {
		ret = -EINVAL; /* the memory was freed while it was being pinned */
	} else {
		mr->handle = handle;
		kref_get(&file->ref);
		mr->file = file;
	}
	mutex_unlock(&mr->lock);
	if (ret)
		xa_erase(&file->mrs, handle);
	else
		file->next_handle = handle + npages;
unlock:
	mutex_unlock(&file->lock);
	return ret;
}

/* Rounds the request out to whole units of a pin. */
static int gdrdrv_pin_req_round(const struct gdrdrv_pin_req *req, struct gdrdrv_pin_req *out)
{
	u64 end;

	*out = *req;
	if (!req->size)
		return -EINVAL;
	if (check_add_overflow(req->va, req->size, &end) ||
	    check_add_overflow(end, GDRDRV_PIN_SIZE - 1, &end))
		return -EOVERFLOW;
	out->va = round_down(req->va, GDRDRV_PIN_SIZE);
	out->size = round_down(end, GDRDRV_PIN_SIZE) - out->va;
	if (out->size >> PAGE_SHIFT > GDRDRV_HANDLE_MAX)
		return -EOVERFLOW;
	return 0;
}

/**
 * gdrdrv_mr_pin() - pin a range of GPU memory
 * @file: the owner's descriptor
 * @user_req: the request; any address and size
 * @handle: set on success
 *
 * Return: 0; -EINVAL (size 0, or not memory of this process), -EOVERFLOW (the range wraps), -ENOMEM
 * (out of memory or BAR space, or as many pins as the user may have), -EINTR (killed), or the GPU
 * driver's error.
 */
int gdrdrv_mr_pin(struct gdrdrv_file *file, const struct gdrdrv_pin_req *user_req, u64 *handle)
{
	struct gdrdrv_pin_req req;
	struct gdrdrv_mr *mr;
	u64 cycles;
	int ret;

	ret = gdrdrv_pin_req_round(user_req, &req);
	if (ret)
		return ret;
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return -ENOMEM;
	mr->uid = file->uid;
	ret = gdrdrv_user_count(mr->uid, 1);
	if (ret) {
		kfree(mr);
		return ret;
	}
	kref_init(&mr->ref);
	mutex_init(&mr->lock);
	init_completion(&mr->zapped);
	mr->va = req.va;
	mr->size = req.size;

	cycles = get_cycles();
	ret = gdrdrv_p2p_pin(mr, &req);
	if (ret) {
		/* ENOTSUPP (524) is internal to the kernel; programs do not know it. */
		if (ret == -ENOTSUPP)
			ret = -EOPNOTSUPP;
		/* Other errors come from a program's arguments or from lack of space. */
		if (ret == -EIO || ret == -EBUSY)
			pr_err_ratelimited("nvidia-p2p refused %llu bytes to process %d: %d\n",
					   req.size, current->tgid, ret);
		gdrdrv_mr_put(mr);
		goto out;
	}
	mr->tm_cycles = get_cycles() - cycles;

	ret = gdrdrv_mr_fill_ranges(mr);
	if (ret)
		goto err_retire;
	gdrdrv_memtype_reserve(mr);
	/* Once published, another thread can unpin the region: hold a reference until the end. */
	kref_get(&mr->ref);
	ret = gdrdrv_mr_publish(file, mr);
	if (ret) {
		gdrdrv_mr_put(mr);
		goto err_retire;
	}
	*handle = mr->handle;
	atomic64_inc(&gdrdrv_stats.pins);
	gdrdrv_mr_put(mr);
	goto out;

err_retire:
	gdrdrv_mr_retire(mr, true);
out:
	if (ret)
		gdrdrv_info("pin of %llu bytes failed: %d\n", req.size, ret);
	return ret;
}

/* Returns -EINVAL if the handle is not in the table. */
int gdrdrv_mr_unpin(struct gdrdrv_file *file, u64 handle)
{
	struct gdrdrv_mr *mr;

	if (handle > GDRDRV_HANDLE_MAX)
		return -EINVAL;
	mutex_lock(&file->lock);
	mr = xa_erase(&file->mrs, handle);
	mutex_unlock(&file->lock);
	if (!mr)
		return -EINVAL;
	gdrdrv_mr_retire(mr, true);
	return 0;
}

/* Release of the descriptor, in any process. Only a reader of /proc can still reach the table. */
void gdrdrv_mr_close_all(struct gdrdrv_file *file)
{
	bool is_owner = gdrdrv_file_is_owner(file);
	unsigned long handle;
	struct gdrdrv_mr *mr;

	xa_for_each(&file->mrs, handle, mr) {
		mutex_lock(&file->lock);
		xa_erase(&file->mrs, handle);
		mutex_unlock(&file->lock);
		gdrdrv_mr_retire(mr, is_owner);
		cond_resched();
	}
	xa_destroy(&file->mrs);
}
