// SPDX-License-Identifier: MIT
/* Copies, words and vectors through any view, against the bytes of its memory. */
#include <string.h>

#include "model/model.h"

enum { MOST = 70000, PIECES = 8 };

static uint8_t buf[MOST];

/* Some bytes of a view that copies may touch. */
struct place {
	struct view *v;
	size_t at, size; /* in the view */
	uint8_t *cpu, *bytes; /* the mapping, and what it must hold */
	bool read_only;
};

static bool any_place(struct place *p, size_t most)
{
	struct view *v = p->v = &w.view[below(VIEWS)];
	size_t room = v->size, before;

	if (!v->kind || !v->cpu)
		return false;
	/* Freed pages stay as they are; those that small allocations share may serve others. */
	if (v->mem->freed && (w.machine->revokes || v->mem->kind != CHUNKED))
		return false;
	if (v->kind == PIN) { /* the mapping may be shorter than the pin */
		before = (size_t)(v->cpu - (uint8_t *)v->map);
		if (v->mapped <= before)
			return false;
		room = v->mapped - before < room ? v->mapped - before : room;
	}
	p->at = below((unsigned int)room);
	p->size = 1 + below((unsigned int)most);
	p->size = p->size < room - p->at ? p->size : room - p->at;
	p->cpu = v->cpu + p->at;
	p->bytes = v->mem->bytes + v->off + p->at;
	p->read_only = v->kind == RANGE && v->flags & BARCOPY_MAP_RANGE_READ_ONLY;
	return true;
}

static void count(const struct place *p, bool to, size_t bytes)
{
	barcopy_stats_t *s = &w.want[p->v->ctx];

	*(to ? &s->copies_to : &s->copies_from) += 1;
	*(to ? &s->bytes_to : &s->bytes_from) += bytes;
}

/* The bytes that the CPU has written are where the GPU has them. */
static void written(const struct place *p)
{
	gpu_check(p->v->mem, p->v->off + p->at, p->size);
}

/* Around a copy: the engine made it, or gave it back, if it is as large as the handle's option. */
static void check_engine(const struct place *p, bool to, barcopy_stats_t before)
{
	barcopy_stats_t now = stats_of(of(p->v));
	uint64_t made = now.engine_copies - before.engine_copies;
	uint64_t left = now.engine_fallbacks - before.engine_fallbacks;
	const struct view *v = p->v;
	bool imported = v->kind == OWN && !is_owner(v);
	bool large = v->engine_min[to] && p->size >= v->engine_min[to];

	if (v->dim) {
		MUST(made + left <= large, "%lu copies of the engine", made + left);
		return;
	}
	MUST(made + left == large, "%lu copies of the engine, %lu back, of %zu bytes", made, left,
	     p->size);
	MUST(!large || made == (!v->mem->freed || imported), "the engine copies %lu", made);
}

static void refused(const struct place *p)
{
	const struct view *v = p->v;
	uint8_t *begin = v->cpu, *end = begin + v->size;

	if (v->kind == PIN) { /* all that is mapped; of host memory the allocation */
		begin = v->mem->kind == HOST ? v->mem->host : v->map;
		end = begin + (v->mem->kind == HOST ? v->mem->size : v->mapped);
	}
	FAILS(EINVAL, gdr_copy_from_mapping(v->h, NULL, p->cpu, 1));
	FAILS(EINVAL, gdr_copy_to_mapping(v->h, p->cpu, NULL, 1));
	OK(gdr_copy_to_mapping(v->h, p->cpu, NULL, 0));
	FAILS(EINVAL, gdr_copy_from_mapping(v->h, buf, buf, 1));
	if (v->kind != CACHED) {
		FAILS(EINVAL, gdr_copy_from_mapping(v->h, buf, p->cpu, (size_t)(end - p->cpu) + 1));
		FAILS(EINVAL, gdr_copy_from_mapping(v->h, buf, begin - 1, 2));
		FAILS(EINVAL, gdr_copy_from_mapping(v->h, buf, end, 1));
		FAILS(EINVAL, gdr_copy_from_mapping(v->h, buf, p->cpu, SIZE_MAX));
		OK(gdr_copy_from_mapping(v->h, buf, end - 1, 1));
		count(p, false, 1);
	}
}

