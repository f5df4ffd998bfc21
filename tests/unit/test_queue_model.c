/* SPDX-License-Identifier: MIT */
/*
 * The protocol of queues as a model, over every interleaving: five messages, three laps, through a
 * ring of two lines of two words, with stores that arrive in any order, loads of one word at a
 * time, and bulk data beside. Each mutant leaves out one thing that docs/queue.md calls necessary,
 * and the search must find where it fails.
 *
 * A state is the sender's, the receiver's and the memory's, with the stores that have not arrived.
 * Stores to one location arrive in their order (coherence); else only a fence orders them.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/expect.h"
#include "common/unit.h"

enum { SLOTS = 2, WORDS = 2, MESSAGES = 5 };

/* What one part of the protocol is replaced by. */
struct rules {
	bool no_credit; /* the sender does not wait for a line to be freed */
	bool one_too_many; /* it takes one line more for free than there is */
	bool last_word_only; /* the receiver trusts a line when its last word has come */
	bool no_lap; /* a word that is not zero has come */
	bool frees_first; /* it frees a line, and then loads its words again to use them */
	bool halves; /* a word arrives in two parts */
	bool two_laps; /* laps have two names: not a fault */
	bool bulk; /* with bulk data: */
	bool no_fence; /* nothing orders it before the words of its message */
	bool no_acquire; /* it may be loaded before them */
};

/* A word in memory: the lap and the message that it is of, which arrive together unless halves. */
struct word {
	uint8_t lap, data;
};

struct state {
	uint8_t sent, at; /* messages sent; words of the next one stored */
	uint8_t bulk_sent; /* bulk data of messages stored */
	uint8_t received, loaded; /* messages; words of the next one loaded */
	uint8_t freed; /* as the receiver has stored it */
	uint8_t credit; /* as it has arrived */
	uint8_t reuse; /* frees_first: words loaded again */
	struct word seen[WORDS];
	struct word mem[SLOTS][WORDS];
	uint8_t pending[SLOTS][WORDS][2]; /* messages not stored yet, older first; 0: none */
	uint8_t half[SLOTS][WORDS]; /* halves: the lap of the first has arrived */
	uint8_t bulk[MESSAGES], bulk_pending[MESSAGES], early[MESSAGES];
};

enum { TABLE = 1 << 20 };

static struct search {
	struct rules r;
	struct state *table; /* those seen; sent 255: free */
	size_t states, *stack, top;
	const char *fault;
	struct state *step; /* not NULL: gets the first next state, and no state is noted */
	bool stepped;
} s;

static uint8_t lap_of(unsigned int message)
{
	unsigned int lap = message / SLOTS + 1;

	return (uint8_t)(s.r.no_lap ? 1 : s.r.two_laps ? 1 + lap % 2 : lap);
}

static void fault(const char *what)
{
	if (!s.fault)
		s.fault = what;
}

/* Notes a state that can be reached. */
static void reach(const struct state *to)
{
	const uint8_t *p = (const uint8_t *)to;
	uint64_t h = 1469598103934665603u;
	size_t i;

	if (s.step) {
		if (!s.stepped)
			*s.step = *to;
		s.stepped = true;
		return;
	}
	for (i = 0; i < sizeof(*to); i++)
		h = (h ^ p[i]) * 1099511628211u;
	for (i = h % TABLE; s.table[i].sent != 255; i = (i + 1) % TABLE)
		if (!memcmp(&s.table[i], to, sizeof(*to)))
			return;
	ck_assert_uint_lt(++s.states, TABLE / 2);
	s.table[i] = *to;
	s.stack[s.top++] = i;
}

/* ---- what can happen next ------------------------------------------------ */

static void sender(const struct state *from)
{
	unsigned int n = from->sent, slot = n % SLOTS;
	unsigned int room = s.r.one_too_many ? SLOTS + 1 : SLOTS;
	struct state to = *from;
	uint8_t *pending;

	if (n == MESSAGES)
		return;
	if (s.r.bulk && from->bulk_sent == n) {
		to.bulk_pending[n] = 1;
		to.bulk_sent++;
		reach(&to);
		return;
	}
	if (s.r.bulk && !s.r.no_fence && from->bulk_pending[n])
		return; /* the fence waits for it */
	if (!s.r.no_credit && n - from->credit >= room)
		return;
	pending = to.pending[slot][from->at];
	if (pending[1])
		return; /* the model has room for two; a third would come behind them */
	pending[pending[0] != 0] = (uint8_t)(n + 1);
	if (++to.at == WORDS) {
		to.at = 0;
		to.sent++;
	}
	reach(&to);
}

static void memory(const struct state *from)
{
	struct state to;

	for (unsigned int i = 0; i < SLOTS * WORDS; i++) {
		uint8_t message = from->pending[i / WORDS][i % WORDS][0];

		if (!message)
			continue;
		to = *from;
		to.mem[i / WORDS][i % WORDS].lap = lap_of(message - 1u);
		if (s.r.halves && !from->half[i / WORDS][i % WORDS]) {
			to.half[i / WORDS][i % WORDS] = 1;
		} else {
			to.half[i / WORDS][i % WORDS] = 0;
			to.mem[i / WORDS][i % WORDS].data = message;
			to.pending[i / WORDS][i % WORDS][0] =
				from->pending[i / WORDS][i % WORDS][1];
			to.pending[i / WORDS][i % WORDS][1] = 0;
		}
		reach(&to);
	}
	for (unsigned int i = 0; i < MESSAGES; i++) {
		if (!from->bulk_pending[i])
			continue;
		to = *from;
		to.bulk_pending[i] = 0;
		to.bulk[i] = 1;
		reach(&to);
	}
	if (from->credit != from->freed) {
		to = *from;
		to.credit = from->freed;
		reach(&to);
	}
}

