/* SPDX-License-Identifier: MIT */
/* Messages and replies over a relaxed memory, of one warp's 32 lanes, a sender and a receiver. */
enum { WARP = 32, THREADS = 0, QUEUES = 1, LINES = 16, IN_WORDS = 8 };

#include "queue_memory.h"

/* ---- the programs -------------------------------------------------------- */

enum how { BUFFER, REGISTERS, BOTH, HOWS };

static struct {
	uint64_t messages;
	enum how how;
	bool ordered, relaunch;
	uint64_t received, kernels;
	bool over; /* the last kernel is at its end */
	bool endless; /* a kernel that replies until a reply returns 0 */
	struct {
		uint64_t kernel; /* which one answered a message */
		unsigned int flags; /* how */
	} by[601];
	unsigned long long shared[BARCOPY_QUEUE_MESSAGE_MAX / 8];
} run;

static size_t size_of(uint64_t n)
{
	uint64_t x = n * UINT64_C(0x9e3779b97f4a7c15);

	return 8 + (x >> 40) % (run.how == BUFFER ? BARCOPY_QUEUE_MESSAGE_MAX - 7 : 41);
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

static bool serve_buffer(barcopy_warp_t *q, unsigned int flags)
{
	uint8_t want[BARCOPY_QUEUE_MESSAGE_MAX], *got = (uint8_t *)run.shared;
	bool waits = run.shared[0] & 1;
	unsigned int size;
	uint64_t n;
	int rc;

	do
		rc = waits ? (int)barcopy_warp_receive(q, run.shared, flags)
			   : barcopy_warp_try_receive(q, run.shared, flags);
	while (!rc && !waits);
	if (rc <= 0)
		return false;
	size = (unsigned int)rc;
	n = run.shared[0];
	check_bulk(IN + n % IN_WORDS, n, flags);
	fill(want, n, 0);
	if (size != size_of(n) || memcmp(got, want, size))
		wrong("a request's bytes");
	append(addr_of(0, OUT + q->lane), n, m.released[m.me]);
	run.by[n].kernel = q->begun;
	run.by[n].flags = flags;
	__syncwarp(BARCOPY_WARP_ALL);
	for (unsigned int i = 8 + q->lane; i < size; i += WARP)
		got[i] = (uint8_t)~got[i];
	if (!barcopy_warp_reply(q, run.shared, size, flags))
		return false;
	/* the buffer is the kernel's again */
	for (unsigned int i = 8 + q->lane; i < size; i += WARP)
		got[i] = 0xee;
	return true;
}

static bool serve_registers(barcopy_warp_t *q, unsigned int flags)
{
	unsigned int data[3], size, n = barcopy_warp_take(q, data, &size, flags);
	uint64_t number = data[0] | (uint64_t)data[1] << 32, last;

	if (!n)
		return false;
	if (q->lane % 4 == 0 && q->line < n) {
		run.by[number].kernel = q->begun;
		run.by[number].flags = flags;
	}
	last = gather(number, false)[(n - 1) * 4];
	if (q->lane % 4 == 0 && q->line < n && size != size_of(number))
		wrong("a size");
	check_bulk(IN + last % IN_WORDS, last, flags);
	append(addr_of(0, OUT + q->lane), last, m.released[m.me]);
	for (int i = 0; i < 3; i++)
		if (q->lane % 4 || i == 2)
			data[i] = ~data[i];
	return barcopy_warp_put(q, n, data, size, flags);
}

/* A kernel with the view of an earlier queue: its calls do nothing. */
static void refused(void)
{
	barcopy_queue_view_t view = m.q[0].view;
	unsigned int data[3] = { 0 }, size;
	barcopy_warp_t q;

	view.generation--;
	if (barcopy_warp_begin(&q, view) || barcopy_warp_put(&q, 1, data, 8, 0) ||
	    barcopy_warp_reply(&q, run.shared, 8, 0) || barcopy_warp_take(&q, data, &size, 0) ||
	    barcopy_warp_receive(&q, run.shared, 0))
		wrong("a refused kernel goes on");
	barcopy_warp_end(&q);
}

static void lane(void)
{
	bool more = true;
	barcopy_warp_t q;

	refused();
	for (unsigned int round = 0; more; round++) {
		unsigned int most = run.relaunch ? round % 2 * (round % 37) : ~0u;

		if (!barcopy_warp_begin(&q, m.q[0].view))
			wrong("a kernel was refused");
		run.kernels = q.begun;
		for (unsigned int k = 0; more && k < most; k++) {
			unsigned int flags = run.ordered && k % 3 ? BARCOPY_WARP_ORDERED : 0;

			more = run.how == BUFFER || (run.how == BOTH && (k & 1))
				       ? serve_buffer(&q, flags)
				       : serve_registers(&q, flags);
		}
		run.over = !more;
		barcopy_warp_end(&q);
		/* The next kernel comes from another stream: what it knows, it has by the owner's word. It
		 * may run before this one's last store has arrived. */
		gather(0, false);
		memset(&m.now[m.me], 0, sizeof(m.now[0]));
		memset(&m.heard[m.me], 0, sizeof(m.heard[0]));
		drop(m.released[m.me]);
		m.released[m.me] = NULL;
		gather(0, false);
	}
}

static void sender(void)
{
	uint8_t message[BARCOPY_QUEUE_MESSAGE_MAX];
	int rc;

	for (uint64_t n = 1; n <= run.messages; n++) {
		fill(message, n, 0);
		append(addr_of(0, IN + n % IN_WORDS), n, m.released[m.me]);
		while ((rc = gdri_queue_send(m.q, message, size_of(n),
					     run.ordered ? BARCOPY_QUEUE_ORDERED : 0, 0, EAGAIN)))
			yield();
	}
	while (run.relaunch && run.received < run.messages)
		yield(); /* a stop between two kernels would be the end */
	gdri_queue_stop(m.q, m.fault == NO_STOP_LINE ? BARCOPY_QUEUE_ABORT : 0);
}

static void receiver(void)
{
	uint8_t got[BARCOPY_QUEUE_MESSAGE_MAX], want[BARCOPY_QUEUE_MESSAGE_MAX];
	size_t size;
	int rc;

	/* a kernel that waits for room has freed what it took, all but less than a quarter */
	while (m.q[0].sent < (run.how == BUFFER ? 20 : 29))
		yield();
	while ((rc = gdri_queue_receive(m.q, got, sizeof(got), &size, 0, 0)) != -EPIPE) {
		if (rc == -ETIMEDOUT) {
			yield();
			continue;
		}
		fill(want, ++run.received, 0xff);
		if (rc || size != size_of(run.received) || memcmp(got, want, size))
			wrong("a reply's bytes");
		if (oldest(0, AT_BEGUN) < run.by[run.received].kernel)
			wrong("a reply before its kernel has begun");
		for (unsigned int i = 0; i < WARP; i++)
			check_bulk(OUT + i, run.received, run.by[run.received].flags);
	}
	if (run.received != run.messages)
		wrong("a message was lost");
	/* a kernel may have begun behind the stop */
	while (!run.over || host_load(addr_of(0, AT_ENDED)) < run.kernels ||
	       gdri_queue_has_kernel(m.q))
		yield();
	if (m.ends)
		wrong("the end of a kernel arrives after the queue's end");
	if (!withdraw(m.q))
		wrong("the queue is not free after its last kernel");
	m.destroyed[0] = true;
}

/* ---- the end of a queue whose kernels are not awaited ---------------------- */

/* Polls are counted in 32 bits. A wait of some minutes has more, and goes on from its start. */
static void many_polls(void)
{
	uint64_t asked = gdri_now_ns();
	struct patience p = { 1, asked, &asked, 0, LOOKS, ETIMEDOUT, false };

	look_up(m.q, &p);
	if (!p.last)
		wrong("a wait of 2^32 polls begins anew");
}

/* Kernels until one is refused; or one, slower or faster than the CPU, that only replies. */
static void surplus_lane(void)
{
	unsigned int data[3] = { 0 };
	barcopy_warp_t q;

	while (barcopy_warp_begin(&q, m.q[0].view)) {
		while (run.endless && barcopy_warp_put(&q, 1, data, 8, 0))
			if (!m.pause)
				m.until[m.me] = m.steps + 300;
		barcopy_warp_end(&q);
		gather(0, false);
		if (run.endless)
			break;
	}
}

/* What gdri_queue_destroy() does, until it succeeds. */
static void destroyer(void)
{
	many_polls();
	for (unsigned int i = below(2000); i; i--)
		yield();
	if (run.endless)
		gdri_queue_stop(m.q, 0);
	while (!wait_or_abort(m.q, false, run.endless ? 1000000000 : 0) || !withdraw(m.q))
		yield();
	if (m.q[0].received > 4 * LINES)
		wrong("replies are dropped behind the deadline or the abort");
	m.destroyed[0] = true;
	for (unsigned int i = 3000; i; i--)
		yield();
}

static void agent(void)
{
	if (m.surplus && m.me < WARP)
		surplus_lane();
	else if (m.surplus && m.me == RECEIVER)
		destroyer();
	else if (m.surplus)
		leave_run();
	else if (m.me < WARP)
		lane();
	else if (m.me == SENDER)
		sender();
	else
		receiver();
	leave_run();
}

static const char *explore(uint64_t seed, enum fault fault, unsigned int fence)
{
	memset(&run, 0, sizeof(run));
	start_over(seed, fault, fence, LINES);
	m.lap_mask = 0x3; /* old words look like new ones early */
	m.stale = 30;
	run.messages = unit_quick() ? 150 : 600;
	run.how = (enum how)(seed % HOWS);
	run.relaunch = seed & 1;
	run.ordered = seed & 2;
	m.slow = below(2) ? 256u << below(5) : 0;
	return run_agents();
}

static void no_faults(void)
{
	expect_right(48);
}

static void faults(void)
{
	expect_right(HOWS * 2);
	for (unsigned int i = 0; i < fences; i++)
		if (!fence_at[i].sc) /* that one is against destroy */
			expect_seen(NO_FENCE, i, 40);
	for (int fault = NO_SYNC; fault < FAULTS; fault++)
		expect_seen((enum fault)fault, 0, 40);
}

static void ends(void)
{
	for (uint64_t seed = 1; seed <= (unit_quick() ? 6 : 60); seed++) {
		memset(&run, 0, sizeof(run));
		start_over(seed, NONE, 0, LINES);
		m.lap_mask = 3;
		m.surplus = true;
		run.endless = seed % 3;
		m.asks = run.endless ? 0 : 3000;
		m.pause = seed % 3 == 2 ? 6000 : 0;
		if (run_agents())
			ck_abort_msg("%s: seed %d, step %u", m.wrong, (int)seed, m.steps);
	}
}

static const struct unit_test tests[] = {
	{ "messages", no_faults, NULL },
	{ "faults", faults, NULL },
	{ "ends", ends, NULL },
};

UNIT_MAIN("queue explorer", tests)
