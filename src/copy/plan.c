// SPDX-License-Identifier: MIT
/*
 * The table of implementations, and which of them a plan uses: the first that the CPU can run, or
 * the one that the environment names, chosen once per process. docs/internals/changes.md has the
 * files that a further instruction set needs.
 *
 * The order rests on perf/copybench. One H200 (PCIe 5.0 x16, driver 580.159.04, 2026-11-22),
 * write-combined BAR1 by the rm backend, under a Sapphire-Rapids-class CPU in a virtual machine;
 * medians of 15 rounds, all fenced:
 *
 *   us                   reads                           writes
 *                 64 B  1 KiB  4 KiB  256 KiB     64 B   1 KiB   4 KiB  64 KiB  4 MiB
 *     avx512      1.17   1.34   4.73      348    0.153   0.184   0.339    3.64    262
 *     avx2        1.21   2.13   7.54      411    0.154   0.186   0.336    3.65    262
 *     sse4.1      1.13   3.01   10.2      487    0.153   0.184   0.337    3.69    262
 *     sse2                                       0.155   0.188   0.338    3.70    260
 *
 * So reads take the widest loads; writes take 64-byte stores where these cost no clock speed, else
 * 16-byte ones (MOVDIR64B lost: docs/results/copies.md). A CPU is known by its features, not by its
 * model number, which virtual machines invent.
 */
#include "impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fence.h"
#include "word.h"

const struct gdri_copy_impl gdri_copy_impls[] = {
/* name, needs, block, flags, to, from, lines */
#if defined(__x86_64__)
	{ "avx512", GDRI_CPU_AVX512, GDRI_LINE, GDRI_IMPL_WIDE, gdri_avx512_to, gdri_avx512_from,
	  gdri_avx512_lines },
	{ "avx2", GDRI_CPU_AVX2, GDRI_LINE, GDRI_IMPL_READS, gdri_avx2_to, gdri_avx2_from,
	  gdri_avx2_lines },
	{ "sse4.1", GDRI_CPU_SSE41, GDRI_LINE, GDRI_IMPL_READS, gdri_sse41_to, gdri_sse41_from,
	  gdri_sse41_lines },
	{ "sse2", GDRI_CPU_SSE2, GDRI_LINE, 0, gdri_sse2_to, NULL, NULL },
#elif defined(__aarch64__)
	{ "neon", GDRI_CPU_NEON, GDRI_LINE, 0, gdri_neon_to, gdri_neon_from, gdri_neon_lines },
#endif
	{ "ref", 0, 1, GDRI_IMPL_ANY_MEMORY, gdri_ref_to, gdri_ref_from, NULL },
};

const size_t gdri_copy_impl_count = sizeof(gdri_copy_impls) / sizeof(gdri_copy_impls[0]);

const struct gdri_copy_impl *gdri_copy_impl_find(const char *name)
{
	for (size_t i = 0; i < gdri_copy_impl_count; i++)
		if (strcmp(gdri_copy_impls[i].name, name) == 0)
			return &gdri_copy_impls[i];
	return NULL;
}

static bool can(const struct gdri_copy_impl *impl, uint32_t features)
{
	return (impl->needs & ~features) == 0;
}

/* The first choice that the features allow, by its `to` function or by its `from` function. */
static const struct gdri_copy_impl *choose(bool to, uint32_t features)
{
	const struct gdri_copy_impl *impl = gdri_copy_impls;

	while (!(to ? impl->to && !(impl->flags & GDRI_IMPL_READS) : !!impl->from) ||
	       !can(impl, features) ||
	       (impl->flags & GDRI_IMPL_WIDE && !(features & GDRI_CPU_AVX512_WIDE)))
		impl++;
	return impl;
}

int gdri_copy_plan_init(struct gdri_copy_plan *plan, gdr_mapping_type_t type, uint32_t features,
			const struct gdri_copy_impl *impl)
{
	/* DEVICE and unknown types keep the portable implementation. */
	const struct gdri_copy_impl *ref = gdri_copy_impl_find("ref");
	bool device = type != GDR_MAPPING_TYPE_WC && type != GDR_MAPPING_TYPE_CACHING;

	*plan = (struct gdri_copy_plan){
		.type = type,
		.fences = type,
		.posts = type == GDR_MAPPING_TYPE_WC && (features & GDRI_CPU_MOVDIRI),
		.posts_lines = type == GDR_MAPPING_TYPE_WC && (features & GDRI_CPU_MOVDIR64B),
		.exact_reads = type == GDR_MAPPING_TYPE_CACHING,
		.to = ref,
		.from = ref,
		.large_to_min = SIZE_MAX,
		.large_from_min = SIZE_MAX,
	};
	if (!device) {
		plan->to = choose(true, features);
		plan->from = plan->exact_reads ? plan->to : choose(false, features);
	}
	if (!impl)
		return 0;
	if (!can(impl, features))
		return -ENOTSUP;
	if ((device && !(impl->flags & GDRI_IMPL_ANY_MEMORY)) ||
	    (type != GDR_MAPPING_TYPE_WC && impl->flags & GDRI_IMPL_UNCACHED))
		return 0;
	if (impl->to)
		plan->to = impl;
	if (plan->exact_reads ? impl->to : impl->from)
		plan->from = impl;
	return 0;
}

const struct gdri_copy_plan *gdri_copy_stricter(const struct gdri_copy_plan *a,
						const struct gdri_copy_plan *b)
{
	return gdri_fence_weak(b->fences) ? b : a;
}

bool gdri_copy_alike(const struct gdri_copy_plan *a, const struct gdri_copy_plan *b)
{
	return a->type == b->type;
}

static struct gdri_copy_plan plans[GDR_MAPPING_TYPE_MAX];
static const char *problem;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_plans(void)
{
	const char *name = secure_getenv("GDRCOPY_COPY_IMPL");
	const char *mask_text = secure_getenv("GDRCOPY_CPU_MASK");
	const struct gdri_copy_impl *impl = name && *name ? gdri_copy_impl_find(name) : NULL;
	uint32_t features = gdri_cpu_features();
	uint32_t mask;
	int err = 0;

	for (int type = 0; type < GDR_MAPPING_TYPE_MAX; type++)
		err = gdri_copy_plan_init(&plans[type], (gdr_mapping_type_t)type, features, impl);
	if (mask_text && gdri_cpu_parse_mask(mask_text, &mask))
		problem = "GDRCOPY_CPU_MASK is neither a number nor a list of features; ignored";
	else if (name && *name && !impl)
		problem = "GDRCOPY_COPY_IMPL names no implementation; ignored";
	else if (err)
		problem = "GDRCOPY_COPY_IMPL names one that this CPU cannot run; ignored";
}

const struct gdri_copy_plan *gdri_copy_plan(gdr_mapping_type_t type)
{
	pthread_once(&once, init_plans);
	if ((unsigned int)type >= GDR_MAPPING_TYPE_MAX)
		type = GDR_MAPPING_TYPE_DEVICE;
	return &plans[type];
}

const char *gdri_copy_env_problem(void)
{
	pthread_once(&once, init_plans);
	return problem;
}
