// SPDX-License-Identifier: MIT
/* A provider that fails or hands out what it should not, and a kernel without memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>

#include "rig.h"

static void t_get_fails(void)
{
	static const int errs[] = { EINVAL, ENOMEM, EIO, EPERM };
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	size_t i;

	for (i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		knob("fail_get", errs[i]);
		CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -errs[i]);
	}
	knob("fail_get", 524); /* the kernel's ENOTSUPP is not for programs */
	CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -EOPNOTSUPP);
	knob("fail_get", 0);
	CHECK_EQ(read_number("/proc/driver/gdrdrv/nv_get_pages_refcount"), 0);
}

/* K12: that one pin falls back, the next one does not. */
static void t_fallback_per_pin(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE), a, b;

	if (rig.gen == 470)
		SKIP("no persistent interface in this generation");
	knob("fail_persistent", EINVAL);
	a = must_pin(drv, va, GPU_PAGE);
	knob("fail_persistent", 0);
	b = must_pin(drv, va, GPU_PAGE);
	CHECK_EQ(gpu_free(prov, va), 0);
	CHECK_EQ(cb_flag(drv, a), 1);
	CHECK_EQ(cb_flag(drv, b), 0);
	/* No fall-back when memory is short. */
	va = gpu_alloc(prov, GPU_PAGE);
	knob("fail_persistent", ENOMEM);
	CHECK_EQ(pin(drv, va, GPU_PAGE, &a), -ENOMEM);
	knob("fail_persistent", 0);
}

static void t_table_version(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;

	knob("table_version", rig.gen >= 580 ? 0x10002 : 0x20000);
	CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -EOPNOTSUPP);
	knob("table_version", 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	must_pin(drv, va, GPU_PAGE);
}

static void t_table_wrong(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, 4 * GPU_PAGE), h;

	knob("page_kib", 77);
	CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -EOPNOTSUPP);
	knob("page_kib", 0);
	knob("short_table", 1);
	CHECK_EQ(pin(drv, va, 4 * GPU_PAGE, &h), -EINVAL);
	CHECK_EQ(pin(drv, va, 1, &h), -EINVAL);
	knob("short_table", 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
}

/* K8 */
static void page_size(int kib, unsigned int flags)
{
	int drv = drv_open(), prov = prov_open();
	size_t size = 6 * GPU_PAGE, i, skip = GPU_PAGE;
	uint64_t va = gpu_alloc_flags(prov, size, flags).va, h;
	struct gdrdrv_ioc_get_info info;
	volatile uint8_t *p;
	uint8_t *got = malloc(size);

	knob("page_kib", kib);
	/* From the second 64 KiB on: in a table of 128 KiB pages the middle of one. */
	CHECK_EQ(pin(drv, va + skip, size - skip, &h), 0);
	knob("page_kib", 0);
	CHECK_EQ(get_info(drv, h, &info), 0);
	CHECK_EQ(info.page_size, kib * 1024);
	CHECK_EQ(info.mapped_size, size - skip);
	p = must_map(drv, h, size - skip);
	for (i = 0; i < size - skip; i += 512)
		p[i] = (uint8_t)(i / 512 + 1);
	__sync_synchronize();
	gpu_peek(prov, va + skip, got, size - skip);
	for (i = 0; i < size - skip; i += 512)
		CHECK_EQ(got[i], (uint8_t)(i / 512 + 1));
	CHECK_EQ(unpin(drv, h), 0);
	munmap((void *)(uintptr_t)p, size - skip);
	close(drv);
}

static void t_page_4k(void)
{
	page_size(4, 0);
	page_size(4, PROVIDER_SCATTER);
}

static void t_page_128k(void)
{
	page_size(128, 0);
}

static void t_cacheable(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	struct gdrdrv_ioc_get_info_v2 info;
	volatile uint8_t *p;

	if (rig.gen < 580)
		SKIP("no table flags in this generation");
	knob("cacheable", 1);
	h = must_pin(drv, va, GPU_PAGE);
	knob("cacheable", 0);
	p = must_map(drv, h, GPU_PAGE);
	p[0] = 1;
	CHECK_EQ(get_info_v2(drv, h, &info), 0);
#ifdef __x86_64__
	/* The MTRRs make a BAR uncached: write-combining is the best there is, and is reported. */
	CHECK_EQ(info.mapping_type, GDRDRV_MAPPING_TYPE_WC);
	CHECK(pte_is_wc(read_pte(prov, p).pte));
#else
	CHECK_EQ(info.mapping_type, GDRDRV_MAPPING_TYPE_CACHING);
	CHECK_EQ((read_pte(prov, p).pte >> 2) & 7, 0);
	CHECK_EQ(req_type(drv, h, GDRDRV_MAPPING_TYPE_WC), -EOPNOTSUPP);
#endif
}

