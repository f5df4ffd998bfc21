// SPDX-License-Identifier: MIT
/*
 * Every CUDA call, every call of the resource manager and every system call of the library failing in
 * turn, by call number, through the life of a buffer of each kind: in a process that has used the library before
 * and in one that has not. After each: no descriptor, mapping or context more than before, a
 * documented errno, and the same life again, which must succeed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attack/life.h"
#include "common/resources.h"
#include "common/rm.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"

enum what { CUDA, RM, SYSTEM };

static const char *const what_names[] = { "CUDA", "RM", "system" };
static struct life lives[LIVES];
static size_t n_lives;

/* Makes the nth call fail, or none with 0. */
static void arm(enum what what, unsigned long n, int result)
{
	switch (what) {
	case CUDA:
		cuda_hooks.fail_nth(n, result);
		break;
	case RM:
		rm_sim.fail_nth(n, result);
		break;
	case SYSTEM:
		if (n)
			wrap_reset();
		wrap_fail_nth(n);
		break;
	}
}

static const char *failed_call(enum what what)
{
	switch (what) {
	case CUDA:
		return cuda_hooks.failed();
	case RM:
		return rm_sim.failed();
	default:
		return wrap_failed();
	}
}

/*
 * What a failing call leaves behind by its own nature: the undoing that it is has not been done.
 * (A retain that failed is counted as a call and not given back.)
 */
static void forgive(const char *call, const struct resources *before, struct resources *after)
{
	if (!strncmp(call, "cuCtxPopCurrent", 15)) {
		cuda.cuCtxSetCurrent(before->context);
		after->context = before->context;
	}
	if (!strcmp(call, "cuThreadExchangeStreamCaptureMode")) {
		CUstreamCaptureMode mode = (CUstreamCaptureMode)before->capture_mode;

		cuda.cuThreadExchangeStreamCaptureMode(&mode);
		after->capture_mode = before->capture_mode;
	}
	if (!strncmp(call, "cuDevicePrimaryCtxRe", 20))
		after->retained = before->retained;
	if (!strcmp(call, "munmap")) {
		after->mapped = before->mapped;
		after->maps = before->maps;
	}
}

/* What RM holds for the library, and whether that is so by the nature of the call that failed. */
static const char *rm_differs(const struct gdrsim_rm_counts *before,
			      const struct gdrsim_rm_counts *after, const char *call)
{
	static char text[160];

	/* An ioctl that failed as a system call may have been either of the two. */
	if (call && (!strcmp(call, "RM_FREE") || !strcmp(call, "RM_UNMAP_MEMORY") ||
		     !strcmp(call, "ioctl") || !strcmp(call, "munmap") || !strcmp(call, "close")))
		return NULL;
	if (before->memories == after->memories && before->maps == after->maps &&
	    before->vmas == after->vmas && before->dmabufs == after->dmabufs)
		return NULL;
	snprintf(text, sizeof(text),
		 "memories %u, maps %u, mappings %u, dma-bufs %u; before: %u, %u, %u, %u",
		 after->memories, after->maps, after->vmas, after->dmabufs, before->memories,
		 before->maps, before->vmas, before->dmabufs);
	return text;
}

/* Memory of rm's trial that cannot be given back is left, like a descriptor of it in the stand-in. */
static bool frees_the_trial(const char *call)
{
	return !strcmp(call, "RM_FREE") || !strcmp(call, "ioctl") || !strcmp(call, "munmap") ||
	       !strncmp(call, "cuMemFree", 9) || !strncmp(call, "cuMemUnmap", 10) ||
	       !strncmp(call, "cuCtxPushCurrent", 16);
}

/* Descriptors of NVIDIA's nodes that came to stay. */
static int kept_files(const struct gdrsim_rm_counts *before, const struct gdrsim_rm_counts *after)
{
	return (int)(after->ctl_files + after->device_files) -
	       (int)(before->ctl_files + before->device_files);
}

/*
 * The nth call fails in this life. NULL, or what is wrong; *end: there were fewer calls. first_use:
 * what the library makes once and keeps does not count.
 */
static const char *one_fault(const struct life *life, enum what what, unsigned long n, int result,
			     bool first_use, bool *end)
{
	static char text[1024];
	struct gdrsim_rm_counts rm_before, rm_after;
	struct resources before, after, again;
	static char name[64];
	const char *wrong, *call;
	bool worked;

	*end = false;
	rm_sim.counts(&rm_before);
	resources_look(&before);
	arm(what, n, result);
	wrong = life_run(life, &worked);
	call = failed_call(what);
	if (call) {
		snprintf(name, sizeof(name), "%s", call); /* disarming forgets it */
		call = name;
	}
	arm(what, 0, 0);
	if (!call) {
		*end = true;
		if (!wrong && !worked)
			wrong = "failed without a fault";
	}
	resources_look(&after);
	if (call)
		forgive(call, &before, &after);
	rm_sim.counts(&rm_after);
	if (first_use) { /* the page of the process tag; client and GPU of rm */
		before.mapped = after.mapped;
		before.fds += kept_files(&rm_before, &rm_after);
		if (call && frees_the_trial(call)) {
			before.fds = after.fds;
			before.maps = after.maps;
		}
	}
	if (!wrong)
		wrong = resources_differ(&before, &after);
	if (!wrong)
		wrong = rm_differs(&rm_before, &rm_after, call);
	if (!wrong && call) {
		resources_look(&before);
		wrong = life_run(life, &worked);
		/* A call that the driver seemed to lack when it was loaded is lacking for good. */
		if (!wrong && !worked && strcmp(call, "dlsym"))
			wrong = "the same life failed afterwards, without a fault";
		resources_look(&again);
		rm_sim.counts(&rm_before);
		if (first_use) {
			again.mapped = before.mapped;
			again.fds -= kept_files(&rm_after, &rm_before);
		}
		if (!wrong)
			wrong = resources_differ(&before, &again);
	}
	if (!wrong)
		return NULL;
	snprintf(text, sizeof(text), "%s, %s call %lu (%s) gave %d: %s", life->name,
		 what_names[what], n, call ? call : "none", result, wrong);
	return text;
}

