/* SPDX-License-Identifier: MIT */
/* The report of a test, and what the tests share; see sanity.h. */
#include "sanity/sanity.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/copytest.h"
#include "common/exit.h"

struct sanity sanity;
struct report *report;
sigjmp_buf *report_waived;
const char *sanity_step;

void report_make(size_t count)
{
	report = tool_shared((count + 1) * sizeof(*report));
}

/* The first reason is kept: later ones are consequences. */
static void record(enum outcome outcome, const char *place, const char *fmt, va_list ap)
{
	int n;

	if (atomic_exchange(&report->has_reason, 1))
		return;
	report->outcome = outcome;
	n = snprintf(report->text, sizeof(report->text), "%s", place);
	vsnprintf(report->text + n, sizeof(report->text) - (size_t)n, fmt, ap);
	tool_clean(report->text);
}

void sanity_fail(const char *file, int line, const char *fmt, ...)
{
	const char *slash = strrchr(file, '/');
	char place[128];
	va_list ap;

	snprintf(place, sizeof(place), "%.40s:%d: %.40s%s", slash ? slash + 1 : file, line,
		 sanity_step ? sanity_step : "", sanity_step ? ": " : "");
	va_start(ap, fmt);
	record(FAILED, place, fmt, ap);
	va_end(ap);
	_exit(TOOL_FAIL);
}

void sanity_waive(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record(WAIVED, "", fmt, ap);
	va_end(ap);
	if (report_waived)
		siglongjmp(*report_waived, 1);
	_exit(TOOL_CANNOT);
}

void report_cannot(const char *text, int status)
{
	if (atomic_exchange(&report->has_reason, 1))
		return;
	report->outcome = status == TOOL_CANNOT ? WAIVED : FAILED;
	snprintf(report->text, sizeof(report->text), "%s", text);
}

void sanity_note(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	size_t n;
	int at;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	tool_clean(line);
	n = strlen(line);
	line[n++] = '\n';
	/* each writer gets a range of its own; the last byte stays 0 */
	at = atomic_fetch_add(&report->noted, (int)n);
	if ((size_t)at + n < sizeof(report->notes))
		memcpy(report->notes + at, line, n);
}

void sanity_open(void)
{
	cuda_dl_load();
	gpu_find(&sanity.gpu, sanity.facts.device);
	gpu_start(&sanity.gpu);
	sanity.g = buffer_open_library();
}

void sanity_close(void)
{
	if (sanity.g)
		OK(gdr_close(sanity.g));
	sanity.g = NULL;
	if (sanity.gpu.ctx)
		gpu_stop(&sanity.gpu);
}

void sanity_unexpected(const char *file, int line, const char *call, int err, int wanted)
{
	char want[64] = "0";

	if (wanted)
		snprintf(want, sizeof(want), "%d (%s)", wanted, strerror(wanted));
	if (err)
		sanity_fail(file, line, "%s: %d (%s) instead of %s: %s", call, err, strerror(err),
			    want, barcopy_last_error());
	sanity_fail(file, line, "%s: succeeded instead of %s", call, want);
}

void sanity_alloc(struct gpu_mem *mem, size_t size)
{
	char why[512];

	if (mem_alloc(mem, &sanity.gpu, sanity.facts.kind, size, false, why, sizeof(why)))
		FAIL("%zu bytes: %s", size, why);
}

void sanity_make(struct buffer *b, size_t size)
{
	char why[1024];

	if (buffer_make(b, sanity.g, &sanity.gpu, sanity.facts.kind, size, GDR_MAP_FLAG_DEFAULT,
			why, sizeof(why)))
		FAIL("%zu bytes of %s memory: %s", size, mem_kind_name[sanity.facts.kind], why);
}

void sanity_unmake(struct buffer *b)
{
	OK(gdr_unmap(b->g, b->mh, b->map, b->map_size));
	OK(gdr_unpin_buffer(b->g, b->mh));
	mem_free(&b->mem);
}

void sanity_remap(struct buffer *b)
{
	OK(gdr_map(b->g, b->mh, &b->map, b->map_size));
	b->cpu = (uint8_t *)b->map + (b->mem.dptr - b->info.va);
}

int sanity_view(struct buffer *b, uint64_t addr, size_t size, uint32_t flags)
{
	char why[1024];
	int rc;

	*b = (struct buffer){ .g = sanity.g, .mem = { .dptr = addr, .size = size } };
	rc = buffer_pin(b, flags, GDR_MAP_FLAG_DEFAULT, why, sizeof(why));
	if (rc && strncmp(why, "pin:", 4))
		FAIL("%s", why);
	return rc;
}

