// SPDX-License-Identifier: MIT
/* Pins, maps, ranges and the library's own memory: what makes a view, what it says, what ends it. */
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

enum { NEVER = 77 }; /* what an output holds that was not written */

struct view *any_view(enum view_kind kind)
{
	unsigned int from = below(VIEWS);

	for (unsigned int i = 0; i < VIEWS; i++) {
		struct view *v = &w.view[(from + i) % VIEWS];

		if (v->kind == kind)
			return v;
	}
	return NULL;
}

struct view *next_view(const struct view *v, int ctx)
{
	for (size_t i = v ? (size_t)(v - w.view) + 1 : 0; i < VIEWS; i++)
		if (w.view[i].kind && (ctx < 0 || w.view[i].ctx == ctx))
			return &w.view[i];
	return NULL;
}

gdr_t of(const struct view *v)
{
	return w.g[v->ctx];
}

struct view *new_view(int *wanted)
{
	struct view *v = any_view(NOTHING);
	struct mem *m = any_mem();
	unsigned int odd = below(60);

	if (!v || !m)
		return NULL;
	*v = (struct view){ .mem = m, .h = { NEVER }, .map = v, .ctx = (int)below(CONTEXTS) };
	v->off = below(3) ? below((unsigned int)m->size) : 0;
	v->size = below(3) ? 1 + below((unsigned int)(m->size - v->off)) : m->size - v->off;
	v->addr = m->at + v->off;
	*wanted = odd < 2 ? EINVAL : odd == 2 ? EOVERFLOW : 0;
	if (odd == 0)
		v->size = 0;
	else if (odd == 1)
		v->addr = 4096;
	else if (odd == 2)
		v->size = SIZE_MAX - below(3);
	return of(v) ? v : NULL;
}

void view_beyond(struct view *v, int *wanted)
{
	if (w.machine->gpu || *wanted || v->mem->kind == CHUNKED ||
	    (v->mem->kind == PLAIN && v->mem->size % 256 == 0) || !once_in(20))
		return;
	v->size = v->mem->size - v->off + 1;
	*wanted = EINVAL;
}

/* A call that was to make a view returned rc: whether it did. */
static bool made(const char *call, struct view *v, int rc, int wanted)
{
	if (worked(call, rc, wanted))
		return true;
	MUST(v->h.h == NEVER && v->map == v, "%s fails and writes an output", call);
	return false;
}

void view_made(struct view *v, enum view_kind kind)
{
	v->kind = kind;
	v->dim = fault_met();
	v->mem->refs++;
}

void view_ended(struct view *v)
{
	unsigned int i = w.n_ended++ % ENDED;

	if (v->kind != CACHED) {
		w.ended[i].h = v->h;
		w.ended[i].ctx = v->ctx;
	}
	mem_put(v->mem);
	v->kind = NOTHING;
}

static uint64_t attribute(const struct view *v, barcopy_handle_attr_t which)
{
	uint64_t value = NEVER;

	OK(barcopy_get_handle_attribute(of(v), v->h, which, &value));
	return value;
}

/* SYNC_MEMOPS of all that the view asked for, as CUDA tells it. */
bool view_in_force(const struct view *v)
{
	bool on;

	if (v->mem->kind != PLAIN)
		return false;
	CU(cuda.cuCtxSetCurrent(w.primary[v->mem->device]));
	on = standin_sync_memops(v->mem->at);
	CU(cuda.cuCtxSetCurrent(w.current));
	return on;
}

