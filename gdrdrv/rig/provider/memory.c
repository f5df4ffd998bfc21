// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Blocks of the stand-in GPU's memory: which 64 KiB pages of the BAR, at which device address.
 *
 * Of p2p.c it calls only provider_p2p_revoke_locked().
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "provider.h"

#define ALIGN_2M_PAGES 32

/* Returns the first page of block number @keep; the BAR's end if it does not exist or is used. */
static u32 kept_start(u64 npages, u32 keep)
{
	u32 end = provider_bar.npages + PROVIDER_KEEP_PAGES;
	u32 start = provider_bar.npages + keep * npages;

	if (npages > PROVIDER_KEEP_PAGES || keep >= PROVIDER_KEEP_PAGES / npages)
		return end;
	return find_next_bit(provider_bar.used, start + npages, start) < start + npages ? end
											: start;
}

static bool pick_pages(struct provider_block *block, u32 flags, u32 keep)
{
	u32 step = flags & PROVIDER_SCATTER ? 2 : 1, n = 0, start, i;
	u32 align = flags & PROVIDER_ALIGN_2M ? ALIGN_2M_PAGES : 1;

	if (step == 1) {
		start = flags & PROVIDER_KEEP
				? kept_start(block->npages, keep)
				: bitmap_find_next_zero_area(provider_bar.used, provider_bar.npages,
							     0, block->npages, align - 1);
		if (start + block->npages >
		    provider_bar.npages + (flags & PROVIDER_KEEP ? PROVIDER_KEEP_PAGES : 0))
			return false;
		while (n < block->npages)
			block->pages[n++] = start++;
	} else {
		/* Downwards, every second page: neither neighbour follows. */
		for (i = provider_bar.npages & ~1U; i >= 2 && n < block->npages; i -= 2)
			if (!test_bit(i - 1, provider_bar.used))
				block->pages[n++] = i - 1;
	}
	if (n < block->npages)
		return false;
	for (i = 0; i < n; i++)
		__set_bit(block->pages[i], provider_bar.used);
	if (!(flags & PROVIDER_KEEP))
		provider_bar.nfree -= n;
	return true;
}

int provider_block_alloc(struct provider_file *owner, struct provider_alloc *arg)
{
	struct provider_block *block;

	if (!arg->size || arg->size > provider_bar.size)
		return -ENOMEM;
	block = kzalloc(sizeof(*block), GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	block->npages = DIV_ROUND_UP_ULL(arg->size, PROVIDER_PAGE_SIZE);
	block->pages = kvmalloc_array(block->npages, sizeof(u32), GFP_KERNEL);
	if (!block->pages)
		goto err_free;

	mutex_lock(&provider_bar.lock);
	if (!pick_pages(block, arg->flags, arg->keep)) {
		mutex_unlock(&provider_bar.lock);
		goto err_free;
	}
	if ((arg->flags & PROVIDER_REUSE_VA) && provider_bar.last_len == block->npages &&
	    !provider_block_find_locked(provider_bar.last_va, PROVIDER_PAGE_SIZE)) {
		block->va = provider_bar.last_va;
	} else {
		block->va = provider_bar.next_va;
		provider_bar.next_va +=
			ALIGN(block->npages * PROVIDER_PAGE_SIZE, 2 << 20) + (2 << 20);
	}
	block->owner = owner;
	block->refs = 1;
	list_add(&block->node, &provider_bar.blocks);
	arg->va = block->va;
	arg->phys = provider_bar.phys + block->pages[0] * PROVIDER_PAGE_SIZE;
	mutex_unlock(&provider_bar.lock);
	return 0;

err_free:
	kvfree(block->pages);
	kfree(block);
	return -ENOMEM;
}

struct provider_block *provider_block_find_locked(u64 va, u64 len)
{
	struct provider_block *block;

	lockdep_assert_held(&provider_bar.lock);
	list_for_each_entry(block, &provider_bar.blocks, node)
		if (block->owner && va >= block->va &&
		    va - block->va < block->npages * PROVIDER_PAGE_SIZE &&
		    len <= block->npages * PROVIDER_PAGE_SIZE - (va - block->va))
			return block;
	return NULL;
}

void provider_block_put_locked(struct provider_block *block)
{
	u64 i;

	lockdep_assert_held(&provider_bar.lock);
	if (--block->refs)
		return;
	for (i = 0; i < block->npages; i++)
		__clear_bit(block->pages[i], provider_bar.used);
	if (block->pages[0] < provider_bar.npages)
		provider_bar.nfree += block->npages;
	list_del(&block->node);
	kvfree(block->pages);
	kfree(block);
}

static void block_free_locked(struct provider_block *block)
{
	provider_p2p_revoke_locked(block);
	provider_bar.last_va = block->va;
	provider_bar.last_len = block->npages;
	block->owner = NULL;
	provider_block_put_locked(block);
}

int provider_block_free(struct provider_file *owner, u64 va)
{
	struct provider_block *block;
	int ret = -EINVAL;

	mutex_lock(&provider_bar.lock);
	block = provider_block_find_locked(va, 1);
	if (block && block->va == va && block->owner == owner) {
		block_free_locked(block);
		ret = 0;
	}
	mutex_unlock(&provider_bar.lock);
	return ret;
}

void provider_block_free_all(struct provider_file *owner)
{
	struct provider_block *block;

	mutex_lock(&provider_bar.lock);
again:
	list_for_each_entry(block, &provider_bar.blocks, node) {
		if (block->owner == owner) {
			block_free_locked(block);
			goto again;
		}
	}
	mutex_unlock(&provider_bar.lock);
}

/* Copies a piece inside one page. The mapping lives only as long: it reserves a memory type. */
static int copy_piece(u64 va, u32 len, void *bounce, bool poke)
{
	struct provider_block *block;
	phys_addr_t phys;
	void __iomem *io;
	int ret = -EFAULT;
	u64 off;

	mutex_lock(&provider_bar.lock);
	block = provider_block_find_locked(va, len);
	if (!block)
		goto unlock;
	off = va - block->va;
	phys = provider_bar.phys + block->pages[off / PROVIDER_PAGE_SIZE] * PROVIDER_PAGE_SIZE;
	io = ioremap_wc(phys, PROVIDER_PAGE_SIZE);
	if (!io)
		goto unlock;
	off %= PROVIDER_PAGE_SIZE;
	if (poke)
		memcpy_toio(io + off, bounce, len);
	else
		memcpy_fromio(bounce, io + off, len);
	iounmap(io);
	ret = 0;
unlock:
	mutex_unlock(&provider_bar.lock);
	return ret;
}

long provider_copy(struct provider_copy *arg, bool poke)
{
	void *bounce = kvmalloc(PROVIDER_PAGE_SIZE, GFP_KERNEL);
	u64 va = arg->va, left = arg->len;
	u8 __user *user = (u8 __user *)(unsigned long)arg->buf;
	int ret = 0;

	if (!bounce)
		return -ENOMEM;
	while (left && !ret) {
		u32 len = min_t(u64, left, PROVIDER_PAGE_SIZE - va % PROVIDER_PAGE_SIZE);

		if (poke && copy_from_user(bounce, user, len))
			ret = -EFAULT;
		if (!ret)
			ret = copy_piece(va, len, bounce, poke);
		if (!ret && !poke && copy_to_user(user, bounce, len))
			ret = -EFAULT;
		va += len;
		user += len;
		left -= len;
	}
	kvfree(bounce);
	return ret;
}
