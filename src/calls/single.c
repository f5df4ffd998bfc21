/* SPDX-License-Identifier: MIT */
/* The entry points for words, lines, waits and fences, on the path of copies.c. */
#include "calls/calls.h"

#include <inttypes.h>
#include <stdio.h>

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

/* Stores the line if the size is BARCOPY_LINE, else the word. */
static inline __attribute__((always_inline)) int store(struct gdri_window w, void *ptr,
						       uint64_t word, const void *line, size_t size,
						       enum word_kind kind)
{
	if (!is_word(w, ptr, size))
		return explain_word(w.start, w.end, ptr, size);
	if (size == BARCOPY_LINE && __builtin_expect(!line, 0))
		return gdri_null("line");
	if (size == BARCOPY_LINE)
		gdri_post_line(w.plan, ptr, line);
	else if (size == sizeof(uint32_t))
		(kind == POST ? gdri_post32 : gdri_put32)(w.plan, ptr, (uint32_t)word);
	else
		(kind == POST ? gdri_post64 : gdri_put64)(w.plan, ptr, word);
	return 0;
}

/* Stores that are counted, each as a put, or refused. */
static __attribute__((noinline)) int counted_store(gdr_mh_t handle, void *ptr, uint64_t word,
						   const void *line, size_t size,
						   enum word_kind kind)
{
	struct gdri_window w;
	int rc = gdri_handle_for_copy_slow(handle, GDRI_WRITES, &w);

	if (rc)
		return rc;
	rc = store(w, ptr, word, line, size, kind);
	if (!rc)
		gdri_count(w.counters, GDRI_COUNT_PUT, 1);
	return rc;
}

static inline __attribute__((always_inline)) int find_and_store(gdr_mh_t handle, void *ptr,
								uint64_t word, const void *line,
								size_t size, enum word_kind kind)
{
	struct gdri_window w;

	if (__builtin_expect(!gdri_handle_for_copy(handle, GDRI_WRITES, &w), 0))
		return counted_store(handle, ptr, word, line, size, kind);
	return store(w, ptr, word, line, size, kind);
}

int barcopy_put32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, NULL, sizeof(value), PUT));
}

int barcopy_put64(gdr_mh_t handle, void *map_ptr, uint64_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, NULL, sizeof(value), PUT));
}

int barcopy_post32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, NULL, sizeof(value), POST));
}

int barcopy_post64(gdr_mh_t handle, void *map_ptr, uint64_t value)
{
	return gdri_out(find_and_store(handle, map_ptr, value, NULL, sizeof(value), POST));
}

int barcopy_post_line(gdr_mh_t handle, void *map_ptr, const void *line)
{
	return gdri_out(find_and_store(handle, map_ptr, 0, line, BARCOPY_LINE, POST));
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

/* Not logged: a caller that polls expects it. One that did not wait at all gets a constant text. */
static __attribute__((cold)) int timed_out(uint64_t word, barcopy_cmp_t cmp, uint64_t value,
					   bool waited)
{
	static const char *const sign[] = {
		[BARCOPY_CMP_EQ] = "==", [BARCOPY_CMP_NE] = "!=", [BARCOPY_CMP_LT] = "<",
		[BARCOPY_CMP_LE] = "<=", [BARCOPY_CMP_GT] = ">",  [BARCOPY_CMP_GE] = ">="
	};
	char text[96] = "the comparison does not hold";

	if (waited)
		snprintf(text, sizeof(text),
			 "timed out: the word is %" PRIu64 ", waited for %s %" PRIu64, word,
			 sign[cmp], value);
	gdri_error_say(text);
	return -ETIMEDOUT;
}

static int wait_word(gdr_mh_t handle, const void *ptr, size_t size, barcopy_cmp_t cmp,
		     uint64_t value, uint64_t timeout_ns)
{
	struct gdri_window w;
	uint64_t last = 0;
	int rc = find_word(handle, ptr, size, &w);

	if (rc)
		return rc;
	rc = gdri_wait(w.plan, ptr, size, cmp, value, timeout_ns, &last);
	if (rc == -EINVAL)
		return gdri_fail(EINVAL, "unknown comparison %d", (int)cmp);
	if (rc)
		return timed_out(last, cmp, value, timeout_ns);
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
