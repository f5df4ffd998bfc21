// SPDX-License-Identifier: MIT
/* See pass_fd.h. */
#define _GNU_SOURCE
#include "common/pass_fd.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

int pass_fd(int socket, int fd, size_t size)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { &size, sizeof(size) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(socket, &msg, 0) == sizeof(size) ? 0 : -1;
}

int take_fd(int socket, size_t *size)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { size, sizeof(*size) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) == sizeof(*size))
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}
