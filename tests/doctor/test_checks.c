/* SPDX-License-Identifier: MIT */
/*
 * What the doctor concludes, piece by piece: the path between two PCI functions, CPUs that two
 * lists share, what keeps rm from a GPU, and whether ordinary memory can be mapped.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "doctor/doctor.h"

static void cpus(void)
{
	static const struct {
		const char *a, *b;
		long common;
	} rows[] = {
		{ "", "", 0 },
		{ "0", "0", 1 },
		{ "0-3", "2-5", 2 },
		{ "0-3,8,10-11", "8-10", 2 },
		{ "0-55,112-167", "56-111", 0 },
		{ "0-99999999", "0-99999999", 8192 },
		{ "8191-8192", "8191", 1 },
		{ "3-1", "0-5", 0 },
		{ "0-", "0-5", 1 },
		{ "x", "0-5", 0 },
		{ "0-5", "99999999999999999999", 0 },
		{ "4-7,2\n", "0-4", 2 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		ck_assert_msg(cpus_common(rows[i].a, rows[i].b) == rows[i].common, "%s, %s",
			      rows[i].a, rows[i].b);
		ck_assert_int_eq(cpus_common(rows[i].b, rows[i].a), rows[i].common);
	}
}

/* ---- paths ----------------------------------------------------------------------------------- */

static struct pci_dev at(const char *real, int numa, int socket)
{
	struct pci_dev d = { .gpu = true, .numa = numa, .socket = socket };

	snprintf(d.real, sizeof(d.real), "%s", real);
	return d;
}

static void paths(void)
{
#define DEEP "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"
	static const struct {
		const char *other;
		int numa, socket;
		enum path_class path;
	} rows[] = {
		{ DEEP "/0000:18:01.0/0000:1c:00.0", 0, 0, PATH_SWITCH },
		{ "/sys/devices/pci0000:16/0000:16:01.0/0000:18:00.0", 0, 0, PATH_SWITCH },
		{ "/sys/devices/pci0000:16/0000:16:05.0/0000:19:00.0", 0, 0, PATH_ROOT },
		{ "/sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0", 0, 0, PATH_ROOT },
		{ "/sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0", 1, 0, PATH_ROOT },
		{ "/sys/devices/pci0000:c2/0000:c2:02.0/0000:c3:00.0", 2, 1, PATH_FAR },
		{ "/sys/devices/pci0000:c2/0000:c2:02.0/0000:c3:00.0", -1, -1, PATH_UNKNOWN },
		/* a host bridge below another: the inner one counts */
		{ "/sys/devices/pci0000:16/0000:16:00.5/pci10000:00/10000:00:02.0/10000:01:00.0", 0,
		  0, PATH_ROOT },
		{ "/sys/devices/virtual/net", 0, 0, PATH_UNKNOWN },
		{ "", 0, 0, PATH_UNKNOWN },
	};
	struct pci_dev gpu = at(DEEP "/0000:18:00.0/0000:1b:00.0", 0, 0);

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct pci_dev d = at(rows[i].other, rows[i].numa, rows[i].socket);

		ck_assert_msg(pci_path(&gpu, &d) == rows[i].path, "%zu: %s", i, rows[i].other);
		ck_assert_int_eq(pci_path(&d, &gpu), rows[i].path);
	}
}

/* ---- backends -------------------------------------------------------------------------------- */

static struct probes probes;
static struct machine machine;
static struct unit *unit;

/* A machine with a GPU on which nothing is in the way of rm. */
static void begin(void)
{
	probes = (struct probes){ .gpus = 1, .nodes = 2 };
	strcpy(probes.gpu[0].name, "NVIDIA H100");
	probes.gpu[0].dmabuf = true;
	strcpy(probes.node[0].path, "/dev/nvidiactl");
	strcpy(probes.node[1].path, "/dev/nvidia3");
	probes.node[0].exists = probes.node[1].exists = true;
	machine = (struct machine){ .probe = &probes, .units = 1 };
	machine.driver.major = 580;
	machine.driver.flavour = FLAVOUR_OPEN;
	unit = &machine.unit[0];
	*unit = (struct unit){ .probe = &probes.gpu[0], .minor = 3 };
}

