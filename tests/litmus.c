// SPDX-License-Identifier: MIT
/*
 * litmus: looks for copies that break the memory order which libgdrapi guarantees. The CPU and a
 * running GPU kernel pass blocks to each other by the protocols that programs use; every word of
 * every block is checked. --impl and --no-fence override the library's choice, to show that the
 * test can fail.
 *
 * With --impl or --no-fence the copies are this tool's own; otherwise they are libgdrapi's public
 * calls. For developers: not installed.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "common/exit.h"
#include "bench/timing.h"
#include "litmus/litmus.h"

enum kind {
	MESSAGE, /* flag in host memory, data in GPU memory */
	REREAD, /* the same, the data read again and again until then */
	MAPFLAG, /* flag and data in GPU memory */
	VECTOR, /* the same, one vectored copy: the flag, then the data ORDERED */
	SEQ, /* sequence lock in GPU memory, a round is one look */
	RING, /* the reader's store frees the block at once */
	TWO_COPIES, /* CPU to GPU: data, then flag, two copies */
	ONE_VECTOR, /* CPU to GPU: one vectored copy, the flag ORDERED */
	POSTED, /* CPU to GPU: data copied, flag posted */
	LINE, /* CPU to GPU: posted lines, the last word the flag */
	POLL, /* tight reading of a block in which the GPU counts */
	/* Not part of "all": what gdri_drain() of src/copy/words.c relies on. */
	DMA_READ, /* the CPU writes the block, CUDA copies it out, no flush */
	DMA_WRITE, /* the CPU writes the block, CUDA copies over it, no flush */
	KINDS
};

static const struct {
	const char *name;
	enum protocol protocol;
} kinds[KINDS] = {
	[MESSAGE] = { "message", PRODUCE },  [REREAD] = { "reread", PRODUCE },
	[MAPFLAG] = { "mapflag", PRODUCE },  [VECTOR] = { "readv", PRODUCE },
	[SEQ] = { "seqlock", SEQLOCK },	     [RING] = { "ring", PRODUCE },
	[TWO_COPIES] = { "write", CONSUME }, [ONE_VECTOR] = { "writev", CONSUME },
	[POSTED] = { "post", CONSUME },	     [LINE] = { "line", CONSUME },
	[POLL] = { "poll", COUNT_UP },	     [DMA_READ] = { "dmaread", PROTOCOLS },
	[DMA_WRITE] = { "dmawrite", PROTOCOLS },
};
static const char *const kind_choice[] = { "all",     "message", "reread",  "mapflag",	"readv",
					   "seqlock", "ring",	 "write",   "writev",	"post",
					   "line",    "poll",	 "dmaread", "dmawrite", NULL };
static const char *const peer_choice[] = { "gpu", "thread", NULL };

enum { BLOCK_MAX = 2 << 20 };
enum { MAP_DATA = 0, MAP_FLAG = BLOCK_MAX + 4096, MAP_SIZE = BLOCK_MAX + 65536 };

static struct {
	int kind, peer;
	long rounds;
	size_t size, offset;
	const char *impl;
	bool no_fence, engine, expect;
} opt = { .rounds = 200000 };

