/* SPDX-License-Identifier: MIT */
/* Self-test of nvidia.ko's stand-in: forks, other processes, processes that die. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/unit.h"
#include "test_sim_rm.h"

/* Exit status of fn(arg) in a child, 128 + signal. */
static int in_child(int (*fn)(void *), void *arg)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(fn(arg));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct held {
	struct rm_user u;
	handle dup;
	uint64_t linear;
	uint32_t *p;
	int fd;
};

static void hold(struct held *h)
{
	CUdeviceptr a;
	int fd;

	standin_start();
	a = standin_alloc(4 * MIB);
	rm_user_start(&h->u, 0);
	fd = rm_export(a, 65536);
	ck_assert_uint_eq(
		rm_duplicate(&h->u, rm_seen.call[0].client, rm_seen.call[0].handles[0], &h->dup),
		0);
	close(fd);
	h->fd = rm_node(h->u.minor);
	ck_assert_int_eq(ioctl(h->fd, ESC_REGISTER, &h->u.ctl), 0);
	ck_assert_uint_eq(rm_map(&h->u, h->dup, 0, 65536, 0, h->fd, &h->linear), 0);
	h->p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
	ck_assert_ptr_ne(h->p, MAP_FAILED);
}

static void let_go(struct held *h)
{
	munmap(h->p, 65536);
	close(h->fd);
	rm_user_end(&h->u);
}

/* A child has the parent's descriptors and clients: it can harm it, but not map. */
static int use_inherited(void *arg)
{
	struct held *h = arg;
	struct os33_fd m = { h->u.client, h->u.device, h->dup, 0, 4096, 0, 0, 0, -1 };
	struct os34 un = { h->u.client, h->u.device, h->dup, h->linear, 0, 0 };

	h->p[0] = 77; /* the range is inherited */
	m.fd = rm_node(h->u.minor);
	if (m.fd < 0 || ioctl(h->u.ctl, ESC_MAP, &m) || m.status != 0x23)
		return 1;
	if (ioctl(h->u.ctl, ESC_UNMAP, &un) || un.status != 0x57)
		return 2;
	return 0;
}

static int free_inherited(void *arg)
{
	struct held *h = arg;
	struct os00 f = { h->u.client, 0, h->dup, 0xdead };

	return ioctl(h->u.ctl, ESC_FREE, &f) || f.status;
}

static int just_exit(void *arg)
{
	(void)arg;
	return 0;
}

static int die(void *arg)
{
	(void)arg;
	return raise(SIGKILL);
}

START_TEST(child_of_holder)
{
	struct gdrsim_rm_counts c;
	struct held h;

	hold(&h);
	ck_assert_int_eq(in_child(just_exit, &h), 0);
	ck_assert_int_eq(in_child(die, &h), 128 + SIGKILL);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.maps, 1);
	ck_assert_int_eq(in_child(use_inherited, &h), 0);
	ck_assert_uint_eq(h.p[0], 77);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.maps, 1);
	ck_assert_int_eq(in_child(free_inherited, &h), 0);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.maps, 0);
	ck_assert_uint_eq(c.memories, 0);
	ck_assert_uint_eq(c.clients, 1);
	let_go(&h);
}
END_TEST

/* MADV_DONTFORK: a child does not keep the file. */
START_TEST(not_inherited)
{
	struct gdrsim_rm_counts c;
	int ready[2], done[2];
	struct held h;
	char byte;
	pid_t pid;

	if (test_emulator_lacks("not_inherited", "MADV_DONTFORK"))
		return;
	hold(&h);
	ck_assert_int_eq(madvise(h.p, 65536, MADV_DONTFORK), 0);
	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(done), 0);
	pid = fork();
	if (!pid) {
		close(done[1]);
		close(h.fd);
		close(h.u.ctl);
		close(h.u.node);
		if (write(ready[1], "", 1) == 1 && read(done[0], &byte, 1) == 0)
			_exit(0);
		_exit(1);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	let_go(&h); /* while the child lives */
	rm_sim.counts(&c);
	close(done[1]);
	waitpid(pid, NULL, 0);
	ck_assert_uint_eq(c.clients, 0);
}
END_TEST