/* A put that fails leaves the pin with the GPU driver: its callback must still find us. */
static void t_put_fails(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va, h;

	if (!by_callback())
		SKIP("a failed persistent put can only be reported");
	va = gpu_alloc(prov, GPU_PAGE);
	h = must_pin(drv, va, GPU_PAGE);
	knob("fail_put", EIO);
	CHECK_EQ(unpin(drv, h), 0);
	knob("fail_put", 0);
	CHECK_EQ(cb_flag(drv, h), -EINVAL);
	close(drv);
	CHECK_EQ(delete_module_named("gdrdrv"), -EAGAIN);
	CHECK_EQ(gpu_free(prov, va), 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
}

/* K2: every allocation of every call fails once; fail-nth fails the n-th of this thread. */
static int failing(int drv, int what, uint64_t va, uint64_t live)
{
	uint64_t h = 0;
	void *p;
	int ret, fd;

	switch (what) {
	case 0:
		ret = pin(drv, va, 4 * GPU_PAGE, &h);
		if (!ret)
			CHECK_EQ(unpin(drv, h), 0);
		return ret;
	case 1:
		ret = pin_flags(drv, va, 4 * GPU_PAGE, 0, &h);
		if (!ret)
			CHECK_EQ(unpin(drv, h), 0);
		return ret;
	case 2:
		fd = open("/dev/gdrdrv", O_RDWR);
		if (fd < 0)
			return -errno;
		close(fd);
		return 0;
	case 3:
		p = map(drv, live, GPU_PAGE);
		if (p == MAP_FAILED)
			return -errno;
		while (munmap(p, GPU_PAGE)) /* that may be what fails, once */
			;
		return 0;
	case 4:
		return cb_flag(drv, live);
	default:
		free(read_text("/proc/driver/gdrdrv/pins"));
		return 0;
	}
}

static void t_failslab(void)
{
	int drv = drv_open(), prov = prov_open(), what, nth, fd, hits;
	uint64_t va = gpu_alloc_flags(prov, 4 * GPU_PAGE, PROVIDER_SCATTER).va;
	uint64_t live = must_pin(drv, va, GPU_PAGE);
	char text[16];

	fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (fd < 0)
		SKIP("this kernel cannot fail allocations");
	write_text("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	for (what = 0; what < 6; what++) {
		hits = 0;
		for (nth = 1; nth < 200; nth++) {
			int ret, n;

			snprintf(text, sizeof(text), "%d", nth);
			CHECK(pwrite(fd, text, strlen(text), 0) > 0);
			ret = failing(drv, what, va, live);
			n = (int)pread(fd, text, sizeof(text) - 1, 0);
			CHECK(n > 0);
			text[n] = 0;
			CHECK(pwrite(fd, "0", 1, 0) > 0);
			/* Either it worked all the same, or it said so. */
			CHECK(ret == 0 || ret == -ENOMEM || ret == -EINVAL || ret == -EFAULT);
			if (ret)
				hits++;
			CHECK_EQ(gpu_info(prov).pins, 1);
			if (atoi(text))
				break; /* fewer than nth allocations: all have failed once */
		}
		CHECK(nth < 200);
		printf("# call %d: %d allocations failed in turn, %d errors\n", what, nth - 1,
		       hits);
		if (what < 3)
			CHECK(hits > 0);
	}
	CHECK_EQ(unpin(drv, live), 0);
}

const struct test tests_fault[] = {
	{ "get-fails", t_get_fails, PERSISTENT | CALLBACK, 0 },
	{ "fallback-per-pin", t_fallback_per_pin, PERSISTENT, 0 },
	{ "table-version", t_table_version, BY_P2P, 0 },
	{ "table-wrong", t_table_wrong, BY_P2P, 0 },
	{ "page-4k", t_page_4k, BY_P2P, 0 },
	{ "page-128k", t_page_128k, BY_P2P, 0 },
	{ "cacheable", t_cacheable, BY_P2P, 0 },
	{ "put-fails", t_put_fails, BY_P2P, 0 },
	{ "failslab", t_failslab, ANY_MODE, 60 },
	{ NULL, NULL, 0, 0 },
};
