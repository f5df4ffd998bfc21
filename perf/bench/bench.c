/* SPDX-License-Identifier: MIT */
/* See bench.h. */
#include "bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/timing.h"
#include "common/exit.h"
#include "common/json.h"
#include "common/progress.h"

static const char *const mapping_choice[] = { "default", "wc", "cache", "device", NULL };

void bench_options(struct bench *b, const struct tool *tool, int argc, char **argv)
{
	const struct opt common[] = {
		OPTION_DEVICE(&b->device),
		OPTION_ALLOC(&b->alloc),
		OPTION_CHOICE('M', "mapping", &b->mapping, "TYPE",
			      "default, wc, cache or device (default)", mapping_choice),
		OPTION_JSON(&b->json),
		OPTION_SIM(&b->sim_dir),
		OPTION_COUNT(0, "cpu", &b->cpu, "run on this CPU alone", 0, CPU_SETSIZE - 1),
	};

	*b = (struct bench){ .alloc = ALLOC_ANY, .cpu = -1 };
	opts_parse(tool, common, ARRAY_SIZE(common), argc, argv);
	if (b->json)
		json_report_errors();
	sim_enter(b->sim_dir, argv);
}

/* x86 kernels print the model's name, arm64 kernels the numbers of its identification register. */
static void read_cpu_model(struct bench *b)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[512], implementer[16] = "", part[16];

	strcpy(b->cpu_model, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "model name : %127[^\n]", b->cpu_model) == 1)
			break;
		sscanf(line, "CPU implementer : %15s", implementer);
		if (sscanf(line, "CPU part : %15s", part) == 1)
			snprintf(b->cpu_model, sizeof(b->cpu_model), "implementer %s part %s",
				 implementer, part);
	}
	if (f)
		fclose(f);
	tool_plain(b->cpu_model); /* a hypervisor chooses it */
}

static int node_of(const char *pci)
{
	char path[128];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	f = *pci ? fopen(path, "re") : NULL;
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

/*
 * Moves this process to those CPUs of the node that it was given (taskset, a batch system), and its
 * memory there where the system lets it. NULL, or why not.
 */
static const char *run_on_node(int node)
{
	unsigned long nodes[16] = { 0 };
	const size_t bits = 8 * sizeof(nodes[0]);
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return "the CPUs that this process was given cannot be read";
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		char path[80];

		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpu%zu", node, cpu);
		if (CPU_ISSET(cpu, &cpus) && access(path, F_OK))
			CPU_CLR(cpu, &cpus);
	}
	if (!CPU_COUNT(&cpus))
		return "no CPU that this process was given is on the GPU's node";
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return strerror(errno);
	if ((size_t)node < bits * ARRAY_SIZE(nodes)) {
		nodes[(size_t)node / bits] = 1ul << (size_t)node % bits;
		syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, 8 * sizeof(nodes));
	}
	return NULL;
}

/* Finds the node of a PCI function and moves this process there, unless `why_not` is a reason. */
static void numa_follow(struct numa *numa, const char *pci, const char *why_not)
{
	*numa = (struct numa){ .node = node_of(pci), .why_not = why_not };
	if (!why_not)
		numa->why_not = numa->node < 0 ? "the system does not report the GPU's node"
					       : run_on_node(numa->node);
}

static void stay_on(long cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		tool_fail("--cpu %ld: this process may not run there: %s", cpu, strerror(errno));
}

static void print_facts(const struct bench *b)
{
	gpu_print(&b->gpu);
	printf("CPU:      %s, ", b->cpu_model);
	if (b->cpu >= 0)
		printf("on CPU %ld alone\n", b->cpu);
	else if (!b->numa.why_not)
		printf("on the GPU's node %d\n", b->numa.node);
	else
		printf("not bound to a node (%s)\n", b->numa.why_not);
	printf("buffer:   %zu byte%s of %s memory: %s\nmapping:  %s, backend %s%s\n",
	       b->buf.mem.size, plural(b->buf.mem.size), mem_kind_name[b->buf.mem.kind],
	       b->buf.place, mapping_name(b->buf.info.mapping_type), backend_name(b->buf.backend),
	       b->buf.backend == BARCOPY_BACKEND_HOST ? " (not through the BAR)" : "");
	fflush(stdout);
}

