// SPDX-License-Identifier: MIT
/*
 * Which accesses are ordered: vector clocks, as in FastTrack (Flanagan and Freund, PLDI 2009). Two
 * accesses of different threads to a byte, of which one writes and one is not atomic, must be ordered by
 * the library's own locks and atomics, those as weak as they are written; CUDA's locks order
 * nothing. So a data race is found in a schedule that has the accesses far apart. Freed memory may
 * not be accessed at all. Each access is kept with its stack, a node of the tree of calls.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "explore/explore.h"

enum { PAGE_BITS = 12, GRANULES = 1 << (PAGE_BITS - 3), MOST_DEPTH = 256 };
enum { MOST_PAGES = 1 << 13, MOST_ACCESSES = 1 << 18, MOST_SYNCS = 1 << 14, MOST_NODES = 1 << 14 };
enum { FREED = EX_UPDATE }; /* as the kind of an access: an update is kept as a store */

struct clock {
	uint32_t of[EX_THREADS];
};

/* What a thread did last to some bytes of a granule, 8 bytes. */
struct access {
	uint32_t next, when, stack, pc;
	uint8_t thread, mask, kind;
	bool atomic;
};

/* What a lock or an atomic hands on. */
struct sync {
	uint32_t next;
	const void *at;
	struct clock clock;
};

/* A call: where, and by which call that function runs. */
struct node {
	uint32_t parent, pc;
};

struct granule {
	uint32_t accesses, syncs; /* the first ones' indexes; 0: none */
};

static struct page {
	uintptr_t number;
	struct granule granules[GRANULES];
} * pages;
static uint16_t page_of[2 * MOST_PAGES]; /* by hash: an index, or 0 */
static struct access *accesses;
static struct sync *syncs;
static struct node nodes[MOST_NODES];
static uint32_t page_count, access_count, free_accesses, sync_count;

static struct clock now[EX_THREADS]; /* what each thread has seen */
static struct clock released[EX_THREADS]; /* at its last release fence */
static struct clock relaxed[EX_THREADS]; /* what its next acquire fence will see */

static _Thread_local uint32_t stack[MOST_DEPTH];
static _Thread_local unsigned int depth;

static void join(struct clock *c, const struct clock *other)
{
	for (int t = 0; t < EX_THREADS; t++)
		c->of[t] = other->of[t] > c->of[t] ? other->of[t] : c->of[t];
}

