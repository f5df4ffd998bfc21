// SPDX-License-Identifier: MIT
/* See step.h. */
#include "step.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP_FLAG   0x100
#define FAULT_WRITE 2 /* bit of a page fault's error code */
#define PAGE	    ((size_t)4096)
#define TEXT	    64

struct steps {
	char text[TEXT];
	size_t length;
	uint8_t *open[2]; /* pages that this instruction may touch */
	bool watched; /* else an access by the test itself steps over one instruction */
};

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KEEPS_SIGNALS 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define KEEPS_SIGNALS 1
#endif

void step_start(void)
{
	const char *preload = getenv("LD_PRELOAD"), *why = NULL;

#ifdef KEEPS_SIGNALS
	why = "the thread sanitizer keeps signals back";
#endif
	if (preload && strstr(preload, "vgpreload"))
		why = "valgrind has no trap flag";
	if (!why)
		return;
	fprintf(stderr, "skipped: %s\n", why);
	exit(77);
}

void (*step_behind)(void);
static uint8_t *memory;
static size_t memory_size;
static struct steps mine;

static struct {
	unsigned int left;
	uint64_t *word, value;
} change;

static struct {
	uint8_t *line, *copy; /* NULL: none is kept, or it was at a fence */
} keep;

/* In a signal handler: the line's page is closed, unless this instruction may touch it. */
static void keep_line(bool fence)
{
	uint8_t *page = (uint8_t *)((uintptr_t)keep.line & ~(PAGE - 1));

	if (!keep.line)
		return;
	mprotect(page, PAGE, PROT_READ | PROT_WRITE);
	memcpy(keep.copy, keep.line, 64);
	if (page != mine.open[0] && page != mine.open[1])
		mprotect(page, PAGE, PROT_NONE);
	if (fence)
		keep.line = NULL;
}

static void note(char c)
{
	struct steps *s = &mine;
	bool access = c == 'r' || c == 'w';

	keep_line(!access);
	/* Of a run of accesses one letter; of fences each. */
	if (access && s->length && s->text[s->length - 1] == c)
		return;
	if (s->length < TEXT - 1)
		s->text[s->length++] = c;
}

/*
 * 0F AE /5, /6 and /7 with a register: LFENCE, MFENCE, SFENCE. Not those of the kernel's vDSO: its
 * clock has an LFENCE or not, by the machine.
 */
static void look_at(const uint8_t *code)
{
	uintptr_t in_vdso = (uintptr_t)code - getauxval(AT_SYSINFO_EHDR);

	if (code[0] != 0x0f || code[1] != 0xae || in_vdso < 4 * PAGE)
		return;
	if (code[2] == 0xe8)
		note('l');
	else if (code[2] == 0xf0)
		note('m');
	else if (code[2] == 0xf8)
		note('s');
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	struct steps *s = &mine;

	(void)sig, (void)info;
	for (int i = 0; i < 2; i++) {
		if (s->open[i])
			mprotect(s->open[i], PAGE, PROT_NONE);
		s->open[i] = NULL;
	}
	if (s->watched && step_behind)
		step_behind();
	look_at((const uint8_t *)uc->uc_mcontext.gregs[REG_RIP]);
	if (!s->watched)
		uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uint8_t *at = info->si_addr;
	struct steps *t = &mine;
	bool second = t->open[0];

	if (at < memory || at >= memory + memory_size || t->open[1]) {
		signal(sig, SIG_DFL);
		return;
	}
	note(uc->uc_mcontext.gregs[REG_ERR] & FAULT_WRITE ? 'w' : 'r');
	t->open[second] = (uint8_t *)((uintptr_t)at & ~(PAGE - 1));
	mprotect(t->open[second], PAGE, PROT_READ | PROT_WRITE);
	if (change.left && !--change.left)
		*change.word = change.value;
	uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

uint8_t *step_watch(size_t size)
{
	struct sigaction trap = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || sigaction(SIGTRAP, &trap, NULL) ||
	    sigaction(SIGSEGV, &fault, NULL))
		abort();
	memory_size = size;
	return memory;
}

/* The flag is set and cleared below the red zone. */
static inline __attribute__((always_inline)) void trap_flag(bool on)
{
	if (on)
		__asm__ volatile(
			"lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\t"
			"lea 128(%%rsp), %%rsp" ::
				: "memory", "cc");
	else
		__asm__ volatile(
			"lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\t"
			"lea 128(%%rsp), %%rsp" ::
				: "memory", "cc");
}

void step_begin(void)
{
	memset(mine.text, 0, sizeof(mine.text));
	mine.length = 0;
	mine.watched = true;
	trap_flag(true);
}

const char *step_end(void)
{
	trap_flag(false);
	mine.watched = false;
	return mine.text;
}

void step_keep_line(uint8_t *line, uint8_t *copy)
{
	keep.line = line;
	keep.copy = copy;
}

void step_set_before(unsigned int nth, uint64_t *word, uint64_t value)
{
	change.left = nth;
	change.word = word;
	change.value = value;
}
