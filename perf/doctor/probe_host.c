/* SPDX-License-Identifier: MIT */
/* This process, the CPU and the device nodes, as they are. It must not know CUDA. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "doctor/probe.h"

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

void probe_process(struct probes *p)
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
#define ENV(member, name) copy_env(p->env.member, sizeof(p->env.member), name)
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

void probe_nodes(void *arg)
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
