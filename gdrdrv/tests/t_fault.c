// SPDX-License-Identifier: MIT
/* A provider that fails or returns wrong tables, and a kernel out of memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>

#include "rig.h"

static void t_get_fails(void)
{
	static const int errs[] = { EINVAL, ENOMEM, EIO, EBUSY, ENODEV };
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errs); i++) {
		knob("fail_get", errs[i]);
		CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -errs[i]);
	}
	knob("fail_get", 524); /* ENOTSUPP is internal to the kernel */
	FAILS(EOPNOTSUPP, pin(drv, va, GPU_PAGE, &h));
	knob("fail_get", 0);
	nothing_pinned();
}

/* Each pin falls back by itself: the next one does not have to. */
static void t_fallback_per_pin(void)
{
	uint64_t va = gpu_alloc(prov, GPU_PAGE), a, b;

	a = must_pin(drv, va, GPU_PAGE);
	knob("fail_persistent", 0);
	b = must_pin(drv, va, GPU_PAGE);
	OK(gpu_free(prov, va));
	CHECK_EQ(cb_flag(drv, a), 1);
	CHECK_EQ(cb_flag(drv, b), 0);
	/* No fallback if memory is short or not allocated, or if two contexts have the address. */
	va = gpu_alloc(prov, GPU_PAGE);
	knob("fail_persistent", EIO);
	FAILS(EIO, pin(drv, va, GPU_PAGE, &a));
	knob("fail_persistent", ENOMEM);
	FAILS(ENOMEM, pin(drv, va, GPU_PAGE, &a));
	knob("fail_persistent", EINVAL);
	FAILS(EINVAL, pin(drv, va, GPU_PAGE, &a));
	knob("fail_persistent", 524); /* the value of this set-up */
}

static void t_table_version(void)
{
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;

	knob("table_version", rig.gen >= 580 ? 0x10002 : 0x20000);
	FAILS(EOPNOTSUPP, pin(drv, va, GPU_PAGE, &h));
	knob("table_version", 0);
	nothing_pinned();
	must_pin(drv, va, GPU_PAGE);
}

static void t_table_wrong(void)
{
	uint64_t va = gpu_alloc(prov, 4 * GPU_PAGE), h;

	knob("page_kib", 77);
	FAILS(EOPNOTSUPP, pin(drv, va, GPU_PAGE, &h));
	knob("page_kib", 0);
	knob("short_table", 1);
	FAILS(EINVAL, pin(drv, va, 4 * GPU_PAGE, &h));
	FAILS(EINVAL, pin(drv, va, 1, &h));
	knob("short_table", 0);
	nothing_pinned();
}

/* Tables of other page sizes. */
static void page_size(int kib, unsigned int flags)
{
	size_t size = 5 * GPU_PAGE;
	uint64_t va = gpu_alloc_flags(prov, size + GPU_PAGE, flags).va;
	/* From the second 64 KiB on: in a table of 128 KiB pages the middle of one. */
	struct region r = { .va = va + GPU_PAGE };
	struct gdrdrv_ioc_get_info info;

	knob("page_kib", kib);
	OK(pin(drv, r.va, size, &r.h));
	knob("page_kib", 0);
	OK(get_info(drv, r.h, &info));
	CHECK_EQ(info.page_size, kib * 1024);
	CHECK_EQ(info.mapped_size, size);
	r.p = must_map(drv, r.h, size);
	check_data(&r, size);
	OK(unpin(drv, r.h));
	unmap(r.p, size);
	OK(gpu_free(prov, va));
}

static void t_page_size(void)
{
	page_size((int)rig.arg, 0);
	if (rig.arg < GPU_PAGE / KiB)
		page_size((int)rig.arg, PROVIDER_SCATTER);
}

/* A mapping whose table has the flag CPU_CACHEABLE, or whose memory is the host's own. */
static void with_knob(const char *name)
{
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	struct gdrdrv_ioc_get_info_v2 info;
	volatile uint8_t *p;

	knob(name, 1);
	h = must_pin(drv, va, GPU_PAGE);
	knob(name, 0);
	p = must_map(drv, h, GPU_PAGE);
	p[0] = 1;
	OK(get_info_v2(drv, h, &info));
#ifdef __x86_64__
	/* The MTRRs make a BAR uncached, so the driver uses and reports write-combining. */
	CHECK_EQ(info.mapping_type, GDRDRV_MAPPING_TYPE_WC);
	CHECK(pte_is_wc(read_pte(prov, p).pte));
#else
	CHECK_EQ(info.mapping_type, GDRDRV_MAPPING_TYPE_CACHING);
	CHECK_EQ((read_pte(prov, p).pte >> 2) & 7, 0);
	FAILS(EOPNOTSUPP, req_type(drv, h, GDRDRV_MAPPING_TYPE_WC));
#endif
}

