/* SPDX-License-Identifier: MIT */
/* Self-test of nvidia.ko's stand-in and of libcuda's: the export call, and objects by descriptor. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "test_sim_rm.h"

/* Two small allocations share an object; a large one has its own; a pool has one per 32 MiB. */
START_TEST(objects_behind)
{
	CUdeviceptr a, b, big, pool;
	handle shared;
	int fd;

	standin_start();
	a = standin_alloc(4096);
	b = standin_alloc(100000);
	big = standin_alloc(8 * MIB);
	fd = rm_export(a & ~0xffffull, 65536);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd, rm_seen.call[0].fd);
	shared = rm_seen.call[0].handles[0];
	close(fd);
	fd = rm_export(b & ~0xffffull, 2 * 65536);
	ck_assert_uint_eq(rm_seen.call[0].handles[0], shared);
	ck_assert_uint_eq(rm_seen.call[0].total, 1);
	ck_assert_uint_eq(rm_seen.call[0].sizes[0], 2 * 65536);
	ck_assert_uint_eq(rm_seen.call[0].status, 0);
	close(fd);
	fd = rm_export(big + 65536, 65536);
	ck_assert_uint_ne(rm_seen.call[0].handles[0], shared);
	ck_assert_uint_eq(rm_seen.call[0].offsets[0], 65536);
	close(fd);
	ck_assert_int_eq(cuda.cuMemAllocAsync(&pool, 40 * MIB, NULL), 0);
	fd = rm_export(pool + 30 * MIB, 10 * MIB);
	ck_assert_uint_eq(rm_seen.call[0].num, 2);
	ck_assert_uint_eq(rm_seen.call[0].offsets[0], 30 * MIB);
	ck_assert_uint_eq(rm_seen.call[0].sizes[0], 2 * MIB);
	ck_assert_uint_eq(rm_seen.call[0].offsets[1], 0);
	ck_assert_uint_eq(rm_seen.call[0].sizes[1], 8 * MIB);
	ck_assert_uint_eq(rm_seen.call[0].size, 10 * MIB);
	close(fd);
	rm_assert_nothing_left();
}
END_TEST

