// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * How much BAR1 space one user may hold pinned, per GPU.
 *
 * BAR1 is shared by all users of a GPU, so one must not be able to take all of it. A GPU is known
 * by the PCI BAR that holds the pinned pages; pages outside every BAR (coherent systems) are
 * counted together and have no default limit.
 *
 * Must not know descriptors, mappings or sources.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/pci.h>
#include <linux/slab.h>

#include "gdrdrv.h"

static unsigned long gdrdrv_max_pinned_mib;
module_param_named(max_pinned_mib, gdrdrv_max_pinned_mib, ulong, 0644);
MODULE_PARM_DESC(max_pinned_mib,
		 "MiB that one user may hold pinned on one GPU (default 0: half of its BAR1)");

/* One user on one GPU. Kept while anything is charged; reaped by the next charge after that. */
struct gdrdrv_user {
	struct list_head node; /* gdrdrv_users_lock */
	kuid_t uid; /* constant */
	phys_addr_t bar; /* constant; 0: outside every BAR */
	u64 bar_len; /* constant */
	atomic64_t bytes; /* raised under gdrdrv_users_lock, lowered anywhere */
};

static DEFINE_MUTEX(gdrdrv_users_lock);
static LIST_HEAD(gdrdrv_users);

static void gdrdrv_bar_find(phys_addr_t phys, phys_addr_t *start, u64 *len)
{
	struct pci_dev *pdev = NULL;
	int i;

	*start = 0;
	*len = 0;
	for_each_pci_dev(pdev) {
		for (i = 0; i < PCI_STD_NUM_BARS; i++) {
			if (!(pci_resource_flags(pdev, i) & IORESOURCE_MEM) ||
			    phys < pci_resource_start(pdev, i) || phys > pci_resource_end(pdev, i))
				continue;
			*start = pci_resource_start(pdev, i);
			*len = pci_resource_len(pdev, i);
			pci_dev_put(pdev);
			return;
		}
	}
}

static struct gdrdrv_user *gdrdrv_user_find_locked(kuid_t uid, phys_addr_t phys)
{
	struct gdrdrv_user *user, *next, *found = NULL;
	phys_addr_t bar;
	u64 len;

	lockdep_assert_held(&gdrdrv_users_lock);
	list_for_each_entry_safe(user, next, &gdrdrv_users, node) {
		bool here = user->bar_len && phys >= user->bar && phys - user->bar < user->bar_len;

		if (uid_eq(user->uid, uid) && here) {
			found = user;
		} else if (!atomic64_read(&user->bytes)) {
			list_del(&user->node);
			kfree(user);
		}
	}
	if (found)
		return found;

	gdrdrv_bar_find(phys, &bar, &len);
	list_for_each_entry(user, &gdrdrv_users, node)
		if (uid_eq(user->uid, uid) && user->bar == bar)
			return user;
	user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		return NULL;
	user->uid = uid;
	user->bar = bar;
	user->bar_len = len;
	list_add(&user->node, &gdrdrv_users);
	return user;
}

/* -ENOMEM when it would take the user over the limit. */
int gdrdrv_limit_charge(struct gdrdrv_mr *mr, kuid_t uid)
{
	u64 mib = READ_ONCE(gdrdrv_max_pinned_mib), limit, now;
	struct gdrdrv_user *user;
	int ret = -ENOMEM;

	mutex_lock(&gdrdrv_users_lock);
	user = gdrdrv_user_find_locked(uid, mr->ranges[0].start);
	if (!user)
		goto unlock;
	if (mib)
		limit = mib > (U64_MAX >> 20) ? U64_MAX : mib << 20;
	else
		limit = user->bar_len ? user->bar_len / 2 : U64_MAX;
	now = atomic64_read(&user->bytes);
	if (mr->charge > limit || now > limit - mr->charge) {
		pr_err_ratelimited(
			"user %u holds %llu MiB pinned, %llu more would pass the limit of %llu\n",
			__kuid_val(uid), now >> 20, mr->charge >> 20, limit >> 20);
		goto unlock;
	}
	atomic64_add(mr->charge, &user->bytes);
	mr->user = user;
	ret = 0;
unlock:
	mutex_unlock(&gdrdrv_users_lock);
	return ret;
}

/* Takes no lock: the free callback may be the one that drops an orphan's last reference. */
void gdrdrv_limit_uncharge(struct gdrdrv_mr *mr)
{
	if (mr->user)
		atomic64_sub(mr->charge, &mr->user->bytes);
	mr->user = NULL;
}

void gdrdrv_limit_exit(void)
{
	struct gdrdrv_user *user, *next;

	list_for_each_entry_safe(user, next, &gdrdrv_users, node) {
		WARN_ON(atomic64_read(&user->bytes));
		list_del(&user->node);
		kfree(user);
	}
}
