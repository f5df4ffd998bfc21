/* SPDX-License-Identifier: MIT */
/* Self-test of nvidia.ko's stand-in: nodes, GPUs, clients and what is below them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "test_sim_rm.h"

START_TEST(nodes)
{
	struct stat st;
	int fd = open("/dev/nvidiactl", O_RDWR);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert(S_ISCHR(st.st_mode) && major(st.st_rdev) == 195 && minor(st.st_rdev) == 255);
	close(fd);
	ck_assert_int_eq(stat("/dev/nvidia0", &st), 0);
	ck_assert(S_ISCHR(st.st_mode) && minor(st.st_rdev) == 0);
	ck_assert_int_eq(access("/dev/nvidia0", R_OK | W_OK), 0);
	ck_errno(rm_node(1), ENOENT);
	ck_errno(stat("/dev/nvidia1", &st), ENOENT);
	ck_errno(open("/dev/gdrdrv", O_RDWR), ENOENT);
	setenv("GDRSIM_RM_DENIED", "0", 1);
	ck_errno(rm_node(0), EACCES);
	ck_errno(access("/dev/nvidia0", R_OK), EACCES);
	ck_assert_int_eq(access("/dev/nvidia0", F_OK), 0);
	setenv("GDRSIM_RM_NO_NODE", "0", 1);
	ck_errno(rm_node(0), ENOENT);
	setenv("GDRSIM_RM", "denied", 1);
	ck_errno(open("/dev/nvidiactl", O_RDWR), EACCES);
	setenv("GDRSIM_RM", "absent", 1);
	ck_errno(open("/dev/nvidiactl", O_RDWR), ENOENT);
	ck_errno(open("/proc/driver/nvidia/version", O_RDONLY), ENOENT);
	rm_assert_nothing_left();
}
END_TEST

static unsigned int minor_by_proc(int bus)
{
	unsigned int found = ~0u;
	char path[128], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/0000:%02x:00.0/information", bus);
	f = fopen(path, "re");
	ck_assert_msg(f != NULL, "%s", path);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "Device Minor: %u", &found);
	fclose(f);
	return found;
}

/* Minors, instances and CUDA's order are three. */
START_TEST(gpus)
{
	int ctl = open("/dev/nvidiactl", O_RDWR);
	uint32_t ids[32], pci[3], v1[10];
	unsigned int minor, instance;
	struct card cards[3];
	handle client = 0;

	setenv("GDRSIM_DEVICES", "3", 1);
	ck_errno(ioctl(ctl, ESC_N(200, 2 * sizeof(cards[0])), cards), EINVAL);
	ck_assert_int_eq(ioctl(ctl, ESC_N(200, sizeof(cards)), cards), 0);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_uint_eq(cards[i].minor, i);
	ck_assert_uint_eq(rm_new(ctl, 0, 0, &client, 0x41, NULL, 0), 0);
	for (int i = 0; i < 3; i++) {
		rm_find(ctl, client, i, &minor, &instance);
		ck_assert_uint_eq(minor, (unsigned int)(i + 1) % 3);
		ck_assert_uint_eq(instance, (unsigned int)(2 - i));
		ck_assert_uint_eq(minor_by_proc(0x21 + i), minor);
	}
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x201, ids, sizeof(ids)), 0);
	ck_assert_uint_eq(ids[0], 0x2300);
	ck_assert_uint_eq(ids[2], 0x2100);
	ck_assert_uint_eq(ids[3], ~0u);
	memset(v1, 0, sizeof(v1));
	v1[0] = ids[0];
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x202, v1, sizeof(v1)), 0);
	ck_assert_uint_eq(v1[2], 0);
	pci[0] = ids[1];
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x21b, pci, sizeof(pci)), 0);
	ck_assert_uint_eq(pci[2], 0x22);
	pci[0] = 0x4242;
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x21b, pci, sizeof(pci)), 0x57);
	setenv("GDRSIM_RM_MINORS", "2,0,1", 1);
	setenv("GDRSIM_RM_INSTANCES", "0,2,1", 1);
	rm_find(ctl, client, 1, &minor, &instance);
	ck_assert_uint_eq(minor, 0);
	ck_assert_uint_eq(instance, 2);
	close(ctl);
	rm_assert_nothing_left();
}
END_TEST

