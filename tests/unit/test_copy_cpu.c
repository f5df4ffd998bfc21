// SPDX-License-Identifier: MIT
/* CPU detection with made-up CPUs, the text of GDRCOPY_CPU_MASK, the choice of implementations. */
#include "copy_area.h"

#include <errno.h>

#include "impls/impls.h"

#if defined(__x86_64__)
/* cpu.c with a CPUID of which `made_up` changes what the CPU itself says. */
#include <cpuid.h>

static const struct gdri_x86_id *made_up;

static void answer(unsigned int leaf, unsigned int sub, uint32_t *a, uint32_t *b, uint32_t *c,
		   uint32_t *d)
{
	*a = *b = *c = *d = 0;
	if (!made_up)
		__get_cpuid_count(leaf, sub, a, b, c, d);
	else if (leaf == 1)
		*c = made_up->leaf1_ecx, *d = made_up->leaf1_edx;
	else if (leaf == 7 && !sub)
		*b = made_up->leaf7_ebx, *c = made_up->leaf7_ecx;
}

#undef __cpuid
#undef __cpuid_count
#define __cpuid_count(leaf, sub, a, b, c, d) answer(leaf, sub, &(a), &(b), &(c), &(d))
#define __cpuid(leaf, a, b, c, d)	     __cpuid_count(leaf, 0, a, b, c, d)
#define __get_cpuid_max(leaf, p)	     (made_up && !(leaf) ? made_up->max_leaf : __get_cpuid_max(leaf, p))
#include "copy/cpu.c"
#endif

/* A plan for that type and those features takes these implementations. */
static void plan_takes(gdr_mapping_type_t type, uint32_t features, const char *name, const char *to,
		       const char *from)
{
	struct gdri_copy_plan plan;

	ck_assert_int_eq(gdri_copy_plan_init(&plan, type, features, name ? impl_named(name) : NULL),
			 0);
	ck_assert_str_eq(plan.to->name, to);
	ck_assert_str_eq(plan.from->name, from);
	ck_assert_int_eq(plan.fences, type);
}

#if defined(__x86_64__)

#define BIT(n) (1u << (n))

/* A CPU with everything that we look at, and an OS that saves everything. */
static struct gdri_x86_id everything(void)
{
	return (struct gdri_x86_id){
		.max_leaf = 0x20,
		.leaf1_ecx = BIT(19) | BIT(27) | BIT(28),
		.leaf1_edx = BIT(26),
		.leaf7_ebx = BIT(5) | BIT(16),
		.leaf7_ecx = BIT(6) | BIT(27) | BIT(28),
		.xcr0 = 0xe7,
	};
}

#define SCALAR_FEATURES (GDRI_CPU_SSE2 | GDRI_CPU_SSE41 | GDRI_CPU_MOVDIRI | GDRI_CPU_MOVDIR64B)
#define AVX512_FEATURES (GDRI_CPU_AVX512 | GDRI_CPU_AVX512_WIDE)

static void xcr0(void)
{
	/* Each value of the eight low bits: a state counts only if all its bits are on. */
	for (uint64_t xcr0 = 0; xcr0 < 256; xcr0++) {
		struct gdri_x86_id id = everything();
		uint32_t want = SCALAR_FEATURES;

		if ((xcr0 & 0x06) == 0x06)
			want |= GDRI_CPU_AVX2;
		if ((xcr0 & 0xe6) == 0xe6)
			want |= AVX512_FEATURES;
		id.xcr0 = xcr0;
		ck_assert_uint_eq(gdri_x86_features(&id), want);
	}
}

