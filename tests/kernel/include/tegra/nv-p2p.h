/* SPDX-License-Identifier: MIT */
/*
 * The p2p interface of Tegra's GPU driver as the tests model it, written from the public
 * description (GPUDirect RDMA guide, 13.4.2). Whole in itself, unlike those of the desktop's
 * branches: it shares no call with them. For compiling and for the stand-in provider only.
 *
 * That the table holds the address, the process's mm and an MMU notifier named mn is a fact of the
 * nv-p2p.h of L4T 5.10 and of nvidia-oot; the driver looks at mn alone of them.
 */
#ifndef NV_P2P_TEGRA_TEST_H
#define NV_P2P_TEGRA_TEST_H

#include <linux/mmu_notifier.h>
#include <linux/types.h>

struct page;

#define NVIDIA_P2P_PAGE_TABLE_VERSION 0x00010000
#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(p) \
	(((p)->version >> 16) == (NVIDIA_P2P_PAGE_TABLE_VERSION >> 16))

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT
};

struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size; /* enum nvidia_p2p_page_size_type */
	u64 size;
	u32 entries;
	struct page **pages;
	u64 vaddr;
	struct mm_struct *mm;
	struct mmu_notifier mn;
};

int nvidia_p2p_get_pages(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);
int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

#endif