/* Two GPUs as they were on a host with two H200. */
START_TEST(two_gpus)
{
	int ctl = open("/dev/nvidiactl", O_RDWR);
	unsigned int minor, instance;
	handle client = 0;

	setenv("GDRSIM_DEVICES", "2", 1);
	ck_assert_uint_eq(rm_new(ctl, 0, 0, &client, 0x41, NULL, 0), 0);
	rm_find(ctl, client, 0, &minor, &instance);
	ck_assert_uint_eq(minor, 0);
	ck_assert_uint_eq(instance, 1);
	close(ctl);
}
END_TEST

START_TEST(version)
{
	struct {
		uint32_t cmd, reply;
		char text[64];
	} v = { '2', 9, "" };
	int ctl = open("/dev/nvidiactl", O_RDWR);
	char line[256];
	FILE *f;

	setenv("GDRSIM_DRIVER_VERSION", "12040", 1);
	ck_assert_int_eq(ioctl(ctl, ESC_N(210, sizeof(v)), &v), 0);
	ck_assert_uint_eq(v.reply, 1);
	ck_assert_str_eq(v.text, "550.159.04");
	v.cmd = 0;
	ck_assert_int_eq(ioctl(ctl, ESC_N(210, sizeof(v)), &v), 0);
	setenv("GDRSIM_RM_DRIVER", "570.86.15", 1);
	ck_errno(ioctl(ctl, ESC_N(210, sizeof(v)), &v), EINVAL);
	f = fopen("/proc/driver/nvidia/version", "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_ptr_nonnull(strstr(line, "  570.86.15  "));
	fclose(f);
	close(ctl);
}
END_TEST

/* A wrong size, number or node is EINVAL; a status is not written. */
START_TEST(sizes)
{
	static const struct {
		unsigned int nr, size;
	} known[] = { { 0x29, 16 }, { 0x2a, 32 }, { 0x34, 28 }, { 0x4e, 56 }, { 0x4f, 32 } };
	int ctl = open("/dev/nvidiactl", O_RDWR), node = rm_node(0);
	uint8_t arg[4096] = { 0 };

	for (unsigned int i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		ck_errno(ioctl(ctl, ESC_N(known[i].nr, known[i].size + 8), arg), EINVAL);
		ck_errno(ioctl(ctl, ESC_N(known[i].nr, known[i].size - 4), arg), EINVAL);
		ck_errno(ioctl(node, ESC_N(known[i].nr, known[i].size), arg), EINVAL);
		ck_assert_int_eq(ioctl(ctl, ESC_N(known[i].nr, known[i].size), arg), 0);
	}
	ck_errno(ioctl(ctl, ESC_N(0x2b, 40), arg), EINVAL);
	ck_errno(ioctl(node, ESC_ALLOC, arg), EINVAL);
	ck_errno(ioctl(ctl, ESC_N(217, 2608), arg), EINVAL);
	ck_errno(ioctl(ctl, ESC_N(99, 16), arg), EINVAL);
	ck_errno(ioctl(ctl, ESC_FREE, NULL), EFAULT);
	setenv("GDRSIM_RM_DRIVER", "530.41.03", 1);
	ck_assert_int_eq(ioctl(ctl, ESC_N(0x2b, 40), arg), 0);
	ck_errno(ioctl(ctl, ESC_N(0x2b, 48), arg), EINVAL);
	close(node);
	close(ctl);
	rm_assert_nothing_left();
}
END_TEST

START_TEST(clients)
{
	int ctl = open("/dev/nvidiactl", O_RDWR), other = open("/dev/nvidiactl", O_RDWR);
	handle a = 0, b = 0, again;
	uint32_t ids[32];

	ck_assert_uint_eq(rm_new(ctl, 0, 0, &a, 0x41, NULL, 0), 0);
	ck_assert_uint_eq(rm_new(ctl, 0, 0, &b, 0x0, NULL, 0), 0);
	ck_assert_uint_ne(a, b);
	again = 0;
	ck_assert_uint_eq(rm_new(ctl, a, 0, &again, 0x41, NULL, 0), 0x19);
	ck_assert_uint_eq(rm_command(ctl, a, a, 0x201, ids, sizeof(ids)), 0);
	/* Of another file, of nobody, gone. */
	ck_assert_uint_eq(rm_command(other, a, a, 0x201, ids, sizeof(ids)), 0x23);
	ck_assert_uint_eq(rm_command(ctl, 0xc1dfffff, a, 0x201, ids, sizeof(ids)), 0x23);
	ck_assert_uint_eq(rm_end(other, a, a), 0x23);
	ck_assert_uint_eq(rm_end(ctl, 0xc1dfffff, a), 0x33);
	ck_assert_uint_eq(rm_end(ctl, a, 0x1234), 0);
	ck_assert_uint_eq(rm_end(ctl, a, a), 0);
	ck_assert_uint_eq(rm_command(ctl, a, a, 0x201, ids, sizeof(ids)), 0x23);
	ck_assert_uint_eq(rm_command(ctl, b, b, 0x201, ids, sizeof(ids)), 0);
	ck_assert_uint_eq(rm_command(ctl, b, 0x77, 0x201, ids, sizeof(ids)), 0x57);
	ck_assert_uint_eq(rm_command(ctl, b, b, 0x201, ids, 64), 0x1f);
	ck_assert_uint_eq(rm_command(ctl, b, b, 0x201, NULL, sizeof(ids)), 0x1f);
	ck_assert_uint_eq(rm_command(ctl, b, b, 0x3d07, ids, 8), 0x56);
	ck_assert_uint_eq(rm_command(ctl, b, b, 0, NULL, 0), 0);
	close(other);
	close(ctl);
	rm_assert_nothing_left();
}
END_TEST

START_TEST(devices)
{
	int ctl = open("/dev/nvidiactl", O_RDWR), node;
	struct nv0080 p = { .device_id = 1 };
	handle client = 0, dev = 0, none = 0;
	struct gdrsim_rm_counts c;
	uint32_t sub = 0;

	setenv("GDRSIM_DEVICES", "2", 1);
	ck_assert_uint_eq(rm_new(ctl, 0, 0, &client, 0x41, NULL, 0), 0);
	/* Only who has the GPU's node open: of instance 1 that is minor 0. */
	ck_assert_uint_eq(rm_new(ctl, client, client, &dev, 0x80, &p, sizeof(p)), 0x1b);
	node = rm_node(1);
	ck_assert_uint_eq(rm_new(ctl, client, client, &dev, 0x80, &p, sizeof(p)), 0x1b);
	close(node);
	node = rm_node(0);
	ck_assert_uint_eq(rm_new(ctl, client, client, &dev, 0x80, &p, sizeof(p)), 0);
	ck_assert_uint_eq(rm_new(ctl, client, client, &none, 0x80, NULL, 0), 0x1f);
	p.device_id = 5;
	ck_assert_uint_eq(rm_new(ctl, client, client, &none, 0x80, &p, sizeof(p)), 0x40);
	p.device_id = 32;
	ck_assert_uint_eq(rm_new(ctl, client, client, &none, 0x80, &p, sizeof(p)), 0x1f);
	p.device_id = 1;
	ck_assert_uint_eq(rm_new(ctl, client, 0, &none, 0x80, &p, sizeof(p)), 0x57);
	ck_assert_uint_eq(rm_new(ctl, client, dev, &none, 0x80, &p, sizeof(p)), 0x36);
	ck_assert_uint_eq(rm_new(ctl, 0xc1dfffff, client, &none, 0x80, &p, sizeof(p)), 0x33);
	none = dev;
	ck_assert_uint_eq(rm_new(ctl, client, client, &none, 0x80, &p, sizeof(p)), 0x19);
	none = 0;
	ck_assert_uint_eq(rm_new(ctl, client, client, &none, 0x9999, &p, sizeof(p)), 0x22);
	ck_assert_uint_eq(rm_new(ctl, client, client, &none, 0x2080, &sub, 4), 0x36);
	ck_assert_uint_eq(rm_new(ctl, client, dev, &none, 0x2080, &sub, 4), 0);
	none = 0x1234;
	ck_assert_uint_eq(rm_new(ctl, client, client, &none, 0x80, &p, sizeof(p)), 0);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.devices, 2);
	ck_assert_uint_eq(rm_end(ctl, client, 0x1234), 0);
	ck_assert_uint_eq(rm_end(ctl, client, dev), 0);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.devices, 0);
	ck_assert_uint_eq(c.clients, 1);
	close(ctl);
	close(node);
	rm_assert_nothing_left();
}
END_TEST

