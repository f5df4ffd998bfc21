/* SPDX-License-Identifier: MIT */
/* The GPU's copy engine for the copies of one pinned range. See cuda.h. */
#include "cuda/private.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/process.h"
#include "copy/word.h"

/*
 * The stream writes a word in host memory behind each copy, and the copying thread polls it. A read
 * of 2 to 8 KiB takes 6.4 us so; with cuStreamSynchronize 7.2, and 20 in a program that chose
 * blocking synchronisation (raw calls; this and the following: H200, driver 580, 2026-11-23). The
 * library adds 0.1 to 0.5: CUDA's answers to the kind of host memory (0.06; pageable 0.16), the
 * buffer ID (0.07), context and capture mode (0.03), and fences.
 *
 * A read of up to BLOCK bytes into pageable memory goes by a block of page-locked memory: 64 KiB in
 * 11.5 us, where CUDA's own way takes 18.6. Longer ones go CUDA's way, which stores past the caches
 * and is ahead where these do not have the destination (docs/results/copies.md has both).
 *
 * Each device has WORDS words, the first of which have a block each, registered with its primary
 * context; engines in other contexts synchronise. They are neither unregistered nor freed, as both
 * may wait for every running kernel. A reset of the context ends the registration, and the next
 * engine makes another. A forked child, which cannot use CUDA, has none.
 *
 * A thread takes a word, with its block, by a bit. It gives back only what the device has ended
 * with: after a synchronisation that fails, copies and words may still come.
 */
enum {
	DEVICES = 16,
	WORDS = 64, /* concurrent copies; more of them synchronise */
	WORD_STEP = 64, /* bytes from one word to the next */
	BLOCKS = 4, /* concurrent reads by a block; more of them go CUDA's way */
	BLOCK = 64 << 10,
	NOTICE_BYTES = WORDS * WORD_STEP,
	LOCKED_BYTES = NOTICE_BYTES + BLOCKS * BLOCK
};

#define WITH_BLOCK (((uint64_t)1 << BLOCKS) - 1)

/* A thread polls no longer than this, then synchronises. */
#define POLL_NS 100000

struct notice {
	uint8_t *page; /* under the lock; NULL: not allocated yet */
	_Atomic uint64_t taken; /* a bit for each word that a thread uses */
	uint32_t number[WORDS]; /* the last value of each; its thread's */
	_Atomic size_t used[BLOCKS]; /* bytes of each that hold what was read */
};

static struct notice notices[DEVICES];
GDRI_MUTEX(notices_lock);

struct gdri_cuda_engine {
	/*
	 * The allocation's own; for VMM memory, which has none, the device's primary one, retained:
	 * memory and a current context may end long before the handle.
	 */
	CUcontext ctx;
	bool foreign; /* ctx is the program's and may end; memory in it: */
	uint64_t known, buffer_id;
	CUstream stream;
	struct notice *notice; /* NULL: copies synchronise */
	CUdeviceptr words;
};

