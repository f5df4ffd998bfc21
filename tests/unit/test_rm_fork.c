// SPDX-License-Identifier: MIT
/*
 * The rm backend and several processes: what a child holds of the parent's, forks at any moment,
 * memory that another process hands over. How a child ends is in tests/gpu/test_map.c.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/again.h"
#include "common/wrap.h"
#include "cuda/import_slots.h"
#include "rm_sim.h"

enum { MAX_FDS = 1024 };

/* Descriptors of the nodes, and of dma-bufs, that were not there before. */
static bool before[MAX_FDS];
static int ours[MAX_FDS];
static unsigned int n_ours;

static void note_fds(void)
{
	for (int fd = 0; fd < MAX_FDS; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
}

enum { NVIDIA_MAJOR = 195 };

static bool is_node(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISCHR(st.st_mode) && major(st.st_rdev) == NVIDIA_MAJOR;
}

/* The stand-in's dma-buf of several objects, or of a part of one, is a pipe's end. */
static bool is_dmabuf(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISFIFO(st.st_mode) &&
	       (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
}

static void find_ours(bool dmabufs)
{
	n_ours = 0;
	for (int fd = 0; fd < MAX_FDS; fd++)
		if (!before[fd] && (is_node(fd) || (dmabufs && is_dmabuf(fd))))
			ours[n_ours++] = fd;
}

/* ---- descriptors that the program closes --------------------------------- */

enum { CLOSED, ANOTHER_FILE, ANOTHER_CLIENT, WAYS };

/* As closefrom() does, or a double close elsewhere; the numbers may be other files' then. */
static void take_ours(int way)
{
	find_ours(false);
	ck_assert_uint_eq(n_ours, 2);
	for (unsigned int i = 0; i < n_ours; i++) {
		int fd = way == ANOTHER_FILE ? open("/dev/null", O_RDWR) : -1;

		if (way == ANOTHER_CLIENT)
			fd = open("/dev/nvidiactl", O_RDWR);
		close(ours[i]);
		if (fd >= 0)
			ck_assert_int_eq(dup2(fd, ours[i]), ours[i]);
		if (fd >= 0)
			close(fd);
	}
}

/* With no range open the next pin has a client again; with one it has when that has ended. */
static void closed_by_the_program(void)
{
	bool open = unit_row >= WAYS;
	struct rm_use u;
	CUdeviceptr p;

	if (test_emulator_lacks("descriptors that the program closes",
				"ENOTTY and EBADF of ioctl()"))
		return;
	rm_begin();
	p = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);
	note_fds();
	rm_sim.faults("OPEN_CTL:1=EMFILE"); /* no GPU, and so no user of a client */
	FAILS(EMFILE, rm_pin(p, MIB, 0));
	OK(rm_pin(p, MIB, 0));
	if (open)
		OK(rm_use_open(&u, p, MIB, 0));
	take_ours(unit_row % WAYS);
	if (open) {
		ck_assert_int_ne(rm_pin(p, MIB, 0), 0);
		rm_look("whose client's descriptors are closed", &u);
		gdr_unmap(rm_g, u.h, u.map, u.info.mapped_size);
		gdr_unpin_buffer(rm_g, u.h);
	}
	rm_sim.faults(NULL);
	rm_whole_life("with another client", p, MIB);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 1);
	OK(gdr_close(rm_g));
	rm_open_context();
	rm_whole_life("with the same client", p, MIB);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 1);
	ck_assert_uint_eq(rm_sim.stale(), 0);
}

/* A child of a program that has not used CUDA closes its own, and has a client again. */
static int closes_its_own(void *arg)
{
	CUdeviceptr p;

	(void)arg;
	rm_begin();
	p = standin_alloc(MIB);
	note_fds();
	OK(rm_pin(p, MIB, 0));
	take_ours(CLOSED);
	OK(rm_pin(p, MIB, 0));
	return 0;
}

static void closed_by_a_child(void)
{
	if (test_emulator_lacks("descriptors that a child closes", "ENOTTY and EBADF of ioctl()"))
		return;
	rm_open_context();
	ck_assert_int_eq(unit_in_child(closes_its_own, NULL), 0);
}

/* ---- forks at any moment ------------------------------------------------- */

static atomic_bool stop;

static void *pin_on(void *arg)
{
	const CUdeviceptr *p = arg;

	cuda.cuCtxSetCurrent(standin_primary(0));
	while (!atomic_load(&stop)) {
		struct rm_use u;

		OK(rm_use_open(&u, p[0], MIB, 0));
		rm_use_close(&u);
		OK(rm_use_open(&u, p[1], 6 * MIB, 0));
		rm_use_close(&u);
	}
	return NULL;
}

/* A child has no descriptor of the nodes but libcuda's. */
static int has_no_node(void *arg)
{
	(void)arg;
	find_ours(false);
	return (int)n_ours;
}

static int has_nothing(void *arg)
{
	(void)arg;
	find_ours(true);
	return (int)n_ours;
}

/* A child may inherit a dma-buf only during libcuda's own call that makes it. */
static void forks_meanwhile(void)
{
	int children = unit_quick() ? 20 : 200;
	CUdeviceptr p[2];
	struct rm_use u;

	rm_begin();
	p[0] = standin_alloc(MIB);
	p[1] = standin_chunks(0, 0, 3, 2 * MIB, STANDIN_EXPORTABLE);
	note_fds();
	OK(rm_use_open(&u, p[1], 6 * MIB, 0));
	find_ours(true);
	ck_assert_uint_eq(n_ours, 2); /* the control node and the GPU's */
	for (unsigned int i = 0; i < n_ours; i++)
		ck_assert_int_eq(fcntl(ours[i], F_GETFD), FD_CLOEXEC);
	rm_use_close(&u);
	unit_start(1, pin_on, p, 0);
	for (int i = 0; i < children; i++) {
		int status = unit_in_child(has_no_node, NULL);

		ck_assert_msg(!status, "child %d: status %d", i, status);
	}
	atomic_store(&stop, true);
	unit_join();
	rm_whole_life("after the children", p[0], MIB);
	rm_end(1);
}

