/* SPDX-License-Identifier: MIT */
/* See region.h. Tags are in tags.c. */
#include "core/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/ctx.h"
#include "base/error.h"
#include "core/handle.h"
#include "core/tags.h"

enum { PIN_ATTEMPTS = 3 };

int gdri_region_bounds(uint64_t *low, uint64_t *high, size_t whole_max)
{
	uint64_t ends[2] = { *low, *high - 1 };
	struct gdri_memory m = { .size = 0 };

	for (int i = 0; i < 2; i++) {
		int rc;

		if (i && m.size && ends[i] - m.base < m.size)
			break;
		rc = gdri_cuda_describe(ends[i], 1, &m);
		if (rc)
			return rc;
		if (!m.size || m.size > whole_max || m.base + m.size < m.base)
			continue;
		if (m.base < *low)
			*low = m.base;
		if (m.base + m.size > *high)
			*high = m.base + m.size;
	}
	return 0;
}

/* ---- handles that borrow ------------------------------------------------------------------ */

struct loan {
	struct gdri_region *region;
	uint64_t addr;
	size_t size;
};

static int lent_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	struct loan *loan = pin->priv;
	const struct gdri_pin *whole = &loan->region->pin;
	uintptr_t start = (uintptr_t)gdri_region_pointer(loan->region, loan->addr);
	int rc = gdri_check_wish(pin, wish);

	if (rc)
		return rc;
	pin->map = gdri_region_pointer(loan->region, pin->va);
	pin->copy_start = start > whole->copy_start ? start : whole->copy_start;
	pin->copy_end = start + loan->size < whole->copy_end ? start + loan->size : whole->copy_end;
	if (pin->copy_end < pin->copy_start)
		pin->copy_end = pin->copy_start;
	return 0;
}

static int lent_unmap(struct gdri_pin *pin)
{
	(void)pin;
	return 0;
}

static int lent_unpin(struct gdri_pin *pin)
{
	struct loan *loan = pin->priv;
	struct gdri_region *region = loan->region;

	free(loan);
	if (region->returned)
		region->returned(region);
	return 0;
}

static int lent_callback_flag(struct gdri_pin *pin, int *flag)
{
	struct gdri_pin *whole = &((struct loan *)pin->priv)->region->pin;

	return whole->backend->callback_flag(whole, flag);
}

bool gdri_region_is_lent(const struct gdri_pin *pin)
{
	return pin->backend->unpin == lent_unpin;
}

struct gdri_region *gdri_region_of(const struct gdri_pin *pin)
{
	return ((struct loan *)pin->priv)->region;
}

int gdri_region_lend(struct gdri_region *region, struct gdri_ctx *ctx, uint64_t addr, size_t size,
		     gdr_mh_t *out)
{
	struct gdri_pin pin = region->pin;
	struct loan *loan = malloc(sizeof(*loan));
	struct gdri_handle *handle;
	int rc;

	if (!loan)
		return gdri_fail(ENOMEM, "no memory for a handle");
	*loan = (struct loan){ region, addr, size };
	pin.backend = &region->lent;
	pin.priv = loan;
	pin.va = addr & GPU_PAGE_MASK;
	pin.mapped_size = ((addr + size + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - pin.va;
	pin.map = NULL;
	pin.map_length = 0;
	pin.borrows = true;
	gdri_events_clear(&pin.events);
	handle = gdri_handle_new(ctx, &pin);
	if (!handle) {
		free(loan);
		return gdri_fail(ENOMEM, "no memory for a handle");
	}
	pthread_mutex_lock(&handle->lock);
	rc = gdri_handle_map_locked(handle, pin.mapped_size, GDR_MAPPING_TYPE_NONE);
	pthread_mutex_unlock(&handle->lock);
	if (rc) {
		free(loan);
		gdri_slots_free(&gdri_handles, &handle->slot);
		return rc;
	}
	*out = gdri_handle_publish(handle);
	return 0;
}

/* ---- pin and map -------------------------------------------------------------------------- */

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

static int pin_and_map(struct gdri_region *region, struct gdri_ctx *ctx,
		       const struct gdri_imported *imported)
{
	struct gdri_pin_request request = { .addr = region->low,
					    .size = region->high - region->low,
					    .imported = imported };
	struct gdri_pin *pin = &region->pin;
	int rc = gdri_backends_pin(ctx, &request, pin);

	if (rc)
		return rc;
	pin->map_length = pin->mapped_size;
	pin->map_type = pin->type;
	pin->read_only = region->read_only;
	rc = gdri_backends_map(pin, GDR_MAPPING_TYPE_NONE);
	if (rc)
		goto err_unpin;
	if (region->read_only)
		rc = protect(pin);
	if (!rc)
		return 0;
	gdri_backends_unmap(pin);
err_unpin:
	gdri_backends_unpin(pin);
	return rc;
}

static int unmap_and_unpin(struct gdri_pin *pin)
{
	int rc = gdri_backends_unmap(pin), rc2;

	rc2 = gdri_backends_unpin(pin);
	return rc ? rc : rc2;
}

int gdri_region_open(struct gdri_region *region, struct gdri_ctx *ctx, uint64_t low, uint64_t high,
		     uint32_t flags, const struct gdri_imported *imported)
{
	int rc = 0;

	*region = (struct gdri_region){ .low = low, .high = high };
	region->read_only = flags & GDRI_REGION_READ_ONLY;
	/* Tags are taken before the pin and must hold after it: then it is what they name. */
	for (int attempt = 0; attempt < PIN_ATTEMPTS; attempt++) {
		if (flags & GDRI_REGION_TAGGED)
			rc = gdri_tags_take(region);
		if (!rc)
			rc = pin_and_map(region, ctx, imported);
		if (rc) {
			gdri_tags_free(region);
			return rc;
		}
		if (gdri_tags_hold(region)) {
			region->lent = *region->pin.backend;
			region->lent.map = lent_map;
			region->lent.unmap = lent_unmap;
			region->lent.unpin = lent_unpin;
			region->lent.callback_flag = lent_callback_flag;
			return 0;
		}
		unmap_and_unpin(&region->pin);
		gdri_tags_free(region);
	}
	return gdri_fail(EINVAL, "0x%llx is being freed or reallocated by another thread",
			 (unsigned long long)low);
}

int gdri_region_close(struct gdri_region *region)
{
	int rc = unmap_and_unpin(&region->pin);

	gdri_tags_free(region);
	return rc;
}
