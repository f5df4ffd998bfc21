/* SPDX-License-Identifier: MIT */
/* Processes of the doctor's own: whatever a child does ends in a sentence. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/child.h"
#include "common/unit.h"
#include "doctor/probe.h"

/* ---- processes of their own ------------------------------------------------------------------ */

static void returns(void *arg)
{
	*(int *)arg = 7;
	printf("not shown\n");
}

static void dies(void *arg)
{
	(void)arg;
	signal(SIGABRT, SIG_DFL);
	kill(getpid(), SIGABRT);
	pause();
}

static void leaves(void *arg)
{
	(void)arg;
	_exit(9);
}

static void hangs(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

/* Deaf to its alarm, with a child that would outlive it. */
static void hangs_deaf(void *arg)
{
	signal(SIGALRM, SIG_IGN);
	if (!fork())
		hangs(NULL);
	hangs(arg);
}

static void isolation(void)
{
	int *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char why[128];

	ck_assert(child_isolate(returns, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(*shared, 7);
	ck_assert(!child_isolate(dies, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "ended by signal 6 (Aborted)");
	ck_assert(!child_isolate(leaves, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "ended with exit status 9");
	ck_assert(!child_isolate(hangs, shared, 1, why, sizeof(why)));
	ck_assert_str_eq(why, "not finished after 1 s");
	ck_assert(!child_isolate(dies, shared, 10, why, 12)); /* cut, and ended */
	ck_assert_str_eq(why, "ended by si");
	munmap(shared, sizeof(*shared));
}

static void isolation_deaf(void)
{
	char why[128];

	ck_assert(!child_isolate(hangs_deaf, NULL, 1, why, sizeof(why)));
	ck_assert_str_eq(why, "not finished after 1 s");
}

static const struct unit_test tests[] = {
	{ "isolation", isolation, NULL },
	{ "isolation_deaf", isolation_deaf, NULL },
};

UNIT_MAIN("doctor_probe", tests)
