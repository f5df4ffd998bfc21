/* SPDX-License-Identifier: MIT */
/* GPU memory, allocated, pinned and mapped through libgdrapi, of a kind that can be served here. */
#ifndef PERF_BUFFER_H
#define PERF_BUFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda.h"
#include "barcopy.h"

/*
 * What a tool takes without -a, so that its exit status says whether programs work here: memory of
 * cuMemAlloc through gdr_open(). On an integrated GPU, where gdr_open() fails by design, the first
 * kind of mem_kind_name that can be pinned and mapped.
 */
#define ALLOC_ANY (-1)

struct buffer {
	gdr_t g;
	gdr_mh_t mh;
	gdr_info_t info; /* while mapped */
	struct gpu_mem mem;
	void *map; /* of gdr_map_v2(); NULL after buffer_unpin() */
	size_t map_size;
	uint8_t *cpu; /* the CPU's pointer to mem.dptr */
	uint64_t backend; /* barcopy_backend_t; 0 if not known */
	const char *place; /* where the bytes lie, in words: "GPU memory" */
	int sync_memops; /* 1, 0, or -1 if not known */
	char note[2048]; /* why the kinds before mem.kind were not used; "" if it is the first */
};

/*
 * Opens libgdrapi and makes a buffer on a started device. `kind` may be ALLOC_ANY. Every failure
 * ends the tool with exit 2: 0 and 1 always mean that memory was reached.
 */
void buffer_open(struct buffer *b, const struct gpu *gpu, int kind, size_t size, int map_flags);
void buffer_close(struct buffer *b);

/* Its steps, for tools that make several buffers on one gdr_t. */
gdr_t buffer_open_library(void);
int buffer_make(struct buffer *b, gdr_t g, const struct gpu *gpu, enum mem_kind kind, size_t size,
		int map_flags, char *why, size_t why_size);
void buffer_unmake(struct buffer *b);

/* Pins and maps b->mem through b->g. 0, or the errno with "pin: CAUSE" or "map: CAUSE" in `why`. */
int buffer_pin(struct buffer *b, uint32_t pin_flags, int map_flags, char *why, size_t why_size);
/* Unmaps and unpins only: for tools that pin the memory themselves from then on. */
void buffer_unpin(struct buffer *b);

/* The library's text for this thread's last failure; without one, the text of the errno. */
const char *lib_error_text(int error);

/* Ends the tool with exit 1 if a call that must work failed. */
void lib_must(int error, const char *call);

/* "rm", "Write Combining" */
const char *backend_name(uint64_t backend);
const char *mapping_name(gdr_mapping_type_t type);

#endif
