/* SPDX-License-Identifier: MIT */
/* Regions: how they are pinned, mapped and shown by handles. See region.h. */
#include "core/region.h"

#include <string.h>
#include <sys/mman.h>

#include "core/parts.h"

enum { PIN_ATTEMPTS = 3 };

static int protect(struct gdri_pin *pin)
{
	if (pin->backend->id == BARCOPY_BACKEND_HOST)
		return gdri_fail(ENOTSUP, "memory of cudaHostAlloc cannot be mapped read-only: its "
					  "mapping is the allocation itself");
	if (mprotect(pin->map, pin->map_length, PROT_READ))
		return gdri_fail(errno == ENOMEM ? ENOMEM : ENOTSUP,
				 "a mapping of the %s backend cannot be made read-only: %s",
				 pin->backend->name, strerror(errno));
	return 0;
}

static int map_pin(struct gdri_pin *pin, size_t length, gdr_mapping_type_t wish)
{
	int rc;

	pin->map_length = length;
	pin->map_type = pin->type;
	rc = gdri_backends_map(pin, wish);
	if (rc)
		pin->map = NULL;
	return rc;
}

static int unmap_pin(struct gdri_pin *pin)
{
	int rc = gdri_backends_unmap(pin);

	pin->map = NULL;
	return rc;
}

int gdri_region_unpin(struct gdri_region *region)
{
	struct gdri_first first = { 0 };

	if (region->pin.map)
		gdri_first_note(&first, unmap_pin(&region->pin));
	gdri_first_note(&first, gdri_backends_unpin(&region->pin));
	return gdri_first_failure(&first);
}

int gdri_region_close(struct gdri_region *region)
{
	int rc = gdri_region_unpin(region);

	gdri_region_free_parts(region);
	return rc;
}

static int pin_and_map(struct gdri_region *region, struct gdri_backends *backends,
		       struct gdri_pin_request *request, uint32_t flags)
{
	struct gdri_pin *pin = &region->pin;
	int rc = gdri_backends_pin(backends, request, pin);

	if (rc || !region->mapped)
		return rc;
	pin->read_only = flags & GDRI_REGION_READ_ONLY;
	rc = map_pin(pin, pin->mapped_size, GDR_MAPPING_TYPE_NONE);
	if (!rc && pin->read_only)
		rc = protect(pin);
	if (rc)
		gdri_region_unpin(region);
	return rc;
}

int gdri_region_open(struct gdri_region *region, struct gdri_backends *backends,
		     struct gdri_pin_request *request, uint32_t flags)
{
	uint64_t low = request->addr, high = low + request->size;
	bool verified = flags & GDRI_REGION_VERIFIED;
	int rc;

	for (int attempt = 0; attempt < PIN_ATTEMPTS; attempt++) {
		if (!verified || attempt)
			request->memory = (struct gdri_memory){ .size = 0 };
		*region = (struct gdri_region){ .low = low,
						.high = high,
						.mapped = flags & GDRI_REGION_MAPPED,
						.sync = !(flags & GDRI_REGION_NO_SYNC) };
		request->mapped = region->mapped;
		rc = verified ? gdri_parts_note(region, low, high, &request->memory) : 0;
		/* CUDA knew the memory before: its ends, at least, have been freed since. */
		if (!rc && attempt && !region->part_count)
			break;
		if (!rc)
			rc = pin_and_map(region, backends, request, flags);
		/* A plain pin is not found by its address, so it need not be verified. */
		if (!rc && !verified && !gdri_is_dmabuf(request))
			(void)gdri_parts_note(region, low, high, &request->memory);
		if (rc) {
			gdri_region_free_parts(region);
			return rc;
		}
		if (!verified || gdri_region_is_intact(region, low, high)) {
			if (region->sync)
				gdri_parts_set_sync_memops(region, verified);
			return 0;
		}
		gdri_region_close(region);
	}
	return gdri_fail(EINVAL, "0x%llx is being freed or reallocated by another thread",
			 (unsigned long long)low);
}

int gdri_region_map(struct gdri_region *region, struct gdri_pin *view, uint64_t low, uint64_t high,
		    gdr_mapping_type_t wish)
{
	const struct gdri_pin *pin = &region->pin;
	uintptr_t start, end;
	int rc;

	if (!region->mapped) {
		rc = map_pin(&region->pin, view->map_length, wish);
		if (!rc)
			*view = region->pin;
		return rc;
	}
	rc = gdri_check_wish(pin, wish);
	if (rc)
		return rc;
	start = (uintptr_t)gdri_region_pointer(region, low);
	end = start + (high - low);
	view->map = gdri_region_pointer(region, view->va);
	view->map_type = pin->map_type;
	view->copy_start = start > pin->copy_start ? start : pin->copy_start;
	view->copy_end = end < pin->copy_end ? end : pin->copy_end;
	if (view->copy_end < view->copy_start)
		view->copy_end = view->copy_start;
	return 0;
}

int gdri_region_unmap(struct gdri_region *region)
{
	return region->mapped ? 0 : unmap_pin(&region->pin);
}

int gdri_region_is_revoked(struct gdri_region *region, bool *revoked)
{
	int flag, rc = gdri_backends_callback_flag(&region->pin, &flag);

	if (rc)
		return rc;
	*revoked = flag;
	if (flag && !atomic_exchange_explicit(&region->revoked, true, memory_order_relaxed))
		gdri_count(region->pin.counters, GDRI_COUNT_REVOKED, 1);
	return 0;
}
