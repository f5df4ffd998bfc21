/* SPDX-License-Identifier: MIT */
/*
 * Preloaded under gdrcopy_sanity, which forks a process for each test, the first for its look
 * for memory.
 *
 * A test is run for each fault, one at a time: a call fails with EIO, or succeeds; a value that
 * it wrote is two more; its last byte is another one. A fault is planted at the first call from
 * a place in the tool, an address of return; of a pin with its caller's. The file FAULTS has a
 * line for each: the test's process, the function, the fault, the test's exit status, its reason.
 *
 * The last run has no fault. Each call of the library in it is a line of CALLS.PROCESS (2 is
 * the first test, 2.1 its first child): arguments, what was written, the errno. Contexts,
 * handles and mappings are numbers in the order of their appearance, addresses are offsets in
 * these or in a GPU page, data is a checksum. A gdr_close() also has what CUDA was asked for by then. A
 * process begins with how it ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gdrapi.h"
#include "sanity/sanity.h"

typedef unsigned long word;
enum { MOST = 4096, REGIONS = 16 };

/*
 * A call and its arguments: g context, h handle, a address of the GPU, m address in a mapping, d
 * number, n one of 32 bits; bytes that are written to the mapping, their size is the next argument
 * (w); and where the call writes a handle (H), a mapping (M) or bytes (r), their size is one or two
 * arguments on, an info (I), an int (i), 32 bits (u), 64 bits (q), or what nobody compares (-).
 */
struct call {
	const char *name, *args;
	enum { ERRNO, CONTEXT, NOTHING } result;
	word (*real)(word, word, word, word, word, word);
};

/* Shared by all processes of the run. */
static struct shared {
	struct {
		void *place[2];
		char fault[12];
	} done[MOST];
	_Atomic int count, fired;
	char what[64];
} * shared;

static struct region {
	void *at;
	size_t size;
} regions[REGIONS]; /* of memory that the tool shares with its children */
static int region_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t tool;
static int children;
static char process[64] = "0";
static word seen[2][MOST]; /* contexts, handles */
static struct region maps[MOST];
static int map_count;
static char line[1024];

__attribute__((constructor)) static void begin(void)
{
	tool = getpid();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	region_count = 0; /* this one is not the tool's */
}

/* ---- records ------------------------------------------------------------------------------ */

__attribute__((format(printf, 1, 2))) static void add(const char *fmt, ...)
{
	size_t n = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
}

static void add_object(char kind, word value, int is_new)
{
	word *known = seen[kind == 'h'];
	int i = 0;

	while (i < MOST - 1 && known[i] && known[i] != value)
		i++;
	if (is_new)
		known[i] = value;
	if (value && known[i])
		add(" %c%d", kind, i + 1);
	else
		add(" %c?", kind);
}

static void add_place(word at)
{
	for (int i = map_count - 1; i >= 0; i--)
		if (at - (word)maps[i].at < maps[i].size)
			return add(" m+%lu", at - (word)maps[i].at);
	add(" m?");
}

static void add_bytes(word at, size_t size)
{
	uint32_t sum = 2166136261u;

	for (size_t i = 0; i < size; i++)
		sum = (sum ^ ((unsigned char *)at)[i]) * 16777619;
	add(" %08x", sum);
}

static void add_argument(const char *kind, const word *arg, word rc)
{
	const gdr_info_v2_t *info = (gdr_info_v2_t *)*arg;

	if (*kind == 'g' || *kind == 'h')
		return add_object(*kind, *arg, 0);
	if (*kind == 'm')
		return add_place(*arg);
	if (*kind == 'a') /* of any memory, where the call fails */
		return rc && *arg ? add(" +?") : add(" +%lu", *arg & 65535);
	if (*kind == 'd')
		return add(" %lu", *arg);
	if (*kind == 'n')
		return add(" %u", (unsigned int)*arg);
	if (rc || !*arg)
		return;
	if (*kind == 'w')
		add_bytes(*arg, arg[1]);
	if (*kind == 'r')
		add_bytes(*arg, arg[2]);
	if (*kind == 'H')
		add_object('h', *(word *)*arg, 1);
	if (*kind == 'M' && map_count < MOST)
		maps[map_count++] = (struct region){ *(void **)*arg, arg[1] };
	if (*kind == 'I')
		add(" va+%lu of %lu by %u, mapped %d, wc %d, type %d", (word)info->va & 65535,
		    (word)info->mapped_size, info->page_size, info->mapped, info->wc_mapping,
		    (int)info->mapping_type);
	if (*kind == 'i' || *kind == 'u')
		add(" %d", *(int *)*arg);
	if (*kind == 'q')
		add(" %lu", *(word *)*arg);
}

