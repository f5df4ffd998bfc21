// SPDX-License-Identifier: MIT
/* Access from other processes, the last close in another process, loans, unloading. */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "rig.h"

/* Every call and mmap fails with EACCES. */
static void expect_no_access(int file, uint64_t va, uint64_t live)
{
	uint64_t own = gpu_alloc(prov_open(), GPU_PAGE), h;
	struct gdrdrv_ioc_get_attr attr = { .attr = 1 };
	struct gdrdrv_ioc_get_version version;
	struct gdrdrv_ioc_get_info info;
	struct gdrdrv_ioc_get_info_v2 info2;

	FAILS(EACCES, pin(file, va, GPU_PAGE, &h));
	FAILS(EACCES, pin(file, own, GPU_PAGE, &h));
	FAILS(EACCES, pin_flags(file, va, GPU_PAGE, 0, &h));
	FAILS(EACCES, unpin(file, live));
	FAILS(EACCES, cb_flag(file, live));
	FAILS(EACCES, get_info(file, live, &info));
	FAILS(EACCES, get_info_v2(file, live, &info2));
	FAILS(EACCES, req_type(file, live, 0));
	FAILS(EACCES, populate(file, live));
	CHECK(ioctl(file, GDRDRV_IOC_GET_ATTR, &attr) == -1 && errno == EACCES);
	CHECK(ioctl(file, GDRDRV_IOC_GET_VERSION, &version) == -1 && errno == EACCES);
	CHECK(map(file, live, GPU_PAGE) == MAP_FAILED && errno == EACCES);
	CHECK(map_prot(file, live, GPU_PAGE, PROT_READ, MAP_SHARED, NULL) == MAP_FAILED);
}

static void t_forked_child(void)
{
	struct region r = region(GPU_PAGE, 0);
	pid_t pid;

	r.p[0] = 0x33;
	pid = fork();
	if (!pid) {
		expect_no_access(drv, r.va, r.h);
		CHECK_EQ(try_read(r.p), SIGSEGV); /* not inherited */
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	CHECK_EQ(r.p[0], 0x33); /* the parent is not disturbed */
	CHECK_EQ(cb_flag(drv, r.h), 0);
	OK(unpin(drv, r.h));
}

/* Sends @fd, or receives one if @fd is negative. Returns the descriptor. */
static int transfer_fd(int sock, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	if (fd < 0) {
		CHECK_EQ(recvmsg(sock, &msg, 0), 1);
		CHECK(CMSG_FIRSTHDR(&msg));
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
		return fd;
	}
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	CHECK_EQ(sendmsg(sock, &msg, 0), 1);
	return fd;
}

static void t_received_fd(void)
{
	int sock[2];
	struct region r = region(GPU_PAGE, 0);
	pid_t pid;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	pid = fork();
	if (!pid) {
		close(drv);
		expect_no_access(transfer_fd(sock[1], -1), r.va, r.h);
		_exit(0);
	}
	transfer_fd(sock[0], drv);
	CHECK_EQ(wait_child(pid), 0);
	r.p[0] = 1;
	OK(unpin(drv, r.h));
}

/*
 * The owner has ended and another process has its number. That process is not the owner, neither
 * for a call nor for the last close.
 */
static void t_reused_number(void)
{
	int sock[2], theirs, memory;
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid_size = 1 };
	struct region r;
	pid_t pid, again;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	pid = fork();
	if (!pid) {
		close(drv);
		drv = drv_open();
		prov = prov_open();
		r.va = gpu_alloc(prov, GPU_PAGE);
		r.h = must_pin(drv, r.va, GPU_PAGE);
		transfer_fd(sock[1], drv);
		transfer_fd(sock[1], prov);
		CHECK_EQ(write(sock[1], &r, sizeof(r)), sizeof(r));
		_exit(0);
	}
	theirs = transfer_fd(sock[0], -1);
	memory = transfer_fd(sock[0], -1);
	CHECK_EQ(read(sock[0], &r, sizeof(r)), sizeof(r));
	CHECK_EQ(wait_child(pid), 0);
	args.set_tid = (uintptr_t)&pid;
	again = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (!again) {
		CHECK_EQ(getpid(), pid);
		expect_no_access(theirs, r.va, r.h);
		_exit(0);
	}
	CHECK_EQ(again, pid);
	close(theirs); /* the child's is the last */
	CHECK_EQ(wait_child(pid), 0);
	CHECK_EQ(gpu_info(prov).foreign_puts, 0);
	CHECK_EQ(gpu_info(prov).pins, by_callback() ? 1 : 0);
	close(memory);
	CHECK_EQ(gpu_info(prov).pins, 0);
	close(drv);
}

