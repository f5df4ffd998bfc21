/* SPDX-License-Identifier: MIT */
/*
 * gdrcopy_doctor's readers: files of the kernel and the GPU driver with any content. The input is a
 * series of pieces, separated by bytes 0xff: a byte that names the file, then its content. The
 * first has the CPUs that the process may run on.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit.h"
#include "doctor/doctor.h"

#define GPU	  "0000:21:00.0"
#define GPU_DIR	  "/sys/bus/pci/devices/" GPU
#define OTHER_DIR "/sys/bus/pci/devices/0000:22:00.0"

static const char *const path[] = {
	"/proc/1/cgroup",
	"/proc/devices",
	"/proc/misc",
	"/proc/driver/gdrdrv/params",
	"/sys/module/gdrdrv/version",
	"/proc/driver/gdrdrv/nv_get_pages_refcount",
	"/proc/driver/nvidia/version",
	"/proc/driver/nvidia/gpus/" GPU "/information",
	"/proc/device-tree/model",
	"/proc/device-tree/compatible",
	"/etc/nv_tegra_release",
	"/sys/module/nvidia/version",
	"/sys/module/module/parameters/sig_enforce",
	"/sys/kernel/security/lockdown",
	"/sys/hypervisor/type",
	"/sys/class/dmi/id/sys_vendor",
	"/sys/devices/system/node/node0/cpulist",
	"/sys/devices/system/node/node1/cpulist",
	"/sys/devices/system/cpu/cpu0/topology/physical_package_id",
	GPU_DIR "/class",
	GPU_DIR "/vendor",
	GPU_DIR "/device",
	GPU_DIR "/numa_node",
	GPU_DIR "/config",
	OTHER_DIR "/class",
	OTHER_DIR "/vendor",
	OTHER_DIR "/numa_node",
};

/* What the doctor keeps until it ends, of which a fuzzer makes much. */
static void **kept;
static size_t count, room;

static void keep(void *p)
{
	if (count == room) {
		room = room ? 2 * room : 1024;
		kept = realloc(kept, room * sizeof(*kept));
		if (!kept)
			abort();
	}
	kept[count++] = p;
}

void *__real_tool_calloc(size_t n, size_t size);
void *__wrap_tool_calloc(size_t n, size_t size);
void *__wrap_tool_calloc(size_t n, size_t size)
{
	void *p = __real_tool_calloc(n, size);

	keep(p);
	return p;
}

int __wrap_vasprintf(char **text, const char *fmt, va_list ap);
int __wrap_vasprintf(char **text, const char *fmt, va_list ap)
{
	va_list again;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	*text = malloc((size_t)n + 1);
	if (!*text)
		abort();
	keep(*text);
	return vsnprintf(*text, (size_t)n + 1, fmt, ap);
}

static char top[256], full[512];
static struct root root;
static FILE *nowhere;

static const char *at(const char *name)
{
	snprintf(full, sizeof(full), "%s%s", top, name);
	return full;
}

static void start(void)
{
	const char *dir = getenv("FUZZ_DIR"); /* the caller removes it */

	snprintf(top, sizeof(top), "%s/root.XXXXXX", dir ? dir : "/tmp");
	if (!mkdtemp(top) || root_open(&root, top))
		abort();
	for (size_t i = 0; i < ARRAY_SIZE(path); i++) {
		char *name = strdup(path[i]);

		for (char *slash = strchr(name + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
			*slash = '\0';
			mkdir(at(name), 0700);
			*slash = '/';
		}
		free(name);
	}
	nowhere = fopen("/dev/null", "w");
}

static void put(const char *name, const uint8_t *data, size_t size)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct probes probes;
	bool made[ARRAY_SIZE(path)] = { false }, first = true;
	static struct machine m;
	struct verdict v = { 0 };
	struct report r = { 0 };

	if (!nowhere)
		start();
	memset(&probes, 0, sizeof(probes));
	while (size) {
		const uint8_t *end = memchr(data, 0xff, size);
		size_t n = end ? (size_t)(end - data) : size;

		if (first)
			memcpy(probes.cpus, data,
			       n < sizeof(probes.cpus) ? n : sizeof(probes.cpus) - 1);
		else if (n) {
			size_t i = (data[0] - '0') % ARRAY_SIZE(path);

			put(path[i], data + 1, n - 1);
			made[i] = true;
		}
		first = false;
		data += n + !!end;
		size -= n + !!end;
	}
	machine_collect(&m, &root, &probes);
	subjects_check(&m, &r);
	verdict_reach(&v, &m, &r);
	print_text(&m, &r, &v, nowhere);
	print_json(&m, &r, &v, nowhere);
	report_end(&r);
	for (size_t i = 0; i < ARRAY_SIZE(path); i++)
		if (made[i])
			unlink(at(path[i]));
	while (count)
		free(kept[--count]);
	return 0;
}
