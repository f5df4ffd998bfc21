/* SPDX-License-Identifier: MIT */
/* See got.h. */
#include "cuda/got.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_IMPORT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_IMPORT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_IMPORT(type) false
#endif

/* What a library's dynamic section says. */
struct dynamic {
	const char *strings;
	const ElfW(Sym) *symbols;
	const ElfW(Rela) *plt, *rela;
	size_t plt_size, rela_size;
};

/* The C library has made most of these absolute already. */
static const void *absolute(const struct link_map *map, ElfW(Addr) value)
{
	return (const void *)(value < map->l_addr ? map->l_addr + value : value);
}

static void read_dynamic(const struct link_map *map, struct dynamic *d)
{
	*d = (struct dynamic){ .strings = NULL };
	for (const ElfW(Dyn) *e = map->l_ld; e->d_tag != DT_NULL; e++) {
		switch (e->d_tag) {
		case DT_STRTAB:
			d->strings = absolute(map, e->d_un.d_ptr);
			break;
		case DT_SYMTAB:
			d->symbols = absolute(map, e->d_un.d_ptr);
			break;
		case DT_JMPREL:
			d->plt = absolute(map, e->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			d->plt_size = e->d_un.d_val;
			break;
		case DT_RELA:
			d->rela = absolute(map, e->d_un.d_ptr);
			break;
		case DT_RELASZ:
			d->rela_size = e->d_un.d_val;
			break;
		default:
			break;
		}
	}
}

static void add_slots(const struct link_map *map, const struct dynamic *d, const ElfW(Rela) *rela,
		      size_t size, const char *symbol, struct gdri_got *got)
{
	for (size_t i = 0; rela && i < size / sizeof(*rela); i++) {
		const ElfW(Sym) *sym;

		if (!IS_IMPORT(ELF64_R_TYPE(rela[i].r_info)))
			continue;
		sym = &d->symbols[ELF64_R_SYM(rela[i].r_info)];
		if (strcmp(d->strings + sym->st_name, symbol) == 0 && got->count < GDRI_GOT_SLOTS)
			got->slots[got->count++] =
				(_Atomic(uintptr_t) *)(map->l_addr + rela[i].r_offset);
	}
}

struct bounds_of {
	const struct link_map *map;
	struct gdri_got *got;
};

/* The loader seals whole pages only: both ends are rounded down (glibc, elf/dl-reloc.c). */
static int read_bounds(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct bounds_of *of = arg;
	struct gdri_got *got = of->got;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)size;
	if (info->dlpi_addr != of->map->l_addr)
		return 0;
	got->start = UINTPTR_MAX;
	got->end = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + ph->p_vaddr, to = from + ph->p_memsz;

		if (ph->p_type == PT_GNU_RELRO) {
			got->sealed_start = from & ~(page - 1);
			got->sealed_end = to & ~(page - 1);
		}
		if (ph->p_type != PT_LOAD)
			continue;
		got->start = from < got->start ? from : got->start;
		got->end = to > got->end ? to : got->end;
	}
	return 1;
}

bool gdri_got_find(void *library, const char *symbol, struct gdri_got *got)
{
	struct bounds_of of = { .got = got };
	struct link_map *map;
	struct dynamic d;

	*got = (struct gdri_got){ .count = 0 };
	if (dlinfo(library, RTLD_DI_LINKMAP, &map))
		return false;
	read_dynamic(map, &d);
	if (!d.strings || !d.symbols)
		return false;
	add_slots(map, &d, d.plt, d.plt_size, symbol, got);
	add_slots(map, &d, d.rela, d.rela_size, symbol, got);
	of.map = map;
	return got->count && dl_iterate_phdr(read_bounds, &of) == 1;
}

bool gdri_got_write(const struct gdri_got *got, size_t slot, uintptr_t *expected, uintptr_t value)
{
	uintptr_t at = (uintptr_t)got->slots[slot], size = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *page = (void *)(at & ~(size - 1));
	bool sealed = at >= got->sealed_start && at < got->sealed_end, done;

	if (sealed && mprotect(page, size, PROT_READ | PROT_WRITE))
		return false;
	done = atomic_compare_exchange_strong(got->slots[slot], expected, value);
	if (sealed)
		mprotect(page, size, PROT_READ);
	return done;
}
