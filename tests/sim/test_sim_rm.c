/* SPDX-License-Identifier: MIT */
/*
 * Self-test of nvidia.ko's stand-in and of libcuda's as its client, by the nodes alone: requests
 * and their answers, as H100 and H200 with driver 580 gave them. It leaves out what the tests of
 * the library and tests/gpu cover: bytes that arrive, maps, pins, threads, refused arguments.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/rm.h"
#include "common/rm.h"
#include "common/standin.h"
#include "common/unit.h"

#define MIB ((size_t)1 << 20)

enum { PAGES = 65536 };

#define SYSCALL_FAILS(err, call)                                                                 \
	do {                                                                                     \
		long rc_ = (long)(call);                                                         \
		ck_assert_msg(rc_ == -1 && errno == (err), #call ": %ld, errno %d, not %d", rc_, \
			      errno, err);                                                       \
	} while (0)
/* The status that a call leaves in its structure. */
#define IS(status, call)                                                                 \
	do {                                                                             \
		uint32_t is_ = (call);                                                   \
		ck_assert_msg(is_ == (status), #call ": 0x%x, not 0x%x", is_, (status)); \
	} while (0)

/* ---- libcuda's exports, recorded ------------------------------------------------------------- */

static struct rm_export_570 seen[8];
static unsigned int n_seen;

/* libcuda's import binds to it. */
__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, ...);
	va_list ap;
	void *arg;
	int rc;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "ioctl");
	rc = next(fd, request, arg);
	if (_IOC_TYPE(request) == RM_IOC_TYPE && _IOC_NR(request) == RM_EXPORT_NUMBER &&
	    n_seen < COUNT(seen))
		memcpy(&seen[n_seen++], arg,
		       _IOC_SIZE(request) < sizeof(seen[0]) ? _IOC_SIZE(request) : sizeof(seen[0]));
	return rc;
}

/* The dma-buf of the range, or the CUresult's negative; what passed is in `seen`. */
static int export_range(CUdeviceptr at, size_t size)
{
	int fd = -1;
	CUresult r;

	memset(seen, 0, sizeof(seen));
	n_seen = 0;
	r = cuda.cuMemGetHandleForAddressRange(&fd, at, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					       0);
	return r == CUDA_SUCCESS ? fd : -(int)r;
}

/* ---- calls; each fails the test if the ioctl itself fails ------------------------------------ */

static uint32_t new_object(int ctl, rm_handle client, rm_handle parent, rm_handle *object,
			   uint32_t class, void *params, uint32_t size)
{
	struct rm_alloc a = { client, parent, *object, class, (uintptr_t)params, 0, size, 0, ~0u };

	ck_assert_int_eq(ioctl(ctl, RM_IOC_ALLOC, &a), 0);
	*object = a.object;
	return a.status;
}

static uint32_t new_device(int ctl, rm_handle client, rm_handle parent, uint32_t instance,
			   rm_handle *object)
{
	struct rm_device_params p = { .instance = instance };

	return new_object(ctl, client, parent, object, RM_CLASS_DEVICE, &p, sizeof(p));
}

static uint32_t control(int ctl, rm_handle client, rm_handle object, uint32_t command, void *params,
			uint32_t size)
{
	struct rm_control c = { client, object, command, 0, (uintptr_t)params, size, ~0u };

	ck_assert_int_eq(ioctl(ctl, RM_IOC_CONTROL, &c), 0);
	return c.status;
}

static uint32_t end_object(int ctl, rm_handle client, rm_handle object)
{
	struct rm_free f = { client, 0, object, ~0u };

	ck_assert_int_eq(ioctl(ctl, RM_IOC_FREE, &f), 0);
	return f.status;
}

static int open_ctl(void)
{
	return open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
}

static int open_node(unsigned int minor)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* The GPU of a CUDA ordinal: found by its PCI address. */
static void find_gpu(int ctl, rm_handle client, int ordinal, unsigned int *minor,
		     uint32_t *instance)
{
	struct rm_card_info cards[RM_MAX_CARDS];
	struct rm_gpu_id_info info = { 0 };
	int at = 0;

	memset(cards, 0, sizeof(cards));
	ck_assert_int_eq(ioctl(ctl, RM_IOC_CARD_INFO, cards), 0);
	while (at < RM_MAX_CARDS - 1 && cards[at].pci_bus != 0x21 + ordinal)
		at++;
	ck_assert(cards[at].valid);
	info.gpu_id = cards[at].gpu_id;
	IS(0u, control(ctl, client, client, RM_CONTROL_GPU_ID_INFO, &info, sizeof(info)));
	*minor = cards[at].minor;
	*instance = info.device_instance;
}

