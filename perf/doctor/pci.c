/* SPDX-License-Identifier: MIT */
/* PCI functions; see pci.h. */
#include "doctor/pci.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"

#define DEVICES "/sys/bus/pci/devices"
#define NVIDIA	0x10de

#define MEM_64 0x00100000 /* IORESOURCE_MEM_64, third column of "resource" */

/* "0000:17:00.0", with a domain of 4 to 7 digits */
static bool is_address(const char *name)
{
	size_t colon = strspn(name, "0123456789abcdef");

	return colon >= 4 && colon <= 7 && strlen(name) == colon + 8 && name[colon] == ':' &&
	       name[colon + 3] == ':' && name[colon + 6] == '.' &&
	       strspn(name + colon + 1, "0123456789abcdef") == 2 &&
	       strspn(name + colon + 4, "0123456789abcdef") == 2 && name[colon + 7] >= '0' &&
	       name[colon + 7] <= '7';
}

static const char *in_dir(const char *addr, const char *file)
{
	static char path[ROOT_PATH];

	snprintf(path, sizeof(path), DEVICES "/%s/%s", addr, file);
	return path;
}

static long long number(struct root *root, const char *addr, const char *file, long long otherwise)
{
	long long v;

	return root_number(root, in_dir(addr, file), &v) ? otherwise : v;
}

/* The last component of what a link in the device's directory leads to; "" if there is none. */
static void link_name(struct root *root, const char *addr, const char *file, char *name,
		      size_t size)
{
	char real[ROOT_PATH];

	name[0] = '\0';
	if (!root_real(root, in_dir(addr, file), real, sizeof(real)))
		snprintf(name, size, "%s", strrchr(real, '/') + 1);
}

/* "pci0000:00" and the addresses that follow in "/sys/devices/pci0000:00/0000:00:01.0/..." */
static void find_place(struct pci_dev *d, struct root *root)
{
	char real[ROOT_PATH], *part, *save = NULL;
	bool inside = false;

	if (root_real(root, in_dir(d->addr, ""), real, sizeof(real)))
		return;
	for (part = strtok_r(real, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		if (!strncmp(part, "pci", 3) && part[3] >= '0' && part[3] <= '9') {
			inside = true; /* the last host bridge counts: some hang below another */
			d->depth = 0;
		} else if (!inside || !is_address(part)) {
			continue;
		}
		if (d->depth == PCI_DEPTH || strlen(part) >= sizeof(d->place[0])) {
			d->depth = 0;
			return;
		}
		strcpy(d->place[d->depth++], part);
	}
	if (!d->depth || strcmp(d->place[d->depth - 1], d->addr))
		d->depth = 0;
}

/* The first name with that start in a directory of the device; false if there is none. */
static bool first_in(struct root *root, const char *addr, const char *dir, const char *start,
		     char *name, size_t size)
{
	struct root_names names;
	bool found = false;

	if (root_list(root, in_dir(addr, dir), &names))
		return false;
	for (size_t i = 0; i < names.count && !found; i++) {
		found = !strncmp(names.name[i], start, strlen(start));
		if (found)
			snprintf(name, size, "%.63s", names.name[i]);
	}
	root_names_free(&names);
	return found;
}

static void find_label(struct pci_dev *d, struct root *root)
{
	static const char *const where[] = { "infiniband", "net", "nvme" };
	char virtio[64], dir[80];

	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++)
		if (first_in(root, d->addr, where[i], "", d->label, sizeof(d->label)))
			return;
	if (!first_in(root, d->addr, "", "virtio", virtio, sizeof(virtio)))
		return;
	snprintf(dir, sizeof(dir), "%s/net", virtio);
	first_in(root, d->addr, dir, "", d->label, sizeof(d->label));
}

static void read_bars(struct pci_dev *d, struct root *root)
{
	char text[2048], *line, *save = NULL;
	int i = 0;

	if (root_text(root, in_dir(d->addr, "resource"), text, sizeof(text)))
		return;
	for (line = strtok_r(text, "\n", &save); line && i < 6;
	     line = strtok_r(NULL, "\n", &save), i++)
		if (sscanf(line, "%llx %llx %llx", &d->bar_start[i], &d->bar_end[i],
			   &d->bar_flags[i]) != 3 ||
		    d->bar_end[i] < d->bar_start[i])
			d->bar_start[i] = d->bar_end[i] = d->bar_flags[i] = 0;
}

static void read_config(struct pci_dev *d, struct root *root)
{
	d->config = tool_calloc(PCI_CONFIG, 1);
	d->config_size = (int)root_read(root, in_dir(d->addr, "config"), d->config, PCI_CONFIG);
}

/* False if it is none of those that matter. */
static bool classify(struct pci_dev *d)
{
	switch (d->class >> 8) {
	case 0x0300: /* VGA controller */
	case 0x0302: /* 3D controller */
	case 0x0380: /* other display controller */
		d->kind = PCI_GPU;
		return d->vendor == NVIDIA;
	case 0x0108: /* non-volatile memory controller */
		d->kind = PCI_NVME;
		return true;
	case 0x0604: /* PCI-to-PCI bridge */
		d->kind = PCI_BRIDGE;
		return true;
	default:
		d->kind = PCI_NIC;
		return d->class >> 16 == 0x02; /* network controller; 0207: InfiniBand */
	}
}

static bool look_at(struct pci_dev *d, struct root *root, const char *addr)
{
	char group[16];

	*d = (struct pci_dev){ .group = -1, .numa = -1 };
	snprintf(d->addr, sizeof(d->addr), "%s", addr);
	d->class = (uint32_t)number(root, addr, "class", 0) & 0xffffff;
	d->vendor = (uint16_t)number(root, addr, "vendor", 0);
	d->device = (uint16_t)number(root, addr, "device", 0);
	if (!classify(d))
		return false;
	find_place(d, root);
	read_config(d, root);
	if (d->kind == PCI_BRIDGE)
		return true;
	d->numa = (int)number(root, addr, "numa_node", -1);
	d->virtual = root_exists(root, in_dir(addr, "physfn"));
	link_name(root, addr, "driver", d->driver, sizeof(d->driver));
	link_name(root, addr, "iommu_group", group, sizeof(group));
	if (group[0] >= '0' && group[0] <= '9')
		d->group = atoi(group);
	find_label(d, root);
	read_bars(d, root);
	return true;
}

void pci_collect(struct pci *pci, struct root *root)
{
	struct root_names names;

	*pci = (struct pci){ .error = -root_list(root, DEVICES, &names) };
	if (pci->error)
		return;
	pci->dev = tool_calloc(names.count, sizeof(*pci->dev));
	for (size_t i = 0; i < names.count; i++) {
		if (!is_address(names.name[i]))
			continue;
		pci->total++;
		pci->count += look_at(&pci->dev[pci->count], root, names.name[i]);
	}
	root_names_free(&names);
}

void pci_free(struct pci *pci)
{
	for (size_t i = 0; i < pci->count; i++)
		free(pci->dev[i].config);
	free(pci->dev);
	*pci = (struct pci){ 0 };
}

const struct pci_dev *pci_find(const struct pci *pci, const char *addr)
{
	for (size_t i = 0; i < pci->count; i++)
		if (!strcmp(pci->dev[i].addr, addr))
			return &pci->dev[i];
	return NULL;
}

int pci_bar1(const struct pci_dev *d)
{
	return d->bar_flags[0] & MEM_64 ? 2 : 1;
}
