/* SPDX-License-Identifier: MIT */
/*
 * The simulated GPUs as the driver numbers them: minors, device instances and ids, none of which
 * need be in CUDA's order.
 *
 * kernel-open/nvidia/nv.c: nvidia_read_card_info(); the id is made of the PCI address
 * (src/nvidia/inc/kernel/gpu/gpu.h, gpuGenerate32BitId()).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rm/rm.h"

enum { VENDOR_NVIDIA = 0x10de, DEVICE_H100 = 0x2330 };

int rm_gpu_count(void)
{
	return sim_gpu_count();
}

/* The nth number of a list, or `otherwise`. */
static uint32_t nth_of(const char *name, int n, int otherwise)
{
	const char *v = getenv(name);

	while (v && *v && n--) {
		v = strchr(v, ',');
		v = v ? v + 1 : NULL;
	}
	return v && *v ? (uint32_t)strtoul(v, NULL, 10) : (uint32_t)otherwise;
}

void rm_gpu(int gpu, struct rm_gpu *out)
{
	int n = rm_gpu_count();

	sim_gpu(gpu, &out->sim);
	out->id =
		(uint32_t)(out->sim.pci_domain << 16 | out->sim.pci_bus << 8 | out->sim.pci_device);
	out->minor = nth_of("GDRSIM_RM_MINORS", gpu, n > 2 ? (gpu + 1) % n : gpu);
	out->instance = nth_of("GDRSIM_RM_INSTANCES", gpu, n - 1 - gpu);
}

/* The ordinal of the GPU with this value of a uint32_t in struct rm_gpu, or -1. */
static int find(uint32_t value, size_t field)
{
	for (int i = 0; i < rm_gpu_count(); i++) {
		struct rm_gpu gpu;

		rm_gpu(i, &gpu);
		if (memcmp((const char *)&gpu + field, &value, sizeof(value)) == 0)
			return i;
	}
	return -1;
}

int rm_gpu_by_minor(unsigned int minor)
{
	return find(minor, offsetof(struct rm_gpu, minor));
}

int rm_gpu_by_instance(uint32_t instance)
{
	return find(instance, offsetof(struct rm_gpu, instance));
}

int rm_gpu_by_id(uint32_t id)
{
	return find(id, offsetof(struct rm_gpu, id));
}

uint64_t rm_bar1_base(const struct rm_gpu *gpu)
{
	return 0x20000000000ull + gpu->minor * 0x4000000000ull;
}

/* In the order of the minors, as the driver found them. */
int rm_card_info(void *arg, size_t size)
{
	size_t room = size / sizeof(struct nv_card_info), n = 0;

	memset(arg, 0, room * sizeof(struct nv_card_info));
	if (room < (size_t)rm_gpu_count())
		return EINVAL;
	for (uint32_t minor = 0; minor < NV_MAX_DEVICES; minor++) {
		int at = rm_gpu_by_minor(minor);
		struct nv_card_info info;
		struct rm_gpu gpu;

		if (at < 0)
			continue;
		rm_gpu(at, &gpu);
		memset(&info, 0, sizeof(info));
		info.valid = 1;
		info.domain = (uint32_t)gpu.sim.pci_domain;
		info.bus = (uint8_t)gpu.sim.pci_bus;
		info.slot = (uint8_t)gpu.sim.pci_device;
		info.vendor_id = VENDOR_NVIDIA;
		info.device_id = DEVICE_H100;
		info.gpu_id = gpu.id;
		info.minor_number = gpu.minor;
		info.fb_address = rm_bar1_base(&gpu);
		info.fb_size = gpu.sim.bar1_bytes;
		memcpy((char *)arg + n++ * sizeof(info), &info, sizeof(info));
	}
	return 0;
}
