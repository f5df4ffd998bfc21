/* SPDX-License-Identifier: MIT */
/*
 * Posts and calls over a relaxed memory. A grid of three threads and a warp of eight lanes posts to
 * two queues, again and again, in half of the runs beside a rival of two threads, or two of one;
 * one thread stops the queues, one receives from both, answers in batches, in any order, and ends
 * them.
 */
enum {
	WARP = 8,
	THREADS = 3,
	RIVALS = 2,
	GRID = THREADS + 1, /* the warp is the last */
	PRODUCERS = GRID + RIVALS,
	QUEUES = 2,
	LINES = 4, /* or 2 */
	IN_WORDS = PRODUCERS
};

#include "queue_memory.h"

/* ---- the programs -------------------------------------------------------- */

static struct {
	bool few, with_stop, with_abort, with_drop;
	bool no_launch; /* no further grid */
	bool aborted, stopped[QUEUES], received_all;
	int rounds[2], max_rounds[2]; /* of the grid and its rival */
	bool apart; /* each rival thread is a grid */
	int grid[3][QUEUES][2]; /* of those that run: producers that were accepted, and refused */
	uint64_t begun[QUEUES]; /* grids that were accepted */
	uint64_t sent[PRODUCERS][QUEUES], accepted[PRODUCERS][QUEUES], seen[PRODUCERS][QUEUES];
	bool refused[PRODUCERS][QUEUES], absent[PRODUCERS][QUEUES]; /* by a post; by begin */
	uint64_t open_call[PRODUCERS][QUEUES], answered, posts;
	uint64_t names[QUEUES][PRODUCERS], answers[QUEUES][PRODUCERS];
	unsigned int owed[QUEUES], late[QUEUES];
	bool ended[QUEUES]; /* receive said so */
} run;

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ b * UINT64_C(0xc2b2ae3d27d4eb4f) ^
		     c * UINT64_C(0x165667b19e3779f9);

	return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static uint64_t answer_to(uint64_t n, int who, int q)
{
	return mix(n, (uint64_t)who + 77, (uint64_t)q) >> 16;
}

enum { ORDERED = 1, A_CALL = 2 };

/* Message n of a producer. The first six bytes of a call are its name. */
static void fill(unsigned int *data, uint64_t n, int who, int q, unsigned int flags, uint64_t begun)
{
	for (unsigned int i = 0; i < 12; i++)
		data[i] = (unsigned int)mix(n, (uint64_t)who * 4 + (uint64_t)q, i);
	data[2] = (unsigned int)who | (unsigned int)q << 8 | flags << 16;
	data[3] = (unsigned int)n;
	data[4] = (unsigned int)begun;
}

/* A grid is accepted, or refused because of its rival, a stop or the queue's end, as a whole. */
static void note_begin(int who, int q, int open)
{
	int *grid = run.grid[who < GRID ? 0 : run.apart ? who - GRID + 1 : 1][q];

	if (m.killed)
		return;
	grid[!open]++;
	if (grid[0] && grid[1])
		wrong("half a grid");
	if (!open && !run.stopped[q] && !run.max_rounds[1])
		wrong("a grid is refused");
	run.begun[q] += grid[0] == 1 && open;
	run.absent[who][q] = !open && !run.stopped[q];
}

static void note_post(int who, int q, int ok, uint64_t n)
{
	if (ok && (run.refused[who][q] || run.absent[who][q]))
		wrong("accepted after a refusal");
	if (!ok && !run.stopped[q] && !run.absent[who][q])
		wrong("refused without a stop");
	if (ok) {
		run.accepted[who][q] += n;
		run.posts += n;
	} else {
		run.refused[who][q] = !run.absent[who][q];
		run.sent[who][q] -= n;
	}
}

