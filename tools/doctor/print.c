/* SPDX-License-Identifier: MIT */
/* The two forms of a report; see doctor.h. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "doctor/doctor.h"

enum { WIDTH = 96, INDENT = 11 };

static const char *const answer_name[] = { "yes", "no", "unknown" };

static void put_plain(const char *words, size_t n, FILE *out)
{
	for (size_t i = 0; i < n; i++)
		fputc(words[i] >= ' ' && words[i] <= '~' ? words[i] : '?', out);
}

/* Writes words from column `at` on, with new lines at column `indent`; ends the line. */
static void put_wrapped(const char *words, size_t at, size_t indent, FILE *out)
{
	static const char blanks[] = " \n\t";
	bool first = true;

	for (words += strspn(words, blanks); *words; words += strspn(words, blanks)) {
		size_t n = strcspn(words, blanks);

		if (!first && at + 1 + n > WIDTH) {
			fprintf(out, "\n%*s", (int)indent, "");
			at = indent;
		} else if (!first) {
			fputc(' ', out);
			at++;
		}
		put_plain(words, n, out);
		at += n;
		words += n;
		first = false;
	}
	fputc('\n', out);
}

static void put_more(const char *lead, const char *words, FILE *out)
{
	if (!words)
		return;
	fprintf(out, "%*s%s", INDENT, "", lead);
	put_wrapped(words, INDENT + strlen(lead), INDENT + strlen(lead), out);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* A finding that several GPUs share is printed once, in the place of the first. */
static bool same_finding(const struct finding *a, const struct finding *b)
{
	return a->gpu && b->gpu && a->severity == b->severity && !strcmp(a->subject, b->subject) &&
	       same_text(a->found, b->found) && same_text(a->means, b->means) &&
	       same_text(a->todo, b->todo);
}

static bool printed_before(const struct report *r, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (same_finding(&r->finding[i], &r->finding[index]))
			return true;
	return false;
}

/* "0000:17:00.0, 0000:65:00.0: " or "all 8 GPUs: "; "" if the machine has one GPU. */
static const char *name_gpus(const struct machine *m, const struct report *r, size_t index)
{
	const struct finding *f = &r->finding[index];
	const char *names = "";
	int count = 0;

	if (m->units < 2 || !f->gpu || strstr(f->found, f->gpu))
		return "";
	for (size_t i = index; i < r->count; i++)
		if (i == index || same_finding(f, &r->finding[i]))
			names = text("%s%s%s", names, count++ ? ", " : "", r->finding[i].gpu);
	if (count == m->units)
		return count == 2 ? "both GPUs: " : text("all %d GPUs: ", count);
	return text("%s: ", names);
}

static void put_finding(const struct machine *m, const struct report *r, size_t index, FILE *out)
{
	const struct finding *f = &r->finding[index];

	fprintf(out, "  %-9s", severity_name[f->severity]);
	put_wrapped(text("%s%s", name_gpus(m, r, index), f->found), INDENT, INDENT, out);
	put_more("means: ", f->means, out);
	put_more("to do: ", f->todo, out);
}

static void put_places(const struct machine *m, FILE *out)
{
	fputs("  GPU           NUMA its CPUs          usable\n", out);
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		const struct place *p = &u->place;
		const char *line =
			text("  %-13s %4s %-17s %6s", u->id, p->numa, p->cpus,
			     p->usable < 0 ? "?" : text("%ld", p->usable));

		put_plain(line, strlen(line), out);
		fputc('\n', out);
	}
}

static void put_subject(const struct machine *m, const struct subject *s, const struct report *r,
			FILE *out)
{
	bool table = s == &subject_places && m->pci.count && m->units, any = table;

	for (size_t i = 0; i < r->count && !any; i++)
		any = !strcmp(r->finding[i].subject, s->name);
	if (any)
		fprintf(out, "\n%s\n", s->title);
	if (table)
		put_places(m, out);
	for (size_t i = 0; i < r->count; i++)
		if (!strcmp(r->finding[i].subject, s->name) && !printed_before(r, i))
			put_finding(m, r, i, out);
}

