// SPDX-License-Identifier: MIT
/* The driver on Tegra's interface: host memory by its own address, a callback that always runs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "rig.h"

/*
 * cudaHostAlloc; kind: 0 cached, or an offset of the provider's node. Between mappings that nobody
 * touches: what becomes of one that ends where it starts would take its pages back.
 */
static uint8_t *host_alloc(int prov, size_t size, uint64_t kind)
{
	size_t page = cpu_page();
	uint8_t *p = mmap(NULL, size + 2 * page, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	CHECK(mmap(p + page, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, prov,
		   (off_t)kind) == p + page);
	return p + page;
}

static uint64_t addr_of(const volatile void *p)
{
	return (uintptr_t)p;
}

static bool pte_is_cached(uint64_t pte)
{
	return ((pte >> 2) & 7) == 0; /* MT_NORMAL */
}

/* Bytes both ways, and the entries' type: that of the allocation (guide, 13.4.3). */
static void check_type(uint64_t kind, uint32_t type)
{
	int drv = drv_open(), prov = prov_open();
	size_t size = 5 * cpu_page();
	uint8_t *mem = host_alloc(prov, size, kind), *want = malloc(size);
	uint64_t h = must_pin(drv, addr_of(mem), size);
	volatile uint8_t *p = must_map(drv, h, size);
	struct gdrdrv_ioc_get_info_v2 info;

	CHECK_EQ(get_info_v2(drv, h, &info), 0);
	CHECK_EQ(info.va, addr_of(mem));
	CHECK_EQ(info.mapped_size, size);
	CHECK_EQ(info.page_size, cpu_page());
	CHECK_EQ(info.mapping_type, type);
	pattern(want, size, 1);
	memcpy(mem, want, size);
	__sync_synchronize();
	CHECK(!memcmp((const void *)(uintptr_t)p, want, size));
	pattern(want, size, 2);
	memcpy((void *)(uintptr_t)p, want, size);
	__sync_synchronize();
	CHECK(!memcmp(mem, want, size));
	for (size_t off = 0; off < size; off += cpu_page()) {
		struct provider_pte pte = read_pte(prov, p + off), own = read_pte(prov, mem + off);

		CHECK_EQ(pte.level, 1);
		CHECK_EQ(pte_is_wc(pte.pte), type == GDRDRV_MAPPING_TYPE_WC);
		CHECK_EQ(pte_is_cached(pte.pte), type == GDRDRV_MAPPING_TYPE_CACHING);
		CHECK_EQ(pte.pte >> 2 & 7, own.pte >> 2 & 7);
	}
	CHECK_EQ(munmap((void *)(uintptr_t)p, size), 0);
	/* No other type is to be had. */
	for (uint32_t other = 1; other <= 3; other++)
		CHECK_EQ(req_type(drv, h, other), other == type ? 0 : -EOPNOTSUPP);
}

static void t_cached(void)
{
	check_type(0, GDRDRV_MAPPING_TYPE_CACHING);
}

static void t_wc(void)
{
	check_type(PROVIDER_TEGRA_WC, GDRDRV_MAPPING_TYPE_WC);
}

/* Whole pages around what was asked for, no more: the neighbours need not be there. */
static void t_unit(void)
{
	int drv = drv_open(), prov = prov_open();
	uint8_t *mem = host_alloc(prov, 3 * cpu_page(), 0);
	struct gdrdrv_ioc_get_info_v2 info;
	uint64_t h;

	CHECK_EQ(munmap(mem, cpu_page()), 0);
	CHECK_EQ(munmap(mem + 2 * cpu_page(), cpu_page()), 0);
	h = must_pin(drv, addr_of(mem) + cpu_page() + 5, 1);
	CHECK_EQ(get_info_v2(drv, h, &info), 0);
	CHECK_EQ(info.va, addr_of(mem) + cpu_page());
	CHECK_EQ(info.mapped_size, cpu_page());
	must_map(drv, h, cpu_page())[5] = 0x5a;
	CHECK_EQ(mem[cpu_page() + 5], 0x5a);
}

static void t_refused(void)
{
	int drv = drv_open(), prov = prov_open();
	uint8_t *device = host_alloc(prov, cpu_page(), PROVIDER_TEGRA_DEVICE);
	uint8_t *two = host_alloc(prov, 2 * cpu_page(), 0);
	uint64_t h = 0;

	/* Two mappings of one range, of different types. */
	CHECK(mmap(two + cpu_page(), cpu_page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		   prov, (off_t)PROVIDER_TEGRA_WC) == two + cpu_page());
	CHECK_EQ(pin(drv, addr_of(two), 2 * cpu_page(), &h), -EINVAL);
	CHECK_EQ(pin(drv, addr_of(device), cpu_page(), &h), -EOPNOTSUPP);
	CHECK_EQ(pin(drv, addr_of(two), 0, &h), -EINVAL);
	CHECK_EQ(pin(drv, addr_of(two), -1ULL, &h), -EOVERFLOW);
	CHECK(pin(drv, 1ULL << 40, cpu_page(), &h) < 0); /* nothing there */
	CHECK(pin(drv, PROVIDER_VA_BASE << 8, cpu_page(), &h) < 0); /* no address of a process */
	CHECK_EQ(pin_tokens(drv, addr_of(two), cpu_page(), 1, 1, &h), -EINVAL);
	CHECK_EQ(pin_flags(drv, addr_of(two), cpu_page(), GDRDRV_PIN_FLAG_FORCE_PCIE, &h), -EINVAL);
	CHECK_EQ(h, 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
}

/* The put runs the callback: the table is freed once, and it is no revocation. */
static void t_put(void)
{
	int drv = drv_open(), prov = prov_open();
	uint8_t *mem = host_alloc(prov, 2 * cpu_page(), 0);
	uint32_t before = gpu_info(prov).callbacks;
	long revokes = stat_of("revokes");
	uint64_t h = must_pin(drv, addr_of(mem), 2 * cpu_page());
	volatile uint8_t *p = must_map(drv, h, cpu_page());

	p[0] = 1;
	CHECK_EQ(gpu_info(prov).tables, 1);
	CHECK_EQ(unpin(drv, h), 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(gpu_info(prov).callbacks, before + 1);
	CHECK_EQ(stat_of("revokes"), revokes);
	CHECK_EQ(try_read(p), SIGBUS);
	CHECK_EQ(mem[0], 1);
}

/* The memory goes first: entries go with it, the flag tells, the unpin finds nothing to put. */
static void t_memory_first(void)
{
	int drv = drv_open(), prov = prov_open();
	uint8_t *mem = host_alloc(prov, 2 * cpu_page(), PROVIDER_TEGRA_WC);
	uint64_t h = must_pin(drv, addr_of(mem), 2 * cpu_page());
	volatile uint8_t *p = must_map(drv, h, 2 * cpu_page());

	p[0] = 1;
	CHECK_EQ(cb_flag(drv, h), 0);
	CHECK_EQ(munmap(mem, 2 * cpu_page()), 0);
	CHECK_EQ(cb_flag(drv, h), 1);
	CHECK_EQ(read_pte(prov, p).level, 0);
	CHECK_EQ(try_read(p), SIGBUS);
	CHECK_EQ(try_write(p + cpu_page(), 1), SIGBUS);
	CHECK(map(drv, h, cpu_page()) == MAP_FAILED && errno == EINVAL);
	CHECK_EQ(unpin(drv, h), 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(gpu_info(prov).late_puts, 0);
}

static void pin_and_wait(int prov, int ready)
{
	int drv = drv_open();
	uint8_t *mem = host_alloc(prov, cpu_page(), 0);

	must_map(drv, must_pin(drv, addr_of(mem), cpu_page()), cpu_page())[0] = 1;
	CHECK_EQ(write(ready, "r", 1), 1);
	pause();
}

/* kill -9 of a process with a pin and a mapping: its mm ends before its descriptors do. */
static void t_killed(void)
{
	int prov = prov_open(), ready[2];
	char c;
	pid_t pid;

	CHECK_EQ(pipe(ready), 0);
	pid = fork();
	if (!pid)
		pin_and_wait(prov, ready[1]);
	CHECK_EQ(read(ready[0], &c, 1), 1);
	CHECK_EQ(gpu_info(prov).tables, 1);
	kill(pid, SIGKILL);
	CHECK_EQ(wait_child(pid), 128 + SIGKILL);
	CHECK_EQ(gpu_info(prov).tables, 0);
}

/* The last close in another process: the put works there (the pin knows its own mm). */
static void t_foreign_close(void)
{
	int drv = drv_open(), prov = prov_open(), go[2];
	uint8_t *mem = host_alloc(prov, cpu_page(), 0);
	pid_t pid;
	char c;

	must_pin(drv, addr_of(mem), cpu_page());
	CHECK_EQ(pipe(go), 0);
	pid = fork();
	if (!pid) {
		CHECK_EQ(read(go[0], &c, 1), 1);
		_exit(0); /* closes */
	}
	close(drv);
	CHECK_EQ(gpu_info(prov).tables, 1);
	CHECK_EQ(write(go[1], "g", 1), 1);
	CHECK_EQ(wait_child(pid), 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(stat_of("orphans"), 0);
}

struct racer {
	pthread_barrier_t start;
	uint8_t *mem;
	size_t size;
	volatile bool quit;
};

static void *unmapper(void *arg)
{
	struct racer *r = arg;

	for (;;) {
		pthread_barrier_wait(&r->start);
		if (r->quit)
			return NULL;
		munmap(r->mem, r->size);
		pthread_barrier_wait(&r->start);
	}
}

/* Unpin, or pin, against the memory's end. */
static void race(bool while_pinning)
{
	int drv = drv_open(), prov = prov_open();
	struct racer r = { .size = 2 * cpu_page() };
	unsigned int i, rounds = rig.rounds;
	uint64_t h;
	pthread_t t;

	pthread_barrier_init(&r.start, NULL, 2);
	CHECK_EQ(pthread_create(&t, NULL, unmapper, &r), 0);
	for (i = 0; i < rounds; i++) {
		r.mem = host_alloc(prov, r.size, i & 1 ? PROVIDER_TEGRA_WC : 0);
		if (!while_pinning)
			h = must_pin(drv, addr_of(r.mem), r.size);
		pthread_barrier_wait(&r.start);
		if (while_pinning) {
			if (pin(drv, addr_of(r.mem), r.size, &h))
				h = 0;
		}
		if (h)
			CHECK_EQ(unpin(drv, h), 0);
		pthread_barrier_wait(&r.start);
	}
	r.quit = true;
	pthread_barrier_wait(&r.start);
	pthread_join(t, NULL);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(gpu_info(prov).errors, 0);
}

static void t_race_unpin(void)
{
	race(false);
}

static void t_race_pin(void)
{
	race(true);
}

/* Faults through the mapping against the memory's end: a byte or SIGBUS, never another's memory. */
static void t_race_fault(void)
{
	int drv = drv_open(), prov = prov_open();
	struct racer r = { .size = cpu_page() };
	unsigned int i;
	pthread_t t;

	pthread_barrier_init(&r.start, NULL, 2);
	CHECK_EQ(pthread_create(&t, NULL, unmapper, &r), 0);
	for (i = 0; i < rig.rounds; i++) {
		volatile uint8_t *p;
		uint64_t h;

		r.mem = host_alloc(prov, r.size, 0);
		h = must_pin(drv, addr_of(r.mem), r.size);
		p = must_map(drv, h, r.size);
		pthread_barrier_wait(&r.start);
		(void)try_write(p, 1);
		pthread_barrier_wait(&r.start);
		CHECK_EQ(cb_flag(drv, h), 1); /* waits for the end of the revocation */
		CHECK_EQ(read_pte(prov, p).level, 0);
		CHECK_EQ(try_read(p), SIGBUS);
		CHECK_EQ(munmap((void *)(uintptr_t)p, r.size), 0);
		CHECK_EQ(unpin(drv, h), 0);
	}
	r.quit = true;
	pthread_barrier_wait(&r.start);
	pthread_join(t, NULL);
}

/* ---- neighbours, and the end of a process --------------------------------------------------- */

/* A buffer with our mapping of it directly below, touched: unmapping that is a hit. */
struct near {
	uint8_t *mem;
	uint64_t h;
	volatile uint8_t *p;
};

static struct near map_near(int drv, int prov)
{
	size_t page = cpu_page();
	struct near near = { .mem = host_alloc(prov, 2 * page, 0) };

	CHECK_EQ(munmap(near.mem - page, page), 0);
	near.h = must_pin(drv, addr_of(near.mem), 2 * page);
	near.p = map_prot(drv, near.h, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			  near.mem - page);
	CHECK(near.p == near.mem - page);
	near.p[0] = 0x5a;
	CHECK_EQ(near.mem[0], 0x5a);
	CHECK_EQ(cb_flag(drv, near.h), 0);
	return near;
}

static void t_near_unpin(void)
{
	int drv = drv_open(), prov = prov_open();
	struct near near = map_near(drv, prov);

	CHECK_EQ(unpin(drv, near.h), 0);
	CHECK_EQ(try_read(near.p), SIGBUS);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
}

/* The buffer goes: its callback unmaps the neighbour, which is no second hit. */
static void t_near_memory_first(void)
{
	int drv = drv_open(), prov = prov_open();
	struct near near = map_near(drv, prov);

	CHECK_EQ(munmap(near.mem, 2 * cpu_page()), 0);
	CHECK_EQ(cb_flag(drv, near.h), 1);
	CHECK_EQ(try_read(near.p), SIGBUS);
	CHECK_EQ(unpin(drv, near.h), 0);
}

/* The process ends: the callback of its release unmaps the neighbour, which is a hit within it. */
static void t_near_exit(void)
{
	int prov = prov_open();
	pid_t pid = fork();

	if (!pid) {
		map_near(drv_open(), prov);
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
}

/* Known limit: the GPU driver takes the pages back when what lies just below is unmapped. */
static void t_near_unmap(void)
{
	int drv = drv_open(), prov = prov_open();
	struct near near = map_near(drv, prov);

	CHECK_EQ(munmap((void *)(uintptr_t)near.p, cpu_page()), 0);
	CHECK_EQ(cb_flag(drv, near.h), 1);
	CHECK_EQ(unpin(drv, near.h), 0);
}

/* The end of the buffer goes alone: nobody is told, and the pages are still there. */
static void t_tail(void)
{
	int drv = drv_open(), prov = prov_open();
	size_t page = cpu_page();
	uint8_t *mem = host_alloc(prov, 2 * page, 0);
	uint64_t h = must_pin(drv, addr_of(mem), 2 * page);
	volatile uint8_t *p = must_map(drv, h, 2 * page);

	mem[page] = 0x5a;
	CHECK_EQ(munmap(mem + page, page), 0);
	CHECK_EQ(cb_flag(drv, h), 0);
	CHECK_EQ(p[page], 0x5a);
	CHECK_EQ(unpin(drv, h), 0);
	CHECK_EQ(try_read(p), SIGBUS);
}

/* The process has ended and its descriptor has not: the mm is given back with the last close. */
static void t_outlived(void)
{
	int prov = prov_open(), go[2];
	pid_t pid;
	char c;

	CHECK_EQ(pipe(go), 0);
	pid = fork();
	if (!pid) {
		int drv = drv_open();
		uint8_t *mem = host_alloc(prov, cpu_page(), 0);

		must_pin(drv, addr_of(mem), cpu_page());
		if (!fork()) {
			close(go[1]);
			_exit(read(go[0], &c, 1) == 0 ? 0 : 1); /* closes */
		}
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	CHECK_EQ(gpu_info(prov).pins, 1);
	CHECK_EQ(gpu_info(prov).late_puts, 0);
	close(go[1]);
	for (int i = 0; i < 200 && (gpu_info(prov).pins || gpu_info(prov).tables); i++)
		usleep(10000);
	CHECK_EQ(gpu_info(prov).pins, 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
}

static void *late_unmapper(void *arg)
{
	struct racer *r = arg;

	usleep(20000);
	munmap(r->mem, r->size);
	return NULL;
}

/* The memory goes while a put has begun and done nothing yet: both give the mm back. */
static void t_put_window(void)
{
	int drv = drv_open(), prov = prov_open();
	struct racer r = { .size = cpu_page(), .mem = host_alloc(prov, cpu_page(), 0) };
	uint64_t h = must_pin(drv, addr_of(r.mem), r.size);
	pthread_t t;

	knob("put_ms", 200);
	CHECK_EQ(pthread_create(&t, NULL, late_unmapper, &r), 0);
	CHECK_EQ(unpin(drv, h), 0);
	pthread_join(t, NULL);
	knob("put_ms", 0);
	CHECK_EQ(gpu_info(prov).late_puts, 0);
	CHECK_EQ(gpu_info(prov).errors, 0);
}

/* More than the list of pages can be: refused, and no warning of the kernel. */
static void t_huge(void)
{
	int drv = drv_open(), prov = prov_open();
	uint8_t *mem = host_alloc(prov, cpu_page(), 0);
	uint64_t h;

	CHECK_EQ(pin(drv, addr_of(mem), cpu_page() == 4096 ? 1ULL << 33 : 1ULL << 43, &h),
		 -ENOMEM);
}

/* What an ordinary user pins counts as locked memory, until the unpin and not beyond. */
static void memlock(void)
{
	int drv = drv_open(), prov = prov_open();
	struct rlimit limit = { .rlim_cur = 0, .rlim_max = 3 * cpu_page() };
	size_t page = cpu_page();
	uint8_t *mem = host_alloc(prov, 2 * page, 0), *more = host_alloc(prov, 2 * page, 0);
	uint64_t h, none;

	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	CHECK_EQ(setuid(65534), 0);
	CHECK_EQ(pin(drv, addr_of(mem), page, &h), -ENOMEM);
	limit.rlim_cur = limit.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	for (int i = 0; i < 3; i++) {
		h = must_pin(drv, addr_of(mem), 2 * page);
		CHECK_EQ(pin(drv, addr_of(more), 2 * page, &none), -ENOMEM);
		CHECK_EQ(unpin(drv, h), 0);
		CHECK(pin(drv, 4096, page, &none) < 0); /* nothing there: nothing counted */
	}
	h = must_pin(drv, addr_of(mem), 2 * page);
	CHECK_EQ(munmap(mem, 2 * page), 0);
	CHECK_EQ(unpin(drv, h), 0);
	h = must_pin(drv, addr_of(more), 2 * page);
	_exit(0);
}

static void t_memlock(void)
{
	pid_t pid = fork();

	if (!pid)
		memlock();
	CHECK_EQ(wait_child(pid), 0);
}

static void refused_with(const char *name, int value, int err)
{
	int drv = drv_open(), prov = prov_open();
	uint8_t *mem = host_alloc(prov, 2 * cpu_page(), 0);
	uint64_t h;

	knob(name, value);
	CHECK_EQ(pin(drv, addr_of(mem), 2 * cpu_page(), &h), err);
	knob(name, 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(read_number("/proc/driver/gdrdrv/nv_get_pages_refcount"), 0);
	close(drv);
	close(prov);
}

static void t_faults(void)
{
	refused_with("fail_get", ENOMEM, -ENOMEM);
	refused_with("fail_get", EFAULT, -EFAULT);
	refused_with("table_version", 0x20000, -EOPNOTSUPP);
	refused_with("page_size_type", 1, -EOPNOTSUPP);
	refused_with("short_table", 1, -EINVAL);
}

/* A put that fails leaves the pin with the GPU driver: it is waited for. */
static void t_failed_put(void)
{
	int drv = drv_open(), prov = prov_open();
	uint8_t *mem = host_alloc(prov, cpu_page(), 0);
	uint64_t h = must_pin(drv, addr_of(mem), cpu_page());

	knob("fail_put", EIO);
	CHECK_EQ(unpin(drv, h), 0);
	knob("fail_put", 0);
	CHECK_EQ(gpu_info(prov).tables, 1);
	CHECK_EQ(read_number("/proc/driver/gdrdrv/nv_get_pages_refcount"), 1);
	CHECK_EQ(munmap(mem, cpu_page()), 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(read_number("/proc/driver/gdrdrv/nv_get_pages_refcount"), 0);
}

static void t_attributes(void)
{
	struct gdrdrv_ioc_get_attr arg = { .attr = GDRDRV_ATTR_USE_PERSISTENT_MAPPING, .val = 9 };
	int drv = drv_open();

	CHECK_EQ(ioctl(drv, GDRDRV_IOC_GET_ATTR, &arg), 0);
	CHECK_EQ(arg.val, 0);
	arg.attr = GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE;
	CHECK_EQ(ioctl(drv, GDRDRV_IOC_GET_ATTR, &arg), 0);
	CHECK_EQ(arg.val, 0);
}

const struct test tests_tegra[] = {
	{ "tegra-attributes", t_attributes, TEGRA, 0 },
	{ "tegra-cached", t_cached, TEGRA, 0 },
	{ "tegra-wc", t_wc, TEGRA, 0 },
	{ "tegra-unit", t_unit, TEGRA, 0 },
	{ "tegra-refused", t_refused, TEGRA, 0 },
	{ "tegra-put", t_put, TEGRA, 0 },
	{ "tegra-memory-first", t_memory_first, TEGRA, 0 },
	{ "tegra-killed", t_killed, TEGRA, 0 },
	{ "tegra-foreign-close", t_foreign_close, TEGRA, 0 },
	{ "tegra-faults", t_faults, TEGRA, 0 },
	{ "tegra-failed-put", t_failed_put, TEGRA, 0 },
	{ "tegra-near-unpin", t_near_unpin, TEGRA, 0 },
	{ "tegra-near-memory-first", t_near_memory_first, TEGRA, 0 },
	{ "tegra-near-exit", t_near_exit, TEGRA, 0 },
	{ "tegra-near-unmap", t_near_unmap, TEGRA, 0 },
	{ "tegra-tail", t_tail, TEGRA, 0 },
	{ "tegra-outlived", t_outlived, TEGRA, 0 },
	{ "tegra-put-window", t_put_window, TEGRA, 0 },
	{ "tegra-huge", t_huge, TEGRA, 0 },
	{ "tegra-memlock", t_memlock, TEGRA, 0 },
	{ "tegra-race-unpin", t_race_unpin, TEGRA, 120 },
	{ "tegra-race-pin", t_race_pin, TEGRA, 120 },
	{ "tegra-race-fault", t_race_fault, TEGRA, 120 },
	{ NULL, NULL, 0, 0 },
};
