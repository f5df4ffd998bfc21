// SPDX-License-Identifier: MIT
/* Every ioctl with valid and invalid arguments; data in both directions; the files in /proc. */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "rig.h"

static void t_version(void)
{
	struct gdrdrv_ioc_get_version arg = { 0 };

	CHECK_EQ(ioctl(drv, GDRDRV_IOC_GET_VERSION, &arg), 0);
	CHECK_EQ(arg.gdrdrv_version, 0x20006);
	CHECK_EQ(arg.minimum_gdr_api_version, 0x20000);
}

static uint32_t attr(uint32_t which)
{
	struct gdrdrv_ioc_get_attr arg = { .attr = which, .val = 99 };

	CHECK_EQ(ioctl(drv, GDRDRV_IOC_GET_ATTR, &arg), 0);
	return arg.val;
}

static void t_attr(void)
{
	struct gdrdrv_ioc_get_attr bad = { .attr = 77 };

	CHECK_EQ(attr(GDRDRV_ATTR_USE_PERSISTENT_MAPPING), rig.mode != CALLBACK && rig.gen > 470);
	CHECK_EQ(attr(GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE),
		 rig.mode != CALLBACK && rig.gen >= 570);
	CHECK(ioctl(drv, GDRDRV_IOC_GET_ATTR, &bad) == -1 && errno == EINVAL);
	bad.attr = 0;
	CHECK(ioctl(drv, GDRDRV_IOC_GET_ATTR, &bad) == -1 && errno == EINVAL);
	bad.attr = 16; /* of a library that knew a driver with pins by dma-buf */
	CHECK(ioctl(drv, GDRDRV_IOC_GET_ATTR, &bad) == -1 && errno == EINVAL);
}

/* Reads a pin's state from /proc. Returns its descriptor's number; 0 if it is not listed. */
static unsigned long long pins_line(uint64_t va, uint64_t h, char state[32])
{
	char want[64], *text = read_text("/proc/driver/gdrdrv/pins"), *line;
	unsigned long long id = 0;

	snprintf(want, sizeof(want), "0x%llx 0x%llx ", (unsigned long long)h,
		 (unsigned long long)va);
	line = text ? strstr(text, want) : NULL;
	if (!line || sscanf(line, "%*s %*s %*u %*u %*u %*s %31s %llu", state, &id) != 2)
		printf("# no such pin: %s\n%s", want, text);
	free(text);
	return id;
}

/* /proc distinguishes two descriptors with the same handle, and marks revoked pins. */
static void t_proc_pins(void)
{
	int one = drv_open(), two = drv_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE), va2 = gpu_alloc(prov, GPU_PAGE);
	uint64_t h = must_pin(one, va, GPU_PAGE), h2 = must_pin(two, va2, GPU_PAGE);
	const char *kind = by_callback() ? "callback" : "persistent";
	unsigned long long id, id2;
	char state[32], want[32];

	CHECK_EQ(h, h2);
	id = pins_line(va, h, state);
	id2 = pins_line(va2, h2, state);
	CHECK(id && id2 && id != id2);
	CHECK(!strcmp(state, kind));
	OK(gpu_free(prov, va));
	snprintf(want, sizeof(want), "%s%s", kind, cb_flag(one, h) ? ",revoked" : "");
	CHECK_EQ(pins_line(va, h, state), id);
	CHECK(!strcmp(state, want));
	CHECK_EQ(cb_flag(one, h), by_callback());
}

