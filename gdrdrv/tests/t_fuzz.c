// SPDX-License-Identifier: MIT
/* Random ioctl, mmap and memory calls. Passes if the kernel survives and nothing is left pinned. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>

#include "rig.h"

static uint64_t state;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t va, handles[16];

static uint64_t interesting(void)
{
	static const uint64_t fixed[] = { 0,	      1,	  4095,	      4096,
					  65535,      65536,	  0x7fffffff, 0x80000000,
					  0xffffffff, 1ULL << 32, 1ULL << 47, 1ULL << 63,
					  -1ULL,      -4096ULL,	  -65536ULL };

	switch (rnd() % 6) {
	case 0:
		return fixed[rnd() % (sizeof(fixed) / sizeof(fixed[0]))];
	case 1:
		return rnd();
	case 2:
		return rnd() >> (rnd() % 64);
	case 3:
		return va + rnd() % (8 * GPU_PAGE);
	default:
		return handles[rnd() % 16];
	}
}

static const unsigned int cmds[] = {
	GDRDRV_IOC_PIN_BUFFER,	     GDRDRV_IOC_PIN_BUFFER,    GDRDRV_IOC_UNPIN_BUFFER,
	GDRDRV_IOC_GET_CB_FLAG,	     GDRDRV_IOC_GET_INFO,      GDRDRV_IOC_GET_INFO_V2,
	GDRDRV_IOC_GET_ATTR,	     GDRDRV_IOC_PIN_BUFFER_V2, GDRDRV_IOC_PIN_BUFFER_V2,
	GDRDRV_IOC_REQ_MAPPING_TYPE, GDRDRV_IOC_GET_VERSION,   GDRDRV_IOC_POPULATE,
};

static unsigned long counts[4]; /* ioctls, of these successful, maps, of these successful */

static void fuzz_ioctl(void)
{
	uint64_t arg[8];
	unsigned int cmd = cmds[rnd() % (sizeof(cmds) / sizeof(cmds[0]))], i;
	void *where = arg;

	for (i = 0; i < 8; i++)
		arg[i] = interesting();
	if (rnd() % 3 == 0 && (cmd == GDRDRV_IOC_PIN_BUFFER || cmd == GDRDRV_IOC_PIN_BUFFER_V2)) {
		arg[0] = va + rnd() % (4 * GPU_PAGE);
		arg[1] = rnd() % (2 * GPU_PAGE);
		arg[2] = arg[3] = 0;
	}
	if (rnd() % 16 == 0)
		cmd = (unsigned int)rnd();
	if (rnd() % 32 == 0)
		where = (void *)(uintptr_t)interesting();
	counts[0]++;
	if (ioctl(drv, cmd, where))
		return;
	counts[1]++;
	if (cmd == GDRDRV_IOC_PIN_BUFFER && where == arg)
		handles[rnd() % 16] = arg[4];
	if (cmd == GDRDRV_IOC_PIN_BUFFER_V2 && where == arg)
		handles[rnd() % 16] = arg[3];
}

static void fuzz_memory(uint8_t *p, size_t len)
{
	size_t mask = ~(cpu_page() - 1);
	size_t off = rnd() % len & mask, part = (rnd() % len + cpu_page()) & mask;

	switch (rnd() % 10) {
	case 0:
		munmap(p + off, part);
		break;
	case 1:
		mprotect(p + off, part, (int)(rnd() % 8));
		break;
	case 2: {
		void *q = mremap(p, len, part, MREMAP_MAYMOVE);

		if (q != MAP_FAILED)
			munmap(q, part);
		break;
	}
	case 3:
		madvise(p + off, part, (int)(rnd() % 30));
		break;
	case 4:
		msync(p, len, (int)(rnd() % 8));
		break;
	case 5:
		mlock(p, len);
		munlock(p, len);
		break;
	case 6: {
		unsigned char vec[1024];

		mincore(p, len > 4 * MiB ? 4 * MiB : len, vec);
		break;
	}
	case 7:
		try_write(p + rnd() % len, 1);
		break;
	case 8:
		posix_fadvise(drv, (off_t)rnd() % 100000, (off_t)part, (int)(rnd() % 6));
		readahead(drv, 0, part);
		(void)!ftruncate(drv, 0);
		fsync(drv);
		break;
	default:
		try_read(p + rnd() % len);
	}
}

static void fuzz_mmap(void)
{
	size_t len = rnd() % 3 ? rnd() % (3 * GPU_PAGE) + 1 : interesting() % (4 * MiB) + 1;
	int prot = (int)(rnd() % 5 ? 3 : rnd() % 8), flags = rnd() % 6 ? MAP_SHARED : MAP_PRIVATE;
	uint64_t h = interesting();
	uint8_t *p = mmap(NULL, len, prot, flags, drv, (off_t)((h & 0x7ffffffffULL) * cpu_page()));
	int i;

	counts[2]++;
	if (p == MAP_FAILED)
		return;
	counts[3]++;
	for (i = 0; i < 3; i++)
		fuzz_memory(p, len);
	if (rnd() % 4 == 0) {
		pid_t pid = fork();

		if (!pid) {
			fuzz_ioctl();
			_exit(0);
		}
		wait_child(pid);
	}
	munmap(p, len);
}

/* Persistent pins keep freed memory. If none is left, closes the driver's file: its pins end. */
static uint64_t fuzz_alloc(void)
{
	struct provider_alloc arg = { .size = 8 * GPU_PAGE, .flags = rnd() % 2 };

	if (!ioctl(prov, PROVIDER_IOC_ALLOC, &arg))
		return arg.va;
	CHECK_EQ(errno, ENOMEM);
	close(drv);
	drv = drv_open();
	return gpu_alloc_flags(prov, arg.size, arg.flags).va;
}

static void t_fuzz(void)
{
	unsigned int i;

	state = rig.seed * 0x9e3779b97f4a7c15ULL + 1;
	printf("# fuzz: seed %u\n", rig.seed);
	fflush(stdout);
	va = gpu_alloc(prov, 8 * GPU_PAGE);
	for (i = 0; i < rig.fuzz; i++) {
		char byte[8];

		switch (rnd() % 50) {
		case 0:
			(void)!gpu_free(prov, va);
			va = fuzz_alloc();
			break;
		case 1:
			(void)!read(drv, byte, sizeof(byte));
			(void)!pwrite(drv, byte, 0, (off_t)rnd());
			lseek(drv, (off_t)rnd(), SEEK_SET);
			break;
		case 2:
			if (rnd() % 20 == 0) {
				close(drv);
				drv = drv_open();
			}
			break;
		case 3 ... 9:
			fuzz_mmap();
			break;
		default:
			fuzz_ioctl();
		}
	}
	printf("# fuzz: %u rounds, %lu ioctls (%lu succeeded), %lu maps (%lu succeeded)\n",
	       rig.fuzz, counts[0], counts[1], counts[2], counts[3]);
	/* Some calls must succeed. In a short run no map may: one in forty succeeds. */
	CHECK(counts[1] > counts[0] / 100);
	CHECK(counts[3] || rig.fuzz < 5000);
	CHECK_EQ(gpu_info(prov).errors, 0);
}

const struct test tests_fuzz[] = {
	{ "fuzz", t_fuzz, ANY_MODE, 120, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