/* A client with one GPU. */
struct user {
	int ctl, node;
	rm_handle client, device;
	unsigned int minor;
	uint32_t instance;
};

static void user_start(struct user *u, int ordinal)
{
	memset(u, 0, sizeof(*u));
	u->ctl = open_ctl();
	IS(0u, new_object(u->ctl, 0, 0, &u->client, RM_CLASS_CLIENT, NULL, 0));
	find_gpu(u->ctl, u->client, ordinal, &u->minor, &u->instance);
	u->node = open_node(u->minor);
	IS(0u, new_device(u->ctl, u->client, u->client, u->instance, &u->device));
}

static void user_end(struct user *u)
{
	close(u->node);
	close(u->ctl);
}

static uint32_t duplicate(const struct user *u, rm_handle from, rm_handle source, rm_handle *out)
{
	struct rm_dup d = { u->client, u->device, 0, from, source, 0, ~0u };

	ck_assert_int_eq(ioctl(u->ctl, RM_IOC_DUP, &d), 0);
	*out = d.object;
	return d.status;
}

/* A duplicate of the object of new memory; libcuda's own is in `seen`. */
static rm_handle duplicate_of_new(const struct user *u, size_t size, CUdeviceptr *a)
{
	rm_handle dup;

	*a = standin_alloc(size);
	close(export_range(*a, PAGES));
	IS(0u, duplicate(u, seen[0].client, seen[0].objects[0], &dup));
	return dup;
}

static uint32_t map(const struct user *u, struct rm_map m, uint64_t *address)
{
	m.client = m.client ? m.client : u->client;
	m.device = m.device ? m.device : u->device;
	ck_assert_int_eq(ioctl(u->ctl, RM_IOC_MAP, &m), 0);
	*address = m.address;
	return m.status;
}

static uint32_t unmap(const struct user *u, rm_handle object, uint64_t address)
{
	struct rm_unmap m = { u->client, u->device, object, address, ~0u, 0 };

	ck_assert_int_eq(ioctl(u->ctl, RM_IOC_UNMAP, &m), 0);
	return m.status;
}

/* ---- what libcuda exports -------------------------------------------------------------------- */

/* One call of libcuda's: two objects at most. */
struct exported {
	CUdeviceptr at;
	size_t size;
	CUresult result;
	uint32_t status, count;
	uint64_t part[2][2]; /* offset, size */
};

static void check_exported(const char *what, CUdeviceptr base, const struct exported *e)
{
	int fd = export_range(base + e->at, e->size);

	ck_assert_msg(e->result ? fd == -(int)e->result : fd >= 0, "%s, 0x%llx: %d", what, e->at,
		      fd);
	ck_assert_uint_eq(n_seen, 1);
	ck_assert_msg(seen[0].status == e->status && seen[0].count == e->count &&
			      seen[0].total == e->count && seen[0].size == e->size,
		      "%s, 0x%llx: status 0x%x, %u objects of %u", what, e->at, seen[0].status,
		      seen[0].count, seen[0].total);
	for (uint32_t i = 0; i < e->count; i++)
		ck_assert_msg(seen[0].offsets[i] == e->part[i][0] &&
				      seen[0].sizes[i] == e->part[i][1],
			      "%s, 0x%llx: object %u: offset 0x%llx, size 0x%llx", what, e->at, i,
			      (unsigned long long)seen[0].offsets[i],
			      (unsigned long long)seen[0].sizes[i]);
	if (fd >= 0)
		close(fd);
}

/*
 * A pool's memory has an object for each 32 MiB. A part that begins inside one and does not end
 * where one ends has wrong sizes, which the kernel refuses (H100, driver 580.159.04).
 */