/* How often this process has asked CUDA for each of these, and the memory that it holds. */
static void add_cuda(void)
{
	static const char *const names[] = { "cuMemcpyHtoD", "cuMemcpyDtoH", "cuCtxSynchronize", "cuMemHostAlloc",
					     "cuMemFreeHost", "cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
					     "cuMemUnmap", "cuMemRelease", "cuMemAddressFree" };
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	unsigned long (*calls)(const char *);
	unsigned long long (*bytes)(int);

	if (!lib)
		return;
	*(void **)&calls = dlsym(lib, "gdrsim_calls");
	*(void **)&bytes = dlsym(lib, "gdrsim_device_bytes");
	add(", holds %llu", bytes(0));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (calls(names[i]))
			add(", %s %lu", names[i], calls(names[i]));
}

/* How this process ends: with its parent, of a test's child without a core file, and by any signal. */
static void record_end(FILE *f)
{
	struct rlimit core = { 0 };
	sigset_t blocked;
	int death = 0;

	sigprocmask(SIG_BLOCK, NULL, &blocked);
	prctl(PR_GET_PDEATHSIG, &death);
	if (strchr(process, '.'))
		getrlimit(RLIMIT_CORE, &core);
	fprintf(f, "signal %d with its parent%s%s\n", death, core.rlim_cur ? ", core file" : "",
		sigisemptyset(&blocked) ? "" : ", signals are blocked");
}

static void record(const struct call *c, const word *arg, word rc)
{
	static pid_t known;
	char path[512];
	FILE *f;

	pthread_mutex_lock(&lock);
	snprintf(line, sizeof(line), "%s", c->name);
	for (const char *kind = c->args; *kind; kind++)
		add_argument(kind, arg + (kind - c->args), rc);
	if (c->result == CONTEXT && rc)
		add_object('g', rc, 1);
	else if (c->result == CONTEXT || rc)
		add(" = %d", c->result == CONTEXT ? errno : (int)rc);
	if (!strcmp(c->name, "gdr_close"))
		add_cuda();
	snprintf(path, sizeof(path), "%s.%s", getenv("CALLS"), process);
	f = fopen(path, "ae");
	if (!f)
		abort();
	if (known != getpid())
		record_end(f);
	known = getpid();
	fprintf(f, "%s\n", line);
	fclose(f);
	pthread_mutex_unlock(&lock);
}

/* ---- faults ------------------------------------------------------------------------------- */

static int is_probe(void)
{
	return !strcmp(process, "1");
}

/* Whether this fault is planted now: it was not before at this place, and none was in this run. */
static int plants(const struct call *c, void *place, const char *fault)
{
	void *frame[12] = { 0 }, *caller = NULL;
	int n, i, is_new;

	if (getpid() == tool || is_probe() || atomic_load(&shared->fired))
		return 0;
	n = backtrace(frame, 12);
	/* the helper that pins serves tests that judge its failure each in their own way */
	for (i = 0; strchr(c->args, 'H') && i + 1 < n; i++)
		if (frame[i] == place)
			caller = frame[i + 1];
	pthread_mutex_lock(&lock);
	for (i = 0; i < shared->count; i++)
		if (shared->done[i].place[0] == place && shared->done[i].place[1] == caller &&
		    !strcmp(shared->done[i].fault, fault))
			break;
	is_new = i == shared->count && i < MOST && !atomic_exchange(&shared->fired, 1);
	if (is_new) {
		shared->done[i].place[0] = place;
		shared->done[i].place[1] = caller;
		snprintf(shared->done[i].fault, sizeof(shared->done[i].fault), "%s", fault);
		snprintf(shared->what, sizeof(shared->what), "%s %s", c->name, fault);
		shared->count++;
	}
	pthread_mutex_unlock(&lock);
	return is_new;
}

