/* SPDX-License-Identifier: MIT */
/*
 * The interface as NCCL declares it for itself, and TensorRT-LLM after it: eleven symbols of the
 * unversioned name, the version calls as returning nothing, the first info struct.
 */
#ifndef CONTRACT_NCCL_H
#define CONTRACT_NCCL_H

#include "contract.h"

#define GPU_PAGE ((size_t)65536)

struct gdr;
typedef struct gdr *gdr_t;
typedef struct gdr_mh_s {
	unsigned long h;
} gdr_mh_t;

struct gdr_info {
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
};

static struct {
	gdr_t (*open)(void);
	int (*close)(gdr_t);
	int (*pin_buffer)(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *);
	int (*unpin_buffer)(gdr_t, gdr_mh_t);
	int (*get_info)(gdr_t, gdr_mh_t, struct gdr_info *);
	int (*map)(gdr_t, gdr_mh_t, void **, size_t);
	int (*unmap)(gdr_t, gdr_mh_t, void *, size_t);
	void (*runtime_get_version)(int *, int *);
	void (*driver_get_version)(gdr_t, int *, int *);
	int (*copy_to_mapping)(gdr_mh_t, void *, const void *, size_t);
	int (*copy_from_mapping)(gdr_mh_t, void *, const void *, size_t);
} f;

static void load(void)
{
	void *lib = contract_load("libgdrapi.so", RTLD_NOW);

	LOAD_SYMBOL(open)
	LOAD_SYMBOL(close)
	LOAD_SYMBOL(pin_buffer)
	LOAD_SYMBOL(unpin_buffer)
	LOAD_SYMBOL(get_info)
	LOAD_SYMBOL(map)
	LOAD_SYMBOL(unmap)
	LOAD_SYMBOL(runtime_get_version)
	LOAD_SYMBOL(driver_get_version)
	LOAD_SYMBOL(copy_to_mapping)
	LOAD_SYMBOL(copy_from_mapping)
}

#endif
