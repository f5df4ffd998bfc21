/* SPDX-License-Identifier: MIT */
/* The choice of tests, tests in processes of their own, their memory; see sanity.h. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "common/child.h"
#include "common/exit.h"
#include "sanity/sanity.h"

static const struct sanity_test *const tables[] = {
	sanity_basic, sanity_calls, sanity_mapping, sanity_scenes, sanity_load,
};
enum { QUICK_TABLES = 3 }; /* the first ones, whose tests can share one process */

/* Names of GDRCopy 2.6 (tests/sanity.cpp) without their suffix, and a test that covers the same. */
static const struct alias {
	const char *name, *test;
} aliases[] = {
	{ "basic_v2", "basic" },
	{ "basic_v2_forcepci", "force_pcie" },
	{ "basic_with_tokens", "tokens" },
	{ "basic_unaligned_mapping", "unaligned" },
	{ "basic_small_buffers_mapping", "small_buffers" },
	{ "basic_child_thread_pins_buffer", "threads_pin" },
	{ "data_validation", "basic" },
	{ "data_validation", "offsets" },
	{ "data_validation", "pointer" },
	{ "data_validation_v2", "basic" },
	{ "data_validation_v2", "offsets" },
	{ "data_validation_v2", "pointer" },
	{ "data_validation_v2_forcepci", "force_pcie" },
	{ "data_validation_mix_mappings", "two_types" },
	{ "invalidation_access_after_gdr_close", "access_after_close" },
	{ "invalidation_access_after_free", "access_after_free" },
	{ "invalidation_two_mappings", "free_one_of_two" },
	{ "invalidation_fork_access_after_free", "free_in_parent" },
	{ "invalidation_fork_after_gdr_map", "fork_access" },
	{ "invalidation_fork_child_gdr_map_parent", "fork_calls" },
	{ "invalidation_fork_map_and_free", "free_in_child" },
	{ "invalidation_fork_child_gdr_pin_parent_with_tokens", "fork_open" },
	{ "invalidation_unix_sock_shared_fd_gdr_pin_buffer", "fd_calls" },
	{ "invalidation_unix_sock_shared_fd_gdr_map", "fd_calls" },
	{ "leakage_pin_pages_fork", "leaks" },
	{ "leakage_pin_pages_fork", "kernel_pins" },
	{ "attributes_sanity", "attributes" },
};

/* Suffixes of any name, and the memory that they choose. */
static const struct {
	const char *text;
	enum mem_kind kind;
} suffixes[] = {
	{ "_cumemalloc", MEM_ALLOC },
	{ "_vmmalloc", MEM_CREATE },
};

/* The length of a name without its suffix, whose kind goes to *kind. */
static size_t stem_length(const char *name, int *kind)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t n = strlen(suffixes[i].text);

		if (length > n && !strcmp(name + length - n, suffixes[i].text)) {
			*kind = (int)suffixes[i].kind;
			return length - n;
		}
	}
	return length;
}

static bool is_stem(const char *name, size_t length, const char *of)
{
	return strlen(of) == length && !strncmp(name, of, length);
}

/* `name`, without its suffix, stands for the test. */
static bool means(const char *name, size_t length, const struct sanity_test *test)
{
	if (is_stem(name, length, test->name))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++)
		if (is_stem(name, length, aliases[i].name) && !strcmp(aliases[i].test, test->name))
			return true;
	return false;
}

static bool is_wanted(const struct opt_texts *only, const struct sanity_test *test, int kind,
		      int usual)
{
	if (!only->count)
		return kind == usual;
	for (size_t i = 0; i < only->count; i++) {
		int own = usual;
		size_t length = stem_length(only->text[i], &own);

		/* -a is stronger than a suffix */
		if (usual != ALLOC_ANY)
			own = usual;
		if (own == kind && means(only->text[i], length, test))
			return true;
	}
	return false;
}

static void check_name(const char *name)
{
	int kind;
	size_t length = stem_length(name, &kind);

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			if (means(name, length, t))
				return;
	tool_fail("-t %s: there is no such test; -l lists them", name);
}

struct chosen *names_choose(const struct opt_texts *only, int kind, bool quick)
{
	size_t used = quick ? QUICK_TABLES : ARRAY_SIZE(tables);
	size_t n = 0, most = 1;
	struct chosen *list;

	for (size_t i = 0; i < only->count; i++)
		check_name(only->text[i]);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			most += MEM_KINDS + 1;
	list = tool_calloc(most, sizeof(*list));
	for (int k = ALLOC_ANY; k < MEM_KINDS; k++)
		for (size_t i = 0; i < used; i++)
			for (const struct sanity_test *t = tables[i]; t->name; t++)
				if (is_wanted(only, t, k, kind))
					list[n++] = (struct chosen){ t, k, NULL, FAILED };
	return list;
}

