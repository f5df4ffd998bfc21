// SPDX-License-Identifier: MIT
/* Pins by dma-buf: what the common tests, which only call pin(), do not cover. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "rig.h"

static struct gdrdrv_ioc_pin_dmabuf good_arg(uint64_t va, uint64_t size, int *fd)
{
	return exported_arg(va, size, PROVIDER_BUF_GOOD, fd);
}

#define REFUSED(change, err)                             \
	do {                                             \
		struct gdrdrv_ioc_pin_dmabuf arg = good; \
		change;                                  \
		FAILS(err, pin_dmabuf(drv, &arg));       \
		CHECK_EQ(gpu_info(prov).maps, 0);        \
	} while (0)

static void t_args(void)
{
	int fd, null = open("/dev/null", O_RDWR);
	uint64_t va = gpu_alloc(prov, 4 * GPU_PAGE);
	struct gdrdrv_ioc_pin_dmabuf good = good_arg(va, 4 * GPU_PAGE, &fd), *ro;

	REFUSED(arg.fd = -1, EBADF);
	REFUSED(arg.fd = 1000, EBADF);
	REFUSED(arg.fd = null, EINVAL);
	REFUSED(arg.fd = drv, EINVAL);
	REFUSED(arg.flags = 1, EINVAL);
	REFUSED(arg.pad = 1, EINVAL);
	REFUSED(arg.size = 0, EINVAL);
	REFUSED(arg.size = 4 * GPU_PAGE + 4096, EINVAL);
	REFUSED(arg.size = 4095, EINVAL);
	REFUSED(arg.size = 1ULL << 40, EINVAL);
	REFUSED(arg.size = -4096ULL, EOVERFLOW);
	REFUSED((arg.size = -4096ULL, arg.addr = 8192), EOVERFLOW);
	REFUSED(arg.offset = 1, EINVAL);
	REFUSED(arg.offset = 4096, EINVAL);
	REFUSED(arg.offset = -4096ULL, EINVAL);
	REFUSED((arg.offset = 4 * GPU_PAGE, arg.size = 4096), EINVAL);
	REFUSED((arg.offset = -4096ULL, arg.size = 8192), EINVAL);
	REFUSED(arg.addr = 100, EINVAL);
	REFUSED(arg.addr = -4096ULL, EOVERFLOW);
	REFUSED(arg.pci_device = 32, EINVAL);
	REFUSED(arg.pci_device = 0xff, EINVAL);
	REFUSED(arg.pci_function = 8, EINVAL);
	REFUSED(arg.pci_function = 7, ENODEV);
	REFUSED(arg.pci_bus = 0xee, ENODEV);
	REFUSED(arg.pci_domain = 1, ENODEV);
	REFUSED(arg.pci_domain = 0xffffffff, ENODEV);
	REFUSED((arg.pci_bus = 0, arg.pci_device = 0, arg.pci_function = 0), ENODEV); /* a bridge */

	/* The copy out of the handle fails: the pin must be undone. */
	ro = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*ro = good;
	mprotect(ro, 4096, PROT_READ);
	FAILS(EFAULT, pin_dmabuf(drv, ro));
	CHECK_EQ(gpu_info(prov).maps, 0);
	OK(pin_dmabuf(drv, &good));
	CHECK_EQ(gpu_info(prov).maps, 1);
}

/* A driver without pins by address refuses those calls, and changes nothing. */
static void t_no_address(void)
{
	struct gdrdrv_ioc_pin_buffer v1 = { .addr = gpu_alloc(prov, GPU_PAGE), .size = GPU_PAGE };
	struct gdrdrv_ioc_pin_buffer_v2 v2 = { .addr = v1.addr, .size = GPU_PAGE };

	CHECK(ioctl(drv, GDRDRV_IOC_PIN_BUFFER, &v1) == -1 && errno == EOPNOTSUPP);
	CHECK(ioctl(drv, GDRDRV_IOC_PIN_BUFFER_V2, &v2) == -1 && errno == EOPNOTSUPP);
	v2.flags = GDRDRV_PIN_FLAG_FORCE_PCIE;
	CHECK(ioctl(drv, GDRDRV_IOC_PIN_BUFFER_V2, &v2) == -1 && errno == EOPNOTSUPP);
}