/* What libcuda gets wrong in memory of a pool, and what it gets right. */
START_TEST(parts_of_a_pool)
{
	const struct export_580 *seen = &rm_seen.call[0];
	CUdeviceptr pool;

	standin_start();
	ck_assert_int_eq(cuda.cuMemAllocAsync(&pool, 80 * MIB, NULL), 0);
	ck_assert_int_eq(rm_export(pool + 0x10000, 0x10000), -CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(seen->status, 0x1f);
	ck_assert_uint_eq(seen->offsets[0], 0x10000);
	ck_assert_uint_eq(seen->sizes[0], 0);
	ck_assert_int_eq(rm_export(pool + 0x900000, 0x10000), -CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(seen->sizes[0], 0xffffffffff710000);
	ck_assert_int_eq(rm_export(pool + 0x10000, 0x30000), -CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(seen->sizes[0], 0x20000);
	ck_assert_uint_eq(seen->size, 0x30000);
	ck_assert_int_eq(rm_export(pool + 0x1ff0000, 0x20000), -CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(seen->num, 2);
	ck_assert_uint_eq(seen->status, 0x1f);
	ck_assert_uint_eq(seen->offsets[0], 0x1ff0000);
	ck_assert_uint_eq(seen->sizes[0], 0xfffffffffe030000);
	ck_assert_uint_eq(seen->offsets[1], 0xfffffffffe020000);
	ck_assert_uint_eq(seen->sizes[1], 0x3fd0000);

	/* To the end of an object, or from the start of one. */
	close(rm_export(pool + 0x1ff0000, 0x10000));
	ck_assert_uint_eq(seen->status, 0);
	ck_assert_uint_eq(seen->offsets[0], 0x1ff0000);
	ck_assert_uint_eq(seen->sizes[0], 0x10000);
	close(rm_export(pool, 0x2010000));
	ck_assert_uint_eq(seen->status, 0);
	ck_assert_uint_eq(seen->num, 2);
	ck_assert_uint_eq(seen->sizes[0], 0x2000000);
	ck_assert_uint_eq(seen->offsets[1], 0);
	ck_assert_uint_eq(seen->sizes[1], 0x10000);
	rm_assert_nothing_left();
}
END_TEST

/* More than one call holds: they continue at an index. */
START_TEST(many_objects)
{
	CUdeviceptr a;
	int fd;

	setenv("GDRSIM_RM_OBJECT_MIB", "2", 1);
	standin_start();
	a = standin_alloc(600 * MIB);
	fd = rm_export(a, 600 * MIB);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(rm_seen.n, 3);
	for (unsigned int i = 0; i < 3; i++) {
		ck_assert_uint_eq(rm_seen.call[i].total, 300);
		ck_assert_uint_eq(rm_seen.call[i].index, 128 * i);
		ck_assert_uint_eq(rm_seen.call[i].num, i < 2 ? 128 : 44);
		ck_assert_uint_eq(rm_seen.call[i].fd, (unsigned int)fd);
	}
	close(fd);
	setenv("GDRSIM_RM_EXPORT_MAX", "200", 1);
	ck_assert_int_lt(rm_export(a, 600 * MIB), 0); /* more than the driver takes */
	setenv("GDRSIM_RM_EXPORT_MAX", "50", 1);
	fd = rm_export(a, 200 * MIB);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(rm_seen.n, 2);
	close(fd);
	rm_assert_nothing_left();
}
END_TEST

/* Chunks of virtual memory are objects of their own; managed memory is refused. */
START_TEST(kinds)
{
	struct standin_vmm v;
	CUdeviceptr m;
	int fd;

	standin_start();
	standin_vmm_alloc(&v, 0, 3, 2 * MIB, false);
	fd = rm_export(v.ptr + MIB, 4 * MIB);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(rm_seen.call[0].num, 3);
	ck_assert_uint_eq(rm_seen.call[0].offsets[0], MIB);
	ck_assert_uint_eq(rm_seen.call[0].sizes[1], 2 * MIB);
	ck_assert_uint_eq(rm_seen.call[0].sizes[2], MIB);
	close(fd);
	standin_vmm_free(&v);
	ck_assert_int_eq(cuda.cuMemAllocManaged(&m, MIB, 1), 0);
	ck_assert_int_lt(rm_export(m, 65536), 0);
	ck_assert_uint_eq(rm_seen.n, 0);
	rm_assert_nothing_left();
	ck_assert_uint_eq(standin_device_bytes(0), 0);
}
END_TEST

/* The two layouts, and one that nobody knows. */
START_TEST(layouts)
{
	const struct export_515 *old = (const void *)&rm_seen.call[0];
	CUdeviceptr a;
	handle known;
	int fd;

	ck_assert_uint_eq(sizeof(struct export_580), 2608);
	ck_assert_uint_eq(sizeof(struct export_515), 2600);
	standin_start();
	a = standin_alloc(8 * MIB);
	fd = rm_export(a + 65536, 65536);
	known = rm_seen.call[0].handles[0];
	close(fd);
	setenv("GDRSIM_RM_DRIVER", "550.54.14", 1);
	fd = rm_export(a + 65536, 65536);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(old->handles[0], known);
	ck_assert_uint_eq(old->offsets[0], 65536);
	ck_assert_uint_eq(old->sizes[0], 65536);
	close(fd);
	setenv("GDRSIM_RM_EXPORT_SIZE", "2616", 1);
	fd = rm_export(a + 65536, 65536);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_ne(old->handles[0], known);
	close(fd);
	unsetenv("GDRSIM_RM_EXPORT_SIZE");
	setenv("GDRSIM_RM_DRIVER", "510.47.03", 1);
	ck_assert_int_eq(rm_export(a, 65536), -CUDA_ERROR_OPERATING_SYSTEM);
	rm_assert_nothing_left();
}
END_TEST

/* What the program may not open, libcuda has; what is absent, it has not either. */
START_TEST(denied_to_program)
{
	CUdeviceptr a;
	int fd;

	setenv("GDRSIM_RM", "denied", 1);
	standin_start();
	a = standin_alloc(8 * MIB);
	ck_errno(open("/dev/nvidiactl", O_RDWR), EACCES);
	fd = rm_export(a, 65536);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(rm_seen.n, 1);
	close(fd);
}
END_TEST

START_TEST(without_nodes)
{
	CUdeviceptr a;
	int fd;

	setenv("GDRSIM_RM", "absent", 1);
	standin_start();
	a = standin_alloc(8 * MIB);
	fd = rm_export(a, 65536);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(rm_seen.n, 0);
	close(fd);
}
END_TEST

static uint32_t export_direct(int node, struct export_580 *e)
{
	e->status = 0xdead;
	ck_assert_int_eq(ioctl(node, ESC(217, struct export_580), e), 0);
	return e->status;
}

/* The call itself, on objects of this process's own. */
START_TEST(export_arguments)
{
	struct export_580 e;
	struct rm_user u;
	CUdeviceptr a;
	handle dup;
	int fd, other;

	setenv("GDRSIM_DEVICES", "2", 1);
	standin_start();
	a = standin_alloc(8 * MIB);
	rm_user_start(&u, 0);
	other = rm_node(1);
	fd = rm_export(a, 65536);
	ck_assert_uint_eq(
		rm_duplicate(&u, rm_seen.call[0].client, rm_seen.call[0].handles[0], &dup), 0);
	close(fd);
	memset(&e, 0, sizeof(e));
	e.fd = -1;
	e.client = u.client;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.size = 2 * 65536;
	e.total = e.num = 2;
	for (int i = 0; i < 2; i++) {
		e.handles[i] = dup;
		e.sizes[i] = 65536;
	}
	e.mapping = 2;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.mapping = 1;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x56);
	e.mapping = 0;
	e.fd = -2;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.fd = -1;
	e.sizes[1] = 65536 + 1;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.sizes[1] = 4096; /* less than all of it */
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.sizes[1] = 65536;
	e.offsets[1] = 8 * MIB;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.offsets[1] = 100;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.offsets[1] = 0;
	e.handles[1] = 0x999;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x57);
	e.handles[1] = u.device;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x31);
	e.handles[1] = dup;
	e.client = 0xc1dfffff;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x33);
	e.client = u.client;
	ck_assert_uint_eq(export_direct(other, &e), 0x36); /* another GPU's memory */
	close(other);
	e.index = 1;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	/* In two steps; one that fails leaves nothing behind. */
	e.num = 1;
	e.sizes[0] = 3 * 65536;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x1f);
	e.sizes[0] = 65536;
	ck_assert_uint_eq(export_direct(u.node, &e), 0);
	ck_assert_int_ge(e.fd, 0);
	ck_assert_uint_eq(export_direct(u.node, &e), 0x17);
	e.index = 0;
	e.num = 2;
	ck_assert_uint_eq(export_direct(u.node, &e), 0x17);
	e.num = 1;
	ck_assert_uint_eq(export_direct(u.node, &e), 0);
	ck_errno(ioctl(e.fd, ESC(217, struct export_580), &e), ENOTTY);
	/* The dma-buf has the memory, not the duplicate. */
	ck_assert_uint_eq(rm_end(u.ctl, u.client, dup), 0);
	ck_assert_int_eq(cuda.cuMemFree_v2(a), 0);
	ck_assert_uint_eq(standin_device_bytes(0), 8 * MIB);
	close(e.fd);
	ck_assert_uint_eq(standin_device_bytes(0), 0);
	rm_user_end(&u);
}
END_TEST

