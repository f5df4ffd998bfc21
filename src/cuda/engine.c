/* SPDX-License-Identifier: MIT */
/* The GPU's copy engine for the copies of one pinned range. See cuda.h. */
#include "cuda/private.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/process.h"
#include "copy/word.h"

/*
 * The end of a copy, as a word in host memory that the stream writes behind it. To poll that takes 5.5 us for
 * 512 B to 8 KiB where cuStreamSynchronize takes 6.6, and 16.5 in a program that chose blocking synchronisation
 * (H200, driver 580, 2026-11-22).
 *
 * A page for each device, registered with its primary context, which other contexts do without. It is
 * neither unregistered nor freed: both may wait for every kernel that runs. With a context that is reset the
 * registration goes, and the next engine makes another.
 */
enum {
	DEVICES = 16,
	WORDS = 64, /* copies at the same time; more of them synchronise */
	WORD_STEP = 64, /* bytes from one word to the next */
	NOTICE_BYTES = 16 << 10,
	SCRATCH_AT = WORDS * WORD_STEP
};

/* A copy that takes longer is waited for as the program's other work is. */
#define POLL_NS 100000

struct notice {
	uint8_t *page; /* under the lock; NULL: not yet */
	_Atomic uint64_t taken; /* a bit for each word that somebody waits for */
	uint32_t number[WORDS]; /* the last value of each, its taker's */
};

static struct notice notices[DEVICES];
static pthread_mutex_t notices_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * The context is the allocation's own; for VMM memory, which has none, the device's primary one,
 * which is kept: one that was merely current could be destroyed meanwhile, and memory may be freed
 * long before its handle ends.
 */
struct gdri_cuda_engine {
	CUcontext ctx;
	CUstream stream;
	/* Both NULL and 0: copies are waited for by cuStreamSynchronize. */
	struct notice *notice;
	CUdeviceptr words;
	int device;
	/* A program's own context, which may end: an address of its memory, and what it was. */
	bool foreign;
	uint64_t known, buffer_id;
};

static int make_stream(struct gdri_cuda_engine *e, const struct gdri_memory *m)
{
	struct gdri_cuda_scope s;
	CUdevice dev;
	int rc = GDRI_CU(cuDeviceGet, &dev, m->device);

	/* Is its context the primary one? A primary one made for that question goes at once. */
	if (!rc && m->context) {
		rc = GDRI_CU(cuDevicePrimaryCtxRetain, &e->ctx, dev);
		if (rc)
			return rc;
		e->foreign = e->ctx != m->context;
		gdri_cu.cuDevicePrimaryCtxRelease_v2(dev);
	}
	if (rc)
		return rc;
	if (e->foreign) { /* a program's own: its end is not ours to put off */
		e->ctx = m->context;
		rc = gdri_cuda_enter(&s, e->ctx, -1);
	} else {
		rc = gdri_cuda_enter_primary(&s, dev, &e->ctx);
	}
	if (rc)
		return rc;
	rc = GDRI_CU(cuStreamCreate, &e->stream, CU_STREAM_NON_BLOCKING);
	e->device = m->device;
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
	rc = gdri_cuda_need(GDRI_CUDA_STREAMS);
	if (rc)
		return rc;
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

void gdri_cuda_engine_poll(struct gdri_cuda_engine *e)
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
	/* Registered already: no failure, as the address says. */
	gdri_cu.cuMemHostRegister_v2(n->page, NOTICE_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
	if (!gdri_cu.cuMemHostGetDevicePointer_v2(&e->words, n->page, 0))
		e->notice = n;
	gdri_cuda_leave(&s);
}

void *gdri_cuda_engine_scratch(struct gdri_cuda_engine *e, size_t size)
{
	return e->notice && size <= NOTICE_BYTES - SCRATCH_AT ? e->notice->page + SCRATCH_AT : NULL;
}

/* The number of a word that no other thread waits for; -1: there is none. */
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
 * Waits for what has been queued; false where that is not known, of which cuStreamSynchronize then
 * decides. A word that nobody waited for to its end is written before that returns, or never: each use
 * has a value of its own.
 */
static bool see_end(struct gdri_cuda_engine *e)
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

/* No text of a failure: to the caller's caller nothing has failed. */
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
		/*
		 * After a failure too: nothing of the copy may come later. Out of the GPU into pageable
		 * memory it has ended already.
		 */
		if ((r || !locked || !e->notice || !see_end(e)) &&
		    gdri_cu.cuStreamSynchronize(e->stream))
			r = CUDA_ERROR_UNKNOWN;
	}
	gdri_cuda_leave(&s);
	return r == CUDA_SUCCESS;
}

/* Managed memory answers too, with a type of its own choosing; it is not what is asked for. */
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
	CUcontext ctx;

	if (!e)
		return;
	/* A context of a program's own that went with its memory took the stream along. */
	if ((!e->foreign || gdri_cuda_tag_holds(e->known, e->buffer_id)) &&
	    !gdri_cu.cuCtxPushCurrent_v2(e->ctx)) {
		gdri_cu.cuStreamDestroy_v2(e->stream);
		gdri_cu.cuCtxPopCurrent_v2(&ctx);
	}
	free(e);
}

static void after_fork(void)
{
	pthread_mutex_init(&notices_lock, NULL);
	memset(notices, 0, sizeof(notices));
}

GDRI_IN_CHILD(after_fork);
