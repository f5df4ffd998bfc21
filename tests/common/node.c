// SPDX-License-Identifier: MIT
/* See node.h. */
#include "common/node.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/preload.h"
#include "common/unit.h"

struct node_hooks node;

#define FIND(hook, name) test_find(&(hook), name, "libgdrdrv_node.so")

static void setup(void)
{
	standin_start();
	node.faults(NULL);
}

void node_env(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

gdr_t node_open(const char *level, const char *persistent)
{
	gdr_t g;

	node_env("GDRSIM_NODE_LEVEL", level);
	node_env("GDRSIM_NODE_PERSISTENT", persistent);
	g = gdr_open();
	ck_assert_msg(g != NULL, "level %s: %s", level, barcopy_last_error());
	return g;
}

/* As node_open(), and no other backend's reason covers this one's. */
gdr_t node_open_alone(const char *level, const char *persistent)
{
	node_env("GDRCOPY_BACKEND", "gdrdrv");
	return node_open(level, persistent);
}

static void check_info(gdr_t g, gdr_mh_t h, uint64_t addr, size_t size, bool mapped)
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

/* The whole life of an unaligned range, which spans a GPU page's end. */
void node_use_range(gdr_t g, uint64_t base)
{
	static char in[5000], out[5000];
	uint64_t addr = base + GPU_PAGE_SIZE - 100;
	size_t size = sizeof(in);
	gdr_mh_t h;
	void *map;
	char *p;

	for (size_t i = 0; i < size; i++)
		in[i] = (char)(i * 7 + 3);
	CU(cuda.cuMemcpyHtoD_v2(addr, in, size));
	OK(gdr_pin_buffer(g, addr, size, 0, 0, &h));
	check_info(g, h, addr, size, false);
	HANDLE_HAS(g, h, BACKEND, BARCOPY_BACKEND_GDRDRV);
	OK(gdr_map(g, h, &map, 2 * GPU_PAGE_SIZE));
	check_info(g, h, addr, size, true);
	p = (char *)map + (addr & GPU_PAGE_OFFSET);
	OK(gdr_copy_from_mapping(h, out, p, size));
	ck_assert_mem_eq(in, out, size);
	memset(in, 0x5a, size);
	OK(gdr_copy_to_mapping(h, p, in, size));
	CU(cuda.cuMemcpyDtoH_v2(out, addr, size));
	ck_assert_mem_eq(in, out, size);
	FAILS(EAGAIN, gdr_map(g, h, &map, 1));
	FAILS(EINVAL, gdr_unmap(g, h, (char *)map + 4096, 2 * GPU_PAGE_SIZE));
	OK(gdr_unmap(g, h, map, 2 * GPU_PAGE_SIZE));
	OK(gdr_map(g, h, &map, 1));
	/* The device address stands for the mapping; another one does not. */
	FAILS(EINVAL, gdr_unmap(g, h, (void *)(addr + 2 * GPU_PAGE_SIZE), 1));
	OK(gdr_unmap(g, h, (void *)addr, 1));
	OK(gdr_map(g, h, &map, 1));
	OK(gdr_unpin_buffer(g, h));
	ck_assert_uint_eq(node.pins(), 0);
	ck_assert_uint_eq(node.maps(), 0);
}

void node_start(char **argv)
{
	setenv("GDRSIM_RM", "absent", 0); /* this driver alone, unless the test says otherwise */
	test_preload(argv, "libgdrdrv_node.so");
	FIND(node.faults, "gdrsim_node_fail");
	FIND(node.calls, "gdrsim_node_calls");
	FIND(node.pins, "gdrsim_node_pins");
	FIND(node.maps, "gdrsim_node_maps");
	unit_before = setup;
}
