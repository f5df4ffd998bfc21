/* SPDX-License-Identifier: MIT */
/* The GPU's copy engine for the copies of one pinned range. See cuda.h. */
#include "cuda/private.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/process.h"
#include "copy/word.h"

/*
 * The stream writes a word in host memory behind each copy, and the copying thread polls it. That
 * takes 5.5 us for 512 B to 8 KiB; cuStreamSynchronize takes 6.6, and 16.5 in a program that chose
 * blocking synchronisation (H200, driver 580, 2026-11-22).
 *
 * Each device has a page of words, registered with its primary context; engines in other
 * contexts synchronise. They are neither unregistered nor freed, as both may wait for every running
 * kernel. A reset of the context ends the registration, and the next engine makes another. A forked
 * child, which cannot use CUDA, has none.
 */
enum {
	DEVICES = 16,
	WORDS = 64, /* concurrent copies; more of them synchronise */
	WORD_STEP = 64, /* bytes from one word to the next */
	NOTICE_BYTES = WORDS * WORD_STEP
};

/* A thread polls no longer than this, then synchronises. */
#define POLL_NS 100000

struct notice {
	uint8_t *page; /* under the lock; NULL: not allocated yet */
	_Atomic uint64_t taken; /* a bit for each word that a thread polls */
	uint32_t number[WORDS]; /* the last value of each; its thread's */
};

static struct notice notices[DEVICES];
GDRI_MUTEX(notices_lock);

struct gdri_cuda_engine {
	/*
	 * The allocation's own; for VMM memory, which has none, the device's primary one, retained:
	 * memory and a current context may end long before the handle.
	 */
	CUcontext ctx;
	bool sleeps; /* cuStreamSynchronize does, in this context */
	bool foreign; /* ctx is the program's and may end; memory in it: */
	uint64_t known, buffer_id;
	CUstream stream;
	int device;
	struct notice *notice; /* NULL: copies synchronise */
	CUdeviceptr words;
};

static int make_stream(struct gdri_cuda_engine *e, const struct gdri_memory *m)
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
			gdri_cu.cuDevicePrimaryCtxRelease_v2(dev);
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
	e->device = m->device;
	e->sleeps = !gdri_cu.cuCtxGetFlags(&flags) &&
		    (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
	gdri_cuda_leave(&s);
	return rc;
}

int gdri_cuda_engine_new(uint64_t addr, size_t size, struct gdri_cuda_engine **out)
{
	struct gdri_cuda_engine *e;
	struct gdri_memory m;
	int rc;

	gdri_cuda_describe(addr, size, &m);
	if (m.kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "the copy engine serves device memory only%s%s",
				 *m.note ? ": " : "", m.note);
	e = calloc(1, sizeof(*e));
	if (!e)
		return gdri_fail(ENOMEM, "no memory for a copy engine");
	e->known = m.known;
	e->buffer_id = m.buffer_id;
	rc = make_stream(e, &m);
	if (rc)
		free(e);
	else
		*out = e;
	return rc;
}