/* How the pin of a borrower ends. */
enum loan_end {
	LOAN_UNPINNED,
	LOAN_KILLED,
	LOAN_FREED, /* by the lender, before the borrower unpins */
};

/*
 * Pins memory that another process lent, and ends its own client of the GPU driver before the
 * unpin. The put then finds nothing and returns 0, and the callback comes later, unless the lender
 * has freed already.
 */
static void borrow(int from, int to, uint64_t va, enum loan_end end)
{
	volatile uint8_t *p;
	struct provider_tokens own;
	char byte;
	uint64_t h;

	prov = prov_open();
	drv = drv_open();
	CHECK_EQ(ioctl(prov, PROVIDER_IOC_TOKENS, &own), 0);
	FAILS(EINVAL, pin(drv, va, GPU_PAGE, &h));
	CHECK_EQ(write(to, &own.p2p_token, sizeof(own.p2p_token)), sizeof(own.p2p_token));
	CHECK_EQ(read(from, &byte, 1), 1);
	h = must_pin(drv, va, GPU_PAGE);
	p = must_map(drv, h, GPU_PAGE);
	p[0] = 1;
	close(prov);
	if (end == LOAN_KILLED)
		kill(getpid(), SIGKILL);
	if (end == LOAN_FREED) {
		CHECK_EQ(write(to, &byte, 1), 1);
		CHECK_EQ(read(from, &byte, 1), 1);
		CHECK_EQ(cb_flag(drv, h), by_callback() ? 1 : 0);
		CHECK_EQ(try_read(p), by_callback() ? SIGBUS : 0);
	}
	OK(unpin(drv, h));
	_exit(0);
}

