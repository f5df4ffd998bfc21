/* SPDX-License-Identifier: MIT */
/* This process, the CPU, the nodes; what loads drivers runs in children, which may crash. */
#include "doctor/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "common/child.h"
#include "common/exit.h"
#include "common/progress.h"

const struct probe_node *probes_node(const struct probes *p, const char *path)
{
	for (int i = 0; i < p->nodes; i++)
		if (!strcmp(p->node[i].path, path))
			return &p->node[i];
	return NULL;
}

const struct probe_library *probes_library(const struct probes *p, const char *name)
{
	for (int i = 0; i < p->libraries; i++)
		if (!strcmp(p->library[i].name, name))
			return &p->library[i];
	return NULL;
}

static void copy_env(char *to, size_t size, const char *name)
{
	const char *v = getenv(name);

	snprintf(to, size, "%s", v ? v : "");
}

/* CPUID leaf 1, ECX bit 31 is 0 on real CPUs; leaf 0x40000000 then names the hypervisor. */
static void hypervisor(struct probes *p)
{
#ifdef __x86_64__
	unsigned int a = 0, word[3] = { 0 };

	if (!__get_cpuid(1, &a, &word[0], &word[1], &word[2]) || !(word[1] & 1u << 31))
		return;
	__cpuid(0x40000000, a, word[0], word[1], word[2]);
	memcpy(p->hypervisor, word, sizeof(word));
#else
	(void)p;
#endif
}

/* The list as the kernel writes it. */
static void allowed_cpus(struct probes *p)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[sizeof(p->cpus) + 64];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Cpus_allowed_list: %1023s", p->cpus) == 1)
			break;
	if (f)
		fclose(f);
}

#define ENV(member, name) copy_env(p->env.member, sizeof(p->env.member), name)

static void probe_process(struct probes *p)
{
	time_t now = time(NULL);
	struct utsname u;
	struct tm tm;

	p->init_code = -1;
	p->euid = (int)geteuid();
	if (gmtime_r(&now, &tm))
		strftime(p->date, sizeof(p->date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (!uname(&u)) {
		snprintf(p->machine, sizeof(p->machine), "%.*s", (int)sizeof(p->machine) - 1,
			 u.machine);
		snprintf(p->release, sizeof(p->release), "%s", u.release);
	}
	hypervisor(p);
	allowed_cpus(p);
	ENV(backend, "GDRCOPY_BACKEND");
	ENV(dmabuf_mmap, "GDRCOPY_USE_DMABUF_MMAP");
	ENV(visible, "NVIDIA_VISIBLE_DEVICES");
	ENV(cuda_visible, "CUDA_VISIBLE_DEVICES");
	ENV(container, "container");
	ENV(kubernetes, "KUBERNETES_SERVICE_HOST");
}

static void add_node(struct probes *p, const char *path)
{
	struct probe_node *n = &p->node[p->nodes];
	struct stat st;
	int fd;

	if (p->nodes == PROBE_NODES || strlen(path) >= sizeof(n->path) || probes_node(p, path))
		return;
	p->nodes++;
	strcpy(n->path, path);
	if (stat(path, &st)) {
		n->error = errno;
		return;
	}
	n->exists = true;
	n->mode = (int)(st.st_mode & 07777);
	n->uid = (int)st.st_uid;
	n->gid = (int)st.st_gid;
	if (!S_ISCHR(st.st_mode)) {
		n->error = ENOTTY; /* a file or directory in the place of a node */
		return;
	}
	n->major = (int)major(st.st_rdev);
	n->minor = (int)minor(st.st_rdev);
	n->error = ETIMEDOUT; /* kept if open() hangs and this process is killed */
	/* O_NONBLOCK: the GPU driver does not wait for a sleeping GPU to wake up */
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	n->error = fd < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
}

/* The nodes that are not known yet. */
static void probe_nodes(void *arg)
{
	struct probes *p = arg;

	add_node(p, "/dev/nvidiactl");
	add_node(p, "/dev/nvidia-uvm");
	add_node(p, "/dev/gdrdrv");
	add_node(p, "/dev/nvmap"); /* Tegra */
	for (int i = 0; i < PROBE_GPUS; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/dev/nvidia%d", i);
		if (!access(path, F_OK))
			add_node(p, path);
	}
}

enum { LOAD_S = 60, TRIALS_S = 60, NODES_S = 20 };
enum { DESCRIPTORS = 64 }; /* of libcuda and the library together; the doctor itself needs a few */

/* With too few descriptors every open() fails, as if the machine lacked the file. */
static void make_room_for_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= DESCRIPTORS)
		return;
	limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
	if (limit.rlim_cur < DESCRIPTORS || setrlimit(RLIMIT_NOFILE, &limit))
		tool_fail("this process may open %llu files at a time, too few to look at the "
			  "machine: raise that (ulimit -n)",
			  (unsigned long long)limit.rlim_cur);
}

