// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * /proc/driver/gdrdrv: params (world-readable; installed libraries and the packages parse it);
 * nv_get_pages_refcount, pins and stats (for the administrator). All read-only.
 */
#include <linux/capability.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "gdrdrv.h"

static struct proc_dir_entry *gdrdrv_proc_dir;

static int gdrdrv_proc_params(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "Version: %d.%d\n", GDRDRV_VERSION_MAJOR, GDRDRV_VERSION_MINOR);
	seq_printf(seq, "Built for NVIDIA driver flavor: %s\n", GDRDRV_FLAVOR);
	seq_printf(seq, "Use persistent mapping: %s\n", gdrdrv_p2p_is_persistent() ? "yes" : "no");
	seq_printf(seq, "dbg_enabled: %d\n", READ_ONCE(gdrdrv_dbg_enabled));
	seq_printf(seq, "info_enabled: %d\n", READ_ONCE(gdrdrv_info_enabled));
	seq_printf(seq, "Kept until the reboot: %s\n", atomic_read(&gdrdrv_kept) ? "yes" : "no");
	return 0;
}

static int gdrdrv_proc_refcount(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "%d\n", atomic_read(&gdrdrv_p2p_pins));
	return 0;
}

static const char *const gdrdrv_type_names[] = { "none", "wc", "cached", "device" };

static void gdrdrv_proc_file(struct seq_file *seq, struct gdrdrv_file *file)
{
	struct gdrdrv_mr *mr;
	unsigned long handle;

	mutex_lock(&file->lock);
	xa_for_each(&file->mrs, handle, mr) {
		if (seq_has_overflowed(seq)) /* shown again, with a larger buffer */
			break;
		mutex_lock(&mr->lock);
		seq_printf(seq, "%d %u 0x%lx 0x%llx %llu %u %u %s %s%s %lu\n", file->owner.tgid,
			   from_kuid_munged(seq_user_ns(seq), file->uid), handle, mr->va, mr->size,
			   mr->page_size, mr->nr_ranges, gdrdrv_type_names[mr->map_type],
			   mr->any_context ? "persistent" : "callback",
			   mr->revoked ? ",revoked" : "", file->id);
		mutex_unlock(&mr->lock);
	}
	mutex_unlock(&file->lock);
}

/*
 * Takes one descriptor at a time, without the table's lock: a user can hold a file->lock for long.
 */
static int gdrdrv_proc_pins(struct seq_file *seq, void *unused)
{
	struct gdrdrv_file *file;
	unsigned long id = 0;

	seq_puts(seq, "# tgid uid handle va bytes page_size ranges mapping state descriptor\n");
	while (!seq_has_overflowed(seq) && (file = gdrdrv_file_after(id))) {
		gdrdrv_proc_file(seq, file);
		id = file->id;
		gdrdrv_file_put(file);
	}
	return 0;
}

/* The file's mode alone would admit root of a container. */
static int gdrdrv_proc_pins_open(struct inode *inode, struct file *filp)
{
	return capable(CAP_SYS_ADMIN) ? single_open(filp, gdrdrv_proc_pins, NULL) : -EPERM;
}

static const struct proc_ops gdrdrv_proc_pins_ops = {
	.proc_open = gdrdrv_proc_pins_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

/* Counts since the module was loaded; memtypes is a current number. Not a stable interface. */
static int gdrdrv_proc_stats(struct seq_file *seq, void *unused)
{
#define GDRDRV_STAT(name) seq_printf(seq, #name " %lld\n", atomic64_read(&gdrdrv_stats.name))
	GDRDRV_STAT(pins);
	GDRDRV_STAT(pins_persistent);
	GDRDRV_STAT(revokes);
	GDRDRV_STAT(orphans);
	GDRDRV_STAT(faults);
	GDRDRV_STAT(ptes);
	GDRDRV_STAT(memtypes);
	GDRDRV_STAT(memtype_failures);
	return 0;
}

int gdrdrv_proc_init(void)
{
	gdrdrv_proc_dir = proc_mkdir("driver/gdrdrv", NULL);
	if (!gdrdrv_proc_dir)
		return -ENOMEM;
	if (proc_create_single("params", 0444, gdrdrv_proc_dir, gdrdrv_proc_params) &&
	    proc_create_single("nv_get_pages_refcount", 0440, gdrdrv_proc_dir,
			       gdrdrv_proc_refcount) &&
	    proc_create("pins", 0400, gdrdrv_proc_dir, &gdrdrv_proc_pins_ops) &&
	    proc_create_single("stats", 0400, gdrdrv_proc_dir, gdrdrv_proc_stats))
		return 0;
	gdrdrv_proc_exit();
	return -ENOMEM;
}

void gdrdrv_proc_exit(void)
{
	proc_remove(gdrdrv_proc_dir);
}
