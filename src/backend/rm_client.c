/* SPDX-License-Identifier: MIT */
/*
 * The resource manager's nodes and clients: which GPU exports dma-bufs, for gdr_open(), and this
 * process's own client and its GPUs. See rm_client.h.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/env.h"
#include "base/process.h"
#include "backend/rm_client.h"

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
	{ RM_INVALID_OBJECT_HANDLE, EINVAL, "INVALID_OBJECT_HANDLE" },
	{ RM_INVALID_PARAM_STRUCT, EINVAL, "INVALID_PARAM_STRUCT" },
	{ RM_INVALID_STATE, ENOTSUP, "INVALID_STATE" },
	{ RM_NO_MEMORY, ENOMEM, "NO_MEMORY" },
	{ RM_NOT_SUPPORTED, ENOTSUP, "NOT_SUPPORTED" },
	{ RM_OBJECT_NOT_FOUND, EINVAL, "OBJECT_NOT_FOUND" },
};

/* A call did not reach its client: the program may have closed the library's descriptors. */
static atomic_bool suspect;

static int fail_status(uint32_t status, const char *what)
{
	if (status == RM_INVALID_CLIENT || status == RM_INVALID_OBJECT_HANDLE)
		atomic_store(&suspect, true);
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (answers[i].status == status)
			return gdri_fail(answers[i].err, "%s: NV_ERR_%s (0x%x)", what,
					 answers[i].name, status);
	return gdri_fail(EIO, "%s: NV_STATUS 0x%x", what, status);
}

/* The interface's errno for that of an ioctl: ENOTSUP, where no driver has served it. */
static int public_errno(int err)
{
	switch (err) {
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EACCES:
	case ENODEV:
		return err;
	case EPERM: /* by a container's or a sandbox's rule */
		return EACCES;
	case EBADF: /* the program has closed the library's descriptor */
	case ENOTTY:
	case EINVAL:
	case ENOSYS:
	case EOPNOTSUPP:
		return ENOTSUP;
	default: /* EIO: the GPU is lost */
		return EIO;
	}
}

int gdri_rm_call(int fd, unsigned long request, void *arg, const uint32_t *status, const char *what)
{
	while (ioctl(fd, request, arg)) {
		if (errno == EBADF || errno == ENOTTY)
			atomic_store(&suspect, true);
		if (errno != EINTR)
			return gdri_fail(public_errno(errno), "%s: %s", what, strerror(errno));
	}
	return status && *status ? fail_status(*status, what) : 0;
}