static const struct opt options[] = {
	{ 'k', "kind", OPT_CHOICE, &opt.kind, "KIND", "one kind only (all)", 0, 0, kind_choice },
	{ 'n', "rounds", OPT_COUNT, &opt.rounds, "N", "rounds per kind and size (200000)", 1,
	  1000000000, NULL },
	{ 's', "size", OPT_SIZE, &opt.size, "SIZE",
	  "one block size, a multiple of 8 (64, 256, 1K and 4K)", 8, BLOCK_MAX, NULL },
	{ 'o', "offset", OPT_SIZE, &opt.offset, "SIZE",
	  "the block begins so far into a line, a multiple of 8 (0)", 0, 56, NULL },
	{ 'i', "impl", OPT_TEXT, &opt.impl, "NAME",
	  "copy by this implementation: one of GDRCOPY_COPY_IMPL's or of this tool's", 0, 0, NULL },
	{ 0, "no-fence", OPT_FLAG, &opt.no_fence, NULL, "copy without fences", 0, 0, NULL },
	{ 0, "engine", OPT_FLAG, &opt.engine, NULL,
	  "the library's copies use the GPU's copy engine (except words\nand vectored copies)", 0,
	  0, NULL },
	{ 0, "expect-stale", OPT_FLAG, &opt.expect, NULL,
	  "exit 0 only if a stale block is found: shows that the test\ncan fail", 0, 0, NULL },
	{ 'p', "peer", OPT_CHOICE, &opt.peer, "PEER",
	  "gpu, or thread: another CPU over host memory (gpu)", 0, 0, peer_choice },
};

static const struct tool tool = {
	"litmus",
	"Looks for stale, torn and too new data in copies that race with a GPU kernel.",
	"  Each 8-byte word of a block holds the round's number twice. A round is stale if its\n"
	"  copy has an older number, new if it has a newer one, torn if the halves of a word\n"
	"  differ. The exit code is 0 if no round was stale, new or torn.",
	options,
	.count = sizeof(options) / sizeof(options[0]),
};

enum { HOST_FLAG = 0, HOST_ACK = 256, HOST_REPORT = 512, HOST_SIZE = 4096 };
#define STUCK_NS 10000000000ull

struct tally {
	uint64_t rounds, stale, torn, new_, refused;
	double ns_per_round;
};

static struct state {
	struct bench b;
	struct litmus_peer peer;
	uint8_t *map, *host, *data;
	uint64_t map_device, host_device;
	struct copies copies;
	uint64_t block[BLOCK_MAX / 8]; /* the CPU's copy */
	size_t size;
} st;

/* ---- the CPU's side ---- */

static uint32_t host_word(size_t at)
{
	return __atomic_load_n((volatile uint32_t *)(void *)(st.host + at), __ATOMIC_ACQUIRE);
}

static void set_host_word(size_t at, uint32_t v)
{
	__atomic_store_n((volatile uint32_t *)(void *)(st.host + at), v, __ATOMIC_RELEASE);
}

/* Called between two polls: lets a peer that is a thread run, and ends the tool after STUCK_NS. */
static void waiting(uint64_t *since, unsigned int *looks)
{
	if (++*looks % 256 == 0 && opt.peer)
		sched_yield();
	if (*looks % 65536)
		return;
	if (!*since)
		*since = clock_raw_ns();
	if (clock_raw_ns() - *since < STUCK_NS)
		return;
	/* Ends every wait of the kernel, so that the process can end. */
	set_host_word(HOST_ACK, UINT32_MAX);
	*(volatile uint32_t *)(void *)(st.map + MAP_FLAG) = UINT32_MAX;
	tool_fail("the other side has not answered for %llu seconds", STUCK_NS / 1000000000u);
}

static void reach_host(size_t at, uint32_t v)
{
	unsigned int looks = 0;
	uint64_t since = 0;

	while (host_word(at) < v)
		waiting(&since, &looks);
}

static void check_block(struct tally *t, uint32_t round)
{
	bool stale = false, torn = false, newer = false;

	for (size_t i = 0; i < st.size / 8; i++) {
		uint32_t low = (uint32_t)st.block[i], high = (uint32_t)(st.block[i] >> 32);

		stale |= low < round || high < round;
		newer |= low > round || high > round;
		torn |= low != high;
	}
	t->stale += stale, t->torn += torn, t->new_ += newer;
}

