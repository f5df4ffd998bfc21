/* SPDX-License-Identifier: MIT */
/*
 * The host backend: memory of cudaHostAlloc, which the CPU reaches without a mapping, on Tegra
 * (GPUDirect RDMA guide, "Changing the allocator") and coherent systems. Small allocations share
 * pages (512 bytes apart was seen): the map pointer stands for the address rounded down to 64 KiB,
 * like every map pointer, but copies may touch bytes of the allocation only. The mapping's type is
 * the allocation's, as another would be undefined behaviour ("Other highlights").
 */
#include "backend/backend.h"

static int host_open(void **state)
{
	(void)state;
	return gdri_cuda_load();
}

static int host_pin(const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_memory *m = &request->memory;

	if (m->kind != GDRI_MEMORY_HOST)
		return gdri_fail(ENOTSUP, "not memory of cudaHostAlloc");
	if (!m->size)
		return gdri_fail(ENOTSUP, "CUDA does not report where this allocation lies");
	pin->copy_start = (uintptr_t)m->host_ptr; /* these two are final; map() leaves them */
	pin->copy_end = pin->copy_start + m->size;
	pin->priv = (void *)((uintptr_t)m->host_ptr - (m->base - pin->va)); /* pin->va to the CPU */
	pin->type = m->write_combined ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_CACHING;
	return 0;
}

static int host_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	pin->map = pin->priv;
	return gdri_check_wish(pin, wish);
}

const struct gdri_backend gdri_backend_host = {
	.name = "host",
	.id = BARCOPY_BACKEND_HOST,
	.open = host_open,
	.pin = host_pin,
	.map = host_map,
};
