/* SPDX-License-Identifier: MIT */
/* Subject: which backends serve which GPU, by trial, and the obstacle to ordinary memory. */
#include <errno.h>
#include <string.h>

#include "doctor/doctor.h"

enum { DMABUF_CUDA = 13030 }; /* the first CUDA driver that lets a dma-buf be mapped */
enum { RM_DRIVER = 515 }; /* the first with the ioctl that names the objects behind a range */
static const char load_gdrdrv[] = "load the kernel module gdrdrv";
static const char report_this[] = "report this with the output of --json";

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

/* Why rm does not serve the cudaMalloc memory of a GPU. */
struct obstacle {
	const char *means;
	const char *mend; /* what removes it; NULL: nothing does */
	const char *gdrdrv; /* how gdrdrv goes round it; NULL: it does not */
	bool on_host; /* in a container: only the host can remove it */
};

/* Of gdrdrv for one GPU, by its trial. */
enum gdrdrv { GDRDRV_ABSENT, GDRDRV_UNUSABLE, GDRDRV_REFUSED };

static enum gdrdrv gdrdrv_state(const struct machine *m, const struct unit *u)
{
	const struct probe_node *n = probes_node(m->probe, "/dev/gdrdrv");

	for (int i = 0; u->probe && i < u->probe->trials; i++) {
		const struct probe_trial *t = &u->probe->trial[i];

		if (!strcmp(t->backend, "gdrdrv") &&
		    (!strcmp(t->step, "pin") || !strcmp(t->step, "map")))
			return GDRDRV_REFUSED;
	}
	return m->gdrdrv.loaded || (n && n->exists) ? GDRDRV_UNUSABLE : GDRDRV_ABSENT;
}

/* Returns true if rm failed with this in its text. */
static bool rm_said(const struct unit *u, const char *part)
{
	for (int i = 0; u->probe && i < u->probe->trials; i++)
		if (!strcmp(u->probe->trial[i].backend, "rm") && u->probe->trial[i].error &&
		    strstr(u->probe->trial[i].text, part))
			return true;
	return false;
}

/* One machine has several; the first of the list has to be removed first. */
enum {
	WSL,
	POLICY,
	GEFORCE,
	OLD_DRIVER,
	NODES,
	CONFIDENTIAL,
	PROPRIETARY,
	MIG,
	EXPORT,
	UNSEEN,
	MAP_REFUSED,
	HINDRANCES
};

static const struct obstacle obstacles[HINDRANCES] = {
	[WSL] = { "WSL gives the CPU no access to GPU memory", "use Linux itself instead of WSL",
		  NULL, false },
	[POLICY] = { "this machine's policy turns rm off", "see /etc/barcopy/policy", load_gdrdrv,
		     true },
	[OLD_DRIVER] = { "a GPU driver older than 515 does not show what is behind an address",
			 "install a newer GPU driver", load_gdrdrv, true },
	[NODES] = { "it needs /dev/nvidiactl and the GPU's own node, as CUDA does",
		    "make the nodes open for this user: see \"GPU driver\"", NULL, false },
	[CONFIDENTIAL] = { "with confidential computing the CPU may not map GPU memory",
			   "copy through CUDA, or turn confidential computing off", NULL, true },
	[GEFORCE] = { "rm needs GPUDirect RDMA, which NVIDIA supports on data-center and "
		      "professional RTX GPUs; barcopy has not been tried on a GeForce",
		      "copy through CUDA: on GeForce GPUs the GPU driver refuses gdrdrv's pins as "
		      "well",
		      NULL, false },
	[PROPRIETARY] = { "the proprietary kernel modules do not export dma-bufs, which rm needs "
			  "for cudaMalloc memory",
			  "install the open kernel modules (Turing and later GPUs)", load_gdrdrv,
			  true },
	[MIG] = { "rm is not tested on a part of a GPU (MIG)", "use the GPU without MIG",
		  load_gdrdrv, true },
	[EXPORT] = { "this GPU's memory is not exported as dma-buf, which rm needs: the kernel may "
		     "lack dma-bufs, or CUDA be older than 11.7",
		     NULL, load_gdrdrv, true },
	[UNSEEN] = { "rm reads in libcuda's ioctl() what is behind an address, and this libcuda "
		     "makes that call by another way, or another library's hook hides it",
		     NULL, "load the kernel module gdrdrv, which asks the GPU driver instead",
		     true },
	[MAP_REFUSED] = { "the GPU driver lets the CPU map nothing of this GPU, as with "
			  "confidential computing",
			  "see whether \"nvidia-smi conf-compute -f\" says that confidential "
			  "computing is on, and what the kernel log has of NVRM; copy through CUDA",
			  NULL, false },
};