/* A process's clients may take from each other; GDRSIM_RM_SHARE=0: not. */
START_TEST(dup_arguments)
{
	struct os55 d = { 0 };
	struct rm_user u, v;
	CUdeviceptr a;
	handle dup, dup2, sub = 0;
	int fd;

	standin_start();
	a = standin_alloc(8 * MIB);
	rm_user_start(&u, 0);
	rm_user_start(&v, 0);
	fd = rm_export(a, 65536);
	close(fd);
	ck_assert_uint_eq(rm_duplicate(&u, 0xc1dfffff, 1, &dup), 0x33);
	ck_assert_uint_eq(rm_duplicate(&u, rm_seen.call[0].client, 0x999, &dup), 0x57);
	ck_assert_uint_eq(rm_duplicate(&u, v.client, v.device, &dup), 0x1f);
	ck_assert_uint_eq(rm_duplicate(&u, v.client, v.client, &dup), 0x1f);
	setenv("GDRSIM_RM_SHARE", "0", 1);
	ck_assert_uint_eq(
		rm_duplicate(&u, rm_seen.call[0].client, rm_seen.call[0].handles[0], &dup), 0x1b);
	unsetenv("GDRSIM_RM_SHARE");
	ck_assert_uint_eq(
		rm_duplicate(&u, rm_seen.call[0].client, rm_seen.call[0].handles[0], &dup), 0);
	ck_assert_uint_eq(rm_duplicate(&v, u.client, dup, &dup2), 0);
	d = (struct os55){ u.client, u.client, 0, v.client, dup2, 0, 0 };
	ck_assert_int_eq(ioctl(u.ctl, ESC_DUP, &d), 0);
	ck_assert_uint_eq(d.status, 0x36);
	d = (struct os55){ u.client, u.device, dup, v.client, dup2, 0, 0 };
	ck_assert_int_eq(ioctl(u.ctl, ESC_DUP, &d), 0);
	ck_assert_uint_eq(d.status, 0x19);
	/* Below another object than the source is: below a subdevice, or itself. */
	ck_assert_uint_eq(rm_new(u.ctl, u.client, u.device, &sub, 0x2080, NULL, 0), 0);
	d = (struct os55){ u.client, sub, 0, v.client, dup2, 0, 0 };
	ck_assert_int_eq(ioctl(u.ctl, ESC_DUP, &d), 0);
	ck_assert_uint_eq(d.status, 0x36);
	d = (struct os55){ u.client, dup, 0, v.client, dup2, 0, 0 };
	ck_assert_int_eq(ioctl(u.ctl, ESC_DUP, &d), 0);
	ck_assert_uint_eq(d.status, 0x36);
	/* Another control file's client. */
	d = (struct os55){ u.client, u.device, 0, v.client, dup2, 0, 0 };
	ck_assert_int_eq(ioctl(v.ctl, ESC_DUP, &d), 0);
	ck_assert_uint_eq(d.status, 0x23);
	/* A device takes with it what is below. */
	ck_assert_uint_eq(rm_end(v.ctl, v.client, v.device), 0);
	ck_assert_uint_eq(rm_duplicate(&u, v.client, dup2, &dup), 0x57);
	close(v.node);
	close(v.ctl);
	rm_user_end(&u);
}
END_TEST

