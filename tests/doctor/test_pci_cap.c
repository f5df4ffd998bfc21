/* SPDX-License-Identifier: MIT */
/*
 * Capability lists and the peer-to-peer approval capability: found where they are, and nothing read
 * beyond what is there, whatever the bytes say.
 */
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "doctor/p2p_cap.h"
#include "doctor/pci_cap.h"

/* A header with a list that begins at `first`. */
static void header(uint8_t *config, uint8_t first)
{
	memset(config, 0, 4096);
	config[0] = 0xde;
	config[1] = 0x10;
	config[6] = 0x10;
	config[0x34] = first;
}

static void put(uint8_t *config, int at, uint8_t id, uint8_t next)
{
	config[at] = id;
	config[at + 1] = next;
}

static void put_ecap(uint8_t *config, int at, uint16_t id, int next)
{
	uint32_t head = id | 1u << 16 | (uint32_t)next << 20;

	for (int i = 0; i < 4; i++)
		config[at + i] = (uint8_t)(head >> 8 * i);
}

/* The bytes in a buffer of exactly that size, so that a look beyond them is found. */
static uint8_t *exactly(const uint8_t *config, int size)
{
	uint8_t *p = malloc(size ? (size_t)size : 1);

	memcpy(p, config, (size_t)size);
	return p;
}

static enum pci_cap_result next(const uint8_t *config, int size, uint8_t id, int *at)
{
	uint8_t *p = exactly(config, size);
	enum pci_cap_result r = pci_next_cap(p, size, id, at);

	free(p);
	return r;
}

static enum pci_cap_result ecap(const uint8_t *config, int size, uint16_t id, int *at)
{
	uint8_t *p = exactly(config, size);
	enum pci_cap_result r = pci_find_ecap(p, size, id, at);

	free(p);
	return r;
}

static void lists(void)
{
	uint8_t config[4096];
	int at = 0;

	header(config, 0x40);
	put(config, 0x40, 0x01, 0x60);
	put(config, 0x60, 0x09, 0xd4);
	put(config, 0xd4, 0x09, 0);
	ck_assert_int_eq(next(config, 256, 0x01, &at), CAP_FOUND);
	ck_assert_int_eq(at, 0x40);
	at = 0;
	ck_assert_int_eq(next(config, 256, 0x09, &at), CAP_FOUND);
	ck_assert_int_eq(at, 0x60);
	ck_assert_int_eq(next(config, 256, 0x09, &at), CAP_FOUND);
	ck_assert_int_eq(at, 0xd4);
	ck_assert_int_eq(next(config, 256, 0x09, &at), CAP_NONE);
	at = 0;
	ck_assert_int_eq(next(config, 256, 0x11, &at), CAP_NONE);
	/* the two low bits of a pointer do not count */
	config[0x34] = 0x43;
	ck_assert_int_eq(next(config, 256, 0x01, &at), CAP_FOUND);
	ck_assert_int_eq(at, 0x40);
}

static void lists_that_end_badly(void)
{
	uint8_t config[4096];
	int at = 0;

	header(config, 0x40);
	put(config, 0x40, 0x01, 0x60);
	put(config, 0x60, 0x05, 0x40);
	ck_assert_int_eq(next(config, 256, 0x09, &at), CAP_LOOP);
	put(config, 0x60, 0x05, 0x60);
	ck_assert_int_eq(next(config, 256, 0x09, &at), CAP_LOOP);
	put(config, 0x60, 0x05, 0x3c);
	ck_assert_int_eq(next(config, 256, 0x09, &at), CAP_BROKEN);
	put(config, 0x60, 0x05, 0);
	ck_assert_int_eq(next(config, 64, 0x09, &at), CAP_SHORT);
	ck_assert_int_eq(next(config, 0x61, 0x09, &at), CAP_SHORT);
	ck_assert_int_eq(next(config, 0x62, 0x09, &at), CAP_NONE);
	ck_assert_int_eq(next(config, 63, 0x09, &at), CAP_SHORT);
	ck_assert_int_eq(pci_next_cap(NULL, -13, 0x09, &at), CAP_SHORT);
	config[6] = 0;
	ck_assert_int_eq(next(config, 256, 0x09, &at), CAP_NONE);
}

