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

/* False if the function is no GPU of NVIDIA's. */
static bool look_at(struct pci_dev *d, const struct root *root, const char *addr)
{
	static const uint8_t ones[64] = { [0 ... 63] = 0xff };
	unsigned int class = (unsigned int)number(root, addr, "class", 0) >> 8;
	uint8_t header[sizeof(ones)];

	*d = (struct pci_dev){ .numa = -1 };
	snprintf(d->addr, sizeof(d->addr), "%.15s", addr);
	d->vendor = (uint16_t)number(root, addr, "vendor", 0);
	d->device = (uint16_t)number(root, addr, "device", 0);
	/* VGA, 3D and other display controllers */
	if (d->vendor != NVIDIA || (class != 0x0300 && class != 0x0302 && class != 0x0380))
		return false;
	d->gone = root_read(root, in_dir(addr, "config"), header, sizeof(header)) == sizeof(ones) &&
		  !memcmp(header, ones, sizeof(ones));
	d->numa = (int)number(root, addr, "numa_node", -1);
	root_link(root, in_dir(addr, "driver"), d->driver, sizeof(d->driver));
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
