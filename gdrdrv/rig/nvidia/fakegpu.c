// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A PCI function that the probe of nvidia.ko takes for an H100: on a root bus of its own, domain 1,
 * with a configuration space in memory. Its BARs lie in the 256 MiB at 1 GiB that the kernel's
 * command line reserves (memmap=256M$0x40000000): BAR1 has 128 MiB, BAR3 32 MiB, BAR0 16 MiB with the
 * registers that name the chip. Nothing behind them works, so no GPU is ever initialised.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>

#define WINDOW	  0x40000000UL
#define BAR1	  WINDOW
#define BAR1_SIZE SZ_128M
#define BAR3	  (BAR1 + BAR1_SIZE)
#define BAR3_SIZE SZ_32M
#define BAR0	  (BAR3 + BAR3_SIZE)
#define BAR0_SIZE SZ_16M
#define CAP_AT	  0x60 /* of the one capability */

/* Registers of BAR0 with the chip's name: NV_PMC_BOOT_0 and NV_PMC_BOOT_42. */
#define BOOT_0	   0x000
#define BOOT_0_IS  0x180000a1
#define BOOT_42	   0xa00
#define BOOT_42_IS 0x180a1000

static u8 config[PCI_CFG_SPACE_EXP_SIZE];
static u8 writable[PCI_CFG_SPACE_EXP_SIZE]; /* the bits that a write changes */
static struct pci_sysdata sysdata = { .domain = 1, .node = NUMA_NO_NODE };
static struct pci_bus *bus;
static struct resource window = {
	.name = "fakegpu",
	.start = WINDOW,
	.end = WINDOW + SZ_256M - 4097, /* inside the entry "Reserved", and not all of it */
	.flags = IORESOURCE_MEM,
};
static struct resource numbers = { .name = "fakegpu bus", .flags = IORESOURCE_BUS };

static int config_read(struct pci_bus *on, unsigned int devfn, int where, int len, u32 *val)
{
	*val = ~0;
	if (devfn || on->number || where + len > sizeof(config))
		return PCIBIOS_DEVICE_NOT_FOUND;
	*val = 0;
	memcpy(val, config + where, len);
	return 0;
}

static int config_write(struct pci_bus *on, unsigned int devfn, int where, int len, u32 val)
{
	int i;

	if (devfn || on->number || where + len > sizeof(config))
		return PCIBIOS_DEVICE_NOT_FOUND;
	for (i = where; i < where + len; i++, val >>= 8)
		config[i] = (config[i] & ~writable[i]) | (val & writable[i]);
	return 0;
}

static struct pci_ops ops = { .read = config_read, .write = config_write };

static void put32(u8 *at, u32 val)
{
	memcpy(at, &val, sizeof(val));
}

/* As firmware would have assigned it. */
static void add_bar(int n, u32 start, u32 size, u32 flags)
{
	int at = PCI_BASE_ADDRESS_0 + 4 * n;

	put32(config + at, start | flags);
	put32(writable + at, ~(size - 1));
	if (flags & PCI_BASE_ADDRESS_MEM_TYPE_64)
		put32(writable + at + 4, ~0);
}

static void fill_config(void)
{
	u32 wide = PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;

	put32(config + PCI_VENDOR_ID, 0x2330 << 16 | PCI_VENDOR_ID_NVIDIA);
	put32(config + PCI_CLASS_REVISION, PCI_CLASS_DISPLAY_3D << 16 | 0xa1);
	put32(config + PCI_SUBSYSTEM_VENDOR_ID, 0x16c1 << 16 | PCI_VENDOR_ID_NVIDIA);
	add_bar(0, BAR0, BAR0_SIZE, 0);
	add_bar(1, BAR1, BAR1_SIZE, wide);
	add_bar(3, BAR3, BAR3_SIZE, wide);
	writable[PCI_COMMAND] = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
	writable[PCI_COMMAND + 1] = PCI_COMMAND_INTX_DISABLE >> 8;
	config[PCI_STATUS] = PCI_STATUS_CAP_LIST;
	config[PCI_CAPABILITY_LIST] = CAP_AT;
	config[CAP_AT] = PCI_CAP_ID_EXP;
	config[CAP_AT + PCI_EXP_FLAGS] = 2; /* an endpoint */
	config[PCI_INTERRUPT_LINE] = 5;
	config[PCI_INTERRUPT_PIN] = 1;
	writable[PCI_INTERRUPT_LINE] = 0xff;
}

static int fill_registers(void)
{
	void __iomem *regs = ioremap(BAR0, PAGE_SIZE);

	if (!regs)
		return -ENOMEM;
	writel(BOOT_0_IS, regs + BOOT_0);
	writel(BOOT_42_IS, regs + BOOT_42);
	iounmap(regs);
	return 0;
}

static int __init fakegpu_init(void)
{
	struct pci_dev *pdev;
	LIST_HEAD(res);

	fill_config();
	if (fill_registers() || insert_resource(&iomem_resource, &window))
		return -EBUSY;
	pci_add_resource(&res, &window);
	pci_add_resource(&res, &numbers);
	pci_lock_rescan_remove();
	bus = pci_create_root_bus(NULL, 0, &ops, &sysdata, &res);
	if (!bus) {
		pci_unlock_rescan_remove();
		pci_free_resource_list(&res);
		remove_resource(&window);
		return -ENODEV;
	}
	pci_scan_child_bus(bus);
	pci_bus_claim_resources(bus);
	pdev = pci_get_domain_bus_and_slot(sysdata.domain, 0, 0);
	if (pdev) {
		pdev->irq = config[PCI_INTERRUPT_LINE];
		pci_dev_put(pdev);
	}
	pci_bus_add_devices(bus);
	pci_unlock_rescan_remove();
	return 0;
}

static void __exit fakegpu_exit(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(bus);
	pci_remove_root_bus(bus);
	pci_unlock_rescan_remove();
	remove_resource(&window);
}

module_init(fakegpu_init);
module_exit(fakegpu_exit);

MODULE_DESCRIPTION("a PCI function that nvidia.ko takes for a GPU, for tests");
MODULE_LICENSE("GPL");
