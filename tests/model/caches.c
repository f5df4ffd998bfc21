// SPDX-License-Identifier: MIT
/* Registration caches: what a get finds, what their statistics say, what their tables hold. */
#include "common/wrap.h"
#include "model/model.h"
#include "unit/cache_table.h"

static barcopy_cache_stats_t stats(const struct cache *c)
{
	barcopy_cache_stats_t s, rest;

	memset(&s, 0xaa, sizeof(s));
	s.struct_size = sizeof(s);
	OK(barcopy_cache_get_stats(c->name, &s));
	rest = s;
	rest.struct_size = rest.hits = rest.misses = rest.evictions = rest.invalidations = 0;
	rest.regions = rest.regions_in_use = rest.bytes_pinned = rest.max_bytes = 0;
	MUST_BE_ZERO(rest);
	return s;
}

static unsigned int uses(const struct cache *c)
{
	unsigned int n = 0;

	for (struct view *v = NULL; (v = next_view(v, -1));)
		n += v->kind == CACHED && &w.cache[v->cache] == c;
	return n;
}

static struct gdri_cache *found(const struct cache *c)
{
	return (struct gdri_cache *)gdri_slots_find(&gdri_caches, (uintptr_t)c->name);
}

/* Views there are no longer known to be found. c NULL: of any cache. */
static void unnote(const struct cache *c, uint64_t low, uint64_t high)
{
	for (struct view *v = NULL; (v = next_view(v, -1));)
		if ((!c || &w.cache[v->cache] == c) && v->va < high && v->va + v->pages > low)
			v->noted = false;
}

/* Does it lie in one GPU page with memory of a region that is in use? Then that serves it. */
static bool shares(const struct view *v)
{
	uint64_t page = v->mem->at & GPU_PAGE_MASK;
	const struct view *u = NULL;

	if (w.machine->gpu || v->mem->kind != PLAIN || v->mem->at + v->mem->size > page + PAGE)
		return false;
	while ((u = next_view(u, v->ctx)) &&
	       !(u->kind == CACHED && u->noted && u->cache == v->cache && u->mem->kind == PLAIN &&
		 page - u->va < u->pages && u->mem->at < page + PAGE &&
		 u->mem->at + u->mem->size > page))
		;
	return u;
}

static void create(struct cache *c)
{
	int rc, wanted = 0;

	*c = (struct cache){ .ctx = (int)below(CONTEXTS) };
	if (!w.g[c->ctx])
		return;
	c->o = (barcopy_cache_options_t){ .struct_size = sizeof(c->o),
					  .validity = below(2),
					  .flags = once_in(3),
					  .max_bytes = below(2) ? 0 : below(100) * (uint64_t)PAGE,
					  .max_regions = below(2) ? 0 : 1 + below(6),
					  .engine_read_min = below(3) ? 0 : 100,
					  .engine_write_min = below(3) ? 0 : 2000 };
	if (once_in(10)) {
		*(below(2) ? &c->o.flags : &c->o.validity) = 2;
		wanted = EINVAL;
	}
	fault_maybe();
	rc = barcopy_cache_create(w.g[c->ctx], &c->o, &c->name);
	say("cache %td of context %d: validity %u, %lu bytes, %lu regions", c - w.cache, c->ctx,
	    c->o.validity, c->o.max_bytes, c->o.max_regions);
	if (!worked("barcopy_cache_create", rc, wanted))
		MUST(!c->name, "a cache that was not created is written");
}

static void add(const struct cache *c, barcopy_stats_t *sum)
{
	barcopy_cache_stats_t s = stats(c);

	sum->cache_hits += s.hits;
	sum->cache_misses += s.misses;
	sum->cache_evictions += s.evictions;
}

void caches_add(int ctx, barcopy_stats_t *sum, uint64_t *regions)
{
	for (int i = 0; i < CACHES; i++)
		if (w.cache[i].name && w.cache[i].ctx == ctx) {
			add(&w.cache[i], sum);
			*regions += stats(&w.cache[i]).regions;
		}
}

static void destroy(struct cache *c)
{
	bool used = uses(c);
	barcopy_cache_t name = c->name;

	say("destroy cache %td", c - w.cache);
	if (!used)
		add(c, &w.want[c->ctx]);
	(void)worked("barcopy_cache_destroy", barcopy_cache_destroy(name), used ? EBUSY : 0);
	if (used)
		return;
	c->name = NULL;
	FAILS(EINVAL, barcopy_cache_destroy(name));
	FAILS(EINVAL, barcopy_cache_trim(name, 0));
	FAILS(EINVAL, barcopy_cache_invalidate(name, 0, SIZE_MAX));
}

