/* SPDX-License-Identifier: MIT */
/*
 * The 16 calls of gdrapi.h, of the library whose path is given: fixed cases, then a random program of calls that keep
 * to the interface. Prints a line for each call, with its errno, what it wrote and the bytes that GPU and CPU hold then;
 * nothing of it depends on addresses. differential.sh compares the lines of two libraries.
 *   differential LIBRARY SEED STEPS
 */
#include <gdrapi.h>

#include "contract.h"

enum { BUFFERS = 4, HANDLES = 6, PAGE = 65536, MOST = 4 * PAGE };

#define SYMBOLS(X)                                                                              \
	X(open) X(close) X(runtime_get_version) X(driver_get_version) X(get_attribute)          \
		X(pin_buffer) X(pin_buffer_v2) X(unpin_buffer) X(get_callback_flag)             \
			X(get_info_v2) X(map) X(map_v2) X(unmap) X(get_mapping_type_string)     \
				X(copy_to_mapping) X(copy_from_mapping)

static struct {
	SYMBOLS(SYMBOL)
} f;

static gdr_t g;
static uint64_t state;
static struct buffer {
	uint64_t at;
	size_t size;
} buffers[BUFFERS];
static struct pinned {
	const struct buffer *of;
	gdr_mh_t mh;
	char *map; /* NULL: not mapped */
	size_t at, size, mapped;
} pins[HANDLES];

/* splitmix64 */
static uint64_t random_below(uint64_t n)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (z ^ (z >> 31)) % n;
}

static uint32_t sum_of(const void *data, size_t size)
{
	const unsigned char *byte = (const unsigned char *)data;
	uint32_t sum = 2166136261u;

	while (size--)
		sum = (sum ^ *byte++) * 16777619u;
	return sum;
}

static uint32_t sum_of_gpu(const struct buffer *b)
{
	static char bytes[MOST];

	contract_from_gpu(bytes, b->at, b->size);
	return sum_of(bytes, b->size);
}

/* The pinned range and its mapping. */
static void show_info(const struct pinned *p)
{
	gdr_info_v2_t info;
	int rc;

	memset(&info, 0x5a, sizeof(info));
	rc = f.get_info_v2(g, p->mh, &info);
	printf("  info %d", rc);
	if (!rc)
		printf(": va %+lld, mapped_size %llu, page_size %u, mapped %u, wc %u, type %d",
		       (long long)(info.va - p->of->at), (unsigned long long)info.mapped_size,
		       info.page_size, info.mapped, info.wc_mapping, (int)info.mapping_type);
	putchar('\n');
}

static int pin(struct pinned *p, const struct buffer *b, size_t at, size_t size, int v2)
{
	int rc;

	*p = (struct pinned){ .of = b, .at = at, .size = size };
	rc = v2 ? f.pin_buffer_v2(g, b->at + at, size, GDR_PIN_FLAG_DEFAULT, &p->mh)
		: f.pin_buffer(g, b->at + at, size, 0, 0, &p->mh);
	printf("pin%s +%zu %zu of %zu: %d\n", v2 ? "_v2" : "", at, size, b->size, rc);
	if (rc)
		p->of = NULL;
	else
		show_info(p);
	return rc;
}

static size_t pinned_bytes(const struct pinned *p)
{
	size_t before = (p->of->at + p->at) % PAGE;

	return (before + p->size + PAGE - 1) / PAGE * PAGE;
}

static int map(struct pinned *p, size_t size, int flags)
{
	void *va = NULL;
	int rc = flags < 0 ? f.map(g, p->mh, &va, size) : f.map_v2(g, p->mh, &va, size, flags);

	printf("map %zu flags %d: %d, %s, +%u\n", size, flags, rc, va ? "a pointer" : "none",
	       (unsigned int)((uintptr_t)va % 4096));
	if (!rc) {
		p->map = (char *)va;
		p->mapped = size;
		show_info(p);
	}
	return rc;
}

static void unmap(struct pinned *p, size_t size)
{
	int rc = f.unmap(g, p->mh, p->map, size);

	printf("unmap %zu: %d\n", size, rc);
	if (!rc)
		p->map = NULL;
	show_info(p);
}

static void unpin(struct pinned *p)
{
	int flag = 7, rc = f.get_callback_flag(g, p->mh, &flag);

	printf("callback flag: %d, %d\n", rc, flag);
	printf("unpin: %d\n", f.unpin_buffer(g, p->mh));
	*p = (struct pinned){ 0 };
}

/* The bytes of the buffer that are pinned, from the mapping's begin on: [begin, end). */
static void copy(struct pinned *p, size_t at, size_t size, int to)
{
	static char host[MOST + 64];
	size_t off = (size_t)random_below(64);
	int rc;

	for (size_t i = 0; i < sizeof(host); i++)
		host[i] = (char)random_below(256);
	rc = to ? f.copy_to_mapping(p->mh, p->map + at, host + off, size)
		: f.copy_from_mapping(p->mh, host + off, p->map + at, size);
	printf("copy %s +%zu %zu: %d, host %08x, GPU %08x\n", to ? "to" : "from", at, size, rc,
	       sum_of(host, sizeof(host)), sum_of_gpu(p->of));
}

/* ---- fixed cases ------------------------------------------------------------------------- */