static void t_cacheable(void)
{
	if (rig.gen < 580)
		SKIP("no table flags in this generation");
	with_knob("cacheable");
}

/* Coherent memory is part of the host's memory and mapped cached, even without the flag. */
static void t_coherent(void)
{
#ifdef __x86_64__
	SKIP("no coherent GPU memory on x86");
#endif
	if (!rig.gpl)
		SKIP("such systems have the open flavour alone");
	with_knob("coherent");
}

/* After a failed put the GPU driver still has the pin: its callback must still work. */
static void t_put_fails(void)
{
	uint64_t va, h;

	if (!by_callback())
		SKIP("a failed persistent put can only be reported");
	va = gpu_alloc(prov, GPU_PAGE);
	h = must_pin(drv, va, GPU_PAGE);
	knob("fail_put", EIO);
	OK(unpin(drv, h));
	knob("fail_put", 0);
	FAILS(EINVAL, cb_flag(drv, h));
	close(drv);
	FAILS(EAGAIN, delete_module_named("gdrdrv"));
	OK(gpu_free(prov, va));
	CHECK_EQ(gpu_info(prov).pins, 0);
}

/*
 * Allocations fail in every call: each one alone (fail-nth), and all from each one on (failslab),
 * because a retry hides a single failure. A call succeeds all the same, or returns ENOMEM and has
 * no effect.
 */
enum call {
	PIN,
	PIN_V2,
	OPEN,
	MAP,
	UNMAP,
	READ_PINS,
	MAY_FAIL, /* the calls before it allocate */
	UNPIN = MAY_FAIL,
	CB_FLAG,
	INFO,
	INFO_V2,
	ATTR,
	REQ_TYPE,
	VERSION,
	NR_CALLS,
};

static const char *const call_names[] = { "pin",  "pin v2",   "open",	"map",	"unmap",
					  "pins", "unpin",    "flag",	"info", "info v2",
					  "attr", "req type", "version" };

/* One attempt: the objects before the call and after it. */
struct attempt {
	int drv, fd;
	uint64_t va, h;
	void *p;
};

static void before_call(struct attempt *a, enum call call, uint64_t va)
{
	*a = (struct attempt){ .drv = drv_open(), .fd = -1, .va = va };
	if (call == PIN || call == PIN_V2 || call == OPEN)
		return;
	a->h = must_pin(a->drv, va, 4 * GPU_PAGE);
	if (call == UNMAP)
		a->p = (void *)(uintptr_t)must_map(a->drv, a->h, GPU_PAGE);
}

static int read_pins(void)
{
	static char text[4096];
	int fd = open("/proc/driver/gdrdrv/pins", O_RDONLY), ret = 0;

	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* Returns 0 or -errno. Must not allocate or print anything itself. */
static int do_call(struct attempt *a, enum call call)
{
	struct gdrdrv_ioc_get_attr attr = { .attr = GDRDRV_ATTR_USE_PERSISTENT_MAPPING };
	struct gdrdrv_ioc_get_version version;
	struct gdrdrv_ioc_get_info_v2 info2;
	struct gdrdrv_ioc_get_info info;
	int ret;

	switch (call) {
	case PIN:
		return pin(a->drv, a->va, 4 * GPU_PAGE, &a->h);
	case PIN_V2:
		return pin_flags(a->drv, a->va, 4 * GPU_PAGE, 0, &a->h);
	case OPEN:
		a->fd = open("/dev/gdrdrv", O_RDWR);
		return a->fd < 0 ? -errno : 0;
	case MAP:
		a->p = map(a->drv, a->h, GPU_PAGE);
		if (a->p != MAP_FAILED)
			return 0;
		a->p = NULL;
		return -errno;
	case UNMAP:
		if (munmap(a->p, GPU_PAGE))
			return -errno;
		a->p = NULL;
		return 0;
	case READ_PINS:
		return read_pins();
	case UNPIN:
		ret = unpin(a->drv, a->h);
		if (!ret)
			a->h = 0;
		return ret;
	case CB_FLAG:
		return cb_flag(a->drv, a->h);
	case INFO:
		return get_info(a->drv, a->h, &info);
	case INFO_V2:
		return get_info_v2(a->drv, a->h, &info2);
	case ATTR:
		return ioctl(a->drv, GDRDRV_IOC_GET_ATTR, &attr) ? -errno : 0;
	case REQ_TYPE:
		return req_type(a->drv, a->h, GDRDRV_MAPPING_TYPE_NONE);
	default:
		return ioctl(a->drv, GDRDRV_IOC_GET_VERSION, &version) ? -errno : 0;
	}
}

static void after_call(struct attempt *a, enum call call, int ret)
{
	bool pinned = a->h != 0;

	CHECK_EQ(ret, ret && call < MAY_FAIL ? -ENOMEM : 0);
	CHECK_EQ(gpu_info(prov).pins, pinned);
	CHECK_EQ(gpu_info(prov).tables, pinned);
	CHECK_EQ(nr_pins(), pinned);
	if (a->p)
		CHECK_EQ(munmap(a->p, GPU_PAGE), 0);
	if (a->h)
		OK(unpin(a->drv, a->h));
	if (a->fd >= 0)
		close(a->fd);
	close(a->drv);
	nothing_pinned();
}

static int nth_fd, filter_fd; /* the knobs of this thread, of this process */

/* Only the @n-th allocation fails. Returns whether the call reached it. */
static bool fail_one(struct attempt *a, enum call call, unsigned int n, int *ret)
{
	char text[16];
	ssize_t len;

	snprintf(text, sizeof(text), "%u", n + 1);
	CHECK(pwrite(nth_fd, text, strlen(text), 0) > 0);
	*ret = do_call(a, call);
	len = pread(nth_fd, text, sizeof(text) - 1, 0);
	CHECK(len > 0);
	text[len] = 0;
	CHECK(pwrite(nth_fd, "0", 1, 0) > 0);
	return atoi(text) == 0;
}

#define FAILSLAB "/sys/kernel/debug/failslab/"
#define MANY	 "1000000"

/* All allocations after the first @n * 64 bytes fail. Returns whether any did. */
static bool fail_rest(struct attempt *a, enum call call, unsigned int n, int *ret)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n * 64);
	write_text(FAILSLAB "space", text);
	write_text(FAILSLAB "times", MANY);
	CHECK(pwrite(filter_fd, "1", 1, 0) == 1);
	*ret = do_call(a, call);
	CHECK(pwrite(filter_fd, "0", 1, 0) == 1);
	return read_number(FAILSLAB "times") != atol(MANY);
}

