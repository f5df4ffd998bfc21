// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * debugfs gdrdrv/stats: counters since load. Open-flavour build only (debugfs is GPL-only).
 *
 * Must not be read by programs; its lines may change.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "gdrdrv.h"

static struct dentry *gdrdrv_debugfs_dir;

static int gdrdrv_stats_show(struct seq_file *seq, void *unused)
{
#define GDRDRV_STAT(name) seq_printf(seq, #name " %lld\n", atomic64_read(&gdrdrv_stats.name))
	GDRDRV_STAT(pins);
	GDRDRV_STAT(pins_persistent);
	GDRDRV_STAT(pins_dmabuf);
	GDRDRV_STAT(revokes);
	GDRDRV_STAT(orphans);
	GDRDRV_STAT(faults);
	GDRDRV_STAT(ptes);
	GDRDRV_STAT(memtypes);
	GDRDRV_STAT(memtype_failures);
#undef GDRDRV_STAT
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(gdrdrv_stats);

void gdrdrv_debugfs_init(void)
{
	gdrdrv_debugfs_dir = debugfs_create_dir("gdrdrv", NULL);
	debugfs_create_file("stats", 0400, gdrdrv_debugfs_dir, NULL, &gdrdrv_stats_fops);
}

void gdrdrv_debugfs_exit(void)
{
	debugfs_remove_recursive(gdrdrv_debugfs_dir);
}
