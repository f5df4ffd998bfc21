/* SPDX-License-Identifier: MIT */
/* Self-test of nvidia.ko's stand-in: duplicates and maps of libcuda's memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "test_sim_rm.h"

/* A duplicate of the object behind [at, at + 64 KiB), and where in it that is. */
static handle duplicate_of(const struct rm_user *u, CUdeviceptr at, uint64_t *offset)
{
	int fd = rm_export(at & ~0xffffull, 65536);
	handle dup;

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(rm_seen.n, 1);
	ck_assert_uint_eq(rm_seen.call[0].num, 1);
	ck_assert_uint_eq(rm_duplicate(u, rm_seen.call[0].client, rm_seen.call[0].handles[0], &dup),
			  0);
	*offset = rm_seen.call[0].offsets[0];
	close(fd);
	return dup;
}

/* A program that has a duplicate of new memory of libcuda's. */
static handle start(struct rm_user *u, size_t size, CUdeviceptr *a, uint64_t *offset)
{
	standin_start();
	*a = standin_alloc(size);
	rm_user_start(u, 0);
	return duplicate_of(u, *a, offset);
}

static uint32_t word_of(CUdeviceptr at)
{
	uint32_t word;

	ck_assert_int_eq(cuda.cuMemcpyDtoH_v2(&word, at, sizeof(word)), 0);
	return word;
}

/* The whole way: what the CPU writes the GPU sees, and the reverse. */
START_TEST(way)
{
	uint32_t in = 0x11223344, *p;
	uint64_t offset, linear;
	struct rm_user u;
	CUdeviceptr a;
	handle dup;
	int fd;

	dup = start(&u, 100000, &a, &offset);
	fd = rm_node(u.minor);
	ck_assert_uint_eq(rm_map(&u, dup, offset, 65536, 0, fd, &linear), 0);
	ck_assert_uint_eq(rm_sim.bar1_used(0), 65536);
	p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	close(fd);
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(a, &in, sizeof(in)), 0);
	ck_assert_uint_eq(p[(a & 0xffff) / 4], in);
	p[1 + (a & 0xffff) / 4] = 0x55667788;
	ck_assert_uint_eq(word_of(a + 4), 0x55667788);
	munmap(p, 65536);
	ck_assert_uint_eq(rm_unmap(&u, dup, linear), 0);
	ck_assert_uint_eq(rm_unmap(&u, dup, linear), 0x57);
	ck_assert_uint_eq(rm_end(u.ctl, u.client, dup), 0);
	ck_assert_uint_eq(rm_sim.bar1_used(0), 0);
	ck_assert_uint_eq(rm_sim.stale(), 0);
	rm_user_end(&u);
	ck_assert_int_eq(cuda.cuMemFree_v2(a), 0);
	ck_assert_uint_eq(standin_device_bytes(0), 0);
}
END_TEST

/* Memory outlives its free while a duplicate or a map refers to it. */
START_TEST(persistent)
{
	uint64_t offset, linear;
	struct rm_user u;
	CUdeviceptr a, b;
	uint32_t *p;
	handle dup;
	int fd;

	dup = start(&u, 8 * MIB, &a, &offset);
	fd = rm_node(u.minor);
	ck_assert_uint_eq(rm_map(&u, dup, offset, 65536, 0, fd, &linear), 0);
	p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	p[0] = 0xaaaa;
	ck_assert_int_eq(cuda.cuMemFree_v2(a), 0);
	ck_assert_uint_eq(standin_device_bytes(0), 8 * MIB);
	b = standin_alloc(8 * MIB);
	ck_assert_uint_eq(b, a);
	ck_assert_uint_ne(word_of(b), 0xaaaa);
	p[0] = 0xbbbb;
	ck_assert_uint_ne(word_of(b), 0xbbbb);
	ck_assert_int_eq(cuda.cuMemFree_v2(b), 0);
	munmap(p, 65536);
	close(fd);
	ck_assert_uint_eq(rm_unmap(&u, dup, linear), 0);
	ck_assert_uint_eq(standin_device_bytes(0), 8 * MIB);
	rm_end(u.ctl, u.client, dup);
	ck_assert_uint_eq(standin_device_bytes(0), 0);
	rm_user_end(&u);
}
END_TEST

