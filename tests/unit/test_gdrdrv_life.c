// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend over the stand-in of the node: memory freed under a pin, other processes, pins
 * that fall through to another backend, threads.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "abi/gdrdrv.h"
#include "common/again.h"
#include "common/pass_fd.h"
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

/* Another process that gets the node's descriptor can only close it, which changes nothing here. */
static void test_handed_over(void)
{
	int ends[2], status, word = 1;
	gdr_mh_t h;
	void *map;
	pid_t pid;

	node_env("GDRSIM_NODE_POLL", "0");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	pid = fork();
	if (!pid) {
		struct gdrdrv_pin_buffer p = { .addr = base, .size = MIB };
		struct gdrdrv_unpin_buffer u = { .handle = 1 };
		size_t ignored;
		int fd = take_fd(ends[1], &ignored);

		child_check(fd >= 0);
		child_check(ioctl(fd, GDRDRV_IOC_PIN_BUFFER, &p) == -1 && errno == EACCES);
		child_check(ioctl(fd, GDRDRV_IOC_UNPIN_BUFFER, &u) == -1 && errno == EACCES);
		child_check(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED &&
			    errno == EACCES);
		child_check(!close(fd));
		_exit(0);
	}
	node_open("2.6", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	OK(gdr_map(g, h, &map, MIB));
	/* No call gives out the library's descriptor: it is found by its name. */
	for (int fd = 0; fd < 64; fd++) {
		char path[64], name[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "gdrdrv-node"))
			ck_assert_int_eq(pass_fd(ends[0], fd, 0), 0);
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

/* Memory in several pieces behind one mapping: the second one is where it belongs. */
static void test_several_chunks(void)
{
	uint64_t at = standin_chunks(0, 0, 3, 2 * MIB, STANDIN_EXPORTABLE | STANDIN_RDMA);
	char in[8192], out[8192];
	gdr_mh_t h;
	void *map;

	node_open("2.6", "1");
	OK(gdr_pin_buffer(g, at, 6 * MIB, 0, 0, &h));
	OK(gdr_map(g, h, &map, 6 * MIB));
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 5);
	OK(gdr_copy_to_mapping(h, (char *)map + 2 * MIB - 4096, in, sizeof(in)));
	CU(cuda.cuMemcpyDtoH_v2(out, at + 2 * MIB - 4096, sizeof(out)));
	ck_assert_mem_eq(in, out, sizeof(in));
}

enum { THREADS = 8, ROUNDS = 50 };

static void *work(void *arg)
{
	uint64_t at = *(uint64_t *)arg;
	char in[256], out[256];
	gdr_mh_t h, told;
	void *map;
	int flag;

	for (int i = 0; i < ROUNDS; i++) {
		memset(in, i, sizeof(in));
		OK(gdr_pin_buffer(g, at, 65536, 0, 0, &h));
		OK(gdr_map(g, h, &map, 65536));
		OK(gdr_copy_to_mapping(h, map, in, sizeof(in)));
		OK(gdr_copy_from_mapping(h, out, map, sizeof(out)));
		ck_assert_mem_eq(in, out, sizeof(in));
		OK(gdr_get_callback_flag(g, h, &flag));
		ck_assert_int_eq(flag, 0);
		FAILS(ENOENT, barcopy_next_revoked(g, &told));
		OK(gdr_unpin_buffer(g, h));
	}
	return NULL;
}

static void test_threads(void)
{
	uint64_t at[THREADS];

	node_open("2.6", "0");
	for (int i = 0; i < THREADS; i++)
		at[i] = standin_alloc(2 * MIB);
	unit_threads(THREADS, work, at, sizeof(at[0]));
}

static atomic_bool stop;

static void *opens_and_closes(void *arg)
{
	while (!atomic_load(&stop)) {
		int fd = open("/dev/gdrdrv", O_RDWR | O_CLOEXEC);

		if (fd < 0 || close(fd))
			return &stop;
	}
	return arg;
}

static void end_by_alarm(void)
{
	alarm(20);
}

static int open_in_child(void *arg)
{
	(void)arg;
	g = gdr_open();
	return !g || gdr_close(g);
}

/* Each child closes the parent's nodes: a lock of the stand-in's that stays locked hangs it. */
static void test_forks_among_threads(void)
{
	/* Before the library's handler. */
	ck_assert_int_eq(pthread_atfork(NULL, NULL, end_by_alarm), 0);
	node_open("2.6", "1");
	unit_start(2, opens_and_closes, NULL, 0);
	for (int i = 0; i < (unit_quick() ? 100 : 1000); i++)
		ck_assert_int_eq(unit_in_child(open_in_child, NULL), 0);
	atomic_store(&stop, true);
	ck_assert_ptr_null(unit_join());
}

static const struct unit_test tests[] = {
	{ "free persistent", test_free_persistent },
	{ "free callback", test_free_callback },
	{ "fork", test_fork, .rows = 2 },
	{ "handed over", test_handed_over },
	{ "fall through", test_fall_through },
	{ "several chunks", test_several_chunks },
	{ "threads", test_threads },
	{ "forks among threads", test_forks_among_threads },
};

UNIT_MAIN("gdrdrv: life times", tests, node_start(argv))