static const struct obstacle *rm_obstacle(const struct machine *m, const struct unit *u)
{
	const char *name = u->probe->name;
	bool export = u->probe->dmabuf;
	const bool applies[HINDRANCES] = {
		[WSL] = m->wsl,
		[POLICY] = rm_said(u, ": rm is off"),
		[OLD_DRIVER] = m->driver.major && m->driver.major < RM_DRIVER,
		[NODES] = !nodes_open(m, u),
		[CONFIDENTIAL] = m->probe->confidential,
		[GEFORCE] = unit_is_geforce(u),
		[PROPRIETARY] = !export && m->driver.flavour == FLAVOUR_PROPRIETARY,
		[MIG] = strstr(name, " MIG "), /* "NVIDIA H100 80GB HBM3 MIG 1g.10gb" */
		[EXPORT] = !export,
		[UNSEEN] = rm_said(u, "export of a dma-buf was not seen") ||
			   rm_said(u, "no ioctl() that could be watched"),
		/* As a GPU with confidential computing does. */
		[MAP_REFUSED] = rm_said(u, "RM_MAP_MEMORY: NV_ERR_NOT_SUPPORTED"),
	};

	for (int i = 0; i < HINDRANCES; i++)
		if (applies[i] && (!m->probe->stand_in || i == UNSEEN || i == POLICY))
			return &obstacles[i];
	return NULL;
}

/* What is left to do where no backend serves ordinary memory: nothing that was tried already. */
static const char *remedy(const struct machine *m, const struct unit *u)
{
	const struct obstacle *o = rm_obstacle(m, u);
	const char *mend = o ? o->mend : NULL, *gdrdrv = o ? o->gdrdrv : load_gdrdrv;
	enum gdrdrv state = gdrdrv_state(m, u);

	if (state == GDRDRV_REFUSED || !unit_takes_gdrdrv(u))
		gdrdrv = NULL;
	else if (state == GDRDRV_UNUSABLE && gdrdrv)
		gdrdrv = "have gdrdrv work: see \"Kernel module gdrdrv\"";
	if (!mend && !gdrdrv && state != GDRDRV_REFUSED)
		return report_this;
	if (!mend && !gdrdrv)
		return "copy through CUDA: the GPU driver refused gdrdrv's pin, and rm "
		       "cannot map this GPU's memory; the kernel log (NVRM, gdrdrv) may have the "
		       "reason";
	return text("%s%s%s%s", mend ? mend : "", mend && gdrdrv ? ", or " : "",
		    gdrdrv ? gdrdrv : "",
		    (!o || o->on_host) && m->container[0] ? " (on the host)" : "");
}

/* Explains a refusal beyond the library's own text; NULL: that is enough. */
static const char *meaning(const struct machine *m, const struct unit *u,
			   const struct probe_trial *t)
{
	const struct obstacle *o = rm_obstacle(m, u);
	enum gdrdrv state = gdrdrv_state(m, u);

	if (t->error == ENOMEM)
		return "memory or BAR1 was short at that moment, which does not say whether the "
		       "backend works: run this again when there is space";
	if (t->error == EILSEQ)
		return "the mapping does not show the GPU's memory: do not use this backend, and "
		       "report this with the output of --json";
	if (!strncmp(t->text, "the trial was ", 14)) /* probe.c */
		return "a program that uses this backend may end in the same way: report this with "
		       "the output of --json";
	if (!strcmp(t->backend, "rm"))
		return o ? o->means : NULL;
	if (!strcmp(t->backend, "gdrdrv"))
		return state == GDRDRV_REFUSED
			       ? "the module is loaded and its node opens: it is the GPU driver "
				 "that refuses the pin"
		       : state == GDRDRV_UNUSABLE ? "see \"Kernel module gdrdrv\""
						  : NULL; /* the library's text says so */
	if (!strcmp(t->backend, "dmabuf") && m->driver.flavour == FLAVOUR_PROPRIETARY)
		return "the proprietary kernel modules do not export dma-bufs";
	if (!strcmp(t->backend, "dmabuf") && m->probe->cuda_version < DMABUF_CUDA)
		return "it needs a CUDA driver of 13.3 or newer";
	return NULL;
}

/* The library's text lists every backend ("gdrdrv: ...; host: ..."): the part of the one tried. */
static const char *reason(const struct probe_trial *t)
{
	const char *lead = text(" %s: ", t->backend), *at = strstr(t->text, lead), *end = NULL;

	if (!at)
		return t->text[0] ? t->text : strerror(t->error);
	at += strlen(lead);
	for (const char *const *name = backend_names; *name && !end; name++)
		end = strstr(at, text("; %s: ", *name));
	return end ? text("%.*s", (int)(end - at), at) : at;
}