/* Makes the device's words and blocks once, and registers them. */
static void use_notice(struct gdri_cuda_engine *e, int device)
{
	struct notice *n;

	if (e->foreign || device < 0 || device >= DEVICES || !gdri_cu.cuMemHostRegister_v2 ||
	    !gdri_cu.cuStreamWriteValue32_v2)
		return;
	n = &notices[device];
	pthread_mutex_lock(&notices_lock);
	if (!n->page) {
		void *page;

		/* The blocks hold what was read from the GPU. */
		if (!gdri_fork_pages(LOCKED_BYTES, MAP_PRIVATE, &page)) {
			if (madvise(page, LOCKED_BYTES, MADV_DONTDUMP))
				munmap(page, LOCKED_BYTES);
			else
				n->page = page;
		}
	}
	pthread_mutex_unlock(&notices_lock);
	/* May be registered already, or NULL: the query of its address shows it. */
	gdri_cu.cuMemHostRegister_v2(n->page, LOCKED_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
	/* Drivers may have the call and refuse it. Nobody reads this word. */
	if (!gdri_cu.cuMemHostGetDevicePointer_v2(&e->words, n->page, 0) &&
	    !gdri_cu.cuStreamWriteValue32_v2(e->stream, e->words + WORD_STEP / 2, 0, 0))
		e->notice = n;
}

static int make_stream(struct gdri_cuda_engine *e, const struct gdri_memory *m,
		       enum gdri_engine_end *end)
{
	struct gdri_cuda_scope s;
	unsigned int flags = 0;
	int rc, active = 0;
	CUdevice dev;

	rc = GDRI_CU(cuDeviceGet, &dev, m->device);
	/* Is it the primary one? A retain of one that is not active would make it. */
	if (!rc && m->context)
		rc = GDRI_CU(cuDevicePrimaryCtxGetState, dev, &flags, &active);
	if (!rc && active) {
		rc = GDRI_CU(cuDevicePrimaryCtxRetain, &e->ctx, dev);
		if (!rc)
			gdri_cuda_unretain(dev);
	}
	if (rc)
		return rc;
	e->foreign = m->context && e->ctx != m->context;
	if (e->foreign) { /* not retained: the program decides when it ends */
		e->ctx = m->context;
		rc = gdri_cuda_enter(&s, e->ctx, -1);
	} else {
		rc = gdri_cuda_enter_primary(&s, dev, &e->ctx);
	}
	if (rc)
		return rc;
	rc = GDRI_CU(cuStreamCreate, &e->stream, CU_STREAM_NON_BLOCKING);
	if (!rc && end) {
		use_notice(e, m->device);
		*end = e->notice ? GDRI_ENGINE_POLLS
		       : !gdri_cu.cuCtxGetFlags(&flags) &&
				       (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC
			       ? GDRI_ENGINE_SLEEPS
			       : GDRI_ENGINE_SPINS;
	}
	gdri_cuda_leave(&s);
	return rc;
}

int gdri_cuda_engine_new(uint64_t addr, size_t size, struct gdri_cuda_engine **out,
			 enum gdri_engine_end *end)
{
	struct gdri_cuda_engine *e;
	struct gdri_memory m;
	int rc;

	gdri_cuda_describe(addr, size, &m);
	if (m.kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "the copy engine copies device memory only%s%s",
				 *m.note ? ": " : "", m.note);
	e = calloc(1, sizeof(*e));
	if (!e)
		return gdri_fail(ENOMEM, "no memory for a copy engine");
	e->known = m.known;
	e->buffer_id = m.buffer_id;
	rc = make_stream(e, &m, end);
	if (rc)
		free(e);
	else
		*out = e;
	return rc;
}

/* The number of a free one of these words; -1: it saw none, or other threads were faster. */
static int take_word(struct notice *n, uint64_t of)
{
	uint64_t left = of & ~atomic_load_explicit(&n->taken, memory_order_relaxed), word;

	for (; left; left ^= word) {
		word = left & -left;
		if (!(atomic_fetch_or_explicit(&n->taken, word, memory_order_acquire) & word))
			return __builtin_ctzll(word);
	}
	return -1;
}

static bool copy(struct gdri_cuda_engine *e, bool to_device, void *host, uint64_t addr, size_t size)
{
	return !(to_device ? gdri_cu.cuMemcpyHtoDAsync_v2(addr, host, size, e->stream)
			   : gdri_cu.cuMemcpyDtoHAsync_v2(host, addr, size, e->stream));
}

/*
 * Polls for the word's value, then synchronises: what has been queued has ended after that too.
 * Each use of a word has a value of its own, so a late one is harmless.
 */
static bool reached(struct gdri_cuda_engine *e, int word, uint32_t value)
{
	const uint32_t *at = (uint32_t *)(void *)(e->notice->page + word * WORD_STEP);
	uint64_t until = gdri_now_ns() + POLL_NS;

	do {
		for (int i = 0; i < 16; i++) {
			if (__atomic_load_n(at, __ATOMIC_ACQUIRE) == value)
				return true;
			gdri_relax();
		}
	} while (gdri_now_ns() < until);
	return !gdri_cu.cuStreamSynchronize(e->stream);
}

/* A copy whose end is polled, through the word's block unless `locked`. */
static bool copy_by_word(struct gdri_cuda_engine *e, int word, bool to_device, void *host,
			 bool locked, uint64_t addr, size_t size)
{
	struct notice *n = e->notice;
	void *at = locked ? host : n->page + NOTICE_BYTES + word * BLOCK;

	if (!locked && atomic_load_explicit(&n->used[word], memory_order_relaxed) < size)
		atomic_store_explicit(&n->used[word], size, memory_order_relaxed);
	if (!copy(e, to_device, at, addr, size) ||
	    gdri_cu.cuStreamWriteValue32_v2(e->stream, e->words + (CUdeviceptr)(word * WORD_STEP),
					    ++n->number[word], 0) ||
	    !reached(e, word, n->number[word]))
		return false;
	if (!locked)
		memcpy(host, at, size);
	return true;
}

/* What was read does not stay in the blocks for longer than an engine. */
static void clear_blocks(struct notice *n)
{
	for (int i = 0; i < BLOCKS; i++) {
		size_t size = atomic_load_explicit(&n->used[i], memory_order_relaxed);

		if (!size || take_word(n, (uint64_t)1 << i) < 0)
			continue;
		size = atomic_exchange_explicit(&n->used[i], 0, memory_order_relaxed);
		memset(n->page + NOTICE_BYTES + i * BLOCK, 0, size);
		atomic_fetch_and_explicit(&n->taken, ~((uint64_t)1 << i), memory_order_release);
	}
}

/* Records no text of a failure: the public call goes on without the engine. */
bool gdri_cuda_engine_copy(struct gdri_cuda_engine *e, bool to_device, void *host, bool locked,
			   uint64_t addr, size_t size)
{
	struct gdri_cuda_scope s;
	CUcontext current = NULL;
	bool done = false;
	int word = -1;

	gdri_cuda_relax(&s);
	/* A push and a pop take longer than the question. */
	if (gdri_cu.cuCtxGetCurrent(&current) || current != e->ctx)
		s.pushed = !gdri_cu.cuCtxPushCurrent_v2(e->ctx);
	if (current == e->ctx || s.pushed) {
		bool ended = false;

		if (e->notice && (locked || (!to_device && size <= BLOCK)))
			word = take_word(e->notice, locked ? ~WITH_BLOCK : WITH_BLOCK);
		if (word >= 0)
			done = ended = copy_by_word(e, word, to_device, host, locked, addr, size);
		else
			done = copy(e, to_device, host, addr, size);
		/* After a failure too: no part of the copy may come later. */
		if (!ended)
			ended = !gdri_cu.cuStreamSynchronize(e->stream);
		done &= ended;
		if (word >= 0 && ended)
			atomic_fetch_and_explicit(&e->notice->taken, ~((uint64_t)1 << word),
						  memory_order_release);
	}
	gdri_cuda_leave(&s);
	return done;
}

/* Managed memory has either type, and is not page-locked. */
bool gdri_cuda_is_page_locked(const void *host)
{
	unsigned int type = 0, managed = 0;
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED };
	void *values[] = { &type, &managed };

	return !gdri_cu.cuPointerGetAttributes(2, names, values, (uintptr_t)host) &&
	       type == CU_MEMORYTYPE_HOST && !managed;
}

int gdri_cuda_engine_free(struct gdri_cuda_engine *e)
{
	struct gdri_cuda_scope s;
	int rc = 0;

	if (!e)
		return 0;
	gdri_cuda_relax(&s);
	/* If the program's context has ended, so has the stream in it. */
	if (!e->foreign || gdri_cuda_has_buffer_id(e->known, e->buffer_id)) {
		rc = GDRI_CU(cuCtxPushCurrent_v2, e->ctx);
		s.pushed = !rc;
		if (!rc)
			rc = GDRI_CU(cuStreamDestroy_v2, e->stream);
	}
	gdri_cuda_leave(&s);
	if (e->notice)
		clear_blocks(e->notice);
	if (rc && !gdri_cuda_context_works(e->ctx)) /* records no text */
		rc = 0;
	free(e);
	return rc ? -EIO : 0;
}
