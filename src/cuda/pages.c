/* SPDX-License-Identifier: MIT */
/* Pages of host memory that kernels read and write. See cuda.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/process.h"
#include "cuda/private.h"

/* Pages that were given back, still registered. */
static struct gdri_cuda_pages *idle;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static void unmap(struct gdri_cuda_pages *p)
{
	munmap(p->host, p->size);
	free(p);
}

/* False once the context was destroyed or its device reset. */
static bool is_registered(const struct gdri_cuda_pages *p)
{
	struct gdri_cuda_scope s;
	CUdeviceptr addr;
	bool same;

	if (gdri_cuda_enter(&s, p->context, -1))
		return false;
	same = !gdri_cu.cuMemHostGetDevicePointer_v2(&addr, p->host, 0) && addr == p->addr;
	gdri_cuda_leave(&s);
	return same;
}

static struct gdri_cuda_pages *take_idle(int device, size_t size)
{
	struct gdri_cuda_pages **link = &idle, *p;

	pthread_mutex_lock(&idle_lock);
	while ((p = *link)) {
		if (p->device != device || p->size != size) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		if (is_registered(p))
			break;
		unmap(p);
	}
	pthread_mutex_unlock(&idle_lock);
	return p;
}

static int register_pages(struct gdri_cuda_pages *p)
{
	const unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct gdri_cuda_scope s;
	CUdeviceptr addr;
	CUcontext context;
	CUdevice dev;
	int rc = gdri_cuda_find_device(p->device, &dev);

	if (!rc)
		rc = gdri_cuda_enter_primary(&s, dev, &context);
	if (rc)
		return rc;
	rc = GDRI_CU(cuMemHostRegister_v2, p->host, p->size, flags);
	if (!rc) {
		rc = GDRI_CU(cuMemHostGetDevicePointer_v2, &addr, p->host, 0);
		if (rc)
			gdri_cu.cuMemHostUnregister(p->host);
	}
	gdri_cuda_leave(&s);
	if (rc)
		return rc;
	p->context = context;
	p->addr = addr;
	return 0;
}

int gdri_cuda_take_pages(int device, size_t size, struct gdri_cuda_pages **out)
{
	struct gdri_cuda_pages *p;
	int rc;

	size = (size + 4095) & ~(size_t)4095;
	p = take_idle(device, size);
	if (p) {
		memset(p->host, 0, size);
		*out = p;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return gdri_fail(ENOMEM, "no memory for pages of the host");
	p->device = device;
	p->size = size;
	/* MAP_SHARED: copy-on-write after a fork must never move pages that the GPU writes. */
	p->host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p->host == MAP_FAILED) {
		free(p);
		return gdri_fail(ENOMEM, "no memory for pages of the host");
	}
	madvise(p->host, size, MADV_DONTFORK);
	rc = register_pages(p);
	if (rc)
		unmap(p);
	else
		*out = p;
	return rc;
}

void gdri_cuda_give_pages(struct gdri_cuda_pages *p)
{
	pthread_mutex_lock(&idle_lock);
	p->next = idle;
	idle = p;
	pthread_mutex_unlock(&idle_lock);
}

static void after_fork(void)
{
	pthread_mutex_init(&idle_lock, NULL);
	idle = NULL; /* MADV_DONTFORK: the child does not have the pages */
}

GDRI_IN_CHILD(after_fork);