static void pool_parts(void)
{
	static const struct exported calls[] = {
		{ 0x10000, 0x10000, CUDA_ERROR_INVALID_VALUE, 0x1f, 1, { { 0x10000, 0 } } },
		{ 0x900000,
		  0x10000,
		  CUDA_ERROR_INVALID_VALUE,
		  0x1f,
		  1,
		  { { 0x900000, 0xffffffffff710000 } } },
		{ 0x10000, 0x30000, CUDA_ERROR_INVALID_VALUE, 0x1f, 1, { { 0x10000, 0x20000 } } },
		{ 0x1ff0000,
		  0x20000,
		  CUDA_ERROR_INVALID_VALUE,
		  0x1f,
		  2,
		  { { 0x1ff0000, 0xfffffffffe030000 }, { 0xfffffffffe020000, 0x3fd0000 } } },
		{ 0x1ff0000, 0x10000, 0, 0, 1, { { 0x1ff0000, 0x10000 } } },
		{ 0, 0x2010000, 0, 0, 2, { { 0, 0x2000000 }, { 0, 0x10000 } } },
		{ 0x3000000, 0x2000000, 0, 0, 2, { { 0x1000000, 0x1000000 }, { 0, 0x1000000 } } },
	};
	CUdeviceptr pool;

	standin_start();
	ck_assert_int_eq(cuda.cuMemAllocAsync(&pool, 80 * MIB, NULL), 0);
	for (size_t i = 0; i < COUNT(calls); i++)
		check_exported("pool", pool, &calls[i]);
	rm_assert_nothing_left();
}

/*
 * Small allocations share an object of 2 MiB; large ones and chunks of cuMemCreate have their own.
 */
static void objects(void)
{
	static const struct exported small = { 0, PAGES, 0, 0, 1, { { 0, PAGES } } };
	static const struct exported inside = { PAGES, PAGES, 0, 0, 1, { { PAGES, PAGES } } };
	static const struct exported chunks = { MIB, 3 * MIB, 0,
						0,   2,	      { { MIB, MIB }, { 0, 2 * MIB } } };
	CUdeviceptr a, b, managed;
	rm_handle shared;

	standin_start();
	a = standin_alloc(4096);
	b = standin_alloc(100000);
	check_exported("small", a, &small);
	shared = seen[0].objects[0];
	close(export_range(b & ~0xffffull, 2 * PAGES));
	ck_assert_uint_eq(seen[0].objects[0], shared);
	check_exported("large", standin_alloc(8 * MIB), &inside);
	ck_assert_uint_ne(seen[0].objects[0], shared);
	check_exported("VMM", standin_chunks(0, 0, 2, 2 * MIB, 0), &chunks);
	ck_assert_int_eq(cuda.cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL), 0);
	ck_assert_int_lt(export_range(managed, PAGES), 0);
	ck_assert_uint_eq(n_seen, 0);
	rm_assert_nothing_left();
}

/* More objects than a call holds: later calls continue at an index. */
static void many_objects(void)
{
	CUdeviceptr a;
	int fd;

	standin_start();
	a = standin_alloc(600 * MIB);
	fd = export_range(a, 600 * MIB);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(n_seen, 3);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert(seen[i].total == 300 && seen[i].index == 128 * i &&
			  seen[i].count == (i < 2 ? 128 : 44) && seen[i].fd == fd);
	close(fd);
	setenv("GDRSIM_RM_EXPORT_MAX", "200", 1);
	ck_assert_int_lt(export_range(a, 600 * MIB), 0); /* more than the driver takes */
}

static void layouts(void)
{
	const struct rm_export_515 *old = (const void *)&seen[0];
	CUdeviceptr a;
	rm_handle known;

	standin_start();
	a = standin_alloc(8 * MIB);
	close(export_range(a + PAGES, PAGES));
	known = seen[0].objects[0];
	setenv("GDRSIM_RM_DRIVER", "550.54.14", 1);
	close(export_range(a + PAGES, PAGES));
	ck_assert(old->objects[0] == known && old->offsets[0] == PAGES && old->sizes[0] == PAGES);
	setenv("GDRSIM_RM_EXPORT_SIZE", "2616", 1);
	close(export_range(a + PAGES, PAGES));
	ck_assert_uint_ne(old->objects[0], known);
	unsetenv("GDRSIM_RM_EXPORT_SIZE");
	setenv("GDRSIM_RM_DRIVER", "510.47.03", 1);
	ck_assert_int_eq(export_range(a, PAGES), -CUDA_ERROR_OPERATING_SYSTEM);
	rm_assert_nothing_left();
}

