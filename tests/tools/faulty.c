/* SPDX-License-Identifier: MIT */
/*
 * Preloaded under a tool, it plants one fault of a library or system: the tool must notice. FAULT names
 * it: write, read (the byte at BYTE, or 5, of each copy that has it is flipped), outside (a write also
 * writes the byte behind its range), unwritten, unread (nothing is copied), error (writes fail), pin
 * (those with tokens and those of more than BYTE bytes fail with ERROR, or EIO), map (maps fail), drop
 * (barcopy_put32() stores nothing), dontfork (a child inherits the mapping), leak (a close that closes
 * nothing), unmap (an unmap that leaves the mapping), unpin (an unpin that leaves the pin; these three give
 * ERROR, or 0), close (it ends the process, in each child but the first BYTE), info (va not rounded), wc,
 * mapped (this member is wrong of a mapping), flag (revocation is hidden), child (a child's copies are
 * served), open (a process gets one context), munmap (BYTE bytes stay mapped), crash, hang, deaf (to its alarm, too), exit and kill (each child but the first BYTE ends as soon
 * as it is there, with status 9 or by signal 9), node (a process ends where it opens /dev/nvidia2), pins
 * (the driver counts BYTE of them from the second process on, 0 in the first), memory (an allocation of
 * BYTE bytes fails), driver (NVIDIA's says its version), send, receive, control (a message of a socket fails, or
 * comes without its descriptor). With hang a wait for a signal that does not wait ends the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "barcopy.h"

static int fault_is(const char *name)
{
	const char *set = getenv("FAULT");

	return set && !strcmp(set, name);
}

static size_t children; /* that the first process has begun, this one included */

#define REAL(name)                                     \
	__typeof__(&(name)) real;                      \
	{                                              \
		void *next_ = dlsym(RTLD_NEXT, #name); \
		if (!next_)                            \
			abort();                       \
		memcpy(&real, &next_, sizeof(next_));  \
	}

static size_t the_byte(void)
{
	const char *set = getenv("BYTE");

	return set ? strtoul(set, NULL, 0) : 5;
}

static int the_error(int usual)
{
	const char *set = getenv("ERROR");

	return set ? atoi(set) : usual;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
	REAL(gdr_copy_to_mapping)
	volatile unsigned char *at = map_d_ptr;
	int rc = fault_is("error")	 ? EINVAL
		 : fault_is("unwritten") ? 0
					 : real(handle, map_d_ptr, h_ptr, size);

	if (!rc && the_byte() < size && fault_is("write"))
		at[the_byte()] = (unsigned char)~((const unsigned char *)h_ptr)[the_byte()];
	if (!rc && fault_is("outside"))
		at[size] = 0, at[size] = 255;
	return rc == EACCES && fault_is("child") ? 0 : rc;
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
	REAL(gdr_copy_from_mapping)
	int rc = fault_is("unread") ? 0 : real(handle, h_ptr, map_d_ptr, size);

	if (!rc && the_byte() < size && fault_is("read"))
		((unsigned char *)h_ptr)[the_byte()] ^= 255;
	return rc == EACCES && fault_is("child") ? 0 : rc;
}

int barcopy_put32(gdr_mh_t handle, void *map_ptr, uint32_t value)
{
	REAL(barcopy_put32)
	return fault_is("drop") ? 0 : real(handle, map_ptr, value);
}

gdr_t barcopy_open(unsigned int flags)
{
	static int opened;
	REAL(barcopy_open)

	if (fault_is("open") && opened++) {
		errno = ENODEV;
		return NULL;
	}
	return real(flags);
}

int gdr_close(gdr_t g)
{
	REAL(gdr_close)
	if (fault_is("close") && children > the_byte())
		raise(SIGKILL);
	return fault_is("leak") ? the_error(0) : real(g);
}

int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t token, uint32_t space, gdr_mh_t *handle)
{
	REAL(gdr_pin_buffer)
	return fault_is("pin") && size >= the_byte() ? EIO : real(g, addr, size, token, space, handle);
}

