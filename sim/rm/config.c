/* SPDX-License-Identifier: MIT */
/* The configuration of the stand-in: its environment, and the calls that fail, for each process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rm/rm.h"
#include "rules.h"

static struct rules rules = { .sign = -1 }; /* a value: errno, or -status */

void gdrsim_rm_fail(const char *spec)
{
	rules_set(&rules, spec);
	rules_fail_nth(&rules, 0, 0);
}

void gdrsim_rm_fail_nth(unsigned long n, int value)
{
	rules_set(&rules, NULL);
	rules_fail_nth(&rules, n, -value);
}

const char *gdrsim_rm_failed(void)
{
	return rules.failed[0] ? rules.failed : NULL;
}

unsigned long gdrsim_rm_calls(const char *name)
{
	return rules_calls(&rules, name).since;
}

int rm_fault(const char *name, unsigned int detail)
{
	char detailed[RULES_NAME];

	snprintf(detailed, sizeof(detailed), "%s.%x", name, detail);
	return rules_call(&rules, name, detail ? detailed : NULL);
}

bool rm_flag(const char *name, bool absent)
{
	return sim_env(name, absent) != 0;
}

int rm_node_presence(void)
{
	return sim_presence("GDRSIM_RM", "present");
}

static bool lists(const char *name, unsigned int value)
{
	const char *v = sim_text(name, "");

	while (*v) {
		char *end;

		if (strtoul(v, &end, 10) == value && end != v)
			return true;
		v = *end == ',' ? end + 1 : "";
	}
	return false;
}

int rm_minor_presence(unsigned int minor)
{
	if (lists("GDRSIM_RM_NO_NODE", minor))
		return ENOENT;
	return lists("GDRSIM_RM_DENIED", minor) ? EACCES : 0;
}

/* The driver branch of a CUDA version (release notes of the CUDA toolkit). */
static int branch_of(long cuda)
{
	static const struct {
		long cuda;
		int branch;
	} known[] = {
		{ 13020, 595 }, { 13010, 590 }, { 13000, 580 }, { 12090, 575 }, { 12080, 570 },
		{ 12070, 565 }, { 12060, 560 }, { 12050, 555 }, { 12040, 550 }, { 12030, 545 },
		{ 12020, 535 }, { 12010, 530 }, { 12000, 525 }, { 11080, 520 }, { 11070, 515 },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (cuda >= known[i].cuda)
			return known[i].branch;
	return 510;
}

const char *rm_version_text(char *text, size_t size)
{
	const char *v = sim_text("GDRSIM_RM_DRIVER", NULL);

	if (v)
		snprintf(text, size, "%s", v);
	else
		snprintf(text, size, "%d.159.04",
			 branch_of(sim_env("GDRSIM_DRIVER_VERSION", 13000)));
	return text;
}

int rm_version(void)
{
	char text[64];

	return atoi(rm_version_text(text, sizeof(text)));
}

int gdrsim_rm_driver_version(void)
{
	return rm_version();
}

/* nv_ioctl_export_to_dma_buf_fd_t: of 515, of 570 (the mapping type) and of 580 (mmap). */
void gdrsim_rm_export_layout(struct gdrsim_rm_export_layout *l)
{
	int version = rm_version();
	long size = sim_env("GDRSIM_RM_EXPORT_SIZE", version >= 570 ? 2608 : 2600);

	memset(l, 0, sizeof(*l));
	l->mapping_type = version >= 570;
	l->allow_mmap = version >= 580;
	l->size = (size_t)size;
	l->handles = size == 2608 ? 36 : (size_t)(32 + size - 2600);
	l->offsets = (l->handles + NV_DMABUF_EXPORT_MAX_HANDLES * 4 + 7) & ~(size_t)7;
	l->sizes = l->offsets + NV_DMABUF_EXPORT_MAX_HANDLES * 8;
	l->status = l->sizes + NV_DMABUF_EXPORT_MAX_HANDLES * 8;
}
