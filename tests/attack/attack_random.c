// SPDX-License-Identifier: MIT
/*
 * Random opens, pins, maps and copies from several threads: memory of the program is valid or NULL, all
 * else is random: handles, contexts, addresses, sizes, flags, order. Beside each thread a plain model of
 * what it has open, pinned and mapped says what every call must answer, and what every byte must be.
 *
 * GDRCOPY_TEST_SEED=n repeats a run (one thread's calls depend on its seed alone).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/expect.h"
#include "common/resources.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "barcopy.h"

enum { THREADS = 4, CALLS = 50000, CONTEXTS = 4, HANDLES = 24, BUFFERS = 3, HOST_BYTES = 8192 };

struct buffer {
	enum { DEVICE, VMM, HOST } kind;
	uint64_t base;
	size_t size;
	uint8_t *shadow; /* what the bytes must be; NULL: not followed (host memory) */
	uint8_t *host;
};

struct context {
	gdr_t g;
	bool open;
};

struct handle {
	gdr_mh_t h;
	bool pinned, mapped;
	int context, buffer;
	uint64_t va;
	size_t mapped_size, map_length;
	uint8_t *map, *start, *end; /* bytes that copies may touch */
};

struct model {
	unsigned long long seed, state;
	long calls, by_result[2];
	struct buffer buffer[BUFFERS];
	struct context context[CONTEXTS];
	struct handle handle[HANDLES];
	uint8_t host[HOST_BYTES];
	char wrong[512];
};

static bool by_rm; /* device memory by rm instead of by dma-buf */

#define MUST(m, got, want)                                                                  \
	do {                                                                                \
		int got_ = (got), want_ = (want);                                           \
		(m)->calls++;                                                               \
		(m)->by_result[!got_]++;                                                    \
		if (got_ != want_ && !*(m)->wrong)                                          \
			snprintf((m)->wrong, sizeof((m)->wrong),                            \
				 "seed %llu, call %ld, line %d: %s: %d instead of %d (%s)", \
				 (m)->seed, (m)->calls, __LINE__, #got, got_, want_,        \
				 barcopy_last_error());                                     \
	} while (0)

