/* SPDX-License-Identifier: MIT */
/*
 * One buffer of GPU memory in two processes: the parent allocates it and sends a descriptor over a
 * Unix socket; the child maps it. CUDA does not survive a fork, so both processes initialise it
 * after the fork.
 *
 *     cc share.c -lgdrapi -o share && ./share
 *
 * Each writes only while the other one waits: the parent before it sends the descriptor, the child
 * until it ends. No GPU work uses the buffer; otherwise its process waits for it before that.
 *
 * See in the output: each process reads the text that the other one wrote.
 */
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { SIZE = 1 << 21 };

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
	errno = ECONNRESET; /* recvmsg() returns 0 if the other process has ended */
	SYSTEM((fd < 0 ? recvmsg(socket, &msg, 0) : sendmsg(socket, &msg, 0)) > 0);
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

	SYSTEM(!socketpair(AF_UNIX, SOCK_STREAM, 0, socket));
	pid_t child = fork();

	SYSTEM(child >= 0);
	/* Closes the other side's end: if that process ends, this one does not wait for it. */
	close(socket[child == 0 ? 0 : 1]);
	g = open_any();
	if (child == 0) {
		fd = pass(socket[1], &size, -1);
		GDR(barcopy_mem_import(g, 0, fd, size, 0, &mem));
		close(fd);
		GDR(gdr_copy_from_mapping(mem.handle, text, mem.cpu_ptr, 16));
		printf("the child reads \"%s\"\n", text);
		GDR(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, "from the child", 15));
		GDR(barcopy_flush(mem.handle)); /* in GPU memory before this process ends */
		return gdr_close(g);
	}
	GDR(barcopy_mem_alloc(g, 0, SIZE, BARCOPY_MEM_SHAREABLE, &mem));
	GDR(gdr_copy_to_mapping(mem.handle, mem.cpu_ptr, "from the parent", 16));
	GDR(barcopy_flush(mem.handle)); /* in GPU memory before the child is told */
	GDR(barcopy_mem_export(g, &mem, &fd));
	pass(socket[0], &mem.size, fd);
	close(fd);
	SYSTEM(waitpid(child, &status, 0) == child);
	if (status)
		fail("the child", "see its message");
	GDR(gdr_copy_from_mapping(mem.handle, text, mem.cpu_ptr, 15));
	printf("the parent reads \"%s\"\n", text);
	gdr_close(g);
	return 0;
}