/* The words that count have been loaded: are they the message? */
static void use(struct state *to)
{
	unsigned int n = to->received;

	for (unsigned int i = 0; i < WORDS; i++)
		if (to->seen[i].data != n + 1)
			fault("a word of another message");
	if (s.r.bulk && !(s.r.no_acquire ? to->early[n] : to->bulk[n]))
		fault("bulk data are older than the message");
	to->received++;
	to->freed = to->received;
	to->loaded = to->reuse = 0;
	memset(to->seen, 0, sizeof(to->seen));
}

static bool is_whole(const struct state *at)
{
	unsigned int first = s.r.last_word_only ? WORDS - 1 : 0;

	for (unsigned int i = first; i < WORDS; i++)
		if (at->seen[i].lap != lap_of(at->received))
			return false;
	return true;
}

/* Loads the words of the next line, in any order of their own; all of them, then it looks. */
static void receiver(const struct state *from)
{
	unsigned int n = from->received, slot = n % SLOTS;
	struct state to;

	if (n == MESSAGES)
		return;
	if (s.r.no_acquire && !from->loaded) {
		to = *from;
		to.early[n] = from->bulk[n];
		reach(&to);
	}
	if (from->loaded == (1 << WORDS) - 1) {
		to = *from;
		if (!is_whole(from)) {
			to.loaded = 0;
			memset(to.seen, 0, sizeof(to.seen));
		} else if (!s.r.frees_first) {
			use(&to);
		} else if (from->reuse < WORDS) {
			to.freed = (uint8_t)(n + 1);
			to.seen[from->reuse] = from->mem[slot][from->reuse];
			to.seen[from->reuse].lap = lap_of(n); /* it was checked before */
			to.reuse++;
		} else {
			use(&to);
		}
		reach(&to);
		return;
	}
	for (unsigned int i = 0; i < WORDS; i++) {
		if (from->loaded & 1u << i)
			continue;
		to = *from;
		to.loaded |= (uint8_t)(1u << i);
		to.seen[i] = from->mem[slot][i];
		reach(&to);
	}
}

/* ---- the search ---------------------------------------------------------- */

/* From every state the last message arrives if all three take turns: none is lost. */
static bool all_end(void)
{
	void (*const part[])(const struct state *) = { sender, memory, receiver };
	struct state at, next;
	bool good = true;

	s.step = &next;
	for (size_t i = 0; i < TABLE && good; i++) {
		if (s.table[i].sent == 255)
			continue;
		at = s.table[i];
		for (unsigned int turn = 0; turn < 200 && at.received < MESSAGES; turn++) {
			s.stepped = false;
			part[turn % 3](&at);
			if (s.stepped)
				at = next;
		}
		good = at.received == MESSAGES;
	}
	s.step = NULL;
	return good;
}

/* The first fault of all interleavings; NULL: there is none. */
static const char *explore(struct rules rules)
{
	struct state first;

	memset(&first, 0, sizeof(first));
	s.r = rules;
	s.fault = NULL;
	s.states = s.top = 0;
	s.table = malloc(sizeof(*s.table) * TABLE);
	s.stack = malloc(sizeof(*s.stack) * TABLE);
	ck_assert(s.table && s.stack);
	memset(s.table, 255, sizeof(*s.table) * TABLE);
	reach(&first);
	while (s.top && !s.fault) {
		struct state at = s.table[s.stack[--s.top]];

		sender(&at);
		memory(&at);
		receiver(&at);
	}
	if (!s.fault && !all_end())
		s.fault = "a message never comes";
	free(s.table);
	free(s.stack);
	return s.fault;
}

#define HOLDS(...)                                                         \
	do {                                                               \
		const char *why_ = explore((struct rules){ __VA_ARGS__ }); \
		ck_assert_msg(!why_, "%s", why_);                          \
	} while (0)
#define BREAKS(what, ...)                                                      \
	do {                                                                   \
		const char *why_ = explore((struct rules){ __VA_ARGS__ });     \
		ck_assert_msg(why_ && !strcmp(why_, what), "%s instead of %s", \
			      why_ ? why_ : "nothing", what);                  \
	} while (0)

static void protocol(void)
{
	HOLDS(.bulk = false);
	HOLDS(.two_laps = true);
}

static void bulk_data(void)
{
	HOLDS(.bulk = true);
}

static void mutants(void)
{
	BREAKS("a word of another message", .last_word_only = true);
	BREAKS("a word of another message", .no_lap = true);
	BREAKS("a word of another message", .frees_first = true);
	BREAKS("a word of another message", .halves = true);
	BREAKS("bulk data are older than the message", .bulk = true, .no_fence = true);
	BREAKS("bulk data are older than the message", .bulk = true, .no_acquire = true);
}

static void mutants_of_credit(void)
{
	BREAKS("a message never comes", .no_credit = true);
	BREAKS("a message never comes", .one_too_many = true);
	/* with two names for laps the overwritten line is taken for the next */
	ck_assert(explore((struct rules){ .no_credit = true, .two_laps = true }));
}

static const struct unit_test tests[] = {
	{ "the protocol", protocol, NULL },
	{ "with bulk data", bulk_data, NULL },
	{ "mutants", mutants, NULL },
	{ "mutants of the credit", mutants_of_credit, NULL },
};

UNIT_MAIN("queue model", tests)
