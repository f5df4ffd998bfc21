// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Open descriptors: owner, address space, table of all; the number of pins of each user.
 *
 * Knows of regions only the table, which it creates empty.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched.h>
#include <linux/slab.h>

#include "gdrdrv.h"

static DEFINE_XARRAY_FLAGS(gdrdrv_files, XA_FLAGS_ACCOUNT); /* by id */
static atomic_long_t gdrdrv_file_last_id;

static DEFINE_XARRAY_FLAGS(gdrdrv_users, XA_FLAGS_ACCOUNT); /* user number -> pins, not 0 */

static unsigned int gdrdrv_max_pins_per_user;
module_param_named(max_pins_per_user, gdrdrv_max_pins_per_user, uint, 0644);
MODULE_PARM_DESC(max_pins_per_user, "pins that a user can hold; 0: no limit (default 0)");

/* Compares processes, not threads; the start time tells a reused process number apart. */
bool gdrdrv_file_is_owner(const struct gdrdrv_file *file)
{
	return file->owner.tgid == current->tgid &&
	       file->owner.start_time == current->group_leader->start_time;
}

/* May run inside the free callback: only frees memory. */
static void gdrdrv_file_free(struct kref *ref)
{
	struct gdrdrv_file *file = container_of(ref, struct gdrdrv_file, ref);

	mutex_destroy(&file->lock);
	kfree(file);
}

void gdrdrv_file_put(struct gdrdrv_file *file)
{
	kref_put(&file->ref, gdrdrv_file_free);
}

/* Creates a descriptor of the calling process. @filp gets the reference. NULL: out of memory. */
struct gdrdrv_file *gdrdrv_file_new(struct inode *inode, const struct file *filp)
{
	struct gdrdrv_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return NULL;
	kref_init(&file->ref);
	file->owner.tgid = current->tgid;
	file->owner.start_time = current->group_leader->start_time;
	file->uid = filp->f_cred->uid;
	mutex_init(&file->lock);
	xa_init_flags(&file->mrs, XA_FLAGS_ACCOUNT);
	file->next_handle = 1;

	/* All descriptors share the inode's mapping; here offsets are handles of one descriptor. */
	gdrdrv_mapping_init(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = inode->i_mapping->a_ops;

	file->id = atomic_long_inc_return(&gdrdrv_file_last_id);
	if (xa_insert(&gdrdrv_files, file->id, file, GFP_KERNEL)) {
		gdrdrv_file_put(file);
		return NULL;
	}
	return file;
}

/* Hides the descriptor from /proc. */
void gdrdrv_file_unlist(struct gdrdrv_file *file)
{
	xa_erase(&gdrdrv_files, file->id);
}

/* Returns the first descriptor with an id above @id, with a reference; or NULL. */
struct gdrdrv_file *gdrdrv_file_after(unsigned long id)
{
	struct gdrdrv_file *file;

	xa_lock(&gdrdrv_files);
	file = xa_find_after(&gdrdrv_files, &id, ULONG_MAX, XA_PRESENT);
	if (file)
		kref_get(&file->ref);
	xa_unlock(&gdrdrv_files);
	return file;
}

/*
 * Counts @pins more pins of the user, 1 or -1. -ENOMEM: the user has as many as max_pins_per_user.
 * With -1 it may run inside the free callback: it allocates nothing, because the entry exists, and
 * says so to lockdep, which would take GFP_KERNEL for a reclaim under the GPU driver's locks.
 */
int gdrdrv_user_count(kuid_t uid, int pins)
{
	unsigned int limit = READ_ONCE(gdrdrv_max_pins_per_user);
	void *was, *now;
	unsigned long n;

	do {
		was = xa_load(&gdrdrv_users, __kuid_val(uid));
		n = was ? xa_to_value(was) : 0;
		if (pins > 0 && limit && n >= limit) {
			pr_warn_ratelimited("user %u has %lu pins, max_pins_per_user is %u\n",
					    __kuid_val(uid), n, limit);
			return -ENOMEM;
		}
		n += pins;
		now = xa_cmpxchg(&gdrdrv_users, __kuid_val(uid), was, n ? xa_mk_value(n) : NULL,
				 pins > 0 ? GFP_KERNEL : GFP_NOWAIT);
	} while (now != was && !xa_is_err(now));
	return xa_err(now);
}
