/* SPDX-License-Identifier: MIT */
/* The driver's node in another process; see sanity.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "common/exit.h"
#include "sanity/sanity.h"

void node_or_waive(void)
{
	if (sanity.facts.backend != BARCOPY_BACKEND_GDRDRV)
		sanity_waive("this backend has no node whose descriptor could be handed over");
}

/* The library keeps its descriptor to itself: the file's name and its answer identify it. */
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
	if (cu.is_stand_in)
		sanity_waive("the stand-in's node with poll is a pipe, which has no owner to "
			     "refuse others");
	FAIL("the node's descriptor is not among this process's");
}

#define REFUSED(what, call)                                                                     \
	do {                                                                                    \
		errno = 0;                                                                      \
		CHECK((call) == -1 && errno == EACCES, "%s by another process: %s, not EACCES", \
		      what, errno ? strerror(errno) : "succeeded");                             \
	} while (0)

void node_check_refused(const struct node *node, size_t size)
{
	struct gdrdrv_pin_buffer pin = { .addr = node->addr, .size = size };
	struct gdrdrv_unpin_buffer unpin = { .handle = 1 };
	struct gdrdrv_get_cb_flag flag = { .handle = 1 };
	struct gdrdrv_get_info info = { .handle = 1 };
	off_t page = sysconf(_SC_PAGESIZE);
	int fd = node->fd;

	REFUSED("a pin", ioctl(fd, GDRDRV_IOC_PIN_BUFFER, &pin));
	REFUSED("an unpin", ioctl(fd, GDRDRV_IOC_UNPIN_BUFFER, &unpin));
	REFUSED("a query of the flag", ioctl(fd, GDRDRV_IOC_GET_CB_FLAG, &flag));
	REFUSED("a query of the info", ioctl(fd, GDRDRV_IOC_GET_INFO, &info));
	errno = 0;
	CHECK(mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED, fd, page) == MAP_FAILED &&
		      errno == EACCES,
	      "a map by another process: %s, not EACCES", errno ? strerror(errno) : "succeeded");
}

/* One message: the address and the descriptor. */
static void transfer(int socket, struct node *node, bool out)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	struct iovec iov[] = { { &node->addr, sizeof(node->addr) } };
	struct msghdr msg = { .msg_iov = iov,
			      .msg_iovlen = ARRAY_SIZE(iov),
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t n;

	if (out)
		memcpy(CMSG_DATA(&control.head), &node->fd, sizeof(node->fd));
	n = out ? sendmsg(socket, &msg, 0) : recvmsg(socket, &msg, 0);
	CHECK(n == sizeof(node->addr), "%s: %s", out ? "sendmsg" : "recvmsg", strerror(errno));
	CHECK(CMSG_FIRSTHDR(&msg), "no descriptor came through the socket");
	if (!out)
		memcpy(&node->fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(node->fd));
}

void node_send(int socket, uint64_t addr)
{
	struct node node = { find_node(), addr };

	transfer(socket, &node, true);
}

void node_receive(int socket, struct node *node)
{
	transfer(socket, node, false);
}
