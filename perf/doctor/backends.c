/* SPDX-License-Identifier: MIT */
/*
 * Subject: which backends serve which GPU, by trial, and what is in the way where ordinary memory is
 * not served. It must not know how the trials are made.
 */
#include <errno.h>
#include <string.h>

#include "doctor/subjects.h"

enum { DMABUF_CUDA = 13030 }; /* the first CUDA driver that lets a dma-buf be mapped */
enum { RM_DRIVER = 515 }; /* the first with the ioctl that names the objects behind a range */

/* ---- rm -------------------------------------------------------------------------------------- */

static bool nodes_open(const struct machine *m, const struct unit *u)
{
	const char *const path[] = { "/dev/nvidiactl", text("/dev/nvidia%d", u->minor) };

	for (int i = 0; i < (u->minor < 0 ? 1 : 2); i++) {
		const struct probe_node *n = probes_node(m->probe, path[i]);

		if (!n || !n->exists || n->error)
			return false;
	}
	return true;
}

static bool in_wsl(const struct machine *m, const struct unit *u)
{
	(void)u;
	return m->wsl;
}

static bool old_driver(const struct machine *m, const struct unit *u)
{
	(void)u;
	return m->driver.major && m->driver.major < RM_DRIVER;
}

static bool nodes_closed(const struct machine *m, const struct unit *u)
{
	return !nodes_open(m, u);
}

static bool proprietary(const struct machine *m, const struct unit *u)
{
	return !u->probe->dmabuf && m->driver.flavour == FLAVOUR_PROPRIETARY;
}

static bool confidential(const struct machine *m, const struct unit *u)
{
	(void)u;
	return m->probe->confidential;
}

static bool is_mig(const struct machine *m, const struct unit *u)
{
	(void)m;
	/* CUDA's name of a part of a GPU: "NVIDIA H100 80GB HBM3 MIG 1g.10gb" */
	return strstr(u->probe->name, " MIG ");
}

static bool geforce(const struct machine *m, const struct unit *u)
{
	(void)m;
	return !u->probe->dmabuf && strstr(u->probe->name, "GeForce");
}

static bool no_export(const struct machine *m, const struct unit *u)
{
	(void)m;
	return !u->probe->dmabuf;
}

/* The first that applies is the one to remove. */
static const struct {
	bool (*applies)(const struct machine *m, const struct unit *u);
	struct obstacle obstacle;
} obstacles[] = {
	{ in_wsl,
	  { "WSL gives the CPU no access to GPU memory", "use Linux itself instead of WSL",
	    false } },
	{ old_driver,
	  { "a GPU driver older than 515 does not show what is behind an address",
	    "install a newer GPU driver, or load the kernel module gdrdrv", true } },
	{ nodes_closed,
	  { "it needs /dev/nvidiactl and the GPU's own node, as CUDA does",
	    "make the nodes open for this user: see \"GPU driver\"", false } },
	{ proprietary,
	  { "the proprietary kernel modules do not export dma-bufs, which rm needs for cudaMalloc "
	    "memory",
	    "install the open kernel modules (Turing and later GPUs), or load the kernel module "
	    "gdrdrv",
	    true } },
	{ confidential,
	  { "with confidential computing the CPU may not map GPU memory",
	    "copy through CUDA, or turn confidential computing off", true } },
	{ is_mig,
	  { "rm is not tested on a part of a GPU (MIG)",
	    "load the kernel module gdrdrv, or use the GPU without MIG", true } },
	{ geforce,
	  { "this GeForce GPU does not export its memory as dma-buf, which rm needs: NVIDIA "
	    "supports "
	    "GPUDirect RDMA on data-center and professional RTX GPUs, and barcopy has not been "
	    "tried on "
	    "a GeForce",
	    "try the kernel module gdrdrv, whose pins the GPU driver may refuse as well; else copy "
	    "through CUDA",
	    true } },
	{ no_export,
	  { "this GPU's memory is not exported as dma-buf, which rm needs: the kernel may lack "
	    "dma-bufs, or CUDA be older than 11.7",
	    "load the kernel module gdrdrv", true } },
};