static void fail_calls(const char *what,
		       bool (*fail)(struct attempt *a, enum call call, unsigned int n, int *ret),
		       uint64_t va)
{
	enum call call;

	/* The first pin opens a descriptor that later ones use. */
	OK(unpin(drv, must_pin(drv, va, GPU_PAGE)));
	for (call = PIN; call < NR_CALLS; call++) {
		unsigned int n, errors = 0;
		struct attempt a;
		bool more = true;
		int ret;

		for (n = 0; more; n++) {
			CHECK(n < 2000);
			before_call(&a, call, va);
			more = fail(&a, call, n, &ret);
			after_call(&a, call, ret);
			errors += ret != 0;
			if (!more)
				CHECK_EQ(ret, 0);
		}
		printf("# %s: %s: %u attempts, %u errors\n", what, call_names[call], n, errors);
		/*
		 * At least one failure must be visible; some allocations are optional, such as
		 * that of a memory type. munmap() retries a failed allocation (6.12).
		 */
		if (call < MAY_FAIL && (call != UNMAP || fail != fail_one))
			CHECK(errors > 0);
	}
}

static void t_failslab(void)
{
	uint64_t va = gpu_alloc_flags(prov, 4 * GPU_PAGE, PROVIDER_SCATTER).va;

	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (nth_fd < 0)
		SKIP("this kernel cannot fail allocations");
	write_text(FAILSLAB "ignore-gfp-wait", "N");
	fail_calls("one", fail_one, va);
}

static void t_failslab_rest(void)
{
	uint64_t va = gpu_alloc_flags(prov, 4 * GPU_PAGE, PROVIDER_SCATTER).va;

	filter_fd = open("/proc/self/make-it-fail", O_RDWR);
	if (filter_fd < 0)
		SKIP("this kernel cannot fail allocations");
	write_text(FAILSLAB "ignore-gfp-wait", "N");
	write_text(FAILSLAB "task-filter", "Y");
	write_text(FAILSLAB "verbose", "0");
	write_text(FAILSLAB "interval", "1");
	write_text(FAILSLAB "probability", "100");
	fail_calls("all after", fail_rest, va);
	write_text(FAILSLAB "probability", "0");
}

const struct test tests_fault[] = {
	{ "get-fails", t_get_fails, PERSISTENT | CALLBACK, 0, 0 },
	{ "fallback-per-pin", t_fallback_per_pin, FALLBACK, 0, 0 },
	{ "table-version", t_table_version, ANY_MODE, 0, 0 },
	{ "table-wrong", t_table_wrong, ANY_MODE, 0, 0 },
	{ "page-4k", t_page_size, ANY_MODE, 0, 4 },
	{ "page-128k", t_page_size, ANY_MODE, 0, 128 },
	{ "cacheable", t_cacheable, ANY_MODE, 0, 0 },
	{ "coherent", t_coherent, ANY_MODE, 0, 0 },
	{ "put-fails", t_put_fails, ANY_MODE, 0, 0 },
	{ "failslab", t_failslab, ANY_MODE, 60, 0 },
	{ "failslab-rest", t_failslab_rest, ANY_MODE, 60, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
