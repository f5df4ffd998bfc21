/* SPDX-License-Identifier: MIT */
/*
 * GPU memory that is allocated, pinned and mapped through libgdrapi, ready to be copied to. It
 * chooses a kind of memory that can be served here. It must not know what the copies are for.
 */
#ifndef PERF_BUFFER_H
#define PERF_BUFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "alloc.h"
#include "barcopy.h"

/*
 * The first kind of mem_kind_name that can be pinned and mapped as asked. Host memory is none of
 * them, except on an integrated GPU, which has no other: a tool that was asked for nothing must not
 * report on the CPU's own memory as if a GPU had been reached.
 */
#define ALLOC_ANY (-1)

struct buffer {
	gdr_t g;
	gdr_mh_t mh;
	gdr_info_t info; /* while mapped */
	struct gpu_mem mem;
	void *map; /* what gdr_map_v2() gave; NULL after buffer_unpin() */
	size_t map_size;
	uint8_t *cpu; /* the CPU's pointer to mem.dptr */
	uint64_t backend; /* barcopy_backend_t; 0 if not known */
	const char *place; /* where the bytes lie, in words: "GPU memory" */
	int sync_memops; /* 1, 0, or -1 if not known */
	char note[2048]; /* why kinds before mem.kind were passed over; "" if none was */
};

/*
 * Opens libgdrapi and makes a buffer of `size` bytes on a started device. `kind` is a mem_kind or
 * ALLOC_ANY, `map_flags` a gdr_map_flags_t. Whatever cannot be done ends the tool with exit 2, so
 * that 0 and 1 always speak of memory that was reached.
 */
void buffer_open(struct buffer *b, const struct gpu *gpu, int kind, size_t size, int map_flags);
void buffer_close(struct buffer *b);

/* The steps of it, for tools that make several buffers on one gdr_t. */
gdr_t buffer_open_library(void);
int buffer_make(struct buffer *b, gdr_t g, const struct gpu *gpu, enum mem_kind kind, size_t size,
		int map_flags, char *why, size_t why_size);
void buffer_unmake(struct buffer *b);

/* Unmaps and unpins only: for tools that pin the memory themselves from then on. */
void buffer_unpin(struct buffer *b);

/* The library's words for this thread's last failure, or those for its errno. */
const char *lib_error_text(int error);

/* "rm", "Write Combining" */
const char *buffer_backend_name(const struct buffer *b);
const char *buffer_mapping_name(const struct buffer *b);

#endif
