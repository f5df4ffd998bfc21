/* SPDX-License-Identifier: MIT */
/*
 * Interfaces of the guest's tests: checks, the current set-up, one-line access to both nodes.
 *
 * Each test runs in a process of its own with a time limit. It passes by returning, fails by a
 * CHECK, and must leave nothing pinned: init checks after each test.
 */
#ifndef RIG_H
#define RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gdrdrv_uapi.h"
#include "provider_uapi.h"

/* How the driver pins in the current set-up. */
enum mode {
	PERSISTENT = 1, /* by the persistent interface */
	CALLBACK = 2, /* by callback: use_persistent_mapping=0 */
	FALLBACK = 4, /* by callback: the provider refuses persistent pins */
	ANY_MODE = PERSISTENT | CALLBACK | FALLBACK,
	BY_CALLBACK = CALLBACK | FALLBACK,
};

struct rig {
	enum mode mode;
	unsigned int setup; /* number in this boot */
	int gen; /* branch whose nv-p2p.h both modules are built with */
	bool gpl; /* open flavour */
	bool debug; /* the checking kernel, which is slow */
	unsigned int rounds; /* of the window race */
	unsigned int random_s;
	unsigned int fuzz;
	unsigned int pairs; /* not 0: every pair of walks */
	unsigned int sequences_s; /* of random walks; 0: none */
	unsigned int seed;
	char only[64];
	const char *test; /* the name of the test that runs */
	unsigned int arg; /* and its argument */
};

extern struct rig rig;
extern int drv, prov; /* the driver's node and the provider's, which init opens for each test */

struct test {
	const char *name;
	void (*fn)(void);
	unsigned int modes;
	unsigned int seconds; /* limit; 0: the usual one */
	unsigned int arg; /* rig.arg while the test runs */
};

extern const struct test tests_basic[], tests_map[], tests_revoke[], tests_owner[], tests_window[],
	tests_walk[], tests_pairs[], tests_observe[], tests_race[], tests_fuzz[], tests_fault[],
	tests_measure[], tests_node[], tests_reclaim[];

/* Whether the free of memory revokes its pins in the current set-up. */
static inline bool by_callback(void)
{
	return rig.mode & BY_CALLBACK || (rig.mode == PERSISTENT && rig.gen == 470);
}

#define SKIP_CODE 77

