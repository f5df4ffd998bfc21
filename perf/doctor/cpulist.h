/* SPDX-License-Identifier: MIT */
/* Sets of CPUs as the kernel writes them: "0-15,32". It must not know whose they are. */
#ifndef DOCTOR_CPULIST_H
#define DOCTOR_CPULIST_H

#include <stdbool.h>
#include <stddef.h>

#define CPULIST_MAX 8192

struct cpulist {
	unsigned char bits[CPULIST_MAX / 8];
};

/* 0 or -EINVAL; "" is the empty set. */
int cpulist_parse(struct cpulist *set, const char *text);
bool cpulist_has(const struct cpulist *set, unsigned int cpu);
void cpulist_add(struct cpulist *set, unsigned int cpu);
int cpulist_first(const struct cpulist *set); /* -1: empty */
size_t cpulist_count(const struct cpulist *set);
/* How many CPUs both have. */
size_t cpulist_common(const struct cpulist *a, const struct cpulist *b);
/* As the kernel writes it; cut with "..." if there is no room. */
void cpulist_text(const struct cpulist *set, char *text, size_t size);

#endif