/* The number of runs of the only pin, from /proc. */
static unsigned int nr_runs(void)
{
	char *text = read_text("/proc/driver/gdrdrv/pins"), *line = strchr(text, '\n') + 1;
	unsigned int runs = 0;

	CHECK_EQ(sscanf(line, "%*d %*u %*x %*x %*u %*u %u", &runs), 1);
	free(text);
	return runs;
}

/* Pins a part that begins and ends inside 64 KiB pages; transfers bytes in both directions. */
static void sub_range(unsigned int flags)
{
	int fd;
	size_t size = 8 * GPU_PAGE, off = GPU_PAGE + 3 * 4096, len = 5 * GPU_PAGE + 4096, i;
	uint64_t va = gpu_alloc_flags(prov, size, flags).va;
	struct gdrdrv_ioc_pin_dmabuf arg = good_arg(va, size, &fd);
	struct gdrdrv_ioc_get_info info;
	struct region r;

	arg.offset = off;
	arg.size = len;
	arg.addr = va + off;
	OK(pin_dmabuf(drv, &arg));
	close(fd);
	OK(get_info(drv, arg.handle, &info));
	CHECK_EQ(info.va, va + off);
	CHECK_EQ(info.mapped_size, len);
	CHECK_EQ(nr_runs(), flags & PROVIDER_SCATTER ? 6 : 1);
	CHECK(map(drv, arg.handle, len + 4096) == MAP_FAILED && errno == EINVAL);
	r = (struct region){ va + off, arg.handle, must_map(drv, arg.handle, len) };
	check_data(&r, len);
	for (i = 0; i < len; i += 4096)
		CHECK(pte_is_wc(read_pte(prov, r.p + i).pte));
	OK(unpin(drv, r.h));
	unmap(r.p, len);
	OK(gpu_free(prov, va));
}

/* The exporter cuts a range into pieces; the driver merges them again. */
static void t_sub_range(void)
{
	static const int kib[] = { 0, 4, 16, 1024 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kib); i++) {
		/* Before 580, with IOVAs, more than one piece fails: t_pieces_535(). */
		if (rig.iommu && rig.gen < 580 && kib[i] != 1024)
			continue;
		knob("seg_kib", kib[i]);
		sub_range(0);
		sub_range(PROVIDER_SCATTER);
	}
	knob("seg_kib", 0);
}

