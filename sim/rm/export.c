/* SPDX-License-Identifier: MIT */
/*
 * Memory that leaves a client as a dma-buf, and memory that comes in by a descriptor that libcuda
 * exported. libcuda's stand-in replaces the descriptor made here by a dma-buf of its own.
 *
 * kernel-open/nvidia/nv-dmabuf.c (nv_dma_buf_export()); src/nvidia/arch/nvalloc/unix/src/osapi.c
 * (RmDmabufVerifyMemHandle()), os.c (cliresCtrlCmdOsUnix*_IMPL()), rmobjexportimport.c.
 */
#include <fcntl.h>
#include <string.h>

#include "node/node.h"
#include "rm/rm.h"

/* The call's structure, independent of its layout. */
struct call {
	struct nv_export_dmabuf head;
	uint8_t mapping_type, allow_mmap;
	uint32_t handles[NV_DMABUF_EXPORT_MAX_HANDLES];
	uint64_t offsets[NV_DMABUF_EXPORT_MAX_HANDLES], sizes[NV_DMABUF_EXPORT_MAX_HANDLES];
};

static void read_call(const void *arg, struct call *c)
{
	const uint8_t *bytes = arg;
	struct gdrsim_rm_export_layout l;

	gdrsim_rm_export_layout(&l);
	memset(c, 0, sizeof(*c));
	memcpy(&c->head, bytes, sizeof(c->head));
	if (l.mapping_type)
		c->mapping_type = bytes[32];
	if (l.allow_mmap)
		c->allow_mmap = bytes[33];
	memcpy(c->handles, bytes + l.handles, sizeof(c->handles));
	memcpy(c->offsets, bytes + l.offsets, sizeof(c->offsets));
	memcpy(c->sizes, bytes + l.sizes, sizeof(c->sizes));
}

static bool is_free(int i)
{
	return !rm->exports[i].file;
}

static int held_at(int file, uint32_t index)
{
	for (int i = 1; i < rm->n_exports.top; i++)
		if (rm->exports[i].file == file && rm->exports[i].index == index)
			return i;
	return 0;
}

static void drop(int i)
{
	struct rm_export *e = &rm->exports[i];
	struct rm_file *f = &rm->files[e->file];

	f->attached_size -= e->size;
	f->num_objects--;
	rm_memory_put(e->memory);
	e->file = 0;
	rm_slot_free(&rm->n_exports, i);
}

void rm_export_drop(int file)
{
	for (int i = 1; i < rm->n_exports.top; i++)
		if (rm->exports[i].file == file)
			drop(i);
}

/* The client need not be the caller's: the kernel's own client duplicates the object. */
static enum nv_status verify(int gpu, nv_handle client, nv_handle memory, uint64_t offset,
			     uint64_t size, int *found)
{
	const struct rm_client *c = rm_client_find(client);
	const struct rm_object *o;

	if (!c)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (memory == client)
		return NV_ERR_INVALID_OBJECT;
	*found = rm_object_find(rm_client_index(c), memory);
	if (!*found)
		return NV_ERR_OBJECT_NOT_FOUND;
	o = &rm->objects[*found];
	if (!o->memory)
		return NV_ERR_INVALID_OBJECT;
	if (o->gpu != gpu || rm->memories[o->memory].gpu != gpu)
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (offset % RM_PAGE || size % RM_PAGE)
		return NV_ERR_INVALID_ARGUMENT;
	if (!size || size > o->length || offset > o->length - size)
		return NV_ERR_INVALID_ARGUMENT;
	return NV_OK;
}

static enum nv_status hold_one(int file, int gpu, const struct call *c, uint32_t i)
{
	struct rm_file *f = &rm->files[file];
	uint32_t index = c->head.index + i;
	enum nv_status status;
	int object, at;

	if (held_at(file, index))
		return NV_ERR_IN_USE;
	if (c->sizes[i] > f->total_size - f->attached_size)
		return NV_ERR_INVALID_ARGUMENT;
	status = verify(gpu, c->head.client, c->handles[i], c->offsets[i], c->sizes[i], &object);
	if (status != NV_OK)
		return status;
	at = rm_slot(&rm->n_exports, RM_EXPORTS, is_free);
	if (!at)
		return NV_ERR_NO_MEMORY;
	rm->exports[at] =
		(struct rm_export){ file, index, rm->objects[object].memory, c->sizes[i] };
	rm_memory_get(rm->objects[object].memory);
	f->attached_size += c->sizes[i];
	f->num_objects++;
	return NV_OK;
}

/* nv_dma_buf_dup_mem_handles(): all of the call, or none. */
static enum nv_status hold(int file, int gpu, const struct call *c)
{
	const struct rm_file *f = &rm->files[file];
	enum nv_status status = NV_OK;
	uint32_t n = 0;

