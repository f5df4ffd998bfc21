/* SPDX-License-Identifier: MIT */
/*
 * libcuda as a client of the resource manager, if that stand-in is loaded (rm/gdrsim_rm.h): its
 * files, a device for each GPU, the memory objects behind device memory, and the export call that
 * makes a dma-buf of them. Objects are made when first exported, since nothing can see them before.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rm/abi.h"
#include "rm/gdrsim_rm.h"
#include "sim.h"

#define ESCAPE(nr, size) _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, nr, size)

#define HOOKS(X)          \
	X(driver)         \
	X(driver_version) \
	X(export_layout)  \
	X(memory_new)     \
	X(memory_object)  \
	X(memory_end)     \
	X(sweep)

static struct {
#define X(name) __typeof__(&gdrsim_rm_##name) name;
	HOOKS(X)
#undef X
} hooks;

static bool running;
static int ctl;
static nv_handle client;
static struct {
	int fd;
	nv_handle device;
} gpus[SIM_MAX_GPUS];

static bool find_hooks(void)
{
#define X(name)                                                                       \
	hooks.name = (__typeof__(hooks.name))dlsym(RTLD_DEFAULT, "gdrsim_rm_" #name); \
	if (!hooks.name)                                                              \
		return false;
	HOOKS(X)
#undef X
	return true;
}

/* Uses the form of one size in every version; before 535 its status is at another offset. */
static bool alloc(nv_handle parent, enum nv_class class, void *params, nv_handle *handle)
{
	struct nv_alloc_21 a = { .a = { client, parent, 0, class, (uintptr_t)params } };

	if (sim_escape(ctl, ESCAPE(NV_ESC_RM_ALLOC, sizeof(a)), &a))
		return false;
	*handle = a.a.new;
	return !(hooks.driver_version() >= 535 ? a.status : a.params_size);
}

static bool instance_of(uint32_t gpu_id, uint32_t *instance)
{
	struct nv_id_info_v2 info = { .gpu_id = gpu_id };
	struct nv_control c = { .client = client,
				.object = client,
				.cmd = NV_CMD_GPU_GET_ID_INFO_V2,
				.params = (uintptr_t)&info,
				.params_size = sizeof(info) };

	if (sim_escape(ctl, ESCAPE(NV_ESC_RM_CONTROL, sizeof(c)), &c) || c.status)
		return false;
	*instance = info.device_instance;
	return true;
}

static bool start_gpu(int i, const struct nv_card_info *card)
{
	struct nv_device_alloc p = { 0 };
	struct nv_register_fd reg = { ctl };
	char path[32];

	snprintf(path, sizeof(path), "/dev/nvidia%u", card->minor_number);
	gpus[i].fd = open(path, O_RDWR | O_CLOEXEC);
	return gpus[i].fd >= 0 &&
	       !sim_escape(gpus[i].fd, ESCAPE(NV_ESC_REGISTER_FD, sizeof(reg)), &reg) &&
	       instance_of(card->gpu_id, &p.device_id) &&
	       alloc(client, NV01_DEVICE_0, &p, &gpus[i].device);
}

static bool start_gpus(void)
{
	struct nv_card_info cards[SIM_MAX_GPUS];

	memset(cards, 0, sizeof(cards));
	if (sim_escape(ctl, ESCAPE(NV_ESC_CARD_INFO, sizeof(cards)), cards))
		return false;
	for (int i = 0; i < sim.n_gpus; i++) {
		int at = 0;

		while (at < SIM_MAX_GPUS &&
		       (!cards[at].valid || cards[at].bus != sim.gpu[i].pci_bus))
			at++;
		if (at == SIM_MAX_GPUS || !start_gpu(i, &cards[at]))
			return false;
	}
	return true;
}

static void stop(void)
{
	for (int i = 0; i < SIM_MAX_GPUS; i++)
		if (gpus[i].fd > 0)
			close(gpus[i].fd);
	if (ctl >= 0)
		close(ctl);
}

