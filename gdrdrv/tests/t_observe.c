// SPDX-License-Identifier: MIT
/* The kernel's log. (/proc: t_basic.c) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/klog.h>

#include "rig.h"

/* The kernel's log from @marker on; malloc. */
static char *log_since(const char *marker)
{
	int size = klogctl(10, NULL, 0), n;
	char *log = malloc((size_t)size + 1), *at;

	n = klogctl(3, log, size);
	CHECK(n > 0);
	log[n] = 0;
	at = strstr(log, marker);
	CHECK(at);
	return at;
}

static unsigned int count_of(const char *text, const char *what)
{
	unsigned int n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* An error of the GPU driver is logged at once, and not once per call. */
static void t_log_error(void)
{
	int i;
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	unsigned int n;

	write_text("/dev/kmsg", "rig: errors from here\n");
	knob("table_version", 0x30001);
	for (i = 0; i < 300; i++)
		FAILS(EOPNOTSUPP, pin(drv, va, GPU_PAGE, &h));
	knob("table_version", 0);
	n = count_of(log_since("rig: errors from here"),
		     "gdrdrv: GPU driver's page table version 0x30001 does not match");
	printf("# 300 errors, %u lines in the log\n", n);
	CHECK(n >= 1 && n < 200);

	/* An internal error of the GPU driver is logged; an error of the program is not. */
	write_text("/dev/kmsg", "rig: refusals from here\n");
	knob("fail_get", EINVAL);
	FAILS(EINVAL, pin(drv, va, GPU_PAGE, &h));
	CHECK_EQ(count_of(log_since("rig: refusals from here"), "gdrdrv:"), 0);
	knob("fail_get", EIO);
	for (i = 0; i < 300; i++)
		FAILS(EIO, pin(drv, va, GPU_PAGE, &h));
	knob("fail_get", 0);
	n = count_of(log_since("rig: refusals from here"),
		     "gdrdrv: nvidia-p2p refused 65536 bytes");
	CHECK(n >= 1 && n < 200);
}

/* With all messages on, the log has no address of the kernel. */
static void t_log_verbose(void)
{
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	char *log, *text;

	write_text("/dev/kmsg", "rig: verbose from here\n");
	write_text("/sys/module/gdrdrv/parameters/info_enabled", "1");
	write_text("/sys/module/gdrdrv/parameters/dbg_enabled", "1");
	text = read_text("/proc/driver/gdrdrv/params");
	CHECK(text && strstr(text, "dbg_enabled: 1\ninfo_enabled: 1\n"));
	h = must_pin(drv, va, GPU_PAGE);
	(void)*must_map(drv, h, GPU_PAGE);
	OK(gpu_free(prov, va));
	OK(unpin(drv, h));
	FAILS(EINVAL, pin(drv, va, GPU_PAGE, &h));
	write_text("/sys/module/gdrdrv/parameters/info_enabled", "0");
	write_text("/sys/module/gdrdrv/parameters/dbg_enabled", "0");
	log = log_since("rig: verbose from here");
	CHECK(strstr(log, "gdrdrv: pin of 65536 bytes failed: -22"));
	for_each_line(line, log) {
		if (strstr(line, "gdrdrv") && strstr(line, "ffff"))
			printf("# %s\n", line);
		CHECK(!(strstr(line, "gdrdrv") && strstr(line, "ffff")));
	}
}

const struct test tests_observe[] = {
	{ "log-error", t_log_error, ANY_MODE, 0, 0 },
	{ "log-verbose", t_log_verbose, ANY_MODE, 0, 0 },
	{ NULL, NULL, 0, 0, 0 },
};
