// SPDX-License-Identifier: MIT
/*
 * Random calls of the public interface against the model (model.h), on each kind of machine. The
 * seed is printed; GDRCOPY_TEST_SEED= repeats it, MODEL_STEPS= sets the length. A run is a process.
 * One that fails is repeated without some of its steps, until none can be left out; those are
 * printed. test_model --gpu SEED SECONDS is for a machine with a GPU.
 */
#include <signal.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/preload.h"
#include "common/rm.h"
#include "model/model.h"

struct world w;

static const struct {
	void (*step)(void);
	unsigned int weight;
} steps[] = {
#define X(name, weight) { step_##name, weight },
	STEPS(X)
#undef X
};

enum { MOST_STEPS = 1 << 20, MOST_RUNS = 100 };
static bool left_out[MOST_STEPS];
static unsigned long long seed;
static unsigned int count;
static unsigned int *reached; /* the step that a run was in; shared with it */

unsigned int below(unsigned int n)
{
	return (unsigned int)(unit_random(&w.random) >> 20) % n;
}

void say(const char *format, ...)
{
	va_list ap;

	if (!w.traced)
		return;
	printf("%6u  ", w.step);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

/* A run has no message but this. */
void run_failed(const char *file, int line, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "step %u: %s:%d: ", w.step, file, line);
	va_start(ap, format);
	if (format)
		vfprintf(stderr, format, ap);
	va_end(ap);
	fprintf(stderr, " (%s)\n", barcopy_last_error());
	_exit(1);
}

static void one_step(void)
{
	unsigned int x, sum = 0, i;

	for (i = 0; i < COUNT(steps); i++)
		sum += steps[i].weight;
	x = below(sum);
	for (i = 0; x >= steps[i].weight; i++)
		x -= steps[i].weight;
	w.current = once_in(8) ? NULL : w.primary[below((unsigned int)w.machine->devices)];
	CU(cuda.cuCtxSetCurrent(w.current));
	steps[i].step();
	if (once_in(250))
		everything_ends();
}

#define ON_RM	  "GDRSIM_NODE=absent "
#define ON_DMABUF "GDRSIM_NODE=absent GDRSIM_RM=absent GDRSIM_DRIVER_VERSION=13030 "
#define ON_NODE	  "GDRSIM_RM=absent LD_PRELOAD=$SIM/libgdrdrv_node.so "
#define RM	  .backend = BARCOPY_BACKEND_RM, .host = true, .devices = 1
#define DMABUF	  .backend = BARCOPY_BACKEND_DMABUF, .host = true, .devices = 1
#define INTEGRATED \
	"GDRSIM_INTEGRATED=1", .backend = BARCOPY_BACKEND_HOST, .host = true, .devices = 1
#define NODE	  .backend = BARCOPY_BACKEND_GDRDRV, .devices = 1

static const struct machine machines[] = {
	{ "rm", ON_RM, RM },
	{ "rm, counted", ON_RM "GDRCOPY_STATS=1 GDRCOPY_CPU_MASK=sse2", RM },
	{ "rm, a small BAR", ON_RM "GDRSIM_BAR1_MIB=16", RM, .small = true },
	{ "rm, two GPUs", ON_RM "GDRSIM_DEVICES=2", .backend = BARCOPY_BACKEND_RM, .devices = 2 },
	{ "dma-buf", ON_DMABUF, DMABUF },
	{ "gdrdrv", ON_NODE, NODE },
	{ "gdrdrv, callbacks", ON_NODE "GDRSIM_NODE_PERSISTENT=0", NODE, .revokes = true },
	{ "an integrated GPU", ON_RM INTEGRATED },
	{ "an integrated GPU, two addresses", ON_RM "GDRSIM_HOST_POINTER=0 " INTEGRATED },
};

/* What is made once and kept: clients of drivers, memory of trials. */
static void first_use(void)
{
	barcopy_mem_t mem;
	gdr_t ctx = open_any();

	for (int i = 0; i < w.machine->devices; i++) {
		OK(barcopy_mem_alloc(ctx, i, 1, 0, &mem));
		OK(barcopy_mem_free(ctx, &mem));
	}
	OK(gdr_close(ctx));
}

static struct machine gpu = { "a GPU", .gpu = true };

