// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * An MMU notifier of a process, as nvidia-uvm registers them: before the kernel takes pages of a
 * range of that process, which is not a mapping of the client, it waits for a lock. Under that lock
 * another thread calls into the GPU driver and frees memory, as uvm calls the resource manager with
 * locks of its own held. (Which of uvm's locks both take depends on its version: the rule of
 * gdrdrv.h excludes every such lock.)
 *
 * A client that has the kernel reclaim memory while it holds a lock for which its free callback
 * waits would never end. Here the wait ends after a second, and is wrong use in the counters; after
 * that nothing waits, so that the test ends.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/delay.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>

#include "provider.h"

#if defined(CONFIG_MMU_NOTIFIER)
static DEFINE_MUTEX(uvm_lock);

struct notifier {
	struct mmu_notifier mn;
	struct mm_struct *mm;
	unsigned long start, end;
};

static int invalidate_start(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
	struct notifier *n = container_of(mn, struct notifier, mn);
	int i;

	if (range->end <= n->start || range->start >= n->end || range->event != MMU_NOTIFY_CLEAR ||
	    provider_counts.errors)
		return 0;
	if (!mmu_notifier_range_blockable(range))
		return -EAGAIN;
	for (i = 0; i < 100; i++) {
		if (mutex_trylock(&uvm_lock)) {
			mutex_unlock(&uvm_lock);
			return 0;
		}
		provider_counts.notified++;
		msleep(10);
	}
	provider_counts.errors++;
	pr_err("ERROR: reclaim waits for the GPU driver, and that for a lock of the client\n");
	return 0;
}

static const struct mmu_notifier_ops ops = {
	.invalidate_range_start = invalidate_start,
};

/* Registers the calling process. */
int provider_notify(struct provider_file *file, const struct provider_notify *arg)
{
	struct notifier *n;
	int ret;

	if (file->notifier)
		return -EBUSY;
	n = kzalloc(sizeof(*n), GFP_KERNEL);
	if (!n)
		return -ENOMEM;
	n->mn.ops = &ops;
	n->mm = current->mm;
	n->start = arg->addr;
	n->end = arg->addr + arg->len;
	mmgrab(n->mm);
	ret = mmu_notifier_register(&n->mn, n->mm);
	if (ret) {
		mmdrop(n->mm);
		kfree(n);
		return ret;
	}
	file->notifier = n;
	return 0;
}

void provider_notify_end(struct provider_file *file)
{
	struct notifier *n = file->notifier;

	if (!n)
		return;
	mmu_notifier_unregister(&n->mn, n->mm);
	mmdrop(n->mm);
	kfree(n);
}

/*
 * A free under the notifier's lock, which is taken @delay_ms before it. Lockdep is not told: it
 * knows one lock for all notifiers, and would take those of a client's mapping for this one.
 */
int provider_notify_free(struct provider_file *file, const struct provider_notify_free *arg)
{
	int ret;

	if (arg->delay_ms > PROVIDER_WINDOW_MAX_MS)
		return -EINVAL;
	lockdep_set_novalidate_class(&uvm_lock);
	mutex_lock(&uvm_lock);
	msleep(arg->delay_ms);
	ret = provider_block_free(file, arg->va);
	mutex_unlock(&uvm_lock);
	return ret;
}
#else
int provider_notify(struct provider_file *file, const struct provider_notify *arg)
{
	return -EOPNOTSUPP;
}

void provider_notify_end(struct provider_file *file)
{
}

int provider_notify_free(struct provider_file *file, const struct provider_notify_free *arg)
{
	return -EOPNOTSUPP;
}
#endif