/* One vectored copy reads the flag, then the block, which must be as new, until the flag is set. */
static void vector_rounds(struct tally *t, uint32_t rounds)
{
	uint32_t flag;
	barcopy_copy_seg_t seg[2] = {
		{ .map_ptr = st.map + MAP_FLAG, .host_ptr = &flag, .size = sizeof(flag) },
		{ .map_ptr = st.data,
		  .host_ptr = st.block,
		  .size = st.size,
		  .flags = BARCOPY_COPY_ORDERED },
	};

	for (uint32_t round = 1; round <= rounds; round++) {
		uint64_t since = 0;
		unsigned int looks = 0;

		for (;;) {
			copies_v_from(&st.copies, seg, 2);
			if (flag >= round)
				break;
			waiting(&since, &looks);
		}
		check_block(t, round);
		set_host_word(HOST_ACK, round);
	}
}

/*
 * The CPU copies a block through the mapping, with its fence; CUDA then copies the same block.
 * Checks that the second copy finds the first complete.
 */
static void dma_rounds(struct tally *t, enum kind kind, uint32_t rounds)
{
	static uint64_t other[BLOCK_MAX / 8];
	CUdeviceptr device = st.map_device + MAP_DATA + opt.offset;
	size_t words = st.size / 8;

	for (uint32_t round = 1; round <= rounds; round++) {
		for (size_t i = 0; i < words; i++) {
			st.block[i] = (uint64_t)round << 32 | round;
			other[i] =
				kind == DMA_WRITE ? (uint64_t)(round - 1) << 32 | (round - 1) : 0;
		}
		if (kind == DMA_READ) {
			copies_to(&st.copies, st.data, st.block, st.size);
			memset(st.block, 0, st.size);
			cuda_must(cu.MemcpyDtoH(st.block, device, st.size), "cuMemcpyDtoH");
		} else {
			copies_to(&st.copies, st.data, other, st.size);
			cuda_must(cu.MemcpyHtoD(device, st.block, st.size), "cuMemcpyHtoD");
			copies_from(&st.copies, st.block, st.data, st.size);
		}
		check_block(t, round);
	}
}

/* GPU to CPU: a flag announces the block. */
static void read_rounds(struct tally *t, enum kind kind, uint32_t rounds)
{
	for (uint32_t round = 1; round <= rounds; round++) {
		uint64_t since = 0;
		unsigned int looks = 0;

		for (;;) {
			uint32_t seen = kind == MAPFLAG ? copies_get(&st.copies, st.map + MAP_FLAG)
							: host_word(HOST_FLAG);

			if (seen >= round)
				break;
			if (kind == REREAD)
				copies_from(&st.copies, st.block, st.data, st.size);
			waiting(&since, &looks);
		}
		copies_from(&st.copies, st.block, st.data, st.size);
		if (kind == RING)
			set_host_word(HOST_ACK, round);
		check_block(t, round);
		if (kind != RING)
			set_host_word(HOST_ACK, round);
	}
}

/* GPU to CPU: the block is valid if the counter is even and the same before and after it. */
static void seqlock_rounds(struct tally *t, uint32_t rounds)
{
	for (uint32_t round = 1; round <= rounds; round++) {
		uint32_t before = copies_get(&st.copies, st.map + MAP_FLAG);

		copies_from(&st.copies, st.block, st.data, st.size);
		if ((before & 1) || copies_get(&st.copies, st.map + MAP_FLAG) != before)
			t->refused++;
		else
			check_block(t, before);
	}
	set_host_word(HOST_ACK, 1);
}

/* CPU to GPU: the kernel checks the block. */
static void write_rounds(struct tally *t, enum kind kind, uint32_t rounds)
{
	for (uint32_t round = 1; round <= rounds; round++) {
		barcopy_copy_seg_t seg[2] = {
			{ .map_ptr = st.data, .host_ptr = st.block, .size = st.size },
			{ .map_ptr = st.map + MAP_FLAG,
			  .host_ptr = &round,
			  .size = sizeof(round),
			  .flags = BARCOPY_COPY_ORDERED },
		};

		for (size_t i = 0; i < st.size / 8; i++)
			st.block[i] = (uint64_t)round << 32 | round;
		if (kind == LINE) {
			copies_line(&st.copies, st.data, st.block);
		} else if (kind == ONE_VECTOR) {
			copies_v_to(&st.copies, seg, 2);
		} else {
			copies_to(&st.copies, st.data, st.block, st.size);
			if (kind == POSTED)
				copies_post(&st.copies, st.map + MAP_FLAG, round);
			else
				copies_to(&st.copies, st.map + MAP_FLAG, &round, sizeof(round));
		}
		reach_host(HOST_ACK, round);
	}
	t->stale = host_word(HOST_REPORT);
	t->torn = host_word(HOST_REPORT + 4);
}

