/* SPDX-License-Identifier: MIT */
/*
 * The entry points for copies, fences and words (vectors: copyv.c). Each finds the handle's window
 * without a lock, validates the range, and calls src/copy. The path is short: it neither logs nor
 * allocates. A copy does not test whether it is counted; gets and waits do.
 */
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

/* Copies that are counted or refused. With this order of arguments its callers save no register. */
static __attribute__((noinline)) int counted_copy(gdr_mh_t handle, void *dst, const void *src,
						  size_t size, enum gdri_access access)
{
	struct gdri_window w;
	int rc = gdri_handle_for_counted(handle, access, &w);

	if (rc)
		return rc;
	rc = copy(w, access, dst, src, size);
	if (!rc && size)
		gdri_count_copies(w.counters, access, 1, size);
	return rc;
}

static inline __attribute__((always_inline)) int
find_and_copy(gdr_mh_t handle, void *dst, const void *src, size_t size, enum gdri_access access)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, access, &w), 0))
		return counted_copy(handle, dst, src, size, access);
	return copy(w, access, dst, src, size);
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	return gdri_out(find_and_copy(handle, map_d_ptr, h_ptr, size, GDRI_WRITES));
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	return gdri_out(find_and_copy(handle, h_ptr, map_d_ptr, size, GDRI_READS));
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

int barcopy_fence(gdr_mh_t handle, barcopy_fence_t use)
{
	struct gdri_window w;
	int rc = gdri_handle_window(handle, GDRI_READS, &w);

	if (!rc && ((int)use < BARCOPY_FENCE_BEFORE_READ || use > BARCOPY_FENCE_FULL))
		rc = gdri_fail(EINVAL, "unknown fence %d", (int)use);
	if (!rc)
		gdri_fence(w.plan, use);
	return gdri_out(rc);
}

int barcopy_flush(gdr_mh_t handle)
{
	struct gdri_window w;
	int rc = gdri_handle_window(handle, GDRI_READS, &w);

	if (rc)
		return gdri_out(rc);
	/* Whole pages are mapped, and so is the word around the first byte. */
	if (w.start == w.end)
		gdri_fence(w.plan, BARCOPY_FENCE_FULL);
	else
		gdri_flush_word(w.plan, (const void *)(w.start & ~(uintptr_t)3));
	return 0;
}

static inline bool is_word(struct gdri_window w, const void *ptr, size_t size)
{
	return __builtin_expect(!((uintptr_t)ptr & (size - 1)) && gdri_window_has(&w, ptr, size),
				1);
}

static __attribute__((cold, noinline)) int explain_word(uintptr_t start, uintptr_t end,
							const void *ptr, size_t size)
{
	if ((uintptr_t)ptr & (size - 1))
		return gdri_fail(EINVAL, "%p is not aligned to %zu bytes", ptr, size);
	return gdri_explain_window(start, end, ptr, "", size);
}

enum word_kind { PUT, POST };

/* @value: the word; for BARCOPY_LINE, a pointer to the line. */
static inline __attribute__((always_inline)) int
store(struct gdri_window w, void *ptr, uint64_t value, size_t size, enum word_kind kind)
{
	if (!is_word(w, ptr, size))
		return explain_word(w.start, w.end, ptr, size);
	if (size == BARCOPY_LINE && __builtin_expect(!value, 0))
		return gdri_null("line");
	if (size == BARCOPY_LINE)
		gdri_post_line(w.plan, ptr, (const void *)(uintptr_t)value);
	else if (size == sizeof(uint32_t))
		(kind == POST ? gdri_post32 : gdri_put32)(w.plan, ptr, (uint32_t)value);
	else
		(kind == POST ? gdri_post64 : gdri_put64)(w.plan, ptr, value);
	return 0;
}

