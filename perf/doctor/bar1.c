/* SPDX-License-Identifier: MIT */
/*
 * Subject: BAR1, the window through which the CPU and other devices reach GPU memory: its size, what
 * is free, whether it could be larger, how the CPU writes through it. It must not know who maps.
 * Sources: GPUDirect RDMA guide 11.5 and 12.1; PCI Express Base Specification, 7.8.6 "Resizable BAR
 * Extended Capability".
 */
#include <errno.h>
#include <string.h>

#include "doctor/machine.h"
#include "doctor/pci_cap.h"

/* The least that a program can pin: below some of these, pins fail one after the other. */
enum { LITTLE = 16 << 20 };

static void check_size(const struct machine *m, struct report *r)
{
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];
		const struct probe_gpu *g = u->probe;
		struct finding *f;

		if (!g || g->integrated)
			continue;
		if (g->nvml_error[0]) {
			f = report_add(r, SEV_UNKNOWN, u->id, "the use of BAR1: %s",
				       m->probe->nvml_error[0] ? m->probe->nvml_error
							       : g->nvml_error);
			finding_means(f, "how much can still be pinned is not known");
			continue;
		}
		f = report_add(r, g->bar1_free < LITTLE ? SEV_WARN : SEV_OK, u->id,
			       "BAR1: %s, %s used, %s free", bytes_text(g->bar1_total),
			       bytes_text(g->bar1_used), bytes_text(g->bar1_free));
		if (g->bar1_free < LITTLE) {
			finding_means(f, "hardly anything more can be pinned: pins end in ENOMEM "
					 "(guide 12.1: the driver keeps a part for itself)");
			finding_todo(f, "nvidia-smi lists the processes on this GPU; end or shrink "
					"what pins GPU memory; with gdrdrv see "
					"/proc/driver/gdrdrv/pins");
		} else if (g->memory && g->bar1_total < g->memory) {
			finding_means(f,
				      "it is smaller than the GPU's memory (%s): only a part of "
				      "it can be pinned at a time (guide 11.5)",
				      bytes_text(g->memory));
		} else if (g->memory) {
			finding_means(f, "all of the GPU's memory (%s) can be pinned at once",
				      bytes_text(g->memory));
		}
	}
}

/* The largest of the sizes that a capability register offers: 1 MiB << n, n = 0 to 27 in bits 31:4. */
static long long largest(uint32_t sizes)
{
	long long best = 0;

	for (int n = 0; n < 28; n++)
		if (sizes >> (4 + n) & 1)
			best = 1LL << (20 + n);
	return best;
}

/* What the entry for that BAR says; false if there is none. */
static bool rebar_of(const struct pci_dev *d, int cap, int bar, long long *now, long long *most)
{
	int entries = cap + 12 <= d->config_size ? (int)(pci_u32(d->config, cap + 8) >> 5 & 7) : 0;

	for (int i = 0; i < entries && i < 6; i++) {
		int at = cap + 4 + 8 * i;
		uint32_t control;

		if (at + 8 > d->config_size)
			return false;
		control = pci_u32(d->config, at + 4);
		if ((int)(control & 7) != bar)
			continue;
		if ((control >> 8 & 63) > 40) /* beyond 2^60: nonsense */
			return false;
		*now = 1LL << (20 + (control >> 8 & 63));
		*most = largest(pci_u32(d->config, at));
		return true;
	}
	return false;
}

static void check_resizable(const struct machine *m, struct report *r)
{
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];
		const struct pci_dev *d = u->pci;
		long long now = 0, most = 0, size;
		enum pci_cap_result result;
		struct finding *f;
		int at = 0, bar;

		if (!d)
			continue;
		bar = pci_bar1(d);
		if (d->bar_flags[0] && !d->bar_start[bar]) { /* every NVIDIA GPU has a BAR1 */
			f = report_add(r, SEV_FAIL, u->id,
				       "BAR1 has no address: the firmware gave it "
				       "no room");
			finding_means(f, "the GPU driver cannot start this GPU (guide 11.5)");
			finding_todo(f, "enable \"Above 4G decoding\" (large BARs) in the "
					"firmware's set-up, or update the firmware");
			continue;
		}
		size = d->bar_start[bar] ? (long long)(d->bar_end[bar] - d->bar_start[bar] + 1) : 0;
		result = pci_find_ecap(d->config, d->config_size, PCI_ECAP_REBAR, &at);
		if (result == CAP_FOUND && rebar_of(d, at, bar, &now, &most)) {
			f = report_add(r, SEV_OK, u->id, "BAR1 can be resized: %s now, %s at most",
				       bytes_text(now), bytes_text(most));
			if (most > now) {
				f->severity = SEV_NOTE;
				finding_means(f, "more GPU memory could be pinned at a time");
				finding_todo(f, "if it is wanted: enable \"Resizable BAR\" and "
						"\"Above 4G decoding\" in the firmware's set-up");
			}
		} else if (result == CAP_SHORT && size) {
			f = report_add(r, SEV_UNKNOWN, u->id,
				       "whether BAR1 (%s) can be resized is not known",
				       bytes_text(size));
			if (m->probe->euid && d->config_size <= 64)
				finding_todo(f, "run this as root: only root may read more of the "
						"configuration space than its first 64 bytes");
			else
				finding_means(f,
					      "the extended configuration space is not shown "
					      "here%s",
					      m->vm.is ? ", as in many virtual machines" : "");
		} else if (result == CAP_LOOP || result == CAP_BROKEN) {
			report_add(r, SEV_WARN, u->id,
				   "the list of extended capabilities is broken");
		} else if (size) {
			f = report_add(r, SEV_OK, u->id, "BAR1 cannot be resized: %s",
				       bytes_text(size));
			if (m->vm.is)
				finding_means(f,
					      "as this virtual machine shows it; hypervisors hide "
					      "the capability");
		}
	}
}

