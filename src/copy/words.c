// SPDX-License-Identifier: MIT
/* Single words of a mapping: put, get, wait, flush, and the fence as a call of its own. */
#include "copy.h"

#include <errno.h>

#include "impl.h"
#include "fence.h"
#include "word.h"

/* The clock takes 25 ns, a poll of cached memory 1 ns: there it is read once in so many polls. */
#define CACHED_POLLS 64

void gdri_fence(const struct gdri_copy_plan *plan, barcopy_fence_t use)
{
	switch (use) {
	case BARCOPY_FENCE_BEFORE_READ:
		gdri_fence_before_read(plan->fences);
		break;
	case BARCOPY_FENCE_AFTER_READ:
		gdri_fence_after_read(plan->fences);
		break;
	case BARCOPY_FENCE_AFTER_WRITE:
		gdri_fence_after_write(plan->fences);
		break;
	case BARCOPY_FENCE_FULL:
		gdri_fence_full(plan->fences);
		break;
	}
}

/* The word may begin before the range that a caller may touch, in the same page. */
GDRI_WHOLE_LINES
void gdri_flush_word(const struct gdri_copy_plan *plan, const void *map)
{
	gdri_fence_full(plan->fences);
	(void)gdri_load32(map);
	gdri_fence_read_done(plan->fences);
}

/*
 * Work submission orders the GPU's view of what was written through the BAR before it (GPUDirect
 * RDMA guide, "CUDA APIs for Memory Ordering"). On x86 data and doorbell are posted writes of one
 * requester to one device, which PCIe keeps in order, so the data only has to leave the line
 * buffers: SFENCE. Without a read-back 6 120 000 copies by the GPU's engine of what the CPU had
 * just stored, or over it, 8 bytes to 64 KiB, found it in place (one H200, one H100; litmus dmaread
 * and dmawrite). On other links the two may take different paths and nothing was measured: they
 * flush.
 */
void gdri_drain(const struct gdri_copy_plan *plan, const void *map)
{
#if defined(__x86_64__)
	if (plan->type == GDR_MAPPING_TYPE_WC) {
		gdri_fence_after_write(plan->fences);
		return;
	}
#endif
	gdri_flush_word(plan, map);
}

/*
 * A put, a get and a post for each width. MOVDIRI, in bytes since binutils before 2.31 do not know
 * it, stores a word that does not gather in a line buffer but is sent [SDM], so no fence has to
 * drive it out. It is weakly ordered: behind an older SFENCE, not before any younger store.
 * Elsewhere a fence drives it out, as a plain store may wait in its line buffer without limit.
 */
#if defined(__x86_64__)
#define MOVDIRI(rex) \
	__asm__ volatile(".byte " rex "0x0f,0x38,0xf9,0x07" ::"a"(value), "D"(map) : "memory")
#else
#define MOVDIRI(rex) (void)0 /* plan->posts is false */
#endif

#define GDRI_WORDS(bits, rex)                                                                    \
	void gdri_put##bits(const struct gdri_copy_plan *plan, void *map, uint##bits##_t value)  \
	{                                                                                        \
		gdri_compiler_barrier();                                                         \
		gdri_store##bits(map, value);                                                    \
		gdri_fence_gathered(plan->fences);                                               \
		gdri_fence_after_write(plan->fences);                                            \
	}                                                                                        \
	uint##bits##_t gdri_get##bits(const struct gdri_copy_plan *plan, const void *map)        \
	{                                                                                        \
		uint##bits##_t value;                                                            \
                                                                                                 \
		gdri_fence_before_read(plan->fences);                                            \
		value = gdri_load##bits(map);                                                    \
		gdri_fence_after_read(plan->fences);                                             \
		return value;                                                                    \
	}                                                                                        \
	void gdri_post##bits(const struct gdri_copy_plan *plan, void *map, uint##bits##_t value) \
	{                                                                                        \
		if (plan->posts) {                                                               \
			MOVDIRI(rex);                                                            \
			return;                                                                  \
		}                                                                                \
		gdri_compiler_barrier();                                                         \
		gdri_store##bits(map, value);                                                    \
		gdri_fence_push(plan->fences);                                                   \
	}
GDRI_WORDS(32, "")
GDRI_WORDS(64, "0x48, ")

/* MOVDIR64B sends 64 bytes in one piece [SDM]. Elsewhere the last word waits for the others. */
void gdri_post_line(const struct gdri_copy_plan *plan, void *map, const void *line)
{
	uint8_t *d = map;
	const uint8_t *s = line;

	if (plan->posts_lines) {
		gdri_direct_line(d, s);
		return;
	}
	gdri_compiler_barrier();
#if defined(__aarch64__)
	uint64_t w[GDRI_LINE / sizeof(uint64_t)];

	GDRI_UNROLL
	for (size_t i = 0; i < GDRI_LINE / sizeof(uint64_t); i++)
		w[i] = gdri_any64(s + i * sizeof(uint64_t));
	gdri_store_line(d, w, false);
#else
	gdri_store_exact(d, s, GDRI_LINE - sizeof(uint64_t));
#endif
	gdri_fence_after_write(plan->fences);
	gdri_post64(plan, d + GDRI_LINE - sizeof(uint64_t),
		    gdri_any64(s + GDRI_LINE - sizeof(uint64_t)));
}

static bool holds(barcopy_cmp_t cmp, uint64_t a, uint64_t b)
{
	/* For a less than, equal to, greater than b. */
	static const bool table[][3] = {
		[BARCOPY_CMP_EQ] = { 0, 1, 0 }, [BARCOPY_CMP_NE] = { 1, 0, 1 },
		[BARCOPY_CMP_LT] = { 1, 0, 0 }, [BARCOPY_CMP_LE] = { 1, 1, 0 },
		[BARCOPY_CMP_GT] = { 0, 0, 1 }, [BARCOPY_CMP_GE] = { 0, 1, 1 },
	};

	return table[cmp][(a >= b) + (a > b)];
}

int gdri_wait(const struct gdri_copy_plan *plan, const void *map, size_t size, barcopy_cmp_t cmp,
	      uint64_t value, uint64_t timeout_ns, uint64_t *last)
{
	unsigned int polls = plan->type == GDR_MAPPING_TYPE_CACHING ? CACHED_POLLS : 1;
	/* The clock is read before the last poll: a word that came meanwhile is not missed. */
	bool is_last = !timeout_ns;
	uint64_t start = 0;

	if (cmp < BARCOPY_CMP_EQ || cmp > BARCOPY_CMP_GE)
		return -EINVAL;
	for (bool first = true;; first = false) {
		for (unsigned int i = 0; i < polls; i++) {
			uint64_t word;

			gdri_fence_before_poll(plan->fences, first && !i);
			*last = word =
				size == sizeof(uint32_t) ? gdri_load32(map) : gdri_load64(map);
			if (holds(cmp, word, value)) {
				gdri_fence_after_read(plan->fences);
				return 0;
			}
			if (is_last)
				return -ETIMEDOUT;
			gdri_relax();
		}
		if (timeout_ns == UINT64_MAX)
			continue;
		if (first)
			start = gdri_now_ns();
		else
			is_last = gdri_now_ns() - start >= timeout_ns;
	}
}