struct import {
	int fd;
	uint32_t type;
	handle device, parent, object;
};

static int fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Descriptors of cuMemExportToShareableHandle, and of an object of this process's own. */
START_TEST(imports)
{
	int (*to_fd)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
		     unsigned long long);
	struct {
		uint32_t type;
		handle device, parent, object;
		int fd;
		uint32_t flags;
	} ex;
	struct import im;
	struct standin_vmm v;
	struct rm_user u;
	uint64_t linear;
	int shared, fd, file, before;
	void *symbol;
	char *p;

	standin_start();
	symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemExportToShareableHandle");
	memcpy(&to_fd, &symbol, sizeof(to_fd));
	before = fds();
	standin_vmm_alloc(&v, 0, 1, 2 * MIB, true);
	ck_assert_int_eq(to_fd(&shared, v.handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 0);
	rm_user_start(&u, 0);
	im = (struct import){ shared, 1, 0, u.device, 0 };
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)), 0);
	close(shared);
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(v.ptr, "wxyz", 4), 0);
	fd = rm_node(u.minor);
	ck_assert_uint_eq(rm_map(&u, im.object, 0, 2 * MIB, 0, fd, &linear), 0);
	p = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(memcmp(p, "wxyz", 4), 0);
	munmap(p, 2 * MIB);
	close(fd);
	file = open("/dev/nvidiactl", O_RDWR);
	ex = (__typeof__(ex)){ 1, 0, 0, im.object, file, 0 };
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d05, &ex, sizeof(ex)), 0);
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d05, &ex, sizeof(ex)), 0x63);
	ck_assert_uint_eq(rm_end(u.ctl, u.client, im.object), 0);
	im = (struct import){ file, 1, 0, u.device, 0 };
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)), 0);
	im.fd = u.ctl;
	im.object = 0;
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)), 0x3b);
	im.fd = u.node;
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)), 0x3b);
	im.fd = -1;
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)), 0x3b);
	im.fd = file;
	im.type = 0;
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)), 0x3b);
	im.type = 1;
	im.parent = u.client;
	ck_assert_uint_eq(rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)), 0x36);
	close(file);
	standin_vmm_free(&v);
	rm_user_end(&u);
	ck_assert_uint_eq(standin_device_bytes(0), 0);
	ck_assert_int_eq(fds(), before);
}
END_TEST

void rm_tests_export(TCase *tc)
{
	tcase_add_test(tc, objects_behind);
	tcase_add_test(tc, parts_of_a_pool);
	tcase_add_test(tc, many_objects);
	tcase_add_test(tc, kinds);
	tcase_add_test(tc, layouts);
	tcase_add_test(tc, denied_to_program);
	tcase_add_test(tc, without_nodes);
	tcase_add_test(tc, export_arguments);
	tcase_add_test(tc, dup_arguments);
	tcase_add_test(tc, imports);
}
