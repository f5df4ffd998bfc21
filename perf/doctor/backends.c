/* SPDX-License-Identifier: MIT */
/*
 * Subject: which backends serve which GPU, by trial. It must not know how the trials are made.
 */
#include <errno.h>
#include <string.h>

#include "doctor/machine.h"

enum { DMABUF_CUDA = 13030 }; /* the first CUDA driver that lets a dma-buf be mapped */

const char *const backend_names[] = { "gdrdrv", "dmabuf", "rm", "host", NULL };

static bool serves_any(const struct unit *u)
{
	for (const char *const *name = backend_names; *name; name++)
		if (unit_works(u, *name))
			return true;
	return false;
}

/* The backend that will be asked first for memory of cudaMalloc and serves it; or NULL. */
static const char *serves_cuda_malloc(const struct unit *u)
{
	for (const char *const *name = backend_names; *name; name++)
		if (unit_serves(u, *name))
			return *name;
	return NULL;
}

/* ---- what a failed trial means --------------------------------------------------------------- */

static void explain_gdrdrv(const struct machine *m, struct finding *f)
{
	const struct probe_node *n = probes_node(m->probe, "/dev/gdrdrv");

	finding_means(f, "it serves every kind of GPU memory, on every flavour of the GPU driver; "
			 "the kernel module gdrdrv must be loaded and its node open to this user");
	if (n && n->exists && n->error == EPERM)
		finding_todo(f, "start the container with --device /dev/gdrdrv");
	else if (n && n->exists && n->error)
		finding_todo(f, "see \"gdrdrv\" below");
	else if (m->container.is)
		finding_todo(f, "if it is wanted: %sstart the container with --device /dev/gdrdrv",
			     m->gdrdrv.loaded ? "" : "load gdrdrv on the host, ");

	else
		finding_todo(f, "if it is wanted: see \"gdrdrv\" below");
}

static void explain_dmabuf(const struct machine *m, struct finding *f)
{
	int v = m->probe->cuda_version;

	if (m->driver.flavour == FLAVOUR_PROPRIETARY) {
		finding_means(f, "the proprietary kernel modules do not export dma-bufs");
		finding_todo(f, "if it is wanted: the open kernel modules (Turing and later GPUs), "
				"of CUDA 13.3 or newer");
	} else if (v && v < DMABUF_CUDA) {
		finding_means(f,
			      "mapping a dma-buf needs a CUDA driver of 13.3 or newer; this one "
			      "is %d.%d",
			      v / 1000, v % 1000 / 10);
		finding_todo(f, "if it is wanted: a newer driver; nothing else is missing");
	} else {
		finding_means(f, "this driver should let a dma-buf be mapped, and did not");
		finding_todo(f, "the reason given above is the driver's own");
	}
}

static void todo_about(const struct machine *m, const struct obstacle *o, const char *lead,
		       struct finding *f)
{
	finding_todo(f, "%s: %s%s", lead, o->todo,
		     o->on_host && m->container.is ? " (on the host)" : "");
}

static void explain_rm(const struct machine *m, const struct unit *u, const struct probe_trial *t,
		       struct finding *f)
{
	const struct obstacle *o = rm_obstacle(m, u);

	if (!strcmp(t->memory, "cuMemCreate"))
		return; /* the trial before it tells the cause */
	if (o) {
		finding_means(f, "%s", o->means);
		todo_about(m, o, "if it is wanted", f);
	} else if (!strcmp(t->step, "open") || t->error == EACCES || t->error == ENODEV) {
		finding_means(f, "it asks the GPU driver itself, through /dev/nvidiactl and the "
				 "GPU's own node, and needs no kernel module");
	} else {
		finding_means(f, "before the first pin on a GPU the library tries this way with "
				 "memory of its own, and takes it only if all of it is right");
		finding_todo(f,
			     "report this, with the output of --record; the kernel module gdrdrv "
			     "works without it");
	}
}

static void explain(const struct machine *m, const struct unit *u, const struct probe_trial *t,
		    struct finding *f)
{
	if (t->error == ENOMEM) {
		finding_means(f, "memory or BAR1 was short just then: that says nothing of the "
				 "backend");
		finding_todo(f, "run this again when there is room (see \"BAR1\")");
	} else if (!strncmp(t->text, "the trial was ", 14)) { /* probe.c */
		finding_means(f, "a program that uses this backend here may end in the same way");
		finding_todo(f, "report this, with the output of --record");
	} else if (!strcmp(t->step, "copy") && t->error == EILSEQ) {
		finding_means(f, "the mapping does not show the GPU's memory: do not use it");
		finding_todo(f, "report this, with the output of --record");
	} else if (u->probe->integrated && unit_works(u, "host")) {
		finding_means(f, "not needed: an integrated GPU shares the CPU's memory, which the "
				 "host backend serves");
	} else if (m->wsl && strcmp(t->backend, "host") != 0) {
		finding_means(f, "under WSL there is no way to GPU memory");
	} else if (!strcmp(t->backend, "gdrdrv")) {
		explain_gdrdrv(m, f);
	} else if (!strcmp(t->backend, "dmabuf")) {
		explain_dmabuf(m, f);
	} else if (!strcmp(t->backend, "rm")) {
		explain_rm(m, u, t, f);
	} else {
		finding_means(f, "memory of cudaHostAlloc cannot be had or reached");
	}
}