/* What is wrong with a map's arguments, in the order of the driver's checks. */
START_TEST(map_arguments)
{
	struct os33_fd m;
	uint64_t offset, linear;
	struct rm_user u, v;
	CUdeviceptr a;
	handle dup;
	int fd, other;

	setenv("GDRSIM_DEVICES", "2", 1);
	standin_start();
	a = standin_alloc(4 * MIB);
	rm_user_start(&u, 0);
	rm_user_start(&v, 1);
	dup = duplicate_of(&u, a, &offset);
	fd = rm_node(u.minor);
	other = rm_node(v.minor);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 1 << 4, fd, &linear), 0x29);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 1 << 14, fd, &linear), 0x29);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 1 << 22, fd, &linear), 0x29);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 3, fd, &linear), 0x29);
	ck_assert_uint_eq(rm_map(&u, dup, 4 * MIB, 4096, 0, fd, &linear), 0x20);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 0, 0, fd, &linear), 0x2e);
	ck_assert_uint_eq(rm_map(&u, dup, 4096, 4 * MIB, 0, fd, &linear), 0x2e);
	ck_assert_uint_eq(rm_map(&u, dup, 4096, UINT64_MAX, 0, fd, &linear), 0x2e);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 1 << 8, fd, &linear), 0x1b);
	ck_assert_uint_eq(rm_map(&u, 0x777, 0, 4096, 0, fd, &linear), 0x57);
	ck_assert_uint_eq(rm_map(&u, u.device, 0, 4096, 0, fd, &linear), 0x36);
	m = (struct os33_fd){ u.client, u.client, dup, 0, 4096, 0, 0, 0, fd };
	ck_assert_int_eq(ioctl(u.ctl, ESC_MAP, &m), 0);
	ck_assert_uint_eq(m.status, 0x36);
	/* A node of another GPU, a control file, nothing: refused, and undone. */
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 0, other, &linear), 0x1f);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 0, u.ctl, &linear), 0x1f);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 0, 999, &linear), 0x1f);
	ck_assert_uint_eq(rm_sim.bar1_used(0), 0);
	/* A file has room for one map, for ever. */
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 0, fd, &linear), 0);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 0, fd, &linear), 0x63);
	ck_assert_uint_eq(rm_sim.bar1_used(0), 65536);
	setenv("GDRSIM_RM_SELF_HOSTED", "1", 1);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 2 << 20, fd, &linear), 0x56);
	setenv("GDRSIM_RM_PROTECTED", "1", 1);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 4096, 0, fd, &linear), 0x56);
	/* Another GPU's device is taken for a parent. */
	ck_assert_uint_eq(rm_duplicate(&v, u.client, dup, &dup), 0);
	close(fd);
	close(other);
	close(v.node);
	close(v.ctl);
	rm_user_end(&u);
}
END_TEST

START_TEST(mmap_arguments)
{
	uint64_t offset, linear;
	struct rm_user u;
	CUdeviceptr a;
	handle dup;
	char *p, *place;
	int fd;

	dup = start(&u, 4 * MIB, &a, &offset);
	fd = rm_node(u.minor);
	ck_errno(mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0), EINVAL);
	ck_errno(mmap(NULL, 65536, PROT_READ, MAP_SHARED, u.ctl, 0), EINVAL);
	/* Not page-aligned: whole pages around it. */
	ck_assert_uint_eq(rm_map(&u, dup, 0x2010, 4096, 0, fd, &linear), 0);
	ck_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), ENXIO);
	ck_errno(mmap(NULL, 3 * 4096, PROT_READ, MAP_SHARED, fd, 0), ENXIO);
	ck_errno(mmap(NULL, 2 * 4096, PROT_READ, MAP_SHARED, fd, 4096), EINVAL);
	place = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p = mmap(place + 4096, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	ck_assert_ptr_eq(p, place + 4096);
	p[0x10] = 0x5a;
	ck_assert_uint_eq(word_of(a + 0x2010) & 0xff, 0x5a);
	/* Replaced by something else is unmapped; unmapping behind its back counts. */
	ck_assert_uint_eq(rm_unmap(&u, dup, linear), 0);
	ck_assert_uint_eq(rm_sim.stale(), 1);
	mmap(place, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	ck_errno(mmap(NULL, 2 * 4096, PROT_READ, MAP_SHARED, fd, 0), ENXIO);
	ck_assert_uint_eq(rm_sim.stale(), 2);
	munmap(place, 65536);
	close(fd);
	rm_user_end(&u);
}
END_TEST

/* Read-only: a store is not for the memory, whatever mmap was asked for. */
START_TEST(read_only)
{
	uint64_t offset, linear;
	struct rm_user u;
	CUdeviceptr a;
	handle dup;
	char *p;
	int fd;

	dup = start(&u, 4 * MIB, &a, &offset);
	fd = rm_node(u.minor);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 65536, 1, fd, &linear), 0);
	p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(a, "abcd", 4), 0);
	ck_assert_int_eq(memcmp(p, "abcd", 4), 0);
	ck_errno(mprotect(p, 65536, PROT_READ | PROT_WRITE), EACCES);
	munmap(p, 65536);
	close(fd);
	ck_assert_uint_eq(rm_unmap(&u, dup, linear), 0);
	rm_user_end(&u);
}
END_TEST

