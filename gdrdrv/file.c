// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * An open descriptor: whose it is, its own space of offsets, the list of all.
 *
 * Must not know regions beyond the empty table that it makes for them.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "gdrdrv.h"

static DEFINE_MUTEX(gdrdrv_files_lock); /* the next two */
static LIST_HEAD(gdrdrv_files);
static u64 gdrdrv_file_last_id;

/* The process, not the thread; a reused process number is another process. */
bool gdrdrv_file_is_owner(const struct gdrdrv_file *file)
{
	return file->owner.tgid == current->tgid &&
	       file->owner.start_time == current->group_leader->start_time;
}

/* Possibly inside the free callback: memory only. */
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

/* The calling process's, in the list; @filp is to hold the reference. NULL: no memory. */
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

	/* All openers share the inode; offsets here are handles of this descriptor alone. */
	address_space_init_once(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = inode->i_mapping->a_ops;

	mutex_lock(&gdrdrv_files_lock);
	file->id = ++gdrdrv_file_last_id;
	list_add_tail(&file->node, &gdrdrv_files);
	mutex_unlock(&gdrdrv_files_lock);
	return file;
}

/* Out of the list: /proc does not find it any more. */
void gdrdrv_file_unlist(struct gdrdrv_file *file)
{
	mutex_lock(&gdrdrv_files_lock);
	list_del(&file->node);
	mutex_unlock(&gdrdrv_files_lock);
}

/* The first whose id is above @id, with a reference; or NULL. */
struct gdrdrv_file *gdrdrv_file_after(u64 id)
{
	struct gdrdrv_file *file, *found = NULL;

	mutex_lock(&gdrdrv_files_lock);
	list_for_each_entry(file, &gdrdrv_files, node) {
		if (file->id > id) {
			kref_get(&file->ref);
			found = file;
			break;
		}
	}
	mutex_unlock(&gdrdrv_files_lock);
	return found;
}