#define CHECK(cond)                                                                             \
	do {                                                                                    \
		if (!(cond))                                                                    \
			check_failed("%s:%d: %s (errno %d)", __FILE__, __LINE__, #cond, errno); \
	} while (0)
#define CHECK_EQ(got, want)                                                                   \
	do {                                                                                  \
		long long got_ = (long long)(got), want_ = (long long)(want);                 \
		if (got_ != want_)                                                            \
			check_failed("%s:%d: %s is %lld, not %lld", __FILE__, __LINE__, #got, \
				     got_, want_);                                            \
	} while (0)
/* A call that returns 0 or -errno: it must succeed, or fail so. */
#define OK(call)	 CHECK_EQ(call, 0)
#define FAILS(err, call) CHECK_EQ(call, -(err))
#define SKIP(why)                               \
	do {                                    \
		printf("# skipped: %s\n", why); \
		_exit(SKIP_CODE);               \
	} while (0)

#define KiB	 1024UL
#define MiB	 (1024UL * KiB)
#define GPU_PAGE (64 * KiB)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* @text: may be NULL; its line breaks become zeros. */
#define for_each_line(line, text)                                                            \
	for (char *save_ = NULL, *line = (text) ? strtok_r(text, "\n", &save_) : NULL; line; \
	     line = strtok_r(NULL, "\n", &save_))

/* GPU memory, its pin and its mapping, all through drv and prov. */
struct region {
	uint64_t va, h;
	volatile uint8_t *p;
};

/* Ends the process with exit code 1, or jumps to check_jmp if it is set. */
void check_failed(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
extern sigjmp_buf *check_jmp;

/* dev.c; a function of type int returns 0 or -errno, unless its comment names another result. */
int drv_open_at(const char *node); /* a descriptor; checks */
int drv_open(void); /* of the usual node; likewise */
int prov_open(void); /* likewise */
struct provider_alloc gpu_alloc_flags(int gpu, size_t size, unsigned int flags);
uint64_t gpu_alloc(int gpu, size_t size);
int gpu_free(int gpu, uint64_t va);
void gpu_peek(int gpu, uint64_t va, void *buf, size_t len);
void gpu_poke(int gpu, uint64_t va, const void *buf, size_t len);
uint8_t gpu_byte(uint64_t va); /* after the CPU's writes */
struct provider_info gpu_info(int gpu);
struct provider_pte read_pte(int gpu, const volatile void *addr);
int pin(int file, uint64_t va, uint64_t size, uint64_t *handle);
int pin_tokens(int file, uint64_t va, uint64_t size, uint64_t token, uint32_t space,
	       uint64_t *handle);
int pin_flags(int file, uint64_t va, uint64_t size, uint32_t flags, uint64_t *handle);
uint64_t must_pin(int file, uint64_t va, uint64_t size);
int unpin(int file, uint64_t handle);
int cb_flag(int file, uint64_t handle); /* 0, 1 or -errno */
int get_info(int file, uint64_t handle, struct gdrdrv_ioc_get_info *info);
int get_info_v2(int file, uint64_t handle, struct gdrdrv_ioc_get_info_v2 *info);
int req_type(int file, uint64_t handle, uint32_t type);
int populate(int file, uint64_t handle);
void *map(int file, uint64_t handle, size_t len); /* MAP_FAILED and errno */
/* Maps writable at @at, which reserve() returned; checks. */
void must_map_at(int file, uint64_t handle, size_t len, void *at);
void *map_prot(int file, uint64_t handle, size_t len, int prot, int flags, void *at);
volatile uint8_t *must_map(int file, uint64_t handle, size_t len);
void unmap(const volatile void *p, size_t len); /* checks */
struct region region(size_t size, unsigned int flags); /* PROVIDER_SCATTER... */
/* Checks bytes that the CPU writes and the GPU reads, and the reverse. */
void check_data(const struct region *r, size_t len);
size_t cpu_page(void); /* page size of the CPU */
void *reserve(size_t len, size_t align); /* address space with a mapped page on either side */
int try_read(const volatile void *addr); /* 0, or the signal */
int try_write(volatile void *addr, uint8_t value);
int try_read32(const volatile void *addr, uint32_t *value); /* likewise */
bool pte_is_wc(uint64_t pte);
bool pte_is_written(uint64_t pte); /* accessed and dirty */
bool pte_maps(uint64_t pte); /* memory, also without access; not a marker */
/* Whether x86's list of memory types has the range, as one entry. */
bool listed_as_wc(uint64_t phys, size_t len);
bool listed_as_uncached(uint64_t phys, size_t len);
unsigned int nr_memtypes_at(uint64_t phys); /* the number of entries that have the byte */
/* The number of @step that have an entry; an entry must be small. */
size_t nr_entries(const volatile void *p, size_t len, size_t step);

/* Files of the kernel. */
long read_number(const char *path);
void write_text(const char *path, const char *text);
char *read_text(const char *path); /* malloc; NULL when it cannot be read */
void knob(const char *name, int value);
long stat_of(const char *name); /* counter of /proc/driver/gdrdrv/stats; -1 if it does not exist */
long nr_pins(void);
void nothing_pinned(void); /* checks the counters of both modules */
bool driver_is_kept(void); /* it has pinned by callback and refuses the unload */
long driver_users(void); /* references to the module, without the one that keeps it */
long long now_us(void);
void become_user_like_root(void); /* another user, who chose a number */
int wait_child(pid_t pid); /* exit code, or 128 + signal */
void pattern(uint8_t *buf, size_t len, unsigned int seed);
int delete_module_named(const char *name); /* 0 or -errno */

/* init.c */
int load_module(const char *path, const char *params); /* 0 or -errno */
int load_driver(void); /* of the present set-up; 0 or -errno */
int load_provider(const char *params); /* likewise */

#endif
