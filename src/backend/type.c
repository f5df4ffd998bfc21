/* SPDX-License-Identifier: MIT */
/* Types of mappings: their names, and whether one that was asked for can be had. */
#include <errno.h>

#include "backend/backend.h"
#include "base/error.h"

const char *gdri_mapping_type_name(gdr_mapping_type_t type)
{
	static const char *const names[] = {
		[GDR_MAPPING_TYPE_NONE] = "None",
		[GDR_MAPPING_TYPE_WC] = "Write Combining",
		[GDR_MAPPING_TYPE_CACHING] = "Caching",
		[GDR_MAPPING_TYPE_DEVICE] = "Device",
	};

	return (int)type < GDR_MAPPING_TYPE_NONE || type >= GDR_MAPPING_TYPE_MAX ? NULL
										 : names[type];
}

int gdri_check_wish(const struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	if (wish == GDR_MAPPING_TYPE_NONE || wish == pin->type)
		return 0;
	return gdri_fail(ENOTSUP,
			 "a mapping of type \"%s\" was asked for, the %s backend has \"%s\"",
			 gdri_mapping_type_name(wish), pin->backend->name,
			 gdri_mapping_type_name(pin->type));
}
