// SPDX-License-Identifier: MIT
/*
 * Calls of /dev/gdrdrv beside an nvidia.ko that has no GPU: every pin is refused. Prints a line for
 * each call whose result is another one.
 *
 *	refused			each call once
 *	refused storm SECONDS	refused pins by eight threads, which also open and close the node
 *	refused hold SECONDS	keeps the node open
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gdrdrv_uapi.h"

#define PAGE 0x10000ULL
#define GPU  0x7f0000000000ULL /* where CUDA puts its memory */
#define BAR1 (128ULL << 20) /* of fakegpu.c */

static int fd, wrong;
static volatile bool stop;

static void expect(const char *what, int ret, int err)
{
	int got = ret ? errno : 0;

	if (got == err)
		return;
	wrong++;
	printf("%s: %s, not %s\n", what, strerror(got), strerror(err));
}

static void pin(const char *what, __u64 addr, __u64 size, int err)
{
	struct gdrdrv_ioc_pin_buffer arg = { .addr = addr, .size = size };

	expect(what, ioctl(fd, GDRDRV_IOC_PIN_BUFFER, &arg), err);
}

static void pin_token(const char *what, __u64 token, __u32 space)
{
	struct gdrdrv_ioc_pin_buffer arg = {
		.addr = GPU, .size = PAGE, .p2p_token = token, .va_space = space
	};

	expect(what, ioctl(fd, GDRDRV_IOC_PIN_BUFFER, &arg), EINVAL);
}

static void pin_flags(const char *what, __u32 flags)
{
	struct gdrdrv_ioc_pin_buffer_v2 arg = { .addr = GPU, .size = PAGE, .flags = flags };

	expect(what, ioctl(fd, GDRDRV_IOC_PIN_BUFFER_V2, &arg), EINVAL);
}

static void other_calls(void)
{
	struct gdrdrv_ioc_get_version version = { 0 };
	struct gdrdrv_ioc_unpin_buffer unpin = { .handle = 1 };
	struct gdrdrv_ioc_get_info_v2 info = { .handle = 1 };
	struct gdrdrv_ioc_populate populate = { .handle = 1 };

	expect("GET_VERSION", ioctl(fd, GDRDRV_IOC_GET_VERSION, &version), 0);
	expect("UNPIN_BUFFER", ioctl(fd, GDRDRV_IOC_UNPIN_BUFFER, &unpin), EINVAL);
	expect("GET_INFO_V2", ioctl(fd, GDRDRV_IOC_GET_INFO_V2, &info), EINVAL);
	expect("POPULATE", ioctl(fd, GDRDRV_IOC_POPULATE, &populate), EINVAL);
	expect("another number", ioctl(fd, _IOWR(0xDA, 99, __u64), &populate), ENOTTY);
	expect("mmap", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED ? -1 : 0,
	       EINVAL);
}

static void calls(void)
{
	void *heap =
		mmap(NULL, 2 * BAR1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	__u64 host = ((__u64)heap + PAGE - 1) & ~(PAGE - 1);
	int code = 0;
	pid_t pid;

	other_calls();
	pin("host memory", host, PAGE, EINVAL);
	pin("16 MiB of host memory", host, 16 << 20, EINVAL);
	pin("no memory", GPU, PAGE, EINVAL);
	pin("as much as BAR1", GPU, BAR1, EINVAL);
	pin("more than BAR1", GPU, BAR1 + PAGE, ENOMEM);
	pin("1 TiB", GPU, 1ULL << 40, ENOMEM);
	pin("address 0", 0, PAGE, EINVAL);
	pin("size 0", GPU, 0, EINVAL);
	pin("any alignment", GPU + 8, 100, EINVAL);
	pin("the last page of all", -PAGE, PAGE, EOVERFLOW);
	pin("over the end", -PAGE, 2 * PAGE, EOVERFLOW);
	pin("the kernel's memory", 0xffff888000000000ULL, PAGE, EINVAL);
	pin_token("a token", 1, 0);
	pin_token("an address space", 0, 1);
	pin_flags("flags 0", 0);
	pin_flags("FORCE_PCIE", GDRDRV_PIN_FLAG_FORCE_PCIE);
	pin_flags("an unknown flag", 2);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		wrong = 0;
		pin("another process", GPU, PAGE, EACCES);
		exit(wrong);
	}
	waitpid(pid, &code, 0);
	wrong += !!code;
}

static void *storm(void *seed_at)
{
	unsigned int seed = *(unsigned int *)seed_at, n = 0;
	int node = open("/dev/gdrdrv", O_RDWR);

	while (!stop) {
		struct gdrdrv_ioc_pin_buffer arg = {
			.addr = GPU + ((__u64)rand_r(&seed) << 16),
			.size = (1 + (__u64)rand_r(&seed) % 1024) << 16,
		};

		if (!ioctl(node, GDRDRV_IOC_PIN_BUFFER, &arg)) {
			wrong++;
			printf("pinned\n");
			break;
		}
		if (++n % 64 == 0) {
			close(node);
			node = open("/dev/gdrdrv", O_RDWR);
		}
	}
	close(node);
	*(unsigned int *)seed_at = n;
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int seconds = argc > 2 ? (unsigned int)atoi(argv[2]) : 0, n[8], sum = 0, i;
	pthread_t thread[8];

	fd = open("/dev/gdrdrv", O_RDWR);
	if (fd < 0) {
		perror("/dev/gdrdrv");
		return 1;
	}
	if (argc < 2) {
		calls();
	} else if (!strcmp(argv[1], "hold")) {
		sleep(seconds);
	} else {
		for (i = 0; i < 8; i++) {
			n[i] = i + 1;
			pthread_create(&thread[i], NULL, storm, &n[i]);
		}
		sleep(seconds);
		stop = true;
		for (i = 0; i < 8; i++) {
			pthread_join(thread[i], NULL);
			sum += n[i];
		}
		fprintf(stderr, "# %u refused pins\n", sum);
		wrong += !sum;
	}
	return wrong ? 1 : 0;
}
