/* SPDX-License-Identifier: MIT */
/*
 * The p2p interface of the GPU driver as the tests model it, written from the public description.
 *
 * Included by the nv-p2p.h of each generation, which says what that generation has:
 *	P2P_TEST_VERSION		version of the page table
 *	P2P_TEST_NULL_CALLBACK		NULL callback = persistent, announced by a macro
 *	P2P_TEST_PERSISTENT_API		persistent pages by calls of their own
 *	P2P_TEST_FORCE_BAR1		a flag of those calls
 *	P2P_TEST_TABLE_FLAGS		flags in the page table
 * For compiling and for the stand-in provider only: not the GPU driver's header.
 */
#ifndef NV_P2P_TEST_H
#define NV_P2P_TEST_H

#include <linux/types.h>

#define NVIDIA_P2P_PAGE_TABLE_VERSION P2P_TEST_VERSION
#define NVIDIA_P2P_VERSION_COMPATIBLE(p, v)                     \
	((((p)->version & 0xffff0000u) == ((v)&0xffff0000u)) && \
	 (((p)->version & 0x0000ffffu) >= ((v)&0x0000ffffu)))
#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(p) \
	NVIDIA_P2P_VERSION_COMPATIBLE(p, NVIDIA_P2P_PAGE_TABLE_VERSION)

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT
};

struct nvidia_p2p_page {
	uint64_t physical_address;
	uint32_t registers[6];
};

struct nvidia_p2p_page_table {
	uint32_t version;
	uint32_t page_size; /* enum nvidia_p2p_page_size_type */
	struct nvidia_p2p_page **pages;
	uint32_t entries;
	uint8_t *gpu_uuid;
#ifdef P2P_TEST_TABLE_FLAGS
	uint32_t flags;
#endif
};

#ifdef P2P_TEST_TABLE_FLAGS
#define NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE 0x1
#endif

int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 uint64_t length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);
int nvidia_p2p_put_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

#ifdef P2P_TEST_NULL_CALLBACK
#define NVIDIA_P2P_CAP_PERSISTENT_PAGES
extern const int nvidia_p2p_cap_persistent_pages;
#endif

#ifdef P2P_TEST_PERSISTENT_API
#define NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
int nvidia_p2p_get_pages_persistent(uint64_t virtual_address, uint64_t length,
				    struct nvidia_p2p_page_table **page_table, uint32_t flags);
int nvidia_p2p_put_pages_persistent(uint64_t virtual_address,
				    struct nvidia_p2p_page_table *page_table, uint32_t flags);
#endif

#ifdef P2P_TEST_FORCE_BAR1
#define NVIDIA_P2P_FLAGS_DEFAULT	    0
#define NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING 1
#endif

#endif
