/* SPDX-License-Identifier: MIT */
/*
 * Clients and their objects: allocated, found by handle, duplicated, freed with all that is below
 * them.
 *
 * src/nvidia/src: libraries/resserv/src/rs_server.c (serverAllocResource(), serverCopyResource(),
 * serverFreeResourceTree()), rs_client.c, rs_access_map.c; kernel/rmapi/alloc_free.c, client.c,
 * client_resource.c (cliresShareCallback_IMPL()), sharing.c; kernel/gpu/device.c;
 * kernel/mem_mgr/mem.c (memCopyConstruct_IMPL()).
 */
#include <string.h>
#include <unistd.h>

#include "rm/rm.h"

enum { CLIENT_BASE = 0xc1d00000, OBJECT_BASE = 0xcaf00000 };

int rm_client_index(const struct rm_client *client)
{
	return (int)(client - rm->clients);
}

struct rm_client *rm_client_find(nv_handle handle)
{
	for (int i = 1; handle && i < rm->n_clients.top; i++)
		if (rm->clients[i].handle == handle)
			return &rm->clients[i];
	return NULL;
}

int rm_object_find(int client, nv_handle handle)
{
	for (int i = 1; i < rm->n_objects.top; i++)
		if (rm->objects[i].client == client && rm->objects[i].handle == handle)
			return i;
	return 0;
}

/*
 * rmclientValidate_IMPL(): only the file that made a client may use it, from any process that has
 * the file open (client handles are validated strictly by default, g_system_nvoc.c).
 */
enum nv_status rm_client_validate(const struct rm_client *client, int file)
{
	int os_info = rm->files[file].ctl ? rm->files[file].ctl : file;

	return client->file == os_info ? NV_OK : NV_ERR_INVALID_CLIENT;
}

static bool client_free(int i)
{
	return !rm->clients[i].handle;
}

static bool object_free(int i)
{
	return !rm->objects[i].client;
}

static enum nv_status client_new(int file, struct nv_alloc *a)
{
	nv_handle handle = a->root;
	struct rm_client *c;
	int at;

	if (handle && rm_client_find(handle))
		return NV_ERR_INSERT_DUPLICATE_NAME;
	at = rm_slot(&rm->n_clients, RM_CLIENTS, client_free);
	if (!at)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	while (!handle) {
		handle = CLIENT_BASE | (rm->next_client++ & 0xfffff);
		if (rm_client_find(handle))
			handle = 0;
	}
	c = &rm->clients[at];
	*c = (struct rm_client){ .handle = handle, .file = file, .pid = getpid() };
	c->driver = rm->files[file].driver;
	a->new = handle;
	if (a->params)
		memcpy((void *)(uintptr_t)a->params, &handle, sizeof(handle));
	return NV_OK;
}

/* clientAssignResourceHandle_IMPL() */
static enum nv_status assign_handle(struct rm_client *c, nv_handle *handle)
{
	int at = rm_client_index(c);

	if (*handle == c->handle)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (*handle)
		return rm_object_find(at, *handle) ? NV_ERR_INSERT_DUPLICATE_NAME : NV_OK;
	do {
		*handle = OBJECT_BASE | (c->next_object++ & 0xfffff);
	} while (rm_object_find(at, *handle));
	return NV_OK;
}

enum nv_status rm_object_new(int client, int parent, nv_handle *handle, enum nv_class class,
			     int gpu, int *object)
{
	enum nv_status status = assign_handle(&rm->clients[client], handle);
	int at;

	if (status != NV_OK)
		return status;
	at = rm_slot(&rm->n_objects, RM_OBJECTS, object_free);
	if (!at)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	rm->objects[at] = (struct rm_object){
		.client = client, .handle = *handle, .parent = parent, .class = class, .gpu = gpu
	};
	*object = at;
	return NV_OK;
}

enum nv_status rm_memory_object(int client, int parent, nv_handle *handle, int memory,
				uint64_t offset, uint64_t length)
{
	enum nv_status status;
	int at;

	/* memCopyConstruct_IMPL(): only children of a device */
	if (rm->objects[parent].class != NV01_DEVICE_0)
		return NV_ERR_INVALID_OBJECT_PARENT;
	/* No check of the device: nor has vidmemCheckCopyPermissions_IMPL() one. */
	status = rm_object_new(client, parent, handle, NV01_MEMORY_LOCAL_USER,
			       rm->objects[parent].gpu, &at);
	if (status != NV_OK)
		return status;
	rm->objects[at].memory = memory;
	rm->objects[at].offset = offset;
	rm->objects[at].length = length;
	rm_memory_get(memory);
	return NV_OK;
}

static enum nv_status device_new(struct rm_client *c, struct nv_alloc *a)
{
	struct nv_device_alloc p;
	int gpu, at;

	if (!a->params)
		return NV_ERR_INVALID_ARGUMENT;
	memcpy(&p, (const void *)(uintptr_t)a->params, sizeof(p));
	if (p.device_id >= NV_MAX_DEVICES)
		return NV_ERR_INVALID_ARGUMENT;
	gpu = rm_gpu_by_instance(p.device_id);
	if (gpu < 0)
		return NV_ERR_INVALID_STATE;
	if (!rm_gpu_is_open(gpu))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	return rm_object_new(rm_client_index(c), 0, &a->new, NV01_DEVICE_0, gpu, &at);
}

