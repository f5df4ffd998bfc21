// SPDX-License-Identifier: MIT
/* Contexts that come and go, forked children, and what the statistics count. */
#include <limits.h>

#include "model/model.h"

static bool has_host_memory_of(int ctx)
{
	for (struct view *v = NULL; (v = next_view(v, ctx));)
		if (v->kind == OWN && v->mem->kind == HOST && v->mem->refs > 1)
			return true;
	return false;
}

static void opened(int ctx, bool fault)
{
	gdr_t made;

	if (fault)
		fault_maybe();
	errno = 0;
	made = barcopy_open(BARCOPY_OPEN_ANY);
	say("open context %d", ctx);
	if (!worked("gdr_open", made ? 0 : errno, 0))
		return;
	if (fault_met()) { /* it may be without a backend */
		OK(gdr_close(made));
		return;
	}
	w.g[ctx] = made;
	w.want[ctx] = (barcopy_stats_t){ .struct_size = sizeof(barcopy_stats_t) };
}

void step_open(void)
{
	static const int unknown[] = { 0, -1, GDR_ATTR_MAX, 1000, INT_MIN };
	int ctx = (int)below(CONTEXTS), attribute = 77, odd = unknown[below(COUNT(unknown))];

	if (!w.g[ctx])
		opened(ctx, true);
	if (!w.g[ctx])
		return;
	FAILS(EINVAL, ERRNO_OF(barcopy_open(2)));
	OK(gdr_get_attribute(w.g[ctx], GDR_ATTR_USE_PERSISTENT_MAPPING, &attribute));
	if (w.machine->backend != BARCOPY_BACKEND_HOST)
		MUST(attribute == !w.machine->revokes, "persistent: %d", attribute);
	attribute = 77;
	FAILS(EINVAL, gdr_get_attribute(w.g[ctx], (gdr_attr_t)odd, &attribute));
	FAILS(EINVAL, gdr_get_attribute(w.g[ctx], 1, NULL));
	MUST(attribute == 77, "an attribute that is refused is written");
}

static void add(barcopy_stats_t *to, const barcopy_stats_t *from)
{
	for (size_t i = 0; i < sizeof(*to) / 8; i++)
		((uint64_t *)to)[i] += ((const uint64_t *)from)[i];
}