/* ---- write-combining -------------------------------------------------------------------------- */

static void judge_pat(const struct unit *u, const struct probe_trial *t, struct report *r)
{
	struct finding *f;

	if (t->pat_uc > 0) {
		f = report_add(r, SEV_WARN, u->id,
			       "%s: the kernel's list of memory types (PAT) has the trial mapping "
			       "uncached",
			       t->backend);
		finding_means(f, "each store is a transaction of its own: writes are many times "
				 "slower");
		finding_todo(f,
			     "look for another driver that maps the same range uncached, and for "
			     "nopat on the kernel's command line");
	} else {
		report_add(r, SEV_OK, u->id,
			   "%s: the kernel's list of memory types (PAT) has the trial mapping "
			   "write-combined",
			   t->backend);
	}
}

/* gdrdrv found the entries of the mapping to be of that type. */
static void say_device(const struct unit *u, const struct probe_trial *t, struct report *r)
{
	struct finding *f =
		report_add(r, SEV_WARN, u->id,
			   "%s: the trial mapping is of type Device: write-combining is "
			   "not in force",
			   t->backend);

	finding_means(f, "each store is a transaction of its own: writes are many times slower");
	finding_todo(f,
		     "look into the kernel's log for gdrdrv, for another driver that maps the same "
		     "range uncached, and for nopat on the kernel's command line");
}

static bool looks_combined(const struct probe_trial *t)
{
	return t->merged_ns > 0 && t->split_ns / t->merged_ns >= 2;
}

static void judge_time(const struct machine *m, const struct unit *u, const struct probe_trial *t,
		       struct report *r)
{
	struct finding *f;

	if (looks_combined(t)) {
		report_add(r, SEV_OK, u->id,
			   "%s: stores are combined: %.1f ns for 8 bytes in order, %.1f ns "
			   "scattered over lines",
			   t->backend, t->merged_ns, t->split_ns);
		return;
	}
	f = report_add(r, SEV_WARN, u->id,
		       "%s: stores do not look combined: %.1f ns for 8 bytes in order, %.1f ns "
		       "scattered over lines",
		       t->backend, t->merged_ns, t->split_ns);
	finding_means(f, "with write-combining in force the first is a fraction of the second; "
			 "without it writes are many times slower");
	finding_todo(f, "run this again on a quiet machine%s%s",
		     m->probe->euid ? ", as root (then the kernel's list of memory types tells)"
				    : "",
		     m->vm.is ? "; in a virtual machine the hypervisor may force the type" : "");
}

static void check_combining(const struct machine *m, struct report *r)
{
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];

		for (int k = 0; u->probe && k < u->probe->trials; k++) {
			const struct probe_trial *t = &u->probe->trial[k];
			bool listed;

			if (!trial_works(t) || !strcmp(t->backend, "host"))
				continue;
			if (!strcmp(t->mapping, "Device"))
				say_device(u, t, r);
			if (strcmp(t->mapping, "Write Combining"))
				continue; /* or cached, over a coherent link */
			if (m->probe->stand_in)
				report_add(r, SEV_NOTE, u->id,
					   "%s: the stand-in has no BAR: write-combining is not "
					   "judged",
					   t->backend);
			if (m->probe->stand_in)
				continue;
			listed = !t->pat_error && (t->pat_wc > 0 || t->pat_uc > 0);
			if (listed)
				judge_pat(u, t, r);
			/* where the list is content, the time has to be told if it is not */
			if (t->timed && (!listed || (!t->pat_uc && !looks_combined(t))))
				judge_time(m, u, t, r);
		}
	}
}

static const struct check checks[] = {
	{ "size", check_size },
	{ "resizable", check_resizable },
	{ "combining", check_combining },
	{ NULL, NULL },
};

const struct subject subject_bar1 = { "bar1", "BAR1", NULL, checks };