static void versions(void)
{
	int major = 0, minor = 0, value = 7, rc;
	const char *text;

	f.runtime_get_version(&major, &minor);
	printf("library %d.%d\n", major, minor);
	rc = f.driver_get_version(g, &major, &minor);
	printf("driver %d: %d.%d\n", rc, major, minor);
	for (int attr = GDR_ATTR_USE_PERSISTENT_MAPPING; attr < GDR_ATTR_MAX; attr++) {
		rc = f.get_attribute(g, (gdr_attr_t)attr, &value);
		printf("attribute %d: %d, %d\n", attr, rc, value);
	}
	printf("attribute %d: %d\n", GDR_ATTR_MAX, f.get_attribute(g, GDR_ATTR_MAX, &value));
	for (int type = GDR_MAPPING_TYPE_NONE; type <= GDR_MAPPING_TYPE_DEVICE; type++) {
		text = "unset";
		rc = f.get_mapping_type_string((gdr_mapping_type_t)type, &text);
		printf("type %d: %d, %s\n", type, rc, text);
	}
}

static void cases(void)
{
	struct buffer *b = &buffers[0];
	struct pinned p;

	puts("case: a page");
	if (pin(&p, b, 0, PAGE, 0))
		return;
	puts("case: a map larger than the pin");
	map(&p, pinned_bytes(&p) + 1, -1);
	puts("case: a map of no bytes");
	map(&p, 0, -1);
	puts("case: a mapping type that is none");
	map(&p, PAGE, 1 << 20);
	puts("case: a map, twice");
	map(&p, PAGE, -1);
	{
		char *first = p.map;

		map(&p, PAGE, -1);
		p.map = first;
	}
	puts("case: copies of no bytes");
	copy(&p, 0, 0, 1);
	copy(&p, 0, 0, 0);
	puts("case: an unmap");
	unmap(&p, PAGE);
	puts("case: an unmap of other bytes");
	map(&p, PAGE, -1);
	printf("unmap %d: %d\n", PAGE - 4096, f.unmap(g, p.mh, p.map, PAGE - 4096));
	puts("case: unpinned");
	unpin(&p);
	puts("case: unpinned while mapped");
	pin(&p, b, 0, PAGE, 1);
	map(&p, 4096, -1);
	unpin(&p);
	puts("case: no bytes");
	pin(&p, b, 0, 0, 0);
	puts("case: beyond the allocation");
	if (!pin(&p, b, 0, (size_t)1 << 40, 1))
		unpin(&p);
	puts("case: the end of the address space");
	{
		gdr_mh_t mh;

		printf("pin: %d\n", f.pin_buffer(g, b->at, SIZE_MAX - 4096, 0, 0, &mh));
		printf("pin: %d\n", f.pin_buffer(g, 0xfffffffffff00000ul, 1 << 21, 0, 0, &mh));
		printf("pin of host memory: %d\n",
		       f.pin_buffer(g, (unsigned long)&p, PAGE, 0, 0, &mh));
		printf("pin without a handle: %d\n", f.pin_buffer(g, b->at, PAGE, 0, 0, NULL));
		puts("case: an unknown flag of a pin");
		printf("pin_v2: %d\n", f.pin_buffer_v2(g, b->at, PAGE, 1u << 30, &mh));
	}
}

/* ---- the random program -------------------------------------------------------------------- */

static void pin_any(struct pinned *p)
{
	const struct buffer *b = &buffers[random_below(BUFFERS)];
	size_t at = (size_t)random_below(b->size), size = 1 + (size_t)random_below(b->size - at);

	if (random_below(3)) { /* whole pages */
		at = 0;
		size = b->size;
	}
	pin(p, b, at, size, (int)random_below(2));
}

static void copy_any(struct pinned *p)
{
	size_t before = (p->of->at + p->at) % PAGE, end = before + p->size, at, size;

	end = end < p->mapped ? end : p->mapped;
	if (end <= before)
		return;
	at = before + (size_t)random_below(end - before);
	size = (size_t)random_below(random_below(2) ? 100 : end - at + 1);
	copy(p, at, size < end - at ? size : end - at, (int)random_below(2));
}

static void step(void)
{
	struct pinned *p = &pins[random_below(HANDLES)];

	if (!p->of)
		pin_any(p);
	else if (!p->map && random_below(4))
		map(p, 1 + (size_t)random_below(pinned_bytes(p)), random_below(2) ? -1 : GDR_MAP_FLAG_DEFAULT);
	else if (p->map && random_below(8))
		copy_any(p);
	else if (p->map && random_below(2))
		unmap(p, p->mapped);
	else
		unpin(p);
}

int main(int argc, char **argv)
{
	void *lib = contract_load(argc > 1 ? argv[1] : "libgdrapi.so.2", RTLD_NOW);
	int steps = argc > 3 ? atoi(argv[3]) : 300;

	SYMBOLS(LOAD_SYMBOL)
	state = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	for (int i = 0; i < BUFFERS; i++) {
		static char zeros[MOST];

		/* Of 1 MiB and more cudaMalloc gives whole blocks; the calls touch their begins. */
		buffers[i].size = (size_t)(1 + random_below(4)) * PAGE;
		buffers[i].at = contract_alloc((size_t)2 << 20);
		contract_to_gpu(buffers[i].at, zeros, buffers[i].size);
	}
	g = f.open();
	printf("open: %s\n", g ? "a context" : "none");
	if (!g)
		return CONTRACT_DISABLED;
	versions();
	cases();
	puts("random");
	while (steps--)
		step();
	printf("close: %d\n", f.close(g));
	for (int i = 0; i < BUFFERS; i++)
		contract_free(buffers[i].at);
	return 0;
}
