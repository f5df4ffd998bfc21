/* SPDX-License-Identifier: MIT */
/*
 * Pins of the gdrdrv node by dma-buf: CUDA exports the range, or another process has passed a
 * buffer on; the driver imports it with the PCI address of the GPU.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "backend/gdrdrv_node.h"
#include "cuda/cuda.h"
#include "base/error.h"
#include "base/line.h"

/*
 * GPU drivers 535 to 570 (kernel-open/nvidia/nv-dmabuf.c, nv_dma_buf_map_pfns()) cut a range into
 * pieces of the device's segment size, 64 KiB for PCI. If the kernel gives IOVAs (a translating
 * IOMMU, kernel before 6.12), they look for each next piece behind the last IOVA instead of in
 * BAR1, and fail with ENOMEM.
 */
enum { PIECE = 65536, FIXED_IN_GPU_DRIVER = 580 };

static bool kernel_gives_iovas(const struct gdri_pci_address *pci)
{
	unsigned int major, minor;
	struct utsname u;
	char path[96], type[32];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.%x/iommu_group/type",
		 pci->domain, pci->bus, pci->device, pci->function);
	gdri_read_line(path, type, sizeof(type));
	return strncmp(type, "DMA", 3) == 0 && !uname(&u) &&
	       sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major < 6 || (major == 6 && minor < 12));
}

/* ENOMEM: host memory, BAR1, or a GPU driver that has this errno for its fault above. */
static int fail_enomem(const struct gdri_pin_request *request, const struct gdri_pci_address *pci)
{
	char version[32];
	int branch;

	gdri_read_line("/sys/module/nvidia/version", version, sizeof(version));
	branch = atoi(version);
	if (request->mapped_size > PIECE && branch > 0 && branch < FIXED_IN_GPU_DRIVER &&
	    kernel_gives_iovas(pci))
		return gdri_fail(ENOTSUP,
				 "PIN_DMABUF: GPU driver %s cannot share more than 64 KiB in one "
				 "piece behind a translating IOMMU with a kernel before 6.12 (a "
				 "fault of its own, gone in 580): boot with iommu=pt, or use a "
				 "gdrdrv built with SOURCE=p2p",
				 version);
	return gdri_fail(ENOMEM, "PIN_DMABUF: no memory, or BAR1 is full");
}

static int fail_pin(const struct gdri_pin_request *request, const struct gdri_pci_address *pci,
		    int err)
{
	switch (err) {
	case ENOMEM:
	case ENOSPC:
		return fail_enomem(request, pci);
	case ENODEV:
		return gdri_fail(ENODEV,
				 "PIN_DMABUF: %04x:%02x:%02x.%x is not a GPU that the GPU driver "
				 "drives",
				 pci->domain, pci->bus, pci->device, pci->function);
	case EINVAL:
		return gdri_fail(ENOTSUP,
				 "PIN_DMABUF: the buffer does not lie in the BAR of the GPU (a "
				 "coherent system?), or another driver's exporter made it");
	default:
		return gdri_node_result("PIN_DMABUF", err);
	}
}

int gdri_node_pin_dmabuf(const struct gdri_node *node, const struct gdri_pin_request *request,
			 uint64_t *handle)
{
	const struct gdri_memory *m = &request->memory;
	struct gdrdrv_pin_dmabuf p = { .addr = request->va, .size = request->mapped_size };
	struct gdri_pci_address pci;
	int rc, err;

	if (m->kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(EINVAL, "CUDA does not know this address as device memory%s%s",
				 m->note[0] ? ": " : "", m->note);
	if (m->device < 0)
		return gdri_fail(ENOTSUP, "the driver needs to know which GPU the memory is on");
	rc = gdri_cuda_pci_address(m->device, &pci);
	if (rc)
		return rc;
	p.pci_domain = pci.domain;
	p.pci_bus = pci.bus;
	p.pci_device = pci.device;
	p.pci_function = pci.function;
	if (gdri_is_dmabuf(request))
		p.fd = request->imported->fd;
	else
		rc = gdri_cuda_dmabuf(m, request->va, request->mapped_size, false, &p.fd);
	if (rc)
		return rc;
	err = gdri_node_call(node, GDRDRV_IOC_PIN_DMABUF, &p);
	if (!gdri_is_dmabuf(request))
		close(p.fd);
	if (err)
		return fail_pin(request, &pci, err);
	*handle = p.handle;
	return 0;
}
