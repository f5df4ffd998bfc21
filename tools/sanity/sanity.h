/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_sanity from the bottom up: the report of a test, what the tests share, the tests and how
 * they are chosen and run. A test runs in a process that has opened CUDA and the library. It
 * returns if it passes; a failure ends the process, so that nothing has to be undone.
 */
#ifndef PERF_SANITY_SANITY_H
#define PERF_SANITY_SANITY_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "barcopy.h"
#include "common/buffer.h"
#include "common/opts.h"

#define KIB ((size_t)1024)

/* ---- sanity.c: the report of a test, in memory that its processes share with the tool - */

enum outcome { PASSED, FAILED, WAIVED, OUTCOMES };

struct report {
	_Atomic int has_reason; /* 1 once a process has begun to write `text` */
	_Atomic int returned; /* the test returned */
	enum outcome outcome; /* that `text` explains */
	char text[2048]; /* why it failed or was waived */
	_Atomic int noted;
	char notes[2048]; /* lines */
	double seconds; /* that the test took */
};

/* That of the current test; report_make() makes an array of them, before the first. */
extern struct report *report;
void report_make(size_t count);
/* For tool_on_end: records the tool's message as the reason; the process goes on. */
void report_cannot(const char *text, int status);
/* Where a waiver jumps to in a process that runs several tests; NULL: the process ends. */
extern sigjmp_buf *report_waived;
/* The step of a script that failures name; NULL: none. */
extern const char *sanity_step;