/* libcuda has the nodes that are denied to the program (1 call), and lacks absent ones (0). */
static void libcudas_nodes(void)
{
	int fd;

	standin_start();
	SYSCALL_FAILS(atoi(getenv("ERRNO")), open_ctl());
	fd = export_range(standin_alloc(8 * MIB), PAGES);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(n_seen, (unsigned int)atoi(getenv("CALLS")));
	close(fd);
}

/* ---- the calls: what is refused, and how ----------------------------------------------------- */

/* CUDA's order, minors and instances; of two GPUs as on a host with two H200. */
static void orders(void)
{
	int ctl = open_ctl(), gpus = atoi(getenv("GDRSIM_DEVICES"));
	rm_handle client = 0;

	IS(0u, new_object(ctl, 0, 0, &client, RM_CLASS_CLIENT, NULL, 0));
	for (int i = 0; i < gpus; i++) {
		unsigned int minor;
		uint32_t instance;

		find_gpu(ctl, client, i, &minor, &instance);
		ck_assert_int_eq((int)minor, gpus > 2 ? (i + 1) % gpus : i);
		ck_assert_int_eq((int)instance, gpus - 1 - i);
	}
}

/* What the GPU can do, by the command in its older form (rmapi_deprecated_control.c). */
static void gpu_info(int ctl, rm_handle client, rm_handle dev)
{
	struct rm_gpu_info info[2] = { { RM_GPU_INFO_DMABUF, 7 }, { RM_GPU_INFO_DMABUF, 7 } };
	struct rm_gpu_info_list list = { 2, (uintptr_t)info };
	struct rm_subdevice_params params = { 0 };
	rm_handle sub = 0, other = 0;

	IS(0u, new_object(ctl, client, dev, &sub, RM_CLASS_SUBDEVICE, &params, sizeof(params)));
	IS(0x56u, control(ctl, client, dev, RM_CONTROL_GPU_INFO, &list, sizeof(list)));
	IS(0u, control(ctl, client, sub, RM_CONTROL_GPU_INFO, &list, sizeof(list)));
	ck_assert(info[0].data == 1 && info[1].data == 1);
	setenv("GDRSIM_DMABUF", "0", 1);
	IS(0u, control(ctl, client, sub, RM_CONTROL_GPU_INFO, &list, sizeof(list)));
	ck_assert(info[0].data == 0 && info[1].data == 0);
	info[1].index = 0xfff;
	IS(0x1fu, control(ctl, client, sub, RM_CONTROL_GPU_INFO, &list, sizeof(list)));
	list.count = 0;
	IS(0x1fu, control(ctl, client, sub, RM_CONTROL_GPU_INFO, &list, sizeof(list)));
	list.count = 1000;
	IS(0x5bu, control(ctl, client, sub, RM_CONTROL_GPU_INFO, &list, sizeof(list)));
	params.instance = 1;
	IS(0x22u,
	   new_object(ctl, client, dev, &other, RM_CLASS_SUBDEVICE, &params, sizeof(params)));
}

static void devices(void)
{
	int ctl = open_ctl(), node;
	rm_handle client = 0, dev = 0;

	IS(0u, new_object(ctl, 0, 0, &client, RM_CLASS_CLIENT, NULL, 0));
	/* For a process that has the GPU's node open: of instance 1 that is minor 0 (H200). */
	IS(0x1bu, new_device(ctl, client, client, 1, &dev));
	node = open_node(1);
	IS(0x1bu, new_device(ctl, client, client, 1, &dev));
	close(node);
	node = open_node(0);
	IS(0u, new_device(ctl, client, client, 1, &dev));
	gpu_info(ctl, client, dev);
	close(ctl);
	close(node);
	rm_assert_nothing_left();
}

/* A process's clients may take from each other, where the share policy has its default. */
static void duplicates(void)
{
	rm_handle dup, dup2, out;
	struct user u, v;
	CUdeviceptr a;

	standin_start();
	user_start(&u, 0);
	user_start(&v, 0);
	dup = duplicate_of_new(&u, 8 * MIB, &a);
	setenv("GDRSIM_RM_SHARE", "0", 1);
	IS(0x1bu, duplicate(&u, seen[0].client, seen[0].objects[0], &out));
	unsetenv("GDRSIM_RM_SHARE");
	IS(0u, duplicate(&v, u.client, dup, &dup2));
	/* A freed device takes its children with it. */
	IS(0u, end_object(v.ctl, v.client, v.device));
	IS(0x57u, duplicate(&u, v.client, dup2, &out));
	user_end(&v);
	user_end(&u);
	rm_assert_nothing_left();
}

