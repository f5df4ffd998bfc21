/* SPDX-License-Identifier: MIT */
/* Memory that the library allocates or imports, pinned and mapped: a region with one handle. */
#ifndef GDRI_MEM_H
#define GDRI_MEM_H

#include "core/ctx.h"
#include "core/region.h"

extern const struct gdri_region_kind gdri_kind_mem;

/* A flag of gdri_mem_alloc(): the allocation outlives its handle, for a later one of that size. */
#define GDRI_MEM_STAYS (1u << 31)

/*
 * See barcopy_mem_alloc() and the others; the caller has validated the flags. 0 or -errno.
 * If *allocated, memory was allocated, and a failure is the pin's or the map's.
 */
int gdri_mem_alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags,
		   barcopy_mem_t *mem, bool *allocated);
int gdri_mem_import(struct gdri_ctx *ctx, const struct gdri_imported *imported, size_t size,
		    barcopy_mem_t *mem);
int gdri_mem_export(gdr_t g, gdr_mh_t h, int *fd);

#endif
