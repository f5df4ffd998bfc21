// SPDX-License-Identifier: MIT
/* See copies.h. */
#include "copies.h"

#include <string.h>

#include "common/exit.h"

void copies_must(int rc, const char *call)
{
	if (rc)
		tool_fail("%s: %s: %s", call, strerror(rc), barcopy_last_error());
}

void copies_from(const struct copies *c, void *host, const void *map, size_t size)
{
	if (c->handle.h)
		copies_must(gdr_copy_from_mapping(c->handle, host, map, size),
			    "gdr_copy_from_mapping");
	else
		gdri_copy_from(&c->plan, host, map, size);
}

void copies_to(const struct copies *c, void *map, const void *host, size_t size)
{
	if (c->handle.h)
		copies_must(gdr_copy_to_mapping(c->handle, map, host, size), "gdr_copy_to_mapping");
	else
		gdri_copy_to(&c->plan, map, host, size);
}

void copies_v_from(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count)
{
	if (c->handle.h)
		copies_must(barcopy_copyv_from_mapping(c->handle, seg, count, 0),
			    "barcopy_copyv_from_mapping");
	else
		gdri_copyv_from(&c->plan, seg, count, sizeof(*seg), 0);
}

void copies_v_to(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count)
{
	if (c->handle.h)
		copies_must(barcopy_copyv_to_mapping(c->handle, seg, count, 0),
			    "barcopy_copyv_to_mapping");
	else
		gdri_copyv_to(&c->plan, seg, count, sizeof(*seg), 0);
}

uint32_t copies_get(const struct copies *c, const void *map)
{
	uint32_t value;

	if (!c->handle.h)
		return gdri_get32(&c->plan, map);
	copies_must(barcopy_get32(c->handle, map, &value), "barcopy_get32");
	return value;
}

void copies_post(const struct copies *c, void *map, uint32_t value)
{
	if (c->handle.h)
		copies_must(barcopy_post32(c->handle, map, value), "barcopy_post32");
	else
		gdri_post32(&c->plan, map, value);
}

void copies_line(const struct copies *c, void *map, const void *line)
{
	if (c->handle.h)
		copies_must(barcopy_post_line(c->handle, map, line), "barcopy_post_line");
	else
		gdri_post_line(&c->plan, map, line);
}
