/* SPDX-License-Identifier: MIT */
/*
 * Ports over a relaxed memory. Five threads, each a kernel that is launched again and again, post to
 * one port, wait until posts are taken, and make calls, some of which they drop. One thread of the CPU
 * receives, another one retires in any order, answers in batches, and stops. tests/mutants/mutants.txt
 * has faults of the text that this must see.
 */
enum {
	WARP = 2, /* no two threads of a port are one warp's */
	THREADS = 3,
	PRODUCERS = WARP + THREADS,
	QUEUES = 1,
	LINES = 8, /* or 2, 4 */
	IN_WORDS = 2 * PRODUCERS /* of the CPU; then bulk data of each producer, which the CPU reads */
};

#include "queue_memory.h"

enum { BULK = IN + PRODUCERS };

enum { HELPER = SENDER, AT_STATE = CONTROL + BARCOPY_PORT_STATE_AT / 8, OTHER = 4 };

static struct gdri_port port;

/* ---- the programs -------------------------------------------------------- */

struct item {
	barcopy_port_message_t msg;
	int who;
	uint64_t n;
	bool answered, retired, handled, alone;
	unsigned int retirements; /* that have succeeded */
};

static struct {
	bool with_stop, with_abort, lose, hint; /* lose: receive ends with an abort */
	bool deaf; /* no call is answered any more: slots are short when the stop and the abort come */
	bool patient; /* no call is answered while a thread looks for a slot and some are free */
	bool dies; /* the context, with the last kernel: nobody calls end */
	bool limits; /* each post has a limit */
	bool stopping, stopped, aborted, received_all, in_stop;
	unsigned int left; /* kernels that have ended for good */
	uint64_t due; /* the last post that is not unawaited */
	uint64_t waits_for[PRODUCERS]; /* without a limit, for a post that is not unawaited; 0: it does not wait */
	uint64_t sent[PRODUCERS], accepted[PRODUCERS], seen[PRODUCERS], in[PRODUCERS];
	uint64_t open_call[PRODUCERS];
	/* The message whose bulk data are stored; 0: the word is free. Its post; 0: it is a call. */
	uint64_t bulk[PRODUCERS], bulk_post[PRODUCERS];
	bool refused[PRODUCERS];
	uint8_t names[LINES]; /* of each slot: its last call's name, and 1 */
	unsigned int late[PRODUCERS];
	struct item items[8192];
	uint64_t count, handled, answers, waits, dropped, skipped, late_waits, calls, asked, reused, full, many;
	uint64_t asking, opened, answered; /* threads that look for a slot; calls */
	uint64_t received_at; /* the time when posts were received last */
	uint64_t most, began, now; /* this call of receive: its limit, when it began, the time */
	bool rested; /* in this call of receive */
	uint64_t in_time; /* 1 + the next line, if it was there when the clock was read last */
} run;

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ b * UINT64_C(0xc2b2ae3d27d4eb4f) ^
		     c * UINT64_C(0x165667b19e3779f9);

	return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

static uint64_t answer_to(uint64_t n, int who)
{
	return (n % 8 ? mix(n, (uint64_t)who + 77, 5) : UINT64_MAX) >> 8;
}

enum { ORDERED = 1, A_CALL = 2, HAS_BULK = 4, MANY = 8, UNAWAITED = 16 }; /* and, of many, their size * 256 */

/*
 * An ordered wait has ended: for post `post`, or for the answer to call n. The CPU has read the bulk
 * data that came with it, so the producer stores others.
 */
static void reuse_bulk(int who, uint64_t post, uint64_t n)
{
	uint64_t is = run.bulk[who];

	if (!is || (run.bulk_post[who] ? run.bulk_post[who] > post : is != n))
		return;
	append(addr_of(0, BULK + (unsigned int)who), 2 * is + 1, m.released[m.me]);
	run.bulk[who] = 0;
	run.reused++;
	maybe();
}

static bool has_bulk(const struct item *it)
{
	return (unsigned int)it->msg.data[1] >> 16 & HAS_BULK;
}

/* The CPU's loads may be performed later, where its processor does that. */
static void read_bulk(const struct item *it)
{
	know_gates(false); /* the item is from the receiver */
	if (has_bulk(it))
		host_load_bulk(addr_of(0, BULK + (unsigned int)it->who), 2 * it->n);
}

