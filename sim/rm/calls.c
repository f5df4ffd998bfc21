/* SPDX-License-Identifier: MIT */
/* mmap, munmap and close of the nodes, as the system calls do them. */
#include <errno.h>
#include <sys/mman.h>

#include "node/node.h"
#include "rm/rm.h"

void *rm_node_mmap(int file, int fd, void *addr, size_t len, int prot, int flags, uint64_t off)
{
	bool mine = !rm->files[file].driver;
	int err = mine ? rm_fault("MMAP", 0) : 0;
	void *at;

	if (err) {
		errno = err < 0 ? EIO : err;
		return MAP_FAILED;
	}
	rm_lock();
	if (flags & MAP_FIXED)
		rm_vma_cut(addr, len);
	at = rm_mmap(file, fd, addr, len, prot, flags, off);
	rm_unlock();
	return at;
}

/* Before the range is unmapped, or something else is mapped over it. */
void rm_unmapped(void *addr, size_t len)
{
	int err = errno;

	if (!rm || !rm_vma_any())
		return;
	rm_lock();
	rm_vma_cut(addr, len);
	rm_unlock();
	if (!rm_is_driver())
		rm_memory_reap();
	errno = err;
}

/* No child inherits the range, nor the file that it holds open. */
void rm_dontfork(void *addr, size_t len)
{
	if (!rm || !rm_vma_any())
		return;
	rm_lock();
	rm_vma_dontfork(addr, len);
	rm_unlock();
}

void rm_closed(int file)
{
	int err = errno;

	rm_lock();
	rm_file_check(file);
	rm_unlock();
	if (!rm_is_driver())
		rm_memory_reap();
	errno = err;
}

int rm_close(int file, int fd)
{
	int rc = libc_calls()->close(fd);

	rm_closed(file);
	return rc;
}