const struct obstacle *rm_obstacle(const struct machine *m, const struct unit *u)
{
	for (size_t i = 0; i < sizeof(obstacles) / sizeof(obstacles[0]) && !m->probe->stand_in; i++)
		if (obstacles[i].applies(m, u))
			return &obstacles[i].obstacle;
	return NULL;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Why a backend does not serve, beyond the library's own words; NULL: they are enough. */
static const char *meaning(const struct machine *m, const struct unit *u,
			   const struct probe_trial *t)
{
	const struct obstacle *o = rm_obstacle(m, u);

	if (t->error == ENOMEM)
		return "memory or BAR1 was short at that moment, which does not say whether the "
		       "backend works: run this again when there is room";
	if (t->error == EILSEQ)
		return "the mapping does not show the GPU's memory: do not use this backend, and "
		       "report this with the output of --json";
	if (!strncmp(t->text, "the trial was ", 14)) /* probe.c */
		return "a program that uses this backend may end in the same way: report this with "
		       "the output of --json";
	if (!strcmp(t->backend, "rm"))
		return o ? o->means : NULL;
	if (!strcmp(t->backend, "gdrdrv"))
		return "see \"Kernel module gdrdrv\"";
	if (!strcmp(t->backend, "dmabuf") && m->driver.flavour == FLAVOUR_PROPRIETARY)
		return "the proprietary kernel modules do not export dma-bufs";
	if (!strcmp(t->backend, "dmabuf") && m->probe->cuda_version < DMABUF_CUDA)
		return "it needs a CUDA driver of 13.3 or newer";
	return NULL;
}

/* The library lists each backend with its reason; here only one was asked, and it is named already. */
static const char *reason(const struct probe_trial *t)
{
	const char *lead = text(" %s: ", t->backend), *at = strstr(t->text, lead);

	return at ? at + strlen(lead) : t->text[0] ? t->text : strerror(t->error);
}

static void check_trial(const struct machine *m, struct report *r, const struct unit *u,
			const struct probe_trial *t)
{
	bool served = unit_server(u) || unit_answer(u) == ANSWER_YES;

	if (!strcmp(t->backend, TRIAL_PROGRAM)) /* check_unit() */
		return;
	if (trial_works(t))
		report_add(r, SEV_OK, u->id,
			   text("%s works: 64 KiB of %s memory pinned, mapped (%s) and copied both "
				"ways",
				t->backend, t->memory, t->mapping),
			   NULL, NULL);
	if (trial_works(t) && !strcmp(t->mapping, "Device"))
		report_add(r, SEV_WARN, u->id, text("%s does not combine writes", t->backend),
			   "writes through this mapping are many times slower than they could be",
			   "look for gdrdrv in the kernel log, and for nopat on the kernel's "
			   "command line");
	if (!trial_works(t))
		report_add(r, served ? SEV_NOTE : SEV_WARN, u->id,
			   text("%s does not serve %s memory (%s): %s", t->backend, t->memory,
				t->step, reason(t)),
			   served && t->error != EILSEQ ? NULL : meaning(m, u, t), NULL);
}

/* What restricts programs started here to some backends; NULL: nothing. */
static const char *restriction(const struct machine *m)
{
	const char *backend = m->probe->env.backend, *mmap = m->probe->env.dmabuf_mmap;

	return backend[0]	    ? text("GDRCOPY_BACKEND is \"%s\"", backend)
	       : !strcmp(mmap, "1") ? text("GDRCOPY_USE_DMABUF_MMAP is \"%s\"", mmap)
				    : NULL;
}

/* ---- what that comes to ---------------------------------------------------------------------- */

static const char *todo(const struct machine *m, const struct unit *u)
{
	const struct obstacle *o = rm_obstacle(m, u);

	return text("%s%s", o ? o->todo : "load the kernel module gdrdrv",
		    (!o || o->on_host) && m->container[0] ? " (on the host)" : "");
}

/* A backend serves, and yet a program fails: the environment forbids it. */
static void check_program(const struct machine *m, struct report *r, const struct unit *u)
{
	const struct probe_trial *t = unit_program(u);
	const char *set = restriction(m);

	report_add(
		r, t->error == ENOMEM ? SEV_UNKNOWN : SEV_FAIL, u->id,
		text("a program started here fails (%s): %s", t->step,
		     t->text[0] ? t->text : strerror(t->error)),
		set ? text("%s in this environment, which forbids what works: MPI, UCX, NCCL and "
			   "other programs started here get nothing else from gdr_open()",
			   set)
		    : "a backend that serves alone does not serve through gdr_open()",
		t->error == ENOMEM ? "free GPU memory or BAR1 (see \"BAR1\") and run this again"
		: set ? text("unset %.*s, or name a backend that works", (int)strcspn(set, " "),
			     set)
		      : "report this with the output of --json");
}

static void check_unit(const struct machine *m, struct report *r, const struct unit *u)
{
	const char *server = unit_server(u);
	const struct probe_trial *program = unit_program(u);

	if (u->probe->context_error[0])
		report_add(
			r, SEV_FAIL, u->id,
			text("no CUDA context can be made: %s", u->probe->context_error),
			"no program can use this GPU now",
			"nvidia-smi -q shows compute mode and free memory, the kernel log (NVRM, "
			"Xid) a broken GPU");
	else if (server && program && !trial_works(program))
		check_program(m, r, u);
	else if (server)
		report_add(
			r, SEV_OK, u->id,
			text("ordinary GPU memory (cudaMalloc) is served, by %s", server),
			"gdr_open() works: MPI, UCX, NCCL and other programs written for GDRCopy "
			"will use it",
			NULL);
	else if (unit_answer(u) == ANSWER_YES)
		report_add(r, SEV_OK, u->id, "memory of cudaHostAlloc is served, by host",
			   "an integrated GPU shares the CPU's memory: programs allocate that way",
			   NULL);
	else if (unit_answer(u) == ANSWER_UNKNOWN)
		report_add(r, SEV_UNKNOWN, u->id,
			   "whether ordinary GPU memory can be mapped: memory was short", NULL,
			   "free GPU memory or BAR1 (see \"BAR1\") and run this again");
	else
		report_add(r, SEV_FAIL, u->id,
			   unit_works(u, "rm", NULL)
				   ? "only exportable memory (cuMemCreate) is served, by rm; "
				     "cudaMalloc memory is not"
			   : unit_works(u, "host", NULL)
				   ? "the CPU cannot reach GPU memory; only cudaHostAlloc "
				     "memory is served"
				   : "no backend works",
			   unit_works(u, "rm", NULL)
				   ? "only barcopy_open(BARCOPY_OPEN_ANY) uses it; with "
				     "gdr_open() programs fall back to another way of copying"
				   : NULL,
			   todo(m, u));
}

static void check_environment(const struct machine *m, struct report *r)
{
	const char *set = restriction(m);

	for (const struct unit *u = m->unit; u < m->unit + m->units; u++)
		if (unit_server(u) && unit_program(u) && !trial_works(unit_program(u)))
			return; /* check_program() has the words */
	if (set)
		report_add(r, SEV_NOTE, NULL, set,
			   "programs started here use no other backend; each was tried alone above",
			   NULL);
}

static void check(const struct machine *m, struct report *r)
{
	if (machine_has_gpu(m) && !m->probe->gpus)
		report_add(r, m->probed ? SEV_FAIL : SEV_UNKNOWN, NULL,
			   m->probed ? "no backend could be tried: CUDA shows no GPU"
				     : "the backends were not tried",
			   NULL, NULL);
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		for (int k = 0; u->probe && k < u->probe->trials; k++)
			check_trial(m, r, u, &u->probe->trial[k]);
		if (u->probe)
			check_unit(m, r, u);
	}
	check_environment(m, r);
}

const struct subject subject_backends = { "backends", "Backends", NULL, check };
