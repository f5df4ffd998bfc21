// SPDX-License-Identifier: MIT
/* What the library leaves in the machine: nothing, once everything has ended. */
#include "cache/cache.h"
#include "common/resources.h"
#include "common/rm.h"
#include "core/handle.h"
#include "model/model.h"

struct left {
	long rm, device_bytes, fds, handles, entries, caches;
};

static struct left usual; /* once everything has ended */
static bool known; /* it is */
static bool may_go; /* a call that failed has left something behind, which may go later */

static long taken(struct gdri_slots *table)
{
	long n = table->count;

	for (uint32_t next = table->first_free; next; n--)
		next = gdri_slot_at(table, next - 1)->next_free;
	return n;
}

/* RM's client, the files of its nodes and what CUDA keeps begin with the first use and stay. */
static void look(struct left *l)
{
	struct gdrsim_rm_counts c;

	*l = (struct left){ .handles = taken(&gdri_handles), .entries = taken(&gdri_entries),
			    .caches = taken(&gdri_caches) + taken(&gdri_ranges) };
	if (w.machine->gpu)
		return;
	/* First: the stand-ins release what closed descriptors held. */
	for (int i = 0; i < w.machine->devices; i++)
		l->device_bytes += (long)standin_device_bytes(i);
	rm_sim.counts(&c);
	l->rm = c.memories + c.maps + c.vmas + c.dmabufs;
	l->fds = resources_fds() - (long)(c.ctl_files + c.device_files);
}

void left_behind(const char *failed)
{
	static const char *const releases[] = { "Free",	 "FREE",  "Release",	"Unmap",   "UNMAP",
						"unmap", "close", "ioctl",	"Destroy", "UNPIN",
						"Push",	 "Pop",	  "cuStreamSy", "madvise" };

	for (size_t i = 0; i < COUNT(releases); i++)
		known &= !strstr(failed, releases[i]);
	may_go |= !known;
}

static void lower(long *usual_count, long count)
{
	if (may_go && count < *usual_count)
		*usual_count = count;
}

void left_check_slots(unsigned int handles)
{
	MUST(taken(&gdri_handles) == (long)handles, "%ld handles are taken, not %u",
	     taken(&gdri_handles), handles);
}

void left_check(void)
{
	struct left now;

	look(&now);
	if (!known)
		usual = now;
	known = true;
	lower(&usual.rm, now.rm);
	lower(&usual.device_bytes, now.device_bytes);
	lower(&usual.fds, now.fds);
	MUST(now.rm == usual.rm, "RM's objects: %ld, not %ld", now.rm, usual.rm);
	MUST(now.device_bytes == usual.device_bytes, "GPU memory: %ld bytes, not %ld",
	     now.device_bytes, usual.device_bytes);
	MUST(now.fds == usual.fds, "descriptors: %ld, not %ld", now.fds, usual.fds);
	MUST(now.handles == 0 && now.entries == 0 && now.caches == 0,
	     "slots: %ld handles, %ld entries, %ld caches", now.handles, now.entries, now.caches);
}
