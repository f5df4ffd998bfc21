/* SPDX-License-Identifier: MIT */
/*
 * The model of the library: what a program did, and what the library must therefore answer. The
 * reference is plain: the bytes that each allocation must have, a list of views of them, and their
 * owners. A step is one call or a few; each draws its choices from a sequence of its own, so a run
 * without some of its steps makes the same calls in the others.
 */
#ifndef MODEL_H
#define MODEL_H

#include <check.h>

/* A failed check of any macro ends the run, and not a test of Check's. */
#undef ck_assert_msg
#define ck_assert_msg(expr, ...) \
	((expr) ? (void)0 : run_failed(__FILE__, __LINE__, __VA_ARGS__, NULL))
_Noreturn void run_failed(const char *file, int line, const char *format, ...);

#include "unit/fixture.h"

enum { CONTEXTS = 2, MEMS = 16, VIEWS = 24, CACHES = 3, ENDED = 16 };

enum mem_kind { PLAIN, CHUNKED, HOST };

/* Memory that GPU and CPU reach, while a program or a view has it. */
struct mem {
	enum mem_kind kind;
	uint64_t at; /* where CUDA has it; 0: nowhere any more */
	uint8_t *host; /* HOST: where the CPU has it */
	bool registered; /* HOST: of malloc(), and known to CUDA since */
	size_t size;
	uint8_t *bytes; /* what it must hold */
	int device;
	unsigned int refs; /* the program's, and each view's */
	bool freed; /* by the program: pages that are pinned stay as they are */
	bool owned; /* of barcopy_mem_alloc() */
	bool dim; /* a pin or a range that may be shared met a fault: without SYNC_MEMOPS */
	gdr_mapping_type_t type; /* of its mappings */
};

enum view_kind { NOTHING, PIN, RANGE, CACHED, OWN };

struct view {
	enum view_kind kind;
	int ctx;
	struct mem *mem;
	size_t off, size; /* in mem, as asked for */
	uint64_t addr; /* of off */
	gdr_mh_t h;
	uint64_t va; /* PIN: the first byte of its pages */
	size_t pages; /* PIN: their bytes */
	size_t mapped; /* PIN: bytes, 0: not mapped */
	void *map;
	uint8_t *cpu; /* of off; NULL: not mapped */
	uint32_t flags; /* RANGE: as asked for */
	bool lame; /* a failed call left its mapping as it was, or half of it */
	bool dim; /* a fault was met when it was made: it may lack what the copy engine needs */
	size_t engine_min[2]; /* of reads and of writes; 0: never */
	int cache;
	barcopy_region_t region; /* CACHED */
	bool noted; /* CACHED: a miss has pinned it, and nothing in its pages has gone since */
	barcopy_mem_t own; /* OWN */
	bool shareable; /* OWN */
};

struct cache {
	barcopy_cache_t name; /* NULL: none */
	int ctx;
	barcopy_cache_options_t o;
	uint64_t gets; /* that were counted */
	bool dim; /* a fault was met in it: regions may lack what a later get needs */
};

/* The machine of a row of the table. */
struct machine {
	const char *name;
	const char *env;
	barcopy_backend_t backend; /* of device memory */
	bool revokes; /* the free of its memory ends a pin */
	bool host; /* memory of cudaHostAlloc can be mapped */
	bool small; /* space may run out */
	bool gpu; /* no stand-in: no hooks, and freed memory is soon another allocation's */
	int devices;
};

struct world {
	const struct machine *machine;
	gdr_t g[CONTEXTS]; /* NULL: closed */
	struct mem *mem[MEMS]; /* of the program */
	struct view view[VIEWS];
	struct cache cache[CACHES];
	struct {
		gdr_mh_t h;
		int ctx;
	} ended[ENDED];
	unsigned int n_ended;
	barcopy_stats_t want[CONTEXTS], want_closed; /* copies, words, caches that ended */
	bool counted; /* GDRCOPY_STATS */
	CUcontext primary[2]; /* of each GPU */
	CUcontext current; /* the thread's, when the library is called; NULL: none */
	unsigned long long random; /* of the step */
	unsigned int step;
	bool traced;
};
extern struct world w;

/* ---- test_model.c: choices and the trace ------------------------------------------------------- */