/* GPU to CPU: the GPU counts up in the last word. The copies must see it grow up to `rounds`. */
static void poll_rounds(struct tally *t, uint32_t rounds)
{
	const uint64_t *word = &st.block[st.size / 8 - 1];
	uint64_t since = 0;
	unsigned int looks = 0;
	uint32_t last = 0;

	while (last < rounds) {
		copies_from(&st.copies, st.block, st.data, st.size);
		t->stale += (uint32_t)*word < last;
		t->torn += (uint32_t)*word != (uint32_t)(*word >> 32);
		if ((uint32_t)*word != last)
			since = 0, looks = 0;
		last = (uint32_t)*word > last ? (uint32_t)*word : last;
		waiting(&since, &looks);
	}
}

static struct tally run(enum kind kind, size_t size)
{
	struct tally t = { .rounds = (uint64_t)opt.rounds };
	uint32_t rounds = (uint32_t)opt.rounds;
	struct litmus_work work = {
		.protocol = kinds[kind].protocol,
		.data = st.map_device + MAP_DATA + opt.offset,
		.flag = st.map_device + MAP_FLAG,
		.ack = st.host_device + HOST_ACK,
		.report = st.host_device + HOST_REPORT,
		.words = (uint32_t)(size / 8),
		.rounds = rounds,
	};
	static const uint8_t zeros[MAP_SIZE];
	uint64_t start;

	st.size = size;
	st.data = st.map + MAP_DATA + opt.offset;
	if (kind == MESSAGE || kind == REREAD || kind == RING)
		work.flag = st.host_device + HOST_FLAG;
	if (kind == LINE)
		work.flag = work.data + size - 8;
	memset(st.host, 0, HOST_SIZE);
	copies_to(&st.copies, st.map, zeros, MAP_SIZE);
	(void)copies_get(&st.copies, st.map); /* the zeros are in place before the kernel starts */
	start = clock_raw_ns();
	if (work.protocol != PROTOCOLS)
		litmus_start(&st.peer, &work);
	if (kind == DMA_READ || kind == DMA_WRITE)
		dma_rounds(&t, kind, rounds);
	else if (kind == VECTOR)
		vector_rounds(&t, rounds);
	else if (kind == SEQ)
		seqlock_rounds(&t, rounds);
	else if (kind == POLL)
		poll_rounds(&t, rounds);
	else if (work.protocol == CONSUME)
		write_rounds(&t, kind, rounds);
	else
		read_rounds(&t, kind, rounds);
	if (work.protocol != PROTOCOLS)
		litmus_finish(&st.peer);
	t.ns_per_round = (double)(clock_raw_ns() - start) / rounds;
	return t;
}

/* ---- set-up and output ---- */