int gdri_rm_control(const struct gdri_rm_session *s, rm_handle object, uint32_t command,
		    void *params, size_t size, const char *what)
{
	struct rm_control arg = { .client = s->client,
				  .object = object,
				  .command = command,
				  .params = (uintptr_t)params,
				  .params_size = (uint32_t)size };

	return gdri_rm_call(s->ctl, RM_IOC_CONTROL, &arg, &arg.status, what);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

#define NO_NODE "the NVIDIA driver's node is not there"

static int open_gpu_node(const struct gdri_rm_session *s, unsigned int minor, int *fd)
{
	struct rm_register_fd reg = { .ctl_fd = s->ctl };
	char path[32];
	int rc;

	snprintf(path, sizeof(path), RM_GPU_NODE, minor);
	rc = gdri_open_node(path, NO_NODE, fd);
	if (rc)
		return rc;
	rc = gdri_rm_call(*fd, RM_IOC_REGISTER_FD, &reg, NULL, "REGISTER_FD");
	if (rc)
		gdri_fork_close(*fd);
	return rc;
}

enum { VERSION_LINE = 256 };

static _Atomic unsigned int driver_major; /* read by each gdr_open() */

/*
 * "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
 * Fails for a shortage alone, and leaves what is known.
 */
static int read_driver_major(void)
{
	char text[VERSION_LINE], *word, *rest = text;
	unsigned int major, minor, found = 0;
	int rc = gdri_read_line(RM_VERSION_FILE, text, sizeof(text));

	if (gdri_is_short(rc))
		return gdri_fail(-rc, RM_VERSION_FILE ": %s", strerror(-rc));
	while (!found && (word = strsep(&rest, " \t")))
		if (sscanf(word, "%u.%u", &major, &minor) == 2)
			found = major;
	atomic_store_explicit(&driver_major, found, memory_order_relaxed);
	return 0;
}

unsigned int gdri_rm_driver_major(void)
{
	return atomic_load_explicit(&driver_major, memory_order_relaxed);
}

int gdri_rm_check(void)
{
	int fd, rc = gdri_open_node(RM_CTL_NODE, NO_NODE, &fd);
	unsigned int major;

	if (rc)
		return rc;
	gdri_fork_close(fd);
	rc = read_driver_major();
	if (rc)
		return rc;
	major = gdri_rm_driver_major();
	if (major && major < RM_FIRST_WITH_EXPORT)
		return gdri_fail(ENODEV, "driver %u is too old (%d is the first)", major,
				 RM_FIRST_WITH_EXPORT);
	return 0;
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Makes an object below parent; params are the class's, or NULL. */
static int alloc(const struct gdri_rm_session *s, rm_handle parent, uint32_t class, void *params,
		 const char *what, rm_handle *object)
{
	struct rm_alloc arg = {
		.client = s->client, .parent = parent, .class = class, .params = (uintptr_t)params
	};
	int rc = gdri_rm_call(s->ctl, RM_IOC_ALLOC, &arg, &arg.status_515, what);

	if (!rc && arg.status_535)
		rc = fail_status(arg.status_535, what);
	*object = arg.object;
	return rc;
}

static void session_close(struct gdri_rm_session *s)
{
	gdri_fork_close(s->ctl); /* which ends the client and all below it */
	*s = (struct gdri_rm_session){ .ctl = -1 };
}

static int session_open(struct gdri_rm_session *s)
{
	int rc;

	*s = (struct gdri_rm_session){ .ctl = -1 };
	rc = gdri_open_node(RM_CTL_NODE, NO_NODE, &s->ctl);
	if (rc)
		return rc;
	rc = alloc(s, 0, RM_CLASS_CLIENT, NULL, "RM_ALLOC of a client", &s->client);
	if (rc)
		session_close(s);
	return rc;
}

/* The device object of a GPU whose node is open: without that RM refuses it (0x1b). */
static int alloc_device(const struct gdri_rm_session *s, uint32_t gpu_id,
			struct rm_gpu_id_info *info, rm_handle *device)
{
	struct rm_device_params params = { .instance = 0 };
	int rc;

	*info = (struct rm_gpu_id_info){ .gpu_id = gpu_id };
	rc = gdri_rm_control(s, s->client, RM_CONTROL_GPU_ID_INFO, info, sizeof(*info),
			     "GPU_GET_ID_INFO");
	if (rc)
		return rc;
	params.instance = info->device_instance;
	return alloc(s, s->client, RM_CLASS_DEVICE, &params, "RM_ALLOC of a device", device);
}

/* Fills all cards: nvidia_read_card_info() clears the rest (kernel-open/nvidia/nv.c, 515 to 595). */
static int read_cards(const struct gdri_rm_session *s, struct rm_card_info cards[RM_MAX_CARDS])
{
	return gdri_rm_call(s->ctl, RM_IOC_CARD_INFO, cards, NULL, "CARD_INFO");
}

/* ---- does a GPU export its memory? ----------------------------------------------------------- */

/*
 * GPU_GET_INFO, or its second version where only that is passed on: gVisor refuses every control
 * that it does not list, by NOT_SUPPORTED (pkg/sentry/devices/nvproxy, version.go, August 2026).
 */
static int get_gpu_info(const struct gdri_rm_session *s, rm_handle subdevice,
			struct rm_gpu_info *info)
{
	static const size_t lengths[] = { RM_GPU_INFO_LENGTHS };
	struct rm_gpu_info_list list = { .count = 1, .infos = (uintptr_t)info };
	struct rm_gpu_info_v2 v2 = { .count = 1, .infos = { *info } };
	int rc = gdri_rm_control(s, subdevice, RM_CONTROL_GPU_INFO, &list, sizeof(list),
				 "GPU_GET_INFO");

	if (rc != -ENOTSUP)
		return rc;
	for (size_t i = 0; gdri_rm_may_be_size(rc) && i < sizeof(lengths) / sizeof(*lengths); i++)
		rc = gdri_rm_control(s, subdevice, RM_CONTROL_GPU_INFO_V2, &v2,
				     RM_GPU_INFO_V2_SIZE(lengths[i]), "GPU_GET_INFO_V2");
	*info = v2.infos[0];
	return rc;
}

/* Integrated ones do, to no use. */
static int ask_gpu(const struct gdri_rm_session *s, const struct rm_card_info *card)
{
	struct rm_gpu_info dmabuf = { .index = RM_GPU_INFO_DMABUF };
	struct rm_subdevice_params params = { .instance = 0 };
	rm_handle device, subdevice;
	struct rm_gpu_id_info info;
	int rc = alloc_device(s, card->gpu_id, &info, &device);

	if (!rc)
		rc = alloc(s, device, RM_CLASS_SUBDEVICE, &params, "RM_ALLOC of a subdevice",
			   &subdevice);
	if (!rc)
		rc = get_gpu_info(s, subdevice, &dmabuf);
	if (rc || (dmabuf.data && !(info.gpu_flags & RM_GPU_FLAG_SOC)))
		return rc;
	return gdri_fail(ENODEV, dmabuf.data
					 ? "the GPU is integrated"
					 : "the driver reports that the GPU does not support it");
}

/* How much a GPU's failure says. One that could not be asked for a shortage might have said yes. */
static int reason_rank(int rc, bool node_opens)
{
	if (gdri_is_short(rc))
		return 4;
	return node_opens ? 3 : rc != -ENODEV ? 2 : 1;
}

/*
 * Stops at the first GPU that does. A container has the nodes of its own GPUs alone: the reason of
 * a node that opens is kept, or else that of one that exists.
 */
static int ask_gpus(const struct gdri_rm_session *s)
{
	struct rm_card_info cards[RM_MAX_CARDS];
	struct gdri_text why = { .len = 0 };
	int node, known = 0, err = ENODEV, highest = 0, rank, rc = read_cards(s, cards);
	bool opens;

	if (rc)
		return rc;
	for (int i = 0; i < RM_MAX_CARDS; i++) {
		if (!cards[i].valid)
			continue;
		known++;
		rc = open_gpu_node(s, cards[i].minor, &node);
		opens = !rc;
		if (opens) {
			rc = ask_gpu(s, &cards[i]);
			gdri_fork_close(node);
		}
		if (!rc)
			return 0;
		rank = reason_rank(rc, opens);
		if (rank <= highest)
			continue;
		highest = rank;
		err = -rc;
		why.len = 0;
		gdri_text_add(&why, ": %s", gdri_error_text());
	}
	return gdri_fail(err, "none of %d GPUs exports its memory as a dma-buf%s", known, why.s);
}

int gdri_rm_flavour(void)
{
	char line[VERSION_LINE];
	int rc = gdri_read_line(RM_VERSION_FILE, line, sizeof(line));

	if (*line)
		return strstr(line, "Open Kernel Module") ? GDRI_RM_OPEN : GDRI_RM_PROPRIETARY;
	if (!gdri_is_short(rc))
		rc = gdri_read_line(RM_TAINT_FILE, line, sizeof(line));
	if (*line)
		return strchr(line, 'P') ? GDRI_RM_PROPRIETARY : GDRI_RM_OPEN;
	return gdri_is_short(rc) ? rc : GDRI_RM_UNKNOWN;
}

int gdri_rm_exports_dmabuf(void)
{
	static atomic_bool yes; /* as long as the driver is loaded */
	struct gdri_rm_session s;
	int flavour, rc = gdri_cuda_can_export();

	if (rc || atomic_load_explicit(&yes, memory_order_relaxed))
		return rc;
	flavour = gdri_rm_flavour();
	if (flavour < 0)
		return gdri_fail(-flavour, "the GPU driver's flavour cannot be read now: %s",
				 strerror(-flavour));
	/* Its RM gives the same answer, and exports nothing. */
	if (flavour == GDRI_RM_PROPRIETARY)
		return gdri_fail(ENODEV, "the GPU driver is not the open flavour");
	rc = session_open(&s);
	if (rc)
		return rc;
	rc = ask_gpus(&s);
	session_close(&s);
	if (!rc)
		atomic_store_explicit(&yes, true, memory_order_relaxed);
	return rc == -EINVAL ? -EIO : rc; /* the caller of gdr_open() has given no argument */
}

#if GDRI_RM
/* ---- this process's client ------------------------------------------------------------------- */

GDRI_MUTEX(lock); /* guards what follows; own and the GPUs are constant while there are users */
static struct gdri_rm_session own = { .ctl = -1 };
static struct gdri_rm_gpu *gpus;
static size_t users; /* pins, and pins in progress */

int gdri_rm_open_node(const struct gdri_rm_gpu *gpu, int *fd)
{
	return open_gpu_node(&gpu->own, gpu->minor, fd);
}

/* CUDA's ordinals, RM's instances and the minors differ: the PCI address identifies a GPU. */
static int find_card(const struct gdri_pci_address *pci, struct rm_card_info *card)
{
	struct rm_card_info cards[RM_MAX_CARDS];
	int rc = read_cards(&own, cards);

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

/*
 * Where the GPU is integrated, RM may map memory of cudaMalloc, but "[it] cannot be coherently
 * accessed by the CPU complex" (NVIDIA on DGX Spark, whose driver is the open one: forum "DGX Spark
 * GPUDirect RDMA", 348787), and a trial with fresh memory need not see that.
 */
static int make_gpu_locked(int device, struct gdri_rm_gpu **out)
{
	struct rm_gpu_id_info info;
	struct rm_card_info card;
	struct gdri_pci_address pci;
	struct gdri_rm_gpu *gpu = calloc(1, sizeof(*gpu));
	bool integrated;
	int rc;

	if (!gpu)
		return gdri_fail(ENOMEM, "no memory for a GPU");
	gpu->ordinal = device;
	rc = gdri_cuda_is_integrated(device, &integrated);
	if (!rc && integrated)
		rc = gdri_fail(ENOTSUP,
			       "the GPU is integrated: its memory has no mapping for the CPU");
	if (!rc)
		rc = gdri_cuda_pci_address(device, &pci);
	if (!rc)
		rc = gdri_cuda_is_coherent(device, &gpu->coherent);
	if (!rc)
		rc = gpus ? 0 : session_open(&own);
	if (!rc)
		rc = find_card(&pci, &card);
	if (rc)
		goto err_free;
	gpu->own = own;
	gpu->minor = card.minor;
	gpu->bar1 = card.fb_address;
	gpu->bar1_size = card.fb_size;
	rc = gdri_rm_open_node(gpu, &gpu->node);
	if (rc)
		goto err_free;
	rc = alloc_device(&own, card.gpu_id, &info, &gpu->device);
	if (rc)
		goto err_node;
	gpu->instance = info.device_instance;
	gpu->next = gpus;
	gpus = gpu;
	*out = gpu;
	return 0;

err_node:
	gdri_fork_close(gpu->node);
err_free:
	free(gpu);
	if (own.client && !gpus)
		session_close(&own);
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
	users += !rc;
	pthread_mutex_unlock(&lock);
	*out = gpu;
	return rc;
}

void gdri_rm_gpu_put(void)
{
	pthread_mutex_lock(&lock);
	users--;
	pthread_mutex_unlock(&lock);
}

bool gdri_rm_client_ends(void)
{
	struct gdri_rm_gpu *gpu;
	bool ends;

	pthread_mutex_lock(&lock);
	ends = gpus && !users && atomic_exchange(&suspect, false);
	/* Without users: a trial, which has one, writes what is read here. */
	for (gpu = gpus; ends && gpu; gpu = gpu->next)
		ends = !gpu->any.wrong && !gpu->exportable.wrong;
	while (ends && (gpu = gpus)) {
		gpus = gpu->next;
		gdri_fork_close(gpu->node);
		free(gpu);
	}
	if (ends)
		session_close(&own);
	pthread_mutex_unlock(&lock);
	return ends;
}

/* process.c closes the descriptors; client and objects are the parent's. */
static void after_fork(void)
{
	own = (struct gdri_rm_session){ .ctl = -1 };
	gpus = NULL;
	users = 0;
}

GDRI_IN_CHILD(after_fork);
#endif