static enum nv_status subdevice_new(struct rm_client *c, int parent, struct nv_alloc *a)
{
	struct nv_subdevice_alloc p = { 0 };
	int at;

	if (a->params)
		memcpy(&p, (const void *)(uintptr_t)a->params, sizeof(p));
	if (p.subdevice_id)
		return NV_ERR_INVALID_CLASS;
	return rm_object_new(rm_client_index(c), parent, &a->new, NV20_SUBDEVICE_0,
			     rm->objects[parent].gpu, &at);
}

enum nv_status rm_alloc(int file, struct nv_alloc *a)
{
	struct rm_client *c;
	enum nv_status status;
	int parent = 0;

	switch (a->class) {
	case NV01_ROOT_CLIENT:
		return client_new(file, a);
	case NV01_MEMORY_LOCAL_USER: /* its parameters are required */
		if (!a->params)
			return NV_ERR_INVALID_ARGUMENT;
		break;
	case NV01_DEVICE_0:
	case NV20_SUBDEVICE_0:
		break;
	default:
		return NV_ERR_INVALID_CLASS;
	}
	c = rm_client_find(a->root);
	if (!c)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	status = rm_client_validate(c, file);
	if (status != NV_OK)
		return status;
	if (a->new == a->root)
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (a->parent != a->root) {
		parent = rm_object_find(rm_client_index(c), a->parent);
		if (!parent)
			return NV_ERR_OBJECT_NOT_FOUND;
	}
	if (a->class == NV01_DEVICE_0)
		return parent ? NV_ERR_INVALID_OBJECT_PARENT : device_new(c, a);
	if (!parent || rm->objects[parent].class != NV01_DEVICE_0)
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (a->class == NV20_SUBDEVICE_0)
		return subdevice_new(c, parent, a);
	return NV_ERR_NOT_SUPPORTED; /* memory is libcuda's to make here */
}

/* The default policy, RS_SHARE_TYPE_PID: clients of one process. */
static bool may_dup(const struct rm_client *dst, const struct rm_client *src)
{
	if (dst == src)
		return true;
	return dst->pid == src->pid && rm_flag("GDRSIM_RM_SHARE", true);
}

enum nv_status rm_dup(int file, struct nv_dup *d)
{
	const struct rm_client *src = rm_client_find(d->client_src),
			       *dst = rm_client_find(d->client);
	enum nv_status status;
	int from, parent = 0;

	if (!src || !dst)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	status = rm_client_validate(dst, file);
	if (status != NV_OK)
		return status;
	from = rm_object_find(rm_client_index(src), d->object_src);
	if (!from && d->object_src != d->client_src)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (d->parent != d->client) {
		parent = rm_object_find(rm_client_index(dst), d->parent);
		if (!parent)
			return NV_ERR_OBJECT_NOT_FOUND;
	}
	if (!from || !rm->objects[from].memory) /* resCanCopy() */
		return NV_ERR_INVALID_ARGUMENT;
	if (d->object && d->object == d->client)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (d->object && rm_object_find(rm_client_index(dst), d->object))
		return NV_ERR_INSERT_DUPLICATE_NAME;
	if (!may_dup(dst, src))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (!parent)
		return NV_ERR_INVALID_OBJECT_PARENT;
	return rm_memory_object(rm_client_index(dst), parent, &d->object, rm->objects[from].memory,
				rm->objects[from].offset, rm->objects[from].length);
}

/* Children first; maps of an object, and maps in its context, go with it. */
void rm_object_free(int object)
{
	struct rm_object *o = &rm->objects[object];

	for (int i = 1; i < rm->n_objects.top; i++)
		if (rm->objects[i].client && rm->objects[i].parent == object)
			rm_object_free(i);
	for (int i = 1; i < rm->n_maps.top; i++)
		if (rm->maps[i].object &&
		    (rm->maps[i].object == object || rm->maps[i].device == object))
			rm_map_end(i);
	if (o->memory)
		rm_memory_put(o->memory);
	o->client = 0;
	rm_slot_free(&rm->n_objects, object);
}

void rm_client_free(int client)
{
	for (int i = 1; i < rm->n_objects.top; i++)
		if (rm->objects[i].client == client)
			rm_object_free(i);
	rm->clients[client].handle = 0;
	rm_slot_free(&rm->n_clients, client);
}

void rm_free_of_file(int file)
{
	for (int i = 1; i < rm->n_clients.top; i++)
		if (rm->clients[i].handle && rm->clients[i].file == file)
			rm_client_free(i);
}

/* An object that does not exist counts as freed (RS_COMPATABILITY_MODE). */
enum nv_status rm_free(int file, const struct nv_free *f)
{
	const struct rm_client *c = rm_client_find(f->root);
	enum nv_status status;
	int object;

	if (!c)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	status = rm_client_validate(c, file);
	if (status != NV_OK)
		return status;
	if (f->old == f->root) {
		rm_client_free(rm_client_index(c));
		return NV_OK;
	}
	object = rm_object_find(rm_client_index(c), f->old);
	if (object)
		rm_object_free(object);
	return NV_OK;
}
