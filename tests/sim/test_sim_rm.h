/* SPDX-License-Identifier: MIT */
/*
 * What the self-tests of nvidia.ko's stand-in share: its structures, declared here a second time from
 * NVIDIA's headers (rm/abi.h names them), calls of one line each, and a set of files and objects that
 * a test begins with.
 */
#ifndef TEST_SIM_RM_H
#define TEST_SIM_RM_H

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "common/rm.h"
#include "common/standin.h"

#define MIB ((size_t)1 << 20)

typedef uint32_t handle;

struct os00 {
	handle root, parent, old;
	uint32_t status;
};

struct os64 {
	handle root, parent, new;
	uint32_t class;
	void *params, *rights;
	uint32_t params_size, flags, status;
};

struct os54 {
	handle client, object;
	uint32_t cmd, flags;
	void *params;
	uint32_t params_size, status;
};

struct os55 {
	handle client, parent, object, client_src, object_src;
	uint32_t flags, status;
};

struct os33_fd {
	handle client, device, memory;
	uint64_t offset, length, linear;
	uint32_t status, flags;
	int fd;
};

struct os34 {
	handle client, device, memory;
	uint64_t linear;
	uint32_t status, flags;
};

struct nv0080 {
	uint32_t device_id;
	handle share, target_client, target_device;
	uint32_t flags;
	uint64_t va_size, va_start, va_limit;
	uint32_t va_mode;
};

struct card {
	uint8_t valid;
	struct {
		uint32_t domain;
		uint8_t bus, slot, function;
		uint16_t vendor, device;
	} pci;
	uint32_t gpu_id;
	uint16_t irq;
	uint64_t reg, reg_size, fb, fb_size;
	uint32_t minor;
	uint8_t name[10];
};

/* nv_ioctl_export_to_dma_buf_fd_t of 580, and as it was before 570 */
struct export_580 {
	int fd;
	handle client;
	uint32_t total, num, index;
	uint64_t size;
	uint8_t mapping, allow_mmap;
	handle handles[128];
	uint64_t offsets[128], sizes[128];
	uint32_t status;
};

struct export_515 {
	int fd;
	handle client;
	uint32_t total, num, index;
	uint64_t size;
	handle handles[128];
	uint64_t offsets[128], sizes[128];
	uint32_t status;
};

#define ESC(nr, type)	_IOC(_IOC_READ | _IOC_WRITE, 'F', nr, sizeof(type))
#define ESC_N(nr, size) _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size)
#define ESC_FREE	ESC(0x29, struct os00)
#define ESC_CONTROL	ESC(0x2a, struct os54)
#define ESC_ALLOC	ESC(0x2b, struct os64)
#define ESC_DUP		ESC(0x34, struct os55)
#define ESC_MAP		ESC(0x4e, struct os33_fd)
#define ESC_UNMAP	ESC(0x4f, struct os34)
#define ESC_REGISTER	ESC(201, int)

#define ck_errno(call, err)                                                                      \
	do {                                                                                     \
		long rc_ = (long)(call);                                                         \
		ck_assert_msg(rc_ == -1 && errno == (err), #call ": %ld, errno %d, not %d", rc_, \
			      errno, err);                                                       \
	} while (0)

/* A client with one GPU. */
struct rm_user {
	int ctl, node;
	handle client, device;
	unsigned int minor, instance;
};

/* Each fails the test where the ioctl itself fails, and gives its status. */
uint32_t rm_new(int ctl, handle root, handle parent, handle *object, uint32_t class, void *params,
		uint32_t size);
uint32_t rm_command(int ctl, handle client, handle object, uint32_t cmd, void *params,
		    uint32_t size);
uint32_t rm_duplicate(const struct rm_user *u, handle from, handle object, handle *out);
uint32_t rm_map(const struct rm_user *u, handle memory, uint64_t offset, uint64_t length,
		uint32_t flags, int fd, uint64_t *linear);
uint32_t rm_unmap(const struct rm_user *u, handle memory, uint64_t linear);
uint32_t rm_end(int ctl, handle client, handle object);

/* The GPU of a CUDA ordinal: found by its PCI address, as the driver tells it. */
void rm_find(int ctl, handle client, int ordinal, unsigned int *minor, unsigned int *instance);
int rm_node(unsigned int minor);
void rm_user_start(struct rm_user *u, int ordinal);
void rm_user_end(struct rm_user *u);

/* What libcuda's export call said, taken as it passed: the last of them. */
struct seen {
	struct export_580 call[8];
	unsigned int n;
};
extern struct seen rm_seen;
/* The dma-buf of the range; rm_seen is filled. */
int rm_export(CUdeviceptr at, size_t size);

/* Where libcuda's import of ioctl is; *kind: "JUMP_SLOT" or "GLOB_DAT", "sealed" if not writable. */
void **rm_slot(char kind[32]);
/* The one line that this program prints when it is started with that argument: one of those below. */
void rm_again(const char *what, char *line, int size);
int rm_print_slot(void); /* "slot": exports by the slot, and says of what kind it is */
int rm_hold(void); /* "hold": a client of its own, as "count" sees it meanwhile */
int rm_count(void);

void rm_tests_objects(TCase *tc);
void rm_tests_maps(TCase *tc);
void rm_tests_export(TCase *tc);
void rm_tests_processes(TCase *tc);
void rm_tests_slots(TCase *tc);
void rm_tests_threads(TCase *tc);

#endif