static unsigned int size_of(uint64_t n, int who, unsigned int flags)
{
	return flags & A_CALL ? 48 : 16 + (unsigned int)(n + (uint64_t)who) % 33;
}

/* Message n of a producer. The first word of a call is its name. */
static void fill(unsigned int *data, uint64_t n, int who, unsigned int flags)
{
	for (unsigned int i = 0; i < 12; i++)
		data[i] = (unsigned int)mix(n, (uint64_t)who, i);
	data[2] = (unsigned int)who | flags << 16;
	data[3] = (unsigned int)n;
}

/* `count` messages, of which `post` is the last one's number, or 0. */
static void note_post(const barcopy_poster_t *p, int who, uint64_t post, unsigned int count, bool late,
		      unsigned long long most)
{
	if (post && run.refused[who])
		wrong("accepted after a refusal");
	if (!post && !barcopy_port_stopped(p) && most == BARCOPY_PORT_NO_LIMIT)
		wrong("refused without a stop");
	if (barcopy_port_stopped(p) && !run.stopping)
		wrong("a stop that never was");
	if (post && barcopy_port_begun(p) < post)
		wrong("a post that nobody has begun");
	if (post && late && !m.stale && ++run.late[who] > 1)
		wrong("a second post behind the stop");
	if (post) {
		run.accepted[who] += count;
	} else {
		run.refused[who] = barcopy_port_stopped(p); /* else there was no space in time */
		run.full += !run.refused[who];
		run.sent[who] -= count;
	}
}

/* The CPU has retired this post, and all before it. */
static void check_taken(uint64_t post, int who, uint64_t n, unsigned int flags)
{
	if (!run.handled || run.items[run.handled - 1].msg.post < post)
		wrong("taken before the CPU has retired it");
	if (flags && oldest(0, IN + (unsigned int)who) < n)
		wrong("what the CPU copied before is not seen");
	if (flags)
		reuse_bulk(who, post, 0);
	run.waits++;
}

static unsigned long long limit(void)
{
	return below(4) ? BARCOPY_PORT_NO_LIMIT : 20000000; /* 200 steps */
}

/* Of a post. */
static unsigned long long post_limit(void)
{
	return !run.limits && below(2) ? BARCOPY_PORT_NO_LIMIT : below(5) * UINT64_C(20000000);
}

/* A wait with that limit has ended in vain. */
static void check_late(uint64_t start, unsigned long long most)
{
	if (run.aborted || run.stopping)
		return;
	if ((uint64_t)m.steps * STEP_NS - start < most)
		wrong("a wait ends before its limit");
	run.late_waits++;
}

static void check_reply(uint64_t reply, int who, uint64_t n, unsigned int flags)
{
	run.answers++;
	if (reply != answer_to(n, who))
		wrong("an answer");
	if (flags && oldest(0, IN + (unsigned int)who) < n)
		wrong("what was copied before an answer is not seen");
	if (flags)
		reuse_bulk(who, 0, n);
}

/* Waits for the open call, gives it up or leaves it open. */
static void finish_call(barcopy_poster_t *p, int who, bool must)
{
	unsigned int flags = below(2) ? BARCOPY_WARP_ORDERED : 0;
	unsigned long long most = must ? BARCOPY_PORT_NO_LIMIT : limit(), reply;
	uint64_t n = run.open_call[who], start = (uint64_t)m.steps * STEP_NS;

	if (!p->call)
		return;
	if (!below(4)) {
		barcopy_port_drop(p);
		run.dropped++;
	} else if (barcopy_port_reply(p, &reply, most, flags)) {
		check_reply(reply, who, n, flags);
	} else {
		check_late(start, most);
	}
}

static int wait_for(barcopy_poster_t *p, int who, uint64_t post, unsigned long long most, unsigned int flags,
		    unsigned int unawaited)
{
	int taken;

	run.waits_for[who] = most == BARCOPY_PORT_NO_LIMIT && !unawaited ? post : 0;
	taken = barcopy_port_wait(p, post, most, flags);
	run.waits_for[who] = 0;
	return taken;
}

