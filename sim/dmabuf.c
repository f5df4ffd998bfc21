/* SPDX-License-Identifier: MIT */
/*
 * The descriptor that stands for the dma-buf of an address range. A dma-buf is mapped from its own
 * offset 0, but the memory behind it may start anywhere in a memfd and go on in another one; no
 * ordinary descriptor can express that. So:
 *
 * - A range that is the beginning of one memfd gets that memfd: any mmap, also in another process
 *   that was handed the descriptor, works.
 * - Any other range gets the read end of a pipe. mmap of a pipe fails (ENODEV); mmap_hook.c makes
 *   the mmap of the loaded objects know it and map the pieces one behind the other. The pipe's
 *   other end, kept here, tells when the last descriptor is closed, and its inode number, which
 *   cannot be used again meanwhile, identifies it.
 * - A range that may not be mapped gets a pipe without the hook: mmap fails. The real driver's
 *   errno is 524, which no ordinary descriptor gives.
 *
 * It knows nothing of CUDA addresses.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

CUresult sim_dmabuf_create(const struct sim_piece *pieces, unsigned int n, bool mappable, int *fd)
{
	struct dmabuf *buf;
	struct stat st;
	int ends[2];

	sim_dmabuf_sweep();
	if (mappable && n == 1 && pieces[0].offset == 0) {
		*fd = fcntl(pieces[0].obj->fd, F_DUPFD_CLOEXEC, 0);
		return *fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
	}
	if (pipe2(ends, O_CLOEXEC))
		return CUDA_ERROR_OPERATING_SYSTEM;
	buf = fstat(ends[1], &st) ? NULL : dmabuf_new(pieces, n);
	if (!buf) {
		close(ends[0]);
		close(ends[1]);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	buf->kept = ends[1];
	buf->dev = st.st_dev;
	buf->ino = st.st_ino;
	buf->mappable = mappable;
	dmabufs = buf;
	if (mappable)
		sim_hook_mmap();
	*fd = ends[0];
	return CUDA_SUCCESS;
}

/* Over a reserved range: each piece at its place. */
static bool map_pieces(const struct dmabuf *buf, char *at, size_t len, int prot, size_t off)
{
	for (unsigned int i = 0; i < buf->n_pieces && len; i++) {
		const struct sim_piece *piece = &buf->pieces[i];
		size_t n;

		if (off >= piece->size) {
			off -= piece->size;
			continue;
		}
		n = piece->size - off < len ? piece->size - off : len;
		if (mmap(at, n, prot, MAP_SHARED | MAP_FIXED, piece->obj->fd,
			 (off_t)(piece->offset + off)) == MAP_FAILED)
			return false;
		at += n;
		len -= n;
		off = 0;
	}
	return true;
}

static void *map_dmabuf(const struct dmabuf *buf, void *addr, size_t len, int prot, int flags,
			int64_t off)
{
	void *at;

	len = (len + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	if ((flags & MAP_TYPE) == MAP_PRIVATE || len == 0 || off < 0 || off % (int64_t)SIM_PAGE ||
	    (size_t)off > buf->size || len > buf->size - (size_t)off) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	at = mmap(addr, len, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)), -1, 0);
	if (at == MAP_FAILED)
		return MAP_FAILED;
	if (!map_pieces(buf, at, len, prot, (size_t)off)) {
		int err = errno;

		munmap(at, len);
		errno = err;
		return MAP_FAILED;
	}
	return at;
}

static struct dmabuf *dmabuf_of(const struct stat *st)
{
	struct dmabuf *buf = dmabufs;

	while (buf && (buf->dev != st->st_dev || buf->ino != st->st_ino))
		buf = buf->next;
	return buf;
}

/* What of [off, off + size) lies in `all`: a piece each; the number, or -EINVAL. */
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

bool sim_dmabuf_map(void *addr, size_t len, int prot, int flags, int fd, int64_t off, void **out)
{
	struct dmabuf *buf;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !S_ISFIFO(st.st_mode))
		return false;
	pthread_mutex_lock(&sim.lock);
	buf = dmabuf_of(&st);
	if (buf && !buf->mappable)
		buf = NULL;
	sim_rm_own(true);
	if (buf)
		*out = map_dmabuf(buf, addr, len, prot, flags, off);
	sim_rm_own(false);
	pthread_mutex_unlock(&sim.lock);
	return buf != NULL;
}
