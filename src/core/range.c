/* SPDX-License-Identifier: MIT */
/* See range.h. */
#include "core/range.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/ctx.h"
#include "base/error.h"
#include "core/handle.h"
#include "base/log.h"
#include "core/region.h"

/* Allocations up to this size are pinned whole: the whole costs what a part costs. */
enum { WHOLE_MAX = 2 << 20 };

struct shared {
	struct gdri_region region;
	struct gdri_ctx *ctx;
	size_t handles; /* that borrow it; under the lock of the ranges, as is what follows */
	bool listed; /* in the table: found by later maps */
};

void gdri_ranges_init_lock(struct gdri_ranges *ranges)
{
	pthread_mutex_init(&ranges->lock, NULL);
}

void gdri_ranges_destroy(struct gdri_ranges *ranges)
{
	gdri_pages_destroy(&ranges->pages[0]);
	gdri_pages_destroy(&ranges->pages[1]);
}

int gdri_range_check(uint64_t addr, size_t size)
{
	uint64_t end;

	if (!size)
		return gdri_fail(EINVAL, "size is 0");
	if (!addr)
		return gdri_fail(EINVAL, "the address is 0");
	if (__builtin_add_overflow(addr, size, &end) || end > UINT64_MAX - GPU_PAGE_OFFSET)
		return gdri_fail(EOVERFLOW, "address 0x%llx + size 0x%zx wraps",
				 (unsigned long long)addr, size);
	if (end > GDRI_PAGES_LIMIT)
		return gdri_fail(EINVAL, "0x%llx is beyond any device address",
				 (unsigned long long)addr);
	return 0;
}

static void unlist_locked(struct gdri_pages *pages, struct shared *s)
{
	if (!s->listed)
		return;
	gdri_pages_erase(pages, s->region.pin.va, gdri_region_end(&s->region));
	s->listed = false;
}

/* Drops one use; the last one gives the region back. */
static int put_locked(struct gdri_pages *pages, struct shared *s)
{
	int rc;

	if (--s->handles)
		return 0;
	unlist_locked(pages, s);
	rc = gdri_region_close(&s->region);
	free(s);
	return rc;
}

static void returned(struct gdri_region *region)
{
	struct shared *s = (struct shared *)region;
	struct gdri_ranges *ranges = &s->ctx->ranges;

	pthread_mutex_lock(&ranges->lock);
	if (put_locked(&ranges->pages[region->read_only], s))
		gdri_log(BARCOPY_LOG_ERROR, "unpinning a shared range: %s", gdri_error_text());
	pthread_mutex_unlock(&ranges->lock);
}

/* The listed region that all of the range lies in and that is proven, or NULL. */
static struct shared *find_locked(struct gdri_pages *pages, uint64_t addr, size_t size)
{
	struct shared *s = gdri_pages_find(pages, addr);

	if (!s || !gdri_region_has(&s->region, addr, size) ||
	    gdri_region_prove_late(&s->region, addr, size) != GDRI_PROVEN)
		return NULL;
	return s;
}

/* Widens [*low, *high) by proven regions that touch it; unlists those that are not proven. */
static void join_locked(struct gdri_pages *pages, uint64_t *low, uint64_t *high)
{
	uint64_t at = *low & GPU_PAGE_MASK;
	struct shared *s;

	while ((s = gdri_pages_next(pages, at, *high))) {
		const struct gdri_region *r = &s->region;

		at = gdri_region_end(r);
		if (gdri_region_prove(r, r->low, r->high - r->low) != GDRI_PROVEN) {
			unlist_locked(pages, s);
			continue;
		}
		if (r->low < *low)
			*low = r->low;
		if (r->high > *high)
			*high = r->high;
	}
}

/* Lists a region in the place of those that it covers: their handles keep them until they end. */
static int list_locked(struct gdri_pages *pages, struct shared *s)
{
	uint64_t start = s->region.pin.va, end = gdri_region_end(&s->region);
	struct shared *old;
	int rc;

	while ((old = gdri_pages_next(pages, start, end)))
		unlist_locked(pages, old);
	rc = gdri_pages_enter(pages, start, end, s);
	s->listed = !rc;
	return rc;
}

static int open_locked(struct gdri_ctx *ctx, struct gdri_pages *pages, uint64_t addr, size_t size,
		       uint32_t flags, struct shared **out)
{
	uint64_t low = addr, high = addr + size;
	struct shared *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return gdri_fail(ENOMEM, "no memory for a range");
	rc = gdri_region_bounds(&low, &high, WHOLE_MAX);
	if (rc)
		goto err_free;
	join_locked(pages, &low, &high);
	rc = gdri_region_open(&s->region, ctx, low, high, flags, NULL);
	/* What is around the range may not be mappable together with it. */
	if (rc && (low < addr || high > addr + size))
		rc = gdri_region_open(&s->region, ctx, addr, addr + size, flags, NULL);
	/* Memory without tags cannot be shared, since it could never be proven. */
	if (rc && rc != -ENOMEM)
		rc = gdri_region_open(&s->region, ctx, addr, addr + size,
				      flags & ~(uint32_t)GDRI_REGION_TAGGED, NULL);
	if (rc)
		goto err_free;
	s->ctx = ctx;
	s->region.returned = returned;
	if (s->region.tag_count)
		rc = list_locked(pages, s);
	if (rc)
		goto err_close;
	*out = s;
	return 0;

err_close:
	gdri_region_close(&s->region);
err_free:
	free(s);
	return rc;
}

int gdri_range_map(struct gdri_ctx *ctx, uint64_t addr, size_t size, uint32_t flags, void **cpu_ptr,
		   gdr_mh_t *handle)
{
	bool read_only = flags & BARCOPY_MAP_RANGE_READ_ONLY;
	struct gdri_ranges *ranges = &ctx->ranges;
	struct gdri_pages *pages = &ranges->pages[read_only];
	struct shared *s;
	void *cpu;
	int rc = 0;

	pthread_mutex_lock(&ranges->lock);
	if (!pages->root)
		rc = gdri_pages_init(pages);
	if (!rc) {
		s = find_locked(pages, addr, size);
		if (!s)
			rc = open_locked(
				ctx, pages, addr, size,
				GDRI_REGION_TAGGED | (read_only ? GDRI_REGION_READ_ONLY : 0), &s);
		if (!rc)
			s->handles++;
	}
	pthread_mutex_unlock(&ranges->lock);
	if (rc)
		return rc;

	cpu = gdri_region_pointer(&s->region, addr);
	rc = gdri_region_lend(&s->region, ctx, addr, size, handle);
	if (rc) {
		pthread_mutex_lock(&ranges->lock);
		put_locked(pages, s);
		pthread_mutex_unlock(&ranges->lock);
		return rc;
	}
	*cpu_ptr = cpu;
	return 0;
}

int gdri_range_unmap(struct gdri_ctx *ctx, gdr_mh_t h)
{
	struct gdri_handle *handle;
	int rc = gdri_handle_lock(ctx, h, &handle);

	if (rc)
		return rc;
	if (!gdri_region_is_lent(&handle->pin) ||
	    gdri_region_of(&handle->pin)->returned != returned) {
		gdri_handle_unlock(handle);
		return gdri_fail(EINVAL, "0x%lx is not a handle of barcopy_map_range", h.h);
	}
	return gdri_handle_release_locked(handle);
}