/* Both record a reason, unless an earlier one was recorded, and end the process. */
_Noreturn void sanity_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void sanity_waive(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Shown with -v and in the JSON document. */
void sanity_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define FAIL(...) sanity_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(cond, ...)                   \
	do {                               \
		if (!(cond))               \
			FAIL(__VA_ARGS__); \
	} while (0)

/* ---- sanity.c: what the tests share --------------------------------------------------- */

/* The memory under test; the same in every test. */
struct sanity_facts {
	int device;
	enum mem_kind kind; /* of the memory that is pinned */
	uint64_t backend; /* barcopy_backend_t that serves it */
	const char *place; /* where it lies, in words */
	bool persistent; /* a mapping outlives the free of its memory */
	bool sync_memops;
	gdr_mapping_type_t type; /* of a default mapping */
	long kernel_pins; /* of the whole machine before the first test; -1: not readable */
};

struct sanity {
	struct sanity_facts facts;
	struct gpu gpu;
	gdr_t g; /* barcopy_open(BARCOPY_OPEN_ANY) */
};
extern struct sanity sanity;

/* Opens CUDA and the library in this process; a bare test calls it, for others it was called. */
void sanity_open(void);
void sanity_close(void);

/* A call of libgdrapi that must succeed, or must give this errno. */
#define OK(call) FAILS(0, call)
#define FAILS(errno_, call)                                                         \
	do {                                                                        \
		int err_ = (call);                                                  \
		if (err_ != (errno_))                                               \
			sanity_unexpected(__FILE__, __LINE__, #call, err_, errno_); \
	} while (0)
_Noreturn void sanity_unexpected(const char *file, int line, const char *call, int err, int wanted);

/* A call of CUDA that must succeed. */
#define CU(call)                                                                     \
	do {                                                                         \
		CUresult res_ = (call);                                              \
		CHECK(res_ == CUDA_SUCCESS, "%s: %s", #call, cuda_error_text(res_)); \
	} while (0)

/* A buffer of the kind under test, allocated, pinned and mapped; each call must succeed. */
void sanity_make(struct buffer *b, size_t size);
void sanity_unmake(struct buffer *b);
/* Memory of that kind, without a pin; freed by mem_free(). */
void sanity_alloc(struct gpu_mem *mem, size_t size);

/* Pins and maps a range; b->cpu is `addr`. The errno of the pin. gdr_unpin_buffer() ends both. */
int sanity_view(struct buffer *b, uint64_t addr, size_t size, uint32_t flags);
/* Waives the test, with the library's text, if that range cannot be served here. */
void sanity_view_or_waive(struct buffer *b, uint64_t addr, size_t size, uint32_t flags);
/* Maps a buffer again that was unmapped. */
void sanity_remap(struct buffer *b);

/* CUDA's own copies, complete on return. */
void sanity_gpu_write(CUdeviceptr to, const void *from, size_t size);
void sanity_gpu_read(void *to, CUdeviceptr from, size_t size);

/* Fails with the first byte that differs. */
#define SAME(what, expected, seen, size) sanity_same(__FILE__, __LINE__, what, expected, seen, size)
void sanity_same(const char *file, int line, const char *what, const void *expected,
		 const void *seen, size_t size);

/* Writes and reads `size` bytes at offset `at` through the mapping; CUDA must see the same. */
void sanity_round_trip(const struct buffer *b, size_t at, size_t size, uint64_t sequence);

/* Every call on the handle gives that errno; `b` is a buffer that has, or had, the same layout. */
void sanity_refused(const struct buffer *b, gdr_mh_t h, int err);

/* Fails unless a load of that byte faults. For a process of one thread. */
void sanity_must_fault(const void *p, const char *when);

/* The mapping is the CPU's own memory, which is neither mapped, revoked, nor kept from a child. */
static inline bool sanity_is_host(void)
{
	return sanity.facts.backend == BARCOPY_BACKEND_HOST;
}

/* A child that runs fn(arg); its failure is the test's. */
pid_t sanity_fork(void (*fn)(void *), void *arg);
void sanity_join(pid_t pid);

/* Pins of the whole machine, as gdrdrv counts them; -1 where that cannot be read. */
long sanity_kernel_pins(void);

/* ---- the tests ------------------------------------------------------------------------ */

struct sanity_test {
	const char *name; /* NULL ends a table */
	const char *what; /* one line for -l */
	void (*run)(void); /* NULL: the scripts are the test */
	bool bare; /* neither CUDA nor the library is open when it begins */
	const char *script, *child; /* see scene_play(); `child` may be NULL */
};

/* clang-format off */
#define TEST(name, what) { #name, what, name, false, NULL, NULL }
#define SCENE(name, what, bare, script, child) { name, what, NULL, bare, script, child }
#define END_OF_TESTS { NULL, NULL, NULL, false, NULL, NULL }
/* clang-format on */

/* The tables, in the order in which they are run. */
extern const struct sanity_test sanity_basic[], sanity_calls[], sanity_mapping[], sanity_scenes[],
	sanity_load[];

/*
 * scene.c: plays the scripts of a test. A script is a list of steps, "make b, free b, unmap b
 * EINVAL": a verb, the buffer that it acts on (b or other), and the errno that it must give if that
 * is not 0. "start" forks the child, which plays the second script; "signal" and "wait" let the two
 * take turns.
 */
void scene_play(const struct sanity_test *test);

/* node.c: the driver's node in another process, which gets its descriptor through a socket. */
struct node {
	int fd;
	uint64_t addr; /* of the sender's memory */
};
/* Waives the test if the memory's backend has no node. */
void node_or_waive(void);
void node_send(int socket, uint64_t addr);
void node_receive(int socket, struct node *node);
/* Every call with the descriptor is refused. */
void node_check_refused(const struct node *node, size_t size);

/* A test that is run. */
struct chosen {
	const struct sanity_test *test;
	int kind; /* of memory: a mem_kind or ALLOC_ANY */
	const struct sanity_facts *facts; /* of that memory */
	enum outcome outcome;
};

/*
 * run.c: the tests of these names (a test's own or GDRCopy's), all if there are none, once for
 * each kind; `kind` is that of names that do not choose one. quick: only tests that can share a
 * process. Allocated; ends with a NULL test. An unknown name ends the tool.
 */
struct chosen *names_choose(const struct opt_texts *only, int kind, bool quick);
/* Every name with its meaning. */
void names_print(void);

/*
 * run.c: runs a bare test, or several that are not, in one process, for at most `seconds` in all.
 * One that fails, crashes or hangs ends it, and the next goes on in another, or is waived if no time
 * is left. Sets the outcomes and report[i].
 */
void run_tests(struct chosen *list, size_t count, long seconds);

struct probe {
	int device;
	int kind; /* a mem_kind or ALLOC_ANY */
	const char *sim_dir; /* NULL: the installed driver */

	struct sanity_facts facts; /* the rest is filled in */
	struct gpu gpu;
	bool simulated;
	char libcuda[sizeof(cu.path)];
	char passed_over[2048]; /* kinds of memory that cannot be pinned here, and why */
};

/* run.c: finds the memory for the tests, in a child. WAIVED: none; stderr and *report say why. */
enum outcome probe_run(struct probe *p, long seconds);

#endif
