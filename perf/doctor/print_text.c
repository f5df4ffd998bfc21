/* SPDX-License-Identifier: MIT */
/* The report for people; see print.h. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"
#include "doctor/print.h"

enum { WIDTH = 96, INDENT = 11 };

static const char *const severity_colour[SEVERITIES] = { "\033[32m", "\033[36m", "\033[35m",
							 "\033[33m", "\033[1;31m" };

static void put_word(const char *word, size_t n, FILE *out)
{
	for (size_t i = 0; i < n; i++)
		fputc(word[i] > ' ' && word[i] <= '~' ? word[i] : '?', out);
}

/* Writes words from column `at` on, with new lines at column `indent`; ends the line. */
static void put_wrapped(const char *text, size_t at, size_t indent, FILE *out)
{
	bool first = true;

	while (*text) {
		size_t n;

		text += strspn(text, " \n\t");
		n = strcspn(text, " \n\t");
		if (!n)
			break;
		if (!first && at + 1 + n > WIDTH) {
			fprintf(out, "\n%*s", (int)indent, "");
			at = indent;
		} else if (!first) {
			fputc(' ', out);
			at++;
		}
		put_word(text, n, out);
		at += n;
		text += n;
		first = false;
	}
	fputc('\n', out);
}

static void put_more(const char *lead, const char *text, FILE *out)
{
	if (!text)
		return;
	fprintf(out, "%*s%s", INDENT, "", lead);
	put_wrapped(text, INDENT + strlen(lead), INDENT + strlen(lead), out);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* The same of several GPUs: printed once, where the first stands. */
static bool same_finding(const struct finding *a, const struct finding *b)
{
	return a->gpu[0] && b->gpu[0] && a->severity == b->severity &&
	       !strcmp(a->subject, b->subject) && !strcmp(a->check, b->check) &&
	       same_text(a->found, b->found) && same_text(a->means, b->means) &&
	       same_text(a->todo, b->todo);
}

static bool printed_before(const struct report *r, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (same_finding(r->finding[i], r->finding[index]))
			return true;
	return false;
}

/* "0000:17:00.0, 0000:65:00.0: " or "all 8 GPUs: "; nothing where there is one only. */
static void name_gpus(const struct machine *m, const struct report *r, size_t index, char *text,
		      size_t size)
{
	const struct finding *f = r->finding[index];
	size_t used = 0;
	int count = 0;

	text[0] = '\0';
	if (m->units < 2 || !f->gpu[0] || strstr(f->found, f->gpu))
		return;
	for (size_t i = index; i < r->count; i++) {
		if (i != index && !same_finding(f, r->finding[i]))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s", count++ ? ", " : "",
					 r->finding[i]->gpu);
	}
	if (count == m->units)
		snprintf(text, size, count == 2 ? "both GPUs: " : "all %d GPUs: ", count);
	else
		snprintf(text + used, size - used, ": ");
}

static void put_finding(const struct machine *m, const struct report *r, size_t index, bool colour,
			FILE *out)
{
	const struct finding *f = r->finding[index];
	char gpus[PROBE_GPUS * 18 + 8], *text = NULL;

	name_gpus(m, r, index, gpus, sizeof(gpus));
	fprintf(out, "  %s%-9s%s", colour ? severity_colour[f->severity] : "",
		severity_name[f->severity], colour ? "\033[0m" : "");
	if (asprintf(&text, "%s%s", gpus, f->found) < 0)
		tool_fail("out of memory");
	put_wrapped(text, INDENT, INDENT, out);
	free(text);
	put_more("means: ", f->means, out);
	put_more("to do: ", f->todo, out);
}

static void put_subject(const struct machine *m, const struct subject *s, const struct report *r,
			bool colour, FILE *out)
{
	bool any = false;

	for (size_t i = 0; i < r->count; i++) {
		if (strcmp(r->finding[i]->subject, s->name) || printed_before(r, i))
			continue;
		if (!any)
			fprintf(out, "\n%s%s%s\n", colour ? "\033[1m" : "", s->title,
				colour ? "\033[0m" : "");
		any = true;
		put_finding(m, r, i, colour, out);
	}
}

void print_text(const struct machine *m, const struct report *r, const struct verdict *v,
		bool colour, FILE *out)
{
	char line[256];

	fprintf(out, "gdrcopy_doctor " BARCOPY_VERSION);
	if (m->probed) {
		snprintf(line, sizeof(line), ": %s, Linux %s, %s, user %d", m->probe->date,
			 m->probe->release, m->probe->machine, m->probe->euid);
		put_wrapped(line, 0, 0, out);
	} else {
		fputs(": files only\n", out);
	}
	if (m->probe->stand_in)
		fputs("Running on barcopy's stand-in: no GPU is used.\n", out);
	for (const struct subject *const *s = machine_subjects; *s; s++)
		put_subject(m, *s, r, colour, out);

	fprintf(out, "\n%sIn short%s\n  ", colour ? "\033[1m" : "", colour ? "\033[0m" : "");
	put_wrapped(v->text, 2, 2, out);
	if (v->nexts)
		fprintf(out, "  What to do%s:\n", v->works ? ", if more is wanted" : " next");
	for (size_t i = 0; i < v->nexts; i++) {
		fprintf(out, "  %zu. ", i + 1);
		put_wrapped(v->next[i], 5, 5, out);
	}
	fprintf(out, "  %zu ok, %zu notes, %zu unknown, %zu warnings, %zu faults\n",
		report_count(r, SEV_OK), report_count(r, SEV_NOTE), report_count(r, SEV_UNKNOWN),
		report_count(r, SEV_WARN), report_count(r, SEV_FAIL));
}
