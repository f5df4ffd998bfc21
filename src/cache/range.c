/* SPDX-License-Identifier: MIT */
/* barcopy_map_range(): handles of parts of regions, which all ranges of a context share. */
#include "cache/cache.h"

#include "core/ctx.h"
#include "core/handle.h"

_Static_assert((BARCOPY_MAP_RANGE_READ_ONLY | BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS) < 4,
	       "ctx->ranges has room for every combination of flags");

/* The cache of the context's ranges with these flags, which ends with the context. */
static int ranges_of(struct gdri_ctx *ctx, uint32_t flags, struct gdri_cache **out)
{
	uint32_t of_regions = 0;
	int rc = 0;

	if (flags & BARCOPY_MAP_RANGE_READ_ONLY)
		of_regions |= GDRI_REGION_READ_ONLY;
	if (flags & BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS)
		of_regions |= GDRI_REGION_NO_SYNC;

	pthread_mutex_lock(&ctx->ranges_lock);
	if (!ctx->ranges[flags])
		rc = gdri_cache_new(ctx, NULL, of_regions, &ctx->ranges[flags]);
	*out = ctx->ranges[flags];
	pthread_mutex_unlock(&ctx->ranges_lock);
	return rc;
}

int gdri_range_map(struct gdri_ctx *ctx, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		   gdr_mh_t *handle)
{
	struct gdri_cache *ranges;
	struct gdri_entry *e;
	void *cpu;
	int rc = ranges_of(ctx, flags, &ranges);

	if (rc)
		return rc;
	e = gdri_cache_hit(ranges, addr, size);
	if (e && gdri_range_declines(e, addr, size)) {
		(void)gdri_cache_unuse(ranges, e);
		e = NULL;
	}
	if (!e)
		rc = gdri_cache_miss(ranges, addr, size, &e);
	if (rc)
		return rc;
	cpu = gdri_region_pointer(&e->region, addr);
	rc = gdri_handle_new(ctx, &e->region, addr, addr + size, handle);
	if (rc)
		(void)gdri_cache_unuse(ranges, e);
	else
		*cpu_ptr = cpu;
	return rc;
}
