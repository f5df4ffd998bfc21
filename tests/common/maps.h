/* SPDX-License-Identifier: MIT */
/* What the kernel lists of the mapping around an address. It must not know whose it is. */
#ifndef TEST_COMMON_MAPS_H
#define TEST_COMMON_MAPS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * "r--s 00000000 00:01 7 /memfd:name", in static storage; "" if nothing is mapped there. No check
 * of Check's: in a child of fork its lock may be another thread's for good.
 */
static inline const char *maps_at(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	static char line[512];
	uintptr_t low, high;
	int text = 0;

	if (!maps)
		abort();
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %n", &low, &high, &text) == 2 &&
		    (uintptr_t)address >= low && (uintptr_t)address < high) {
			fclose(maps);
			return line + text;
		}
	fclose(maps);
	return memset(line, 0, sizeof(line));
}

#endif
