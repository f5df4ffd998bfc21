// SPDX-License-Identifier: MIT
/* See rm.h. */
#include "common/rm.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/preload.h"
#include "common/standin.h"

struct rm_hooks rm_sim;

#define FIND(hook, name) test_find(&(hook), name, "libnvidia_node.so")

void rm_start(char **argv)
{
	test_preload(argv, "libnvidia_node.so");
	FIND(rm_sim.faults, "gdrsim_rm_fail");
	FIND(rm_sim.fail_nth, "gdrsim_rm_fail_nth");
	FIND(rm_sim.failed, "gdrsim_rm_failed");
	FIND(rm_sim.calls, "gdrsim_rm_calls");
	FIND(rm_sim.counts, "gdrsim_rm_counts");
	FIND(rm_sim.bar1_used, "gdrsim_rm_bar1_used");
	FIND(rm_sim.stale, "gdrsim_rm_stale");
}

void rm_assert_bar1(int gpu, uint64_t bytes)
{
	uint64_t used = rm_sim.bar1_used(gpu);

	ck_assert_uint_le(used, bytes);
	if (standin_bar1_counts())
		ck_assert_uint_eq(used, bytes);
}

void rm_assert_nothing_left(void)
{
	struct gdrsim_rm_counts c;

	rm_sim.counts(&c);
	ck_assert_msg(
		!c.ctl_files && !c.device_files && !c.clients && !c.devices && !c.memories &&
			!c.maps && !c.vmas && !c.dmabufs,
		"left: %u control files, %u device files, %u clients, %u devices, %u memories, "
		"%u maps, %u vmas, %u dma-bufs",
		c.ctl_files, c.device_files, c.clients, c.devices, c.memories, c.maps, c.vmas,
		c.dmabufs);
}
