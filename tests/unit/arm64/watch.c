/* SPDX-License-Identifier: MIT */
/*
 * See watch.h. The encodings are those of the Arm ARM (DDI 0487), "Loads and stores" in "A64
 * instruction set encoding".
 */
#include "watch.h"

#include <asm/sigcontext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static struct watch *watch;

static _Noreturn void give_up(const char *what, uint64_t pc, uint32_t insn, uint64_t addr)
{
	char text[160];
	int len = snprintf(text, sizeof(text), "watch: %s: %08x at %#lx, address %#lx\n", what,
			   insn, (unsigned long)pc, (unsigned long)addr);

	if (write(STDERR_FILENO, text, (size_t)len) < 0)
		_exit(2);
	_exit(3);
}

static uint32_t bits(uint32_t insn, int high, int low)
{
	return insn >> low & ((1u << (high - low + 1)) - 1);
}

static int64_t signed_bits(uint32_t insn, int high, int low)
{
	int unused = 63 - (high - low);

	return (int64_t)((uint64_t)bits(insn, high, low) << unused) >> unused;
}

/* Where register r of either file lies in the interrupted context; NULL: the zero register. */
static void *register_at(ucontext_t *uc, bool vector, uint32_t r)
{
	if (vector) {
		struct fpsimd_context *fp = (void *)uc->uc_mcontext.__reserved;

		if (fp->head.magic != FPSIMD_MAGIC)
			give_up("no vector registers in the context", uc->uc_mcontext.pc, 0, 0);
		return &fp->vregs[r];
	}
	return r == 31 ? NULL : &uc->uc_mcontext.regs[r];
}

static uint64_t *base_at(ucontext_t *uc, uint32_t insn)
{
	uint32_t r = bits(insn, 9, 5);

	return r == 31 ? (uint64_t *)&uc->uc_mcontext.sp : (uint64_t *)&uc->uc_mcontext.regs[r];
}

static struct {
	const uint8_t *line; /* NULL: none is kept, or it was at a barrier */
	uint8_t *copy;
} keep;

static void note(char c)
{
	bool access = c == 'r' || c == 'w';

	if (keep.line)
		memcpy(keep.copy, keep.line, 64);
	if (!access)
		keep.line = NULL;

	/* Of a run of accesses one letter; of barriers each. */
	if (access && watch->length && watch->text[watch->length - 1] == c)
		return;
	if (watch->length < sizeof(watch->text) - 1)
		watch->text[watch->length++] = c;
}

/* One element between a register and the memory. */
static void transfer(void *reg, bool vector, size_t at, unsigned int size, bool store, bool pair)
{
	static const uint8_t zeros[16];
	uint8_t *memory = watch->plain + at;

	note(store ? 'w' : 'r');
	if (watch->count < WATCH_MAX)
		watch->access[watch->count++] = (struct watch_access){ at, size, store, pair };
	if (store) {
		memcpy(memory, reg ? reg : zeros, size);
	} else if (reg) {
		memset(reg, 0, vector ? 16 : 8); /* the rest of a register becomes zero */
		memcpy(reg, memory, size);
	}
}

/* LDP, STP and the like: false if it is none that is known. */
static bool do_pair(ucontext_t *uc, uint32_t insn, size_t at)
{
	bool vector = bits(insn, 26, 26), store = !bits(insn, 22, 22);
	uint32_t opc = bits(insn, 31, 30), form = bits(insn, 24, 23);
	unsigned int size = vector ? 4u << opc : opc == 2 ? 8 : 4;

	if ((!vector && opc & 1) || opc == 3)
		return false;
	transfer(register_at(uc, vector, bits(insn, 4, 0)), vector, at, size, store, true);
	transfer(register_at(uc, vector, bits(insn, 14, 10)), vector, at + size, size, store, true);
	if (form & 1) /* post-index 1, pre-index 3 */
		*base_at(uc, insn) += (uint64_t)(signed_bits(insn, 21, 15) * (int64_t)size);
	return true;
}

