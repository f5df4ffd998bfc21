/* SPDX-License-Identifier: MIT */
/* The rm backend: any device memory, by the installed GPU driver alone. See rm.h. */
#include <errno.h>
#include <stdlib.h>

#include "cuda/cuda.h"
#include "base/error.h"
#include "cuda/watch.h"
#include "backend/rm.h"

#ifndef GDRI_RM
#define GDRI_RM 1
#endif

#if GDRI_RM
static int rm_open(bool decides, void **state)
{
	int rc = gdri_rm_allowed();

	*state = NULL;
	if (!rc)
		rc = gdri_rm_check();
	if (!rc)
		rc = gdri_cuda_load();
	if (rc || !decides)
		return rc;
	rc = gdri_cuda_watch_possible();
	if (rc)
		return gdri_fail(ENODEV, "%s", gdri_error_text());
	return gdri_cuda_exports_dmabuf();
}

/*
 * GDR_PIN_FLAG_FORCE_PCIE: without a coherent link every mapping is over PCIe. With such a link no
 * driver makes one: 595 refuses it (mapping_cpu.c, gpuIsSelfHosted()), others ignore the request.
 */
static int rm_attribute(void *state, gdr_attr_t attr)
{
	(void)state;
	return attr == GDR_ATTR_USE_PERSISTENT_MAPPING ||
	       (attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE && !gdri_cuda_any_coherent());
}

static int rm_pin(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_memory *m = &request->memory;
	struct gdri_rm_trial trial;
	struct gdri_rm_range *range;
	struct gdri_rm_gpu *gpu;
	int rc;

	(void)state;
	if (m->kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "not device memory");
	rc = gdri_rm_gpu_get(m->device, &gpu);
	if (!rc)
		rc = gdri_rm_trial(gpu, m->context, &trial);
	if (rc)
		return rc;
	range = malloc(sizeof(*range));
	if (!range)
		return gdri_fail(ENOMEM, "no memory for a pin");
	rc = gdri_rm_range_open(range, gpu, request,
				trial.verdict == GDRI_RM_ANY ? NULL : trial.reason);
	if (rc) {
		free(range);
		return rc;
	}
	pin->priv = range;
	pin->persistent = true;
	pin->type = trial.type;
	return 0;
}

static int rm_unpin(struct gdri_pin *pin)
{
	int rc = gdri_rm_range_close(pin->priv);

	free(pin->priv);
	return rc;
}

static int rm_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	int rc = gdri_check_wish(pin, wish);
	void *map;

	if (!rc)
		rc = gdri_rm_map(pin->priv, pin->map_length, pin->read_only, &map);
	if (!rc)
		gdri_pin_mapped(pin, map);
	return rc;
}

static int rm_unmap(struct gdri_pin *pin)
{
	return gdri_rm_unmap(pin->priv, pin->map, pin->map_length);
}

#else /* make RM_BACKEND=0 */
static int rm_open(bool decides, void **state)
{
	(void)decides;
	*state = NULL;
	return gdri_fail(ENODEV, "this library was built without rm");
}
#endif

const struct gdri_backend gdri_backend_rm = {
	.name = "rm",
	.id = BARCOPY_BACKEND_RM,
	.caps = GDRI_CAP_DEVICE_MEMORY,
	.open = rm_open,
#if GDRI_RM
	.attribute = rm_attribute,
	.pin = rm_pin,
	.unpin = rm_unpin,
	.map = rm_map,
	.unmap = rm_unmap,
#endif
};