void sanity_view_or_waive(struct buffer *b, uint64_t addr, size_t size, uint32_t flags)
{
	int rc = sanity_view(b, addr, size, flags);

	if (rc == ENOTSUP || rc == ENODEV || (rc == EINVAL && flags))
		sanity_waive("%s", barcopy_last_error());
	OK(rc);
}

void sanity_gpu_write(CUdeviceptr to, const void *from, size_t size)
{
	CU(cu.MemcpyHtoD(to, from, size));
	/* without SYNC_MEMOPS the copy may still be under way */
	CU(cu.CtxSynchronize());
}

void sanity_gpu_read(void *to, CUdeviceptr from, size_t size)
{
	CU(cu.MemcpyDtoH(to, from, size));
}

void sanity_same(const char *file, int line, const char *what, const void *expected,
		 const void *seen, size_t size)
{
	const uint8_t *a = expected, *b = seen;
	size_t i;

	if (!memcmp(a, b, size))
		return;
	for (i = 0; a[i] == b[i]; i++)
		;
	sanity_fail(file, line, "%s: byte %zu of %zu is 0x%02x instead of 0x%02x", what, i, size,
		    b[i], a[i]);
}

void sanity_round_trip(const struct buffer *b, size_t at, size_t size, uint64_t sequence)
{
	uint8_t *in = tool_calloc(size, 1), *out = tool_calloc(size, 1);

	copytest_random(in, size, sequence);
	OK(gdr_copy_to_mapping(b->mh, b->cpu + at, in, size));
	sanity_gpu_read(out, b->mem.dptr + at, size);
	SAME("written by the CPU, read by CUDA", in, out, size);
	copytest_random(in, size, ~sequence);
	sanity_gpu_write(b->mem.dptr + at, in, size);
	OK(gdr_copy_from_mapping(b->mh, out, b->cpu + at, size));
	SAME("written by CUDA, read by the CPU", in, out, size);
	free(in);
	free(out);
}

void sanity_refused(const struct buffer *b, gdr_mh_t h, int err)
{
	uint64_t word = 0;
	gdr_info_t info;
	void *map;
	int flag;

	FAILS(err, gdr_copy_from_mapping(h, &word, b->cpu, 8));
	FAILS(err, gdr_copy_to_mapping(h, b->cpu, &word, 8));
	FAILS(err, barcopy_get64(h, b->cpu, &word));
	FAILS(err, barcopy_put64(h, b->cpu, word));
	FAILS(err, barcopy_flush(h));
	FAILS(err, barcopy_fence(h, BARCOPY_FENCE_FULL));
	FAILS(err, gdr_map(b->g, h, &map, 4096));
	FAILS(err, gdr_unmap(b->g, h, b->map, b->map_size));
	FAILS(err, gdr_get_info(b->g, h, &info));
	FAILS(err, gdr_get_callback_flag(b->g, h, &flag));
	FAILS(err, barcopy_get_handle_attribute(b->g, h, BARCOPY_HANDLE_ATTR_BACKEND, &word));
	FAILS(err, gdr_unpin_buffer(b->g, h));
}

static sigjmp_buf after_fault;

static void on_fault(int sig)
{
	siglongjmp(after_fault, sig);
}

void sanity_must_fault(const void *p, const char *when)
{
	struct sigaction action = { .sa_handler = on_fault }, bus, segv;
	int sig;

	sigaction(SIGBUS, &action, &bus);
	sigaction(SIGSEGV, &action, &segv);
	sig = sigsetjmp(after_fault, 1);
	if (!sig)
		(void)*(const volatile uint8_t *)p;
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	CHECK(sig, "a load from the mapping %s gives data instead of a fault", when);
	sanity_note("a load %s: %s", when, strsignal(sig));
}

pid_t sanity_fork(void (*fn)(void *), void *arg)
{
	struct rlimit no_core = { 0, 0 };
	pid_t pid = fork();

	CHECK(pid >= 0, "fork: %s", strerror(errno));
	if (pid)
		return pid;
	report_waived = NULL;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failing test leaves no child behind */
	setrlimit(RLIMIT_CORE, &no_core);
	fn(arg);
	_exit(TOOL_OK);
}

void sanity_join(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) != pid)
		CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status))
		FAIL("a child process ended by a signal: %s", strsignal(WTERMSIG(status)));
	/* the child has reported its failure */
	if (WEXITSTATUS(status))
		_exit(WEXITSTATUS(status));
}

long sanity_kernel_pins(void)
{
	FILE *f = fopen("/proc/driver/gdrdrv/nv_get_pages_refcount", "re");
	long n = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%ld", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}