/* Never less than before: a refused post is repeated, but an abort in its middle leaves some of its messages. */
static void store_out(uint64_t n)
{
	uintptr_t at = addr_of(0, OUT + (unsigned int)m.me);

	append(at, n > newest(at) ? n : newest(at), m.released[m.me]);
}

/* Up to three messages, in one array and with numbers in a row. */
static void post_many(barcopy_poster_t *p, int who, unsigned int flags)
{
	unsigned int count = 1 + below(m.lines < 3 ? m.lines : 3), data[36], size, k;
	unsigned int unawaited = below(2) ? UNAWAITED : 0;
	uint64_t n = run.sent[who] + 1, post, start = (uint64_t)m.steps * STEP_NS;
	unsigned long long most = post_limit();
	bool late = run.stopped;

	size = size_of(n, who, MANY);
	for (k = 0; k < count; k++)
		fill(data + k * ((size + 3) / 4), n + k, who, flags | unawaited | MANY | (size << 8));
	run.sent[who] += count;
	if (flags) {
		store_out(n + count - 1);
		maybe();
	}
	post = barcopy_port_post_many(p, data, size, count, most,
				      flags | (unawaited ? BARCOPY_PORT_UNAWAITED : 0));
	note_post(p, who, post, count, late, most);
	run.many += post && count > 1;
	if (!post)
		check_late(start, most);
	else if (!below(4) && wait_for(p, who, post, BARCOPY_PORT_NO_LIMIT, flags, unawaited))
		check_taken(post, who, n + count - 1, flags);
}

static void one_post(barcopy_poster_t *p, int who)
{
	unsigned int flags = below(2), unawaited, data[12], how = below(6), first;
	bool call = how < 2, late = run.stopped, bulk;
	unsigned long long most, reply;
	uint64_t n, post, start;

	if (how == 5) {
		post_many(p, who, flags);
		return;
	}
	if (call)
		finish_call(p, who, true);
	if (call && p->call)
		return; /* aborted */
	run.asked += call;
	n = ++run.sent[who];
	unawaited = below(2) ? BARCOPY_PORT_UNAWAITED : 0;
	fill(data, n, who, flags | (call ? A_CALL : 0u) | (unawaited ? UNAWAITED : 0u));
	if (flags) {
		store_out(n);
		maybe();
	}
	bulk = flags && !run.bulk[who] && !below(call ? 4 : 2);
	if (bulk) {
		append(addr_of(0, BULK + (unsigned int)who), 2 * n, m.released[m.me]);
		data[2] |= HAS_BULK << 16;
		maybe();
	}
	start = (uint64_t)m.steps * STEP_NS;
	late = run.stopped;
	if (call && !run.patient && !below(4)) { /* as a whole */
		first = data[0];
		run.bulk[who] = bulk ? n : run.bulk[who];
		run.bulk_post[who] = bulk ? 0 : run.bulk_post[who];
		most = run.limits ? 20000000 : limit();
		if (barcopy_port_call(p, data, 48, &reply, most, flags | unawaited)) {
			check_reply(reply, who, n, flags);
			run.calls++;
		} else {
			check_late(start, most);
		}
		first = data[0] && data[0] != first; /* its name: it was posted */
		note_post(p, who, first, 1, late, most);
		if (bulk && !first)
			run.bulk[who] = 0;
		if (p->call)
			wrong("a call stays open");
		return;
	}
	most = post_limit();
	run.asking += call;
	post = call ? barcopy_port_ask(p, data, 48, most, flags | unawaited)
		    : barcopy_port_post(p, data, size_of(n, who, flags), most, flags | unawaited);
	run.asking -= call;
	run.opened += call && post;
	note_post(p, who, post, 1, late, most);
	if (bulk && post) {
		run.bulk[who] = n;
		run.bulk_post[who] = call ? 0 : post;
	}
	if (call && !post && p->call)
		wrong("a call that was not posted is open");
	if (!post) {
		check_late(start, most);
		return;
	}
	start = (uint64_t)m.steps * STEP_NS;
	if (call) {
		run.open_call[who] = n;
		if (below(3))
			finish_call(p, who, false);
	} else if (how == 2) {
		most = limit();
		flags = below(2);
		if (wait_for(p, who, post, most, flags, unawaited))
			check_taken(post, who, n, flags);
		else
			check_late(start, most);
	} else if (how == 3) {
		bool taken;

		flags = below(2);
		while (!(taken = barcopy_port_taken(p, post, flags)) && !barcopy_port_aborted(p))
			yield();
		if (taken)
			check_taken(post, who, n, flags);
	}
	if (!below(40))
		m.until[m.me] = m.steps + below(2000);
}

