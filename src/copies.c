/* SPDX-License-Identifier: MIT */
/*
 * The entry points for copies, fences and words: look the handle up without a lock, check that the
 * range lies inside what the handle may touch, and hand over to the copy engine. This is the path
 * that must stay short: nothing is logged, counted or allocated here.
 */
#include <errno.h>
#include <string.h>

#include "error.h"
#include "gdrapi.h"
#include "handle.h"
#include "copy/pool.h"

static __attribute__((cold, noinline)) void
explain_window(const struct gdri_window *w, const void *map_ptr, const void *host_ptr, size_t size)
{
	if (!host_ptr)
		gdri_error_set(EINVAL, "the host pointer is NULL");
	else
		gdri_error_set(EINVAL, "%p + %zu is not inside the handle's range (%p + %zu)",
			       map_ptr, size, (void *)w->start, (size_t)(w->end - w->start));
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy(handle, &w);

	if (rc)
		return -rc;
	if (!size)
		return 0;
	if (!h_ptr || !gdri_window_has(&w, map_d_ptr, size)) {
		explain_window(&w, map_d_ptr, h_ptr, size);
		return EINVAL;
	}
	gdri_copy_to(w.plan, map_d_ptr, h_ptr, size);
	return 0;
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy(handle, &w);

	if (rc)
		return -rc;
	if (!size)
		return 0;
	if (!h_ptr || !gdri_window_has(&w, map_d_ptr, size)) {
		explain_window(&w, map_d_ptr, h_ptr, size);
		return EINVAL;
	}
	gdri_copy_from(w.plan, h_ptr, map_d_ptr, size);
	return 0;
}

/* The handle's plan, if every piece may be copied; a positive errno otherwise. */
static int check_segments(gdr_mh_t handle, const gdr_copy_seg_t *seg, size_t count, uint32_t flags,
			  const struct gdri_copy_plan **plan)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy(handle, &w);

	if (rc)
		return -rc;
	if (flags & ~(uint32_t)GDR_COPY_NO_FENCE)
		return -gdri_fail(EINVAL, "unknown bits in copy flags 0x%x", flags);
	if (count && !seg)
		return -gdri_fail(EINVAL, "seg is NULL");
	for (size_t i = 0; i < count; i++) {
		if (seg[i].flags & ~(uint32_t)GDR_COPY_ORDERED || seg[i].reserved)
			return -gdri_fail(EINVAL, "segment %zu: unknown flags or reserved not 0",
					  i);
		if (seg[i].size &&
		    (!seg[i].host_ptr || !gdri_window_has(&w, seg[i].map_ptr, seg[i].size))) {
			explain_window(&w, seg[i].map_ptr, seg[i].host_ptr, seg[i].size);
			return EINVAL;
		}
	}
	*plan = w.plan;
	return 0;
}

int gdr_copyv_to_mapping(gdr_mh_t handle, const gdr_copy_seg_t *seg, size_t count, uint32_t flags)
{
	const struct gdri_copy_plan *plan;
	int err = check_segments(handle, seg, count, flags, &plan);

	if (!err && count)
		gdri_copyv_to(plan, seg, count, flags);
	return err;
}

int gdr_copyv_from_mapping(gdr_mh_t handle, const gdr_copy_seg_t *seg, size_t count, uint32_t flags)
{
	const struct gdri_copy_plan *plan;
	int err = check_segments(handle, seg, count, flags, &plan);

	if (!err && count)
		gdri_copyv_from(plan, seg, count, flags);
	return err;
}

/* What this library knows of the options; a caller's later struct may be longer, if with zeroes. */
static int take_options(const gdr_copy_options_t *from, gdr_copy_options_t *to)
{
	const unsigned char *bytes = (const unsigned char *)from;

	if (from->size < sizeof(*to))
		return gdri_fail(EINVAL, "gdr_copy_options_t: size %zu", from->size);
	for (size_t i = sizeof(*to); i < from->size; i++)
		if (bytes[i])
			return gdri_fail(EINVAL, "gdr_copy_options_t: unknown bytes are not 0");
	memcpy(to, from, sizeof(*to));
	if (to->flags)
		return gdri_fail(EINVAL, "unknown bits in option flags 0x%x", to->flags);
	if (to->threads > GDRI_POOL_MAX_THREADS)
		return gdri_fail(EINVAL, "%u threads are not in 0 .. %d", to->threads,
				 GDRI_POOL_MAX_THREADS);
	return 0;
}