/* Stores that are counted, each as a put, or refused. */
static __attribute__((noinline)) int counted_store(gdr_mh_t handle, void *ptr, uint64_t value,
						   size_t size, enum word_kind kind)
{
	struct gdri_window w;
	int rc = gdri_handle_for_counted(handle, GDRI_WRITES, &w);

	if (rc)
		return rc;
	rc = store(w, ptr, value, size, kind);
	if (!rc)
		gdri_count(w.counters, GDRI_COUNT_PUT, 1);
	return rc;
}

static inline __attribute__((always_inline)) int
find_and_store(gdr_mh_t handle, void *ptr, uint64_t value, size_t size, enum word_kind kind)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, GDRI_WRITES, &w), 0))
		return counted_store(handle, ptr, value, size, kind);
	return store(w, ptr, value, size, kind);
}

int barcopy_put32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, sizeof(value), PUT));
}

int barcopy_put64(gdr_mh_t handle, void *map_ptr, uint64_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, sizeof(value), PUT));
}

int barcopy_post32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, sizeof(value), POST));
}

int barcopy_post64(gdr_mh_t handle, void *map_ptr, uint64_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, sizeof(value), POST));
}

int barcopy_post_line(gdr_mh_t handle, void *map_ptr, const void *line)
{
	return gdri_out(find_and_store(handle, map_ptr, (uintptr_t)line, BARCOPY_LINE, POST));
}

/* The window of a word to be loaded. A load waits for the link: counted ones take the same path. */
static inline __attribute__((always_inline)) int find_word(gdr_mh_t handle, const void *ptr,
							   size_t size, struct gdri_window *w)
{
	int rc = gdri_handle_window(handle, GDRI_READS, w);

	if (rc)
		return rc;
	return is_word(*w, ptr, size) ? 0 : explain_word(w->start, w->end, ptr, size);
}

static inline __attribute__((always_inline)) int load(gdr_mh_t handle, const void *ptr, void *value,
						      size_t size)
{
	struct gdri_window w;
	int rc = find_word(handle, ptr, size, &w);

	if (rc)
		return rc;
	if (!value)
		return gdri_null("value");
	if (__builtin_expect(!!w.counters, 0))
		gdri_count(w.counters, GDRI_COUNT_GET, 1);
	if (size == sizeof(uint32_t))
		*(uint32_t *)value = gdri_get32(w.plan, ptr);
	else
		*(uint64_t *)value = gdri_get64(w.plan, ptr);
	return 0;
}

int barcopy_get32(gdr_mh_t handle, const void *map_ptr, uint32_t *value)
{
	return gdri_out(load(handle, map_ptr, value, sizeof(*value)));
}

int barcopy_get64(gdr_mh_t handle, const void *map_ptr, uint64_t *value)
{
	return gdri_out(load(handle, map_ptr, value, sizeof(*value)));
}

static int wait_word(gdr_mh_t handle, const void *ptr, size_t size, barcopy_cmp_t cmp,
		     uint64_t value, uint64_t timeout_ns)
{
	struct gdri_window w;
	int rc = find_word(handle, ptr, size, &w);

	if (rc)
		return rc;
	rc = gdri_wait(w.plan, ptr, size, cmp, value, timeout_ns);
	if (rc == -EINVAL)
		return gdri_fail(EINVAL, "unknown comparison %d", (int)cmp);
	if (rc) {
		/* A caller that polls expects it: a constant text, and no log message. */
		gdri_error_say("the word did not compare as asked in time");
		return -ETIMEDOUT;
	}
	if (w.counters)
		gdri_count(w.counters, GDRI_COUNT_WAIT, 1);
	return 0;
}

int barcopy_wait32(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint32_t value,
		   uint64_t timeout_ns)
{
	return gdri_out(wait_word(handle, map_ptr, sizeof(value), cmp, value, timeout_ns));
}

int barcopy_wait64(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint64_t value,
		   uint64_t timeout_ns)
{
	return gdri_out(wait_word(handle, map_ptr, sizeof(value), cmp, value, timeout_ns));
}
