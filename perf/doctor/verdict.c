/* SPDX-License-Identifier: MIT */
/* What it all comes to; see verdict.h. */
#include "doctor/verdict.h"

#include <stdio.h>
#include <string.h>

static const char *const backends[] = { "gdrdrv", "dmabuf", "vulkan", "host" };

enum { BACKENDS = sizeof(backends) / sizeof(backends[0]) };

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
			   "so there is nothing here for it to do; nothing is broken.");
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

/* "2 of 8 GPUs: gdrdrv, host", by the set of backends that work. */
static void working(struct verdict *v, const struct machine *m)
{
	size_t used = 0, size = sizeof(v->text);
	bool done[PROBE_GPUS] = { false };

	for (int i = 0; i < m->units; i++) {
		char names[64] = "";
		int same = 0;

		if (done[i])
			continue;
		for (int k = i; k < m->units; k++) {
			bool equal = true;

			for (int b = 0; b < BACKENDS; b++)
				equal &= unit_works(&m->unit[k], backends[b]) ==
					 unit_works(&m->unit[i], backends[b]);
			same += equal;
			done[k] |= equal;
		}
		for (int b = 0; b < BACKENDS; b++)
			if (unit_works(&m->unit[i], backends[b]))
				snprintf(names + strlen(names), sizeof(names) - strlen(names),
					 "%s%s", names[0] ? ", " : "", backends[b]);
		v->works |= names[0];
		used += (size_t)snprintf(v->text + used, size - used, "%s%d of %d GPU%s: %s%s",
					 used ? "; " : "", same, m->units, m->units == 1 ? "" : "s",
					 names[0] ? "usable through " : "no backend works", names);
		if (used + 128 > size)
			break;
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
	for (size_t i = 0; i < r->count; i++)
		if (r->finding[i]->severity == SEV_FAIL && r->finding[i]->todo)
			add_next(v, r->finding[i]->todo);
	for (size_t i = 0; i < r->count; i++)
		if (r->finding[i]->severity == SEV_WARN && r->finding[i]->todo)
			add_next(v, r->finding[i]->todo);
}