START_TEST(registered)
{
	int ctl = open("/dev/nvidiactl", O_RDWR), node = rm_node(0), other = rm_node(0);
	struct gdrsim_rm_counts c;
	handle client = 0;

	ck_assert_uint_eq(rm_new(ctl, 0, 0, &client, 0x41, NULL, 0), 0);
	ck_errno(ioctl(node, ESC_REGISTER, &node), EINVAL);
	ck_errno(ioctl(ctl, ESC_REGISTER, &ctl), EINVAL);
	ck_assert_int_eq(ioctl(node, ESC_REGISTER, &ctl), 0);
	ck_errno(ioctl(node, ESC_REGISTER, &ctl), EINVAL);
	ck_assert_int_eq(ioctl(other, ESC_REGISTER, &ctl), 0);
	/* The control file stays as long as one that is registered with it. */
	close(ctl);
	close(node);
	rm_sim.counts(&c);
	ck_assert_uint_eq(c.clients, 1);
	close(other);
	rm_assert_nothing_left();
}
END_TEST

START_TEST(faults)
{
	int ctl = open("/dev/nvidiactl", O_RDWR);
	uint32_t ids[32];
	handle client = 0;
	struct os64 a = { .class = 0x41 };

	rm_sim.faults("RM_ALLOC:2=0x1a,RM_CONTROL.201:1=ENOMEM,OPEN_DEVICE:*=EMFILE");
	ck_assert_uint_eq(rm_new(ctl, 0, 0, &client, 0x41, NULL, 0), 0);
	ck_assert_uint_eq(rm_new(ctl, 0, 0, &(handle){ 0 }, 0x41, NULL, 0), 0x1a);
	ck_assert_str_eq(rm_sim.failed(), "RM_ALLOC.41");
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC"), 2);
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC.41"), 2);
	ck_errno(ioctl(ctl, ESC_CONTROL,
		       (&(struct os54){ client, client, 0x201, 0, ids, sizeof(ids), 0 })),
		 ENOMEM);
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x201, ids, sizeof(ids)), 0);
	ck_errno(rm_node(0), EMFILE);
	rm_sim.fail_nth(2, 0x51);
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x201, ids, sizeof(ids)), 0);
	ck_assert_uint_eq(rm_command(ctl, client, client, 0x201, ids, sizeof(ids)), 0x51);
	rm_sim.fail_nth(1, -EAGAIN);
	ck_errno(ioctl(ctl, ESC_ALLOC, &a), EAGAIN);
	ck_assert_uint_eq(rm_sim.calls(NULL), 1);
	rm_sim.faults(NULL);
	ck_assert_ptr_null(rm_sim.failed());
	close(ctl);
	rm_assert_nothing_left();
}
END_TEST

void rm_tests_objects(TCase *tc)
{
	tcase_add_test(tc, nodes);
	tcase_add_test(tc, gpus);
	tcase_add_test(tc, two_gpus);
	tcase_add_test(tc, version);
	tcase_add_test(tc, sizes);
	tcase_add_test(tc, clients);
	tcase_add_test(tc, devices);
	tcase_add_test(tc, registered);
	tcase_add_test(tc, faults);
}
