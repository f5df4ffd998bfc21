/* SPDX-License-Identifier: MIT */
/*
 * The host backend: memory of cudaHostAlloc, which the CPU can reach as it is. This is the way on
 * Tegra (GPUDirect RDMA guide, section 13.4.1) and on coherent systems. Nothing is pinned or
 * mapped here: the map pointer is arithmetic on the allocation's CPU address.
 *
 * Small allocations share pages (512 bytes apart was seen), so the pointer stands for the address
 * rounded down to 64 KiB like every map pointer, but only bytes of the allocation may be touched:
 * copies outside it are refused. The mapping's type is the allocation's (section 13.4.3:
 * another one would be undefined behaviour).
 */
#include <errno.h>

#include "backend/backend.h"
#include "base/error.h"

static int host_open(bool decides, void **state)
{
	(void)decides;
	*state = NULL;
	return gdri_cuda_load();
}

static int host_pin(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_memory *m = &request->memory;
	uint64_t end = request->addr + request->size;

	(void)state;
	if (m->kind != GDRI_MEMORY_HOST)
		return gdri_fail(ENOTSUP, "not memory of cudaHostAlloc");
	if (!m->size)
		return gdri_fail(ENOTSUP, "CUDA does not report where this allocation lies");
	if (end <= m->base || request->addr >= m->base + m->size)
		return gdri_fail(EINVAL, "the range lies outside its allocation");
	/*
	 * Nothing but arithmetic from here on: what copies may touch is kept in copy_start and
	 * copy_end, which map() leaves as they are; map() needs the CPU address of pin->va.
	 */
	pin->copy_start = (uintptr_t)m->host_ptr;
	pin->copy_end = pin->copy_start + m->size;
	pin->priv = (void *)((uintptr_t)m->host_ptr - (m->base - pin->va));
	pin->type = m->write_combined ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_CACHING;
	return 0;
}

static int host_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	int rc = gdri_check_wish(pin, wish);

	if (rc)
		return rc;
	pin->map = pin->priv;
	return 0;
}

const struct gdri_backend gdri_backend_host = {
	.name = "host",
	.id = BARCOPY_BACKEND_HOST,
	.open = host_open,
	.pin = host_pin,
	.map = host_map,
};
