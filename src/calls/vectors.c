// SPDX-License-Identifier: MIT
/* The entry points for vectored copies. Every piece is validated before the first byte is moved. */
#include "calls/calls.h"

static int check_flags(const void *seg, size_t count, uint32_t flags)
{
	if (flags & ~(uint32_t)BARCOPY_COPY_NO_FENCE)
		return gdri_fail(EINVAL, "unknown bits in copy flags 0x%x", flags);
	return count && !seg ? gdri_null("seg") : 0;
}

static __attribute__((cold, noinline)) int explain_segment(struct gdri_window w,
							   const barcopy_copy_seg_t *seg, size_t n)
{
	if (seg->flags & ~(uint32_t)BARCOPY_COPY_ORDERED || seg->reserved)
		return gdri_fail(EINVAL, "segment %zu: unknown flags or reserved not 0", n);
	return gdri_explain_window(w.start, w.end, seg->map_ptr, seg->host_ptr, seg->size);
}

/* May the piece be copied? A read waits for this check: few instructions. */
static inline __attribute__((always_inline)) bool is_good(struct gdri_window w,
							  const barcopy_copy_seg_t *seg)
{
	if ((seg->flags & ~(uint32_t)BARCOPY_COPY_ORDERED) | seg->reserved)
		return false;
	return (seg->host_ptr && gdri_window_has(&w, seg->map_ptr, seg->size)) || !seg->size;
}

static void move(enum gdri_access access, const struct gdri_copy_plan *plan,
		 const barcopy_copy_seg_t *seg, size_t count, size_t step, uint32_t flags)
{
	if (access == GDRI_WRITES)
		gdri_copyv_to(plan, seg, count, step, flags);
	else
		gdri_copyv_from(plan, seg, count, step, flags);
}

static __attribute__((cold, noinline)) void count_segments(struct gdri_counters *counters,
							   enum gdri_access access,
							   const barcopy_copy_seg_t *seg,
							   size_t count)
{
	for (; count; seg++, count--)
		if (seg->size)
			gdri_count_copies(counters, access, 1, seg->size);
}

static int copyv(gdr_mh_t handle, enum gdri_access access, const barcopy_copy_seg_t *seg,
		 size_t count, uint32_t flags)
{
	struct gdri_window w;
	int rc = gdri_handle_window(handle, access, &w) ?: check_flags(seg, count, flags);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		if (__builtin_expect(!is_good(w, &seg[i]), 0))
			return explain_segment(w, &seg[i], i);
	if (count)
		move(access, w.plan, seg, count, sizeof(*seg), flags);
	if (__builtin_expect(!!w.counters, 0))
		count_segments(w.counters, access, seg, count);
	return 0;
}

int barcopy_copyv_to_mapping(gdr_mh_t handle, const barcopy_copy_seg_t *seg, size_t count,
			     uint32_t flags)
{
	return gdri_out(copyv(handle, GDRI_WRITES, seg, count, flags));
}

int barcopy_copyv_from_mapping(gdr_mh_t handle, const barcopy_copy_seg_t *seg, size_t count,
			       uint32_t flags)
{
	return gdri_out(copyv(handle, GDRI_READS, seg, count, flags));
}

/* What the handles of a vector have in common. */
struct several {
	const struct gdri_copy_plan *plan; /* of the mapping whose fences serve all */
	bool alike; /* all mappings are of one type */
	bool counted;
};

static int check_several(enum gdri_access access, const barcopy_handle_seg_t *v, size_t count,
			 struct several *all)
{
	struct gdri_window w = { 0 };

	*all = (struct several){ .alike = true };
	for (size_t i = 0; i < count; i++) {
		if (!i || v[i].handle.h != v[i - 1].handle.h) {
			int rc = gdri_handle_window(v[i].handle, access, &w);

			if (rc)
				return rc;
			if (__builtin_expect(w.plan != all->plan, 0)) {
				if (all->plan && !gdri_copy_alike(all->plan, w.plan))
					all->alike = false;
				all->plan = all->plan ? gdri_copy_stricter(all->plan, w.plan)
						      : w.plan;
			}
			all->counted = all->counted || w.counters;
		}
		if (__builtin_expect(!is_good(w, &v[i].seg), 0))
			return explain_segment(w, &v[i].seg, i);
	}
	return 0;
}

/* How many pieces one call may take: of mappings of one type, and only the first may be ORDERED. */
static size_t run_length(const barcopy_handle_seg_t *v, size_t count, enum gdri_access access,
			 const struct gdri_copy_plan *plan)
{
	size_t n = 1;

	for (struct gdri_window w; n < count; n++)
		if (v[n].seg.flags & BARCOPY_COPY_ORDERED ||
		    (v[n].handle.h != v[n - 1].handle.h &&
		     (gdri_handle_window(v[n].handle, access, &w) ||
		      !gdri_copy_alike(plan, w.plan))))
			break;
	return n;
}

/* Mappings of several types: run by run, with the fences of the strictest type around each. */
static int move_mixed(enum gdri_access access, const struct gdri_copy_plan *strict,
		      const barcopy_handle_seg_t *v, size_t count, uint32_t flags)
{
	bool writes = access == GDRI_WRITES;
	barcopy_fence_t between = writes ? BARCOPY_FENCE_AFTER_WRITE : BARCOPY_FENCE_FULL;
	bool any = false, fences = !(flags & BARCOPY_COPY_NO_FENCE);

	if (fences && !writes)
		gdri_fence(strict, BARCOPY_FENCE_BEFORE_READ);
	for (size_t n; count; v += n, count -= n) {
		struct gdri_window w;
		int rc = gdri_handle_window(v->handle, access, &w);

		if (rc) /* the caller has ended it during the call, which is forbidden */
			return rc;
		n = run_length(v, count, access, w.plan);
		if (v->seg.flags & BARCOPY_COPY_ORDERED && v->seg.size && any)
			gdri_fence(strict, between);
		for (size_t i = 0; i < n; i++)
			any = any || v[i].seg.size;
		move(access, w.plan, &v->seg, n, sizeof(*v), BARCOPY_COPY_NO_FENCE);
	}
	if (fences)
		gdri_fence(strict, writes ? BARCOPY_FENCE_AFTER_WRITE : BARCOPY_FENCE_AFTER_READ);
	return 0;
}

static __attribute__((cold, noinline)) void
count_several(enum gdri_access access, const barcopy_handle_seg_t *v, size_t count)
{
	struct gdri_window w;

	for (; count; v++, count--)
		if (!gdri_handle_window(v->handle, access, &w) && w.counters)
			count_segments(w.counters, access, &v->seg, 1);
}

static int copy_several(enum gdri_access access, const barcopy_handle_seg_t *v, size_t count,
			uint32_t flags)
{
	struct several all;
	int rc = check_flags(v, count, flags) ?: check_several(access, v, count, &all);

	if (rc || !count)
		return rc;
	if (all.alike)
		move(access, all.plan, &v->seg, count, sizeof(*v), flags);
	else
		rc = move_mixed(access, all.plan, v, count, flags);
	if (__builtin_expect(all.counted, 0))
		count_several(access, v, count);
	return rc;
}

int barcopy_copyv_to_mappings(const barcopy_handle_seg_t *seg, size_t count, uint32_t flags)
{
	return gdri_out(copy_several(GDRI_WRITES, seg, count, flags));
}

int barcopy_copyv_from_mappings(const barcopy_handle_seg_t *seg, size_t count, uint32_t flags)
{
	return gdri_out(copy_several(GDRI_READS, seg, count, flags));
}
