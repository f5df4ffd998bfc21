/* SPDX-License-Identifier: MIT */
/* The report for people; see print.h. */
#include <stdarg.h>
#include <string.h>

#include "doctor/print.h"

enum { WIDTH = 96, INDENT = 11 };

static const char *const severity_colour[SEVERITIES] = { "\033[32m", "\033[36m", "\033[35m",
							 "\033[33m", "\033[1;31m" };

/* UTF-8 of names passes; control characters and DEL do not. */
static void put_word(const char *word, size_t n, FILE *out)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)word[i];

		fputc(c < 0x20 || c == 0x7f ||
				      (c == 0xc2 && i + 1 < n && (unsigned char)word[i + 1] < 0xa0)
			      ? '?'
			      : c,
		      out);
	}
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

static void put_finding(const struct finding *f, bool colour, FILE *out)
{
	fprintf(out, "  %s%-9s%s", colour ? severity_colour[f->severity] : "",
		severity_name[f->severity], colour ? "\033[0m" : "");
	put_wrapped(f->found, INDENT, INDENT, out);
	put_more("means: ", f->means, out);
	put_more("to do: ", f->todo, out);
}

static void put_subject(const struct subject *s, const struct report *r, bool colour, FILE *out)
{
	bool any = false;

	for (size_t i = 0; i < r->count; i++) {
		if (strcmp(r->finding[i]->subject, s->name))
			continue;
		if (!any)
			fprintf(out, "\n%s%s%s\n", colour ? "\033[1m" : "", s->title,
				colour ? "\033[0m" : "");
		any = true;
		put_finding(r->finding[i], colour, out);
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
		put_subject(*s, r, colour, out);

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
