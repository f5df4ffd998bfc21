/* SPDX-License-Identifier: MIT */
/* Capability lists; see pci_cap.h. */
#include "doctor/pci_cap.h"

#include <stddef.h>

enum {
	STATUS = 0x06, /* register; bit 4: there is a capability list */
	POINTER = 0x34, /* to the first capability */
	HEADER = 0x40, /* capabilities lie behind it */
	COMPATIBLE = 0x100, /* and before this; extended ones from here on */
	WHOLE = 0x1000
};

uint16_t pci_u16(const uint8_t *config, int at)
{
	return (uint16_t)(config[at] | config[at + 1] << 8);
}

uint32_t pci_u32(const uint8_t *config, int at)
{
	return pci_u16(config, at) | (uint32_t)pci_u16(config, at + 2) << 16;
}

bool pci_is_gone(const uint8_t *config, int size)
{
	for (int i = 0; i < HEADER; i++)
		if (i >= size || config[i] != 0xff)
			return false;
	return true;
}

enum pci_cap_result pci_next_cap(const uint8_t *config, int size, uint8_t id, int *at)
{
	uint8_t seen[COMPATIBLE / 4] = { 0 };
	int next, behind = *at;

	if (size < HEADER)
		return CAP_SHORT;
	if (!(pci_u16(config, STATUS) & 0x10))
		return CAP_NONE;
	/* the two low bits of a pointer are reserved, to be masked (7.5.1.1.11) */
	for (next = config[POINTER] & ~3; next; next = config[next + 1] & ~3) {
		if (next < HEADER)
			return CAP_BROKEN;
		if (next + 2 > size)
			return CAP_SHORT;
		if (seen[next / 4]++)
			return CAP_LOOP;
		if (behind) {
			if (next == behind)
				behind = 0;
		} else if (config[next] == id) {
			*at = next;
			return CAP_FOUND;
		}
	}
	return CAP_NONE;
}

enum pci_cap_result pci_find_ecap(const uint8_t *config, int size, uint16_t id, int *at)
{
	uint8_t seen[WHOLE / 4] = { 0 };
	int next = COMPATIBLE;

	do {
		uint32_t head;

		if (next < COMPATIBLE)
			return CAP_BROKEN;
		if (next + 4 > size)
			return CAP_SHORT;
		if (seen[next / 4]++)
			return CAP_LOOP;
		head = pci_u32(config, next);
		if (!head || head == 0xffffffff) /* no list, or no answer */
			return next == COMPATIBLE ? CAP_NONE : CAP_BROKEN;
		if ((head & 0xffff) == id) {
			*at = next;
			return CAP_FOUND;
		}
		next = (int)(head >> 20) & ~3;
	} while (next);
	return CAP_NONE;
}