/* What the machine with a GPU has: asked in a run's own process, since CUDA does not survive a fork. */
static void look_at_gpu(void)
{
	gdr_t ctx = open_any();
	uint64_t backend, persistent;
	barcopy_mem_t mem;

	gpu.devices = barcopy_mem_alloc(ctx, 1, 1, 0, &mem) ? 1 : 2;
	OK(barcopy_mem_alloc(ctx, 0, 1, 0, &mem));
	OK(barcopy_get_handle_attribute(ctx, mem.handle, BARCOPY_HANDLE_ATTR_BACKEND, &backend));
	OK(barcopy_get_handle_attribute(ctx, mem.handle, BARCOPY_HANDLE_ATTR_PERSISTENT,
					&persistent));
	OK(gdr_close(ctx));
	gpu.backend = (barcopy_backend_t)backend;
	gpu.host = backend != BARCOPY_BACKEND_GDRDRV;
	gpu.revokes = backend == BARCOPY_BACKEND_GDRDRV && !persistent;
}

/* The whole run, in a process of its own. */
static int run(void *unused)
{
	int null = w.traced ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)unused;
	if (null >= 0 && (dup2(null, 1) < 0 || dup2(null, 2) < 0))
		return 1;
	alarm(250);
	standin_start();
	if (standin_device_bytes)
		(void)standin_device_bytes(0); /* releases what a run that failed held */
	if (w.machine->gpu)
		look_at_gpu();
	for (int i = 0; i < w.machine->devices; i++)
		w.primary[i] = standin_primary(i);
	w.current = w.primary[0];
	faults_start();
	first_use();
	everything_ends(); /* and begins */
	for (w.step = 0; w.step < count; w.step++) {
		if (left_out[w.step])
			continue;
		*reached = w.step;
		w.random = (seed * COUNT(machines) + (size_t)(w.machine - machines)) *
				   0xbf58476d1ce4e5b9u +
			   w.step * 0x9e3779b97f4a7c15u;
		w.random += !w.random;
		(void)unit_random(&w.random);
		one_step();
		caches_check();
		stats_check();
	}
	everything_ends();
	return 0;
}

static bool fails(bool shown)
{
	w.traced = shown;
	return unit_in_child(run, NULL) != 0;
}

/* Leaves out all steps that the failure does not need, more and more of them at once. */
static void reduce(void)
{
	unsigned int runs = 0;

	count = *reached + 1;
	for (unsigned int part = (count + 1) / 2; part && runs < MOST_RUNS; part /= 2)
		for (unsigned int from = 0; from < count && runs < MOST_RUNS; from += part) {
			bool before[part];
			unsigned int n = from + part < count ? part : count - from;

			memcpy(before, left_out + from, n);
			if (!memchr(before, false, n))
				continue;
			memset(left_out + from, true, n);
			runs++;
			if (!fails(false))
				memcpy(left_out + from, before, n);
		}
}

/* Runs the seed. Returns true if it fails, which is reduced and printed. */
static bool seed_fails(const struct machine *machine)
{
	const char *length = getenv("MODEL_STEPS");

	w.machine = machine;
	w.counted = getenv("GDRCOPY_STATS") != NULL;
	count = length ? (unsigned int)strtoul(length, NULL, 0) : 1200;
	if (!reached)
		reached = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			       0);
	if (count > MOST_STEPS || reached == MAP_FAILED)
		abort();
	if (!fails(getenv("MODEL_TRACE") != NULL))
		return false;
	printf("model, %s: seed %llu fails at step %u of %u; the calls that it needs:\n",
	       w.machine->name, seed, *reached, count);
	if (!getenv("MODEL_WHOLE"))
		reduce();
	(void)fails(true);
	return true;
}

static void play(void)
{
	const char *text = getenv("GDRCOPY_TEST_SEED");

	seed = text ? strtoull(text, NULL, 0) : 1 + (unsigned int)unit_row;
	if (seed_fails(unit_arg))
		_ck_assert_failed(__FILE__, __LINE__, "",
				  "%s: seed %llu fails; make model SEED=%llu repeats it",
				  w.machine->name, seed, seed);
}

/* On this machine's GPU, seeds from that one on until the seconds are over. */
static int on_gpu(const char *first, const char *seconds)
{
	time_t end = time(NULL) + strtol(seconds, NULL, 0);
	unsigned long long from = strtoull(first, NULL, 0);
	bool failed = false;

	standin_on_gpu = true;
	for (seed = from; !failed && time(NULL) < end; seed++)
		failed = seed_fails(&gpu);
	printf("model on a GPU, seeds %llu to %llu, %u steps each: %s\n", from, seed - 1, count,
	       failed ? "the last fails" : "passed");
	return failed;
}

int main(int argc, char **argv)
{
	static struct unit_test tests[COUNT(machines)];

	if (argc == 4 && !strcmp(argv[1], "--gpu"))
		return on_gpu(argv[2], argv[3]);
	rm_start(argv);
	for (size_t i = 0; i < COUNT(machines); i++)
		tests[i] = (struct unit_test){ machines[i].name, play, machines[i].env,
					       &machines[i], .bare = true };
	return unit_main(argv, "model", tests, COUNT(machines));
}
