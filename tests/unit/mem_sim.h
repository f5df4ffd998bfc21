/* SPDX-License-Identifier: MIT */
/*
 * What the tests of memory and cache share: a context, exportable memory, and a check that a CPU
 * pointer and a device address are the same memory.
 */
#ifndef MEM_SIM_H
#define MEM_SIM_H

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/expect.h"
#include "common/standin.h"
#include "common/unit.h"

enum { CHUNK = 2 << 20, PAGE = 65536 };

/* A context of every backend. */
__attribute__((unused)) static gdr_t open_any(void)
{
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	return g;
}

/* Exportable VMM memory of `count` chunks, at `hint` if that is free. */
__attribute__((unused)) static CUdeviceptr vmm_new(CUdeviceptr hint, unsigned int count)
{
	return standin_chunks(hint, 0, count, CHUNK, true);
}

__attribute__((unused)) static void vmm_delete(CUdeviceptr ptr, unsigned int count)
{
	CU(cuda.cuMemUnmap(ptr, (size_t)count * CHUNK));
	CU(cuda.cuMemAddressFree(ptr, (size_t)count * CHUNK));
}

/* cpu must be where the GPU has dptr: a word written on either side is read on the other. */
__attribute__((unused)) static bool same_memory(gdr_mh_t mh, void *cpu, CUdeviceptr dptr)
{
	static _Atomic uint64_t next = 0x1234567800000000;
	uint64_t a = ++next, b = 0, c = ++next, d = 0;

	if (gdr_copy_to_mapping(mh, cpu, &a, 8) || cuda.cuMemcpyDtoH_v2(&b, dptr, 8) || a != b)
		return false;
	return !cuda.cuMemcpyHtoD_v2(dptr, &c, 8) && !gdr_copy_from_mapping(mh, &d, cpu, 8) &&
	       c == d;
}

#endif
