/* SPDX-License-Identifier: MIT */
/*
 * Mappings of the nodes in this process. Beside each, a page of the description itself is mapped,
 * by which the kernel knows that the mapping keeps the file open, also in a child that inherits it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/node.h"
#include "rm/rm.h"

enum { MAX_VMAS = RM_MAPS };

static struct vma {
	char *start; /* NULL: a free slot */
	size_t len;
	void *hold;
	int file, map;
	pid_t pid; /* that mapped it: a child inherits this table but not the pages */
	unsigned int pieces; /* with the same hold, this one included; counted in the first one */
	int first;
} vmas[MAX_VMAS];
static int top;
static atomic_uint n_vmas, n_stale;

bool rm_vma_any(void)
{
	return atomic_load(&n_vmas);
}

static int slot(void)
{
	for (int i = 0; i < top; i++)
		if (!vmas[i].start && !vmas[i].pieces)
			return i;
	return top < MAX_VMAS ? top++ : -1;
}

int rm_vma_add(int file, int fd, int map, void *addr, size_t len)
{
	int at = slot();
	void *hold;

	if (at < 0)
		return ENOMEM;
	hold = libc_calls()->mmap(NULL, RM_PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	if (hold == MAP_FAILED)
		return errno;
	vmas[at] = (struct vma){ addr, len, hold, file, map, getpid(), 1, at };
	atomic_fetch_add(&n_vmas, 1);
	return 0;
}

static void end_piece(int at)
{
	struct vma *first = &vmas[vmas[at].first];

	vmas[at].start = NULL;
	atomic_fetch_sub(&n_vmas, 1);
	if (--first->pieces)
		return;
	libc_calls()->munmap(first->hold, RM_PAGE);
	rm_file_check(first->file);
}

/* The part behind the hole becomes another piece. */
static void split(int at, char *low, char *high)
{
	struct vma *v = &vmas[at];
	char *end = v->start + v->len;
	int more;

	if (v->start < low && high < end) {
		more = slot();
		if (more >= 0) {
			vmas[more] = *v;
			vmas[more].start = high;
			vmas[more].len = (size_t)(end - high);
			vmas[more].pieces = 0;
			vmas[v->first].pieces++;
			atomic_fetch_add(&n_vmas, 1);
		}
		v->len = (size_t)(low - v->start);
	} else if (v->start < low) {
		v->len = (size_t)(low - v->start);
	} else if (high < end) {
		v->len = (size_t)(end - high);
		v->start = high;
	} else {
		end_piece(at);
	}
}

void rm_vma_cut(void *addr, size_t len)
{
	char *low = addr, *high = low + ((len + RM_PAGE - 1) & ~(size_t)(RM_PAGE - 1));

	for (int i = 0; i < top; i++)
		if (vmas[i].start && vmas[i].start < high && low < vmas[i].start + vmas[i].len)
			split(i, low, high);
}

void rm_vma_dontfork(void *addr, size_t len)
{
	const char *low = addr, *high = low + len;

	for (int i = 0; i < top; i++)
		if (vmas[i].start >= low && vmas[i].start && vmas[i].start + vmas[i].len <= high)
			libc_calls()->madvise(vmas[vmas[i].first].hold, RM_PAGE, MADV_DONTFORK);
}

void rm_vma_replace(void *addr, size_t len)
{
	if (libc_calls()->mmap(addr, len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == addr)
		memset(addr, 0xd5, len);
}

/*
 * The real driver leaves the CPU's entries, and gives their place in BAR1, and the memory, to the
 * next process that asks: the pages then show other bytes, of memory that is no longer the map's.
 */
void rm_vma_lose(int map)
{
	for (int i = 0; i < top; i++) {
		void *at = vmas[i].start;

		if (!at || vmas[i].map != map)
			continue;
		atomic_fetch_add(&n_stale, 1);
		if (vmas[i].pid == getpid())
			rm_vma_replace(at, vmas[i].len);
	}
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

void gdrsim_rm_counts(struct gdrsim_rm_counts *c)
{
	*c = (struct gdrsim_rm_counts){ 0 };
	gdrsim_rm_sweep();
	if (!rm)
		return;
	rm_lock();
	for (int i = 1; i < rm->n_files.top; i++) {
		const struct rm_file *f = &rm->files[i];

		c->ctl_files += f->kind == RM_CTL && !f->driver;
		c->device_files += f->kind == RM_DEVICE && !f->driver;
		c->dmabufs += f->kind == RM_DMABUF;
	}
	for (int i = 1; i < rm->n_clients.top; i++)
		c->clients += rm->clients[i].handle && !rm->clients[i].driver;
	for (int i = 1; i < rm->n_objects.top; i++) {
		const struct rm_object *o = &rm->objects[i];

		if (!o->client || rm->clients[o->client].driver)
			continue;
		c->devices += o->class == NV01_DEVICE_0;
		c->memories += o->memory != 0;
	}
	for (int i = 1; i < rm->n_maps.top; i++)
		c->maps += rm->maps[i].object &&
			   !rm->clients[rm->objects[rm->maps[i].object].client].driver;
	c->vmas = atomic_load(&n_vmas);
	rm_unlock();
}

void rm_vma_stale(void)
{
	atomic_fetch_add(&n_stale, 1);
}

unsigned long gdrsim_rm_stale(void)
{
	return atomic_load(&n_stale);
}