void view_check(struct view *v)
{
	bool host = v->mem->kind == HOST, mapped = v->kind != PIN || v->mapped;
	uint64_t addr = v->addr, type = attribute(v, BARCOPY_HANDLE_ATTR_MAPPING_TYPE);
	gdr_info_v2_t info;
	int flag = NEVER;

	memset(&info, 0xaa, sizeof(info));
	OK(gdr_get_info_v2(of(v), v->h, &info));
	MUST(info.mapped == mapped && info.page_size == GPU_PAGE_SIZE, "info: mapped %d, page %u",
	     info.mapped, info.page_size);
	MUST(info.mapping_type == (mapped ? (gdr_mapping_type_t)type : GDR_MAPPING_TYPE_NONE) &&
		     info.wc_mapping == (info.mapping_type == GDR_MAPPING_TYPE_WC),
	     "info: type %d, write-combining %d", info.mapping_type, info.wc_mapping);
	if (!v->mem->freed && v->kind != CACHED)
		MUST(info.va == (addr & GPU_PAGE_MASK) &&
			     info.mapped_size ==
				     ((addr + v->size + GPU_PAGE_OFFSET) & GPU_PAGE_MASK) - info.va,
		     "info: 0x%lx + 0x%lx", info.va, info.mapped_size);
	MUST(attribute(v, BARCOPY_HANDLE_ATTR_BACKEND) ==
		     (host ? BARCOPY_BACKEND_HOST : w.machine->backend),
	     "the backend");
	MUST(type == v->mem->type, "mapping type %lu", type);
	if (host && v->cpu)
		MUST(v->cpu == v->mem->host + v->off, "%p stands for host memory", (void *)v->cpu);
	if (!v->dim) /* without an answer of CUDA the device is not known */
		MUST(attribute(v, BARCOPY_HANDLE_ATTR_DEVICE) == (uint64_t)v->mem->device,
		     "the device");
	MUST(attribute(v, BARCOPY_HANDLE_ATTR_PERSISTENT) == (!host && !w.machine->revokes),
	     "persistent");
	if (host && v->kind == PIN && !v->dim)
		MUST(attribute(v, BARCOPY_HANDLE_ATTR_SYNC_MEMOPS) == 1, "SYNC_MEMOPS of host memory");
	OK(gdr_get_callback_flag(of(v), v->h, &flag));
	MUST(flag == 0 || (flag == 1 && w.machine->revokes && v->mem->freed), "revoked: %d", flag);
	v->va = info.va;
	v->pages = info.mapped_size;
}

/* Whether SYNC_MEMOPS was set, or left alone: for certain if no fault was met. */
void view_check_sync(const struct view *v, bool before, bool asked)
{
	bool says = attribute(v, BARCOPY_HANDLE_ATTR_SYNC_MEMOPS);

	if (v->mem->kind != PLAIN)
		return;
	v->mem->dim |= v->dim;
	MUST(view_in_force(v) || !says, "SYNC_MEMOPS is said to be set");
	MUST(v->mem->dim || view_in_force(v) == (before || asked), "SYNC_MEMOPS is %d", view_in_force(v));
	MUST(v->mem->dim || says == asked, "the handle's SYNC_MEMOPS");
}

void step_pin(void)
{
	int wanted, rc;
	struct view *v = new_view(&wanted);
	uint32_t flags = once_in(20) ? 1u << below(32) | below(2) : 0;
	bool before;

	if (!v)
		return;
	before = view_in_force(v);
	fault_maybe();
	rc = gdr_pin_buffer_v2(of(v), v->addr, v->size, flags, &v->h);
	/* A machine may have no pins by PCIe, whatever a context says of all its backends. */
	if (flags > GDR_PIN_FLAG_FORCE_PCIE || (flags && rc == EINVAL))
		wanted = EINVAL;
	say("pin 0x%lx + 0x%zx of context %d", v->addr, v->size, v->ctx);
	if (!made("gdr_pin_buffer_v2", v, rc, wanted))
		return;
	view_made(v, PIN);
	view_check_sync(v, before, true);
	view_check(v);
}