unsigned int below(unsigned int n);
/* Whether a choice falls that is made once in n times. */
static inline bool once_in(unsigned int n)
{
	return !below(n);
}
/* Says what the step does, in a run that is printed. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define MUST(condition, ...) ck_assert_msg(condition, __VA_ARGS__)
/* The rest of a struct of counters: one that the model does not know has counted. */
#define MUST_BE_ZERO(rest) \
	MUST(!memcmp(&(rest), &(__typeof__(rest)){ 0 }, sizeof(rest)), "a counter that is not modelled")

/* ---- faults.c: one failing call inside the next call of the library --------------------------- */

void faults_start(void);
void fault_maybe(void); /* arms one, now and then */
/*
 * The call of that name returned rc. Returns true if it succeeded. It must, or fail with `wanted`,
 * unless a fault was met: then with any errno that the call documents.
 */
bool worked(const char *call, int rc, int wanted);
bool fault_met(void); /* in the call that worked() was last asked about */

/* ---- left.c: what is left in the machine ------------------------------------------------------- */

/* The call of that name has failed: if it releases something, that is left from now on. */
void left_behind(const char *failed);
void left_check_slots(unsigned int handles); /* as many as views and regions in use need */
void left_check(void); /* everything has ended: only that is left */

/* ---- memory.c: allocations, and the GPU's side of their bytes --------------------------------- */

void fill(uint8_t *p, size_t n);
void mem_put(struct mem *m);
struct mem *any_mem(void); /* of the program; NULL */
void gpu_write(struct mem *m, size_t off, size_t n);
void gpu_check(const struct mem *m, size_t off, size_t n);
void gpu_check_some(const struct mem *m); /* a part of it, at most 64 KiB */
gdr_mapping_type_t device_type(void); /* of the mappings of GPU memory */
void read_all(struct mem *m); /* what was never written: whatever it holds */
void free_all(void);

/* ---- views.c: pins, maps, ranges, and the library's own memory --------------------------------- */

struct view *any_view(enum view_kind kind); /* NULL: there is none */
/* The next one that exists in a context (-1: any); v NULL: the first. NULL: none. */
struct view *next_view(const struct view *v, int ctx);
gdr_t of(const struct view *v); /* its context */
/* A free view of some range of some memory, in an open context; NULL. *wanted: an errno or 0. */
struct view *new_view(int *wanted);
/* Now and then makes it end a byte behind its memory, which a range or a get must refuse. */
void view_beyond(struct view *v, int *wanted);
void view_made(struct view *v, enum view_kind kind); /* by the last call of worked() */
void view_ended(struct view *v);
void view_check(struct view *v); /* what the handle says about itself */
/* SYNC_MEMOPS: whether it is set for all that was asked for, and whether that call was to set it. */
bool view_in_force(const struct view *v);
void view_check_sync(const struct view *v, bool before, bool asked);
void view_end(struct view *v); /* by the call that ends it, without a fault */
bool is_owner(const struct view *v); /* of memory that ends with it */
void owner_ended(struct mem *m);

/* ---- caches.c ---------------------------------------------------------------------------------- */

void caches_forget(const struct mem *m); /* before a free */
void caches_closed(int ctx);
void caches_check(void);
void caches_add(int ctx, barcopy_stats_t *s, uint64_t *regions); /* what its caches count */

/* ---- contexts.c: contexts, forks, statistics --------------------------------------------------- */

void stats_check(void);
void everything_ends(void); /* and nothing is left */

/* ---- the steps, and how often each is made ------------------------------------------------------ */

/* clang-format off */
#define STEPS(X) \
	X(alloc, 10) X(free, 8) /* memory.c */ \
	X(pin, 8) X(map, 8) X(unmap, 4) X(range, 8) X(own, 4) X(share, 3) X(end, 16) X(refused, 3) \
	X(cache, 6) X(get, 12) /* caches.c; before: views.c */ \
	X(copy, 16) X(words, 8) X(vector, 6) X(vectors, 3) X(options, 3) /* copies.c */ \
	X(open, 2) X(close, 1) X(fork, 1) /* contexts.c */
/* clang-format on */
#define X(name, weight) void step_##name(void);
STEPS(X)
#undef X

#endif