void names_print(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct sanity_test *t = tables[i]; t->name; t++)
			printf("%-20s %s\n", t->name, t->what);
	printf("\nGDRCopy's names; each name may end with _cumemalloc or _vmmalloc\n");
	for (const struct alias *a = aliases; a < aliases + ARRAY_SIZE(aliases); a++)
		if (a > aliases && !strcmp(a->name, a[-1].name))
			printf(" %s", a->test);
		else
			printf("%s%s: %s", a > aliases ? "\n" : "", a->name, a->test);
	printf("\n");
}

struct series {
	struct chosen *list;
	size_t count;
	struct report *reports;
};

static _Atomic size_t *begun; /* tests of the series; shared with the tool */

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void play(const struct sanity_test *test)
{
	double start = now_s();
	sigjmp_buf waived;

	report_waived = &waived;
	if (!sigsetjmp(waived, 1)) {
		if (test->run)
			test->run();
		else
			scene_play(test);
		atomic_store(&report->returned, 1);
	}
	report_waived = NULL;
	report->seconds = now_s() - start;
}

static void in_child(void *arg)
{
	struct series *s = arg;
	size_t i = *begun;

	tool_on_end = report_cannot; /* the text of tool_cannot() is the test's reason */
	report = s->reports + i;
	sanity.facts = *s->list[i].facts;
	if (!s->list[i].test->bare)
		sanity_open();
	for (; i < s->count; i++) {
		report = s->reports + i;
		sanity.facts = *s->list[i].facts;
		atomic_store(begun, i + 1);
		play(s->list[i].test);
	}
	sanity_close();
	exit(TOOL_OK); /* the exit handlers of CUDA and the library belong to the last test */
}

void run_tests(struct chosen *list, size_t count, long seconds)
{
	struct series s = { list, count, report };
	double begin = now_s();
	size_t done = 0;

	if (!begun)
		begun = tool_shared(sizeof(*begun));
	*begun = 0;
	for (long left = seconds; done < count && left > 0;
	     left = seconds - (long)(now_s() - begin)) {
		double start = now_s();
		int status = 0;
		enum child_end end = child_run(in_child, &s, (unsigned int)left, &status);
		bool good = end == CHILD_ENDED && WIFEXITED(status) && !WEXITSTATUS(status);
		size_t last = *begun > done ? *begun : done + 1; /* it may have ended before one */

		for (; done < last; done++) {
			report = s.reports + done;
			list[done].outcome = FAILED;
			if (report->returned && (done + 1 < count || good))
				list[done].outcome = PASSED;
			else if (report->has_reason)
				list[done].outcome = report->outcome;
			else
				child_why(end, status, (unsigned int)left, report->text, 1024);
			if (report->returned && !report->has_reason && !good)
				strcat(report->text, ", at exit");
			if (!report->seconds)
				report->seconds = now_s() - start;
		}
		*begun = done;
	}
	for (; done < count; done++) {
		list[done].outcome = WAIVED;
		strcpy(s.reports[done].text, "not run: the tests before it took all the time");
	}
	report = s.reports;
}

static struct probe *shared; /* with the process that fills it in */

/* A driver before level 2.5 has no attribute for whether a pin outlives the free. */
static bool try_persistent(struct buffer *b)
{
	int revoked = 0;

	mem_free(&b->mem);
	OK(gdr_get_callback_flag(b->g, b->mh, &revoked));
	OK(gdr_close(b->g));
	return !revoked;
}

static void look(void)
{
	struct sanity_facts *facts = &shared->facts;
	struct buffer b;
	uint64_t v = 0;

	cuda_dl_load();
	sim_check(shared->sim_dir, cu.path);
	gpu_find(&sanity.gpu, shared->device);
	gpu_start(&sanity.gpu);
	buffer_open(&b, &sanity.gpu, shared->kind, GPU_PAGE_SIZE, GDR_MAP_FLAG_DEFAULT);
	OK(barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_PERSISTENT, &v));
	*facts = (struct sanity_facts){
		.device = shared->device,
		.kind = b.mem.kind,
		.backend = b.backend,
		.place = b.place,
		.persistent = v,
		.sync_memops = b.sync_memops == 1,
		.type = b.info.mapping_type,
	};
	snprintf(shared->passed_over, sizeof(shared->passed_over), "%s", b.note);
	snprintf(shared->libcuda, sizeof(shared->libcuda), "%s", cu.path);
	shared->simulated = cu.is_stand_in;
	shared->gpu = sanity.gpu;
	if (b.backend == BARCOPY_BACKEND_GDRDRV && !v)
		facts->persistent = try_persistent(&b);
	else
		buffer_close(&b);
}

enum outcome probe_run(struct probe *p, long seconds)
{
	static const struct sanity_test test = { .name = "probe", .run = look, .bare = true };
	struct chosen look_once = { &test, p->kind, &p->facts, FAILED };

	if (!shared)
		shared = tool_shared(sizeof(*shared));
	*shared = *p;
	memset(report, 0, sizeof(*report));
	run_tests(&look_once, 1, seconds);
	*p = *shared;
	return look_once.outcome;
}
