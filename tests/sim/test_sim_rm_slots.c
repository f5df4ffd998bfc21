/* SPDX-License-Identifier: MIT */
/*
 * Self-test of libcuda's stand-in: how its import of ioctl is linked, in each of its builds. A slot
 * is found here by what the loader says of the library; what a library does that changes it is its
 * own matter.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/maps.h"
#include "test_sim_rm.h"

#if defined(__x86_64__)
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#elif defined(__aarch64__)
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#endif

struct tables {
	const ElfW(Rela) * plt, *other;
	size_t plt_size, other_size;
	const ElfW(Sym) * symbols;
	const char *strings;
};

static void read_tables(const struct link_map *m, struct tables *t)
{
	memset(t, 0, sizeof(*t));
	for (const ElfW(Dyn) *d = m->l_ld; d->d_tag; d++) {
		if (d->d_tag == DT_JMPREL)
			t->plt = (const void *)d->d_un.d_ptr;
		if (d->d_tag == DT_PLTRELSZ)
			t->plt_size = d->d_un.d_val;
		if (d->d_tag == DT_RELA)
			t->other = (const void *)d->d_un.d_ptr;
		if (d->d_tag == DT_RELASZ)
			t->other_size = d->d_un.d_val;
		if (d->d_tag == DT_SYMTAB)
			t->symbols = (const void *)d->d_un.d_ptr;
		if (d->d_tag == DT_STRTAB)
			t->strings = (const void *)d->d_un.d_ptr;
	}
}

static const ElfW(Rela) * find(const struct tables *t, const ElfW(Rela) * rela, size_t size)
{
	for (size_t i = 0; i < size / sizeof(*rela); i++)
		if (!strcmp(t->strings + t->symbols[ELF64_R_SYM(rela[i].r_info)].st_name, "ioctl"))
			return &rela[i];
	return NULL;
}

void **rm_slot(char kind[32])
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	const ElfW(Rela) * rela;
	struct link_map *m;
	struct tables t;
	void **slot;

	ck_assert_ptr_nonnull(lib);
	ck_assert_int_eq(dlinfo(lib, RTLD_DI_LINKMAP, &m), 0);
	read_tables(m, &t);
	rela = find(&t, t.plt, t.plt_size);
	if (!rela)
		rela = find(&t, t.other, t.other_size);
	ck_assert_ptr_nonnull(rela);
	slot = (void **)(m->l_addr + rela->r_offset);
	if (kind)
		snprintf(kind, 32, "%s%s",
			 ELF64_R_TYPE(rela->r_info) == JUMP_SLOT ? "JUMP_SLOT" : "GLOB_DAT",
			 maps_at(slot)[1] == 'w' ? "" : " sealed");
	mprotect((void *)((uintptr_t)slot & ~4095ul), 4096, PROT_READ | PROT_WRITE);
	return slot;
}

int rm_print_slot(void)
{
	char kind[32];
	int fd;

	standin_start();
	rm_slot(kind);
	fd = rm_export(standin_alloc(8 * MIB), 65536);
	ck_assert_int_ge(fd, 0);
	close(fd);
	printf("%s, %u calls seen\n", kind, rm_seen.n);
	return 0;
}

START_TEST(kinds_of_slot)
{
	static const char *const want[][2] = {
		{ "", "JUMP_SLOT, 1 calls seen\n" },
		{ "now", "JUMP_SLOT sealed, 1 calls seen\n" },
		{ "noplt", "GLOB_DAT sealed, 1 calls seen\n" },
	};
	char line[128], dir[4096];

	for (unsigned int i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		snprintf(dir, sizeof(dir), "%s/%s", getenv("GDRSIM_DIR"), want[i][0]);
		setenv("LD_LIBRARY_PATH", dir, 1);
		rm_again("slot", line, sizeof(line));
		ck_assert_str_eq(line, want[i][1]);
	}
}
END_TEST

void rm_tests_slots(TCase *tc)
{
	tcase_add_test(tc, kinds_of_slot);
}