static void change(const struct call *c, void *place, char kind, const word *arg)
{
	gdr_info_v2_t *info = (gdr_info_v2_t *)*arg;

	if (kind == 'I' && plants(c, place, "va"))
		info->va += 65536;
	if (kind == 'I' && plants(c, place, "mapped_size"))
		info->mapped_size--;
	if (kind == 'I' && plants(c, place, "mapped"))
		info->mapped ^= 1;
	if (kind == 'I' && plants(c, place, "wc_mapping"))
		info->wc_mapping ^= 1;
	if (kind == 'I' && plants(c, place, "type"))
		info->mapping_type++;
	if (kind == 'r' && plants(c, place, "bytes"))
		((unsigned char *)*arg)[arg[2] - 1] ^= 255;
	if (strchr("iuqH", kind) && plants(c, place, "value"))
		*(uint32_t *)*arg += 2; /* what was 0 or 1 is neither */
	if (kind == 'M' && plants(c, place, "value"))
		*(word *)*arg += 64;
}

static word called(struct call *c, void *place, word *arg)
{
	const char *data = strchr(c->args, 'w');
	word *in = data ? &arg[data - c->args] : NULL, rc;

	if (!c->real) {
		void *real = dlsym(RTLD_NEXT, c->name);

		if (!real)
			abort();
		memcpy(&c->real, &real, sizeof(real));
	}
	if (in && plants(c, place, "bytes")) {
		void *changed = malloc(in[1]); /* the run is short */

		memcpy(changed, (void *)*in, in[1]);
		((unsigned char *)changed)[in[1] - 1] ^= 255;
		*in = (word)changed;
	}
	rc = c->real(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	if (c->result != CONTEXT)
		rc = c->result == NOTHING ? 0 : (word)(int)rc;
	if (getpid() != tool && !is_probe())
		record(c, arg, rc);
	for (const char *kind = c->args; c->result != CONTEXT && !rc && *kind; kind++)
		change(c, place, *kind, arg + (kind - c->args));
	if (c->result == CONTEXT) {
		if (!rc && plants(c, place, "succeeds")) {
			rc = c->real(BARCOPY_OPEN_ANY, 0, 0, 0, 0, 0);
			errno = EINVAL; /* which says nothing then */
			return rc;
		}
		if (!rc || !plants(c, place, "fails"))
			return rc;
		errno = EIO;
		return 0;
	}
	if (c->result == ERRNO && !rc && plants(c, place, "fails"))
		return EIO;
	return rc && plants(c, place, "succeeds") ? 0 : rc;
}

#define CALL(name, args, result)                                                         \
	word call_##name(word a, word b, word c, word d, word e, word f) __asm__(#name); \
	word call_##name(word a, word b, word c, word d, word e, word f)                 \
	{                                                                                \
		static struct call call = { #name, args, result, NULL };                 \
		word arg[] = { a, b, c, d, e, f };                                       \
                                                                                         \
		return called(&call, __builtin_return_address(0), arg);                  \
	}
CALL(gdr_open, "", CONTEXT)
CALL(barcopy_open, "n", CONTEXT)
CALL(gdr_close, "g", ERRNO)
CALL(gdr_runtime_get_version, "ii", NOTHING)
CALL(gdr_driver_get_version, "gii", ERRNO)
CALL(gdr_get_attribute, "gni", ERRNO)
CALL(gdr_get_mapping_type_string, "n", ERRNO)
CALL(gdr_pin_buffer, "gaddnH", ERRNO)
CALL(gdr_pin_buffer_v2, "gadnH", ERRNO)
CALL(gdr_unpin_buffer, "gh", ERRNO)
CALL(gdr_map, "ghMd", ERRNO)
CALL(gdr_map_v2, "ghMdn", ERRNO)
CALL(gdr_unmap, "ghmd", ERRNO)
CALL(gdr_get_info_v2, "ghI", ERRNO)
CALL(gdr_get_callback_flag, "ghi", ERRNO)
CALL(barcopy_get_handle_attribute, "ghnq", ERRNO)
CALL(gdr_copy_to_mapping, "hmwd", ERRNO)
CALL(gdr_copy_from_mapping, "hrmd", ERRNO)
CALL(barcopy_copyv_to_mapping, "h-dn", ERRNO)
CALL(barcopy_copyv_from_mapping, "h-dn", ERRNO)
CALL(barcopy_put32, "hmn", ERRNO)
CALL(barcopy_put64, "hmd", ERRNO)
CALL(barcopy_get32, "hmu", ERRNO)
CALL(barcopy_get64, "hmq", ERRNO)
CALL(barcopy_wait32, "hmnnd", ERRNO)
CALL(barcopy_wait64, "hmndd", ERRNO)
CALL(barcopy_flush, "h", ERRNO)
CALL(barcopy_fence, "hn", ERRNO)

/* ---- the tool's processes ----------------------------------------------------------------- */

void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
	static void *(*real)(void *, size_t, int, int, int, off_t);
	void *p = real ? NULL : dlsym(RTLD_NEXT, "mmap");

	if (p)
		memcpy(&real, &p, sizeof(real));
	p = real(addr, size, prot, flags, fd, offset);
	if (getpid() == tool && flags == (MAP_SHARED | MAP_ANONYMOUS) && region_count < REGIONS)
		regions[region_count++] = (struct region){ p, size };
	return p;
}

/* What this process and its children have recorded is no longer there. */
static void forget(void)
{
	char pattern[512];
	glob_t found;

	for (int i = 0; i < 2; i++) {
		snprintf(pattern, sizeof(pattern), "%s.%s%s", getenv("CALLS"), process,
			 i ? ".*" : "");
		if (glob(pattern, 0, NULL, &found))
			continue;
		for (size_t k = 0; k < found.gl_pathc; k++)
			unlink(found.gl_pathv[k]);
		globfree(&found);
	}
}

/* What the test that has ended says, its reason or else its notes: the regions have an array of struct report. */
static const char *reason(void)
{
	static char said[sizeof(((struct report *)0)->text) + 1];
	const struct report *r = NULL;

	for (int i = 0; i < region_count && !r; i++)
		if (regions[i].size > sizeof(*r) && !(regions[i].size % sizeof(*r)))
			r = (struct report *)regions[i].at + atoi(process) - 2;
	snprintf(said, sizeof(said), " %s", r->text[0] ? r->text : r->notes);
	for (char *c = said; *c; c++)
		*c = *c == '\n' ? ';' : *c;
	return said[1] ? said : "";
}

/* Runs the test whose process is about to begin, once for each fault, until it meets none. */
static pid_t run_test(pid_t (*real)(void))
{
	char *before[REGIONS];
	int status;
	pid_t pid;

	for (int i = 0; i < region_count; i++)
		before[i] = memcpy(malloc(regions[i].size), regions[i].at, regions[i].size);
	for (;;) {
		siginfo_t ended;
		FILE *f;

		atomic_store(&shared->fired, 0);
		pid = real();
		if (!pid)
			return 0;
		if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT))
			abort();
		if (!shared->fired)
			break; /* the tool finds it ended */
		waitpid(pid, &status, 0);
		f = fopen(getenv("FAULTS"), "ae");
		if (!f)
			abort();
		fprintf(f, "%s %s %d%s\n", process, shared->what, status, reason());
		fclose(f);
		for (int i = 0; i < region_count; i++)
			memcpy(regions[i].at, before[i], regions[i].size);
		forget();
	}
	for (int i = 0; i < region_count; i++)
		free(before[i]);
	return pid;
}

pid_t fork(void)
{
	void *real = dlsym(RTLD_NEXT, "fork");
	size_t n = getpid() == tool ? 0 : strlen(process);
	pid_t (*forks)(void), pid;

	memcpy(&forks, &real, sizeof(forks));
	snprintf(process + n, sizeof(process) - n, "%s%d", n ? "." : "", ++children);
	pid = getpid() == tool && !is_probe() ? run_test(forks) : forks();
	if (!pid)
		children = 0;
	else
		process[n] = '\0';
	return pid;
}
