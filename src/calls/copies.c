/* SPDX-License-Identifier: MIT */
/* The entry points for copies and their options. A copy takes no lock and logs nothing. */
#include "base/inside.h"
#include "base/struct_size.h"
#include "calls/calls.h"

int gdri_explain_window(uintptr_t start, uintptr_t end, const void *map_ptr, const void *host_ptr,
			size_t size)
{
	if (!host_ptr)
		return gdri_fail(EINVAL, "the host pointer is NULL");
	if (!end)
		return gdri_fail(EACCES, "the handle is mapped read-only");
	return gdri_fail(EINVAL, "%p + %zu is not inside the handle's range (%p + %zu)", map_ptr,
			 size, (void *)start, (size_t)(end - start));
}

static inline __attribute__((always_inline)) int copy(struct gdri_window w, enum gdri_access access,
						      void *dst, const void *src, size_t size)
{
	const void *map = access == GDRI_WRITES ? dst : src;
	const void *host = access == GDRI_WRITES ? src : dst;

	if (!size)
		return 0;
	if (__builtin_expect(!host || !gdri_window_has(&w, map, size), 0))
		return gdri_explain_window(w.start, w.end, map, host, size);
	if (access == GDRI_WRITES)
		gdri_copy_to(w.plan, dst, src, size);
	else
		gdri_copy_from(w.plan, dst, src, size);
	return 0;
}

void gdri_count_copies(struct gdri_counters *counters, enum gdri_access access, uint64_t n,
		       uint64_t bytes)
{
	bool to = access == GDRI_WRITES;

	gdri_count(counters, to ? GDRI_COUNT_COPIES_TO : GDRI_COUNT_COPIES_FROM, n);
	gdri_count(counters, to ? GDRI_COUNT_BYTES_TO : GDRI_COUNT_BYTES_FROM, bytes);
}

/*
 * Copies that are counted or refused. Out of line, with the callers' order of arguments, and its
 * result is returned as it is: so the callers end by a jump here, and their fast path saves no
 * register.
 */
static __attribute__((noinline)) int counted_copy(gdr_mh_t handle, void *dst, const void *src,
						  size_t size, enum gdri_access access)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy_slow(handle, access, &w);

	if (rc)
		return gdri_out(rc);
	rc = copy(w, access, dst, src, size);
	if (!rc && size)
		gdri_count_copies(w.counters, access, 1, size);
	return gdri_out(rc);
}

static inline __attribute__((always_inline)) int
find_and_copy(gdr_mh_t handle, void *dst, const void *src, size_t size, enum gdri_access access)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, access, &w), 0))
		return counted_copy(handle, dst, src, size, access);
	return gdri_out(copy(w, access, dst, src, size));
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	return find_and_copy(handle, map_d_ptr, h_ptr, size, GDRI_WRITES);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	return find_and_copy(handle, h_ptr, map_d_ptr, size, GDRI_READS);
}

int barcopy_set_copy_options(gdr_mh_t handle, const barcopy_copy_options_t *options)
{
	barcopy_copy_options_t o = { 0 };
	int rc = options ? gdri_struct_in(&o, sizeof(o), FIRST_COPY_OPTIONS, options) : 0;

	if (!rc && o.flags)
		rc = gdri_fail(EINVAL, "unknown bits in option flags 0x%x", o.flags);
	else if (!rc && o.reserved)
		rc = gdri_fail(EINVAL, "a reserved member of the options is not 0");
	if (!rc) {
		gdri_inside_enter();
		rc = gdri_handle_set_copy_options(NULL, handle, &o);
		gdri_inside_leave();
	}
	return gdri_out(rc);
}