static void use_notice(struct gdri_cuda_engine *e)
{
	struct gdri_cuda_scope s;
	struct notice *n;

	if (e->foreign || e->device < 0 || e->device >= DEVICES || !gdri_cu.cuMemHostRegister_v2 ||
	    !gdri_cu.cuStreamWriteValue32_v2)
		return;
	n = &notices[e->device];
	pthread_mutex_lock(&notices_lock);
	if (!n->page) {
		void *page = mmap(NULL, NOTICE_BYTES, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page != MAP_FAILED) {
			madvise(page, NOTICE_BYTES, MADV_DONTFORK);
			n->page = page;
		}
	}
	pthread_mutex_unlock(&notices_lock);
	if (!n->page || gdri_cuda_enter(&s, e->ctx, e->device))
		return;
	/* May be registered already: the query of its address shows it. */
	gdri_cu.cuMemHostRegister_v2(n->page, NOTICE_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
	if (!gdri_cu.cuMemHostGetDevicePointer_v2(&e->words, n->page, 0))
		e->notice = n;
	gdri_cuda_leave(&s);
}

void gdri_cuda_engine_poll(struct gdri_cuda_engine *e, enum gdri_engine_end end[2])
{
	use_notice(e);
	end[false] = e->sleeps ? GDRI_ENGINE_SLEEPS : GDRI_ENGINE_SPINS;
	end[true] = e->notice ? GDRI_ENGINE_POLLS : end[false];
}

/* The number of a word that no other thread polls; -1: none is free. */
static int take_word(struct notice *n)
{
	uint64_t taken = atomic_load_explicit(&n->taken, memory_order_relaxed);

	while (~taken) {
		int word = __builtin_ctzll(~taken);

		if (atomic_compare_exchange_weak_explicit(
			    &n->taken, &taken, taken | (uint64_t)1 << word, memory_order_acquire,
			    memory_order_relaxed))
			return word;
	}
	return -1;
}

/*
 * Polls for the end of what has been queued; false if it is not reached in time, and
 * cuStreamSynchronize decides. A late write is harmless, as each use of a word has a value of its
 * own.
 */
static bool poll_end(struct gdri_cuda_engine *e)
{
	struct notice *n = e->notice;
	const volatile uint32_t *at;
	int word = take_word(n);
	uint64_t until;
	uint32_t value;
	bool seen = false;

	if (word < 0)
		return false;
	at = (const volatile uint32_t *)(const void *)(n->page + word * WORD_STEP);
	value = ++n->number[word];
	if (!gdri_cu.cuStreamWriteValue32_v2(e->stream, e->words + (unsigned int)word * WORD_STEP,
					     value, 0)) {
		until = gdri_now_ns() + POLL_NS;
		do {
			for (int i = 0; i < 16 && !seen; i++) {
				seen = __atomic_load_n(at, __ATOMIC_ACQUIRE) == value;
				if (!seen)
					gdri_relax();
			}
		} while (!seen && gdri_now_ns() < until);
	}
	atomic_fetch_and_explicit(&n->taken, ~((uint64_t)1 << word), memory_order_release);
	return seen;
}

/* Records no text of a failure: the public call goes on without the engine. */
bool gdri_cuda_engine_copy(struct gdri_cuda_engine *e, bool to_device, void *host, bool locked,
			   uint64_t addr, size_t size)
{
	struct gdri_cuda_scope s;
	CUresult r;

	gdri_cuda_relax(&s);
	r = gdri_cu.cuCtxPushCurrent_v2(e->ctx);
	if (!r) {
		s.pushed = true;
		if (to_device)
			r = gdri_cu.cuMemcpyHtoDAsync_v2(addr, host, size, e->stream);
		else
			r = gdri_cu.cuMemcpyDtoHAsync_v2(host, addr, size, e->stream);
		/* After a failure too: no part of the copy may come later. */
		if ((r || !locked || !e->notice || !poll_end(e)) &&
		    gdri_cu.cuStreamSynchronize(e->stream))
			r = CUDA_ERROR_UNKNOWN;
	}
	gdri_cuda_leave(&s);
	return r == CUDA_SUCCESS;
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

void gdri_cuda_engine_free(struct gdri_cuda_engine *e)
{
	struct gdri_cuda_scope s;

	if (!e)
		return;
	gdri_cuda_relax(&s);
	/* If the program's context has ended, so has the stream in it. */
	s.pushed = (!e->foreign || gdri_cuda_has_buffer_id(e->known, e->buffer_id)) &&
		   !gdri_cu.cuCtxPushCurrent_v2(e->ctx);
	if (s.pushed)
		gdri_cu.cuStreamDestroy_v2(e->stream);
	gdri_cuda_leave(&s);
	free(e);
}