static void t_read_only_fd(void)
{
	int fd;
	uint64_t va = gpu_alloc(prov, GPU_PAGE);
	struct gdrdrv_ioc_pin_dmabuf arg = exported_arg(va, GPU_PAGE, PROVIDER_BUF_READ_ONLY, &fd);
	uint8_t byte = 0x5e, *p;

	OK(pin_dmabuf(drv, &arg));
	CHECK(map(drv, arg.handle, GPU_PAGE) == MAP_FAILED && errno == EACCES);
	CHECK(map_prot(drv, arg.handle, GPU_PAGE, PROT_WRITE, MAP_SHARED, NULL) == MAP_FAILED &&
	      errno == EACCES);
	p = map_prot(drv, arg.handle, GPU_PAGE, PROT_READ, MAP_SHARED, NULL);
	CHECK(p != MAP_FAILED);
	CHECK(mprotect(p, GPU_PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
	gpu_poke(prov, va + 9, &byte, 1);
	CHECK_EQ(p[9], 0x5e);
	CHECK_EQ(try_write(p + 9, 1), SIGSEGV);
	CHECK_EQ(p[9], 0x5e);
}

/* Two imports of one buffer, and one of another buffer of the same memory. */
static void t_two_imports(void)
{
	int fd, other, i;
	uint64_t va = gpu_alloc(prov, 2 * GPU_PAGE);
	struct gdrdrv_ioc_pin_dmabuf arg[3];
	volatile uint8_t *p[3];

	arg[0] = arg[1] = good_arg(va, 2 * GPU_PAGE, &fd);
	arg[2] = good_arg(va, 2 * GPU_PAGE, &other);
	for (i = 0; i < 3; i++) {
		OK(pin_dmabuf(drv, &arg[i]));
		p[i] = must_map(drv, arg[i].handle, 2 * GPU_PAGE);
	}
	p[0][GPU_PAGE] = 0x91;
	__sync_synchronize();
	CHECK_EQ(p[1][GPU_PAGE], 0x91);
	CHECK_EQ(p[2][GPU_PAGE], 0x91);
	OK(gpu_free(prov, va));
	close(fd);
	close(other);
	OK(unpin(drv, arg[1].handle));
	CHECK_EQ(try_read(p[1]), SIGBUS);
	CHECK_EQ(p[0][GPU_PAGE], 0x91);
	CHECK(pte_is_wc(read_pte(prov, p[0] + GPU_PAGE).pte));
	OK(unpin(drv, arg[0].handle));
	CHECK_EQ(p[2][GPU_PAGE], 0x91);
	OK(unpin(drv, arg[2].handle));
	CHECK_EQ(gpu_info(prov).pages_free, gpu_info(prov).pages_total);
}

/* While a buffer exists its memory stays allocated and is not given to others. */
static void t_memory_stays(void)
{
	int fd;
	uint64_t va = gpu_alloc(prov, 4 * GPU_PAGE), next;
	struct gdrdrv_ioc_pin_dmabuf arg = good_arg(va, 4 * GPU_PAGE, &fd);
	uint8_t *buf = malloc(4 * GPU_PAGE);
	volatile uint8_t *p;

	OK(pin_dmabuf(drv, &arg));
	p = must_map(drv, arg.handle, 4 * GPU_PAGE);
	p[3 * GPU_PAGE] = 0x4d;
	close(fd);
	OK(gpu_free(prov, va));
	next = gpu_alloc(prov, 4 * GPU_PAGE);
	memset(buf, 0xee, 4 * GPU_PAGE);
	gpu_poke(prov, next, buf, 4 * GPU_PAGE);
	CHECK_EQ(p[3 * GPU_PAGE], 0x4d);
	CHECK_EQ(cb_flag(drv, arg.handle), 0);
	CHECK_EQ(gpu_info(prov).bufs, 1);
	OK(unpin(drv, arg.handle));
	CHECK_EQ(gpu_info(prov).bufs, 0);
	CHECK_EQ(try_read(p), SIGBUS);
}

static void t_map_fails(void)
{
	int fd;
	struct gdrdrv_ioc_pin_dmabuf arg = good_arg(gpu_alloc(prov, GPU_PAGE), GPU_PAGE, &fd);

	knob("fail_map", 1);
	FAILS(ENOMEM, pin_dmabuf(drv, &arg));
	knob("fail_map", 0);
	nothing_pinned();
	OK(pin_dmabuf(drv, &arg));
}

/* Any process with the descriptor may pin: the memory's owner granted access by passing it on. */
static void t_fd_is_the_right(void)
{
	int fd;
	uint64_t va = gpu_alloc(prov, GPU_PAGE);
	struct gdrdrv_ioc_pin_dmabuf arg = good_arg(va, GPU_PAGE, &fd);
	pid_t pid = fork();

	if (!pid) {
		CHECK(!setgid(1000) && !setuid(1000));
		drv = drv_open();
		OK(pin_dmabuf(drv, &arg));
		must_map(drv, arg.handle, GPU_PAGE)[1] = 0x66;
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	CHECK_EQ(gpu_byte(va + 1), 0x66);
}

static int move(int fd)
{
	struct provider_move arg = { .fd = fd };

	return ioctl(prov, PROVIDER_IOC_MOVE, &arg) ? -errno : 0;
}

/* The exporter withdraws the buffer, which none does today: same effect as a free callback. */
static void t_move(void)
{
	int fd, keep;
	struct pollfd pfd = { .fd = drv, .events = POLLPRI };
	uint64_t va = gpu_alloc(prov, 2 * MiB), other = gpu_alloc(prov, GPU_PAGE);
	struct gdrdrv_ioc_pin_dmabuf arg = good_arg(va, 2 * MiB, &fd);
	struct gdrdrv_ioc_pin_dmabuf beside = good_arg(other, GPU_PAGE, &keep);
	volatile uint8_t *p, *q;

	OK(pin_dmabuf(drv, &arg));
	OK(pin_dmabuf(drv, &beside));
	p = must_map(drv, arg.handle, 2 * MiB);
	q = must_map(drv, beside.handle, GPU_PAGE);
	p[0] = p[MiB] = q[0] = 0x21;
	CHECK_EQ(move(fd), 0);
	CHECK_EQ(nr_entries(p, 2 * MiB, MiB), 0);
	CHECK_EQ(try_read(p), SIGBUS);
	CHECK_EQ(cb_flag(drv, arg.handle), 1);
	CHECK_EQ(poll(&pfd, 1, 0), 1);
	CHECK_EQ(pfd.revents, POLLPRI);
	CHECK_EQ(move(fd), 0); /* a second notice has no effect */
	unmap(p, 2 * MiB);
	CHECK(map(drv, arg.handle, GPU_PAGE) == MAP_FAILED && errno == EINVAL);
	CHECK_EQ(q[0], 0x21);
	CHECK_EQ(cb_flag(drv, beside.handle), 0);
	OK(unpin(drv, arg.handle));
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	CHECK_EQ(gpu_info(prov).maps, 1);
	/* The same buffer can be pinned anew. */
	OK(pin_dmabuf(drv, &arg));
	OK(unpin(drv, arg.handle));
}

static volatile bool mover_stop, mover_rests;

static void *mover(void *fd)
{
	while (!mover_stop)
		if (mover_rests)
			sched_yield();
		else
			CHECK_EQ(move(*(int *)fd), 0);
	return NULL;
}

/*
 * Notices race with pin, map, touch and unpin; an entry that outlives the notice is stale. Where
 * pins are slow a notice falls into each of them, so in every second round the notice waits for the
 * pin.
 */
static void t_move_race(void)
{
	int fd;
	unsigned int i, late = 0, refused = 0;
	struct gdrdrv_ioc_pin_dmabuf arg = good_arg(gpu_alloc(prov, 2 * MiB), 2 * MiB, &fd);
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, mover, &fd));
	for (i = 0; i < rig.rounds; i++) {
		uint8_t *at = reserve(2 * MiB, 4096);
		int ret, sig = 0;

		mover_rests = i % 2;
		do /* one notice may still be running */
			ret = pin_dmabuf(drv, &arg);
		while (ret == -EINVAL && mover_rests);
		mover_rests = false;
		CHECK(ret == 0 || ret == -EINVAL);
		if (ret) {
			refused++;
			continue;
		}
		if (map_prot(drv, arg.handle, 2 * MiB, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_FIXED, at) == at) {
			sig = try_write(at + i * 4096 % (2 * MiB), 1);
			while (cb_flag(drv, arg.handle) == 0)
				sched_yield();
			CHECK(sig == 0 || sig == SIGBUS);
			late += read_pte(prov, at + i * 4096 % (2 * MiB)).level != 0;
			CHECK_EQ(try_read(at), SIGBUS);
		}
		OK(unpin(drv, arg.handle));
		munmap(at - 4096, 2 * MiB + 2 * 4096);
	}
	mover_stop = true;
	CHECK(!pthread_join(thread, NULL));
	printf("# move: %u rounds, %u pins refused, %u stale entries\n", rig.rounds, refused, late);
	CHECK_EQ(late, 0);
	CHECK(refused < rig.rounds);
}

/* Without buffers the GPU driver can be reloaded while gdrdrv stays; a buffer keeps it loaded. */
static void t_reload(void)
{
	struct gdrdrv_ioc_pin_dmabuf arg;
	volatile uint8_t *p;
	int fd, i;

	for (i = 0; i < 2; i++) {
		arg = good_arg(gpu_alloc(prov, GPU_PAGE), GPU_PAGE, &fd);
		OK(pin_dmabuf(drv, &arg));
		close(fd);
		close(prov);
		p = must_map(drv, arg.handle, GPU_PAGE);
		p[0] = 0x31;
		FAILS(EAGAIN, delete_module_named("provider"));
		CHECK_EQ(p[0], 0x31);
		OK(unpin(drv, arg.handle));
		unmap(p, GPU_PAGE);
		OK(delete_module_named("provider"));
		arg.fd = -1;
		FAILS(ENODEV, pin_dmabuf(drv, &arg));
		OK(load_provider(""));
		prov = prov_open();
	}
}

/* 535 to 570, translating IOMMU, kernel before 6.12: a range of more than one piece fails. */
static void t_pieces_535(void)
{
	int fd;
	struct gdrdrv_ioc_pin_dmabuf arg =
		good_arg(gpu_alloc(prov, 2 * GPU_PAGE), 2 * GPU_PAGE, &fd);
	bool broken = rig.iommu && kernel_has_iovas() && rig.gen < 580;

	CHECK_EQ(pin_dmabuf(drv, &arg), broken ? -ENOMEM : 0);
	arg = good_arg(gpu_alloc(prov, GPU_PAGE), GPU_PAGE, &fd);
	OK(pin_dmabuf(drv, &arg));
}

/* The set-up has IOVAs exactly where it should: otherwise no other test covers them. */
static void t_iovas(void)
{
	int fd;
	struct gdrdrv_ioc_pin_dmabuf arg = good_arg(gpu_alloc(prov, GPU_PAGE), GPU_PAGE, &fd);
	unsigned int before = gpu_info(prov).iovas;

	OK(pin_dmabuf(drv, &arg));
	CHECK_EQ(gpu_info(prov).iovas - before, rig.iommu && kernel_has_iovas());
}

/* Times a pin and an unpin by each source, in the same machine. */
static void t_measure_pin(void)
{
	static const size_t sizes[] = { GPU_PAGE, MiB, 16 * MiB };
	int fd, rounds = 10, round;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t va = gpu_alloc(prov, sizes[i]), h = 0;
		struct gdrdrv_ioc_pin_dmabuf arg = good_arg(va, sizes[i], &fd);
		long long t0 = now_us(), t1, t2;

		for (round = 0; round < rounds; round++) {
			OK(pin_tokens(drv, va, sizes[i], 0, 0, &h));
			OK(unpin(drv, h));
		}
		t1 = now_us();
		for (round = 0; round < rounds; round++) {
			OK(pin_dmabuf(drv, &arg));
			OK(unpin(drv, arg.handle));
		}
		t2 = now_us();
		printf("# pin and unpin of %zu KiB: p2p %lld us, dma-buf %lld us\n", sizes[i] / KiB,
		       (t1 - t0) / rounds, (t2 - t1) / rounds);
		close(fd);
		OK(gpu_free(prov, va));
	}
}

