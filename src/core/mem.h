/* SPDX-License-Identifier: MIT */
/*
 * barcopy_mem_alloc(): memory that is allocated so that it can be mapped here, and mapped. It knows
 * nothing of other ranges or of the cache.
 */
#ifndef GDRI_MEM_H
#define GDRI_MEM_H

#include "barcopy.h"

struct gdri_ctx;
struct gdri_imported;

/* See barcopy_mem_alloc(); flags have been checked. All return 0 or -errno. */
int gdri_mem_alloc(struct gdri_ctx *ctx, int device, size_t size, uint32_t flags,
		   barcopy_mem_t *mem);
int gdri_mem_free(struct gdri_ctx *ctx, gdr_mh_t handle);

/* See barcopy_mem_export() and barcopy_mem_import(). */
int gdri_mem_export(struct gdri_ctx *ctx, gdr_mh_t handle, int *fd);
int gdri_mem_import(struct gdri_ctx *ctx, const struct gdri_imported *imported, size_t size,
		    barcopy_mem_t *mem);

#endif
