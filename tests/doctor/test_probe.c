/* SPDX-License-Identifier: MIT */
/*
 * Probes from a file, processes of their own: a file is read exactly or refused, no file does harm, and
 * whatever a child does ends in a sentence.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/isolate.h"
#include "common/unit.h"
#include "doctor/probe.h"

/* ---- probes ---------------------------------------------------------------------------------- */

static const char sample[] = "# a comment\n"
			     "format 2\n"
			     "machine x86_64\n"
			     "euid 1000\n"
			     "env.backend rm,host\n"
			     "library\n"
			     "  name libcuda.so.1\n"
			     "  found yes\n"
			     "\n"
			     "init_code -1\n"
			     "gpu\n"
			     "  name NVIDIA H100 80GB HBM3\n"
			     "  dmabuf yes\n"
			     "  bar1_total 137438953472\n"
			     "  trial\n"
			     "    backend gdrdrv\n"
			     "    text a cause of  several words\n"
			     "  trial\n"
			     "    backend rm\n"
			     "gpu\n"
			     "  ordinal 1\n"
			     "confidential yes\n"
			     "node\n"
			     "  path /dev/nvidia7\n"
			     "  exists yes\n"
			     "  mode 0660\n";

static void write_file(const char *name, const char *text, size_t size)
{
	FILE *f = fopen(name, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text, 1, size, f), size);
	ck_assert_int_eq(fclose(f), 0);
}

static struct probes *replay(const char *text, size_t size, char *why, size_t why_size)
{
	char name[] = "/tmp/doctor-probe-XXXXXX";
	struct probes *p;

	close(mkstemp(name));
	write_file(name, text, size);
	p = probes_replay(name, why, why_size);
	unlink(name);
	return p;
}

static void reading(void)
{
	char why[256] = "";
	struct probes *p = replay(sample, strlen(sample), why, sizeof(why));

	ck_assert_msg(p, "%s", why);
	ck_assert_str_eq(p->machine, "x86_64");
	ck_assert_int_eq(p->euid, 1000);
	ck_assert_str_eq(p->env.backend, "rm,host");
	ck_assert_int_eq(p->libraries, 1);
	ck_assert(p->library[0].found && p->confidential);
	ck_assert_int_eq(p->init_code, -1);
	ck_assert_int_eq(p->gpus, 2);
	ck_assert_str_eq(p->gpu[0].name, "NVIDIA H100 80GB HBM3");
	ck_assert_int_eq(p->gpu[0].bar1_total, 137438953472);
	ck_assert_int_eq(p->gpu[0].trials, 2);
	ck_assert_str_eq(p->gpu[0].trial[0].text, "a cause of  several words");
	ck_assert_str_eq(p->gpu[0].trial[1].backend, "rm");
	ck_assert(p->gpu[1].ordinal == 1 && !p->gpu[1].dmabuf && !p->gpu[1].trials);
	ck_assert_ptr_eq(probes_node(p, "/dev/nvidia7"), &p->node[0]);
	ck_assert_int_eq(p->node[0].mode, 0660);
	ck_assert_ptr_null(probes_node(p, "/dev/none"));
	ck_assert_ptr_eq(probes_library(p, "libcuda.so.1"), &p->library[0]);
	free(p);
}

static void refusals(void)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
		{ "", "\"format\" is 0, this tool reads 2" },
		{ "format 1\n", "\"format\" is 1, this tool reads 2" },
		{ "format 2\nnonsense 1\n", "line 2: \"nonsense\": there is no such entry" },
		{ "format\n", "line 1: \"format\": not a number" },
		{ "format 2 \n", "line 1: \"format\": not a number" },
		{ "format 2\neuid 5000000000\n", "line 2: \"euid\": out of range" },
		{ "format 2\nmachine 0123456789abcdef\n", "line 2: \"machine\": too long" },
		{ "format 2\nconfidential true\n",
		  "line 2: \"confidential\": can only be \"yes\"" },
		{ "format 2\ngpu 0\n", "line 2: \"gpu\": takes no value" },
		{ "format 2\n  euid 0\n", "line 2: \"euid 0\": indented wrongly" },
		{ "gpu\n ordinal 0\n", "line 2: \"ordinal 0\": indented wrongly" },
		{ "gpu\n  euid 0\n", "line 2: \"euid\": there is no such entry" },
		{ "library\nlibrary\nlibrary\n", "line 3: \"library\": too many" },
	};
	char why[256], *endless = malloc(1 << 20);

	for (size_t i = 0; i < COUNT(rows); i++) {
		ck_assert_msg(!replay(rows[i].text, strlen(rows[i].text), why, sizeof(why)), "%s",
			      rows[i].text);
		ck_assert_str_eq(why, rows[i].why);
	}
	memset(endless, 'x', 1 << 20);
	ck_assert_ptr_null(replay(endless, 1 << 20, why, sizeof(why)));
	ck_assert_msg(strstr(why, "too long"), "%s", why);
	free(endless);
}

static void mutations(void)
{
	unsigned long long random = 20261121;
	int rounds = unit_quick() ? 300 : 3000, taken = 0;
	char why[256], copy[sizeof(sample)];

	for (int i = 0; i < rounds; i++) {
		size_t size = strlen(sample);
		struct probes *p;

		memcpy(copy, sample, sizeof(sample));
		for (int k = (int)(unit_random(&random) % 3); k >= 0; k--)
			copy[unit_random(&random) % size] = (char)(10 + unit_random(&random) % 117);
		p = replay(copy, unit_random(&random) % 8 ? size : unit_random(&random) % size, why,
			   sizeof(why));
		taken += p != NULL;
		free(p);
	}
	ck_assert_int_gt(taken, rounds / 20);
	ck_assert_int_lt(taken, rounds);
}

/* ---- processes of their own -------------------------------------------------------------------- */

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

	ck_assert(isolate(returns, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(*shared, 7);
	ck_assert(!isolate(dies, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "ended by signal 6 (Aborted)");
	ck_assert(!isolate(leaves, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "ended with exit status 9");
	ck_assert(!isolate(hangs, shared, 1, why, sizeof(why)));
	ck_assert_str_eq(why, "not finished after 1 s");
	ck_assert(!isolate(dies, shared, 10, why, 12)); /* cut, and ended */
	ck_assert_str_eq(why, "ended by si");
	munmap(shared, sizeof(*shared));
}

static void isolation_deaf(void)
{
	char why[128];

	ck_assert(!isolate(hangs_deaf, NULL, 1, why, sizeof(why)));
	ck_assert_str_eq(why, "not finished after 1 s");
}

static const struct unit_test tests[] = {
	{ "reading", reading, NULL },
	{ "refusals", refusals, NULL },
	{ "mutations", mutations, NULL },
	{ "isolation", isolation, NULL },
	{ "isolation_deaf", isolation_deaf, NULL },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "doctor_probe", tests, COUNT(tests));
}