void step_copy(void)
{
	barcopy_stats_t before;
	struct place p;

	if (!any_place(&p, once_in(8) ? MOST : below(2) ? 4000 : 64))
		return;
	say("copy %zu bytes of view %td", p.size, p.v - w.view);
	before = stats_of(of(p.v));
	if (once_in(10)) {
		refused(&p);
	} else if (below(2)) {
		gpu_write(p.v->mem, p.v->off + p.at, p.size);
		OK(gdr_copy_from_mapping(p.v->h, buf, p.cpu, p.size));
		count(&p, false, p.size);
		MUST(!memcmp(buf, p.bytes, p.size), "other bytes are read");
		check_engine(&p, false, before);
	} else {
		memcpy(buf, p.bytes, p.size);
		fill(buf, p.size);
		FAILS(p.read_only ? EACCES : 0, gdr_copy_to_mapping(p.v->h, p.cpu, buf, p.size));
		if (p.read_only) {
			SAYS("read-only");
			return;
		}
		count(&p, true, p.size);
		memcpy(p.bytes, buf, p.size);
		written(&p);
		check_engine(&p, true, before);
	}
}

static void put_word(const struct place *p, uint64_t value)
{
	unsigned int how = below(5);
	gdr_mh_t h = p->v->h;
	uint8_t line[BARCOPY_LINE];
	size_t size = how < 2 ? 4 : how < 4 ? 8 : sizeof(line);
	int rc, wanted = (uintptr_t)p->cpu % size ? EINVAL
			 : p->size < size	  ? -1
			 : p->read_only		  ? EACCES
						  : 0;

	if (wanted == -1) /* it may be inside the mapping, and not inside the view */
		return;
	memset(line, (int)value, sizeof(line));
	memcpy(line, &value, sizeof(value));
	if (how == 4 && !wanted)
		FAILS(EINVAL, barcopy_post_line(h, p->cpu, NULL));
	rc = how == 0	? barcopy_put32(h, p->cpu, (uint32_t)value)
	     : how == 1 ? barcopy_post32(h, p->cpu, (uint32_t)value)
	     : how == 2 ? barcopy_put64(h, p->cpu, value)
	     : how == 3 ? barcopy_post64(h, p->cpu, value)
			: barcopy_post_line(h, p->cpu, line);
	MUST(rc == wanted || (rc && wanted && p->read_only), "word %u: errno %d, not %d", how, rc,
	     wanted);
	if (rc)
		return;
	OK(barcopy_flush(h));
	w.want[p->v->ctx].puts++;
	memcpy(p->bytes, line, size);
	gpu_check(p->v->mem, p->v->off + p->at, size);
}

static bool holds(uint64_t x, barcopy_cmp_t cmp, uint64_t y)
{
	const bool is[] = { [BARCOPY_CMP_EQ] = x == y,
			    [BARCOPY_CMP_NE] = x != y,
			    [BARCOPY_CMP_LT] =
				    x<y, [BARCOPY_CMP_LE] = x <= y, [BARCOPY_CMP_GT] = x> y,
			    [BARCOPY_CMP_GE] = x >= y };

	return is[cmp];
}

static void look_at_word(const struct place *p)
{
	barcopy_cmp_t cmp = 1 + below(7);
	size_t size = below(2) ? 4 : 8;
	uint64_t is = 0, seen = 0, other;
	uint32_t seen32 = 0;
	int rc, wanted = (uintptr_t)p->cpu % size ? EINVAL : 0;

	if (p->size < size)
		return;
	gpu_write(p->v->mem, p->v->off + p->at, size);
	memcpy(&is, p->bytes, size);
	rc = size == 4 ? barcopy_get32(p->v->h, p->cpu, &seen32)
		       : barcopy_get64(p->v->h, p->cpu, &seen);
	MUST(rc == wanted, "errno %d, not %d", rc, wanted);
	MUST(rc || (size == 4 ? seen32 : seen) == is, "another word is read");
	w.want[p->v->ctx].gets += !rc;
	other = is + below(3) - 1;
	other = size == 4 ? (uint32_t)other : other;
	if (!rc)
		wanted = cmp > BARCOPY_CMP_GE ? EINVAL : holds(is, cmp, other) ? 0 : ETIMEDOUT;
	rc = size == 4 ? barcopy_wait32(p->v->h, p->cpu, cmp, (uint32_t)other, 0)
		       : barcopy_wait64(p->v->h, p->cpu, cmp, other, 0);
	MUST(rc == wanted, "a wait by %d: errno %d, not %d", cmp, rc, wanted);
	w.want[p->v->ctx].waits += !rc;
	OK(barcopy_flush(p->v->h));
	OK(barcopy_fence(p->v->h, 1 + below(4)));
	FAILS(EINVAL, barcopy_fence(p->v->h, 5));
	FAILS(EINVAL, barcopy_wait32(p->v->h, p->cpu, BARCOPY_CMP_GE + 1, 0, 0));
	FAILS(EINVAL, barcopy_wait64(p->v->h, p->cpu, 0, 0, 0));
}

