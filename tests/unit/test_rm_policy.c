// SPDX-License-Identifier: MIT
/* /etc/barcopy/policy: it decides on rm, whatever the environment says, and is read once. */
#include <unistd.h>

#include "common/wrap.h"
#include "rm_sim.h"

enum { CANNOT = 'C' }; /* as the file's text: it cannot be opened */

static const struct {
	const char *text, *says; /* says NULL: rm is allowed */
} files[] = {
	{ NULL, NULL },
	{ "", NULL },
	{ "rm=on\n", NULL },
	{ "# rm=off\n\n  rm=on # as ever\n", NULL },
	{ "rm=off\n", "/etc/barcopy/policy says rm=off" },
	{ "rm=off", "/etc/barcopy/policy says rm=off" },
	{ "\t rm=off \r\n", "/etc/barcopy/policy says rm=off" },
	{ "rm=on\nrm=off\n", "/etc/barcopy/policy says rm=off" },
	{ "rm=off\nrm=on\n", "/etc/barcopy/policy says rm=off" },
	{ "rm=no\n", "rm is off" },
	{ "rm = on\n", "rm is off" },
	{ "rm=on\ndmabuf=off\n", "rm is off" },
	{ "Cannot", "/etc/barcopy/policy cannot be read (Permission denied): rm is off" },
};

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	ck_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static char path[64];

/* The policy is `text`, for this thread. */
static void set_policy(const char *text)
{
	snprintf(path, sizeof(path), "/tmp/barcopy-policy-%d", (int)getpid());
	wrap_reset();
	if (text && *text == CANNOT)
		wrap_fail("fopen", 1, EACCES);
	else if (text)
		write_file(path, text);
	else
		unlink(path);
	wrap_instead("/etc/barcopy/policy", path);
}

static void file(void)
{
	const char *says = files[unit_row].says;

	standin_start();
	set_policy(files[unit_row].text);
	setenv("GDRCOPY_BACKEND", "rm", 1); /* does not lift it */
	for (int twice = 0; twice < 2; twice++) {
		if (says)
			FAILS_WITH(EACCES, says, ERRNO_OF(gdr_open()));
		else
			OK(ERRNO_OF(gdr_open()));
		/* A later change has no effect. */
		set_policy(says ? "rm=on\n" : "rm=off\n");
	}
	rm_assert_kept(0);
	unlink(path);
}

/* Without a descriptor to read it, the policy is unknown: this open fails, the next asks again. */
static void no_descriptor(void)
{
	standin_start();
	set_policy("rm=on\n");
	wrap_fail("fopen", 1, EMFILE);
	setenv("GDRCOPY_BACKEND", "rm", 1);
	FAILS_WITH(EMFILE, "/etc/barcopy/policy: ", ERRNO_OF(gdr_open()));
	OK(ERRNO_OF(gdr_open()));
	unlink(path);
}

static const struct unit_test tests[] = {
	{ "file", file, "", .rows = COUNT(files) },
	{ "no descriptor is left", no_descriptor, "" },
};

UNIT_MAIN("rm: policy", tests, rm_start(argv))
