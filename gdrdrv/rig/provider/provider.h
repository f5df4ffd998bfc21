/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Internal interfaces of the stand-in provider. memory.c has blocks and pages, p2p.c the
 * nvidia_p2p_* calls, device.c the PCI function and the node, window.c a free at a chosen moment,
 * refuse.c a kernel that refuses types and nodes, pte.c the CPU's entries, notifier.c a process whose
 * pages the kernel reclaims.
 *
 * One lock, that of provider_bar, is held over each step of a get, and over put and free with their
 * callbacks, like the API lock of the real GPU driver: a put blocks while a callback runs, and
 * lockdep sees the client's lock order.
 */
#ifndef PROVIDER_H
#define PROVIDER_H

#include <linux/io.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "provider_uapi.h"

/* A module parameter that tests change while the provider runs. */
#define KNOB(name, usual, text)        \
	static int name = usual;       \
	module_param(name, int, 0644); \
	MODULE_PARM_DESC(name, text)

#define PROVIDER_CLIENTS 8

/* A context of a process: its client of the resource manager, and its third-party P2P object. */
struct provider_file {
	struct list_head node; /* provider_bar.lock */
	pid_t tgid;
	u64 p2p_token;
	u32 va_space;
	struct notifier *notifier; /* notifier.c's; NULL: none */
	/* provider_bar.lock: the clients that it admits; the first is its own (pidClientList). */
	struct {
		pid_t tgid;
		u64 client; /* a p2p_token; 0: none */
	} clients[PROVIDER_CLIENTS];
};

struct provider_block {
	struct list_head node;
	struct provider_file *owner; /* NULL once freed */
	u64 va;
	u64 npages;
	u32 *pages; /* indices in the BAR */
	int refs; /* the owner, each persistent pin */
};

struct provider_bar {
	struct mutex lock; /* everything here, and the lists of p2p.c */
	phys_addr_t phys;
	u64 size;
	u32 npages; /* without those of PROVIDER_KEEP, which lie behind */
	u32 nfree; /* likewise */
	unsigned long *used;
	struct list_head blocks;
	struct list_head files;
	u64 last_token;
	u64 next_va;
	u64 last_va, last_len; /* most recently freed */
};

extern struct provider_bar provider_bar;
extern struct provider_info provider_counts; /* counters since load */

int provider_block_alloc(struct provider_file *owner, struct provider_alloc *arg);
struct provider_block *provider_block_find_locked(u64 va, u64 len);
void provider_block_put_locked(struct provider_block *block);
int provider_block_free(struct provider_file *owner, u64 va);
void provider_block_free_all(struct provider_file *owner);
long provider_copy(struct provider_copy *arg, bool poke);

int provider_lend(struct provider_file *file, u64 client);
void provider_client_ends_locked(const struct provider_file *client);
void provider_p2p_revoke_locked(struct provider_block *block);
void provider_p2p_count_locked(struct provider_info *info);
void provider_p2p_exit(void);

int provider_window_open(struct provider_file *file, const struct provider_window *arg);
void provider_window_close(struct provider_file *file);
int provider_window_arm(struct provider_file *file, const struct provider_window_arm *arg);
int provider_window_free(struct provider_file *file, struct provider_window_free *arg);
int provider_window_go(struct provider_file *file, struct provider_window_go *arg);
void provider_window_pass(u32 at);
void provider_window_in_callback(bool in);

void provider_refuse_exit(void);

int provider_notify(struct provider_file *file, const struct provider_notify *arg);
int provider_notify_free(struct provider_file *file, const struct provider_notify_free *arg);
void provider_notify_end(struct provider_file *file);

int provider_read_pte(struct provider_pte *arg);

#endif