void step_words(void)
{
	struct place p;
	size_t off;

	if (!any_place(&p, 1000))
		return;
	off = below(4) ? -(uintptr_t)p.cpu % 64 : 0; /* to a line's begin, mostly */
	if (off >= p.size)
		off = 0;
	p.at += off, p.cpu += off, p.bytes += off, p.size -= off;
	say("words in view %td at %zu", p.v - w.view, p.at);
	if (below(2))
		put_word(&p, unit_random(&w.random));
	else
		look_at_word(&p);
}

/* Pieces side by side of one place; some are empty. Returns how many. */
static unsigned int cut(const struct place *p, barcopy_copy_seg_t *seg)
{
	unsigned int n = 1 + below(PIECES);
	size_t at = 0, size;

	for (unsigned int i = 0; i < n; i++) {
		size = once_in(6) ? 0 : below((unsigned int)(p->size / n * 2 + 1));
		size = size < p->size - at ? size : p->size - at;
		at += size && p->size - at > size
			      ? below(3) && p->size - at - size > 64 ? below(64) : 0
			      : 0;
		seg[i] = (barcopy_copy_seg_t){ .map_ptr = size ? p->cpu + at : NULL,
					       .host_ptr = buf + at,
					       .size = size,
					       .flags = once_in(3) };
		at += size;
	}
	return n;
}

/* Each piece is what it must be on both sides; counts those that are not empty. */
static void moved(const struct place *p, const barcopy_copy_seg_t *seg, unsigned int n, bool to)
{
	for (unsigned int i = 0; i < n; i++) {
		size_t at = (size_t)((uint8_t *)seg[i].map_ptr - p->cpu);

		if (!seg[i].size)
			continue;
		if (to)
			memcpy(p->bytes + at, seg[i].host_ptr, seg[i].size);
		else
			MUST(!memcmp(seg[i].host_ptr, p->bytes + at, seg[i].size),
			     "piece %u is read wrong", i);
		count(p, to, seg[i].size);
	}
	if (to)
		written(p);
}

/* A vector that is refused has read nothing. */
static void untouched(size_t size)
{
	for (size_t i = 0; i < size; i++)
		MUST(buf[i] == 0x77, "byte %zu is read", i);
}

void step_vector(void)
{
	barcopy_copy_seg_t seg[PIECES];
	struct place p;
	unsigned int n, bad, odd = below(30), flags = below(2);
	bool to = below(2);
	int rc, wanted = 0;

	if (!any_place(&p, once_in(4) ? MOST : 2000))
		return;
	n = cut(&p, seg);
	bad = below(n);
	memcpy(buf, p.bytes, p.size);
	if (to)
		fill(buf, p.size);
	else
		memset(buf, 0x77, p.size);
	if (odd == 0)
		flags |= 2 << below(2);
	if (odd == 4)
		seg[bad].size = SIZE_MAX;
	seg[bad].reserved = odd == 1;
	seg[bad].flags |= odd == 2 ? 2 : 0;
	if (odd == 3)
		seg[bad].host_ptr = NULL;
	if (odd < 3 || odd == 4 || (odd == 3 && seg[bad].size)) /* an empty piece needs no memory */
		wanted = EINVAL;
	for (unsigned int i = 0; to && p.read_only && i < n; i++)
		wanted = wanted ? wanted : seg[i].size ? EACCES : 0;
	/* Of two faults the first counts. */
	say("vector of %u pieces, %zu bytes %s view %td, flags %u", n, p.size, to ? "to" : "from",
	    p.v - w.view, flags);
	flags = (flags & 1 ? BARCOPY_COPY_NO_FENCE : 0) | (flags & ~1u) << 1;
	rc = to ? barcopy_copyv_to_mapping(p.v->h, seg, n, flags)
		: barcopy_copyv_from_mapping(p.v->h, seg, n, flags);
	MUST(rc == wanted || (rc && wanted && to && p.read_only), "errno %d, not %d", rc, wanted);
	if (!rc)
		moved(&p, seg, n, to);
	else
		written(&p);
	if (rc && !to)
		untouched(p.size);
}

