// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Never loaded and no part of gdrdrv.ko. The kernel's build computes from nv-p2p.h the versions
 * (CRCs) of the functions that gdrdrv takes from the GPU driver, and writes them to Module.symvers.
 * The Makefile renames the module there to nvidia, and builds gdrdrv with that file where the GPU
 * driver's source has none. A version depends on the types in the header, so these are the versions
 * that nvidia.ko has if it was built from the same header for the same kernel. With
 * CONFIG_GENDWARFKSYMS it depends on the names of the parameters too: they are those of nv-p2p.c.
 *
 * P2PSYM_EXPORT: as the GPU driver exports them, EXPORT_SYMBOL or EXPORT_SYMBOL_GPL.
 */
#include <linux/mm.h>
#include <linux/module.h>

#include "gdrdrv_conftest.h"
#include "nv-p2p.h"

int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 uint64_t length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	return -ENODEV;
}
P2PSYM_EXPORT(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return -ENODEV;
}
P2PSYM_EXPORT(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return -ENODEV;
}
P2PSYM_EXPORT(nvidia_p2p_free_page_table);

#ifdef HAVE_P2P_PERSISTENT_API
int nvidia_p2p_get_pages_persistent(uint64_t virtual_address, uint64_t length,
				    struct nvidia_p2p_page_table **page_table, uint32_t flags)
{
	return -ENODEV;
}
P2PSYM_EXPORT(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(uint64_t virtual_address,
				    struct nvidia_p2p_page_table *page_table, uint32_t flags)
{
	return -ENODEV;
}
P2PSYM_EXPORT(nvidia_p2p_put_pages_persistent);
#endif

MODULE_DESCRIPTION("Versions of nvidia_p2p_*() for a build; never loaded");
MODULE_LICENSE("Dual MIT/GPL");