/* What each bit of CPUID gives: without it these features are lost, and without another one none. */
static void cpuid(void)
{
	static const struct {
		size_t reg;
		unsigned int bit;
		uint32_t lost;
	} bits[] = {
		{ offsetof(struct gdri_x86_id, leaf1_edx), 26, GDRI_CPU_SSE2 },
		{ offsetof(struct gdri_x86_id, leaf1_ecx), 19, GDRI_CPU_SSE41 },
		/* XCR0 means nothing without OSXSAVE. */
		{ offsetof(struct gdri_x86_id, leaf1_ecx), 27, GDRI_CPU_AVX2 | AVX512_FEATURES },
		/* A hypervisor that hides AVX but leaves leaf 7 as it is. */
		{ offsetof(struct gdri_x86_id, leaf1_ecx), 28, GDRI_CPU_AVX2 | AVX512_FEATURES },
		/* AVX-512 without AVX2 has not been seen; each is what its own bit says. */
		{ offsetof(struct gdri_x86_id, leaf7_ebx), 5, GDRI_CPU_AVX2 },
		{ offsetof(struct gdri_x86_id, leaf7_ebx), 16, AVX512_FEATURES },
		/* The first CPUs with AVX-512. */
		{ offsetof(struct gdri_x86_id, leaf7_ecx), 6, GDRI_CPU_AVX512_WIDE },
		{ offsetof(struct gdri_x86_id, leaf7_ecx), 27, GDRI_CPU_MOVDIRI },
		{ offsetof(struct gdri_x86_id, leaf7_ecx), 28, GDRI_CPU_MOVDIR64B },
	};
	const uint32_t all = SCALAR_FEATURES | GDRI_CPU_AVX2 | AVX512_FEATURES;
	const uint32_t leaf1 = GDRI_CPU_SSE2 | GDRI_CPU_SSE41;
	const uint32_t by_leaf[] = { 0, leaf1, leaf1, leaf1, leaf1, leaf1, leaf1, all, all };
	struct gdri_x86_id id = everything();

	for (size_t i = 0; i < COUNT(bits); i++) {
		id = everything();
		*(uint32_t *)(void *)((char *)&id + bits[i].reg) &= ~BIT(bits[i].bit);
		ck_assert_uint_eq(gdri_x86_features(&id), all & ~bits[i].lost);
	}
	id = everything();
	for (id.max_leaf = 0; id.max_leaf < COUNT(by_leaf); id.max_leaf++)
		ck_assert_uint_eq(gdri_x86_features(&id), by_leaf[id.max_leaf]);
}

/* What plan.c chooses, CPU by CPU. */
static void choice(void)
{
	static const struct {
		uint32_t features;
		const char *to, *from;
	} cpus[] = {
		{ 0, "ref", "ref" },
		{ GDRI_CPU_SSE2, "sse2", "ref" },
		{ GDRI_CPU_SSE2 | GDRI_CPU_SSE41, "sse2", "sse4.1" },
		{ GDRI_CPU_SSE2 | GDRI_CPU_SSE41 | GDRI_CPU_AVX2, "sse2", "avx2" },
		{ GDRI_CPU_SSE2 | GDRI_CPU_SSE41 | GDRI_CPU_AVX2 | GDRI_CPU_AVX512, "sse2",
		  "avx2" },
		{ SCALAR_FEATURES | GDRI_CPU_AVX2 | AVX512_FEATURES, "avx512", "avx512" },
	};

	for (size_t i = 0; i < COUNT(cpus); i++)
		plan_takes(GDR_MAPPING_TYPE_WC, cpus[i].features, NULL, cpus[i].to, cpus[i].from);
}

/* As the compiler's own look at the CPU; and of made-up registers, where XGETBV is this CPU's. */
static void this_cpu(void)
{
	uint32_t has = gdri_cpu_detect();
	struct gdri_x86_id id = everything();

	ck_assert_int_eq(!(has & GDRI_CPU_SSE41), !__builtin_cpu_supports("sse4.1"));
	ck_assert_int_eq(!(has & GDRI_CPU_AVX2), !__builtin_cpu_supports("avx2"));
	ck_assert_int_eq(!(has & GDRI_CPU_AVX512), !__builtin_cpu_supports("avx512f"));
	made_up = &id;
	id.xcr0 = has & GDRI_CPU_AVX512 ? 0xe7 : has & GDRI_CPU_AVX2 ? 7 : 0;
	if (has & GDRI_CPU_AVX2)
		ck_assert_uint_eq(gdri_cpu_detect(), gdri_x86_features(&id));
	id.leaf1_ecx = 0;
	ck_assert_uint_eq(gdri_cpu_detect(), SCALAR_FEATURES & ~GDRI_CPU_SSE41);
	made_up = NULL;
}

