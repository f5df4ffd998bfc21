/* SPDX-License-Identifier: MIT */
/*
 * The entry points for copies, fences and words (vectors: copyv.c): look the handle up without a lock, check that the
 * range lies inside what the handle may touch, and hand over to src/copy. This is the path
 * that must stay short: nothing is logged or allocated here, and what is not to be counted pays
 * nothing for what is.
 */
#include "base/inside.h"
#include "base/sized.h"
#include "calls/calls.h"
#include "core/handle.h"

int gdri_explain_window(struct gdri_window w, const void *map_ptr, const void *host_ptr,
			size_t size)
{
	if (!host_ptr)
		return -gdri_fail(EINVAL, "the host pointer is NULL");
	if (!w.end)
		return -gdri_fail(EACCES, "the handle is mapped read-only");
	return -gdri_fail(EINVAL, "%p + %zu is not inside the handle's range (%p + %zu)", map_ptr,
			  size, (void *)w.start, (size_t)(w.end - w.start));
}

/* The copy, if it may be. Its ends are its access's: writes go to the mapping, reads come from there. */
static inline __attribute__((always_inline)) int copy(struct gdri_window w, enum gdri_access access,
						      void *dst, const void *src, size_t size)
{
	const void *map = access == GDRI_WRITES ? dst : src;
	const void *host = access == GDRI_WRITES ? src : dst;

	if (!size)
		return 0;
	if (__builtin_expect(!host || !gdri_window_has(&w, map, size), 0))
		return gdri_explain_window(w, map, host, size);
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
 * Copies that are counted, and those that are refused: apart, and with the same arguments first, so that
 * the others do not save a register for it.
 */
static __attribute__((noinline)) int counted_copy(gdr_mh_t handle, void *dst, const void *src,
						  size_t size, enum gdri_access access)
{
	struct gdri_window w;
	int rc = gdri_handle_for_counted(handle, access, &w);

	if (rc)
		return -rc;
	rc = copy(w, access, dst, src, size);
	if (!rc && size)
		gdri_count_copies(w.counters, access, 1, size);
	return rc;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, GDRI_WRITES, &w), 0))
		return counted_copy(handle, map_d_ptr, h_ptr, size, GDRI_WRITES);
	return copy(w, GDRI_WRITES, map_d_ptr, h_ptr, size);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, GDRI_READS, &w), 0))
		return counted_copy(handle, h_ptr, map_d_ptr, size, GDRI_READS);
	return copy(w, GDRI_READS, h_ptr, map_d_ptr, size);
}

static int take_options(const barcopy_copy_options_t *from, barcopy_copy_options_t *to)
{
	int rc = gdri_sized_in(to, sizeof(*to), FIRST_COPY_OPTIONS, from);

	if (rc)
		return rc;
	if (to->flags)
		return gdri_fail(EINVAL, "unknown bits in option flags 0x%x", to->flags);
	if (to->reserved)
		return gdri_fail(EINVAL, "a reserved member of the options is not 0");
	return 0;
}

int barcopy_set_copy_options(gdr_mh_t handle, const barcopy_copy_options_t *options)
{
	barcopy_copy_options_t known;
	int rc = options ? take_options(options, &known) : 0;

	if (rc)
		return -rc;
	gdri_inside_enter();
	rc = gdri_handle_set_copy_options(NULL, handle, options ? &known : NULL);
	gdri_inside_leave();
	return -rc;
}

int barcopy_fence(gdr_mh_t handle, barcopy_fence_t use)
{
	struct gdri_window w;
	int rc = gdri_handle_window(handle, GDRI_READS, &w);

	if (rc)
		return -rc;
	if ((int)use < BARCOPY_FENCE_BEFORE_READ || use > BARCOPY_FENCE_FULL)
		return -gdri_fail(EINVAL, "unknown fence %d", (int)use);
	gdri_fence(w.plan, use);
	return 0;
}

int barcopy_flush(gdr_mh_t handle)
{
	struct gdri_window w;
	int rc = gdri_handle_window(handle, GDRI_READS, &w);

	if (rc)
		return -rc;
	/*
	 * The word around the first byte. A range may begin anywhere and be a byte long, but what is
	 * mapped is whole pages.
	 */
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

static __attribute__((cold, noinline)) int explain_word(struct gdri_window w, const void *ptr,
							size_t size)
{
	if ((uintptr_t)ptr & (size - 1))
		return -gdri_fail(EINVAL, "%p is not aligned to %zu bytes", ptr, size);
	return gdri_explain_window(w, ptr, "", size);
}

/* A post is counted as a put. */
enum word_way { PUT_WORD, POST_WORD };

static inline __attribute__((always_inline)) int
store_word(struct gdri_window w, void *ptr, uint64_t value, size_t size, enum word_way way)
{
	if (!is_word(w, ptr, size))
		return explain_word(w, ptr, size);
	if (size == sizeof(uint32_t))
		(way == POST_WORD ? gdri_post32 : gdri_put32)(w.plan, ptr, (uint32_t)value);
	else
		(way == POST_WORD ? gdri_post64 : gdri_put64)(w.plan, ptr, value);
	return 0;
}

/* The words that are counted, or refused: apart, as the copies are. */
static __attribute__((noinline)) int counted_word(gdr_mh_t handle, void *ptr, uint64_t value,
						  size_t size, enum word_way way)
{
	struct gdri_window w;
	int rc = gdri_handle_for_counted(handle, GDRI_WRITES, &w);

	if (rc)
		return -rc;
	rc = store_word(w, ptr, value, size, way);
	if (!rc)
		gdri_count(w.counters, GDRI_COUNT_PUT, 1);
	return rc;
}

static inline __attribute__((always_inline)) int
put_word(gdr_mh_t handle, void *ptr, uint64_t value, size_t size, enum word_way way)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, GDRI_WRITES, &w), 0))
		return counted_word(handle, ptr, value, size, way);
	return store_word(w, ptr, value, size, way);
}

