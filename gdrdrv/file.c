// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Open descriptors: owner, address space, table of all.
 *
 * Knows of regions only the table, which it creates empty.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "gdrdrv.h"

static DEFINE_XARRAY_FLAGS(gdrdrv_files, XA_FLAGS_ACCOUNT); /* by id */
static atomic_long_t gdrdrv_file_last_id;

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
	init_waitqueue_head(&file->wait);

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
