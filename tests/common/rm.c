// SPDX-License-Identifier: MIT
/* See rm.h. */
#include "common/rm.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/preload.h"

struct rm_hooks rm_sim;

static void find(void *slot, const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	if (!symbol) {
		fprintf(stderr, "no %s: GDRSIM_DIR must name the directory of libnvidia_node.so\n",
			name);
		exit(1);
	}
	memcpy(slot, &symbol, sizeof(symbol));
}

void rm_start(char **argv)
{
	test_preload(argv, "libnvidia_node.so");
	find(&rm_sim.faults, "gdrsim_rm_fail");
	find(&rm_sim.fail_nth, "gdrsim_rm_fail_nth");
	find(&rm_sim.failed, "gdrsim_rm_failed");
	find(&rm_sim.calls, "gdrsim_rm_calls");
	find(&rm_sim.counts, "gdrsim_rm_counts");
	find(&rm_sim.bar1_used, "gdrsim_rm_bar1_used");
	find(&rm_sim.stale, "gdrsim_rm_stale");
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
