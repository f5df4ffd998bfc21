/* SPDX-License-Identifier: MIT */
/* See import_slots.h. */
#include "cuda/import_slots.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
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

struct library {
	const struct link_map *map;
	ElfW(Addr) tags[DT_NUM]; /* the dynamic section, by tag; 0: absent */
	struct gdri_import_slots *slots;
};

/* The C library has already made most of these addresses absolute. */
static const void *absolute(const struct library *lib, int tag)
{
	const ElfW(Addr) value = lib->tags[tag];

	return (const void *)(value && value < lib->map->l_addr ? lib->map->l_addr + value : value);
}

static void add_slots(const struct library *lib, int table, int size, const char *symbol)
{
	const char *strings = absolute(lib, DT_STRTAB);
	const ElfW(Sym) *symbols = absolute(lib, DT_SYMTAB);
	const ElfW(Rela) *rela = absolute(lib, table);
	struct gdri_import_slots *slots = lib->slots;

	for (size_t i = 0; rela && i < lib->tags[size] / sizeof(*rela); i++) {
		const ElfW(Sym) *sym = &symbols[ELF64_R_SYM(rela[i].r_info)];

		if (IS_IMPORT(ELF64_R_TYPE(rela[i].r_info)) && slots->count < GDRI_IMPORT_SLOTS &&
		    strcmp(strings + sym->st_name, symbol) == 0)
			slots->at[slots->count++] =
				(_Atomic(uintptr_t) *)(lib->map->l_addr + rela[i].r_offset);
	}
}

/* The loader protects whole pages: it rounds both ends of RELRO down (glibc, elf/dl-reloc.c). */
static int read_bounds(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct library *lib = arg;
	struct gdri_import_slots *slots = lib->slots;
	uintptr_t page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);

	(void)size;
	if (info->dlpi_addr != lib->map->l_addr)
		return 0;
	slots->start = UINTPTR_MAX;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + ph->p_vaddr, to = from + ph->p_memsz;

		if (ph->p_type == PT_GNU_RELRO) {
			slots->relro_start = from & page_mask;
			slots->relro_end = to & page_mask;
		} else if (ph->p_type == PT_LOAD) {
			slots->start = from < slots->start ? from : slots->start;
			slots->end = to > slots->end ? to : slots->end;
		}
	}
	return 1;
}

bool gdri_import_slots_in(const struct link_map *map, const char *symbol,
			  struct gdri_import_slots *slots)
{
	struct library lib = { .map = map, .slots = slots };

	*slots = (struct gdri_import_slots){ .count = 0 };
	for (const ElfW(Dyn) *e = map->l_ld; e->d_tag != DT_NULL; e++)
		if (e->d_tag > 0 && e->d_tag < DT_NUM)
			lib.tags[e->d_tag] = e->d_un.d_val;
	add_slots(&lib, DT_JMPREL, DT_PLTRELSZ, symbol);
	add_slots(&lib, DT_RELA, DT_RELASZ, symbol);
	return slots->count && dl_iterate_phdr(read_bounds, &lib) == 1;
}

bool gdri_import_slots_find(void *library, const char *symbol, struct gdri_import_slots *slots)
{
	const struct link_map *map;

	return !dlinfo(library, RTLD_DI_LINKMAP, &map) && gdri_import_slots_in(map, symbol, slots);
}

static bool is_read_only(const struct gdri_import_slots *slots, size_t slot)
{
	uintptr_t at = (uintptr_t)slots->at[slot];

	return at >= slots->relro_start && at < slots->relro_end;
}

static int protect(const struct gdri_import_slots *slots, size_t slot, int prot)
{
	uintptr_t at = (uintptr_t)slots->at[slot], size = (uintptr_t)sysconf(_SC_PAGESIZE);

	return mprotect((void *)(at & ~(size - 1)), size, prot);
}

static int protect_again(struct dl_phdr_info *info, size_t info_size, void *arg)
{
	const struct gdri_import_slots *slots = arg;

	(void)info;
	(void)info_size;
	for (size_t i = 0; i < slots->count; i++)
		if (is_read_only(slots, i) && protect(slots, i, PROT_READ))
			return errno;
	return -1; /* ends the iteration, as an errno does */
}

/* The loader's lock: another thread may just have made the page writable. */
int gdri_import_slots_locked_out(const struct gdri_import_slots *slots)
{
	int err = dl_iterate_phdr(protect_again, (void *)slots);

	return err > 0 ? err : 0;
}

struct write {
	const struct gdri_import_slots *slots;
	size_t slot;
	uintptr_t *expected, value;
	bool done;
};

static int write_slot(struct dl_phdr_info *info, size_t info_size, void *arg)
{
	struct write *w = arg;
	bool read_only = is_read_only(w->slots, w->slot);

	(void)info;
	(void)info_size;
	if (read_only && protect(w->slots, w->slot, PROT_READ | PROT_WRITE))
		return 1;
	w->done = atomic_compare_exchange_strong(w->slots->at[w->slot], w->expected, w->value);
	if (read_only)
		protect(w->slots, w->slot, PROT_READ);
	return 1;
}

bool gdri_import_slot_write(const struct gdri_import_slots *slots, size_t slot, uintptr_t *expected,
			    uintptr_t value, bool in_child)
{
	struct write w = { slots, slot, expected, value, false };

	if (in_child)
		write_slot(NULL, 0, &w);
	else
		dl_iterate_phdr(write_slot, &w); /* which holds the loader's lock */
	return w.done;
}