/* One piece through each of several handles. */
void step_vectors(void)
{
	barcopy_handle_seg_t v[PIECES];
	struct place p[PIECES];
	unsigned int n = 0, refuse = below(18), flags = below(2) ? BARCOPY_COPY_NO_FENCE : 0;
	struct view *pin = any_view(PIN);
	barcopy_handle_seg_t *last;
	bool to = below(2);
	int rc, wanted = 0;
	size_t used = 0;

	for (unsigned int i = 0; i < PIECES; i++) {
		if (!any_place(&p[n], 3000))
			continue;
		v[n] = (barcopy_handle_seg_t){
			p[n].v->h, { p[n].cpu, buf + used, p[n].size, BARCOPY_COPY_ORDERED, 0 }
		};
		if (to && p[n].read_only)
			wanted = EACCES;
		used += p[n++].size;
	}
	if (!n)
		return;
	if (to)
		fill(buf, used);
	else
		memset(buf, 0x77, used);
	last = &v[n - 1];
	if (refuse == 0)
		last->handle.h ^= 1UL << 40;
	else if (refuse == 1)
		last->seg.map_ptr = buf;
	else if (refuse == 2)
		last->seg.flags |= 2;
	else if (refuse == 3)
		last->seg.reserved = 1;
	else if (refuse == 4)
		last->seg.host_ptr = NULL;
	else if (refuse == 5)
		flags |= 4;
	else if (refuse == 6 && pin && !pin->mapped)
		last->handle = pin->h;
	else
		refuse = 7;
	if (refuse < 7)
		wanted = wanted ? wanted : EINVAL;
	say("vector through %u handles %s them, flags %u", n, to ? "to" : "from", flags);
	rc = to ? barcopy_copyv_to_mappings(v, n, flags) : barcopy_copyv_from_mappings(v, n, flags);
	MUST(rc == wanted || (rc && wanted && refuse < 7), "errno %d, not %d", rc, wanted);
	for (unsigned int i = 0; !rc && flags && i < n; i++)
		OK(barcopy_fence(v[i].handle, BARCOPY_FENCE_FULL));
	FAILS(EINVAL, barcopy_copyv_from_mappings(NULL, 1, 0));
	OK(barcopy_copyv_to_mappings(NULL, 0, 0));
	for (unsigned int i = 0; !rc && i < n; i++) {
		count(&p[i], to, p[i].size);
		if (to)
			memcpy(p[i].bytes, v[i].seg.host_ptr, p[i].size);
		else
			MUST(!memcmp(p[i].bytes, v[i].seg.host_ptr, p[i].size),
			     "handle %u is read wrong", i);
	}
	if (rc && !to)
		untouched(used);
	for (unsigned int i = 0; i < n; i++)
		written(&p[i]);
}

void step_options(void)
{
	struct view *v = &w.view[below(VIEWS)];
	barcopy_copy_options_t o = { .struct_size = sizeof(o),
				     .engine_read_min = below(3) ? 100 + below(3000) : 0,
				     .engine_write_min = below(3) ? 100 + below(3000) : 0 };
	unsigned int odd = below(30);
	bool none = once_in(6);
	int rc, wanted = 0;

	if (!v->kind)
		return;
	if (v->kind == CACHED)
		wanted = EINVAL;
	else if (none || (!o.engine_read_min &&
			  (!o.engine_write_min ||
			   (v->kind == RANGE && v->flags & BARCOPY_MAP_RANGE_READ_ONLY))))
		wanted = 0;
	else if (v->mem->kind == HOST)
		wanted = ENOTSUP;
	else if (v->mem->freed && (v->kind != OWN || is_owner(v)))
		wanted = EINVAL;
	if (odd < 4 && !none) {
		*(odd == 0 ? &o.flags : &o.reserved) = odd < 2;
		o.struct_size = odd == 2 ? sizeof(o) - 1 : odd == 3 ? 4097 : o.struct_size;
		wanted = EINVAL;
	}
	fault_maybe();
	rc = barcopy_set_copy_options(v->h, none ? NULL : &o);
	say("options of view %td: reads from %zu, writes from %zu", v - w.view, o.engine_read_min,
	    o.engine_write_min);
	if (v->dim && (!rc || rc == EINVAL || (rc == ENOTSUP && v->mem->freed)))
		wanted = rc; /* it may know of no allocation */
	if (!worked("barcopy_set_copy_options", rc, wanted))
		return;
	v->dim |= fault_met();
	v->engine_min[0] = none ? 0 : o.engine_read_min;
	v->engine_min[1] = none ? 0 : o.engine_write_min;
}
