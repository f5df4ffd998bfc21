/* SPDX-License-Identifier: MIT */
/*
 * The interface of /dev/gdrdrv: structures, ioctl numbers, attributes.
 *
 * The driver and user space include the same file. The layout is frozen: installed libraries of
 * level 2.0 to 2.6 are compiled against it, and gdrdrv/tests/abi.c verifies it.
 */
#ifndef GDRDRV_UAPI_H
#define GDRDRV_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GDRDRV_DEVICE_NAME   "gdrdrv"
#define GDRDRV_VERSION_MAJOR 2
#define GDRDRV_VERSION_MINOR 6
#define GDRDRV_VERSION	     ((GDRDRV_VERSION_MAJOR << 16) | GDRDRV_VERSION_MINOR)

/* The oldest library level that this driver serves. */
#define GDRDRV_MINIMUM_API_VERSION (2 << 16)

/* A region is pinned in units of this many bytes, whatever the GPU's own page size. */
#define GDRDRV_PIN_SIZE 0x10000UL

/* Handles lie in 1 .. GDRDRV_HANDLE_MAX: installed libraries keep 32 bits of them. */
#define GDRDRV_HANDLE_MAX 0xffffffffUL

/* Flags of PIN_BUFFER_V2. */
#define GDRDRV_PIN_FLAG_FORCE_PCIE 1U

/* Attributes of GET_ATTR. */
#define GDRDRV_ATTR_USE_PERSISTENT_MAPPING	1
#define GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE 2

/* Mapping types of GET_INFO_V2 and REQ_MAPPING_TYPE (there 0 asks for the default). */
#define GDRDRV_MAPPING_TYPE_NONE    0
#define GDRDRV_MAPPING_TYPE_WC	    1
#define GDRDRV_MAPPING_TYPE_CACHING 2
#define GDRDRV_MAPPING_TYPE_DEVICE  3

struct gdrdrv_ioc_pin_buffer {
	__u64 addr;
	__u64 size;
	__u64 p2p_token; /* 0, else EINVAL */
	__u32 va_space; /* 0, else EINVAL */
	__u32 pad;
	__u64 handle; /* out */
};

struct gdrdrv_ioc_unpin_buffer {
	__u64 handle;
};

struct gdrdrv_ioc_get_cb_flag {
	__u64 handle;
	__u32 flag; /* out: 1 once the GPU driver has revoked the pages */
	__u32 pad;
};

struct gdrdrv_ioc_get_info {
	__u64 handle;
	__u64 va; /* out: the pinned address, a multiple of GDRDRV_PIN_SIZE */
	__u64 mapped_size; /* out: bytes pinned, a multiple of GDRDRV_PIN_SIZE */
	__u32 page_size; /* out: bytes per page of the GPU driver's table */
	__u32 tsc_khz; /* out: cycles per millisecond of tm_cycles */
	__u64 tm_cycles; /* out: duration of the pin in cycles */
	__u32 mapped; /* out */
	__u32 wc_mapping; /* out */
};

struct gdrdrv_ioc_get_info_v2 {
	__u64 handle;
	__u64 va;
	__u64 mapped_size;
	__u32 page_size;
	__u32 tsc_khz;
	__u64 tm_cycles;
	__u32 mapping_type; /* out: GDRDRV_MAPPING_TYPE_*; NONE when not mapped */
	__u32 pad;
};

struct gdrdrv_ioc_get_attr {
	__u32 attr;
	__u32 val; /* out */
};

struct gdrdrv_ioc_pin_buffer_v2 {
	__u64 addr;
	__u64 size;
	__u32 flags;
	__u32 pad;
	__u64 handle; /* out */
};

struct gdrdrv_ioc_req_mapping_type {
	__u64 handle;
	__u32 mapping_type;
	__u32 pad;
};

/*
 * Makes all page-table entries of the region's mapping. Without the call first accesses make them,
 * by one fault per 2 MiB. EINVAL if the region is not mapped, is revoked, or if a page cannot have
 * an entry (userfaultfd).
 */
struct gdrdrv_ioc_populate {
	__u64 handle;
};

struct gdrdrv_ioc_get_version {
	__u32 gdrdrv_version; /* out: (major << 16) | minor */
	__u32 minimum_gdr_api_version; /* out */
};

/*
 * Several numbers encode the size of a pointer instead of that of the structure. The interface is
 * frozen so, and they are written with a 64-bit integer in its place; 32-bit programs are not
 * served. Numbers from 17 to 254 are extensions of this driver; earlier drivers return ENOTTY.
 * Number 16 and attribute 16 had a meaning once and get no other.
 */
#define GDRDRV_IOC_MAGIC	    0xDA
#define GDRDRV_IOC_PIN_BUFFER	    _IOWR(GDRDRV_IOC_MAGIC, 1, struct gdrdrv_ioc_pin_buffer)
#define GDRDRV_IOC_UNPIN_BUFFER	    _IOWR(GDRDRV_IOC_MAGIC, 2, __u64)
#define GDRDRV_IOC_GET_CB_FLAG	    _IOWR(GDRDRV_IOC_MAGIC, 3, __u64)
#define GDRDRV_IOC_GET_INFO	    _IOWR(GDRDRV_IOC_MAGIC, 4, __u64)
#define GDRDRV_IOC_GET_INFO_V2	    _IOWR(GDRDRV_IOC_MAGIC, 5, __u64)
#define GDRDRV_IOC_GET_ATTR	    _IOWR(GDRDRV_IOC_MAGIC, 6, __u64)
#define GDRDRV_IOC_PIN_BUFFER_V2    _IOWR(GDRDRV_IOC_MAGIC, 7, struct gdrdrv_ioc_pin_buffer_v2)
#define GDRDRV_IOC_REQ_MAPPING_TYPE _IOWR(GDRDRV_IOC_MAGIC, 8, __u64)
#define GDRDRV_IOC_POPULATE	    _IOWR(GDRDRV_IOC_MAGIC, 17, struct gdrdrv_ioc_populate)
#define GDRDRV_IOC_GET_VERSION	    _IOWR(GDRDRV_IOC_MAGIC, 255, __u64)

#endif