/* Makes a child in each ioctl of the library. */
static ioctl_fn below;
static unsigned int forked;

static int fork_and_pass(int fd, unsigned long request, void *data)
{
	int status = unit_in_child(has_nothing, NULL);

	ck_assert_msg(!status, "%d descriptors in a child of call 0x%x", status,
		      (unsigned int)_IOC_NR(request));
	forked++;
	return below(fd, request, data);
}

IOCTL_FUNCTION(forking_ioctl, fork_and_pass)

static void forks_in_every_call(void)
{
	struct gdri_import_slots slots;
	uintptr_t held;
	CUdeviceptr p, v;

	rm_begin();
	p = standin_alloc(4 * MIB);
	v = standin_chunks(0, 0, 3, 2 * MIB, STANDIN_EXPORTABLE);
	ck_assert(gdri_import_slots_find(dlopen(NULL, RTLD_NOW), "ioctl", &slots));
	held = atomic_load(slots.at[0]);
	*(void **)&below = dlsym(RTLD_DEFAULT, "ioctl"); /* the slot may not be bound yet */
	note_fds();
	ck_assert(gdri_import_slot_write(&slots, 0, &held, (uintptr_t)forking_ioctl, false));
	rm_whole_life("with children in every call", p + 70000, MIB);
	rm_whole_life("with children in every call", v + MIB, 4 * MIB);
	ck_assert_uint_gt(forked, 30);
	rm_end(1);
}

/* ---- what a child holds -------------------------------------------------- */

/*
 * The parent is killed with everything mapped: its child, which lives on, holds nothing. Row 1: a
 * child of clone(), as of _Fork(), runs no atfork handler, and holds it all until it ends.
 */
static void parent(int ready, int go_on)
{
	struct rm_use u;
	pid_t pid;

	rm_begin();
	OK(rm_use_open(&u, standin_chunks(0, 0, 3, 2 * MIB, 0), 6 * MIB, 0));
	pid = unit_row ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
	if (!pid) {
		char c;

		if (write(ready, "r", 1) != 1)
			_exit(1);
		while (read(go_on, &c, 1) > 0) /* until the grandparent has looked */
			;
		_exit(0);
	}
	pause();
	_exit(pid < 0);
}

static void killed_before_its_child(void)
{
	struct gdrsim_rm_counts c;
	int ready[2], go_on[2], status;
	pid_t pid;
	char r;

	if (test_emulator_lacks("killed before its child", "MADV_DONTFORK"))
		return;
	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(go_on), 0);
	pid = fork();
	if (!pid) {
		close(go_on[1]);
		parent(ready[1], go_on[0]);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &r, 1), 1);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.clients, 1);
	ck_assert_uint_eq(c.maps, 3);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (unit_row) {
		rm_sim.counts(&c);
		ck_assert_uint_eq(c.clients, 1);
		ck_assert_uint_gt(c.memories, 0);
		close(go_on[1]);
		ck_assert_int_eq(read(ready[0], &r, 1), 0); /* the child has ended */
	}
	rm_assert_nothing_left();
	if (!unit_row)
		close(go_on[1]);
}

/* ---- memory that is imported ---------------------------------------------- */

/* Two processes do this in tests/gpu/test_alloc.c. */
static void imported(void)
{
	uint8_t in[RM_LOOK], out[RM_LOOK];
	struct gdrsim_rm_counts c;
	CUmemGenericAllocationHandle handle;
	barcopy_mem_t mem;
	CUdeviceptr p;
	int fd = -1;

	rm_begin();
	CU(cuda.cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
	handle = standin_map_chunk(p, 4 * MIB, 0, STANDIN_EXPORTABLE);
	rm_pattern(in, RM_LOOK, 1);
	standin_to_gpu(p + 3 * MIB, in, RM_LOOK);
	CU(cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					     0));
	OK(barcopy_mem_import(rm_g, 0, fd, 4 * MIB, 0, &mem));
	close(fd);
	CU(cuda.cuMemUnmap(p, 4 * MIB));
	CU(cuda.cuMemRelease(handle));
	HANDLE_HAS(rm_g, mem.handle, BACKEND, BARCOPY_BACKEND_RM);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.memories, 1);
	OK(gdr_copy_from_mapping(mem.handle, out, (char *)mem.cpu_ptr + 3 * MIB, RM_LOOK));
	ck_assert_mem_eq(in, out, RM_LOOK);
	OK(barcopy_mem_free(rm_g, &mem));
	rm_end(1);
}

static const struct unit_test tests[] = {
	{ "descriptors that the program closes", closed_by_the_program, "", .rows = 2 * WAYS },
	{ "descriptors that the program closes, exportable memory alone", closed_by_the_program,
	  "GDRSIM_RM_EXPORT_SIZE=2616", .rows = WAYS },
	{ "descriptors that a child closes", closed_by_a_child, "" },
	{ "forks meanwhile", forks_meanwhile, "" },
	{ "forks in every call", forks_in_every_call, "" },
	{ "killed before its child", killed_before_its_child, "", .rows = 2 },
	{ "memory that is imported", imported, "" },
	{ "memory that is imported, no export of dma-bufs", imported, "GDRSIM_DMABUF=0" },
};

UNIT_MAIN("rm: processes", tests, rm_start(argv))