#define TRUE(m, cond)                                                                   \
	do {                                                                            \
		if (!(cond) && !*(m)->wrong)                                            \
			snprintf((m)->wrong, sizeof((m)->wrong),                        \
				 "seed %llu, call %ld, line %d: not so: %s", (m)->seed, \
				 (m)->calls, __LINE__, #cond);                          \
	} while (0)

static uint64_t any(struct model *m)
{
	return unit_random(&m->state);
}

static uint64_t below(struct model *m, uint64_t limit)
{
	return any(m) % limit;
}

static bool one_in(struct model *m, uint64_t n)
{
	return !below(m, n);
}

/* Sizes of every magnitude, and those at an edge. */
static size_t any_size(struct model *m, size_t near)
{
	const size_t sizes[] = { 0,
				 near,
				 near + 1,
				 below(m, 130),
				 below(m, near + 1),
				 ~(size_t)0 - below(m, 200000),
				 below(m, near + 1) & ~(size_t)4095,
				 any(m) >> below(m, 64) };

	return sizes[below(m, COUNT(sizes))];
}

/* A context of the model, open or not, or an invented one. */
static gdr_t any_context(struct model *m, int *index)
{
	*index = (int)below(m, CONTEXTS);
	if (!m->context[*index].open && !one_in(m, 4))
		*index = (int)below(m, CONTEXTS);
	if (one_in(m, 20)) {
		*index = -1;
		return (gdr_t)(uintptr_t)(one_in(m, 3) ? 0 : any(m) | 1ULL << 40);
	}
	return m->context[*index].g;
}

static bool is_open(const struct model *m, int context)
{
	return context >= 0 && m->context[context].open;
}

static gdr_mh_t any_handle(struct model *m, int *index)
{
	*index = (int)below(m, HANDLES);
	for (int i = 0; i < 3 && !m->handle[*index].mapped && !one_in(m, 6); i++)
		*index = (int)below(m, HANDLES);
	if (one_in(m, 20)) {
		gdr_mh_t h = { one_in(m, 3) ? 0 : any(m) };

		*index = -1;
		return h;
	}
	return m->handle[*index].h;
}

/* Most calls use the right context with their handle. */
static gdr_t context_for(struct model *m, int handle, int *context)
{
	if (handle >= 0 && !one_in(m, 10)) {
		*context = m->handle[handle].context;
		return m->context[*context].g;
	}
	return any_context(m, context);
}

static bool is_mapped(const struct model *m, int handle)
{
	return handle >= 0 && m->handle[handle].pinned && m->handle[handle].mapped;
}

static bool reaches(const struct model *m, int context, int handle)
{
	return is_open(m, context) && handle >= 0 && m->handle[handle].pinned &&
	       m->handle[handle].context == context;
}

static void open_one(struct model *m)
{
	static const uint32_t flags[] = { 0, 1, 1, 1, 2, 3, 4, 0x80000001 };
	struct context *c = &m->context[below(m, CONTEXTS)];
	uint32_t flag = flags[below(m, COUNT(flags))];
	gdr_t g;

	if (c->open)
		return;
	errno = 0;
	g = barcopy_open(flag);
	MUST(m, g ? 0 : errno, flag > 1 ? EINVAL : 0);
	if (!g)
		return;
	for (int i = 0; i < CONTEXTS; i++)
		TRUE(m, !m->context[i].open || m->context[i].g != g);
	/* A default context serves device memory only by dma-buf; all here are alike for the model
	 * because a backend that serves some memory only is tried as well once it is open. */
	c->g = g;
	c->open = true;
}

static void close_one(struct model *m)
{
	int i;
	gdr_t g = any_context(m, &i);

	MUST(m, gdr_close(g), is_open(m, i) ? 0 : EINVAL);
	if (i < 0)
		return;
	m->context[i].open = false;
	for (int h = 0; h < HANDLES; h++)
		if (m->handle[h].context == i)
			m->handle[h].pinned = m->handle[h].mapped = false;
}

/* The errno that a pin of that range must return; *buffer: the buffer that the range begins in. */
static int expect_pin(struct model *m, uint64_t addr, size_t size, uint32_t flags, int *buffer)
{
	uint64_t end;

	*buffer = -1;
	if (!size || !addr)
		return EINVAL;
	if (__builtin_add_overflow(addr, size, &end) || end > UINT64_MAX - 65535)
		return EOVERFLOW;
	for (int i = 0; i < BUFFERS; i++)
		if (addr >= m->buffer[i].base && addr - m->buffer[i].base < m->buffer[i].size)
			*buffer = i;
	if (*buffer < 0)
		return EINVAL;
	/* Here every mapping of rm goes over PCIe. */
	if (flags &&
	    (flags != GDR_PIN_FLAG_FORCE_PCIE || !by_rm || m->buffer[*buffer].kind == HOST))
		return EINVAL;
	/* Device memory is a whole number of GPU pages here: widening stays inside. */
	if (m->buffer[*buffer].kind != HOST &&
	    size > m->buffer[*buffer].base + m->buffer[*buffer].size - addr)
		return EINVAL;
	return 0;
}

static void pin(struct model *m)
{
	struct handle *h = &m->handle[below(m, HANDLES)];
	struct buffer *b = &m->buffer[below(m, BUFFERS)];
	uint64_t addr = b->base + below(m, b->size);
	size_t size = any_size(m, b->size - (addr - b->base));
	uint32_t flags = one_in(m, 10) ? (uint32_t)any(m) >> below(m, 32) : 0;
	uint64_t token = 0;
	gdr_mh_t out = { 77 }, *where = one_in(m, 50) ? NULL : &out;
	bool v1 = one_in(m, 4);
	int context, rc, want, buffer;
	gdr_t g = any_context(m, &context);

	if (h->pinned)
		return;
	if (one_in(m, 10)) /* an address of no buffer */
		addr = one_in(m, 2) ? below(m, 65536) : UINT64_MAX - below(m, 1 << 20);
	if (v1) {
		flags = 0;
		token = one_in(m, 8) ? any(m) : 0;
	}
	want = expect_pin(m, addr, size, flags, &buffer);
	if (!where || !is_open(m, context) || flags > 1)
		want = EINVAL;
	rc = v1 ? gdr_pin_buffer(g, addr, size, token, 0, where)
		: gdr_pin_buffer_v2(g, addr, size, flags, where);
	MUST(m, rc, want);
	if (rc) {
		TRUE(m, out.h == 77);
		return;
	}
	for (int i = 0; i < HANDLES; i++)
		TRUE(m, !m->handle[i].pinned || m->handle[i].h.h != out.h);
	*h = (struct handle){ .h = out, .pinned = true, .context = context, .buffer = buffer };
	h->va = addr & ~65535ULL;
	h->mapped_size = ((addr + size + 65535) & ~65535ULL) - h->va;
}

static void unpin(struct model *m)
{
	int i, context;
	gdr_mh_t h = any_handle(m, &i);
	gdr_t g = context_for(m, i, &context);
	bool there = reaches(m, context, i);

	MUST(m, gdr_unpin_buffer(g, h), there ? 0 : EINVAL);
	if (there)
		m->handle[i].pinned = m->handle[i].mapped = false;
}

static int type_of(const struct model *m, int buffer)
{
	if (m->buffer[buffer].kind == HOST)
		return GDR_MAPPING_TYPE_CACHING;
	return standin_device_bar1() ? GDR_MAPPING_TYPE_DEVICE : GDR_MAPPING_TYPE_WC;
}

static void map(struct model *m)
{
	static const int flag_choice[] = { 0, 0, 0, 1, 2, 3, 4, -1 };
	int i, context, flags = flag_choice[below(m, COUNT(flag_choice))], want = 0, rc;
	gdr_mh_t h = any_handle(m, &i);
	gdr_t g = context_for(m, i, &context);
	struct handle *mh = i >= 0 ? &m->handle[i] : NULL;
	size_t size = any_size(m, mh && mh->pinned ? mh->mapped_size : 65536);
	void *va = m, **where = one_in(m, 50) ? NULL : &va;

	if (!where || flags < 0 || flags > 3 || !reaches(m, context, i))
		want = EINVAL;
	else if (mh->mapped)
		want = EAGAIN;
	else if (!size || size > mh->mapped_size)
		want = EINVAL;
	else if (flags && flags != type_of(m, mh->buffer))
		want = ENOTSUP;
	rc = gdr_map_v2(g, h, where, size, flags);
	MUST(m, rc, want);
	if (rc) {
		TRUE(m, va == m);
		return;
	}
	mh->mapped = true;
	mh->map = va;
	mh->map_length = (size + 4095) & ~(size_t)4095;
	mh->start = mh->map;
	mh->end = mh->map + mh->map_length;
	if (m->buffer[mh->buffer].kind == HOST) {
		mh->start = m->buffer[mh->buffer].host;
		mh->end = mh->start + m->buffer[mh->buffer].size;
	}
}

static void unmap(struct model *m)
{
	int i, context;
	gdr_mh_t h = any_handle(m, &i);
	gdr_t g = context_for(m, i, &context);
	struct handle *mh = i >= 0 ? &m->handle[i] : NULL;
	uint8_t *va = mh && mh->mapped ? mh->map : NULL;
	size_t size = mh && mh->mapped ? mh->map_length : 4096;
	bool right = reaches(m, context, i) && mh->mapped;

	if (one_in(m, 4)) {
		va = (uint8_t *)((uintptr_t)va + below(m, 9000) - 4500);
		/* The pinned address stands for the mapping; host memory has it beside the map. */
		right = right && (va == mh->map || ((uintptr_t)va & ~(uintptr_t)0xffff) == mh->va);
	}
	if (one_in(m, 4)) {
		size = any_size(m, size);
		right = right && size && size <= mh->mapped_size &&
			((size + 4095) & ~(size_t)4095) == mh->map_length;
	}
	MUST(m, gdr_unmap(g, h, va, size), right ? 0 : EINVAL);
	if (right)
		mh->mapped = false;
}

/* A place in or near a mapping; *inside: `size` bytes there may be copied. */
static uint8_t *any_place(struct model *m, int i, size_t size, bool *inside)
{
	struct handle *mh = i >= 0 ? &m->handle[i] : NULL;
	uintptr_t at; /* no pointer: most values are no valid pointers */

	*inside = false;
	if (!is_mapped(m, i))
		return one_in(m, 2) ? NULL : (uint8_t *)(uintptr_t)any(m);
	switch (below(m, 6)) {
	case 0:
		at = (uintptr_t)mh->end - (one_in(m, 2) ? size : below(m, 200));
		break;
	case 1:
		at = (uintptr_t)mh->start - below(m, 3);
		break;
	case 2:
		at = one_in(m, 2) ? 0 : any(m);
		break;
	default:
		at = (uintptr_t)mh->start + below(m, (size_t)(mh->end - mh->start));
		break;
	}
	*inside = at >= (uintptr_t)mh->start && at <= (uintptr_t)mh->end &&
		  size <= (uintptr_t)mh->end - at;
	return (uint8_t *)at;
}

static uint8_t *shadow_at(struct model *m, int i, const uint8_t *at)
{
	struct handle *mh = &m->handle[i];
	struct buffer *b = &m->buffer[mh->buffer];

	return b->shadow + (mh->va + (uint64_t)(at - mh->map) - b->base);
}

static size_t copy_size(struct model *m)
{
	return one_in(m, 30)  ? ~(size_t)0 - below(m, 5000)
	       : one_in(m, 3) ? below(m, HOST_BYTES + 1)
			      : below(m, 70);
}

static void copy(struct model *m)
{
	int i, want = 0;
	gdr_mh_t h = any_handle(m, &i);
	size_t size = copy_size(m);
	uint8_t *host = one_in(m, 50) ? NULL : m->host;
	bool inside, to = one_in(m, 2);
	uint8_t *at = any_place(m, i, size, &inside);

	if (size <= HOST_BYTES && host)
		host += below(m, HOST_BYTES - size + 1);
	if (!is_mapped(m, i) || (size && (!host || !inside)))
		want = EINVAL;
	if (to) {
		for (size_t k = 0; host && size <= HOST_BYTES && k < size; k += 5)
			host[k] = (uint8_t)any(m);
		MUST(m, gdr_copy_to_mapping(h, at, host, size), want);
		if (!want && size)
			memcpy(shadow_at(m, i, at), host, size);
	} else {
		MUST(m, gdr_copy_from_mapping(h, host, at, size), want);
		if (!want && size)
			TRUE(m, !memcmp(shadow_at(m, i, at), host, size));
	}
}

/* The share of each in 200 calls. */
static const struct {
	uint64_t share;
	void (*fn)(struct model *m);
} kinds[] = {
	{ 9, open_one }, { 1, close_one }, { 44, pin }, { 18, unpin }, { 36, map }, { 15, unmap }, { 77, copy },
};

static void one_call(struct model *m)
{
	uint64_t what = below(m, 200);
	size_t i = 0;

	while (what >= kinds[i].share)
		what -= kinds[i++].share;
	kinds[i].fn(m);
}

/* At the end every byte that CUDA reads is the model's. */
static void check_memory(struct model *m)
{
	for (int i = 0; i < BUFFERS; i++) {
		struct buffer *b = &m->buffer[i];
		uint8_t *now = malloc(b->size);

		if (b->kind == HOST)
			memcpy(now, b->host, b->size);
		else
			TRUE(m, !cuda.cuMemcpyDtoH_v2(now, b->base, b->size));
		TRUE(m, !memcmp(now, b->shadow, b->size));
		free(now);
	}
}

static void *play(void *arg)
{
	struct model *m = arg;
	long limit = (unit_quick() ? CALLS / 20 : CALLS) / THREADS;

	cuda.cuCtxSetCurrent(standin_primary(0));
	while (m->calls < limit && !*m->wrong)
		one_call(m);
	for (int i = 0; i < CONTEXTS; i++)
		if (m->context[i].open)
			MUST(m, gdr_close(m->context[i].g), 0);
	check_memory(m);
	return NULL;
}

static void fill(struct model *m, unsigned long long seed)
{
	struct standin_vmm v;

	memset(m, 0, sizeof(*m));
	m->seed = seed;
	m->state = seed * 0x9e3779b97f4a7c15ULL + 1;
	standin_vmm_alloc(&v, 0, 3, STANDIN_GRANULE, true);
	m->buffer[0] =
		(struct buffer){ .kind = DEVICE, .base = standin_alloc(2 << 20), .size = 2 << 20 };
	m->buffer[1] = (struct buffer){ .kind = VMM, .base = v.ptr, .size = v.size };
	m->buffer[2].kind = HOST;
	m->buffer[2].size = 50000;
	m->buffer[2].host = standin_host_alloc(50000, 0);
	m->buffer[2].base = (uintptr_t)m->buffer[2].host;
	for (int i = 0; i < BUFFERS; i++) {
		struct buffer *b = &m->buffer[i];

		b->shadow = calloc(1, b->size);
		if (b->kind != HOST)
			cuda.cuMemcpyHtoD_v2(b->base, b->shadow, b->size);
		else
			memset(b->host, 0, b->size);
	}
	for (int i = 0; i < HANDLES; i++)
		m->handle[i].context = (int)(i % CONTEXTS);
}

static void use_once(const struct model *m)
{
	gdr_t g = gdr_open();
	gdr_mh_t h;

	for (int b = 0; b < BUFFERS; b++)
		if (m->buffer[b].kind == DEVICE)
			OK(gdr_pin_buffer_v2(g, m->buffer[b].base, 1, 0, &h));
	OK(gdr_close(g));
}

static void random_calls(void)
{
	const char *text = getenv("GDRCOPY_TEST_SEED");
	unsigned long long seed = text ? strtoull(text, NULL, 0) : (unsigned long long)time(NULL);
	static struct model models[THREADS];
	struct resources before, after;
	long calls = 0, good = 0;
	const char *wrong;

	by_rm = !strncmp(getenv("GDRCOPY_BACKEND"), "rm", 2);
	printf("GDRCOPY_TEST_SEED=%llu\n", seed);
	fflush(stdout);
	standin_start();
	for (int i = 0; i < THREADS; i++)
		fill(&models[i], seed + (unsigned int)i);
	use_once(&models[0]); /* makes what is made once */
	resources_look(&before);
	unit_threads(THREADS, play, models, sizeof(models[0]));
	for (int i = 0; i < THREADS; i++) {
		ck_assert_msg(!*models[i].wrong, "%s", models[i].wrong);
		calls += models[i].calls;
		good += models[i].by_result[1];
		for (int b = 0; b < BUFFERS; b++)
			free(models[i].buffer[b].shadow);
	}
	resources_look(&after);
	after.retained = before.retained; /* each thread's own context */
	wrong = resources_differ(&before, &after);
	ck_assert_msg(!wrong, "%s", wrong);
	printf("%ld calls in %d threads, %ld of them successes\n", calls, THREADS, good);
	/* Both successes and failures must occur. */
	ck_assert_int_gt(good, calls / 20);
	ck_assert_int_gt(calls - good, calls / 20);
}

static const struct unit_test tests[] = {
	{ "random calls, dma-buf and host", random_calls,
	  "GDRSIM_DRIVER_VERSION=13030 GDRCOPY_BACKEND=dmabuf,host" },
	{ "random calls, rm and host", random_calls, "GDRCOPY_BACKEND=rm,host" },
};

UNIT_MAIN("attack: random calls", tests)
