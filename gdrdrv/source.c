// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Which sources of pages are built in, and which serves a request.
 *
 * Must not know what a source does.
 */
#include "gdrdrv.h"

/* The one that GET_ATTR and /proc speak of comes first. */
static const struct gdrdrv_source_ops *const gdrdrv_sources[] = {
#ifdef GDRDRV_SOURCE_P2P
	&gdrdrv_p2p,
#endif
#ifdef GDRDRV_SOURCE_DMABUF
	&gdrdrv_dmabuf,
#endif
};

static int gdrdrv_use_persistent_mapping = 1;
module_param_named(use_persistent_mapping, gdrdrv_use_persistent_mapping, int, 0444);
MODULE_PARM_DESC(use_persistent_mapping,
		 "pin persistently where the GPU driver can (default 1); 0: free callbacks");

/* NULL: not built in. */
const struct gdrdrv_source_ops *gdrdrv_source_for(enum gdrdrv_by by)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(gdrdrv_sources); i++)
		if (gdrdrv_sources[i]->by == by)
			return gdrdrv_sources[i];
	return NULL;
}

const struct gdrdrv_source_ops *gdrdrv_source_first(void)
{
	return gdrdrv_sources[0];
}

/* Whether it is to pin persistently where it can. One that has no callbacks always does. */
bool gdrdrv_source_is_persistent(const struct gdrdrv_source_ops *src)
{
	return src->has_persistent && (gdrdrv_use_persistent_mapping || !src->has_callback);
}

/* For the log. */
const char *gdrdrv_source_names(void)
{
	return ARRAY_SIZE(gdrdrv_sources) > 1 ? "nvidia-p2p and dma-buf" : gdrdrv_sources[0]->name;
}
