// SPDX-License-Identifier: MIT
/* Counts faults and entries of a whole mapping; times map, first touch, unmap, revocation. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "rig.h"

static void measure(size_t size, bool aligned)
{
	struct provider_alloc mem = gpu_alloc_flags(prov, size, PROVIDER_ALIGN_2M);
	long long t0, t1, t2, t3, t4;
	long faults, ptes, ptes_populated;
	uint64_t h = must_pin(drv, mem.va, size);
	uint8_t *at = reserve(size, 2 * MiB);
	size_t off;

	if (!aligned) /* shifts the 2 MiB windows against the memory */
		at = (uint8_t *)reserve(size + 2 * MiB, 2 * MiB) + GPU_PAGE;
	/* Warms the emulator, which has to find a page of the BAR's file at the first touch. */
	must_map_at(drv, h, size, at);
	for (off = 0; off < size; off += 2 * MiB)
		(void)*(volatile uint8_t *)(at + off);
	CHECK_EQ(munmap(at, size), 0);
	faults = stat_of("faults");
	ptes = stat_of("ptes");
	t0 = now_us();
	must_map_at(drv, h, size, at);
	t1 = now_us();
	for (off = 0; off < size; off += 2 * MiB)
		(void)*(volatile uint8_t *)(at + off);
	(void)*(volatile uint8_t *)(at + size - 1);
	t2 = now_us();
	faults = stat_of("faults") - faults;
	ptes = stat_of("ptes") - ptes;
	CHECK_EQ(munmap(at, size), 0);
	t3 = now_us();
	must_map_at(drv, h, size, at);
	ptes_populated = stat_of("ptes");
	t4 = now_us();
	OK(populate(drv, h));
	t4 = now_us() - t4;
	ptes_populated = stat_of("ptes") - ptes_populated;
	CHECK_EQ(munmap(at, size), 0);
	printf("# measure: %zu KiB, %s: %ld faults, %ld entries; map %lld us, first touch %lld us, unmap %lld us; populate %lld us\n",
	       size / KiB, aligned ? "aligned" : "unaligned", faults, ptes, t1 - t0, t2 - t1,
	       t3 - t2, t4);
	/* Every page has its entry, and no fault was taken for a page that had one. */
	CHECK_EQ(ptes, size / cpu_page());
	CHECK_EQ(ptes_populated, size / cpu_page());
	CHECK(faults <= (long)(size / (2 * MiB) + 2));
	OK(unpin(drv, h));
	OK(gpu_free(prov, mem.va));
}

/* Times the free callback of a mapping whose pages have all been touched. */
static void measure_revoke(size_t size)
{
	struct provider_alloc mem = gpu_alloc_flags(prov, size, PROVIDER_ALIGN_2M);
	uint64_t h = must_pin(drv, mem.va, size);
	uint8_t *at = reserve(size, 2 * MiB);
	long ptes = stat_of("ptes");
	long long start;
	size_t off;

	must_map_at(drv, h, size, at);
	for (off = 0; off < size; off += cpu_page())
		(void)*(volatile uint8_t *)(at + off);
	ptes = stat_of("ptes") - ptes;
	start = now_us();
	OK(gpu_free(prov, mem.va));
	printf("# revoke: %zu MiB, %ld entries: callback %llu us, the whole free %lld us\n",
	       size / MiB, ptes, (unsigned long long)gpu_info(prov).callback_ns / 1000,
	       now_us() - start);
	CHECK_EQ(cb_flag(drv, h), 1);
	for (off = 0; off < size; off += size / 16)
		CHECK_EQ(read_pte(prov, at + off).level, 0);
	CHECK_EQ(try_read(at), SIGBUS);
	CHECK_EQ(munmap(at, size), 0);
	OK(unpin(drv, h));
}

static void t_measure_revoke(void)
{
	int i;
	uint64_t bar = gpu_info(prov).bar_size;

	if (bar < 4096 * MiB)
		SKIP("the BAR is too small");
	for (i = 0; i < 2; i++) { /* the first also warms the emulator */
		measure_revoke(64 * MiB);
		measure_revoke(1024 * MiB);
	}
}

static void t_measure(void)
{
	static const size_t sizes[] = { 64 * KiB, 64 * MiB, 1024 * MiB };
	uint64_t bar = gpu_info(prov).bar_size;
	size_t i;

	for (i = 0; i < 3; i++) {
		if (sizes[i] > bar / 2)
			continue;
		measure(sizes[i], true);
		measure(sizes[i], false);
	}
}

/*
 * Times a pin and an unpin of a page while @held pins exist, of that page or of others: the fastest
 * ten of many, since a busy host stops the machine at any moment.
 */
static double pin_us(uint64_t va, unsigned int held, size_t step)
{
	uint64_t *handles = calloc(held, sizeof(*handles)), h;
	long long start, best = 0;
	unsigned int i, j;

	for (i = 0; i < held; i++)
		handles[i] = must_pin(drv, va + i * step, GPU_PAGE);
	for (i = 0; i < 100; i++) {
		start = now_us();
		for (j = 0; j < 10; j++) {
			h = must_pin(drv, va, GPU_PAGE);
			OK(unpin(drv, h));
		}
		start = now_us() - start;
		if (!i || start < best)
			best = start;
	}
	for (i = held; i--;) /* the provider finds the newest at once */
		OK(unpin(drv, handles[i]));
	free(handles);
	return (double)best / 10;
}