#elif defined(__aarch64__)

/* Each bit alone: one of them counts. */
static void hwcap(void)
{
	for (int i = 0; i < 64; i++)
		ck_assert_uint_eq(gdri_arm64_features(1ul << i), i == 1 ? GDRI_CPU_NEON : 0);
	ck_assert_uint_eq(gdri_arm64_features(~0ul), GDRI_CPU_NEON);
}

static void choice(void)
{
	plan_takes(GDR_MAPPING_TYPE_WC, GDRI_CPU_NEON, NULL, "neon", "neon");
	plan_takes(GDR_MAPPING_TYPE_WC, 0, NULL, "ref", "ref");
}

#endif

static void mask_text(void)
{
	static const struct {
		const char *text;
		uint32_t mask;
	} good[] = {
		{ "", GDRI_CPU_ALL },
		{ "all", GDRI_CPU_ALL },
		{ "none", 0 },
		{ "0", 0 },
		{ "7", 7 },
		{ "0x2f", 0x2f },
		{ "0xffffffff", GDRI_CPU_ALL },
		{ "sse2", GDRI_CPU_SSE2 },
		{ "sse2,sse4.1,avx2", GDRI_CPU_SSE2 | GDRI_CPU_SSE41 | GDRI_CPU_AVX2 },
		{ "-avx512", GDRI_CPU_ALL & ~GDRI_CPU_AVX512 },
		{ "-avx512,-avx2", GDRI_CPU_ALL & ~(GDRI_CPU_AVX512 | GDRI_CPU_AVX2) },
		{ "neon", GDRI_CPU_NEON },
	};
	static const char *const bad[] = { "sse3",	  "sse2,",	",sse2",      "-",
					   "sse2,-avx2",  "-avx2,sse2", "0x",	      "7 ",
					   "0x100000000", "AVX2",	"sse2,,avx2", "-1",
					   "sse",	  "sse2avx2" };

	for (size_t i = 0; i < COUNT(good); i++) {
		uint32_t mask = 12345;

		ck_assert_msg(gdri_cpu_parse_mask(good[i].text, &mask) == 0, "\"%s\"",
			      good[i].text);
		ck_assert_msg(mask == good[i].mask, "\"%s\" is %#x", good[i].text, mask);
	}
	for (size_t i = 0; i < COUNT(bad); i++) {
		uint32_t mask = 12345;

		ck_assert_msg(gdri_cpu_parse_mask(bad[i], &mask) == -EINVAL, "\"%s\"", bad[i]);
		ck_assert_uint_eq(mask, 12345);
	}
}

static void forced_impl(void)
{
	const struct gdri_copy_impl *impl;
	struct gdri_copy_plan plan;

	ck_assert_ptr_null(impl_named("nothing"));
	ck_assert_int_eq(gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, GDRI_CPU_ALL,
					     gdri_copy_impl_find("ref")),
			 0);
	ck_assert_str_eq(plan.from->name, "ref");
	ck_assert_uint_eq(plan.large_from_min, SIZE_MAX);
	for (size_t i = 0; (impl = impl_at(i)); i++) {
		int err = gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_WC, 0, impl);

		ck_assert_int_eq(err, impl->needs ? -ENOTSUP : 0);
		ck_assert_str_eq(plan.to->name, "ref");

		/* Device memory has implementations of its own, cached memory none for WC. */
		ck_assert_int_eq(
			gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_DEVICE, GDRI_CPU_ALL, impl), 0);
		ck_assert(plan.to->flags & GDRI_IMPL_ANY_MEMORY);
		ck_assert(plan.from->flags & GDRI_IMPL_ANY_MEMORY);
		ck_assert_int_eq(
			gdri_copy_plan_init(&plan, GDR_MAPPING_TYPE_CACHING, GDRI_CPU_ALL, impl),
			0);
		ck_assert(!(plan.to->flags & GDRI_IMPL_UNCACHED));
		ck_assert(!(plan.from->flags & GDRI_IMPL_UNCACHED));
		if (impl->to && !(impl->flags & GDRI_IMPL_UNCACHED))
			ck_assert_str_eq(plan.to->name, impl->name);
	}
}