static void finish_call(barcopy_posts_t *p, int who, int q)
{
	unsigned int flags = below(2) ? BARCOPY_WARP_ORDERED : 0;
	uint64_t n = run.open_call[who][q];
	unsigned long long answer;

	if (!n)
		return;
	run.open_call[who][q] = 0;
	if (!barcopy_posts_wait(p, &answer, flags)) {
		if (!run.aborted)
			wrong("a call without answer");
		return;
	}
	if (answer != answer_to(n, who, q))
		wrong("an answer");
	if (flags && oldest(q, IN + (unsigned int)who) < n)
		wrong("what was copied before an answer is not seen");
	run.answered++;
}

static void one_post(barcopy_posts_t *p, int who, int q)
{
	unsigned int flags = below(2), data[12];
	bool call = !below(3);
	uint64_t n;
	int ok;

	if (call)
		finish_call(p, who, q);
	n = ++run.sent[who][q];
	fill(data, n, who, q, flags | (call ? A_CALL : 0u), run.begun[q]);
	if (flags) {
		append(addr_of(q, OUT + (unsigned int)m.me), n, m.released[m.me]);
		maybe();
	}
	ok = call ? barcopy_posts_call(p, (unsigned int)who, data, 48, flags)
		  : barcopy_posts_post(p, data, 48, flags);
	note_post(who, q, ok, 1);
	if (call && ok)
		run.open_call[who][q] = n;
	if (call && below(2))
		finish_call(p, who, q);
	if (!below(40))
		m.until[m.me] = m.steps + below(2000);
}

/* A producer that was refused goes on to its end only when receive has said that no more comes. */
static void hold(int who, int q)
{
	while (run.refused[who][q] && !run.ended[q] && !run.with_drop && !run.aborted && !m.killed)
		yield();
}

/* By one thread of a grid, when all of it have ended: the launcher's turn. */
static bool is_last(int rival)
{
	bool last;

	memset(run.grid[rival], 0, sizeof(run.grid[0]) * (rival ? 2 : 1));
	for (int i = rival; i <= rival * RIVALS; i++)
		m.number[i] += 3;
	last = ++run.rounds[rival] >= run.max_rounds[rival] || run.no_launch;
	run.no_launch |= last && run.rounds[!rival] >= run.max_rounds[!rival];
	return last;
}

/* barcopy_posts_begin() must succeed if every earlier grid had ended and none began during the call. */
static void begin(barcopy_posts_t *p, int who, int q, unsigned int n)
{
	uint64_t begun = newest(addr_of(q, AT_BEGUN));
	bool free = newest(addr_of(q, AT_ENDED)) == begun && !(newest(addr_of(q, AT_OWNER)) >> 32);
	int open = barcopy_posts_begin(p, m.q[q].view, n);

	note_begin(who, q, open);
	if (free && run.absent[who][q] && newest(addr_of(q, AT_BEGUN)) == begun)
		wrong("refused although no grid runs");
}

static void thread(void)
{
	int rival = m.me >= RIVAL, who = m.me - WARP + rival;
	unsigned int n = !rival ? GRID : run.apart ? 1 : RIVALS;
	barcopy_queue_view_t earlier = m.q[0].view;
	barcopy_posts_t p[QUEUES];
	bool last = false;

	earlier.generation--;
	m.late[m.me] = true;
	if (barcopy_posts_begin(&p[0], earlier, GRID))
		wrong("a kernel begins after the queue's end");
	m.late[m.me] = false;
	do {
		for (int q = 0; q < QUEUES; q++)
			begin(&p[q], who, q, n);
		for (unsigned int k = below(run.few ? 3 : 12 * m.lines); k; k--) {
			int q = (int)below(QUEUES);

			one_post(&p[q], who, q);
		}
		for (int q = 0; q < QUEUES; q++) {
			if (below(2))
				finish_call(&p[q], who, q);
			run.open_call[who][q] = 0;
			hold(who, q);
			barcopy_posts_end(&p[q]);
		}
		gather(1 + rival, 0, true);
		if (m.me == RIVAL)
			last = is_last(1);
	} while (!gather(1 + rival, last, true)[0]);
}