/* The library lists each backend with its reason; here one alone was asked, and it is named already. */
static const char *reason(const struct probe_trial *t)
{
	char lead[24];
	const char *at;

	snprintf(lead, sizeof(lead), " %s: ", t->backend);
	at = strstr(t->text, lead);
	return at ? at + strlen(lead) : t->text[0] ? t->text : strerror(t->error);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_trial(const struct machine *m, struct report *r, const struct unit *u,
			const struct probe_trial *t)
{
	struct finding *f;

	if (trial_works(t)) {
		f = report_add(r, SEV_OK, u->id,
			       "%s works: 64 KiB of %s memory were pinned, mapped (%s) and copied "
			       "both ways",
			       t->backend, t->memory, t->mapping);
		return;
	}
	f = report_add(r, serves_any(u) ? SEV_NOTE : SEV_WARN, u->id,
		       "%s does not serve%s (%s): %s", t->backend,
		       strcmp(t->memory, "cuMemCreate") ? "" : " exportable memory either", t->step,
		       reason(t));
	explain(m, u, t, f);
}

static void check_trials(const struct machine *m, struct report *r)
{
	for (int i = 0; i < m->units; i++) {
		const struct unit *u = &m->unit[i];

		for (int k = 0; u->probe && k < u->probe->trials; k++)
			check_trial(m, r, u, &u->probe->trial[k]);
	}
}

static void todo_for_cuda_malloc(const struct machine *m, const struct unit *u, struct finding *f)
{
	const struct obstacle *o = rm_obstacle(m, u);

	if (o)
		todo_about(m, o, "for cudaMalloc memory", f);
	else
		finding_todo(f,
			     "make one of the other backends work: what each lacks stands above");
}

/* What that comes to, for a program. */
static void check_serves(const struct machine *m, struct report *r)
{
	struct finding *f;

	if (!m->probed && machine_has_gpu(m))
		report_add(r, SEV_UNKNOWN, NULL, "the backends: not tried");
	else if (machine_has_gpu(m) && !m->probe->gpus)
		report_add(r, SEV_FAIL, NULL, "no backend could be tried: CUDA shows no GPU");

	for (int i = 0; i < m->units && m->probed; i++) {
		const struct unit *u = &m->unit[i];
		const char *any;

		if (!u->probe)
			continue;
		any = serves_cuda_malloc(u);
		if (u->probe->context_error[0]) {
			f = report_add(r, SEV_FAIL, u->id, "no CUDA context can be made: %s",
				       u->probe->context_error);
			finding_means(f, "no program can use this GPU now");
			finding_todo(f, "nvidia-smi -q tells the compute mode and the free memory, "
					"the kernel's log (NVRM, Xid) a broken GPU");
		} else if (any) {
			f = report_add(r, SEV_OK, u->id, "any GPU memory is served, by %s", any);
			finding_means(f,
				      "gdr_open() works: MPI, UCX, NCCL and other programs of the "
				      "existing library's interface will use it");
		} else if (u->probe->integrated && unit_works(u, "host")) {
			f = report_add(r, SEV_OK, u->id, "memory of cudaHostAlloc is served");
			finding_means(f, "an integrated GPU shares the CPU's memory: that is the "
					 "way here");
		} else if (unit_works(u, "rm")) {
			f = report_add(r, SEV_WARN, u->id,
				       "exportable memory is served, by rm; memory of cudaMalloc "
				       "is not");
			finding_means(
				f, "programs that allocate by cuMemCreate with a file "
				   "descriptor as handle type (NCCL, PyTorch with expandable "
				   "segments, barcopy_mem_alloc) can be served, through "
				   "barcopy_open(BARCOPY_OPEN_ANY). gdr_open() fails where no GPU "
				   "exports dma-bufs, so that other programs switch to "
				   "another way");
			todo_for_cuda_malloc(m, u, f);
		} else if (unit_works(u, "host")) {
			f = report_add(
				r, SEV_WARN, u->id,
				"the CPU cannot reach GPU memory; only memory of cudaHostAlloc "
				"is served");
			finding_means(f,
				      "that memory is the CPU's own: the GPU reads it over PCIe");
			todo_for_cuda_malloc(m, u, f);
		} else {
			f = report_add(r, SEV_FAIL, u->id, "no backend works");
			finding_todo(f, "what each lacks stands above; the least work is usually "
					"rm (no kernel module)");
		}
	}
}

static void check_environment(const struct machine *m, struct report *r)
{
	struct finding *f;

	if (strstr(m->probe->env.backend, "vulkan")) {
		f = report_add(r, SEV_WARN, NULL, "GDRCOPY_BACKEND is \"%s\"",
			       m->probe->env.backend);
		finding_means(f,
			      "there is no backend vulkan any more: gdr_open() fails in programs "
			      "started from here");
		finding_todo(f, "unset GDRCOPY_BACKEND: rm serves what vulkan did, and all other "
				"device memory");
	} else if (m->probe->env.backend[0]) {
		f = report_add(r, SEV_NOTE, NULL, "GDRCOPY_BACKEND is \"%s\"",
			       m->probe->env.backend);
		finding_means(f, "programs started from here use those backends only, in that "
				 "order; the trials of this report do not heed it");
	} else if (m->probe->env.dmabuf_mmap[0] && strcmp(m->probe->env.dmabuf_mmap, "0")) {
		f = report_add(r, SEV_NOTE, NULL, "GDRCOPY_USE_DMABUF_MMAP is \"%s\"",
			       m->probe->env.dmabuf_mmap);
		finding_means(f,
			      "programs started from here use the dmabuf backend only; the trials "
			      "of this report do not heed it");
	}
}

static const struct check checks[] = {
	{ "trials", check_trials },
	{ "serves", check_serves },
	{ "environment", check_environment },
	{ NULL, NULL },
};

const struct subject subject_backends = { "backends", "Backends", NULL, checks };