void print_text(const struct machine *m, const struct report *r, const struct verdict *v, FILE *out)
{
	const char *lead = "  ";

	fprintf(out, "gdrcopy_doctor " BARCOPY_VERSION);
	put_wrapped(text(": %s, Linux %s, %s, user %d", m->probe->date, m->probe->release,
			 m->probe->machine, m->probe->euid),
		    0, 0, out);
	if (m->probe->stand_in)
		fputs("Running on barcopy's stand-in: no GPU is used.\n", out);
	for (const struct subject *const *s = subjects; *s; s++)
		put_subject(m, *s, r, out);

	fprintf(out, "\nIn short\n  ");
	put_wrapped(v->words, 2, 2, out);
	if (v->nexts)
		fprintf(out, "  %s:\n",
			v->answer == ANSWER_YES ? "What could be better" : "What to do next");
	for (size_t i = 0; i < v->nexts; i++) {
		fprintf(out, "  %zu. ", i + 1);
		put_wrapped(v->next[i], 5, 5, out);
	}
	for (int s = 0; s < SEVERITIES; s++) {
		bool word = s == SEV_OK || s == SEV_UNKNOWN; /* without a plural */
		size_t n = 0;

		for (size_t i = 0; i < r->count; i++)
			n += r->finding[i].severity == (enum severity)s;
		fprintf(out, "%s%zu %s%s", lead, n, severity_name[s], n == 1 || word ? "" : "s");
		lead = ", ";
	}
	fputc('\n', out);
}

static void json_gpu(struct json *j, const struct unit *u)
{
	json_object(j, NULL);
	json_string(j, "id", u->id);
	json_string(j, "name", u->probe ? u->probe->name : NULL);
	json_string(j, "ordinary_memory", answer_name[unit_answer(u)]);
	/* which serve some kind of memory, and which that of cudaMalloc */
	json_object(j, "backends");
	for (const char *const *name = backend_names; u->probe && u->probe->trials && *name; name++)
		json_bool(j, *name, unit_works(u, *name, NULL));
	json_end(j);
	json_array(j, "cuda_malloc");
	for (const char *const *name = backend_names; *name; name++)
		if (unit_works(u, *name, "cuMemAlloc"))
			json_string(j, NULL, *name);
	json_end(j);
	if (u->probe && !u->probe->nvml_error[0] && !u->probe->integrated) {
		json_object(j, "bar1");
		json_int(j, "total", u->probe->bar1_total);
		json_int(j, "used", u->probe->bar1_used);
		json_int(j, "free", u->probe->bar1_free);
		json_end(j);
	}
	json_object(j, "place");
	json_string(j, "numa", u->place.numa[0] == '-' ? NULL : u->place.numa);
	json_string(j, "cpus", u->place.cpus[0] == '-' ? NULL : u->place.cpus);
	json_end(j);
	json_end(j);
}

void print_json(const struct machine *m, const struct report *r, const struct verdict *v, FILE *out)
{
	struct json j;

	json_head(&j);
	json_bool(&j, "simulated", m->probe->stand_in);
	json_string(&j, "date", m->probe->date);
	json_string(&j, "kernel", m->probe->release);
	json_string(&j, "machine", m->probe->machine);
	json_bool(&j, "container", m->container[0]);
	json_bool(&j, "virtual_machine", m->vm[0]);
	json_string(&j, "ordinary_memory", answer_name[v->answer]);
	json_string(&j, "verdict", v->words);
	json_array(&j, "next");
	for (size_t i = 0; i < v->nexts; i++)
		json_string(&j, NULL, v->next[i]);
	json_end(&j);
	json_array(&j, "gpus");
	for (const struct unit *u = m->unit; u < m->unit + m->units; u++)
		json_gpu(&j, u);
	json_end(&j);
	json_array(&j, "findings");
	for (size_t i = 0; i < r->count; i++) {
		const struct finding *f = &r->finding[i];

		json_object(&j, NULL);
		json_string(&j, "subject", f->subject);
		json_string(&j, "severity", severity_name[f->severity]);
		json_string(&j, "gpu", f->gpu);
		json_string(&j, "found", f->found);
		json_string(&j, "means", f->means);
		json_string(&j, "todo", f->todo);
		json_end(&j);
	}
	json_end(&j);
	json_finish(&j, out);
}