/* Which node a map is of; one map for each descriptor. */
static void maps(void)
{
	rm_handle dup, other_dup;
	struct user u, v;
	uint64_t address;
	CUdeviceptr a;
	int fd;

	standin_start();
	user_start(&u, 0);
	user_start(&v, 1);
	dup = duplicate_of_new(&u, 4 * MIB, &a);
	fd = open_node(u.minor);

	const struct {
		uint32_t status;
		struct rm_map m;
	} calls[] = {
		{ 0x2e, { .object = dup, .offset = 4096, .length = 4 * MIB, .fd = fd } },
		/* A node of another GPU, a control file, nothing: refused, and undone. */
		{ 0x1f, { .object = dup, .length = 4096, .fd = v.node } },
		{ 0x1f, { .object = dup, .length = 4096, .fd = u.ctl } },
		{ 0x1f, { .object = dup, .length = 4096, .fd = 999 } },
		{ 0, { .object = dup, .length = 4096, .fd = fd } },
		{ 0x63, { .object = dup, .length = 4096, .fd = fd } }, /* one for each file */
	};

	for (size_t i = 0; i < COUNT(calls); i++) {
		uint32_t status = map(&u, calls[i].m, &address);

		ck_assert_msg(status == calls[i].status, "map %zu: 0x%x", i, status);
	}
	rm_assert_bar1(0, PAGES);
	setenv("GDRSIM_RM_PROTECTED", "1", 1);
	IS(0x56u, map(&u, (struct rm_map){ .object = dup, .length = 4096, .fd = fd }, &address));
	/*
	 * Another GPU's device may be the parent: vidmemCheckCopyPermissions_IMPL() does not look.
	 */
	IS(0u, duplicate(&v, u.client, dup, &other_dup));
	close(fd);
	user_end(&v);
	user_end(&u);
	rm_assert_nothing_left();
}

/* Places in BAR1 of one memory: a range, it again, a larger one from there, the next range. */
static const struct {
	const char *set; /* GDRSIM_BAR1_... */
	bool again; /* the same range has the same place */
	int64_t next; /* of the second page from the first; 0: anywhere */
	uint64_t used;
} bar1s[] = {
	{ "", false, 0, 5 * PAGES },
	{ "REUSE", true, 0, 4 * PAGES },
	{ "STATIC", true, PAGES, 0 },
};

static void bar1(void)
{
	const struct {
		uint64_t offset, length;
	} maps[] = {
		{ PAGES, PAGES },
		{ PAGES, PAGES },
		{ PAGES, 2 * PAGES },
		{ 2 * PAGES, PAGES },
	};
	uint64_t at[COUNT(maps)];
	char name[32];
	rm_handle dup;
	struct user u;
	CUdeviceptr a;

	unsetenv("GDRSIM_BAR1_REUSE");
	unsetenv("GDRSIM_BAR1_STATIC");
	snprintf(name, sizeof(name), "GDRSIM_BAR1_%s", bar1s[unit_row].set);
	setenv(name, "1", 1);
	standin_start();
	user_start(&u, 0);
	dup = duplicate_of_new(&u, 4 * MIB, &a);
	for (size_t i = 0; i < COUNT(maps); i++)
		IS(0u, map(&u,
			   (struct rm_map){ .object = dup,
					    .offset = maps[i].offset,
					    .length = maps[i].length,
					    .fd = open_node(u.minor) },
			   &at[i]));
	ck_assert_int_eq(at[0] == at[1], bar1s[unit_row].again);
	ck_assert_int_eq(at[0] == at[2], bar1s[unit_row].next != 0);
	if (bar1s[unit_row].next)
		ck_assert_int_eq((int64_t)(at[3] - at[0]), bar1s[unit_row].next);
	ck_assert_uint_eq(rm_sim.bar1_used(0), bar1s[unit_row].used);
	IS(0u, unmap(&u, dup, at[0]));
	ck_assert_uint_eq(rm_sim.bar1_used(0), bar1s[unit_row].used ? 4 * PAGES : 0);
	IS(0u, unmap(&u, dup, at[1]));
	IS(0u, unmap(&u, dup, at[2]));
	IS(0u, unmap(&u, dup, at[3]));
	ck_assert_uint_eq(rm_sim.bar1_used(0), 0);
	user_end(&u);
}

