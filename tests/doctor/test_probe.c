/* SPDX-License-Identifier: MIT */
/*
 * Probes as JSON, sets of CPUs, processes of their own: what is written is read back, no file harms,
 * and whatever a child does ends in a sentence.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/again.h"
#include "common/unit.h"
#include "doctor/cpulist.h"
#include "doctor/isolate.h"
#include "doctor/probe.h"

/* ---- probes ---------------------------------------------------------------------------------- */

static struct probes *sample(void)
{
	struct probes *p = calloc(1, sizeof(*p));

	p->format = 1;
	p->stand_in = true;
	strcpy(p->machine, "x86_64");
	strcpy(p->env.backend, "a \"quoted\"\nname");
	p->init_code = -1;
	p->confidential = true;
	p->gpus = PROBE_GPUS;
	for (int i = 0; i < p->gpus; i++) {
		p->gpu[i].ordinal = i;
		p->gpu[i].mig = i % 2;
		p->gpu[i].vgpu = i % 3;
		p->gpu[i].bar1_total = INT64_MAX - i;
		p->gpu[i].trials = PROBE_TRIALS;
		for (int k = 0; k < PROBE_TRIALS; k++) {
			struct probe_trial *t = &p->gpu[i].trial[k];

			t->merged_ns = 0.5 + k;
			memset(t->text, 'x', sizeof(t->text) - 1);
		}
	}
	p->nodes = PROBE_NODES;
	for (int i = 0; i < p->nodes; i++)
		snprintf(p->node[i].path, sizeof(p->node[i].path), "/dev/nvidia%d", i);
	p->libraries = 2;
	return p;
}

static void write_file(const char *name, const char *text, size_t size)
{
	FILE *f = fopen(name, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text, 1, size, f), size);
	ck_assert_int_eq(fclose(f), 0);
}

/* The largest there can be, every field of it. */
static void round_trip(void)
{
	char name[] = "/tmp/doctor-probe-XXXXXX", why[256] = "";
	struct probes *p = sample(), *q;
	int fd = mkstemp(name);
	FILE *f = fdopen(fd, "w");

	probes_record(p, f);
	fclose(f);
	q = probes_replay(name, why, sizeof(why));
	ck_assert_msg(q, "%s", why);
	ck_assert_mem_eq(p, q, sizeof(*p));
	ck_assert_ptr_eq(probes_node(q, "/dev/nvidia7"), &q->node[7]);
	ck_assert_ptr_null(probes_node(q, "/dev/none"));
	free(p);
	free(q);
	unlink(name);
}

static void mutations(void)
{
	char name[] = "/tmp/doctor-probe-XXXXXX", why[256];
	unsigned long long random = 20261121;
	int rounds = unit_quick() ? 300 : 3000, taken = 0;
	struct probes *p = sample();
	char *text = NULL, *copy;
	size_t size = 0;
	FILE *f;

	p->gpus = p->nodes = 1;
	p->gpu[0].trials = 1;
	f = open_memstream(&text, &size);
	probes_record(p, f);
	fclose(f);
	close(mkstemp(name));
	copy = malloc(size);
	for (int i = 0; i < rounds; i++) {
		struct probes *q;

		memcpy(copy, text, size);
		for (int k = (int)(unit_random(&random) % 3); k >= 0; k--)
			copy[unit_random(&random) % size] = (char)(32 + unit_random(&random) % 95);
		write_file(name, copy,
			   unit_random(&random) % 8 ? size : unit_random(&random) % size);
		q = probes_replay(name, why, sizeof(why));
		taken += q != NULL;
		free(q);
	}
	ck_assert_int_gt(taken, rounds / 20);
	ck_assert_int_lt(taken, rounds);
	free(copy);
	free(text);
	free(p);
	unlink(name);
}

static void huge_file(void)
{
	char name[] = "/tmp/doctor-probe-XXXXXX", why[256];
	int fd = mkstemp(name);

	ck_assert_int_eq(ftruncate(fd, 64 << 20), 0);
	close(fd);
	ck_assert_ptr_null(probes_replay(name, why, sizeof(why)));
	ck_assert_str_eq(why, "larger than 4 MiB");
	unlink(name);
}

/* ---- sets of CPUs ----------------------------------------------------------------------------- */

static void cpulists(void)
{
	static const char *const same[] = { "", "0", "0-3", "0-3,8,10-11", "8191" };
	static const char *const bad[] = { "x",
					   "-1",
					   "3-",
					   "3-1",
					   "1,,2",
					   "8192",
					   "0-8192",
					   "1 x",
					   "0x1",
					   ",",
					   "99999999999999999999" };
	struct cpulist set, other;
	char text[64];

	for (size_t i = 0; i < COUNT(same); i++) {
		ck_assert_int_eq(cpulist_parse(&set, same[i]), 0);
		cpulist_text(&set, text, sizeof(text));
		ck_assert_str_eq(text, same[i]);
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		if (strcmp(bad[i], "1 x")) /* behind a blank is another list's */
			ck_assert_msg(cpulist_parse(&set, bad[i]) < 0, "%s", bad[i]);
	ck_assert_int_eq(cpulist_parse(&set, "4-7,2\n"), 0);
	ck_assert_int_eq(cpulist_first(&set), 2);
	ck_assert_uint_eq(cpulist_count(&set), 5);
	ck_assert(cpulist_has(&set, 7) && !cpulist_has(&set, 8) && !cpulist_has(&set, 1u << 31));
	cpulist_parse(&other, "0-4");
	ck_assert_uint_eq(cpulist_common(&set, &other), 2);
	/* every second CPU: cut where there is no room */
	memset(&set, 0x55, sizeof(set));
	cpulist_text(&set, text, sizeof(text));
	ck_assert_uint_lt(strlen(text), sizeof(text));
	ck_assert_str_eq(text + strlen(text) - 3, "...");
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
	fprintf(stderr, "first\nthe last line\n");
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
	int *shared = isolate_shared(sizeof(*shared));
	char why[128];

	ck_assert(isolate(returns, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "");
	ck_assert_int_eq(*shared, 7);
	ck_assert(!isolate(dies, shared, 10, why, sizeof(why)));
	if (!test_emulator_lacks("isolation, the last words", "dying without a word of its own"))
		ck_assert_str_eq(why, "ended by signal 6 (Aborted); its last words: the last line");
	ck_assert(!isolate(leaves, shared, 10, why, sizeof(why)));
	ck_assert_str_eq(why, "ended with exit status 9");
	ck_assert(!isolate(hangs, shared, 1, why, sizeof(why)));
	ck_assert_str_eq(why, "not finished after 1 s");
	ck_assert(!isolate(dies, shared, 10, why, 12)); /* cut, and ended */
	ck_assert_str_eq(why, "ended by si");
	isolate_shared_free(shared, sizeof(*shared));
}

static void isolation_deaf(void)
{
	char why[128];

	ck_assert(!isolate(hangs_deaf, NULL, 1, why, sizeof(why)));
	ck_assert_str_eq(why, "not finished after 1 s");
}

static const struct unit_test tests[] = {
	{ "round_trip", round_trip, NULL }, { "mutations", mutations, NULL },
	{ "huge_file", huge_file, NULL },   { "cpulists", cpulists, NULL },
	{ "isolation", isolation, NULL },   { "isolation_deaf", isolation_deaf, NULL },
};

int main(int argc, char **argv)
{
	(void)argc;
	return unit_main(argv, "doctor_probe", tests, COUNT(tests));
}
