/* SPDX-License-Identifier: MIT */
/* barcopy_map_range(): handles of parts of regions, which all ranges of a context share. */
#ifndef GDRI_RANGE_H
#define GDRI_RANGE_H

#include "barcopy.h"

struct gdri_ctx;

/* See barcopy_map_range(); the range has been checked. Returns 0 or -errno. */
int gdri_range_map(struct gdri_ctx *ctx, gdr_t g, uint64_t addr, size_t size, uint32_t flags,
		   void **cpu_ptr, gdr_mh_t *handle);

/* 0, or -EINVAL where the handle is not one of gdri_range_map(). */
int gdri_range_unmap(struct gdri_ctx *ctx, gdr_mh_t handle);

/* Checks [addr, addr + size): 0, -EINVAL or -EOVERFLOW. */
int gdri_range_check(uint64_t addr, size_t size);

#endif
