/* SPDX-License-Identifier: MIT */
/* Classes of paths; see paths.h. */
#include <stdio.h>
#include <string.h>

#include "doctor/paths.h"

const char *const path_name[PATH_CLASSES] = { "the same slot", "PCIe switches only",
					      "one CPU's root complex", "the link between CPUs",
					      "not known" };
const char *const path_word[PATH_CLASSES] = { "slot", "switches", "root-complex", "sockets",
					      "unknown" };

/* -1: not known */
static int numa_socket(const struct machine *m, int node)
{
	for (int i = 0; i < m->numa.nodes; i++)
		if (m->numa.node[i] == node)
			return m->numa.socket[i];
	return -1;
}

/* "0000:17:00.0" and "0000:17:00.1" */
static bool same_device(const char *a, const char *b)
{
	size_t n = strlen(a);

	return n > 1 && n == strlen(b) && !strncmp(a, b, n - 1);
}

/* Below different host bridges; several of them belong to one CPU. */
static enum path_class between_bridges(const struct machine *m, const struct pci_dev *a,
				       const struct pci_dev *b)
{
	int sa = numa_socket(m, a->numa), sb = numa_socket(m, b->numa);

	if (a->numa >= 0 && a->numa == b->numa)
		return PATH_ROOT;
	if (sa >= 0 && sb >= 0)
		return sa == sb ? PATH_ROOT : PATH_SOCKETS;
	return m->numa.nodes == 1 ? PATH_ROOT : PATH_UNKNOWN;
}

enum path_class path_between(const struct machine *m, const struct pci_dev *a,
			     const struct pci_dev *b)
{
	int common = 0;

	if (same_device(a->addr, b->addr))
		return PATH_SLOT;
	if (!a->depth || !b->depth)
		return PATH_UNKNOWN;
	while (common < a->depth && common < b->depth &&
	       !strcmp(a->place[common], b->place[common]))
		common++;
	if (!common)
		return between_bridges(m, a, b);
	if (common == 1) /* the host bridge */
		return PATH_ROOT;
	/* A root port leads to one device; what shares more than it shares a switch's port. */
	return common == 2 && a->depth == 3 && b->depth == 3 ? PATH_SLOT : PATH_SWITCH;
}

const char *path_device(const struct pci_dev *d)
{
	static char text[4][96];
	static unsigned int turn;
	char *t = text[turn++ % 4];

	if (d->label[0])
		snprintf(t, sizeof(text[0]), "%s (%s)", d->label, d->addr);
	else
		snprintf(t, sizeof(text[0]), "%s", d->addr);
	return t;
}
