/* SPDX-License-Identifier: MIT */
/* This process, the CPU and the device nodes, as they are. It must not know CUDA. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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

#include "doctor/cpulist.h"
#include "doctor/probe_parts.h"

static void copy_env(char *to, size_t size, const char *name)
{
	const char *v = getenv(name);

	snprintf(to, size, "%s", v ? v : "");
}

/* CPUID leaf 1, ECX bit 31 is 0 on real CPUs; leaf 0x40000000 then names the hypervisor. */
static void hypervisor(struct probes *p)
{
#ifdef __x86_64__
	unsigned int a = 0, b = 0, c = 0, d = 0;
	size_t n = 0;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 31))
		return;
	p->hypervisor = true;
	__cpuid(0x40000000, a, b, c, d);
	for (int i = 0; i < 12; i++) {
		unsigned int word = i < 4 ? b : i < 8 ? c : d;
		char byte = (char)(word >> i % 4 * 8);

		if (byte >= ' ' && byte <= '~')
			p->hypervisor_name[n++] = byte;
	}
#else
	(void)p;
#endif
}

void probe_process(struct probes *p)
{
	size_t size = CPU_ALLOC_SIZE(CPULIST_MAX);
	cpu_set_t *cpus = CPU_ALLOC(CPULIST_MAX);
	time_t now = time(NULL);
	struct utsname u;
	struct tm tm;

	p->format = 1;
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
	if (cpus && !sched_getaffinity(0, size, cpus)) {
		struct cpulist set = { { 0 } };

		for (unsigned int i = 0; i < CPULIST_MAX; i++)
			if (CPU_ISSET_S(i, size, cpus))
				cpulist_add(&set, i);
		cpulist_text(&set, p->cpus, sizeof(p->cpus));
	}
	CPU_FREE(cpus);
	copy_env(p->env.backend, sizeof(p->env.backend), "GDRCOPY_BACKEND");
	copy_env(p->env.dmabuf_mmap, sizeof(p->env.dmabuf_mmap), "GDRCOPY_USE_DMABUF_MMAP");
	copy_env(p->env.visible, sizeof(p->env.visible), "NVIDIA_VISIBLE_DEVICES");
	copy_env(p->env.capabilities, sizeof(p->env.capabilities), "NVIDIA_DRIVER_CAPABILITIES");
	copy_env(p->env.cuda_visible, sizeof(p->env.cuda_visible), "CUDA_VISIBLE_DEVICES");
	copy_env(p->env.container, sizeof(p->env.container), "container");
	copy_env(p->env.kubernetes, sizeof(p->env.kubernetes), "KUBERNETES_SERVICE_HOST");
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
	n->error = ETIMEDOUT; /* if it never comes back, and this process is ended */
	/* O_NONBLOCK: the GPU driver then does not wait for a GPU that has to wake up first */
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	n->error = fd < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
}

/* The nodes of /dev that begin so and go on with a digit. */
static void add_numbered(struct probes *p, const char *start)
{
	struct dirent *entry;
	DIR *dir = opendir("/dev");
	char path[64];

	while (dir && (entry = readdir(dir))) {
		size_t n = strlen(start);

		if (strncmp(entry->d_name, start, n) || entry->d_name[n] < '0' ||
		    entry->d_name[n] > '9' || strlen(entry->d_name) > 40)
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		add_node(p, path);
	}
	if (dir)
		closedir(dir);
}

void probe_nodes(struct probes *p)
{
	add_node(p, "/dev/nvidiactl");
	add_node(p, "/dev/nvidia-uvm");
	add_node(p, "/dev/gdrdrv");
	add_node(p, "/dev/nvmap"); /* Tegra */
	add_numbered(p, "nvidia");
}
