/* SPDX-License-Identifier: MIT */
/* What it all comes to; see verdict.h. */
#include "doctor/verdict.h"

#include <stdio.h>
#include <string.h>

static void add_next(struct verdict *v, const char *todo)
{
	for (size_t i = 0; i < v->nexts; i++)
		if (!strcmp(v->next[i], todo))
			return;
	if (v->nexts < VERDICT_NEXT)
		v->next[v->nexts++] = todo;
}

static void no_gpu(struct verdict *v, const struct machine *m)
{
	snprintf(v->text, sizeof(v->text), "%s",
		 m->pci.error
			 ? "No GPU was found, and the PCI bus, where one would be, is not visible "
			   "here. So nothing that barcopy does can work in this place."
			 : "This machine has no NVIDIA GPU. barcopy lets a CPU reach the memory of "
			   "one, "
			   "so there is nothing here for it to do. That is no fault of barcopy's.");
	add_next(v,
		 "To see what barcopy does, no GPU is needed: \"make demo\" in its source runs the "
		 "tools on a stand-in for one.");
	if (m->container.is)
		add_next(v, "If the host of this container has a GPU, start the container with it: "
			    "docker run --gpus all, or podman run --device nvidia.com/gpu=all.");
	else if (m->vm.is)
		add_next(v,
			 "If the host of this virtual machine has a GPU, have it passed through; "
			 "at a cloud provider, choose an instance with an NVIDIA GPU.");
	else
		add_next(v, "If this machine should have one: does \"lspci -d 10de:\" list it? If "
			    "not, check seat, power and the firmware's set-up.");
	add_next(v, "Then run gdrcopy_doctor again.");
}

/* Lead and the names of those backends that `does` holds for; false if there is none. */
static bool list(const struct unit *u, const char *lead,
		 bool (*does)(const struct unit *u, const char *backend), char *text, size_t size)
{
	bool any = false;

	snprintf(text, size, "%s", lead);
	for (const char *const *name = backend_names; *name; name++) {
		if (!does(u, *name))
			continue;
		snprintf(text + strlen(text), size - strlen(text), "%s%s", any ? ", " : "", *name);
		any = true;
	}
	return any;
}

/* What a program can expect of one GPU. */
static void usable(const struct unit *u, char *text, size_t size)
{
	if (list(u, "ordinary GPU memory (cudaMalloc) can be mapped here by: ", unit_serves, text,
		 size))
		return;
	if (unit_works(u, "rm"))
		snprintf(text, size,
			 "only exportable memory (cuMemCreate) can be mapped here by: rm");
	else if (u->probe && u->probe->integrated &&
		 list(u, "memory of cudaHostAlloc can be mapped here by: ", unit_works, text, size))
		return;
	else if (unit_works(u, "host"))
		snprintf(text, size, "only memory of cudaHostAlloc is usable (host)");
	else
		snprintf(text, size, u->probe ? "no backend works" : "not tried");
}

/* The GPUs, by what they are usable through. */
static void working(struct verdict *v, const struct machine *m)
{
	size_t used = 0, size = sizeof(v->text);
	bool done[PROBE_GPUS] = { false };

	for (int i = 0; i < m->units && used + 160 < size; i++) {
		char text[112], other[112];
		int same = 0;

		if (done[i])
			continue;
		usable(&m->unit[i], text, sizeof(text));
		for (int k = i; k < m->units; k++) {
			usable(&m->unit[k], other, sizeof(other));
			if (strcmp(text, other))
				continue;
			same++;
			done[k] = true;
		}
		used += (size_t)snprintf(v->text + used, size - used, "%s%d of %d GPU%s: %s",
					 used ? "; " : "", same, m->units, m->units == 1 ? "" : "s",
					 text);
	}
	for (int i = 0; i < m->units; i++)
		for (const char *const *name = backend_names; *name; name++)
			v->works |= unit_works(&m->unit[i], *name);
}

static void add_all(struct verdict *v, const struct report *r, enum severity severity, bool cuda)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct finding *f = r->finding[i];

		if (f->severity == severity && f->todo && !strcmp(f->check, "cuda") == cuda)
			add_next(v, f->todo);
	}
}

void verdict_reach(struct verdict *v, const struct machine *m, const struct report *r)
{
	*v = (struct verdict){ 0 };
	if (!machine_has_gpu(m)) {
		no_gpu(v, m);
		return;
	}
	if (!m->probed)
		snprintf(v->text, sizeof(v->text),
			 "Only files were looked at; whether a backend works was not tried.");
	else if (m->units)
		working(v, m);
	else
		snprintf(v->text, sizeof(v->text), "CUDA does not show the GPU of this %s.",
			 m->tegra.is ? "Tegra" : "machine");
	/* that CUDA does not start has its cause in another fault, most often */
	add_all(v, r, SEV_FAIL, false);
	add_all(v, r, SEV_FAIL, true);
	add_all(v, r, SEV_WARN, false);
}
