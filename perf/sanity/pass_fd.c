/* SPDX-License-Identifier: MIT */
/*
 * The driver's node in the hands of another process, which got its descriptor through a socket: it
 * can do nothing with it, and disturbs nobody. It knows the node's ioctls, not the library's use
 * of them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "sanity/sanity.h"
#include "sanity/tests.h"

#define SIZE ((size_t)128 * 1024)

struct handover {
	int socket[2]; /* the owner's end, the receiver's */
	struct gate received, last;
	uint64_t addr; /* told through memory that both share */
};

/* Sends fd, or receives one if it is -1: the descriptor, or -1. */
static int pass(int socket, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
		return sendmsg(socket, &msg, 0) == 1 ? 0 : -1;
	}
	if (recvmsg(socket, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* The library gives its descriptor to nobody: found by its name, and by what it answers. */
static int find_node(void)
{
	for (int fd = 0; fd < 1024; fd++) {
		struct gdrdrv_get_version version = { 0 };
		char path[64], name[256] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "gdrdrv") &&
		    !ioctl(fd, GDRDRV_IOC_GET_VERSION, &version))
			return fd;
	}
	if (cuda_dl_is_stand_in())
		sanity_waive("the stand-in's node with poll is a pipe, which another process "
			     "cannot be determined");
	FAIL("the node's descriptor is not among this process's");
}

#define REFUSED(what, call)                                                                     \
	do {                                                                                    \
		errno = 0;                                                                      \
		CHECK((call) == -1 && errno == EACCES, "%s by another process: %s, not EACCES", \
		      what, errno ? strerror(errno) : "succeeded");                             \
	} while (0)

static void all_refused(int fd, uint64_t addr)
{
	struct gdrdrv_pin_buffer pin = { .addr = addr, .size = SIZE };
	struct gdrdrv_unpin_buffer unpin = { .handle = 1 };
	struct gdrdrv_get_cb_flag flag = { .handle = 1 };
	struct gdrdrv_get_info info = { .handle = 1 };
	off_t page = sysconf(_SC_PAGESIZE);

	REFUSED("a pin", ioctl(fd, GDRDRV_IOC_PIN_BUFFER, &pin));
	REFUSED("an unpin", ioctl(fd, GDRDRV_IOC_UNPIN_BUFFER, &unpin));
	REFUSED("a look at the flag", ioctl(fd, GDRDRV_IOC_GET_CB_FLAG, &flag));
	REFUSED("a look at the info", ioctl(fd, GDRDRV_IOC_GET_INFO, &info));
	errno = 0;
	CHECK(mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED, fd, page) == MAP_FAILED &&
		      errno == EACCES,
	      "a map by another process: %s, not EACCES", errno ? strerror(errno) : "succeeded");
}

static void receive(void *arg)
{
	struct handover *over = arg;
	int fd = pass(over->socket[1], -1);

	CHECK(fd >= 0, "no descriptor came through the socket");
	all_refused(fd, over->addr);
	gate_open(&over->received);
	gate_wait(&over->last);
	/* the owner has unpinned and closed meanwhile: this is the last one */
	all_refused(fd, over->addr);
	CHECK(!close(fd), "close: %s", strerror(errno));
}

/*
 * The receiver is forked before CUDA and the library are opened: it has the descriptor by the
 * socket alone.
 */
static struct handover *start(pid_t *pid)
{
	struct handover *over;

	if (sanity.facts.backend != BARCOPY_BACKEND_GDRDRV)
		sanity_waive("this backend has no node whose descriptor could be handed over");
	over = mmap(NULL, sizeof(*over), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(over != MAP_FAILED, "mmap: %s", strerror(errno));
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, over->socket), "socketpair: %s",
	      strerror(errno));
	gate_make(&over->received);
	gate_make(&over->last);
	*pid = sanity_fork(receive, over);
	sanity_open();
	return over;
}

static void hand(struct handover *over, const struct buffer *b)
{
	over->addr = b->mem.dptr;
	CHECK(!pass(over->socket[0], find_node()), "sendmsg: %s", strerror(errno));
	gate_wait(&over->received);
}

static void fd_calls(void)
{
	struct handover *over;
	struct buffer b;
	pid_t pid;

	over = start(&pid);
	sanity_make(&b, SIZE);
	hand(over, &b);
	sanity_round_trip(&b, 1);
	gate_open(&over->last);
	sanity_join(pid);
	/* its close was not the last */
	sanity_round_trip(&b, 2);
	sanity_unmake(&b);
}

static void fd_last_close(void)
{
	struct handover *over;
	struct buffer b;
	pid_t pid;

	over = start(&pid);
	sanity_make(&b, SIZE);
	hand(over, &b);
	OK(gdr_close(sanity.g)); /* with a live pin and mapping */
	sanity_must_fault(b.cpu, "after the close");
	mem_free(&b.mem);
	gate_open(&over->last);
	sanity_join(pid);
	sanity.g = buffer_open_library();
	sanity_make(&b, SIZE);
	sanity_round_trip(&b, 1);
	sanity_unmake(&b);
}

const struct sanity_test sanity_pass_fd[] = {
	{ "fd_calls", "the node's descriptor in another process", fd_calls, true },
	{ "fd_last_close", "another process closes the node last", fd_last_close, true },
	{ NULL, NULL, NULL, false },
};
