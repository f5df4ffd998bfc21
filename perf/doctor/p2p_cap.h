/* SPDX-License-Identifier: MIT */
/*
 * The PCI Express Virtual Peer-to-Peer Approval Capability: eight bytes that a hypervisor shows in
 * the configuration space of a GPU that it passes through, so that the GPU driver in the virtual
 * machine knows which GPUs reach each other. Source: NVIDIA, "GPUDirect with PCI Pass-Through
 * Virtualization" (2023-05-30). It must not know where the bytes come from.
 */
#ifndef DOCTOR_P2P_CAP_H
#define DOCTOR_P2P_CAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define P2P_CAP_BYTES	      8
#define P2P_CAP_CLIQUES	      16 /* bits 6:3 of the approval parameters */
#define P2P_CAP_OFFSET_VOLTA  0xc8 /* Kepler, Maxwell, Pascal, Volta */
#define P2P_CAP_OFFSET_TURING 0xd4 /* Turing and later */

struct p2p_cap {
	bool found; /* reachable through the list */
	int offset;
	unsigned int version, clique;
	bool unlinked; /* not found, but its bytes stand at a recommended offset */
	bool unreadable; /* the bytes that would tell cannot be read */
	char faults[256]; /* of its encoding, or of the list; "" if none */
};

/* The eight bytes for a clique of 0 to 15. */
void p2p_cap_encode(unsigned int clique, uint8_t bytes[P2P_CAP_BYTES]);

/* Looks for it in a configuration space of which `size` bytes are known (negative: none). */
void p2p_cap_find(const uint8_t *config, int size, struct p2p_cap *cap);

/* The offset that the document recommends for a GPU of that PCI device ID. */
int p2p_cap_recommended(uint16_t device);

#endif
