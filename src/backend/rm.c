/* SPDX-License-Identifier: MIT */
/* The rm backend: any device memory, by the installed GPU driver alone. See rm_client.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cuda/watch.h"
#include "backend/rm_range.h"
#include "backend/rm_trial.h"

#if GDRI_RM
/* Lines of rm=on or rm=off, blanks, '#' comments. No file: allowed; any other fault forbids rm. */
#define POLICY_FILE "/etc/barcopy/policy"

GDRI_MUTEX(policy_lock); /* guards the next two */
static enum { UNREAD, ALLOWED, FORBIDDEN, MALFORMED, UNREADABLE } policy;
static int policy_errno; /* UNREADABLE */

static int parse(FILE *f)
{
	char *line = NULL, word[8], more[2];
	int words, found = ALLOWED;
	size_t room = 0;
	ssize_t n;

	errno = 0;
	while (found != MALFORMED && (n = getline(&line, &room, f)) >= 0) {
		bool whole = !memchr(line, '\0', (size_t)n); /* nothing that sscanf() skips */

		line[strcspn(line, "#")] = '\0';
		words = sscanf(line, "%7s %1s", word, more);
		if (!whole || words == 2 ||
		    (words == 1 && strcmp(word, "rm=on") != 0 && strcmp(word, "rm=off") != 0))
			found = MALFORMED;
		else if (words == 1 && strcmp(word, "rm=off") == 0)
			found = FORBIDDEN;
	}
	policy_errno = errno;
	free(line);
	if (found == MALFORMED || feof(f))
		return found;
	return gdri_is_short(-policy_errno) ? UNREAD : UNREADABLE;
}

/* Reads the file once; after a shortage, which says nothing, again. */
static void read_policy_locked(void)
{
	FILE *f = fopen(POLICY_FILE, "re");
	int fd;

	policy_errno = errno;
	if (!f && policy_errno == ENOENT) { /* a link to no file is ELOOP */
		fd = gdri_fork_open(POLICY_FILE, O_RDONLY | O_NOFOLLOW);
		policy_errno = errno;
		gdri_fork_close(fd);
	}
	if (f) {
		policy = parse(f);
		fclose(f);
	} else if (!gdri_is_short(-policy_errno)) {
		policy = policy_errno == ENOENT ? ALLOWED : UNREADABLE;
	}
}

static int check_policy(void)
{
	int rc = 0;

	pthread_mutex_lock(&policy_lock);
	if (policy == UNREAD)
		read_policy_locked();
	if (policy == UNREAD)
		rc = gdri_fail(policy_errno, POLICY_FILE ": %s", strerror(policy_errno));
	else if (policy == FORBIDDEN)
		rc = gdri_fail(EACCES, POLICY_FILE " says rm=off");
	else if (policy == MALFORMED)
		rc = gdri_fail(EACCES, "a line of " POLICY_FILE
				       " is not rm=on, rm=off or a comment: rm is off");
	else if (policy == UNREADABLE)
		rc = gdri_fail(EACCES, POLICY_FILE " cannot be read (%s): rm is off",
			       strerror(policy_errno));
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

static int pin_once(const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	const struct gdri_memory *m = &request->memory;
	struct gdri_rm_trial trial;
	struct gdri_rm_range *range;
	struct gdri_rm_gpu *gpu;
	int rc;

	rc = gdri_rm_gpu_get(m->device, &gpu);
	if (rc)
		return rc;
	rc = gdri_rm_trial(gpu, m->context, &trial);
	if (!rc)
		rc = gdri_rm_range_open(gpu, request,
					trial.verdict == GDRI_RM_ANY ? NULL : trial.reason, &range,
					NULL);
	if (rc) {
		gdri_rm_gpu_put();
		return rc;
	}
	pin->priv = range;
	pin->persistent = true;
	pin->type = trial.type;
	return 0;
}

static int rm_pin(const struct gdri_pin_request *request, struct gdri_pin *pin)
{
	int rc;

	if (request->memory.kind != GDRI_MEMORY_DEVICE)
		return gdri_fail(ENOTSUP, "not device memory");
	rc = pin_once(request, pin);
	return rc && gdri_rm_client_ends() ? pin_once(request, pin) : rc;
}

static int rm_unpin(struct gdri_pin *pin)
{
	int rc = gdri_rm_range_close(pin->priv);

	gdri_rm_gpu_put();
	return rc;
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