void step_map(void)
{
	struct view *v = any_view(PIN);
	size_t n, page = (size_t)sysconf(_SC_PAGESIZE);
	int rc, wanted = 0, flags, type;

	if (!v)
		return;
	type = (int)attribute(v, BARCOPY_HANDLE_ATTR_MAPPING_TYPE);
	n = below(2) ? v->pages : 1 + below((unsigned int)v->pages);
	flags = once_in(4) ? (int)below(5) : once_in(20) ? (int)(1u << below(32)) : 0;
	if (once_in(20))
		n = below(2) ? 0 : below(2) ? v->pages + 1 : SIZE_MAX - below(4096);
	wanted = flags & ~3		  ? EINVAL
		 : v->mapped		  ? EAGAIN
		 : !n || n > v->pages	  ? EINVAL
		 : flags && flags != type ? ENOTSUP
					  : 0;
	v->map = v;
	fault_maybe();
	rc = gdr_map_v2(of(v), v->h, &v->map, n, flags);
	say("map %zu of view %td, flags %d", n, v - w.view, flags);
	if (rc && w.machine->revokes && v->mem->freed) {
		(void)worked("gdr_map", rc, rc);
	} else if (rc == EIO && v->lame) {
		(void)worked("gdr_map", rc, EIO);
	} else if (worked("gdr_map", rc, wanted)) {
		v->mapped = (n + page - 1) & ~(page - 1);
		v->cpu = (uint8_t *)v->map + (v->addr - v->va);
		view_check(v);
		return;
	}
	v->lame |= fault_met();
	MUST(v->map == v, "a map that fails writes its output");
	if (v->mapped)
		v->map = v->cpu - (v->addr - v->va);
}

void step_unmap(void)
{
	struct view *v = any_view(PIN);
	size_t n;
	void *at;
	int rc, wanted = 0;

	if (!v)
		return;
	n = v->mapped - below(4096) % (v->mapped + 1);
	at = v->map;
	if (once_in(6)) {
		n = below(2) ? 0 : v->mapped + 1;
		wanted = EINVAL;
	} else if (once_in(6) && v->mem->kind != HOST) {
		at = once_in(2) ? (char *)at + 1 : NULL;
		wanted = EINVAL;
	} else if (once_in(6) && v->mem->kind != HOST) {
		at = (void *)(uintptr_t)(v->va + below(65536)); /* as DPDK does */
	}
	if (!v->mapped || !n)
		wanted = EINVAL;
	fault_maybe();
	rc = gdr_unmap(of(v), v->h, at, n);
	say("unmap %zu at %p of view %td", n, at, v - w.view);
	if (worked("gdr_unmap", rc, v->lame && rc == EIO ? EIO : wanted) || !wanted) {
		v->lame |= rc != 0;
		v->mapped = 0; /* also if it failed */
		v->cpu = NULL;
	}
	view_check(v);
}

static uint64_t pinned(gdr_t ctx)
{
	const barcopy_stats_t s = stats_of(ctx);

	return s.pins - s.unpins;
}

void step_range(void)
{
	uint64_t pins;
	int wanted, rc;
	struct view *v = new_view(&wanted);
	uint32_t odd = once_in(40) ? 4 : 0;
	void *cpu = NULL;
	gdr_mh_t h;
	bool before;

	if (!v)
		return;
	v->flags = odd | (below(3) ? 0 : below(4));
	view_beyond(v, &wanted);
	if (odd)
		wanted = EINVAL;
	else if (v->mem->kind == HOST && v->flags & BARCOPY_MAP_RANGE_READ_ONLY && !wanted)
		wanted = ENOTSUP;
	before = view_in_force(v);
	fault_maybe();
	rc = barcopy_map_range(of(v), v->addr, v->size, v->flags, &v->map, &v->h);
	say("range 0x%lx + 0x%zx of context %d, flags %u", v->addr, v->size, v->ctx, v->flags);
	if (!made("barcopy_map_range", v, rc, wanted))
		return;
	view_made(v, RANGE);
	v->cpu = v->map;
	if (v->flags & BARCOPY_MAP_RANGE_READ_ONLY)
		MUST(unit_touch(v->cpu, true) == SIGSEGV, "a store to a read-only range");
	view_check_sync(v, before, !(v->flags & BARCOPY_MAP_RANGE_NO_SYNC_MEMOPS));
	view_check(v);
	if (fault_met() || below(3))
		return;
	/* The same range shares its pin; where it shares a longer range's for lack of space, it again tries one. */
	pins = pinned(of(v));
	OK(barcopy_map_range(of(v), v->addr, v->size, v->flags, &cpu, &h));
	MUST(cpu == v->cpu && h.h != v->h.h && pinned(of(v)) == pins, "it is not shared");
	(void)worked("barcopy_unmap_range", barcopy_unmap_range(of(v), h), 0);
}

