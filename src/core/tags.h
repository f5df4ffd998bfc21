/* SPDX-License-Identifier: MIT */
/* The tags of a region, as region.c uses them. It knows nothing of pins and maps. */
#ifndef GDRI_TAGS_H
#define GDRI_TAGS_H

#include "core/region.h"

/* Tags every allocation in [low, high): 0 or -errno. Bytes of none are left out. */
int gdri_tags_take(struct gdri_region *region);

/* Do all of them hold still? */
bool gdri_tags_hold(const struct gdri_region *region);

void gdri_tags_free(struct gdri_region *region);

#endif
