/* SPDX-License-Identifier: MIT */
/* The bytes that a hypervisor has to show; see print.h and p2p_cap.h. */
#include "common/json.h"
#include "common/exit.h"
#include "doctor/p2p_cap.h"
#include "doctor/pci_cap.h"
#include "doctor/print.h"

static void put_json(unsigned int clique, const uint8_t *bytes, FILE *out)
{
	char text[16];
	struct json j;

	json_start(&j);
	json_string(&j, "tool", tool_name);
	json_string(&j, "version", BARCOPY_VERSION);
	json_uint(&j, "clique", clique);
	json_array(&j, "bytes");
	for (int i = 0; i < P2P_CAP_BYTES; i++)
		json_uint(&j, NULL, bytes[i]);
	json_end(&j);
	json_array(&j, "registers");
	for (int i = 0; i < P2P_CAP_BYTES; i += 4) {
		snprintf(text, sizeof(text), "%08x", (unsigned int)pci_u32(bytes, i));
		json_string(&j, NULL, text);
	}
	json_end(&j);
	json_object(&j, "offset");
	json_uint(&j, "kepler_to_volta", P2P_CAP_OFFSET_VOLTA);
	json_uint(&j, "turing_and_later", P2P_CAP_OFFSET_TURING);
	json_end(&j);
	json_finish(&j, out);
}

void print_capability(unsigned int clique, bool json, FILE *out)
{
	uint8_t bytes[P2P_CAP_BYTES];

	p2p_cap_encode(clique, bytes);
	if (json) {
		put_json(clique, bytes, out);
		return;
	}
	fprintf(out, "Peer-to-peer approval capability, version 0, clique %u\n\n  bytes    ",
		clique);
	for (int i = 0; i < P2P_CAP_BYTES; i++)
		fprintf(out, " %02x", bytes[i]);
	fprintf(out, "\n  register 00h  %08Xh\n  register 04h  %08Xh\n\n",
		(unsigned int)pci_u32(bytes, 0), (unsigned int)pci_u32(bytes, 4));
	fprintf(out, "  offset %02Xh on Kepler, Maxwell, Pascal, Volta\n", P2P_CAP_OFFSET_VOLTA);
	fprintf(out, "  offset %02Xh on Turing and later\n\n", P2P_CAP_OFFSET_TURING);
	fputs("The hypervisor shows these bytes at that offset of the configuration space of each "
	      "GPU\n"
	      "that it passes through, and links them: bit 4 of the status register (06h) is set, "
	      "and\n"
	      "the next pointer of the last capability before (or the pointer at 34h) is the "
	      "offset.\n"
	      "GPUs of one clique must be able to reach each other over PCIe on the host. Another\n"
	      "unused offset is allowed.\n",
	      out);
	fprintf(out,
		"QEMU does all of it: -device vfio-pci,host=ADDRESS,x-nv-gpudirect-clique=%u\n",
		clique);
}
