// SPDX-License-Identifier: MIT
/* What was found, by name; see probe.h. */
#include "doctor/probe.h"

#include <string.h>

const struct probe_node *probes_node(const struct probes *p, const char *path)
{
	for (int i = 0; i < p->nodes; i++)
		if (!strcmp(p->node[i].path, path))
			return &p->node[i];
	return NULL;
}

const struct probe_library *probes_library(const struct probes *p, const char *name)
{
	for (int i = 0; i < p->libraries; i++)
		if (!strcmp(p->library[i].name, name))
			return &p->library[i];
	return NULL;
}
