// SPDX-License-Identifier: MIT
/*
 * Checks in the BAR's file, on the host, the pattern that the guest wrote.
 *
 * usage: hostcheck FILE OFFSET LENGTH SEED
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	unsigned long len, i;
	uint32_t x;
	FILE *f;

	if (argc != 5 || !(f = fopen(argv[1], "rb")) ||
	    fseek(f, strtol(argv[2], NULL, 0), SEEK_SET))
		return 2;
	len = strtoul(argv[3], NULL, 0);
	x = (uint32_t)strtoul(argv[4], NULL, 0) * 2654435761u + 1;
	for (i = 0; i < len; i++) {
		int c = fgetc(f);

		x = x * 1664525u + 1013904223u;
		if (c != (int)(x >> 24)) {
			printf("# byte %lu is %d, not %u\n", i, c, x >> 24);
			return 1;
		}
	}
	return 0;
}
