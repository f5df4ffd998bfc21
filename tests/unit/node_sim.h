/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the gdrdrv backend share: the stand-in of the node, preloaded, and its hooks;
 * memory for each test, and its context on the node.
 */
#ifndef UNIT_NODE_SIM_H
#define UNIT_NODE_SIM_H

#include "common/preload.h"
#include "common/resources.h"
#include "fixture.h"
#include "sim/node/gdrsim_node.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* The hooks of gdrsim_node.h; `faults` is gdrsim_node_fail. */
FIXTURE struct {
	__typeof__(&gdrsim_node_fail) faults;
	__typeof__(&gdrsim_node_calls) calls;
	__typeof__(&gdrsim_node_pins) pins;
	__typeof__(&gdrsim_node_maps) maps;
} node;

FIXTURE uint64_t base; /* 4 MiB of cudaMalloc */

/* For unit_before: CUDA started, the node as by default, no context yet. */
FIXTURE void node_before(void)
{
	standin_start();
	node.faults(NULL);
	base = standin_alloc(4 * MIB);
}

/* For unit_after: the context is closed, and the node has nothing left of it. */
FIXTURE void node_after(void)
{
	end();
	ck_assert_uint_eq(node.pins(), 0);
	ck_assert_uint_eq(node.maps(), 0);
}

/* For main: this program with the stand-in of the node preloaded, which lies in GDRSIM_DIR. */
FIXTURE void node_start(char **argv)
{
	setenv("GDRSIM_RM", "absent", 0); /* this driver alone, unless the test says otherwise */
	test_preload(argv, "libgdrdrv_node.so");
#define FIND(hook) test_find(&node.hook, "gdrsim_node_" #hook, "libgdrdrv_node.so")
	test_find(&node.faults, "gdrsim_node_fail", "libgdrdrv_node.so");
	FIND(calls);
	FIND(pins);
	FIND(maps);
#undef FIND
	unit_before = node_before;
	unit_after = node_after;
}

/* Sets a variable; NULL removes it. */
FIXTURE void node_env(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* Closes the test's context and opens one on a node of that level, persistent "0" or "1". */
FIXTURE void node_open(const char *level, const char *persistent)
{
	end();
	node_env("GDRSIM_NODE_LEVEL", level);
	node_env("GDRSIM_NODE_PERSISTENT", persistent);
	g = gdr_open();
	ck_assert_msg(g != NULL, "level %s: %s", level, barcopy_last_error());
}

/* The same without any other backend, whose reason could stand in the place of this one's. */
FIXTURE void node_open_alone(const char *level, const char *persistent)
{
	node_env("GDRCOPY_BACKEND", "gdrdrv");
	node_open(level, persistent);
}

/* gdr_open() fails so, and leaves no descriptor. */
FIXTURE void node_refuses(int err, const char *text)
{
	int fds = resources_fds();

	FAILS_WITH(err, text, ERRNO_OF(gdr_open()));
	ck_assert_int_eq(resources_fds(), fds);
}

FIXTURE int attribute(gdr_attr_t which)
{
	int value = -1;

	OK(gdr_get_attribute(g, which, &value));
	return value;
}

FIXTURE void node_check_info(gdr_mh_t h, uint64_t addr, size_t size, bool mapped)
{
	gdr_info_t info;

	OK(gdr_get_info(g, h, &info));
	ck_assert_uint_eq(info.va, addr & GPU_PAGE_MASK);
	ck_assert_uint_eq(info.mapped_size,
			  ((addr + size + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - info.va);
	ck_assert_uint_eq(info.page_size, GPU_PAGE_SIZE);
	ck_assert_uint_eq(info.tm_cycles, 1000);
	ck_assert_uint_eq(info.cycles_per_ms, 2000000);
	ck_assert_uint_eq(info.mapped, mapped);
	ck_assert_uint_eq(info.wc_mapping, mapped);
	ck_assert_int_eq(info.mapping_type, mapped ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_NONE);
}

/* A whole life of 5000 bytes that begin before the end of a GPU page and end behind it. */
FIXTURE void node_use_range(void)
{
	static char in[5000], out[5000];
	uint64_t addr = base + GPU_PAGE_SIZE - 100;
	size_t size = sizeof(in);
	gdr_mh_t h;
	void *map;
	char *p;

	for (size_t i = 0; i < size; i++)
		in[i] = (char)(i * 7 + 3);
	standin_to_gpu(addr, in, size);
	OK(gdr_pin_buffer(g, addr, size, 0, 0, &h));
	node_check_info(h, addr, size, false);
	HANDLE_HAS(g, h, BACKEND, BARCOPY_BACKEND_GDRDRV);
	OK(gdr_map(g, h, &map, 2 * GPU_PAGE_SIZE));
	node_check_info(h, addr, size, true);
	p = (char *)map + (addr & GPU_PAGE_OFFSET);
	OK(gdr_copy_from_mapping(h, out, p, size));
	ck_assert_mem_eq(in, out, size);
	memset(in, 0x5a, size);
	OK(gdr_copy_to_mapping(h, p, in, size));
	CU(cuda.cuMemcpyDtoH_v2(out, addr, size));
	ck_assert_mem_eq(in, out, size);
	OK(gdr_unmap(g, h, map, 2 * GPU_PAGE_SIZE));
	OK(gdr_map(g, h, &map, 1));
	OK(gdr_unpin_buffer(g, h));
	ck_assert_uint_eq(node.pins(), 0);
	ck_assert_uint_eq(node.maps(), 0);
}

#endif
