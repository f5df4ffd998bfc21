/* SPDX-License-Identifier: MIT */
/*
 * Is write-combining in force? Two witnesses: the kernel's list of memory types (x86, for the
 * administrator), and the time of stores. The list counts for what it names; the time is a ratio
 * within one run: the same number of 8-byte stores, once line by line, where write-combining merges
 * eight of them into one transaction, and once so that each falls into another line than the 255
 * before it, which is more than a CPU's write-combining buffers hold. Without write-combining both
 * cost the same. Measured: 0.57 and 9.6 ns a store where it is in force (H200, driver 580.159.04, in a
 * virtual machine, 2026-11-21). It must not know CUDA or libgdrapi.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/timing.h"
#include "doctor/probe_parts.h"

enum { LINE_WORDS = 8, LINES = 256, WORDS = LINES * LINE_WORDS, ROUNDS = 8, LIMIT_NS = 1000000 };

void probe_wc_time(struct probe_trial *t, volatile void *map, size_t size, void (*fence)(void *arg),
		   void *arg)
{
	volatile uint64_t *word = map;
	uint64_t start = clock_raw_ns(), a, b, c;

	if (size < WORDS * sizeof(*word))
		return;
	/* the least of several rounds: an interrupt lengthens one */
	for (int round = 0; round < ROUNDS; round++) {
		fence(arg);
		a = clock_raw_ns();
		for (size_t i = 0; i < WORDS; i++)
			word[i] = i;
		fence(arg);
		b = clock_raw_ns();
		for (size_t at = 0; at < LINE_WORDS; at++)
			for (size_t line = 0; line < LINES; line++)
				word[line * LINE_WORDS + at] = at;
		fence(arg);
		c = clock_raw_ns();
		/* the first round pays for page faults */
		if (round == 1 || (round && (double)(b - a) / WORDS < t->merged_ns))
			t->merged_ns = (double)(b - a) / WORDS;
		if (round == 1 || (round && (double)(c - b) / WORDS < t->split_ns))
			t->split_ns = (double)(c - b) / WORDS;
		if (round && c - start > LIMIT_NS)
			break;
	}
	t->timed = true;
}

/* BAR1 of the GPU: the region behind the registers', whose size says how many slots it takes. */
static int bar1_range(const char *pci, unsigned long long *start, unsigned long long *end)
{
	unsigned long long from[3] = { 0 }, to[3] = { 0 }, flags[3] = { 0 };
	char path[128];
	FILE *f;
	int slot, n = 0;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", pci);
	f = fopen(path, "re");
	if (!f)
		return errno;
	while (n < 3 && fscanf(f, "%llx %llx %llx", &from[n], &to[n], &flags[n]) == 3)
		n++;
	fclose(f);
	slot = flags[0] & 0x00100000 ? 2 : 1; /* IORESOURCE_MEM_64 of BAR0: it takes two slots */
	if (n < 3 || !from[slot] || to[slot] <= from[slot])
		return ENODATA;
	*start = from[slot];
	*end = to[slot] + 1;
	return 0;
}

int probe_wc_pat(const char *pci, int *wc, int *uc)
{
	unsigned long long start = 0, end = 0, from, to;
	char line[256];
	int err = bar1_range(pci, &start, &end);
	FILE *f;

	*wc = *uc = 0;
	if (err)
		return err;
	f = fopen("/sys/kernel/debug/x86/pat_memtype_list", "re");
	if (!f)
		return errno;
	/* "PAT: [mem 0x...-0x...] write-combining"; before 5.8 "write-combining @ 0x...-0x..." */
	while (fgets(line, sizeof(line), f)) {
		const char *hex = strstr(line, "0x");

		if (!hex || sscanf(hex, "0x%llx-0x%llx", &from, &to) != 2 || from >= end ||
		    to <= start)
			continue;
		*wc += !!strstr(line, "write-combining");
		*uc += !!strstr(line, "uncached");
	}
	fclose(f);
	return 0;
}