/*
 * A word or a line is posted where stores gather and the CPU can send one at once; elsewhere it is
 * stored.
 */
static void posts(void)
{
	static const uint32_t sets[] = { 0, GDRI_CPU_MOVDIRI, GDRI_CPU_MOVDIR64B };
	struct gdri_copy_plan plan;

	for (int type = 0; type < GDR_MAPPING_TYPE_MAX; type++)
		for (size_t i = 0; i < COUNT(sets); i++) {
			bool wc = type == GDR_MAPPING_TYPE_WC;

			gdri_copy_plan_init(&plan, (gdr_mapping_type_t)type, sets[i], NULL);
			ck_assert_int_eq(plan.posts, wc && sets[i] == GDRI_CPU_MOVDIRI);
			ck_assert_int_eq(plan.posts_lines, wc && sets[i] == GDRI_CPU_MOVDIR64B);
		}
}

struct env_case {
	const char *mask, *impl, *from, *problem;
};

static int takes_env(void *arg)
{
	const struct env_case *c = arg;
	const struct gdri_copy_plan *plan;
	const char *text;

	setenv("GDRCOPY_CPU_MASK", c->mask, 1);
	setenv("GDRCOPY_COPY_IMPL", c->impl, 1);
	plan = gdri_copy_plan(GDR_MAPPING_TYPE_WC);
	text = gdri_copy_env_problem();
	if (c->from && strcmp(plan->from->name, c->from) != 0)
		return 1;
	return c->problem ? !text || !strstr(text, c->problem) : text != NULL;
}

/* The environment is read once a process, so each case is a process. */
static void with_env(const char *mask, const char *impl, const char *from, const char *problem)
{
	struct env_case c = { mask, impl, from, problem };

	ck_assert_msg(!unit_in_child(takes_env, &c), "GDRCOPY_CPU_MASK=%s GDRCOPY_COPY_IMPL=%s",
		      mask, impl);
}

static void environment(void)
{
	with_env("", "", NULL, NULL);
	with_env("none", "", "ref", NULL);
	with_env("", "ref", "ref", NULL);
	with_env("0x0", "ref", "ref", NULL);
	with_env("rubbish", "", NULL, "GDRCOPY_CPU_MASK");
	with_env("", "rubbish", NULL, "names no implementation");
#if defined(__x86_64__)
	with_env("sse2,sse4.1", "", "sse4.1", NULL);
	with_env("", "sse4.1", "sse4.1", NULL);
	with_env("", "movdir64b", NULL, "names no implementation");
	with_env("sse2,sse4.1", "avx2", "sse4.1", "cannot run");
#endif
}

static void plan_pointers(void)
{
	for (int type = 0; type < GDR_MAPPING_TYPE_MAX; type++) {
		const struct gdri_copy_plan *plan = gdri_copy_plan((gdr_mapping_type_t)type);

		ck_assert_ptr_nonnull(plan);
		ck_assert_ptr_eq(plan, gdri_copy_plan((gdr_mapping_type_t)type));
		ck_assert_int_eq(plan->type, type);
		ck_assert_int_eq(plan->fences, type);
		ck_assert(plan->to && plan->from);
	}
	ck_assert_ptr_eq(gdri_copy_plan(GDR_MAPPING_TYPE_MAX),
			 gdri_copy_plan(GDR_MAPPING_TYPE_DEVICE));
}

static const struct unit_test tests[] = {
#if defined(__x86_64__)
	{ "XCR0", xcr0 },
	{ "CPUID", cpuid },
	{ "choice by CPU", choice },
	{ "this CPU", this_cpu },
#elif defined(__aarch64__)
	{ "auxiliary vector", hwcap },
	{ "choice by CPU", choice },
#endif
	{ "text of the mask", mask_text },
	{ "a forced implementation", forced_impl },
	{ "posts", posts },
	{ "environment", environment },
	{ "plan pointers", plan_pointers },
};

UNIT_MAIN("copy: CPU features and plans", tests)
