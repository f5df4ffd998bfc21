/* SPDX-License-Identifier: MIT */
/* See ctx.h. */
#include "core/ctx.h"

#include <string.h>

#include "base/inside.h"

static void init_ctx(struct gdri_slot *slot)
{
	struct gdri_ctx *ctx = (struct gdri_ctx *)slot;

	pthread_mutex_init(&ctx->lock, NULL);
	pthread_cond_init(&ctx->idle, NULL);
	pthread_mutex_init(&ctx->ranges_lock, NULL);
}

GDRI_SLOTS(static, contexts);

int gdri_ctx_open(uint32_t flags, gdr_t *g)
{
	struct gdri_first first = { 0 };
	struct gdri_ctx *ctx;
	int rc;

	if (flags & ~(uint32_t)BARCOPY_OPEN_ANY)
		return gdri_fail(EINVAL, "unknown bits in flags 0x%x of barcopy_open", flags);
	rc = gdri_process_enter();
	if (rc)
		return rc;
	ctx = (struct gdri_ctx *)gdri_slots_new(&contexts, sizeof(*ctx), init_ctx);
	if (!ctx)
		return gdri_fail(ENOMEM, "no memory for a context");

	pthread_mutex_lock(&ctx->lock);
	memset((char *)ctx + offsetof(struct gdri_ctx, calls), 0,
	       sizeof(*ctx) - offsetof(struct gdri_ctx, calls));
	ctx->backends.counters = &ctx->counters;
	pthread_mutex_unlock(&ctx->lock);
	gdri_cuda_hold();
	rc = gdri_backends_open(&ctx->backends, flags & BARCOPY_OPEN_ANY);
	if (rc) {
		gdri_first_note(&first, rc);
		gdri_first_note(&first, gdri_cuda_drop());
		gdri_slots_free(&contexts, &ctx->slot);
		return gdri_first_failure(&first);
	}
	*g = (gdr_t)(uintptr_t)gdri_slot_publish(&ctx->slot);
	return 0;
}

/* The context with its lock held. */
static int find_locked(gdr_t g, struct gdri_ctx **out)
{
	struct gdri_ctx *ctx = (struct gdri_ctx *)gdri_slots_find_own(&contexts, (uintptr_t)g);

	if (ctx) {
		pthread_mutex_lock(&ctx->lock);
		*out = ctx;
		if (gdri_slot_is(&ctx->slot, (uintptr_t)g))
			return 0;
		pthread_mutex_unlock(&ctx->lock);
	}
	return gdri_slots_fail(&contexts, (uintptr_t)g, "an open context");
}

int gdri_ctx_get(gdr_t g, struct gdri_ctx **ctx)
{
	int rc = find_locked(g, ctx);

	if (rc)
		return rc;
	(*ctx)->calls++;
	pthread_mutex_unlock(&(*ctx)->lock);
	gdri_inside_enter();
	return 0;
}

int gdri_ctx_put(struct gdri_ctx *ctx, int rc)
{
	pthread_mutex_lock(&ctx->lock);
	if (!--ctx->calls)
		pthread_cond_signal(&ctx->idle);
	pthread_mutex_unlock(&ctx->lock);
	gdri_inside_leave();
	return rc;
}

int gdri_ctx_retire(gdr_t g, struct gdri_ctx **ctx)
{
	int rc = find_locked(g, ctx);

	if (rc)
		return rc;
	gdri_slot_retire(&(*ctx)->slot);
	while ((*ctx)->calls)
		pthread_cond_wait(&(*ctx)->idle, &(*ctx)->lock);
	pthread_mutex_unlock(&(*ctx)->lock);
	return 0;
}

int gdri_ctx_free(struct gdri_ctx *ctx)
{
	int rc;

	gdri_backends_close(&ctx->backends);
	rc = gdri_cuda_drop();
	gdri_slots_free(&contexts, &ctx->slot);
	return rc;
}
