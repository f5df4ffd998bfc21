/* SPDX-License-Identifier: MIT */
/* The peer-to-peer approval capability; see p2p_cap.h. */
#include "doctor/p2p_cap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/pci_cap.h"

static const uint8_t signature[3] = { 'P', '2', 'P' }; /* at byte 3 of the capability */

void p2p_cap_encode(unsigned int clique, uint8_t bytes[P2P_CAP_BYTES])
{
	unsigned int parameters = (clique & 15) << 3; /* version 0 in bits 2:0 */

	bytes[0] = PCI_CAP_VENDOR;
	bytes[1] = 0; /* it is the last in the list */
	bytes[2] = P2P_CAP_BYTES;
	memcpy(bytes + 3, signature, sizeof(signature));
	bytes[6] = (uint8_t)parameters;
	bytes[7] = (uint8_t)(parameters >> 8);
}

int p2p_cap_recommended(uint16_t device)
{
	/* The first Turing, TU102, is 0x1e02; the last Volta, GV100, is 0x1dba. */
	return device >= 0x1e00 ? P2P_CAP_OFFSET_TURING : P2P_CAP_OFFSET_VOLTA;
}

static void fault(struct p2p_cap *cap, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void fault(struct p2p_cap *cap, const char *fmt, ...)
{
	size_t used = strlen(cap->faults);
	va_list ap;

	if (used && used + 2 < sizeof(cap->faults)) {
		strcpy(cap->faults + used, "; ");
		used += 2;
	}
	va_start(ap, fmt);
	vsnprintf(cap->faults + used, sizeof(cap->faults) - used, fmt, ap);
	va_end(ap);
}

static void decode(const uint8_t *config, int at, struct p2p_cap *cap)
{
	unsigned int parameters = pci_u16(config, at + 6);

	cap->found = true;
	cap->offset = at;
	cap->version = parameters & 7;
	cap->clique = parameters >> 3 & 15;
	if (cap->version)
		fault(cap, "version %u, where 0 is the only one defined", cap->version);
	if (parameters >> 7)
		fault(cap, "reserved bits 15:7 are 0x%x, not 0", parameters >> 7);
	if (config[at + 2] != P2P_CAP_BYTES)
		fault(cap, "length %02Xh, not 08h", config[at + 2]);
	if (config[at + 1])
		fault(cap, "next pointer %02Xh, not 00h: it has to be the last in the list",
		      config[at + 1]);
}

/* The bytes as they are written, wherever the list goes. */
static bool stands_at(const uint8_t *config, int size, int at)
{
	return size >= at + P2P_CAP_BYTES && config[at] == PCI_CAP_VENDOR &&
	       !memcmp(config + at + 3, signature, sizeof(signature));
}

static bool look_unlinked(const uint8_t *config, int size, struct p2p_cap *cap)
{
	static const int offsets[] = { P2P_CAP_OFFSET_TURING, P2P_CAP_OFFSET_VOLTA };

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		if (!stands_at(config, size, offsets[i]))
			continue;
		decode(config, offsets[i], cap);
		cap->found = false;
		cap->unlinked = true;
		return true;
	}
	return false;
}

void p2p_cap_find(const uint8_t *config, int size, struct p2p_cap *cap)
{
	enum pci_cap_result result;
	int at = 0;

	*cap = (struct p2p_cap){ 0 };
	while ((result = pci_next_cap(config, size, PCI_CAP_VENDOR, &at)) == CAP_FOUND) {
		if (at + P2P_CAP_BYTES > 256) /* no room for it before the extended space */
			continue;
		if (at + P2P_CAP_BYTES > size) {
			result = CAP_SHORT;
			break;
		}
		if (stands_at(config, size, at)) {
			decode(config, at, cap);
			return;
		}
	}
	if (result == CAP_SHORT) {
		cap->unreadable = true;
		return;
	}
	look_unlinked(config, size, cap);
	if (result == CAP_LOOP)
		fault(cap, "the capability list goes round");
	else if (result == CAP_BROKEN)
		fault(cap, "the capability list leads into the header");
}