static void warp_post(barcopy_posts_t *p, int q, unsigned int n, unsigned int flags)
{
	unsigned int lane = (unsigned int)m.me, data[12];
	uint64_t last;
	int ok;

	if (!lane)
		run.sent[THREADS][q] += n;
	last = gather(0, run.sent[THREADS][q], false)[0];
	fill(data, last - n + 1 + lane / 4, THREADS, q, flags, run.begun[q]);
	if (flags) {
		append(addr_of(q, OUT + lane), last, m.released[m.me]);
		maybe();
	}
	ok = barcopy_posts_post_warp(p, n, data + lane % 4 * 3, 48, flags);
	if (!lane)
		note_post(THREADS, q, ok, n);
	gather(0, 0, false);
}

static void warp(void)
{
	barcopy_posts_t p[QUEUES];
	unsigned int posts, r;
	bool last = false;
	int open;

	do {
		for (int q = 0; q < QUEUES; q++) {
			open = barcopy_posts_begin_warp(&p[q], m.q[q].view, GRID);
			if (!m.me)
				note_begin(THREADS, q, open);
		}
		posts = (unsigned int)gather(0, below(run.few ? 2 : 6 * m.lines), false)[0];
		for (unsigned int k = 0; k < posts; k++) {
			r = (unsigned int)gather(0, below(8), false)[0];
			warp_post(&p[r & 1], (int)r & 1, 1 + (r >> 2), r >> 1 & 1);
		}
		for (int q = 0; q < QUEUES; q++) {
			if (!m.me)
				hold(THREADS, q);
			barcopy_posts_end_warp(&p[q]);
		}
		gather(1, 0, true);
		if (!m.me)
			last = is_last(0);
		last = gather(1, last, true)[0];
	} while (!last);
}

static void stop(int q, uint32_t flags)
{
	run.stopped[q] = true;
	gdri_queue_stop(&m.q[q], flags);
}

static void stopper(void)
{
	unsigned int end =
		m.steps + below((unsigned int[]){ 60000, 4000, 300 }[run.few ? 2 : below(3)]);
	int first = (int)below(2);

	if (!run.with_stop)
		return;
	while (m.steps < end && !run.no_launch)
		yield();
	if (below(2))
		run.no_launch = true;
	stop(first, 0);
	for (unsigned int i = below(3000); i; i--)
		yield();
	stop(!first, 0);
	if (run.with_abort) {
		for (unsigned int i = below(20000); i; i--)
			yield();
		run.aborted = true;
		stop(0, BARCOPY_QUEUE_ABORT);
		stop(1, BARCOPY_QUEUE_ABORT);
	}
	run.no_launch = true;
}

static void check_message(int q, const unsigned int *got, size_t size, uint64_t call)
{
	unsigned int want[12], flags = got[2] >> 16;
	int who = got[2] & 255, agent = WARP + who - (who > THREADS);
	uint64_t n;

	if (who >= PRODUCERS || (int)(got[2] >> 8 & 255) != q || size != 48) {
		wrong("a message's bytes");
		return;
	}
	n = ++run.seen[who][q];
	if (got[3] != (unsigned int)n)
		wrong("a message is lost, doubled or out of its producer's order");
	fill(want, n, who, q, flags, got[4]);
	if (flags & A_CALL) {
		want[0] = got[0];
		want[1] = (want[1] & 0xffff0000) | (got[1] & 0xffff);
	}
	if (run.ended[q])
		wrong("a message after the end");
	if (memcmp(got, want, 48))
		wrong("a message's bytes");
	if (oldest(q, AT_BEGUN) < got[4])
		wrong("a message before its kernel has begun");
	if (!(flags & A_CALL) != !call)
		wrong("a call, or none");
	for (int i = 0; flags & ORDERED && i < (who == THREADS ? WARP : 1); i++)
		if (oldest(q, OUT + (unsigned int)(who == THREADS ? i : agent)) < n)
			wrong("what was stored before an ordered post is not seen");
	if (call) {
		run.names[q][run.owed[q]] = call;
		run.answers[q][run.owed[q]++] = answer_to(n, who, q);
		host_store(addr_of(q, IN + (unsigned int)who), n);
	}
}

