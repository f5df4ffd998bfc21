// SPDX-License-Identifier: MIT
/*
 * Entries made by a process at its cgroup's limit, where the kernel has to reclaim memory for each
 * page table: the reclaim must not happen under a lock for which a free callback waits
 * (gdrdrv/rig/provider/notifier.c), and the process must not get beyond its limit.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "rig.h"

#define CGROUPS "/tmp/cgroup"
#define GROUP	CGROUPS "/rig"

/* Puts the calling process into a cgroup of its own without limit. Skips without cgroups. */
static void enter_cgroup(void)
{
	char *text;

	mkdir(CGROUPS, 0755);
	if (mount("cgroup2", CGROUPS, "cgroup2", 0, NULL) && errno != EBUSY)
		SKIP("this kernel has no cgroups");
	text = read_text(CGROUPS "/cgroup.controllers");
	if (!text || !strstr(text, "memory"))
		SKIP("this kernel has no limits of memory");
	free(text);
	write_text(CGROUPS "/cgroup.subtree_control", "+memory");
	/* Its counters are those of an earlier test, whose processes have ended. */
	CHECK(!rmdir(GROUP) || errno == ENOENT);
	CHECK(!mkdir(GROUP, 0755));
	write_text(GROUP "/cgroup.procs", "0");
}

/* Limits the cgroup to @more bytes beyond what @counter, a path, tells. */
static void limit_memory(const char *counter, size_t more)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", read_number(counter) + (long)more);
	write_text(GROUP "/memory.max", text);
}

#define LAZY (32 * MiB)
#define PINS 100UL

/* Pins of one block; each mapping is in a GiB of its own, so that it needs two page tables. */
static struct {
	uint64_t va, h[PINS];
	uint8_t *at[PINS];
} pins;

static void map_all(void)
{
	unsigned int i;

	pins.va = gpu_alloc(prov, GPU_PAGE);
	for (i = 0; i < PINS; i++) {
		pins.h[i] = must_pin(drv, pins.va, GPU_PAGE);
		pins.at[i] = (uint8_t *)(0x100000000000UL + ((uint64_t)i << 30));
		must_map_at(drv, pins.h[i], GPU_PAGE, pins.at[i]);
	}
}

static void unmap_all(void)
{
	unsigned int i;

	for (i = 0; i < PINS; i++) {
		CHECK(!munmap(pins.at[i], GPU_PAGE));
		OK(unpin(drv, pins.h[i]));
	}
}

static pthread_barrier_t start;

static void *free_thread(void *va)
{
	struct provider_notify_free call = { .va = *(uint64_t *)va, .delay_ms = 50 };

	pthread_barrier_wait(&start);
	CHECK(!ioctl(prov, PROVIDER_IOC_NOTIFY_FREE, &call));
	return NULL;
}

/*
 * Memory that the kernel can reclaim without swap fills the cgroup, so that its reclaim runs the
 * notifier of this process. Meanwhile another thread of the GPU driver holds the notifier's lock
 * and frees the memory that this thread maps.
 */
static void t_reclaim(void)
{
	uint8_t *lazy =
		mmap(NULL, LAZY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct provider_notify notify = { .addr = (uintptr_t)lazy, .len = LAZY };
	unsigned int round, i, met;
	pthread_t thread;
	size_t off;

	CHECK(lazy != MAP_FAILED);
	CHECK(!madvise(lazy, LAZY, MADV_NOHUGEPAGE));
	enter_cgroup();
	if (ioctl(prov, PROVIDER_IOC_NOTIFY, &notify)) {
		CHECK_EQ(errno, EOPNOTSUPP);
		SKIP("this kernel has no MMU notifiers");
	}
	CHECK(!pthread_barrier_init(&start, NULL, 2));
	met = gpu_info(prov).notified;
	for (round = 0; round < 10; round++) {
		map_all();
		CHECK(!pthread_create(&thread, NULL, free_thread, &pins.va));
		limit_memory(GROUP "/memory.current", 4 * MiB);
		for (off = 0; off < LAZY; off += MiB) {
			memset(lazy + off, 1, MiB);
			CHECK(!madvise(lazy + off, MiB, MADV_FREE));
		}
		pthread_barrier_wait(&start);
		usleep(10000);
		for (i = 0; i < PINS; i++)
			try_read(pins.at[i]);
		pthread_join(thread, NULL);
		for (i = 0; i < PINS; i++)
			CHECK_EQ(try_read(pins.at[i]), SIGBUS);
		write_text(GROUP "/memory.max", "max");
		unmap_all();
	}
	met = gpu_info(prov).notified - met;
	printf("# reclaim waited for the GPU driver, %u times 10 ms\n", met);
	CHECK(met);
}

/*
 * POPULATE of many mappings at the limit: the kernel kills the process, or a call fails, before the
 * cgroup is far beyond.
 */
static void populate_all(void)
{
	unsigned int i;
	int ret = 0;

	write_text(GROUP "/cgroup.procs", "0");
	drv = drv_open();
	prov = prov_open();
	map_all();
	/* Not memory.current: the kernel charges 64 pages at once and gives back what it has not used. */
	limit_memory(GROUP "/memory.peak", 128 * KiB);
	for (i = 0; i < PINS && !ret; i++)
		ret = populate(drv, pins.h[i]);
	printf("# POPULATE of mapping %u: %d\n", i, ret);
	fflush(stdout);
	_exit(ret == -ENOMEM ? 0 : 1);
}

static void t_reclaim_bounded(void)
{
	long beyond;
	pid_t pid;
	int code;

	enter_cgroup();
	if (access(GROUP "/memory.peak", R_OK))
		SKIP("this kernel does not tell the peak");
	write_text(CGROUPS "/cgroup.procs", "0"); /* else the kernel may kill this process */
	pid = fork();
	if (!pid)
		populate_all();
	code = wait_child(pid);
	beyond = read_number(GROUP "/memory.peak") - read_number(GROUP "/memory.max");
	printf("# exit code %d, %ld KiB beyond the limit\n", code, beyond / 1024);
	write_text(GROUP "/memory.max", "max");
	CHECK(code == 128 + SIGKILL || !code);
	CHECK(beyond <= (long)(64 * KiB));
}

const struct test tests_reclaim[] = {
	{ "reclaim-callback", t_reclaim, BY_CALLBACK, 120, 0 },
	{ "reclaim-bounded", t_reclaim_bounded, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
