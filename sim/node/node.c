/* SPDX-License-Identifier: MIT */
/*
 * The driver that the node's stand-in plays: regions, their maps, revocation.
 *
 * Lock order: libcuda's lock, then this one: libcuda is never called with this one held.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/gdrdrv.h"
#include "gdrsim.h"
#include "node/node.h"
#include "rules.h"

enum { MAX_FD = 4096, MAX_PIECES = 1024, TSC_KHZ = 2000000 };

struct node;

struct region {
	struct region *next;
	struct node *node;
	uint64_t handle, va, size;
	unsigned long pin; /* libcuda's */
	bool revoked;
	uint32_t wish;
	char *map; /* NULL while not mapped */
	size_t map_len;
	unsigned int n_pieces;
	struct gdrsim_piece pieces[];
};

/* One open of the node. */
struct node {
	struct node_config config;
	pid_t owner;
	int fd; /* the program's descriptor */
	unsigned int users; /* its further descriptors; under lock */
	uint64_t next_handle;
	struct region *regions;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct node *) nodes[MAX_FD]; /* by descriptor; written under lock */
static atomic_uint n_pins, n_maps;
static int hole; /* an empty file: a map of it gives SIGBUS */

static const struct {
	unsigned long request;
	const char *name;
	uint32_t since;
} calls[] = {
	{ GDRDRV_IOC_PIN_BUFFER, "PIN_BUFFER", 0 },
	{ GDRDRV_IOC_UNPIN_BUFFER, "UNPIN_BUFFER", 0 },
	{ GDRDRV_IOC_GET_CB_FLAG, "GET_CB_FLAG", 0 },
	{ GDRDRV_IOC_GET_INFO, "GET_INFO", 0 },
	{ GDRDRV_IOC_GET_INFO_V2, "GET_INFO_V2", GDRDRV_HAS_INFO_V2 },
	{ GDRDRV_IOC_GET_ATTR, "GET_ATTR", GDRDRV_HAS_ATTR },
	{ GDRDRV_IOC_PIN_BUFFER_V2, "PIN_BUFFER_V2", GDRDRV_HAS_PIN_V2 },
	{ GDRDRV_IOC_REQ_MAPPING_TYPE, "REQ_MAPPING_TYPE", GDRDRV_HAS_MAPPING_TYPE },
	{ GDRDRV_IOC_POPULATE, "POPULATE", 0 },
	{ GDRDRV_IOC_GET_VERSION, "GET_VERSION", 0 },
};

static struct {
	__typeof__(&gdrsim_pin) pin;
	__typeof__(&gdrsim_unpin) unpin;
} cuda; /* under lock */