static void load(void *arg)
{
	struct probes *p = arg;

	probe_library(p, 0);
	if (p->library[0].found)
		probe_cuda(p);
}

static void ask_nvml(void *arg)
{
	struct probes *p = arg;

	probe_library(p, 1);
	if (p->library[1].found)
		probe_nvml(p);
	else
		strcpy(p->nvml_error, "libnvidia-ml.so.1 cannot be loaded");
}

/* Without gpu_find(), which would end the process. */
static void try_gpu(void *arg)
{
	struct probe_gpu *g = arg;
	struct gpu gpu = { .ordinal = g->ordinal };
	CUresult rc;

	cuda_dl_load();
	rc = cu.Init(0);
	if (rc == CUDA_SUCCESS)
		rc = cu.DeviceGet(&gpu.dev, gpu.ordinal);
	if (rc == CUDA_SUCCESS)
		rc = cu.DevicePrimaryCtxRetain(&gpu.ctx, gpu.dev);
	if (rc == CUDA_SUCCESS)
		rc = cu.CtxSetCurrent(gpu.ctx);
	if (rc == CUDA_SUCCESS)
		probe_trials(g, &gpu);
	else
		snprintf(g->context_error, sizeof(g->context_error), "%s", cuda_error_text(rc));
}

/* A trial that ends its process has failed; the next child starts with the trial after it. */
static void try_all(struct probe_gpu *g)
{
	char why[PROBE_TEXT - 32];
	int before;

	do {
		before = g->trials;
		if (child_isolate(try_gpu, g, TRIALS_S, why, sizeof(why)))
			return;
		if (g->trials == before) {
			snprintf(g->context_error, sizeof(g->context_error), "%.*s",
				 (int)sizeof(g->context_error) - 1, why);
			return;
		}
		g->trial[g->trials - 1].error = EIO;
		snprintf(g->trial[g->trials - 1].text, PROBE_TEXT, "the trial was %s", why);
	} while (g->trials < PROBE_TRIALS);
}

struct probes *probes_make(void)
{
	struct probes *shared = tool_shared(sizeof(*shared));
	char why[sizeof(shared->cuda_failure)];
	size_t steps;

	make_room_for_descriptors();
	probe_process(shared);
	progress_at(0, 0, "libcuda is loaded");
	if (!child_isolate(load, shared, LOAD_S, why, sizeof(why)))
		memcpy(shared->cuda_failure, why, sizeof(why));
	steps = 3 + (size_t)shared->gpus;
	progress_at(1, steps, "libnvidia-ml is asked");
	if (!child_isolate(ask_nvml, shared, LOAD_S, why, sizeof(why)))
		snprintf(shared->nvml_error, sizeof(shared->nvml_error), "asking it: %.200s", why);
	for (int i = 0; i < shared->gpus; i++) {
		progress_at(2 + (size_t)i, steps, "each backend is tried on GPU %d", i);
		try_all(&shared->gpu[i]);
	}
	progress_at(steps - 1, steps, "the driver's nodes are opened");
	/* last, because libcuda may make missing nodes by nvidia-modprobe; twice, because an open()
	 * that hangs ends the first child */
	for (int i = 0; i < 2 && !child_isolate(probe_nodes, shared, NODES_S, why, sizeof(why));
	     i++)
		;
	return shared;
}
