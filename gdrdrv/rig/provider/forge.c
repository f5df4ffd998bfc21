// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Makes PCI functions of the emulated machine look like a GPU, by changing the kernel's record of
 * them: vendor, class, a 64-bit first BAR (so that the frame buffer is resource 2, the shared
 * memory), a second prefetchable BAR. The changes are undone before the driver unbinds the
 * function; its name would no longer match otherwise.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/pci.h>

#include "provider.h"

struct forged {
	struct pci_dev *pdev;
	u16 vendor;
	u32 class;
	unsigned long flags0;
	struct resource other;
};

#define OTHER_BAR 4

static struct forged forged[2];
static resource_size_t bridge_shift; /* current */

void provider_forge(struct pci_dev *pdev, u16 vendor, u32 class)
{
	struct forged *f = forged[0].pdev ? &forged[1] : &forged[0];

	f->pdev = pdev;
	f->vendor = pdev->vendor;
	f->class = pdev->class;
	f->flags0 = pdev->resource[0].flags;
	f->other = pdev->resource[OTHER_BAR];
	pdev->vendor = vendor;
	pdev->class = class << 8;
	pdev->resource[0].flags |= IORESOURCE_MEM_64;
}

void provider_forge_other_bar(struct pci_dev *pdev, phys_addr_t start, u64 len)
{
	struct resource *res = &pdev->resource[OTHER_BAR];

	res->start = start;
	res->end = start + len - 1;
	res->flags = IORESOURCE_MEM | IORESOURCE_MEM_64 | IORESOURCE_PREFETCH;
}

void provider_unforge(struct pci_dev *pdev)
{
	struct forged *f;

	for (f = forged; f < forged + ARRAY_SIZE(forged); f++) {
		if (f->pdev != pdev)
			continue;
		pdev->vendor = f->vendor;
		pdev->class = f->class;
		pdev->resource[0].flags = f->flags0;
		pdev->resource[OTHER_BAR] = f->other;
		f->pdev = NULL;
	}
}

/* Lets bus addresses behind the host bridge be @shift below the CPU's, as on some machines. */
void provider_shift_bridge(struct pci_dev *pdev, resource_size_t shift)
{
	struct pci_bus *bus = pdev->bus;
	struct resource_entry *window;

	while (bus->parent)
		bus = bus->parent;
	resource_list_for_each_entry(window, &to_pci_host_bridge(bus->bridge)->windows) {
		if (resource_type(window->res) == IORESOURCE_MEM)
			window->offset += shift - bridge_shift;
	}
	bridge_shift = shift;
}
