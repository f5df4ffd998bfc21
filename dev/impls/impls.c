// SPDX-License-Identifier: MIT
/* see impls.h. */
#include "impls.h"

#include <string.h>

#include "copy/word.h"

static const struct gdri_copy_impl impls[] = {
#if defined(__x86_64__)
	/* Weakly ordered on every memory type, where a cached mapping's fences assume plain stores. */
	{ "movdir64b", GDRI_CPU_MOVDIR64B, GDRI_LINE, GDRI_IMPL_UNCACHED, impl_movdir64b_to, NULL,
	  NULL },
	{ "baseline", GDRI_CPU_AVX2 | GDRI_CPU_MOVDIR64B, 1, GDRI_IMPL_UNCACHED, impl_baseline_to,
	  impl_baseline_from, NULL },
#elif defined(__aarch64__)
	{ "ls64", GDRI_CPU_LS64, GDRI_LINE, GDRI_IMPL_UNCACHED, impl_ls64_to, impl_ls64_from, NULL },
#endif
};

const struct gdri_copy_impl *impl_at(size_t n)
{
	if (n < gdri_copy_impl_count)
		return &gdri_copy_impls[n];
	n -= gdri_copy_impl_count;
	return n < sizeof(impls) / sizeof(impls[0]) ? &impls[n] : NULL;
}

const struct gdri_copy_impl *impl_named(const char *name)
{
	const struct gdri_copy_impl *impl;

	for (size_t n = 0; (impl = impl_at(n)) && strcmp(impl->name, name); n++)
		;
	return impl;
}