static void t_proc(void)
{
	static const struct {
		const char *path;
		mode_t mode;
	} nodes[] = {
		{ "/proc/driver/gdrdrv/params", 0444 },
		{ "/proc/driver/gdrdrv/nv_get_pages_refcount", 0440 },
		{ "/proc/driver/gdrdrv/pins", 0400 },
		{ "/proc/driver/gdrdrv/stats", 0400 },
		{ "/dev/gdrdrv", 0666 },
	};
	char *text = read_text("/proc/driver/gdrdrv/params"), want[256];
	struct stat st;
	struct region r;
	size_t i;

	snprintf(
		want, sizeof(want),
		"Version: 2.6\nBuilt for NVIDIA driver flavor: %s\nUse persistent mapping: %s\ndbg_enabled: 0\ninfo_enabled: 0\nKept until the reboot: %s\n",
		rig.gpl ? "opensource" : "proprietary",
		rig.mode != CALLBACK && rig.gen > 470 ? "yes" : "no",
		driver_is_kept() ? "yes" : "no");
	CHECK(text && !strcmp(text, want));
	for (i = 0; i < ARRAY_SIZE(nodes); i++)
		CHECK(!stat(nodes[i].path, &st) && (st.st_mode & 0777) == nodes[i].mode);
	r = region(2 * GPU_PAGE, 0);
	CHECK_EQ(nr_pins(), 1);
	snprintf(want, sizeof(want), "\n%d 0 0x%llx 0x%llx %lu 65536 1 wc %s ", getpid(),
		 (unsigned long long)r.h, (unsigned long long)r.va, 2 * GPU_PAGE,
		 by_callback() ? "callback" : "persistent");
	text = read_text("/proc/driver/gdrdrv/pins");
	CHECK(text && strstr(text, want));
}

static void t_unknown_ioctl(void)
{
	static const unsigned int cmds[] = { 0,
					     _IO(0xDA, 1),
					     _IOWR(0xDA, 1, uint64_t),
					     _IOWR(0xDA, 9, uint64_t),
					     _IOWR(0xDA, 16, uint64_t[6]),
					     _IOWR(0xDA, 0, uint64_t),
					     _IOWR(0xDB, 2, uint64_t),
					     _IOR(0xDA, 2, uint64_t),
					     0xffffffff };
	uint64_t arg[8] = { 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cmds); i++)
		CHECK(ioctl(drv, cmds[i], arg) == -1 && errno == ENOTTY);
}

static const unsigned int all_cmds[] = {
	GDRDRV_IOC_PIN_BUFFER,	  GDRDRV_IOC_UNPIN_BUFFER,     GDRDRV_IOC_GET_CB_FLAG,
	GDRDRV_IOC_GET_INFO,	  GDRDRV_IOC_GET_INFO_V2,      GDRDRV_IOC_GET_ATTR,
	GDRDRV_IOC_PIN_BUFFER_V2, GDRDRV_IOC_REQ_MAPPING_TYPE, GDRDRV_IOC_GET_VERSION,
	GDRDRV_IOC_POPULATE,
};

static void t_bad_pointer(void)
{
	uint64_t *ro;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all_cmds); i++) {
		CHECK(ioctl(drv, all_cmds[i], NULL) == -1 && errno == EFAULT);
		CHECK(ioctl(drv, all_cmds[i], -1L) == -1 && errno == EFAULT);
	}
	/*
	 * A read-only argument: the pin succeeds, the copy of its handle fails, and the driver must
	 * undo the pin. Both versions of the call begin with address and size.
	 */
	ro = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ro[0] = gpu_alloc(prov, GPU_PAGE);
	ro[1] = GPU_PAGE;
	mprotect(ro, 4096, PROT_READ);
	CHECK(ioctl(drv, GDRDRV_IOC_PIN_BUFFER, ro) == -1 && errno == EFAULT);
	CHECK(ioctl(drv, GDRDRV_IOC_PIN_BUFFER_V2, ro) == -1 && errno == EFAULT);
	nothing_pinned();
}