/* A map keeps its file, and a registered file its control file, until the range is gone. */
START_TEST(map_holds_file)
{
	struct gdrsim_rm_counts c;
	uint64_t offset, linear;
	struct rm_user u;
	CUdeviceptr a;
	handle dup;
	char *p;
	int fd;

	dup = start(&u, 4 * MIB, &a, &offset);
	fd = rm_node(u.minor);
	ck_assert_int_eq(ioctl(fd, ESC_REGISTER, &u.ctl), 0);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 65536, 0, fd, &linear), 0);
	p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	close(fd);
	close(u.ctl);
	close(u.node);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.clients, 1);
	ck_assert_uint_eq(c.maps, 1);
	ck_assert_uint_eq(c.vmas, 1);
	munmap(p + 4096, 65536 - 8192);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.vmas, 2);
	munmap(p, 4096);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.vmas, 1);
	ck_assert_uint_eq(c.clients, 1);
	munmap(p + 65536 - 4096, 4096);
	rm_assert_nothing_left();
}
END_TEST

/* Several maps of one object, parts of it, are told apart by their addresses. */
START_TEST(maps_of_one)
{
	uint64_t offset, linear[2];
	struct gdrsim_rm_counts c;
	struct rm_user u;
	CUdeviceptr a;
	handle dup;
	int fd[2];
	char *p;

	dup = start(&u, 4 * MIB, &a, &offset);
	for (unsigned int i = 0; i < 2; i++) {
		fd[i] = rm_node(u.minor);
		ck_assert_uint_eq(rm_map(&u, dup, 0, 65536 << i, 0, fd[i], &linear[i]), 0);
	}
	ck_assert_uint_ne(linear[0], linear[1]);
	ck_assert_uint_eq(rm_sim.bar1_used(0), 3 * 65536);
	/* One in the place of the other. */
	p = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd[0], 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	munmap(p, 65536);
	p = mmap(NULL, 2 * 65536, PROT_READ, MAP_SHARED, fd[1], 0);
	ck_assert_ptr_eq(mmap(p, 65536, PROT_READ, MAP_SHARED | MAP_FIXED, fd[0], 0), p);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.vmas, 2);
	ck_assert_ptr_eq(mmap(p, 2 * 65536, PROT_READ, MAP_SHARED | MAP_FIXED, fd[1], 0), p);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.vmas, 1);
	munmap(p, 2 * 65536);
	ck_assert_uint_eq(rm_unmap(&u, dup, linear[1]), 0);
	ck_assert_uint_eq(rm_sim.bar1_used(0), 65536);
	ck_assert_uint_eq(rm_unmap(&u, dup, linear[0] + 4096), 0x57);
	ck_assert_uint_eq(rm_unmap(&u, dup, linear[0]), 0);
	close(fd[0]);
	close(fd[1]);
	rm_user_end(&u);
}
END_TEST

START_TEST(bar1_full)
{
	uint64_t offset, linear;
	struct rm_user u;
	CUdeviceptr a;
	handle dup;
	int fd;

	setenv("GDRSIM_BAR1_MIB", "1", 1);
	dup = start(&u, 4 * MIB, &a, &offset);
	fd = rm_node(u.minor);
	ck_assert_uint_eq(rm_map(&u, dup, 0, 2 * MIB, 0, fd, &linear), 0x51);
	ck_assert_uint_eq(rm_map(&u, dup, 0, MIB, 0, fd, &linear), 0);
	close(fd);
	rm_user_end(&u);
}
END_TEST

void rm_tests_maps(TCase *tc)
{
	tcase_add_test(tc, way);
	tcase_add_test(tc, persistent);
	tcase_add_test(tc, map_arguments);
	tcase_add_test(tc, mmap_arguments);
	tcase_add_test(tc, read_only);
	tcase_add_test(tc, map_holds_file);
	tcase_add_test(tc, maps_of_one);
	tcase_add_test(tc, bar1_full);
}
