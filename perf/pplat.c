/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_pplat: the round trip between the CPU and a running kernel. One sets a flag; the other
 * sees it and sets another, in GPU memory, which the CPU reaches through the mapping, or in host
 * memory.
 */
#include <stdio.h>

#include "common/exit.h"
#include "common/progress.h"
#include "pplat/pplat.h"

enum mode { CPU_FIRST, GPU_FIRST };

/* The names of GDRCopy's pplat. */
static const char *const place_name[] = { "gpumem", "hostmem", NULL };

static long mode = CPU_FIRST;
static bool queue;
static struct pplat pplat = {
	.rounds = 1000, .blocks = 1, .timeout_s = 10, .ping = GPU, .pong = CPU, .data = GPU
};

static const struct opt options[] = {
	OPTION_COUNT('t', "iters", &pplat.rounds, "round trips (1000)", 1, 100000000),
	OPTION_SIZE('s', "size", &pplat.size,
		    "bytes of data each way in a round trip, a multiple of\n"
		    "4 (0: flags alone)",
		    0, 16 << 20),
	OPTION_COUNT('m', "mode", &mode, "0: the CPU begins each round; 1: the GPU does (0)",
		     CPU_FIRST, GPU_FIRST),
	OPTION_CHOICE('G', "ping", &pplat.ping, "PLACE",
		      "where the flag to the kernel lies: gpumem or hostmem\n"
		      "(gpumem)",
		      place_name),
	OPTION_CHOICE('C', "pong", &pplat.pong, "PLACE",
		      "where the flag to the CPU lies: gpumem or hostmem\n"
		      "(hostmem)",
		      place_name),
	OPTION_CHOICE('D', "data", &pplat.data, "PLACE",
		      "where data lie, both ways: gpumem or hostmem (gpumem)", place_name),
	OPTION_COUNT('B', "blocks", &pplat.blocks,
		     "blocks of threads that share the data, each with a flag\n"
		     "to the CPU of its own (1); flags alone take one",
		     1, PPLAT_MAX_BLOCKS),
	OPTION_COUNT('T', "threads", &pplat.threads, "threads of a block (one a word, 32 to 1024)",
		     1, PPLAT_MAX_THREADS),
	OPTION_FLAG('q', "queue", &queue,
		    "measure queues (barcopy_queue.h) and what programs do\n"
		    "without them; of the options above only -t applies"),
	{ 'u', "timeout", OPT_COUNT, &pplat.timeout_s, "SECONDS",
	  "how long each side waits for the other (10); 0: for ever", 0, 3600, NULL },
};

static const struct tool tool = {
	"gdrcopy_pplat",
	"Measures the round trip between the CPU and a running GPU kernel.",
	"  The kernel stays on the GPU. A round: the CPU writes the message, if there is one, and\n"
	"  sets the ping; the kernel sees it, answers each word of the message by that word plus\n"
	"  the round's number and sets the pong; the CPU sees that and copies the answer. Each\n"
	"  round is timed by the CPU as a whole, after 10 untimed ones; percentiles are values\n"
	"  that were seen (nearest rank), in microseconds. Every word of every answer is "
	"compared.\n"
	"  With -m 1 the kernel begins: it writes the data and sets the pong; the CPU sees it,\n"
	"  copies the data and sets the ping. The GPU's clock is read before the first timed "
	"round\n"
	"  and after the last: only the mean is known. Every word is compared in 10 untimed "
	"rounds\n"
	"  before and 10 behind, one word in each timed round.\n"
	"  With data in GPU memory and the ping in host memory the CPU has to flush its writes\n"
	"  first, which costs it one more trip over the link.\n"
	"  More blocks than the GPU can run at once never answer.\n"
	"  With -q every answer of every message is compared. A rate is 100 messages for each\n"
	"  round trip of -t, by one thread of the CPU; a send's cost is the median of bursts of\n"
	"  128. Launches find their message in GPU memory, written through the mapping, and "
	"answer\n"
	"  in host memory. Graphs are left out where the driver has none.",
	options,
	ARRAY_SIZE(options),
	.examples = "  gdrcopy_pplat\n"
		    "      a flag each way, the one to the GPU in its memory\n"
		    "  gdrcopy_pplat -s 4K -t 200\n"
		    "      and 4 KiB of data each way\n"
		    "  gdrcopy_pplat -m 1 -s 4K -D hostmem -B 4 -T 256 -t 200\n"
		    "      4 blocks of the GPU hand 4 KiB in host memory to the CPU\n"
		    "  gdrcopy_pplat -q -t 100\n"
		    "      messages through queues, compared with launches and polled host memory",
};

