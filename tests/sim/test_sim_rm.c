/* SPDX-License-Identifier: MIT */
/*
 * Self-test of nvidia.ko's stand-in and of libcuda's as its client, by the nodes alone. Every test
 * runs in a process of its own. What libcuda exports is seen as a library may see it: through the
 * slot of its import of ioctl.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "test_sim_rm.h"

struct seen rm_seen;

uint32_t rm_new(int ctl, handle root, handle parent, handle *object, uint32_t class, void *params,
		uint32_t size)
{
	struct os64 a = { .root = root, .parent = parent, .new = *object, .class = class };

	a.params = params;
	a.params_size = size;
	a.status = 0xdead;
	ck_assert_int_eq(ioctl(ctl, ESC_ALLOC, &a), 0);
	*object = a.new;
	return a.status;
}

uint32_t rm_command(int ctl, handle client, handle object, uint32_t cmd, void *params,
		    uint32_t size)
{
	struct os54 c = { client, object, cmd, 0, params, size, 0xdead };

	ck_assert_int_eq(ioctl(ctl, ESC_CONTROL, &c), 0);
	return c.status;
}

uint32_t rm_duplicate(const struct rm_user *u, handle from, handle object, handle *out)
{
	struct os55 d = { u->client, u->device, 0, from, object, 0, 0xdead };

	ck_assert_int_eq(ioctl(u->ctl, ESC_DUP, &d), 0);
	*out = d.object;
	return d.status;
}

uint32_t rm_map(const struct rm_user *u, handle memory, uint64_t offset, uint64_t length,
		uint32_t flags, int fd, uint64_t *linear)
{
	struct os33_fd m = { u->client, u->device, memory, offset, length, 0, 0xdead, flags, fd };

	ck_assert_int_eq(ioctl(u->ctl, ESC_MAP, &m), 0);
	*linear = m.linear;
	return m.status;
}

uint32_t rm_unmap(const struct rm_user *u, handle memory, uint64_t linear)
{
	struct os34 m = { u->client, u->device, memory, linear, 0xdead, 0 };

	ck_assert_int_eq(ioctl(u->ctl, ESC_UNMAP, &m), 0);
	return m.status;
}

uint32_t rm_end(int ctl, handle client, handle object)
{
	struct os00 f = { client, 0, object, 0xdead };

	ck_assert_int_eq(ioctl(ctl, ESC_FREE, &f), 0);
	return f.status;
}

void rm_find(int ctl, handle client, int ordinal, unsigned int *minor, unsigned int *instance)
{
	struct card cards[32];
	unsigned int at = 0;
	uint32_t info[8];

	memset(cards, 0, sizeof(cards));
	ck_assert_int_eq(ioctl(ctl, ESC_N(200, sizeof(cards)), cards), 0);
	while (at < 32 && (!cards[at].valid || cards[at].pci.bus != 0x21 + ordinal))
		at++;
	ck_assert_uint_lt(at, 32);
	memset(info, 0, sizeof(info));
	info[0] = cards[at].gpu_id;
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x205, info, sizeof(info)), 0);
	*minor = cards[at].minor;
	*instance = info[2];
}

int rm_node(unsigned int minor)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
	return open(path, O_RDWR | O_CLOEXEC);
}

void rm_user_start(struct rm_user *u, int ordinal)
{
	struct nv0080 p = { 0 };

	memset(u, 0, sizeof(*u));
	u->ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(u->ctl, 0);
	ck_assert_uint_eq(rm_new(u->ctl, 0, 0, &u->client, 0x41, NULL, 0), 0);
	rm_find(u->ctl, u->client, ordinal, &u->minor, &u->instance);
	u->node = rm_node(u->minor);
	ck_assert_int_ge(u->node, 0);
	p.device_id = u->instance;
	ck_assert_uint_eq(rm_new(u->ctl, u->client, u->client, &u->device, 0x80, &p, sizeof(p)), 0);
}

void rm_user_end(struct rm_user *u)
{
	close(u->node);
	close(u->ctl);
	rm_assert_nothing_left();
}

static int seen_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	int rc;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	rc = ioctl(fd, request, arg);
	if (_IOC_TYPE(request) == 'F' && _IOC_NR(request) == 217 && rm_seen.n < 8)
		memcpy(&rm_seen.call[rm_seen.n++], arg,
		       _IOC_SIZE(request) < sizeof(rm_seen.call[0]) ? _IOC_SIZE(request)
								    : sizeof(rm_seen.call[0]));
	return rc;
}

int rm_export(CUdeviceptr at, size_t size)
{
	int (*hook)(int, unsigned long, ...) = seen_ioctl;
	void **slot = rm_slot(NULL), *old = *slot;
	int fd = -1;
	CUresult r;

	memset(&rm_seen, 0, sizeof(rm_seen));
	memcpy(slot, &hook, sizeof(hook));
	r = cuda.cuMemGetHandleForAddressRange(&fd, at, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					       0);
	*slot = old;
	return r == CUDA_SUCCESS ? fd : -(int)r;
}

void rm_again(const char *what, char *line, int size)
{
	const char *emulator = getenv("GDRCOPY_TEST_EMULATOR");
	char self[4096], command[9000];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	FILE *out;

	ck_assert_int_gt(len, 0);
	self[len] = '\0';
	snprintf(command, sizeof(command), "%s %s %s", emulator ? emulator : "", self, what);
	out = popen(command, "re");
	ck_assert_ptr_nonnull(out);
	ck_assert_ptr_nonnull(fgets(line, size, out));
	ck_assert_int_eq(pclose(out), 0);
}

static int (*alone)(void);

START_TEST(run_alone)
{
	ck_assert_int_eq(alone(), 0);
}
END_TEST

/* What a test starts in a process of its own: no fork of Check's, nothing printed but by it. */
static int run_one(const char *what)
{
	Suite *suite = suite_create(what);
	TCase *tc = tcase_create(what);
	SRunner *runner = srunner_create(suite);
	int failed;

	alone = !strcmp(what, "slot") ? rm_print_slot : !strcmp(what, "hold") ? rm_hold : rm_count;
	tcase_add_test(tc, run_alone);
	suite_add_tcase(suite, tc);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tc;

	rm_start(argv);
	if (argc == 2)
		return run_one(argv[1]);
	suite = suite_create("sim rm");
	tc = tcase_create("sim rm");
	tcase_set_timeout(tc, 120);
	rm_tests_objects(tc);
	rm_tests_maps(tc);
	rm_tests_export(tc);
	rm_tests_processes(tc);
	rm_tests_slots(tc);
	rm_tests_threads(tc);
	suite_add_tcase(suite, tc);
	return unit_suite(suite, CK_FORK);
}