/* The driver refuses unknown handles, also next to those of a region. */
static void t_bad_handle(void)
{
	int other = drv_open();
	uint64_t live = must_pin(drv, gpu_alloc(prov, 2 * GPU_PAGE), 2 * GPU_PAGE);
	uint64_t bad[] = {
		0, live + 1, live + 32, 0xffffffff, 1ULL << 32, live | 1ULL << 32, -1ULL
	};
	struct gdrdrv_ioc_get_info info;
	struct gdrdrv_ioc_get_info_v2 info2;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		FAILS(EINVAL, unpin(drv, bad[i]));
		FAILS(EINVAL, cb_flag(drv, bad[i]));
		FAILS(EINVAL, get_info(drv, bad[i], &info));
		FAILS(EINVAL, get_info_v2(drv, bad[i], &info2));
		FAILS(EINVAL, req_type(drv, bad[i], GDRDRV_MAPPING_TYPE_NONE));
		FAILS(EINVAL, populate(drv, bad[i]));
		if (bad[i] < 1ULL << 32)
			CHECK(map(drv, bad[i], GPU_PAGE) == MAP_FAILED && errno == EINVAL);
	}
	FAILS(EINVAL, unpin(other, live)); /* a handle belongs to its descriptor */
	CHECK(map(other, live, GPU_PAGE) == MAP_FAILED && errno == EINVAL);
	OK(get_info(drv, live, &info));
	OK(unpin(drv, live));
	FAILS(EINVAL, unpin(drv, live));
	FAILS(EINVAL, get_info(drv, live, &info));
}

