// SPDX-License-Identifier: MIT
/* /etc/barcopy/policy: it decides on rm, whatever the environment says, and is read once. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/resources.h"
#include "common/wrap.h"
#include "rm_sim.h"

/*
 * As the text: it cannot be opened, or read; it is a FIFO; it links to no file; it comes late; "/...":
 * that is read instead.
 */
enum { CANNOT = 'C', BROKEN = 'B', FIFO = 'F', LINK = 'L', MEANWHILE = 'M' };

enum { LONGEST = 64 << 10 };
static char long_comment[LONGEST + 1]; /* "####..." */

#define X16	"################"
#define COMMENT X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 "###############"
_Static_assert(sizeof(COMMENT) == 256, "as long as a buffer");

static const struct {
	const char *text, *says; /* says NULL: rm is allowed */
	size_t size; /* 0: the text ends with its first byte 0 */
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
	{ "rm=offered\n", "rm is off" },
	{ COMMENT "\n", NULL },
	{ COMMENT X16 "\nrm=on\n", NULL },
	{ COMMENT "\nrm=off\n", "/etc/barcopy/policy says rm=off" },
	{ "\0rm=off", "rm is off", 7 },
	{ "rm=on\0rm=off", "rm is off", 12 },
	{ (const char[8]){ 0 }, "rm is off", 8 },
	{ "/tmp", "/etc/barcopy/policy is not a regular file: rm is off" },
	{ "/dev/zero", "/etc/barcopy/policy is not a regular file: rm is off" },
	{ "Fifo", "/etc/barcopy/policy is not a regular file: rm is off" },
	{ "Cannot", "/etc/barcopy/policy cannot be opened: rm is off" },
	{ "Broken", "/etc/barcopy/policy cannot be read: rm is off" },
	{ "Link", "/etc/barcopy/policy cannot be opened: rm is off" },
	{ "Meanwhile", "a line that is not rm=on" },
	{ long_comment, NULL, LONGEST },
	{ long_comment, "is longer than 64 KiB", LONGEST + 1 },
};

static void write_file(const char *name, const char *text, size_t size)
{
	FILE *f = fopen(name, "w");

	ck_assert(f && fwrite(text, 1, size, f) == size && !fclose(f));
}

static char dir[UNIT_DIR], path[UNIT_DIR + 8];

static void begin(void)
{
	unit_temp_dir(dir);
	snprintf(path, sizeof(path), "%s/policy", dir);
	memset(long_comment, '#', sizeof(long_comment));
	standin_start();
}

/* The policy is `text`, for this thread. */
static void set_policy(const char *text, size_t size)
{
	wrap_reset();
	unlink(path);
	if (text && *text == CANNOT)
		wrap_fail("open", 1, EACCES);
	else if (text && *text == FIFO)
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	else if (text && *text == LINK)
		ck_assert_int_eq(symlink("nothing", path), 0);
	else if (text && *text != '/')
		write_file(path, text, size ? size : strlen(text));
	if (text && *text == MEANWHILE)
		wrap_fail("open", 1, ENOENT);
	wrap_fail("read", 1, text && *text == BROKEN ? EIO : EINTR);
	wrap_instead("/etc/barcopy/policy", text && *text == '/' ? text : path);
}

static void file(void)
{
	const char *says = files[unit_row].says;
	int fds;

	begin();
	set_policy(files[unit_row].text, files[unit_row].size);
	setenv("GDRCOPY_BACKEND", "rm", 1); /* does not lift it */
	fds = resources_fds();
	for (int twice = 0; twice < 2; twice++) {
		if (says)
			FAILS_WITH(EACCES, says, ERRNO_OF(gdr_open()));
		else
			OK(ERRNO_OF(gdr_open()));
		/* A later change has no effect. */
		set_policy(says ? "rm=on\n" : "rm=off\n", 0);
	}
	rm_assert_kept(0);
	ck_assert_int_eq(resources_fds(), fds);
	unit_remove_dir(dir);
}

/* Without a descriptor to read it, the policy is unknown: this open fails, the next asks again. */
static void no_descriptor(void)
{
	begin();
	set_policy("rm=on\n", 0);
	wrap_fail("open", 1, EMFILE);
	setenv("GDRCOPY_BACKEND", "rm", 1);
	FAILS_WITH(EMFILE, "/etc/barcopy/policy: ", ERRNO_OF(gdr_open()));
	OK(ERRNO_OF(gdr_open()));
	unit_remove_dir(dir);
}

/* A program without standard input, whose last call failed: the policy's descriptor is 0. */
static void descriptor_zero(void)
{
	int input = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(input, 0);
	begin();
	set_policy("rm=on\n", 0);
	setenv("GDRCOPY_BACKEND", "rm", 1);
	close(input);
	errno = EMFILE;
	ck_assert_ptr_nonnull(gdr_open());
	unit_remove_dir(dir);
}

static const struct unit_test tests[] = {
	{ "file", file, "", .rows = COUNT(files) },
	/* Where libcuda cannot be watched either, which says less. */
	{ "no descriptor is left", no_descriptor, "LD_LIBRARY_PATH=$SIM/direct" },
	{ "descriptor 0", descriptor_zero, "" },
};

UNIT_MAIN("rm: policy", tests, rm_start(argv))
