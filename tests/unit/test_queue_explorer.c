/* SPDX-License-Identifier: MIT */
/*
 * Messages and replies over a relaxed memory, of one warp's 32 lanes, a sender and a receiver, and of
 * kernels that follow each other. tests/mutants/mutants.txt has faults of the text that this must see.
 */
enum { WARP = 32, THREADS = 0, QUEUES = 1, LINES = 16, IN_WORDS = 8 + 64 };

#include "queue_memory.h"

/* The CPU stores a word of eight before each message. Before each of the first it loads a word that the
 * kernel stores once it has taken the message. */
enum { SENT = IN, READ = IN + 8, READS = 64 };

/* ---- the programs -------------------------------------------------------- */

static bool context_works(void)
{
	return true;
}

static uint64_t host_time(void)
{
	return explored_time();
}

static void host_rest(const struct timespec *t)
{
	(void)t;
	yield();
}

static struct {
	uint64_t messages, received;
	bool ordered, relaunch;
	unsigned int ended; /* lanes of the last kernel */
	bool aborted; /* a kernel that replies until the CPU aborts */
	unsigned int full; /* its lanes that have filled the ring */
	unsigned int flags[601]; /* with which a message was answered */
} run;

static size_t size_of(uint64_t n)
{
	return 8 + (n * UINT64_C(0x9e3779b97f4a7c15) >> 40) % 41;
}

/* Message n: its number, then bytes that depend on it; in the reply these are inverted. */
static void fill(uint8_t *p, uint64_t n, uint8_t flip)
{
	memcpy(p, &n, 8);
	for (size_t i = 8; i < size_of(n); i++)
		p[i] = (uint8_t)(n * 31 + i * 7 + (n >> 8)) ^ flip;
}

static void check_bulk(uint64_t word, uint64_t n, unsigned int flags)
{
	if (flags & BARCOPY_WARP_ORDERED && oldest(0, (unsigned int)word) < n)
		wrong("bulk data are older than the message");
}

static bool serve(barcopy_warp_t *q, unsigned int flags)
{
	unsigned int data[3], size, n = barcopy_warp_take(q, data, &size, flags);
	uint64_t number = data[0] | (uint64_t)data[1] << 32, last;

	if (!n)
		return false;
	if (q->lane % 4 == 0 && q->line < n)
		run.flags[number] = flags;
	last = gather(number, false)[(n - 1) * 4];
	if (q->lane % 4 == 0 && q->line < n && size != size_of(number))
		wrong("a size");
	check_bulk(SENT + last % 8, last, flags);
	if (run.ordered && flags && q->lane % 4 == 0 && q->line < n && number <= READS)
		append(addr_of(0, READ + (unsigned int)number - 1), number, m.released[m.me]);
	append(addr_of(0, OUT + q->lane), last, m.released[m.me]);
	for (int i = 0; i < 3; i++)
		if (q->lane % 4 || i == 2)
			data[i] = ~data[i];
	return barcopy_warp_put(q, n, data, size, flags);
}

/* The next kernel sees what this one has stored, and no fence of it. */
static void next_kernel(void)
{
	gather(0, true);
	memset(&m.heard[m.me], 0, sizeof(m.heard[0]));
	drop(m.released[m.me]);
	m.released[m.me] = NULL;
	gather(0, false);
}

static void lane(void)
{
	barcopy_queue_view_t other = m.q[0].view;
	bool more = true;
	barcopy_warp_t q;

	other.version++;
	if (barcopy_warp_begin(&q, other))
		wrong("a kernel of another layout begins");
	for (unsigned int round = 0; more; round++) {
		unsigned int most = run.relaunch ? round % 2 * (round % 37) : ~0u;

		memset(&q, 0xff, sizeof(q)); /* a kernel's registers, which begin as anything */
		if (!barcopy_warp_begin(&q, m.q[0].view))
			wrong("a kernel was refused");
		for (unsigned int k = 0; more && k < most; k++)
			more = serve(&q, run.ordered && k % 3 ? BARCOPY_WARP_ORDERED : 0);
		barcopy_warp_end(&q);
		next_kernel();
	}
	run.ended++;
}

static void sender(void)
{
	uint8_t message[BARCOPY_QUEUE_LINE];
	int rc;

	for (uint64_t n = 1; n <= run.messages; n++) {
		fill(message, n, 0);
		append(addr_of(0, SENT + n % 8), n, m.released[m.me]);
		if (run.ordered && n <= READS)
			host_load_bulk(addr_of(0, READ + (unsigned int)n - 1), 0);
		while ((rc = gdri_queue_send(m.q, message, size_of(n),
					     run.ordered ? BARCOPY_QUEUE_ORDERED : 0, 0)))
			yield();
	}
	gdri_queue_stop(&m.q->ring, m.fault == NO_STOP_LINE ? BARCOPY_QUEUE_ABORT : 0);
}

/* The stream was synchronised: all that the kernels stored is seen. */
static bool stream_ended(void)
{
	for (int i = 0; run.ended == WARP && i < WARP; i++)
		join_views(&m.now[m.me], &m.now[i]);
	return run.ended == WARP;
}

