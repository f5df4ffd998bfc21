/* SPDX-License-Identifier: MIT */
/* The report as JSON; see print.h. */
#include "common/json.h"
#include "common/exit.h"
#include "doctor/print.h"
#include "doctor/paths.h"

static void put_head(struct json *j, const struct machine *m)
{
	json_string(j, "tool", tool_name);
	json_string(j, "version", BARCOPY_VERSION);
	json_bool(j, "probed", m->probed);
	json_bool(j, "simulated", m->probe->stand_in);
	json_string(j, "date", m->probed ? m->probe->date : NULL);
	json_string(j, "kernel", m->probed ? m->probe->release : NULL);
	json_string(j, "machine", m->probed ? m->probe->machine : NULL);
	json_bool(j, "container", m->container.is);
	json_bool(j, "virtual_machine", m->vm.is);
}

/* Which serve some kind of memory; and which that of cudaMalloc. */
static void put_backends(struct json *j, const struct unit *u)
{
	json_object(j, "backends");
	for (const char *const *name = backend_names; u->probe && u->probe->trials && *name; name++)
		json_bool(j, *name, unit_works(u, *name));
	json_end(j);
	json_array(j, "cuda_malloc");
	for (const char *const *name = backend_names; *name; name++)
		if (unit_serves(u, *name))
			json_string(j, NULL, *name);
	json_end(j);
}

static void put_gpu(struct json *j, const struct machine *m, const struct unit *u)
{
	static const char *const kind[] = {
		[PCI_GPU] = "gpu", [PCI_NIC] = "network", [PCI_NVME] = "nvme"
	};

	json_object(j, NULL);
	json_string(j, "id", u->id);
	json_string(j, "name", u->probe ? u->probe->name : NULL);
	put_backends(j, u);
	if (u->probe && !u->probe->nvml_error[0] && !u->probe->integrated) {
		json_object(j, "bar1");
		json_int(j, "total", u->probe->bar1_total);
		json_int(j, "used", u->probe->bar1_used);
		json_int(j, "free", u->probe->bar1_free);
		json_end(j);
	}
	json_array(j, "paths");
	for (size_t i = 0; u->pci && i < m->pci.count; i++) {
		const struct pci_dev *d = &m->pci.dev[i];

		if (d == u->pci || d->kind == PCI_BRIDGE)
			continue;
		json_object(j, NULL);
		json_string(j, "device", d->addr);
		json_string(j, "kind", kind[d->kind]);
		json_string(j, "name", d->label[0] ? d->label : NULL);
		json_string(j, "path", path_word[path_between(m, u->pci, d)]);
		json_end(j);
	}
	json_end(j);
	json_end(j);
}

static void put_finding(struct json *j, const struct finding *f)
{
	json_object(j, NULL);
	json_string(j, "subject", f->subject);
	json_string(j, "check", f->check);
	json_string(j, "severity", severity_name[f->severity]);
	json_string(j, "gpu", f->gpu[0] ? f->gpu : NULL);
	json_string(j, "found", f->found);
	json_string(j, "means", f->means);
	json_string(j, "todo", f->todo);
	json_end(j);
}

void print_json(const struct machine *m, const struct report *r, const struct verdict *v, FILE *out)
{
	struct json j;

	json_start(&j);
	put_head(&j, m);
	json_array(&j, "gpus");
	for (int i = 0; i < m->units; i++)
		put_gpu(&j, m, &m->unit[i]);
	json_end(&j);
	json_array(&j, "findings");
	for (size_t i = 0; i < r->count; i++)
		put_finding(&j, r->finding[i]);
	json_end(&j);
	json_object(&j, "counts");
	for (int s = 0; s < SEVERITIES; s++)
		json_uint(&j, severity_name[s], report_count(r, (enum severity)s));
	json_end(&j);
	json_bool(&j, "works", v->works);
	json_string(&j, "verdict", v->text);
	json_array(&j, "next");
	for (size_t i = 0; i < v->nexts; i++)
		json_string(&j, NULL, v->next[i]);
	json_end(&j);
	json_finish(&j, out);
}
