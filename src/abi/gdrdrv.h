/* SPDX-License-Identifier: MIT */
/*
 * The interface of /dev/gdrdrv as this library uses it, declared by us: the ioctls that installed
 * drivers of level 2.0 to 2.6 serve, and those that barcopy's driver adds (from number 16 on).
 *
 * Several numbers carry the size of a pointer where the size of the struct belongs. That is the
 * interface: they are declared with a 64-bit integer. 32-bit programs are not served.
 */
#ifndef GDRI_ABI_GDRDRV_H
#define GDRI_ABI_GDRDRV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#define GDRDRV_NODE "/dev/gdrdrv"

/* A version is (major << 16) | minor. From which one on a driver knows a call: */
#define GDRDRV_LEVEL(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor))
#define GDRDRV_HAS_INFO_V2	   GDRDRV_LEVEL(2, 4)
#define GDRDRV_HAS_ATTR		   GDRDRV_LEVEL(2, 5)
#define GDRDRV_HAS_PIN_V2	   GDRDRV_LEVEL(2, 5)
#define GDRDRV_HAS_MAPPING_TYPE	   GDRDRV_LEVEL(2, 5)

/* The kernel's internal errno for "not supported", which glibc does not name. */
#define GDRDRV_ENOTSUPP 524

struct gdrdrv_pin_buffer {
	uint64_t addr;
	uint64_t size;
	uint64_t p2p_token;
	uint32_t va_space;
	uint32_t pad;
	uint64_t handle; /* out */
};

struct gdrdrv_unpin_buffer {
	uint64_t handle;
};

struct gdrdrv_get_cb_flag {
	uint64_t handle;
	uint32_t flag; /* out */
	uint32_t pad;
};

struct gdrdrv_get_info {
	uint64_t handle;
	uint64_t va; /* out, as all that follows */
	uint64_t mapped_size;
	uint32_t page_size;
	uint32_t tsc_khz;
	uint64_t tm_cycles;
	uint32_t mapped;
	uint32_t wc_mapping;
};

struct gdrdrv_get_info_v2 {
	uint64_t handle;
	uint64_t va; /* out, as all that follows */
	uint64_t mapped_size;
	uint32_t page_size;
	uint32_t tsc_khz;
	uint64_t tm_cycles;
	uint32_t mapping_type; /* values of gdr_mapping_type_t; 0 while not mapped */
	uint32_t pad;
};

struct gdrdrv_get_attr {
	uint32_t attr;
	uint32_t val; /* out */
};

#define GDRDRV_ATTR_USE_PERSISTENT_MAPPING	1
#define GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE 2

struct gdrdrv_pin_buffer_v2 {
	uint64_t addr;
	uint64_t size;
	uint32_t flags;
	uint32_t pad;
	uint64_t handle; /* out */
};

#define GDRDRV_PIN_FLAG_FORCE_PCIE 1

struct gdrdrv_req_mapping_type {
	uint64_t handle;
	uint32_t mapping_type; /* 0 asks for the default again */
	uint32_t pad;
};

/* All entries of the region's mapping at once; ENOTTY where a driver does not know it. */
struct gdrdrv_populate {
	uint64_t handle;
};

struct gdrdrv_get_version {
	uint32_t gdrdrv_version; /* out */
	uint32_t minimum_gdr_api_version; /* out */
};

#define GDRDRV_IOC_PIN_BUFFER	    _IOWR(0xDA, 1, struct gdrdrv_pin_buffer)
#define GDRDRV_IOC_UNPIN_BUFFER	    _IOWR(0xDA, 2, uint64_t)
#define GDRDRV_IOC_GET_CB_FLAG	    _IOWR(0xDA, 3, uint64_t)
#define GDRDRV_IOC_GET_INFO	    _IOWR(0xDA, 4, uint64_t)
#define GDRDRV_IOC_GET_INFO_V2	    _IOWR(0xDA, 5, uint64_t)
#define GDRDRV_IOC_GET_ATTR	    _IOWR(0xDA, 6, uint64_t)
#define GDRDRV_IOC_PIN_BUFFER_V2    _IOWR(0xDA, 7, struct gdrdrv_pin_buffer_v2)
#define GDRDRV_IOC_REQ_MAPPING_TYPE _IOWR(0xDA, 8, uint64_t)
#define GDRDRV_IOC_POPULATE	    _IOWR(0xDA, 17, struct gdrdrv_populate)
#define GDRDRV_IOC_GET_VERSION	    _IOWR(0xDA, 255, uint64_t)

/* A region is mapped by mmap() of the node at offset handle * host page size. */

_Static_assert(offsetof(struct gdrdrv_pin_buffer, va_space) == 24, "PIN_BUFFER va_space");
_Static_assert(offsetof(struct gdrdrv_pin_buffer, handle) == 32, "PIN_BUFFER handle");
_Static_assert(sizeof(struct gdrdrv_unpin_buffer) == 8, "UNPIN_BUFFER");
_Static_assert(sizeof(struct gdrdrv_get_cb_flag) == 16, "GET_CB_FLAG");
_Static_assert(offsetof(struct gdrdrv_get_cb_flag, flag) == 8, "GET_CB_FLAG flag");
_Static_assert(sizeof(struct gdrdrv_get_info) == 48, "GET_INFO");
_Static_assert(offsetof(struct gdrdrv_get_info, page_size) == 24, "GET_INFO page_size");
_Static_assert(offsetof(struct gdrdrv_get_info, tm_cycles) == 32, "GET_INFO tm_cycles");
_Static_assert(offsetof(struct gdrdrv_get_info, wc_mapping) == 44, "GET_INFO wc_mapping");
_Static_assert(sizeof(struct gdrdrv_get_info_v2) == 48, "GET_INFO_V2");
_Static_assert(offsetof(struct gdrdrv_get_info_v2, mapping_type) == 40, "GET_INFO_V2 type");
_Static_assert(sizeof(struct gdrdrv_get_attr) == 8, "GET_ATTR");
_Static_assert(offsetof(struct gdrdrv_pin_buffer_v2, handle) == 24, "PIN_BUFFER_V2 handle");
_Static_assert(sizeof(struct gdrdrv_req_mapping_type) == 16, "REQ_MAPPING_TYPE");
_Static_assert(sizeof(struct gdrdrv_get_version) == 8, "GET_VERSION");

_Static_assert(GDRDRV_IOC_PIN_BUFFER == 0xc028da01, "number of PIN_BUFFER");
_Static_assert(GDRDRV_IOC_UNPIN_BUFFER == 0xc008da02, "number of UNPIN_BUFFER");
_Static_assert(GDRDRV_IOC_GET_CB_FLAG == 0xc008da03, "number of GET_CB_FLAG");
_Static_assert(GDRDRV_IOC_GET_INFO == 0xc008da04, "number of GET_INFO");
_Static_assert(GDRDRV_IOC_GET_INFO_V2 == 0xc008da05, "number of GET_INFO_V2");
_Static_assert(GDRDRV_IOC_GET_ATTR == 0xc008da06, "number of GET_ATTR");
_Static_assert(GDRDRV_IOC_PIN_BUFFER_V2 == 0xc020da07, "number of PIN_BUFFER_V2");
_Static_assert(GDRDRV_IOC_REQ_MAPPING_TYPE == 0xc008da08, "number of REQ_MAPPING_TYPE");
_Static_assert(GDRDRV_IOC_POPULATE == 0xc008da11, "number of POPULATE");
_Static_assert(GDRDRV_IOC_GET_VERSION == 0xc008daff, "number of GET_VERSION");

#endif
