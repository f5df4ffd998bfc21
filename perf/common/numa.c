/* SPDX-License-Identifier: MIT */
/* The GPU's NUMA node; see numa.h. It must not know CUDA. */
#include "numa.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The part of libnuma in use; loaded at run time so that the tools build and run without it. */
struct numa_dl {
	int (*available)(void);
	int (*run_on_node)(int node);
	void (*set_preferred)(int node);
};

static bool load(struct numa_dl *n)
{
	void *lib = dlopen("libnuma.so.1", RTLD_NOW | RTLD_LOCAL), *p;

	if (!lib)
		return false;
#define LOOK_UP(call)                            \
	do {                                     \
		p = dlsym(lib, "numa_" #call);   \
		if (!p)                          \
			return false;            \
		memcpy(&n->call, &p, sizeof(p)); \
	} while (0)
	LOOK_UP(available);
	LOOK_UP(run_on_node);
	LOOK_UP(set_preferred);
	return true;
}

static int node_of(const char *pci)
{
	char path[128];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	f = *pci ? fopen(path, "re") : NULL;
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

void numa_follow(struct numa *numa, const char *pci, bool bind)
{
	struct numa_dl dl;

	*numa = (struct numa){ .node = node_of(pci) };
	if (!bind)
		numa->why_not = "--no-numa";
	else if (numa->node < 0)
		numa->why_not = "the system does not report the GPU's node";
	else if (!load(&dl))
		numa->why_not = "libnuma.so.1 is not installed";
	else if (dl.available() < 0)
		numa->why_not = "the kernel has no NUMA support";
	else if (dl.run_on_node(numa->node))
		numa->why_not = "this process may not run on the GPU's node";
	if (numa->why_not)
		return;
	dl.set_preferred(numa->node);
	numa->bound = true;
}
