// SPDX-License-Identifier: MIT
/* The copies: head and tail around the implementation's whole lines, and the fences. See copy.h. */
#include "copy.h"

#include "impl.h"
#include "fence.h"
#include "word.h"

#define LINE_MASK (GDRI_LINE - 1)

/*
 * Into d by whole lines of d, with exact edges; loads only [s, s + n). Line boundaries are word
 * boundaries, so head, body and tail never share a word, and the store discipline holds.
 */
static void lines_to(const struct gdri_copy_impl *impl, uint8_t *d, const uint8_t *s, size_t n)
{
	size_t head = -(uintptr_t)d & LINE_MASK;
	size_t body;

	if (impl->block == 1) {
		impl->to(d, s, n);
		return;
	}
	if (n < head + GDRI_LINE) {
		gdri_store_exact(d, s, n);
		return;
	}
	if (head)
		gdri_store_exact(d, s, head);
	body = (n - head) & ~LINE_MASK;
	impl->to(d + head, s + head, body);
	head += body;
	if (head != n)
		gdri_store_exact(d + head, s + head, n - head);
}

/*
 * Out of s by whole lines of s, also those that the range only touches: every line crosses the link
 * once, whatever the offsets. A partial line is loaded to the stack and its bytes are picked from
 * there; all loads of a range of one or two lines are issued before the first byte is stored.
 *
 * Loads outside the range stay in its lines, hence in its pages: they have no effect in a GPU
 * mapping, and in write-combined host memory a neighbouring allocation's bytes are loaded and
 * dropped.
 */
GDRI_WHOLE_LINES
static void lines_from(const struct gdri_copy_impl *impl, uint8_t *d, const uint8_t *s, size_t n)
{
	_Alignas(GDRI_LINE) uint8_t edge[2 * GDRI_LINE];
	size_t skip = (uintptr_t)s & LINE_MASK;
	size_t tail = (uintptr_t)(s + n) & LINE_MASK;
	size_t head;

	if (impl->block == 1 || !(skip | tail)) {
		impl->from(d, s, n);
		return;
	}
	if (skip + n <= sizeof(edge)) {
		impl->from(edge, s - skip, (skip + n + LINE_MASK) & ~LINE_MASK);
		gdri_store_exact(d, edge + skip, n);
		return;
	}
	/* The lines at both ends first: they are in flight while the body's are issued. */
	head = -skip & LINE_MASK;
	if (head)
		impl->from(edge, s - skip, GDRI_LINE);
	if (tail)
		impl->from(edge + GDRI_LINE, s + n - tail, GDRI_LINE);
	impl->from(d + head, s + head, n - head - tail);
	if (head)
		gdri_store_exact(d, edge + skip, head);
	if (tail)
		gdri_store_exact(d + n - tail, edge + GDRI_LINE, tail);
}

/* A range inside one aligned word: one plain load, whole as the word itself. */
GDRI_WHOLE_LINES
static void word_from(uint8_t *d, const uint8_t *s, size_t n)
{
	size_t skip = (uintptr_t)s & 7;
	uint64_t word = gdri_load64(s - skip) >> 8 * skip;

	gdri_store_exact(d, (const uint8_t *)&word, n);
}

/*
 * A read of cached memory whose words lie differently on the two sides: the mapping's aligned words
 * are loaded whole, each once. Loads only [s, s + n).
 */
static __attribute__((noinline)) void words_from(uint8_t *d, const uint8_t *s, size_t n)
{
	for (size_t done; n; d += done, s += done, n -= done) {
		size_t width = 8;
		uint64_t word;

		while (width > n || (uintptr_t)s & (width - 1))
			width /= 2;
		for (done = 0; width == 8 && n - done >= 8; done += 8) {
			word = gdri_load64(s + done);
			__builtin_memcpy(d + done, &word, 8);
		}
		if (done)
			continue;
		word = width == 4 ? gdri_load32(s) : width == 2 ? gdri_load16(s) : gdri_load8(s);
		gdri_store_exact(d, (const uint8_t *)&word, width);
		done = width;
	}
}

/* Any range of at least one byte. */
static void any_from(const struct gdri_copy_plan *plan, void *host, const void *map, size_t size)
{
	if (plan->exact_reads && ((uintptr_t)host ^ (uintptr_t)map) & 7)
		words_from(host, map, size);
	else if (plan->exact_reads)
		lines_to(plan->from, host, map, size);
	else if (((uintptr_t)map & 7) + size <= 8)
		word_from(host, map, size);
	else
		lines_from(plan->from, host, map, size);
}

/* Flags and doorbells: one plain access. */
static inline bool word_copied_to(void *map, const void *host, size_t size)
{
	if (size == 4 && !((uintptr_t)map & 3))
		gdri_store32(map, gdri_any32(host));
	else if (size == 8 && !((uintptr_t)map & 7))
		gdri_store64(map, gdri_any64(host));
	else
		return false;
	return true;
}

static inline bool word_copied_from(void *host, const void *map, size_t size)
{
	if (size == 4 && !((uintptr_t)map & 3)) {
		uint32_t word = gdri_load32(map);

		__builtin_memcpy(host, &word, sizeof(word));
	} else if (size == 8 && !((uintptr_t)map & 7)) {
		uint64_t word = gdri_load64(map);

		__builtin_memcpy(host, &word, sizeof(word));
	} else {
		return false;
	}
	return true;
}

void gdri_move_to(const struct gdri_copy_plan *plan, void *map, const void *host, size_t size)
{
	if (!word_copied_to(map, host, size))
		lines_to(plan->to, map, host, size);
}

void gdri_move_from(const struct gdri_copy_plan *plan, void *host, const void *map, size_t size)
{
	if (!word_copied_from(host, map, size))
		any_from(plan, host, map, size);
}

/* Words come first: they are never handed over, and other copies pay one comparison for that. */
void gdri_copy_to(const struct gdri_copy_plan *plan, void *map, const void *host, size_t size)
{
	gdri_compiler_barrier();
	if (!word_copied_to(map, host, size)) {
		if (__builtin_expect(size >= plan->large_to_min, 0)) {
			plan->large(plan, map, host, size, true);
			return;
		}
		if (size)
			lines_to(plan->to, map, host, size);
	}
	gdri_fence_after_write(plan->fences);
}

void gdri_copy_from(const struct gdri_copy_plan *plan, void *host, const void *map, size_t size)
{
	gdri_fence_before_read(plan->fences);
	if (!word_copied_from(host, map, size)) {
		if (__builtin_expect(size >= plan->large_from_min, 0)) {
			plan->large(plan, host, map, size, false);
			return;
		}
		if (size)
			any_from(plan, host, map, size);
	}
	gdri_fence_after_read(plan->fences);
}
