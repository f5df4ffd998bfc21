/* SPDX-License-Identifier: MIT */
/*
 * The stand-in of nvidia.ko inside. Its state lies in memory that all processes of the simulated
 * machine share (state.c); indices stand for pointers. Unless noted, the caller holds the lock. A
 * status is one of abi.h's; an err is an errno.
 */
#ifndef SIM_RM_H
#define SIM_RM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#pragma GCC visibility push(default)
#include "rm/gdrsim_rm.h"
#pragma GCC visibility pop
#include "machine.h"
#include "rm/abi.h"

enum {
	RM_FILES = 16384,
	RM_CLIENTS = 1024,
	RM_OBJECTS = 65536,
	RM_MAPS = 16384,
	RM_MEMORIES = 32768,
	RM_EXPORTS = 65536,
	RM_PAGE = 4096,
};

/* An open file description. Index 0 of every table is unused. */
struct rm_file {
	enum rm_kind { RM_NONE, RM_CTL, RM_DEVICE, RM_DMABUF } kind;
	bool driver; /* libcuda's */
	int gpu; /* RM_DEVICE, RM_DMABUF */
	int ctl; /* RM_DEVICE: the file of REGISTER_FD, which this one keeps open */
	unsigned int registered; /* RM_CTL: by how many */
	int map; /* RM_DEVICE: its mmap context, set once */
	/* RM_DMABUF */
	uint32_t total_objects, num_objects;
	uint64_t total_size, attached_size;
	uint8_t mapping_type, allow_mmap;
};

struct rm_client {
	nv_handle handle; /* 0: a free slot */
	int file;
	pid_t pid;
	bool driver;
	uint32_t next_object;
};

struct rm_object {
	int client; /* 0: a free slot */
	nv_handle handle;
	int parent; /* object, or 0: the client */
	enum nv_class class;
	int gpu; /* its device's, which need not be its memory's */
	int memory;
	uint64_t offset, length; /* of the memory */
};

struct rm_map {
	int object; /* 0: a free slot */
	int device; /* object of the map's context */
	pid_t pid;
	uint64_t offset, length; /* in the object, whole pages */
	uint64_t linear;
	uint32_t flags;
};

struct rm_memory {
	bool live;
	bool ended; /* by its maker */
	pid_t pid; /* the maker's process */
	int fd; /* its descriptor of this memory */
	ino_t ino;
	int gpu;
	size_t size;
	uint64_t at; /* in the GPU's memory */
	unsigned int refs; /* objects, dma-buf handles */
	unsigned int life; /* changes each time the slot is used */
};

/* A handle that a dma-buf holds. */
struct rm_export {
	int file; /* 0: a free slot */
	uint32_t index;
	int memory;
	uint64_t size;
};

struct rm_table {
	int top; /* slots from here on were never used */
	int hint; /* none below is free */
};

struct rm_state {
	struct rm_table n_files, n_clients, n_objects, n_maps, n_memories, n_exports;
	uint32_t next_client;
	uint64_t next_linear, next_memory;
	unsigned int life;
	struct rm_file files[RM_FILES];
	struct rm_client clients[RM_CLIENTS];
	struct rm_object objects[RM_OBJECTS];
	struct rm_map maps[RM_MAPS];
	struct rm_memory memories[RM_MEMORIES];
	struct rm_export exports[RM_EXPORTS];
};
extern struct rm_state *rm;

/* state.c */
bool rm_present(void); /* LD_PRELOAD or GDRSIM_RM asks for the nodes, and the state exists */
void rm_lock(void); /* no signal handler runs until rm_unlock() */
void rm_unlock(void);
int rm_slot(struct rm_table *table, int max, bool (*is_free)(int index)); /* 0: full */
void rm_slot_free(struct rm_table *table, int index);
int rm_state_fd(void);
bool rm_is_state(const struct stat *st); /* the file of which all nodes' descriptions are opens */

/* config.c: the environment, and the calls that fail. No lock. */
int rm_node_presence(void); /* 0 or the errno of an open */
int rm_minor_presence(unsigned int minor);
int rm_version(void);
const char *rm_version_text(char *text, size_t size);
bool rm_flag(const char *name, bool absent);
/* Counts a call. Returns 0, or the errno or, negative, the status that the call must fail with. */
int rm_fault(const char *name, unsigned int detail);