/* A descriptor that a child has keeps the client; it goes with the child. */
START_TEST(kept_by_child)
{
	int ctl = open("/dev/nvidiactl", O_RDWR), done[2];
	struct gdrsim_rm_counts c;
	handle client = 0;
	char byte;
	pid_t pid;

	ck_assert_uint_eq(rm_new(ctl, 0, 0, &client, 0x41, NULL, 0), 0);
	ck_assert_int_eq(pipe(done), 0);
	pid = fork();
	if (!pid) {
		close(done[1]);
		_exit(read(done[0], &byte, 1) != 0);
	}
	close(ctl);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.clients, 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rm_assert_nothing_left();
	close(done[0]);
	close(done[1]);
}
END_TEST

/* Another process's client cannot take from this one's, nor use its client. */
static int steal(void *arg)
{
	const struct held *h = arg;
	struct os55 d = { 0, 0, 0, h->u.client, h->dup, 0, 0 };
	struct rm_user u;
	uint32_t ids[32];

	rm_user_start(&u, 0);
	d.client = u.client;
	d.parent = u.device;
	if (ioctl(u.ctl, ESC_DUP, &d) || d.status != 0x1b)
		return 1;
	if (rm_command(u.ctl, h->u.client, h->u.client, 0x201, ids, sizeof(ids)) != 0x23)
		return 2;
	return 0;
}

START_TEST(other_process)
{
	struct held h;

	hold(&h);
	ck_assert_int_eq(in_child(steal, &h), 0);
	let_go(&h);
}
END_TEST

/* What another process exported can be imported and mapped, after its end too. */
struct import {
	int fd;
	uint32_t type;
	handle device, parent, object;
};

static int import_it(void *arg)
{
	struct import im = { *(int *)arg, 1, 0, 0, 0 };
	struct rm_user u;
	uint64_t linear;
	uint32_t *p;
	int fd;

	rm_user_start(&u, 0);
	im.parent = u.device;
	if (rm_command(u.ctl, u.client, u.client, 0x3d06, &im, sizeof(im)))
		return 1;
	fd = rm_node(u.minor);
	if (rm_map(&u, im.object, 0, 2 * MIB, 0, fd, &linear))
		return 2;
	p = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED || p[5] != 0x12345678)
		return 3;
	p[6] = 0x9abcdef0;
	return 0;
}

START_TEST(import_in_child)
{
	int (*to_fd)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
		     unsigned long long);
	void *symbol;
	struct standin_vmm v;
	uint32_t word = 0x12345678;
	int shared;

	standin_start();
	symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemExportToShareableHandle");
	memcpy(&to_fd, &symbol, sizeof(to_fd));
	standin_vmm_alloc(&v, 0, 1, 2 * MIB, true);
	ck_assert_int_eq(cuda.cuMemcpyHtoD_v2(v.ptr + 20, &word, 4), 0);
	ck_assert_int_eq(to_fd(&shared, v.handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 0);
	ck_assert_int_eq(in_child(import_it, &shared), 0);
	ck_assert_int_eq(cuda.cuMemcpyDtoH_v2(&word, v.ptr + 24, 4), 0);
	ck_assert_uint_eq(word, 0x9abcdef0);
	close(shared);
	standin_vmm_free(&v);
	rm_assert_nothing_left();
	ck_assert_uint_eq(standin_device_bytes(0), 0);
}
END_TEST

/* A process that is no child of this one, and knows the machine by its file only. */
START_TEST(named_machine)
{
	char path[] = "/tmp/gdrsim-machine-XXXXXX", line[64];
	int file = mkstemp(path);

	ck_assert_int_ge(file, 0);
	setenv("GDRSIM_RM_MACHINE", path, 1);
	rm_again("hold", line, sizeof(line));
	ck_assert_str_eq(line, "1 client, then 0\n");
	unlink(path);
	close(file);
}
END_TEST

int rm_hold(void)
{
	int ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	struct gdrsim_rm_counts c;
	char line[64] = "";
	handle client = 0;

	ck_assert_uint_eq(rm_new(ctl, 0, 0, &client, 0x41, NULL, 0), 0);
	rm_again("count", line, sizeof(line));
	close(ctl);
	rm_sim.counts(&c);
	printf("%s, then %u\n", line, c.clients);
	return 0;
}

int rm_count(void)
{
	struct gdrsim_rm_counts c;

	rm_sim.counts(&c);
	printf("%u client", c.clients);
	return 0;
}

void rm_tests_processes(TCase *tc)
{
	tcase_add_test(tc, child_of_holder);
	tcase_add_test(tc, not_inherited);
	tcase_add_test(tc, kept_by_child);
	tcase_add_test(tc, other_process);
	tcase_add_test(tc, import_in_child);
	tcase_add_test(tc, named_machine);
}
