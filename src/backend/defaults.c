/* SPDX-License-Identifier: MIT */
/* What backends share: the operations of one that has nothing of its own, and the types' names. */
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

void gdri_default_close(void *state)
{
	(void)state;
}

int gdri_default_driver_version(void *state, int *major, int *minor)
{
	(void)state;
	*major = GDR_API_MAJOR_VERSION;
	*minor = GDR_API_MINOR_VERSION;
	return 0;
}

int gdri_default_callback_flag(struct gdri_pin *pin, int *flag)
{
	(void)pin;
	*flag = 0;
	return 0;
}

int gdri_default_event_fd(void *state, int *fd)
{
	(void)state;
	(void)fd;
	return gdri_fail(ENOTSUP, "no range is ever revoked");
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
