/* SPDX-License-Identifier: MIT */
/*
 * Physical memory of the simulated GPUs: reference-counted objects, each a memfd with one mapping
 * for the stand-in's own use, counted against the GPU's size. It knows nothing of addresses.
 */
#define _GNU_SOURCE
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
	void *cpu;

	if (!obj)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cpu = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (cpu == MAP_FAILED) {
		free(obj);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	obj->fd = fd;
	obj->size = size;
	obj->cpu = cpu;
	obj->dev = dev;
	obj->refs = 1;
	obj->next = objects;
	objects = obj;
	*out = obj;
	return CUDA_SUCCESS;
}

static CUresult object_new(int dev, size_t size, unsigned int handle_types, struct sim_obj **out)
{
	struct sim_memfd info = { .device = dev, .handle_types = handle_types, .size = size };
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
	return object_new(dev, size, 0, obj);
}

static void make_vmm(struct sim_obj *obj, const CUmemAllocationProp *prop)
{
	obj->prop = *prop;
	obj->handle = next_handle++;
	obj->handle_refs = 1;
}

CUresult sim_obj_create_vmm(size_t size, const CUmemAllocationProp *prop, struct sim_obj **obj)
{
	CUresult r = object_new(prop->location.id, size, prop->requestedHandleTypes, obj);

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

void sim_obj_destroy(struct sim_obj *obj)
{
	struct sim_obj **link = &objects;

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

struct sim_obj *sim_obj_by_fd(int fd)
{
	struct stat st, own;
	struct sim_obj *obj;

	if (fstat(fd, &st))
		return NULL;
	for (obj = objects; obj; obj = obj->next)
		if (obj->refs && !fstat(obj->fd, &own) && own.st_dev == st.st_dev &&
		    own.st_ino == st.st_ino)
			return obj;
	return NULL;
}

struct sim_obj *sim_obj_by_handle(CUmemGenericAllocationHandle handle)
{
	for (struct sim_obj *obj = objects; obj; obj = obj->next)
		if (handle && obj->handle == handle && obj->handle_refs)
			return obj;
	return NULL;
}