void sim_rm_start(void)
{
	if (!find_hooks())
		return;
	hooks.driver(true);
	ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	running = ctl >= 0 && alloc(0, NV01_ROOT_CLIENT, NULL, &client) && start_gpus();
	if (!running)
		stop();
	hooks.driver(false);
}

bool sim_rm_running(void)
{
	return running;
}

void sim_rm_sweep(void)
{
	if (running)
		hooks.sweep();
}

void sim_rm_own(bool on)
{
	if (hooks.driver)
		hooks.driver(on);
}

/* Called by the resource manager when freed memory has no user left. */
static void release(void *arg)
{
	pthread_mutex_lock(&sim.lock);
	sim_obj_destroy(arg);
	pthread_mutex_unlock(&sim.lock);
}

/* Makes objects of `window` bytes that cover the memory. */
static bool make_objects(struct sim_obj *obj, size_t window)
{
	unsigned int n = (unsigned int)((obj->size + window - 1) / window);

	obj->rm_handles = calloc(n, sizeof(*obj->rm_handles));
	if (!obj->rm_handles)
		return false;
	obj->rm_window = window;
	obj->rm_id = hooks.memory_new(obj->dev, obj->fd, obj->size, release, obj);
	for (unsigned int i = 0; i < n && obj->rm_id > 0; i++) {
		size_t offset = i * window;
		size_t len = obj->size - offset < window ? obj->size - offset : window;

		obj->rm_handles[i] =
			hooks.memory_object(obj->rm_id, client, gpus[obj->dev].device, offset, len);
		if (!obj->rm_handles[i])
			return false;
	}
	return obj->rm_id > 0;
}

bool sim_rm_memory_end(struct sim_obj *obj)
{
	return obj->rm_id <= 0 || hooks.memory_end(obj->rm_id, client);
}

/* An object, and the part of it, for the export call. */
struct part {
	nv_handle handle;
	uint64_t offset, size;
	uint64_t whole; /* size of the object */
};

/* The number of parts behind a piece; 0: out of memory. */
static unsigned int parts_of(const struct sim_piece *piece, size_t window, struct part *out)
{
	size_t at = piece->offset, end = piece->offset + piece->size;
	unsigned int n = 0;

	if (!piece->obj->rm_handles && !make_objects(piece->obj, window))
		return 0;
	window = piece->obj->rm_window;
	while (at < end) {
		size_t in = at % window;
		size_t len = window - in < end - at ? window - in : end - at;

		size_t left = piece->obj->size - (at - in);

		out[n++] = (struct part){ piece->obj->rm_handles[at / window], in, len,
					  left < window ? left : window };
		at += len;
	}
	return n;
}

/*
 * A fault of the real libcuda with memory of pools: if a range begins inside an object and does not
 * reach the end of its last one, the offset is subtracted from the length instead of from the
 * object's, and the next objects continue from there (H100, driver 580.159.04, 2026-11-22: 64 KiB
 * at 0x10000 were passed as 0 bytes, at 0x900000 as -0x8f0000; 128 KiB from 0x1ff0000 on over two
 * objects of 0x2000000 as -0x1fd0000 bytes and 0x3fd0000 at -0x1fe0000).
 */
static void missize(struct part *parts, uint32_t n, uint64_t size)
{
	const struct part *last = &parts[n - 1];
	uint64_t at = parts[0].offset, base = 0;

	if (last->offset + last->size == last->whole)
		return;
	for (uint32_t i = 0; i < n; i++) {
		struct part *p = &parts[i];

		p->offset = at - base;
		if (p->offset)
			p->size = size - p->offset;
		else
			p->size = size < p->whole ? size : p->whole;
		at += p->size;
		size -= p->size;
		base += p->whole;
	}
}