	while (n < c->head.num_objects && status == NV_OK) {
		status = hold_one(file, gpu, c, n);
		n += status == NV_OK;
	}
	if (status == NV_OK && f->num_objects == f->total_objects &&
	    f->attached_size != f->total_size)
		status = NV_ERR_INVALID_ARGUMENT;
	while (status != NV_OK && n--)
		drop(held_at(file, c->head.index + n));
	return status;
}

static enum nv_status create(int gpu, struct call *c)
{
	enum nv_status status;
	int fd, file;

	if (!rm_flag("GDRSIM_DMABUF", true) || !rm_flag("GDRSIM_RM_OPEN", true))
		return NV_ERR_NOT_SUPPORTED;
	if (c->head.index > c->head.total_objects - c->head.num_objects)
		return NV_ERR_INVALID_ARGUMENT;
	if (c->mapping_type == NV_DMABUF_EXPORT_MAPPING_TYPE_FORCE_PCIE &&
	    !rm_flag("GDRSIM_DMABUF_PCIE", false))
		return NV_ERR_NOT_SUPPORTED;
	if (rm_file_new(RM_DMABUF, gpu, O_RDWR | O_CLOEXEC, &fd))
		return NV_ERR_OPERATING_SYSTEM;
	file = rm_file_of(fd);
	rm->files[file].total_objects = c->head.total_objects;
	rm->files[file].total_size = c->head.total_size;
	rm->files[file].mapping_type = c->mapping_type;
	rm->files[file].allow_mmap = c->allow_mmap;
	status = hold(file, gpu, c);
	if (status != NV_OK) {
		libc_calls()->close(fd);
		rm_file_check(file);
		return status;
	}
	c->head.fd = fd;
	return NV_OK;
}

static enum nv_status reuse(int gpu, const struct call *c)
{
	int file = rm_file_of(c->head.fd);
	const struct rm_file *f = &rm->files[file];

	if (!file || f->kind != RM_DMABUF)
		return fcntl(c->head.fd, F_GETFD) < 0 ? NV_ERR_OPERATING_SYSTEM
						      : NV_ERR_INVALID_ARGUMENT;
	if (f->total_objects < c->head.num_objects ||
	    c->head.index > f->total_objects - c->head.num_objects ||
	    c->mapping_type != f->mapping_type || c->allow_mmap != f->allow_mmap)
		return NV_ERR_INVALID_ARGUMENT;
	return hold(file, gpu, c);
}

enum nv_status rm_export(int gpu, void *arg)
{
	enum nv_status status;
	struct call c;

	read_call(arg, &c);
	if (!c.head.total_size || !c.head.num_objects || !c.head.total_objects ||
	    c.head.num_objects > NV_DMABUF_EXPORT_MAX_HANDLES ||
	    c.head.num_objects > c.head.total_objects)
		return NV_ERR_INVALID_ARGUMENT;
	if (c.mapping_type > NV_DMABUF_EXPORT_MAPPING_TYPE_FORCE_PCIE || c.head.fd < -1)
		return NV_ERR_INVALID_ARGUMENT;
	status = c.head.fd == -1 ? create(gpu, &c) : reuse(gpu, &c);
	memcpy(arg, &c.head.fd, sizeof(c.head.fd));
	return status;
}

/* For a descriptor that libcuda exported (machine.h). */
enum nv_status rm_export_info(int fd, uint32_t *instance)
{
	int foreign = fd < 0 || rm_file_of(fd) ? 0 : rm_memory_of_foreign(fd, &(size_t){ 0 });
	struct rm_gpu gpu;

	if (!foreign)
		return NV_ERR_INVALID_PARAMETER;
	rm_gpu(rm->memories[foreign].gpu, &gpu);
	*instance = gpu.instance;
	rm_memory_put(foreign);
	return NV_OK;
}

/* Any process may have made the object: the kernel's own client duplicates it. */
enum nv_status rm_import_from_fd(int client, struct nv_import_from_fd *p)
{
	enum nv_status status;
	int parent, memory;
	size_t size;

	if (p->object.type != NV_EXPORT_OBJECT_TYPE_RM || p->fd == -1)
		return NV_ERR_INVALID_PARAMETER;
	memory = rm_file_of(p->fd) ? 0 : rm_memory_of_foreign(p->fd, &size);
	if (!memory)
		return NV_ERR_INVALID_PARAMETER;
	parent = rm_object_find(client, p->object.parent);
	if (parent)
		status = rm_memory_object(client, parent, &p->object.object, memory, 0, size);
	else
		status = p->object.parent == rm->clients[client].handle
				 ? NV_ERR_INVALID_OBJECT_PARENT
				 : NV_ERR_OBJECT_NOT_FOUND;
	rm_memory_put(memory);
	return status;
}
