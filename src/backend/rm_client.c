/* SPDX-License-Identifier: MIT */
/* The resource manager's nodes, this process's client, and its GPUs. See rm.h. */
#include <stdio.h>

#include "base/env.h"
#include "base/process.h"
#include "backend/rm.h"

GDRI_MUTEX(lock); /* guards what follows, which is constant once client is not 0 */
static int ctl = -1;
static rm_handle client;
static struct gdri_rm_gpu *gpus;

rm_handle gdri_rm_client(void)
{
	return client;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const struct {
	uint32_t status;
	int err;
	const char *name;
} answers[] = {
	{ RM_GPU_IS_LOST, EIO, "GPU_IS_LOST" },
	{ RM_INSUFFICIENT_RESOURCES, ENOMEM, "INSUFFICIENT_RESOURCES" },
	{ RM_INSUFFICIENT_PERMISSIONS, EACCES, "INSUFFICIENT_PERMISSIONS" },
	{ RM_INVALID_ARGUMENT, EINVAL, "INVALID_ARGUMENT" },
	{ RM_INVALID_CLIENT, EINVAL, "INVALID_CLIENT" },
	{ RM_INVALID_LIMIT, EINVAL, "INVALID_LIMIT" },
	{ RM_INVALID_OBJECT_PARENT, EINVAL, "INVALID_OBJECT_PARENT" },
	{ RM_INVALID_STATE, ENOTSUP, "INVALID_STATE" },
	{ RM_NO_MEMORY, ENOMEM, "NO_MEMORY" },
	{ RM_NOT_SUPPORTED, ENOTSUP, "NOT_SUPPORTED" },
	{ RM_OBJECT_NOT_FOUND, EINVAL, "OBJECT_NOT_FOUND" },
	{ RM_STATE_IN_USE, ENOTSUP, "STATE_IN_USE" },
};

static int fail_status(uint32_t status, const char *what)
{
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (answers[i].status == status)
			return gdri_fail(answers[i].err, "%s: NV_ERR_%s (0x%x)", what,
					 answers[i].name, status);
	return gdri_fail(EIO, "%s: NV_STATUS 0x%x", what, status);
}

static int call(int fd, unsigned long request, void *arg, const uint32_t *status, const char *what)
{
	while (ioctl(fd, request, arg))
		if (errno != EINTR)
			return gdri_fail(errno == ENOMEM ? ENOMEM : ENOTSUP, "%s: %s", what,
					 strerror(errno));
	return status && *status ? fail_status(*status, what) : 0;
}

int gdri_rm_call(unsigned long request, void *arg, const uint32_t *status, const char *what)
{
	return call(ctl, request, arg, status, what);
}

int gdri_rm_control(uint32_t command, void *params, size_t size, const char *what)
{
	struct rm_control arg = { .client = client,
				  .object = client,
				  .command = command,
				  .params = (uintptr_t)params,
				  .params_size = (uint32_t)size };

	return gdri_rm_call(RM_IOC_CONTROL, &arg, &arg.status, what);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

#define NO_NODE "the NVIDIA driver's node is not there"

/* For a pin, whose callers know one errno for every shortage. */
static int open_node(const char *path, int *fd)
{
	int rc = gdri_open_node(path, NO_NODE, fd);

	return gdri_is_short(rc) ? -ENOMEM : rc;
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..." */
unsigned int gdri_rm_driver_major(void)
{
	char text[256], *word, *rest = text;
	unsigned int major, minor;

	gdri_read_line(RM_VERSION_FILE, text, sizeof(text));
	while ((word = strsep(&rest, " \t")))
		if (sscanf(word, "%u.%u", &major, &minor) == 2)
			return major;
	return 0;
}

int gdri_rm_check(void)
{
	unsigned int major = gdri_rm_driver_major();
	int fd, rc = gdri_open_node(RM_CTL_NODE, NO_NODE, &fd);

	if (rc)
		return rc;
	gdri_fork_close(fd);
	if (major && major < RM_FIRST_WITH_EXPORT)
		return gdri_fail(ENODEV, "driver %u is too old (%d is the first)", major,
				 RM_FIRST_WITH_EXPORT);
	return 0;
}

/* ---- client ---------------------------------------------------------------------------------- */

/* Makes an object below parent. A driver of unknown version is taken for a new one. */
static int alloc(rm_handle parent, uint32_t class, void *params, size_t size, const char *what,
		 rm_handle *object)
{
	unsigned int major = gdri_rm_driver_major();
	bool old = major && major < RM_FIRST_WITH_LONG_ALLOC;
	union { /* the same up to the end of `rights` */
		struct rm_alloc now;
		struct rm_alloc_515 old;
	} arg = { .now = { .client = client,
			   .parent = parent,
			   .class = class,
			   .params = (uintptr_t)params,
			   .params_size = old ? 0 : (uint32_t)size } };
	int rc = gdri_rm_call(old ? RM_IOC_ALLOC_515 : RM_IOC_ALLOC, &arg,
			      old ? &arg.old.status_515 : &arg.now.status, what);

	if (!rc && old && arg.old.status_525)
		rc = fail_status(arg.old.status_525, what);
	*object = arg.now.object;
	return rc;
}

static void close_client_locked(void)
{
	gdri_fork_close(ctl); /* which ends the client and all below it */
	ctl = -1;
	client = 0;
}

static int make_client_locked(void)
{
	rm_handle made;
	int rc;

	if (client)
		return 0;
	rc = open_node(RM_CTL_NODE, &ctl);
	if (rc)
		return rc;
	rc = alloc(0, RM_CLASS_CLIENT, NULL, 0, "RM_ALLOC of a client", &made);
	if (rc)
		close_client_locked();
	else
		client = made;
	return rc;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* CUDA's ordinals, RM's instances and the minors differ: the PCI address identifies a GPU. */
static int find_card(const struct gdri_pci_address *pci, struct rm_card_info *card)
{
	struct rm_card_info cards[RM_MAX_CARDS] = { { .valid = 0 } };
	int rc = gdri_rm_call(RM_IOC_CARD_INFO, cards, NULL, "CARD_INFO");

	if (rc)
		return rc;
	for (int i = 0; i < RM_MAX_CARDS; i++) {
		*card = cards[i];
		if (card->valid && card->pci_domain == pci->domain && card->pci_bus == pci->bus &&
		    card->pci_slot == pci->device)
			return 0;
	}
	return gdri_fail(ENODEV, "the driver knows no GPU at %04x:%02x:%02x.0", pci->domain,
			 pci->bus, pci->device);
}

int gdri_rm_open_node(const struct gdri_rm_gpu *gpu, int *fd)
{
	struct rm_register_fd reg = { .ctl_fd = ctl };
	char path[32];
	int rc;

	snprintf(path, sizeof(path), RM_GPU_NODE, gpu->minor);
	rc = open_node(path, fd);
	if (rc)
		return rc;
	rc = call(*fd, RM_IOC_REGISTER_FD, &reg, NULL, "REGISTER_FD");
	if (rc)
		gdri_fork_close(*fd);
	return rc;
}

static int alloc_device(struct gdri_rm_gpu *gpu, uint32_t gpu_id)
{
	struct rm_gpu_id_info info = { .gpu_id = gpu_id };
	struct rm_device_params params = { .instance = 0 };
	int rc = gdri_rm_control(RM_CONTROL_GPU_ID_INFO, &info, sizeof(info), "GPU_GET_ID_INFO");

	if (rc)
		return rc;
	gpu->instance = params.instance = info.device_instance;
	return alloc(client, RM_CLASS_DEVICE, &params, sizeof(params), "RM_ALLOC of a device",
		     &gpu->device);
}

/*
 * Where the GPU is integrated, RM may map memory of cudaMalloc, but "[it] cannot be coherently
 * accessed by the CPU complex" (NVIDIA on DGX Spark, whose driver is the open one: forum "DGX Spark
 * GPUDirect RDMA", 348787), and a trial with fresh memory need not see that.
 */
static int make_gpu_locked(int device, struct gdri_rm_gpu **out)
{
	struct rm_card_info card;
	struct gdri_rm_gpu *gpu = calloc(1, sizeof(*gpu));
	bool integrated;
	int rc;

	if (!gpu)
		return gdri_fail(ENOMEM, "no memory for a GPU");
	gpu->ordinal = device;
	rc = gdri_cuda_is_integrated(device, &integrated);
	if (!rc && integrated)
		rc = gdri_fail(ENOTSUP, "not on an integrated GPU");
	if (!rc)
		rc = gdri_cuda_pci_address(device, &gpu->pci);
	if (!rc)
		rc = gdri_cuda_is_coherent(device, &gpu->coherent);
	if (!rc)
		rc = make_client_locked();
	if (!rc)
		rc = find_card(&gpu->pci, &card);
	if (rc)
		goto err_free;
	gpu->minor = card.minor;
	gpu->bar1 = card.fb_address;
	gpu->bar1_size = card.fb_size;
	rc = gdri_rm_open_node(gpu, &gpu->node);
	if (rc)
		goto err_free;
	rc = alloc_device(gpu, card.gpu_id);
	if (rc)
		goto err_node;
	gpu->next = gpus;
	gpus = gpu;
	*out = gpu;
	return 0;

err_node:
	gdri_fork_close(gpu->node);
err_free:
	free(gpu);
	if (client && !gpus)
		close_client_locked();
	return rc;
}

int gdri_rm_gpu_get(int device, struct gdri_rm_gpu **out)
{
	struct gdri_rm_gpu *gpu;
	int rc = 0;

	pthread_mutex_lock(&lock);
	for (gpu = gpus; gpu && gpu->ordinal != device;)
		gpu = gpu->next;
	if (!gpu)
		rc = make_gpu_locked(device, &gpu);
	pthread_mutex_unlock(&lock);
	*out = gpu;
	return rc;
}

/* process.c closes the descriptors; client and objects are the parent's. */
static void after_fork(void)
{
	ctl = -1;
	client = 0;
	gpus = NULL;
}

GDRI_IN_CHILD(after_fork);