static void extended_lists(void)
{
	uint8_t config[4096];
	int at = 0;

	header(config, 0);
	ck_assert_int_eq(ecap(config, 4096, PCI_ECAP_ACS, &at), CAP_NONE);
	ck_assert_int_eq(ecap(config, 256, PCI_ECAP_ACS, &at), CAP_SHORT);
	ck_assert_int_eq(ecap(config, 64, PCI_ECAP_ACS, &at), CAP_SHORT);
	ck_assert_int_eq(pci_find_ecap(NULL, -13, PCI_ECAP_ACS, &at), CAP_SHORT);
	put_ecap(config, 0x100, 0x0001, 0x148);
	put_ecap(config, 0x148, PCI_ECAP_ACS, 0xffc);
	put_ecap(config, 0xffc, PCI_ECAP_REBAR, 0);
	ck_assert_int_eq(ecap(config, 4096, PCI_ECAP_ACS, &at), CAP_FOUND);
	ck_assert_int_eq(at, 0x148);
	ck_assert_int_eq(ecap(config, 4096, PCI_ECAP_REBAR, &at), CAP_FOUND);
	ck_assert_int_eq(at, 0xffc);
	ck_assert_int_eq(ecap(config, 4095, PCI_ECAP_REBAR, &at), CAP_SHORT);
	put_ecap(config, 0x148, 0x0002, 0x100);
	ck_assert_int_eq(ecap(config, 4096, PCI_ECAP_REBAR, &at), CAP_LOOP);
	put_ecap(config, 0x148, 0x0002, 0x40);
	ck_assert_int_eq(ecap(config, 4096, PCI_ECAP_REBAR, &at), CAP_BROKEN);
	/* as hypervisors hide one: ID 0, the list goes on */
	put_ecap(config, 0x148, 0x0000, 0x200);
	put_ecap(config, 0x200, PCI_ECAP_REBAR, 0);
	ck_assert_int_eq(ecap(config, 4096, PCI_ECAP_REBAR, &at), CAP_FOUND);
	ck_assert_int_eq(at, 0x200);
}

static void gone(void)
{
	uint8_t config[64];

	memset(config, 0xff, sizeof(config));
	ck_assert(pci_is_gone(config, 64));
	ck_assert(!pci_is_gone(config, 63));
	ck_assert(!pci_is_gone(config, -5));
	config[63] = 0;
	ck_assert(!pci_is_gone(config, 64));
}

/* The vendor's document, "Example configurations": 2 GPU, and 4+4 GPU. */
static void examples(void)
{
	static const uint8_t clique0[] = { 0x09, 0x00, 0x08, 0x50, 0x32, 0x50, 0x00, 0x00 };
	static const uint8_t clique1[] = { 0x09, 0x00, 0x08, 0x50, 0x32, 0x50, 0x08, 0x00 };
	uint8_t bytes[P2P_CAP_BYTES];

	p2p_cap_encode(0, bytes);
	ck_assert_mem_eq(bytes, clique0, sizeof(bytes));
	ck_assert_uint_eq(pci_u32(bytes, 0), 0x50080009);
	ck_assert_uint_eq(pci_u32(bytes, 4), 0x00005032);
	p2p_cap_encode(1, bytes);
	ck_assert_mem_eq(bytes, clique1, sizeof(bytes));
	ck_assert_uint_eq(pci_u32(bytes, 4), 0x00085032);
	/* its table: Kepler to Volta C8h, Turing and later D4h */
	ck_assert_int_eq(p2p_cap_recommended(0x102d), 0xc8); /* K80 */
	ck_assert_int_eq(p2p_cap_recommended(0x1dba), 0xc8); /* GV100 */
	ck_assert_int_eq(p2p_cap_recommended(0x1e02), 0xd4); /* TITAN RTX */
	ck_assert_int_eq(p2p_cap_recommended(0x2335), 0xd4); /* H200 */
}