static void check_trial(const struct machine *m, struct report *r, const struct unit *u,
			const struct probe_trial *t)
{
	bool served = unit_server(u) || unit_answer(u) == ANSWER_YES;

	if (!strcmp(t->backend, TRIAL_PROGRAM)) /* check_unit() */
		return;
	if (!trial_works(t)) {
		finding(r, served ? SEV_NOTE : SEV_WARN, u->id,
			served && t->error != EILSEQ ? NULL : meaning(m, u, t), NULL,
			"%s cannot map %s memory (%s): %s", t->backend, t->memory, t->step,
			reason(t));
		return;
	}
	finding(r, SEV_OK, u->id, NULL, NULL,
		"%s works: 64 KiB of %s memory pinned, mapped (%s) and copied both ways",
		t->backend, t->memory, t->mapping);
	if (!strcmp(t->mapping, "Device"))
		finding(r, SEV_WARN, u->id,
			"writes through this mapping are many times slower than they could be",
			!strcmp(t->backend, "rm") && !strcmp(m->probe->machine, "aarch64")
				? "install driver 590 or newer: older ones map BAR1 as Device "
				  "memory on arm64"
				: "look for gdrdrv in the kernel log, and for nopat on the "
				  "kernel's command line",
			"%s does not combine writes", t->backend);
}

/* The variable that restricts programs started here to some backends; NULL: none. */
static const char *restriction(const struct machine *m)
{
	const char *backend = m->probe->env.backend, *mmap = m->probe->env.dmabuf_mmap;

	return backend[0]	    ? text("GDRCOPY_BACKEND is \"%s\"", backend)
	       : !strcmp(mmap, "1") ? text("GDRCOPY_USE_DMABUF_MMAP is \"%s\"", mmap)
				    : NULL;
}

static const char make_room[] = "free GPU memory or BAR1 (see \"BAR1\") and run this again";

/* A backend serves, and yet a program fails: the environment forbids it. */
static void check_program(const struct machine *m, struct report *r, const struct unit *u)
{
	const struct probe_trial *t = unit_program(u);
	const char *set = restriction(m), *means, *todo;

	means = "a backend that works alone does not work through gdr_open()";
	todo = report_this;
	if (set) {
		means = text("%s in this environment, which forbids what works: MPI, UCX, NCCL and "
			     "other programs started here get nothing else from gdr_open()",
			     set);
		todo = text("unset %.*s, or name a backend that works", (int)strcspn(set, " "),
			    set);
	}
	finding(r, t->error == ENOMEM ? SEV_UNKNOWN : SEV_FAIL, u->id, means,
		t->error == ENOMEM ? make_room : todo, "a program started here fails (%s): %s",
		t->step, t->text[0] ? t->text : strerror(t->error));
}

/* No backend serves ordinary memory. */
static void not_served(const struct machine *m, struct report *r, const struct unit *u)
{
	const char *found = "no backend works", *means = NULL;

	if (unit_works(u, "rm", NULL)) {
		found = "only exportable memory (cuMemCreate) can be mapped, by rm; cudaMalloc "
			"memory cannot";
		means = "a program of your own gets it by barcopy_open(BARCOPY_OPEN_ANY) and "
			"barcopy_mem_alloc(); with gdr_open() programs fall back to another way of "
			"copying";
	} else if (unit_works(u, "host", NULL)) {
		found = "the CPU cannot reach GPU memory; only cudaHostAlloc memory can be mapped";
	}
	finding(r, SEV_FAIL, u->id, means, remedy(m, u), "%s", found);
}

static void check_unit(const struct machine *m, struct report *r, const struct unit *u)
{
	const struct probe_trial *program = unit_program(u);
	const char *server = unit_server(u);

	if (u->probe->context_error[0])
		finding(r, SEV_FAIL, u->id, "no program can use this GPU now",
			"nvidia-smi -q shows compute mode and free memory, the kernel log (NVRM, "
			"Xid) a broken GPU",
			"no CUDA context can be made: %s", u->probe->context_error);
	else if (server && program && !trial_works(program))
		check_program(m, r, u);
	else if (server)
		finding(r, SEV_OK, u->id,
			"gdr_open() works: MPI, UCX, NCCL and other programs written for GDRCopy "
			"will use it",
			NULL, "ordinary GPU memory (cudaMalloc) can be mapped, by %s", server);
	else if (unit_answer(u) == ANSWER_YES)
		finding(r, SEV_OK, u->id,
			"an integrated GPU shares the CPU's memory: programs allocate that way",
			NULL, "memory of cudaHostAlloc can be mapped, by host");
	else if (unit_answer(u) == ANSWER_UNKNOWN)
		finding(r, SEV_UNKNOWN, u->id, NULL, make_room,
			"whether ordinary GPU memory can be mapped: memory was short");
	else
		not_served(m, r, u);
}

static void check(const struct machine *m, struct report *r)
{
	const char *set = restriction(m);

	if (machine_has_gpu(m) && !m->probe->gpus)
		finding(r, SEV_FAIL, NULL, NULL, NULL,
			"no backend could be tried: CUDA shows no GPU");
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		for (int k = 0; u->probe && k < u->probe->trials; k++)
			check_trial(m, r, u, &u->probe->trial[k]);
		if (u->probe)
			check_unit(m, r, u);
		if (unit_server(u) && unit_program(u) && !trial_works(unit_program(u)))
			set = NULL; /* check_program() has reported it */
	}
	if (set)
		finding(r, SEV_NOTE, NULL,
			"programs started here use no other backend; each was tried alone above",
			NULL, "%s", set);
}

const struct subject subject_backends = { "backends", "Backends", NULL, check };
