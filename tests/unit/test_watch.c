// SPDX-License-Identifier: MIT
/*
 * Watching libcuda's ioctls, for each way to link libcuda: what the watch reports, what not, and
 * that it restores the slot and its page. Other users of the slot are in test_watch_others.c.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/standin.h"
#include "common/unit.h"
#include "watch_sim.h"

/* ---- each form ----------------------------------------------------------- */

/* Before, between and after; unit_arg: the slot's page, which the loader may have made read-only. */
static void one_watch(void)
{
	const char *page = unit_arg;
	struct watch_seen seen = { .calls = 0 };
	uintptr_t held;

	watch_start();
	ck_assert_uint_eq(watch_slots.count, 1);
	OK(gdri_cuda_watch_possible());
	held = watch_slot();
	ck_assert_uint_ge((uintptr_t)watch_slots.at[0], watch_slots.start);
	ck_assert_uint_lt((uintptr_t)watch_slots.at[0], watch_slots.end);
	/* Bound: the address that dlsym() gives. */
	ck_assert_uint_eq(held, (uintptr_t)dlsym(RTLD_DEFAULT, "ioctl"));
	ck_assert_str_eq(watch_page(), page);

	watch_export();
	ck_assert_uint_eq(seen.calls, 0);
	for (unsigned int i = 1; i <= 3; i++) {
		OK(gdri_cuda_watch_begin(watch_note, &seen));
		ck_assert_uint_ne(watch_slot(), held);
		ck_assert_str_eq(watch_page(), page);
		watch_export();
		ck_assert_uint_eq(seen.exports, i);
		gdri_cuda_watch_end();
		ck_assert_uint_eq(watch_slot(), held);
		ck_assert_str_eq(watch_page(), page);
		watch_export();
		ck_assert_uint_eq(seen.exports, i);
	}
	ck_assert_uint_eq(seen.calls, 3);
	ck_assert_uint_eq(seen.other_threads, 0);
}

/*
 * A program that loaded libcuda lazily, and has not called it yet: the slot leads to the stub that
 * would look the function up. The watch restores the stub, and a later call is bound by it.
 */
static void unbound_slot(void)
{
	struct watch_seen seen = { .calls = 0 };
	void *lib = dlopen("libcuda.so.1", RTLD_LAZY);
	Dl_info own, of;
	uintptr_t stub;

	ck_assert_ptr_nonnull(lib);
	OK(gdri_cuda_load());
	ck_assert(gdri_import_slots_find(gdri_cuda_library, "ioctl", &watch_slots));
	stub = watch_slot();
	ck_assert_int_ne(dladdr((void *)stub, &of), 0);
	ck_assert_int_ne(dladdr(dlsym(lib, "cuInit"), &own), 0);
	ck_assert_msg(of.dli_fbase == own.dli_fbase, "bound already: LD_BIND_NOW?");
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	standin_load();
	CU(cuda.cuInit(0));
	ck_assert_uint_gt(seen.calls, 0);
	gdri_cuda_watch_end();
	ck_assert_uint_eq(watch_slot(), stub);
	watch_start();
	seen.exports = 0;
	watch_one_export(&seen);
	ck_assert_uint_eq(seen.exports, 1);
	ck_assert_uint_eq(watch_slot(), stub);
	watch_export();
	ck_assert_uint_eq(watch_slot(), (uintptr_t)dlsym(RTLD_DEFAULT, "ioctl"));
}

/* ---- what is passed ------------------------------------------------------ */

static void results_and_errno(void)
{
	struct watch_seen seen = { .calls = 0, .spoil_errno = true };
	struct winsize size;
	int n = -1;

	watch_start();
	watch_fill_pipe();
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	errno = 0x1234;
	ck_assert_int_eq(watch_ioctl()(watch_pipe[0], FIONREAD, &n), 0);
	ck_assert_int_eq(errno, 0x1234);
	ck_assert_int_eq(n, 5);
	ck_assert_uint_eq(seen.calls, 1);
	ck_assert_ptr_eq(seen.data, &n);
	/* A call that fails is not reported, and its errno is the kernel's. */
	ck_assert_int_eq(watch_ioctl()(-1, FIONREAD, &n), -1);
	ck_assert_int_eq(errno, EBADF);
	ck_assert_int_eq(watch_ioctl()(watch_pipe[0], TIOCGWINSZ, &size),
			 -1); /* emulators know it */
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_uint_eq(seen.calls, 1);
	gdri_cuda_watch_end();
}

/* ---- threads ------------------------------------------------------------- */

enum { EXPORTS = 50 };

static void *export_some(void *arg)
{
	cuda.cuCtxSetCurrent(arg);
	for (int i = 0; i < EXPORTS; i++)
		watch_export();
	return NULL;
}

