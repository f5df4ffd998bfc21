/* SPDX-License-Identifier: MIT */
/* Sets of CPUs; see cpulist.h. */
#include "doctor/cpulist.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_cpu(const char **text)
{
	unsigned long v;
	char *end;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	v = strtoul(*text, &end, 10);
	if (v >= CPULIST_MAX)
		return -EINVAL;
	*text = end;
	return (int)v;
}

int cpulist_parse(struct cpulist *set, const char *text)
{
	*set = (struct cpulist){ { 0 } };
	while (*text && !isspace((unsigned char)*text)) {
		int first = parse_cpu(&text), last = first;

		if (first >= 0 && *text == '-') {
			text++;
			last = parse_cpu(&text);
		}
		if (first < 0 || last < first)
			return -EINVAL;
		for (int cpu = first; cpu <= last; cpu++)
			cpulist_add(set, (unsigned int)cpu);
		if (*text == ',')
			text++;
		else if (*text && !isspace((unsigned char)*text))
			return -EINVAL;
	}
	return 0;
}

bool cpulist_has(const struct cpulist *set, unsigned int cpu)
{
	return cpu < CPULIST_MAX && set->bits[cpu / 8] >> cpu % 8 & 1;
}

void cpulist_add(struct cpulist *set, unsigned int cpu)
{
	if (cpu < CPULIST_MAX)
		set->bits[cpu / 8] |= (unsigned char)(1 << cpu % 8);
}

int cpulist_first(const struct cpulist *set)
{
	for (unsigned int cpu = 0; cpu < CPULIST_MAX; cpu++)
		if (cpulist_has(set, cpu))
			return (int)cpu;
	return -1;
}

size_t cpulist_count(const struct cpulist *set)
{
	return cpulist_common(set, set);
}

size_t cpulist_common(const struct cpulist *a, const struct cpulist *b)
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(a->bits); i++)
		n += (size_t)__builtin_popcount(a->bits[i] & b->bits[i]);
	return n;
}

void cpulist_text(const struct cpulist *set, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (unsigned int cpu = 0; cpu < CPULIST_MAX; cpu++) {
		unsigned int last = cpu;
		char one[32];
		size_t n;

		if (!cpulist_has(set, cpu))
			continue;
		while (cpulist_has(set, last + 1))
			last++;
		if (last > cpu)
			n = (size_t)snprintf(one, sizeof(one), "%s%u-%u", used ? "," : "", cpu,
					     last);
		else
			n = (size_t)snprintf(one, sizeof(one), "%s%u", used ? "," : "", cpu);
		if (used + n + 4 > size) {
			if (used + 4 <= size)
				strcpy(text + used, "...");
			return;
		}
		strcpy(text + used, one);
		used += n;
		cpu = last;
	}
}
