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

/* A library's dynamic section, by tag; 0 where it has none. */
struct dynamic {
	const struct link_map *map;
	ElfW(Addr) tags[DT_NUM];
};

/* The C library has made most of these absolute already. */
static const void *absolute(const struct dynamic *d, int tag)
{
	const ElfW(Addr) value = d->tags[tag];

	return (const void *)(value && value < d->map->l_addr ? d->map->l_addr + value : value);
}

static void add_slots(const struct dynamic *d, int table, int size, const char *symbol,
		      struct gdri_got *got)
{
	const char *strings = absolute(d, DT_STRTAB);
	const ElfW(Sym) *symbols = absolute(d, DT_SYMTAB);
	const ElfW(Rela) *rela = absolute(d, table);

	for (size_t i = 0; rela && i < d->tags[size] / sizeof(*rela); i++) {
		const ElfW(Sym) *sym = &symbols[ELF64_R_SYM(rela[i].r_info)];

		if (IS_IMPORT(ELF64_R_TYPE(rela[i].r_info)) && got->count < GDRI_GOT_SLOTS &&
		    strcmp(strings + sym->st_name, symbol) == 0)
			got->slots[got->count++] =
				(_Atomic(uintptr_t) *)(d->map->l_addr + rela[i].r_offset);
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
	struct dynamic d = { .map = NULL };

	*got = (struct gdri_got){ .count = 0 };
	if (dlinfo(library, RTLD_DI_LINKMAP, &d.map))
		return false;
	for (const ElfW(Dyn) *e = d.map->l_ld; e->d_tag != DT_NULL; e++)
		if (e->d_tag > 0 && e->d_tag < DT_NUM)
			d.tags[e->d_tag] = e->d_un.d_val;
	if (!d.tags[DT_STRTAB] || !d.tags[DT_SYMTAB])
		return false;
	add_slots(&d, DT_JMPREL, DT_PLTRELSZ, symbol, got);
	add_slots(&d, DT_RELA, DT_RELASZ, symbol, got);
	of.map = d.map;
	return got->count && dl_iterate_phdr(read_bounds, &of) == 1;
}

bool gdri_got_write_alone(const struct gdri_got *got, size_t slot, uintptr_t *expected,
			  uintptr_t value)
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

struct write {
	const struct gdri_got *got;
	size_t slot;
	uintptr_t *expected, value;
	bool done;
};

static int write_locked(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct write *w = arg;

	(void)info;
	(void)size;
	w->done = gdri_got_write_alone(w->got, w->slot, w->expected, w->value);
	return 1;
}

/*
 * Under the lock that the loader holds while it calls back: it is the one that all copies of this
 * library in a process share, and none then seals the page under another's write.
 */
bool gdri_got_write(const struct gdri_got *got, size_t slot, uintptr_t *expected, uintptr_t value)
{
	struct write w = { got, slot, expected, value, false };

	dl_iterate_phdr(write_locked, &w);
	return w.done;
}