static struct view stored; /* by kernels that have ended */

static void forget(void)
{
	join_views(&stored, &m.now[m.me]);
	memset(&m.now[m.me], 0, sizeof(m.now[0]));
	memset(&m.heard[m.me], 0, sizeof(m.heard[0]));
	drop(m.released[m.me]);
	m.released[m.me] = NULL;
}

static void kernels(void)
{
	barcopy_port_view_t view = port.view;
	unsigned int none[12] = { 0 };
	unsigned long long reply;
	barcopy_poster_t p;
	int who = m.me;

	if (below(2)) {
		view.generation -= UINT64_C(1) << 32;
	} else { /* of a library with another layout */
		view.generation -= UINT64_C(1) << 56;
		view.control += OTHER * 8;
	}
	if (barcopy_port_open(&p, view) != (view.generation >> 56 == BARCOPY_QUEUE_VERSION) ||
	    !barcopy_port_stopped(&p) ||
	    barcopy_port_post(&p, none, 48, BARCOPY_PORT_NO_LIMIT, 0) ||
	    barcopy_port_post(&p, none, 48, 0, 0) ||
	    barcopy_port_call(&p, none, 48, &reply, BARCOPY_PORT_NO_LIMIT, 0) ||
	    barcopy_port_wait(&p, m.base + (UINT64_C(1) << 40), BARCOPY_PORT_NO_LIMIT, 0))
		wrong("a kernel of another port is let in");
	for (unsigned int r = 1 + below(5); r; r--) {
		forget();
		run.refused[who] = false;
		run.late[who] = 0;
		memset(&p, 0xff, sizeof(p)); /* registers, which begin as anything */
		if (!barcopy_port_open(&p, port.view))
			wrong("a kernel was refused");
		if (barcopy_port_post(&p, none, 0, 0, 0) || barcopy_port_post(&p, none, 49, 0, 0) ||
		    barcopy_port_ask(&p, none, 3, 0, 0) || barcopy_port_ask(&p, none, 49, 0, 0) ||
		    barcopy_port_post_many(&p, none, 48, 0, 0, 0) ||
		    barcopy_port_post_many(&p, none, 48, m.lines + 1, 0, 0))
			wrong("a message of a wrong size is posted");
		for (unsigned int k = below(5 * m.lines); k; k--)
			one_post(&p, who);
		finish_call(&p, who, true);
		if (p.call && !run.aborted)
			wrong("no answer at the end");
	}
	run.left++;
}

static bool over(void)
{
	return run.left == DEVICE;
}

/* The kernels have ended: all that they stored is seen. */
static void end_stream(void)
{
	join_views(&m.now[m.me], &stored);
	for (int i = 0; i < DEVICE; i++)
		join_views(&m.now[m.me], &m.now[i]);
	if (!run.dies)
		gdri_port_stop(&port.ring, GDRI_RING_END);
}

static bool context_works(void)
{
	for (unsigned int i = run.dies ? below(3000) : 0; i; i--)
		yield();
	if (!run.dies || !over())
		return true;
	end_stream();
	return false;
}

static uint64_t host_time(void)
{
	uint64_t now = explored_time(), i = port.received, differs = 0;
	uintptr_t line = addr_of(0, REPLIES) + (i & (port.ring.lines - 1)) * GDRI_LINE;

	for (unsigned int k = 0; k < 8; k++)
		differs |= newest(line + 8 * k) >> BARCOPY_QUEUE_DATA_BITS ^
			   ((i >> port.ring.shift) + 1);
	run.in_time = differs & lap_mask ? 0 : i + 1;
	run.began = run.began ? run.began : now;
	run.now = now;
	return now;
}