void bench_start(struct bench *b, size_t size)
{
	cuda_dl_load();
	sim_check(b->sim_dir, cu.path);
	if (cu.is_stand_in && !b->json) {
		printf("%s: running on the stand-in %s: no GPU is used, the figures say nothing "
		       "about one\n",
		       tool_name, cu.path);
		fflush(stdout);
	}
	progress_begin(!b->json);
	progress_at(0, 0, "CUDA and the library are opened");
	gpu_find(&b->gpu, (int)b->device);
	numa_follow(&b->numa, b->gpu.pci, b->cpu >= 0 ? "--cpu" : NULL);
	gpu_start(&b->gpu);
	buffer_open(&b->buf, &b->gpu, b->alloc, size, b->mapping);
	if (b->cpu >= 0)
		stay_on(b->cpu); /* this thread; those that CUDA has started stay elsewhere */
	timing_init(); /* where it is used */
	read_cpu_model(b);
	progress_hide();
	if (b->buf.note[0])
		tool_note("%s is used instead of cuMemAlloc, which cannot be served here (%s)",
			  mem_kind_name[b->buf.mem.kind], b->buf.note);
	if (!b->json)
		print_facts(b);
}

void bench_json(const struct bench *b, struct json *j)
{
	const struct buffer *buf = &b->buf;

	json_head_library(j);
	json_bool(j, "simulated", cu.is_stand_in);

	json_object(j, "gpu");
	json_int(j, "device", b->gpu.ordinal);
	json_string(j, "name", b->gpu.name);
	json_string(j, "pci", b->gpu.pci[0] ? b->gpu.pci : NULL);
	json_string(j, "cuda_driver", b->gpu.cuda_version);
	json_string(j, "kernel_driver", b->gpu.kernel_driver[0] ? b->gpu.kernel_driver : NULL);
	json_string(j, "libcuda", cu.path);
	json_end(j);

	json_object(j, "cpu");
	json_string(j, "model", b->cpu_model);
	if (b->numa.node >= 0)
		json_int(j, "gpu_node", b->numa.node);
	else
		json_string(j, "gpu_node", NULL);
	json_bool(j, "bound", !b->numa.why_not);
	json_string(j, "not_bound_because", b->numa.why_not);
	if (b->cpu >= 0)
		json_int(j, "alone_on", b->cpu);
	json_string(j, "clock", timing.name);
	json_number(j, "clock_overhead_ns", timing.overhead_ns);
	json_end(j);

	json_object(j, "buffer");
	json_uint(j, "size", buf->mem.size);
	json_string(j, "alloc", mem_kind_name[buf->mem.kind]);
	json_string(j, "place", buf->place);
	json_string(j, "note", buf->note[0] ? buf->note : NULL);
	json_string(j, "backend", backend_name(buf->backend));
	json_string(j, "mapping", mapping_name(buf->info.mapping_type));
	json_uint(j, "device_address", buf->mem.dptr);
	json_uint(j, "pinned_address", buf->info.va);
	json_uint(j, "pinned_size", buf->info.mapped_size);
	if (buf->sync_memops >= 0)
		json_bool(j, "sync_memops", buf->sync_memops);
	json_end(j);
}

void bench_stop(struct bench *b)
{
	buffer_close(&b->buf);
	gpu_stop(&b->gpu);
}

int bench_finish(struct bench *b, struct json *j, int rc, bool copied)
{
	while (b->json && j->depth > 1)
		json_end(j);
	if (b->json && copied)
		json_bool(j, "verified", !rc);
	else if (b->json)
		json_string(j, "verified", NULL);
	else if (!rc)
		printf("\n%s\n",
		       copied ? "all data verified" : "nothing was copied: no data verified");
	if (b->json)
		json_finish(j, stdout);
	bench_stop(b);
	return rc ? TOOL_FAIL : TOOL_OK;
}

long bench_iterations(long asked, size_t size, size_t total, long least)
{
	size_t n = total / size;

	if (asked >= 0)
		return asked;
	return n < (size_t)least ? least : n > 10000 ? 10000 : (long)n;
}

void bench_json_stats(struct json *j, const struct stats *st)
{
	json_uint(j, "iterations", st->count);
	json_number(j, "p0", st->p0);
	json_number(j, "p50", st->p50);
	json_number(j, "p99", st->p99);
	json_number(j, "p999", st->p999);
	json_number(j, "p9999", st->p9999);
	json_number(j, "mean", st->mean);
	json_number(j, "max", st->max);
}

size_t bench_size_count(size_t first, size_t last)
{
	size_t n = 0;

	for (size_t size = first; size; size = bench_next_size(size, last))
		n++;
	return n;
}

size_t bench_next_size(size_t size, size_t last)
{
	if (size >= last)
		return 0;
	return size > last / 2 ? last : size * 2;
}