int gdr_set_copy_options(gdr_mh_t handle, const gdr_copy_options_t *options)
{
	struct gdri_handle *hd = gdri_handle_lock_any(handle);
	gdr_copy_options_t known;
	int rc = 0;

	if (!hd)
		return gdri_handle_copy_errno(handle);
	if (options)
		rc = take_options(options, &known);
	if (!rc)
		rc = gdri_handle_set_copy_options_locked(hd, options ? &known : NULL);
	gdri_handle_unlock(hd);
	return -rc;
}

int gdr_fence(gdr_mh_t handle, gdr_fence_t use)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy(handle, &w);

	if (rc)
		return -rc;
	if ((int)use < GDR_FENCE_BEFORE_READ || use > GDR_FENCE_FULL)
		return -gdri_fail(EINVAL, "unknown fence %d", (int)use);
	gdri_fence(w.plan, use);
	return 0;
}

int gdr_flush(gdr_mh_t handle)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy(handle, &w);

	if (rc)
		return -rc;
	/* Every mapping begins and ends at a word, but host memory may be a single byte. */
	if (w.end - w.start < sizeof(uint32_t))
		gdri_fence(w.plan, GDR_FENCE_FULL);
	else
		gdri_flush_word(w.plan, (const void *)((w.start + 3) & ~(uintptr_t)3));
	return 0;
}

/* The handle's plan, if ptr is a word of `size` bytes in its range; a positive errno otherwise. */
static inline int check_word(gdr_mh_t handle, const void *ptr, size_t size,
			     const struct gdri_copy_plan **plan)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy(handle, &w);

	if (rc)
		return -rc;
	if ((uintptr_t)ptr & (size - 1))
		return -gdri_fail(EINVAL, "%p is not aligned to %zu bytes", ptr, size);
	if (!gdri_window_has(&w, ptr, size)) {
		explain_window(&w, ptr, "", size);
		return EINVAL;
	}
	*plan = w.plan;
	return 0;
}

int gdr_put32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	const struct gdri_copy_plan *plan;
	int err = check_word(handle, map_ptr, sizeof(value), &plan);

	if (!err)
		gdri_put32(plan, map_ptr, value);
	return err;
}

int gdr_put64(gdr_mh_t handle, void *map_ptr, uint64_t value)
{
	const struct gdri_copy_plan *plan;
	int err = check_word(handle, map_ptr, sizeof(value), &plan);

	if (!err)
		gdri_put64(plan, map_ptr, value);
	return err;
}

int gdr_get32(gdr_mh_t handle, const void *map_ptr, uint32_t *value)
{
	const struct gdri_copy_plan *plan;
	int err = check_word(handle, map_ptr, sizeof(*value), &plan);

	if (err)
		return err;
	if (!value)
		return -gdri_fail(EINVAL, "value is NULL");
	*value = gdri_get32(plan, map_ptr);
	return 0;
}

int gdr_get64(gdr_mh_t handle, const void *map_ptr, uint64_t *value)
{
	const struct gdri_copy_plan *plan;
	int err = check_word(handle, map_ptr, sizeof(*value), &plan);

	if (err)
		return err;
	if (!value)
		return -gdri_fail(EINVAL, "value is NULL");
	*value = gdri_get64(plan, map_ptr);
	return 0;
}

static int wait_result(int rc, gdr_cmp_t cmp)
{
	if (rc == -EINVAL)
		return -gdri_fail(EINVAL, "unknown comparison %d", (int)cmp);
	return rc ? -gdri_fail(-rc, "the word did not compare as asked in time") : 0;
}

int gdr_wait32(gdr_mh_t handle, const void *map_ptr, gdr_cmp_t cmp, uint32_t value,
	       uint64_t timeout_ns)
{
	const struct gdri_copy_plan *plan;
	int err = check_word(handle, map_ptr, sizeof(value), &plan);

	return err ? err : wait_result(gdri_wait32(plan, map_ptr, cmp, value, timeout_ns), cmp);
}

int gdr_wait64(gdr_mh_t handle, const void *map_ptr, gdr_cmp_t cmp, uint64_t value,
	       uint64_t timeout_ns)
{
	const struct gdri_copy_plan *plan;
	int err = check_word(handle, map_ptr, sizeof(value), &plan);

	return err ? err : wait_result(gdri_wait64(plan, map_ptr, cmp, value, timeout_ns), cmp);
}