static void receiver(void)
{
	uint8_t got[BARCOPY_QUEUE_LINE], want[BARCOPY_QUEUE_LINE];
	bool ended;
	size_t size;
	int rc;

	/* a kernel that waits for room has freed what it took, all but less than a quarter */
	while (m.q[0].sent < 29)
		yield();
	for (;;) {
		ended = stream_ended();
		rc = gdri_queue_receive(m.q, got, sizeof(got), &size, 0);
		if (rc == -ETIMEDOUT && ended)
			break;
		if (rc == -ETIMEDOUT) {
			yield();
			continue;
		}
		fill(want, ++run.received, 0xff);
		if (rc || size != size_of(run.received) || memcmp(got, want, size))
			wrong("a reply's bytes");
		for (unsigned int i = 0; i < WARP; i++)
			check_bulk(OUT + i, run.received, run.flags[run.received]);
	}
	if (run.received != run.messages)
		wrong("a message was lost");
	if (host_load(addr_of(0, AT_FREED)) != run.messages)
		wrong("what the last kernel took is not freed");
	m.destroyed[0] = true;
}

/* ---- waits, and an abort -------------------------------------------------- */

/* Polls are counted in 32 bits. A wait of some minutes has more, and goes on from its start. */
static void many_polls(void)
{
	uint64_t asked = gdri_now_ns();
	struct patience p = { .start = asked, .looks = LOOKS };

	look_up(m.q, &p, &asked, 1);
	if (p.error != -ETIMEDOUT)
		wrong("a wait of 2^32 polls begins anew");
}

/* Replies until the CPU, which reads none, aborts. */
static void endless_lane(void)
{
	unsigned int data[3] = { 0 }, n = 0;
	barcopy_warp_t q = { 0 };

	barcopy_warp_begin(&q, m.q[0].view);
	for (; n < LINES - 8; n++)
		barcopy_warp_put(&q, 1, data, 8, 0);
	barcopy_warp_end(&q);
	next_kernel();
	barcopy_warp_begin(&q, m.q[0].view);
	/* Into the last eight lines, before the abort. */
	if (barcopy_warp_put(&q, 8, data, 8, 0))
		n += 8;
	run.full++;
	while (barcopy_warp_put(&q, 1, data, 8, 0))
		if (++n > LINES)
			wrong("a reply without room");
	if (!run.aborted || n != LINES)
		wrong("a put that fails before the abort");
	barcopy_warp_end(&q);
	run.ended++;
}

static void aborter(void)
{
	many_polls();
	while (run.full < WARP)
		yield();
	for (unsigned int i = 1000 + below(2000); i; i--)
		yield();
	gdri_queue_stop(&m.q->ring, 0);
	run.aborted = true;
	gdri_queue_stop(&m.q->ring, BARCOPY_QUEUE_ABORT);
	while (!stream_ended())
		yield();
}

static void agent(void)
{
	if (!run.messages && m.me < WARP)
		endless_lane();
	else if (!run.messages && m.me == RECEIVER)
		aborter();
	else if (run.messages && m.me < WARP)
		lane();
	else if (run.messages && m.me == SENDER)
		sender();
	else if (run.messages)
		receiver();
	leave_run();
}

static const char *explore(uint64_t seed, enum fault fault, unsigned int fence)
{
	memset(&run, 0, sizeof(run));
	start_over(seed, fault, fence, LINES);
	lap_mask = 0x3; /* old words look like new ones early */
	m.stale = 30;
	run.messages = unit_quick() ? 150 : 600;
	run.relaunch = seed & 1;
	run.ordered = seed & 2;
	m.arm = seed & 4;
	return run_agents();
}

static void no_faults(void)
{
	uint64_t first = number("QUEUE_SEED", 1), end = first + number("QUEUE_COUNT", 48);

	for (uint64_t seed = first; seed < end; seed++)
		expect_right(seed);
	/* An acquire empties L1: a take that is not ordered has none. */
	ck_assert_uint_lt(acquires, line_loads / 3);
}

static void faults(void)
{
	static const enum fault model[] = { MORE_ROOM,	 NO_PUSH,     NO_ACQUIRE,   NO_SYNC,
					    TORN_WORDS,	 EARLY_FREED, NO_STOP_LINE, STORES_ONLY };

	for (uint64_t seed = 1; seed <= 6; seed++)
		expect_right(seed);
	for (unsigned int i = 0; i < fences; i++)
		expect_seen(NO_FENCE, i, 40);
	for (unsigned int i = 0; i < COUNT(model); i++)
		expect_seen(model[i], 0, 40);
}

static void aborts(void)
{
	for (uint64_t seed = 1; seed <= (unit_quick() ? 6 : 60); seed++) {
		memset(&run, 0, sizeof(run));
		start_over(seed, NONE, 0, LINES);
		lap_mask = 3;
		if (run_agents())
			ck_abort_msg("%s: seed %d, step %u", m.wrong, (int)seed, m.steps);
	}
}

static const struct unit_test tests[] = {
	{ "messages", no_faults, NULL },
	{ "faults", faults, NULL },
	{ "aborts", aborts, NULL },
};

UNIT_MAIN("queue explorer", tests)
