/* SPDX-License-Identifier: MIT */
/* The rm backend: any device memory, by the installed GPU driver alone. See rm_client.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "cuda/watch.h"
#include "backend/rm_client.h"

#if GDRI_RM
/*
 * A regular file of at most 64 KiB, whose lines are rm=on, rm=off, blank, or '#' and a comment.
 * Without the file rm is on. Anything else turns rm off, since it may be meant to say so.
 */
#define POLICY_FILE "/etc/barcopy/policy"
enum { POLICY_BYTES = 64 << 10 };

GDRI_MUTEX(policy_lock); /* guards the next two */
static bool policy_read; /* once: a later change has no effect */
static const char *policy_says; /* NULL: rm is on */

/* Returns NULL if the text allows rm, or what it says instead. */
static const char *parse(char *text, size_t size)
{
	char *line, word[8], more[2];

	if (size > POLICY_BYTES || memchr(text, '\0', size))
		return "is longer than 64 KiB, or no text";
	text[size] = '\0';
	while ((line = strsep(&text, "\n"))) {
		int words;

		line[strcspn(line, "#")] = '\0';
		words = sscanf(line, "%7s %1s", word, more);
		if (words == 1 && strcmp(word, "rm=off") == 0)
			return "says rm=off";
		if (words == 2 || (words == 1 && strcmp(word, "rm=on") != 0))
			return "has a line that is not rm=on, rm=off or a comment";
	}
	return NULL;
}