static void mmaps(void)
{
	struct user u;
	uint64_t address;
	CUdeviceptr a;
	rm_handle dup;
	char *p;
	int fd;

#define MMAP(pages, offset) mmap(NULL, (pages)*4096, PROT_READ, MAP_SHARED, fd, offset)
	standin_start();
	user_start(&u, 0);
	dup = duplicate_of_new(&u, 4 * MIB, &a);
	fd = open_node(u.minor);
	/* Not page-aligned: whole pages around it. */
	IS(0u, map(&u, (struct rm_map){ .object = dup, .offset = 0x2010, .length = 4096, .fd = fd },
		   &address));
	p = MMAP(2, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(a + 0x2010, "x", 1), 0);
	ck_assert_int_eq(p[0x10], 'x');
	/* Ended while mapped, it shows memory of others; afterwards it cannot be mapped. */
	IS(0u, unmap(&u, dup, address));
	IS(0x57u, unmap(&u, dup, address));
	ck_assert_uint_eq(rm_sim.stale(), 1);
	ck_assert_int_ne(p[0x10], 'x');
	SYSCALL_FAILS(ENXIO, MMAP(2, 0));
	ck_assert_uint_eq(rm_sim.stale(), 2);
	munmap(p, 2 * 4096);
	close(fd);
	user_end(&u);
	rm_assert_nothing_left();
}

/*
 * A map keeps its file, and a registered file its control file, until all its pages are unmapped.
 */
static void registered(void)
{
	struct gdrsim_rm_counts c;
	uint64_t address;
	struct user u;
	CUdeviceptr a;
	rm_handle dup;
	char *p;
	int fd;

	standin_start();
	user_start(&u, 0);
	dup = duplicate_of_new(&u, 4 * MIB, &a);
	fd = open_node(u.minor);
	ck_assert_int_eq(ioctl(fd, RM_IOC_REGISTER_FD, &u.ctl), 0);
	IS(0u, map(&u, (struct rm_map){ .object = dup, .length = PAGES, .fd = fd }, &address));
	p = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	close(fd);
	user_end(&u);
	munmap(p + 4096, PAGES - 2 * 4096);
	munmap(p, 4096);
	rm_sim.counts(&c);
	ck_assert(c.clients == 1 && c.maps == 1 && c.vmas == 1);
	munmap(p + PAGES - 4096, 4096);
	rm_assert_nothing_left();
	ck_assert_uint_eq(rm_sim.stale(), 0);
}

static uint32_t export_direct(int node, struct rm_export_570 *e)
{
	ck_assert_int_eq(ioctl(node, RM_IOC(RM_EXPORT_NUMBER, sizeof(*e)), e), 0);
	return e->status;
}

/* The export call itself, of two objects of this process's own. */
static void exports(void)
{
	struct user u, v;
	CUdeviceptr a;

	standin_start();
	user_start(&u, 0);
	user_start(&v, 1);

	const rm_handle dup = duplicate_of_new(&u, 8 * MIB, &a);
	const struct rm_export_570 good = {
		.fd = -1,
		.client = u.client,
		.total = 2,
		.count = 2,
		.size = 2 * PAGES,
		.objects = { dup, dup },
		.sizes = { PAGES, PAGES },
	};
	struct rm_export_570 e;

	e = good;
	IS(0x36u, export_direct(v.node, &e)); /* another GPU's memory */
	/* In two steps, of which the second may come once. */
	e.count = 1;
	e.index = 1;
	IS(0u, export_direct(u.node, &e));
	IS(0x17u, export_direct(u.node, &e));
	e.index = 0;
	IS(0u, export_direct(u.node, &e));
	SYSCALL_FAILS(ENOTTY, ioctl(e.fd, RM_IOC(RM_EXPORT_NUMBER, sizeof(e)), &e));
	/* The dma-buf has the memory, not the duplicate. */
	IS(0u, end_object(u.ctl, u.client, dup));
	ck_assert_int_eq(cuda.cuMemFree_v2(a), 0);
	ck_assert_uint_eq(standin_device_bytes(0), 8 * MIB);
	close(e.fd);
	ck_assert_uint_eq(standin_device_bytes(0), 0);
}

