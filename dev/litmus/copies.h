/* SPDX-License-Identifier: MIT */
/*
 * The copies under test: libgdrapi's public calls on one handle, or a copy plan of this tool's with
 * another implementation or without fences.
 */
#ifndef PERF_LITMUS_COPIES_H
#define PERF_LITMUS_COPIES_H

#include "impls/impls.h"

struct copies {
	gdr_mh_t handle; /* 0: the plan is used */
	struct gdri_copy_plan plan;
};

/* Each ends the tool if the call fails. */
void copies_must(int rc, const char *call);
void copies_from(const struct copies *c, void *host, const void *map, size_t size);
void copies_to(const struct copies *c, void *map, const void *host, size_t size);
void copies_v_from(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count);
void copies_v_to(const struct copies *c, const barcopy_copy_seg_t *seg, size_t count);
uint32_t copies_get(const struct copies *c, const void *map);
void copies_post(const struct copies *c, void *map, uint32_t value);
void copies_line(const struct copies *c, void *map, const void *line);

#endif
