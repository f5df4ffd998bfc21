// SPDX-License-Identifier: MIT
/*
 * The store discipline, watched: every byte is stored exactly once, every naturally aligned word of
 * 4 or 8 bytes in one store, nothing else at all.
 *
 * A child does the copies into memory that it shares with its parent, and the parent single-steps
 * it. After each instruction the parent looks at what changed, notes it, and puts the old bytes
 * back, so that a second store of the same value shows as well. What one instruction stores is one
 * store: a vector register never crosses the aligned line that it is stored to, and words do not
 * cross lines.
 *
 * GDRCOPY_TEST_QUICK=1 makes it small.
 */
#include "copy_area.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "copy/word.h"
#include "impls/impls.h"

#define RANGE_MAX ((size_t)448)
#define TARGET	  (RANGE_MAX + 3 * LINE)
#define OLD	  0xcc /* what the target holds; no source byte has this value */

enum what { COPY_TO, COPY_FROM, PUT32, PUT64, VECTORED };

/* What both processes see. */
struct shared {
	_Alignas(64) uint8_t target[TARGET];
	_Alignas(64) uint8_t source[TARGET];
	struct gdri_copy_plan plan;
	enum what what;
	size_t target_at, source_at, size;
	volatile int running; /* set by the child around the copy itself */
	volatile int quit;
};

static struct shared *shared;
static pid_t child;

static void child_copy(void)
{
	uint8_t *d = shared->target + shared->target_at;
	const uint8_t *s = shared->source + shared->source_at;
	uint64_t value;

	memcpy(&value, s, sizeof(value));
	shared->running = 1;
	switch (shared->what) {
	case COPY_TO:
		gdri_copy_to(&shared->plan, d, s, shared->size);
		break;
	case COPY_FROM:
		gdri_copy_from(&shared->plan, d, s, shared->size);
		break;
	case PUT32:
		gdri_put32(&shared->plan, d, (uint32_t)value);
		break;
	case PUT64:
		gdri_put64(&shared->plan, d, value);
		break;
	case VECTORED: {
		/* The words at the seams stay in one piece: the discipline is each piece's. */
		size_t cut = shared->size / 16 * 8;
		size_t seam = -(uintptr_t)d & 7;
		barcopy_copy_seg_t seg[3] = {
			{ .map_ptr = d, .host_ptr = (void *)(uintptr_t)s, .size = seam },
			{ .map_ptr = d + seam,
			  .host_ptr = (void *)(uintptr_t)(s + seam),
			  .size = cut,
			  .flags = BARCOPY_COPY_ORDERED },
			{ .map_ptr = d + seam + cut,
			  .host_ptr = (void *)(uintptr_t)(s + seam + cut),
			  .size = shared->size - seam - cut },
		};

		if (seam > shared->size || shared->size < 16)
			seg[0].size = shared->size, seg[1].size = seg[2].size = 0;
		gdri_copyv_to(&shared->plan, seg, 3, sizeof(*seg), 0);
		break;
	}
	}
	shared->running = 0;
}

static _Noreturn void child_main(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(1);
	for (;;) {
		raise(SIGSTOP);
		if (shared->quit)
			_exit(0);
		child_copy();
	}
}

static void start_child(void)
{
	cpu_set_t cpus;
	int status;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	memset(shared->target, OLD, TARGET);
	for (size_t i = 0; i < TARGET; i++)
		shared->source[i] = (uint8_t)(1 + i % 200);
	/* One CPU for both: a step is then a switch of tasks, and wakes no other CPU. */
	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	(void)sched_setaffinity(0, sizeof(cpus), &cpus);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		child_main();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
}

static void stop_child(void)
{
	int status;

	shared->quit = 1;
	ptrace(PTRACE_CONT, child, NULL, NULL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	munmap(shared, sizeof(*shared));
}

static void step(void)
{
	int status;

	ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP,
		      "the child stopped with status %#x", status);
}