/* As parse(); reads into text, which has room for one byte more than a policy may have. */
static const char *read_text(int fd, char *text)
{
	size_t size = 0;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return "is not a regular file";
	do {
		n = read(fd, text + size, POLICY_BYTES + 1 - size);
		size += n > 0 ? (size_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? "cannot be read" : parse(text, size);
}

/* O_NONBLOCK: the open of a FIFO would wait for its writer. */
static int read_policy_locked(void)
{
	const int flags = O_RDONLY | O_NONBLOCK;
	static char text[POLICY_BYTES + 1];
	int err, fd = gdri_fork_open(POLICY_FILE, flags);

	if (fd < 0 && errno == ENOENT) /* ELOOP, if it is a link to nothing */
		fd = gdri_fork_open(POLICY_FILE, flags | O_NOFOLLOW);
	err = errno;
	if (fd >= 0)
		policy_says = read_text(fd, text);
	else
		policy_says = err == ENOENT ? NULL : "cannot be opened";
	policy_read = fd >= 0 || !gdri_is_short(-err);
	gdri_fork_close(fd);
	return policy_read ? 0 : gdri_fail(err, POLICY_FILE ": %s", strerror(err));
}

static int check_policy(void)
{
	int rc = 0;

	pthread_mutex_lock(&policy_lock);
	if (!policy_read)
		rc = read_policy_locked();
	if (!rc && policy_says)
		rc = gdri_fail(EACCES, POLICY_FILE " %s: rm is off", policy_says);
	pthread_mutex_unlock(&policy_lock);
	return rc;
}

static int rm_open(void **state)
{
	int rc = check_policy();

	(void)state;
	if (!rc)
		rc = gdri_rm_check();
	if (!rc)
		rc = gdri_cuda_load();
	if (!rc)
		(void)gdri_cuda_watch_possible(); /* here, where no lock is held */
	return rc;
}

static int rm_decide(void)
{
	return gdri_cuda_watch_possible() ? gdri_fail(ENODEV, "%s", gdri_error_text())
					  : gdri_rm_exports_dmabuf();
}

/*
 * GDR_PIN_FLAG_FORCE_PCIE: without a coherent link every mapping is over PCIe; with one none is:
 * 595 refuses the flag (mapping_cpu.c, gpuIsSelfHosted()), other drivers ignore it.
 */
static int rm_attribute(void *state, gdr_attr_t attr)
{
	(void)state;
	return attr == GDR_ATTR_USE_PERSISTENT_MAPPING ||
	       (attr == GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE && !gdri_cuda_any_coherent());
}

/*
 * RM reports where it has put a map: in BAR1, or where a coherent link has the memory. A mapping
 * counts as cached, which needs fewer fences, if both RM and CUDA say so. On arm64,
 * nvidia_mmap_helper() mapped BAR1 as Device memory before 590 (NV_PGPROT_WRITE_COMBINED_DEVICE,
 * nv-pgprot.h), and still does on some machines (rm_disable_iomap_wc()); an unaligned load from
 * Device memory faults.
 */
static gdr_mapping_type_t type_of(const struct gdri_pin *pin)
{
	const struct gdri_rm_range *range = pin->priv;
	const struct gdri_rm_gpu *gpu = range->gpu;
	bool in_bar1 = range->objects[0].address - gpu->bar1 < gpu->bar1_size;

	if (gpu->coherent && !in_bar1)
		return GDR_MAPPING_TYPE_CACHING;
#ifdef __aarch64__
	unsigned int major = gdri_rm_driver_major();

	if (major && major < RM_FIRST_WITH_NORMAL_BAR1)
		return GDR_MAPPING_TYPE_DEVICE;
#endif
	return gdri_load_errno((const char *)pin->map + 1) == EFAULT ? GDR_MAPPING_TYPE_DEVICE
								     : GDR_MAPPING_TYPE_WC;
}

static int pin_range(const struct gdri_pin_request *request, struct gdri_pin *pin, bool exportable,
		     bool *lasting)
{
	struct gdri_rm_range *range;
	struct gdri_rm_gpu *gpu;
	int rc = gdri_rm_gpu_get(request->memory.device, &gpu);

	if (rc)
		return rc;
	rc = gdri_rm_range_open(gpu, request, exportable, &range, lasting);
	if (rc)
		gdri_rm_gpu_put();
	pin->priv = range;
	pin->persistent = true;
	return rc;
}

static int pin_trial(const struct gdri_pin_request *request, struct gdri_pin *pin, bool exportable,
		     bool *lasting)
{
	int rc = pin_range(request, pin, exportable, lasting);

	if (!rc || exportable || gdri_is_short(rc) || gdri_rm_flavour() != GDRI_RM_UNKNOWN)
		return rc;
	return gdri_fail(-rc,
			 "%s (the driver's flavour cannot be read here; no dma-buf is exported by "
			 "the proprietary one, nor in gVisor without its capability \"rdma\")",
			 gdri_error_text());
}

static const struct gdri_trial_of trial_of = { &gdri_backend_rm, pin_trial, type_of };

static int rm_unpin(struct gdri_pin *pin)
{
	int rc = gdri_rm_range_close(pin->priv);

	gdri_rm_gpu_put();
	return rc;
}

/*
 * Where libcuda's exports cannot be observed, exportable memory is served, by descriptors. Other
 * memory fails before that trial, whose shortage would keep the pin from the next backend.
 */
static int pin_tried(struct gdri_rm_gpu *gpu, const struct gdri_pin_request *request,
		     struct gdri_pin *pin)
{
	const struct gdri_memory *m = &request->memory;
	struct gdri_text why = { .len = 0 };
	bool unused;
	int rc = gdri_trial(&gpu->any, &trial_of, false, m->device, m->context, 0, &pin->type);

	if (!rc)
		return pin_range(request, pin, false, &unused);
	if (rc != -ENOTSUP)
		return rc;
	gdri_text_add(&why, "%s", gdri_error_text());
	rc = pin_range(request, pin, true, &unused);
	if (rc == -ENOTSUP && !request->imported) {
		gdri_text_add(&why, "; and %s", gdri_error_text());
		return gdri_fail(ENOTSUP, "%s", why.s);
	}
	if (rc)
		return rc;
	rc = gdri_trial(&gpu->exportable, &trial_of, true, m->device, m->context, 0, &pin->type);
	if (rc)
		rm_unpin(pin);
	return rc == -ENOTSUP ? gdri_fail(ENOTSUP, "%s", why.s) : rc;
}

static int pin_once(const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	struct gdri_rm_gpu *gpu;
	int rc = gdri_rm_gpu_get(request->memory.device, &gpu);

	if (rc)
		return rc;
	rc = pin_tried(gpu, request, pin);
	gdri_rm_gpu_put();
	return rc;
}

static int rm_pin(const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	int rc;

	if (request->memory.kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "not device memory");
	rc = pin_once(request, pin);
	return rc && gdri_rm_client_ends() ? pin_once(request, pin) : rc;
}

static int rm_map(struct gdri_pin *pin, gdr_mapping_type_t wish)
{
	int rc = gdri_check_wish(pin, wish);
	void *map;

	if (!rc)
		rc = gdri_rm_map(pin->priv, pin->map_length, pin->read_only, &map);
	if (!rc)
		gdri_pin_mapped(pin, map);
	return rc;
}

static int rm_unmap(struct gdri_pin *pin)
{
	return gdri_rm_unmap(pin->priv, pin->map, pin->map_length);
}

#else /* make RM_BACKEND=0 */
static int rm_open(void **state)
{
	(void)state;
	return gdri_fail(ENODEV, "this library was built without rm");
}
#endif

const struct gdri_backend gdri_backend_rm = {
	.name = "rm",
	.id = BARCOPY_BACKEND_RM,
	.caps = GDRI_CAP_DEVICE_MEMORY,
	.open = rm_open,
#if GDRI_RM
	.decide = rm_decide,
	.attribute = rm_attribute,
	.pin = rm_pin,
	.unpin = rm_unpin,
	.map = rm_map,
	.unmap = rm_unmap,
#endif
};
