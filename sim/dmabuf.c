/* SPDX-License-Identifier: MIT */
/*
 * The dma-buf of an address range. It is mapped from its own offset 0, but its memory may start
 * anywhere in a memfd and continue in another one, which no ordinary descriptor expresses. So:
 *
 * - A range at the beginning of one memfd gets an open of that memfd, which any process can mmap.
 * - Any other range gets the read end of a pipe. mmap of a pipe fails (ENODEV), but mmap_hook.c
 *   makes the loaded objects' mmap map the pieces in a row. The write end, kept here, shows when
 *   the last descriptor is closed; the inode number, unique meanwhile, identifies the pipe.
 * - A range that may not be mapped gets a pipe without the hook. (The real errno is 524.)
 *
 * nv_dma_buf_mmap() of 580.65.06 to 595.45.04 ends its loop over the objects after the first one:
 * mmap succeeds, and what lies in other objects has no pages. 575.64.05 has no mmap.
 *
 * Like the real one (nv-dmabuf.c), it holds the memory until the last descriptor and the last
 * mapping are gone, in whatever process: both keep an open file description, whose lock object.c
 * finds. Maps take BAR1 in 64 KiB pages, counted from this process's list of mappings.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

struct dmabuf {
	struct dmabuf *next;
	int kept; /* the pipe's write end */
	dev_t dev;
	ino_t ino;
	bool mappable;
	size_t size;
	size_t first; /* bytes of the first memory object */
	unsigned int n_pieces;
	struct sim_piece pieces[];
};

static struct dmabuf *dmabufs;

static void dmabuf_free(struct dmabuf *buf)
{
	for (unsigned int i = 0; i < buf->n_pieces; i++)
		sim_obj_put(buf->pieces[i].obj);
	close(buf->kept);
	free(buf);
}