/* Yields, or sleeps for that time. */
static void host_rest(const struct timespec *t)
{
	uint64_t left = run.most - (run.now - run.began);
	uint64_t ns = t ? (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec : 1;

	if (!ns || (t && (ns > port.sleep_ns || ns > GDRI_ASK_NS || ns > left)))
		wrong("a receiver sleeps not at all, or too long");
	if ((uint64_t)m.steps * STEP_NS - run.received_at < port.spin_ns)
		wrong("a receiver that is to spin yields or sleeps");
	if (run.rested && m.polls != 1)
		wrong("a receiver that is to rest polls on");
	run.rested = true;
	m.polls = 0;
	yield();
}

static void note_handled(uint64_t i)
{
	run.items[i].handled = true;
	while (run.handled < run.count && run.items[run.handled].handled)
		run.handled++;
}

/* As a copy into a mapping, which ends with a fence; or as stores, which arm64's fence orders too. */
static void copy_in(struct item *it)
{
	bool fenced = !m.arm || below(2);

	if (run.in[it->who] < it->n)
		run.in[it->who] = it->n;
	if (fenced)
		drain(m.me, true);
	append(addr_of(0, IN + (unsigned int)it->who), run.in[it->who], m.released[m.me]);
	if (fenced)
		host_after_write(GDR_MAPPING_TYPE_WC);
	maybe();
}

/* Up to three calls from item i on; after an abort some are forgotten. */
static void answer(uint64_t i)
{
	uint32_t calls[4], n = 0;
	uint64_t answers[4];

	if (run.patient && run.asking && run.opened - run.answered + PRODUCERS <= m.lines)
		return;
	for (uint64_t k = i; k < run.count && k < i + 3; k++) {
		struct item *it = &run.items[k];

		if (!it->msg.call || it->answered || (run.with_abort && run.stopping && below(2)) ||
		    run.deaf)
			continue;
		it->answered = true;
		run.answered++;
		copy_in(it);
		read_bulk(it);
		calls[n] = it->msg.call;
		answers[n++] = answer_to(it->n, it->who);
	}
	if (n && !below(8)) { /* one is wrong: none is answered */
		calls[n] = below(2) ? calls[0] : m.lines << 8 | 1;
		answers[n] = 0;
		if (!gdri_port_answer(&port, calls, answers, n + 1))
			wrong("a wrong answer is taken");
	}
	if (gdri_port_answer(&port, calls, answers, n))
		wrong("an answer is refused");
}

static void check_message(const barcopy_port_message_t *got)
{
	unsigned int want[12], flags = (unsigned int)got->data[1] >> 16;
	uint64_t last = run.count ? run.items[run.count - 1].msg.post : m.base, n;
	int who = (int)(got->data[1] & 255);

	if (who >= PRODUCERS || got->post <= last) {
		wrong("a message's number or sender");
		return;
	}
	run.skipped += got->post - last - 1;
	if (run.skipped > run.asked)
		wrong("a call leaves out more than one line");
	n = ++run.seen[who];
	fill(want, n, who, flags);
	if (got->size != (flags & MANY ? flags >> 8 : size_of(n, who, flags)))
		wrong("a message's size");
	for (unsigned int i = (got->size + 3) / 4; i < 12; i++)
		want[i] = 0; /* what is behind a message is not read */
	if (flags & A_CALL)
		want[0] = (unsigned int)got->data[0];
	if ((unsigned int)(got->data[1] >> 32) != (unsigned int)n)
		wrong("lost, doubled or out of its producer's order");
	if (memcmp(want, got->data, 48))
		wrong("a message's bytes");
	if (!(flags & A_CALL) != !got->call)
		wrong("a call, or none");
	if (got->call && !run.aborted) {
		/* Of 128 names, after which a slot's old answer would be a new call's. */
		if ((uint8_t)got->call != (uint8_t)(run.names[got->call >> 8] + 1))
			wrong("a slot leaves out a name");
		run.names[got->call >> 8] = (uint8_t)(got->call + 1);
	}
	if (flags & ORDERED && oldest(0, OUT + (unsigned int)who) < n)
		wrong("what was stored before an ordered post is not seen");
	ck_assert_uint_lt(run.count, COUNT(run.items));
	if (!(flags & UNAWAITED))
		run.due = got->post;
	run.items[run.count] = (struct item){ .msg = *got, .who = who, .n = n };
	know_gates(true);
	if (!port.manual && !got->call)
		read_bulk(&run.items[run.count]);
	run.count++;
}

/* Retires up to three, from item i on; their numbers may have gaps. */
static void retire_some(uint64_t i)
{
	uint64_t first = run.items[i].msg.post, k = i;

	if (run.items[i].retired)
		return;
	/* The other thread may do so at the same time. */
	if (run.items[i].alone || (!has_bulk(&run.items[i]) && !below(4))) {
		run.items[i].alone = true;
		copy_in(&run.items[i]);
		note_handled(i);
		if (!gdri_port_retire(&port, first, 1)) {
			run.items[i].retired = true;
			if (run.items[i].retirements++)
				wrong("retired twice");
		}
		return;
	}
	do {
		run.items[k].retired = true;
		copy_in(&run.items[k++]);
	} while (k < run.count && k < i + 3 && !run.items[k].retired && !run.items[k].alone &&
		 run.items[k].msg.post == first + (k - i));
	for (uint64_t x = i; x < k; x++) {
		note_handled(x);
		if (!run.items[x].msg.call)
			read_bulk(&run.items[x]);
	}
	if (gdri_port_retire(&port, first, (uint32_t)(k - i)))
		wrong("a retirement is refused");
	if (!below(8) && !gdri_port_retire(&port, first, 1))
		wrong("retired twice");
	if (!below(8) && !gdri_port_retire(&port, run.items[run.count - 1].msg.post + 9 * LINES, 1))
		wrong("a post that never came is retired");
}

/* Kernels see that all lines before this one are retired, or will without another call of the CPU. */
static bool is_shown(uint64_t line)
{
	uint64_t seen = 0;

	for (unsigned int w = AT_TAKEN; w < AFTER_TAKEN; w += 8)
		if (newest(addr_of(0, w)) > seen)
			seen = newest(addr_of(0, w));
	for (unsigned int i = 0; i < m.buffers[RECEIVER]; i++) {
		unsigned int w = word_of(m.buffer[RECEIVER][i].addr);

		if (w >= AT_TAKEN && w < AFTER_TAKEN && m.buffer[RECEIVER][i].posted &&
		    m.buffer[RECEIVER][i].value > seen)
			seen = m.buffer[RECEIVER][i].value;
	}
	return seen >= line;
}

/* The CPU works on, with no other call, until no kernel waits for this post or one before it. */
static void work_until_taken(uint64_t post)
{
	bool waits = true;

	for (unsigned int step = m.steps; waits; yield()) {
		waits = false;
		for (int i = 0; i < PRODUCERS; i++)
			waits |= run.waits_for[i] && run.waits_for[i] <= post;
		if (waits && m.steps - step > 100000)
			wrong("a kernel waits on for a post that is retired");
	}
}

static void receiver(void)
{
	barcopy_port_message_t msg[5];
	uint64_t first = 0, most, before;
	bool ended = false;
	uint32_t n;
	int rc;

	for (;;) {
		if (run.lose && run.aborted)
			break;
		if (over() && !ended && !run.hint) {
			ended = true;
			end_stream();
		}
		if (run.with_abort && run.stopping && !run.aborted && m.steps % 2) {
			run.in_stop = true; /* during the abort, which it must not undo */
			gdri_port_stop(&port.ring, 0);
			run.in_stop = false;
		}
		for (; !port.manual && first < run.count; first++)
			note_handled(first);
		/* Without a limit, where the other thread ends it. */
		most = below(2) ? 0 : run.hint ? UINT64_MAX : 30000000;
		run.rested = false;
		run.most = most;
		run.began = 0;
		before = run.due;
		rc = gdri_port_receive(&port, msg, 1 + below(5), &n, most);
		if (!port.manual && !is_shown(before))
			wrong("a receive keeps what it has retired");
		if (!port.manual && !rc && !below(4))
			work_until_taken(before);
		if (rc == -EPIPE) {
			if (!over())
				wrong("the end before the end");
			break;
		}
		if (rc && rc != -ETIMEDOUT)
			wrong("receive");
		/* Where loads give the newest value. */
		if (rc && most && !m.stale && run.in_time == port.received + 1)
			wrong("what came in time is left");
		if (rc) {
			yield();
			continue;
		}
		run.received_at = (uint64_t)m.steps * STEP_NS;
		for (uint32_t i = 0; i < n; i++) {
			check_message(msg + i);
			if (!port.manual)
				copy_in(&run.items[run.count - 1]);
			if (below(3) == 0)
				answer(run.count - 1);
			if (port.manual && below(3) == 0)
				retire_some(run.count - 1);
		}
		if (!below(60))
			for (unsigned int i = below(400); i; i--)
				yield();
	}
	for (int i = 0; i < PRODUCERS && !run.aborted; i++)
		if (run.seen[i] != run.accepted[i])
			wrong("accepted and not received");
	run.received_all = true;
	while (!over() || !m.done[HELPER])
		yield();
	if (!run.aborted && port.manual && port.retired != port.received)
		wrong("not all are retired");
	if (newest(addr_of(0, AT_RESERVED)) != newest(addr_of(0, AT_TICKET)))
		wrong("lines stay reserved");
	m.destroyed[0] = true;
}

/* Answers and retires, in any order, and stops. */
static void helper(void)
{
	unsigned int stop_at = m.steps + below((unsigned int[]){ 60000, 4000, 300 }[below(3)]);
	unsigned int abort_at = stop_at + below(20000);
	bool ended = !run.hint, owed = true;

	while (!over() || !run.received_all || owed || !ended) {
		run.deaf = run.lose && m.steps + 2000 >= stop_at;
		if (run.with_stop && !run.stopping && m.steps >= stop_at) {
			run.stopping = true;
			gdri_port_stop(&port.ring, 0);
			run.stopped = true;
		}
		/* also while a stop of the other thread is on its way */
		if (run.with_abort && !run.aborted && run.stopping &&
		    (m.steps >= abort_at || (m.buffers[RECEIVER] && !run.in_stop && !below(4)))) {
			run.aborted = true;
			gdri_port_stop(&port.ring, BARCOPY_PORT_ABORT);
		}
		if (run.aborted && !run.in_stop && !m.buffers[HELPER] && !m.buffers[RECEIVER] &&
		    !(newest(addr_of(0, AT_STATE)) & BARCOPY_PORT_ABORTED_BIT))
			wrong("an abort is undone");
		if (over() && !ended) {
			ended = true;
			end_stream();
			if (run.dies)
				know_gates(true);
		}
		know_gates(false);
		if (run.count && below(3)) {
			uint64_t low = run.handled < 20 ? 0 : run.handled - 20;
			uint64_t i = low + below((unsigned int)(run.count - low));

			if (!below(2))
				i = run.handled < run.count ? run.handled : run.count - 1;
			answer(i);
			if (port.manual)
				retire_some(i);
		}
		for (uint64_t i = 0; i < run.count; i++)
			if (run.items[i].msg.call && !run.items[i].answered && !below(20))
				answer(i);
		yield();
		owed = false; /* nothing runs between this and the condition */
		for (uint64_t i = 0; i < run.count; i++)
			owed |= port.manual && !run.items[i].retired && !run.aborted;
	}
}

static void agent(void)
{
	if (m.me < DEVICE)
		kernels();
	else if (m.me == RECEIVER)
		receiver();
	else
		helper();
	leave_run();
}

static const char *explore(uint64_t seed, enum fault fault, unsigned int fence)
{
	static uint8_t done[LINES];
	static uint32_t open[LINES + 1];

	memset(&run, 0, sizeof(run));
	memset(&stored, 0, sizeof(stored));
	memset(done, 0, sizeof(done));
	memset(open, 0, sizeof(open));
	start_over(seed, fault, fence, (uint32_t[]){ 2, 4, LINES }[seed % 3]);
	open[m.lines] = m.lines << 8 | 1; /* behind the last slot */
	m.plan.posts = seed % 2;
	m.arm = !m.plan.posts && below(4);
	lap_mask = seed / 3 % 2 ? 0x3 : 0xff;
	m.stale = (unsigned int[]){ 0, 30, 70 }[seed / 6 % 3];
	if (lap_mask == 3 && seed / 18 % 2)
		m.base = (UINT64_C(1) << (seed / 36 % 2 ? 32 : 48)) - m.lines * 4;
	memset(&port, 0, sizeof(port));
	port.ring = m.q[0].ring;
	port.open = open;
	port.done = done;
	port.quantum = m.lines / 4 ? m.lines / 4 : 1;
	port.manual = below(2);
	port.spin_ns = below(2) ? 0 : 2000000;
	port.yield_ns = 1000000;
	port.sleep_ns = below(2) ? 1000000 : 3 * GDRI_ASK_NS;
	port.received = port.retired = port.shown = port.spaced = port.due = m.base;
	port.view = (barcopy_port_view_t){
		.ring = addr_of(0, REPLIES),
		.control = addr_of(0, CONTROL),
		.generation = (uint64_t)BARCOPY_QUEUE_VERSION << 56 | UINT64_C(7) << 32,
		.lines = m.lines,
	};
	m.freed[0] = &port.retired;
	m.told[0] = m.told_taken = m.base;
	m.word[AT_STATE].value[0] = port.view.generation;
	m.word[AT_STATE + OTHER].value[0] = port.view.generation - (UINT64_C(1) << 56);
	m.word[CONTROL + BARCOPY_PORT_RETIRED_AT / 8].value[0] = m.base;
	for (unsigned int w = AT_TAKEN; w < AFTER_TAKEN; w += 8)
		m.word[w].value[0] = m.base;
	m.word[AT_TICKET].value[0] = m.word[AT_RESERVED].value[0] = m.base;
	run.with_stop = below(3) == 0;
	run.with_abort = run.with_stop && below(2);
	run.lose = run.with_abort && below(2);
	run.hint = below(2);
	run.dies = below(4) == 0;
	run.limits = below(2);
	m.exact = run.limits;
	run.patient = seed % 24 == 5; /* of those with LINES lines */
	run_agents();
	if (!m.wrong && !(m.done[RECEIVER] && m.done[HELPER]))
		m.wrong = "the CPU has not ended";
	return m.wrong;
}

/* What a run is to show happens: calls that were dropped, and numbers that are no posts. */
static void no_faults(void)
{
	uint64_t dropped = 0, skipped = 0, answers = 0, waits = 0, late = 0, calls = 0, reused = 0, full = 0;
	uint64_t many = 0, first = number("QUEUE_SEED", 1);
	uint64_t end = first + number("QUEUE_COUNT", unit_quick() ? 150 : 300);

	for (uint64_t seed = first; seed < end; seed++) {
		expect_right(seed);
		dropped += run.dropped;
		skipped += run.skipped;
		answers += run.answers;
		waits += run.waits;
		late += run.late_waits;
		calls += run.calls;
		reused += run.reused;
		full += run.full;
		many += run.many;
	}
	ck_assert_uint_gt(dropped, 50);
	ck_assert_uint_gt(skipped, 50);
	ck_assert_uint_gt(answers, 50);
	ck_assert_uint_gt(waits, 50);
	ck_assert_uint_gt(late, 50);
	ck_assert_uint_gt(calls, 50);
	ck_assert_uint_gt(reused, 50);
	ck_assert_uint_gt(full, 50);
	ck_assert_uint_gt(many, 50);
	/* A wait reads the clock, and the port's own words, at one of 16 polls; for space at each. */
	ck_assert_uint_lt(clock_reads, line_loads / 20);
}

static void faults(void)
{
	static const enum fault model[] = { MORE_ROOM,  NO_GATE,	  NO_PUSH,
					    NO_ACQUIRE, TORN_WORDS, STORES_ONLY };
	uint64_t seeds = unit_quick() ? 40 : 2000;

	may_be_unseen = unit_quick() ? 4 : 0;
	for (uint64_t seed = 1; seed <= 20; seed++)
		expect_right(seed);
	for (unsigned int i = 0; i < fences; i++)
		expect_seen(NO_FENCE, i, seeds);
	for (unsigned int i = 0; i < COUNT(model); i++)
		expect_seen(model[i], 0, seeds);
}

static const struct unit_test tests[] = {
	{ "ports", no_faults, NULL },
	{ "faults", faults, NULL },
};

UNIT_MAIN("queue ports", tests)
