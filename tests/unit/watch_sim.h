/* SPDX-License-Identifier: MIT */
/*
 * What the tests of watch.[ch] share: the slot of the stand-in libcuda, an export that passes
 * through it, and what the watch reports of it.
 */
#ifndef TEST_UNIT_WATCH_SIM_H
#define TEST_UNIT_WATCH_SIM_H

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "abi/rm.h"
#include "common/expect.h"
#include "common/maps.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "cuda/import_slots.h"
#include "cuda/private.h"
#include "cuda/watch.h"

static struct gdri_import_slots watch_slots;
static CUdeviceptr watch_memory;

/* CUDA in this thread, memory to export, the slot found. */
static inline void watch_start(void)
{
	standin_start();
	watch_memory = standin_alloc((size_t)8 << 20);
	OK(gdri_cuda_load());
	ck_assert(gdri_import_slots_find(gdri_cuda_library, "ioctl", &watch_slots));
}

static inline uintptr_t watch_slot(void)
{
	return atomic_load(watch_slots.at[0]);
}

/* ioctl() as libcuda calls it. */
static inline ioctl_fn watch_ioctl(void)
{
	return (ioctl_fn)watch_slot();
}

/* The permissions of the slot's page, "rw-" or "r--". */
static inline const char *watch_page(void)
{
	static char perms[4];

	memcpy(perms, maps_at((void *)watch_slots.at[0]), 3);
	return perms;
}

static int watch_pipe[2]; /* five bytes wait in it: what FIONREAD reports */

static inline void watch_fill_pipe(void)
{
	ck_assert_int_eq(pipe(watch_pipe), 0);
	ck_assert_int_eq(write(watch_pipe[1], "12345", 5), 5);
}

/* Whether ioctl() works as libcuda calls it. */
static inline bool watch_pipe_has_5(void)
{
	int n = -1;

	return !watch_ioctl()(watch_pipe[0], FIONREAD, &n) && n == 5;
}

/* One call of libcuda's that makes one ioctl: the export of a dma-buf. */
static inline void watch_export(void)
{
	int fd = -1;

	CU(cuda.cuMemGetHandleForAddressRange(&fd, watch_memory, 65536,
					      CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	close(fd);
}

/* What the watch has reported. */
struct watch_seen {
	unsigned int calls;
	unsigned int exports; /* of them: RM's export of a dma-buf */
	unsigned int other_threads; /* of them: on another thread than the first */
	pthread_t by;
	const void *data; /* of the last */
	bool spoil_errno;
};

static inline void watch_note(void *arg, int fd, unsigned long request, const void *data)
{
	struct watch_seen *seen = arg;

	(void)fd;
	if (!seen->calls++)
		seen->by = pthread_self();
	seen->other_threads += !pthread_equal(seen->by, pthread_self());
	seen->exports += _IOC_TYPE(request) == RM_IOC_TYPE && _IOC_NR(request) == RM_EXPORT_NUMBER;
	seen->data = data;
	if (seen->spoil_errno)
		errno = ENOTEMPTY;
}

/* An export that is watched. */
static inline void watch_one_export(struct watch_seen *seen)
{
	OK(gdri_cuda_watch_begin(watch_note, seen));
	watch_export();
	gdri_cuda_watch_end();
}

#endif