/* Some of the open calls, in any order. */
static void answer_some(int q)
{
	uint64_t names[PRODUCERS], answers[PRODUCERS], one = 1;
	uint32_t n = 1 + below(run.owed[q]), k;

	for (uint32_t i = 0; i < n; i++) {
		k = below(run.owed[q]--);
		names[i] = run.names[q][k];
		answers[i] = run.answers[q][k];
		run.names[q][k] = run.names[q][run.owed[q]];
		run.answers[q][k] = run.answers[q][run.owed[q]];
	}
	host_push(); /* as the copy that came before */
	if (gdri_queue_answer(&m.q[q], names, answers, n))
		wrong("an answer is refused");
	if (!below(8) && gdri_queue_answer(&m.q[q], names, &one, 1) != -EINVAL)
		wrong("a call is answered twice");
}

/* No grid is to begin any more, and all that did have ended. */
static bool grids_ended(void)
{
	for (int q = 0; q < QUEUES; q++) {
		int begun[] = { run.grid[0][q][0] + run.grid[0][q][1],
				run.grid[1][q][0] + run.grid[1][q][1] + run.grid[2][q][0] +
					run.grid[2][q][1] };

		for (int i = 0; i < 2; i++)
			if (run.rounds[i] + (begun[i] == (i ? RIVALS : GRID)) < run.max_rounds[i])
				return false;
		if (host_load(addr_of(q, AT_BEGUN)) < run.begun[q] ||
		    gdri_queue_has_kernel(&m.q[q]))
			return false;
	}
	return true;
}

static void check_fair(int served, const bool *ready)
{
	for (int q = 0; q < QUEUES; q++) {
		run.late[q] = q != served && ready[q] ? run.late[q] + 1 : 0;
		if (run.late[q] >= QUEUES)
			wrong("a queue is not served");
	}
}

static bool is_ready(struct gdri_queue *q)
{
	uint64_t words[BARCOPY_QUEUE_LINE / 8];
	unsigned int head;

	return unpack(q, q->received, &head, words) && head != BARCOPY_QUEUE_HEAD_CALL;
}

static void receive_all(void)
{
	const barcopy_queue_t queues[] = { (barcopy_queue_t)(void *)&m.q[0],
					   (barcopy_queue_t)(void *)&m.q[1] };
	unsigned int got[12], idle = 0;
	uint32_t which = 0;
	uint64_t call;
	size_t size;
	int rc;

	for (;;) {
		bool ready[] = { is_ready(&m.q[0]), is_ready(&m.q[1]) }, owed = false;
		uint32_t from = below(3), one = 0; /* one of them, or any */

		rc = gdri_queue_receive_any(queues + from % QUEUES, from < QUEUES ? 1 : QUEUES,
					    from < QUEUES ? &one : &which, got, sizeof(got), &size,
					    &call, grids_ended() ? BARCOPY_QUEUE_UNTIL_END : 0, 0);
		if (!rc) {
			idle = 0;
			if (from == QUEUES)
				check_fair((int)which, ready);
			check_message((int)(from < QUEUES ? from : which), got, size, call);
		} else if (rc == -ETIMEDOUT || rc == -EPIPE) {
			idle++;
			for (uint32_t q = 0; q < QUEUES; q++)
				run.ended[q] |= rc == -EPIPE && (from == QUEUES || from == q);
			yield();
		} else {
			wrong("a receive");
		}
		for (int q = 0; q < QUEUES; q++) {
			/* what an abort will leave unanswered */
			if (run.owed[q] && !(run.with_abort && run.stopped[q]) &&
			    (!below(10) || idle > 20 || run.owed[q] == PRODUCERS))
				answer_some(q);
			owed |= run.owed[q] && !(run.with_abort && run.stopped[q]);
		}
		if ((rc == -EPIPE && from == QUEUES && !owed) || (m.killed && idle > 400))
			return;
		if (!below(60))
			for (unsigned int i = below(400); i; i--)
				yield();
		if (run.with_drop && !below(150)) {
			run.aborted = true;
			stop(0, BARCOPY_QUEUE_ABORT);
			stop(1, BARCOPY_QUEUE_ABORT);
			return;
		}
	}
}

