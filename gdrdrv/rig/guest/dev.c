// SPDX-License-Identifier: MIT
/* One-line access to the driver, the provider and the kernel's files */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>

#include "rig.h"

int drv, prov;
sigjmp_buf *check_jmp;

void check_failed(const char *fmt, ...)
{
	va_list args;

	if (check_jmp)
		siglongjmp(*check_jmp, 1);
	printf("# ");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

int drv_open_at(const char *node)
{
	int fd = open(node, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

int drv_open(void)
{
	return drv_open_at("/dev/gdrdrv");
}

int prov_open(void)
{
	int fd = open(PROVIDER_NODE, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

struct provider_alloc gpu_alloc_flags(int gpu, size_t size, unsigned int flags)
{
	struct provider_alloc arg = { .size = size, .flags = flags };

	CHECK(ioctl(gpu, PROVIDER_IOC_ALLOC, &arg) == 0);
	return arg;
}

uint64_t gpu_alloc(int gpu, size_t size)
{
	return gpu_alloc_flags(gpu, size, 0).va;
}

static int call(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

int gpu_free(int gpu, uint64_t va)
{
	struct provider_free arg = { .va = va };

	return call(gpu, PROVIDER_IOC_FREE, &arg);
}

static void gpu_copy(int gpu, unsigned long cmd, uint64_t va, void *buf, size_t len)
{
	struct provider_copy arg = { .va = va, .len = len, .buf = (uintptr_t)buf };

	CHECK_EQ(call(gpu, cmd, &arg), 0);
}

void gpu_peek(int gpu, uint64_t va, void *buf, size_t len)
{
	gpu_copy(gpu, PROVIDER_IOC_PEEK, va, buf, len);
}

void gpu_poke(int gpu, uint64_t va, const void *buf, size_t len)
{
	gpu_copy(gpu, PROVIDER_IOC_POKE, va, (void *)(uintptr_t)buf, len);
}

uint8_t gpu_byte(uint64_t va)
{
	uint8_t byte;

	__sync_synchronize();
	gpu_peek(prov, va, &byte, 1);
	return byte;
}

struct provider_info gpu_info(int gpu)
{
	struct provider_info info;

	CHECK(ioctl(gpu, PROVIDER_IOC_INFO, &info) == 0);
	return info;
}

struct provider_pte read_pte(int gpu, const volatile void *addr)
{
	struct provider_pte arg = { .addr = (uintptr_t)addr };

	CHECK(ioctl(gpu, PROVIDER_IOC_PTE, &arg) == 0);
	return arg;
}

int pin_tokens(int file, uint64_t va, uint64_t size, uint64_t token, uint32_t space,
	       uint64_t *handle)
{
	struct gdrdrv_ioc_pin_buffer arg = {
		.addr = va, .size = size, .p2p_token = token, .va_space = space
	};
	int ret = call(file, GDRDRV_IOC_PIN_BUFFER, &arg);

	if (!ret)
		*handle = arg.handle;
	return ret;
}

int pin(int file, uint64_t va, uint64_t size, uint64_t *handle)
{
	return pin_tokens(file, va, size, 0, 0, handle);
}

int pin_flags(int file, uint64_t va, uint64_t size, uint32_t flags, uint64_t *handle)
{
	struct gdrdrv_ioc_pin_buffer_v2 arg = { .addr = va, .size = size, .flags = flags };
	int ret;

	ret = call(file, GDRDRV_IOC_PIN_BUFFER_V2, &arg);
	if (!ret)
		*handle = arg.handle;
	return ret;
}

uint64_t must_pin(int file, uint64_t va, uint64_t size)
{
	uint64_t handle = 0;

	CHECK_EQ(pin(file, va, size, &handle), 0);
	CHECK(handle >= 1 && handle <= GDRDRV_HANDLE_MAX);
	return handle;
}

int unpin(int file, uint64_t handle)
{
	return call(file, GDRDRV_IOC_UNPIN_BUFFER, &handle);
}

int cb_flag(int file, uint64_t handle)
{
	struct gdrdrv_ioc_get_cb_flag arg = { .handle = handle, .flag = 99 };
	int ret = call(file, GDRDRV_IOC_GET_CB_FLAG, &arg);

	return ret ? ret : (int)arg.flag;
}

int get_info(int file, uint64_t handle, struct gdrdrv_ioc_get_info *info)
{
	info->handle = handle;
	return call(file, GDRDRV_IOC_GET_INFO, info);
}

int get_info_v2(int file, uint64_t handle, struct gdrdrv_ioc_get_info_v2 *info)
{
	info->handle = handle;
	return call(file, GDRDRV_IOC_GET_INFO_V2, info);
}

int req_type(int file, uint64_t handle, uint32_t type)
{
	struct gdrdrv_ioc_req_mapping_type arg = { .handle = handle, .mapping_type = type };

	return call(file, GDRDRV_IOC_REQ_MAPPING_TYPE, &arg);
}

int populate(int file, uint64_t handle)
{
	struct gdrdrv_ioc_populate arg = { .handle = handle };

	return call(file, GDRDRV_IOC_POPULATE, &arg);
}

void *map_prot(int file, uint64_t handle, size_t len, int prot, int flags, void *at)
{
	return mmap(at, len, prot, flags, file, (off_t)(handle * cpu_page()));
}

void *map(int file, uint64_t handle, size_t len)
{
	return map_prot(file, handle, len, PROT_READ | PROT_WRITE, MAP_SHARED, NULL);
}

void must_map_at(int file, uint64_t handle, size_t len, void *at)
{
	CHECK(map_prot(file, handle, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, at) ==
	      at);
}

volatile uint8_t *must_map(int file, uint64_t handle, size_t len)
{
	void *p = map(file, handle, len);

	CHECK(p != MAP_FAILED);
	return p;
}

void unmap(const volatile void *p, size_t len)
{
	CHECK_EQ(munmap((void *)(uintptr_t)p, len), 0);
}

struct region region(size_t size, unsigned int flags)
{
	struct region r = { .va = gpu_alloc_flags(prov, size, flags).va };

	r.h = must_pin(drv, r.va, size);
	r.p = must_map(drv, r.h, size);
	return r;
}

void check_data(const struct region *r, size_t len)
{
	uint8_t *want = malloc(len), *got = malloc(len);
	size_t i;

	pattern(want, len, 5);
	for (i = 0; i < len; i++)
		r->p[i] = want[i];
	__sync_synchronize();
	gpu_peek(prov, r->va, got, len);
	CHECK(!memcmp(want, got, len));
	pattern(want, len, 6);
	gpu_poke(prov, r->va, want, len);
	for (i = 0; i < len; i++)
		got[i] = r->p[i];
	CHECK(!memcmp(want, got, len));
	free(want);
	free(got);
}

size_t cpu_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

void *reserve(size_t len, size_t align)
{
	uint8_t *all = mmap(NULL, len + align + 2 * cpu_page(), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *at;

	CHECK(all != MAP_FAILED);
	at = (uint8_t *)(((uintptr_t)all + cpu_page() + align - 1) & ~(align - 1));
	at[-1] = 1;
	at[len] = 1;
	return at;
}

static _Thread_local sigjmp_buf fault_jmp;
static _Thread_local volatile bool fault_armed;

static void on_fault(int sig)
{
	if (fault_armed)
		siglongjmp(fault_jmp, sig);
	_exit(128 + sig);
}

/* Runs an access. The value is the signal that ended it, or 0. */
#define CATCH(access)                                                                       \
	({                                                                                  \
		struct sigaction act_ = { .sa_handler = on_fault, .sa_flags = SA_NODEFER }; \
		int sig_;                                                                   \
                                                                                            \
		sigaction(SIGBUS, &act_, NULL);                                             \
		sigaction(SIGSEGV, &act_, NULL);                                            \
		sig_ = sigsetjmp(fault_jmp, 1);                                             \
		if (!sig_) {                                                                \
			fault_armed = true;                                                 \
			access;                                                             \
		}                                                                           \
		fault_armed = false;                                                        \
		sig_;                                                                       \
	})

int try_read(const volatile void *addr)
{
	return CATCH((void)*(const volatile uint8_t *)addr);
}

int try_write(volatile void *addr, uint8_t value)
{
	return CATCH(*(volatile uint8_t *)addr = value);
}

int try_read32(const volatile void *addr, uint32_t *value)
{
	return CATCH(*value = *(const volatile uint32_t *)addr);
}

/* x86: PWT set, PCD and PAT clear. arm64: attribute index 2. */
bool pte_is_wc(uint64_t pte)
{
#if defined(__x86_64__)
	return (pte & 0x8) && !(pte & 0x10) && !(pte & 0x80);
#else
	return ((pte >> 2) & 7) == 2; /* MT_NORMAL_NC */
#endif
}

/* x86: accessed and dirty. arm64: accessed, and not read-only. */
bool pte_is_written(uint64_t pte)
{
#if defined(__x86_64__)
	return (pte & 0x60) == 0x60;
#else
	return (pte & 0x480) == 0x400;
#endif
}

#define MEMTYPE_LIST "/sys/kernel/debug/x86/pat_memtype_list"

/* x86: present, or PROT_NONE. arm64: valid, or one of the bits that stood for PROT_NONE. */
bool pte_maps(uint64_t pte)
{
#if defined(__x86_64__)
	return pte & 0x101;
#else
	return pte & (1 | 1ULL << 58);
#endif
}

static bool listed_as(uint64_t phys, size_t len, const char *type)
{
	char *list = read_text(MEMTYPE_LIST), want[80];
	bool listed;

	snprintf(want, sizeof(want), "0x%016llx-0x%016llx] %s", (unsigned long long)phys,
		 (unsigned long long)phys + len, type);
	listed = list && strstr(list, want);
	free(list);
	return listed;
}

bool listed_as_wc(uint64_t phys, size_t len)
{
	return listed_as(phys, len, "write-combining");
}

bool listed_as_uncached(uint64_t phys, size_t len)
{
	return listed_as(phys, len, "uncached-minus");
}

unsigned int nr_memtypes_at(uint64_t phys)
{
	char *list = read_text(MEMTYPE_LIST);
	unsigned long long start, end;
	unsigned int n = 0;

	for_each_line(line, list)
		n += sscanf(line, "PAT: [mem %llx-%llx]", &start, &end) == 2 && phys >= start &&
		     phys < end;
	free(list);
	return n;
}

size_t nr_entries(const volatile void *p, size_t len, size_t step)
{
	size_t off, n = 0;

	for (off = 0; off < len; off += step) {
		unsigned int level = read_pte(prov, (const volatile uint8_t *)p + off).level;

		CHECK(level <= 1);
		n += level;
	}
	return n;
}

char *read_text(const char *path)
{
	size_t cap = 1 << 16, len = 0;
	int fd = open(path, O_RDONLY);
	char *buf;
	ssize_t n;

	if (fd < 0)
		return NULL;
	buf = malloc(cap);
	while ((n = read(fd, buf + len, cap - 1 - len)) > 0) {
		len += (size_t)n;
		if (len == cap - 1)
			buf = realloc(buf, cap *= 2);
	}
	close(fd);
	buf[len] = 0;
	return buf;
}

long read_number(const char *path)
{
	char *text = read_text(path);
	long n = text ? strtol(text, NULL, 0) : -1;

	free(text);
	return n;
}

void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/*
 * Makes the calling process, of root, one of user 1001, and where the kernel has user namespaces one
 * of a namespace that this user made. Its number there is of those in /etc/subuid, and chosen so
 * that it has the hash of root's number.
 */
void become_user_like_root(void)
{
	unsigned int uid = 100000;
	char path[32], map[32], byte;
	int ready[2];
	pid_t helper;

	while (uid * 0x61C88647u >> 24)
		uid++;
	CHECK(!pipe(ready));
	helper = fork();
	if (!helper) { /* as newuidmap does */
		snprintf(path, sizeof(path), "/proc/%d/uid_map", getppid());
		snprintf(map, sizeof(map), "0 %u 1", uid);
		close(ready[1]);
		if (read(ready[0], &byte, 1) == 1)
			write_text(path, map);
		_exit(0);
	}
	CHECK(!setgid(1001) && !setuid(1001));
	if (!unshare(CLONE_NEWUSER)) {
		CHECK_EQ(write(ready[1], "", 1), 1);
		CHECK_EQ(wait_child(helper), 0);
		CHECK(!setuid(0));
	} else {
		CHECK(errno == EINVAL || errno == EPERM); /* EPERM: with a patch of Debian's */
	}
	close(ready[0]);
	close(ready[1]);
}

void knob(const char *name, int value)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), "/sys/module/provider/parameters/%s", name);
	snprintf(text, sizeof(text), "%d", value);
	write_text(path, text);
}

long stat_of(const char *name)
{
	char *text = read_text("/proc/driver/gdrdrv/stats");
	size_t len = strlen(name);
	long n = -1;

	for_each_line(line, text)
		if (!strncmp(line, name, len) && line[len] == ' ')
			n = strtol(line + len, NULL, 10);
	free(text);
	return n;
}

long nr_pins(void)
{
	return read_number("/proc/driver/gdrdrv/nv_get_pages_refcount");
}

void nothing_pinned(void)
{
	struct provider_info info = gpu_info(prov);

	CHECK_EQ(nr_pins(), 0);
	CHECK_EQ(info.pins, 0);
	CHECK_EQ(info.tables, 0);
	if (rig.gpl)
		CHECK_EQ(stat_of("memtypes"), 0);
}

bool driver_is_kept(void)
{
	char *text = read_text("/proc/driver/gdrdrv/params");
	bool kept = text && strstr(text, "\nKept until the reboot: yes\n");

	free(text);
	return kept;
}

long driver_users(void)
{
	return read_number("/sys/module/gdrdrv/refcnt") - driver_is_kept();
}

long long now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

int wait_child(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void pattern(uint8_t *buf, size_t len, unsigned int seed)
{
	uint32_t x = seed * 2654435761u + 1;
	size_t i;

	for (i = 0; i < len; i++) {
		x = x * 1664525u + 1013904223u;
		buf[i] = (uint8_t)(x >> 24);
	}
}

int delete_module_named(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}