static void *table(size_t count, size_t size)
{
	void *p = mmap(NULL, count * size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

void ex_race_begin(void)
{
	pages = table(MOST_PAGES, sizeof(*pages));
	accesses = table(MOST_ACCESSES, sizeof(*accesses));
	syncs = table(MOST_SYNCS, sizeof(*syncs));
	for (int t = 0; t < EX_THREADS; t++)
		now[t].of[t] = 1;
}

/* ---- the tree of calls ------------------------------------------------------------------------- */

static uint32_t child(uint32_t parent, uint32_t pc)
{
	uint32_t at = (parent * 0x9e3779b1u ^ pc * 0x85ebca6bu) % MOST_NODES;

	for (uint32_t i = 0; i < MOST_NODES; i++, at = (at + 1) % MOST_NODES) {
		if (at && !nodes[at].pc)
			nodes[at] = (struct node){ parent, pc };
		if (at && nodes[at].parent == parent && nodes[at].pc == pc)
			return at;
	}
	return 0; /* full: the stack is cut */
}

void ex_race_call(void *pc)
{
	if (!ex_inside())
		return;
	if (depth + 1 < MOST_DEPTH)
		stack[depth + 1] = child(stack[depth], (uint32_t)(uintptr_t)pc);
	depth++;
}

void ex_race_return(void)
{
	depth -= ex_inside() && depth;
}

static void print_stack(uint32_t pc, uint32_t node)
{
	void *frames[MOST_DEPTH];
	int n = 0;

	for (frames[n++] = (void *)(uintptr_t)pc; node && n < MOST_DEPTH; node = nodes[node].parent)
		frames[n++] = (void *)(uintptr_t)nodes[node].pc;
	ex_print_frames(frames, n);
}

/* ---- bytes ------------------------------------------------------------------------------------- */

static struct page *find_page(uintptr_t number, bool make)
{
	static struct page *last;
	uint32_t at = (uint32_t)(number * 0x9e3779b97f4a7c15ull >> 40) % (2 * MOST_PAGES);

	if (last && last->number == number)
		return last;
	for (; page_of[at]; at = (at + 1) % (2 * MOST_PAGES))
		if (pages[page_of[at]].number == number)
			return last = &pages[page_of[at]];
	if (!make)
		return NULL;
	if (++page_count == MOST_PAGES)
		ex_fail("a table of race.c is full");
	page_of[at] = (uint16_t)page_count;
	pages[page_count].number = number;
	return last = &pages[page_count];
}

static struct granule *find_granule(uintptr_t at, bool make)
{
	struct page *p = find_page(at >> PAGE_BITS, make);

	return p ? &p->granules[at >> 3 & (GRANULES - 1)] : NULL;
}

static void forget_granule(struct granule *g)
{
	while (g->accesses) {
		struct access *a = &accesses[g->accesses];
		uint32_t next = a->next;

		a->next = free_accesses;
		free_accesses = g->accesses;
		g->accesses = next;
	}
	g->syncs = 0;
}

static const char *const kinds[] = { "a read", "a write", "a free" };

static __attribute__((noreturn, cold)) void fail(const struct access *a,
						 const struct access *former, uintptr_t at)
{
	ex_say("%s%s of 0x%lx by thread %d", a->atomic ? "atomic: " : "", kinds[a->kind],
	       (unsigned long)at, a->thread);
	print_stack(a->pc, a->stack);
	ex_say("%s%s before it by thread %d", former->atomic ? "atomic: " : "", kinds[former->kind],
	       former->thread);
	print_stack(former->pc, former->stack);
	ex_fail(former->kind == FREED ? "use of freed memory" : "data race");
}

/* The former access says no more about later ones than the new one does. */
static bool is_covered(const struct access *former, const struct access *a)
{
	if (former->mask & ~a->mask)
		return false;
	if (!a->atomic && a->kind != EX_LOAD)
		return true; /* it came before the new one, which conflicts with all */
	return former->thread == a->thread && former->atomic == a->atomic &&
	       former->kind <= a->kind;
}

static void access_granule(uintptr_t at, struct access a)
{
	struct granule *g = find_granule(at, true);
	uint32_t *link = &g->accesses;

	while (*link) {
		uint32_t i = *link;
		struct access *former = &accesses[i];
		bool both_atomic = former->atomic && a.atomic;
		bool writes = former->kind != EX_LOAD || a.kind != EX_LOAD;

		if (former->mask & a.mask &&
		    (former->kind == FREED ||
		     (writes && !both_atomic && former->thread != a.thread &&
		      former->when > now[a.thread].of[former->thread])))
			fail(&a, former, at);
		if (is_covered(former, &a)) {
			*link = former->next;
			former->next = free_accesses;
			free_accesses = i;
		} else {
			link = &former->next;
		}
	}
	*link = free_accesses ? free_accesses : ++access_count;
	if (access_count == MOST_ACCESSES)
		ex_fail("a table of race.c is full");
	if (free_accesses)
		free_accesses = accesses[free_accesses].next;
	accesses[*link] = a;
}

static void access_bytes(uintptr_t at, size_t size, int kind, bool atomic, void *pc)
{
	int me = ex_me();
	struct access a = { .when = now[me].of[me],
			    .stack = stack[depth < MOST_DEPTH ? depth : MOST_DEPTH - 1],
			    .pc = (uint32_t)(uintptr_t)pc,
			    .thread = (uint8_t)me,
			    .kind = (uint8_t)kind,
			    .atomic = atomic };

	while (size) {
		size_t offset = at & 7, n = 8 - offset < size ? 8 - offset : size;

		a.mask = (uint8_t)(((1u << n) - 1) << offset);
		access_granule(at & ~(uintptr_t)7, a);
		at += n;
		size -= n;
	}
}

void ex_race_access(const void *p, size_t size, int kind, void *pc)
{
	if (ex_inside() && ex_is_parent() && !ex_is_stack(p))
		access_bytes((uintptr_t)p, size, kind, false, pc);
}

void ex_race_new(const void *p, size_t size)
{
	uintptr_t at = (uintptr_t)p, end = at + size;

	if (!ex_inside() || !p)
		return;
	while (at < end) {
		uintptr_t stop = ((at >> PAGE_BITS) + 1) << PAGE_BITS;
		struct page *page = find_page(at >> PAGE_BITS, false);

		for (; page && at < end && at < stop; at += 8)
			forget_granule(&page->granules[at >> 3 & (GRANULES - 1)]);
		at = stop;
	}
}

void ex_race_free(void *p, void *pc)
{
	if (p && ex_inside() && ex_is_parent())
		access_bytes((uintptr_t)p, malloc_usable_size(p), FREED, false, pc);
}

/* ---- what orders ------------------------------------------------------------------------------- */

static struct clock *sync_of(const void *p, bool make)
{
	struct granule *g = find_granule((uintptr_t)p & ~(uintptr_t)7, make);
	uint32_t i;

	for (i = g ? g->syncs : 0; i; i = syncs[i].next)
		if (syncs[i].at == p)
			return &syncs[i].clock;
	if (!make)
		return NULL;
	if (++sync_count == MOST_SYNCS)
		ex_fail("a table of race.c is full");
	syncs[sync_count] = (struct sync){ .next = g->syncs, .at = p };
	g->syncs = sync_count;
	return &syncs[sync_count].clock;
}

static void released_now(int me)
{
	now[me].of[me]++;
}

void ex_race_acquire(const void *p)
{
	struct clock *c = ex_inside() ? sync_of(p, false) : NULL;

	if (c)
		join(&now[ex_me()], c);
}

bool ex_race_has_seen(const void *p)
{
	const struct clock *c = sync_of(p, false);

	for (int t = 0; c && t < EX_THREADS; t++)
		if (c->of[t] > now[ex_me()].of[t])
			return false;
	return true;
}

void ex_race_release(const void *p)
{
	if (!ex_inside())
		return;
	join(sync_of(p, true), &now[ex_me()]);
	released_now(ex_me());
}

static bool acquires(int order)
{
	return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE;
}

static bool releases(int order)
{
	return order >= __ATOMIC_RELEASE;
}

void ex_race_atomic(const volatile void *address, size_t size, int kinds_of, int order, void *pc)
{
	const void *p = (const void *)address;
	bool loads = kinds_of != EX_STORE, stores = kinds_of != EX_LOAD;
	int me = ex_me();
	struct clock *c;

	if (!ex_inside() || !ex_is_parent())
		return;
	access_bytes((uintptr_t)p, size, stores ? EX_STORE : EX_LOAD, true, pc);
	c = sync_of(p, stores);
	if (loads && c)
		join(acquires(order) ? &now[me] : &relaxed[me], c);
	if (!stores)
		return;
	if (!loads) /* C11, 5.1.2.4: only read-modify-writes continue a release sequence */
		memset(c, 0, sizeof(*c));
	join(c, releases(order) ? &now[me] : &released[me]);
	if (releases(order))
		released_now(me);
}

void ex_race_fence(int order)
{
	int me = ex_me();

	if (!ex_inside())
		return;
	if (acquires(order))
		join(&now[me], &relaxed[me]);
	if (releases(order)) {
		released[me] = now[me];
		released_now(me);
	}
}

/* ---- memory: the C library's allocator, for every object of the process ------------------------ */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);

static void *made(void *p)
{
	if (p && ex_inside())
		ex_race_new(p, malloc_usable_size(p));
	return p;
}

void *malloc(size_t size)
{
	return made(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
	return made(__libc_calloc(count, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return made(__libc_memalign(alignment, size));
}

void *realloc(void *p, size_t size)
{
	void *q;

	ex_race_free(p, __builtin_return_address(0));
	q = __libc_realloc(p, size);
	if (!q && p && ex_inside())
		ex_race_new(p, malloc_usable_size(p));
	return made(q);
}

void free(void *p)
{
	ex_race_free(p, __builtin_return_address(0));
	__libc_free(p);
}

/* ---- copies, which gcc does not instrument: the linker's --wrap -------------------------------- */

#define PC __builtin_return_address(0)

void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_memset(void *to, int c, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__wrap_memset(void *to, int c, size_t n);

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
	ex_race_access(from, n, EX_LOAD, PC);
	ex_race_access(to, n, EX_STORE, PC);
	return __real_memcpy(to, from, n);
}

void *__wrap_memmove(void *to, const void *from, size_t n)
{
	ex_race_access(from, n, EX_LOAD, PC);
	ex_race_access(to, n, EX_STORE, PC);
	return __real_memmove(to, from, n);
}

void *__wrap_memset(void *to, int c, size_t n)
{
	ex_race_access(to, n, EX_STORE, PC);
	return __real_memset(to, c, n);
}
