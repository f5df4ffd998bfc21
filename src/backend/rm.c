/* SPDX-License-Identifier: MIT */
/*
 * The rm backend: any device memory, on the GPU driver as it is installed, with no kernel module of
 * ours. See rm.h for its parts and what it rests on.
 */
#include <errno.h>
#include <stdlib.h>

#include "cuda/cuda.h"
#include "base/error.h"
#include "cuda/watch.h"
#include "backend/rm.h"

static int rm_open(bool decides, void **state)
{
	int rc = gdri_rm_check();

	*state = NULL;
	if (!rc)
		rc = gdri_cuda_load();
	if (rc || !decides)
		return rc;
	rc = gdri_cuda_watch_possible();
	if (rc)
		return gdri_fail(ENODEV, "%s", gdri_error_text());
	return gdri_cuda_exports_dmabuf(true);
}

static int rm_attribute(void *state, gdr_attr_t attr)
{
	(void)state;
	switch (attr) {
	case GDR_ATTR_USE_PERSISTENT_MAPPING:
		return 1;
	case GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
		return gdri_rm_driver_major() >= RM_FIRST_WITH_BUS || !gdri_cuda_any_coherent();
	default:
		return 0;
	}
}

/* What a pin keeps. */
struct rm_pin {
	struct gdri_rm_range range;
	unsigned int map_flags;
};

/*
 * GDR_PIN_FLAG_FORCE_PCIE: without a coherent link every mapping goes over PCIe; with one the driver
 * must be told, and those that do not document the bit would ignore it.
 */
static int pcie_flags(const struct gdri_rm_gpu *gpu, uint32_t pin_flags, unsigned int *map_flags)
{
	*map_flags = 0;
	if (!(pin_flags & GDR_PIN_FLAG_FORCE_PCIE) || !gpu->coherent)
		return 0;
	if (gdri_rm_driver_major() < RM_FIRST_WITH_BUS)
		return gdri_fail(EINVAL, "GDR_PIN_FLAG_FORCE_PCIE is not supported by this driver");
	*map_flags = GDRI_RM_PCIE;
	return 0;
}

static int rm_pin(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_memory *m = &request->memory;
	struct gdri_rm_gpu *gpu;
	struct rm_pin *rp;
	int rc;

	(void)state;
	if (m->kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "not device memory");
	rc = gdri_rm_gpu_get(m->device, &gpu);
	if (!rc)
		rc = gdri_rm_trial(gpu, m->device, m->context);
	if (rc)
		return rc;
	rp = calloc(1, sizeof(*rp));
	if (!rp)
		return gdri_fail(ENOMEM, "no memory for a pin");
	rc = pcie_flags(gpu, request->flags, &rp->map_flags);
	if (!rc)
		rc = gdri_rm_range_open(&rp->range, gpu, request,
					gpu->verdict == GDRI_RM_ANY ? NULL : gpu->reason);
	if (rc) {
		free(rp);
		return rc;
	}
	pin->priv = rp;
	pin->persistent = true;
	pin->type =
		gpu->coherent && !rp->map_flags ? GDR_MAPPING_TYPE_CACHING : GDR_MAPPING_TYPE_WC;
	return 0;
}

static int rm_unpin(struct gdri_pin *pin)
{
	struct rm_pin *rp = pin->priv;
	int rc = gdri_rm_range_close(&rp->range);

	free(rp);
	return rc;
}

static int rm_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	struct rm_pin *rp = pin->priv;
	unsigned int flags = rp->map_flags | (pin->read_only ? GDRI_RM_READ_ONLY : 0);
	int rc = gdri_check_wish(pin, wish);

	if (!rc)
		rc = gdri_rm_map(&rp->range, pin->map_length, flags, &pin->map);
	if (rc)
		return rc;
	pin->copy_start = (uintptr_t)pin->map;
	pin->copy_end = pin->copy_start + pin->map_length;
	return 0;
}

static int rm_unmap(struct gdri_pin *pin)
{
	struct rm_pin *rp = pin->priv;

	return gdri_rm_unmap(&rp->range, pin->map, pin->map_length);
}

const struct gdri_backend gdri_backend_rm = {
	.name = "rm",
	.id = BARCOPY_BACKEND_RM,
	.caps = GDRI_CAP_DEVICE_MEMORY,
	.open = rm_open,
	.close = gdri_default_close,
	.driver_version = gdri_default_driver_version,
	.attribute = rm_attribute,
	.pin = rm_pin,
	.unpin = rm_unpin,
	.map = rm_map,
	.unmap = rm_unmap,
	.callback_flag = gdri_default_callback_flag,
	.event_fd = gdri_default_event_fd,
};