static void own_made(struct view *v)
{
	v->size = v->mem->size;
	v->addr = v->own.device_ptr;
	v->h = v->own.handle;
	v->cpu = v->own.cpu_ptr;
	view_made(v, OWN);
}

void step_own(void)
{
	struct view *v = any_view(NOTHING);
	bool host = w.machine->backend == BARCOPY_BACKEND_HOST;
	size_t size = once_in(20) ? 0 : 1 + below(below(2) ? 3000 : 200000);
	uint32_t flags = below(2) ? 0 : once_in(5) ? below(9) : BARCOPY_MEM_SHAREABLE;
	int device = once_in(20) ? 99 : (int)below((unsigned int)w.machine->devices), wanted = 0;
	struct mem *m;

	if (!v)
		return;
	*v = (struct view){ .h = { NEVER }, .map = v, .ctx = (int)below(CONTEXTS) };
	if (!of(v))
		return;
	if (flags & ~5u || !size || device == 99)
		wanted = EINVAL;
	else if (flags & (host ? BARCOPY_MEM_SHAREABLE : BARCOPY_MEM_CACHED))
		wanted = ENOTSUP;
	fault_maybe();
	say("alloc %zu in context %d, flags %u", size, v->ctx, flags);
	if (!made("barcopy_mem_alloc", v, barcopy_mem_alloc(of(v), device, size, flags, &v->own),
		  wanted))
		return;
	v->shareable = flags & BARCOPY_MEM_SHAREABLE;
	MUST(v->own.size == (v->shareable ? CHUNK : size) || fault_met(), "%zu bytes", v->own.size);
	m = v->mem = calloc(1, sizeof(*m));
	*m = (struct mem){ .kind = host			 ? HOST
				   : v->own.size != size ? CHUNKED
							 : PLAIN,
			   .owned = true,
			   .device = device,
			   .size = v->own.size,
			   .at = v->own.device_ptr,
			   .host = v->own.cpu_ptr,
			   .type = !host   ? device_type()
				   : flags ? GDR_MAPPING_TYPE_CACHING
					   : GDR_MAPPING_TYPE_WC };
	own_made(v);
	read_all(m);
	view_check(v);
}

/* Exports memory of the library, and imports it in any context, or what cannot be. */
void step_share(void)
{
	struct view *v = any_view(OWN), *to = any_view(NOTHING);
	int fd = NEVER, wanted, rc, ctx = (int)below(CONTEXTS);
	uint32_t flags = once_in(8) ? 1 : 0;
	size_t size;

	if (!v || !to || !w.g[ctx] || v->mem->freed || !v->own.device_ptr)
		return;
	if ((v->mem->kind == CHUNKED) != v->shareable)
		return;
	wanted = v->shareable ? 0 : ENOTSUP;
	fault_maybe();
	rc = barcopy_mem_export(of(v), &v->own, &fd);
	say("export view %td", v - w.view);
	if (!worked("barcopy_mem_export", rc, wanted)) {
		MUST(fd == NEVER, "an export that fails writes its output");
		return;
	}
	if (w.machine->backend ==
	    BARCOPY_BACKEND_GDRDRV) { /* the stand-in refuses imported memory */
		close(fd);
		return;
	}
	*to = (struct view){ .h = { NEVER }, .map = to, .ctx = ctx, .mem = v->mem };
	size = once_in(8) ? 0 : v->mem->size;
	fault_maybe();
	rc = barcopy_mem_import(w.g[ctx], v->mem->device, fd, size, flags, &to->own);
	say("import it in context %d, flags %u", ctx, flags);
	if (made("barcopy_mem_import", to, rc, flags || !size ? EINVAL : 0))
		own_made(to);
	close(fd);
}

static int end_call(struct view *v, const char **name)
{
	switch (v->kind) {
	case PIN:
		*name = "gdr_unpin_buffer";
		return gdr_unpin_buffer(of(v), v->h);
	case RANGE:
		*name = "barcopy_unmap_range";
		return barcopy_unmap_range(of(v), v->h);
	case OWN:
		*name = "barcopy_mem_free";
		return barcopy_mem_free(of(v), &v->own);
	default:
		*name = "barcopy_cache_put";
		return barcopy_cache_put(w.cache[v->cache].name, &v->region);
	}
}

