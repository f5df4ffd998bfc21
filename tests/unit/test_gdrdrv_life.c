// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend over the stand-in of the node: memory freed under a pin, a child, pins that fall
 * through to another backend.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/again.h"
#include "node_sim.h"

static void test_free_persistent(void)
{
	uint64_t word = 0x1122334455667788, out;
	gdr_mh_t h;
	int flag;
	void *map;

	node_open("2.6", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	OK(gdr_map(g, h, &map, MIB));
	OK(gdr_copy_to_mapping(h, map, &word, sizeof(word)));
	CU(cuda.cuMemFree_v2(base));
	OK(gdr_copy_from_mapping(h, &out, map, sizeof(out)));
	ck_assert_uint_eq(out, word);
	OK(gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 0);
	HANDLE_HAS(g, h, PERSISTENT, 1);
	OK(gdr_unpin_buffer(g, h));
}

static void test_free_callback(void)
{
	gdr_mh_t h, unmapped;
	int flag;
	void *map;

	node_open("2.6", "0");
	OK(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &h));
	OK(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &unmapped));
	OK(gdr_map(g, h, &map, 4 * MIB));
	HANDLE_HAS(g, h, PERSISTENT, 0);
	OK(gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 0);
	ck_assert_int_eq(unit_touch(map, false), 0);
	CU(cuda.cuMemFree_v2(base));
	OK(gdr_get_callback_flag(g, h, &flag));
	ck_assert_int_eq(flag, 1);
	ck_assert_int_eq(unit_touch(map, false), SIGBUS);
	ck_assert_int_eq(unit_touch((char *)map + 4 * MIB - 1, false), SIGBUS);
	OK(gdr_unmap(g, h, map, 4 * MIB));
	FAILS(EINVAL, gdr_map(g, h, &map, MIB));
	FAILS_WITH(EINVAL, "freed", gdr_map(g, unmapped, &map, MIB));
	OK(gdr_unpin_buffer(g, h));
}

/* For a child: if cond is false, it exits with a status that names the line. */
#define child_check(cond)                          \
	do {                                       \
		if (!(cond))                       \
			_exit(__LINE__ % 250 + 1); \
	} while (0)

/* Descriptors of the file that fd is one of. */
static int descriptors_like(int fd)
{
	struct stat st, other;
	int count = 0;

	if (fstat(fd, &st))
		return -1;
	for (int i = 0; i < 1024; i++)
		count += !fstat(i, &other) && other.st_ino == st.st_ino &&
			 (fcntl(i, F_GETFL) & O_ACCMODE) == (fcntl(fd, F_GETFL) & O_ACCMODE);
	return count;
}

static void test_fork(void)
{
	int fd, status, word = 1;
	gdr_mh_t h, other;
	void *map;
	pid_t pid;

	node_open("2.6", unit_row ? "1" : "0");
	if (test_emulator_lacks("test_fork", "MADV_DONTFORK"))
		return;
	node_env("GDRSIM_NODE_POLL", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	OK(gdr_map(g, h, &map, MIB));
	OK(barcopy_get_event_fd(g, &fd));
	ck_assert_int_eq(descriptors_like(fd), 2);
	pid = fork();
	if (!pid) {
		child_check(barcopy_get_event_fd(g, &status) == EACCES);
		child_check(barcopy_next_revoked(g, &other) == EACCES);
		child_check(gdr_unpin_buffer(g, h) == EACCES);
		child_check(gdr_close(g) == EACCES);
		child_check(unit_touch(map, false) == SIGSEGV);
		/* The caller's own is inherited, the context's is not: it would hold the pins. */
		child_check(descriptors_like(fd) == 1);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "the child ended with 0x%x", (unsigned int)status);
	OK(gdr_copy_to_mapping(h, map, &word, 4));
	OK(gdr_unpin_buffer(g, h));
}

/* One context: the node serves the memory that it can, another backend the rest. */
static void test_fall_through(void)
{
	uint64_t plain, capable, incapable;
	gdr_mh_t h[3];

	node_env("GDRSIM_DRIVER_VERSION", "13030");
	node_open("2.6", "1");
	plain = standin_alloc(MIB);
	capable = standin_chunks(0, 0, 2, 2 * MIB, STANDIN_EXPORTABLE | STANDIN_RDMA);
	incapable = standin_chunks(0, 0, 2, 2 * MIB, STANDIN_EXPORTABLE);
	OK(gdr_pin_buffer(g, plain, MIB, 0, 0, &h[0]));
	OK(gdr_pin_buffer(g, capable, 4 * MIB, 0, 0, &h[1]));
	OK(gdr_pin_buffer(g, incapable, 2 * MIB, 0, 0, &h[2]));
	for (int i = 0; i < 3; i++) {
		char in[64], out[64];
		void *map;

		HANDLE_HAS(g, h[i], BACKEND,
			   i < 2 ? BARCOPY_BACKEND_GDRDRV : BARCOPY_BACKEND_DMABUF);
		OK(gdr_map(g, h[i], &map, MIB));
		memset(in, i + 1, sizeof(in));
		OK(gdr_copy_to_mapping(h[i], map, in, sizeof(in)));
		CU(cuda.cuMemcpyDtoH_v2(out, i ? (i == 1 ? capable : incapable) : plain, 64));
		ck_assert_mem_eq(in, out, 64);
	}
}

static const struct unit_test tests[] = {
	{ "free persistent", test_free_persistent },
	{ "free callback", test_free_callback },
	{ "fork", test_fork, .rows = 2 },
	{ "fall through", test_fall_through },
};

UNIT_MAIN("gdrdrv: life times", tests, node_start(argv))