/* At most so many idle bytes remain; 0: no idle region. */
static void trim(struct cache *c)
{
	uint64_t most = below(3) ? below(100) * (uint64_t)PAGE : 0, before, after;
	barcopy_cache_stats_t s;

	say("trim cache %td to %lu", c - w.cache, most);
	OK(barcopy_cache_trim(c->name, UINT64_MAX)); /* of freed memory */
	before = stats(c).bytes_pinned;
	OK(barcopy_cache_trim(c->name, most));
	after = stats(c).bytes_pinned;
	OK(barcopy_cache_trim(c->name, 0));
	s = stats(c);
	MUST(after <= s.bytes_pinned + most, "%lu idle bytes", after - s.bytes_pinned);
	MUST(after == before || before > s.bytes_pinned + most, "idle regions are evicted below the limit");
	MUST(s.regions == s.regions_in_use, "%lu regions, %lu in use", s.regions, s.regions_in_use);
}

void step_cache(void)
{
	struct cache *c = &w.cache[below(CACHES)];
	struct mem *m = any_mem();
	unsigned int what = below(10);
	size_t at;

	if (!c->name) {
		create(c);
	} else if (what == 0) {
		destroy(c);
	} else if (what == 1) {
		trim(c);
	} else if (what == 2) {
		say("trim cache %td of freed memory", c - w.cache);
		OK(barcopy_cache_trim(c->name, UINT64_MAX));
	} else if (m) {
		at = below((unsigned int)m->size);
		say("invalidate in cache %td 0x%lx", c - w.cache, m->at + at);
		unnote(c, 0, UINT64_MAX);
		OK(barcopy_cache_invalidate(c->name, m->at + at,
					    below(3) ? 1 + below(300000) : SIZE_MAX));
	}
}

void caches_forget(const struct mem *m)
{
	unnote(NULL, m->at & GPU_PAGE_MASK, m->at + m->size);
	for (int i = 0; i < CACHES; i++)
		if (w.cache[i].name &&
		    (w.cache[i].o.validity == BARCOPY_CACHE_NOTIFIED || once_in(3)))
			OK(barcopy_cache_invalidate(w.cache[i].name, m->at, m->size));
}

/* The same range, while nobody has changed anything: the same region, and no question of a limit. */
static void hit_again(const struct view *v, struct cache *c)
{
	barcopy_cache_stats_t before = stats(c), after;
	bool counted = c->o.validity == BARCOPY_CACHE_NOTIFIED && !w.machine->gpu;
	unsigned long calls = counted ? cuda_hooks.calls(NULL) : 0;
	barcopy_region_t r;

	OK(barcopy_cache_get(c->name, v->region.device_ptr, v->size, &r));
	MUST(!counted || cuda_hooks.calls(NULL) == calls, "a hit by notice calls CUDA");
	after = stats(c);
	MUST(r.cpu_ptr == v->cpu && r.handle.h == v->h.h && r.size == v->size,
	     "another region is hit");
	before.hits++;
	MUST(!memcmp(&before, &after, sizeof(after)), "it is no hit");
	OK(barcopy_cache_put(c->name, &r));
	FAILS(EINVAL, barcopy_cache_put(c->name, &r));
	c->gets++;
}

/* After an invalidation of one of its bytes nobody finds the region; its user keeps it. */
static void missed_then(const struct view *v, struct cache *c)
{
	uint64_t misses = stats(c).misses, invalidations = stats(c).invalidations, more;
	barcopy_region_t r;
	int rc;

	unnote(c, v->va, v->va + v->pages);
	OK(barcopy_cache_invalidate(c->name, v->region.device_ptr + below((unsigned int)v->size),
				    1));
	rc = barcopy_cache_get(c->name, v->region.device_ptr, v->size, &r);
	MUST(!rc || (rc == ENOMEM && w.machine->small), "errno %d", rc);
	more = stats(c).misses - misses;
	MUST(more == 1 || (more && w.machine->small), "an invalidated region is hit");
	MUST(stats(c).invalidations > invalidations, "it is not counted");
	c->gets += more;
	if (!rc)
		OK(barcopy_cache_put(c->name, &r));
}

static struct {
	struct cache *cache;
	uint64_t at, size;
} during;

static void invalidate_during(void)
{
	OK(barcopy_cache_invalidate(during.cache->name, during.at, during.size));
}

/* Now and then: a range is invalidated in the middle of the next call. Whether it will be. */
static bool invalidate_in_the_call(struct cache *c)
{
	const struct mem *m = any_mem();

	if (!m || !once_in(6))
		return false;
	during.cache = c;
	during.at = m->at + below((unsigned int)m->size);
	during.size = 1 + below(300000);
	unnote(c, 0, UINT64_MAX);
	wrap_reset();
	wrap_before(below(2) ? "munmap" : "mmap", invalidate_during);
	return true;
}

/*
 * What is allocated later, in a gap of a range that a notified cache has, gets no SYNC_MEMOPS (barcopy.h): the region
 * does not know it.
 */
static bool is_in_gap(const struct view *v, const struct cache *c)
{
	const struct gdri_entry *e = NULL;

	if (c->o.validity == BARCOPY_CACHE_NOTIFIED && v->mem->kind == PLAIN)
		e = gdri_pages_find(&found(c)->pages, v->addr);
	return e && !gdri_region_part(&e->region, v->addr);
}