static void fill(uint8_t *arg, const struct gdrsim_rm_export_layout *l, const struct part *parts,
		 uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n && i < NV_DMABUF_EXPORT_MAX_HANDLES; i++) {
		memcpy(arg + l->handles + i * 4, &parts[first + i].handle, 4);
		memcpy(arg + l->offsets + i * 8, &parts[first + i].offset, 8);
		memcpy(arg + l->sizes + i * 8, &parts[first + i].size, 8);
	}
}

/* One call for as many as fit; the later ones continue what the first made. */
static CUresult call(int dev, const struct part *parts, struct nv_export_dmabuf *head, bool pcie)
{
	struct gdrsim_rm_export_layout l;
	CUresult r = CUDA_ERROR_UNKNOWN;
	uint32_t status;
	uint8_t *arg;

	hooks.export_layout(&l);
	arg = calloc(1, l.size);
	if (!arg)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(arg, head, sizeof(*head));
	if (l.mapping_type)
		arg[32] = pcie ? NV_DMABUF_EXPORT_MAPPING_TYPE_FORCE_PCIE : 0;
	fill(arg, &l, parts, head->index, head->num_objects);
	if (sim_escape(gpus[dev].fd, ESCAPE(NV_ESC_EXPORT_TO_DMABUF_FD, l.size), arg)) {
		r = CUDA_ERROR_OPERATING_SYSTEM;
	} else {
		memcpy(&status, arg + l.status, sizeof(status));
		memcpy(&head->fd, arg, sizeof(head->fd));
		if (status == NV_OK)
			r = CUDA_SUCCESS;
		else if (status == NV_ERR_NOT_SUPPORTED)
			r = CUDA_ERROR_NOT_SUPPORTED;
		else if (status == NV_ERR_INVALID_ARGUMENT)
			r = CUDA_ERROR_INVALID_VALUE; /* H100, driver 580, 2026-11-22 */
	}
	free(arg);
	return r;
}

static CUresult export_parts(int dev, const struct part *parts, uint32_t n, uint64_t size,
			     bool pcie, int *fd)
{
	long most = sim_env("GDRSIM_RM_EXPORT_MAX", NV_DMABUF_EXPORT_MAX_HANDLES);
	struct nv_export_dmabuf head = {
		.fd = -1, .client = client, .total_objects = n, .total_size = size
	};
	CUresult r = CUDA_SUCCESS;

	while (r == CUDA_SUCCESS && head.index < n) {
		head.num_objects =
			n - head.index < (uint32_t)most ? n - head.index : (uint32_t)most;
		r = call(dev, parts, &head, pcie);
		head.index += head.num_objects;
	}
	if (r == CUDA_SUCCESS)
		*fd = head.fd;
	else if (head.fd >= 0)
		close(head.fd);
	return r;
}

CUresult sim_rm_export(const struct sim_piece *pieces, unsigned int n, size_t window, bool pool,
		       bool pcie, int *fd)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
	struct part *parts;
	uint32_t most = 0, made = 0;
	uint64_t size = 0;

	for (unsigned int i = 0; i < n; i++)
		most += (uint32_t)(pieces[i].size / SIM_PAGE + 2);
	parts = malloc(most * sizeof(*parts));
	if (!parts)
		return r;
	hooks.driver(true);
	for (unsigned int i = 0; i < n; i++) {
		unsigned int some =
			parts_of(&pieces[i], window ? window : pieces[i].obj->size, parts + made);

		if (!some)
			goto out;
		made += some;
		size += pieces[i].size;
	}
	if (pool)
		missize(parts, made, size);
	r = export_parts(pieces[0].obj->dev, parts, made, size, pcie, fd);
out:
	hooks.driver(false);
	free(parts);
	return r;
}

/* Gives the program's dma-buf the number of the resource manager's. */
void sim_rm_replace(int exported, int *fd)
{
	hooks.driver(true);
	if (dup3(*fd, exported, O_CLOEXEC) == exported) {
		close(*fd);
		*fd = exported;
	} else {
		close(exported);
	}
	hooks.driver(false);
}
