// SPDX-License-Identifier: MIT
/*
 * What a forked child has of its parent's: no descriptor of the driver's nodes or of a dma-buf, which
 * would hold the parent's pins; and forks among threads that open and close such descriptors.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "common/resources.h"
#include "common/standin.h"
#include "common/unit.h"
#include "barcopy.h"
#include "base/process.h"

static int child_counts(void *expected)
{
	int n = resources_fds();

	if (n == *(int *)expected)
		return 0;
	fprintf(stderr, "%d descriptors in the child, not %d\n", n, *(int *)expected);
	return 1;
}

/* Each of two pins holds a dma-buf. (The nodes: test_gdrdrv_life.c, test_rm_fork.c.) */
static void dmabufs(void)
{
	gdr_mh_t h[2];
	int in_child;
	gdr_t g;

	standin_start();
	g = gdr_open();
	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gdr_pin_buffer_v2(g, standin_alloc(65536), 65536, 0, &h[i]), 0);
	in_child = resources_fds() - 2;
	ck_assert_int_eq(unit_in_child(child_counts, &in_child), 0);
	/* What was given back is not closed a second time, which could hit somebody else's. */
	ck_assert_int_eq(gdr_unpin_buffer(g, h[0]), 0);
	in_child = resources_fds() - 1;
	ck_assert_int_eq(unit_in_child(child_counts, &in_child), 0);
	ck_assert_int_eq(gdr_close(g), 0);
	in_child = resources_fds();
	ck_assert_int_eq(unit_in_child(child_counts, &in_child), 0);
}

/* ---- the table itself ------------------------------------------------------------------------------- */

static void owned(void)
{
	int fd, kept, in_child;

	ck_assert_int_eq(gdri_process_enter(), 0);
	errno = 0;
	ck_assert_int_eq(gdri_fork_open("/no/such/node", O_RDWR), -1);
	ck_assert_int_eq(errno, ENOENT);
	fd = gdri_fork_open("/dev/null", O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	kept = dup(fd);
	ck_assert_int_eq(gdri_fork_own(kept), 0);
	in_child = resources_fds() - 2;
	ck_assert_int_eq(unit_in_child(child_counts, &in_child), 0);
	gdri_fork_close(kept);
	ck_assert_int_eq(fcntl(kept, F_GETFD), -1);
	in_child = resources_fds() - 1;
	ck_assert_int_eq(unit_in_child(child_counts, &in_child), 0);
	gdri_fork_close(fd);
}

static atomic_bool stop;

static void *opens_and_closes(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		int fd[20];

		for (int i = 0; i < 20; i++)
			fd[i] = gdri_fork_open("/dev/null", O_RDWR);
		for (int i = 0; i < 20; i++)
			gdri_fork_close(fd[i]);
	}
	return NULL;
}

static void among_threads(void)
{
	int before = resources_fds(), rounds = unit_quick() ? 50 : 300;
	pthread_t t[3];

	ck_assert_int_eq(gdri_process_enter(), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, opens_and_closes, NULL), 0);
	for (int i = 0; i < rounds; i++)
		ck_assert_int_eq(unit_in_child(child_counts, &before), 0);
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(resources_fds(), before);
}

static const struct unit_test tests[] = {
	{ "dma-bufs of pins", dmabufs, "GDRCOPY_BACKEND=dmabuf GDRSIM_DRIVER_VERSION=13030" },
	{ "owned descriptors", owned, "" },
	{ "forks among threads", among_threads, "" },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "fork", tests, COUNT(tests));
}