/* The word is in what stands in the way; NULL: nothing does. */
static void in_the_way(const char *word)
{
	const struct obstacle *o = rm_obstacle(&machine, unit);

	if (!word)
		ck_assert_msg(!o, "%s", o ? o->means : "");
	else
		ck_assert_msg(o && strstr(o->means, word) && o->todo[0], "%s: %s", word,
			      o ? o->means : "nothing");
}

static void obstacles(void)
{
	begin();
	in_the_way(NULL);
	probes.gpu[0].dmabuf = false;
	in_the_way("exported");
	machine.driver.flavour = FLAVOUR_PROPRIETARY;
	in_the_way("proprietary");
	begin();
	strcpy(probes.gpu[0].name, "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
	in_the_way("MIG");
	probes.confidential = true;
	in_the_way("confidential");
	probes.node[1].error = EACCES;
	in_the_way("node");
	begin();
	probes.node[0].exists = false;
	in_the_way("node");
	machine.driver.major = 510;
	in_the_way("515");
	machine.wsl = true;
	in_the_way("WSL");
	probes.stand_in = true;
	in_the_way(NULL);
}

static void add_trial(const char *backend, const char *memory, const char *step, int error)
{
	struct probe_trial *t = &probes.gpu[0].trial[probes.gpu[0].trials++];

	strcpy(t->backend, backend);
	strcpy(t->memory, memory);
	strcpy(t->step, step);
	t->error = error;
}

static void answers(void)
{
	begin();
	ck_assert_int_eq(unit_answer(unit), ANSWER_NO);
	add_trial("host", "cuMemHostAlloc", "done", 0);
	ck_assert_int_eq(unit_answer(unit), ANSWER_NO);
	probes.gpu[0].integrated = true;
	ck_assert_int_eq(unit_answer(unit), ANSWER_YES);
	probes.gpu[0].integrated = false;
	add_trial("rm", "cuMemCreate", "done", 0);
	ck_assert_int_eq(unit_answer(unit), ANSWER_NO);
	ck_assert(unit_works(unit, "rm", NULL) && !unit_works(unit, "rm", "cuMemAlloc"));
	add_trial("rm", "cuMemAlloc", "pin", ENOMEM);
	ck_assert_int_eq(unit_answer(unit), ANSWER_UNKNOWN);
	add_trial("gdrdrv", "cuMemAlloc", "copy", 0); /* not to the end */
	ck_assert_int_eq(unit_answer(unit), ANSWER_UNKNOWN);
	add_trial("dmabuf", "cuMemAlloc", "done", 0);
	ck_assert_int_eq(unit_answer(unit), ANSWER_YES);
	ck_assert_str_eq(unit_server(unit), "dmabuf");
	unit->probe = NULL;
	ck_assert_int_eq(unit_answer(unit), ANSWER_UNKNOWN);
}

static unsigned int notes_of(const struct report *r, const char *text)
{
	unsigned int n = 0;

	for (size_t k = 0; k < r->count; k++)
		n += r->finding[k].severity == SEV_NOTE && strstr(r->finding[k].found, text);
	return n;
}

/*
 * Newer than the newest driver that src/abi/rm.h was compared with, or one that crashes under a
 * debugger: a note, and no more.
 */
static void releases(void)
{
	static const struct {
		const char *version;
		bool newer, crashes;
	} rows[] = {
		{ "580.159.04" },
		{ "595.43.99" },
		{ "595.44.02", false, true },
		{ "595.9.4" },
		{ "595.45.05", true },
		{ "595.45.04", false, true },
		{ "600.10", true },
		{ "595.100.01", true },
		{ "595.45", false, true },
		{ "" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct report r = { .subject = "driver" };

		begin();
		machine.driver.loaded = true;
		strcpy(machine.driver.version, rows[i].version);
		subject_driver.check(&machine, &r);
		ck_assert_msg(notes_of(&r, "newer than") == rows[i].newer &&
				      notes_of(&r, "crashes the kernel") == rows[i].crashes,
			      "%s: other notes", rows[i].version);
		report_end(&r);
	}
}

static const struct unit_test tests[] = {
	{ "cpus", cpus, NULL },
	{ "paths", paths, NULL },
	{ "obstacles", obstacles, NULL },
	{ "answers", answers, NULL },
	{ "releases of the driver", releases, NULL },
};

UNIT_MAIN("doctor_checks", tests)