static void receiver(void)
{
	receive_all();
	for (int q = 0; q < QUEUES && !m.killed; q++) {
		/* calls that nobody answers are aborted, as gdri_queue_destroy() does at its deadline */
		if (run.with_abort && run.owed[q]) {
			run.aborted = true;
			stop(q, BARCOPY_QUEUE_ABORT);
		}
		run.stopped[q] = true;
		if (run.no_launch && grids_ended() && !withdraw(&m.q[q]))
			wrong("the queue is not free after its last grid");
		while (!m.killed && (gdri_queue_has_kernel(&m.q[q]) || !withdraw(&m.q[q])))
			yield();
		m.destroyed[q] = !m.killed;
		for (int i = 0; !m.killed && !run.with_drop && i < PRODUCERS; i++)
			if (run.seen[i][q] != run.accepted[i][q])
				wrong("a message was accepted and not received");
		for (unsigned int i = 0; !m.killed && i < REGION; i++)
			if (((i > AT_GENERATION + 1 && i < REQUESTS && i != AT_OWNER) ||
			     (i >= STATE && i < OUT)) &&
			    m.now[m.me].at[(unsigned int)q * REGION + i] + 1 <
				    m.word[(unsigned int)q * REGION + i].count)
				wrong("the queue ends while a store is under way");
	}
	run.received_all = true;
}

static void agent(void)
{
	if (m.me < WARP)
		warp();
	else if (m.me < RIVAL || (m.me < DEVICE && run.max_rounds[1]))
		thread();
	else if (m.me == SENDER)
		stopper();
	else if (m.me == RECEIVER)
		receiver();
	leave_run();
}

static const char *explore(uint64_t seed, enum fault fault, unsigned int fence)
{
	memset(&run, 0, sizeof(run));
	start_over(seed, fault, fence, seed % 2 ? LINES : 2, BARCOPY_QUEUE_OF_POSTS);
	m.lap_mask = seed / 2 % 2 ? 0x3 : 0xff;
	m.stale = (unsigned int[]){ 0, 30, 70 }[seed / 4 % 3];
	m.kill_at = below(6) ? 0 : 1 + below(3000);
	run.with_stop = below(4) != 0;
	run.with_abort = run.with_stop && !below(4);
	run.with_drop = !m.kill_at && !below(4);
	run.max_rounds[0] = 1 + (int)below(6);
	run.max_rounds[1] = seed / 12 % 2 ? 1 + (int)below(6) : 0;
	run.apart = seed / 24 % 2;
	m.number[1] = 1;
	m.number[2] = 1 + run.apart;
	run.few = below(2);
	run_agents();
	if (!m.wrong && !run.received_all)
		m.wrong = "the receiver has not ended";
	return m.wrong;
}

static void no_faults(void)
{
	expect_right(unit_quick() ? 80 : 300);
}

/* Some take hundreds of runs. With a sanitizer half of them have to be seen. */
static void faults(void)
{
	uint64_t seeds = unit_quick() ? 12 : 3000;

	may_be_unseen = unit_quick() ? 12 : 0;
	expect_right(20);
	for (unsigned int i = 0; i < fences; i++) {
		expect_seen(NO_FENCE, i, seeds);
		if (fence_at[i].sc)
			expect_seen(WEAK_FENCE, i, seeds);
	}
	for (int fault = MORE_ROOM; fault < POSTS_FAULTS; fault++)
		expect_seen((enum fault)fault, 0, seeds);
}

static const struct unit_test tests[] = {
	{ "posts and calls", no_faults, NULL },
	{ "faults", faults, NULL },
};

UNIT_MAIN("queue posts", tests)