static void print_set_up(void)
{
	const char *const place[] = { [GPU] = pplat.b.buf.place, [CPU] = "host memory" };

	printf("kernel:   %ld block%s of %ld thread%s\n", pplat.blocks,
	       plural((unsigned long)pplat.blocks), pplat.threads,
	       plural((unsigned long)pplat.threads));
	printf("ping:     flag in %s\npong:     flag in %s\n", place[pplat.ping],
	       place[pplat.pong]);
	if (pplat.size)
		printf("data:     %zu bytes %s in %s\n", pplat.size,
		       mode == CPU_FIRST ? "each way" : "to the CPU", place[pplat.data]);
}

static void print_result(const struct stats *st)
{
	bool by_cpu = mode == CPU_FIRST;

	print_set_up();
	if (by_cpu)
		printf("\n%-12s %9s %9s %9s %9s %9s %9s %9s\n"
		       "%12zu %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f\n",
		       "round trip", "P0 us", "P50 us", "P99 us", "P99.9 us", "P99.99 us",
		       "mean us", "max us", st->count, st->p0, st->p50, st->p99, st->p999,
		       st->p9999, st->mean, st->max);
	else
		printf("\n%-12s %9s\n%12zu %9.3f\n", "round trip", "mean us", st->count, st->mean);
	/* the line of GDRCopy's tool, for scripts that parse it; it prints one mean twice, too */
	printf("\nRound-trip latency per iteration is (min) %g, (median) %g us\n",
	       by_cpu ? st->p0 : st->mean, by_cpu ? st->p50 : st->mean);
}

static void print_json(const struct stats *st, int rc, struct json *j)
{
	bench_json(&pplat.b, j);
	json_string(j, "begins", mode == CPU_FIRST ? "cpu" : "gpu");
	json_int(j, "blocks", pplat.blocks);
	json_int(j, "threads", pplat.threads);
	json_string(j, "ping", place_name[pplat.ping]);
	json_string(j, "pong", place_name[pplat.pong]);
	json_string(j, "data", place_name[pplat.data]);
	json_uint(j, "data_size", pplat.size);
	json_string(j, "unit", "us");
	if (rc)
		return;
	json_object(j, "round_trip");
	if (mode == CPU_FIRST) {
		bench_json_stats(j, st);
	} else {
		json_uint(j, "iterations", st->count);
		json_number(j, "mean", st->mean);
	}
	json_end(j);
}

static void settle_options(void)
{
	long words;

	if (pplat.size % sizeof(uint32_t))
		tool_fail("-s %zu: must be a multiple of 4", pplat.size);
	if (!pplat.size) {
		/* one thread sees the ping and sets the pong: more threads would only slow it */
		pplat.blocks = 1;
		pplat.threads = 1;
	}
	words = (long)(pplat.size / sizeof(uint32_t));
	if (!pplat.threads)
		pplat.threads = words < 32 ? 32 : words > 1024 ? 1024 : words;
}

int main(int argc, char **argv)
{
	struct stats st = { 0 };
	struct json j;
	int rc = 0;

	bench_options(&pplat.b, &tool, argc, argv);
	settle_options();
	pplat_open(&pplat);
	if (queue) {
		if (pplat.b.json)
			bench_json(&pplat.b, &j);
		pplat_queue(&pplat, pplat.b.json ? &j : NULL);
	} else {
		progress_at(0, 1, "%ld round trips", pplat.rounds);
		rc = (mode == CPU_FIRST ? pplat_cpu_first : pplat_gpu_first)(&pplat, &st);
		progress_hide();
		if (pplat.b.json)
			print_json(&st, rc, &j);
		else if (!rc)
			print_result(&st);
	}
	pplat_close(&pplat);
	return bench_finish(&pplat.b, &j, rc, true);
}
