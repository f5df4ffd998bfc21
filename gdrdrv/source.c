// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The sources of pages that are built in, and the parameter that chooses the kind of pin.
 */
#include "gdrdrv.h"

/* GET_ATTR and /proc report on the first one. */
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

/* Returns the source for this kind of name, or NULL if none is built in. */
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

/* Whether the source shall make persistent pins. A source without callbacks has no other kind. */
bool gdrdrv_source_is_persistent(const struct gdrdrv_source_ops *src)
{
	return src->has_persistent && (gdrdrv_use_persistent_mapping || !src->has_callback);
}

/* Names of all sources, for the log. */
const char *gdrdrv_source_names(void)
{
	return ARRAY_SIZE(gdrdrv_sources) > 1 ? "nvidia-p2p and dma-buf" : gdrdrv_sources[0]->name;
}
