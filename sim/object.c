/* SPDX-License-Identifier: MIT */
/*
 * Physical memory of the simulated GPUs: reference-counted objects, each a memfd with one mapping
 * for the stand-in's own use, counted against the GPU's size.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

static struct sim_obj *objects;
static CUmemGenericAllocationHandle next_handle = 0x1000;

/* Takes over fd on success. */
static CUresult object_of(int fd, int dev, size_t size, struct sim_obj **out)
{
	struct sim_obj *obj = calloc(1, sizeof(*obj));
	struct stat st;
	void *cpu;

	if (!obj || fstat(fd, &st)) {
		free(obj);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	cpu = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (cpu == MAP_FAILED) {
		free(obj);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	obj->fd = fd;
	obj->inode = st.st_ino;
	obj->dev_no = st.st_dev;
	obj->size = size;
	obj->cpu = cpu;
	obj->dev = dev;
	obj->refs = 1;
	obj->next = objects;
	objects = obj;
	*out = obj;
	return CUDA_SUCCESS;
}

static CUresult object_new(int dev, size_t size, const CUmemAllocationProp *prop,
			   struct sim_obj **out)
{
	struct sim_memfd info = { .device = dev,
				  .handle_types = prop->requestedHandleTypes,
				  .rdma = prop->allocFlags.gpuDirectRDMACapable,
				  .size = size };
	CUresult r;
	int fd;

	sim_dmabuf_sweep();
	if (size > sim.gpu[dev].mem_bytes - sim.used_bytes[dev])
		return CUDA_ERROR_OUT_OF_MEMORY;
	fd = sim_memfd_create(&info);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = object_of(fd, dev, size, out);
	if (r != CUDA_SUCCESS) {
		close(fd);
		return r;
	}
	(*out)->counted = true;
	sim.used_bytes[dev] += size;
	return CUDA_SUCCESS;
}

CUresult sim_obj_create(int dev, size_t size, struct sim_obj **obj)
{
	return object_new(dev, size, &(CUmemAllocationProp){ .type = 0 }, obj);
}

static void make_vmm(struct sim_obj *obj, const CUmemAllocationProp *prop)
{
	obj->prop = *prop;
	obj->handle = next_handle++;
	obj->handle_refs = 1;
}

CUresult sim_obj_create_vmm(size_t size, const CUmemAllocationProp *prop, struct sim_obj **obj)
{
	CUresult r = object_new(prop->location.id, size, prop, obj);

	if (r == CUDA_SUCCESS)
		make_vmm(*obj, prop);
	return r;
}

/* Memory that is counted where it was created. Takes over fd on success. */
CUresult sim_obj_adopt(int fd, size_t size, const CUmemAllocationProp *prop, struct sim_obj **obj)
{
	CUresult r = object_of(fd, prop->location.id, size, obj);

	if (r == CUDA_SUCCESS)
		make_vmm(*obj, prop);
	return r;
}

void sim_obj_get(struct sim_obj *obj)
{
	obj->refs++;
}

void sim_obj_put(struct sim_obj *obj)
{
	if (!--obj->refs && sim_rm_memory_end(obj))
		sim_obj_destroy(obj);
}

/*
 * The lock of a dma-buf's description, which lives as long as descriptors and maps of it, in any
 * process.
 */
static struct flock export_lock(short type)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_len = 1 };
}

int sim_obj_export(const struct sim_obj *obj, int (*opener)(const char *path, int flags, ...))
{
	struct flock lock = export_lock(F_RDLCK);
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", obj->fd);
	fd = opener(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock))
		abort();
	return fd;
}

static bool is_exported(const struct sim_obj *obj)
{
	struct flock lock = export_lock(F_WRLCK);

	return !fcntl(obj->fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

const struct sim_obj *sim_obj_exported(unsigned long inode)
{
	const struct sim_obj *obj = objects;

	while (obj && obj->inode != inode)
		obj = obj->next;
	return obj && is_exported(obj) ? obj : NULL;
}

/* A dma-buf keeps the memory beyond its last reference, until a sweep. */
void sim_obj_destroy(struct sim_obj *obj)
{
	struct sim_obj **link = &objects;

	obj->rm_id = 0;
	obj->orphan = is_exported(obj);
	if (obj->orphan)
		return;
	while (*link != obj)
		link = &(*link)->next;
	*link = obj->next;
	if (obj->counted)
		sim.used_bytes[obj->dev] -= obj->size;
	sim_rm_own(true);
	munmap(obj->cpu, obj->size);
	sim_rm_own(false);
	close(obj->fd);
	free(obj->rm_handles);
	free(obj);
}

void sim_obj_sweep(void)
{
	for (struct sim_obj *obj = objects, *next; obj; obj = next) {
		next = obj->next;
		if (obj->orphan && !obj->refs)
			sim_obj_destroy(obj);
	}
}

struct sim_obj *sim_obj_by_fd(int fd)
{
	struct sim_obj *obj = objects;
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	while (obj &&
	       (obj->inode != st.st_ino || obj->dev_no != st.st_dev || !(obj->refs || obj->orphan)))
		obj = obj->next;
	return obj;
}

struct sim_obj *sim_obj_by_handle(CUmemGenericAllocationHandle handle)
{
	for (struct sim_obj *obj = objects; obj; obj = obj->next)
		if (handle && obj->handle == handle && obj->handle_refs)
			return obj;
	return NULL;
}