/* libcuda, if the program has loaded the stand-in. */
static bool find_cuda(void)
{
	bool found;

	pthread_mutex_lock(&lock);
	if (!cuda.unpin) {
		void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

#define FIND(name) cuda.name = lib ? (__typeof__(cuda.name))dlsym(lib, "gdrsim_" #name) : NULL
		FIND(pin);
		FIND(unpin);
#undef FIND
	}
	found = cuda.unpin;
	pthread_mutex_unlock(&lock);
	return found;
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* Before any test counts descriptors. A child closes nodes, so no other thread may hold the lock. */
__attribute__((constructor)) static void make_hole(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
	hole = (int)syscall(SYS_memfd_create, "gdrdrv-revoked", 1u /* MFD_CLOEXEC */);
}

static struct node *node_at(int fd)
{
	return fd >= 0 && fd < MAX_FD ? atomic_load(&nodes[fd]) : NULL;
}

/*
 * A node that another process opened and passed on has no entry here. It is recognised by its name,
 * which suffices to refuse it.
 */
static bool is_foreign(int fd)
{
	char path[64], name[64];
	ssize_t len;

	if (fd < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, name, sizeof(name) - 1);
	if (len < 0)
		return false;
	name[len] = '\0';
	return !strncmp(name, "/memfd:gdrdrv-node", 18);
}

bool node_is(int fd)
{
	struct stat st;
	int err = errno;
	bool is;

	if (node_at(fd))
		return true;
	/* Only an empty file can be one: a cheap check for all others. */
	is = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && !st.st_size && is_foreign(fd);
	errno = err;
	return is;
}

static int fail(int err)
{
	errno = err;
	return -1;
}

int node_open(void)
{
	int err = node_fault("OPEN");
	struct node *node;
	int fd;

	if (!err)
		err = node_presence();
	if (err)
		return fail(err);
	node = calloc(1, sizeof(*node));
	if (!node)
		return fail(ENOMEM);
	node_config_read(&node->config);
	node->owner = getpid();
	node->next_handle = node->config.first_handle;
	fd = (int)syscall(SYS_memfd_create, "gdrdrv-node", 1u /* MFD_CLOEXEC */);
	if (fd < 0 || fd >= MAX_FD) {
		err = fd < 0 ? errno : EMFILE;
		if (fd >= 0)
			libc_calls()->close(fd);
		free(node);
		return fail(err);
	}
	node->fd = fd;
	pthread_mutex_lock(&lock);
	atomic_store(&nodes[fd], node);
	pthread_mutex_unlock(&lock);
	return fd;
}

/* Makes every access to the region's mapping a SIGBUS. */
static void zap_locked(struct region *r)
{
	if (!r->map)
		return;
	if (libc_calls()->mmap(r->map, r->map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			       hole, 0) == MAP_FAILED)
		abort();
}

static void revoke_locked(struct region *r)
{
	if (r->revoked)
		return;
	r->revoked = true;
	zap_locked(r);
}

/* Called by libcuda, under its lock. */
static void on_freed(void *arg)
{
	pthread_mutex_lock(&lock);
	revoke_locked(arg);
	pthread_mutex_unlock(&lock);
}

static struct region *find_locked(struct node *node, uint64_t handle)
{
	struct region *r = node->regions;

	while (r && r->handle != handle)
		r = r->next;
	return r;
}

static struct region *region_new(struct node *node, uint64_t va, uint64_t size)
{
	struct region *r = calloc(1, sizeof(*r) + MAX_PIECES * sizeof(r->pieces[0]));

	if (r) {
		r->node = node;
		r->va = va;
		r->size = size;
	}
	return r;
}

/* @n: the result of libcuda's pin. */
static int region_add(struct node *node, struct region *r, int n, uint64_t *handle)
{
	if (n < 0) {
		free(r);
		return -n;
	}
	r->n_pieces = (unsigned int)n;
	pthread_mutex_lock(&lock);
	r->handle = node->next_handle;
	node->next_handle += r->size / (uint64_t)sysconf(_SC_PAGESIZE);
	r->next = node->regions;
	node->regions = r;
	*handle = r->handle;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&n_pins, 1);
	return 0;
}

static int pin(struct node *node, uint64_t addr, uint64_t size, uint64_t *handle)
{
	uint64_t end, va = addr & ~0xffffULL;
	struct region *r;

	if (!addr || !size)
		return EINVAL;
	if (__builtin_add_overflow(addr, size, &end) || end > UINT64_MAX - 0xffff)
		return EOVERFLOW;
	if (!find_cuda())
		return EINVAL;
	r = region_new(node, va, ((end + 0xffff) & ~0xffffULL) - va);
	if (!r)
		return ENOMEM;
	return region_add(node, r,
			  cuda.pin(va, r->size, node->config.persistent ? NULL : on_freed, r,
				   r->pieces, MAX_PIECES, &r->pin),
			  handle);
}

/* Ends a region that is off the list; accesses to its mapping then fault. */
static void region_end(struct region *r)
{
	cuda.unpin(r->pin); /* no revocation is under way afterwards */
	pthread_mutex_lock(&lock);
	if (r->map) {
		zap_locked(r);
		atomic_fetch_sub(&n_maps, 1);
	}
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&n_pins, 1);
	free(r);
}

static int unpin(struct node *node, uint64_t handle)
{
	struct region **link, *r;

	pthread_mutex_lock(&lock);
	for (link = &node->regions; (r = *link) && r->handle != handle; link = &r->next)
		;
	if (r)
		*link = r->next;
	pthread_mutex_unlock(&lock);
	if (!r)
		return EINVAL;
	region_end(r);
	return 0;
}

static uint32_t type_of(const struct node *node, const struct region *r)
{
	if (!r->map)
		return 0;
	return r->wish ? r->wish : node->config.type;
}

