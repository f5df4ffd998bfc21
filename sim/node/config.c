/* SPDX-License-Identifier: MIT */
/* The configuration of the node's stand-in: its environment, and the calls that fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"
#include "machine.h"
#include "rules.h"

static struct rules rules;

void gdrsim_node_fail(const char *spec)
{
	rules_set(&rules, spec);
}

unsigned long gdrsim_node_calls(const char *name)
{
	return rules_calls(&rules, name).since;
}

int node_fault(const char *name)
{
	return rules_call(&rules, name, NULL);
}

static uint32_t level_of(const char *name, const char *absent)
{
	unsigned int major = 0, minor = 0;

	if (sscanf(sim_text(name, absent), "%u.%u", &major, &minor) != 2)
		abort();
	return major << 16 | minor;
}

/* By default it exists if the library is preloaded under its own name. */
int node_presence(void)
{
	const char *preload = getenv("LD_PRELOAD");
	const char *absent = preload && strstr(preload, "libnvidia_node.so") &&
					     !strstr(preload, "libgdrdrv_node.so")
				     ? "absent"
				     : "present";

	return sim_presence("GDRSIM_NODE", absent);
}

void node_config_read(struct node_config *c)
{
	c->level = level_of("GDRSIM_NODE_LEVEL", "2.6");
	c->min_api = level_of("GDRSIM_NODE_MIN_API", "2.0");
	c->persistent = atoi(sim_text("GDRSIM_NODE_PERSISTENT", "1"));
	c->populate = atoi(sim_text("GDRSIM_NODE_POPULATE", "1"));
	c->pcie = atoi(sim_text("GDRSIM_NODE_PCIE", "0"));
	c->device = atoi(sim_text("GDRSIM_NODE_DEVICE", "0"));
	c->type = (uint32_t)atoi(sim_text("GDRSIM_NODE_TYPE", "1"));
	c->first_handle = strtoull(sim_text("GDRSIM_NODE_HANDLE", "1"), NULL, 0);
	c->skew = strtoll(sim_text("GDRSIM_NODE_SKEW", "0"), NULL, 0);
	c->skew_size = strtoll(sim_text("GDRSIM_NODE_SKEW_SIZE", "0"), NULL, 0);
}
