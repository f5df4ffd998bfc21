/* SPDX-License-Identifier: MIT */
/* PCI functions; see doctor.h. */
#include "doctor/doctor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"

#define DEVICES "/sys/bus/pci/devices"
#define NVIDIA	0x10de

const char *const path_name[PATH_CLASSES] = { "PCIe switches", "root complex", "another socket",
					      "unknown" };

/* "0000:17:00.0", with a domain of 4 digits or more */
static bool is_address(const char *name)
{
	int end = 0;

	(void)sscanf(name, "%*[0-9a-f]:%*2[0-9a-f]:%*2[0-9a-f].%*1[0-9a-f]%n", &end);
	return end && !name[end] && strlen(name) < sizeof(((struct pci_dev *)0)->addr);
}

static const char *in_dir(const char *addr, const char *file)
{
	static char path[ROOT_PATH];

	snprintf(path, sizeof(path), DEVICES "/%s/%s", addr, file);
	return path;
}

static long long number(const struct root *root, const char *addr, const char *file,
			long long otherwise)
{
	long long v;

	return root_number(root, in_dir(addr, file), &v) ? otherwise : v;
}

/* The last component of a link's target in the device's directory; "" if the link is missing. */
static void link_name(const struct root *root, const char *addr, const char *file, char *name,
		      size_t size)
{
	char real[ROOT_PATH];

	name[0] = '\0';
	if (!root_real(root, in_dir(addr, file), real, sizeof(real)))
		snprintf(name, size, "%s", strrchr(real, '/') + 1);
}

/* "mlx5_0": the first name in that directory of the device, unless it has a label. */
static void find_label(struct pci_dev *d, const struct root *root, const char *dir)
{
	struct dirent **names;
	int n;

	if (d->gpu || d->label[0])
		return;
	n = root_list(root, in_dir(d->addr, dir), &names);
	if (n > 0)
		snprintf(d->label, sizeof(d->label), "%.31s", names[0]->d_name);
	root_list_free(names, n);
}

/* The physical package of the node's first CPU. */
static int socket_of(const struct root *root, int node)
{
	char path[96];
	long long socket;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	if (node < 0 || root_text(root, path, path, sizeof(path)))
		return -1;
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
		 atoi(path));
	return root_number(root, path, &socket) ? -1 : (int)socket;
}

/* False if the function is neither a GPU of NVIDIA's nor a network adapter. */
static bool look_at(struct pci_dev *d, const struct root *root, const char *addr)
{
	static const uint8_t ones[64] = { [0 ... 63] = 0xff };
	unsigned int class = (unsigned int)number(root, addr, "class", 0) >> 8;
	uint8_t header[sizeof(ones)];
	char group[16];

	*d = (struct pci_dev){ .group = -1, .numa = -1 };
	snprintf(d->addr, sizeof(d->addr), "%.15s", addr);
	d->vendor = (uint16_t)number(root, addr, "vendor", 0);
	d->device = (uint16_t)number(root, addr, "device", 0);
	/* VGA, 3D and other display controllers */
	d->gpu = d->vendor == NVIDIA && (class == 0x0300 || class == 0x0302 || class == 0x0380);
	if (!d->gpu && class >> 8 != 0x02) /* network controller; 0207: InfiniBand */
		return false;
	if (root_real(root, in_dir(addr, ""), d->real, sizeof(d->real)))
		d->real[0] = '\0';
	d->gone = root_read(root, in_dir(addr, "config"), header, sizeof(header)) == sizeof(ones) &&
		  !memcmp(header, ones, sizeof(ones));
	d->numa = (int)number(root, addr, "numa_node", -1);
	d->socket = socket_of(root, d->numa);
	d->virtual = root_exists(root, in_dir(addr, "physfn"));
	link_name(root, addr, "driver", d->driver, sizeof(d->driver));
	link_name(root, addr, "iommu_group", group, sizeof(group));
	if (group[0] >= '0' && group[0] <= '9')
		d->group = atoi(group);
	find_label(d, root, "infiniband");
	find_label(d, root, "net");
	return true;
}

void pci_collect(struct pci *pci, const struct root *root)
{
	struct dirent **names;
	int n = root_list(root, DEVICES, &names);

	*pci = (struct pci){ .error = n < 0 ? -n : 0 };
	if (n < 0)
		return;
	pci->dev = tool_calloc((size_t)n + 1, sizeof(*pci->dev));
	for (int i = 0; i < n; i++) {
		if (!is_address(names[i]->d_name))
			continue;
		pci->total++;
		pci->count += look_at(&pci->dev[pci->count], root, names[i]->d_name);
	}
	root_list_free(names, n);
}

const struct pci_dev *pci_find(const struct pci *pci, const char *addr)
{
	for (size_t i = 0; i < pci->count; i++)
		if (!strcmp(pci->dev[i].addr, addr))
			return &pci->dev[i];
	return NULL;
}

/* The path from the last host bridge on, "pci0000:00/...": a bridge may be below another. */
static const char *place(const struct pci_dev *d)
{
	const char *last = NULL;

	for (const char *at = d->real; (at = strstr(at, "/pci")); at += 4)
		if (at[4] >= '0' && at[4] <= '9')
			last = at + 1;
	return last;
}

enum path_class pci_path(const struct pci_dev *a, const struct pci_dev *b)
{
	const char *pa = place(a), *pb = place(b);
	int common = 0;

	if (!pa || !pb)
		return PATH_UNKNOWN;
	for (size_t i = 0; pa[i] && pa[i] == pb[i]; i++)
		common += pa[i] == '/';
	if (common > 1) /* a root port that leads to both */
		return PATH_SWITCH;
	if (common == 1 || (a->numa >= 0 && a->numa == b->numa)) /* one CPU has several bridges */
		return PATH_ROOT;
	return a->socket < 0 || b->socket < 0 ? PATH_UNKNOWN
	       : a->socket == b->socket	      ? PATH_ROOT
					      : PATH_FAR;
}
