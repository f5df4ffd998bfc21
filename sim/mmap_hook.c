/* SPDX-License-Identifier: MIT */
/*
 * Lets the programs in this process mmap descriptors that stand for several pieces of memory
 * (dmabuf.c says why): the global offset table entries for mmap of every loaded object are pointed
 * at a function that knows them and passes everything else on. Done anew at each such export, so
 * that objects loaded later are reached. Not reached: an object that calls the kernel itself, or
 * that contains its own mmap (a program linked with clang's static sanitizer run time); there
 * mmap of such a descriptor fails. It knows nothing of what the descriptors mean.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "sim.h"

#if defined(__x86_64__)
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#error "relocation types of this architecture are not known"
#endif

typedef void *(*mmap_fn)(void *, size_t, int, int, int, off_t);

static mmap_fn next_mmap; /* set before the first slot is */

static void *hooked_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	void *at;

	if (!(flags & MAP_ANONYMOUS) && sim_dmabuf_map(addr, len, prot, flags, fd, off, &at))
		return at;
	return next_mmap(addr, len, prot, flags, fd, off);
}

struct relocations {
	const ElfW(Rela) * rela;
	size_t size;
};

struct object {
	ElfW(Addr) base;
	const char *strings;
	const ElfW(Sym) * symbols;
	struct relocations plt;
	struct relocations other;
	ElfW(Addr) relro;
	size_t relro_size;
	bool own; /* this library */
};

/* The loader has made most of these absolute already. */
static const void *dynamic_ptr(const struct object *obj, ElfW(Addr) value)
{
	return (const void *)(value < obj->base ? obj->base + value : value);
}

static void read_dynamic(struct object *obj, const ElfW(Dyn) * dyn)
{
	for (; dyn->d_tag != DT_NULL; dyn++) {
		switch (dyn->d_tag) {
		case DT_STRTAB:
			obj->strings = dynamic_ptr(obj, dyn->d_un.d_ptr);
			break;
		case DT_SYMTAB:
			obj->symbols = dynamic_ptr(obj, dyn->d_un.d_ptr);
			break;
		case DT_JMPREL:
			obj->plt.rela = dynamic_ptr(obj, dyn->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			obj->plt.size = dyn->d_un.d_val;
			break;
		case DT_RELA:
			obj->other.rela = dynamic_ptr(obj, dyn->d_un.d_ptr);
			break;
		case DT_RELASZ:
			obj->other.size = dyn->d_un.d_val;
			break;
		default:
			break;
		}
	}
}

static void write_slot(const struct object *obj, ElfW(Addr) at)
{
	_Atomic(uintptr_t) *slot = (_Atomic(uintptr_t) *)at;
	void *page = (void *)(at & ~(ElfW(Addr))(SIM_PAGE - 1));
	bool sealed = at >= obj->relro && at < obj->relro + obj->relro_size;

	if (atomic_load(slot) == (uintptr_t)hooked_mmap)
		return;
	if (sealed && mprotect(page, SIM_PAGE, PROT_READ | PROT_WRITE))
		return;
	atomic_store(slot, (uintptr_t)hooked_mmap);
	if (sealed)
		mprotect(page, SIM_PAGE, PROT_READ);
}

static void patch(const struct object *obj, const struct relocations *rels)
{
	for (size_t i = 0; rels->rela && i < rels->size / sizeof(*rels->rela); i++) {
		const ElfW(Rela) *rela = &rels->rela[i];
		const char *name;

		if (!IS_SLOT(ELF64_R_TYPE(rela->r_info)))
			continue;
		name = obj->strings + obj->symbols[ELF64_R_SYM(rela->r_info)].st_name;
		if (strcmp(name, "mmap") == 0 || strcmp(name, "mmap64") == 0)
			write_slot(obj, obj->base + rela->r_offset);
	}
}

/*
 * Objects that need their own mmap: the C library, the loader and the sanitizers' run time. The name
 * is the loader's memory, under a lock of its that the thread sanitizer does not see: hence neither
 * instrumented nor by calls that it intercepts.
 */
static __attribute__((no_sanitize("thread"))) bool left_alone(const char *path)
{
	static const char *const names[] = { "libc.so", "ld-linux", "linux-vdso", "libasan",
					     "libtsan", "libubsan", "liblsan" };
	const volatile char *name = path;

	for (const volatile char *c = path; *c; c++)
		if (*c == '/')
			name = c + 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t n = 0;

		while (names[i][n] && name[n] == names[i][n])
			n++;
		if (!names[i][n])
			return true;
	}
	return false;
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object obj = { .base = info->dlpi_addr };
	const ElfW(Dyn) *dyn = NULL;

	(void)size;
	(void)arg;
	if (left_alone(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		ElfW(Addr) start = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_DYNAMIC)
			dyn = (const ElfW(Dyn) *)start;
		if (ph->p_type == PT_GNU_RELRO) {
			obj.relro = start;
			obj.relro_size = ph->p_memsz;
		}
		if (ph->p_type == PT_LOAD && (ElfW(Addr))visit - start < ph->p_memsz)
			obj.own = true;
	}
	if (!dyn || obj.own)
		return 0;
	read_dynamic(&obj, dyn);
	if (obj.strings && obj.symbols) {
		patch(&obj, &obj.plt);
		patch(&obj, &obj.other);
	}
	return 0;
}

void sim_hook_mmap(void)
{
	void *symbol = dlsym(RTLD_DEFAULT, "mmap");

	if (!symbol)
		return;
	if (!next_mmap)
		memcpy(&next_mmap, &symbol, sizeof(symbol));
	dl_iterate_phdr(visit, NULL);
}