const struct test tests_dmabuf[] = {
	{ "dmabuf-iovas", t_iovas, BY_DMABUF, 0, 0 },
	{ "dmabuf-args", t_args, BY_DMABUF, 0, 0 },
	{ "dmabuf-no-address", t_no_address, DMABUF, 0, 0 },
	{ "dmabuf-sub-range", t_sub_range, BY_DMABUF, 40, 0 },
	{ "dmabuf-read-only-fd", t_read_only_fd, BY_DMABUF, 0, 0 },
	{ "dmabuf-two-imports", t_two_imports, BY_DMABUF, 0, 0 },
	{ "dmabuf-memory-stays", t_memory_stays, BY_DMABUF, 0, 0 },
	{ "dmabuf-map-fails", t_map_fails, BY_DMABUF, 0, 0 },
	{ "dmabuf-fd-is-the-right", t_fd_is_the_right, BY_DMABUF, 0, 0 },
	{ "dmabuf-move", t_move, BY_DMABUF, 0, 0 },
	{ "dmabuf-move-race", t_move_race, BY_DMABUF, 60, 0 },
	{ "dmabuf-pieces-535", t_pieces_535, BY_DMABUF, 0, 0 },
	{ "dmabuf-reload", t_reload, DMABUF, 0, 0 },
	{ "dmabuf-measure-pin", t_measure_pin, BOTH, 40, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
