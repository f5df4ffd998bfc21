/* SPDX-License-Identifier: MIT */
/* Tests in processes of their own, and the memory that they run on; see sanity.h. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "common/child.h"
#include "common/exit.h"
#include "sanity/sanity.h"

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

	if (!begun)
		begun = tool_shared(sizeof(*begun));
	*begun = 0;
	for (size_t done = 0; done < count;) {
		double start = now_s();
		int status = 0;
		enum child_end end = child_run(in_child, &s, (unsigned int)seconds, &status);
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
				child_why(end, status, (unsigned int)seconds, report->text, 1024);
			if (report->returned && !report->has_reason && !good)
				strcat(report->text, ", at exit");
			if (!report->seconds)
				report->seconds = now_s() - start;
		}
		*begun = done;
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
	sim_check(shared->sim_dir, cuda_dl_path());
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
	snprintf(shared->libcuda, sizeof(shared->libcuda), "%s", cuda_dl_path());
	shared->simulated = cuda_dl_is_stand_in();
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