/* Memory of cuMemExportToShareableHandle() goes below another GPU's device too (two H200). */
static void imports(void)
{
	struct rm_export_info info = { 0 };
	struct rm_import_fd im;
	struct standin_vmm v;
	struct user u;
	int fd = -1;

	standin_start();
	user_start(&u, 0);
	standin_vmm_alloc(&v, 1, 1, 2 * MIB, true);
	ck_assert_int_eq(cuda.cuMemExportToShareableHandle(
				 &fd, v.handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 0);
	im = (struct rm_import_fd){ fd, RM_EXPORT_TYPE_RM, 0, u.device, 0 };
	IS(0u, control(u.ctl, u.client, u.client, RM_CONTROL_IMPORT_FD, &im,
		       sizeof(im))); /* of GPU 1, below GPU 0's device: RM does not look... */
	info.fd = fd;
	IS(0u, control(u.ctl, u.client, u.client, RM_CONTROL_EXPORT_INFO, &info, sizeof(info)));
	ck_assert_uint_ne(info.device_instance, u.instance); /* ...and says so if it is asked */
	close(fd);
	user_end(&u);
	standin_vmm_free(&v);
	rm_assert_nothing_left();
	ck_assert_uint_eq(standin_device_bytes(1), 0);
}

/* ---- another process ------------------------------------------------------------------------- */

static struct user parents;
static rm_handle parents_dup;

/* A child has the parent's descriptors and clients: it can free, but neither map nor duplicate. */
static int child(void *arg)
{
	struct rm_dup d = { 0, 0, 0, parents.client, parents_dup, 0, 0 };
	struct rm_map m = { parents.client, parents.device, parents_dup, .length = 4096 };
	struct rm_free f = { parents.client, 0, parents_dup, ~0u };
	struct user u;

	(void)arg;
	m.fd = open_node(parents.minor);
	if (ioctl(parents.ctl, RM_IOC_MAP, &m) || m.status != RM_INVALID_CLIENT)
		return 1;
	user_start(&u, 0);
	d.client = u.client;
	d.parent = u.device;
	if (ioctl(u.ctl, RM_IOC_DUP, &d) || d.status != RM_INSUFFICIENT_PERMISSIONS)
		return 2;
	return ioctl(parents.ctl, RM_IOC_FREE, &f) || f.status ? 3 : 0;
}

static void another_process(void)
{
	struct gdrsim_rm_counts c;
	CUdeviceptr a;

	standin_start();
	user_start(&parents, 0);
	parents_dup = duplicate_of_new(&parents, 4 * MIB, &a);
	ck_assert_int_eq(unit_in_child(child, NULL), 0);
	rm_sim.counts(&c);
	ck_assert(c.memories == 0 && c.clients == 1);
	user_end(&parents);
	rm_assert_nothing_left();
}

static const struct unit_test tests[] = {
	{ "parts of a pool", pool_parts, "" },
	{ "objects behind memory", objects, "" },
	{ "many objects", many_objects, "GDRSIM_RM_OBJECT_MIB=2" },
	{ "layouts of the export", layouts, "" },
	{ "nodes denied to the program", libcudas_nodes, "GDRSIM_RM=denied ERRNO=13 CALLS=1" },
	{ "no nodes", libcudas_nodes, "GDRSIM_RM=absent ERRNO=2 CALLS=0" },
	{ "orders of two GPUs", orders, "GDRSIM_DEVICES=2" },
	{ "orders of three GPUs", orders, "GDRSIM_DEVICES=3" },
	{ "devices", devices, "GDRSIM_DEVICES=2" },
	{ "duplicates", duplicates, "" },
	{ "maps", maps, "GDRSIM_DEVICES=2" },
	{ "BAR1", bar1, "", .rows = COUNT(bar1s) },
	{ "mmap of a map", mmaps, "" },
	{ "registered files", registered, "" },
	{ "exports", exports, "GDRSIM_DEVICES=2" },
	{ "imports", imports, "GDRSIM_DEVICES=2" },
	{ "another process", another_process, "" },
};

UNIT_MAIN("sim rm", tests, rm_start(argv))