static int request_type(const struct node *node, struct region *r, uint32_t type)
{
	if (type > 3)
		return EINVAL;
	if (type && type != node->config.type && !(type == 3 && node->config.device))
		return GDRDRV_ENOTSUPP;
	if (r->map)
		return EAGAIN;
	r->wish = type;
	return 0;
}

/* Calls on a region that exists: under lock. */
static int region_call_locked(struct node *node, unsigned long request, void *arg)
{
	struct region *r = find_locked(node, *(const uint64_t *)arg);

	if (!r)
		return EINVAL;
	switch (request) {
	case GDRDRV_IOC_GET_CB_FLAG:
		((struct gdrdrv_get_cb_flag *)arg)->flag = r->revoked;
		return 0;
	case GDRDRV_IOC_GET_INFO:
	case GDRDRV_IOC_GET_INFO_V2: {
		struct gdrdrv_get_info info = {
			.handle = r->handle,
			.va = r->va + (uint64_t)node->config.skew,
			.mapped_size = r->size + (uint64_t)node->config.skew_size,
			.page_size = 1 << 16,
			.tsc_khz = TSC_KHZ,
			.tm_cycles = 1000,
			.mapped = r->map != NULL,
			.wc_mapping = type_of(node, r) == 1,
		};

		if (request == GDRDRV_IOC_GET_INFO_V2) {
			info.mapped = type_of(node, r);
			info.wc_mapping = 0;
		}
		memcpy(arg, &info, sizeof(info));
		return 0;
	}
	case GDRDRV_IOC_REQ_MAPPING_TYPE:
		return request_type(node, r, ((struct gdrdrv_req_mapping_type *)arg)->mapping_type);
	case GDRDRV_IOC_POPULATE: /* only barcopy's driver */
		if (!node->config.populate)
			return ENOTTY;
		return r->map && !r->revoked ? 0 : EINVAL;
	default:
		return ENOTTY;
	}
}

static int get_attr(const struct node *node, struct gdrdrv_get_attr *a)
{
	switch (a->attr) {
	case GDRDRV_ATTR_USE_PERSISTENT_MAPPING:
		a->val = node->config.persistent;
		return 0;
	case GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE:
		a->val = node->config.pcie;
		return 0;
	default:
		return EINVAL;
	}
}

static int call(struct node *node, unsigned long request, void *arg)
{
	int err;

	switch (request) {
	case GDRDRV_IOC_GET_VERSION: {
		struct gdrdrv_get_version v = { node->config.level, node->config.min_api };

		memcpy(arg, &v, sizeof(v));
		return 0;
	}
	case GDRDRV_IOC_PIN_BUFFER: {
		struct gdrdrv_pin_buffer *p = arg;

		/* A persistent pin refuses tokens; else the GPU driver knows no such context. */
		if (p->p2p_token || p->va_space)
			return EINVAL;
		return pin(node, p->addr, p->size, &p->handle);
	}
	case GDRDRV_IOC_PIN_BUFFER_V2: {
		struct gdrdrv_pin_buffer_v2 *p = arg;

		if (p->flags & ~(uint32_t)GDRDRV_PIN_FLAG_FORCE_PCIE ||
		    (p->flags && !(node->config.pcie && node->config.persistent)))
			return EINVAL;
		return pin(node, p->addr, p->size, &p->handle);
	}
	case GDRDRV_IOC_UNPIN_BUFFER:
		return unpin(node, ((struct gdrdrv_unpin_buffer *)arg)->handle);
	case GDRDRV_IOC_GET_ATTR:
		return get_attr(node, arg);
	default:
		pthread_mutex_lock(&lock);
		err = region_call_locked(node, request, arg);
		pthread_mutex_unlock(&lock);
		return err;
	}
}

int node_ioctl(int fd, unsigned long request, void *arg)
{
	struct node *node = node_at(fd);
	int err;

	/* The kernel's request number has 32 bits. */
	request &= 0xffffffff;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (calls[i].request != request)
			continue;
		if (!node || node->owner != getpid())
			return fail(EACCES);
		if (calls[i].since > node->config.level)
			break;
		err = node_fault(calls[i].name);
		if (!err)
			err = call(node, request, arg);
		return err ? fail(err) : 0;
	}
	return fail(node && node->owner != getpid() ? EACCES : ENOTTY);
}