static void t_lend(void)
{
	enum loan_end end = rig.arg;
	int there[2], back[2];
	unsigned int puts = gpu_info(prov).foreign_puts, callbacks = gpu_info(prov).callbacks;
	uint64_t va = gpu_alloc(prov, GPU_PAGE);
	unsigned int late = by_callback() && end != LOAN_FREED ? 1 : 0;
	struct provider_lend to;
	pid_t pid;
	char byte;

	CHECK(!pipe(there) && !pipe(back));
	pid = fork();
	if (!pid)
		borrow(there[0], back[1], va, end);
	close(drv);
	CHECK_EQ(read(back[0], &to.client, sizeof(to.client)), sizeof(to.client));
	CHECK_EQ(ioctl(prov, PROVIDER_IOC_LEND, &to), 0);
	CHECK_EQ(write(there[1], "x", 1), 1);
	if (end == LOAN_FREED) {
		CHECK_EQ(read(back[0], &byte, 1), 1);
		OK(gpu_free(prov, va));
		CHECK_EQ(write(there[1], "x", 1), 1);
	}
	CHECK_EQ(wait_child(pid), end == LOAN_KILLED ? 128 + SIGKILL : 0);
	CHECK_EQ(gpu_info(prov).foreign_puts - puts, late);
	CHECK_EQ(gpu_info(prov).pins, late);
	CHECK_EQ(nr_pins(), 0);
	if (end != LOAN_FREED)
		OK(gpu_free(prov, va));
	CHECK_EQ(gpu_info(prov).callbacks - callbacks, by_callback() ? 1 : 0);
	CHECK_EQ(gpu_info(prov).pins, 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(nr_pins(), 0);
	CHECK_EQ(driver_users(), 0);
}

/* The number of regions of open descriptors; /proc does not list orphans. */
static unsigned int nr_listed(void)
{
	char *text = read_text("/proc/driver/gdrdrv/pins"), *at;
	unsigned int lines = 0;

	CHECK(text);
	for (at = text; (at = strchr(at, '\n')); at++)
		lines++;
	free(text);
	CHECK(lines >= 1); /* the heading */
	return lines - 1;
}

/*
 * A descriptor with one pin has been closed outside its owner's process. No put ran in a process
 * that may not; a callback pin is an orphan until its callback.
 */
static void closed_elsewhere(uint64_t va, long orphans)
{
	CHECK_EQ(nr_listed(), 0);
	CHECK_EQ(gpu_info(prov).foreign_puts, 0);
	CHECK_EQ(gpu_info(prov).pins, by_callback() ? 1 : 0);
	CHECK_EQ(nr_pins(), by_callback() ? 1 : 0);
	CHECK_EQ(driver_users(), 0);
	if (rig.gpl)
		CHECK_EQ(stat_of("orphans") - orphans, by_callback() ? 1 : 0);
	OK(gpu_free(prov, va));
	CHECK_EQ(gpu_info(prov).pins, 0);
	CHECK_EQ(gpu_info(prov).tables, 0);
	CHECK_EQ(gpu_info(prov).foreign_puts, 0);
	/* init checks that no reference to the module is left. */
}

/*
 * A child closes the descriptor last. A persistent pin is released there. The put of a callback pin
 * would do nothing there, so the region waits for the callback.
 */
static void t_child_closes_last(void)
{
	int go[2], done[2];
	struct region r = region(GPU_PAGE, 0);
	long orphans = stat_of("orphans");
	char byte = 0;
	pid_t pid;

	r.p[0] = 1;
	CHECK(!pipe(go) && !pipe(done));
	pid = fork();
	if (!pid) {
		CHECK_EQ(read(go[0], &byte, 1), 1);
		close(drv);
		CHECK_EQ(write(done[1], &byte, 1), 1);
		_exit(0);
	}
	unmap(r.p, GPU_PAGE);
	close(drv);
	CHECK_EQ(gpu_info(prov).pins, 1);
	CHECK_EQ(write(go[1], &byte, 1), 1);
	CHECK_EQ(read(done[0], &byte, 1), 1);
	CHECK_EQ(wait_child(pid), 0);
	if (by_callback())
		FAILS(EAGAIN, delete_module_named("gdrdrv"));
	closed_elsewhere(r.va, orphans);
	CHECK_EQ(nr_pins(), 0);
	CHECK_EQ(driver_users(), 0);
}

/* The descriptor lies in a socket's queue; the owner exits, and another process drops the queue. */
static void t_fd_left_in_socket(void)
{
	int sock[2];
	/* References per open: one of the file, and one of the character device if it exists. */
	long per_open = driver_users();
	pid_t pid;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	CHECK(per_open > 0);
	pid = fork();
	if (!pid) {
		drv = drv_open();
		prov = prov_open();
		region(GPU_PAGE, 0).p[0] = 1;
		transfer_fd(sock[0], drv);
		kill(getpid(), SIGKILL);
	}
	close(drv);
	CHECK_EQ(wait_child(pid), 128 + SIGKILL);
	/* Its memory has been freed, so a callback pin is revoked by now. */
	CHECK_EQ(gpu_info(prov).pins, by_callback() ? 0 : 1);
	CHECK_EQ(nr_listed(), 1);
	CHECK_EQ(driver_users(), per_open);
	close(sock[0]);
	close(sock[1]); /* drops the queue: the last close happens in this process */
	CHECK_EQ(gpu_info(prov).pins, 0);
	CHECK_EQ(gpu_info(prov).foreign_puts, 0);
	CHECK_EQ(nr_listed(), 0);
	CHECK_EQ(driver_users(), 0);
}

/* The same while the owner and its memory live. */
static void t_fd_dropped_from_socket(void)
{
	int sock[2], go[2];
	uint64_t va = gpu_alloc(prov, GPU_PAGE);
	long orphans = stat_of("orphans");
	char byte = 0;
	pid_t pid;

	must_pin(drv, va, GPU_PAGE);
	CHECK(!pipe(go));
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	transfer_fd(sock[0], drv);
	pid = fork();
	if (!pid) {
		close(drv);
		close(sock[0]);
		CHECK_EQ(read(go[0], &byte, 1), 1);
		close(sock[1]);
		_exit(0);
	}
	close(drv);
	close(sock[0]);
	close(sock[1]);
	CHECK_EQ(write(go[1], &byte, 1), 1);
	CHECK_EQ(wait_child(pid), 0); /* the child closed the queue last */
	closed_elsewhere(va, orphans);
}

/* A cycle of sockets that only the kernel's garbage collector can free: a worker closes it. */
static void t_fd_collected(void)
{
	int sock[2], other[2], i;
	uint64_t va = gpu_alloc(prov, GPU_PAGE);
	long orphans = stat_of("orphans");
	pid_t pid;

	must_pin(drv, va, GPU_PAGE);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	transfer_fd(sock[0], sock[0]);
	transfer_fd(sock[0], sock[1]);
	transfer_fd(sock[0], drv);
	close(drv);
	close(sock[0]);
	close(sock[1]);
	CHECK_EQ(nr_listed(), 1);
	/*
	 * Closing any unix socket wakes the collector. It runs in the closing process (5.10) or in
	 * a worker, so a child closes sockets here.
	 */
	pid = fork();
	while (!pid && nr_listed()) {
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
		close(other[0]);
		close(other[1]);
		usleep(10000);
	}
	if (!pid)
		_exit(0);
	CHECK_EQ(wait_child(pid), 0);
	/* The descriptor has left the list; its references follow. */
	for (i = 0; i < 1000; i++) {
		if (!driver_users() && (!rig.gpl || stat_of("orphans") - orphans == by_callback()))
			break;
		usleep(10000);
	}
	closed_elsewhere(va, orphans);
}

/*
 * After a callback pin the module stays until the reboot, even if everything is released: the GPU
 * driver may have a callback left that no put ended. Otherwise it can be unloaded and loaded again.
 */
static void t_unload_after(void)
{
	uint64_t va = gpu_alloc(prov, GPU_PAGE);

	OK(unpin(drv, must_pin(drv, va, GPU_PAGE)));
	close(drv);
	CHECK_EQ(driver_is_kept(), by_callback());
	CHECK_EQ(delete_module_named("gdrdrv"), by_callback() ? -EAGAIN : 0);
	if (!by_callback())
		OK(load_driver());
	OK(gpu_free(prov, va));
}

static void t_unload_busy(void)
{
	struct region r = region(GPU_PAGE, 0);

	r.p[0] = 1;
	FAILS(EAGAIN, delete_module_named("gdrdrv"));
	FAILS(EAGAIN, delete_module_named("provider"));
	close(drv);
	FAILS(EAGAIN, delete_module_named("gdrdrv")); /* the mapping holds it */
	r.p[0] = 2;
	unmap(r.p, GPU_PAGE);
}

/* Drops CAP_SYS_ADMIN, like root of a container; the file's mode still admits the process. */
static void lose_sys_admin(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	CHECK(!syscall(SYS_capget, &head, caps));
	caps[0].effective &= ~(1U << CAP_SYS_ADMIN);
	CHECK(!syscall(SYS_capset, &head, caps));
}

/* An unprivileged user can pin its own memory, and no other user's. */
static void t_other_user(void)
{
	uint64_t roots = gpu_alloc(prov, GPU_PAGE), h;
	pid_t pid = fork();

	if (!pid) {
		CHECK(!setgid(1000) && !setuid(1000));
		drv = drv_open();
		prov = prov_open();
		FAILS(EINVAL, pin(drv, roots, GPU_PAGE, &h));
		region(GPU_PAGE, 0).p[0] = 1;
		CHECK(!read_text("/proc/driver/gdrdrv/pins") && errno == EACCES);
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	lose_sys_admin();
	CHECK(!read_text("/proc/driver/gdrdrv/pins") && errno == EPERM);
}

/*
 * max_pins_per_user: the pins of all processes of a user, whose failed pins do not count. A region
 * counts until it is unpinned and unmapped.
 */
static void t_max_pins(void)
{
	static const char *const limit = "/sys/module/gdrdrv/parameters/max_pins_per_user";
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h[3], more;
	volatile uint8_t *p;
	pid_t pid;
	int i;

	for (i = 0; i < 3; i++)
		h[i] = must_pin(drv, va, GPU_PAGE);
	write_text(limit, "3");
	FAILS(ENOMEM, pin(drv, va, GPU_PAGE, &more));
	pid = fork();
	if (!pid) {
		drv = drv_open();
		prov = prov_open();
		FAILS(ENOMEM, pin(drv, gpu_alloc(prov, GPU_PAGE), GPU_PAGE, &more));
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	pid = fork();
	if (!pid) {
		CHECK(!setgid(1000) && !setuid(1000));
		drv = drv_open();
		prov = prov_open();
		va = gpu_alloc(prov, GPU_PAGE);
		for (i = 0; i < 3; i++)
			must_pin(drv, va, GPU_PAGE);
		FAILS(ENOMEM, pin(drv, va, GPU_PAGE, &more));
		_exit(0);
	}
	CHECK_EQ(wait_child(pid), 0);
	p = must_map(drv, h[0], GPU_PAGE);
	OK(unpin(drv, h[0]));
	FAILS(ENOMEM, pin(drv, va, GPU_PAGE, &more));
	unmap(p, GPU_PAGE);
	for (i = 0; i < 5; i++)
		FAILS(EINVAL, pin(drv, va, 0, &more));
	h[0] = must_pin(drv, va, GPU_PAGE);
	write_text(limit, "1");
	OK(unpin(drv, h[0]));
	FAILS(ENOMEM, pin(drv, va, GPU_PAGE, &more));
	write_text(limit, "0");
	must_pin(drv, va, GPU_PAGE);
}

/* An unprivileged user can pin all of BAR1 at once. */
static void t_whole_bar(void)
{
	size_t size = gpu_info(prov).pages_total * GPU_PAGE;
	struct region r;

	CHECK(!setgid(1000) && !setuid(1000));
	drv = drv_open();
	r = region(size, 0);
	r.p[0] = 1;
	r.p[size - 1] = 2;
	CHECK_EQ(r.p[0], 1);
}

const struct test tests_owner[] = {
	{ "forked-child", t_forked_child, ANY_MODE, 0, 0 },
	{ "received-fd", t_received_fd, ANY_MODE, 0, 0 },
	{ "reused-number", t_reused_number, ANY_MODE, 0, 0 },
	{ "child-closes-last", t_child_closes_last, ANY_MODE, 0, 0 },
	{ "fd-left-in-socket", t_fd_left_in_socket, ANY_MODE, 0, 0 },
	{ "fd-dropped-from-socket", t_fd_dropped_from_socket, ANY_MODE, 0, 0 },
	{ "fd-collected", t_fd_collected, ANY_MODE, 0, 0 },
	{ "unload-busy", t_unload_busy, ANY_MODE, 0, 0 },
	{ "unload-after", t_unload_after, ANY_MODE, 0, 0 },
	{ "max-pins", t_max_pins, ANY_MODE, 0, 0 },
	{ "other-user", t_other_user, ANY_MODE, 0, 0 },
	{ "whole-bar", t_whole_bar, ANY_MODE, 0, 0 },
	/* Last: the other tests require that no put runs in a process that may not. */
	{ "lent-unpinned", t_lend, ANY_MODE, 0, LOAN_UNPINNED },
	{ "lent-killed", t_lend, ANY_MODE, 0, LOAN_KILLED },
	{ "lent-freed", t_lend, ANY_MODE, 0, LOAN_FREED },
	{ NULL, NULL, 0, 0, 0 },
};