static const int cuda_results[] = { 999, 2, 801, 201 };
/* NV_STATUS: generic, short of resources, not permitted, an invalid argument, not supported. */
static const int rm_results[] = { 0xffff, 0x1a, 0x1b, 0x1f, 0x56 };

static int result_of(enum what what, size_t i)
{
	if (what == CUDA && i < COUNT(cuda_results))
		return cuda_results[i];
	if (what == RM && i < COUNT(rm_results))
		return rm_results[i];
	return what == SYSTEM && !i ? -1 : 0;
}

static void sweep_used(enum what what)
{
	unsigned long faults = 0;

	n_lives = lives_make(lives);
	for (size_t l = n_lives == LIVES ? LIVES - 1 : 0; l < n_lives; l++) {
		const char *wrong;
		bool worked, end;

		wrong = life_run(&lives[l], &worked); /* what a first use makes is made */
		ck_assert_msg(!wrong && worked, "%s: %s", lives[l].name, wrong ? wrong : "failed");
		for (size_t i = 0; result_of(what, i); i++)
			for (unsigned long n = 1;; n++, faults++) {
				wrong = one_fault(&lives[l], what, n, result_of(what, i), false,
						  &end);
				ck_assert_msg(!wrong, "%s", wrong);
				if (end)
					break;
			}
	}
	ck_assert_uint_gt(faults, 3);
	printf("%lu %s faults in a used process\n", faults, what_names[what]);
}

static void used_cuda(void)
{
	sweep_used(CUDA);
}

static void used_rm(void)
{
	sweep_used(RM);
}

static void used_system(void)
{
	sweep_used(SYSTEM);
}

/* A process for each fault: nothing has been loaded or made yet. */
struct cold {
	enum what what;
	size_t life;
	unsigned long n;
	int result;
};

enum { COLD_OK = 0, COLD_WRONG = 1, COLD_END = 2 };

static int cold_child(void *arg)
{
	struct cold *c = arg;
	const char *wrong;
	bool end;

	n_lives = lives_make(lives);
	wrong = one_fault(&lives[c->life], c->what, c->n, c->result, true, &end);
	if (wrong) {
		fprintf(stderr, "first use: %s\n", wrong);
		return COLD_WRONG;
	}
	return end ? COLD_END : COLD_OK;
}

static void sweep_cold(enum what what)
{
	size_t some_lives[] = { 0, 3, 4, 5 };
	bool node = standin_gdrdrv();
	unsigned long faults = 0;

	for (size_t l = 0; l < COUNT(some_lives); l++) {
		struct cold c = { .what = what,
				  .life = some_lives[l],
				  .result = result_of(what, 0) };
		int status;

		if ((what == RM && c.life != 3) || node != (c.life == 5))
			continue;
		for (c.n = 1;; c.n += unit_quick() ? 3 : 1) {
			status = unit_in_child(cold_child, &c);
			ck_assert_msg(status == COLD_OK || status == COLD_END,
				      "call %lu: status %d", c.n, status);
			if (status == COLD_END)
				break;
			faults++;
		}
	}
	ck_assert_uint_gt(faults, 3);
	printf("%lu %s faults at a first use\n", faults, what_names[what]);
}

static void cold_cuda(void)
{
	sweep_cold(CUDA);
}

static void cold_rm(void)
{
	sweep_cold(RM);
}

static void cold_system(void)
{
	sweep_cold(SYSTEM);
}

#define NODE "LD_PRELOAD=$SIM/libgdrdrv_node.so"

static const struct unit_test tests[] = {
	{ "CUDA calls, used process", used_cuda, "" },
	{ "RM calls, used process", used_rm, "" },
	{ "system calls, used process", used_system, "" },
	{ "CUDA calls, gdrdrv", used_cuda, NODE },
	{ "system calls, gdrdrv", used_system, NODE },
	{ "system calls, gdrdrv, first use", cold_system, NODE },
	{ "CUDA calls, first use", cold_cuda, "" },
	{ "RM calls, first use", cold_rm, "" },
	{ "RM calls, first use, driver 515", cold_rm, "GDRSIM_RM_DRIVER=515.43.04" },
	{ "RM calls, first use, driver 530", cold_rm, "GDRSIM_RM_DRIVER=530.30.02" },
	{ "system calls, first use", cold_system, "" },
};

int main(int argc, char **argv)
{
	(void)argc;
	rm_start(argv);
	return unit_main(argv, "attack: faults", tests, COUNT(tests));
}