/* What one more pin costs, and what many pins of a scattered buffer keep in the kernel. */
static void t_measure_held(void)
{
	size_t size = 10000 * GPU_PAGE;
	double one, same, others;
	uint64_t va, handles[1500];
	char *text;
	long slab[2];
	size_t i;

	if (gpu_info(prov).bar_size < 4096 * MiB)
		SKIP("the BAR is too small");
	va = gpu_alloc(prov, size);
	pin_us(va, 1, 0); /* warms the emulator */
	one = pin_us(va, 1, 0);
	same = pin_us(va, 10000, 0);
	others = pin_us(va, 10000, GPU_PAGE);
	printf("# pin and unpin: %.1f us with 1 pin; %.1f us (%.2f times) with 10,000 of the same page, %.1f us (%.2f times) of other pages\n",
	       one, same, same / one, others, others / one);
	va = gpu_alloc_flags(prov, 16 * MiB, PROVIDER_SCATTER).va;
	for (i = 0; i < 2; i++) {
		size_t pin;

		text = read_text("/proc/meminfo");
		slab[i] = strtol(strstr(text, "\nSlab:") + 6, NULL, 10);
		free(text);
		for (pin = 0; !i && pin < ARRAY_SIZE(handles); pin++)
			handles[pin] = must_pin(drv, va, 16 * MiB);
	}
	printf("# 1,500 pins of 256 runs: %ld kB of slab\n", slab[1] - slab[0]);
	for (i = ARRAY_SIZE(handles); i--;)
		OK(unpin(drv, handles[i]));
}

/*
 * Handles wrap after 2^32 pages and skip regions that are still in use. Needs a BAR of 4 GiB:
 * smaller regions would take too long to wrap.
 */
static void t_handle_wrap(void)
{
	int i;
	uint64_t bar = gpu_info(prov).bar_size, size = bar / 2 - 4 * MiB, h = 0, last;
	uint64_t first, second, big, pages = size / cpu_page();

	if (bar < 4096 * MiB)
		SKIP("the BAR is too small");
	first = must_pin(drv, gpu_alloc(prov, MiB), MiB);
	second = must_pin(drv, gpu_alloc(prov, MiB), MiB);
	big = gpu_alloc(prov, size);
	CHECK_EQ(first, 1);
	for (i = 0; i < 10000; i++) {
		last = h;
		h = must_pin(drv, big, size);
		OK(unpin(drv, h));
		if (h < last)
			break;
	}
	CHECK(h < last);
	CHECK(last + 2 * pages > GDRDRV_HANDLE_MAX);
	CHECK_EQ(h, second + MiB / cpu_page()); /* after the two live regions */
	CHECK_EQ(cb_flag(drv, first), 0);
	OK(unpin(drv, first));
	OK(unpin(drv, second));
	printf("# handles wrapped after %d pins\n", i);
}

static void *wrong_pins(void *unused)
{
	uint64_t h;

	(void)unused;
	for (;;)
		FAILS(EINVAL, pin(drv, PROVIDER_VA_BASE - GPU_PAGE, 32 * MiB, &h));
	return NULL;
}

/* One user's threads pin 32 MiB at a wrong address; another user pins 16 MiB of its own. */
static void t_measure_large(void)
{
	static const unsigned int threads[] = { 0, 1, 8, 64 };
	long long start, one, sum, worst;
	unsigned int t, i, n;
	pid_t pid;

	CHECK(gpu_info(prov).bar_size >= 32 * MiB);
	for (t = 0; t < ARRAY_SIZE(threads); t++) {
		pid = fork();
		if (!pid) {
			pthread_t thread;

			become_user_like_root();
			drv = drv_open();
			for (i = 0; i < threads[t]; i++)
				CHECK(!pthread_create(&thread, NULL, wrong_pins, NULL));
			pause();
		}
		usleep(300000);
		for (n = 0, sum = 0, worst = 0; n < 20 && sum < 10000000; n++) {
			uint64_t va = gpu_alloc(prov, 16 * MiB);

			start = now_us();
			CHECK_EQ(unpin(drv, must_pin(drv, va, 16 * MiB)), 0);
			one = now_us() - start;
			OK(gpu_free(prov, va));
			sum += one;
			worst = one > worst ? one : worst;
		}
		CHECK(!kill(pid, SIGKILL));
		wait_child(pid);
		printf("# large pins: %u threads of another user: mean %lld us, worst %lld us of %u\n",
		       threads[t], sum / n, worst, n);
	}
}

/*
 * Writes lines of eight bytes, a number each, that the host checks in the BAR's file after the machine
 * has ended: each set-up has a place of its own.
 */
static void t_host_pattern(void)
{
	struct provider_alloc mem = { .size = 2 * GPU_PAGE,
				      .flags = PROVIDER_KEEP,
				      .keep = rig.setup };
	unsigned int first = 1000000 + rig.seed % 1000000 + 100000 * rig.setup;
	volatile uint8_t *p;
	char line[16];
	size_t i;

	CHECK(ioctl(prov, PROVIDER_IOC_ALLOC, &mem) == 0);
	p = must_map(drv, must_pin(drv, mem.va, 2 * GPU_PAGE), 2 * GPU_PAGE);
	for (i = 0; i < 2 * GPU_PAGE; i++) {
		if (i % 8 == 0)
			snprintf(line, sizeof(line), "%u\n", first + (unsigned int)i / 8);
		p[i] = (uint8_t)line[i % 8];
	}
	printf("HOSTCHECK %llu %lu %u\n", (unsigned long long)(mem.phys - gpu_info(prov).bar_phys),
	       2 * GPU_PAGE, first);
}

const struct test tests_measure[] = {
	{ "measure", t_measure, PERSISTENT, 120, 0 },
	{ "measure-revoke", t_measure_revoke, CALLBACK, 240, 0 },
	{ "measure-held", t_measure_held, ANY_MODE, 240, 0 },
	{ "measure-large", t_measure_large, ANY_MODE, 240, 0 },
	{ "handle-wrap", t_handle_wrap, PERSISTENT, 400, 0 },
	{ "host-pattern", t_host_pattern, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
