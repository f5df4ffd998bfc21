// SPDX-License-Identifier: MIT
/* What an administrator sees: tracepoints, the log. (/proc: t_basic.c) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/klog.h>

#include "rig.h"

#define EVENTS "/sys/kernel/tracing/events/gdrdrv"
#define TRACE  "/sys/kernel/tracing/trace"

static bool trace_has(const char *trace, const char *event, uint64_t va, uint64_t handle,
		      const char *rest)
{
	char want[160];

	snprintf(want, sizeof(want), "%s: va=0x%llx size=%lu handle=0x%llx %s\n", event,
		 (unsigned long long)va, GPU_PAGE, (unsigned long long)handle, rest);
	if (strstr(trace, want))
		return true;
	printf("# not in the trace: %s%.2000s\n", want, trace);
	return false;
}

/* One line for each pin, map, revoke and unpin, also for those that fail. */
static void t_tracepoints(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h, bad;
	char *trace, rest[64];
	bool revoked;

	if (!rig.gpl)
		SKIP("this build has no tracepoints");
	if (access(EVENTS, F_OK))
		SKIP("this kernel has no tracing of events");
	close(open(TRACE, O_WRONLY | O_TRUNC)); /* empties it */
	write_text(EVENTS "/enable", "1");
	h = must_pin(drv, va, GPU_PAGE);
	(void)*must_map(drv, h, GPU_PAGE);
	CHECK(map(drv, h, GPU_PAGE) == MAP_FAILED && errno == EAGAIN);
	CHECK(map_prot(drv, h, GPU_PAGE, PROT_READ, MAP_PRIVATE, NULL) == MAP_FAILED);
	CHECK_EQ(gpu_free(prov, va), 0);
	revoked = cb_flag(drv, h) == 1;
	CHECK_EQ(unpin(drv, h), 0);
	CHECK_EQ(pin(drv, va, GPU_PAGE, &bad), -EINVAL);
	write_text(EVENTS "/enable", "0");

	trace = read_text(TRACE);
	CHECK(trace && trace_has(trace, "gdrdrv_pin", va, h, "ret=0"));
	snprintf(rest, sizeof(rest), "type=%u ret=0", GDRDRV_MAPPING_TYPE_WC);
	CHECK(trace_has(trace, "gdrdrv_map", va, h, rest));
	CHECK(strstr(trace, "ret=-11\n")); /* EAGAIN, of the second map */
	CHECK(trace_has(trace, "gdrdrv_map", 0, h,
			"type=0 ret=-22")); /* EINVAL, of the private one */
	if (revoked)
		CHECK(trace_has(trace, "gdrdrv_revoke", va, h, "orphan=0"));
	else
		CHECK(!strstr(trace, "gdrdrv_revoke:"));
	snprintf(rest, sizeof(rest), "revoked=%d orphan=0", revoked);
	CHECK(trace_has(trace, "gdrdrv_unpin", va, h, rest));
	/* By dma-buf there is none of memory that is gone: EBADF. */
	CHECK((rig.mode & BY_DMABUF && trace_has(trace, "gdrdrv_pin", va, 0, "ret=-9")) ||
	      trace_has(trace, "gdrdrv_pin", va, 0, "ret=-22"));
}

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

/* An error of the GPU driver's is in the log at once, and not once per try. */
static void t_log_error(void)
{
	int drv = drv_open(), prov = prov_open(), i;
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	unsigned int n;

	write_text("/dev/kmsg", "rig: errors from here\n");
	knob("table_version", 0x30001);
	for (i = 0; i < 300; i++)
		CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -EOPNOTSUPP);
	knob("table_version", 0);
	n = count_of(log_since("rig: errors from here"),
		     "gdrdrv: GPU driver's page table version 0x30001 does not match");
	printf("# 300 errors, %u lines in the log\n", n);
	CHECK(n >= 1 && n < 200);

	/* An error of the GPU driver's own is news; one of the program's is not. */
	write_text("/dev/kmsg", "rig: refusals from here\n");
	knob("fail_get", EINVAL);
	CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -EINVAL);
	CHECK_EQ(count_of(log_since("rig: refusals from here"), "gdrdrv:"), 0);
	knob("fail_get", EIO);
	for (i = 0; i < 300; i++)
		CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -EIO);
	knob("fail_get", 0);
	n = count_of(log_since("rig: refusals from here"),
		     "gdrdrv: nvidia-p2p refused 65536 bytes");
	CHECK(n >= 1 && n < 200);
}

/* K7: with every message on, no address of the kernel's. */
static void t_log_verbose(void)
{
	int drv = drv_open(), prov = prov_open();
	uint64_t va = gpu_alloc(prov, GPU_PAGE), h;
	char *log, *line, *save, *text;

	write_text("/dev/kmsg", "rig: verbose from here\n");
	write_text("/sys/module/gdrdrv/parameters/info_enabled", "1");
	write_text("/sys/module/gdrdrv/parameters/dbg_enabled", "1");
	text = read_text("/proc/driver/gdrdrv/params");
	CHECK(text && strstr(text, "dbg_enabled: 1\ninfo_enabled: 1\n"));
	h = must_pin(drv, va, GPU_PAGE);
	(void)*must_map(drv, h, GPU_PAGE);
	CHECK_EQ(gpu_free(prov, va), 0);
	CHECK_EQ(unpin(drv, h), 0);
	CHECK_EQ(pin(drv, va, GPU_PAGE, &h), -EINVAL);
	write_text("/sys/module/gdrdrv/parameters/info_enabled", "0");
	write_text("/sys/module/gdrdrv/parameters/dbg_enabled", "0");
	log = log_since("rig: verbose from here");
	CHECK((rig.mode & BY_DMABUF && strstr(log, "gdrdrv: pin of 65536 bytes failed: -9")) ||
	      strstr(log, "gdrdrv: pin of 65536 bytes failed: -22"));
	for (line = strtok_r(log, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strstr(line, "gdrdrv") && strstr(line, "ffff"))
			printf("# %s\n", line);
		CHECK(!(strstr(line, "gdrdrv") && strstr(line, "ffff")));
	}
}

const struct test tests_observe[] = {
	{ "tracepoints", t_tracepoints, ANY_MODE, 0 },
	{ "log-error", t_log_error, BY_P2P, 0 },
	{ "log-verbose", t_log_verbose, ANY_MODE, 0 },
	{ NULL, NULL, 0, 0 },
};
