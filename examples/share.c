/* SPDX-License-Identifier: MIT */
/*
 * One buffer of GPU memory in two processes: the parent allocates it and sends a descriptor over a
 * Unix socket; the child maps it. CUDA does not survive a fork, so both processes initialise it
 * after the fork.
 *
 *     cc share.c -lgdrapi -o share && ./share
 */
#include <barcopy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 21 };

static void must(int failed, const char *call)
{
	if (!failed)
		return;
	fprintf(stderr, "%s: %s\n", call, barcopy_last_error());
	exit(1);
}

/* Sends, or with fd -1 receives, the size of the memory and its descriptor. */
static int pass(int socket, size_t *size, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec io = { size, sizeof(*size) };
	struct msghdr msg = { .msg_iov = &io,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	must((fd < 0 ? recvmsg(socket, &msg, 0) : sendmsg(socket, &msg, 0)) <= 0, "the socket");
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

int main(void)
{
	int socket[2], fd, status;
	barcopy_mem_t mem;
	char text[32];
	size_t size;
	gdr_t g;

	must(socketpair(AF_UNIX, SOCK_STREAM, 0, socket), "socketpair");
	pid_t child = fork();

	must(child < 0, "fork");
	close(socket[child == 0
			     ? 0
			     : 1]); /* the other's end: if that process ends, no one waits for it */
	g = barcopy_open(BARCOPY_OPEN_ANY);
	must(!g, "barcopy_open");
	if (child == 0) {
		fd = pass(socket[1], &size, -1);
		must(barcopy_mem_import(g, 0, fd, size, 0, &mem), "barcopy_mem_import");
		close(fd);
		must(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, "from the child", 15) ||
			     barcopy_flush(mem.handle),
		     "gdr_copy_to_mapping");
		return gdr_close(g);
	}
	must(barcopy_mem_alloc(g, 0, SIZE, BARCOPY_MEM_SHAREABLE, &mem), "barcopy_mem_alloc");
	must(barcopy_mem_export(g, &mem, &fd), "barcopy_mem_export");
	pass(socket[0], &mem.size, fd);
	close(fd);
	must(waitpid(child, &status, 0) != child || status, "the child");
	must(gdr_copy_from_mapping(mem.handle, text, mem.cpu_ptr, 15), "gdr_copy_from_mapping");
	printf("\"%s\"\n", text);
	gdr_close(g);
	return 0;
}