/* gpus.c: the simulated GPUs by CUDA's ordinal. No lock. */
struct rm_gpu {
	struct sim_gpu sim;
	uint32_t id, minor, instance;
};
int rm_gpu_count(void);
void rm_gpu(int gpu, struct rm_gpu *out);
int rm_gpu_by_minor(unsigned int minor); /* ordinal or -1 */
int rm_gpu_by_instance(uint32_t instance);
int rm_gpu_by_id(uint32_t id);
uint64_t rm_bar1_base(const struct rm_gpu *gpu);
int rm_card_info(void *arg, size_t size); /* errno */

/* files.c */
int rm_file_of(int fd); /* index, or 0: not one of ours. No lock. */
int rm_file_new(enum rm_kind kind, int gpu, int flags, int *fd); /* errno */
bool rm_gpu_is_open(int gpu); /* by the calling process */
void rm_file_check(int file); /* dies with its last descriptor */
bool rm_is_driver(void); /* the calling thread is in libcuda's own calls. No lock. */
int rm_register_fd(int file, int ctl_fd); /* errno */

/* objects.c */
struct rm_client *rm_client_find(nv_handle handle); /* NULL: none */
int rm_object_find(int client, nv_handle handle); /* 0: none */
int rm_client_index(const struct rm_client *client);
enum nv_status rm_client_validate(const struct rm_client *client, int file);
enum nv_status rm_object_new(int client, int parent, nv_handle *handle, enum nv_class class,
			     int gpu, int *object);
enum nv_status rm_memory_object(int client, int parent, nv_handle *handle, int memory,
				uint64_t offset, uint64_t length);
void rm_object_free(int object);
void rm_client_free(int client);
void rm_free_of_file(int file);
enum nv_status rm_alloc(int file, struct nv_alloc *a);
enum nv_status rm_free(int file, const struct nv_free *f);
enum nv_status rm_dup(int file, struct nv_dup *d);

/* memory.c */
void rm_memory_get(int memory);
void rm_memory_put(int memory);
int rm_memory_open(int memory, int flags); /* a descriptor of its own, or -1. */
int rm_memory_of_foreign(int fd,
			 size_t *size); /* of an exported descriptor; one reference; 0: not one */
void rm_memory_reap(void); /* calls the pending releases. Without the lock. */

/* control.c */
enum nv_status rm_control(int file, struct nv_control *c);
/* export.c */
enum nv_status rm_export(int gpu, void *arg);
void rm_export_drop(int file);
enum nv_status rm_import_from_fd(int client, struct nv_import_from_fd *p);
enum nv_status rm_export_info(int fd, uint32_t *instance);

/* maps.c */
enum nv_status rm_map_memory(int file, struct nv_map *m);
enum nv_status rm_unmap_memory(int file, const struct nv_unmap *m);
void rm_map_end(int map);

/* vmas.c: mappings of the nodes in this process */
bool rm_vma_any(void); /* can the two below matter? No lock */
int rm_vma_add(int file, int fd, int map, void *addr, size_t len); /* errno */
void rm_vma_replace(void *addr, size_t len); /* memory that is not the map's */
void rm_vma_cut(void *addr, size_t len);
void rm_vma_dontfork(void *addr, size_t len);
void rm_vma_lose(int map); /* the map ends: pages still mapped show other memory now */
void rm_vma_stale(void); /* counts one of gdrsim_rm_stale() */

/* The system calls, for the interposer. Without the lock. */
bool rm_is_path(const char *path);
int rm_open(const char *path, int flags); /* a node, or a file of /proc/driver/nvidia */
int rm_stat(const char *path, struct stat *st);
void rm_fstat(int file, struct stat *st);
int rm_ioctl(int file, int fd, unsigned long request, void *arg);
void *rm_node_mmap(int file, int fd, void *addr, size_t len, int prot, int flags, uint64_t off);
void rm_unmapped(void *addr, size_t len);
void rm_dontfork(void *addr, size_t len);
int rm_close(int file, int fd);
void rm_closed(int file); /* one descriptor of it */

#endif