int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle)
{
	REAL(gdr_pin_buffer_v2)
	return fault_is("pin") && size > the_byte() ? the_error(EIO) : real(g, addr, size, flags, handle);
}

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags)
{
	REAL(gdr_map_v2)
	return fault_is("map") ? EAGAIN : real(g, handle, va, size, flags);
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
	REAL(gdr_unmap)
	return fault_is("unmap") ? the_error(0) : real(g, handle, va, size);
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
	REAL(gdr_unpin_buffer)
	return fault_is("unpin") ? the_error(0) : real(g, handle);
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
	REAL(gdr_get_info_v2)
	int rc = real(g, handle, info);

	if (!rc && fault_is("info"))
		info->va += 4096;
	if (!rc && info->mapped && fault_is("wc"))
		info->wc_mapping = !info->wc_mapping;
	if (!rc && fault_is("mapped"))
		info->mapped = 0;
	return rc;
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
	REAL(gdr_get_callback_flag)
	int rc = real(g, handle, flag);

	if (!rc && fault_is("flag"))
		*flag = !*flag;
	return rc;
}

int barcopy_flush(gdr_mh_t handle)
{
	REAL(barcopy_flush)
	if (fault_is("crash"))
		raise(SIGSEGV);
	if (fault_is("deaf"))
		signal(SIGALRM, SIG_IGN);
	while (fault_is("hang") || fault_is("deaf"))
		sleep(1);
	return real(handle);
}

pid_t fork(void)
{
	REAL(fork)
	pid_t pid = real();

	if (!pid && children >= the_byte() && fault_is("exit"))
		_exit(9);
	if (!pid && children >= the_byte() && fault_is("kill"))
		raise(SIGKILL);
	children++;
	return pid;
}

void *calloc(size_t count, size_t size)
{
	extern void *__libc_calloc(size_t count, size_t size); /* dlsym() allocates */

	/* A thread's table of modules is of so many of 16 bytes: glibc ends where it gets none. */
	return size != 16 && count * size == the_byte() && fault_is("memory") ? NULL : __libc_calloc(count, size);
}

void *realloc(void *at, size_t size)
{
	extern void *__libc_realloc(void *at, size_t size);

	return size == the_byte() && fault_is("memory") ? NULL : __libc_realloc(at, size);
}

int posix_memalign(void **at, size_t alignment, size_t size)
{
	REAL(posix_memalign)
	return size == the_byte() && fault_is("memory") ? ENOMEM : real(at, alignment, size);
}

FILE *fopen(const char *path, const char *mode)
{
	static pid_t first;
	static char text[24];
	REAL(fopen)

	if (fault_is("driver") && !strcmp(path, "/sys/module/nvidia/version"))
		return fmemopen("580.159.04\n", 11, "r");
	if (!fault_is("pins") || strcmp(path, "/proc/driver/gdrdrv/nv_get_pages_refcount"))
		return real(path, mode);
	first = first ? first : getpid();
	snprintf(text, sizeof(text), "%zu", getpid() == first ? 0 : the_byte());
	return fmemopen(text, strlen(text), "r");
}

int open(const char *path, int flags, ...)
{
	REAL(open)
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
	va_end(ap);
	if (fault_is("node") && !strcmp(path, "/dev/nvidia2"))
		raise(SIGKILL);
	return real(path, flags, mode);
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	REAL(mmap)
	if (fault_is("memory") && length == the_byte() && flags == (MAP_SHARED | MAP_ANONYMOUS))
		return MAP_FAILED;
	return real(addr, length, prot, flags, fd, offset);
}

int munmap(void *addr, size_t length)
{
	REAL(munmap)
	return fault_is("munmap") && length == the_byte() ? 0 : real(addr, length);
}

int madvise(void *addr, size_t length, int advice)
{
	REAL(madvise)
	if (advice == MADV_DONTFORK && fault_is("dontfork"))
		return 0;
	return real(addr, length, advice);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	REAL(sendmsg)
	errno = EPERM;
	return fault_is("send") ? -1 : real(fd, msg, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	REAL(recvmsg)
	ssize_t n = real(fd, msg, flags);

	if (fault_is("control"))
		msg->msg_controllen = 0;
	if (fault_is("receive"))
		errno = EPERM;
	return fault_is("receive") ? -1 : n;
}

int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *limit)
{
	REAL(sigtimedwait)
	if (fault_is("hang") && !limit->tv_sec && !limit->tv_nsec)
		abort();
	return real(set, info, limit);
}