/* Maps each piece over a reserved range. */
static bool map_pieces(const struct region *r, char *at, size_t len, int prot)
{
	for (unsigned int i = 0; i < r->n_pieces && len; i++) {
		const struct gdrsim_piece *piece = &r->pieces[i];
		size_t n = piece->size < len ? piece->size : len;

		if (libc_calls()->mmap(at, n, prot, MAP_SHARED | MAP_FIXED, piece->fd,
				       (off_t)piece->offset) == MAP_FAILED)
			return false;
		at += n;
		len -= n;
	}
	return true;
}

static int map_locked(struct node *node, void *addr, size_t len, int prot, int flags,
		      uint64_t handle, int fault, void **out)
{
	struct region *r = find_locked(node, handle);
	char *at;

	if (!r || r->revoked || r->map || !len || len > r->size)
		return EINVAL;
	at = libc_calls()->mmap(addr, len, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | (flags & MAP_FIXED), -1, 0);
	if (at == MAP_FAILED)
		return errno;
	if (!map_pieces(r, at, len, prot)) {
		libc_calls()->munmap(at, len);
		return ENOMEM;
	}
	r->map = at;
	r->map_len = len;
	atomic_fetch_add(&n_maps, 1);
	if (fault == RULES_REVOKE)
		revoke_locked(r);
	*out = at;
	return 0;
}

void *node_mmap(int fd, void *addr, size_t len, int prot, int flags, uint64_t off)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct node *node = node_at(fd);
	void *map = MAP_FAILED;
	int err;

	if (!node || node->owner != getpid()) {
		errno = EACCES;
		return MAP_FAILED;
	}
	err = node_fault("MMAP");
	if (err <= 0 && ((flags & MAP_TYPE) == MAP_PRIVATE || (prot & PROT_EXEC)))
		err = EINVAL;
	if (err <= 0) {
		pthread_mutex_lock(&lock);
		err = map_locked(node, addr, (len + page - 1) & ~(page - 1), prot, flags,
				 off / page, err, &map);
		pthread_mutex_unlock(&lock);
	}
	if (err) {
		errno = err;
		return MAP_FAILED;
	}
	return map;
}

/* A region's map ends as a whole: the library never unmaps a part. */
void node_unmapped(void *addr, size_t len)
{
	(void)len;
	if (!atomic_load(&n_maps))
		return;
	pthread_mutex_lock(&lock);
	for (int fd = 0; fd < MAX_FD; fd++) {
		struct node *node = node_at(fd);

		for (struct region *r = node ? node->regions : NULL; r; r = r->next) {
			if (r->map != addr)
				continue;
			r->map = NULL;
			atomic_fetch_sub(&n_maps, 1);
		}
	}
	pthread_mutex_unlock(&lock);
}

int node_close(int fd)
{
	struct node *node;
	struct region *r;

	pthread_mutex_lock(&lock);
	node = node_at(fd);
	if (node)
		atomic_store(&nodes[fd], NULL);
	if (node && node->users) {
		node->users--;
		for (int i = 0; node->fd == fd && i < MAX_FD; i++)
			if (node_at(i) == node)
				node->fd = i;
		node = NULL;
	}
	pthread_mutex_unlock(&lock);
	/* In a child the regions are the parent's: its copy is dropped. */
	if (node && node->owner == getpid()) {
		while ((r = node->regions)) {
			node->regions = r->next;
			region_end(r);
		}
	}
	free(node);
	return libc_calls()->close(fd);
}

int node_dup(int fd, int newfd)
{
	struct node *node;

	pthread_mutex_lock(&lock);
	node = node_at(fd);
	if (node && newfd < MAX_FD) {
		node->users++;
		atomic_store(&nodes[newfd], node);
	}
	pthread_mutex_unlock(&lock);
	return node && newfd >= MAX_FD ? -1 : 0;
}

unsigned int gdrsim_node_pins(void)
{
	return atomic_load(&n_pins);
}

unsigned int gdrsim_node_maps(void)
{
	return atomic_load(&n_maps);
}