bool is_owner(const struct view *v)
{
	return v->kind == OWN && v->mem->owned && v->own.device_ptr == v->mem->at;
}

void owner_ended(struct mem *m)
{
	m->freed = true;
	for (struct view *v = NULL; (v = next_view(v, -1));) /* it may not have been freed */
		v->dim |= fault_met() && v->mem == m;
}

static bool may_end(const struct view *v)
{
	return !(v->kind == OWN && v->mem->kind == HOST && v->mem->refs > 1);
}

static void end_with(struct view *v, bool fault)
{
	bool owner = is_owner(v); /* the call zeroes what tells it */
	const char *name;
	int rc;

	if (owner) {
		caches_forget(v->mem);
		gpu_check_some(v->mem);
	}
	say("end view %td of context %d", v - w.view, v->ctx);
	if (fault)
		fault_maybe();
	rc = end_call(v, &name);
	(void)worked(name, rc, v->lame && rc == EIO ? EIO : 0);
	if (v->kind == CACHED && !rc)
		MUST(!v->region.cpu_ptr && !v->region.handle.h && !v->region.entry, "a put zeroes");
	if (owner)
		owner_ended(v->mem);
	if (v->kind != CACHED)
		copies_refused(v->h, v->cpu, EINVAL);
	view_ended(v);
}

void view_end(struct view *v)
{
	end_with(v, false);
}

void step_end(void)
{
	struct view *v = &w.view[below(VIEWS)];

	if (v->kind && may_end(v))
		end_with(v, true);
}

/* What must be refused, and must change nothing. */
void step_refused(void)
{
	static const barcopy_handle_attr_t unknown[] = { 0, BARCOPY_HANDLE_ATTR_MAX, INT_MAX };
	struct view *v = &w.view[below(VIEWS)];
	unsigned int i = below(ENDED);
	gdr_t other = w.g[1 - v->ctx];
	gdr_mh_t h = w.ended[i].h;
	barcopy_mem_t own = { .handle = v->h };
	uint64_t value = NEVER;
	gdr_info_v2_t info;
	void *map = v;

	if (h.h && w.g[w.ended[i].ctx]) {
		copies_refused(h, &value, EINVAL);
		FAILS(EINVAL, gdr_unpin_buffer(w.g[w.ended[i].ctx], h));
		FAILS(EINVAL, barcopy_unmap_range(w.g[w.ended[i].ctx], h));
		FAILS(EINVAL, gdr_get_info_v2(w.g[w.ended[i].ctx], h, &info));
	}
	if (!v->kind)
		return;
	say("refused: view %td", v - w.view);
	if (other) {
		FAILS(EINVAL, gdr_unpin_buffer(other, v->h));
		FAILS(EINVAL, gdr_get_info_v2(other, v->h, &info));
		FAILS(EINVAL, gdr_map(other, v->h, &map, 1));
	}
	if (v->kind != PIN) {
		FAILS(EINVAL, gdr_unpin_buffer(of(v), v->h));
		FAILS(EINVAL, gdr_unmap(of(v), v->h, v->cpu, v->size));
		FAILS(EAGAIN, gdr_map(of(v), v->h, &map, 1));
	}
	if (v->kind != RANGE)
		FAILS(EINVAL, barcopy_unmap_range(of(v), v->h));
	if (v->kind != OWN)
		FAILS(EINVAL, barcopy_mem_free(of(v), &own));
	FAILS(EINVAL, barcopy_get_handle_attribute(of(v), v->h, unknown[below(3)], &value));
	FAILS(EINVAL, barcopy_get_handle_attribute(of(v), v->h, 1, NULL));
	FAILS(EINVAL, gdr_map(of(v), v->h, NULL, 1));
	FAILS(EINVAL, gdr_get_callback_flag(of(v), v->h, NULL));
	FAILS(EINVAL, gdr_get_info_v2(of(v), v->h, NULL));
	if (v->kind == PIN && !v->mapped)
		copies_refused(v->h, &value, EINVAL);
	MUST(value == NEVER && map == v, "an output was written");
}