void step_get(void)
{
	uint64_t counted, misses;
	int wanted, rc;
	struct view *v = new_view(&wanted);
	struct cache *c;
	barcopy_cache_stats_t s;
	bool before, shared, amid;

	if (!v)
		return;
	before = view_in_force(v);
	v->cache = (int)below(CACHES);
	c = &w.cache[v->cache];
	v->ctx = c->ctx;
	if (c->o.validity != BARCOPY_CACHE_NOTIFIED) /* it finds a range that ends in a gap of a region */
		view_beyond(v, &wanted);
	if (!c->name)
		return;
	shared = !wanted && !c->o.max_bytes && shares(v);
	s = stats(c);
	counted = s.hits + s.misses;
	misses = s.misses;
	amid = invalidate_in_the_call(c);
	if (!amid)
		fault_maybe();
	rc = barcopy_cache_get(c->name, v->addr, v->size, &v->region);
	if (amid)
		wrap_reset();
	say("get 0x%lx + 0x%zx of cache %d", v->addr, v->size, v->cache);
	s = stats(c);
	c->gets += s.hits + s.misses - counted;
	if (!worked("barcopy_cache_get", rc, wanted)) {
		c->dim |= fault_met();
		MUST(!v->region.cpu_ptr && !v->region.entry, "a get that fails writes its output");
		return;
	}
	c->dim |= fault_met();
	/* A get that is short of space is made again, and counted again. */
	if (!fault_met() && !w.machine->small)
		MUST(s.hits + s.misses == counted + 1, "%lu gets are counted",
		     s.hits + s.misses - counted);
	v->h = v->region.handle;
	v->cpu = v->region.cpu_ptr;
	view_made(v, CACHED);
	v->dim = c->dim;
	MUST(v->region.device_ptr == v->addr && v->region.size == v->size, "another range");
	if (v->mem->kind != HOST) {
		v->engine_min[0] = c->o.engine_read_min;
		v->engine_min[1] = c->o.engine_write_min;
	}
	if (is_in_gap(v, c))
		v->mem->dim |= v->dim;
	else
		view_check_sync(v, before, !c->o.flags);
	view_check(v);
	if (c->dim || w.machine->revokes)
		return;
	MUST(!shared || amid || w.machine->small || s.misses == misses, "memory of a page that is pinned misses");
	if (amid)
		return;
	if (s.misses != misses)
		unnote(c, v->va, v->va + v->pages); /* its region has the place of those there */
	v->noted = s.misses != misses;
	if (!below(3))
		hit_again(v, c);
	else if (!below(6))
		missed_then(v, c);
}

/*
 * With its context a cache has ended; what was got of it is given back all the same, also when there is the
 * next one in its place, which keeps its own.
 */
void caches_closed(int ctx)
{
	barcopy_cache_t next = NULL;

	if (w.g[1 - ctx] && below(2))
		OK(barcopy_cache_create(w.g[1 - ctx], NULL, &next));
	for (struct view *v = NULL; (v = next_view(v, ctx));) {
		if (v->kind != CACHED)
			continue;
		FAILS(EINVAL, barcopy_cache_put(w.cache[v->cache].name, &v->region));
		MUST(!v->region.cpu_ptr && !v->region.entry, "a put after the close zeroes");
		view_ended(v);
	}
	if (next)
		OK(barcopy_cache_destroy(next));
	for (int i = 0; i < CACHES; i++)
		if (w.cache[i].ctx == ctx)
			w.cache[i].name = NULL;
}

void caches_check(void)
{
	cache_table_check();
	for (int i = 0; i < CACHES; i++) {
		struct cache *c = &w.cache[i];
		barcopy_cache_stats_t s;

		if (!c->name)
			continue;
		s = stats(c);
		MUST(s.hits + s.misses == c->gets, "cache %d: %lu hits and %lu misses of %lu gets",
		     i, s.hits, s.misses, c->gets);
		MUST(s.regions_in_use <= uses(c) && (!uses(c) || s.regions_in_use),
		     "%lu regions in use", s.regions_in_use);
		if (c->dim)
			continue;
		/* Only regions in use may exceed a limit. */
		if (c->o.max_regions && s.regions > c->o.max_regions)
			MUST(s.regions == s.regions_in_use, "cache %d: %lu idle regions beyond %lu",
			     i, s.regions - s.regions_in_use, c->o.max_regions);
		for (int gpu = 0; c->o.max_bytes && gpu < w.machine->devices; gpu++)
			MUST(s.regions_in_use || gdri_cache_gpu(found(c), gpu)->bytes <= c->o.max_bytes,
			     "cache %d: %lu idle bytes of GPU %d", i, s.bytes_pinned, gpu);
		if (c->o.max_bytes)
			MUST(s.max_bytes == c->o.max_bytes, "the limit is %lu", s.max_bytes);
	}
}