/* The close ends all that the context has. */
static void closed(int ctx, bool fault)
{
	uint64_t ignored = 0;
	gdr_t name = w.g[ctx];
	int rc, value = 0;

	for (struct view *v = NULL; (v = next_view(v, ctx));)
		if (is_owner(v))
			caches_forget(v->mem);
	caches_add(ctx, &w.want[ctx], &ignored);
	add(&w.want_closed, &w.want[ctx]);
	if (fault)
		fault_maybe();
	rc = gdr_close(name);
	say("close context %d", ctx);
	(void)worked("gdr_close", rc, rc == EIO ? EIO : 0); /* a pin that could not be unmapped */
	w.g[ctx] = NULL;
	FAILS(EINVAL, gdr_close(name));
	FAILS(EINVAL, gdr_get_attribute(name, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
	caches_closed(ctx);
	for (struct view *v = NULL; (v = next_view(v, ctx));) {
		copies_refused(v->h, v->cpu, EINVAL);
		if (is_owner(v))
			owner_ended(v->mem);
		view_ended(v);
	}
}

void step_close(void)
{
	int ctx = (int)below(CONTEXTS);

	if (w.g[ctx] && once_in(3) && !has_host_memory_of(ctx))
		closed(ctx, true);
}

/* ---- a forked child ---------------------------------------------------------------------------- */

static void cache_of_the_parent(barcopy_cache_t name)
{
	barcopy_cache_stats_t s = { .struct_size = sizeof(s) };
	barcopy_region_t region;

	FAILS(EACCES, barcopy_cache_get(name, 4096, 8, &region));
	FAILS(EACCES, barcopy_cache_invalidate(name, 4096, 8));
	FAILS(EACCES, barcopy_cache_trim(name, 0));
	FAILS(EACCES, barcopy_cache_get_stats(name, &s));
	FAILS(EACCES, barcopy_cache_destroy(name));
	for (struct view *v = NULL; (v = next_view(v, -1));)
		if (v->kind == CACHED && w.cache[v->cache].name == name)
			FAILS(EACCES, barcopy_cache_put(name, &v->region));
}

static int child(void *unused)
{
	barcopy_stats_t s = { .struct_size = sizeof(s) };
	gdr_mh_t h = { 77 };
	barcopy_mem_t mem;
	void *map = NULL;
	int flag = 77;
	gdr_t own;

	(void)unused;
	for (struct view *v = NULL; (v = next_view(v, -1));) {
		copies_refused(v->h, v->cpu, EACCES);
		FAILS(EACCES, gdr_pin_buffer_v2(of(v), v->addr, 1, 0, &h));
		FAILS(EACCES, gdr_map(of(v), v->h, &map, 1));
		FAILS(EACCES, gdr_unmap(of(v), v->h, v->map, 1));
		FAILS(EACCES, gdr_get_callback_flag(of(v), v->h, &flag));
		FAILS(EACCES, gdr_unpin_buffer(of(v), v->h));
		FAILS(EACCES, barcopy_map_range(of(v), v->addr, 1, 0, &map, &h));
		FAILS(EACCES, barcopy_unmap_range(of(v), v->h));
		FAILS(EACCES, barcopy_mem_alloc(of(v), 0, 1, 0, &mem));
		FAILS(EACCES, barcopy_mem_export(of(v), &v->own, &flag));
		FAILS(EACCES, barcopy_mem_free(of(v), &v->own));
		FAILS(EACCES, barcopy_set_copy_options(v->h, NULL));
		FAILS(EACCES, barcopy_get_stats(of(v), &s));
	}
	for (int i = 0; i < CACHES; i++)
		if (w.cache[i].name)
			cache_of_the_parent(w.cache[i].name);
	MUST(h.h == 77 && flag == 77 && !map, "an output was written");
	own = barcopy_open(BARCOPY_OPEN_ANY);
	ck_assert_msg(own != NULL, "%s", barcopy_last_error());
	for (int i = 0; i < CONTEXTS; i++)
		if (w.g[i])
			FAILS(EACCES, gdr_close(w.g[i]));
	/* Its own context does not reach the parent's handles. */
	for (struct view *v = NULL; (v = next_view(v, -1));) {
		FAILS(EACCES, gdr_map(own, v->h, &map, 1));
		FAILS(EACCES, gdr_unpin_buffer(own, v->h));
	}
	MUST(!map, "an output was written");
	OK(barcopy_get_stats(NULL, &s));
	ck_assert(!s.pins && !s.maps && !s.copies_to && !s.puts && !s.cache_misses);
	OK(gdr_close(own));
	return 0;
}

void step_fork(void)
{
	int status;

	if (below(3))
		return;
	say("fork");
	status = unit_in_child(child, NULL);
	MUST(!status, "a child's status is %d", status);
}

/* ---- statistics -------------------------------------------------------------------------------- */

/* Copies and words only where they are counted. */
static void check_counts(const barcopy_stats_t *s, const barcopy_stats_t *want)
{
	barcopy_stats_t rest = *s;
	uint64_t on = w.counted;

#define IS(name, times)                                                                  \
	MUST(s->name == (times)*want->name, #name ": %lu, not %lu", s->name, want->name); \
	rest.name = 0
	MUST(s->flags == on, "flags %lu", s->flags);
	IS(cache_hits, 1);
	IS(cache_misses, 1);
	IS(cache_evictions, 1);
	IS(copies_to, on);
	IS(bytes_to, on);
	IS(copies_from, on);
	IS(bytes_from, on);
	IS(puts, on);
	IS(gets, on);
	IS(waits, on);
#undef IS
	/* Counted elsewhere: check_context(), views.c, the tests of the copy engine. */
	rest.struct_size = rest.flags = rest.pins = rest.unpins = rest.maps = rest.unmaps = 0;
	rest.revoked = rest.engine_copies = rest.engine_fallbacks = 0;
	MUST_BE_ZERO(rest);
}

static void check_context(int ctx)
{
	barcopy_stats_t s = stats_of(w.g[ctx]), want = w.want[ctx];
	uint64_t pins = s.pins - s.unpins, maps = s.maps - s.unmaps, cached = 0;
	unsigned int ranges = 0;

	caches_add(ctx, &want, &cached);
	for (struct view *v = NULL; (v = next_view(v, ctx));) {
		ranges += v->kind == RANGE;
		pins -= v->kind == PIN || v->kind == OWN;
		maps -= v->kind == OWN || (v->kind == PIN && v->mapped);
	}
	pins -= cached;
	maps -= cached;
	/* What is left is what the ranges share. */
	MUST(pins == maps && pins <= ranges && (pins || !ranges),
	     "%ld pins and %ld maps of %u ranges", (long)pins, (long)maps, ranges);
	check_counts(&s, &want);
}

void stats_check(void)
{
	barcopy_stats_t all = stats_of(NULL), want = w.want_closed;
	uint64_t regions = 0;
	unsigned int handles = 0;

	for (int ctx = 0; ctx < CONTEXTS; ctx++) {
		if (!w.g[ctx])
			continue;
		check_context(ctx);
		add(&want, &w.want[ctx]);
		caches_add(ctx, &want, &regions);
	}
	check_counts(&all, &want);
	for (struct view *v = NULL; (v = next_view(v, -1));)
		handles += v->kind != CACHED;
	left_check_slots(handles + (unsigned int)regions);
}

void everything_ends(void)
{
	barcopy_stats_t s;

	say("everything ends");
	for (struct view *v = NULL; (v = next_view(v, -1));)
		if (v->kind != OWN && below(3))
			view_end(v);
	for (struct view *v = NULL; (v = next_view(v, -1));)
		if (v->kind != OWN && v->mem->kind == HOST) /* may be of the other context */
			view_end(v);
	for (int ctx = 0; ctx < CONTEXTS; ctx++)
		if (w.g[ctx])
			closed(ctx, false);
	free_all();
	s = stats_of(NULL);
	MUST(s.pins == s.unpins && s.maps == s.unmaps, "%lu pins, %lu unpins; %lu maps, %lu unmaps",
	     s.pins, s.unpins, s.maps, s.unmaps);
	left_check();
	for (int ctx = 0; ctx < CONTEXTS; ctx++)
		opened(ctx, false);
}
