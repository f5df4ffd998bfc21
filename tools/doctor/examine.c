/* SPDX-License-Identifier: MIT */
/* Examines a machine: its facts, the findings of every subject, the verdict; see doctor.h. */
#include <string.h>

#include "doctor/doctor.h"

const struct subject *const subjects[] = {
	&subject_gpus,	 &subject_driver, &subject_host,   &subject_backends,
	&subject_gdrdrv, &subject_bar1,	  &subject_places, NULL,
};

void machine_collect(struct machine *m, const struct root *root, const struct probes *probes)
{
	*m = (struct machine){ .root = root, .probe = probes };
	if (!probes->stand_in) /* no GPU of this machine is used */
		pci_collect(&m->pci, root);
	machine_add_units(m);
	for (const struct subject *const *s = subjects; *s; s++)
		if ((*s)->collect)
			(*s)->collect(m);
}

void subjects_check(const struct machine *m, struct report *r)
{
	for (const struct subject *const *s = subjects; *s; s++) {
		r->subject = (*s)->name;
		(*s)->check(m, r);
	}
}

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
	v->words = m->pci.error ? "No GPU was found, and the PCI bus is not visible here."
				: "This machine shows no NVIDIA GPU.";
	add_next(v,
		 m->container[0] ? give_gpu(m)
		 : m->vm[0]
			 ? "if the host has a GPU, have it passed through to this virtual machine"
			 : "if there should be one: check whether \"lspci -d 10de:\" lists it, "
			   "then seat, power and the firmware's set-up");
	add_next(v, "to try the library without a GPU: \"make demo\" in its source tree, or any "
		    "other tool with --sim build/sim, runs on stand-ins");
}

/* GPUs that CUDA does not show do not count: this process does not have them. */
static void by_gpu(struct verdict *v, const struct machine *m)
{
	int count[3] = { 0 }, all = m->probe->gpus;
	bool shared = m->tegra[0];
	const char *by = NULL;

	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		const char *server = unit_server(u);

		if (!u->probe)
			continue;
		shared |= u->probe->integrated;
		count[unit_answer(u)]++;
		if (unit_answer(u) == ANSWER_YES && (!by || !strstr(by, server ? server : "host")))
			by = text("%s%s%s", by ? by : "", by ? ", " : "", server ? server : "host");
	}
	v->answer = count[ANSWER_NO] || !all ? ANSWER_NO
		    : count[ANSWER_UNKNOWN]  ? ANSWER_UNKNOWN
					     : ANSWER_YES;
	v->words = !all ? "CUDA shows no GPU, so ordinary GPU memory (cudaMalloc) cannot be mapped."
			: text("Ordinary GPU memory (%s) can be mapped on %d of %d GPU%s%s%s%s.",
			       shared ? "cudaHostAlloc" : "cudaMalloc", count[ANSWER_YES], all,
			       all == 1 ? "" : "s", by ? ", by " : "", by ? by : "",
			       count[ANSWER_UNKNOWN] ? "; where memory was short, that is not known"
						     : "");
}

void verdict_reach(struct verdict *v, const struct machine *m, const struct report *r)
{
	static const enum severity urgent[] = { SEV_FAIL, SEV_UNKNOWN, SEV_WARN };

	*v = (struct verdict){ .answer = ANSWER_NO };
	(machine_has_gpu(m) ? by_gpu : no_gpu)(v, m);
	for (size_t s = 0; s < sizeof(urgent) / sizeof(urgent[0]); s++)
		for (size_t i = 0; i < r->count; i++)
			if (r->finding[i].severity == urgent[s] && r->finding[i].todo)
				add_next(v, r->finding[i].todo);
}