int barcopy_put32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	return put_word(handle, map_ptr, value, sizeof(value), PUT_WORD);
}

int barcopy_put64(gdr_mh_t handle, void *map_ptr, uint64_t value)
{
	return put_word(handle, map_ptr, value, sizeof(value), PUT_WORD);
}

int barcopy_post32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	return put_word(handle, map_ptr, value, sizeof(value), POST_WORD);
}

int barcopy_post64(gdr_mh_t handle, void *map_ptr, uint64_t value)
{
	return put_word(handle, map_ptr, value, sizeof(value), POST_WORD);
}

/* A line is counted as a put. */
static inline __attribute__((always_inline)) int store_line(struct gdri_window w, void *ptr,
							    const void *line)
{
	if (!is_word(w, ptr, BARCOPY_LINE))
		return explain_word(w, ptr, BARCOPY_LINE);
	if (__builtin_expect(!line, 0))
		return -gdri_fail(EINVAL, "line is NULL");
	gdri_post_line(w.plan, ptr, line);
	return 0;
}

static __attribute__((noinline)) int counted_line(gdr_mh_t handle, void *ptr, const void *line)
{
	struct gdri_window w;
	int rc = gdri_handle_for_counted(handle, GDRI_WRITES, &w);

	if (rc)
		return -rc;
	rc = store_line(w, ptr, line);
	if (!rc)
		gdri_count(w.counters, GDRI_COUNT_PUT, 1);
	return rc;
}

int barcopy_post_line(gdr_mh_t handle, void *map_ptr, const void *line)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, GDRI_WRITES, &w), 0))
		return counted_line(handle, map_ptr, line);
	return store_line(w, map_ptr, line);
}

/* A read waits for the link, so here the counting is in the one path. */
static inline __attribute__((always_inline)) int find_get(gdr_mh_t handle, const void *ptr,
							  const void *value, size_t size,
							  const struct gdri_copy_plan **plan)
{
	struct gdri_window w;
	int rc = gdri_handle_window(handle, GDRI_READS, &w);

	if (rc)
		return -rc;
	*plan = w.plan;
	if (!is_word(w, ptr, size))
		return explain_word(w, ptr, size);
	if (!value)
		return -gdri_fail(EINVAL, "value is NULL");
	if (__builtin_expect(!!w.counters, 0))
		gdri_count(w.counters, GDRI_COUNT_GET, 1);
	return 0;
}

int barcopy_get32(gdr_mh_t handle, const void *map_ptr, uint32_t *value)
{
	const struct gdri_copy_plan *plan;
	int err = find_get(handle, map_ptr, value, sizeof(*value), &plan);

	if (!err)
		*value = gdri_get32(plan, map_ptr);
	return err;
}

int barcopy_get64(gdr_mh_t handle, const void *map_ptr, uint64_t *value)
{
	const struct gdri_copy_plan *plan;
	int err = find_get(handle, map_ptr, value, sizeof(*value), &plan);

	if (!err)
		*value = gdri_get64(plan, map_ptr);
	return err;
}

/* Whatever its width, a wait is the slow path already. */
static int wait_word(gdr_mh_t handle, const void *ptr, size_t size, barcopy_cmp_t cmp,
		     uint64_t value, uint64_t timeout_ns)
{
	struct gdri_window w;
	int rc = gdri_handle_window(handle, GDRI_READS, &w);

	if (rc)
		return -rc;
	if (!is_word(w, ptr, size))
		return explain_word(w, ptr, size);
	rc = gdri_wait(w.plan, ptr, size, cmp, value, timeout_ns);
	if (rc == -EINVAL)
		return -gdri_fail(EINVAL, "unknown comparison %d", (int)cmp);
	if (rc) {
		/* Expected by who polls: a text, no message, and nothing that is formatted. */
		gdri_error_say("the word did not compare as asked in time");
		return ETIMEDOUT;
	}
	if (w.counters)
		gdri_count(w.counters, GDRI_COUNT_WAIT, 1);
	return 0;
}

int barcopy_wait32(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint32_t value,
		   uint64_t timeout_ns)
{
	return wait_word(handle, map_ptr, sizeof(value), cmp, value, timeout_ns);
}

int barcopy_wait64(gdr_mh_t handle, const void *map_ptr, barcopy_cmp_t cmp, uint64_t value,
		   uint64_t timeout_ns)
{
	return wait_word(handle, map_ptr, sizeof(value), cmp, value, timeout_ns);
}
