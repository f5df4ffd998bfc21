// SPDX-License-Identifier: MIT
/* The copies under test; see litmus.h. */
#include "litmus.h"

#include <string.h>

#include "common/exit.h"

void copies_must(int rc, const char *call)
{
	if (rc)
		tool_fail("%s: %s: %s", call, strerror(rc), barcopy_last_error());
}

/* The public call, or with a plan the internal one. */
#define EITHER(c, public, internal)                     \
	do {                                            \
		if ((c)->handle.h)                      \
			copies_must((public), #public); \
		else                                    \
			internal;                       \
	} while (0)

void copies_from(const struct copies *c, void *host, const void *map, size_t size)
{
	EITHER(c, gdr_copy_from_mapping(c->handle, host, map, size),
	       gdri_copy_from(&c->plan, host, map, size));
}

void copies_to(const struct copies *c, void *map, const void *host, size_t size)
{
	EITHER(c, gdr_copy_to_mapping(c->handle, map, host, size),
	       gdri_copy_to(&c->plan, map, host, size));
}

void copies_v_from(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count)
{
	EITHER(c, barcopy_copyv_from_mapping(c->handle, seg, count, 0),
	       gdri_copyv_from(&c->plan, seg, count, sizeof(*seg), 0));
}

void copies_v_to(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count)
{
	EITHER(c, barcopy_copyv_to_mapping(c->handle, seg, count, 0),
	       gdri_copyv_to(&c->plan, seg, count, sizeof(*seg), 0));
}

uint32_t copies_get(const struct copies *c, const void *map)
{
	uint32_t value;

	EITHER(c, barcopy_get32(c->handle, map, &value), value = gdri_get32(&c->plan, map));
	return value;
}

void copies_post(const struct copies *c, void *map, uint32_t value)
{
	EITHER(c, barcopy_post32(c->handle, map, value), gdri_post32(&c->plan, map, value));
}

void copies_line(const struct copies *c, void *map, const void *line)
{
	EITHER(c, barcopy_post_line(c->handle, map, line), gdri_post_line(&c->plan, map, line));
}
