/* SPDX-License-Identifier: MIT */
/* Creates and destroys what queues and ports have in common. */
#include "queue/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cache/cache.h"
#include "copy/impl.h"
#include "core/ctx.h"
#include "core/handle.h"
#include "core/mem.h"
#include "cuda/cuda.h"

int gdri_ring_refuse(const void *name, const struct gdri_ring_kind *kind)
{
	return gdri_slots_fail(kind->table, (uintptr_t)name, kind->what);
}

/* ---- create ---------------------------------------------------------------------------------- */

static int map_device(struct gdri_ring *r, int device)
{
	static const char zeroes[4096];
	size_t size = r->kind->control + r->lines * r->kind->gpu_line;
	barcopy_mem_t mem;
	struct gdri_window w;
	int rc = gdri_caches_alloc(r->ctx, device, size, GDRI_MEM_STAYS, &mem);

	if (rc)
		return rc;
	r->control = mem.cpu_ptr;
	r->gpu = mem.device_ptr;
	r->handle = mem.handle;
	rc = gdri_handle_window(mem.handle, GDRI_WRITES, &w);
	if (rc)
		return rc;
	r->plan = w.plan;
	for (size_t at = 0; at < size; at += sizeof(zeroes))
		gdri_copy_to(w.plan, r->control + at, zeroes,
			     size - at < sizeof(zeroes) ? size - at : sizeof(zeroes));
	gdri_flush_word(w.plan, r->control);
	return 0;
}

/* Frees what create has made of it. Returns the first failure. */
static int free_ring(struct gdri_ring *r)
{
	struct gdri_handle *handle;
	int rc = 0;

	if (r->control && !gdri_handle_lock(r->ctx, r->handle, &handle))
		rc = gdri_handle_release_locked(handle);
	if (r->pages)
		gdri_cuda_give_pages(r->pages);
	free(r->arrays);
	gdri_slots_free(r->kind->table, &r->slot);
	return rc;
}

int gdri_ring_create(gdr_t g, const struct gdri_ring_kind *kind, int device, uint32_t lines,
		     const void *options, void **name)
{
	struct gdri_first first = { 0 };
	struct gdri_ctx *ctx;
	struct gdri_ring *r;
	int rc;

	lines = lines ?: kind->lines;
	if (lines < GDRI_RING_MIN || lines > GDRI_RING_MAX || lines & (lines - 1))
		return gdri_fail(EINVAL, "lines is %u: %s has a power of two from %d to %d", lines,
				 kind->what, GDRI_RING_MIN, GDRI_RING_MAX);
	rc = gdri_ctx_get(g, &ctx);
	if (rc)
		return rc;
	r = (struct gdri_ring *)gdri_slots_new(kind->table, kind->object, NULL);
	if (!r)
		return gdri_ctx_put(ctx, gdri_fail(ENOMEM, "no memory for %s", kind->what));
	memset((char *)r + offsetof(struct gdri_ring, control), 0,
	       kind->object - offsetof(struct gdri_ring, control));
	r->kind = kind;
	r->ctx = ctx;
	r->lines = lines;
	r->shift = (uint32_t)__builtin_ctz(lines);
	r->arrays = calloc(lines, kind->array);
	rc = kind->array && !r->arrays ? gdri_fail(ENOMEM, "no memory for %s", kind->what)
				       : map_device(r, device);
	if (!rc)
		rc = gdri_cuda_take_pages(device, kind->state + lines * GDRI_LINE, &r->pages);
	if (rc) {
		gdri_first_note(&first, rc);
		gdri_first_note(&first, free_ring(r));
		return gdri_ctx_put(ctx, gdri_first_failure(&first));
	}
	r->incoming = (char *)r->pages->host + kind->state;
	kind->set_up(r, options);
	atomic_store_explicit(&r->g, g, memory_order_release);
	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->rings, r, link);
	pthread_mutex_unlock(&ctx->lock);
	*name = (void *)(uintptr_t)gdri_slot_publish(&r->slot);
	return gdri_ctx_put(ctx, 0);
}

int gdri_ring_stop(const struct gdri_ring_kind *kind, const void *name, uint32_t flags,
		   uint32_t known)
{
	struct gdri_ring *r = gdri_ring_find(kind->table, name);
	int rc = r ? gdri_check_flags(flags, known, "a stop") : gdri_ring_refuse(name, kind);

	if (!rc)
		kind->stop(r, flags);
	return rc;
}

/* ---- destroy --------------------------------------------------------------------------------- */

/* Nobody finds it any more, and kernels that still run are told to leave. */
static void retire(struct gdri_ring *r)
{
	gdri_slot_retire(&r->slot);
	if (gdri_cuda_context_works(r->pages->context)) /* else the mapping may be gone */
		r->kind->stop(r, BARCOPY_QUEUE_ABORT | GDRI_RING_END);
	pthread_mutex_lock(&r->ctx->lock);
	LIST_REMOVE(r, link);
	pthread_mutex_unlock(&r->ctx->lock);
}

int gdri_ring_destroy(const struct gdri_ring_kind *kind, const void *name)
{
	struct gdri_ring *r = gdri_ring_find(kind->table, name);
	struct gdri_ctx *ctx;
	int rc = r ? gdri_ctx_get(atomic_load_explicit(&r->g, memory_order_acquire), &ctx)
		   : gdri_ring_refuse(name, kind);

	if (rc)
		return rc;
	if (!gdri_slot_is(&r->slot, (uintptr_t)name))
		return gdri_ctx_put(ctx, gdri_ring_refuse(name, kind));
	retire(r);
	rc = free_ring(r);
	atomic_fetch_add(&ctx->unpinned, 1);
	return gdri_ctx_put(ctx, rc);
}

/*
 * Takes the GPU memory from the context and leaves it allocated: to free what a kernel uses would
 * wait for the kernel or break it.
 */
static void abandon(struct gdri_ring *r)
{
	struct gdri_handle *handle;

	if (gdri_handle_lock(r->ctx, r->handle, &handle))
		return;
	pthread_mutex_lock(&r->ctx->lock);
	LIST_REMOVE(handle, link);
	pthread_mutex_unlock(&r->ctx->lock);
	gdri_slot_retire(&handle->slot);
	pthread_mutex_unlock(&handle->lock);
}

void gdri_rings_end(struct gdri_ctx *ctx)
{
	struct gdri_ring *r;

	while ((r = LIST_FIRST(&ctx->rings))) {
		gdri_log(GDRI_LOG_ERROR, "%s was not destroyed: its memory stays allocated",
			 r->kind->what);
		retire(r);
		abandon(r);
		/* The object and its arrays stay as well: a receiver may be in a call. */
	}
}
