// SPDX-License-Identifier: MIT
/*
 * The layout of /dev/gdrdrv's interface, which installed libraries are compiled against. A
 * difference is a compile error.
 */
#include <assert.h>

#include "gdrdrv_uapi.h"

/* Where a number encodes the size of its structure, the checks of numbers below cover the size. */
#define GDRDRV_ASSERT(cond)		static_assert(cond, #cond)
#define GDRDRV_ASSERT_SIZE(name, bytes) GDRDRV_ASSERT(sizeof(struct gdrdrv_ioc_##name) == (bytes))
#define GDRDRV_ASSERT_AT(name, field, off) \
	GDRDRV_ASSERT(__builtin_offsetof(struct gdrdrv_ioc_##name, field) == (off))

GDRDRV_ASSERT_AT(pin_buffer, va_space, 24);
GDRDRV_ASSERT_AT(pin_buffer, handle, 32);
GDRDRV_ASSERT_SIZE(get_cb_flag, 16);
GDRDRV_ASSERT_AT(get_cb_flag, flag, 8);
GDRDRV_ASSERT_SIZE(get_info, 48);
GDRDRV_ASSERT_AT(get_info, page_size, 24);
GDRDRV_ASSERT_AT(get_info, tsc_khz, 28);
GDRDRV_ASSERT_AT(get_info, tm_cycles, 32);
GDRDRV_ASSERT_AT(get_info, mapped, 40);
GDRDRV_ASSERT_AT(get_info, wc_mapping, 44);
GDRDRV_ASSERT_SIZE(get_info_v2, 48);
GDRDRV_ASSERT_AT(get_info_v2, mapping_type, 40);
GDRDRV_ASSERT_SIZE(get_attr, 8);
GDRDRV_ASSERT_AT(pin_buffer_v2, flags, 16);
GDRDRV_ASSERT_AT(pin_buffer_v2, handle, 24);
GDRDRV_ASSERT_SIZE(req_mapping_type, 16);
GDRDRV_ASSERT_AT(req_mapping_type, mapping_type, 8);
GDRDRV_ASSERT_SIZE(get_version, 8);

GDRDRV_ASSERT(GDRDRV_IOC_PIN_BUFFER == 0xc028da01);
GDRDRV_ASSERT(GDRDRV_IOC_UNPIN_BUFFER == 0xc008da02);
GDRDRV_ASSERT(GDRDRV_IOC_GET_CB_FLAG == 0xc008da03);
GDRDRV_ASSERT(GDRDRV_IOC_GET_INFO == 0xc008da04);
GDRDRV_ASSERT(GDRDRV_IOC_GET_INFO_V2 == 0xc008da05);
GDRDRV_ASSERT(GDRDRV_IOC_GET_ATTR == 0xc008da06);
GDRDRV_ASSERT(GDRDRV_IOC_PIN_BUFFER_V2 == 0xc020da07);
GDRDRV_ASSERT(GDRDRV_IOC_REQ_MAPPING_TYPE == 0xc008da08);
GDRDRV_ASSERT(GDRDRV_IOC_POPULATE == 0xc008da11);
GDRDRV_ASSERT(GDRDRV_IOC_GET_VERSION == 0xc008daff);
