/* SPDX-License-Identifier: MIT */
/*
 * Capability lists in a configuration space, which may be short, wrong or hostile. Offsets and
 * layouts: PCI Express Base Specification, "PCI Compatible Configuration Registers" (7.5.1) and
 * "Extended Capabilities" (7.6). It must not know files.
 */
#ifndef DOCTOR_PCI_CAP_H
#define DOCTOR_PCI_CAP_H

#include <stdbool.h>
#include <stdint.h>

enum pci_cap_result {
	CAP_FOUND,
	CAP_NONE, /* the list ends without it */
	CAP_SHORT, /* the list goes on beyond what could be read */
	CAP_LOOP, /* the list goes round */
	CAP_BROKEN /* the list leads where no capability may be */
};

#define PCI_CAP_VENDOR 0x09
#define PCI_ECAP_ACS   0x0d
#define PCI_ECAP_REBAR 0x15

uint16_t pci_u16(const uint8_t *config, int at);
uint32_t pci_u32(const uint8_t *config, int at);

/* The device does not answer: every byte of its header reads 0xff. */
bool pci_is_gone(const uint8_t *config, int size);

/*
 * The next capability of that ID behind `*at` (0: from the start of the list), which is set to it.
 * `size` bytes of config are known; a negative one is none.
 */
enum pci_cap_result pci_next_cap(const uint8_t *config, int size, uint8_t id, int *at);

/* The first extended capability of that ID. */
enum pci_cap_result pci_find_ecap(const uint8_t *config, int size, uint16_t id, int *at);

#endif