/* Each clique at each place comes back out. */
static void round_trip(void)
{
	uint8_t config[4096];

	for (unsigned int clique = 0; clique < P2P_CAP_CLIQUES; clique++)
		for (int at = 0x40; at + P2P_CAP_BYTES <= 256; at += 4) {
			struct p2p_cap cap;
			uint8_t *p;

			header(config, (uint8_t)at);
			p2p_cap_encode(clique, config + at);
			p = exactly(config, at + P2P_CAP_BYTES);
			p2p_cap_find(p, at + P2P_CAP_BYTES, &cap);
			ck_assert(cap.found && !cap.unlinked && !cap.unreadable);
			ck_assert_int_eq(cap.offset, at);
			ck_assert_uint_eq(cap.clique, clique);
			ck_assert_uint_eq(cap.version, 0);
			ck_assert_str_eq(cap.faults, "");
			free(p);
			p = exactly(config, at + P2P_CAP_BYTES - 1);
			p2p_cap_find(p, at + P2P_CAP_BYTES - 1, &cap);
			ck_assert(!cap.found && cap.unreadable);
			free(p);
		}
}

static void faults(void)
{
	uint8_t config[4096];
	struct p2p_cap cap;

	/* another vendor-specific capability before it */
	header(config, 0x60);
	put(config, 0x60, 0x09, 0xd4);
	p2p_cap_encode(2, config + 0xd4);
	p2p_cap_find(config, 256, &cap);
	ck_assert(cap.found);
	ck_assert_int_eq(cap.offset, 0xd4);
	config[0xd4 + 2] = 0x10;
	config[0xd4 + 6] |= 5;
	config[0xd4 + 7] = 0x80;
	p2p_cap_find(config, 256, &cap);
	ck_assert(cap.found);
	ck_assert_uint_eq(cap.version, 5);
	ck_assert_ptr_nonnull(strstr(cap.faults, "version 5"));
	ck_assert_ptr_nonnull(strstr(cap.faults, "reserved"));
	ck_assert_ptr_nonnull(strstr(cap.faults, "length 10h"));
	/* not linked */
	config[0x61] = 0;
	p2p_cap_find(config, 256, &cap);
	ck_assert(!cap.found && cap.unlinked);
	/* no room before 100h */
	header(config, 0xfc);
	put(config, 0xfc, 0x09, 0);
	memcpy(config + 0xff, "P2P", 3);
	p2p_cap_find(config, 4096, &cap);
	ck_assert(!cap.found && !cap.unreadable && !cap.unlinked);
	p2p_cap_find(NULL, -13, &cap);
	ck_assert(!cap.found && cap.unreadable);
}

/* Random bytes with a bias to what means something, of every length. */
static void random_bytes(void)
{
	unsigned long long random = 20261121;
	int rounds = unit_quick() ? 20000 : 200000, found = 0, loops = 0;

	for (int i = 0; i < rounds; i++) {
		int size = (int)(unit_random(&random) % (i % 8 ? 300 : 4097)), at = 0;
		uint8_t *p = malloc(size ? (size_t)size : 1);
		struct p2p_cap cap;

		for (int k = 0; k < size; k++)
			p[k] = unit_random(&random) % 3 ? (uint8_t)(unit_random(&random) & 0xfc)
							: 9;
		if (size > 0x34) {
			p[6] |= 0x10;
			p[0x34] |= 0x40;
		}
		if (size > 300 && i % 16 == 0)
			p2p_cap_encode((unsigned int)i, p + (p[0x34] & 0xfc));
		p2p_cap_find(p, size, &cap);
		found += cap.found;
		loops += pci_next_cap(p, size, 0x77, &at) == CAP_LOOP;
		pci_find_ecap(p, size, PCI_ECAP_ACS, &at);
		pci_find_ecap(p, size, PCI_ECAP_REBAR, &at);
		pci_is_gone(p, size);
		free(p);
	}
	ck_assert_int_gt(found, rounds / 100);
	ck_assert_int_gt(loops, rounds / 1000);
}

static const struct unit_test tests[] = {
	{ "lists", lists, NULL },
	{ "lists_that_end_badly", lists_that_end_badly, NULL },
	{ "extended_lists", extended_lists, NULL },
	{ "gone", gone, NULL },
	{ "examples", examples, NULL },
	{ "round_trip", round_trip, NULL },
	{ "faults", faults, NULL },
	{ "random_bytes", random_bytes, NULL },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "doctor_pci_cap", tests, COUNT(tests));
}