/* Watches one copy: the number, from 1, of the store that wrote each byte of the target. */
static int watch(uint16_t when[TARGET], const char *name)
{
	static uint8_t old[TARGET];
	int stores = 0, status;

	memset(old, OLD, sizeof(old));
	memset(when, 0, TARGET * sizeof(when[0]));
	while (!shared->running)
		step();
	while (shared->running) {
		step();
		if (memcmp(shared->target, old, TARGET) == 0)
			continue;
		stores++;
		for (size_t i = 0; i < TARGET; i++) {
			if (shared->target[i] == OLD)
				continue;
			ck_assert_msg(!when[i], "%s: %zu bytes at %zu: byte %zu stored twice", name,
				      shared->size, shared->target_at, i - shared->target_at);
			when[i] = (uint16_t)stores;
		}
		memset(shared->target, OLD, TARGET);
	}
	ptrace(PTRACE_CONT, child, NULL, NULL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return stores;
}

/* Each store lies at a multiple of its size, which DEVICE memory of arm64 demands. */
static void check_aligned(const uint16_t when[TARGET], const char *name)
{
	for (size_t i = 0, next; i < TARGET; i = next) {
		for (next = i + 1; next < TARGET && when[next] == when[i]; next++)
			;
		if (when[i])
			ck_assert_msg(!(i % (next - i)), "%s: %zu bytes at %zu: %zu at once at %zu",
				      name, shared->size, shared->target_at, next - i,
				      i - shared->target_at);
	}
}

static void check(enum what what, const char *name, size_t at, size_t from, size_t size)
{
	uint16_t when[TARGET];
	int stores;

	ck_assert_uint_le(size, RANGE_MAX);
	shared->what = what;
	shared->target_at = at, shared->source_at = from, shared->size = size;
	stores = watch(when, name);
	for (size_t i = 0; i < TARGET; i++) {
		bool inside = i >= at && i < at + size;

		ck_assert_msg(inside == (when[i] != 0), "%s: %zu bytes at %zu: byte %td %s", name,
			      size, at, (ptrdiff_t)i - (ptrdiff_t)at,
			      inside ? "not stored" : "is outside and was stored");
	}
	if (what != COPY_FROM)
		check_aligned(when, name);
	/* A word of the host's side can be whole only if it is a word on the other side too. */
	if (what == COPY_FROM && (at - from) % 8)
		return;
	for (size_t width = 4; width <= 8; width += 4) {
		for (size_t i = (at + width - 1) / width * width; i + width <= at + size;
		     i += width)
			for (size_t j = 1; j < width; j++)
				ck_assert_msg(
					when[i + j] == when[i],
					"%s: %zu bytes at %zu: the %zu-byte word at %zu in parts",
					name, size, at, width, i - at);
		if (size == width && at % width == 0)
			ck_assert_int_eq(stores, 1);
	}
}

static void use_impl(const struct gdri_copy_impl *impl, gdr_mapping_type_t type)
{
	ck_assert_int_eq(gdri_copy_plan_init(&shared->plan, type, area_features(), impl), 0);
}

/*
 * A step costs some 25 us in a virtual machine, so it is a choice of ranges that is watched: lines
 * at the beginning, in the middle, at the end, none. GDRCOPY_TEST_FULL=1 watches more.
 */
static void ranges(enum what what, const char *name, bool other_side)
{
	static const size_t few[][2] = {
		{ 0, 64 },  { 0, 128 },	 { 0, 200 }, { 1, 63 },	 { 3, 320 }, { 8, 131 },
		{ 13, 64 }, { 32, 128 }, { 33, 95 }, { 60, 65 }, { 63, 66 }, { 63, 448 },
	};
	static const size_t aligns[] = {
		0, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 31, 32, 33, 56, 60, 63
	};
	static const size_t sizes[] = { 1, 63, 64, 65, 127, 128, 131, 200, 319, 320, 321, 448 };
	bool full = getenv("GDRCOPY_TEST_FULL") != NULL;
	size_t count = full ? COUNT(aligns) * COUNT(sizes) : COUNT(few);

	for (size_t i = 0; i < count; i += unit_quick() ? 4 : 1) {
		size_t at = LINE + (full ? aligns[i / COUNT(sizes)] : few[i][0]);
		size_t n = full ? sizes[i % COUNT(sizes)] : few[i][1];

		check(what, name, at, at, n);
		if (other_side)
			check(what, name, at, LINE + 8 + at / 2, n);
	}
}

static void impls(void)
{
	start_child();
	for (size_t i = 0; impl_at(i); i++) {
		const struct gdri_copy_impl *impl = impl_at(i);

		if (impl->needs & ~area_features()) {
			fprintf(stderr, "skipped: %s, not on this CPU\n", impl->name);
			continue;
		}
		use_impl(impl, GDR_MAPPING_TYPE_WC);
		if (impl->to)
			ranges(COPY_TO, impl->name, false);
		if (impl->from)
			ranges(COPY_FROM, impl->name, false);
	}
	stop_child();
}

/* The edges are the same code everywhere: every alignment within a word, every small size. */
static void all_edges(void)
{
	static const size_t aligns[] = { 0, 1, 2, 3, 4, 5, 6, 7, 9, 31, 48, 57, 62, 63 };
	static const size_t sizes[] = { 1,  2,	3,  4,	5,  6,	7,  8,	9,  10, 11,
					12, 13, 14, 15, 16, 17, 23, 33, 63, 71, 127 };
	size_t skip = unit_quick() ? 5 : 1;

	start_child();
	use_impl(NULL, GDR_MAPPING_TYPE_WC);
	for (size_t a = 0; a < COUNT(aligns); a += skip)
		for (size_t n = 0; n < COUNT(sizes); n += skip)
			check(COPY_TO, "edges", LINE + aligns[a], LINE + 3, sizes[n]);
	stop_child();
}

static void mapping_types(void)
{
	start_child();
	for (int type = GDR_MAPPING_TYPE_WC; type < GDR_MAPPING_TYPE_MAX; type++) {
		use_impl(NULL, (gdr_mapping_type_t)type);
		ranges(COPY_TO, "type", false);
		ranges(COPY_FROM, "type, read", type == GDR_MAPPING_TYPE_CACHING);
		ranges(VECTORED, "vectored", false);
	}
	stop_child();
}

static void single_words(void)
{
	start_child();
	for (int type = GDR_MAPPING_TYPE_WC; type < GDR_MAPPING_TYPE_MAX; type++) {
		use_impl(NULL, (gdr_mapping_type_t)type);
		for (size_t at = 0; at < LINE; at += 4) {
			check(PUT32, "put32", LINE + at, LINE + at, 4);
			check(COPY_TO, "4 bytes", LINE + at, LINE + 1, 4);
			check(COPY_TO, "8 bytes at 4", LINE + at, LINE + 1, 8);
		}
		for (size_t at = 0; at < LINE; at += 8) {
			check(PUT64, "put64", LINE + at, LINE + at, 8);
			check(COPY_TO, "8 bytes", LINE + at, LINE + 1, 8);
			check(VECTORED, "a piece of 8 bytes", LINE + at, LINE + 1, 8);
		}
	}
	stop_child();
}

/* NULL, or why nothing can be watched here. */
static const char *no_tracing(void)
{
	const char *preload = getenv("LD_PRELOAD");
	int status;
	pid_t pid;

#ifdef GDRI_TSAN
	return "the thread sanitizer's instructions would be stepped, a hundred to each store";
#endif
	if (preload && strstr(preload, "vgpreload"))
		return "valgrind would be stepped, not the copies";
	pid = fork();
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return "ptrace is not allowed";
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	waitpid(pid, &status, 0);
	return NULL;
}

static const struct unit_test tests[] = {
	{ "implementations", impls },
	{ "edges", all_edges },
	{ "mapping types", mapping_types },
	{ "single words", single_words },
};

int main(int argc, char **argv)
{
	const char *reason = no_tracing();

	(void)argc;
	if (reason) {
		fprintf(stderr, "skipped: %s\n", reason);
		return 77;
	}
	return unit_main(argv, "copy: store discipline", tests, COUNT(tests));
}
