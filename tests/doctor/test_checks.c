/* SPDX-License-Identifier: MIT */
/* What the doctor concludes: the path between two PCI functions, CPUs that two lists share. */
#include <stdio.h>

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

static const struct unit_test tests[] = {
	{ "cpus", cpus, NULL },
	{ "paths", paths, NULL },
};

UNIT_MAIN("doctor_checks", tests)