static bool closed_by_all(const struct dmabuf *buf)
{
	struct pollfd p = { .fd = buf->kept };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

void sim_dmabuf_sweep(void)
{
	struct dmabuf **link = &dmabufs;

	sim_obj_sweep();
	while (*link) {
		struct dmabuf *buf = *link;

		if (closed_by_all(buf)) {
			*link = buf->next;
			dmabuf_free(buf);
		} else {
			link = &buf->next;
		}
	}
}

static struct dmabuf *dmabuf_new(const struct sim_piece *pieces, unsigned int n)
{
	struct dmabuf *buf = calloc(1, sizeof(*buf) + n * sizeof(*pieces));

	if (!buf)
		return NULL;
	memcpy(buf->pieces, pieces, n * sizeof(*pieces));
	buf->n_pieces = n;
	for (unsigned int i = 0; i < n; i++) {
		buf->size += pieces[i].size;
		sim_obj_get(pieces[i].obj);
	}
	buf->next = dmabufs;
	return buf;
}

/* A number of the open file description, which other processes see too, marks a dma-buf. */
enum { MARK = 57 }; /* a signal that nothing is to send: no owner is set */

static int mark(int fd)
{
	return fd < 0 || fcntl(fd, F_SETSIG, MARK) ? -1 : fd;
}

bool sim_is_dmabuf(int fd)
{
	return fcntl(fd, F_GETSIG) == MARK;
}

CUresult sim_dmabuf_create(const struct sim_piece *pieces, unsigned int n, size_t first,
			   bool mappable, int *fd)
{
	struct dmabuf *buf;
	struct stat st;
	int ends[2];

	sim_dmabuf_sweep();
	if (mappable)
		sim_hook_mmap();
	if (mappable && n == 1 && pieces[0].offset == 0 && first == pieces[0].size) {
		*fd = mark(sim_obj_export(pieces[0].obj, open));
		return *fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
	}
	if (pipe2(ends, O_CLOEXEC))
		return CUDA_ERROR_OPERATING_SYSTEM;
	buf = fstat(ends[1], &st) || mark(ends[0]) < 0 ? NULL : dmabuf_new(pieces, n);
	if (!buf) {
		close(ends[0]);
		close(ends[1]);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	buf->kept = ends[1];
	buf->dev = st.st_dev;
	buf->ino = st.st_ino;
	buf->mappable = mappable;
	buf->first = first;
	dmabufs = buf;
	*fd = ends[0];
	return CUDA_SUCCESS;
}

static struct dmabuf *dmabuf_of(const struct stat *st)
{
	struct dmabuf *buf = dmabufs;

	while (buf && (buf->dev != st->st_dev || buf->ino != st->st_ino))
		buf = buf->next;
	return buf;
}

/* Cuts [off, off + size) out of `all`: the number of pieces, or -EINVAL. */
static int cut_pieces(const struct sim_piece *all, unsigned int n, size_t off, size_t size,
		      struct sim_piece *out, unsigned int room)
{
	unsigned int made = 0;

	for (unsigned int i = 0; i < n && size; i++) {
		size_t len;

		if (off >= all[i].size) {
			off -= all[i].size;
			continue;
		}
		if (made == room)
			return -EINVAL;
		len = all[i].size - off < size ? all[i].size - off : size;
		out[made++] = (struct sim_piece){ all[i].obj, all[i].offset + off, len };
		size -= len;
		off = 0;
	}
	return size ? -EINVAL : (int)made;
}

int sim_dmabuf_pieces(int fd, size_t off, size_t size, struct sim_piece *out, unsigned int room)
{
	const struct dmabuf *buf;
	struct sim_piece whole;
	struct stat st;

	if (fstat(fd, &st))
		return -EBADF;
	if (S_ISFIFO(st.st_mode)) {
		buf = dmabuf_of(&st);
		return buf ? cut_pieces(buf->pieces, buf->n_pieces, off, size, out, room) : -EINVAL;
	}
	whole.obj = sim_obj_by_fd(fd);
	if (!whole.obj)
		return -EINVAL;
	whole.offset = 0;
	whole.size = whole.obj->size;
	return cut_pieces(&whole, 1, off, size, out, room);
}

/* ---- maps ------------------------------------------------------------------------------------ */

#define BAR1_PAGE ((uint64_t)65536)

/* An upper bound: the last count plus the maps since. Unmaps are not seen. */
static uint64_t bar1_at_most[SIM_MAX_GPUS];

static uint64_t bar1_pages(uint64_t from, uint64_t to)
{
	return ((to + BAR1_PAGE - 1) & ~(BAR1_PAGE - 1)) - (from & ~(BAR1_PAGE - 1));
}

/* Every map of an exported object but the stand-in's own. */
static uint64_t bar1_count(int dev)
{
	int fd = sim_open_anyway("/proc/self/maps", O_RDONLY);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	unsigned long from, to, off, ino;
	uint64_t used = 0;
	char line[256];

	if (!maps)
		abort();
	while (fgets(line, sizeof(line), maps)) {
		const struct sim_obj *obj;

		if (!strstr(line, "/memfd:gdrsim-vmm:") ||
		    sscanf(line, "%lx-%lx %*s %lx %*s %lu", &from, &to, &off, &ino) != 4)
			continue;
		obj = sim_obj_exported(ino);
		if (obj && obj->dev == dev && from != (uintptr_t)obj->cpu)
			used += bar1_pages(off, off + (to - from));
	}
	fclose(maps);
	bar1_at_most[dev] = used;
	return used;
}

unsigned long long gdrsim_dmabuf_bar1(int device)
{
	uint64_t used = 0;

	pthread_mutex_lock(&sim.lock);
	if (sim_device_ok(device))
		used = bar1_count(device);
	pthread_mutex_unlock(&sim.lock);
	return used;
}

static bool take_bar1(const struct sim_piece *pieces, int n)
{
	int dev = pieces[0].obj->dev;
	uint64_t need = 0;

	if (sim.gpu[dev].bar1_static)
		return true;
	for (int i = 0; i < n; i++)
		need += bar1_pages(pieces[i].offset, pieces[i].offset + pieces[i].size);
	if (need + bar1_at_most[dev] > sim.gpu[dev].bar1_bytes &&
	    need + bar1_count(dev) > sim.gpu[dev].bar1_bytes)
		return false;
	bar1_at_most[dev] += need;
	return true;
}

/* Maps each piece over a reserved range, by a description that holds its memory. */
static bool map_pieces(const struct sim_piece *pieces, int n, char *at, int prot)
{
	for (int i = 0; i < n; i++) {
		int fd = sim_obj_export(pieces[i].obj, sim_open_anyway);
		void *map = fd < 0 ? MAP_FAILED
				   : mmap(at, pieces[i].size, prot, MAP_SHARED | MAP_FIXED, fd,
					  (off_t)pieces[i].offset);

		if (fd >= 0)
			close(fd);
		if (map == MAP_FAILED)
			return false;
		at += pieces[i].size;
	}
	return true;
}

/* Pages that do not exist: SIGBUS. */
static bool map_hole(void *at, size_t len, int prot)
{
	int fd = memfd_create("gdrsim-hole", MFD_CLOEXEC);
	void *map = fd < 0 ? MAP_FAILED : mmap(at, len, prot, MAP_SHARED | MAP_FIXED, fd, 0);

	if (fd >= 0)
		close(fd);
	return map != MAP_FAILED;
}

static bool first_object_alone(void)
{
	int version = sim_driver_version();

	return sim_env("GDRSIM_DMABUF_FIRST", version >= 13000 && version < 13030) != 0;
}

/* buf: NULL for a descriptor of one whole object. */
static void *map_dmabuf(const struct dmabuf *buf, void *addr, size_t len, int prot, int flags,
			int fd, int64_t off)
{
	static struct sim_piece pieces[SIM_MAX_PIECES]; /* under the lock */
	size_t has;
	void *at;
	int n;

	len = (len + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	errno = EINVAL;
	if ((flags & MAP_TYPE) == MAP_PRIVATE || !len || off < 0 || off % (int64_t)SIM_PAGE)
		return MAP_FAILED;
	n = sim_dmabuf_pieces(fd, (size_t)off, len, pieces, SIM_MAX_PIECES);
	if (n <= 0)
		return MAP_FAILED;
	errno = ENOMEM;
	if (!take_bar1(pieces, n))
		return MAP_FAILED;
	at = mmap(addr, len, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)), -1, 0);
	if (at == MAP_FAILED)
		return at;
	has = len;
	if (buf && first_object_alone()) {
		has = (size_t)off < buf->first ? buf->first - (size_t)off : 0;
		has = has < len ? has : len;
		n = has ? sim_dmabuf_pieces(fd, (size_t)off, has, pieces, SIM_MAX_PIECES) : 0;
	}
	if (!map_pieces(pieces, n, at, prot) ||
	    (has < len && !map_hole((char *)at + has, len - has, prot))) {
		int err = errno;

		munmap(at, len);
		errno = err;
		return MAP_FAILED;
	}
	return at;
}

bool sim_dmabuf_map(void *addr, size_t len, int prot, int flags, int fd, int64_t off, void **out)
{
	const struct dmabuf *buf;
	struct stat st;
	bool ours;

	if (fd < 0 || fstat(fd, &st) || !(S_ISFIFO(st.st_mode) || sim_is_memfd(fd)))
		return false;
	pthread_mutex_lock(&sim.lock);
	buf = dmabuf_of(&st);
	ours = buf ? buf->mappable : sim_obj_by_fd(fd) != NULL;
	sim_rm_own(true);
	if (ours)
		*out = map_dmabuf(buf, addr, len, prot, flags, fd, off);
	if (ours && *out != MAP_FAILED && sim_env("GDRSIM_DMABUF_WRONG", 0))
		*out = mmap(*out, len, prot, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	sim_rm_own(false);
	pthread_mutex_unlock(&sim.lock);
	return ours;
}