static void start_gpu(void)
{
	void *host;
	CUdeviceptr device;

	bench_start(&st.b, MAP_SIZE);
	st.map = st.b.buf.cpu;
	st.map_device = st.b.buf.mem.dptr;
	cuda_must(cu.MemHostAlloc(&host, HOST_SIZE,
				  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
		  "cuMemHostAlloc");
	cuda_must(cu.MemHostGetDevicePointer(&device, host, 0), "cuMemHostGetDevicePointer");
	st.host = host;
	st.host_device = device;
	litmus_load(&st.peer);
}

static void start_thread(void)
{
	st.map = mmap(NULL, MAP_SIZE + HOST_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (st.map == MAP_FAILED)
		tool_fail("no memory");
	st.host = st.map + MAP_SIZE;
	st.map_device = (uintptr_t)st.map;
	st.host_device = (uintptr_t)st.host;
}

static void make_plan(void)
{
	gdr_mapping_type_t type = opt.peer ? GDR_MAPPING_TYPE_WC : st.b.buf.info.mapping_type;
	const struct gdri_copy_impl *impl = opt.impl ? impl_named(opt.impl) : NULL;
	barcopy_copy_options_t help = { .struct_size = sizeof(help),
					.engine_read_min = opt.engine,
					.engine_write_min = opt.engine };

	if (opt.impl && !impl)
		tool_fail("--impl %s: no such implementation", opt.impl);
	if (gdri_copy_plan_init(&st.copies.plan, type, gdri_cpu_features(), impl))
		tool_fail("--impl %s: this CPU cannot run it", opt.impl);
	if (opt.no_fence)
		st.copies.plan.fences = GDR_MAPPING_TYPE_NONE;
	/* A thread peer uses host memory, which is not pinned and has no handle. */
	if (!opt.impl && !opt.no_fence && !opt.peer)
		st.copies.handle = st.b.buf.mh;
	if (!opt.engine)
		return;
	if (!st.copies.handle.h)
		tool_fail("--engine is for the library's copies of GPU memory");
	copies_must(barcopy_set_copy_options(st.copies.handle, &help), "barcopy_set_copy_options");
}

static void report(enum kind kind, size_t size, const struct tally *t)
{
	printf("%-8s %5zu  %9llu  %7llu  %5llu  %5llu  %8.0f", kinds[kind].name, size,
	       (unsigned long long)t->rounds, (unsigned long long)t->stale,
	       (unsigned long long)t->torn, (unsigned long long)t->new_, t->ns_per_round);
	if (kind == SEQ)
		printf("  %llu looks refused", (unsigned long long)t->refused);
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 64, 256, 1024, 4096 };
	size_t count = sizeof(sizes) / sizeof(sizes[0]);
	uint64_t rounds = 0, stale = 0, wrong = 0;

	bench_options(&st.b, &tool, argc, argv);
	if (st.b.json)
		tool_fail("--json: litmus prints text alone");
	if ((opt.size | opt.offset) % 8)
		tool_fail("sizes and offsets are multiples of 8");
	if (opt.peer)
		start_thread();
	else
		start_gpu();
	make_plan();
	printf("copies:   %s, reads by %s, %s\n"
	       "kind      size     rounds    stale   torn    new  ns/round\n",
	       st.copies.handle.h ? "libgdrapi's" : "this tool's own",
	       opt.engine ? "the GPU's copy engine" : st.copies.plan.from->name,
	       opt.no_fence ? "no fences" : "fenced");
	for (int kind = 0; kind < KINDS; kind++) {
		if (opt.kind ? opt.kind - 1 != kind : kind >= DMA_READ)
			continue;
		if (kind >= DMA_READ && opt.peer)
			tool_fail("CUDA's copies are of GPU memory");
		for (size_t i = 0; i < (opt.size ? 1 : count); i++) {
			size_t size = opt.size ? opt.size : sizes[i];
			struct tally t;

			if (kind == LINE && (size != BARCOPY_LINE || opt.offset))
				continue;
			t = run((enum kind)kind, size);
			report((enum kind)kind, size, &t);
			rounds += t.rounds;
			stale += t.stale;
			wrong += t.stale + t.torn + t.new_;
		}
	}
	printf("%llu rounds, %llu wrong\n", (unsigned long long)rounds, (unsigned long long)wrong);
	if (!opt.peer) {
		cu.MemFreeHost(st.host);
		bench_stop(&st.b);
	}
	return opt.expect ? (stale ? TOOL_OK : TOOL_FAIL) : (wrong ? TOOL_FAIL : TOOL_OK);
}