static void t_pin_wrong(void)
{
	uint64_t va = gpu_alloc(prov, 4 * GPU_PAGE), h = 0;

	FAILS(EINVAL, pin(drv, va, 0, &h));
	FAILS(EOVERFLOW, pin(drv, va, -1ULL, &h));
	FAILS(EOVERFLOW, pin(drv, va, -va, &h));
	FAILS(EOVERFLOW, pin(drv, va, -va - 1, &h));
	FAILS(EOVERFLOW, pin(drv, -1ULL, 1, &h));
	FAILS(EOVERFLOW, pin(drv, -GPU_PAGE, 1, &h));
	FAILS(EOVERFLOW, pin(drv, 0, 1ULL << 60, &h));
	FAILS(EINVAL, pin(drv, va, 4 * GPU_PAGE + 1, &h)); /* beyond the allocation */
	FAILS(EINVAL, pin(drv, va - 1, 1, &h));
	FAILS(EINVAL, pin(drv, (uintptr_t)&h, 8, &h)); /* host memory */
	FAILS(EINVAL, pin_flags(drv, va, GPU_PAGE, 2, &h));
	FAILS(EINVAL, pin_flags(drv, va, GPU_PAGE, 0xffffffff, &h));
	FAILS(EINVAL, pin_flags(drv, va, 0, 0, &h));
	CHECK_EQ(h, 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
}

static void t_info(void)
{
	uint64_t va = gpu_alloc(prov, 4 * GPU_PAGE), h;
	struct gdrdrv_ioc_get_info info;
	struct gdrdrv_ioc_get_info_v2 info2;

	/* Unaligned address and size are rounded out to 64 KiB units. */
	h = must_pin(drv, va + GPU_PAGE + 5, GPU_PAGE);
	memset(&info, 0xff, sizeof(info));
	OK(get_info(drv, h, &info));
	CHECK_EQ(info.va, va + GPU_PAGE);
	CHECK_EQ(info.mapped_size, 2 * GPU_PAGE);
	CHECK_EQ(info.page_size, GPU_PAGE);
	CHECK(info.tsc_khz > 1000 && info.tm_cycles > 0);
	CHECK_EQ(info.mapped, 0);
	CHECK_EQ(info.wc_mapping, 0);
	memset(&info2, 0xff, sizeof(info2));
	OK(get_info_v2(drv, h, &info2));
	CHECK_EQ(info2.va, info.va);
	CHECK_EQ(info2.mapped_size, info.mapped_size);
	CHECK_EQ(info2.tm_cycles, info.tm_cycles);
	CHECK_EQ(info2.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
	CHECK_EQ(cb_flag(drv, h), 0);

	must_map(drv, h, GPU_PAGE);
	OK(get_info(drv, h, &info));
	CHECK_EQ(info.mapped, 1);
	CHECK_EQ(info.wc_mapping, 1);
	OK(get_info_v2(drv, h, &info2));
	CHECK_EQ(info2.mapping_type, GDRDRV_MAPPING_TYPE_WC);
	OK(unpin(drv, h));
	h = must_pin(drv, va, 1);
	OK(get_info(drv, h, &info));
	CHECK_EQ(info.mapped_size, GPU_PAGE);
}

/* Offsets of different regions never overlap, and are reused only after the end of the range. */
static void t_handles(void)
{
	uint64_t va = gpu_alloc(prov, 8 * GPU_PAGE), h[8], gone;
	unsigned int i, j, pages = GPU_PAGE / cpu_page();

	for (i = 0; i < 8; i++)
		h[i] = must_pin(drv, va, (i + 1) * GPU_PAGE);
	for (i = 0; i < 8; i++)
		for (j = i + 1; j < 8; j++)
			CHECK(h[i] + (i + 1) * pages <= h[j] || h[j] + (j + 1) * pages <= h[i]);
	gone = h[3];
	OK(unpin(drv, gone));
	CHECK(must_pin(drv, va, GPU_PAGE) != gone);
	FAILS(EINVAL, cb_flag(drv, gone));
}

static void t_data(void)
{
	struct region r = region(5 * GPU_PAGE, rig.arg);
	uint64_t got;

	check_data(&r, 5 * GPU_PAGE);
	/* An atomic operation of 8 bytes through the pointer. */
	*(volatile uint64_t *)(r.p + 8) = 41;
	CHECK_EQ(__atomic_fetch_add((volatile uint64_t *)(r.p + 8), 1, __ATOMIC_SEQ_CST), 41);
	gpu_peek(prov, r.va + 8, &got, 8);
	CHECK_EQ(got, 42);
}

/* The mapping of an unaligned pin begins at the address rounded down to 64 KiB. */
static void t_data_unaligned(void)
{
	uint64_t va = gpu_alloc(prov, 4 * GPU_PAGE);
	uint64_t h = must_pin(drv, va + GPU_PAGE + 1000, 100);

	must_map(drv, h, 5000)[1000] = 0x5a;
	CHECK_EQ(gpu_byte(va + GPU_PAGE + 1000), 0x5a);
}

/*
 * With a token the GPU driver does not compare processes, and tokens are small numbers. So the
 * driver refuses every token, also the caller's own, without a call of the GPU driver.
 */
static void t_tokens(void)
{
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h = 0;
	struct provider_tokens tokens;
	unsigned int gets, i;
	pid_t pid;

	CHECK(ioctl(prov, PROVIDER_IOC_TOKENS, &tokens) == 0);
	gets = gpu_info(prov).gets;
	pid = fork();
	if (!pid) {
		CHECK(!setgid(1000) && !setuid(1000));
		drv = drv_open();
		for (i = 0; i <= tokens.p2p_token; i++)
			FAILS(EINVAL, pin_tokens(drv, va, GPU_PAGE, i, tokens.va_space, &h));
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	FAILS(EINVAL, pin_tokens(drv, va, GPU_PAGE, tokens.p2p_token, tokens.va_space, &h));
	FAILS(EINVAL, pin_tokens(drv, va, GPU_PAGE, tokens.p2p_token, 0, &h));
	FAILS(EINVAL, pin_tokens(drv, va, GPU_PAGE, 0, tokens.va_space, &h));
	FAILS(EINVAL, pin_tokens(drv, va, GPU_PAGE, -1ULL, 0xffffffff, &h));
	CHECK_EQ(gpu_info(prov).gets, gets);
	OK(pin_tokens(drv, va, GPU_PAGE, 0, 0, &h));
}

/*
 * The GPU driver allocates in proportion to the requested size before it checks the address, so a
 * size that exceeds every BAR1 must not reach it. A request for unallocated memory reaches it once.
 */
static void t_too_large(void)
{
	static const uint64_t sizes[] = { 16ULL << 30, 1ULL << 40 };
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	unsigned int gets = gpu_info(prov).gets;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		FAILS(ENOMEM, pin_tokens(drv, va, sizes[i], 0, 0, &h));
	CHECK_EQ(gpu_info(prov).gets, gets);
	FAILS(EINVAL, pin_tokens(drv, va + GPU_PAGE, GPU_PAGE, 0, 0, &h));
	CHECK_EQ(gpu_info(prov).gets, gets + (rig.mode == FALLBACK && rig.gen > 515 ? 2 : 1));
	CHECK(gpu_info(prov).largest_get <= gpu_info(prov).bar_size);
}

static void t_force_pcie(void)
{
	int ret;
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h = 0;

	ret = pin_flags(drv, va, GPU_PAGE, GDRDRV_PIN_FLAG_FORCE_PCIE, &h);
	if (rig.gen < 570 || rig.mode == CALLBACK) {
		CHECK_EQ(ret, -EINVAL); /* forced pins are persistent */
	} else if (rig.mode == FALLBACK) {
		CHECK_EQ(ret, -EOPNOTSUPP); /* 524 of the provider; nothing to fall back to */
	} else {
		CHECK_EQ(ret, 0);
		CHECK_EQ(read_number("/sys/module/provider/parameters/last_flags"), 1);
		OK(unpin(drv, h));
	}
	OK(pin_flags(drv, va, GPU_PAGE, 0, &h));
	OK(unpin(drv, h));
}

/* Pins have the kind that the set-up is named after. */
static void t_mode(void)
{
	long before = stat_of("pins_persistent");

	must_pin(drv, gpu_alloc(prov, GPU_PAGE), GPU_PAGE);
	if (rig.gpl)
		CHECK_EQ(stat_of("pins_persistent") - before, !by_callback());
}

/* A pin that fails leaves no callback, so it does not keep the module. Runs first. */
static void t_failed_pin(void)
{
	uint64_t h;

	if (driver_is_kept())
		SKIP("there were callback pins");
	FAILS(EINVAL, pin_tokens(drv, PROVIDER_VA_BASE, GPU_PAGE, 0, 0, &h));
	close(drv);
	CHECK(!driver_is_kept());
	OK(delete_module_named("gdrdrv"));
	OK(load_driver());
}

const struct test tests_basic[] = {
	{ "failed-pin", t_failed_pin, ANY_MODE, 0, 0 },
	{ "version", t_version, ANY_MODE, 0, 0 },
	{ "attributes", t_attr, ANY_MODE, 0, 0 },
	{ "mode", t_mode, ANY_MODE, 0, 0 },
	{ "proc", t_proc, ANY_MODE, 0, 0 },
	{ "proc-pins", t_proc_pins, ANY_MODE, 0, 0 },
	{ "unknown-ioctl", t_unknown_ioctl, ANY_MODE, 0, 0 },
	{ "bad-pointer", t_bad_pointer, ANY_MODE, 0, 0 },
	{ "bad-handle", t_bad_handle, ANY_MODE, 0, 0 },
	{ "pin-wrong", t_pin_wrong, ANY_MODE, 0, 0 },
	{ "info", t_info, ANY_MODE, 0, 0 },
	{ "handles", t_handles, ANY_MODE, 0, 0 },
	{ "data", t_data, ANY_MODE, 0, 0 },
	{ "data-scattered", t_data, ANY_MODE, 0, PROVIDER_SCATTER },
	{ "data-unaligned", t_data_unaligned, ANY_MODE, 0, 0 },
	{ "tokens", t_tokens, ANY_MODE, 0, 0 },
	{ "too-large", t_too_large, ANY_MODE, 0, 0 },
	{ "force-pcie", t_force_pcie, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