static void other_threads_pass(void)
{
	struct watch_seen seen = { .calls = 0 };

	watch_start();
	OK(gdri_cuda_watch_begin(watch_note, &seen));
	unit_threads(2, export_some, standin_primary(0), 0);
	ck_assert_uint_eq(seen.calls, 0);
	watch_export();
	ck_assert_uint_eq(seen.calls, 1);
	gdri_cuda_watch_end();
}

static void *watch_often(void *arg)
{
	struct watch_seen *seen = arg;

	cuda.cuCtxSetCurrent(standin_primary(0));
	for (unsigned int i = 0; i < EXPORTS; i++) {
		watch_export();
		if (gdri_cuda_watch_begin(watch_note, seen))
			return "no watch";
		watch_export();
		gdri_cuda_watch_end();
	}
	return NULL;
}

/* Each thread is seen of its own calls; the last one restores the slot. */
static void several_watch(void)
{
	struct watch_seen seen[4] = { { .calls = 0 } };
	const char *wrong;
	uintptr_t held;

	watch_start();
	held = watch_slot();
	wrong = unit_threads(4, watch_often, seen, sizeof(seen[0]));
	ck_assert_msg(!wrong, "%s", wrong);
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(seen[i].exports, EXPORTS);
		ck_assert_uint_eq(seen[i].calls, EXPORTS);
		ck_assert_uint_eq(seen[i].other_threads, 0);
	}
	ck_assert_uint_eq(watch_slot(), held);
}

#define NOW    "LD_LIBRARY_PATH=$SIM/now"
/* ---- the tables of a library ---------------------------------------------- */

#ifdef __aarch64__
#define JUMP_SLOT R_AARCH64_JUMP_SLOT
#else
#define JUMP_SLOT R_X86_64_JUMP_SLOT
#endif

/* DT_PLTRELSZ bounds the relocations, and unknown tags are skipped. */
static void ends_of_tables(void)
{
	static const char strings[] = "\0ioctl";
	static const ElfW(Sym) symbols[2] = { [1] = { .st_name = 1 } };
	static ElfW(Rela) rela[8] = { { 8, ELF64_R_INFO(1, JUMP_SLOT), 0 },
					    { 12, ELF64_R_INFO(1, 0), 0 }, /* no import */
					    { 16, ELF64_R_INFO(1, JUMP_SLOT), 0 },
					    { 24, ELF64_R_INFO(1, JUMP_SLOT), 0 } };
	ElfW(Dyn) dynamic[] = { { DT_STRTAB, { (uintptr_t)strings } },
				{ DT_SYMTAB, { (uintptr_t)symbols } },
				{ DT_JMPREL, { (uintptr_t)rela } },
				{ DT_PLTRELSZ, { 3 * sizeof(rela[0]) } },
				{ DT_NUM, { 1 } },
				{ DT_NULL, { 0 } } };
	const struct link_map map = { .l_ld = dynamic };
	struct gdri_import_slots found;

	(void)gdri_import_slots_in(&map, "ioctl", &found);
	ck_assert_uint_eq(found.count, 2);
	for (size_t i = 4; i < COUNT(rela); i++)
		rela[i] = rela[0];
	dynamic[3].d_un.d_val = sizeof(rela);
	(void)gdri_import_slots_in(&map, "ioctl", &found);
	ck_assert_uint_eq(found.count, GDRI_IMPORT_SLOTS);
}

/* The pages beside RELRO stay writable. */
static void beside_relro(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	char *page = mmap(NULL, 3 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gdri_import_slots made = { .count = 2,
					  .at = { (void *)page, (void *)(page + 2 * size) },
					  .relro_start = (uintptr_t)page + size,
					  .relro_end = (uintptr_t)page + 2 * size };

	for (size_t i = 0; i < 2; i++) {
		uintptr_t held = 0;

		ck_assert(gdri_import_slot_write(&made, i, &held, 5, false));
		ck_assert_uint_eq(atomic_load(made.at[i]), 5);
		ck_assert_int_eq(unit_touch(page + 2 * i * size, true), 0);
	}
	munmap(page, 3 * size);
}

#define NOPLT  "LD_LIBRARY_PATH=$SIM/noplt"

static const struct unit_test tests[] = {
	{ "JUMP_SLOT, bound when loaded", one_watch, "", "rw-" },
	{ "JUMP_SLOT, not bound yet", unbound_slot, "" },
	{ "JUMP_SLOT, sealed", one_watch, NOW, "r--" },
	{ "GLOB_DAT, sealed", one_watch, NOPLT, "r--" },
	{ "results and errno", results_and_errno, "" },
	{ "results and errno, sealed", results_and_errno, NOW },
	{ "the ends of tables", ends_of_tables, "" },
	{ "beside RELRO", beside_relro, "" },
	{ "other threads are not watched", other_threads_pass, "" },
	{ "several threads watch", several_watch, "" },
	{ "several threads watch, sealed", several_watch, NOPLT },
};

UNIT_MAIN("watch", tests)