/* LDR, STR and the like, all addressing modes. */
static bool do_single(ucontext_t *uc, uint32_t insn, size_t at)
{
	bool vector = bits(insn, 26, 26), store;
	uint32_t opc = bits(insn, 23, 22), mode = bits(insn, 11, 10);
	unsigned int size = 1u << bits(insn, 31, 30);

	if (bits(insn, 24, 24) == 0 && bits(insn, 21, 21) != (mode == 2))
		return false; /* atomics, pointer authentication, unprivileged */
	if (vector && opc & 2) {
		if (size != 1)
			return false;
		size = 16;
	} else if (opc & 2) {
		return false; /* sign-extending loads, prefetch */
	}
	store = !(opc & 1);
	transfer(register_at(uc, vector, bits(insn, 4, 0)), vector, at, size, store, false);
	if (bits(insn, 24, 24) == 0 && mode & 1) /* post-index 1, pre-index 3 */
		*base_at(uc, insn) += (uint64_t)signed_bits(insn, 20, 12);
	return true;
}

/* ---- barriers ------------------------------------------------------------ */

/* "Barriers" in "System instructions": DMB and DSB, by their domain and kind of access; DGH. */
static const struct {
	uint32_t word;
	char letter;
} barriers[] = {
	{ 0xd50333bf, 'f' }, /* DMB OSH */
	{ 0xd50331bf, 'd' }, /* DMB OSHLD */
	{ 0xd50332bf, 's' }, /* DMB OSHST */
	{ 0xd503319f, 'D' }, /* DSB OSHLD */
	{ 0xd503329f, 'S' }, /* DSB OSHST */
	{ 0xd50320df, 'g' }, /* DGH, HINT #6 */
};
#define BARRIERS (sizeof(barriers) / sizeof(barriers[0]))

/* BRK with a number of ours, and which of the barriers it stands for. */
#define BRK	  0xd4200000u
#define OUR_BRK	  0x5a00u
#define BRK_OF(i) (BRK | (OUR_BRK + (uint32_t)(i)) << 5)

extern uint32_t __executable_start[], etext[];

static void on_barrier(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uint32_t insn = *(const uint32_t *)uc->uc_mcontext.pc;

	(void)sig, (void)info;
	for (size_t i = 0; i < BARRIERS; i++)
		if (insn == BRK_OF(i)) {
			note(barriers[i].letter);
			__asm__ volatile("dsb sy" ::: "memory");
			uc->uc_mcontext.pc += 4;
			return;
		}
	give_up("a breakpoint of somebody else's", uc->uc_mcontext.pc, insn, 0);
}

void watch_barriers(void)
{
	struct sigaction action = { .sa_sigaction = on_barrier, .sa_flags = SA_SIGINFO };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)__executable_start & ~(page - 1);
	uintptr_t to = ((uintptr_t)etext + page - 1) & ~(page - 1);

	if (sigaction(SIGTRAP, &action, NULL) ||
	    mprotect((void *)from, to - from, PROT_READ | PROT_WRITE | PROT_EXEC))
		abort();
	for (uint32_t *at = __executable_start; at < etext; at++)
		for (size_t i = 0; i < BARRIERS; i++)
			if (*at == barriers[i].word)
				*at = BRK_OF(i);
	__builtin___clear_cache((char *)__executable_start, (char *)etext);
}

void watch_begin(void)
{
	watch->length = 0;
	memset(watch->text, 0, sizeof(watch->text));
}

const char *watch_end(void)
{
	return watch->text;
}

void watch_keep_line(uint8_t *line, uint8_t *copy)
{
	keep.line = line ? watch->plain + (line - watch->memory) : NULL;
	keep.copy = copy;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uint64_t pc = uc->uc_mcontext.pc, addr = (uintptr_t)info->si_addr;
	uint32_t insn = *(const uint32_t *)pc;
	bool known = false;
	size_t at = addr - (uintptr_t)watch->memory;

	(void)sig;
	if (at >= watch->size)
		give_up("fault elsewhere", pc, insn, addr);
	if (bits(insn, 29, 27) == 5)
		known = do_pair(uc, insn, at);
	else if (bits(insn, 29, 27) == 7)
		known = do_single(uc, insn, at);
	if (!known)
		give_up("unknown instruction", pc, insn, addr);
	uc->uc_mcontext.pc += 4;
}

struct watch *watch_new(size_t size)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("watch", 0);

	watch = calloc(1, sizeof(*watch));
	size = (size + page - 1) / page * page;
	if (!watch || fd < 0 || ftruncate(fd, (off_t)size))
		abort();
	watch->size = size;
	watch->plain = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	watch->memory = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
	if (watch->plain == MAP_FAILED || watch->memory == MAP_FAILED ||
	    sigaction(SIGSEGV, &action, NULL))
		abort();
	close(fd);
	return watch;
}
